"""A pivot of avg@k over two keys of a study's grid, with each row's best and worst column by validation."""

from __future__ import annotations

import numpy as np
import pandas as pd

from seeupo_recipe.study.collect import Block, CellRuns
from seeupo_recipe.study.spec import Study, Variant
from seeupo_recipe.study.statistics import Interval
from seeupo_recipe.study.tables.document import EMPTY, Section, percent
from seeupo_recipe.study.tables.outcomes import cell_text

NOTE = (
    "Best and worst: the column with the highest and lowest mean validation score at the last evaluated checkpoint, "
    "and the test result there; choosing by the test result itself would flatter every row."
)


def sections(study: Study, block: Block, frame: pd.DataFrame) -> list[Section]:
    """One pivot per benchmark from the outcome frame of ``block``."""
    rows, columns = study.table.rows, study.table.columns
    points = [v for v in study.variants if rows in v.coordinates and columns in v.coordinates]
    made = []
    for benchmark in block.benchmarks:
        mine = frame[(frame["benchmark"] == benchmark) & (frame["metric"] == f"avg@{study.table.k}")]
        found = {row.variant: row for row in mine.itertuples()}
        lines = []
        for value in dict.fromkeys(v.coordinates[rows] for v in points):
            row = [v for v in points if v.coordinates[rows] == value]
            texts = {
                f"{columns}={v.coordinates[columns]}": cell_text(block[v.name, benchmark], _text(found[v.name]))
                for v in row
            }
            lines.append({rows: str(value), **texts, **_extremes(row, columns, block, benchmark, found)})
        title = f"{block.name}, {benchmark}: avg@{study.table.k} over {rows} and {columns}, %"
        made.append(Section(title, pd.DataFrame(lines).fillna(EMPTY), [NOTE]))
    return made


def _extremes(row: list[Variant], columns: str, block: Block, benchmark: str, found: dict) -> dict[str, str]:
    scores = {v.name: validation_score(block[v.name, benchmark]) for v in row}
    known = [v for v in row if not np.isnan(scores[v.name])]
    if not known:
        return {"best": EMPTY, "worst": EMPTY}
    ranked = sorted(known, key=lambda v: scores[v.name])
    return {
        name: f"{100 * found[v.name].value:.1f} at {v.coordinates[columns]}"
        for name, v in (("best", ranked[-1]), ("worst", ranked[0]))
    }


def validation_score(cell: CellRuns) -> float:
    """Mean validation score over the finished runs, each at its last evaluated checkpoint; NaN without any."""
    scores = [list(run.validation_scores().values())[-1:] for run in cell.finished]
    known = [score for last in scores for score in last]
    return float(np.mean(known)) if known else float("nan")


def _text(row) -> str:
    return percent(None if pd.isna(row.value) else Interval(row.value, row.low, row.high))
