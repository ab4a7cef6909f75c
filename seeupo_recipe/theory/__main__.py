"""Run the theory checks: ``python -m seeupo_recipe.theory``.

Exit status: 0 if every verdict equals the recorded one (with ``--mutate``: if every perturbation made its check fail),
1 if not, 2 if the command cannot be carried out.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track

from seeupo_recipe.theory import report
from seeupo_recipe.theory.checks import CHECKS
from seeupo_recipe.theory.registry import Check
from seeupo_recipe.theory.report import CommandError

LOG_WIDTH = 160
"""Columns of the tables where the output is not a terminal."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    out = argparse.ArgumentParser(prog="python -m seeupo_recipe.theory", description=__doc__.splitlines()[0])
    out.add_argument("--results", type=Path, default=Path("results/theory"), help="tables and recorded verdicts")
    out.add_argument("--plots", type=Path, default=Path("plots/theory"), help="figures")
    out.add_argument("--only", metavar="PATTERN", help="checks whose name matches, e.g. 'theorem7_*'; writes nothing")
    mode = out.add_mutually_exclusive_group()
    mode.add_argument("--update", action="store_true", help="record the verdicts instead of comparing them")
    mode.add_argument("--mutate", action="store_true", help="perturb every statement and require its check to fail")
    out.add_argument("--no-plots", action="store_true", help="leave the figures as they are")
    return out


def select(pattern: str | None) -> list[Check]:
    """The checks whose name matches ``pattern``, in order of their claims (the paper's first).

    Raises:
        CommandError: None does.
    """
    chosen = [check for name, check in CHECKS.items() if pattern is None or fnmatch.fnmatch(name, pattern)]
    if not chosen:
        raise CommandError(f"no check matches {pattern!r}; names are in {report.RECORD}")
    return sorted(chosen, key=lambda check: check.claim)


def perturb(chosen: Sequence[Check], console: Console) -> int:
    """Run every check as stated and perturbed; returns the exit status."""
    results = [(check, check.measure(), check.perturbed()) for check in track(chosen, "Perturbing", console=console)]
    unchanged = report.print_perturbed(console, results)
    if unchanged:
        console.print(f"[red]Perturbed and still not failing:[/] {', '.join(unchanged)}")
        return 1
    console.print(f"All {len(results)} checks fail when their statement is perturbed.")
    return 0


def verify(chosen: Sequence[Check], args: argparse.Namespace, console: Console) -> int:
    """Run the checks, compare with the record or renew it, write the results; returns the exit status.

    Raises:
        CommandError: Nothing is recorded yet, or figures are wanted and matplotlib is missing.
    """
    draws = not args.no_plots and args.only is None
    if draws and importlib.util.find_spec("matplotlib") is None:
        raise CommandError("the figures need matplotlib: install the extra 'cpu' or pass --no-plots")
    before = None if args.update or args.only else report.recorded(args.results)
    outcomes = {check.name: check.run() for check in track(chosen, "Checking", console=console)}
    report.print_outcomes(console, outcomes)
    if args.only:
        return 0
    if before is None:
        report.record(outcomes, args.results)
    elif differences := report.changes(outcomes, before):
        console.print("[red]Verdicts changed; results were left as they are (--update records the new ones):[/]")
        for line in differences:
            console.print(f"  {line}")
        return 1
    report.write(outcomes, args.results)
    if draws:
        from seeupo_recipe.theory import plots

        plots.draw_all(args.plots)
    console.print(f"Verdicts as recorded. Results in {args.results}" + (f" and {args.plots}." if draws else "."))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    args, console = parser().parse_args(argv), Console()
    if not console.is_terminal:
        console = Console(width=LOG_WIDTH)
    try:
        chosen = select(args.only)
        return perturb(chosen, console) if args.mutate else verify(chosen, args, console)
    except CommandError as error:
        console.print(f"[red]{error}[/]")
        return 2


if __name__ == "__main__":
    sys.exit(main())
