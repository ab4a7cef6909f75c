"""The update phase of each method: log-probabilities, reference, optimizer steps and post-update passes.

SeeUPO is the library's own :func:`sequential_update`; the baselines are one or several steps on all rows. The
released schedule is written from its description: every turn's pool holds one
row per trajectory, a copy of its last turn where it has none left, and is forwarded four times, for its old
log-probabilities, the reference, the step and the new log-probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import torch

from seeupo_recipe.algo.baselines import row_parts
from seeupo_recipe.algo.correction import TurnCorrection
from seeupo_recipe.algo.sequential import Updater, plan_updates, sequential_update
from seeupo_recipe.algo.settings import AlgorithmSettings
from seeupo_recipe.bench.rollouts import BenchRow, Rollouts


class BenchUpdater(Updater[BenchRow], Protocol):
    """An updater that also computes the reference; ``use_kl`` says whether anyone reads it."""

    use_kl: bool

    def refer(self, rows: Sequence[BenchRow]) -> None:
        """Compute the reference log-probabilities of ``rows``."""
        ...


Method = Callable[[Rollouts, BenchUpdater], int]


def _begin(rollouts: Rollouts, updater: BenchUpdater) -> None:
    updater.anchor(rollouts.rows)
    if updater.use_kl:
        updater.refer(rollouts.rows)


def _weights(rows: Sequence[BenchRow], advantages: dict[str, float]) -> torch.Tensor:
    return torch.tensor([advantages[row.trajectory] for row in rows], dtype=torch.float64)


def _baseline(rollouts: Rollouts, updater: BenchUpdater, steps: int) -> int:
    _begin(rollouts, updater)
    parts = row_parts(len(rollouts.rows), steps, seed=0, iteration=1)
    for place, part in enumerate(parts):
        rows = [rollouts.rows[i] for i in part]
        updater.step(rows, _weights(rows, rollouts.advantages), denominator=len(rows), last=place == len(parts) - 1)
    return len(parts)


def one_step(rollouts: Rollouts, updater: BenchUpdater) -> int:
    """A baseline with one optimizer step; returns the number of steps, as all methods do."""
    return _baseline(rollouts, updater, 1)


def matched_steps(rollouts: Rollouts, updater: BenchUpdater) -> int:
    """A baseline with as many steps as SeeUPO takes, on parts of the rows drawn at random."""
    return _baseline(rollouts, updater, len({row.turn for row in rollouts.rows}))


def seeupo(rollouts: Rollouts, updater: BenchUpdater) -> int:
    """SeeUPO as the trainers run it, reverse order."""
    _begin(rollouts, updater)
    settings = AlgorithmSettings()
    plan = plan_updates(rollouts.rows, settings, seed=0, iteration=1)
    return int(sequential_update(plan, rollouts.advantages, updater, settings)["update/optimizer_steps"])


def released(rollouts: Rollouts, updater: BenchUpdater) -> int:
    """The released schedule: all T pools of one row per trajectory, nothing shared between turns."""
    settings = AlgorithmSettings()
    correction = TurnCorrection(rollouts.advantages, settings)
    names = list(rollouts.advantages)
    for turn in reversed(range(rollouts.turns)):
        pool = [_row_or_placeholder(rollouts.trajectory(name), turn) for name in names]
        updater.anchor(pool)
        if updater.use_kl:
            updater.refer(pool)
        updater.step(pool, correction.weights(names, turn), denominator=len(pool), last=turn == 0)
        log_ratio = updater.log_ratio(pool, kind=settings.correction_ratio, clamp=settings.log_ratio_clamp)
        correction.record(names, turn, log_ratio)
    return rollouts.turns


def _row_or_placeholder(trajectory: list[BenchRow], turn: int) -> BenchRow:
    return trajectory[turn] if turn < len(trajectory) else replace(trajectory[-1], turn=turn, real=False)


# Name, update phase, ratio of the loss.
METHODS: dict[str, tuple[Method, str]] = {
    "grpo": (one_step, "token"),
    "grpo_matched": (matched_steps, "token"),
    "gspo": (one_step, "length_normalised"),
    "seeupo": (seeupo, "length_normalised"),
    "released": (released, "length_normalised"),
}
