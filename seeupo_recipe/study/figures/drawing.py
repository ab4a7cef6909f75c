"""What all figures share: the styles of a study's variants, a grid of panels, one legend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seeupo_recipe.study.collect import Block
from seeupo_recipe.study.figures import style
from seeupo_recipe.study.spec import FigureSpec, Study, Variant
from seeupo_recipe.study.tables.outcomes import steps_of

LEGEND_WIDTH = 1.75


class Drawing:
    """One figure's study, spec, scale and blocks, and the styles of its variants."""

    def __init__(self, study: Study, spec: FigureSpec, scale: str, blocks: Sequence[Block]) -> None:
        self.study, self.spec, self.scale, self.blocks = study, spec, scale, blocks
        names = spec.variants or tuple(v.name for v in study.variants)
        self.variants = [study.variant(name) for name in names]
        first = blocks[0]
        self.steps = {v.name: steps_of(first[v.name, first.benchmarks[0]]) for v in self.variants}
        self.styles = {v.name: style.style_of(v, self.steps[v.name], study.variants.index(v)) for v in self.variants}
        self.legend: dict[str, Any] = {}

    def label(self, variant: Variant) -> str:
        """Legend text; with the optimizer steps where they vary."""
        several = len({self.steps[v.name] for v in self.variants}) > 1
        return f"{variant.label} ({self.steps[variant.name]})" if several else variant.label

    def title(self) -> str:
        backend = self.blocks[0].backend
        return f"{self.spec.title}: {self.scale} scale, through {backend}"

    def add_legend(self, figure: Figure) -> None:
        """One legend below all panels, as wide as they are."""
        if self.legend:
            columns = max(2, int(figure.get_figwidth() / LEGEND_WIDTH))
            figure.legend(self.legend.values(), self.legend.keys(), loc="outside lower center", ncols=columns)

    def remember(self, handle: Any, text: str) -> None:
        self.legend.setdefault(text, handle)


def panels(
    drawing: Drawing,
    fill: Callable[[Axes, Block, str], None],
    *,
    y_label: str,
    x_label: str = "iteration",
    note: str = "",
) -> Figure:
    """A panel per model (rows) and benchmark (columns), lettered as in the paper."""
    benchmarks = drawing.blocks[0].benchmarks
    figure, axes = style.panels(len(drawing.blocks), len(benchmarks), title=drawing.title(), note=note)
    for row, block in enumerate(drawing.blocks):
        for column, benchmark in enumerate(benchmarks):
            ax = axes[row, column]
            ax.set_title(f"{style.letter(row * len(benchmarks) + column)} {block.model}, {benchmark}", loc="left")
            ax.set_ylabel(y_label if column == 0 else "")
            ax.set_xlabel(x_label)
            fill(ax, block, benchmark)
            if not ax.has_data():
                style.say(ax, "not run")
    drawing.add_legend(figure)
    return figure


def only(frame: pd.DataFrame, **values: Any) -> pd.DataFrame:
    """Rows of ``frame`` with those column values; an empty frame stays as it is."""
    for key, value in values.items():
        if not len(frame):
            return frame
        frame = frame[frame[key] == value]
    return frame


def with_models(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """All models' frames as one, with a ``model`` column."""
    filled = [f.assign(model=model) for model, f in frames.items() if len(f)]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame()
