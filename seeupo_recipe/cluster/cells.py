"""The cells of the paper's tables as configs, and their selection on the command line.

A study of the paper is a table; its cells are models x benchmarks x rows. Without a study, the overrides alone make
one cell.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig

from seeupo_recipe.compose import compose_config, options
from seeupo_recipe.config import RunConfig
from seeupo_recipe.records.run import RunRecord
from seeupo_recipe.runs import Run, outputs_root, results_root
from seeupo_recipe.strict import ConfigError

BENCHMARKS = ("appworld", "bfcl")
MODELS = {"paper": ("qwen3-14b", "qwen2.5-14b"), "single_gpu": ("qwen3-0.6b", "qwen3-1.7b")}
TABLE2 = {
    "base": ("algorithm=base",),
    "ppo": ("algorithm=ppo",),
    "grpo": ("algorithm=grpo",),
    "gspo": ("algorithm=gspo",),
    "seeupo": ("algorithm=seeupo",),
}
STUDIES: dict[str, dict[str, tuple[str, ...]]] = {
    "table2": TABLE2,
    "table4": {
        "reverse": ("algorithm=seeupo",),
        "natural": ("algorithm=seeupo", "algorithm.seeupo.order=natural"),
        "random": ("algorithm=seeupo", "algorithm.seeupo.order=random"),
    },
    "table5": {
        "batch": ("algorithm=seeupo",),
        "group": ("algorithm=seeupo", "algorithm.seeupo.normalization=group"),
        "none": ("algorithm=seeupo", "algorithm.seeupo.normalization=none"),
    },
}
"""Rows of the paper's tables; Tables 4 and 5 are on the scale's first model alone."""


@dataclass(frozen=True)
class Cell:
    """One run at seed 0, with the name of its row."""

    row: str
    config: RunConfig

    @property
    def name(self) -> str:
        return f"{self.config.model.name} {self.config.benchmark.name} {self.row}"


@dataclass(frozen=True)
class Selection:
    """What the command line asks for; empty names stand for all of the study's."""

    scale: str = "paper"
    study: str | None = "table2"
    models: tuple[str, ...] = ()
    benchmarks: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()


def select(selection: Selection) -> list[Cell]:
    """The selected cells.

    Raises:
        ConfigError: For an unknown name, or an override that cannot hold for all of them.
    """
    scale = f"scale={selection.scale}"
    if selection.scale not in options("scale"):
        raise ConfigError(f"--scale={selection.scale}: {_nearest(selection.scale, options('scale'))}")
    if selection.study is None:
        config = compose_config((scale, *selection.overrides))
        return [Cell(config.algorithm.name, config)]
    if selection.scale not in MODELS:
        raise ConfigError(f"the paper's tables are cells of scale {' and '.join(MODELS)}, not {selection.scale}")
    rows = STUDIES[_one_of("--study", selection.study, STUDIES)]
    known = MODELS[selection.scale] if selection.study == "table2" else MODELS[selection.scale][:1]
    return [
        Cell(
            row,
            compose_config((scale, f"model={model}", f"benchmark={benchmark}", *rows[row], *selection.overrides)),
        )
        for model in _chosen("--models", selection.models, known)
        for benchmark in _chosen("--benchmarks", selection.benchmarks, BENCHMARKS)
        for row in _chosen("--rows", selection.rows, rows)
    ]


def verl_tree(config: RunConfig) -> DictConfig:
    """verl's config of a run that has no record yet."""
    from seeupo_recipe.verl_plugin.translate import verl_config

    name = f"{config.benchmark.name}--{config.model.name}--{config.algorithm.name}--unrecorded"
    record = RunRecord(results_root() / config.scale / "runs" / name)
    return verl_config(Run(config, record, Path(outputs_root()) / config.scale / name))


def _chosen(option: str, given: Sequence[str], allowed: Sequence[str]) -> list[str]:
    return [_one_of(option, name, allowed) for name in given] or list(allowed)


def _one_of(option: str, name: str, allowed: Sequence[str]) -> str:
    if name not in allowed:
        raise ConfigError(f"{option}={name}: {_nearest(name, allowed)}")
    return name


def _nearest(name: str, allowed: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, list(allowed), n=1, cutoff=0.4)
    return (f"did you mean {close[0]}? " if close else "") + f"choose one of {', '.join(allowed)}"
