"""Cost of the update phase against T."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib import rc_context

from seeupo_recipe.bench.report import LABELS, with_work
from seeupo_recipe.study.figures.style import COLOURS, MARKERS, SETTINGS, letter, panels, save

LINES = {
    "grpo": (COLOURS["grpo"], MARKERS["grpo"], (0, (4, 1.5))),
    "grpo_matched": (COLOURS["grpo"], MARKERS["grpo"], "solid"),
    "gspo": (COLOURS["gspo"], MARKERS["gspo"], (0, (4, 1.5))),
    "seeupo": (COLOURS["seeupo"], MARKERS["seeupo"], "solid"),
    "released": (COLOURS["base"], MARKERS["base"], "solid"),
}


@rc_context(SETTINGS)
def draw(table: pd.DataFrame, base: Path) -> None:
    """Counted work and CPU time against T with KL on one rank, for both shapes; writes PNG and PDF."""
    table = with_work(table)
    table = table[(table.ranks == 1) & table.kl]
    shapes = [shape for shape in ("equal", "ragged") if (table["shape"] == shape).any()]
    figure, axes = panels(2, len(shapes), title="Cost of the update phase against the number of turns")
    measures = (("work", 1e3, "work (1000 tokens)"), ("cpu_seconds", 1.0, "CPU time (s)"))
    for i, (column, scale, label) in enumerate(measures):
        for j, shape in enumerate(shapes):
            ax = axes[i][j]
            rows = table[table["shape"] == shape]
            for method, (colour, marker, dash) in LINES.items():
                cost = rows[rows.method == method].groupby("turns")[column].agg(["min", "median", "max"]) / scale
                ax.plot(
                    cost.index, cost["median"], color=colour, marker=marker, linestyle=dash, label=LABELS[method],
                    markerfacecolor="white",
                )  # fmt: skip
                ax.fill_between(cost.index, cost["min"], cost["max"], color=colour, alpha=0.15, linewidth=0)
            ax.set(xlabel="T", ylabel=label, title=f"{letter(i * len(shapes) + j)} {shape} turn rows", ylim=(0, None))
            ax.set_xticks(sorted(table.turns.unique()))
    axes[0][0].legend(fontsize=6.5)
    save(figure, base)
