"""The recorded runs beside the paper: verdicts, differences at its scale, and what its own numbers can bear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from seeupo_recipe.study import claims as claim_rules
from seeupo_recipe.study import paper
from seeupo_recipe.study.claims import NOT_RUN, judge_claims, load_claims
from seeupo_recipe.study.collect import Block
from seeupo_recipe.study.spec import Study
from seeupo_recipe.study.statistics import Interval
from seeupo_recipe.study.tables.document import EMPTY, Document, Section, p_value, percent
from seeupo_recipe.study.tables.outcomes import AVERAGE, outcome_frame

PAPER_SCALE = "paper"


def comparison(studies: Mapping[str, Study], blocks: Mapping[str, Sequence[Block]], scale: str) -> Document:
    """The document of ``make compare``."""
    verdicts = judge_claims(load_claims(), blocks)
    side = numbers_frame(studies, blocks, scale)
    sections = [*verdict_sections(verdicts), numbers_section(side, scale), *paper_own_sections()]
    rules = claim_rules.__doc__.split("\n\n", 1)[1]
    frames = {"verdicts": verdicts, **({"numbers": side} if len(side) else {})}
    return Document("comparison", f"Comparison with the paper ({scale})", [rules.strip()], sections, frames)


def verdict_sections(verdicts: pd.DataFrame) -> list[Section]:
    """One table per backend and model: claims by benchmark."""
    sections = []
    for (backend, model), group in verdicts.groupby(["backend", "model"], sort=False):
        title = f"Claims: {model} through {backend}"
        if (group["verdict"] == NOT_RUN).all():
            sections.append(
                Section(title, None, [f"None of {group['claim'].nunique()} claims can be judged: not run."])
            )
            continue
        lines = []
        for _, mine in group.groupby("claim", sort=False):
            first = mine.iloc[0]
            cells = {row.benchmark: _verdict_text(row) for row in mine.itertuples()}
            lines.append({"claim": first["text"], "origin": first["origin"], **cells, "in the paper": first["paper"]})
        notes = [
            "In brackets after each verdict: the evidence, the number of seeds, and for differences the p-value after "
            "Holm's adjustment over all differences of this table. One seed says nothing of the chance in training."
        ]
        sections.append(Section(title, pd.DataFrame(lines), notes))
    return sections


def _verdict_text(row) -> str:
    if row.verdict == NOT_RUN:
        return NOT_RUN
    adjusted = "" if pd.isna(row.holm_p) else f", p {p_value(row.holm_p)}"
    return f"{row.verdict} ({row.evidence}, {row.seeds} seed{'s' if row.seeds != 1 else ''}{adjusted})"


def numbers_frame(studies: Mapping[str, Study], blocks: Mapping[str, Sequence[Block]], scale: str) -> pd.DataFrame:
    """Our value beside the paper's for the same benchmark and model, at the paper's scale only."""
    rows = []
    for name, study in studies.items():
        if scale != PAPER_SCALE or study.table is None or study.table.layout == "cost" or not study.table.paper_table:
            continue
        started = [block for block in blocks[name] if block.started]
        for row in outcome_frame(study, started).itertuples():
            variant = study.variant(row.variant)
            theirs = _paper_value(study, started, row) if variant.paper and row.value == row.value else None
            if theirs is not None:
                inside = row.low <= theirs / 100 <= row.high
                rows.append(
                    {
                        "table": study.table.paper_table,
                        "backend": row.backend,
                        "model": row.model,
                        "benchmark": row.benchmark,
                        "method": variant.paper,
                        "metric": row.metric,
                        "ours": row.value,
                        "low": row.low,
                        "high": row.high,
                        "paper": theirs / 100,
                        "difference": row.value - theirs / 100,
                        "verdict": "inside" if inside else "below ours" if theirs / 100 < row.low else "above ours",
                    }
                )
    return pd.DataFrame(rows)


def _paper_value(study: Study, blocks: Sequence[Block], row) -> float | None:
    block = next(b for b in blocks if (b.backend, b.model) == (row.backend, row.model))
    names = {b: block[row.variant, b].cell.config.benchmark.paper_name for b in block.benchmarks}
    benchmark = AVERAGE if row.benchmark == AVERAGE else names[row.benchmark]
    if row.benchmark == AVERAGE and set(names.values()) != set(paper.samples()):
        return None
    method = study.variant(row.variant).paper
    return paper.lookup(study.table.paper_table, row.model, benchmark, method, row.metric) if benchmark else None


def numbers_section(side: pd.DataFrame, scale: str) -> Section:
    title = "Numbers side by side"
    if not len(side):
        text = f"The runs are of scale {scale}: no difference to the paper's numbers is meaningful."
        if scale == PAPER_SCALE:
            text = "No finished run has a counterpart in the paper."
        return Section(title, None, [text, "The paper's tables stand as context below ours."])
    lines = [
        {
            "method": row.method,
            "model": row.model,
            "benchmark": row.benchmark,
            "metric": row.metric,
            "ours, %": percent(Interval(row.ours, row.low, row.high)),
            "paper, %": f"{100 * row.paper:.2f}",
            "difference": f"{100 * row.difference:+.1f}",
            "the paper's value": row.verdict,
        }
        for row in side.itertuples()
    ]
    return Section(title, pd.DataFrame(lines), ["Inside: the paper's value lies in our 95% interval."])


def paper_own_sections() -> list[Section]:
    """What the paper's own numbers can bear, from its sample sizes."""
    facts = paper.samples()
    sizes = [
        f"{name}: {f['tasks']} tasks in {f['clusters']} clusters, {f['samples_per_task']} samples of each "
        f"({f['provenance']})."
        for name, f in facts.items()
    ]
    grim, averages = paper.grim(), paper.averages()
    impossible = grim[~grim["possible"]]
    odd = averages[~averages["possible"] | (averages["agrees"] == False)]  # noqa: E712
    grim_notes = [
        f"{len(grim) - len(impossible)} of {len(grim)} percentages are possible with these numbers of outcomes (GRIM); "
        "the table lists the others.",
        f"{len(averages) - len(odd)} of {len(averages)} stated averages are possible, and agree with the two "
        "benchmarks where both are stated.",
    ]
    return [
        Section("The paper's sample sizes and impossible percentages", _text(impossible), [*sizes, *grim_notes]),
        Section("Indicative 95% intervals of the paper's percentages", _intervals_table(), [_INTERVAL_NOTE]),
        Section("Indicative 95% intervals of the paper's differences", _differences_table(), [_DIFFERENCE_NOTE]),
    ]


