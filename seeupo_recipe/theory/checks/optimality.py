"""Global optimality and update orders: Theorem 2 and what the exact games show beside it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np

from seeupo_recipe.seeding import stream
from seeupo_recipe.theory.checks.common import OPTIMAL, ROUNDING, describe, instance, optimal_values
from seeupo_recipe.theory.games import (
    Array,
    Game,
    Policy,
    climbing_game,
    deterministic_policy,
    lock_game,
    penalty_game,
)
from seeupo_recipe.theory.haml import ORDERS, haml_iteration, returns
from seeupo_recipe.theory.mirror import kl
from seeupo_recipe.theory.registry import Measurement, at_most, check
from seeupo_recipe.theory.search import smallest, smallest_shared
from seeupo_recipe.theory.shared import Rows, history_blind, shared_haml_iteration, shared_return

ETA = 10.0
ITERATIONS = 1500
LOCK_TURNS = (3, 5, 8)


def iterations_to_optimum(game: Game, policy: Policy, order: str, eta: float, limit: int = 400) -> Array:
    """Iterations until each context is within ``OPTIMAL`` of its optimum, ``limit`` if never, ``(S,)``."""
    rng = stream("theory", "iterations", order)
    curve, _ = returns(game, policy, partial(haml_iteration, game, order=order, step=kl(eta), rng=rng), limit)
    return (optimal_values(game) - curve[:-1] > OPTIMAL).sum(0)


def _largest_gap(orders: Iterable[str], support: bool, iterations: int) -> tuple[float, str]:
    """Largest distance from the optimum at the end, over named and random games and all orders."""
    worst = 0.0
    for game, policy in (
        (climbing_game(), None),
        (penalty_game(), None),
        (lock_game(4), None),
        instance("theorem2", 48, 3, 3, 1.5),
        instance("theorem2", 48, 4, 2, 1.5),
    ):
        policy = policy or game.policy(stream("theory", "theorem2", game.turns, game.actions))
        if not support:
            first = np.where(game.optimal_policy()[0] > 0, 0.0, policy[0])
            policy = [first / first.sum(-1, keepdims=True), *policy[1:]]
        for order in orders:
            rng = stream("theory", "theorem2", order)
            update = partial(haml_iteration, game, order=order, step=kl(ETA), rng=rng)
            curve, _ = returns(game, policy, update, iterations)
            worst = max(worst, float((optimal_values(game) - curve[-1]).max()))
    return worst, "climbing, penalty and lock game; 96 random games (T=3 A=3, T=4 A=2); eta = 10"


@check(
    claim="Theorem 2",
    statement="Exact reverse-order HAML steps end at the global optimum",
    condition="full support at the start, and every turn's policy sees the whole history",
    perturbation="the optimal first action starts at probability 0",
    mutation={"support": False},
)
def theorem2_reverse(support: bool = True) -> Measurement:
    gap, where = _largest_gap(("reverse",), support, ITERATIONS)
    return at_most(gap, OPTIMAL, where, f"{ITERATIONS} iterations")


@check(
    claim="Theorem 2",
    statement="Reverse-order HAML ends at the global optimum of a matrix game whose turns do not see the history",
    perturbation="every turn sees the history",
    mutation={"sees_history": True},
)
def theorem2_needs_history(sees_history: bool = False) -> Measurement:
    def gap(game: Game, rows: Rows, theta: Array) -> float:
        best = float(game.prior @ optimal_values(game))
        if sees_history:
            policy = [np.tile(row, (game.contexts, game.actions**t, 1)) for t, row in enumerate(theta)]
            curve, _ = returns(game, policy, partial(haml_iteration, game, order="reverse", step=kl(ETA)), 150)
            return best - float(game.prior @ curve[-1])
        for _ in range(150):
            theta = shared_haml_iteration(game, rows, theta, "reverse", kl(ETA))
        return best - shared_return(game, rows, theta)

    found = smallest_shared("needs history", history_blind, gap, 0.1, ((1, 2, 2),), 150)
    return at_most(found.violation, OPTIMAL, found.describe(), "a suboptimal Nash equilibrium; 150 iterations")


@check(
    claim="beyond the paper: every order is optimal",
    statement="Reverse, natural, random and joint order all end at the global optimum under exact HAML steps",
    condition="full support at the start, and every turn's policy sees the whole history",
    perturbation="the optimal first action starts at probability 0",
    mutation={"support": False},
)
def every_order_optimal(support: bool = True) -> Measurement:
    gap, where = _largest_gap(ORDERS, support, ITERATIONS)
    return at_most(gap, OPTIMAL, where, f"{ITERATIONS} iterations")


def rate_bound(game: Game, policy: Policy, order: str, eta: float, iterations: int) -> Array:
    """Upper bound on ``V*(s0) - V_K(s0)`` for ``K = 1..iterations``, ``(iterations, S)``.

    ``(KL_0 / eta + c) / K`` with ``KL_0`` the divergence of the optimal from the initial trajectory distribution and
    ``c`` 0 for reverse order, ``(T - 1)`` times the range of rewards for any other.
    """
    best = game.optimal_policy()
    path, start = game.trajectory_probs(best), game.trajectory_probs(policy)
    divergence = np.where(path > 0, path * np.log(np.where(path > 0, path, 1.0) / start), 0.0).sum(1)
    spread = 0.0 if order == "reverse" else (len(game.agent_turns) - 1) * np.ptp(game.reward, axis=1)
    return (divergence / eta + spread) / np.arange(1, iterations + 1)[:, None]


@check(
    claim="beyond the paper: rate",
    statement="J* - J_K <= KL_0 / (eta K) for reverse order and <= (KL_0 / eta + (T - 1) range(r)) / K for every "
    "other, at every K up to 60, eta = 0.1, 1, 10, 100",
    perturbation="every order gets the bound of the reverse order",
    mutation={"bound_order": "reverse"},
)
def order_rates(bound_order: str | None = None) -> Measurement:
    worst = -np.inf
    for game, policy in (instance("rates", 48, 3, 3, 1.5), (lock_game(6), None)):
        policy = policy or game.policy(stream("theory", "rates", "lock"), 1.5)
        for order in ORDERS:
            for eta in (0.1, 1.0, 10.0, 100.0):
                rng = stream("theory", "rates", order)
                update = partial(haml_iteration, game, order=order, step=kl(eta), rng=rng)
                curve, _ = returns(game, policy, update, 60)
                bound = rate_bound(game, policy, bound_order or order, eta, 60)
                worst = max(worst, float((optimal_values(game) - curve[1:] - bound).max()))
    return at_most(worst, ROUNDING, "48 random games T=3 A=3 and the lock game T=6", "largest excess over the bound")


def greedy_lock_iterations(turns: int, order: str) -> int:
    """Greedy iterations that open the lock of ``turns`` turns from the policy that always leaves."""
    game = lock_game(turns)
    curve, _ = returns(
        game, deterministic_policy(game, 0), partial(haml_iteration, game, order=order, step=kl(np.inf)), 2 * turns
    )
    return int((game.optimal_return() - curve[:, 0] > ROUNDING).sum())


@check(
    claim="beyond the paper: lock game",
    statement="Greedy steps open the lock of T turns in 1 iteration in reverse order and in T in natural or joint "
    "order (T = 3, 5, 8)",
    perturbation="the orders change places",
    mutation={"swap": True},
)
def lock_iterations(swap: bool = False) -> Measurement:
    error = 0
    for turns in LOCK_TURNS:
        counts = {order: greedy_lock_iterations(turns, order) for order in ("reverse", "natural", "joint")}
        fast, slow = ("natural", "reverse") if swap else ("reverse", "natural")
        error = max(error, abs(counts[fast] - 1), abs(counts[slow] - turns), abs(counts["joint"] - turns))
    return at_most(error, 0, "lock game, T = 3, 5, 8, always-leave start", "largest deviation in iterations")


@check(
    claim="beyond the paper: reverse is faster",
    statement="On average over random games reverse order needs at most 0.9 times the iterations of natural order "
    "(eta = 10)",
    perturbation="the orders change places",
    mutation={"fast": "natural", "slow": "reverse"},
)
def reverse_faster_on_average(fast: str = "reverse", slow: str = "natural") -> Measurement:
    game, policy = instance("faster", 256, 4, 2)
    means = {order: iterations_to_optimum(game, policy, order, ETA).mean() for order in (fast, slow)}
    note = ", ".join(f"{order} {mean:.1f}" for order, mean in means.items())
    return at_most(means[fast] / means[slow], 0.9, describe(game), f"mean iterations: {note}")


@check(
    claim="beyond the paper: reverse is faster",
    statement="Reverse order never needs more iterations than natural order (eta = 1)",
    perturbation="greedy steps (eta = inf)",
    mutation={"eta": np.inf},
)
def reverse_never_slower(eta: float = 1.0) -> Measurement:
    def excess(game: Game, policy: Policy) -> Array:
        slow, fast = (iterations_to_optimum(game, policy, order, eta, 200) for order in ("reverse", "natural"))
        return np.where(np.maximum(slow, fast) < 200, slow - fast, 0)

    found = smallest("never slower", excess, 1.5)
    return at_most(found.violation, 0, found.describe(), "iterations that reverse needs more")
