"""Function calls as data, and the gate between model output and the executor.

bfcl-eval's executor hands call text to Python's ``eval`` in its own module. The text it gets from here is
never the model's: it is written anew from a known function name, identifier keywords and bounded literals.
"""

from __future__ import annotations

import ast
import keyword
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Functions = Mapping[str, Mapping[str, Any]]
"""Function name -> parameter name -> default value (``inspect.Parameter.empty`` if required)."""

MAX_CALL_CHARS = 20_000
MAX_DEPTH = 8
MAX_INT = 10**18


class MalformedMessage(ValueError):
    """An assistant message that cannot be read; its text is shown to the model."""


class RefusedCall(ValueError):
    """The gate does not let this call through; the message is shown to the model."""


@dataclass(frozen=True)
class Call:
    """A function name and keyword arguments made of JSON literals."""

    name: str
    arguments: Mapping[str, Any]


def render(call: Call, functions: Functions) -> str:
    r"""Write ``call`` as the Python expression that the executor evaluates.

    An opening parenthesis inside a string is written ``\x28``: the executor rewrites every ``name(`` in the
    text, string contents included, and would put its internal instance names into files and messages. Empty
    lists that the API classes use as default arguments are spelled out: Python shares one such list between
    all calls, and one episode's mentions would appear in another's.

    Raises:
        RefusedCall: If the function is unknown, or a name or an argument is outside the bounds.
    """
    parameters = functions.get(call.name)
    if parameters is None:
        raise RefusedCall(f"unknown function {call.name[:80]!r}")
    arguments = dict(call.arguments)
    for name, value in arguments.items():
        if not (name.isascii() and name.isidentifier()) or keyword.iskeyword(name):
            raise RefusedCall(f"invalid argument name {name[:80]!r}")
        _check_literal(value, MAX_DEPTH)
    for name, default in parameters.items():
        if isinstance(default, list):
            arguments.setdefault(name, list(default))
    text = f"{call.name}({', '.join(f'{name}={_literal(value)}' for name, value in arguments.items())})"
    if len(text) > MAX_CALL_CHARS:
        raise RefusedCall(f"the call is longer than {MAX_CALL_CHARS} characters")
    return text


def _literal(value: Any) -> str:
    return ascii(value).replace("(", "\\x28")


def _check_literal(value: Any, depth: int) -> None:
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise RefusedCall("an argument is not valid Unicode text") from None
    elif isinstance(value, int):
        if abs(value) > MAX_INT:
            raise RefusedCall(f"an integer argument is beyond {MAX_INT:.0e}")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise RefusedCall("a number argument is not finite")
    elif isinstance(value, (list, dict)):
        if depth == 0:
            raise RefusedCall(f"an argument is nested deeper than {MAX_DEPTH} levels")
        for item in value.values() if isinstance(value, dict) else value:
            _check_literal(item, depth - 1)
        if isinstance(value, dict):
            for key in value:
                if not isinstance(key, str):
                    raise RefusedCall("an object argument has a key that is not a string")
                _check_literal(key, 0)
    else:
        raise RefusedCall(f"an argument of type {type(value).__name__} is not a JSON value")


def call_from_python(text: str, functions: Functions) -> Call:
    """Read a call written in Python, as the ground truth is; positional arguments get their names.

    Raises:
        RefusedCall: If ``text`` is anything else than one call of a known function with literal arguments.
    """
    try:
        node = ast.parse(text.strip(), mode="eval").body
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            raise RefusedCall("not a function call")
        name, positional = node.func.id, [ast.literal_eval(argument) for argument in node.args]
        named = {argument.arg: ast.literal_eval(argument.value) for argument in node.keywords}
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        if isinstance(error, RefusedCall):
            raise
        raise RefusedCall(f"not a call with literal arguments: {text[:80]!r}") from error
    if name not in functions:
        raise RefusedCall(f"unknown function {name[:80]!r}")
    parameters = list(functions[name])
    if None in named or len(positional) > len(parameters) or set(named) & set(parameters[: len(positional)]):
        raise RefusedCall(f"the arguments do not fit the parameters of {name}")
    return Call(name, dict(zip(parameters, positional, strict=False)) | named)
