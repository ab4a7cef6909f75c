"""The tables of an evaluation: avg@k and pass@k overall and by what tasks have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from seeupo_recipe.study.outcomes import Outcomes, from_tallies
from seeupo_recipe.study.statistics import Interval
from seeupo_recipe.study.store import Count
from seeupo_recipe.study.tables.document import Document, Section, percent

Row = Mapping[str, Any]

GROUPS = {"category": "category", "user_turns": "number of user turns", "hops": "number of hops"}
"""Facts in an outcome's ``info`` that its task decides alone, with their names in tables."""

WEAKNESSES = {
    "repeated_calls": "a call made again, word for word, in the same user turn",
    "must_not_act_turns_with_calls": "calls in a user turn in which nothing can be done yet",
}
"""Counts in ``info`` of what BFCL's official checker often lets pass, with their names in tables."""


def evaluation_document(rows: Sequence[Row], k: int, *, name: str, intro: Sequence[str]) -> Document:
    """Tables of the outcomes ``rows`` (lines of ``eval.jsonl``).

    Args:
        rows: At most k samples of each task.
        k: Of avg@k and pass@k.
        name: Base of file names, and title.
        intro: Lines below the title.
    """
    lines = [{"by": "all", "value": "all tasks", **_measures(rows, k, "all")}]
    for key in GROUPS:
        # An environment failure has no info: the group of its task is known from the task's other samples.
        value = {row["task_id"]: row["info"][key] for row in rows if key in row["info"]}
        for group in sorted(set(value.values())):
            members = [row for row in rows if value.get(row["task_id"]) == group]
            lines.append({"by": key, "value": str(group), **_measures(members, k, f"{key}={group}")})
    frame = pd.DataFrame(lines)
    sections = [_section("Overall", frame[frame["by"] == "all"], k, "over")]
    sections += [
        _section(f"By {title}", frame[frame["by"] == key], k, title)
        for key, title in GROUPS.items()
        if (frame["by"] == key).any()
    ]
    weaknesses = _weaknesses(rows)
    if weaknesses is not None:
        sections.append(
            Section(
                "What the official checker lets pass",
                pd.DataFrame(
                    [
                        {
                            "event": WEAKNESSES[line.event],
                            "episodes with it": f"{line.episodes_with} of {line.episodes}",
                            "passes with it": f"{line.passes_with} of {line.passes}",
                        }
                        for line in weaknesses.itertuples()
                    ]
                ),
                [
                    "The scores above are the official checker's; nothing is taken off for these events. "
                    "`make bfcl-weaknesses` measures on the reference solutions how often the checker lets them pass."
                ],
            )
        )
    frames = {"": frame} | ({} if weaknesses is None else {"weaknesses": weaknesses})
    return Document("evaluation", name, intro, sections, frames)


def _measures(rows: Sequence[Row], k: int, name: str) -> dict[str, Any]:
    found = _outcomes(rows, k)
    avg, passed = (found.interval(metric, name=f"evaluation/{name}") for metric in ("avg", "pass"))
    return {
        "tasks": len(found.tasks),
        "episodes": len(rows),
        "environment_failures": found.failures,
        "truncated": sum(row["stop_reason"] in ("max_turns", "context_length") for row in rows),
        "cut_messages": sum(row["cut_turns"] for row in rows),
        **_bounds(f"avg@{k}", avg),
        **_bounds(f"pass@{k}", passed),
    }


def _outcomes(rows: Sequence[Row], k: int) -> Outcomes:
    by_task: dict[str, list[Row]] = {}
    for row in rows:
        by_task.setdefault(row["task_id"], []).append(row)
    tally = {}
    for task, mine in by_task.items():
        counted = [row for row in mine if row["failure"] is None]
        successes, total = sum(bool(row["success"]) for row in counted), sum(row["score"] for row in counted)
        tally[task] = Count(str(mine[0]["cluster"]), len(mine), len(counted), successes, total)
    return from_tallies({0: tally}, k)


def _bounds(name: str, interval: Interval | None) -> dict[str, float | None]:
    value, low, high = interval or (None, None, None)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def _section(title: str, frame: pd.DataFrame, k: int, first: str) -> Section:
    def text(line: Mapping[str, Any], name: str) -> str:
        values = [line[key] for key in (name, f"{name}_low", f"{name}_high")]
        return percent(None if pd.isna(values[0]) else Interval(*values))

    counts = ("tasks", "episodes", "environment_failures", "truncated", "cut_messages")
    lines = [
        {
            first: line["value"],
            **{f"{name}, %": text(line, name) for name in (f"avg@{k}", f"pass@{k}")},
            **{name.replace("_", " "): str(line[name]) for name in counts},
        }
        for line in frame.to_dict("records")
    ]
    note = (
        "Brackets: 95% bootstrap interval over tasks (clusters of tasks where the benchmark has them). "
        f"pass@{k} leaves out tasks with fewer than {k} episodes that count; environment failures never count."
    )
    return Section(title, pd.DataFrame(lines), [note] if title == "Overall" else [])


def _weaknesses(rows: Sequence[Row]) -> pd.DataFrame | None:
    """Episodes and passes with each event; None where the benchmark does not count them."""
    counted = [row for row in rows if all(event in row["info"] for event in WEAKNESSES)]
    if not counted:
        return None
    passes = [row for row in counted if row["success"]]
    return pd.DataFrame(
        [
            {
                "event": event,
                "episodes": len(counted),
                "episodes_with": sum(row["info"][event] > 0 for row in counted),
                "passes": len(passes),
                "passes_with": sum(row["info"][event] > 0 for row in passes),
            }
            for event in WEAKNESSES
        ]
    )
