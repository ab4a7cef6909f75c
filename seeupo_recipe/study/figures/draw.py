"""Draw the figures of a study: panels by model and benchmark, one file per backend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seeupo_recipe.study import paper
from seeupo_recipe.study.collapse import window
from seeupo_recipe.study.collect import Block
from seeupo_recipe.study.figures import data, style
from seeupo_recipe.study.outcomes import outcomes
from seeupo_recipe.study.spec import FigureSpec, Study, Variant
from seeupo_recipe.study.tables.document import csv_text
from seeupo_recipe.study.tables.outcomes import steps_of
from seeupo_recipe.study.training import EFFORTS

MARKS = 8


def draw_study(study: Study, scale: str, blocks: Sequence[Block], folder: Path) -> list[Path]:
    """Draw every figure of ``study`` for every backend that has finished runs; returns the files."""
    written: list[Path] = []
    for spec in study.figures:
        for backend in dict.fromkeys(block.backend for block in blocks):
            mine = [b for b in blocks if b.backend == backend and any(c.finished for c in b.cells.values())]
            if mine:
                figure, frame = KINDS[spec.kind](Drawing(study, spec, scale, mine))
                base = folder / f"{spec.name}-{backend}"
                written += style.save(figure, base)
                base.with_suffix(".csv").write_text(csv_text(frame))
                written.append(base.with_suffix(".csv"))
    return written


class Drawing:
    """One figure's study, spec, scale and blocks, and the styles of its variants."""

    def __init__(self, study: Study, spec: FigureSpec, scale: str, blocks: Sequence[Block]) -> None:
        self.study, self.spec, self.scale, self.blocks = study, spec, scale, blocks
        names = spec.variants or tuple(v.name for v in study.variants)
        self.variants = [study.variant(name) for name in names]
        first = blocks[0]
        self.steps = {v.name: steps_of(first[v.name, first.benchmarks[0]]) for v in self.variants}
        self.styles = {
            v.name: style.style_of(v, self.steps[v.name], study.variants.index(v)) for v in self.variants
        }
        self.legend: dict[str, Any] = {}

    def label(self, variant: Variant) -> str:
        """Legend text; with the optimizer steps where they vary."""
        several = len({self.steps[v.name] for v in self.variants}) > 1
        return f"{variant.label} ({self.steps[variant.name]})" if several else variant.label

    def title(self) -> str:
        backend = self.blocks[0].backend
        return f"{self.spec.title}: {self.scale} scale, through {backend}"

    def add_legend(self, figure: Figure, columns: int = 5) -> None:
        if self.legend:
            with plt.rc_context(style.SETTINGS):
                figure.legend(self.legend.values(), self.legend.keys(), loc="outside lower center", ncols=columns)

    def remember(self, handle: Any, text: str) -> None:
        self.legend.setdefault(text, handle)


def _panels(
    drawing: Drawing, fill: Callable[[Axes, Block, str], None], *, y_label: str, x_label: str = "iteration"
) -> Figure:
    """A panel per model (rows) and benchmark (columns), lettered as in the paper."""
    benchmarks = drawing.blocks[0].benchmarks
    figure, axes = style.panels(len(drawing.blocks), len(benchmarks), title=drawing.title())
    for row, block in enumerate(drawing.blocks):
        for column, benchmark in enumerate(benchmarks):
            ax = axes[row, column]
            ax.set_title(f"{style.letter(row * len(benchmarks) + column)} {block.model}, {benchmark}", loc="left")
            ax.set_ylabel(y_label if column == 0 else "")
            ax.set_xlabel(x_label)
            with plt.rc_context(style.SETTINGS):
                fill(ax, block, benchmark)
            if not ax.has_data():
                ax.text(0.5, 0.5, "not run", transform=ax.transAxes, ha="center", color="#767676")
    drawing.add_legend(figure)
    return figure


def _of(frame: pd.DataFrame, **values: Any) -> pd.DataFrame:
    for key, value in values.items():
        if not len(frame):
            return frame
        frame = frame[frame[key] == value]
    return frame


def curves(drawing: Drawing) -> tuple[Figure, pd.DataFrame]:
    """The paper's Figures 4 and 5: training success, thin lines per seed, band over seeds."""
    frames = {b.model: data.curve_frame(b, drawing.variants) for b in drawing.blocks}

    def fill(ax: Axes, block: Block, benchmark: str) -> None:
        for variant in drawing.variants:
            mine = _of(frames[block.model], benchmark=benchmark, variant=variant.name)
            if len(mine):
                _draw_curve(ax, drawing, variant, mine, "iteration")
        if ax.has_data():
            _reference_lines(ax, drawing, block, benchmark)
            _paper_points(ax, drawing, block, benchmark)
            _epoch_axis(ax, block, benchmark)
            ax.set_ylim(-3, 103)

    figure = _panels(drawing, fill, y_label="success rate, %")
    return figure, _with_models(frames)


