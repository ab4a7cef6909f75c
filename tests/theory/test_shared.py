"""Shared rows against finite differences and against separate tables."""

import numpy as np
import pytest

from seeupo_recipe.theory.games import Game, random_game, softmax
from seeupo_recipe.theory.haml import haml_iteration, joint_advantage, ppo_iteration
from seeupo_recipe.theory.mirror import clipped, kl
from seeupo_recipe.theory.shared import (
    history_blind,
    one_row,
    row_means,
    shared_gradient,
    shared_gradient_iteration,
    shared_haml_iteration,
    shared_ppo_step,
    shared_return,
    tables,
)


def separate(game):
    """A row of its own for every history of every turn."""
    rows, count = [], 0
    for t in range(game.turns):
        size = game.contexts * game.actions**t
        rows.append(np.arange(count, count + size).reshape(game.contexts, -1))
        count += size
    return rows, count


@pytest.mark.parametrize("order", ["reverse", "natural", "joint"])
def test_separate_rows_reproduce_separate_tables(order):
    rng = np.random.default_rng(0)
    game = random_game(rng, 2, 3, 2)
    rows, count = separate(game)
    theta = rng.dirichlet(np.ones(2), count)
    policy = tables(theta, rows)
    new = tables(shared_haml_iteration(game, rows, theta, order, kl(2.0)), rows)
    for x, y in zip(new, haml_iteration(game, policy, order, kl(2.0)), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-12)
    advantages = [joint_advantage(game, policy)] * 3
    new = tables(shared_ppo_step(game, rows, theta, advantages, clipped(0.2)), rows)
    for x, y in zip(new, ppo_iteration(game, policy, advantages, clipped(0.2)), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-12)


@pytest.mark.parametrize("sharing", [one_row, history_blind])
def test_shared_gradient_matches_finite_differences(sharing):
    rng = np.random.default_rng(1)
    game = random_game(rng, 2, 3, 2)
    rows = sharing(game)
    logits = rng.normal(size=(max(int(r.max()) for r in rows) + 1, 2))
    gradient = shared_gradient(game, rows, logits)
    for index in np.ndindex(logits.shape):
        values = []
        for sign in (1, -1):
            moved = logits.copy()
            moved[index] += sign * 1e-6
            values.append(shared_return(game, rows, softmax(moved)))
        assert gradient[index] == pytest.approx((values[0] - values[1]) / 2e-6, abs=1e-8)


def test_one_small_sequential_iteration_is_a_gradient_step():
    rng = np.random.default_rng(2)
    game = random_game(rng, 1, 3, 2)
    rows, logits, lr = one_row(game), rng.normal(size=(1, 2)), 1e-5
    moved = (shared_gradient_iteration(game, rows, logits, "reverse", lr) - logits) / lr
    np.testing.assert_allclose(moved, shared_gradient(game, rows, logits), atol=1e-4)


def test_row_means_weigh_by_visits_and_leave_unused_rows_at_zero():
    mass, mean = row_means(np.array([[0.25, 0.75]]), np.array([[[4.0], [8.0]]]), np.array([[0, 0]]), 2)
    np.testing.assert_allclose(mass, [1.0, 0.0])
    np.testing.assert_allclose(mean, [[7.0], [0.0]])


def test_anti_coordination_collapses_with_one_row_and_not_with_two():
    game = Game(np.array([[0.0, 1.0, 1.0, 0.0]]), 2, 2)
    row = np.array([[0.6, 0.4]])
    before = shared_return(game, one_row(game), row)
    after = shared_return(game, one_row(game), shared_haml_iteration(game, one_row(game), row, "reverse", kl(20.0)))
    assert before == pytest.approx(0.48) and after < 1e-6
    blind, own = history_blind(game), np.repeat(row, 2, axis=0)
    assert shared_return(game, blind, shared_haml_iteration(game, blind, own, "reverse", kl(20.0))) > 0.9
