"""Compose run configs from the YAML files under ``recipes/`` with Hydra."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import MISSING, OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from seeupo_recipe.config import RunConfig, build_config
from seeupo_recipe.strict import ConfigError, default_values, unknown_key_message

RECIPES = Path(__file__).resolve().parents[1] / "recipes"
FREE_TREES = ("algorithm.seeupo.", "benchmark.options.", "model.chat_template_kwargs.", "verl.")


def compose_config(overrides: Sequence[str] = ()) -> RunConfig:
    """The run config that ``recipes/run.yaml`` and the Hydra ``overrides`` give.

    Raises:
        ConfigError: For an unknown group, key or value, with the file that holds it where there is one.
    """
    overrides = [f"++{o}" if o.startswith(FREE_TREES) else o for o in overrides]
    try:
        values = _compose(overrides)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_explain(error, overrides)) from None
    try:
        return build_config(values)
    except ConfigError as error:
        raise ConfigError(_with_file(str(error))) from None


def _compose(overrides: Sequence[str]) -> dict[str, Any]:
    """Compose by Hydra; each choice of groups once, since a study asks for it with many values."""
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    if any(o.is_delete() or o.is_sweep_override() for o in parsed):
        return _resolved(_compose_afresh(RECIPES, tuple(overrides)))
    groups = [(RECIPES / o.key_or_group).is_dir() for o in parsed]
    chosen = tuple(text for text, group in zip(overrides, groups, strict=True) if group)
    tree = copy.deepcopy(_compose_afresh(RECIPES, chosen))
    for override, group in zip(parsed, groups, strict=True):
        if not group:
            _set(tree, override.key_or_group, override.value(), add=override.is_add() or override.is_force_add())
    return _resolved(tree)


def _set(tree: dict[str, Any], key: str, value: Any, *, add: bool) -> None:
    """Set the dotted ``key``; a mapping is merged into what is there.

    Raises:
        OmegaConfBaseException: If the key is not there and may not be added.
    """
    *parents, last = key.split(".")
    for parent in parents:
        if not isinstance(tree.get(parent), dict):
            if not add:
                raise ConfigKeyError(f"there is no key {key}")
            tree[parent] = {}
        tree = tree[parent]
    if last not in tree and not add:
        raise ConfigKeyError(f"there is no key {key}")
    if isinstance(value, dict) and isinstance(tree.get(last), dict):
        for name, inner in value.items():
            _set(tree[last], str(name), inner, add=add)
    else:
        tree[last] = value


def _resolved(tree: dict[str, Any]) -> dict[str, Any]:
    """``tree`` without interpolations.

    Raises:
        OmegaConfBaseException: For a missing value.
    """
    text = str(tree)
    if "${" not in text and MISSING not in text:
        return tree
    return OmegaConf.to_container(OmegaConf.create(tree), resolve=True, throw_on_missing=True)


@lru_cache
def _compose_afresh(recipes: Path, overrides: tuple[str, ...]) -> dict[str, Any]:
    """What Hydra composes, interpolations as they stand."""
    GlobalHydra.instance().clear()
    ConfigStore.instance().store("defaults", default_values(RunConfig))
    with initialize_config_dir(str(recipes), version_base=None):
        return OmegaConf.to_container(compose("run", overrides=list(overrides)))


def options(group: str) -> list[str]:
    """Names of the YAML files of a recipe group, such as ``algorithm``."""
    return sorted(p.stem for p in (RECIPES / group).glob("*.yaml"))


def _explain(error: Exception, overrides: Sequence[str]) -> str:
    """One line for what Hydra or OmegaConf refused, with the nearest valid choice."""
    for override in overrides:
        name, _, value = override.lstrip("+~").partition("=")
        if (RECIPES / name).is_dir():
            if value not in options(name):
                nearest = difflib.get_close_matches(value, options(name), n=1, cutoff=0.0)
                return f"{override}: there is no recipes/{name}/{value}.yaml; did you mean {name}={nearest[0]}?"
        elif not override.startswith("+") and name not in (valid := _dotted(default_values(RunConfig))):
            return unknown_key_message(name, valid, "the overrides")
    return str(error).splitlines()[0]


def _dotted(tree: Mapping[str, Any], prefix: str = "") -> list[str]:
    names = []
    for key, value in tree.items():
        names.append(prefix + key)
        if isinstance(value, Mapping):
            names += _dotted(value, f"{prefix}{key}.")
    return names


def _with_file(message: str) -> str:
    """Add the recipe file that sets the key named in ``message``, if one does."""
    if not message.startswith("unknown key "):
        return message
    key = message.split("'")[1]
    holders = [p for p in sorted(RECIPES.rglob("*.yaml")) if _holds(yaml.safe_load(p.read_text()), key)]
    return message + (f" (set in {', '.join(str(p.relative_to(RECIPES.parent)) for p in holders)})" if holders else "")


def _holds(tree: Any, key: str) -> bool:
    if isinstance(tree, Mapping):
        return key in tree or any(_holds(v, key) for v in tree.values())
    return False
