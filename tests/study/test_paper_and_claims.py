import dataclasses

import numpy as np
import pytest

from seeupo_recipe.study import claims as claim_rules
from seeupo_recipe.study import paper
from seeupo_recipe.study.build import Builder
from seeupo_recipe.study.claims import NOT_RUN, NOT_SHOWN, OPPOSITE, SHOWN, Claim, judge_claims, load_claims
from seeupo_recipe.study.compare import numbers_frame
from seeupo_recipe.study.spec import load_study


def test_grim_equals_a_search_over_all_counts():
    printed = {n: {f"{100 * k / n:.2f}" for k in range(n + 1)} for n in (57, 100, 228, 400)}
    half_up = {n: {f"{np.floor(10000 * k / n + 0.5) / 100:.2f}" for k in range(n + 1)} for n in printed}
    for n in printed:
        for hundredth in range(0, 10001, 7):
            expected = f"{hundredth / 100:.2f}" in printed[n] | half_up[n]
            assert paper.possible(hundredth / 100, n) == expected, (hundredth, n)


def test_four_of_the_papers_percentages_are_impossible():
    frame = paper.grim()
    odd = frame[~frame["possible"]]
    assert odd[["benchmark", "method", "metric", "value"]].values.tolist() == [
        ["AppWorld", "base", "avg@4", 4.83],
        ["AppWorld", "group", "avg@4", 62.35],
        ["AppWorld", "group", "pass@4", 79.21],
        ["BFCL-v4", "group", "avg@4", 58.2],
    ]
    assert set(frame["outcomes"]) == {57, 228, 100, 400}


def test_the_papers_averages_are_consistent():
    frame = paper.averages()
    assert len(frame) == 26 and frame["possible"].all()
    assert set(frame["agrees"].dropna()) == {True}
    assert not paper.possible_average(0.03, 57, 100) and paper.possible_average(50.0, 57, 100)


def test_indicative_intervals_hold_their_value_and_widen_with_fewer_units():
    frame = paper.intervals()
    assert ((frame["low_tasks"] <= frame["value"]) & (frame["value"] <= frame["high_tasks"])).all()
    appworld = frame[frame["benchmark"] == "AppWorld"]
    assert (appworld["low_clusters"] < appworld["low_tasks"]).all()
    row = appworld.query("table == 2 and method == 'SeeUPO' and metric == 'avg@4'").iloc[0]
    assert (row["low_tasks"], row["high_tasks"]) == (50.6, 74.9)


def test_lookup_and_context():
    assert paper.lookup(2, "qwen3-14b", "AppWorld", "SeeUPO", "avg@4") == 63.6
    assert paper.lookup(2, "qwen3-14b", "AppWorld", "base", "avg@4") is None
    assert paper.lookup(2, "tiny-qwen3", "AppWorld", "SeeUPO", "avg@4") is None
    context = paper.context_table(4)
    assert context["method"].tolist() == ["reverse", "natural", "random"]
    assert context["average avg@4"].tolist() == ["60.80", "55.20", "42.29"]


def test_every_claim_is_about_variants_that_exist():
    for claim in load_claims():
        study = load_study(claim.study)
        names = [v.name for v in study.variants]
        assert claim.a in names and (claim.b is None or claim.b in names)
    assert {c.kind for c in load_claims()} == set(claim_rules.RULES)


def judged(world, claim):
    blocks = {claim.study: Builder("mini", (), world.overrides).blocks(load_study(claim.study))}
    frame = judge_claims([claim], blocks)
    return frame[(frame["backend"] == "verl") & (frame["benchmark"] == "vaulthop")].to_dict("records")[0]


BETTER = Claim("x", "better", "table2", "seeupo", "SeeUPO is better", "", "paper", b="grpo-one")


@pytest.mark.parametrize(("end", "verdict"), [(0.3, SHOWN), (0.62, NOT_SHOWN), (0.9, OPPOSITE)])
def test_better(world, end, verdict):
    world.finish(world.cell(), end=0.6)
    world.finish(world.cell(variant="grpo-one"), end=end)
    row = judged(world, BETTER)
    assert row["verdict"] == verdict and row["seeds"] == 1
    assert row["low"] < row["value"] < row["high"] and row["holm_p"] == row["p"]


