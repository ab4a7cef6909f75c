"""Instances and measurements that several checks share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from seeupo_recipe.seeding import stream
from seeupo_recipe.theory.games import Array, Game, Policy, random_game
from seeupo_recipe.theory.haml import returns

ROUNDING = 1e-12
"""Identities and monotonicity hold up to this much."""
OPTIMAL = 1e-3
"""A return within this of the optimum counts as optimal."""
RNG_NOTE = "normal rewards, softmax of normal logits"


def instance(name: str, contexts: int, turns: int, actions: int, scale: float = 1.0) -> tuple[Game, Policy]:
    """A random game and policy from the stream named ``name``."""
    rng = stream("theory", name, contexts, turns, actions)
    game = random_game(rng, contexts, turns, actions)
    return game, game.policy(rng, scale)


def describe(game: Game, prefix: str = "") -> str:
    """Sizes of a random game in one line."""
    return f"{prefix}{game.contexts} contexts, T={game.turns}, A={game.actions}; {RNG_NOTE}"


def start_values(game: Game, policy: Policy) -> Array:
    """``V(s0)`` of every context, ``(S,)``."""
    return game.value(policy, 0)[:, 0]


def optimal_values(game: Game) -> Array:
    """``V*(s0)`` of every context, ``(S,)``."""
    return start_values(game, game.optimal_policy())


def worst_fall(game: Game, policy: Policy, iterate: Callable[[Policy], Policy], iterations: int) -> float:
    """Largest drop of any context's value in one iteration (0 or less if none)."""
    curve, _ = returns(game, policy, iterate, iterations)
    return float((curve[:-1] - curve[1:]).max())


def gaps(game: Game, policy: Policy, iterate: Callable[[Policy], Policy], iterations: int) -> tuple[Array, Array]:
    """Where a run of some iterations ends.

    Returns:
        ``V*(s0) - V(s0)`` of every context, ``(S,)``, and whether the context's policy has come to rest (one more
        iteration moves no probability by more than rounding), ``(S,)``.
    """
    curve, last = returns(game, policy, iterate, iterations)
    after = iterate(last)
    moved = np.max([np.abs(x - y).max((1, 2)) for x, y in zip(after, last, strict=True)], axis=0)
    return optimal_values(game) - curve[-1], moved <= ROUNDING
