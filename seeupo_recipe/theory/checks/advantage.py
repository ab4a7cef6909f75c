"""What the estimators estimate: Lemmas 4 and 6, the exactness of GAE, and what SeeUPO's M carries."""

from __future__ import annotations

import itertools

import numpy as np

from seeupo_recipe.seeding import stream
from seeupo_recipe.theory.checks.common import ROUNDING, describe, instance
from seeupo_recipe.theory.estimators import (
    exact_critic,
    gae,
    group_centred,
    leave_one_out,
    over_groups,
    structural_bias,
)
from seeupo_recipe.theory.games import Array, Game, Policy
from seeupo_recipe.theory.haml import correction, haml_iteration, joint_advantage, locally_centred, ratio
from seeupo_recipe.theory.mirror import kl
from seeupo_recipe.theory.registry import Measurement, at_least, at_most, check
from seeupo_recipe.theory.search import smallest

GROUP_SIZES = (2, 3, 4)


def _expected_advantage(game: Game, policy: Policy, size: int, estimator, t: int) -> Array:
    """``E[A_hat | h, a]`` of turn ``t`` for finite groups, ``(S, A**t, A)``."""
    advantage = sum(over_groups(game.reward, game.trajectory_probs(policy), size, estimator))
    return game.conditional_mean(policy, advantage, t)


@check(
    claim="Lemma 6",
    statement="In the bandit E[A_GRAE | a] = (1 - 1/G) A(s, a) for G = 2, 3, 4",
    condition="up to the factor (1 - 1/G) of a mean that includes the sample itself",
    perturbation="the sample is left out of its baseline (factor 1)",
    mutation={"estimator": leave_one_out},
)
def lemma6_group_mean(estimator=group_centred) -> Measurement:
    game, policy = instance("lemma6", 3, 1, 3)
    errors = [
        np.abs(_expected_advantage(game, policy, g, estimator, 0) - (1 - 1 / g) * game.advantage(policy, 0)).max()
        for g in GROUP_SIZES
    ]
    return at_most(max(errors), ROUNDING, describe(game))


@check(
    claim="Lemma 6",
    statement="In the bandit the leave-one-out mean is exactly unbiased: E[A_hat | a] = A(s, a) for G = 2, 3, 4",
    perturbation="the sample is part of its own baseline",
    mutation={"estimator": group_centred},
)
def lemma6_leave_one_out(estimator=leave_one_out) -> Measurement:
    game, policy = instance("lemma6", 3, 1, 3)
    errors = [
        np.abs(_expected_advantage(game, policy, g, estimator, 0) - game.advantage(policy, 0)).max()
        for g in GROUP_SIZES
    ]
    return at_most(max(errors), ROUNDING, describe(game))


@check(
    claim="Lemma 4",
    statement="E[A_GRAE | h_t, a_t] = A(h_t, a_t) + V(h_t) - V(s0) - (Q(h_t, a_t) - V(s0)) / G at every turn",
    perturbation="the sample is left out of its baseline (no 1/G term)",
    mutation={"estimator": leave_one_out},
)
def lemma4_structural_bias(estimator=group_centred) -> Measurement:
    game, policy = instance("lemma4", 2, 2, 2)
    errors = []
    for size, t in itertools.product(GROUP_SIZES, range(game.turns)):
        above_start = game.action_value(policy, t) - game.value(policy, 0)[..., None]
        expected = game.advantage(policy, t) + structural_bias(game, policy, t)[..., None] - above_start / size
        errors.append(np.abs(_expected_advantage(game, policy, size, estimator, t) - expected).max())
    return at_most(max(errors), ROUNDING, describe(game))


@check(
    claim="Lemma 4",
    statement="The bias does not shrink with G: at turn 2 its largest size is at least 0.1 for G = 2, 3, 4, 5 "
    "(leave-one-out, where the bias is V(h) - V(s0) exactly)",
    perturbation="the first turn instead of the second (there V(h) = V(s0))",
    mutation={"turn": 0},
)
def lemma4_bias_persists(turn: int = 1) -> Measurement:
    game, policy = instance("lemma4", 2, 2, 2)
    sizes = [
        np.abs(_expected_advantage(game, policy, g, leave_one_out, turn) - game.advantage(policy, turn)).max()
        for g in (2, 3, 4, 5)
    ]
    return at_least(min(sizes), 0.1, describe(game), f"largest bias {min(sizes):.4f} to {max(sizes):.4f} over G")


@check(
    claim="Theorem 6",
    statement="With the exact critic E[GAE | h, a] = A(h, a) for lambda = 0, 0.5, 0.95, 1",
    perturbation="the critic is off by normal noise of size 0.1",
    mutation={"noise": 0.1},
)
def theorem6_gae_unbiased(noise: float = 0.0) -> Measurement:
    game, policy = instance("gae", 3, 3, 2)
    critic = _noisy_critic(game, policy, noise)
    errors = [
        np.abs(game.conditional_mean(policy, advantage, t) - game.advantage(policy, t)).max()
        for lam in (0.0, 0.5, 0.95, 1.0)
        for t, advantage in enumerate(gae(game, critic, lam))
    ]
    return at_most(max(errors), ROUNDING, describe(game))


def _noisy_critic(game: Game, policy: Policy, noise: float) -> list[Array]:
    rng = stream("theory", "critic noise")
    return [v + noise * rng.normal(size=v.shape) for v in exact_critic(game, policy)]


