"""Estimates and intervals. Every resampling is seeded by what it is for, so results never vary.

Intervals are 95% percentile bootstrap intervals. Outcomes of several seeds on the same tasks are crossed:
seeds and clusters of tasks are resampled independently of each other (Owen 2007), which covers both the
choice of tasks and the chance in training. With one seed only the tasks vary, so the interval says nothing
of training; with fewer than five seeds it is too narrow in that direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import comb, sqrt
from typing import NamedTuple

import numpy as np
import scipy.stats

from seeupo_recipe.seeding import stream, stream_seed

RESAMPLES = 4000
LEVEL = 0.95
SEEDS_FOR_AGGREGATES = 3


class Interval(NamedTuple):
    """An estimate with the bounds of its interval."""

    value: float
    low: float
    high: float

    def scaled(self, factor: float) -> Interval:
        return Interval(*(factor * x for x in self))


@lru_cache(maxsize=4096)
def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased estimate of pass@k from ``n`` samples of which ``c`` pass (Chen et al. 2021).

    Raises:
        ValueError: If ``k`` exceeds the samples; k equal samples would not be k samples.
    """
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} needs at least {k} samples of a task, there are {n}")
    return 1.0 - comb(n - c, k) / comb(n, k)


def crossed_replicates(values_ST: np.ndarray, clusters_T: Sequence[str], *, name: str) -> np.ndarray:
    """Bootstrap replicates of the mean over seeds and clusters of tasks, (RESAMPLES,).

    Args:
        values_ST: Values of S seeds on T tasks; NaN where a seed lacks a task.
        clusters_T: Cluster of each task.
        name: Names the random stream; equal names give equal resamples.
    """
    _, place = np.unique(np.asarray(clusters_T), return_inverse=True)
    width = int(place.max()) + 1
    member = np.zeros((len(place), width))
    member[np.arange(len(place)), place] = 1.0
    sums_SC = np.nan_to_num(values_ST) @ member
    counts_SC = (~np.isnan(values_ST)).astype(float) @ member
    seeds_RS = resample_counts(f"{name}/seeds", values_ST.shape[0])
    clusters_RC = resample_counts(f"{name}/clusters", width)
    total = ((seeds_RS @ sums_SC) * clusters_RC).sum(1)
    weight = ((seeds_RS @ counts_SC) * clusters_RC).sum(1)
    return np.divide(total, weight, out=np.full(RESAMPLES, np.nan), where=weight > 0)


@lru_cache(maxsize=32)
def resample_counts(name: str, size: int) -> np.ndarray:
    """How often each of ``size`` items is drawn in each resample, (RESAMPLES, size)."""
    rng = stream("bootstrap", name, size)
    return rng.multinomial(size, np.full(size, 1.0 / size), size=RESAMPLES).astype(float)


def percentile_interval(value: float, replicates: np.ndarray) -> Interval:
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.nanpercentile(replicates, [tail, 100 - tail])
    return Interval(value, float(low), float(high))


def mean_of_benchmarks(values: Sequence[tuple[float, np.ndarray]]) -> Interval:
    """Plain mean over benchmarks, each given by its estimate and its independent replicates."""
    return percentile_interval(
        float(np.mean([value for value, _ in values])), np.mean([replicates for _, replicates in values], axis=0)
    )


def two_sided_p(replicates: np.ndarray) -> float:
    """Bootstrap p-value of a difference being 0; never below 2 / (RESAMPLES + 1)."""
    counted = replicates[~np.isnan(replicates)]
    tails = [(1 + np.sum(side)) / (1 + len(counted)) for side in (counted <= 0, counted >= 0)]
    return float(min(1.0, 2 * min(tails)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment for several comparisons, in the given order."""
    order = np.argsort(p_values, kind="stable")
    adjusted = np.empty(len(p_values))
    running = 0.0
    for rank, index in enumerate(order):
        running = max(running, (len(p_values) - rank) * p_values[index])
        adjusted[index] = min(1.0, running)
    return adjusted.tolist()


def interquartile_mean(scores: Sequence[np.ndarray], *, name: str) -> Interval:
    """IQM over all runs of all benchmarks, seeds resampled within each benchmark (Agarwal et al. 2021).

    Args:
        scores: One array of run scores per benchmark.
        name: Names the random stream.
    """

    def statistic(*groups: np.ndarray, axis: int = -1) -> np.ndarray:
        return scipy.stats.trim_mean(np.concatenate(groups, axis=axis), 0.25, axis=axis)

    return _bootstrap(scores, statistic, name)


def probability_of_improvement(pairs: Sequence[tuple[np.ndarray, np.ndarray]], *, name: str) -> Interval:
    """Chance that a run of X scores above a run of Y, ties counting half, averaged over benchmarks.

    Args:
        pairs: Run scores of X and of Y per benchmark (Agarwal et al. 2021).
        name: Names the random stream.
    """

    def statistic(*groups: np.ndarray, axis: int = -1) -> np.ndarray:
        wins = []
        for x, y in zip(groups[::2], groups[1::2], strict=True):
            gap = np.expand_dims(x, -1) - np.expand_dims(y, -2)
            wins.append(((gap > 0) + 0.5 * (gap == 0)).mean(axis=(-1, -2)))
        return np.mean(wins, axis=0)

    return _bootstrap([scores for pair in pairs for scores in pair], statistic, name)


def _bootstrap(samples: Sequence[np.ndarray], statistic, name: str) -> Interval:
    value = float(statistic(*(np.asarray(s, dtype=float) for s in samples)))
    if all(len(set(np.asarray(s).tolist())) == 1 for s in samples):
        return Interval(value, value, value)
    result = scipy.stats.bootstrap(
        samples,
        statistic,
        n_resamples=RESAMPLES,
        vectorized=True,
        axis=-1,
        confidence_level=LEVEL,
        method="percentile",
        rng=np.random.default_rng(stream_seed("bootstrap", name)),
    )
    return Interval(value, float(result.confidence_interval.low), float(result.confidence_interval.high))


def wilson(share: float, n: int, *, level: float = LEVEL) -> Interval:
    """Wilson's score interval of a proportion; ``share * n`` need not be a whole number."""
    z = scipy.stats.norm.ppf(0.5 + level / 2)
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return Interval(share, max(0.0, centre - half), min(1.0, centre + half))


def newcombe(a: float, n_a: int, b: float, n_b: int) -> Interval:
    """Interval of the difference a - b of two independent proportions (Newcombe 1998, method 10)."""
    one, two = wilson(a, n_a), wilson(b, n_b)
    down = sqrt((a - one.low) ** 2 + (two.high - b) ** 2)
    up = sqrt((one.high - a) ** 2 + (b - two.low) ** 2)
    return Interval(a - b, a - b - down, a - b + up)


def slope(values: Sequence[float]) -> Interval:
    """Least-squares slope per step with its t interval."""
    fit = scipy.stats.linregress(np.arange(len(values)), np.asarray(values, dtype=float))
    half = scipy.stats.t.ppf(0.5 + LEVEL / 2, len(values) - 2) * fit.stderr
    return Interval(float(fit.slope), float(fit.slope - half), float(fit.slope + half))
