"""Policy-gradient statements: Lemma 1 and Theorem 5."""

from __future__ import annotations

import numpy as np

from seeupo_recipe.seeding import stream
from seeupo_recipe.theory.checks.common import ROUNDING, describe, instance
from seeupo_recipe.theory.estimators import (
    discounted_game,
    group_centred,
    leave_one_out,
    over_groups,
    policy_gradient,
    relative_error,
    returns_to_go,
    score_gradient,
)
from seeupo_recipe.theory.games import Array, Game, Policy
from seeupo_recipe.theory.registry import Measurement, at_least, at_most, check

DISCOUNTS = (0.9, 0.5)
TURN_REWARDS = "3 contexts, T=3, A=2, normal reward at every turn"


@check(
    claim="Lemma 1",
    statement="E[sum_t grad log pi(a_t|h_t) (R - b(h_t))] = grad J for every baseline b of the history (gamma = 1)",
    perturbation="the baseline also depends on the action",
    mutation={"sees_action": True},
)
def lemma1_baseline_invariance(sees_action: bool = False) -> Measurement:
    game, policy = instance("lemma1", 3, 3, 2)
    rng = stream("theory", "lemma1", "baseline")
    depth = 1 if sees_action else 0
    weights = [
        game.reward - game.expand(rng.normal(size=(game.contexts, game.actions ** (t + depth))), t + depth)
        for t in range(game.turns)
    ]
    error = relative_error(score_gradient(game, policy, weights), policy_gradient(game, policy))
    return at_most(error, ROUNDING, describe(game))


def _turn_rewards() -> list[Array]:
    rng = stream("theory", "theorem5")
    return [rng.normal(size=(3, 2 ** (t + 1))) for t in range(3)]


def _discounted(discount: float) -> tuple[Game, Policy, list[Array], Array]:
    """Game, policy, returns-to-go per turn and ``V(s0)`` per trajectory for one discount factor."""
    rewards = _turn_rewards()
    game = discounted_game(rewards, 2, discount)
    policy = game.policy(stream("theory", "theorem5", "policy"))
    return game, policy, returns_to_go(rewards, 2, discount), game.expand(game.value(policy, 0), 0)


@check(
    claim="Theorem 5",
    statement="REINFORCE with baseline V(s0) has the expected gradient grad J at gamma = 1, for the whole return "
    "and for the return-to-go",
    perturbation="gamma = 0.9",
    mutation={"discount": 0.9},
)
def theorem5_undiscounted(discount: float = 1.0) -> Measurement:
    game, policy, to_go, start = _discounted(discount)
    truth = policy_gradient(game, policy)
    errors = [
        relative_error(score_gradient(game, policy, [w - start for w in weights]), truth)
        for weights in ([game.reward] * game.turns, to_go)
    ]
    return at_most(max(errors), ROUNDING, TURN_REWARDS)


@check(
    claim="Theorem 5",
    statement="For gamma < 1 the return-to-go estimator with baseline V(s0) is biased: relative gradient error "
    "at least 1% at gamma = 0.9 and 0.5",
    perturbation="turn t is weighted by gamma^t",
    mutation={"weighted": True},
)
def theorem5_discounted_bias(weighted: bool = False) -> Measurement:
    errors = []
    for discount in DISCOUNTS:
        game, policy, to_go, start = _discounted(discount)
        weights = [(discount**t if weighted else 1.0) * (g - start) for t, g in enumerate(to_go)]
        errors.append(relative_error(score_gradient(game, policy, weights), policy_gradient(game, policy)))
    return at_least(min(errors), 0.01, TURN_REWARDS, f"errors {errors[0]:.3f} (0.9), {errors[1]:.3f} (0.5)")


@check(
    claim="beyond the paper: source of the discount bias",
    statement="The exact baseline V(s_t) has the same expected gradient as V(s0) at gamma < 1: the bias is the dropped "
    "factor gamma^t, not the structural bias",
    perturbation="the estimator with V(s_t) is weighted by gamma^t",
    mutation={"weighted": True},
)
def discount_bias_source(weighted: bool = False) -> Measurement:
    errors = []
    for discount in DISCOUNTS:
        game, policy, to_go, start = _discounted(discount)
        value = np.zeros((game.contexts, 1))
        local = []
        for t in reversed(range(game.turns)):
            q = _turn_rewards()[t] + discount * value
            value = (policy[t] * q.reshape(game.contexts, -1, game.actions)).sum(-1)
            local.insert(0, to_go[t] - game.expand(value, t))
        local = [(discount**t if weighted else 1.0) * w for t, w in enumerate(local)]
        initial = score_gradient(game, policy, [g - start for g in to_go])
        errors.append(relative_error(score_gradient(game, policy, local), initial))
    return at_most(max(errors), ROUNDING, TURN_REWARDS)


@check(
    claim="beyond the paper: discounting",
    statement="The whole discounted return with baseline V(s0) is unbiased at every gamma",
    perturbation="the return-to-go replaces the whole return",
    mutation={"to_go": True},
)
def discounted_whole_return(to_go: bool = False) -> Measurement:
    errors = []
    for discount in DISCOUNTS:
        game, policy, tails, start = _discounted(discount)
        weights = tails if to_go else [game.reward] * game.turns
        estimate = score_gradient(game, policy, [w - start for w in weights])
        errors.append(relative_error(estimate, policy_gradient(game, policy)))
    return at_most(max(errors), ROUNDING, TURN_REWARDS)


@check(
    claim="Theorem 5",
    statement="With the group mean as baseline the expected gradient is (1 - 1/G) grad J (G = 2, 3, 4, all groups "
    "enumerated)",
    condition="direction only: the mean that includes the sample itself shrinks the gradient by (1 - 1/G)",
    perturbation="the sample is left out of its baseline (factor 1)",
    mutation={"estimator": leave_one_out},
)
def theorem5_group_mean(estimator=group_centred) -> Measurement:
    game, policy = instance("theorem5 group", 2, 2, 2)
    truth, probs, errors = policy_gradient(game, policy), game.trajectory_probs(policy), []
    for size in (2, 3, 4):
        advantage = sum(over_groups(game.reward, probs, size, estimator))
        scaled = [(1 - 1 / size) * g for g in truth]
        errors.append(relative_error(score_gradient(game, policy, [advantage] * game.turns), scaled))
    return at_most(max(errors), ROUNDING, describe(game))
