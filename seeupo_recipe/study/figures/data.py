"""What the figures draw, as frames: pure functions from records."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from seeupo_recipe.study.collapse import smoothed, window
from seeupo_recipe.study.collect import Block
from seeupo_recipe.study.outcomes import outcomes
from seeupo_recipe.study.spec import Variant
from seeupo_recipe.study.statistics import SEEDS_FOR_AGGREGATES, percentile_interval, resample_counts
from seeupo_recipe.study.store import RecordedRun
from seeupo_recipe.study.training import EFFORTS, curve

DIAGNOSTICS = {
    "pool_size": "rows in the pool",
    "advantage_mean": "mean advantage",
    "ratio_deviation": "mean |r - 1| at the last step",
    "correction_deviation": "mean |factor of M - 1|",
    "kl_old": "KL to the iteration's start",
    "grad_norm": "gradient norm",
}


def curve_frame(block: Block, variants: Sequence[Variant], column: str = "success") -> pd.DataFrame:
    """Smoothed training curves: one row per benchmark, variant, seed and iteration.

    ``mean``, ``low`` and ``high`` belong to all seeds together and repeat on every seed's rows. The smoothing
    is that of the collapse rule. The band needs three seeds.
    """
    frames = []
    for benchmark in block.benchmarks:
        for variant in variants:
            runs = [run for run in block[variant.name, benchmark].finished if run.iterations]
            if runs:
                frames.append(_curves(runs, column).assign(benchmark=benchmark, variant=variant.name))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def _curves(runs: Sequence[RecordedRun], column: str) -> pd.DataFrame:
    raw = {run.seed: curve(run) for run in runs}
    length = min(len(c) for c in raw.values())
    width = min(window(length), length)
    values_ST = np.array([smoothed(c[column].to_numpy()[:length], width) for c in raw.values()])
    mean, low, high = _band(values_ST)
    frames = []
    for i, (seed, c) in enumerate(raw.items()):
        efforts = c[list(EFFORTS)].iloc[width - 1 : length].reset_index(drop=True)
        frames.append(efforts.assign(seed=seed, value=values_ST[i], mean=mean, low=low, high=high))
    return pd.concat(frames, ignore_index=True)


def _band(values_ST: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over seeds and its bootstrap band; NaN bounds with fewer than three seeds."""
    mean = values_ST.mean(0)
    if len(values_ST) < SEEDS_FOR_AGGREGATES:
        return mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan)
    replicates = resample_counts("curves/seeds", len(values_ST)) @ values_ST / len(values_ST)
    bounds = [percentile_interval(m, r) for m, r in zip(mean, replicates.T, strict=True)]
    return mean, np.array([b.low for b in bounds]), np.array([b.high for b in bounds])


def heldout_frame(block: Block, variants: Sequence[Variant]) -> pd.DataFrame:
    """Mean score of every evaluated checkpoint, with its interval over tasks and seeds.

    One row per benchmark, variant, split and iteration; the iterations that all finished seeds have.
    """
    rows = []
    for benchmark in block.benchmarks:
        for variant in variants:
            runs = block[variant.name, benchmark].finished
            for split, iteration in _evaluated(runs):
                found = outcomes(runs, 1, split=split, iteration=iteration)
                interval = found.interval("avg", name=benchmark)
                head = {"benchmark": benchmark, "variant": variant.name, "split": split, "iteration": iteration}
                rows.append({**head, **interval._asdict(), "seeds": len(found.seeds)})
    return pd.DataFrame(rows)


def _evaluated(runs: Sequence[RecordedRun]) -> list[tuple[str, int]]:
    """The (split, iteration) pairs that all runs have been evaluated at."""
    return sorted(set.intersection(*(set(run.tallies) for run in runs))) if runs else []


def turn_frame(block: Block, variant: Variant) -> pd.DataFrame:
    """Diagnostics per turn, smoothed and averaged over seeds: benchmark, turn, iteration, metric, value.

    A turn that an iteration did not have is left out of its means.
    """
    frames = []
    for benchmark in block.benchmarks:
        runs = [run for run in block[variant.name, benchmark].finished if run.iterations]
        if not runs:
            continue
        horizon = runs[0].config["benchmark"]["max_turns"]
        for turn in range(1, horizon + 1):
            for metric in DIAGNOSTICS:
                values = _turn_values(runs, f"turn{turn}/{metric}")
                if values is not None:
                    frames.append(values.assign(benchmark=benchmark, turn=turn, metric=metric))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def _turn_values(runs: Sequence[RecordedRun], name: str) -> pd.DataFrame | None:
    known = [run.series(name) for run in runs if run.has(name)]
    if not known:
        return None
    mean = pd.concat([pd.Series(values) for values in known], axis=1).mean(axis=1)
    value = mean.rolling(window(len(mean)), min_periods=1).mean()
    return pd.DataFrame({"iteration": value.index + 1, "value": value.to_numpy()})


def sweep_frame(block: Block, variants: Sequence[Variant], x: str, k: int) -> pd.DataFrame:
    """avg@k of every variant of a grid: benchmark, variant, series, x, value, low, high, seeds.

    A series joins the variants that differ in ``x`` only.
    """
    rows = []
    for benchmark in block.benchmarks:
        for variant in variants:
            found = outcomes(block[variant.name, benchmark].finished, k)
            if found is None or x not in variant.coordinates:
                continue
            rest = {key: value for key, value in variant.coordinates.items() if key != x}
            series = " ".join(str(value) for value in rest.values()) or variant.algorithm
            interval = found.interval("avg", name=benchmark)
            head = {"benchmark": benchmark, "variant": variant.name, "series": series}
            rows.append({**head, "x": float(variant.coordinates[x]), **interval._asdict(), "seeds": len(found.seeds)})
    return pd.DataFrame(rows)
