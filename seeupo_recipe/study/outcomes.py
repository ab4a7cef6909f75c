"""Per-task outcomes of finished runs, as arrays over seeds and tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seeupo_recipe.study.statistics import Interval, crossed_replicates, pass_at_k, percentile_interval
from seeupo_recipe.study.store import Count, RecordedRun, Tally

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
    found = {}
    for run in runs:
        tally = run.tally(split or run.test_split, run.iterations if iteration is None else iteration)
        if tally is not None:
            found[run.seed] = tally
    return from_tallies(found, k) if found else None


def from_tallies(tallies: Mapping[int, Tally], k: int) -> Outcomes:
    """Arrays from the counts by task of every seed."""
    seeds = sorted(tallies)
    clusters = {task: count.cluster for seed in seeds for task, count in tallies[seed].items()}
    tasks = sorted(clusters)
    counts = [[tallies[seed].get(task, Count("", 0, 0, 0, 0.0)) for task in tasks] for seed in seeds]
    return Outcomes(
        tuple(seeds),
        tuple(tasks),
        tuple(clusters[task] for task in tasks),
        np.array([[x.total / x.n if x.n else np.nan for x in row] for row in counts]),
        np.array([[pass_at_k(x.n, x.c, k) if x.n >= k else np.nan for x in row] for row in counts]),
        max(x.played for row in counts for x in row),
        sum(x.played - x.n for row in counts for x in row),
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
    scores = run.validation_scores()
    return max(scores, key=scores.__getitem__, default=None)
