"""Where the exact clipped argmax comes to rest below the optimum, and what cures it.

One exact clipped step can move all probability off an action: with ``pi = (0.9, 0.1)`` the better action may absorb
``0.9 * 1.2 > 1``. What has no probability has no samples and never returns, however good its later turns would become.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from seeupo_recipe.seeding import stream
from seeupo_recipe.theory.checks.common import OPTIMAL, describe, gaps, instance
from seeupo_recipe.theory.estimators import exact_critic, gae
from seeupo_recipe.theory.games import Array, Game, Policy
from seeupo_recipe.theory.haml import ORDERS, ppo_iteration, seeupo_iteration
from seeupo_recipe.theory.registry import Measurement, at_least, at_most, check
from seeupo_recipe.theory.search import Found, smallest
from seeupo_recipe.theory.updates import BOUNDED, CLIPPED

ITERATIONS = 120
BOUNDED_ITERATIONS = 300
STARTS = 256
SKEW = 2.0
"""Standard deviation of the starting logits where fractions of stuck starts are counted."""
FULL_SUPPORT = "start with full support"
SIZES = ((2, 2), (2, 3), (3, 2))


def seeupo_gaps(game: Game, policy: Policy, order: str, centring: str, bounded: bool = False) -> tuple[Array, Array]:
    """Every context's distance from the optimum at the end of a SeeUPO run and whether it is at rest, ``(S,)`` each."""
    rng = stream("theory", "stuck", order)
    solve = BOUNDED if bounded else CLIPPED
    update = partial(seeupo_iteration, game, order=order, solve=solve, centring=centring, rng=rng)
    return gaps(game, policy, update, BOUNDED_ITERATIONS if bounded else ITERATIONS)


def _violation(gap: Array, at_rest: Array, bounded: bool) -> Array:
    """The clipped runs count where they rest; a bounded run never rests exactly and has to be optimal at the end."""
    return gap if bounded else np.where(at_rest, gap, 0.0)


def stuck_fraction(order: str, centring: str, turns: int = 3, actions: int = 2, bounded: bool = False) -> float:
    """Fraction of the random starts that SeeUPO leaves below the optimum (at rest, for the clipped objective)."""
    game, policy = instance("stuck", STARTS, turns, actions, SKEW)
    return float((_violation(*seeupo_gaps(game, policy, order, centring, bounded), bounded) > OPTIMAL).mean())


def smallest_stuck(centring: str, bounded: bool = False) -> Found:
    """The smallest game found in which reverse-order SeeUPO rests below the optimum."""
    return smallest(
        f"stuck {centring}",
        lambda game, policy: _violation(*seeupo_gaps(game, policy, "reverse", centring, bounded), bounded),
        0.1,
        SIZES,
        2000,
    )


def smallest_cured(centring: str) -> Found:
    """The smallest game found that is solved with ``centring`` and not with baseline V(s0), reverse order."""

    def cured(game: Game, policy: Policy) -> Array:
        without, at_rest = seeupo_gaps(game, policy, "reverse", "initial")
        with_it, _ = seeupo_gaps(game, policy, "reverse", centring)
        return np.where(at_rest & (with_it <= OPTIMAL), without, 0.0)

    return smallest("cured", cured, 0.1, SIZES, 2000)


@check(
    claim="beyond the paper: the exact clipped argmax",
    statement="SeeUPO with the exact clipped argmax and baseline V(s0), reverse order, never rests below the optimum",
    condition=FULL_SUPPORT,
    perturbation="every ratio is kept in [0.8, 1.2]",
    mutation={"bounded": True},
)
def clipped_argmax_reverse(bounded: bool = False) -> Measurement:
    found = smallest_stuck("initial", bounded)
    return at_most(found.violation, OPTIMAL, found.describe(), "distance from the optimum at rest")


@check(
    claim="beyond the paper: the exact clipped argmax",
    statement="Centring M at the value of its own history is a full cure: reverse order never rests below the optimum",
    condition=FULL_SUPPORT,
    perturbation="every ratio is kept in [0.8, 1.2]",
    mutation={"bounded": True},
)
def local_centring_reverse(bounded: bool = False) -> Measurement:
    found = smallest_stuck("local", bounded)
    return at_most(found.violation, OPTIMAL, found.describe(), "distance from the optimum at rest")


@check(
    claim="beyond the paper: the exact clipped argmax",
    statement="Locally centred M lowers the fraction of stuck starts by at least 40% in reverse order (T=3, A=2 and "
    "A=3)",
    condition="reverse order; skewed starts (logits normal(0, 2))",
    perturbation="the baselines change places",
    mutation={"swap": True},
)
def local_centring_helps(swap: bool = False) -> Measurement:
    ratios, notes = [], []
    for actions in (2, 3):
        initial, local = (stuck_fraction("reverse", c, actions=actions) for c in ("initial", "local"))
        notes.append(f"A={actions}: V(s0) {initial:.3f}, V(h) {local:.3f}")
        ratios.append(initial / local if swap else local / initial)
    return at_most(max(ratios), 0.6, f"2 x {STARTS} random games, T=3", "; ".join(notes))


@check(
    claim="beyond the paper: the exact clipped argmax",
    statement="A game exists that reverse-order SeeUPO solves with locally centred M and not with baseline V(s0)",
    perturbation="both use baseline V(s0)",
    mutation={"centring": "initial"},
)
def local_centring_cured_game(centring: str = "local") -> Measurement:
    found = smallest_cured(centring)
    return at_least(found.violation, 0.1, found.describe(), "distance from the optimum without local centring")


@check(
    claim="beyond the paper: the exact clipped argmax",
    statement="With every ratio kept in [1 - eps, 1 + eps] (maximiser of the same objective on that set) SeeUPO "
    "ends at the optimum, in any order",
    condition=FULL_SUPPORT,
    perturbation="the clipped objective without the bound",
    mutation={"bounded": False},
)
def bounded_ratio_cures(bounded: bool = True) -> Measurement:
    game, policy = instance("stuck", STARTS, 3, 2, SKEW)
    worst = max(
        float(_violation(*seeupo_gaps(game, policy, order, "initial", bounded), bounded).max()) for order in ORDERS
    )
    return at_most(worst, OPTIMAL, describe(game, "logits normal(0, 2): "), f"{BOUNDED_ITERATIONS} iterations")


@check(
    claim="Theorem 6",
    statement="PPO with the exact critic (lambda = 0) and the exact clipped argmax never rests below the optimum",
    condition=FULL_SUPPORT,
    perturbation="every ratio is kept in [0.8, 1.2]",
    mutation={"bounded": True},
)
def theorem6_optimum(bounded: bool = False) -> Measurement:
    solve = BOUNDED if bounded else CLIPPED

    def gap(game: Game, policy: Policy) -> Array:
        def update(old: Policy) -> Policy:
            return ppo_iteration(game, old, gae(game, exact_critic(game, old), 0.0), solve)

        return _violation(*gaps(game, policy, update, BOUNDED_ITERATIONS if bounded else ITERATIONS), bounded)

    found = smallest("ppo stuck", gap, 0.1, SIZES, 1000)
    return at_most(found.violation, OPTIMAL, found.describe(), "distance from the optimum at rest")
