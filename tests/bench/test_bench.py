"""The cost benchmark: what each method forwards and differentiates, against counts taken by hand."""

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seeupo_recipe.bench.methods import METHODS
from seeupo_recipe.bench.plan import full_plan, quick_plan
from seeupo_recipe.bench.report import criteria, ratios
from seeupo_recipe.bench.rollouts import SHAPES, record, trajectory_lengths

ROOT = Path(__file__).parents[2]
SIZES = {"groups": 2, "group_size": 4, "prompt": 9, "response": 4, "vocabulary": 300}


class Counter:
    """An updater that counts and leaves the weights as they are."""

    def __init__(self, use_kl):
        self.use_kl, self.forward, self.backward = use_kl, 0, 0

    def anchor(self, rows):
        self.forward += sum(row.tokens for row in rows)

    refer = anchor

    def step(self, rows, weights, *, denominator, last):
        assert len(rows) == len(weights) <= denominator
        self.anchor(rows)
        self.backward += sum(row.tokens for row in rows)
        return dict.fromkeys(("clipped", "ratio_deviation", "kl_old", "kl_ref", "rows", "grad_norm"), 0.0)

    def log_ratio(self, rows, *, kind, clamp):
        self.anchor(rows)
        return torch.zeros(len(rows))


def by_hand(method, rollouts, use_kl):
    """Forward tokens, backward tokens and optimizer steps, in plain sums over trajectories."""
    passes = 2 if use_kl else 1
    every = sum(row.tokens for row in rollouts.rows)
    longest = 1 + max(row.turn for row in rollouts.rows)
    if method in ("grpo", "gspo"):
        return (passes + 1) * every, every, 1
    if method == "grpo_matched":
        return (passes + 1) * every, every, longest
    if method == "seeupo":
        read_again = sum(row.tokens for row in rollouts.rows if row.turn > 0)
        return (passes + 1) * every + read_again, every, longest
    pools = 0
    for name in rollouts.advantages:
        rows = [row for row in rollouts.rows if row.trajectory == name]
        pools += sum(row.tokens for row in rows) + (rollouts.turns - len(rows)) * rows[-1].tokens
    return (passes + 2) * pools, pools, rollouts.turns


@pytest.mark.parametrize("use_kl", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("turns", [1, 2, 5, 10])
@pytest.mark.parametrize("method", METHODS)
def test_counts_of_every_method(method, turns, shape, use_kl):
    rollouts = record(turns, shape, **SIZES)
    counter = Counter(use_kl)
    steps = METHODS[method][0](rollouts, counter)
    assert (counter.forward, counter.backward, steps) == by_hand(method, rollouts, use_kl)


@given(turns=st.integers(1, 40), trajectories=st.integers(1, 30))
def test_ragged_lengths_reach_t_and_have_mean_half_of_it(turns, trajectories):
    lengths = trajectory_lengths(turns, trajectories, "ragged")
    assert len(lengths) == trajectories and min(lengths) >= 1 and max(lengths) == turns
    assert sum(lengths) == max(turns * trajectories // 2, turns + trajectories - 1)


def test_rows_are_the_same_in_every_process_and_placeholders_are_copies():
    assert record(5, "ragged", **SIZES) == record(5, "ragged", **SIZES)
    assert {row.tokens for row in record(5, "equal", **SIZES).rows} == {13}


def test_criteria_are_computed_from_the_medians():
    def rows(shape, turns, method, forward, backward, seconds):
        return [
            {"ranks": 1, "shape": shape, "kl": True, "turns": turns, "method": method, "repeat": i,
             "forward_tokens": forward, "backward_tokens": backward, "cpu_seconds": seconds[i]}
            for i in range(3)
        ]  # fmt: skip

    table = pd.DataFrame(
        [
            *rows("ragged", 10, "grpo", 30, 10, [1.0, 1.0, 4.0]),
            *rows("ragged", 10, "seeupo", 45, 10, [2.0, 3.0, 8.0]),
            *rows("ragged", 10, "released", 100, 25, [6.0, 6.0, 6.0]),
        ]
    )
    found = {item.text: item for item in criteria(table)}
    over_grpo, over_released = found.values()
    assert (over_grpo.counted, over_grpo.measured) == (65 / 50, 3.0) and "NOT met" in str(over_grpo)
    assert (over_released.counted, over_released.measured) == (65 / 150, 0.5) and ": met" in str(over_released)
    spread = ratios(table, "cpu_seconds", "grpo").loc[(1, "ragged", True, 10, "seeupo")]
    assert spread.tolist() == [2.0, 2.0, 3.0]


def test_plans_cover_the_criteria():
    settings = {(case.ranks, case.shape, case.turns, case.kl) for case in full_plan().cases}
    assert {(1, shape, turns, True) for shape in SHAPES for turns in (2, 5, 10, 20)} <= settings
    assert {case.ranks for case in full_plan().cases} == {case.ranks for case in quick_plan().cases} == {1, 2}
    assert {case.kl for case in quick_plan().cases} == {True, False}


@pytest.mark.timeout(400)
@pytest.mark.slow
def test_the_quick_benchmark_on_verls_worker_counts_what_is_counted_by_hand(tmp_path):
    environment = {**os.environ, "SEEUPO_RESULTS": str(tmp_path), "SEEUPO_PLOTS": str(tmp_path / "plots")}
    command = [sys.executable, str(ROOT / "scripts" / "bench_cost.py"), "--quick"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr[-3000:]
    table = pd.read_csv(tmp_path / "bench" / "cost-quick.csv")
    plan = quick_plan()
    assert len(table) == len(METHODS) * sum(case.repeats for case in plan.cases)
    for row in table[table.ranks == 1].itertuples():
        rollouts = record(row.turns, row.shape, **plan.sizes)
        assert (row.forward_tokens, row.backward_tokens, row.optimizer_steps) == by_hand(row.method, rollouts, row.kl)
    page = (tmp_path / "bench" / "cost-quick.md").read_text()
    assert "## Criteria" in page and "counted **" in page
    assert (tmp_path / "plots" / "bench" / "cost-quick.png").stat().st_size > 10_000
    assert (tmp_path / "plots" / "bench" / "cost-quick.pdf").stat().st_size > 1_000
