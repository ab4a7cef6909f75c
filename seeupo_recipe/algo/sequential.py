"""The sequential update of one iteration (Algorithm 1), over any backend that can take a step.

:func:`plan_updates` fixes the pools, their order and their inner parts before anything is computed;
:func:`sequential_update` runs the plan. A backend implements :class:`Updater` and keeps the ratio's
denominator log-probabilities of every row.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch

from seeupo_recipe.algo.correction import TurnCorrection
from seeupo_recipe.algo.schedule import turn_pools, update_order
from seeupo_recipe.algo.settings import AlgorithmSettings
from seeupo_recipe.seeding import stream

JOINT = -1


class TurnRow(Protocol):
    """One turn of one trajectory."""

    trajectory: str
    turn: int
    tokens: int


R = TypeVar("R", bound=TurnRow)


@dataclass(frozen=True)
class PoolUpdate(Generic[R]):
    """One pool of the plan.

    Attributes:
        turn: Its turn, or ``JOINT`` for all turns at once.
        rows: Its rows; empty for a pool that only moves the optimizer.
        parts: The rows of each inner optimizer step of a pass.
    """

    turn: int
    rows: tuple[R, ...]
    parts: tuple[tuple[R, ...], ...]


class Updater(Protocol[R]):
    """What a backend can do with rows; sums and means are over all its ranks."""

    def step(
        self, rows: Sequence[R], weights_R: torch.Tensor, *, denominator: float, last: bool
    ) -> Mapping[str, float]:
        """One optimizer step on equation (6); ``last`` marks the iteration's last one.

        Returns the sums of ``PoolTerms`` (clipped, ratio_deviation, kl_old, kl_ref, rows) and grad_norm.
        """
        ...

    def log_ratio(self, rows: Sequence[R], *, kind: str, clamp: float | None) -> torch.Tensor:
        """Log-ratio of the present weights to the denominator of each row, shape (R,)."""
        ...

    def anchor(self, rows: Sequence[R]) -> None:
        """Make the present weights the denominator of these rows (``ratio_denominator=turn_start``)."""
        ...


def plan_updates(
    rows: Sequence[R],
    settings: AlgorithmSettings,
    *,
    seed: int,
    iteration: int,
    inner_mini_batches: int = 1,
    horizon: int = 0,
) -> list[PoolUpdate[R]]:
    """Pools of the iteration in the order of their updates.

    Args:
        rows: Rows with sampled tokens, in canonical order.
        settings: Uses ``order`` and ``step_empty_pools``.
        seed: Seed of the run, for random orders and parts.
        iteration: Number of the iteration.
        inner_mini_batches: Optimizer steps per pass over a pool; fewer if it has fewer rows.
        horizon: T; needed by ``step_empty_pools``.
    """
    pools = turn_pools([row.turn for row in rows])
    turns = range(horizon) if settings.step_empty_pools else pools
    updates = []
    for group in update_order(turns, settings.order, seed=seed, iteration=iteration):
        members = tuple(rows[i] for turn in group for i in pools.get(turn, []))
        turn = JOINT if settings.order == "joint" else group[0]
        parts = _parts(members, inner_mini_batches, stream("inner_parts", seed, iteration, turn))
        updates.append(PoolUpdate(turn, members, parts))
    return updates


def _parts(rows: tuple[R, ...], count: int, rng: np.random.Generator) -> tuple[tuple[R, ...], ...]:
    count = min(count, len(rows))
    if count <= 1:
        return (rows,)
    order = rng.permutation(len(rows))
    return tuple(tuple(rows[j] for j in sorted(order[i::count])) for i in range(count))


def sequential_update(
    plan: Sequence[PoolUpdate[R]],
    advantages: Mapping[str, float],
    updater: Updater[R],
    settings: AlgorithmSettings,
    *,
    inner_epochs: int = 1,
    used_weights: MutableMapping[tuple[str, int], float] | None = None,
) -> dict[str, float]:
    """Run the plan; returns diagnostics per turn (1-based names) and over the iteration.

    Args:
        plan: From :func:`plan_updates`.
        advantages: Joint advantage of every trajectory id (equation 9).
        updater: The backend.
        settings: All choices.
        inner_epochs: Passes over each pool before the next one.
        used_weights: Gets M of every (trajectory id, turn) that was updated, for the record.
    """
    rows = [row for update in plan for row in update.rows]
    correction = TurnCorrection(advantages, settings, {(row.trajectory, row.turn): row.tokens for row in rows})
    metrics: dict[str, float] = {}
    norms: list[float] = []
    for place, update in enumerate(plan):
        final_pool = place == len(plan) - 1
        if settings.ratio_denominator == "turn_start" and update.rows:
            updater.anchor(update.rows)
        weights = _weights(update, correction)
        if used_weights is not None:
            used_weights.update(weights)
        denominator = _denominator(update, len(advantages), settings)
        steps = [(epoch, part) for epoch in range(inner_epochs) for part in update.parts]
        for i, (_, part) in enumerate(steps):
            share = len(part) / len(update.rows) if update.rows else 1.0
            stats = updater.step(
                part,
                torch.tensor([weights[_key(row)] for row in part], dtype=torch.float64),
                denominator=denominator * share,
                last=final_pool and i == len(steps) - 1,
            )
            norms.append(stats["grad_norm"])
        name = "joint" if update.turn == JOINT else f"turn{update.turn + 1}"
        metrics.update({f"{name}/{k}": v for k, v in _diagnose(update, advantages, weights, stats).items()})
        needed = _still_needed(update, plan[place + 1 :], weights, settings)
        if needed:
            log_ratio = updater.log_ratio(needed, kind=settings.correction_ratio, clamp=settings.log_ratio_clamp)
            correction.record([row.trajectory for row in needed], update.turn, log_ratio)
            metrics[f"{name}/correction_deviation"] = float((log_ratio.exp() - 1).abs().mean())
    metrics["update/optimizer_steps"] = len(norms)
    metrics["update/grad_norm_mean"] = sum(norms) / max(1, len(norms))
    metrics["update/grad_norm_max"] = max(norms, default=0.0)
    products = list(correction.products.values())
    metrics["update/product_deviation"] = sum(abs(p - 1) for p in products) / max(1, len(products))
    return metrics


def _key(row: TurnRow) -> tuple[str, int]:
    return row.trajectory, row.turn


def _weights(update: PoolUpdate[R], correction: TurnCorrection) -> dict[tuple[str, int], float]:
    """M of every row of the pool, asked for turn by turn."""
    weights: dict[tuple[str, int], float] = {}
    for turn in sorted({row.turn for row in update.rows}):
        rows = [row for row in update.rows if row.turn == turn]
        values = correction.weights([row.trajectory for row in rows], turn)
        weights.update(zip(map(_key, rows), values.tolist(), strict=True))
    return weights


def _still_needed(
    update: PoolUpdate[R],
    later: Sequence[PoolUpdate[R]],
    weights: Mapping[tuple[str, int], float],
    settings: AlgorithmSettings,
) -> list[R]:
    """Rows whose new ratio any later update reads: none after the last pool, none without a later turn.

    A trajectory whose M is 0 keeps it whatever its ratio is, so its pass is saved too; not where products
    are read apart from their own advantage (``pool_centred``, ``balanced_position``).
    """
    if settings.correction == "off":
        return []
    if settings.correction_alignment != "trajectory":
        return list(update.rows) if any(u.rows for u in later) else []
    waiting = {row.trajectory for u in later for row in u.rows}
    return [
        row
        for row in update.rows
        if row.trajectory in waiting and (weights[_key(row)] != 0 or settings.correction == "pool_centred")
    ]


def _denominator(update: PoolUpdate[R], trajectories: int, settings: AlgorithmSettings) -> float:
    """What the pool's sums are divided by; a joint pool takes the mean over its turns' objectives."""
    if settings.pool_denominator == "real_rows":
        return max(1, len(update.rows))
    return trajectories * max(1, len({row.turn for row in update.rows}))


def _diagnose(
    update: PoolUpdate[R],
    advantages: Mapping[str, float],
    weights: Mapping[tuple[str, int], float],
    stats: Mapping[str, float],
) -> dict[str, float]:
    """Facts of one pool; clip, ratio and KL are those of its last inner step."""
    rows = len(update.rows)
    facts = {
        "pool_size": rows,
        "placeholder_fraction": 1 - len({row.trajectory for row in update.rows}) / max(1, len(advantages)),
        "grad_norm": stats["grad_norm"],
    }
    if rows:
        facts["advantage_mean"] = sum(advantages[row.trajectory] for row in update.rows) / rows
        facts["weight_mean"] = sum(weights.values()) / rows
        for key in ("clipped", "ratio_deviation", "kl_old", "kl_ref"):
            facts[key] = stats[key] / max(1, stats["rows"])
    return facts
