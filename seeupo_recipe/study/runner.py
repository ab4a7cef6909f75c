"""Run a plan: cells in a child process, past failures, resumable, stopped cleanly.

verl's cells share one child, and so its imports; when a cell fails, the rest goes on in a fresh child.
The lab's cells share one child with several workers. What a child achieved is read from the records alone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from seeupo_recipe.records.run import FAILED, FINISHED, INTERRUPTED, RUNNING, RecordError
from seeupo_recipe.runs import ROOT
from seeupo_recipe.study.plan import Job, Plan
from seeupo_recipe.study.progress import Display

POLL_SECONDS = 0.5
LOCK_SECONDS = 60.0
INTERRUPT_SECONDS = 60.0
TERMINATE_SECONDS = 10.0
WORKER = (sys.executable, "-m", "seeupo_recipe.study.worker")


@dataclass(frozen=True)
class Failure:
    """A job that did not finish, and why."""

    job: Job
    reason: str


def run_plan(plan: Plan, *, command: Sequence[str] = WORKER) -> list[Failure]:
    """Run every open job and report those that failed.

    Args:
        plan: The plan.
        command: Child command; it is given a file of cells, the backend and the number of workers, and keeps
            to the contract of ``seeupo_recipe.study.worker``.

    Raises:
        KeyboardInterrupt: After a clean stop on Ctrl-C or a termination signal.
    """
    pending, failures = _free(plan.open_jobs)
    if pending:
        plan.log.parent.mkdir(parents=True, exist_ok=True)
        display = Display(plan.open_jobs, plan.workers)
        try:
            with _terminable():
                failures += _run_all(plan, pending, command, display)
        finally:
            display.close()
    for failure in failures:
        print(f"{failure.job.name}: {failure.reason}", file=sys.stderr)
    if failures:
        print(f"{len(failures)} of {len(plan.jobs)} runs did not finish; log: {plan.log}", file=sys.stderr)
    return failures


def _run_all(plan: Plan, pending: list[Job], command: Sequence[str], display: Display) -> list[Failure]:
    failures: list[Failure] = []
    while pending:
        before = {job.run.run_id: _status_stamp(job) for job in pending}
        try:
            code = _run_child(plan, pending, command, display)
            begun = [job for job in pending if _status_stamp(job) != before[job.run.run_id]]
        finally:
            _mark_interrupted(pending)
        ended = [job for job in pending if _ended(job, before)]
        failures += [Failure(job, f"failed, {_error(job)}") for job in ended if not job.run.record.finished]
        rest = [job for job in pending if job not in ended]
        if rest and not ended:
            if not begun:
                return failures + [
                    Failure(job, f"the process ended with status {code} before it began") for job in rest
                ]
            reason = f"the process ended with status {code} before the run did"
            begun[0].run.record.set_status(FAILED, error=reason)
            failures.append(Failure(begun[0], reason))
            rest.remove(begun[0])
        pending = rest
    return failures


def _run_child(plan: Plan, jobs: Sequence[Job], command: Sequence[str], display: Display) -> int:
    """Run one child to its end and return its exit status."""
    labels = {"study": plan.study.name}
    entries = [
        {"config": job.run.config.as_dict(), "labels": {**labels, "variant": job.cell.variant.name}} for job in jobs
    ]
    with tempfile.TemporaryDirectory() as folder, plan.log.open("ab") as log:
        cells = Path(folder) / "cells.json"
        cells.write_text(json.dumps(entries))
        child = subprocess.Popen(
            [*command, str(cells), plan.backend, str(plan.workers)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            start_new_session=True,
        )
        try:
            while child.poll() is None:
                display.update(jobs)
                time.sleep(POLL_SECONDS)
        finally:
            _stop(child)
        display.update(jobs)
        return child.returncode


def _stop(child: subprocess.Popen) -> None:
    """Interrupt a child that still runs, with everything it started; then insist."""
    for sent, patience in (
        (signal.SIGINT, INTERRUPT_SECONDS),
        (signal.SIGTERM, TERMINATE_SECONDS),
        (signal.SIGKILL, None),
    ):
        if child.poll() is not None:
            break
        with suppress(ProcessLookupError):
            os.killpg(child.pid, sent)
        with suppress(subprocess.TimeoutExpired):
            child.wait(patience)
    child.stdin.close()


def _mark_interrupted(jobs: Sequence[Job]) -> None:
    """A run whose process ended without a last word is interrupted."""
    for job in jobs:
        if job.run.record.status().get("state") == RUNNING:
            with suppress(RecordError), job.run.record.locked():
                job.run.record.set_status(INTERRUPTED)


def _status_stamp(job: Job) -> int:
    path = job.run.record.folder / "status.json"
    return path.stat().st_mtime_ns if path.exists() else 0


def _ended(job: Job, before: dict[str, int]) -> bool:
    """Whether the child finished the job, or recorded its failure."""
    state = job.run.record.status().get("state")
    return state == FINISHED or (state == FAILED and _status_stamp(job) != before[job.run.run_id])


def _error(job: Job) -> str:
    return job.run.record.status().get("error") or "no reason recorded"


def _free(jobs: Sequence[Job]) -> tuple[list[Job], list[Failure]]:
    """Jobs whose records no other process holds; waits a while for a process that is just ending."""
    deadline = time.monotonic() + LOCK_SECONDS
    free: list[Job] = []
    held = [job for job in jobs if not _is_free(job)]
    while held and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        held = [job for job in held if not _is_free(job)]
    free = [job for job in jobs if job not in held]
    return free, [Failure(job, "its record is being written by another process") for job in held]


def _is_free(job: Job) -> bool:
    if not job.run.record.folder.exists():
        return True
    try:
        with job.run.record.locked():
            return True
    except RecordError:
        return False


@contextmanager
def _terminable() -> Iterator[None]:
    """Treat a termination signal like Ctrl-C; only the main thread may set a handler."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
