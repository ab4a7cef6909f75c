"""Progress of running cells, read from their records: nothing is asked of the processes that run them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from seeupo_recipe.records.run import FAILED, FINISHED
from seeupo_recipe.study.plan import Job, duration

LINE_SECONDS = 30.0


class LineCount:
    """Number of whole lines of a file that grows; only the new part is read."""

    def __init__(self, path: Path) -> None:
        self.path, self._size, self._lines = path, 0, 0

    def __call__(self) -> int:
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            return 0
        if size < self._size:
            self._size = self._lines = 0
        if size > self._size:
            with self.path.open("rb") as handle:
                handle.seek(self._size)
                self._lines += handle.read(size - self._size).count(b"\n")
            self._size = size
        return self._lines


class Tail:
    """How far one job is, in episodes: an iteration counts its rollouts, an evaluation line one."""

    def __init__(self, job: Job) -> None:
        self.job = job
        training = job.run.config.training
        self.iterations = training.iterations
        self._per_iteration = training.tasks_per_iteration * training.group_size
        self.total = self.iterations * self._per_iteration + job.evaluation_rows
        self._metrics = LineCount(job.run.record.folder / "metrics.jsonl")
        self._evaluations = LineCount(job.run.record.folder / "eval.jsonl")

    def done(self) -> int:
        return min(self.total, self._metrics() * self._per_iteration + self._evaluations())

    def text(self) -> str:
        iteration, rows = self._metrics(), self._evaluations()
        if iteration < self.iterations:
            return f"{self.job.name}: iteration {iteration}/{self.iterations}"
        return f"{self.job.name}: evaluation {rows}/{self.job.evaluation_rows}"


class Display:
    """A bar on a terminal, a line now and then elsewhere."""

    def __init__(self, jobs: Sequence[Job], workers: int) -> None:
        self._tails = [Tail(job) for job in jobs]
        self._workers = workers
        self._start, self._start_done = time.monotonic(), sum(tail.done() for tail in self._tails)
        self._total = sum(tail.total for tail in self._tails)
        self._last_line = self._start
        self._ended: set[str] = set()
        self._console = Console(stderr=True)
        self._bar = self._make_bar() if self._console.is_terminal else None

    def _make_bar(self) -> Progress:
        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=self._console,
        )
        self._bar_task = bar.add_task("", total=self._total, completed=self._start_done)
        bar.start()
        return bar

    def update(self, open_jobs: Sequence[Job]) -> None:
        """Show the state of things; ``open_jobs`` are those that the present child has yet to end."""
        for tail in self._tails:
            state = tail.job.run.record.status().get("state")
            if tail.job in open_jobs and state in (FINISHED, FAILED) and tail.job.name not in self._ended:
                self._ended.add(tail.job.name)
                self._console.print(f"{tail.job.name}: {state}", highlight=False)
        done = sum(tail.done() for tail in self._tails)
        running = [t for t in self._tails if t.job in open_jobs and t.job.name not in self._ended]
        now = [t.text() for t in running if t.done()][: self._workers] or [t.text() for t in running[:1]]
        if self._bar:
            self._bar.update(self._bar_task, completed=done, description=" | ".join(now[:2]))
        elif time.monotonic() - self._last_line >= LINE_SECONDS:
            self._last_line = time.monotonic()
            self._console.print(f"{self._share(done)}; {' | '.join(now)}", highlight=False, soft_wrap=True)

    def _share(self, done: int) -> str:
        fresh, elapsed = done - self._start_done, time.monotonic() - self._start
        left = duration(elapsed * (self._total - done) / fresh) if fresh else "unknown"
        return f"{100 * done / max(1, self._total):.0f}% after {duration(elapsed)}, {left} to go"

    def close(self) -> None:
        if self._bar:
            self._bar.stop()
