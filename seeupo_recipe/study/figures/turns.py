"""Diagnostics per turn, and sweeps over a key of a grid."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seeupo_recipe.study.collect import Block
from seeupo_recipe.study.figures import data, style
from seeupo_recipe.study.figures.drawing import Drawing, only, panels

Frames = Mapping[str, pd.DataFrame]


def turn_frames(drawing: Drawing) -> Frames:
    """Data of ``turns`` by model."""
    return {b.model: data.turn_frame(b, drawing.variants[0]) for b in drawing.blocks}


def sweep_frames(drawing: Drawing) -> Frames:
    """Data of ``sweep`` by model."""
    x, k = _sweep_axes(drawing)
    return {b.model: data.sweep_frame(b, drawing.variants, x, k) for b in drawing.blocks}


def turns(drawing: Drawing, frames: Frames) -> Figure:
    """Diagnostics per turn of one variant: a row per model and benchmark, a column per measure."""
    variant = drawing.variants[0]
    shown = [
        (block, benchmark)
        for block in drawing.blocks
        for benchmark in block.benchmarks
        if len(only(frames[block.model], benchmark=benchmark))
    ]
    figure, grid = style.panels(
        max(1, len(shown)), len(data.DIAGNOSTICS), title=f"{drawing.title()}, {variant.label}", width=2.3
    )
    colours = plt.get_cmap("viridis")
    for row, (block, benchmark) in enumerate(shown):
        mine = only(frames[block.model], benchmark=benchmark)
        horizon = int(mine["turn"].max())
        for column, (metric, text) in enumerate(data.DIAGNOSTICS.items()):
            ax = grid[row, column]
            for turn, line in only(mine, metric=metric).groupby("turn"):
                look = style.LineStyle(
                    colours(0.9 * (turn - 1) / max(1, horizon - 1)),
                    "osD^vPX<>h"[(turn - 1) % 10],
                    ("solid", (0, (4, 1.5)), (0, (1, 1)), (0, (4, 1, 1, 1)))[(turn - 1) % 4],
                )
                (handle,) = ax.plot(line["iteration"], line["value"], **look.line(max(1, len(line) // 5)))
                drawing.remember(handle, f"turn {turn}")
            ax.set_xlabel("iteration")
            ax.set_title(text if column else f"{block.model}, {benchmark}\n{text}", loc="left", fontsize=7.5)
    drawing.add_legend(figure)
    return figure


def _sweep_axes(drawing: Drawing) -> tuple[str, int]:
    """The grid key on the x axis, and k of avg@k."""
    k = drawing.study.table.k if drawing.study.table else 4
    return drawing.spec.x or next(iter(drawing.variants[0].coordinates)), k


def sweep(drawing: Drawing, frames: Frames) -> Figure:
    """avg@k against one key of the grid, a line per series."""
    x, k = _sweep_axes(drawing)

    def fill(ax: Axes, block: Block, benchmark: str) -> None:
        mine = only(frames[block.model], benchmark=benchmark)
        for series, line in mine.groupby("series", sort=False) if len(mine) else ():
            look = drawing.styles[line["variant"].iloc[0]]
            line = line.sort_values("x")
            bars = np.clip([line["value"] - line["low"], line["high"] - line["value"]], 0, None)
            handle = ax.errorbar(line["x"], 100 * line["value"], yerr=100 * bars, elinewidth=0.7, **look._asdict())
            drawing.remember(handle, series)
        if len(mine):
            ax.set_ylim(-3, 103)
            if drawing.spec.log:
                ax.set_xscale("log")

    return panels(drawing, fill, y_label=f"avg@{k}, %", x_label=x)
