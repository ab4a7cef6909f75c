"""The command line of the cluster tools: ``python -m seeupo_recipe.cluster``.

    plan       memory, tokens, disk and hours of every cell; refuses what cannot fit and names what to change
    doctor     one page of pass and fail for this machine, with what to do
    dry-run    composes and checks every cell, then trains small stand-ins on the CPU
    smoke      a few iterations of a random-weight model on one GPU (scripts/gpu_smoke.sh)

The cells are those of a table of the paper (``--study table2``, ``table4``, ``table5``), or with ``--study none`` the
one cell that the overrides make.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial

from rich.console import Console

from seeupo_recipe.cluster.cells import STUDIES, Cell, Selection, select
from seeupo_recipe.compose import options
from seeupo_recipe.strict import ConfigError

WIDTH = 140


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0, 1 if something failed or does not fit, 2 for wrong arguments."""
    parser = _parser()
    parsed = parser.parse_args(arguments)
    try:
        return parsed.action(parsed)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m seeupo_recipe.cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    plan = commands.add_parser("plan", help="memory, tokens, disk and hours")
    plan.add_argument("--gpu", default="H20", help="H20, H100, A100, H200, or GiB of one GPU")
    plan.add_argument("--details", action="store_true", help="every part of every phase")
    plan.add_argument("--json", action="store_true", help="plain values on standard output")
    plan.set_defaults(action=_plan)
    doctor = commands.add_parser("doctor", help="this machine, checked")
    doctor.set_defaults(action=_doctor)
    dry = commands.add_parser("dry-run", help="every cell checked, small stand-ins trained on the CPU")
    dry.add_argument("--check-only", action="store_true", help="train nothing")
    dry.set_defaults(action=_dry_run)
    for command in (plan, doctor, dry):
        _add_selection(command)
    return parser


def _add_selection(command: argparse.ArgumentParser) -> None:
    command.add_argument("--scale", default="paper", help=f"one of {', '.join(options('scale'))}")
    command.add_argument("--study", default="table2", help=f"one of {', '.join(STUDIES)}, or none")
    for name in ("models", "benchmarks", "rows"):
        command.add_argument(f"--{name}", type=_names, default=(), help="comma-separated; default: all of the study")
    command.add_argument("overrides", nargs="*", metavar="key=value", help="Hydra overrides of every cell")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def _cells(parsed: argparse.Namespace) -> list[Cell]:
    for override in parsed.overrides:
        if "=" not in override and not override.startswith("~"):
            raise ConfigError(f"{override!r} is not of the form key=value")
    study = None if parsed.study == "none" else parsed.study
    chosen = (parsed.models, parsed.benchmarks, parsed.rows)
    if study is None and any(chosen):
        raise ConfigError("--study none takes its model, benchmark and algorithm from overrides: model=qwen3-14b ...")
    return select(Selection(parsed.scale, study, *chosen, tuple(parsed.overrides)))


def _gib(gpu: str) -> float:
    from seeupo_recipe.cluster.plan import GPUS

    if gpu in GPUS:
        return GPUS[gpu] / 1024
    try:
        return float(gpu)
    except ValueError:
        raise ConfigError(f"--gpu={gpu}: choose one of {', '.join(GPUS)}, or give its GiB") from None


def _plan(parsed: argparse.Namespace) -> int:
    from seeupo_recipe.cluster import plan

    gpu_gib = _gib(parsed.gpu)
    plans = plan.make_plan(_cells(parsed), gpu_gib)
    if parsed.json:
        print(json.dumps(plan.as_json(plans), indent=1))
    else:
        plan.show(plans, gpu_gib, Console(width=WIDTH, highlight=False), details=parsed.details)
    return 1 if any(p.problems for p in plans) else 0


def _doctor(parsed: argparse.Namespace) -> int:
    from seeupo_recipe.cluster import doctor

    findings = doctor.examine(_cells(parsed))
    doctor.show(findings, Console(width=WIDTH, highlight=False))
    return 1 if any(finding.failed for finding in findings) else 0


def _dry_run(parsed: argparse.Namespace) -> int:
    from seeupo_recipe.cluster import dry_report
    from seeupo_recipe.cluster.dry_run import dry_run

    report = dry_run(_cells(parsed), train=not parsed.check_only, say=partial(print, flush=True))
    dry_report.show(report, Console(width=WIDTH, highlight=False))
    return 0 if report.passed else 1
