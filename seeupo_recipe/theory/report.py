"""Results on disk and on screen, and the comparison with the recorded verdicts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.table import Table

from seeupo_recipe.theory import table1
from seeupo_recipe.theory.registry import Check, Measurement, Outcome, Verdict, number

RECORD = "verdicts.json"


class CommandError(Exception):
    """The command cannot be carried out; the message says what to do."""


COLOURS = {Verdict.HOLDS: "green", Verdict.CONDITION: "yellow", Verdict.COUNTEREXAMPLE: "red"}


def frame(outcomes: Mapping[str, Outcome]) -> pd.DataFrame:
    """One row per check."""
    return pd.DataFrame(
        [
            {
                "check": name,
                "claim": outcome.check.claim,
                "verdict": outcome.verdict.value,
                "statement": outcome.check.statement,
                "condition": outcome.check.condition,
                "value": number(outcome.measurement.value),
                "relation": outcome.measurement.relation,
                "tolerance": f"{outcome.measurement.bound:.3g}",
                "instance": outcome.measurement.instance,
                "note": outcome.measurement.note,
                "perturbation": outcome.check.perturbation,
            }
            for name, outcome in outcomes.items()
        ]
    )


def verdicts(outcomes: Mapping[str, Outcome]) -> dict[str, dict[str, str]]:
    """Verdicts of all checks and of the cells of Table 1."""
    checks = {name: outcome.verdict.value for name, outcome in outcomes.items()}
    return {"checks": checks, "table1": table1.verdicts(outcomes)}


def write(outcomes: Mapping[str, Outcome], directory: Path) -> None:
    """Write ``checks.csv`` and ``table1.md``."""
    directory.mkdir(parents=True, exist_ok=True)
    frame(outcomes).to_csv(directory / "checks.csv", index=False)
    (directory / "table1.md").write_text(table1.render(outcomes), encoding="utf-8")


def record(outcomes: Mapping[str, Outcome], directory: Path) -> None:
    """Write the verdicts that later runs are compared with."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / RECORD).write_text(json.dumps(verdicts(outcomes), indent=1) + "\n", encoding="utf-8")


def recorded(directory: Path) -> dict[str, dict[str, str]]:
    """Read the recorded verdicts.

    Raises:
        CommandError: Nothing is recorded there yet.
    """
    path = directory / RECORD
    if not path.exists():
        raise CommandError(f"no recorded verdicts at {path}: record them with --update")
    return json.loads(path.read_text(encoding="utf-8"))


def changes(outcomes: Mapping[str, Outcome], before: Mapping[str, Mapping[str, str]]) -> list[str]:
    """One line per verdict that differs from the record, is new, or is gone."""
    lines = []
    for section, now in verdicts(outcomes).items():
        old = before.get(section, {})
        for name in sorted(now.keys() | old.keys()):
            if now.get(name) != old.get(name):
                lines.append(f"{name}: recorded {old.get(name, 'nothing')}, now {now.get(name, 'nothing')}")
    return lines


def print_outcomes(console: Console, outcomes: Mapping[str, Outcome]) -> None:
    """Print the verdict table."""
    table = Table(title="Theory, executed", show_lines=False)
    for column in ("check", "claim", "value", "bound", "verdict"):
        table.add_column(column, overflow="fold")
    for name, outcome in outcomes.items():
        measured = outcome.measurement
        bound = f"{measured.relation} {measured.bound:.3g}"
        verdict = f"[{COLOURS[outcome.verdict]}]{outcome.verdict.value}[/]"
        table.add_row(name, outcome.check.claim, number(measured.value), bound, verdict)
    console.print(table)
    counts = {v: sum(o.verdict is v for o in outcomes.values()) for v in Verdict}
    console.print(f"{len(outcomes)} checks: " + ", ".join(f"{n} {v.value}" for v, n in counts.items()))


def print_perturbed(console: Console, results: Sequence[tuple[Check, Measurement, Measurement]]) -> list[str]:
    """Print what the perturbations did; returns the checks whose truth did not change."""
    table = Table(title="Perturbed statements")
    for column in ("check", "perturbation", "value", "perturbed", "bound", "fails"):
        table.add_column(column, overflow="fold")
    unchanged = []
    for check, plain, perturbed in results:
        flipped = plain.true != perturbed.true
        if not flipped:
            unchanged.append(check.name)
        bound = f"{perturbed.relation} {perturbed.bound:.3g}"
        mark = "[green]yes[/]" if flipped else "[red]no[/]"
        table.add_row(check.name, check.perturbation, number(plain.value), number(perturbed.value), bound, mark)
    console.print(table)
    return unchanged
