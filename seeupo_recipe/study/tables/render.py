"""From frames to the documents that are shown: one per study."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from seeupo_recipe.study import paper
from seeupo_recipe.study.collect import Block
from seeupo_recipe.study.outcomes import METRICS
from seeupo_recipe.study.spec import Study, Variant
from seeupo_recipe.study.statistics import RESAMPLES, SEEDS_FOR_AGGREGATES, Interval
from seeupo_recipe.study.tables import cost, grid
from seeupo_recipe.study.tables.document import EMPTY, Document, Section, number, p_value, percent, points
from seeupo_recipe.study.tables.outcomes import (
    AVERAGE,
    aggregate_frame,
    cell_text,
    difference_frame,
    outcome_frame,
    runs_text,
    steps_of,
)
from seeupo_recipe.study.tables.training import checkpoint_frame, training_frame

INTERVALS = (
    "Brackets: 95% bootstrap intervals over tasks (by cluster) and seeds. With one seed they cover the choice of "
    "tasks only; with fewer than five they are too narrow for the chance in training."
)
PROBLEMS_SHOWN = 10
COST_INTERVALS = "Brackets: 95% bootstrap intervals over iterations."


def document(study: Study, scale: str, blocks: Sequence[Block], problems: Sequence[str] = ()) -> Document:
    """The document of a study's table; ``problems`` are records of the scale that cannot be used."""
    build = cost.sections if study.table.layout == "cost" else outcome_sections
    sections, frames = build(study, blocks)
    sections += [not_run_section(block) for block in blocks if not block.started]
    sections += problem_sections(problems)
    sections += paper_sections(study, scale)
    intro = [study.question, COST_INTERVALS if study.table.layout == "cost" else INTERVALS]
    return Document(study.name, f"{study.title} ({scale})", intro, sections, frames)


def outcome_sections(study: Study, blocks: Sequence[Block]) -> tuple[list[Section], dict[str, pd.DataFrame]]:
    """Sections of every started block."""
    frames = {
        "": outcome_frame(study, blocks),
        "differences": difference_frame(study, blocks),
        "seeds": aggregate_frame(study, blocks),
        "training": training_frame(study, blocks),
        "checkpoints": checkpoint_frame(study, blocks),
    }
    sections: list[Section] = []
    for block in (b for b in blocks if b.started):
        mine = {name: _of(frame, block) for name, frame in frames.items()}
        sections.append(_outcomes(study, block, mine[""]))
        if study.table.layout == "grid":
            sections += grid.sections(study, block, mine[""])
        for build, name in (
            (_differences, "differences"),
            (_aggregates, "seeds"),
            (_training, "training"),
            (_checkpoints, "checkpoints"),
        ):
            if len(mine[name]):
                sections.append(build(study, block, mine[name]))
    return sections, {name: frame for name, frame in frames.items() if len(frame) or not name}


def _of(frame: pd.DataFrame, block: Block) -> pd.DataFrame:
    if not len(frame):
        return frame
    return frame[(frame["backend"] == block.backend) & (frame["model"] == block.model)]


def _rows(study: Study, block: Block) -> list[tuple[Variant, dict[str, str]]]:
    """Leading columns of every variant; the steps column only where variants differ in it."""
    steps = {v.name: steps_of(block[v.name, block.benchmarks[0]]) for v in study.variants}
    several = len(set(steps.values())) > 1
    return [(v, {"variant": v.label, **({"steps": steps[v.name]} if several else {})}) for v in study.variants]


