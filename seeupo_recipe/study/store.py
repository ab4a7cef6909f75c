"""Recorded runs as they lie under ``results/<scale>/runs``, found by what defines them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seeupo_recipe.algo import ALGORITHM_VERSION
from seeupo_recipe.records.identity import digest, make_run_id
from seeupo_recipe.records.run import FAILED, FINISHED, INTERRUPTED, RecordError, RunRecord
from seeupo_recipe.runs import full_definition, results_root
from seeupo_recipe.study.cells import definition_key

NOT_RUN = "not run"


class Count(NamedTuple):
    """Outcomes of one task at one checkpoint.

    Attributes:
        cluster: The task's cluster.
        played: All samples.
        n: Samples without an environment failure.
        c: Successes among those.
        total: Sum of their scores.
    """

    cluster: str
    played: int
    n: int
    c: int
    total: float


Tally = Mapping[str, Count]


class Context(NamedTuple):
    """What must be equal for runs to be averaged or compared."""

    algorithm_version: str
    benchmark_version: str
    tasks: str
    weights: str

    def __str__(self) -> str:
        return (
            f"algorithm version {self.algorithm_version}, benchmark version {self.benchmark_version}, "
            f"tasks {self.tasks}, initial weights {self.weights}"
        )


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """One record, read lazily and never written; equal to itself only.

    Attributes:
        record: Its files.
        manifest: The manifest.
        key: Digest of its definition without the seed, as ``Cell.key``.
    """

    record: RunRecord
    manifest: Mapping[str, Any]
    key: str

    @property
    def run_id(self) -> str:
        return self.record.run_id

    @cached_property
    def config(self) -> Mapping[str, Any]:
        return full_definition(self.manifest["identity"]["config"])

    @property
    def seed(self) -> int:
        return self.manifest["identity"]["seed"]

    @cached_property
    def context(self) -> Context:
        identity = self.manifest["identity"]
        return Context(
            identity["algorithm_version"],
            identity["benchmark_version"],
            digest(identity["tasks"], 8),
            str(identity["weights"]),
        )

    @property
    def created(self) -> float:
        """Time of creation, seconds since 1970."""
        return timestamp(self.manifest["created"])

    @property
    def iterations(self) -> int:
        """Iterations of training that the config asks for."""
        return self.config["training"]["iterations"]

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """Metrics lines, one per iteration."""
        return self.record.metrics()

    def series(self, name: str) -> np.ndarray:
        """A metric by iteration, (iterations,); NaN where it was not recorded or not finite."""
        values = (line.get(name) for line in self.metrics)
        return np.array([np.nan if value is None else value for value in values], dtype=float)

    def has(self, name: str) -> bool:
        """Whether any iteration recorded the metric."""
        return any(line.get(name) is not None for line in self.metrics)

    @cached_property
    def state(self) -> str:
        """``finished``, ``failed``, ``interrupted`` or ``not run``; finished only with a whole evaluation."""
        status = self.record.status().get("state")
        if status == FAILED or self.damage:
            return FAILED
        if status == FINISHED:
            return FINISHED if self.missing_samples == 0 else FAILED
        return INTERRUPTED if self.metrics or self.tallies else NOT_RUN

    @cached_property
    def damage(self) -> str | None:
        """What cannot be read of the record."""
        try:
            _ = self.metrics, self.tallies
        except (RecordError, KeyError, TypeError) as error:
            return str(error)
        return None

    @cached_property
    def missing_samples(self) -> int:
        """Samples that the final evaluation of the test split lacks."""
        final = self.tally(self.test_split, self.iterations) or {}
        wanted = self.config["evaluation"]["samples_per_task"]
        tasks = self.manifest.get("benchmark", {}).get("task_counts", {}).get(self.test_split)
        return wanted * (tasks or max(1, len(final))) - sum(min(count.played, wanted) for count in final.values())

    @property
    def problem(self) -> str:
        """Why the run is not finished, in words."""
        if self.damage:
            return self.damage
        if self.state == FAILED:
            if self.record.status().get("state") == FINISHED:
                return f"its evaluation lacks {self.missing_samples} samples"
            return self.record.status().get("error") or "failed"
        return f"stopped after iteration {len(self.metrics)} of {self.iterations}"

    @cached_property
    def tallies(self) -> Mapping[tuple[str, int], Tally]:
        """Counts by task of every evaluated (split, iteration); a sample counts once."""
        seen: set[tuple] = set()
        counts: dict[tuple[str, int], dict[str, list]] = {}
        for row in self.record.evaluations():
            sample = (row["split"], row["iteration"], row["task_id"], row["sample"])
            if sample in seen:
                continue
            seen.add(sample)
            count = counts.setdefault(sample[:2], {}).setdefault(row["task_id"], [str(row["cluster"]), 0, 0, 0, 0.0])
            count[1] += 1
            if row["failure"] is None:
                count[2] += 1
                count[3] += bool(row["success"])
                count[4] += row["score"]
        return {key: {task: Count(*count) for task, count in tasks.items()} for key, tasks in counts.items()}

    def tally(self, split: str, iteration: int) -> Tally | None:
        """Counts by task of one checkpoint; None if it was not evaluated on ``split``."""
        return self.tallies.get((split, iteration))

    @property
    def test_split(self) -> str:
        return self.config["benchmark"]["test_split"]

    @property
    def validation_split(self) -> str:
        return self.config["benchmark"]["validation_split"]

    def validation_scores(self) -> dict[int, float]:
        """Mean validation score of every evaluated iteration, ascending."""
        scores = {}
        for split, iteration in sorted(self.tallies):
            counts = self.tallies[split, iteration].values()
            if split == self.validation_split and (n := sum(count.n for count in counts)):
                scores[iteration] = sum(count.total for count in counts) / n
        return scores

    @property
    def epoch_iterations(self) -> int | None:
        """Iterations per epoch: whole batches of the training tasks (the last incomplete one is dropped)."""
        counts = self.manifest.get("benchmark", {}).get("task_counts", {})
        tasks = counts.get(self.config["benchmark"]["train_split"])
        return tasks // self.config["training"]["tasks_per_iteration"] if tasks else None

    @property
    def optimum(self) -> float | None:
        """Largest expected success of any policy, where the benchmark knows it."""
        return self.manifest.get("benchmark", {}).get("optimum")

    @property
    def hardware(self) -> str:
        facts = self.manifest.get("hardware", {})
        gpus = ", ".join(facts.get("gpus", [])) or "no GPU"
        return f"{facts.get('cores', '?')} cores, {facts.get('memory_gib', '?')} GiB, {gpus}"


@dataclass(frozen=True)
class Store:
    """All records of a scale.

    Attributes:
        runs: Records by definition key.
        problems: What was left out and why: damaged records, copies, other algorithm versions.
    """

    runs: Mapping[str, list[RecordedRun]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def of(self, key: str) -> list[RecordedRun]:
        """Records of one cell, every seed and context."""
        return self.runs.get(key, [])

    @property
    def all(self) -> list[RecordedRun]:
        return [run for runs in self.runs.values() for run in runs]


def timestamp(text: str) -> float:
    """Seconds since 1970 of a record's time, such as ``2026-11-30T21:59:55+0000``."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S%z").timestamp()


