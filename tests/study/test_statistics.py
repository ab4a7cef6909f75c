import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from seeupo_recipe.config import EvaluationConfig
from seeupo_recipe.strict import ConfigError
from seeupo_recipe.study import statistics
from seeupo_recipe.study.statistics import RESAMPLES


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_k_subsets_with_a_success(case):
    n, c, k = case
    outcomes = [True] * c + [False] * (n - c)
    subsets = list(itertools.combinations(outcomes, k))
    assert statistics.pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


def test_pass_at_k_is_unbiased():
    """Expectation over binomial counts equals 1 - (1 - p)^k."""
    n, k, p = 6, 4, 0.3
    expected = sum(math.comb(n, c) * p**c * (1 - p) ** (n - c) * statistics.pass_at_k(n, c, k) for c in range(n + 1))
    assert expected == pytest.approx(1 - (1 - p) ** k)


def test_f20_pass_at_4_needs_four_samples_that_differ(world):
    with pytest.raises(ValueError, match="pass@4 needs at least 4 samples"):
        statistics.pass_at_k(1, 1, 4)
    config = world.cell().config
    with pytest.raises(ConfigError, match="makes all samples of a task equal: set samples_per_task=1, or a temp"):
        type(config)(**{**vars(config), "evaluation": EvaluationConfig(samples_per_task=4, temperature=0.0)})


def plain_bootstrap(values, clusters, seed_counts, cluster_counts):
    """The crossed bootstrap by loops over its definition, from given resampling counts."""
    names = sorted(set(clusters))
    replicates = []
    for of_seed, of_cluster in zip(seed_counts, cluster_counts, strict=True):
        drawn = []
        for s, row in enumerate(values):
            for t, value in enumerate(row):
                if not math.isnan(value):
                    drawn += [value] * int(of_seed[s] * of_cluster[names.index(clusters[t])])
        replicates.append(sum(drawn) / len(drawn))
    return replicates


def test_crossed_bootstrap_equals_plain_loops(rng):
    values = rng.random((3, 7))
    values[1, 4] = math.nan
    clusters = ["c", "a", "a", "b", "c", "b", "d"]
    found = statistics.crossed_replicates(values, clusters, name="x")
    seeds = statistics.resample_counts("x/seeds", 3)[:50]
    drawn = statistics.resample_counts("x/clusters", 4)[:50]
    assert found[:50] == pytest.approx(plain_bootstrap(values.tolist(), clusters, seeds, drawn))


def test_resamples_draw_as_many_items_as_there_are_with_equal_chances():
    counts = statistics.resample_counts("y", 5)
    assert counts.shape == (RESAMPLES, 5) and (counts.sum(1) == 5).all()
    assert counts.mean(0) == pytest.approx(np.ones(5), abs=0.06)
    assert counts.var(0) == pytest.approx(np.full(5, 0.8), rel=0.1)


def test_interval_of_one_seed_is_the_binomial_one(rng):
    values = (rng.random((1, 400)) < 0.3).astype(float)
    share = values.mean()
    interval = statistics.percentile_interval(
        share, statistics.crossed_replicates(values, [str(i) for i in range(400)], name="one")
    )
    half = 1.96 * math.sqrt(share * (1 - share) / 400)
    assert interval.low == pytest.approx(share - half, abs=0.006)
    assert interval.high == pytest.approx(share + half, abs=0.006)


def test_interval_of_one_seed_agrees_with_scipys_bootstrap(rng):
    values = rng.beta(2, 3, size=(1, 60))
    ours = statistics.percentile_interval(
        values.mean(), statistics.crossed_replicates(values, [str(i) for i in range(60)], name="two")
    )
    theirs = scipy.stats.bootstrap((values[0],), np.mean, n_resamples=8000, method="percentile", rng=rng)
    assert ours.low == pytest.approx(theirs.confidence_interval.low, abs=0.01)
    assert ours.high == pytest.approx(theirs.confidence_interval.high, abs=0.01)


