"""Advantage estimators in exact expectation: group relative (GRAE), its normalisations, and GAE.

GRAE needs the rewards of a group of trajectories and nothing else; GAE needs a value table (the critic).
Expectations over groups enumerate every possible group, so they hold for the finite ``G`` of practice.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from seeupo_recipe.theory.games import Array, Game, Policy

STD_FLOOR = 1e-6
"""A group whose standard deviation is not above this is only centred, not divided (the release's rule)."""


def group_centred(rewards: Array) -> Array:
    """``r - mean`` over the last axis (paper equation 9), any shape ``(..., G)``."""
    return rewards - rewards.mean(-1, keepdims=True)


def leave_one_out(rewards: Array) -> Array:
    """``r`` minus the mean of the other members of the group (RLOO), shape ``(..., G)``."""
    size = rewards.shape[-1]
    return group_centred(rewards) * size / (size - 1)


def group_standardised(rewards: Array) -> Array:
    """``(r - mean) / std`` over the last axis (GRPO, GSPO; unbiased std), shape ``(..., G)``."""
    std = rewards.std(-1, ddof=1, keepdims=True)
    return group_centred(rewards) / np.where(std > STD_FLOOR, std, 1.0)


def over_groups(rewards: Array, probs: Array, size: int, estimator: Callable[[Array], Array]) -> tuple[Array, Array]:
    """``E[max(A_hat_1, 0) | trajectory_1]`` and ``E[min(A_hat_1, 0) | trajectory_1]`` over all groups of ``size``.

    The group's advantage has its own sign in every group, so the two parts are averaged apart; their sum is the
    expected advantage. The other members are enumerated as multisets.

    Args:
        rewards: Reward of every possible trajectory, ``(S, N)``.
        probs: Their probabilities under the sampling policy, ``(S, N)``.
        size: Group size ``G``.
        estimator: Maps rewards ``(..., G)`` to advantages of the same shape; must not depend on the members' order.

    Returns:
        Two arrays ``(S, N)``.
    """
    count, peers = rewards.shape[1], size - 1
    others = np.array(list(itertools.combinations_with_replacement(range(count), peers)), dtype=int)
    repeats = [np.unique(row, return_counts=True)[1] for row in others]
    orderings = np.array([math.factorial(peers) / math.prod(map(math.factorial, r.tolist())) for r in repeats])
    weight = probs[:, others].prod(-1) * orderings
    own = np.broadcast_to(rewards[:, :, None, None], (*rewards.shape, len(others), 1))
    rest = np.broadcast_to(rewards[:, None, others], (*rewards.shape, len(others), peers))
    estimate = estimator(np.concatenate([own, rest], -1))[..., 0]
    gain, loss = (np.einsum("sno,so->sn", part(estimate, 0.0), weight) for part in (np.maximum, np.minimum))
    return gain, loss


def gae(game: Game, critic: Sequence[Array], lam: float) -> list[Array]:
    """GAE of every turn and trajectory for undiscounted terminal rewards.

    Args:
        game: The game.
        critic: Value table of histories of length 0..T-1, ``critic[t]`` of shape ``(S, A**t)``.
        lam: GAE's lambda.

    Returns:
        One array ``(S, A**T)`` per turn: ``sum_l lam**l delta_{t+l}``, ``delta_t = V(h_{t+1}) - V(h_t)``, where the
        value after the last turn is the reward.
    """
    levels = [game.expand(critic[t], t) for t in range(game.turns)] + [game.reward]
    advantage, out = np.zeros_like(game.reward), []
    for t in range(game.turns - 1, -1, -1):
        advantage = levels[t + 1] - levels[t] + lam * advantage
        out.insert(0, advantage)
    return out


def exact_critic(game: Game, policy: Policy) -> list[Array]:
    """The value tables of ``policy`` for histories of length 0..T-1."""
    return [game.value(policy, t) for t in range(game.turns)]


def structural_bias(game: Game, policy: Policy, t: int) -> Array:
    """``V(h_t) - V(s0)`` of every history of length ``t`` (paper Lemma 4), ``(S, A**t)``."""
    return game.value(policy, t) - game.value(policy, 0)


def policy_gradient(game: Game, policy: Policy) -> list[Array]:
    """Gradient of every context's ``V(s0)`` in the softmax logits of each turn: ``reach(h) pi(a|h) A(h, a)``."""
    return [
        game.reach(policy, t)[..., None] * policy[t] * game.advantage(policy, t)
        if t not in game.chance
        else np.zeros_like(policy[t])
        for t in range(game.turns)
    ]


def score_gradient(game: Game, policy: Policy, weights: Sequence[Array]) -> list[Array]:
    """``E[sum_t w_t grad log pi(a_t | h_t)]`` in the softmax logits, by enumeration of all trajectories.

    Args:
        game: The game.
        policy: Full-support policy.
        weights: One array ``(S, A**T)`` per turn, e.g. an advantage estimate.

    Returns:
        One array ``(S, A**t, A)`` per turn; zero on chance turns.
    """
    probs, out = game.trajectory_probs(policy), []
    for t in range(game.turns):
        mass = (probs * weights[t]).reshape(game.contexts, game.actions**t, game.actions, -1).sum(-1)
        gradient = mass - policy[t] * mass.sum(-1, keepdims=True)
        out.append(np.zeros_like(gradient) if t in game.chance else gradient)
    return out


def relative_error(estimate: Sequence[Array], truth: Sequence[Array]) -> float:
    """``|estimate - truth| / |truth|`` over all tables together."""
    norm = np.sqrt(sum((y**2).sum() for y in truth))
    return float(np.sqrt(sum(((x - y) ** 2).sum() for x, y in zip(estimate, truth, strict=True))) / norm)


def discounted_game(turn_rewards: Sequence[Array], actions: int, discount: float) -> Game:
    """The game whose trajectory reward is the discounted sum of ``turn_rewards`` (each ``(S, A**(t+1))``)."""
    turns = len(turn_rewards)
    total = sum(discount**t * np.repeat(r, actions ** (turns - t - 1), axis=1) for t, r in enumerate(turn_rewards))
    return Game(total, turns, actions)


def returns_to_go(turn_rewards: Sequence[Array], actions: int, discount: float) -> list[Array]:
    """``sum_{u >= t} discount**(u-t) r_u`` of every turn and trajectory, each ``(S, A**T)``."""
    turns, out = len(turn_rewards), []
    tail = np.zeros(1)
    for t in range(turns - 1, -1, -1):
        tail = np.repeat(turn_rewards[t], actions ** (turns - t - 1), axis=1) + discount * tail
        out.insert(0, tail)
    return out
