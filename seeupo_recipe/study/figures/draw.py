"""Draw the figures of a study, one file per backend, with the data beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from seeupo_recipe.study.collect import Block
from seeupo_recipe.study.figures import curves, style, turns
from seeupo_recipe.study.figures.drawing import Drawing, with_models
from seeupo_recipe.study.spec import Study
from seeupo_recipe.study.tables.document import csv_text

Frames = Mapping[str, pd.DataFrame]
KINDS: Mapping[str, tuple[Callable[[Drawing], Frames], Callable[[Drawing, Frames], Figure]]] = {
    "curves": (curves.curve_frames, curves.curves),
    "heldout": (curves.heldout_frames, curves.heldout),
    "axes": (curves.curve_frames, curves.axes),
    "diagnostics": (turns.turn_frames, turns.turns),
    "sweep": (turns.sweep_frames, turns.sweep),
}


def draw_study(study: Study, scale: str, blocks: Sequence[Block], folder: Path, *, redraw: bool = True) -> list[Path]:
    """Draw every figure of ``study`` for every backend that has finished runs; returns the files.

    Args:
        study: The study.
        scale: Scale of the runs.
        blocks: The study's blocks.
        folder: Where the files go.
        redraw: Whether to draw a figure again whose data file is already there with the same content.
    """
    written: list[Path] = []
    for spec in study.figures:
        for backend in dict.fromkeys(block.backend for block in blocks):
            mine = [b for b in blocks if b.backend == backend and any(c.finished for c in b.cells.values())]
            if mine:
                written += _draw(Drawing(study, spec, scale, mine), folder / f"{spec.name}-{backend}", redraw)
    return written


def _draw(drawing: Drawing, base: Path, redraw: bool) -> list[Path]:
    make_frame, draw = KINDS[drawing.spec.kind]
    frames = make_frame(drawing)
    text, data = csv_text(with_models(frames)), base.with_suffix(".csv")
    files = [base.with_suffix(suffix) for suffix in (".png", ".pdf", ".csv")]
    if redraw or not all(f.exists() for f in files) or data.read_text() != text:
        with plt.rc_context(style.SETTINGS):
            style.save(draw(drawing, frames), base)
        data.write_text(text)
    return files
