"""Match a study's cells with the records; runs of different versions or task sets never share a cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seeupo_recipe.records.run import FAILED, FINISHED, INTERRUPTED
from seeupo_recipe.study.cells import Cell, Selection, full_matrix
from seeupo_recipe.study.spec import Study, Variant
from seeupo_recipe.study.store import NOT_RUN, Context, RecordedRun, Store


@dataclass(frozen=True)
class CellRuns:
    """A cell with its records by seed.

    Attributes:
        cell: The cell.
        runs: Every record of the chosen context by seed, whatever its state.
        expected: Seeds that the study asks for.
    """

    cell: Cell
    runs: Mapping[int, RecordedRun]
    expected: tuple[int, ...]

    @property
    def finished(self) -> list[RecordedRun]:
        """Finished runs in the order of their seeds."""
        return [run for _, run in sorted(self.runs.items()) if run.state == FINISHED]

    def state(self, seed: int) -> str:
        return self.runs[seed].state if seed in self.runs else NOT_RUN

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds that were asked for or have been started."""
        started = {seed for seed, run in self.runs.items() if run.state != NOT_RUN}
        return tuple(sorted(started | set(self.expected)))

    def count(self, state: str) -> int:
        return sum(self.state(seed) == state for seed in self.seeds)

    @property
    def summary(self) -> str:
        """``5/5``, ``3/5: 1 failed, 1 not run``, or ``not run``."""
        if self.count(NOT_RUN) == len(self.seeds):
            return NOT_RUN
        rest = [f"{n} {state}" for state in (FAILED, INTERRUPTED, NOT_RUN) if (n := self.count(state))]
        done = f"{self.count(FINISHED)}/{len(self.seeds)}"
        return f"{done}: {', '.join(rest)}" if rest else done


@dataclass(frozen=True)
class Block:
    """The cells of one backend and model, as a table shows them.

    Attributes:
        backend: ``verl`` or ``lab``.
        model: Recipe name.
        benchmarks: Columns.
        variants: Rows.
        cells: By (variant name, benchmark).
        contexts: Versions, tasks and weights of each benchmark's runs; several only where variants differ in
            the benchmark's or the model's own settings.
        notes: Records that were left out, and why.
    """

    backend: str
    model: str
    benchmarks: tuple[str, ...]
    variants: tuple[Variant, ...]
    cells: Mapping[tuple[str, str], CellRuns]
    contexts: Mapping[str, tuple[Context, ...]]
    notes: tuple[str, ...]

    def __getitem__(self, key: tuple[str, str]) -> CellRuns:
        return self.cells[key]

    @property
    def name(self) -> str:
        return f"{self.model} through {self.backend}"

    @property
    def started(self) -> bool:
        return any(run.state != NOT_RUN for cell in self.cells.values() for run in cell.runs.values())


def collect(study: Study, selection: Selection, store: Store) -> list[Block]:
    """Blocks of a study, in the order of its models, verl before the lab."""
    matrix = study.matrix(selection.scale)
    cells = {(c.backend, c.model, c.benchmark, c.variant.name): c for c in full_matrix(study, selection)}
    blocks = []
    for backend in dict.fromkeys(c.backend for c in cells.values()):
        for model in matrix.models:
            chosen: dict[tuple[str, str], CellRuns] = {}
            contexts: dict[str, tuple[Context, ...]] = {}
            notes: list[str] = []
            for benchmark in matrix.benchmarks:
                column = [cells[backend, model, benchmark, v.name] for v in study.variants]
                newest = _newest_contexts(column, store)
                contexts[benchmark] = tuple(dict.fromkeys(c for c in newest.values() if c))
                for cell in column:
                    context = newest[cell.setting]
                    runs = {run.seed: run for run in store.of(cell.key) if run.context == context}
                    expected = tuple(range(study.defaults.seeds))
                    chosen[cell.variant.name, benchmark] = CellRuns(cell, runs, expected)
                    notes += [
                        f"{run.run_id}: left out, {run.context}; this block has {context}"
                        for run in store.of(cell.key)
                        if run.context != context
                    ]
            blocks.append(
                Block(backend, model, matrix.benchmarks, study.variants, chosen, contexts, tuple(sorted(notes)))
            )
    return blocks


def _newest_contexts(column: Sequence[Cell], store: Store) -> dict[str, Context | None]:
    """By setting, the context of the run that was created last: what the same command would add to today."""
    found: dict[str, Context | None] = {}
    for setting in dict.fromkeys(cell.setting for cell in column):
        runs = [run for cell in column if cell.setting == setting for run in store.of(cell.key)]
        newest = max(runs, key=lambda run: (run.created, run.run_id), default=None)
        found[setting] = newest.context if newest else None
    return found
