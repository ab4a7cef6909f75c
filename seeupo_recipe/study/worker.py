"""The child process that runs cells: ``python -m seeupo_recipe.study.worker CELLS BACKEND WORKERS``.

CELLS is a JSON file: a list of ``{"config": ..., "labels": ...}``. The parent keeps this process's standard
input open; when it closes, because the parent is gone, the process and its own children are interrupted, so
that the next command finds the records free. An interrupt or a termination is recorded by the sessions.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seeupo_recipe.config import build_config
from seeupo_recipe.runs import Run, open_run

GRACE_SECONDS = 30.0


def main(cells: str, backend: str, workers: str) -> None:
    """Run all cells of the file ``cells``.

    Raises:
        Exception: What stopped a cell, after it has been recorded.
    """
    end_with_parent()
    entries = json.loads(Path(cells).read_text())
    if backend == "lab":
        from seeupo_recipe.lab.session import run_cells

        run_cells(list(_open(entries)), int(workers))
    else:
        from seeupo_recipe.verl_plugin.session import run_cells

        run_cells(_open(entries))


def _open(entries: list[dict[str, Any]]) -> Iterator[Run]:
    """Runs one by one, each record created when its turn comes."""
    for entry in entries:
        yield open_run(build_config(entry["config"]), labels=entry["labels"])


def end_with_parent() -> None:
    """Interrupt this process group when standard input closes; take a termination signal for an interrupt.

    The interrupt is handled even if this process was started with it ignored, as shells do in the background.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    threading.Thread(target=_watch_parent, daemon=True).start()


def _watch_parent() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.killpg(os.getpgrp(), signal.SIGINT)
    time.sleep(GRACE_SECONDS)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
