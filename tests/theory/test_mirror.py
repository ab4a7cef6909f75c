"""Mirror steps against linear programmes, grids and inequalities."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from seeupo_recipe.theory.checks.solver import clipped_lp
from seeupo_recipe.theory.mirror import bounded_step, clipped_argmax, clipped_objective, kl_step

EPS = 0.2


def draw(seed, actions):
    rng = np.random.default_rng(seed)
    old = (rng.dirichlet(np.ones(actions)) + 0.005) / (1 + 0.005 * actions)
    samples = rng.normal(size=(actions, 3)) + rng.choice([-1.0, 0.0, 1.0])
    weights = rng.dirichlet(np.ones(3), actions)
    gain, loss = ((weights * part(samples, 0.0)).sum(1) for part in (np.maximum, np.minimum))
    return old, samples, weights, gain, loss


def surrogate(new, old, samples, weights):
    """The clipped surrogate written out sample by sample."""
    total = 0.0
    for a in range(len(old)):
        r = new[a] / old[a]
        for m, w in zip(samples[a], weights[a], strict=True):
            total += old[a] * w * min(r * m, min(max(r, 1 - EPS), 1 + EPS) * m)
    return total


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 5))
def test_clipped_argmax_is_optimal_for_the_linear_programme(seed, actions):
    old, samples, weights, gain, loss = draw(seed, actions)
    new = clipped_argmax(old, gain, loss, EPS)
    assert new.min() >= 0 and new.sum() == pytest.approx(1.0, abs=1e-12)
    value = clipped_objective(new, old, gain, loss, EPS)
    assert value == pytest.approx(surrogate(new, old, samples, weights), abs=1e-12)
    assert value == pytest.approx(clipped_lp(old, gain, loss, EPS), abs=1e-7)


def test_clipped_argmax_beats_every_point_of_a_grid():
    old, samples, weights, gain, loss = draw(11, 3)
    best = surrogate(clipped_argmax(old, gain, loss, EPS), old, samples, weights)
    ticks = np.linspace(0, 1, 61)
    grid = [surrogate(np.array([x, y, 1 - x - y]), old, samples, weights) for x in ticks for y in ticks if x + y <= 1]
    assert best >= max(grid) - 1e-12


def test_ties_leave_the_policy_in_place():
    old = np.array([0.2, 0.3, 0.5])
    np.testing.assert_allclose(clipped_argmax(old, np.zeros(3), np.zeros(3), EPS), old)
    np.testing.assert_allclose(clipped_argmax(old, np.full(3, 0.7), np.zeros(3), EPS), old)
    np.testing.assert_allclose(bounded_step(old, np.full(3, 0.7), EPS), old)


def test_the_better_action_absorbs_everything_once_it_can():
    new = clipped_argmax(np.array([0.9, 0.1]), np.array([0.04, 0.0]), np.array([0.0, -0.36]), EPS)
    np.testing.assert_allclose(new, [1.0, 0.0])


def test_unseen_actions_stay_unseen():
    old = np.array([0.0, 0.4, 0.6])
    for gain, loss in (([9.0, 0.0, 0.0], [0.0, -1.0, -2.0]), ([0.0, 1.0, 2.0], [0.0, 0.0, 0.0])):
        new = clipped_argmax(old, np.array(gain), np.array(loss), EPS)
        assert new[0] == 0.0 and new.sum() == pytest.approx(1.0)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 5))
def test_bounded_step_solves_its_linear_programme(seed, actions):
    rng = np.random.default_rng(seed)
    old, q = rng.dirichlet(np.ones(actions)), rng.normal(size=actions)
    new = bounded_step(old, q, EPS)
    bounds = [((1 - EPS) * p, (1 + EPS) * p) for p in old]
    lp = linprog(-q, A_eq=np.ones((1, actions)), b_eq=[1.0], bounds=bounds)
    assert new @ q == pytest.approx(-lp.fun, abs=1e-9)
    assert (new >= (1 - EPS) * old - 1e-12).all() and (new <= (1 + EPS) * old + 1e-12).all()


def test_kl_step_agrees_with_a_numerical_optimiser():
    rng = np.random.default_rng(2)
    old, q, eta = rng.dirichlet(np.ones(4)), rng.normal(size=4), 1.7

    def loss(logits):
        p = np.exp(logits - logits.max())
        p /= p.sum()
        return -(p @ q) + (p * np.log(p / old)).sum() / eta

    p = np.exp(minimize(loss, np.zeros(4), tol=1e-12).x)
    np.testing.assert_allclose(kl_step(old, q, eta), p / p.sum(), atol=1e-5)


def test_greedy_step_and_lost_support():
    np.testing.assert_array_equal(kl_step(np.array([0.5, 0.5]), np.array([0.0, 1.0]), np.inf), [0.0, 1.0])
    assert kl_step(np.array([0.0, 1.0]), np.array([5.0, 0.0]), 3.0)[0] == 0.0


def test_steps_act_on_every_history_separately():
    rng = np.random.default_rng(4)
    old, gain = rng.dirichlet(np.ones(3), (2, 4)), rng.random((2, 4, 3))
    loss = -rng.random((2, 4, 3))
    together = clipped_argmax(old, gain, loss, EPS)
    for index in np.ndindex(2, 4):
        np.testing.assert_allclose(together[index], clipped_argmax(old[index], gain[index], loss[index], EPS))
