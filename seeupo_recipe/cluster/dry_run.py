"""Every cell composed and checked, then one cell per benchmark and algorithm trained for two iterations on the CPU.

The algorithm's settings, T and G are those of the real cell. Model, tokenizer, lengths, batch and machine are not; the
report lists every setting that differs.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from seeupo_recipe.cluster.cell_process import Outcome, run_in_process
from seeupo_recipe.cluster.cells import Cell
from seeupo_recipe.cluster.dry_report import Report
from seeupo_recipe.cluster.shape import model_shape
from seeupo_recipe.cluster.shrink import ITERATIONS, SIZES, TASKS, DryCell, differences, shrink
from seeupo_recipe.cluster.standin import save_standin
from seeupo_recipe.cluster.validate import validate
from seeupo_recipe.config import RunConfig
from seeupo_recipe.records.run import RunRecord
from seeupo_recipe.runs import outputs_root
from seeupo_recipe.strict import ConfigError

CPU = {
    "VERL_PLATFORM": "cpu",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
}
CELL_SECONDS = 420
DRIFT = 1e-4
GRADIENT = "update/grad_norm_max"


def check_all(cells: Sequence[Cell], report: Report) -> None:
    """Compose and check every cell, with a stand-in for the files of its model."""
    with tempfile.TemporaryDirectory() as folder:
        for cell in cells:
            family = model_shape(cell.config).family
            model = Path(folder) / family
            if not model.exists():
                save_standin(model, (), family, **SIZES)
            try:
                validate(cell.config, model)
            except ConfigError as error:
                report.refused[cell.name] = str(error)
            else:
                report.checked.append(cell.name)


def representatives(cells: Sequence[Cell]) -> list[Cell]:
    """One cell per benchmark and row that trains, taking turns between the models."""
    models = list(dict.fromkeys(cell.config.model.name for cell in cells))
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        if cell.config.training.iterations:
            groups.setdefault((cell.config.benchmark.name, cell.row), []).append(cell)
    chosen = []
    for number, group in enumerate(groups.values()):
        wanted = models[number % len(models)]
        chosen.append(next((c for c in group if c.config.model.name == wanted), group[0]))
    return chosen


def fault(record: RunRecord, config: RunConfig) -> str | None:
    """The first thing that a finished small run did otherwise than its algorithm says; None if nothing."""
    lines = record.metrics()
    if not record.finished or len(lines) != ITERATIONS:
        return f"{len(lines)} of {ITERATIONS} iterations were recorded"
    expected = TASKS * config.training.group_size
    for line in lines:
        played = line["train/trajectories"] + line["train/environment_failures"]
        steps, drift = line["update/optimizer_steps"], line["update/rollout_drift"]
        wanted = len(line["order"]) if config.algorithm.name == "seeupo" else 1
        if played != expected:
            return f"{played} of {expected} trajectories came back"
        if line["train/environment_failures"]:
            return f"the environment failed in {line['train/environment_failures']} of {expected} episodes"
        if steps != wanted:
            return f"{steps:.0f} optimizer steps instead of {wanted}"
        if drift > DRIFT:
            return f"rollout and trainer log-probabilities differ by {drift:.2g}, above {DRIFT:.0e}"
        if not 0 < line[GRADIENT] < float("inf"):
            return f"the gradient's norm is {line[GRADIENT]}"
    return None if record.evaluations() else "nothing was evaluated"


def facts(record: RunRecord) -> dict[str, Any]:
    """What the iterations of a small run showed."""
    lines = record.metrics()
    return {
        "seconds per iteration": round(sum(line["timing_s/step"] for line in lines) / len(lines), 1),
        "mean turns": round(sum(line["train/turns_mean"] for line in lines) / len(lines), 1),
        "rows": [int(line["update/rows"]) for line in lines],
        "optimizer steps": [int(line["update/optimizer_steps"]) for line in lines],
        "drift": max(line["update/rollout_drift"] for line in lines),
        "evaluated": len(record.evaluations()),
    }


def dry_run(
    cells: Sequence[Cell], *, train: bool = True, say: Callable[[str], None] = print, folder: Path | None = None
) -> Report:
    """Check all ``cells`` and train the representatives.

    Args:
        cells: The cells of the real study.
        train: Whether to train beyond the checks.
        say: Gets a line per step.
        folder: For records, logs and checkpoints; default ``dry-run`` among the outputs. What an earlier dry run
            left of a cell is removed.
    """
    report, folder = Report(), folder or outputs_root() / "dry-run"
    check_all(cells, report)
    say(f"{len(report.checked)} of {len(cells)} cells composed and accepted by verl's dataclasses and the plugin")
    if not train:
        return report
    with tempfile.TemporaryDirectory() as models:
        for cell in representatives(cells):
            try:
                dry = shrink(cell, Path(models))
            except ConfigError as error:
                report.not_run[cell.name] = str(error)
                say(f"{cell.name}: not run: {error}")
                continue
            report.add_differences(differences(dry))
            place = folder / cell.name.replace(" ", "--")
            shutil.rmtree(place, ignore_errors=True)
            _take(report, dry, run_in_process(dry.config, place, CPU, timeout=CELL_SECONDS), say)
    return report


def _take(report: Report, dry: DryCell, outcome: Outcome, say: Callable[[str], None]) -> None:
    name = dry.cell.name
    report.seconds += outcome.seconds
    if outcome.error or outcome.record is None:
        found, wrong = {}, outcome.error or "no record was written"
    else:
        found, wrong = facts(outcome.record), fault(outcome.record, dry.config)
    if wrong:
        report.failed[name] = f"{wrong} (log: {outcome.log})"
        say(f"{name}: FAILED: {report.failed[name]}")
        return
    report.runs[name] = {"on": dry.config.benchmark.name, **found}
    say(f"{name}: {ITERATIONS} iterations in {outcome.seconds:.0f} s with start and evaluation")
