"""Estimators against loops and finite differences."""

import itertools

import numpy as np
import pytest

from seeupo_recipe.theory.estimators import (
    discounted_game,
    exact_critic,
    gae,
    group_centred,
    group_standardised,
    leave_one_out,
    over_groups,
    policy_gradient,
    relative_error,
    returns_to_go,
    score_gradient,
)
from seeupo_recipe.theory.games import Game, random_game, softmax
from seeupo_recipe.theory.updates import ALGORITHMS, grouped_iteration, reinforce_iteration


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("estimator", [group_centred, leave_one_out, group_standardised])
def test_group_expectations_match_a_loop_over_ordered_groups(size, estimator):
    rng = np.random.default_rng(size)
    rewards, probs = rng.normal(size=(2, 3)), rng.dirichlet(np.ones(3), 2)
    gain, loss = over_groups(rewards, probs, size, estimator)
    for s, own in itertools.product(range(2), range(3)):
        up = down = 0.0
        for others in itertools.product(range(3), repeat=size - 1):
            weight = np.prod([probs[s, o] for o in others])
            value = estimator(np.array([rewards[s, own], *(rewards[s, o] for o in others)]))[0]
            up, down = up + weight * max(value, 0), down + weight * min(value, 0)
        assert gain[s, own] == pytest.approx(up, abs=1e-12)
        assert loss[s, own] == pytest.approx(down, abs=1e-12)


def test_a_group_without_spread_is_not_divided():
    np.testing.assert_allclose(group_standardised(np.array([0.7, 0.7, 0.7])), np.zeros(3), atol=1e-12)


def test_leave_one_out_subtracts_the_mean_of_the_others():
    rewards = np.array([1.0, 2.0, 6.0])
    np.testing.assert_allclose(leave_one_out(rewards), [1 - 4, 2 - 3.5, 6 - 1.5])


@pytest.mark.parametrize("lam", [0.0, 0.7, 1.0])
def test_gae_matches_a_loop(lam):
    rng = np.random.default_rng(1)
    game = random_game(rng, 2, 3, 2)
    critic = [rng.normal(size=(2, 2**t)) for t in range(3)]
    advantages = gae(game, critic, lam)
    for s, actions in itertools.product(range(2), itertools.product(range(2), repeat=3)):
        history, values = 0, []
        for t, a in enumerate(actions):
            values.append(critic[t][s, history])
            history = 2 * history + a
        values.append(game.reward[s, history])
        for t in range(3):
            expected = sum(lam ** (u - t) * (values[u + 1] - values[u]) for u in range(t, 3))
            assert advantages[t][s, history] == pytest.approx(expected, abs=1e-12)


def test_gae_of_the_exact_critic_with_lambda_zero_is_the_advantage():
    rng = np.random.default_rng(2)
    game = random_game(rng, 2, 3, 2)
    policy = game.policy(rng)
    for t, advantage in enumerate(gae(game, exact_critic(game, policy), 0.0)):
        np.testing.assert_allclose(advantage, game.expand(game.advantage(policy, t), t + 1), atol=1e-12)


def test_policy_gradient_matches_finite_differences_and_the_score_form():
    rng = np.random.default_rng(3)
    chance = {1: softmax(rng.normal(size=(1, 2, 2)))}
    game = Game(rng.normal(size=(1, 8)), 3, 2, chance=chance)
    policy = game.policy(rng)
    gradient = policy_gradient(game, policy)
    logits = [np.log(p) for p in policy]
    for t in game.agent_turns:
        for index in np.ndindex(logits[t].shape):
            values = []
            for sign in (1, -1):
                moved = [x.copy() for x in logits]
                moved[t][index] += sign * 1e-6
                values.append(game.expected_return([softmax(x) for x in moved]))
            assert gradient[t][index] == pytest.approx((values[0] - values[1]) / 2e-6, abs=1e-8)
    assert relative_error(score_gradient(game, policy, [game.reward] * 3), gradient) < 1e-12
    assert not gradient[1].any()


def test_returns_to_go_match_a_loop():
    rng = np.random.default_rng(4)
    rewards = [rng.normal(size=(1, 2 ** (t + 1))) for t in range(3)]
    tails = returns_to_go(rewards, 2, 0.9)
    total = discounted_game(rewards, 2, 0.9).reward
    for leaf, (a, b, _) in enumerate(itertools.product(range(2), repeat=3)):
        r = [rewards[0][0, a], rewards[1][0, 2 * a + b], rewards[2][0, leaf]]
        for t in range(3):
            assert tails[t][0, leaf] == pytest.approx(sum(0.9 ** (u - t) * r[u] for u in range(t, 3)))
        assert total[0, leaf] == pytest.approx(sum(0.9**t * r[t] for t in range(3)))


def test_reinforce_iteration_is_a_gradient_step_in_the_logits():
    rng = np.random.default_rng(5)
    game = random_game(rng, 2, 2, 2)
    old = game.policy(rng)
    new = reinforce_iteration(game, old, [game.reward] * 2, 0.3)
    for t, gradient in enumerate(policy_gradient(game, old)):
        np.testing.assert_allclose(new[t], softmax(np.log(old[t]) + 0.3 * gradient), atol=1e-12)


def test_a_grouped_update_needs_no_more_than_the_rewards_of_its_groups():
    rng = np.random.default_rng(6)
    game = random_game(rng, 2, 2, 2)
    shifted = Game(game.reward + 5.0, 2, 2)
    old = game.policy(rng)
    pair = [grouped_iteration(g, old, 3, group_centred, lambda o, gain, loss: gain + loss + o) for g in (game, shifted)]
    for x, y in zip(*pair, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-12)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: a.key)
def test_every_algorithm_returns_distributions_and_leaves_the_environment_alone(algorithm):
    rng = np.random.default_rng(7)
    chance = {1: softmax(rng.normal(size=(3, 2, 2)))}
    game = Game(rng.normal(size=(3, 8)), 3, 2, chance=chance)
    policy = game.policy(rng)
    for update in filter(None, (algorithm.update, algorithm.bounded)):
        new = update(game, policy)
        assert new[1] is chance[1]
        for table in new:
            assert (table >= 0).all()
            np.testing.assert_allclose(table.sum(-1), 1.0, atol=1e-12)
