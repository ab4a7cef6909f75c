"""Strict construction of typed configs: an unknown key is an error that names its nearest neighbour."""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


class ConfigError(ValueError):
    """A configuration that must not start; the message says what to change."""


def unknown_key_message(key: str, valid: Iterable[str], where: str) -> str:
    """One line naming the unknown ``key``, where it stands, and the nearest valid name."""
    valid = sorted(valid)
    nearest = difflib.get_close_matches(key, valid, n=1, cutoff=0.0)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    return f"unknown key {key!r} in {where}{hint}"


def build_strict(cls: type[T], values: Mapping[str, Any], *, where: str) -> T:
    """Build the dataclass ``cls`` from ``values``, nested dataclasses included.

    Raises:
        ConfigError: For a key that ``cls`` lacks, a value of the wrong type, or whatever the
            dataclass itself refuses.
    """
    hints = _hints(cls)
    names = [f.name for f in dataclasses.fields(cls)]
    built: dict[str, Any] = {}
    for key, value in values.items():
        if key not in names:
            raise ConfigError(unknown_key_message(key, names, where))
        built[key] = _convert(hints[key], value, f"{where}.{key}")
    missing = [
        f.name
        for f in dataclasses.fields(cls)
        if f.name not in built and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ConfigError(f"{where} lacks {', '.join(missing)}")
    try:
        return cls(**built)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        return _convert(_member(args, value), value, where)
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where} must be a mapping, not {value!r}")
        return build_strict(hint, value, where=where)
    if origin is tuple:
        return _convert_tuple(args, value, where)
    if origin in (dict, Mapping) or hint in (dict, Any):
        return value
    if hint is float and isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            return float(value)
        except ValueError:
            raise ConfigError(f"{where} must be a number, not {value!r}") from None
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise ConfigError(f"{where} must be {hint.__name__}, not {value!r}")
    return value


def _member(union: tuple[Any, ...], value: Any) -> Any:
    """The member of a union that ``value`` already is, else its first one."""
    members = [a for a in union if a is not type(None)]
    exact = [a for a in members if isinstance(a, type) and type(value) is a]
    return (exact or members)[0]


def _convert_tuple(args: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise ConfigError(f"{where} must be a list, not {value!r}")
    if len(args) == 2 and args[1] is Ellipsis:
        return tuple(_convert(args[0], v, where) for v in value)
    if len(value) != len(args):
        raise ConfigError(f"{where} must have {len(args)} values, not {len(value)}")
    return tuple(_convert(a, v, where) for a, v in zip(args, value, strict=True))


def default_values(cls: type) -> dict[str, Any]:
    """Nested default values of a config dataclass; ``???`` where a recipe must give one."""
    values: dict[str, Any] = {}
    hints = _hints(cls)
    for spec in dataclasses.fields(cls):
        if dataclasses.is_dataclass(hints[spec.name]):
            values[spec.name] = default_values(hints[spec.name])
        elif spec.default_factory is not dataclasses.MISSING:
            values[spec.name] = spec.default_factory()
        else:
            values[spec.name] = "???" if spec.default is dataclasses.MISSING else spec.default
    return values


def without_defaults(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The nested ``values`` that differ from ``defaults``."""
    kept: dict[str, Any] = {}
    for key, value in values.items():
        default = defaults.get(key, dataclasses.MISSING)
        if isinstance(value, Mapping) and isinstance(default, Mapping):
            if inner := without_defaults(value, default):
                kept[key] = inner
        elif value != default:
            kept[key] = value
    return kept


def with_defaults(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of :func:`without_defaults`."""
    full = {**defaults, **values}
    for key, default in defaults.items():
        if isinstance(default, Mapping):
            full[key] = with_defaults(values.get(key, {}), default)
    return full
