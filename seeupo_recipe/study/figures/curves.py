"""Curves over training: rollouts, held-out tasks, and success against every measure of effort."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, ScalarFormatter

from seeupo_recipe.study import paper
from seeupo_recipe.study.collect import Block
from seeupo_recipe.study.figures import data, style
from seeupo_recipe.study.figures.drawing import Drawing, only, panels
from seeupo_recipe.study.outcomes import outcomes
from seeupo_recipe.study.spec import Variant
from seeupo_recipe.study.training import EFFORTS

MARKS = 8


Frames = Mapping[str, pd.DataFrame]


def curve_frames(drawing: Drawing) -> Frames:
    """Data of ``curves`` and ``axes`` by model."""
    return {b.model: data.curve_frame(b, drawing.variants) for b in drawing.blocks}


def heldout_frames(drawing: Drawing) -> Frames:
    """Data of ``heldout`` by model."""
    return {b.model: data.heldout_frame(b, drawing.variants) for b in drawing.blocks}


def curves(drawing: Drawing, frames: Frames) -> Figure:
    """The paper's Figures 4 and 5: training success, thin lines per seed, band over seeds."""

    def fill(ax: Axes, block: Block, benchmark: str) -> None:
        for variant in drawing.variants:
            mine = only(frames[block.model], benchmark=benchmark, variant=variant.name)
            if len(mine):
                _draw_curve(ax, drawing, variant, mine, "iteration")
        if ax.has_data():
            _reference_lines(ax, drawing, block, benchmark)
            _paper_points(ax, drawing, block, benchmark)
            _epoch_axis(ax, block, benchmark)
            ax.set_ylim(-3, 103)

    return panels(drawing, fill, y_label="success rate, %")


def axes(drawing: Drawing, frames: Frames) -> Figure:
    """Training success against every measure of effort: a row per model and benchmark."""
    shown = [
        (block, benchmark)
        for block in drawing.blocks
        for benchmark in block.benchmarks
        if len(only(frames[block.model], benchmark=benchmark))
    ]
    efforts = list(EFFORTS)[1:]
    figure, grid = style.panels(max(1, len(shown)), len(efforts), title=drawing.title(), width=2.5)
    for row, (block, benchmark) in enumerate(shown):
        for column, effort in enumerate(efforts):
            ax = grid[row, column]
            for variant in drawing.variants:
                mine = only(frames[block.model], benchmark=benchmark, variant=variant.name)
                if len(mine) and mine[effort].notna().any():
                    _draw_curve(ax, drawing, variant, mine, effort, seeds=False)
            ax.set_xlabel(EFFORTS[effort])
            ax.xaxis.set_major_formatter(EngFormatter(sep="") if effort != "epoch" else ScalarFormatter())
            ax.set_ylim(-3, 103)
            if column == 0:
                ax.set_title(f"{style.letter(row)} {block.model}, {benchmark}", loc="left")
                ax.set_ylabel("success rate, %")
            if not ax.has_data():
                style.say(ax, "not recorded")
    drawing.add_legend(figure)
    return figure


