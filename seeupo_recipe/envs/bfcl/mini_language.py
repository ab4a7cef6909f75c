"""The language of bfcl-mini: one line of words per message, small enough for a tiny word-level model.

An assistant message is ``done`` (it ends the user turn), or calls joined by ``;``. A call is the API method's
name followed by one token per argument: ``cp notes archive``. Observations are the result's values, at most
:data:`OBSERVATION_TOKENS` tokens; ``ok`` for no result and ``error`` for any error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from seeupo_recipe.envs.base import Message
from seeupo_recipe.envs.bfcl.calls import Call, MalformedMessage

PRE_TOKENIZER = r"\w+|[^\w\s]"
"""Splits every text of bfcl-mini into tokens; a text is its tokens joined by spaces."""

OBSERVATION_TOKENS = 8
MAX_NUMBER = 99
DONE, SEPARATOR = "done", ";"

_TOKEN = re.compile(PRE_TOKENIZER)
_WORD = re.compile(r"\w+")
_MAX_SHOWN = 1000
_MAX_CALLS = 8
_MAX_TOKENS = 64


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


@dataclass(frozen=True)
class Slot:
    """One argument of an action.

    Attributes:
        name: The API parameter.
        kind: ``word``, ``number`` (0 to 99), or ``choice``.
        choices: For a choice, token -> argument value.
    """

    name: str
    kind: str = "word"
    choices: Mapping[str, Any] | None = None


def _number(name: str) -> Slot:
    return Slot(name, "number")


def _choice(name: str, *tokens: str, **choices: Any) -> Slot:
    return Slot(name, "choice", {token: token for token in tokens} | choices)


_DOORS = ["driver", "passenger", "rear_left", "rear_right"]

ACTIONS: Mapping[str, tuple[Slot, ...]] = {
    "touch": (Slot("file_name"),),
    "mkdir": (Slot("dir_name"),),
    "echo": (Slot("content"), Slot("file_name")),
    "cat": (Slot("file_name"),),
    "cp": (Slot("source"), Slot("destination")),
    "mv": (Slot("source"), Slot("destination")),
    "rm": (Slot("file_name"),),
    "fillFuelTank": (_number("fuelAmount"),),
    "lockDoors": (
        _choice("unlock", lock=False, unlock=True),
        _choice("door", all=_DOORS, **{door: [door] for door in _DOORS}),
    ),
    "pressBrakePedal": (_number("pedalPosition"),),
    "startEngine": (_choice("ignitionMode", "START", "STOP"),),
    "setHeadlights": (_choice("mode", "on", "off", "auto"),),
    "set_navigation": (Slot("destination"),),
    "adjustClimateControl": (_number("temperature"),),
    "activateParkingBrake": (_choice("mode", "engage", "release"),),
    "ticket_login": (Slot("username"), Slot("password")),
    "create_ticket": (Slot("title"), _number("priority")),
    "get_ticket": (_number("ticket_id"),),
    "close_ticket": (_number("ticket_id"),),
    "resolve_ticket": (_number("ticket_id"), Slot("resolution")),
    "get_user_id": (Slot("user"),),
    "send_message": (Slot("receiver_id"), Slot("message")),
    "delete_message": (Slot("receiver_id"),),
    "add_contact": (Slot("user_name"),),
    "get_stock_info": (Slot("symbol"),),
    "place_order": (_choice("order_type", "Buy", "Sell"), Slot("symbol"), _number("price"), _number("amount")),
    "cancel_order": (_number("order_id"),),
    "add_to_watchlist": (Slot("stock"),),
    "remove_stock_from_watchlist": (Slot("symbol"),),
    "authenticate_twitter": (Slot("username"), Slot("password")),
    "post_tweet": (Slot("content"),),
    "follow_user": (Slot("username_to_follow"),),
    "comment": (_number("tweet_id"), Slot("comment_content")),
    "retweet": (_number("tweet_id"),),
}

RESULT_WORDS = words(
    "already added Already and Cancelled Closed Contact copied deleted driver error has been celsius latest locked "
    "Message moved Navigating no none ok Open Pending receiver removed Receiver Resolved resolved retweeted running "
    "s sent stopped Successfully successfully Ticket to unlocked User closed from watchlist Stock Comment added yes "
    "auto engaged pressed released on off is not found Buy Sell"
)
"""Words that the API methods above put into results by themselves."""


def tokenize(text: str) -> list[str]:
    return _TOKEN.findall(text)


def number_tokens() -> tuple[str, ...]:
    return (*map(str, range(MAX_NUMBER + 1)), str(_MAX_SHOWN))


def language_tokens() -> set[str]:
    """Tokens of actions and observations, without the words that tasks bring in."""
    choices = {token for slots in ACTIONS.values() for slot in slots for token in slot.choices or ()}
    return {DONE, SEPARATOR, *ACTIONS, *choices, *RESULT_WORDS, *number_tokens()}


class MiniLanguage:
    """Implements :class:`seeupo_recipe.envs.bfcl.environment.Dialect`."""

    def parse(self, text: str) -> list[Call]:
        """Return the calls of a message; none for ``done``.

        Raises:
            MalformedMessage: If the message is anything else.
        """
        tokens = tokenize(text)
        if tokens == [DONE]:
            return []
        if len(tokens) > _MAX_TOKENS or tokens.count(SEPARATOR) >= _MAX_CALLS:
            raise MalformedMessage("too long")
        calls, start = [], 0
        for end in [*(index for index, token in enumerate(tokens) if token == SEPARATOR), len(tokens)]:
            calls.append(_read_call(tokens[start:end]))
            start = end + 1
        return calls

    def result(self, text: str) -> Message:
        return {"role": "tool", "content": " ".join(_observation(text))}

    def error(self, reason: str) -> Message:
        return {"role": "tool", "content": "error"}


def _read_call(tokens: list[str]) -> Call:
    slots = ACTIONS.get(tokens[0]) if tokens else None
    if slots is None or len(tokens) != 1 + len(slots):
        raise MalformedMessage("not a call")
    return Call(tokens[0], {slot.name: _read_value(slot, token) for slot, token in zip(slots, tokens[1:], strict=True)})


def _read_value(slot: Slot, token: str) -> Any:
    if slot.kind == "choice":
        if token not in slot.choices:
            raise MalformedMessage("not a choice")
        return slot.choices[token]
    if slot.kind == "number":
        if not (token.isascii() and token.isdecimal() and int(token[:4]) <= MAX_NUMBER and len(token) <= 3):
            raise MalformedMessage("not a number")
        return int(token)
    return token


def write_call(call: Call) -> str:
    """The action text of ``call``; the inverse of reading it."""
    tokens = [call.name]
    for slot in ACTIONS[call.name]:
        value = call.arguments[slot.name]
        if slot.kind == "choice":
            value = next(token for token, choice in slot.choices.items() if choice == value)
        tokens.append(str(value))
    return " ".join(tokens)


def _observation(result: str) -> list[str]:
    if result.startswith("Error during execution"):
        return ["error"]
    try:
        value = json.loads(result)
    except json.JSONDecodeError:
        value = None if result == "None" else result
    if isinstance(value, dict) and "error" in value:
        return ["error"]
    if value is None:
        return ["ok"]
    return list(_leaf_tokens(value))[:OBSERVATION_TOKENS] or ["none"]


def _leaf_tokens(value: Any) -> Iterator[str]:
    """Tokens of the values in ``value``; numbers beyond 1000, such as message ids, and fractions are left out."""
    if isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaf_tokens(item)
    elif isinstance(value, bool):
        yield "yes" if value else "no"
    elif isinstance(value, (int, float)):
        if value == int(value) and str(int(value)) in number_tokens():
            yield str(int(value))
    elif isinstance(value, str):
        yield from _WORD.findall(value)
