"""What a study's `run` will do: its cells at their seeds, their records, and about how long the rest takes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seeupo_recipe.envs.base import load_benchmark
from seeupo_recipe.records.run import FINISHED
from seeupo_recipe.runs import Run, locate_run, outputs_root
from seeupo_recipe.study.cells import COMPOSER, Cell, Selection, selected_cells, selected_seeds
from seeupo_recipe.study.estimate import Estimator
from seeupo_recipe.study.spec import Study
from seeupo_recipe.study.store import NOT_RUN, load_store


@dataclass(frozen=True)
class Job:
    """One cell at one seed.

    Attributes:
        cell: The cell.
        run: Its run; the record need not exist yet.
        state: State of the record when the plan was made.
        evaluation_rows: Lines that its evaluations will have in all.
        seconds: Estimate of what is left to do; None without earlier runs.
    """

    cell: Cell
    run: Run
    state: str
    evaluation_rows: int
    seconds: float | None

    @property
    def name(self) -> str:
        return f"{self.cell.name} seed {self.run.config.seed}"


@dataclass(frozen=True)
class Plan:
    """The jobs of one `run`; ``workers`` lab cells run at a time, one verl cell."""

    study: Study
    selection: Selection
    backend: str
    workers: int
    jobs: Sequence[Job]

    @property
    def open_jobs(self) -> list[Job]:
        return [job for job in self.jobs if job.state != FINISHED]

    @property
    def log(self) -> Path:
        """Where the output of the cells goes."""
        return outputs_root() / self.selection.scale / "logs" / f"{self.study.name}-{self.backend}.log"

    @property
    def seconds(self) -> float | None:
        """Estimate for all open jobs; None if one has none."""
        each = [job.seconds for job in self.open_jobs]
        return None if None in each else sum(each) / self.workers


def make_plan(study: Study, selection: Selection, *, workers: int = 0) -> Plan:
    """Compose and locate every selected run.

    Args:
        study: The study.
        selection: Which part of it.
        workers: Lab cells at a time; 0 for one per core. verl takes one cell after the other.

    Raises:
        ConfigError: For a wrong name or value, or missing initial weights.
    """
    cells = selected_cells(study, selection)
    COMPOSER.save()
    store = load_store(selection.scale)
    known = {run.run_id: run for run in store.all}
    estimator = Estimator(store.all)
    jobs = []
    for seed in selected_seeds(study, selection):
        for cell in cells:
            run = locate_run(cell.at(seed))
            recorded = known.get(run.run_id)
            state = recorded.state if recorded else NOT_RUN
            jobs.append(Job(cell, run, state, _evaluation_rows(run), estimator.seconds(run.config, recorded)))
    backend = cells[0].backend
    parallel = (workers or os.cpu_count() or 1) if backend == "lab" else 1
    return Plan(study, selection, backend, parallel, jobs)


def _evaluation_rows(run: Run) -> int:
    benchmark, evaluation = run.config.benchmark, run.config.evaluation
    loaded = load_benchmark(benchmark.name, **benchmark.options)
    rounds = run.config.training.iterations // evaluation.every if evaluation.every else 0
    periodic = rounds * len(loaded.task_ids(benchmark.validation_split)) * evaluation.periodic_samples
    return periodic + len(loaded.task_ids(benchmark.test_split)) * evaluation.samples_per_task


def show_plan(plan: Plan, *, every: bool) -> None:
    """Print what will run: a line per state, and with ``every`` a line per job."""
    if every:
        for job in plan.jobs:
            left = "" if job.state == FINISHED else duration(job.seconds)
            print(f"{job.state:12} {job.name:60} {left:>10}  {job.run.run_id}")
    counts = {
        state: sum(job.state == state for job in plan.jobs) for state in dict.fromkeys(j.state for j in plan.jobs)
    }
    listed = ", ".join(f"{count} {state}" for state, count in counts.items())
    print(f"{plan.study.title}, {plan.selection.scale} scale, through {plan.backend}: {len(plan.jobs)} runs ({listed})")
    if plan.open_jobs:
        print(
            f"{len(plan.open_jobs)} to run, {plan.workers} at a time, about {duration(plan.seconds)}; log: {plan.log}"
        )


def duration(seconds: float | None) -> str:
    """``unknown``, ``42 s``, ``12 min`` or ``3.4 h``."""
    if seconds is None:
        return "unknown"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
