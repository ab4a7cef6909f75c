"""The record of one run, written as it goes and safe against a kill at any moment.

A run's folder holds ``config.yaml`` (resolved), ``manifest.json`` (identity, versions, seeds,
hardware), ``metrics.jsonl`` (a line per iteration), ``eval.jsonl`` (a line per task and sample of an
evaluated checkpoint), ``transcripts.jsonl`` (a few whole episodes) and ``status.json``. Lines are appended
and synced; the last line of a file may be torn by a kill and is then dropped on the next open. Nothing is
overwritten: lines of iterations that are trained again after a resume move to ``superseded.jsonl``.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TRANSCRIPTS = "transcripts.jsonl"
RUNNING, FINISHED, FAILED, INTERRUPTED = "running", "finished", "failed", "interrupted"


class RecordError(RuntimeError):
    """A record that cannot be used; the message says which file and why."""


class RunRecord:
    """Reader and writer of one run's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self.run_id = self.folder.name

    @classmethod
    def create(cls, folder: Path, *, config_yaml: str, manifest: Mapping[str, Any]) -> RunRecord:
        """Open the record, creating it if it does not exist; an existing one keeps its files.

        Raises:
            RecordError: If the folder holds a record of another identity.
        """
        record = cls(folder)
        record.folder.mkdir(parents=True, exist_ok=True)
        if record.manifest_path.exists():
            known = record.manifest()
            if known["identity"] != _plain(manifest["identity"]):
                raise RecordError(f"{record.manifest_path} belongs to another run; move the folder away")
            return record
        _write_atomic(record.folder / "config.yaml", config_yaml)
        _write_atomic(record.manifest_path, _dumps(manifest, indent=2) + "\n")
        record.set_status(RUNNING)
        return record

    @property
    def manifest_path(self) -> Path:
        return self.folder / "manifest.json"

    def manifest(self) -> dict[str, Any]:
        return json.loads(self.manifest_path.read_text())

    def status(self) -> dict[str, Any]:
        """The last status; ``{"state": "running"}`` facts included. Empty if there is none."""
        path = self.folder / "status.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def set_status(self, state: str, **facts: Any) -> None:
        kept = {k: v for k, v in self.status().items() if k not in ("state", "error")}
        kept.update(facts, state=state, updated=time.strftime("%Y-%m-%dT%H:%M:%S%z"))
        _write_atomic(self.folder / "status.json", _dumps(kept, indent=2) + "\n")

    @property
    def finished(self) -> bool:
        return self.status().get("state") == FINISHED

    def metrics(self) -> list[dict[str, Any]]:
        """Metrics lines, one per iteration, ascending."""
        return _read_lines(self.folder / "metrics.jsonl")

    def append_metrics(self, iteration: int, values: Mapping[str, Any]) -> None:
        """Append the line of ``iteration``.

        Raises:
            RecordError: If that iteration is not the next one.
        """
        last = self.last_iteration()
        if iteration != last + 1:
            raise RecordError(f"{self.run_id}: metrics of iteration {iteration} after iteration {last}")
        _append_lines(self.folder / "metrics.jsonl", [{"iteration": iteration, **values}])

    def last_iteration(self) -> int:
        """Number of the last iteration with a metrics line; 0 if there is none."""
        lines = self.metrics()
        return lines[-1]["iteration"] if lines else 0

    def rewind(self, iteration: int) -> None:
        """Move the lines of later iterations to ``superseded.jsonl`` (after a resume)."""
        for name in ("metrics.jsonl", "eval.jsonl", TRANSCRIPTS):
            lines = _read_lines(self.folder / name)
            kept = [line for line in lines if line["iteration"] <= iteration]
            if len(kept) < len(lines):
                moved = [{"file": name, **line} for line in lines if line["iteration"] > iteration]
                _append_lines(self.folder / "superseded.jsonl", moved)
                _write_atomic(self.folder / name, "".join(_dumps(line) + "\n" for line in kept))

    def evaluations(self) -> list[dict[str, Any]]:
        """Evaluation lines in the order in which they were recorded."""
        return _read_lines(self.folder / "eval.jsonl")

    def append_evaluations(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append outcomes; each row has iteration, split, task_id, sample, score, success."""
        _append_lines(self.folder / "eval.jsonl", rows)

    def append_transcripts(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append episodes in the format of ``records/transcripts.py``."""
        _append_lines(self.folder / TRANSCRIPTS, rows)

    def evaluated(self, iteration: int, split: str) -> set[tuple[str, int]]:
        """The (task_id, sample) pairs already recorded for a checkpoint and split."""
        return {
            (row["task_id"], row["sample"])
            for row in self.evaluations()
            if row["iteration"] == iteration and row["split"] == split
        }

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run for one writer.

        Raises:
            RecordError: If another process holds it.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RecordError(
                    f"{self.run_id} is being written by another process; wait for it or stop it"
                ) from None
            yield


def _plain(value: Any) -> Any:
    return json.loads(_dumps(value))


def _dumps(value: Any, **options: Any) -> str:
    return json.dumps(value, default=_encode, allow_nan=False, **options)


def _encode(value: Any) -> Any:
    if hasattr(value, "item"):
        return value.item()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics as JSON values: scalars only, None in place of NaN and infinities."""
    result = {}
    for key, value in values.items():
        value = value.item() if hasattr(value, "item") else value
        if isinstance(value, float) and not math.isfinite(value):
            value = None
        result[key] = value
    return result


def _read_lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    *complete, _torn = path.read_bytes().split(b"\n")
    complete = [line for line in complete if line]
    try:
        lines = json.loads(b"[" + b",".join(complete) + b"]")
    except ValueError as error:
        raise RecordError(f"{path} is damaged before its last line: {error}") from None
    if len(lines) != len(complete):
        raise RecordError(f"{path} is damaged: a line holds more than one object")
    return lines


def _append_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append whole lines and sync; a torn last line of an earlier kill is cut off first."""
    data = "".join(_dumps(row) + "\n" for row in rows).encode()
    with path.open("ab+") as handle:
        size = handle.seek(0, os.SEEK_END)
        if size:
            handle.seek(max(0, size - (1 << 20)))
            tail = handle.read()
            if not tail.endswith(b"\n"):
                handle.truncate(size - len(tail) + tail.rfind(b"\n") + 1)
        handle.seek(0, os.SEEK_END)
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())


def _write_atomic(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("w") as handle:
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(temporary, path)
