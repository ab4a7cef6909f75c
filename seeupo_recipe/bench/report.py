"""The benchmark's measurements as CSV and Markdown, with its criteria computed."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pandas as pd

from seeupo_recipe.bench.plan import Plan
from seeupo_recipe.bench.worker import KL_COEFFICIENT, MICRO_BATCH_TOKENS, PHASES

CASE = ["ranks", "shape", "kl", "turns"]
LABELS = {
    "grpo": "GRPO, one step",
    "grpo_matched": "GRPO, matched steps",
    "gspo": "GSPO, one step",
    "seeupo": "SeeUPO (ours)",
    "released": "released schedule",
}
BACKWARD_WEIGHT = 2


@dataclass(frozen=True)
class Criterion:
    """One bound on counted work, beside the measured ratio of CPU time."""

    text: str
    limit: float
    counted: float
    measured: float

    def __str__(self) -> str:
        verdict = "met" if self.counted <= self.limit else "NOT met"
        return (
            f"- {self.text}: at most {self.limit:g}, counted **{self.counted:.3f}: {verdict}**; "
            f"CPU time {self.measured:.2f}"
        )


def with_work(table: pd.DataFrame) -> pd.DataFrame:
    """``table`` with the counted work: forward tokens plus twice the backward tokens."""
    return table.assign(work=table.forward_tokens + BACKWARD_WEIGHT * table.backward_tokens)


def ratios(table: pd.DataFrame, column: str, base: str) -> pd.DataFrame:
    """Per case and method: minimum, median and maximum over repeats of ``column`` relative to ``base``'s."""
    wide = table.pivot_table(index=[*CASE, "repeat"], columns="method", values=column)
    relative = wide.div(wide[base], axis=0).stack().rename("ratio").reset_index()
    return relative.groupby([*CASE, "method"]).ratio.agg(["min", "median", "max"])


def criteria(table: pd.DataFrame) -> list[Criterion]:
    """The bounds whose cases were run."""
    table = with_work(table)

    def value(column: str, method: str, shape: str, turns: int) -> float:
        rows = table[(table.ranks == 1) & table.kl & (table["shape"] == shape) & (table.turns == turns)]
        return float(rows[rows.method == method][column].median())

    def criterion(text: str, limit: float, top: tuple[str, str, int], bottom: tuple[str, str, int]) -> Criterion:
        counted, measured = (value(c, *top) / value(c, *bottom) for c in ("work", "cpu_seconds"))
        return Criterion(text, limit, counted, measured)

    found = [
        criterion(
            f"SeeUPO / GRPO, {shape} rows, T = {turns}, KL on", 1.2, ("seeupo", shape, turns), ("grpo", shape, turns)
        )
        for shape in ("equal", "ragged")
        for turns in (5, 10)
    ]
    found.append(
        criterion(
            "SeeUPO / released schedule, mean length 5 of T = 10, KL on",
            0.5,
            ("seeupo", "ragged", 10),
            ("released", "ragged", 10),
        )
    )
    found.append(
        criterion(
            "SeeUPO, cost(T = 20) / cost(T = 10), equal rows", 2.1, ("seeupo", "equal", 20), ("seeupo", "equal", 10)
        )
    )
    return [item for item in found if item.counted == item.counted]


def write_report(table: pd.DataFrame, plan: Plan, parameters: int, base: Path, *, note: str) -> Path:
    """Write ``base``.csv and ``base``.md; returns the latter."""
    base.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(base.with_suffix(".csv"), index=False)
    page = base.with_suffix(".md")
    page.write_text("\n\n".join([*_setting(table, plan, parameters, note), *_sections(table)]) + "\n")
    return page


def _setting(table: pd.DataFrame, plan: Plan, parameters: int, note: str) -> list[str]:
    sizes = plan.sizes
    load, cores = os.getloadavg()[1], os.cpu_count() or 1
    busy = "Other work ran beside it; ratios within a repeat remain comparable. " if load > cores else ""
    return [
        "# What an update phase costs",
        "Rebuilt by `make bench`. Update phase: old log-probabilities, reference, optimizer steps and post-update "
        "passes of one iteration, on the same recorded rows, in one process per rank, on verl's training worker "
        f"(FSDP2 on gloo, packed rows, token-balanced micro-batches of {MICRO_BATCH_TOKENS} tokens, AdamW, one thread "
        "per rank). Methods run in an order that rotates and reverses from repeat to repeat; ratios are taken within "
        "a repeat.",
        f"- Policy: {parameters / 1e6:.1f} M parameters, random weights. {sizes['groups']} tasks of "
        f"{sizes['group_size']} trajectories; rows of {sizes['prompt']} + {sizes['response']} tokens (ragged: each "
        "varies by half), kept short so that the whole benchmark takes minutes on two cores. KL coefficient "
        f"{KL_COEFFICIENT:g}.\n"
        "- equal: every trajectory has T turns. ragged: lengths spread from 1 to T with mean T/2.\n"
        f"- Repeats: {_repeats(table)}. Work: tokens forwarded through policy and reference plus "
        f"{BACKWARD_WEIGHT} x tokens differentiated, counted at the models. CPU time is that of all ranks and counts "
        "other load on the machine little; wall time is in the CSV file.\n"
        f"- {platform.machine()}, {cores} cores, Python {platform.python_version()}, torch "
        f"{version('torch')}, verl {version('verl')}; load average at the end {load:.1f}. {busy}{note}".rstrip(),
    ]


