"""Real time for a process whose clock AppWorld freezes at the task's date."""

from __future__ import annotations

import time


def monotonic() -> float:
    """Seconds on the monotonic clock, through a call that freezegun leaves alone."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)
