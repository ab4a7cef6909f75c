"""Where each trajectory's row stands after length balancing, as in the authors' released code.

The release pads every turn pool with placeholders to all trajectories and lets the trainer reorder each
pool so that every rank gets similar token counts. Its M vector is not reordered with the rows. The
positions computed here reproduce that for the ``as_released`` profile.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence


def balanced_positions(
    trajectories: Sequence[str], turn: int, row_lengths: Mapping[tuple[str, int], int], *, partitions: int
) -> dict[str, int]:
    """Map each trajectory id to the position of its row in the balanced pool of ``turn``.

    A trajectory without that turn is represented by a copy of its last one (the release's placeholder).

    Raises:
        ValueError: If the trajectories cannot be split evenly over ``partitions``.
    """
    if len(trajectories) % partitions:
        raise ValueError(
            f"{len(trajectories)} trajectories cannot be split over balance_partitions={partitions}: "
            "choose a divisor of tasks_per_iteration * group_size"
        )
    last_turn: dict[str, int] = {}
    for trajectory, t in row_lengths:
        last_turn[trajectory] = max(t, last_turn.get(trajectory, t))
    lengths = [row_lengths[(i, min(turn, last_turn[i]))] for i in trajectories]
    order = [j for part in equal_size_partitions(lengths, partitions) for j in part]
    return {trajectories[j]: position for position, j in enumerate(order)}


def equal_size_partitions(loads: Sequence[int], partitions: int) -> list[list[int]]:
    """Split items into parts of equal size with similar total load (largest differencing method).

    Items are taken in sorted batches of ``partitions``; the two collections whose spread of loads is
    largest are merged, heavy parts with light ones, until one is left (Karmarkar and Karp 1982).
    Returns the item indices of each part, ascending.
    """
    ranked = sorted(range(len(loads)), key=lambda i: (loads[i], i))
    heap: list[tuple[int, int, list[tuple[int, list[int]]]]] = []
    for start in range(0, len(ranked), partitions):
        parts = sorted(((loads[i], [i]) for i in ranked[start : start + partitions]), reverse=True)
        heapq.heappush(heap, (parts[-1][0] - parts[0][0], start, parts))
    serial = len(ranked)
    while len(heap) > 1:
        _, _, first = heapq.heappop(heap)
        _, _, second = heapq.heappop(heap)
        merged = [(a + b, x + y) for (a, x), (b, y) in zip(first, reversed(second), strict=True)]
        merged.sort(reverse=True)
        heapq.heappush(heap, (merged[-1][0] - merged[0][0], serial, merged))
        serial += 1
    return [sorted(items) for _, items in heap[0][2]] if heap else []
