"""Games against plain loops over trajectories."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seeupo_recipe.theory.games import (
    Game,
    climbing_game,
    deterministic_policy,
    lock_game,
    random_game,
    softmax,
)


def loop_return(game, policy):
    """J by adding up every trajectory one at a time."""
    total = 0.0
    for s in range(game.contexts):
        for actions in itertools.product(range(game.actions), repeat=game.turns):
            prob, history = 1.0, 0
            for t, a in enumerate(actions):
                prob *= policy[t][s, history, a]
                history = history * game.actions + a
            total += game.prior[s] * prob * game.reward[s, history]
    return total


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([(1, 1, 2), (2, 2, 3), (3, 3, 2), (2, 3, 3)]), st.booleans())
def test_return_value_and_reach_agree_with_loops(seed, size, with_chance):
    rng = np.random.default_rng(seed)
    contexts, turns, actions = size
    chance = {turns - 1: softmax(rng.normal(size=(contexts, actions ** (turns - 1), actions)))} if with_chance else {}
    reward = rng.normal(size=(contexts, actions**turns))
    game = Game(reward, turns, actions, prior=rng.dirichlet(np.ones(contexts)), chance=chance)
    policy = game.policy(rng)
    expected = loop_return(game, policy)
    assert game.expected_return(policy) == pytest.approx(expected, abs=1e-12)
    weighted = game.prior @ (game.trajectory_probs(policy) * game.reward).sum(1)
    assert weighted == pytest.approx(expected, abs=1e-12)
    for t in range(turns):
        np.testing.assert_allclose((policy[t] * game.advantage(policy, t)).sum(-1), 0.0, atol=1e-12)
        np.testing.assert_allclose(game.reach(policy, t).sum(1), 1.0, atol=1e-12)


@pytest.mark.parametrize("chance_turn", [None, 0, 1])
def test_optimal_return_is_the_best_deterministic_policy(chance_turn):
    rng = np.random.default_rng(3)
    chance = {} if chance_turn is None else {chance_turn: softmax(rng.normal(size=(1, 2**chance_turn, 2)))}
    game = Game(rng.normal(size=(1, 4)), 2, 2, chance=chance)
    best = -np.inf
    for a, b, c in itertools.product(range(2), repeat=3):
        tables = [np.eye(2)[[[a]]], np.eye(2)[[[b, c]]]]
        best = max(best, loop_return(game, [chance.get(t, table) for t, table in enumerate(tables)]))
    assert game.optimal_return() == pytest.approx(best, abs=1e-12)


def test_conditional_mean_matches_bayes_and_is_zero_where_nothing_is_sampled():
    rng = np.random.default_rng(5)
    game = random_game(rng, 2, 2, 3)
    policy = game.policy(rng)
    policy[0][1] = [0.0, 0.25, 0.75]
    x = rng.normal(size=game.reward.shape)
    means = game.conditional_mean(policy, x, 0)
    for s, a in itertools.product(range(2), range(3)):
        loop = sum(policy[1][s, a, b] * x[s, 3 * a + b] for b in range(3))
        assert means[s, 0, a] == pytest.approx(0.0 if policy[0][s, 0, a] == 0 else loop, abs=1e-12)


def test_expand_copies_histories_to_their_trajectories():
    game = random_game(np.random.default_rng(0), 1, 3, 2)
    np.testing.assert_array_equal(game.expand(np.array([[1.0, 2.0]]), 1), [[1, 1, 1, 1, 2, 2, 2, 2]])


def test_lock_and_climbing_games_have_the_described_optimum():
    lock = lock_game(4)
    assert lock.optimal_return() == 1.0
    assert lock.expected_return(deterministic_policy(lock, 0)) == pytest.approx(0.3)
    assert lock.expected_return(deterministic_policy(lock, 1)) == 1.0
    assert climbing_game().optimal_return() == 1.0


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"reward": np.zeros((1, 3))}, "reward must have shape"),
        ({"reward": np.full((1, 4), np.nan)}, "finite"),
        ({"prior": np.array([0.5])}, "prior must be a distribution"),
        ({"chance": {0: np.ones((1, 1, 2))}}, "not a distribution"),
        ({"chance": {2: np.full((1, 4, 2), 0.5)}}, "chance kernel of turn 2"),
    ],
)
def test_malformed_games_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Game(**{"reward": np.zeros((1, 4)), "turns": 2, "actions": 2, **arguments})
