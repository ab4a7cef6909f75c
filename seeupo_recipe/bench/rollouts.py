"""Recorded turn rows that every method is timed on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seeupo_recipe.seeding import stream

SHAPES = ("equal", "ragged")
FIRST_TOKEN = 5


@dataclass(frozen=True)
class BenchRow:
    """One turn of one trajectory.

    Attributes:
        trajectory: Trajectory id.
        group: Task of the trajectory.
        turn: 0-based turn.
        prompt_ids: The context.
        response_ids: The sampled tokens.
        real: False for a placeholder, whose tokens are masked out.
    """

    trajectory: str
    group: int
    turn: int
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    real: bool = True

    @property
    def tokens(self) -> int:
        """Length of prompt and response."""
        return len(self.prompt_ids) + len(self.response_ids)

    @property
    def key(self) -> tuple[str, int]:
        return self.trajectory, self.turn


@dataclass(frozen=True)
class Rollouts:
    """The rows of one iteration in canonical order and the advantage of every trajectory."""

    turns: int
    rows: tuple[BenchRow, ...]
    advantages: dict[str, float]

    def trajectory(self, name: str) -> list[BenchRow]:
        return [row for row in self.rows if row.trajectory == name]


def trajectory_lengths(turns: int, trajectories: int, shape: str) -> list[int]:
    """Turns of each trajectory: all ``turns`` (equal), or spread from 1 to ``turns`` with mean ``turns / 2``.

    The longest has ``turns``; the mean is larger where ``turns`` is too small for that.
    """
    if shape == "equal":
        return [turns] * trajectories
    lengths = [max(1, round(turns * (i + 0.5) / trajectories)) for i in range(trajectories)]
    lengths[-1] = turns
    excess = sum(lengths) - max(turns * trajectories // 2, turns + trajectories - 1)
    while excess:
        step = 1 if excess > 0 else -1
        movable = [i for i in range(trajectories - 1) if 1 <= lengths[i] - step <= turns]
        lengths[max(movable, key=lambda i: step * lengths[i])] -= step
        excess -= step
    return lengths


def record(
    turns: int, shape: str, *, groups: int, group_size: int, prompt: int, response: int, vocabulary: int, seed: int = 0
) -> Rollouts:
    """Rows with random tokens.

    ``equal``: every trajectory has ``turns`` turns and every row the same number of tokens. ``ragged``: the
    numbers of turns are spread with mean ``turns / 2`` and the lengths of rows vary by half around the same mean.
    Advantages are +1 and -1 by turns, so that no trajectory is left out for want of a signal.
    """
    rng = stream("bench", seed, turns, shape)

    def ids(mean: int) -> tuple[int, ...]:
        spread = mean // 2 if shape == "ragged" else 0
        size = int(rng.integers(mean - spread, mean + spread + 1))
        return tuple(rng.integers(FIRST_TOKEN, vocabulary, size).tolist())

    lengths: Sequence[int] = trajectory_lengths(turns, groups * group_size, shape)
    rows = tuple(
        BenchRow(f"t{i}", i % groups, turn, ids(prompt), ids(response))
        for i, length in enumerate(lengths)
        for turn in range(length)
    )
    return Rollouts(turns, rows, {f"t{i}": 1.0 if i % 2 else -1.0 for i in range(len(lengths))})
