"""When a training run counts as collapsed. The rule was fixed before any recorded run was looked at.

The training success rate is smoothed by a trailing mean over a window of a tenth of the run, at least five
iterations. A run has *fallen* when, for a whole window, the smoothed rate stays below half of its running
maximum and at least 15 points below it. It has *collapsed* if that maximum was at least 10 points above the
first smoothed value, and *declined* if the run had never risen that far.

On runs of constant success, 40 iterations of 8 tasks with 8 rollouts each and task difficulties spread by a
Beta(2p, 2(1-p)) distribution, at most 2% are flagged as either at any p (simulated); a rule without the
window and the 15 points flags half of them at p = 0.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

RISE = 0.1
FRACTION = 0.5
DROP = 0.15
COLLAPSED, DECLINED, STEADY, TOO_SHORT = "collapsed", "declined", "steady", "too short"


class Verdict(NamedTuple):
    """What became of a run.

    Attributes:
        kind: ``collapsed``, ``declined``, ``steady`` or ``too short`` to be judged.
        iteration: Iteration (from 1) at which the fall began; None if there was none.
        peak: Largest smoothed rate.
        recovered: Whether the last smoothed rate is no longer fallen.
    """

    kind: str
    iteration: int | None = None
    peak: float = float("nan")
    recovered: bool = False


def window(iterations: int) -> int:
    """Length of the trailing mean."""
    return max(5, round(iterations / 10))


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
    fallen = (rate < FRACTION * highest) & (highest - rate >= DROP)
    lasting = np.convolve(fallen, np.ones(width), mode="valid") > width - 0.5
    peak = float(rate.max())
    if not lasting.any():
        return Verdict(STEADY, None, peak)
    risen = lasting & (highest[: len(lasting)] >= rate[0] + RISE)
    kind, first = (COLLAPSED, int(np.argmax(risen))) if risen.any() else (DECLINED, int(np.argmax(lasting)))
    return Verdict(kind, first + width, peak, not bool(fallen[-1]))
