"""Studies as data: a matrix of cells with the table and figures that show it (``recipes/study/*.yaml``).

A study lists models and benchmarks per scale, and variants: named Hydra overrides. A variant with a
``grid`` stands for the product of its values; ``{key}`` in its name, label and overrides is filled in.
A study with ``cells_of`` shows the cells of another one.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from seeupo_recipe.compose import RECIPES, options
from seeupo_recipe.config import BACKENDS, SCALES
from seeupo_recipe.strict import ConfigError, build_strict

LAYOUTS = ("outcomes", "cost", "grid")
FIGURE_KINDS = ("curves", "heldout", "axes", "sweep", "diagnostics")
SEEDS_MAX = 1000


@dataclass(frozen=True)
class Variant:
    """One row of a study.

    Attributes:
        name: Name in records' labels, CSV files and selections; unique within a study.
        label: Text in tables and legends.
        overrides: Hydra overrides that make it.
        style: Method whose colour it takes, default the algorithm's name.
        paper: The row's name in ``results/paper/numbers.csv``, if the paper has it.
        grid: Values per key, for a product of variants.
        coordinates: The values that made this variant out of a grid.
    """

    name: str
    label: str
    overrides: tuple[str, ...]
    style: str | None = None
    paper: str | None = None
    grid: Mapping[str, Any] = field(default_factory=dict)
    coordinates: Mapping[str, Any] = field(default_factory=dict)

    @property
    def algorithm(self) -> str:
        """Name of the recipe in ``recipes/algorithm``."""
        chosen = [o.partition("=")[2] for o in self.overrides if o.startswith("algorithm=")]
        return chosen[-1] if chosen else "seeupo"


@dataclass(frozen=True)
class Matrix:
    """Models and benchmarks of one scale, and the variants that run there if none is selected (empty: all)."""

    models: tuple[str, ...]
    benchmarks: tuple[str, ...]
    variants: tuple[str, ...] = ()


@dataclass(frozen=True)
class Defaults:
    """What runs if nothing is selected; an empty list stands for all.

    ``lab_benchmarks`` are those of the lab, where it is made for many seeds of fewer benchmarks.
    """

    models: tuple[str, ...] = ()
    benchmarks: tuple[str, ...] = ()
    lab_benchmarks: tuple[str, ...] = ()
    seeds: int = 1
    backend: str = "verl"


@dataclass(frozen=True)
class TableSpec:
    """How a study's table is laid out.

    Attributes:
        layout: ``outcomes`` (avg@k and pass@k), ``cost`` (seconds, memory, tokens) or ``grid`` (a pivot
            over two grid keys, besides the outcomes).
        reference: Variant that the others are compared with.
        k: Of avg@k and pass@k.
        paper_table: Number of the paper's table that stands beside it.
        rows: ``grid``: key of the pivot's rows.
        columns: ``grid``: key of the pivot's columns.
    """

    layout: str
    reference: str
    k: int = 4
    paper_table: int | None = None
    rows: str | None = None
    columns: str | None = None


@dataclass(frozen=True)
class FigureSpec:
    """One figure of a study.

    Attributes:
        name: File name under ``plots/<scale>/``, the backend is appended.
        kind: One of ``FIGURE_KINDS``.
        variants: Variants shown, in this order; empty for all.
        paper_figure: Number of the paper's figure that it follows.
        x: ``sweep``: grid key on the x axis.
        log: ``sweep``: whether that axis is logarithmic.
    """

    name: str
    kind: str
    title: str
    variants: tuple[str, ...] = ()
    paper_figure: int | None = None
    x: str | None = None
    log: bool = False


@dataclass(frozen=True)
class Study:
    """See the module's docstring.

    Attributes:
        overrides: Hold for all variants.
        backends: Where it can run.
        aliases: Other names for it.
    """

    name: str
    title: str
    question: str
    scales: Mapping[str, Matrix]
    variants: tuple[Variant, ...]
    defaults: Defaults = Defaults()
    overrides: tuple[str, ...] = ()
    table: TableSpec | None = None
    figures: tuple[FigureSpec, ...] = ()
    cells_of: str | None = None
    backends: tuple[str, ...] = BACKENDS
    aliases: tuple[str, ...] = ()

    def variant(self, name: str) -> Variant:
        return next(v for v in self.variants if v.name == name)

    def matrix(self, scale: str) -> Matrix:
        """Models and benchmarks at ``scale``.

        Raises:
            ConfigError: If the study has none there.
        """
        if scale not in self.scales:
            raise ConfigError(f"study {self.name} is not defined at scale {scale}; it has {', '.join(self.scales)}")
        return self.scales[scale]


def study_names() -> list[str]:
    """Names of the studies under ``recipes/study``, table by table."""
    return sorted(options("study"), key=lambda name: (not name.startswith("table"), name))


def make_target(study: Study) -> str:
    """Name of the Make target that runs a study: its alias, ``reproduce-table2``, or its own name."""
    paper = study.name.startswith(("table", "figure"))
    return study.aliases[0] if study.aliases else f"reproduce-{study.name}" if paper else study.name


def study_path(name: str) -> Path:
    """File of a study: a name or alias, or the path of a YAML file.

    Raises:
        ConfigError: If there is none.
    """
    if name.endswith(".yaml"):
        if not Path(name).is_file():
            raise ConfigError(f"there is no study file {name}")
        return Path(name)
    named = {alias: RECIPES / "study" / f"{study}.yaml" for study in study_names() for alias in _names(study)}
    if name not in named:
        raise ConfigError(f"there is no study {name!r}; {nearest(name, named)}")
    return named[name]


@lru_cache
def load_study(name: str) -> Study:
    """Read and check a study.

    Raises:
        ConfigError: With the file and what to change.
    """
    path = study_path(name)
    values = _read(path)
    where = f"recipes/study/{path.name}" if path.parent == RECIPES / "study" else str(path)
    if parent := values.get("cells_of"):
        values = {**_read(study_path(parent)), "table": None, "figures": (), "aliases": (), **values}
    raw_variants = values.pop("variants", ())
    scales = {s: build_strict(Matrix, m, where=f"{where}: scales.{s}") for s, m in values.pop("scales", {}).items()}
    variants = tuple(v for raw in raw_variants for v in _expand(raw, where))
    study = build_strict(Study, {**values, "name": path.stem, "scales": scales, "variants": ()}, where=where)
    study = replace(study, scales=scales, variants=variants)
    _check(study, where)
    return study


def _names(study: str) -> list[str]:
    return [study, *_read(RECIPES / "study" / f"{study}.yaml").get("aliases", ())]


@lru_cache
def _parse(path: Path) -> Mapping[str, Any]:
    values = yaml.safe_load(path.read_text())
    if not isinstance(values, Mapping):
        raise ConfigError(f"{path} is not a mapping")
    return values


def _read(path: Path) -> dict[str, Any]:
    return dict(_parse(path))


def _expand(raw: Mapping[str, Any], where: str) -> list[Variant]:
    """The variants that one entry stands for."""
    entry = build_strict(Variant, {"label": str(raw.get("name")), **raw}, where=f"{where}: variants")
    for key, values in entry.grid.items():
        if not isinstance(values, Sequence) or isinstance(values, str) or not values:
            raise ConfigError(f"{where}: grid.{key} of variant {entry.name} must be a list of values")
    if not entry.grid:
        return [entry]
    expanded = []
    for chosen in itertools.product(*entry.grid.values()):
        point = dict(zip(entry.grid, chosen, strict=True))
        try:
            name, label, *overrides = (t.format(**point) for t in (entry.name, entry.label, *entry.overrides))
            style = entry.style.format(**point) if entry.style else None
        except KeyError as error:
            raise ConfigError(
                f"{where}: variant {entry.name} uses {{{error.args[0]}}}, not a key of its grid"
            ) from None
        expanded.append(Variant(name, label, tuple(overrides), style, entry.paper, {}, point))
    return expanded


def _check(study: Study, where: str) -> None:
    names = [v.name for v in study.variants]
    for name in names:
        if not re.fullmatch(r"[a-z0-9][a-z0-9._+-]*", name):
            raise ConfigError(f"{where}: variant name {name!r} may hold a-z, 0-9 and . _ + - only")
        if names.count(name) > 1:
            raise ConfigError(f"{where}: two variants are called {name}")
    for scale in study.scales:
        _among("scale", scale, SCALES, where)
    if not 1 <= study.defaults.seeds <= SEEDS_MAX:
        raise ConfigError(f"{where}: defaults.seeds={study.defaults.seeds} must lie between 1 and {SEEDS_MAX}")
    for name in study.backends:
        _among("backends", name, BACKENDS, where)
    _among("defaults.backend", study.defaults.backend, study.backends, where)
    for scale, matrix in study.scales.items():
        for name in matrix.variants:
            _among(f"scales.{scale}.variants", name, names, where)
        for kind in ("models", "benchmarks"):
            if not getattr(matrix, kind):
                raise ConfigError(f"{where}: a scale has no {kind}")
    if study.table:
        _among("table.layout", study.table.layout, LAYOUTS, where)
        _among("table.reference", study.table.reference, names, where)
        keys = {key for v in study.variants for key in v.coordinates}
        if study.table.layout == "grid":
            _among("table.rows", study.table.rows or "", keys, where)
            _among("table.columns", study.table.columns or "", keys, where)
    for figure in study.figures:
        _among(f"kind of figure {figure.name}", figure.kind, FIGURE_KINDS, where)
        for name in figure.variants:
            _among(f"variants of figure {figure.name}", name, names, where)


def _among(what: str, value: str, allowed: Iterable[str], where: str) -> None:
    allowed = list(allowed)
    if value not in allowed:
        raise ConfigError(f"{where}: {what} {value!r}: {nearest(value, allowed)}")


def nearest(value: str, allowed: Iterable[str]) -> str:
    """What to write instead of ``value``."""
    allowed = list(allowed)
    close = difflib.get_close_matches(value, allowed, n=1, cutoff=0.4)
    listed = f"choose one of {', '.join(allowed)}"
    return f"did you mean {close[0]}? ({listed})" if close else listed
