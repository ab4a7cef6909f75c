"""How long a cell takes: the paper's Table 3, corrected by what this machine has been measured to take.

The paper gives seconds per training step for each method, in part per benchmark, on H20 GPUs. As soon as a run at the
same scale has a few iterations in its record, the ratio of its seconds to the paper's corrects all estimates, and the
measured cells are estimated from themselves.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

from seeupo_recipe.config import RunConfig
from seeupo_recipe.records.run import RunRecord
from seeupo_recipe.runs import ROOT, results_root

NUMBERS = ROOT / "results" / "paper" / "numbers.csv"
METHODS = {"ppo": "PPO", "grpo": "GRPO", "gspo": "GSPO", "seeupo": "SeeUPO"}
FEWEST_ITERATIONS = 3


@dataclass(frozen=True)
class Estimate:
    """Seconds per iteration, and in one word or two where they come from."""

    seconds: float
    source: str


@lru_cache
def table3() -> dict[tuple[str, str, str], float]:
    """Seconds per step by (model, benchmark or ``average``, method), lower-case model."""
    with NUMBERS.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["table"] == "3"]
    return {(row["model"].lower(), row["benchmark"], row["method"]): float(row["value"]) for row in rows}


def paper_seconds(config: RunConfig) -> Estimate | None:
    """The paper's seconds per step of a cell: for its benchmark if stated, else the average of both."""
    method = METHODS.get(config.algorithm.name)
    for benchmark in (config.benchmark.paper_name, "average"):
        seconds = table3().get((config.model.name.lower(), benchmark, method))
        if seconds is not None:
            return Estimate(seconds, "Table 3" if benchmark != "average" else "Table 3, average of both benchmarks")
    return None


@dataclass(frozen=True)
class Measured:
    """Seconds per iteration of a recorded run, and the peak of its GPUs' reserved memory in GiB if recorded."""

    config: dict[str, Any]
    seconds: float
    memory_gib: float | None


def measured_runs(scale: str) -> list[Measured]:
    """The recorded runs at ``scale`` with enough iterations to tell."""
    folder = results_root() / scale / "runs"
    return [m for path in sorted(folder.glob("*/manifest.json")) if (m := _measure(path.parent))]


def _measure(folder: Path) -> Measured | None:
    lines = RunRecord(folder).metrics()
    steps = [line["timing_s/step"] for line in lines if line.get("timing_s/step")]
    if len(steps) < FEWEST_ITERATIONS:
        return None
    memory = [m for line in lines if (m := line.get("actor/perf/max_memory_reserved_gb"))]
    config = json.loads((folder / "manifest.json").read_text())["identity"]["config"]
    return Measured(config, median(steps), max(memory, default=None))


def seconds_per_iteration(config: RunConfig, measured: Sequence[Measured]) -> Estimate | None:
    """The best estimate for a cell; None if nothing like it has been measured and the paper does not state it."""
    own = [m.seconds for m in measured if _same_cell(m.config, config)]
    if own:
        return Estimate(median(own), "measured")
    stated = paper_seconds(config)
    if stated is None:
        return None
    ratios = [m.seconds / known for m in measured if (known := _paper_seconds_of(m.config))]
    if not ratios:
        return stated
    factor = median(ratios)
    return Estimate(stated.seconds * factor, f"{stated.source} x {factor:.2f} measured here")


def _same_cell(found: dict[str, Any], config: RunConfig) -> bool:
    wanted = config.as_dict()
    return all(found[part]["name"] == wanted[part]["name"] for part in ("model", "benchmark", "algorithm"))


def _paper_seconds_of(found: dict[str, Any]) -> float | None:
    key = (found["model"]["name"].lower(), found["benchmark"]["paper_name"], METHODS.get(found["algorithm"]["name"]))
    return table3().get(key) or table3().get((key[0], "average", key[2]))
