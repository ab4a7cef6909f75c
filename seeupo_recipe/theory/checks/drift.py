"""Mirror-learning drifts of the clipped objective with a group baseline: Lemma 5, Theorems 7 and 8."""

from __future__ import annotations

import numpy as np

from seeupo_recipe.seeding import stream
from seeupo_recipe.theory.checks.common import ROUNDING, describe, instance
from seeupo_recipe.theory.estimators import structural_bias
from seeupo_recipe.theory.games import Array, Game, Policy
from seeupo_recipe.theory.mirror import bounded_step, clipped_argmax, clipped_objective
from seeupo_recipe.theory.registry import Measurement, at_least, at_most, check
from seeupo_recipe.theory.search import smallest
from seeupo_recipe.theory.updates import EPS

CANDIDATES = 200


def last_turn(name: str = "drift", turns: int = 2) -> tuple[Game, Array, Array, Array]:
    """A game with its last turn's policy, exact advantage and structural bias, the latter two per history."""
    game, policy = instance(name, 16, turns, 3)
    t = turns - 1
    return game, policy[t], game.advantage(policy, t), structural_bias(game, policy, t)


def drift(new: Array, old: Array, advantage: Array, estimate: Array) -> Array:
    """``E_new[A] - E_old[min(r A_hat, clip(r) A_hat)]``: the drift that makes the clipped objective a mirror step."""
    surrogate = clipped_objective(new, old, np.maximum(estimate, 0), np.minimum(estimate, 0), EPS)
    return (new * advantage).sum(-1) - surrogate


def candidates(old: Array, name: str = "candidates") -> Array:
    """Random new policies for every history, leading axis ``CANDIDATES``; half of them near ``old``."""
    draws = stream("theory", name).dirichlet(np.ones(old.shape[-1]), (CANDIDATES, *old.shape[:-1]))
    near = 0.9 * old + 0.1 * draws
    return np.where((np.arange(CANDIDATES) % 2 == 0).reshape(-1, *[1] * old.ndim), draws, near)


@check(
    claim="Lemma 5",
    statement="The drift of GRAE with clipping is D(new|h) = E_old[ReLU((r - clip(r)) A_hat)] - (V(h) - V(s0))",
    perturbation="the offset V(h) - V(s0) is left out",
    mutation={"offset": False},
)
def lemma5_drift_form(offset: bool = True) -> Measurement:
    game, old, advantage, bias = last_turn()
    estimate, new = advantage + bias[..., None], candidates(old)
    r = new / old
    relu = (old * np.maximum((r - np.clip(r, 1 - EPS, 1 + EPS)) * estimate, 0)).sum(-1)
    error = np.abs(drift(new, old, advantage, estimate) - (relu - (bias if offset else 0.0))).max()
    return at_most(error, ROUNDING, describe(game))


@check(
    claim="Theorem 7",
    statement="At the reference policy the drift is -(V(h) - V(s0)), not 0",
    perturbation="the advantage is centred at V(h)",
    mutation={"centred": True},
)
def theorem7_drift_at_origin(centred: bool = False) -> Measurement:
    game, old, advantage, bias = last_turn()
    estimate = advantage + (0.0 if centred else 1.0) * bias[..., None]
    error = np.abs(drift(old, old, advantage, estimate) + bias).max()
    return at_most(error, ROUNDING, describe(game), f"|V(h) - V(s0)| up to {np.abs(bias).max():.2f}")


@check(
    claim="Theorem 7",
    statement="The drift is below -0.1 for some policy and history",
    perturbation="the advantage is centred at V(h)",
    mutation={"centred": True},
)
def theorem7_drift_negative(centred: bool = False) -> Measurement:
    game, old, advantage, bias = last_turn()
    estimate = advantage + (0.0 if centred else 1.0) * bias[..., None]
    return at_least(-drift(candidates(old), old, advantage, estimate).min(), 0.1, describe(game))


@check(
    claim="Theorem 7",
    statement="A truly bad action (A < 0) gains at least 0.05 probability in one exact clipped step",
    perturbation="the advantage is centred at V(h)",
    mutation={"centred": True},
)
def theorem7_sign_flip(centred: bool = False) -> Measurement:
    def gain(game: Game, policy: Policy) -> Array:
        t = game.turns - 1
        advantage = game.advantage(policy, t)
        estimate = advantage + (0.0 if centred else 1.0) * structural_bias(game, policy, t)[..., None]
        new = clipped_argmax(policy[t], np.maximum(estimate, 0), np.minimum(estimate, 0), EPS)
        return np.where(advantage < -ROUNDING, new - policy[t], 0.0).max((1, 2))

    found = smallest("sign flip", gain, 0.05)
    return at_least(found.violation, 0.05, found.describe(), "needs three actions: two cannot both be bad")


@check(
    claim="Theorem 7",
    statement="The paper's example: with A = -5 and V(h) - V(s0) = 10 the clipped term of that action alone is "
    "maximised by no ratio below 1.2",
    perturbation="V(h) - V(s0) = 4",
    mutation={"offset": 4.0},
)
def theorem7_scalar_example(offset: float = 10.0) -> Measurement:
    r = np.linspace(0.0, 2.0, 2001)
    estimate = -5.0 + offset
    term = np.minimum(r * estimate, np.clip(r, 1 - EPS, 1 + EPS) * estimate)
    return at_least(r[term >= term.max() - ROUNDING].min(), 1 + EPS - ROUNDING, "one action, A = -5")


@check(
    claim="beyond the paper: inside the clip range",
    statement="If every ratio is kept in [0.8, 1.2], GRAE and exact GAE have the same maximiser: the offset is inert",
    perturbation="ratios may leave the range (the clipped objective)",
    mutation={"bound": False},
)
def offset_inert_inside_clip(bound: bool = True) -> Measurement:
    game, old, advantage, bias = last_turn()

    def solve(estimate: Array) -> Array:
        if bound:
            return bounded_step(old, estimate, EPS)
        return clipped_argmax(old, np.maximum(estimate, 0), np.minimum(estimate, 0), EPS)

    return at_most(np.abs(solve(advantage) - solve(advantage + bias[..., None])).max(), ROUNDING, describe(game))


@check(
    claim="Theorem 8",
    statement="T = 1: the drift of GRAE with clipping is 0 at the reference, never negative, and 0 to first order",
    perturbation="the second turn of T = 2, same baseline V(s0)",
    mutation={"turns": 2},
)
def theorem8_valid_drift(turns: int = 1) -> Measurement:
    game, old, advantage, bias = last_turn("theorem8", turns)
    estimate, new = advantage + bias[..., None], candidates(old)
    step = 1e-4
    violations = (
        np.abs(drift(old, old, advantage, estimate)).max(),
        -drift(new, old, advantage, estimate).min(),
        np.abs(drift(old + step * (new - old), old, advantage, estimate)).max() / step,
    )
    return at_most(max(violations), 1e-10, describe(game), "violations of the three properties, the largest")
