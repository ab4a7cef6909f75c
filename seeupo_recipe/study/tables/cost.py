"""Table 3: where an iteration's time goes, memory, optimizer steps and tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from seeupo_recipe.study.collect import Block
from seeupo_recipe.study.spec import Study
from seeupo_recipe.study.statistics import Interval, percentile_interval, resample_counts
from seeupo_recipe.study.store import RecordedRun
from seeupo_recipe.study.tables.document import EMPTY, Section, number
from seeupo_recipe.study.tables.outcomes import cell_text, steps_of

PHASES: Mapping[str, tuple[str, ...]] = {
    "rollout": ("timing_s/gen",),
    "log_probs": ("timing_s/old_log_prob", "timing_s/ref", "timing_s/values"),
    "update": ("timing_s/adv", "timing_s/update_critic", "timing_s/update_actor"),
    "sync": ("timing_s/update_weights",),
}
STEP = "timing_s/step"
MEMORY = ("perf/peak_memory_gb", "actor/perf/max_memory_allocated_gb")
COUNTS = {
    "optimizer_steps": "update/optimizer_steps",
    "sampled_tokens": "tokens/sampled",
    "forward_tokens": "tokens/forward",
    "backward_tokens": "tokens/backward",
}
COLUMNS = [
    *("backend", "model", "benchmark", "machine", "variant", "label", "seeds", "seconds", *PHASES, "other"),
    *("ratio", "ratio_low", "ratio_high", "memory_gb", *COUNTS),
]
FIRST = 2


def cost_frame(study: Study, blocks: Iterable[Block]) -> pd.DataFrame:
    """One row per block, benchmark, machine and variant.

    Seconds are means over the iterations from the second on, the first one being spent on start-up; ``other``
    is the rest of the step. ``ratio`` is the step's seconds over those of the reference's runs on the same
    kind of machine, with its interval; it is never taken across machines.
    """
    rows = []
    for block in blocks:
        for benchmark in block.benchmarks:
            for machine, runs in _by_machine(block, benchmark).items():
                reference = _steps(runs.get(study.table.reference, []))
                for variant in study.variants:
                    if variant.name in runs:
                        head = {"backend": block.backend, "model": block.model, "benchmark": benchmark}
                        head |= {"machine": machine, "variant": variant.name, "label": variant.label}
                        rows.append({**head, **_facts(runs[variant.name], reference)})
    return pd.DataFrame(rows, columns=COLUMNS)


def comparable_steps(block: Block, a: str, b: str, benchmark: str) -> tuple[np.ndarray, np.ndarray, int] | None:
    """Seconds of the iterations of two variants on the machine that ran most of both, and its run count.

    None if no machine ran both.
    """
    both = [runs for runs in _by_machine(block, benchmark).values() if a in runs and b in runs]
    if not both:
        return None
    runs = max(both, key=lambda r: min(len(r[a]), len(r[b])))
    return _steps(runs[a]), _steps(runs[b]), min(len(runs[a]), len(runs[b]))


def _by_machine(block: Block, benchmark: str) -> dict[str, dict[str, list[RecordedRun]]]:
    """Finished training runs by machine and variant."""
    found: dict[str, dict[str, list[RecordedRun]]] = {}
    for variant in block.variants:
        for run in block[variant.name, benchmark].finished:
            if run.has(STEP) and len(run.metrics) >= FIRST:
                found.setdefault(run.hardware, {}).setdefault(variant.name, []).append(run)
    return dict(sorted(found.items()))


def _facts(runs: Sequence[RecordedRun], reference: np.ndarray) -> dict[str, object]:
    steps = _steps(runs)
    facts: dict[str, object] = {"seeds": len(runs), "seconds": float(steps.mean())}
    for phase, columns in PHASES.items():
        facts[phase] = _mean(runs, columns)
    facts["other"] = facts["seconds"] - float(np.nansum([facts[phase] for phase in PHASES]))
    ratio = ratio_of_means(reference, steps) if len(reference) else Interval(np.nan, np.nan, np.nan)
    facts |= {"ratio": ratio.value, "ratio_low": ratio.low, "ratio_high": ratio.high}
    facts["memory_gb"] = max((_peak(run) for run in runs), default=np.nan)
    return facts | {name: _mean(runs, (column,)) for name, column in COUNTS.items()}


def _later(run: RecordedRun, name: str) -> np.ndarray:
    """A metric of the counted iterations."""
    return run.series(name)[FIRST - 1 :]


def _steps(runs: Sequence[RecordedRun]) -> np.ndarray:
    """Seconds of every counted iteration of all runs."""
    return np.concatenate([_later(run, STEP) for run in runs]) if runs else np.empty(0)


def _mean(runs: Sequence[RecordedRun], names: Sequence[str]) -> float:
    """Mean per iteration of the sum of those metrics that are recorded; NaN if none is."""
    sums = []
    for run in runs:
        known = [_later(run, name) for name in names if run.has(name)]
        if known:
            sums.append(np.nansum(known, axis=0))
    return float(np.concatenate(sums).mean()) if sums else float("nan")


def _peak(run: RecordedRun) -> float:
    known = [run.series(name) for name in MEMORY if run.has(name)]
    return float(np.nanmax(known[0])) if known else float("nan")


def ratio_of_means(numerator: np.ndarray, denominator: np.ndarray) -> Interval:
    """Ratio of two means, iterations of each resampled."""
    top, bottom = (
        resample_counts(f"ratio/{side}", len(x)) @ x / len(x)
        for side, x in (("top", numerator), ("bottom", denominator))
    )
    return percentile_interval(float(numerator.mean() / denominator.mean()), top / bottom)


def sections(study: Study, blocks: Sequence[Block]) -> tuple[list[Section], dict[str, pd.DataFrame]]:
    """Sections of Table 3."""
    frame = cost_frame(study, blocks)
    label = study.variant(study.table.reference).label
    notes = [
        "Seconds per iteration, first iteration left out. Log-probs: old, reference and critic passes. Update: "
        "advantages and all optimizer steps (SeeUPO: its correction passes too). Other: the rest of the step.",
        f"Ratio: seconds of {label} over those of the row, runs on the same kind of machine only.",
        "Memory: peak of the training process, GB. Tokens and steps are means per iteration.",
    ]
    made = []
    for block in (b for b in blocks if b.started):
        mine = frame[(frame["backend"] == block.backend) & (frame["model"] == block.model)]
        lines = [_cost_line(row, steps_of(block[row.variant, row.benchmark])) for row in mine.itertuples()]
        machines = [f"Machine: {machine}." for machine in mine["machine"].unique()] if len(mine) else []
        table = pd.DataFrame(lines) if lines else None
        if table is not None and len(machines) == 1:
            table = table.drop(columns="machine")
        shown = {(row.variant, row.benchmark) for row in mine.itertuples()}
        absent = [
            f"{v.label} ({steps_of(cell)}) on {b}: {cell_text(cell, 'no timings')}."
            for b in block.benchmarks
            for v in study.variants
            if (v.name, b) not in shown and (cell := block[v.name, b]).cell.config.training.iterations
        ]
        made.append(Section(f"{block.name}: cost of an iteration", table, [*machines, *notes, *absent]))
    return made, {"": frame}


def _cost_line(row, steps: str) -> dict[str, str]:
    ratio = EMPTY if pd.isna(row.ratio) else f"{row.ratio:.2f} [{row.ratio_low:.2f}, {row.ratio_high:.2f}]"
    return {
        "variant": row.label,
        "steps": steps,
        "benchmark": row.benchmark,
        "machine": row.machine,
        "seconds": number(row.seconds, ".2f"),
        **{phase.replace("_", "-"): number(getattr(row, phase), ".2f") for phase in (*PHASES, "other")},
        "ratio": "1" if row.ratio_low == row.ratio_high == 1 else ratio,
        "memory": number(row.memory_gb, ".2f"),
        "optimizer steps": number(row.optimizer_steps, ".1f"),
        **{name.replace("_", " "): number(getattr(row, name), ",.0f") for name in list(COUNTS)[1:]},
        "runs": str(row.seeds),
    }
