"""One colour and marker per method in every figure; lines differ in style too, for print and greyscale."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.figure import Figure

from seeupo_recipe.study.spec import Variant

# Okabe and Ito's palette for methods, Tol's for what varies within SeeUPO: both safe for colour-blind readers.
COLOURS = {
    "seeupo": "#D55E00",
    "ppo": "#CC79A7",
    "grpo": "#0072B2",
    "gspo": "#56B4E9",
    "rloo": "#009E73",
    "reinforce_pp": "#E69F00",
    "base": "#767676",
    "natural": "#332288",
    "random": "#999933",
    "none": "#44AA99",
    "group": "#882255",
}
MARKERS = {
    "seeupo": "o",
    "ppo": "v",
    "grpo": "s",
    "gspo": "D",
    "rloo": "^",
    "reinforce_pp": "P",
    "base": "x",
    "natural": "<",
    "random": ">",
    "none": "p",
    "group": "h",
}
SPARE_COLOURS = ("#117733", "#CC6677", "#88CCEE", "#AA4499", "#DDCC77", "#661100", "#6699CC", "#AA4466")
SPARE_MARKERS = ("X", "*", "d", "H", "8", "1", "2", "3")
DASHES = {"one": (0, (4, 1.5)), "matched": "solid", "per turn": "solid"}
PANEL_WIDTH, PANEL_HEIGHT = 3.4, 2.5

SETTINGS = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "figure.dpi": 160,
    "pdf.fonttype": 42,
    "svg.hashsalt": "seeupo",
    "axes.axisbelow": True,
}


class LineStyle(NamedTuple):
    """How a variant is drawn."""

    color: str
    marker: str
    linestyle: Any

    def line(self, every: int) -> dict[str, Any]:
        """Arguments of ``Axes.plot``; a marker at every ``every``-th point."""
        return {**self._asdict(), "markevery": max(1, every), "markerfacecolor": "white", "markeredgewidth": 1.0}


def style_of(variant: Variant, steps: str, place: int) -> LineStyle:
    """Style of a variant: colour and marker by method, dashes by optimizer steps.

    Args:
        variant: The variant.
        steps: Its optimizer steps in words.
        place: Its place in the study, for variants without a style of their own.
    """
    name = variant.style or variant.algorithm
    dash = DASHES.get(steps, (0, (4, 1, 1, 1)))
    if name not in COLOURS:
        return LineStyle(SPARE_COLOURS[place % len(SPARE_COLOURS)], SPARE_MARKERS[place % len(SPARE_MARKERS)], dash)
    return LineStyle(COLOURS[name], MARKERS[name], dash)


def panels(rows: int, columns: int, *, title: str, note: str = "", width: float = PANEL_WIDTH) -> tuple[Figure, Any]:
    """A figure with a grid of axes, always two-dimensional; ``note`` stands below the title."""
    size = (width * columns, PANEL_HEIGHT * rows + 0.9)
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    figure.suptitle(f"{title}\n{note}" if note else title, fontsize=7.5 if note else 9.5, x=0.01, ha="left")
    return figure, axes


def say(ax: Any, text: str) -> None:
    """A panel without data: its frame and a word."""
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", color=COLOURS["base"])
    ax.set(xticks=[], yticks=[], xlabel="", ylabel="")


def letter(place: int) -> str:
    return f"({chr(ord('a') + place)})"


def save(figure: Figure, base: Path) -> None:
    """Write ``base``.png and .pdf without dates or versions, so that equal data give equal bytes.

    The layout is computed once; the canvases are asked directly, since ``savefig`` draws twice for each.
    """
    base.parent.mkdir(parents=True, exist_ok=True)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    FigureCanvasAgg(figure).print_png(base.with_suffix(".png"), metadata={"Software": None})
    FigureCanvasPdf(figure).print_pdf(
        base.with_suffix(".pdf"), metadata={"Creator": None, "Producer": None, "CreationDate": None}
    )
    plt.close(figure)
