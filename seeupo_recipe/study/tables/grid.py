"""A pivot of avg@k over two keys of a study's grid, with the worst and the best of each row."""

from __future__ import annotations

import pandas as pd

from seeupo_recipe.study.collect import Block
from seeupo_recipe.study.spec import Study
from seeupo_recipe.study.statistics import Interval
from seeupo_recipe.study.tables.document import EMPTY, Section, percent
from seeupo_recipe.study.tables.outcomes import cell_text


def pivot(study: Study, frame: pd.DataFrame, benchmark: str) -> pd.DataFrame:
    """Long frame of one benchmark's avg@k with the grid coordinates of its rows and columns."""
    keys = (study.table.rows, study.table.columns)
    mine = frame[(frame["benchmark"] == benchmark) & (frame["metric"] == f"avg@{study.table.k}")]
    points = {v.name: v.coordinates for v in study.variants if all(k in v.coordinates for k in keys)}
    mine = mine[mine["variant"].isin(points)]
    return mine.assign(**{key: [points[name][key] for name in mine["variant"]] for key in keys})


def sections(study: Study, block: Block, frame: pd.DataFrame) -> list[Section]:
    """One pivot per benchmark."""
    rows_key, columns_key = study.table.rows, study.table.columns
    made = []
    for benchmark in block.benchmarks:
        long = pivot(study, frame, benchmark)
        columns = list(dict.fromkeys(long[columns_key]))
        lines = []
        for row_value in dict.fromkeys(long[rows_key]):
            mine = long[long[rows_key] == row_value]
            by = {getattr(r, "_asdict")()[columns_key]: r for r in mine.itertuples(index=False)}
            line = {rows_key: str(row_value)}
            for column in columns:
                line[f"{columns_key}={column}"] = _text(by.get(column), block, benchmark)
            known = mine.dropna(subset=["value"])
            for name, pick in (("worst", "idxmin"), ("best", "idxmax")):
                if len(known):
                    chosen = known.loc[getattr(known["value"], pick)()]
                    line[name] = f"{100 * chosen['value']:.1f} at {chosen[columns_key]}"
                else:
                    line[name] = EMPTY
            lines.append(line)
        title = f"{block.name}, {benchmark}: avg@{study.table.k} over {rows_key} and {columns_key}, %"
        made.append(Section(title, pd.DataFrame(lines), ["Worst and best are chosen on the test tasks shown."]))
    return made


def _text(row, block: Block, benchmark: str) -> str:
    if row is None:
        return EMPTY
    interval = None if pd.isna(row.value) else Interval(row.value, row.low, row.high)
    return cell_text(block[row.variant, benchmark], percent(interval))