def _outcomes(study: Study, block: Block, frame: pd.DataFrame) -> Section:
    found = {(r.variant, r.benchmark, r.metric): r for r in frame.itertuples()}
    metrics = [f"{m}@{study.table.k}" for m in METRICS]
    columns = [*block.benchmarks, *([AVERAGE] if len(block.benchmarks) > 1 else [])]
    lines = []
    for variant, head in _rows(study, block):
        cells = [block[variant.name, b] for b in block.benchmarks]
        for benchmark in columns:
            for metric in metrics:
                text = percent(_interval(found[variant.name, benchmark, metric]))
                if benchmark != AVERAGE:
                    text = cell_text(block[variant.name, benchmark], text)
                head[f"{benchmark} {metric}"] = text
        lines.append({**head, "runs": runs_text(cells)})
    notes = [f"{b}: {context}." for b, contexts in block.contexts.items() for context in contexts]
    for row in frame[frame["seeds"] > 0].drop_duplicates("benchmark").itertuples():
        notes.append(
            f"{row.benchmark}: {row.tasks} test tasks in {row.clusters} clusters, {row.samples} samples of each."
        )
    failures = frame[frame["metric"] == metrics[0]].groupby("benchmark", sort=False)["environment_failures"].sum()
    notes += [f"{b}: {n} evaluation episodes lost to environment failures, left out." for b, n in failures.items() if n]
    notes += _problems(block)
    notes += block.notes
    return Section(f"{block.name}: outcomes at the last checkpoint, %", pd.DataFrame(lines), notes)


def _interval(row) -> Interval | None:
    return None if pd.isna(row.value) else Interval(row.value, row.low, row.high)


def _problems(block: Block) -> list[str]:
    """One line per run that failed or stopped."""
    return [
        f"{run.run_id}: {run.state}, {run.problem}."
        for cell in block.cells.values()
        for _, run in sorted(cell.runs.items())
        if run.state in ("failed", "interrupted")
    ]


def _differences(study: Study, block: Block, frame: pd.DataFrame) -> Section:
    found = {(r.variant, r.benchmark, r.metric): r for r in frame.itertuples()}

    def cells(variant: Variant, benchmark: str) -> dict[str, str]:
        texts = {}
        for metric in METRICS:
            row = found.get((variant.name, benchmark, f"{metric}@{study.table.k}"))
            texts[f"{benchmark} {metric}@{study.table.k}"] = points(_interval(row)) if row else EMPTY
            if metric == "avg":
                texts[f"{benchmark} Holm p"] = p_value(row.holm_p) if row else EMPTY
                texts[f"{benchmark} seeds"] = str(row.seeds) if row else EMPTY
        return texts

    label = study.variant(study.table.reference).label
    notes = [
        f"{label} minus the row's variant, in percentage points, on the tasks and seeds that both have; positive "
        f"means that {label} is better.",
        "Holm p: two-sided bootstrap p-value of avg@k, adjusted for all comparisons of this block; "
        f"before the adjustment it is never below {2 / (RESAMPLES + 1):.4f}.",
    ]
    return Section(
        f"{block.name}: paired differences, {label} minus variant, points",
        _wide(study, block, cells, without=study.table.reference),
        notes,
        detail=True,
    )


def _wide(
    study: Study, block: Block, cells: Callable[[Variant, str], dict[str, str]], without: str | None = None
) -> pd.DataFrame:
    """Columns from ``cells`` per benchmark; variants and benchmarks that have nothing to show are left out."""
    found = {
        (variant.name, benchmark): cells(variant, benchmark)
        for variant in study.variants
        for benchmark in block.benchmarks
        if variant.name != without
    }
    found = {key: texts for key, texts in found.items() if set(texts.values()) != {EMPTY}}
    benchmarks = [b for b in block.benchmarks if any(key[1] == b for key in found)]
    lines = []
    for variant, head in _rows(study, block):
        for benchmark in benchmarks:
            head |= found.get((variant.name, benchmark), {})
        if any((variant.name, b) in found for b in benchmarks):
            lines.append(head)
    return pd.DataFrame(lines).fillna(EMPTY)


def _aggregates(study: Study, block: Block, frame: pd.DataFrame) -> Section:
    found = {r.variant: r for r in frame.itertuples()}
    lines = []
    for variant, head in _rows(study, block):
        row = found.get(variant.name)
        better = getattr(row, "better", float("nan"))
        head["IQM of avg@k, %"] = percent(Interval(row.iqm, row.iqm_low, row.iqm_high)) if row else EMPTY
        head["reference run better, %"] = (
            EMPTY if pd.isna(better) else percent(Interval(better, row.better_low, row.better_high))
        )
        head["seeds"] = str(row.seeds) if row else f"fewer than {SEEDS_FOR_AGGREGATES}"
        lines.append(head)
    label = study.variant(study.table.reference).label
    benchmarks = frame["benchmarks"].iloc[0].replace(" ", ", ")
    notes = [
        f"Over runs on {benchmarks}; seeds resampled within each benchmark. IQM: mean of the middle half of all runs. "
        f"Reference run better: probability that a run of {label} scores above a run of the variant."
    ]
    return Section(f"{block.name}: across seeds", pd.DataFrame(lines), notes, detail=True)


