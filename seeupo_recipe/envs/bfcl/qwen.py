"""Qwen's tool-call format: ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``, read strictly."""

from __future__ import annotations

import json
import re
from typing import Any

from seeupo_recipe.envs.base import Message
from seeupo_recipe.envs.bfcl.calls import Call, MalformedMessage

MAX_MESSAGE_CHARS = 100_000
MAX_CALLS = 64
_MAX_DIGITS = 32
_TAG = re.compile(r"(</?tool_call>)")


class QwenToolCalls:
    """Reads assistant messages and writes tool messages of the Qwen2.5 and Qwen3 chat templates.

    Args:
        observation_chars: Results are cut at this length (the release cuts at 3000; bfcl-eval does not cut).
    """

    def __init__(self, observation_chars: int | None = None):
        if observation_chars is not None and observation_chars < 1:
            raise ValueError(f"observation_chars must be positive, not {observation_chars}")
        self.observation_chars = observation_chars

    def parse(self, text: str) -> list[Call]:
        """Return the calls of a message, in order; text around them and closed thinking are ignored.

        Raises:
            MalformedMessage: If a tag or a call is malformed. One bad call voids the whole message, so that
                a model that repeats it corrected does not execute the good ones twice.
        """
        if len(text) > MAX_MESSAGE_CHARS:
            raise MalformedMessage(f"the message is longer than {MAX_MESSAGE_CHARS} characters")
        visible = text.rpartition("</think>")[2]
        if "<think>" in visible:
            raise MalformedMessage("<think> without </think>")
        parts = _TAG.split(visible)
        tags, bodies = parts[1::2], parts[2::4]
        if tags != ["<tool_call>", "</tool_call>"] * (len(tags) // 2):
            raise MalformedMessage("<tool_call> and </tool_call> must come in pairs")
        if len(bodies) > MAX_CALLS:
            raise MalformedMessage(f"more than {MAX_CALLS} calls in one message")
        return [_parse_call(body) for body in bodies]

    def result(self, text: str) -> Message:
        """The tool message that carries one call's result."""
        limit = self.observation_chars
        if limit is not None and len(text) > limit:
            text = text[:limit] + " [cut]"
        return {"role": "tool", "content": text}

    def error(self, reason: str) -> Message:
        """The tool message that tells the model why its call or message was not executed."""
        return self.result(json.dumps({"error": reason}))


def _parse_call(body: str) -> Call:
    try:
        value = _DECODER.decode(body)
    except RecursionError:
        raise MalformedMessage("a call is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise MalformedMessage(f"a call is not valid JSON: {error.msg} at character {error.pos}") from None
    if not isinstance(value, dict) or set(value) != {"name", "arguments"}:
        raise MalformedMessage('a call must be an object with exactly "name" and "arguments"')
    if not isinstance(value["name"], str) or not isinstance(value["arguments"], dict):
        raise MalformedMessage('"name" must be a string and "arguments" an object')
    return Call(value["name"], value["arguments"])


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise MalformedMessage("a key is given twice in one object")
    return result


def _refuse_constant(name: str) -> None:
    raise MalformedMessage(f"{name} is not a JSON value")


def _bounded_int(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise MalformedMessage("an integer has too many digits")
    return int(digits)


_DECODER = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=_refuse_constant, parse_int=_bounded_int)


def to_text(calls: list[Call]) -> str:
    """Write ``calls`` as one assistant message of this format."""
    return "\n".join(
        f"<tool_call>\n{json.dumps({'name': call.name, 'arguments': dict(call.arguments)})}\n</tool_call>"
        for call in calls
    )