def _repeats(table: pd.DataFrame) -> str:
    """How often each method ran in a case: a number, or the fewest and the most."""
    runs = table.groupby(CASE).repeat.nunique()
    return str(runs.max()) if runs.min() == runs.max() else f"{runs.min()} to {runs.max()}"


def _sections(table: pd.DataFrame) -> list[str]:
    table = with_work(table)
    work = ratios(table, "work", "grpo")["median"].unstack("method")
    cpu, released = ratios(table, "cpu_seconds", "grpo"), ratios(table, "cpu_seconds", "released")
    cases, methods = list(work.index), [name for name in LABELS if name in work.columns]
    heads = [LABELS[method] for method in methods]
    counted = [[_number(work.loc[case, method]) for method in methods] for case in cases]
    measured = [[_range(cpu.loc[(*case, method)]) for method in methods] for case in cases]
    against = [[_range(released.loc[(*case, "seeupo")])] for case in cases]
    return [
        "## Criteria\n\n" + "\n".join(map(str, criteria(table))),
        "## Why time and count differ\n\n" + _reasons(table),
        "## Counted work relative to GRPO\n\n" + _table(counted, cases, heads),
        "## CPU time relative to GRPO: median (minimum to maximum)\n\n" + _table(measured, cases, heads),
        "## CPU time of SeeUPO relative to the released schedule\n\n" + _table(against, cases, ["median (min to max)"]),
        "## Tokens, optimizer steps, CPU seconds by phase, peak memory\n\nMedians over repeats.\n\n" + _details(table),
    ]


def _reasons(table: pd.DataFrame) -> str:
    """How much of SeeUPO's time above GRPO's is owed to its optimizer steps and how much to its passes."""
    median = table.groupby([*CASE, "method"])[["cpu_seconds", "update", "post_update"]].median()
    lines = []
    for case, rows in median.groupby(level=CASE):
        cost = rows.droplevel(CASE)
        base, ours = cost.loc["grpo"], cost.loc["seeupo"]
        steps = (ours["update"] - base["update"]) / base.cpu_seconds
        passes = ours.post_update / base.cpu_seconds
        matched = cost.loc["grpo_matched"].cpu_seconds / base.cpu_seconds
        lines.append(
            f"- {_case(case)}: SeeUPO takes {ours.cpu_seconds / base.cpu_seconds:.2f} x GRPO; more optimizer steps on "
            f"smaller batches {steps:+.2f}, post-update passes {passes:+.2f}. GRPO with as many steps: {matched:.2f} x."
        )
    text = (
        "An optimizer step costs the same whatever the size of its pool (clipping and AdamW go over all parameters), "
        "and a pool fills its last micro-batch only in part. Counted work knows neither; with rows as short as here "
        "both weigh more than with rows of thousands of tokens."
    )
    return text + "\n\n" + "\n".join(lines)


def _details(table: pd.DataFrame) -> str:
    columns = ["forward_tokens", "backward_tokens", "optimizer_steps", "cpu_seconds", *PHASES, "peak_mib"]
    median = table.groupby([*CASE, "method"])[columns].median()
    order = sorted(median.index, key=lambda key: (key[:-1], list(LABELS).index(key[-1])))
    cells = [
        [LABELS[key[-1]], *[f"{x:.0f}" for x in median.loc[key][:3]], *[f"{x:.2f}" for x in median.loc[key][3:-1]],
         f"{median.loc[key].iloc[-1]:.0f}"]
        for key in order
    ]  # fmt: skip
    heads = ["method", "forward", "backward", "steps", "CPU s", "log-probs", "reference", "update", "post", "MiB"]
    return _table(cells, [key[:-1] for key in order], heads)


def _table(cells: list[list[str]], cases: list[tuple], heads: list[str]) -> str:
    lines = ["| case | " + " | ".join(heads) + " |", "|---|" + "---|" * len(heads)]
    lines += [f"| {_case(case)} | " + " | ".join(row) + " |" for case, row in zip(cases, cells, strict=True)]
    return "\n".join(lines)


def _case(case: tuple) -> str:
    ranks, shape, kl, turns = case
    return f"{ranks} rank{'s' if ranks > 1 else ''}, {shape}, KL {'on' if kl else 'off'}, T={turns}"


def _number(value: float) -> str:
    return f"{value:.3f}"


def _range(row: pd.Series) -> str:
    return f"{row['median']:.2f} ({row['min']:.2f} to {row['max']:.2f})"