def load_store(scale: str) -> Store:
    """Read the manifests of every record of ``scale``; damaged records and copies are named, not used."""
    chosen: dict[str, RecordedRun] = {}
    problems: list[str] = []
    for folder in sorted((results_root() / scale / "runs").glob("*/")):
        try:
            run = _read(folder)
        except (OSError, ValueError, KeyError, TypeError, RecordError) as error:
            problems.append(f"{folder.name}: damaged record left out ({type(error).__name__}: {error})")
            continue
        version = run.context.algorithm_version
        if version != ALGORITHM_VERSION:
            problems.append(f"{folder.name}: left out, algorithm version {version} and not {ALGORITHM_VERSION}")
            continue
        identity = digest(run.manifest["identity"])
        if identity in chosen:
            named = make_run_id(run.manifest["identity"])
            if run.run_id == named:
                run, chosen[identity] = chosen[identity], run
            problems.append(f"{run.run_id}: copy of {chosen[identity].run_id}, left out")
            continue
        chosen[identity] = run
    runs: dict[str, list[RecordedRun]] = {}
    for run in chosen.values():
        runs.setdefault(run.key, []).append(run)
    return Store(runs, tuple(sorted(problems)))


def _read(folder: Path) -> RecordedRun:
    record = RunRecord(folder)
    if not record.manifest_path.exists():
        raise RecordError("no manifest.json")
    manifest = json.loads(record.manifest_path.read_text())
    run = RecordedRun(record, manifest, definition_key(manifest["identity"]["config"]))
    _ = run.context, run.seed, run.iterations, run.created, record.status()
    return run