def _draw_curve(
    ax: Axes, drawing: Drawing, variant: Variant, frame: pd.DataFrame, x: str, *, seeds: bool = True
) -> None:
    """Mean over seeds against the mean effort, with the seeds' own lines and the band."""
    look = drawing.styles[variant.name]
    by_seed = [group.reset_index(drop=True) for _, group in frame.groupby("seed")]
    effort = np.mean([group[x].to_numpy(float) for group in by_seed], axis=0)
    first = by_seed[0]
    if seeds and len(by_seed) > 1:
        for group in by_seed:
            ax.plot(group[x], 100 * group["value"], color=look.color, linewidth=0.5, alpha=0.35)
    if first["low"].notna().any():
        ax.fill_between(effort, 100 * first["low"], 100 * first["high"], color=look.color, alpha=0.15, linewidth=0)
    place = drawing.variants.index(variant)
    every = max(1, len(first) // MARKS)
    (handle,) = ax.plot(effort, 100 * first["mean"], **{**look.line(every), "markevery": (place % every, every)})
    drawing.remember(handle, drawing.label(variant))


def heldout(drawing: Drawing, frames: Frames) -> Figure:
    """The paper's Figure 1: score on held-out tasks at every evaluated checkpoint, and on the test tasks."""

    def fill(ax: Axes, block: Block, benchmark: str) -> None:
        for place, variant in enumerate(drawing.variants):
            runs = block[variant.name, benchmark].finished
            mine = only(frames[block.model], benchmark=benchmark, variant=variant.name)
            if not len(mine):
                continue
            look = drawing.styles[variant.name]
            shift = (place - len(drawing.variants) / 2) * 0.012 * runs[0].iterations
            validation = mine[mine["split"] == runs[0].validation_split]
            if len(validation):
                handle = _points(ax, validation, shift, {**look._asdict(), "markerfacecolor": "white"})
                drawing.remember(handle, drawing.label(variant))
            test = mine[(mine["split"] == runs[0].test_split) & (mine["iteration"] == runs[0].iterations)]
            if len(test):
                handle = _points(ax, test, shift, {**look._asdict(), "linestyle": "none", "markersize": 6})
                if not len(validation):
                    drawing.remember(handle, drawing.label(variant))
        if ax.has_data():
            _reference_lines(ax, drawing, block, benchmark)
            ax.set_ylim(-3, 103)

    note = (
        "Open marks: validation tasks; filled: test tasks, last checkpoint. Bars: 95% intervals over tasks and seeds.\n"
        "Points are shifted sideways to stay apart."
    )
    return panels(drawing, fill, y_label="score, %", note=note)


def _points(ax: Axes, frame: pd.DataFrame, shift: float, look: Mapping[str, Any]) -> Any:
    y = 100 * frame["value"]
    bars = [y - 100 * frame["low"], 100 * frame["high"] - y]
    return ax.errorbar(frame["iteration"] + shift, y, yerr=np.clip(bars, 0, None), elinewidth=0.7, capsize=0, **look)


def _reference_lines(ax: Axes, drawing: Drawing, block: Block, benchmark: str) -> None:
    """The warm start's score on the test tasks, and the optimum where it is known."""
    base = [v for v in drawing.study.variants if v.algorithm == "base"]
    found = outcomes(block[base[0].name, benchmark].finished, 1) if base else None
    if found:
        level = 100 * float(np.nanmean(found.avg))
        handle = ax.axhline(level, color=style.COLOURS["base"], linestyle=(0, (1, 1)), linewidth=1.2)
        drawing.remember(handle, "warm start (test)")
    known = [run.optimum for v in drawing.variants for run in block[v.name, benchmark].finished if run.optimum]
    if known:
        handle = ax.axhline(100 * known[0], color="black", linestyle=(0, (6, 2, 1, 2)), linewidth=0.9)
        drawing.remember(handle, "optimum")


def _paper_points(ax: Axes, drawing: Drawing, block: Block, benchmark: str) -> None:
    """The points that the paper's figure is described with, at the paper's scale only."""
    if drawing.scale != "paper" or drawing.spec.paper_figure is None:
        return
    points = paper.curves()
    points = points[(points["figure"] == str(drawing.spec.paper_figure)) & points["epoch"].notna()]
    for variant in drawing.variants:
        runs = block[variant.name, benchmark].finished
        if variant.paper is None or not runs or runs[0].epoch_iterations is None:
            continue
        mine = points[
            points["model"].map(lambda m: paper.same_model(block.model, m))
            & (points["benchmark"] == runs[0].config["benchmark"]["paper_name"])
            & points["series"].map(lambda s, name=variant.paper: name in s.split("|"))
        ]
        if len(mine):
            look = drawing.styles[variant.name]
            x = mine["epoch"] * runs[0].epoch_iterations
            handle = ax.scatter(
                x, mine["success_rate"], marker="*", s=70, color=look.color, edgecolor="black", zorder=5
            )
            drawing.remember(handle, f"{variant.label}: the paper's figure, as described")


def _epoch_axis(ax: Axes, block: Block, benchmark: str) -> None:
    """Epochs along the top, where the number of training tasks is recorded."""
    known = [run.epoch_iterations for cell in block.cells.values() for run in cell.finished if run.epoch_iterations]
    mine = [run.epoch_iterations for v in block.variants for run in block[v.name, benchmark].finished]
    if known and mine and mine[0]:
        per_epoch = mine[0]
        top = ax.secondary_xaxis("top", functions=(lambda x: x / per_epoch, lambda x: x * per_epoch))
        top.set_xlabel("epoch", fontsize=7)
        top.tick_params(labelsize=7)
