"""Split a whole-trajectory output into its turns.

An agent loop may return one output per trajectory, its response holding sampled tokens (mask 1) and
observation tokens (mask 0) in turn. Each run of 1s is a turn; its row is the prefix that ends with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Segment:
    """Half-open range of one turn within the response."""

    start: int
    stop: int


def turn_segments(response_mask: Sequence[int]) -> list[Segment]:
    """The runs of 1s in ``response_mask``, in order; a mask without 1s has none."""
    segments, start = [], None
    for position, sampled in enumerate([*response_mask, 0]):
        if sampled and start is None:
            start = position
        elif not sampled and start is not None:
            segments.append(Segment(start, position))
            start = None
    return segments
