"""From a config to its run record: identity, run id, manifest. Imports neither torch nor verl."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import yaml

from seeupo_recipe.algo import ALGORITHM_VERSION
from seeupo_recipe.algo.settings import AlgorithmSettings
from seeupo_recipe.config import RunConfig
from seeupo_recipe.envs.base import load_benchmark
from seeupo_recipe.records.identity import digest, folder_digest, make_run_id
from seeupo_recipe.records.run import RunRecord
from seeupo_recipe.strict import ConfigError, default_values, with_defaults, without_defaults

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("verl", "torch", "transformers", "tensordict", "ray", "TransferQueue", "vllm", "flash-attn", "numpy")


@dataclass(frozen=True)
class Run:
    """A config with its record and its folder for checkpoints and logs."""

    config: RunConfig
    record: RunRecord
    outputs: Path

    @property
    def run_id(self) -> str:
        return self.record.run_id


def results_root() -> Path:
    """Folder of run records: ``SEEUPO_RESULTS`` or ``results/`` of the checkout."""
    return Path(os.environ.get("SEEUPO_RESULTS", ROOT / "results"))


def outputs_root() -> Path:
    """Folder of checkpoints and logs, not under version control: ``SEEUPO_OUTPUTS`` or ``outputs/``."""
    return Path(os.environ.get("SEEUPO_OUTPUTS", ROOT / "outputs"))


def definition(config: RunConfig) -> dict[str, Any]:
    """The config's part of a run's identity: what changes the result, where it differs from the defaults.

    A new key thus leaves the identity of recorded runs alone; a changed default needs a new
    ``ALGORITHM_VERSION``. Left out is what a run never reads: the ``verl`` section in the lab, the critic of a
    method without one, SeeUPO's choices of a baseline. Where and how often a checkpoint is saved does not
    change a result either.
    """
    plain = config.as_dict()
    plain["training"].pop("checkpoint_every")
    if config.backend == "lab":
        plain.pop("verl")
    if config.algorithm.name != "ppo":
        plain["algorithm"].pop("critic")
    if config.algorithm.name != "seeupo":
        plain["algorithm"].pop("seeupo")
    return without_defaults(plain, _defaults())


def full_definition(defined: Mapping[str, Any]) -> dict[str, Any]:
    """What :func:`definition` stands for, with the defaults filled in."""
    return with_defaults(defined, _defaults())


@cache
def _defaults() -> dict[str, Any]:
    defaults = default_values(RunConfig)
    defaults["algorithm"]["seeupo"] = AlgorithmSettings().as_dict()
    return defaults


def identity(config: RunConfig) -> dict[str, Any]:
    """Everything that defines the result of a run, and nothing else.

    Raises:
        ConfigError: If the model's weights are not there.
    """
    benchmark = load_benchmark(config.benchmark.name, **config.benchmark.options)
    return {
        "algorithm_version": ALGORITHM_VERSION,
        "benchmark": config.benchmark.name,
        "model": config.model.name,
        "algorithm": config.algorithm.name,
        "seed": config.seed,
        "config": definition(config),
        "benchmark_version": benchmark.version,
        "tasks": {split: digest(list(benchmark.task_ids(split)), 16) for split in _splits(config)},
        "weights": weights_digest(config),
    }


def benchmark_facts(config: RunConfig) -> dict[str, Any]:
    """What readers of a record need of its benchmark without loading it: task counts and the optimum if known."""
    benchmark = load_benchmark(config.benchmark.name, **config.benchmark.options)
    optimum = getattr(benchmark, "optimum", None)
    return {
        "task_counts": {split: len(benchmark.task_ids(split)) for split in _splits(config)},
        "optimum": optimum() if optimum else None,
    }


def _splits(config: RunConfig) -> list[str]:
    benchmark = config.benchmark
    return sorted({benchmark.train_split, benchmark.validation_split, benchmark.test_split})


def weights_digest(config: RunConfig) -> str:
    """Hash of the initial weights' folder, or the hub name and revision of a model that is no folder.

    Raises:
        ConfigError: If a mini model's warm start is missing.
    """
    folder = ROOT / config.model_path
    if folder.is_dir():
        return folder_digest(folder, 16)
    if config.scale == "mini":
        raise ConfigError(
            f"no weights in {config.model_path}: "
            f"make warm-start MODEL={config.model.name} BENCH={config.benchmark.name}"
        )
    return config.model_path


def locate_run(config: RunConfig) -> Run:
    """The run of ``config``, whether or not its record exists yet."""
    return _run(config, identity(config))


def open_run(config: RunConfig, *, labels: Mapping[str, Any] | None = None) -> Run:
    """The run of ``config``, with its record created if it does not exist yet."""
    named = identity(config)
    run = _run(config, named)
    RunRecord.create(
        run.record.folder,
        config_yaml=yaml.safe_dump(config.as_dict(), sort_keys=False),
        manifest={
            "run_id": run.run_id,
            "identity": named,
            "benchmark": benchmark_facts(config),
            "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "commit": _commit(),
            "versions": _versions(),
            "hardware": _hardware(),
            "labels": dict(labels or {}),
        },
    )
    return run


def _run(config: RunConfig, named: Mapping[str, Any]) -> Run:
    run_id = make_run_id(named)
    record = RunRecord(results_root() / config.scale / "runs" / run_id)
    return Run(config, record, outputs_root() / config.scale / run_id)


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _hardware() -> dict[str, Any]:
    return {
        "machine": platform.machine(),
        "cores": psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "gpus": sorted(p.name for p in Path("/proc/driver/nvidia/gpus").glob("*")),
    }


def _commit() -> str | None:
    """The checkout's commit, with ``+dirty`` if files differ; None outside a git checkout."""
    try:
        commit = _git("rev-parse", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit + ("+dirty" if changed else "")


def _git(*arguments: str) -> str:
    result = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return result.stdout.strip()