def _training(study: Study, block: Block, frame: pd.DataFrame) -> Section:
    lines = []
    for variant, head in _rows(study, block):
        for row in frame[frame["variant"] == variant.name].itertuples():
            trend = None if pd.isna(row.slope) else Interval(row.slope, row.slope_low, row.slope_high)
            lines.append(
                {
                    **head,
                    "benchmark": row.benchmark,
                    "first 5, %": number(100 * row.start),
                    "last 5, %": number(100 * row.end),
                    "return per 10 iterations": EMPTY if trend is None else "{:+.3f} [{:+.3f}, {:+.3f}]".format(*trend),
                    "collapsed": f"{row.collapsed}/{row.seeds}",
                    "declined": f"{row.declined}/{row.seeds}",
                    "optimizer steps": number(row.optimizer_steps, ",.0f"),
                    "sampled tokens": number(row.sampled_tokens, ",.0f"),
                    "minutes": number(row.seconds / 60, ",.1f"),
                    "environment failures": str(row.environment_failures),
                }
            )
    notes = [
        "First 5 and last 5: success rate of the training rollouts over five iterations, mean of the seeds. Slope of "
        "the return: least squares on the seeds' mean curve with its t interval.",
        "Collapsed: the success rate rose by at least 10 points and then stayed below half of its maximum (smoothed, "
        "over a tenth of the run). Declined: it fell so without having risen. The exact rule stands in collapse.py.",
    ]
    return Section(f"{block.name}: training", pd.DataFrame(lines), notes, detail=True)


def _checkpoints(study: Study, block: Block, frame: pd.DataFrame) -> Section:
    def cells(variant: Variant, benchmark: str) -> dict[str, str]:
        mine = frame[(frame["variant"] == variant.name) & (frame["benchmark"] == benchmark)]
        played = mine["test_best"].notna()
        test = number(100 * mine["test_best"].mean()) if len(mine) and played.all() else EMPTY
        if len(mine) and not played.all():
            test = f"not played ({played.sum()}/{len(mine)})"
        return {
            f"{benchmark} best iteration": ", ".join(map(str, mine["best"])) or EMPTY,
            f"{benchmark} validation there, %": number(100 * mine["validation_best"].mean()) if len(mine) else EMPTY,
            f"{benchmark} test there, %": test,
        }

    notes = [
        "Best checkpoint: the evaluated iteration with the highest mean validation score, the earliest on a tie. "
        "Means over seeds; the test split is played at the last checkpoint, and at the best one where recorded."
    ]
    return Section(f"{block.name}: best checkpoint by validation", _wide(study, block, cells), notes, detail=True)


def not_run_section(block: Block) -> Section:
    rows = len(block.variants) * len(block.benchmarks)
    return Section(f"{block.name}: not run", None, [f"None of its {rows} cells has a recorded run."])


def problem_sections(problems: Sequence[str]) -> list[Section]:
    """Records that no table uses, and why."""
    if not problems:
        return []
    more = [f"and {len(problems) - PROBLEMS_SHOWN} more."] if len(problems) > PROBLEMS_SHOWN else []
    return [Section("Records left out", None, [*problems[:PROBLEMS_SHOWN], *more])]


def paper_sections(study: Study, scale: str) -> list[Section]:
    """The paper's table as context; at the paper's scale ``compare`` sets the differences beside it."""
    if study.table.paper_table is None:
        return []
    note = "As published, Qwen models of 14B parameters on 8 GPUs (PPO: 16)."
    if scale != "paper":
        note += " Another scale: no difference to it is meaningful."
    title = f"Context: the paper's Table {study.table.paper_table}"
    return [Section(title, paper.context_table(study.table.paper_table), [note])]
