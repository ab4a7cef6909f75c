"""Sequential updates: orders, the M recursion, monotonicity."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seeupo_recipe.theory.games import Game, random_game, softmax
from seeupo_recipe.theory.haml import (
    ORDERS,
    correction,
    haml_iteration,
    joint_advantage,
    locally_centred,
    ratio,
    returns,
    schedule,
    seeupo_iteration,
    seeupo_updates,
    signed_means,
)
from seeupo_recipe.theory.mirror import clipped, kl


def test_orders():
    rng = np.random.default_rng(0)
    assert schedule("reverse", (0, 1, 2)) == [2, 1, 0]
    assert schedule("natural", (0, 1, 2)) == schedule("joint", (0, 1, 2)) == [0, 1, 2]
    assert sorted(schedule("random", (0, 1, 2), rng)) == [0, 1, 2]
    with pytest.raises(ValueError, match="choose one of"):
        schedule("backwards", (0, 1))
    with pytest.raises(ValueError, match="random needs a generator"):
        schedule("random", (0, 1))


def test_random_order_uses_the_given_stream():
    drawn = [[schedule("random", range(6), np.random.default_rng(s)) for _ in range(2)] for s in (1, 2)]
    assert drawn[0][0] == drawn[0][1] != drawn[1][0]


def test_correction_is_the_product_of_ratios_along_each_trajectory():
    rng = np.random.default_rng(1)
    game = random_game(rng, 2, 3, 2)
    old, new = game.policy(rng), game.policy(rng)
    product = correction(game, old, new, (1, 2))
    for s, (a, b, c) in itertools.product(range(2), itertools.product(range(2), repeat=3)):
        expected = new[1][s, a, b] / old[1][s, a, b] * new[2][s, 2 * a + b, c] / old[2][s, 2 * a + b, c]
        assert product[s, 4 * a + 2 * b + c] == pytest.approx(expected)


def test_ratio_is_one_without_samples():
    np.testing.assert_array_equal(ratio(np.array([0.5, 0.5]), np.array([0.0, 1.0])), [1.0, 0.5])


def test_signed_means_sum_to_the_mean():
    rng = np.random.default_rng(2)
    game = random_game(rng, 2, 2, 3)
    policy, x = game.policy(rng), rng.normal(size=(2, 9))
    gain, loss = signed_means(game, policy, x, 0)
    assert (gain >= 0).all() and (loss <= 0).all()
    np.testing.assert_allclose(gain + loss, game.conditional_mean(policy, x, 0))


def test_local_centring_uses_the_value_under_the_updated_turns():
    rng = np.random.default_rng(3)
    game = random_game(rng, 2, 3, 2)
    old = game.policy(rng)
    new = [old[0], old[1], game.policy(rng)[2]]
    weights = correction(game, old, new, (2,))
    expected = weights * (game.reward - game.expand(game.value(new, 1), 1))
    np.testing.assert_allclose(locally_centred(game, old, weights, 1), expected, atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(ORDERS), st.sampled_from([0.1, 1.0, 30.0, np.inf]))
def test_haml_iterations_never_lower_a_value_at_any_history(seed, order, eta):
    rng = np.random.default_rng(seed)
    chance = {1: softmax(rng.normal(size=(3, 2, 2)))}
    game = Game(rng.normal(size=(3, 8)), 3, 2, chance=chance)
    old = game.policy(rng, 1.5)
    new = haml_iteration(game, old, order, kl(eta), rng)
    for t in range(3):
        assert (game.value(new, t) >= game.value(old, t) - 1e-12).all()
    assert new[1] is chance[1]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["reverse", "natural", "random"]), st.sampled_from(["initial", "local"]))
def test_no_turn_of_exact_seeupo_lowers_a_value(seed, order, centring):
    rng = np.random.default_rng(seed)
    game = random_game(rng, 4, 3, 2)
    policy = game.policy(rng, 1.5)
    before = game.value(policy, 0)
    for updated in seeupo_updates(game, policy, order, clipped(0.2), centring=centring, rng=rng):
        assert (game.value(updated, 0) >= before - 1e-12).all()
        before = game.value(updated, 0)


def test_one_turn_seeupo_is_the_bandit_step():
    rng = np.random.default_rng(6)
    game = random_game(rng, 3, 1, 4)
    old = game.policy(rng)
    m = joint_advantage(game, old)[:, None, :]
    expected = clipped(0.2)(old[0], np.maximum(m, 0), np.minimum(m, 0))
    for order in ("reverse", "natural", "joint"):
        np.testing.assert_allclose(seeupo_iteration(game, old, order, clipped(0.2))[0], expected)


def test_unknown_centring_is_refused():
    game = random_game(np.random.default_rng(0), 1, 1, 2)
    with pytest.raises(ValueError, match="choose initial or local"):
        seeupo_iteration(game, game.policy(np.random.default_rng(0)), "reverse", clipped(0.2), centring="none")


def test_returns_tracks_every_context():
    rng = np.random.default_rng(7)
    game = random_game(rng, 5, 2, 2)
    policy = game.policy(rng)
    curve, last = returns(game, policy, lambda p: haml_iteration(game, p, "reverse", kl(1.0)), 3)
    assert curve.shape == (4, 5)
    np.testing.assert_allclose(curve[0], game.value(policy, 0)[:, 0])
    np.testing.assert_allclose(curve[-1], game.value(last, 0)[:, 0])
