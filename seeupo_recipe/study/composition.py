"""Composed configs, kept between commands: a study has hundreds of cells and Hydra needs a while for each.

The cache lies under ``outputs/`` and is named by everything that composition depends on, so a change of a
recipe or of the config's defaults starts a new one.
"""

from __future__ import annotations

import json
import os
from functools import cached_property
from pathlib import Path
from typing import Any

import hydra

from seeupo_recipe.compose import RECIPES, compose_config
from seeupo_recipe.config import RunConfig, build_config
from seeupo_recipe.records.identity import digest
from seeupo_recipe.runs import outputs_root
from seeupo_recipe.strict import default_values


class Composer:
    """Composes configs; ``save`` keeps the new ones for the next command."""

    def __init__(self) -> None:
        self._fresh: dict[str, Any] = {}

    def __call__(self, overrides: tuple[str, ...]) -> RunConfig:
        """As ``compose_config``, with SeeUPO's profile expanded."""
        key = json.dumps(overrides)
        values = self._kept.get(key) or self._fresh.get(key)
        if values is None:
            values = self._fresh[key] = compose_config(overrides).as_dict()
        return build_config(values)

    @cached_property
    def _path(self) -> Path:
        files = {str(p.relative_to(RECIPES)): p.read_text() for p in sorted(RECIPES.rglob("*.yaml"))}
        name = digest([hydra.__version__, files, default_values(RunConfig)], 16)
        return outputs_root() / "composed" / f"{name}.json"

    @cached_property
    def _kept(self) -> dict[str, Any]:
        try:
            return json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}

    def save(self) -> None:
        """Write what is new; another command's new entries may get lost, and are composed again."""
        if self._fresh:
            self._kept.update(self._fresh)
            self._fresh.clear()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary = self._path.with_suffix(f".{os.getpid()}.tmp")
            temporary.write_text(json.dumps(self._kept))
            os.replace(temporary, self._path)
