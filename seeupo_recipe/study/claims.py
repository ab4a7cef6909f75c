"""The paper's claims, and what the recorded runs say of each, per environment, model and backend.

Rules, fixed before any run was looked at. Intervals are the 95% intervals of the tables.

- better: "shown" if the interval of the paired difference a - b of avg@k lies above 0, "opposite" if below.
- similar: "shown" if that interval lies within the margin on both sides, "opposite" if wholly beyond it.
- collapses: "shown" if more than half of the seeds collapse, "opposite" if none does.
- steady: "shown" if no seed collapses, "opposite" if more than half do.
- costlier: "shown" if the interval of the ratio of seconds per iteration lies above 1, "opposite" if below.

Anything else is "not shown", and "not run" if a run that it needs is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pandas as pd
import yaml

from seeupo_recipe.strict import ConfigError, build_strict
from seeupo_recipe.study.collapse import COLLAPSED, judge
from seeupo_recipe.study.collect import Block
from seeupo_recipe.study.outcomes import paired
from seeupo_recipe.study.paper import PAPER
from seeupo_recipe.study.statistics import Interval, crossed_replicates, holm, percentile_interval, two_sided_p
from seeupo_recipe.study.tables.cost import comparable_steps, ratio_of_means
from seeupo_recipe.study.tables.outcomes import cell_outcomes
from seeupo_recipe.study.training import SUCCESS

COLUMNS = [
    *("claim", "text", "origin", "paper", "backend", "model", "benchmark", "verdict", "evidence"),
    *("value", "low", "high", "seeds", "p"),
]
SHOWN, NOT_SHOWN, OPPOSITE, NOT_RUN = "shown", "not shown", "opposite", "not run"


@dataclass(frozen=True)
class Claim:
    """One line of ``results/paper/claims.yaml``.

    Attributes:
        id: Name in the CSV.
        kind: Which rule decides.
        study: Study whose cells are compared.
        a: Variant that the claim is about.
        b: Variant that it is compared with, if any.
        text: The claim in words.
        paper: Where the paper reports it.
        origin: ``paper`` or ``control``.
        margin: ``similar``: largest difference that counts as none, in points.
    """

    id: str
    kind: str
    study: str
    a: str
    text: str
    paper: str
    origin: str
    b: str | None = None
    margin: float = 5.0


@dataclass(frozen=True)
class Finding:
    """What one cell's runs say: the verdict, the evidence in words, and the numbers behind it."""

    verdict: str
    evidence: str = ""
    interval: Interval | None = None
    seeds: int = 0
    p: float | None = None


@lru_cache
def load_claims() -> tuple[Claim, ...]:
    """All claims.

    Raises:
        ConfigError: For a key, kind or second variant that does not fit.
    """
    where = "results/paper/claims.yaml"
    claims = tuple(build_strict(Claim, raw, where=where) for raw in yaml.safe_load((PAPER / "claims.yaml").read_text()))
    for claim in claims:
        if claim.kind not in RULES:
            raise ConfigError(f"{where}: kind {claim.kind!r} of {claim.id}: choose one of {', '.join(RULES)}")
        if (claim.b is None) == (claim.kind in ("better", "similar", "costlier")):
            raise ConfigError(f"{where}: {claim.id} of kind {claim.kind} has {'no' if claim.b is None else 'a'} b")
    return claims


def judge_claims(claims: Sequence[Claim], blocks: Mapping[str, Sequence[Block]], k: int = 4) -> pd.DataFrame:
    """One row per claim, block and benchmark; ``holm_p`` adjusts over all ``better`` claims of a block.

    Args:
        claims: The claims.
        blocks: Blocks of each study by its name; a claim about a study that is not there is left out.
        k: Of avg@k.
    """
    rows = []
    for claim in claims:
        for block in blocks.get(claim.study, ()):
            for benchmark in block.benchmarks:
                finding = RULES[claim.kind](claim, block, benchmark, k)
                value, low, high = finding.interval or (None, None, None)
                rows.append(
                    {
                        "claim": claim.id,
                        "text": claim.text,
                        "origin": claim.origin,
                        "paper": claim.paper,
                        "backend": block.backend,
                        "model": block.model,
                        "benchmark": benchmark,
                        "verdict": finding.verdict,
                        "evidence": finding.evidence,
                        "value": value,
                        "low": low,
                        "high": high,
                        "seeds": finding.seeds,
                        "p": finding.p,
                    }
                )
    frame = pd.DataFrame(rows, columns=COLUMNS).astype({name: float for name in ("value", "low", "high", "p")})
    frame["holm_p"] = float("nan")
    for _, group in frame[frame["p"].notna()].groupby(["backend", "model"]):
        frame.loc[group.index, "holm_p"] = holm(group["p"].tolist())
    return frame


