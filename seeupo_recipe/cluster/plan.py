"""What the selected cells take before anything starts: memory, tokens, disk, hours; what cannot fit is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from seeupo_recipe.cluster.cells import Cell, verl_tree
from seeupo_recipe.cluster.hours import Estimate, Measured, measured_runs, seconds_per_iteration
from seeupo_recipe.cluster.memory import (
    KEPT_CHECKPOINTS,
    Layout,
    Phase,
    cache_tokens,
    checkpoint_gib,
    host_gib,
    phases,
    read_layout,
)
from seeupo_recipe.cluster.remedies import problems
from seeupo_recipe.cluster.shape import ModelShape, model_shape
from seeupo_recipe.runs import ROOT

GPUS = {"H20": 97871, "H100": 81559, "A100": 81920, "H200": 143771}
"""Total memory in MiB as nvidia-smi reports it; the paper's GPU comes first."""
REPLAYS = ROOT / "results" / "paper_scale" / "bfcl_tokens.json"
DATASETS = Path(__file__).with_name("datasets.json")


@dataclass(frozen=True)
class CellPlan:
    """What one cell takes.

    Attributes:
        cache_rows: Longest contexts that all vLLM replicas hold at a time.
        host_gib: Main memory per node.
        disk_gib: Checkpoints while one is being written.
        most_tokens: Tokens of an iteration's rows if every one has the longest length, in millions.
        replayed_tokens: The same along an expert's replays, in millions; None if not measured.
        pace: Seconds per iteration; None if nothing like it has been measured.
        problems: Why it cannot run, with what to change.
    """

    cell: Cell
    layout: Layout
    phases: list[Phase]
    cache_rows: float
    host_gib: float
    disk_gib: float
    most_tokens: float
    replayed_tokens: float | None
    pace: Estimate | None
    problems: list[str]

    @property
    def peak(self) -> Phase:
        return max(self.phases, key=lambda phase: phase.total)

    @property
    def hours(self) -> float | None:
        """Of training; evaluations are not in the paper's step times."""
        return None if self.pace is None else self.cell.config.training.iterations * self.pace.seconds / 3600

    @property
    def evaluation_share(self) -> float | None:
        """Episodes of all evaluations for each training episode."""
        config = self.cell.config
        training, evaluation = config.training, config.evaluation
        sizes = json.loads(DATASETS.read_text()).get(config.benchmark.name, {}).get("splits", {})
        if not training.iterations or not {config.benchmark.test_split, config.benchmark.validation_split} <= set(
            sizes
        ):
            return None
        final = sizes[config.benchmark.test_split]["tasks"] * evaluation.samples_per_task
        times = training.iterations // evaluation.every if evaluation.every else 0
        periodic = sizes[config.benchmark.validation_split]["tasks"] * evaluation.periodic_samples * times
        return (final + periodic) / (training.iterations * training.tasks_per_iteration * training.group_size)


def plan_cell(cell: Cell, gpu_gib: float, measured: Sequence[Measured] = ()) -> CellPlan:
    """Plan one cell on GPUs of ``gpu_gib``.

    Raises:
        ConfigError: If the model's sizes are not known, or verl does not know a key.
    """
    config = cell.config
    layout, shape = read_layout(verl_tree(config)), model_shape(config)
    trajectories = config.training.tasks_per_iteration * config.training.group_size
    return CellPlan(
        cell=cell,
        layout=layout,
        phases=phases(layout, shape, gpu_gib),
        cache_rows=max(0.0, cache_tokens(layout, shape, gpu_gib)) / layout.row * layout.ranks / layout.tensor_parallel,
        host_gib=host_gib(layout, shape),
        disk_gib=_checkpoints(cell, layout, shape),
        most_tokens=trajectories * config.benchmark.max_turns * layout.row / 1e6,
        replayed_tokens=_replayed(config.benchmark.name, config.benchmark.train_split, trajectories),
        pace=None if config.algorithm.name == "base" else seconds_per_iteration(config, measured),
        problems=problems(layout, shape, gpu_gib),
    )


def _checkpoints(cell: Cell, layout: Layout, shape: ModelShape) -> float:
    return KEPT_CHECKPOINTS * checkpoint_gib(layout, shape) if cell.config.training.iterations else 0.0


