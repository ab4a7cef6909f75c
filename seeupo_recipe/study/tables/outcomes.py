"""Tables 2, 4 and 5 and every ablation: outcomes, differences to a reference, seeds, training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
import pandas as pd

from seeupo_recipe.study.collect import Block, CellRuns
from seeupo_recipe.study.outcomes import METRICS, Outcomes, outcomes, paired
from seeupo_recipe.study.spec import Study, Variant
from seeupo_recipe.study.statistics import (
    SEEDS_FOR_AGGREGATES,
    crossed_replicates,
    holm,
    interquartile_mean,
    mean_of_benchmarks,
    percentile_interval,
    probability_of_improvement,
    two_sided_p,
)
from seeupo_recipe.study.store import NOT_RUN

AVERAGE = "average"


def steps_of(cell: CellRuns) -> str:
    """Optimizer steps per iteration, in words."""
    algorithm = cell.cell.config.algorithm
    if algorithm.name == "base":
        return "none"
    inner = algorithm.inner_epochs * algorithm.inner_mini_batches
    if algorithm.name == "seeupo":
        base = "one" if algorithm.settings().order == "joint" else "per turn"
    else:
        base = str(algorithm.steps_per_iteration)
    return base if inner == 1 else f"{base} x{inner}"


@lru_cache(maxsize=4096)
def _outcomes(runs: tuple, k: int) -> Outcomes | None:
    return outcomes(runs, k)


def cell_outcomes(cell: CellRuns, k: int) -> Outcomes | None:
    """Outcomes of a cell's finished runs at their last checkpoint."""
    return _outcomes(tuple(cell.finished), k)


def outcome_frame(study: Study, blocks: Iterable[Block]) -> pd.DataFrame:
    """One row per block, variant, benchmark (or their average) and metric; shares in [0, 1]."""
    k = study.table.k
    rows = []
    for block in blocks:
        for variant in study.variants:
            replicates: dict[str, list] = {metric: [] for metric in METRICS}
            for benchmark in block.benchmarks:
                cell = block[variant.name, benchmark]
                found = cell_outcomes(cell, k)
                for metric in METRICS:
                    sampled = found.replicates(metric, name=benchmark) if found else None
                    interval = percentile_interval(*sampled) if sampled else None
                    if sampled:
                        replicates[metric].append(sampled)
                    rows.append(_row(block, variant, benchmark, f"{metric}@{k}", interval, cell, found))
            for metric in METRICS if len(block.benchmarks) > 1 else ():
                whole = len(replicates[metric]) == len(block.benchmarks)
                interval = mean_of_benchmarks(replicates[metric]) if whole else None
                rows.append(_row(block, variant, AVERAGE, f"{metric}@{k}", interval))
    return pd.DataFrame(rows)


def _row(block: Block, variant: Variant, benchmark: str, metric: str, interval, cell=None, found=None) -> dict:
    value, low, high = interval or (np.nan, np.nan, np.nan)
    return {
        "backend": block.backend,
        "model": block.model,
        "benchmark": benchmark,
        "variant": variant.name,
        "label": variant.label,
        "metric": metric,
        "value": value,
        "low": low,
        "high": high,
        "seeds": len(found.seeds) if found else 0,
        "tasks": len(found.tasks) if found else 0,
        "clusters": len(set(found.clusters)) if found else 0,
        "samples": found.samples if found else 0,
        "environment_failures": found.failures if found else 0,
        "runs": cell.summary if cell else "",
    }


def difference_frame(study: Study, blocks: Iterable[Block]) -> pd.DataFrame:
    """Paired differences, reference minus variant, on the tasks and seeds of both.

    ``holm_p`` adjusts over all variants and benchmarks of the block, per metric.
    """
    k, reference = study.table.k, study.table.reference
    rows = []
    for block in blocks:
        for metric in METRICS:
            family = []
            for variant in study.variants:
                for benchmark in block.benchmarks if variant.name != reference else ():
                    row = _difference(block, reference, variant, benchmark, metric, k)
                    if row:
                        family.append(row)
            for row, adjusted in zip(family, holm([r["p"] for r in family]), strict=True):
                rows.append({**row, "holm_p": adjusted})
    columns = ["backend", "model", "benchmark", "reference", "variant", "metric", "value", "low", "high"]
    return pd.DataFrame(rows, columns=[*columns, "seeds", "tasks", "p", "holm_p"])


def _difference(block: Block, reference: str, variant: Variant, benchmark: str, metric: str, k: int) -> dict | None:
    a, b = (cell_outcomes(block[name, benchmark], k) for name in (reference, variant.name))
    shared = paired(a, b, metric) if a and b else None
    if shared is None:
        return None
    values, clusters, seeds = shared
    replicates = crossed_replicates(values, clusters, name=benchmark)
    interval = percentile_interval(float(np.nanmean(values)), replicates)
    return {
        "backend": block.backend,
        "model": block.model,
        "benchmark": benchmark,
        "reference": reference,
        "variant": variant.name,
        "metric": f"{metric}@{k}",
        **interval._asdict(),
        "seeds": len(seeds),
        "tasks": values.shape[1],
        "p": two_sided_p(replicates),
    }


def aggregate_frame(study: Study, blocks: Iterable[Block]) -> pd.DataFrame:
    """IQM of avg@k over runs, and the probability that a reference run beats a run of the variant.

    Over the benchmarks on which the reference has at least three finished seeds; a variant that has fewer
    on one of them is left out.
    """
    k, reference = study.table.k, study.table.reference
    rows = []
    for block in blocks:
        scores = {
            (variant.name, benchmark): _run_scores(block[variant.name, benchmark], k)
            for variant in study.variants
            for benchmark in block.benchmarks
        }
        benchmarks = [b for b in block.benchmarks if len(scores[reference, b]) >= SEEDS_FOR_AGGREGATES]
        for variant in study.variants if benchmarks else ():
            mine = [scores[variant.name, b] for b in benchmarks]
            if min(map(len, mine)) < SEEDS_FOR_AGGREGATES:
                continue
            name = f"{block.name}/{variant.name}"
            iqm = interquartile_mean(mine, name=f"iqm/{name}")
            row = {"backend": block.backend, "model": block.model, "benchmarks": " ".join(benchmarks)}
            row |= {"variant": variant.name, "seeds": min(map(len, mine))}
            row |= {"iqm": iqm.value, "iqm_low": iqm.low, "iqm_high": iqm.high}
            if variant.name != reference:
                pairs = [(scores[reference, b], scores[variant.name, b]) for b in benchmarks]
                better = probability_of_improvement(pairs, name=f"improvement/{name}")
                row |= {"better": better.value, "better_low": better.low, "better_high": better.high}
            rows.append(row)
    return pd.DataFrame(rows)


def _run_scores(cell: CellRuns, k: int) -> np.ndarray:
    found = cell_outcomes(cell, k)
    return np.nanmean(found.avg, axis=1) if found else np.empty(0)


def cell_text(cell: CellRuns, text: str) -> str:
    """``text`` if the cell has a finished run, else its state."""
    if cell.finished:
        return text
    states = sorted({cell.state(seed) for seed in cell.seeds} - {NOT_RUN})
    return "/".join(states) if states else NOT_RUN


def runs_text(cells: Sequence[CellRuns]) -> str:
    """The ``runs`` column: one summary if all benchmarks agree, else one each."""
    summaries = [cell.summary for cell in cells]
    return summaries[0] if len(set(summaries)) == 1 else "; ".join(summaries)