def _difference(claim: Claim, block: Block, benchmark: str, k: int) -> tuple[Interval, int, float] | None:
    a, b = (cell_outcomes(block[name, benchmark], k) for name in (claim.a, claim.b))
    shared = paired(a, b, "avg") if a and b else None
    if shared is None:
        return None
    values, clusters, seeds = shared
    replicates = crossed_replicates(values, clusters, name=benchmark)
    mean = float(values[~pd.isna(values)].mean())
    return percentile_interval(mean, replicates), len(seeds), two_sided_p(replicates)


def _better(claim: Claim, block: Block, benchmark: str, k: int) -> Finding:
    found = _difference(claim, block, benchmark, k)
    if found is None:
        return Finding(NOT_RUN)
    interval, seeds, p = found
    verdict = SHOWN if interval.low > 0 else OPPOSITE if interval.high < 0 else NOT_SHOWN
    return Finding(verdict, _points(interval), interval, seeds, p)


def _similar(claim: Claim, block: Block, benchmark: str, k: int) -> Finding:
    found = _difference(claim, block, benchmark, k)
    if found is None:
        return Finding(NOT_RUN)
    interval, seeds, _ = found
    margin = claim.margin / 100
    inside = -margin < interval.low and interval.high < margin
    beyond = interval.low > margin or interval.high < -margin
    verdict = SHOWN if inside else OPPOSITE if beyond else NOT_SHOWN
    return Finding(verdict, f"{_points(interval)}, margin {claim.margin:g}", interval, seeds)


def _points(interval: Interval) -> str:
    return "{:+.1f} [{:+.1f}, {:+.1f}] points".format(*interval.scaled(100))


def _collapse_count(claim: Claim, block: Block, benchmark: str) -> tuple[int, int]:
    """Collapsed seeds, and seeds that are long enough to be judged."""
    runs = [run for run in block[claim.a, benchmark].finished if run.iterations]
    kinds = [judge(run.series(SUCCESS)).kind for run in runs]
    return kinds.count(COLLAPSED), len(kinds) - kinds.count("too short")


def _collapses(claim: Claim, block: Block, benchmark: str, k: int) -> Finding:
    collapsed, seeds = _collapse_count(claim, block, benchmark)
    if not seeds:
        return Finding(NOT_RUN)
    verdict = SHOWN if 2 * collapsed > seeds else OPPOSITE if collapsed == 0 else NOT_SHOWN
    return Finding(verdict, f"{collapsed} of {seeds} collapsed", None, seeds)


def _steady(claim: Claim, block: Block, benchmark: str, k: int) -> Finding:
    collapsed, seeds = _collapse_count(claim, block, benchmark)
    if not seeds:
        return Finding(NOT_RUN)
    verdict = SHOWN if collapsed == 0 else OPPOSITE if 2 * collapsed > seeds else NOT_SHOWN
    return Finding(verdict, f"{collapsed} of {seeds} collapsed", None, seeds)


def _costlier(claim: Claim, block: Block, benchmark: str, k: int) -> Finding:
    found = comparable_steps(block, claim.a, claim.b, benchmark)
    if found is None:
        return Finding(NOT_RUN)
    a, b, seeds = found
    ratio = ratio_of_means(a, b)
    verdict = SHOWN if ratio.low > 1 else OPPOSITE if ratio.high < 1 else NOT_SHOWN
    return Finding(verdict, "{:.2f} [{:.2f}, {:.2f}] times".format(*ratio), ratio, seeds)


RULES: Mapping[str, Callable[[Claim, Block, str, int], Finding]] = {
    "better": _better,
    "similar": _similar,
    "collapses": _collapses,
    "steady": _steady,
    "costlier": _costlier,
}