def test_variance_covers_seeds_and_clusters(rng):
    """Crossed normal effects: the bootstrap's variance is that of the mean, var_s/S + var_c/C."""
    S, C, size = 12, 40, 3
    values = rng.normal(0, 0.5, (S, 1)) + np.repeat(rng.normal(0, 1.0, (1, C)), size, axis=1)
    clusters = [str(i // size) for i in range(C * size)]
    seeds, means = values.mean(1), values.mean(0)[::size]
    expected = seeds.var() / S + means.var() / C
    assert statistics.crossed_replicates(values, clusters, name="v").var() == pytest.approx(expected, rel=0.1)


def test_tasks_of_one_cluster_are_resampled_together(rng):
    values = np.repeat((rng.random((1, 30)) < 0.5).astype(float), 3, axis=1)
    apart = statistics.crossed_replicates(values, [str(i) for i in range(90)], name="a").std()
    together = statistics.crossed_replicates(values, [str(i // 3) for i in range(90)], name="a").std()
    assert together == pytest.approx(apart * math.sqrt(3), rel=0.1)


def test_two_sided_p_from_the_replicates():
    assert statistics.two_sided_p(np.arange(1.0, 100.0)) == pytest.approx(2 * 1 / 100)
    assert statistics.two_sided_p(-np.arange(1.0, 100.0)) == pytest.approx(2 * 1 / 100)
    assert statistics.two_sided_p(np.array([-1.0, 1.0] * 10)) == 1.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_is_the_closed_test_of_bonferroni(p_values):
    """An adjusted p is the largest Bonferroni p over all intersections that hold the hypothesis."""
    adjusted = statistics.holm(p_values)
    for i in range(len(p_values)):
        others = [j for j in range(len(p_values)) if j != i]
        worst = 0.0
        for size in range(len(others) + 1):
            for chosen in itertools.combinations(others, size):
                group = [p_values[i], *(p_values[j] for j in chosen)]
                worst = max(worst, min(1.0, len(group) * min(group)))
        assert adjusted[i] == pytest.approx(worst)


def test_interquartile_mean_of_known_scores():
    scores = [np.array([0.1, 0.2, 0.3, 0.9]), np.array([0.4, 0.5, 0.6, 0.0])]
    found = statistics.interquartile_mean(scores, name="q")
    assert found.value == pytest.approx((0.2 + 0.3 + 0.4 + 0.5) / 4)
    assert found.low <= found.value <= found.high


def test_probability_of_improvement_counts_pairs_with_ties_as_half(rng):
    pairs = [(rng.integers(0, 5, 6) / 4, rng.integers(0, 5, 5) / 4) for _ in range(2)]
    plain = []
    for x, y in pairs:
        plain.append(np.mean([1.0 if a > b else 0.5 if a == b else 0.0 for a in x for b in y]))
    found = statistics.probability_of_improvement(pairs, name="p")
    assert found.value == pytest.approx(np.mean(plain))
    u = scipy.stats.mannwhitneyu(*pairs[0]).statistic / (6 * 5)
    assert plain[0] == pytest.approx(u)


def test_aggregates_of_equal_runs_have_no_width():
    same = np.full(3, 0.5)
    assert statistics.interquartile_mean([same], name="s") == (0.5, 0.5, 0.5)
    assert statistics.probability_of_improvement([(same, same)], name="s") == (0.5, 0.5, 0.5)


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_agrees_with_scipy(case):
    k, n = case
    ours, theirs = statistics.wilson(k / n, n), scipy.stats.binomtest(k, n).proportion_ci(method="wilson")
    assert ours.low == pytest.approx(theirs.low, abs=1e-9)
    assert ours.high == pytest.approx(theirs.high, abs=1e-9)


def test_newcombe_reproduces_the_published_example():
    """Newcombe 1998, table II: 56/70 against 48/80, method 10."""
    found = statistics.newcombe(56 / 70, 70, 48 / 80, 80)
    assert found == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)


def test_slope_of_a_noisy_line(rng):
    x = np.arange(40)
    found = statistics.slope(0.02 * x + rng.normal(0, 0.05, 40))
    assert found.low < 0.02 < found.high
    exact = statistics.slope([1.0, 3.0, 5.0, 7.5])
    xs, ys = np.arange(4) - 1.5, np.array([1.0, 3.0, 5.0, 7.5])
    b = (xs * ys).sum() / (xs**2).sum()
    residual = ys - ys.mean() - b * xs
    half = scipy.stats.t.ppf(0.975, 2) * math.sqrt((residual**2).sum() / 2 / (xs**2).sum())
    assert exact == pytest.approx((b, b - half, b + half))


def test_results_do_not_depend_on_what_was_computed_before(rng):
    values = rng.random((2, 9))
    clusters = [str(i) for i in range(9)]
    first = statistics.crossed_replicates(values, clusters, name="z")
    statistics.resample_counts.cache_clear()
    statistics.crossed_replicates(values[:1], clusters, name="other")
    assert (statistics.crossed_replicates(values, clusters, name="z") == first).all()
