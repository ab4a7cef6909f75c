"""The exact clipped argmax against a linear programme."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog

from seeupo_recipe.seeding import stream
from seeupo_recipe.theory.games import Array
from seeupo_recipe.theory.mirror import clipped_argmax, clipped_objective
from seeupo_recipe.theory.registry import Measurement, at_most, check
from seeupo_recipe.theory.updates import EPS


def clipped_lp(old: Array, gain: Array, loss: Array, eps: float) -> float:
    """Largest expected clipped surrogate of one history, by scipy's LP solver.

    Variables are the new probabilities ``p`` and, per action, ``x <= min(p, (1 + eps) old)`` with reward ``gain`` and
    ``y >= max(p, (1 - eps) old)`` with cost ``-loss``; all of shape ``(A,)``, ``old > 0``.
    """
    count = len(old)
    zero, one = np.zeros((count, count)), np.eye(count)
    solution = linprog(
        -np.concatenate([np.zeros(count), gain, loss]),
        A_ub=np.block([[-one, one, zero], [one, zero, -one]]),
        b_ub=np.zeros(2 * count),
        A_eq=np.concatenate([np.ones(count), np.zeros(2 * count)])[None],
        b_eq=[1.0],
        bounds=[(0, 1)] * count + [(None, (1 + eps) * p) for p in old] + [((1 - eps) * p, None) for p in old],
    )
    return float(-solution.fun)


@check(
    claim="Tool: exact clipped argmax",
    statement="Pouring probability along decreasing slopes reaches the optimum of the linear programme",
    perturbation="the programme uses eps = 0.3",
    mutation={"lp_eps": 0.3},
)
def clipped_argmax_matches_lp(lp_eps: float = EPS) -> Measurement:
    rng = stream("theory", "lp")
    worst = 0.0
    for _ in range(200):
        actions = int(rng.integers(2, 6))
        old = (rng.dirichlet(np.ones(actions)) + 0.01) / (1 + 0.01 * actions)
        gain = np.maximum(rng.normal(size=actions), 0)
        loss = np.minimum(rng.normal(size=actions), 0)
        reached = clipped_objective(clipped_argmax(old, gain, loss, EPS), old, gain, loss, EPS)
        worst = max(worst, abs(float(reached) - clipped_lp(old, gain, loss, lp_eps)))
    return at_most(worst, 1e-8, "200 random histories, 2 to 5 actions", "largest difference of the objective")
