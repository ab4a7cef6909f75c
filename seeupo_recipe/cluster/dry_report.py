"""What a dry run found, as one page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

STANDIN = (
    "The model is a stand-in: the architecture of the real one with 2 layers, width 32 and random weights. So is its "
    "tokenizer: one token per byte, and whole tool calls as single tokens. No score of this run means anything."
)


@dataclass
class Report:
    """What was done.

    Attributes:
        checked: Names of the cells that verl and the plugin accept.
        refused: Name and reason of those they do not.
        not_run: Name and reason of cells whose environment is not set up here.
        runs: Cell name -> facts of its two iterations.
        failed: Cell name -> what went wrong.
        differences: Key -> the distinct pairs (value of the real cell, value here), over the cells that ran.
        seconds: Of all small runs together.
    """

    checked: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    differences: dict[str, list[tuple[Any, Any]]] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return not self.refused and not self.failed

    def add_differences(self, found: Mapping[str, tuple[Any, Any]]) -> None:
        """Take in those of one more cell."""
        for key, pair in found.items():
            pairs = self.differences.setdefault(key, [])
            if pair not in pairs:
                pairs.append(pair)


def show(report: Report, console: Console) -> None:
    """Print what ran, what differs from the real runs, and the verdict last."""
    if report.runs:
        columns = list(next(iter(report.runs.values())))
        table = Table(title="Small runs", title_justify="left", box=None, pad_edge=False)
        for name in ("cell", *columns):
            table.add_column(name)
        for name, facts in report.runs.items():
            table.add_row(name, *(_text(facts[column]) for column in columns))
        console.print(table)
        console.print(f"\n{STANDIN}\n", soft_wrap=True)
        table = Table(title="All settings that differ", title_justify="left", box=None, pad_edge=False)
        for name in ("key", "real run", "here"):
            table.add_column(name, overflow="fold")
        for key, pairs in report.differences.items():
            table.add_row(key, *(_text_of_all(side) for side in zip(*pairs, strict=True)))
        console.print(table)
    for title, reasons in (("refused", report.refused), ("failed", report.failed), ("not run", report.not_run)):
        for name, reason in reasons.items():
            console.print(f"{title}: {name}: {reason}", soft_wrap=True, markup=False)
    console.print(verdict(report), soft_wrap=True)


def verdict(report: Report) -> str:
    """One line: counts of everything, in words that leave nothing out."""
    parts = [f"{len(report.checked)} cells checked", f"{len(report.runs)} trained in {report.seconds / 60:.1f} minutes"]
    for title, reasons in (("refused", report.refused), ("failed", report.failed), ("NOT RUN", report.not_run)):
        if reasons:
            parts.append(f"{len(reasons)} {title}")
    return f"dry run {'passed' if report.passed else 'FAILED'}: {', '.join(parts)}"


def _text_of_all(values: tuple[Any, ...]) -> str:
    return ", ".join(dict.fromkeys(_text(value) for value in values))


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return " ".join(str(v) for v in value)
    return f"{value:.2g}" if isinstance(value, float) and abs(value) < 1e-2 else str(value)
