import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seeupo_recipe.study.collapse import COLLAPSED, DECLINED, STEADY, TOO_SHORT, judge, smoothed, window


def test_f25_a_run_that_rises_and_falls_is_flagged_with_its_iteration():
    success = [0.2] * 5 + [0.6] * 15 + [0.05] * 20
    verdict = judge(success)
    assert verdict.kind == COLLAPSED and not verdict.recovered
    assert verdict.peak == pytest.approx(0.6)
    assert verdict.iteration == 23, "three of the five smoothed iterations are low: 0.27 < 0.3"


def test_a_run_that_rises_again_has_collapsed_and_recovered():
    verdict = judge([0.2] * 5 + [0.6] * 15 + [0.05] * 10 + [0.6] * 10)
    assert verdict.kind == COLLAPSED and verdict.recovered


@pytest.mark.parametrize(
    ("success", "kind"),
    [
        ([0.2] * 40, STEADY),
        (np.linspace(0.2, 0.9, 40), STEADY),
        ([0.2] * 10 + [0.6] * 15 + [0.4] * 15, STEADY),
        ([0.2] * 10 + [0.6] * 15 + [0.05] * 4 + [0.6] * 11, STEADY),
        ([0.3] * 10 + [0.05] * 30, DECLINED),
        ([0.1] * 10 + [0.0] * 30, STEADY),
        ([0.5, 0.0] * 4, TOO_SHORT),
        ([], TOO_SHORT),
    ],
)
def test_rule(success, kind):
    assert judge(success).kind == kind


@pytest.mark.parametrize("p", [0.1, 0.2, 0.3, 0.5])
def test_noise_of_a_steady_run_is_rarely_a_fall(rng, p):
    """8 tasks of very different difficulty with 8 rollouts each, at a constant mean success rate."""
    runs = rng.binomial(8, rng.beta(2 * p, 2 * (1 - p), size=(500, 40, 8))).sum(2) / 64
    flagged = np.mean([judge(run).kind != STEADY for run in runs])
    assert flagged <= 0.05


@given(st.lists(st.floats(0, 1), min_size=10, max_size=70))
def test_judgement_equals_the_rule_by_loops(success):
    width = window(len(success))
    if len(success) < 2 * width:
        assert judge(success).kind == TOO_SHORT
        return
    rates = smoothed(success, width).tolist()
    assert rates == pytest.approx([sum(success[i : i + width]) / width for i in range(len(rates))], abs=1e-12)

    def is_fallen(i):
        peak = max(rates[: i + 1])
        return rates[i] < 0.5 * peak and peak - rates[i] >= 0.15

    starts = [i for i in range(len(rates) - width + 1) if all(is_fallen(j) for j in range(i, i + width))]
    after_rise = [i for i in starts if max(rates[: i + 1]) >= rates[0] + 0.1]
    expected = COLLAPSED if after_rise else DECLINED if starts else STEADY
    verdict = judge(success)
    assert verdict.kind == expected
    assert verdict.iteration == (width + (after_rise or starts)[0] if starts else None)
