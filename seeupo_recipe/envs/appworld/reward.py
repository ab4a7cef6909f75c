"""Reward of an episode from its score: sparse, or shaped as in the paper's released code."""

from __future__ import annotations

import zlib
from typing import Literal

Reward = Literal["sparse", "shaped"]

_SUCCESS_BONUS = 1.0
_SCORE_WEIGHT = 0.5
_GARBLED_REWARD = -1.0
_REPETITION_LENGTH = 400
_REPETITION_RATIO = 0.08
_ODD_SHARE = 0.05


def reward(kind: Reward, score: float, success: bool, messages: list[str]) -> float:
    """Scalar team reward of one episode.

    ``sparse`` is 1 for a solved task and 0 otherwise. ``shaped`` follows the release: 1 + 0.5 score on
    success, else 0.5 score, and -1 if a message is garbled or repeats endlessly. The release's test
    for such messages is not part of the facts we have; :func:`is_garbled` is ours.

    Args:
        kind: ``sparse`` or ``shaped``.
        score: Passed share of the evaluation's requirements, in [0, 1].
        success: Whether all of them passed.
        messages: The policy's messages.
    """
    if kind == "sparse":
        return float(success)
    if any(is_garbled(message) for message in messages):
        return _GARBLED_REWARD
    return (_SUCCESS_BONUS if success else 0.0) + _SCORE_WEIGHT * score


def is_garbled(message: str) -> bool:
    """Whether more than 5% of the characters are not text, or a long message is nearly all repetition."""
    if not message:
        return False
    odd = sum(character == "\ufffd" or not (character.isprintable() or character.isspace()) for character in message)
    if odd > _ODD_SHARE * len(message):
        return True
    encoded = message.encode(errors="replace")
    return len(message) >= _REPETITION_LENGTH and len(zlib.compress(encoded)) < _REPETITION_RATIO * len(encoded)
