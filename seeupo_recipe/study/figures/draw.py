"""Draw the figures of a study, one file per backend, with the data beside them."""

from __future__ import annotations

import multiprocessing
import os
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

SUFFIXES = (".png", ".pdf", ".csv")
Frames = Mapping[str, pd.DataFrame]
KINDS: Mapping[str, tuple[Callable[[Drawing], Frames], Callable[[Drawing, Frames], Figure]]] = {
    "curves": (curves.curve_frames, curves.curves),
    "heldout": (curves.heldout_frames, curves.heldout),
    "axes": (curves.curve_frames, curves.axes),
    "diagnostics": (turns.turn_frames, turns.turns),
    "sweep": (turns.sweep_frames, turns.sweep),
}


def draw_studies(
    studies: Sequence[tuple[Study, Sequence[Block]]], scale: str, folder: Path, *, redraw: bool = True
) -> list[Path]:
    """Draw every figure of the studies for every backend that has finished runs; returns the files.

    Args:
        studies: Studies with their blocks.
        scale: Scale of the runs.
        folder: Where the files go.
        redraw: Whether to draw a figure again whose data file is already there with the same content.

    Raises:
        RuntimeError: If a figure could not be drawn; its traceback is on standard error.
    """
    drawings: dict[Path, Drawing] = {}
    for study, blocks in studies:
        for spec in study.figures:
            for backend in dict.fromkeys(block.backend for block in blocks):
                mine = [b for b in blocks if b.backend == backend and any(c.finished for c in b.cells.values())]
                if mine:
                    drawings[folder / f"{spec.name}-{backend}"] = Drawing(study, spec, scale, mine)
    _draw_in_parallel(list(drawings.items()), redraw)
    return [base.with_suffix(suffix) for base in drawings for suffix in SUFFIXES]


def _draw_in_parallel(drawings: Sequence[tuple[Path, Drawing]], redraw: bool) -> None:
    """Forked children inherit the records, so that nothing is read twice."""
    width = min(os.cpu_count() or 1, len(drawings))
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=_draw_all, args=(drawings[i::width], redraw)) for i in range(width)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    if any(child.exitcode for child in children):
        raise RuntimeError("a figure could not be drawn; the reason stands above")


def _draw_all(drawings: Sequence[tuple[Path, Drawing]], redraw: bool) -> None:
    for base, drawing in drawings:
        make_frame, draw = KINDS[drawing.spec.kind]
        frames = make_frame(drawing)
        text, data = csv_text(with_models(frames)), base.with_suffix(".csv")
        if redraw or not all(base.with_suffix(s).exists() for s in SUFFIXES) or data.read_text() != text:
            with plt.rc_context(style.SETTINGS):
                style.save(draw(drawing, frames), base)
            data.write_text(text)
