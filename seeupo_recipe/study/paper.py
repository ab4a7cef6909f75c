"""The paper's numbers and described curves, and what can be computed about them."""

from __future__ import annotations

import itertools
from functools import lru_cache

import numpy as np
import pandas as pd
import yaml

from seeupo_recipe.runs import ROOT
from seeupo_recipe.study.statistics import Interval, newcombe, wilson

PAPER = ROOT / "results" / "paper"


@lru_cache
def numbers() -> pd.DataFrame:
    """``numbers.csv``; ``value`` is text where the paper gives a range."""
    frame = pd.read_csv(PAPER / "numbers.csv", dtype={"value": str})
    return frame.assign(amount=pd.to_numeric(frame["value"], errors="coerce"))


@lru_cache
def curves() -> pd.DataFrame:
    """``curves.csv``: points that the paper's figures are described with."""
    return pd.read_csv(PAPER / "curves.csv", dtype={"figure": str})


@lru_cache
def samples() -> dict[str, dict]:
    """``samples.yaml``: tasks, clusters and samples per task of each benchmark's evaluation."""
    return yaml.safe_load((PAPER / "samples.yaml").read_text())


def same_model(ours: str, theirs: str) -> bool:
    return ours.lower() == theirs.lower()


def lookup(table: int, model: str, benchmark: str, method: str, metric: str) -> float | None:
    """The paper's value in percent or seconds; None if it gives none."""
    frame = numbers()
    found = frame[
        (frame["table"] == table)
        & frame["model"].map(lambda m: same_model(model, m))
        & (frame["benchmark"] == benchmark)
        & (frame["method"] == method)
        & (frame["metric"] == metric)
    ]["amount"].dropna()
    return float(found.iloc[0]) if len(found) else None


def context_table(table: int) -> pd.DataFrame:
    """The paper's table as text: rows model and method, columns benchmark and metric."""
    frame = numbers()[numbers()["table"] == table]
    frame = frame.assign(column=frame["benchmark"] + " " + frame["metric"].str.replace("_", " "))
    columns = list(dict.fromkeys(sorted(frame["column"], key=_column_order)))
    wide = frame.pivot_table(index=["model", "method"], columns="column", values="value", aggfunc="first", sort=False)
    return wide.reindex(columns=columns).fillna("-").reset_index()


def _column_order(column: str) -> tuple[int, str]:
    return ("AppWorld", "BFCL-v4", "average").index(column.split()[0]), column


def denominator(benchmark: str, metric: str) -> int:
    """Number of outcomes behind a percentage: tasks for pass@k, tasks times samples for avg@k."""
    facts = samples()[benchmark]
    return facts["tasks"] * (facts["samples_per_task"] if metric.startswith("avg") else 1)


def possible(percent: float, n: int, decimals: int = 2) -> bool:
    """GRIM: whether k/n for a whole k prints as ``percent`` (rounding half up or half to even)."""
    unit = 10.0**-decimals
    nearest = round(percent / 100 * n)
    return any(
        abs(100 * k / n - percent) <= unit / 2 + 1e-9 for k in range(max(0, nearest - 1), min(n, nearest + 1) + 1)
    )


def grim() -> pd.DataFrame:
    """Every stated percentage of a single benchmark: whether it is possible with the number of outcomes."""
    frame = numbers()
    frame = frame[(frame["unit"] == "%") & frame["amount"].notna() & (frame["benchmark"] != "average")]
    rows = []
    for row in frame.itertuples():
        n = denominator(row.benchmark, row.metric)
        k = round(row.amount / 100 * n)
        head = {"table": row.table, "model": row.model, "benchmark": row.benchmark, "method": row.method}
        head |= {"metric": row.metric, "value": row.amount, "outcomes": n, "nearest": f"{k}/{n}"}
        rows.append({**head, "nearest_percent": round(100 * k / n, 2), "possible": possible(row.amount, n)})
    return pd.DataFrame(rows)


def averages() -> pd.DataFrame:
    """Every stated average of the two benchmarks: whether whole counts can give it, and whether it agrees.

    ``mean`` and ``agrees`` compare with the mean of the benchmarks' own values, where the paper states both.
    """
    frame = numbers()
    frame = frame[(frame["unit"] == "%") & frame["amount"].notna() & frame["provenance"].str.startswith("stated")]
    rows = []
    for key, group in frame.groupby(["table", "model", "method", "metric"], sort=False):
        stated = group[group["benchmark"] == "average"]["amount"]
        singles = group[group["benchmark"] != "average"]["amount"]
        if len(stated):
            mean = singles.mean() if len(singles) == 2 else float("nan")
            agrees = abs(mean - stated.iloc[0]) <= 0.005 + 1e-9 if len(singles) == 2 else None
            head = dict(zip(("table", "model", "method", "metric"), key, strict=True))
            possible = possible_average(stated.iloc[0], *(denominator(b, key[3]) for b in samples()))
            rows.append({**head, "stated": stated.iloc[0], "possible": possible, "mean": mean, "agrees": agrees})
    return pd.DataFrame(rows)


def possible_average(percent: float, n: int, m: int, decimals: int = 2) -> bool:
    """Whether the mean of some j/n and k/m, rounded before or after averaging, prints as ``percent``."""
    one, two = (100 * np.arange(size + 1) / size for size in (n, m))
    exact = (one[:, None] + two[None, :]) / 2
    rounded = (one.round(decimals)[:, None] + two.round(decimals)[None, :]) / 2
    tolerance = 10.0**-decimals / 2 + 1e-9
    return bool((abs(exact - percent) <= tolerance).any() or (abs(rounded - percent) <= tolerance).any())


def intervals() -> pd.DataFrame:
    """Indicative 95% intervals of the paper's percentages.

    Wilson intervals with the tasks, and with the clusters, as the independent units: samples of one task
    agree with each other, and so do the tasks of one AppWorld scenario. The paper gives no per-task
    outcomes and one training run per cell, so these cover the choice of tasks only.
    """
    rows = []
    for row in grim().itertuples():
        facts = samples()[row.benchmark]
        share = row.value / 100
        by_task, by_cluster = wilson(share, facts["tasks"]), wilson(share, facts["clusters"])
        head = {"table": row.table, "model": row.model, "benchmark": row.benchmark, "method": row.method}
        head |= {"metric": row.metric, "value": row.value}
        rows.append({**head, **_bounds("tasks", by_task), **_bounds("clusters", by_cluster)})
    return pd.DataFrame(rows)


def differences() -> pd.DataFrame:
    """Indicative intervals of the differences between the paper's methods, per table and benchmark.

    Newcombe intervals for independent samples; the paper's methods share their tasks, so a paired interval
    could be narrower, but needs the per-task outcomes.
    """
    rows = []
    frame = grim()
    for key, group in frame.groupby(["table", "model", "benchmark", "metric"], sort=False):
        facts = samples()[key[2]]
        for a, b in itertools.combinations(group.itertuples(), 2):
            by_task, by_cluster = (
                newcombe(a.value / 100, facts[unit], b.value / 100, facts[unit]) for unit in ("tasks", "clusters")
            )
            head = dict(zip(("table", "model", "benchmark", "metric"), key, strict=True))
            head |= {"a": a.method, "b": b.method, "difference": round(a.value - b.value, 2)}
            rows.append({**head, **_bounds("tasks", by_task), **_bounds("clusters", by_cluster)})
    return pd.DataFrame(rows)


def _bounds(unit: str, interval: Interval) -> dict[str, float]:
    return {f"low_{unit}": round(100 * interval.low, 1), f"high_{unit}": round(100 * interval.high, 1)}
