"""The same games when several histories share one table row, as all turns of a language model share its weights.

``rows[t][s, h]`` names the row of ``theta`` (shape ``(R, A)``) that turn ``t`` uses at history ``h`` of context ``s``.
An update of a row moves every history that uses it, which the theorems for separate tables do not allow for.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from seeupo_recipe.theory.games import Array, Game, Policy, softmax
from seeupo_recipe.theory.haml import Solver, Step, schedule, signed_means

Rows = list[np.ndarray]


def history_blind(game: Game) -> Rows:
    """One row per turn: no turn sees what was played before (a common-payoff matrix game)."""
    return [np.full((game.contexts, game.actions**t), t) for t in range(game.turns)]


def one_row(game: Game) -> Rows:
    """One row for all turns, histories and contexts."""
    return [np.zeros((game.contexts, game.actions**t), dtype=int) for t in range(game.turns)]


def tables(theta: Array, rows: Rows) -> Policy:
    """The policy of ``theta``: one table ``(S, A**t, A)`` per turn."""
    return [theta[r] for r in rows]


def row_means(weights: Array, values: Array, rows: Array, count: int) -> tuple[Array, Array]:
    """Weighted mean of ``values`` over the histories of each row.

    Args:
        weights: Visit probability of every history, ``(S, H)``.
        values: Per (history, action) values, ``(S, H, A)``.
        rows: Row of every history, ``(S, H)``.
        count: Number of rows ``R``.

    Returns:
        Visit mass ``(R,)`` and means ``(R, A)`` (0 for rows without mass).
    """
    mass, total = np.zeros(count), np.zeros((count, values.shape[-1]))
    np.add.at(mass, rows, weights)
    np.add.at(total, rows, weights[..., None] * values)
    return mass, np.divide(total, mass[:, None], out=np.zeros_like(total), where=mass[:, None] > 0)


def shared_haml_iteration(
    game: Game, rows: Rows, theta: Array, order: str, step: Step, rng: np.random.Generator | None = None
) -> Array:
    """One HAML iteration on shared rows, every turn's exact step anchored at the sampling ``theta``.

    Turn ``t`` maximises ``sum_h d(h) (<pi, Q(h)> - drift)`` over the rows it uses, with ``d`` and ``Q`` under the turns
    already updated (their policy right after their own update, as in the paper's equation 8). A row used by several
    turns ends at its last update. ``joint`` maximises the sum over turns under the old policy.
    """
    new, snapshot = theta.copy(), tables(theta, rows)
    if order == "joint":
        mass, total = np.zeros(len(theta)), np.zeros_like(theta)
        for t in game.agent_turns:
            own, mean = _pool(game, rows, snapshot, t, len(theta))
            mass, total = mass + own, total + own[:, None] * mean
        used = mass > 0
        new[used] = step(theta[used], total[used] / mass[used, None])
        return new
    for t in schedule(order, game.agent_turns, rng):
        mass, mean = _pool(game, rows, snapshot, t, len(theta))
        used = mass > 0
        new[used] = step(theta[used], mean[used])
        snapshot[t] = new[rows[t]]
    return new


def _pool(game: Game, rows: Rows, policy: Policy, t: int, count: int) -> tuple[Array, Array]:
    visits = game.prior[:, None] * game.reach(policy, t)
    return row_means(visits, game.action_value(policy, t), rows[t], count)


def shared_ppo_step(game: Game, rows: Rows, theta: Array, advantages: list[Array], solve: Solver) -> Array:
    """One joint clipped update of shared rows from per-turn trajectory advantages, exact argmax per row.

    Histories of a row share its ratio, so their expected positive and negative parts add up.
    """
    policy = tables(theta, rows)
    gain, loss, mass = np.zeros_like(theta), np.zeros_like(theta), np.zeros(len(theta))
    for t in game.agent_turns:
        visits = game.prior[:, None] * game.reach(policy, t)
        for total, part in zip((gain, loss), signed_means(game, policy, advantages[t], t), strict=True):
            own, mean = row_means(visits, part, rows[t], len(theta))
            total += own[:, None] * mean
        mass += own
    new, used = theta.copy(), mass > 0
    new[used] = solve(theta[used], gain[used], loss[used])
    return new


def shared_gradient(game: Game, rows: Rows, logits: Array) -> Array:
    """Gradient of ``J`` in the shared softmax logits, ``(R, A)``."""
    policy = tables(softmax(logits), rows)
    gradient = np.zeros_like(logits)
    for t in game.agent_turns:
        visits = game.prior[:, None] * game.reach(policy, t)
        np.add.at(gradient, rows[t], visits[..., None] * policy[t] * game.advantage(policy, t))
    return gradient


def shared_gradient_iteration(
    game: Game, rows: Rows, logits: Array, order: str, lr: float, rng: np.random.Generator | None = None
) -> Array:
    """One SeeUPO iteration on shared logits with one gradient step per turn (product ratio, nothing clipped).

    The gradient of turn ``t`` is that of ``E[r_t(theta) M]`` at the weights left by the turn before, with the ratio's
    denominator and the samples from the start of the iteration.
    """
    snapshot, current = tables(softmax(logits), rows), logits.copy()
    for t in schedule(order, game.agent_turns, rng):
        visits = game.prior[:, None] * game.reach(snapshot, t)
        q, policy = game.action_value(snapshot, t), softmax(current)[rows[t]]
        gradient = np.zeros_like(logits)
        centred = q - (policy * q).sum(-1, keepdims=True)
        np.add.at(gradient, rows[t], visits[..., None] * policy * centred)
        current = current + lr * gradient
        snapshot[t] = softmax(current)[rows[t]]
    return current


def shared_return(game: Game, rows: Rows, theta: Array) -> float:
    """``J`` of the shared policy."""
    return game.expected_return(tables(theta, rows))


Sharing = Callable[[Game], Rows]
