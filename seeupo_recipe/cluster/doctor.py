"""Whether this machine can run the selected cells: one page of pass and fail, before anything heavy starts."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import psutil
from packaging.version import Version
from rich.console import Console

from seeupo_recipe.cluster import machine
from seeupo_recipe.cluster.cells import Cell
from seeupo_recipe.cluster.environments import check_environment, check_tasks
from seeupo_recipe.cluster.memory import KEPT_CHECKPOINTS
from seeupo_recipe.cluster.model_files import check_model, check_template, model_location
from seeupo_recipe.cluster.plan import CellPlan, plan_cell
from seeupo_recipe.runs import outputs_root
from seeupo_recipe.strict import ConfigError

CUDA13_DRIVER = "580.65.06"
"""The oldest Linux driver of CUDA 13.0, for which the pinned torch and flash-attn are built."""
PASS, FAIL = "pass", "FAIL"


@dataclass(frozen=True)
class Finding:
    """One line of the page: what was found, or what is wrong and what to do."""

    check: str
    state: str
    text: str

    @property
    def failed(self) -> bool:
        return self.state == FAIL


class Skipped(Exception):
    """A check that another failure makes impossible."""


def examine(cells: Sequence[Cell]) -> list[Finding]:
    """All checks; none stops the others."""
    plans = _Plans(cells)
    checks: list[tuple[str, Callable[[], str]]] = [
        ("GPUs", plans.gpus),
        ("GPU memory", plans.gpu_memory),
        ("driver", plans.driver),
        ("packages", _packages),
        ("Ray", plans.ray),
        ("main memory", plans.host),
        ("disk", plans.disk),
    ]
    for cell in _first_of(cells, lambda c: c.config.model):
        config = cell.config
        checks.append((f"model {config.model.name}", lambda config=config: check_model(config)))
        checks.append((f"template {config.model.name}", lambda c=config: check_template(c.model, model_location(c))))
    for cell in _first_of(cells, lambda c: c.config.benchmark.name):
        benchmark = cell.config.benchmark
        checks.append((f"environment {benchmark.name}", lambda b=benchmark: check_tasks(b, check_environment(b))))
    return [_run(name, check) for name, check in checks]


def show(findings: Sequence[Finding], console: Console) -> None:
    """A line per check, and the count of failures last."""
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        console.print(f"{finding.state:5} {finding.check:{width}}  {finding.text}", soft_wrap=True, markup=False)
    failed = sum(finding.failed for finding in findings)
    console.print(f"{failed} of {len(findings)} checks failed" if failed else f"all {len(findings)} checks passed")


def _run(name: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(name, PASS, check())
    except Skipped as reason:
        return Finding(name, "-", f"not checked: {reason}")
    except ConfigError as error:
        return Finding(name, FAIL, str(error))


class _Plans:
    """The checks that compare the machine with what the cells need."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._cells = cells
        self._found: list[machine.Gpu] | None = None

    def _local(self) -> list[machine.Gpu]:
        if not self._found:
            raise Skipped("no GPU was found")
        return self._found

    def _at(self, gib: float) -> list[CellPlan]:
        return [plan_cell(cell, gib) for cell in self._cells]

    @cached_property
    def _sizes(self) -> list[CellPlan]:
        return self._at(1.0)  # GPUs' own memory plays no part in counts, main memory and disk

    def gpus(self) -> str:
        self._found = machine.gpus()
        need = max(cell.config.verl["trainer"]["n_gpus_per_node"] for cell in self._cells)
        if len(self._found) < need:
            raise ConfigError(
                f"{len(self._found)} GPUs here, but the cells use {need} per node: take a node with {need}, or set "
                f"verl.trainer.n_gpus_per_node={len(self._found) or 1} and ask `make plan` whether it fits"
            )
        return f"{len(self._found)} x {self._found[0].name}"

    def gpu_memory(self) -> str:
        gib = min(gpu.mib for gpu in self._local()) / 1024
        plans = self._at(gib)
        for plan in plans:
            if plan.problems:
                raise ConfigError(f"{plan.cell.name}: {plan.problems[0]}")
        worst = max(plans, key=lambda plan: plan.peak.total)
        return f"{gib:.0f} GiB; {worst.cell.name} needs most, {worst.peak.total:.0f} GiB in {worst.peak.name}"

    def driver(self) -> str:
        found = min((gpu.driver for gpu in self._local()), key=Version)
        if Version(found) < Version(CUDA13_DRIVER):
            raise ConfigError(f"driver {found}: CUDA 13.0 needs {CUDA13_DRIVER} or later: install it")
        return found

    def ray(self) -> str:
        sizes = self._sizes
        largest = max(sizes, key=lambda plan: plan.layout.gpus)
        address = machine.ray_address()
        if address is None:
            have, where = len(self._local()), "here (RAY_ADDRESS is not set: one node)"
        else:
            nodes = machine.ray_nodes(address)
            have = int(sum(node.get("GPU", 0) for node in nodes))
            where = f"on {len(nodes)} nodes of the cluster at {address}"
        if have < largest.layout.gpus:
            alone = largest.layout.critic and largest.layout.critic_alone
            or_else = ", or set verl.seeupo.critic_pool=shared and ask `make plan`" if alone else ""
            fitting = sum(plan.layout.gpus <= have for plan in sizes)
            raise ConfigError(
                f"{have} GPUs {where}; {fitting} of {len(sizes)} cells fit, {largest.cell.name} needs "
                f"{largest.layout.gpus}: join more nodes (recipes/README.md, Ray){or_else}"
            )
        return f"{have} GPUs {where}"

    def host(self) -> str:
        largest = max(self._sizes, key=lambda plan: plan.host_gib)
        have = psutil.virtual_memory().total / 2**30
        if have < largest.host_gib:
            raise ConfigError(
                f"{have:.0f} GiB of main memory, {largest.cell.name} needs {largest.host_gib:.0f} per node: take a "
                "larger node, or more nodes (verl.trainer.nnodes)"
            )
        return f"{have:.0f} GiB; {largest.cell.name} needs most, {largest.host_gib:.0f} GiB"

    def disk(self) -> str:
        sizes = self._sizes
        largest = max(sizes, key=lambda plan: plan.disk_gib)
        kept = sum(plan.disk_gib for plan in sizes) * (KEPT_CHECKPOINTS - 1) / KEPT_CHECKPOINTS
        folder = machine.existing(outputs_root())
        free = shutil.disk_usage(folder).free / 2**30
        if free < largest.disk_gib:
            raise ConfigError(
                f"{free:.0f} GiB free in {folder}, checkpoints of {largest.cell.name} take {largest.disk_gib:.0f}: "
                "make room, or set SEEUPO_OUTPUTS to a larger disk"
            )
        return f"{free:.0f} GiB free; the largest cell takes {largest.disk_gib:.0f}, all kept checkpoints {kept:.0f}"


def _packages() -> str:
    wanted = list(machine.pins("gpu"))
    problems = list(dict.fromkeys(problem for r in wanted if (problem := machine.unmet(r))))
    if problems:
        shown = ", ".join(problems[:6]) + (f" and {len(problems) - 6} more" if len(problems) > 6 else "")
        raise ConfigError(f"{shown}: pip install -e '.[gpu]' (recipes/README.md)")
    return f"{len(wanted)} requirements of the gpu profile met"


def _first_of(cells: Sequence[Cell], key: Callable[[Cell], object]) -> list[Cell]:
    first: dict[str, Cell] = {}
    for cell in cells:
        first.setdefault(repr(key(cell)), cell)
    return list(first.values())
