"""When a training run counts as collapsed. The rule was fixed before any run was looked at.

The training success rate is smoothed by a trailing mean over a twentieth of the run (at least three
iterations). A run has *collapsed* if the smoothed rate, after having risen at least ``MARGIN`` above its
first value, falls below half of its running maximum. It has *declined* if it falls below half of its first
value without ever having risen that far, and that first value was at least ``MARGIN``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

MARGIN = 0.1
FRACTION = 0.5
COLLAPSED, DECLINED, STEADY, TOO_SHORT = "collapsed", "declined", "steady", "too short"


class Verdict(NamedTuple):
    """What became of a run.

    Attributes:
        kind: ``collapsed``, ``declined``, ``steady`` or ``too short`` to be judged.
        iteration: First iteration (from 1) at which the rate was below the bound; None if it never was.
        peak: Largest smoothed rate.
        recovered: Whether the last smoothed rate is above the bound again.
    """

    kind: str
    iteration: int | None = None
    peak: float = float("nan")
    recovered: bool = False


def window(iterations: int) -> int:
    """Length of the trailing mean."""
    return max(3, round(iterations / 20))


def smoothed(values: Sequence[float], width: int) -> np.ndarray:
    """Trailing means of every full window, (n - width + 1,)."""
    return np.convolve(np.asarray(values, dtype=float), np.full(width, 1.0 / width), mode="valid")


def judge(success: Sequence[float]) -> Verdict:
    """Judge a run by its training success rate per iteration."""
    width = window(len(success))
    if len(success) < 2 * width:
        return Verdict(TOO_SHORT)
    rate = smoothed(success, width)
    highest = np.maximum.accumulate(rate)
    low = rate < FRACTION * highest
    risen = highest >= rate[0] + MARGIN
    for kind, counts in ((COLLAPSED, low & risen), (DECLINED, low & ~risen & (rate[0] >= MARGIN))):
        if counts.any():
            first = int(np.argmax(counts))
            return Verdict(kind, first + width, float(rate.max()), bool(rate[-1] >= FRACTION * highest[-1]))
    return Verdict(STEADY, None, float(rate.max()))
