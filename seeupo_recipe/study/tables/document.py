"""A table document: frames for CSV files, and sections of text cells for Markdown and HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from seeupo_recipe.study.statistics import Interval

EMPTY = "-"


@dataclass(frozen=True)
class Section:
    """A titled text table with notes below it.

    Attributes:
        title: Heading.
        frame: Strings only, or None.
        notes: Lines below the table.
        detail: Whether the files and the report show it, but not the terminal.
    """

    title: str
    frame: pd.DataFrame | None = None
    notes: Sequence[str] = ()
    detail: bool = False


@dataclass(frozen=True)
class Document:
    """What one study's table shows.

    Attributes:
        name: Base of its file names.
        title: Heading.
        intro: Lines below the heading.
        sections: Text tables.
        frames: Long frames by file suffix; the empty suffix is the main one.
    """

    name: str
    title: str
    intro: Sequence[str]
    sections: Sequence[Section]
    frames: Mapping[str, pd.DataFrame] = field(default_factory=dict)

    def markdown(self, *, details: bool = True) -> str:
        """The whole document, or what a terminal shows of it."""
        parts = [f"# {self.title}", *self.intro]
        for section in (s for s in self.sections if details or not s.detail):
            parts.append(f"## {section.title}")
            if section.frame is not None:
                parts.append(markdown_table(section.frame))
            if section.notes:
                parts.append("\n".join(f"- {note}" for note in section.notes))
        return "\n\n".join(parts) + "\n"

    def files(self) -> dict[str, str]:
        """Text by file name."""
        csv = {
            f"{self.name}{'-' if suffix else ''}{suffix}.csv": csv_text(frame) for suffix, frame in self.frames.items()
        }
        return {f"{self.name}.md": self.markdown(), **csv}


def markdown_table(frame: pd.DataFrame) -> str:
    """GitHub's table form; the first column is left-aligned, the others right."""
    header = [_escape(str(c)) for c in frame.columns]
    rows = [[_escape(str(v)) for v in row] for row in frame.itertuples(index=False)]
    widths = [max(3, *(len(line[i]) for line in [header, *rows])) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = [c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))]
        return f"| {' | '.join(padded)} |"

    rule = "|".join([":" + "-" * (widths[0] + 1), *("-" * (w + 1) + ":" for w in widths[1:])])
    return "\n".join([line(header), f"|{rule}|", *map(line, rows)])


def csv_text(frame: pd.DataFrame) -> str:
    """Six significant digits, so that summation order cannot show."""
    return frame.to_csv(index=False, float_format="%.6g", lineterminator="\n")


def percent(interval: Interval | None) -> str:
    """``48.2 [44.1, 52.3]`` from shares."""
    return EMPTY if interval is None else "{:.1f} [{:.1f}, {:.1f}]".format(*(_no_minus_zero(100 * x) for x in interval))


def points(interval: Interval | None) -> str:
    """``+3.1 [-0.5, +6.7]`` percentage points from a difference of shares."""
    return EMPTY if interval is None else "{:+.1f} [{:+.1f}, {:+.1f}]".format(*(100 * x + 0.0 for x in interval))


def number(value: float | None, form: str = ".1f") -> str:
    return EMPTY if value is None or pd.isna(value) else format(value, form)


def p_value(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _no_minus_zero(x: float) -> float:
    return x + 0.0 if abs(x) >= 0.05 else 0.0


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
