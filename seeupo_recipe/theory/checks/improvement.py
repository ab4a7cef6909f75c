"""Monotonic improvement: Theorem 1, per turn and per iteration, with separate tables."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np

from seeupo_recipe.seeding import stream
from seeupo_recipe.theory.checks.common import ROUNDING, describe, instance, start_values, worst_fall
from seeupo_recipe.theory.games import Array, Game, Policy, softmax
from seeupo_recipe.theory.haml import ORDERS, haml_iteration, ratio, seeupo_updates
from seeupo_recipe.theory.mirror import clipped, kl
from seeupo_recipe.theory.registry import Measurement, at_most, check
from seeupo_recipe.theory.search import smallest
from seeupo_recipe.theory.shared import history_blind, shared_haml_iteration, shared_return
from seeupo_recipe.theory.updates import EPS

ETAS = (0.1, 1.0, 10.0, np.inf)
SEQUENTIAL = ("reverse", "natural", "random")


@check(
    claim="Theorem 1",
    statement="Exact sequential HAML steps (KL drift) never lower a value: reverse, natural, random and joint order, "
    "eta = 0.1, 1, 10, inf, one table row per history",
    perturbation="every trajectory is paid its neighbour's reward",
    mutation={"shift": 1},
)
def theorem1_haml(shift: int = 0) -> Measurement:
    game, policy = instance("theorem1", 64, 3, 3, 1.5)
    paid = Game(np.roll(game.reward, shift, axis=1), game.turns, game.actions)
    falls = []
    for order in ORDERS:
        for eta in ETAS:
            rng = stream("theory", "theorem1", order)
            update = partial(haml_iteration, paid, order=order, step=kl(eta), rng=rng)
            falls.append(worst_fall(game, policy, update, 15))
    return at_most(max(falls), ROUNDING, describe(game), "15 iterations per order and eta")


@check(
    claim="Theorem 1",
    statement="Where no turn sees the earlier actions (a matrix game, the original HAML setting), exact HAML steps "
    "never lower J in any sequential order",
    perturbation="all turns are updated at once from the old policy",
    mutation={"orders": ("joint",)},
)
def theorem1_history_blind(orders: Iterable[str] = SEQUENTIAL) -> Measurement:
    falls = []
    for index in range(60):
        game, _ = instance(f"blind {index}", 1, 2 + index % 2, 3 - index % 2)
        rng = stream("theory", "blind", index)
        rows, theta = history_blind(game), softmax(rng.normal(size=(game.turns, game.actions)))
        for order in orders:
            for eta in (1.0, 10.0):
                new = shared_haml_iteration(game, rows, theta, order, kl(eta), rng)
                falls.append(shared_return(game, rows, theta) - shared_return(game, rows, new))
    return at_most(max(falls), ROUNDING, "60 matrix games, T=2 A=3 and T=3 A=2; eta = 1, 10")


def worst_turn_fall(game: Game, old: Policy, orders: Iterable[str], weigh=ratio, iterations: int = 1) -> Array:
    """Largest fall of each context's value caused by one turn's clipped update, ``(S,)``."""
    worst = np.full(game.contexts, -np.inf)
    for order in orders:
        policy, rng = old, stream("theory", "turn fall", order)
        for _ in range(iterations):
            before = start_values(game, policy)
            for updated in seeupo_updates(game, policy, order, clipped(EPS), rng=rng, weigh=weigh):
                after = start_values(game, updated)
                worst, before = np.maximum(worst, before - after), after
            policy = updated
    return worst


def _uncorrected(new: Array, old: Array) -> Array:
    return np.ones_like(old)


def _clamped(new: Array, old: Array) -> Array:
    return np.clip(ratio(new, old), 0.8, 1.2)


@check(
    claim="Theorem 1",
    statement="No turn's exact clipped SeeUPO update (M as in equations 6 to 8, product ratio, baseline V(s0)) lowers "
    "a value, in any sequential order",
    condition="product ratio and exact argmax; see length_* and shared_* for what happens without them",
    perturbation="M is not corrected for the turns already updated",
    mutation={"weigh": _uncorrected},
)
def theorem1_clipped_turns(weigh=ratio) -> Measurement:
    game, policy = instance("clipped turns", 64, 3, 3, 1.5)
    worst = worst_turn_fall(game, policy, SEQUENTIAL, weigh, 10).max()
    return at_most(worst, ROUNDING, describe(game), "10 iterations per order")


@check(
    claim="beyond the paper: clamped correction (the release)",
    statement="Clamping the correction to [0.8, 1.2], as the released code does, keeps every turn's update monotone "
    "(reverse order)",
    perturbation="the correction is not clamped",
    mutation={"weigh": ratio},
)
def clamped_correction(weigh=_clamped) -> Measurement:
    found = smallest("clamped", lambda game, policy: worst_turn_fall(game, policy, ("reverse",), weigh), 0.002)
    return at_most(found.violation, ROUNDING, found.describe(), "fall of the value at one turn's update")


@check(
    claim="beyond the paper: natural order",
    statement="Natural order and simultaneous updates of all turns are the same algorithm under exact HAML steps",
    condition="every turn sees the history, and its drift is weighted like its objective",
    perturbation="reverse order",
    mutation={"order": "reverse"},
)
def natural_is_joint(order: str = "natural") -> Measurement:
    game, policy = instance("natural", 16, 3, 3)
    sequential = joint = policy
    worst = 0.0
    for _ in range(20):
        sequential = haml_iteration(game, sequential, order, kl(1.0))
        joint = haml_iteration(game, joint, "joint", kl(1.0))
        worst = max(worst, *(float(np.abs(x - y).max()) for x, y in zip(sequential, joint, strict=True)))
    return at_most(worst, ROUNDING, describe(game), "largest difference of a probability over 20 iterations")