def axes(drawing: Drawing) -> tuple[Figure, pd.DataFrame]:
    """Training success against every measure of effort: a row per model and benchmark."""
    frames = {b.model: data.curve_frame(b, drawing.variants) for b in drawing.blocks}
    shown = [
        (block, benchmark)
        for block in drawing.blocks
        for benchmark in block.benchmarks
        if len(_of(frames[block.model], benchmark=benchmark))
    ]
    efforts = list(EFFORTS)[1:]
    figure, grid = style.panels(max(1, len(shown)), len(efforts), title=drawing.title(), width=2.5)
    for row, (block, benchmark) in enumerate(shown):
        for column, effort in enumerate(efforts):
            ax = grid[row, column]
            with plt.rc_context(style.SETTINGS):
                for variant in drawing.variants:
                    mine = _of(frames[block.model], benchmark=benchmark, variant=variant.name)
                    if len(mine) and mine[effort].notna().any():
                        _draw_curve(ax, drawing, variant, mine, effort, seeds=False)
            ax.set_xlabel(EFFORTS[effort])
            ax.set_ylim(-3, 103)
            if column == 0:
                ax.set_title(f"{style.letter(row)} {block.model}, {benchmark}", loc="left")
                ax.set_ylabel("success rate, %")
            if not ax.has_data():
                ax.text(0.5, 0.5, "not recorded", transform=ax.transAxes, ha="center", color="#767676")
    drawing.add_legend(figure)
    return figure, _with_models(frames)


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


def heldout(drawing: Drawing) -> tuple[Figure, pd.DataFrame]:
    """The paper's Figure 1: score on held-out tasks at every evaluated checkpoint, and on the test tasks."""
    frames = {b.model: data.heldout_frame(b, drawing.variants) for b in drawing.blocks}

    def fill(ax: Axes, block: Block, benchmark: str) -> None:
        for place, variant in enumerate(drawing.variants):
            runs = block[variant.name, benchmark].finished
            mine = _of(frames[block.model], benchmark=benchmark, variant=variant.name)
            if not len(mine):
                continue
            look = drawing.styles[variant.name]
            shift = (place - len(drawing.variants) / 2) * 0.012 * runs[0].iterations
            sections = runs[0].config["benchmark"]
            validation = mine[mine["split"] == sections["validation_split"]]
            if len(validation):
                handle = _points(ax, validation, shift, {**look._asdict(), "markerfacecolor": "white"})
                drawing.remember(handle, drawing.label(variant))
            test = mine[(mine["split"] == sections["test_split"]) & (mine["iteration"] == runs[0].iterations)]
            if len(test):
                handle = _points(ax, test, shift, {**look._asdict(), "linestyle": "none", "markersize": 6})
                if not len(validation):
                    drawing.remember(handle, drawing.label(variant))
        if ax.has_data():
            _reference_lines(ax, drawing, block, benchmark)
            ax.set_ylim(-3, 103)

    figure = _panels(drawing, fill, y_label="score, %")
    figure.text(
        0.01,
        0.005,
        "Open marks: validation tasks. Filled marks: test tasks, last checkpoint. Bars: 95% intervals over tasks and "
        "seeds. Points are shifted sideways to stay apart.",
        fontsize=6.5,
        color="#555555",
    )
    return figure, _with_models(frames)


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
            handle = ax.scatter(x, mine["success_rate"], marker="*", s=70, color=look.color, edgecolor="black", zorder=5)
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


def turns(drawing: Drawing) -> tuple[Figure, pd.DataFrame]:
    """Diagnostics per turn of one variant: a row per model and benchmark, a column per measure."""
    variant = drawing.variants[0]
    frames = {b.model: data.turn_frame(b, variant) for b in drawing.blocks}
    shown = [
        (block, benchmark)
        for block in drawing.blocks
        for benchmark in block.benchmarks
        if len(_of(frames[block.model], benchmark=benchmark))
    ]
    figure, grid = style.panels(
        max(1, len(shown)), len(data.DIAGNOSTICS), title=f"{drawing.title()}, {variant.label}", width=2.3
    )
    colours = plt.get_cmap("viridis")
    for row, (block, benchmark) in enumerate(shown):
        mine = _of(frames[block.model], benchmark=benchmark)
        horizon = int(mine["turn"].max())
        for column, (metric, text) in enumerate(data.DIAGNOSTICS.items()):
            ax = grid[row, column]
            for turn, line in _of(mine, metric=metric).groupby("turn"):
                look = style.LineStyle(
                    colours(0.9 * (turn - 1) / max(1, horizon - 1)),
                    "osD^vPX<>h"[(turn - 1) % 10],
                    ("solid", (0, (4, 1.5)), (0, (1, 1)), (0, (4, 1, 1, 1)))[(turn - 1) % 4],
                )
                with plt.rc_context(style.SETTINGS):
                    (handle,) = ax.plot(line["iteration"], line["value"], **look.line(max(1, len(line) // 5)))
                drawing.remember(handle, f"turn {turn}")
            ax.set_xlabel("iteration")
            ax.set_title(text if column else f"{block.model}, {benchmark}\n{text}", loc="left", fontsize=7.5)
    drawing.add_legend(figure, columns=10)
    return figure, _with_models(frames)


def sweep(drawing: Drawing) -> tuple[Figure, pd.DataFrame]:
    """avg@k against one key of the grid, a line per series."""
    k = drawing.study.table.k if drawing.study.table else 4
    x = drawing.spec.x or next(iter(drawing.variants[0].coordinates))
    frames = {b.model: data.sweep_frame(b, drawing.variants, x, k) for b in drawing.blocks}

    def fill(ax: Axes, block: Block, benchmark: str) -> None:
        mine = _of(frames[block.model], benchmark=benchmark)
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

    return _panels(drawing, fill, y_label=f"avg@{k}, %", x_label=x), _with_models(frames)


def _with_models(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    filled: Iterable[pd.DataFrame] = (f.assign(model=model) for model, f in frames.items() if len(f))
    filled = list(filled)
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame()


KINDS: Mapping[str, Callable[[Drawing], tuple[Figure, pd.DataFrame]]] = {
    "curves": curves,
    "heldout": heldout,
    "axes": axes,
    "diagnostics": turns,
    "sweep": sweep,
}
