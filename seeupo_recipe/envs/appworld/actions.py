"""From a message to the code in it, and from an output to what the policy sees of it."""

from __future__ import annotations

import re
from collections.abc import Callable

_PYTHON_BLOCK = re.compile(r"```(?:python|py)[ \t]*\r?\n(.*?)```", re.DOTALL | re.IGNORECASE)
_CUT_MARK = "\n[... {} of {} tokens left out ...]\n"
_FAILURE = "Execution failed. Traceback:\n"

Split = Callable[[str], list[str]]


def python_block(message: str) -> str | None:
    """Code of the first closed Python block of ``message``, or None."""
    match = _PYTHON_BLOCK.search(message)
    return match[1].strip("\r\n") if match else None


def cut(text: str, limit: int, split: Split) -> str:
    """Keep at most ``limit`` tokens of ``text``: its head and its tail, with a mark between them.

    Args:
        text: An output of any length.
        limit: Most tokens to keep (the mark is not counted).
        split: Lossless split of a text into tokens: joined, they give the text.
    """
    if len(text) <= limit:  # a token has at least one character
        return text
    tokens = split(text)
    if len(tokens) <= limit:
        return text
    head = (limit + 1) // 2
    tail = tokens[len(tokens) - (limit - head) :]
    return "".join([*tokens[:head], _CUT_MARK.format(len(tokens) - limit, len(tokens)), *tail])


def last_line_of_failure(output: str) -> str:
    """Shorten a failed block's traceback to its last line; other outputs stay as they are."""
    if not output.startswith(_FAILURE):
        return output
    return "Error: " + output.rstrip().rsplit("\n", 1)[-1].strip()
