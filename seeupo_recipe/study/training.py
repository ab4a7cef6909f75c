"""Training curves of finished runs: performance against every measure of effort, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from seeupo_recipe.study.collapse import COLLAPSED, DECLINED, judge
from seeupo_recipe.study.statistics import slope
from seeupo_recipe.study.store import RecordedRun

SUCCESS = "train/success_rate"
EFFORTS = {
    "iteration": "iterations",
    "epoch": "epochs",
    "optimizer_steps": "optimizer steps",
    "sampled_tokens": "sampled tokens",
    "seconds": "seconds of training",
}
EDGE = 5


def curve(run: RecordedRun) -> pd.DataFrame:
    """One row per iteration: success, return, and the effort spent up to and including it.

    Columns are ``success``, ``return`` and the keys of ``EFFORTS``; NaN where the record lacks the metric.
    The epoch is the iteration divided by the whole batches per epoch.
    """
    iterations = np.array([line["iteration"] for line in run.metrics])
    per_epoch = run.epoch_iterations
    return pd.DataFrame(
        {
            "success": run.series(SUCCESS),
            "return": run.series("train/return_mean"),
            "iteration": iterations,
            "epoch": iterations / per_epoch if per_epoch else np.nan,
            "optimizer_steps": run.series("update/optimizer_steps").cumsum(),
            "sampled_tokens": run.series("tokens/sampled").cumsum(),
            "seconds": run.series("timing_s/step").cumsum(),
        },
        index=iterations,
    )


def mean_curve(runs: Sequence[RecordedRun]) -> pd.DataFrame:
    """Mean over seeds of every column of ``curve``, over the iterations that all runs have."""
    curves = [curve(run) for run in runs]
    shared = curves[0].index
    for other in curves[1:]:
        shared = shared.intersection(other.index)
    return sum(c.loc[shared] for c in curves) / len(curves)


def training_facts(runs: Sequence[RecordedRun]) -> dict[str, object]:
    """How training went over the seeds of a cell.

    ``start`` and ``end`` are mean success over the first and last five iterations; ``slope`` is that of the
    return per ten iterations of the seeds' mean curve, with its interval. Environment failures are counted.
    """
    mean = mean_curve(runs)
    verdicts = [judge(run.series(SUCCESS)) for run in runs]
    trend = slope(mean["return"]).scaled(10) if len(mean) > 2 else None
    failures = [np.nansum(run.series("train/environment_failures")) for run in runs]
    return {
        "start": float(mean["success"].iloc[:EDGE].mean()),
        "end": float(mean["success"].iloc[-EDGE:].mean()),
        "slope": trend.value if trend else np.nan,
        "slope_low": trend.low if trend else np.nan,
        "slope_high": trend.high if trend else np.nan,
        "collapsed": sum(v.kind == COLLAPSED for v in verdicts),
        "declined": sum(v.kind == DECLINED for v in verdicts),
        "optimizer_steps": float(mean["optimizer_steps"].iloc[-1]),
        "sampled_tokens": float(mean["sampled_tokens"].iloc[-1]),
        "seconds": float(mean["seconds"].iloc[-1]),
        "environment_failures": int(sum(failures)),
    }
