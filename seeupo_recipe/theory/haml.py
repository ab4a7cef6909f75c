"""Sequential updates over turns: HAML with exact local objectives, and SeeUPO with the clipped objective.

Both update one turn after another within an iteration and let every later update see the turns already updated.
HAML (paper equation 3) hands each turn its exact action value; SeeUPO (equations 6 to 8) hands it the recursively
corrected joint advantage ``M``, which needs trajectories of the sampling policy only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from seeupo_recipe.theory.games import Array, Game, Policy

ORDERS = ("reverse", "natural", "random", "joint")
Step = Callable[[Array, Array], Array]
Solver = Callable[[Array, Array, Array], Array]


def schedule(order: str, turns: Sequence[int], rng: np.random.Generator | None = None) -> list[int]:
    """Turns in update order. ``joint`` updates all of them from the same old policy, so its order is immaterial.

    Raises:
        ValueError: ``order`` is unknown, or ``random`` was asked without a generator.
    """
    if order == "reverse":
        return list(reversed(turns))
    if order in ("natural", "joint"):
        return list(turns)
    if order == "random" and rng is not None:
        return [int(t) for t in rng.permutation(turns)]
    raise ValueError(f"unknown order {order!r}: choose one of {ORDERS} (random needs a generator)")


def haml_iteration(game: Game, old: Policy, order: str, step: Step, rng: np.random.Generator | None = None) -> Policy:
    """One iteration of exact sequential mirror steps.

    Turn ``t`` moves from its table in ``old`` by ``step(old[t], Q)``, where ``Q(h, a)`` is the exact action value
    given the turns already updated (given ``old`` alone for ``joint``).
    """
    new = list(old)
    for t in schedule(order, game.agent_turns, rng):
        new[t] = step(old[t], game.action_value(old if order == "joint" else new, t))
    return new


def joint_advantage(game: Game, old: Policy) -> Array:
    """``A(s0, a_1..a_T) = r - V(s0)`` (paper equation 5; its sample version is equation 9), shape ``(S, A**T)``."""
    return game.reward - game.value(old, 0)


def ratio(new: Array, old: Array) -> Array:
    """Importance ratio of a turn, 1 where the sampling policy never acts."""
    return np.divide(new, old, out=np.ones_like(new), where=old > 0)


def correction(game: Game, old: Policy, new: Policy, updated: Iterable[int]) -> Array:
    """Product of the updated turns' importance ratios per trajectory (paper equation 8), shape ``(S, A**T)``."""
    product = np.ones_like(game.reward)
    for t in updated:
        product = product * game.expand(ratio(new[t], old[t]), t + 1)
    return product


def signed_means(game: Game, old: Policy, advantage: Array, t: int) -> tuple[Array, Array]:
    """``E[max(x, 0) | h, a]`` and ``E[min(x, 0) | h, a]`` of turn ``t`` under ``old``, each ``(S, A**t, A)``."""
    return (
        game.conditional_mean(old, np.maximum(advantage, 0.0), t),
        game.conditional_mean(old, np.minimum(advantage, 0.0), t),
    )


def locally_centred(game: Game, old: Policy, weights: Array, t: int) -> Array:
    """``M`` with the baseline of turn ``t``'s own history: ``w (r - E[w r | h] / E[w | h])``, shape ``(S, A**T)``.

    The baseline is the value of ``h`` under the turns already updated; a critic-free estimate of it needs several
    trajectories through the same history.
    """
    weighted_return = (old[t] * game.conditional_mean(old, weights * game.reward, t)).sum(-1)
    mass = (old[t] * game.conditional_mean(old, weights, t)).sum(-1)
    baseline = np.divide(weighted_return, mass, out=np.zeros_like(mass), where=mass > 0)
    return weights * (game.reward - game.expand(baseline, t))


def seeupo_updates(
    game: Game,
    old: Policy,
    order: str,
    solve: Solver,
    centring: str = "initial",
    rng: np.random.Generator | None = None,
    weigh: Step = ratio,
) -> Iterator[Policy]:
    """One SeeUPO iteration (paper Algorithm 1) with the exact maximiser of the local objective at every turn.

    Args:
        game: The game.
        old: Sampling policy of the iteration; the denominator of every ratio.
        order: ``reverse``, ``natural``, ``random``, or ``joint`` (no correction: GRPO without group std).
        solve: Maps ``(old[t], E[max(M, 0) | h, a], E[min(M, 0) | h, a])`` to the new table, e.g. ``clipped(eps)``.
        centring: ``initial`` subtracts ``V(s0)`` (the paper), ``local`` the value of the turn's own history.
        rng: Generator of the random order.
        weigh: Factor by which an updated turn enters ``M``, from ``(new[t], old[t])``.

    Yields:
        The joint policy after every turn's update.
    """
    if centring not in ("initial", "local"):
        raise ValueError(f"unknown centring {centring!r}: choose initial or local")
    new, weights = list(old), np.ones_like(game.reward)
    for t in schedule(order, game.agent_turns, rng):
        m = weights * joint_advantage(game, old) if centring == "initial" else locally_centred(game, old, weights, t)
        new[t] = solve(old[t], *signed_means(game, old, m, t))
        if order != "joint":
            weights = weights * game.expand(weigh(new[t], old[t]), t + 1)
        yield list(new)


def seeupo_iteration(game: Game, old: Policy, order: str, solve: Solver, **options) -> Policy:
    """The policy after the last turn of ``seeupo_updates`` (same arguments)."""
    return list(seeupo_updates(game, old, order, solve, **options))[-1]


def ppo_iteration(game: Game, old: Policy, advantages: Sequence[Array], solve: Solver) -> Policy:
    """One joint update of all turns from per-turn trajectory advantages (each ``(S, A**T)``), exact per history."""
    new = list(old)
    for t in game.agent_turns:
        new[t] = solve(old[t], *signed_means(game, old, advantages[t], t))
    return new


def returns(game: Game, policy: Policy, iterate: Callable[[Policy], Policy], iterations: int) -> tuple[Array, Policy]:
    """Apply ``iterate`` repeatedly.

    Contexts do not interact in tables with one entry per history, so every context is a game of its own.

    Returns:
        ``V(s0)`` of every context before and after every iteration, ``(iterations + 1, S)``, and the last policy.
    """
    curve = [game.value(policy, 0)[:, 0]]
    for _ in range(iterations):
        policy = iterate(policy)
        curve.append(game.value(policy, 0)[:, 0])
    return np.array(curve), policy
