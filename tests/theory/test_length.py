"""The length-normalised ratio against dense grids and finite differences."""

import numpy as np
import pytest

from seeupo_recipe.theory.games import softmax
from seeupo_recipe.theory.length import (
    mirror_slope,
    normalised_argmax,
    normalised_objective,
    normalised_ratio,
    plain_slope,
)
from seeupo_recipe.theory.mirror import clipped_argmax, clipped_objective, kl_step

EPS = 0.2


@pytest.mark.parametrize("seed", range(12))
def test_argmax_reaches_the_best_value_of_a_dense_grid(seed):
    rng = np.random.default_rng(seed)
    first = rng.uniform(0.05, 0.95)
    old, lengths = np.array([first, 1 - first]), rng.choice([1.0, 2.0, 10.0], 2)
    m = rng.normal(size=2) + rng.choice([-1, 0, 1])
    gain, loss = np.maximum(m, 0), np.minimum(m, 0)
    new = normalised_argmax(old, gain, loss, lengths, EPS)
    x = np.linspace(0, 1, 200_001)
    grid = normalised_objective(np.stack([x, 1 - x], -1), old, gain, loss, lengths, EPS)
    reached = normalised_objective(new, old, gain, loss, lengths, EPS)
    assert reached >= grid.max() - 1e-5
    assert new.sum() == pytest.approx(1.0) and (new >= 0).all()


def test_with_one_token_the_ratio_and_the_objective_are_the_plain_ones():
    rng = np.random.default_rng(1)
    old, new = rng.dirichlet(np.ones(2)), rng.dirichlet(np.ones(2))
    gain, loss, ones = np.array([0.4, 0.0]), np.array([-0.1, -0.7]), np.ones(2)
    np.testing.assert_allclose(normalised_ratio(new, old, ones), new / old)
    assert normalised_objective(new, old, gain, loss, ones, EPS) == pytest.approx(
        clipped_objective(new, old, gain, loss, EPS)
    )
    exact = clipped_objective(clipped_argmax(old, gain, loss, EPS), old, gain, loss, EPS)
    found = clipped_objective(normalised_argmax(old, gain, loss, ones, EPS), old, gain, loss, EPS)
    assert found == pytest.approx(exact, abs=1e-4)


def test_more_than_two_actions_are_refused():
    with pytest.raises(ValueError, match="two actions"):
        normalised_argmax(np.ones(3) / 3, np.ones(3), np.zeros(3), np.ones(3), EPS)


def test_slopes_are_directional_derivatives():
    rng = np.random.default_rng(2)
    policy, q, lengths, offset = rng.dirichlet(np.ones(3)), rng.random(3), np.array([1.0, 3.0, 9.0]), 0.4
    advantage = q - policy @ q
    signal, step = (advantage + offset) / lengths, 1e-6
    ahead, behind = (kl_step(policy, sign * signal, step) @ q for sign in (1, -1))
    assert mirror_slope(policy, advantage, np.array(offset), lengths) == pytest.approx((ahead - behind) / (2 * step))

    def surrogate(logits):
        return normalised_ratio(softmax(logits), policy, lengths) @ (policy * (advantage + offset))

    logits, gradient = np.log(policy), np.zeros(3)
    for a in range(3):
        moved = np.eye(3)[a] * step
        gradient[a] = (surrogate(logits + moved) - surrogate(logits - moved)) / (2 * step)
    ahead, behind = (softmax(logits + sign * step * gradient) @ q for sign in (1, -1))
    expected = (ahead - behind) / (2 * step)
    assert plain_slope(policy, advantage, np.array(offset), lengths) == pytest.approx(expected, abs=1e-7)
