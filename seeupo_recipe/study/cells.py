"""The cells of a study: each is a composed config, known by what defines its result."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from seeupo_recipe.compose import options
from seeupo_recipe.config import RunConfig
from seeupo_recipe.records.identity import digest
from seeupo_recipe.runs import definition
from seeupo_recipe.strict import ConfigError
from seeupo_recipe.study.composition import Composer
from seeupo_recipe.study.spec import SEEDS_MAX, Study, Variant, nearest

COMPOSER = Composer()
PLACES = {
    "scale": "SCALE",
    "backend": "BACKEND",
    "model": "MODELS",
    "benchmark": "BENCH",
    "algorithm": "VARIANTS",
    "seed": "SEEDS",
}


@dataclass(frozen=True)
class Cell:
    """One entry of a study's matrix, at any seed.

    Attributes:
        backend: ``verl`` or ``lab``.
        model: Recipe name.
        benchmark: Recipe name.
        variant: The row.
        config: The composed config at seed 0.
        key: Digest of the config's definition without its seed.
        setting: Digest of the definition's benchmark and model alone.
    """

    backend: str
    model: str
    benchmark: str
    variant: Variant
    config: RunConfig
    key: str
    setting: str

    def at(self, seed: int) -> RunConfig:
        return dataclasses.replace(self.config, seed=seed)

    @property
    def name(self) -> str:
        return f"{self.benchmark} {self.model} {self.variant.name}"


@dataclass(frozen=True)
class Selection:
    """Part of a study's matrix; empty lists stand for the study's defaults."""

    scale: str = "mini"
    backend: str | None = None
    models: tuple[str, ...] = ()
    benchmarks: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    overrides: tuple[str, ...] = ()


def parse_seeds(text: str) -> tuple[int, ...]:
    """``"3"`` gives seeds 0, 1, 2; ``"0,4"`` or ``"4,"`` gives a list.

    Raises:
        ConfigError: For anything else.
    """
    if re.fullmatch(r"\d+", text):
        count = int(text)
        if not 1 <= count <= SEEDS_MAX:
            raise ConfigError(f"SEEDS={text}: give a number of seeds from 1 to {SEEDS_MAX}, or a list such as 0,4")
        return tuple(range(count))
    if re.fullmatch(r"\d+(,\d+)*,?", text):
        return tuple(dict.fromkeys(int(part) for part in text.split(",") if part))
    raise ConfigError(f"SEEDS={text!r}: give a number of seeds, or a list such as 0,4")


def definition_key(values: dict) -> str:
    """Digest of a run's definition without its seed."""
    return digest({k: v for k, v in values.items() if k != "seed"}, 16)


def make_cell(study: Study, selection: Selection, backend: str, model: str, benchmark: str, variant: Variant) -> Cell:
    """Compose one cell; the selection's overrides come last. The untrained policy takes none of ``training``.

    Raises:
        ConfigError: For an unknown recipe, or an override of what the cell's place in the matrix says.
    """
    for group, name in (("scale", selection.scale), ("benchmark", benchmark), ("model", model)):
        if name not in options(group):
            raise ConfigError(f"there is no recipes/{group}/{name}.yaml; {nearest(name, options(group))}")
    for override in selection.overrides:
        if (key := override.lstrip("+~").partition("=")[0]) in PLACES:
            raise ConfigError(f"{override}: {key} is a part of the study's matrix; select it with {PLACES[key]}")
    overrides = (*study.overrides, *variant.overrides, *selection.overrides)
    if variant.algorithm == "base":
        overrides = tuple(o for o in overrides if not o.startswith("training."))
    place = (f"scale={selection.scale}", f"benchmark={benchmark}", f"model={model}", f"backend={backend}")
    return Cell(backend, model, benchmark, variant, *_composed((*place, *overrides)))


@cache
def _composed(overrides: tuple[str, ...]) -> tuple[RunConfig, str, str]:
    """Config at seed 0, key and setting of a cell."""
    config = dataclasses.replace(COMPOSER(overrides), seed=0)
    values = definition(config)
    return config, definition_key(values), digest([values["benchmark"], values["model"]], 16)


def full_matrix(study: Study, selection: Selection) -> list[Cell]:
    """Every cell of the study at the selection's scale, in both backends: what tables and figures show."""
    matrix = study.matrix(selection.scale)
    cells = [
        make_cell(study, selection, backend, model, benchmark, variant)
        for backend in study.backends
        for model in matrix.models
        for benchmark in matrix.benchmarks
        for variant in study.variants
    ]
    COMPOSER.save()
    return cells


def selected_cells(study: Study, selection: Selection) -> list[Cell]:
    """The cells to run.

    Raises:
        ConfigError: For a name that the study lacks.
    """
    matrix, defaults = study.matrix(selection.scale), study.defaults
    backend = _chosen(
        "BACKEND", (selection.backend,) if selection.backend else (defaults.backend,), (), study.backends
    )[0]
    models = _chosen("MODELS", selection.models, defaults.models, matrix.models)
    usual = (defaults.lab_benchmarks if backend == "lab" else ()) or defaults.benchmarks
    benchmarks = _chosen("BENCH", selection.benchmarks, usual, matrix.benchmarks)
    names = [v.name for v in study.variants]
    variants = _chosen("VARIANTS", selection.variants, matrix.variants, names)
    return [
        make_cell(study, selection, backend, model, benchmark, study.variant(variant))
        for benchmark in benchmarks
        for model in models
        for variant in variants
    ]


def selected_seeds(study: Study, selection: Selection) -> tuple[int, ...]:
    return selection.seeds or tuple(range(study.defaults.seeds))


def _chosen(what: str, selected: Sequence[str], default: Sequence[str], allowed: Sequence[str]) -> tuple[str, ...]:
    for name in selected:
        if name not in allowed:
            raise ConfigError(f"{what}={name}: not in this study; {nearest(name, allowed)}")
    return tuple(dict.fromkeys(selected or [name for name in default if name in allowed] or allowed))
