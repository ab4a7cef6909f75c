"""One cell in a process of its own: ``python -m seeupo_recipe.cluster.cell_process CONFIG.yaml``.

A cell that crashes takes neither the command nor the next cell with it, and its output goes to a file.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from seeupo_recipe.config import RunConfig, build_config
from seeupo_recipe.records.run import RunRecord

RECORD_LINE = "record: "


@dataclass(frozen=True)
class Outcome:
    """How a cell's process ended.

    Attributes:
        record: Its run record; None if it did not get that far.
        error: One line, None if it finished.
    """

    record: RunRecord | None
    error: str | None
    seconds: float
    log: Path


def run_in_process(config: RunConfig, folder: Path, environment: Mapping[str, str], *, timeout: float) -> Outcome:
    """Run ``config`` with its record and log under ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    path, log = folder / "config.yaml", folder / "log.txt"
    path.write_text(yaml.safe_dump(config.as_dict(), sort_keys=False))
    roots = {"SEEUPO_RESULTS": str(folder / "results"), "SEEUPO_OUTPUTS": str(folder / "outputs")}
    command = [sys.executable, "-m", "seeupo_recipe.cluster.cell_process", str(path)]
    started = time.monotonic()
    with log.open("w") as file:
        try:
            code = subprocess.run(
                command, env={**os.environ, **environment, **roots}, stdout=file, stderr=file, timeout=timeout
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
    seconds = time.monotonic() - started
    lines = log.read_text(errors="replace").splitlines()
    found = [line.removeprefix(RECORD_LINE) for line in lines if line.startswith(RECORD_LINE)]
    record = RunRecord(Path(found[-1])) if found else None
    if code is None:
        error = f"stopped after {timeout:.0f} s"
    elif code:
        recorded = record.status().get("error") if record else None
        error = recorded or next((line for line in reversed(lines) if line.strip()), f"exit status {code}")
    else:
        error = None
    return Outcome(record, error, seconds, log)


def main(path: str) -> None:
    from seeupo_recipe.runs import open_run
    from seeupo_recipe.verl_plugin.session import run_cells

    run = open_run(build_config(yaml.safe_load(Path(path).read_text())))
    print(f"{RECORD_LINE}{run.record.folder}", flush=True)
    run_cells([run])


if __name__ == "__main__":
    main(sys.argv[1])