_INTERVAL_NOTE = (
    "Wilson intervals with the tasks, or the clusters (AppWorld scenarios), as independent outcomes; the four samples "
    "of a task count as one. They cover the choice of tasks; the paper trained once per cell, so the chance in "
    "training is not covered."
)
_DIFFERENCE_NOTE = (
    "Newcombe intervals for independent samples, differences of the first method. The methods share their tasks: with "
    "per-task outcomes a paired interval could be narrower."
)


def _intervals_table() -> pd.DataFrame:
    frame = paper.intervals()
    return _text(_bracket(frame[["table", "model", "benchmark", "method", "metric", "value"]], frame))


def _differences_table() -> pd.DataFrame:
    frame = paper.differences()
    ours = frame["a"].isin(["SeeUPO", "reverse", "batch"]) | frame["b"].isin(["SeeUPO", "reverse", "batch"])
    frame = frame[ours]
    head = frame[["table", "model", "benchmark", "metric"]].assign(
        comparison=frame["a"] + " - " + frame["b"], difference=frame["difference"].map("{:+.2f}".format)
    )
    return _text(_bracket(head, frame))


def _bracket(head: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    for unit in ("tasks", "clusters"):
        bounds = zip(frame[f"low_{unit}"], frame[f"high_{unit}"], strict=True)
        head = head.assign(**{f"by {unit}": [f"[{low:.1f}, {high:.1f}]" for low, high in bounds]})
    return head


def _text(frame: pd.DataFrame) -> pd.DataFrame:
    """All cells as text."""
    shown = frame.map(lambda v: EMPTY if v is None or v != v else f"{v:.2f}" if isinstance(v, float) else str(v))
    return shown.rename(columns=lambda name: name.replace("_", " "))