def _replayed(benchmark: str, split: str, trajectories: int) -> float | None:
    if benchmark != "bfcl":
        return None
    splits = json.loads(REPLAYS.read_text())["splits"]
    return splits[split]["trajectory"]["mean"] * trajectories / 1e6 if split in splits else None


def make_plan(cells: Sequence[Cell], gpu_gib: float) -> list[CellPlan]:
    """Plans of all cells, with the pace of earlier runs at their scale."""
    measured = {scale: measured_runs(scale) for scale in {cell.config.scale for cell in cells}}
    return [plan_cell(cell, gpu_gib, measured[cell.config.scale]) for cell in cells]


def show(plans: Sequence[CellPlan], gpu_gib: float, console: Console, *, details: bool = False) -> None:
    """Print the table, its totals, and what does not fit."""
    table = Table(title=f"GPUs of {gpu_gib:.1f} GiB", title_justify="left", box=None, pad_edge=False)
    for name in ("cell", "GPUs", "peak GiB", "in", "contexts", "host GiB", "disk GiB", "Mtokens", "s/iteration"):
        table.add_column(name, justify="left" if name in ("cell", "in") else "right")
    for name in ("hours", "GPU hours"):
        table.add_column(name, justify="right")
    for p in plans:
        table.add_row(*_row(p))
    console.print(table)
    known = [p for p in plans if p.hours is not None]
    if known:
        hours, gpu_hours = sum(p.hours for p in known), sum(p.hours * p.layout.gpus for p in known)
        console.print(f"total: {hours:.0f} hours one after the other, {gpu_hours:.0f} GPU hours of training")
    _notes(plans, console)
    if details:
        for p in plans:
            console.print(f"\n{p.cell.name}")
            for phase in p.phases:
                parts = ", ".join(f"{name} {size:.1f}" for name, size in phase.parts.items())
                console.print(f"  {phase.name}: {phase.total:.1f} GiB = {parts}")
    for p in plans:
        for problem in p.problems:
            console.print(f"[red]refused[/red] {p.cell.name}: {problem}", soft_wrap=True)


def _row(p: CellPlan) -> list[str]:
    tokens = f"{p.most_tokens:.0f}" + (f" ({p.replayed_tokens:.0f})" if p.replayed_tokens else "")
    pace = "not measured" if p.pace is None else f"{p.pace.seconds:.0f}"
    trained = p.cell.config.training.iterations > 0
    return [
        p.cell.name,
        str(p.layout.gpus),
        f"{p.peak.total:.0f}",
        p.peak.name,
        f"{p.cache_rows:.0f}",
        f"{p.host_gib:.0f}",
        f"{p.disk_gib:.0f}",
        tokens if trained else "-",
        pace if trained else "-",
        "-" if p.hours is None else f"{p.hours:.0f}",
        "-" if p.hours is None else f"{p.hours * p.layout.gpus:.0f}",
    ]


def _notes(plans: Sequence[CellPlan], console: Console) -> None:
    sources = sorted({p.pace.source for p in plans if p.pace})
    for line in (
        "contexts: longest contexts that vLLM holds at a time. disk: last, best and new checkpoint of one cell.",
        "Mtokens: rows of an iteration at the length limits (in brackets: mean of an expert's replays, no thinking).",
        f"s/iteration: {'; '.join(sources)}. Table 3 is of H20 GPUs, and without evaluations." if sources else "",
        *sorted(
            {
                f"evaluations of {p.cell.config.benchmark.name}: {100 * share:.0f} episodes per 100 of training"
                for p in plans
                if (share := p.evaluation_share)
            }
        ),
    ):
        if line:
            console.print(line, soft_wrap=True)


def as_json(plans: Sequence[CellPlan]) -> list[dict[str, Any]]:
    """The plans as plain values."""
    return [
        {
            "cell": p.cell.name,
            "gpus": p.layout.gpus,
            "phases": {phase.name: dict(phase.parts) for phase in p.phases},
            "contexts": round(p.cache_rows, 1),
            "host_gib": round(p.host_gib, 1),
            "disk_gib": round(p.disk_gib, 1),
            "most_mtokens": round(p.most_tokens, 1),
            "replayed_mtokens": p.replayed_tokens and round(p.replayed_tokens, 1),
            "seconds_per_iteration": p.pace and round(p.pace.seconds, 2),
            "source": p.pace and p.pace.source,
            "hours": p.hours and round(p.hours, 1),
            "problems": p.problems,
        }
        for p in plans
    ]
