"""Apply one-line mutants to a copy of the package; each must be caught by its named test.

    python tests/mutants/run.py            the fast ones (a minute or two)
    python tests/mutants/run.py --all      also those that need verl's worker or a whole run

Exits with 1 if a mutant survives, or if a mutant no longer fits the code.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="also the slow ones")
    parser.add_argument("--only", default="", help="part of a mutant's name")
    arguments = parser.parse_args()
    mutants = yaml.safe_load(Path(__file__).with_name("mutants.yaml").read_text())
    chosen = [m for m in mutants if arguments.only in m["name"] and (arguments.all or not m.get("slow"))]
    survivors = []
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch)
        for name in ("seeupo_recipe", "recipes", "results", "tests", "pyproject.toml"):
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__", "runs"))
            else:
                shutil.copy(source, copy / name)
        for mutant in chosen:
            caught, seconds = is_caught(mutant, copy)
            print(f"{'caught  ' if caught else 'SURVIVED'}  {seconds:5.1f} s  {mutant['name']}", flush=True)
            if not caught:
                survivors.append(mutant["name"])
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants caught")
    return 1 if survivors else 0


def is_caught(mutant: dict, copy: Path) -> tuple[bool, float]:
    """Whether the mutant's test fails (exit code 1: tests ran and failed) with the fault in place."""
    path = copy / "seeupo_recipe" / mutant["file"]
    original = path.read_text()
    if original.count(mutant["old"]) != 1:
        raise SystemExit(
            f"mutant {mutant['name']!r} fits {mutant['file']} {original.count(mutant['old'])} times, not once"
        )
    path.write_text(original.replace(mutant["old"], mutant["new"]))
    started = time.monotonic()
    try:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", mutant["test"]]
        environment = {**os.environ, "PYTHONPATH": str(copy)}
        result = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    finally:
        path.write_text(original)
    if result.returncode not in (0, 1):
        raise SystemExit(f"{mutant['test']} did not run: {result.stdout[-500:]}")
    return result.returncode == 1, time.monotonic() - started


if __name__ == "__main__":
    sys.exit(main())
