"""Per-task outcomes of finished runs, as arrays over seeds and tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from seeupo_recipe.study.statistics import Interval, crossed_replicates, pass_at_k, percentile_interval
from seeupo_recipe.study.store import RecordedRun

METRICS = ("avg", "pass")


@dataclass(frozen=True)
class Outcomes:
    """Outcomes of several seeds on the same tasks.

    Attributes:
        seeds: Length S.
        tasks: Length N, sorted.
        clusters: Cluster (scenario) of each task, length N.
        avg: Mean score of each seed and task, (S, N); NaN where no sample counts.
        passed: Unbiased pass@k of each seed and task, (S, N); NaN with fewer than k samples that count.
        samples: Samples per task.
        failures: Environment failures, left out of ``avg`` and ``passed``.
    """

    seeds: tuple[int, ...]
    tasks: tuple[str, ...]
    clusters: tuple[str, ...]
    avg: np.ndarray
    passed: np.ndarray
    samples: int
    failures: int

    def values(self, metric: str) -> np.ndarray:
        """(S, N) of ``avg`` or ``pass``."""
        return {"avg": self.avg, "pass": self.passed}[metric]

    def replicates(self, metric: str, *, name: str) -> tuple[float, np.ndarray] | None:
        """Mean and its bootstrap replicates over seeds and clusters; None if nothing counts."""
        values = self.values(metric)
        if np.isnan(values).all():
            return None
        return float(np.nanmean(values)), crossed_replicates(values, self.clusters, name=name)

    def interval(self, metric: str, *, name: str) -> Interval | None:
        """Mean with its interval over tasks (by cluster) and seeds; None if nothing counts."""
        sampled = self.replicates(metric, name=name)
        return percentile_interval(*sampled) if sampled else None


def outcomes(
    runs: Sequence[RecordedRun], k: int, *, split: str | None = None, iteration: int | None = None
) -> Outcomes | None:
    """Outcomes of ``runs`` on ``split`` (default: test) at a checkpoint (default: the last one).

    The tasks are those of all runs together; a task that one run lacks is NaN there. None if no run has
    such an evaluation.
    """
    frames = []
    for run in runs:
        chosen = run.iterations if iteration is None else iteration
        rows = run.evaluation(split or run.config["benchmark"]["test_split"], chosen)
        if len(rows):
            frames.append(rows.assign(seed=run.seed))
    if not frames:
        return None
    return from_rows(pd.concat(frames), k)


def from_rows(rows: pd.DataFrame, k: int) -> Outcomes:
    """Arrays from evaluation rows with a ``seed`` column."""
    cluster = rows.groupby("task_id")["cluster"].first().sort_index()
    counted = rows[rows["failure"].isna()]
    grouped = counted.groupby(["seed", "task_id"])
    table = pd.DataFrame(
        {"n": grouped.size(), "c": grouped["success"].sum().astype(int), "avg": grouped["score"].mean()}
    )
    table["passed"] = [pass_at_k(n, c, k) if n >= k else np.nan for n, c in zip(table["n"], table["c"], strict=True)]
    seeds = sorted(rows["seed"].unique())

    def matrix(column: str) -> np.ndarray:
        wide = table[column].unstack("task_id")
        return wide.reindex(index=seeds, columns=cluster.index).to_numpy(dtype=float)

    return Outcomes(
        tuple(int(seed) for seed in seeds),
        tuple(cluster.index),
        tuple(str(c) for c in cluster),
        matrix("avg"),
        matrix("passed"),
        int(rows.groupby(["seed", "task_id"]).size().max()),
        len(rows) - len(counted),
    )


def paired(a: Outcomes, b: Outcomes, metric: str) -> tuple[np.ndarray, tuple[str, ...], tuple[int, ...]] | None:
    """Differences a - b on the seeds and tasks of both: values (S, N), clusters (N,), seeds (S,).

    None if they share none.
    """
    seeds = tuple(seed for seed in a.seeds if seed in b.seeds)
    tasks = [task for task in a.tasks if task in b.tasks]
    if not seeds or not tasks:
        return None

    def pick(x: Outcomes) -> np.ndarray:
        return x.values(metric)[np.ix_([x.seeds.index(s) for s in seeds], [x.tasks.index(t) for t in tasks])]

    difference = pick(a) - pick(b)
    if np.isnan(difference).all():
        return None
    return difference, tuple(a.clusters[a.tasks.index(t)] for t in tasks), seeds


def best_checkpoint(run: RecordedRun) -> int | None:
    """The evaluated iteration with the highest mean validation score; the earliest one on a tie."""
    rows = run.evaluations
    rows = rows[(rows["split"] == run.config["benchmark"]["validation_split"]) & rows["failure"].isna()]
    if not len(rows):
        return None
    means = rows.groupby("iteration")["score"].mean().sort_index()
    return int(means.idxmax())