def _critic_sensitivity(estimator: str) -> Measurement:
    game, policy = instance("gae", 3, 3, 2)
    change = [np.zeros_like(game.reward)]
    if estimator == "gae":
        exact, noisy = (gae(game, _noisy_critic(game, policy, n), 0.95) for n in (0.0, 1.0))
        change = [x - y for x, y in zip(exact, noisy, strict=True)]
    return Measurement(float(np.abs(change).max()), "<=", 0.0, describe(game))


@check(
    claim="Table 1: critic-free",
    statement="GAE (lambda = 0.95) changes when its value table does: it needs a critic",
    perturbation="GRAE, which is given no value table",
    mutation={"estimator": "grae"},
)
def gae_needs_critic(estimator: str = "gae") -> Measurement:
    measured = _critic_sensitivity(estimator)
    return at_least(measured.value, 0.1, measured.instance)


@check(
    claim="Table 1: critic-free",
    statement="GRAE does not change when a value table does: it needs no critic",
    perturbation="GAE (lambda = 0.95)",
    mutation={"estimator": "gae"},
)
def grae_needs_no_critic(estimator: str = "grae") -> Measurement:
    return _critic_sensitivity(estimator)


@check(
    claim="beyond the paper: what M is",
    statement="Reverse order: E[M | h, a] = Q(h, a) - V_k(s0) with Q under the turns already updated (equations 4, 8)",
    perturbation="the correction is left out of M",
    mutation={"corrected": False},
)
def m_is_updated_value(corrected: bool = True) -> Measurement:
    game, old = instance("m", 3, 3, 3)
    new, errors = list(old), []
    for t in reversed(range(game.turns)):
        m = joint_advantage(game, old)
        if corrected:
            m = m * correction(game, old, new, range(t + 1, game.turns))
        expected = game.action_value(new, t) - game.value(old, 0)[..., None]
        errors.append(np.abs(game.conditional_mean(old, m, t) - expected).max())
        new[t] = kl(1.0)(old[t], game.action_value(new, t))
    return at_most(max(errors), ROUNDING, describe(game))


@check(
    claim="beyond the paper: what M is",
    statement="For the natural order M also carries the ratios of the earlier turns: "
    "E[M | h, a] = prod_{u<t} (new/old)(h) (Q_k(h, a) - V_k(s0))",
    perturbation="the ratios of the earlier turns are left out",
    mutation={"earlier_ratios": False},
)
def m_natural_order(earlier_ratios: bool = True) -> Measurement:
    game, old = instance("m", 3, 3, 3)
    new = haml_iteration(game, old, "natural", kl(1.0))
    errors, factor = [], np.ones((game.contexts, 1))
    for t in range(game.turns):
        m = joint_advantage(game, old) * correction(game, old, new, range(t))
        gap = game.action_value(old, t) - game.value(old, 0)[..., None]
        expected = (factor[..., None] if earlier_ratios else 1.0) * gap
        errors.append(np.abs(game.conditional_mean(old, m, t) - expected).max())
        factor = (factor[..., None] * ratio(new[t], old[t])).reshape(game.contexts, -1)
    return at_most(max(errors), ROUNDING, describe(game))


@check(
    claim="beyond the paper: the offset that M carries",
    statement="The bandit view removes the structural bias: sum_a pi(a|h) E[M | h, a] = 0 at every history",
    perturbation="M is centred at the value of its own history",
    mutation={"centring": "local"},
)
def m_is_centred(centring: str = "initial") -> Measurement:
    def offset(game: Game, policy: Policy) -> Array:
        last, ones = game.turns - 1, np.ones_like(game.reward)
        m = joint_advantage(game, policy) if centring == "initial" else locally_centred(game, policy, ones, last)
        return np.abs((policy[last] * game.conditional_mean(policy, m, last)).sum(-1)).max(-1)

    found = smallest("offset", offset, 0.01)
    return at_most(found.violation, ROUNDING, found.describe(), "the offset is V(h) - V(s0), the bias of Lemma 4")


def _batch_mean(weighting: str, rewards: list[Array], turns: list[Array]) -> float:
    centred = np.concatenate([group_centred(r) for r in rewards])
    weights = np.concatenate(turns) if weighting == "turn" else np.ones(len(centred))
    return float(abs((centred * weights).sum() / weights.sum()))


@check(
    claim="beyond the paper: batch statistics",
    statement="Group-centred advantages have batch mean 0 over trajectories for any group sizes and turn counts",
    perturbation="every trajectory is counted once per turn",
    mutation={"weighting": "turn"},
)
def trajectory_weighted_mean(weighting: str = "trajectory") -> Measurement:
    rng = stream("theory", "batch mean")
    sizes = (2, 3, 8, 8, 5)
    rewards = [rng.integers(0, 2, g).astype(float) for g in sizes]
    turns = [rng.integers(1, 11, g) for g in sizes]
    return at_most(_batch_mean(weighting, rewards, turns), ROUNDING, "groups of 2, 3, 8, 8, 5; rewards 0/1; 1-10 turns")


@check(
    claim="beyond the paper: batch statistics",
    statement="Group-centred advantages have mean 0 over turn rows",
    perturbation="every trajectory is counted once",
    mutation={"weighting": "trajectory"},
)
def turn_weighted_mean(weighting: str = "turn") -> Measurement:
    best, where = -1.0, ""
    for size in (2, 3):
        for rewards in itertools.product((0.0, 1.0), repeat=size):
            for turns in itertools.product((1, 2, 3), repeat=size):
                mean = _batch_mean(weighting, [np.array(rewards)], [np.array(turns)])
                if mean > best + ROUNDING:
                    best, where = mean, f"one group, rewards {rewards}, turns {turns}"
        if best > 0.01:
            break
    return at_most(best, ROUNDING, where)