def test_a_claim_without_its_runs_is_not_run(world):
    world.finish(world.cell(), end=0.6)
    assert judged(world, BETTER)["verdict"] == NOT_RUN


@pytest.mark.parametrize(
    ("end", "margin", "verdict"), [(0.6, 40.0, SHOWN), (0.6, 1.0, NOT_SHOWN), (0.2, 5.0, OPPOSITE)]
)
def test_similar(world, end, margin, verdict):
    world.finish(world.cell(), end=0.6)
    world.finish(world.cell(variant="grpo-one"), end=end)
    assert judged(world, dataclasses.replace(BETTER, kind="similar", margin=margin))["verdict"] == verdict


FALL = [0.2] * 5 + [0.7] * 10 + [0.0] * 25
LEVEL = [0.5] * 40


@pytest.mark.parametrize(
    ("curves", "collapses", "steady"),
    [
        ([FALL, FALL, LEVEL], SHOWN, OPPOSITE),
        ([FALL, LEVEL, LEVEL], NOT_SHOWN, NOT_SHOWN),
        ([LEVEL], OPPOSITE, SHOWN),
        ([], NOT_RUN, NOT_RUN),
    ],
)
def test_collapse_claims(world, curves, collapses, steady):
    world.overrides = ("training.iterations=40", "evaluation.every=0")
    for seed, curve in enumerate(curves):
        world.finish(world.cell(variant="grpo-one"), seed, curve=curve)
    claim = dataclasses.replace(BETTER, kind="collapses", a="grpo-one", b=None)
    assert judged(world, claim)["verdict"] == collapses
    assert judged(world, dataclasses.replace(claim, kind="steady"))["verdict"] == steady


@pytest.mark.parametrize(("seconds", "verdict"), [(3.0, SHOWN), (9.0, OPPOSITE), (6.0, NOT_SHOWN)])
def test_costlier(world, seconds, verdict):
    world.finish(world.cell(), seconds=6.0)
    world.finish(world.cell(variant="grpo-one"), seconds=seconds)
    row = judged(world, dataclasses.replace(BETTER, kind="costlier"))
    assert row["verdict"] == verdict and row["value"] == pytest.approx(6.0 / seconds)


def test_no_difference_to_the_paper_at_another_scale(world):
    world.finish(world.cell())
    builder = Builder("mini", (), world.overrides)
    blocks = {name: builder.blocks(study) for name, study in builder.studies.items()}
    assert len(numbers_frame(builder.studies, blocks, "mini")) == 0
    builder.compare()
    (path,) = (p for p in (builder._results).rglob("comparison.md"))
    assert "The runs are of scale mini: no difference to the paper's numbers is meaningful." in path.read_text()


def test_differences_at_the_papers_scale_are_for_equal_benchmark_and_model(world):
    """Records of the mini scale, told that they are the paper's model and benchmark."""
    for name in ("seeupo", "grpo-matched"):
        world.finish(world.cell(variant=name), end=0.6)
    builder = Builder("mini", ["table2"], world.overrides)
    (block, *_) = builder.blocks(builder.studies["table2"])

    def renamed(cell):
        config = cell.cell.config
        benchmark = dataclasses.replace(config.benchmark, paper_name="AppWorld")
        return dataclasses.replace(
            cell, cell=dataclasses.replace(cell.cell, config=dataclasses.replace(config, benchmark=benchmark))
        )

    cells = {key: renamed(cell) if key[1] == "vaulthop" else cell for key, cell in block.cells.items()}
    block = dataclasses.replace(block, model="qwen3-14b", cells=cells)
    frame = numbers_frame(builder.studies, {"table2": [block]}, "paper")
    assert frame[["benchmark", "method", "metric"]].values.tolist() == [
        ["vaulthop", "SeeUPO", "avg@4"], ["vaulthop", "SeeUPO", "pass@4"],
    ], "GRPO with matched steps is not in the paper"  # fmt: skip
    row = frame.iloc[0]
    assert row["paper"] == 0.636 and row["difference"] == pytest.approx(row["ours"] - 0.636)
    assert row["verdict"] in ("inside", "above ours", "below ours")
