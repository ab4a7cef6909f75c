"""Reward profiles, and what counts as degenerate output."""

from __future__ import annotations

import re

REWARDS = ("sparse", "shaped")
DEGENERATE_REWARD = -1.0

_MAX_UNIT_CHARS = 128
_MIN_REPEATS = 8
_MIN_REPEATED_CHARS = 512
_GARBLED_SHARE = 0.1
_GARBLED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ue000-\uf8ff\ufffd]")


def reward(profile: str, success: bool, progress: float, degenerate: bool) -> float:
    """Scalar training reward of an episode.

    Args:
        profile: ``sparse`` is the checker's verdict as 0 or 1. ``shaped`` is the release's rule: 1 + 0.5 s on
            success, else 0.5 s, where s is the share of checks passed; -1 for degenerate output.
        success: The checker's verdict.
        progress: s, taken as the share of user turns that passed before the first failed check.
        degenerate: Whether any assistant message was degenerate.
    """
    if profile == "sparse":
        return float(success)
    if degenerate:
        return DEGENERATE_REWARD
    return 0.5 * progress + float(success)


def is_degenerate(text: str) -> bool:
    """Whether ``text`` is garbled or repeats itself without end.

    Garbled: more than a tenth of its characters are control or private-use characters, surrogates, or stand
    for undecodable bytes. Endless repetition: it ends with a unit of at most 128 characters, at least 8 times in a row
    and over at least 512 characters. The release's thresholds are its own; these are ours.
    """
    return _is_garbled(text) or _ends_in_repetition(text)


def _is_garbled(text: str) -> bool:
    return len(_GARBLED.findall(text)) > _GARBLED_SHARE * len(text)


def _ends_in_repetition(text: str) -> bool:
    for unit in range(1, _MAX_UNIT_CHARS + 1):
        span = max(_MIN_REPEATED_CHARS, unit * _MIN_REPEATS)
        if span > len(text):
            return False
        tail = text[-span:]
        if tail[unit:] == tail[:-unit]:
            return True
    return False
