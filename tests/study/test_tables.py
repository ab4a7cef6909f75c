"""Tables from records: right values, every state said, nothing mixed that must not be."""

import json
import math
import shutil

import numpy as np
import pytest

from seeupo_recipe.algo import ALGORITHM_VERSION
from seeupo_recipe.records.run import FAILED, FINISHED, RUNNING
from seeupo_recipe.study.build import Builder
from seeupo_recipe.study.cells import make_cell
from seeupo_recipe.study.spec import load_study
from seeupo_recipe.study.statistics import pass_at_k
from seeupo_recipe.study.store import load_store


def build(world, study="table2"):
    """The study's document and its frames."""
    (doc,) = Builder("mini", [study], world.overrides).documents
    return doc


def value(frame, variant, benchmark="vaulthop", metric="avg@4", backend="verl"):
    rows = frame[
        (frame["variant"] == variant)
        & (frame["benchmark"] == benchmark)
        & (frame["metric"] == metric)
        & (frame["backend"] == backend)
    ]
    (row,) = rows.to_dict("records")
    return row


def by_hand(run, k):
    """avg@k and pass@k of one record, by loops over its lines."""
    tasks = {}
    for line in run.record.evaluations():
        final = line["split"] == "test" and line["iteration"] == run.config.training.iterations
        if final and line["failure"] is None:
            tasks.setdefault(line["task_id"], []).append(line)
    avg = [sum(x["score"] for x in lines) / len(lines) for lines in tasks.values()]
    passed = [pass_at_k(len(lines), sum(x["success"] for x in lines), k) for lines in tasks.values() if len(lines) >= k]
    return sum(avg) / len(avg), sum(passed) / len(passed)


def test_values_are_those_counted_by_hand(world):
    runs = [world.finish(world.cell(variant="grpo-one"), seed, end=0.4 + 0.1 * seed) for seed in (0, 1)]
    frame = build(world).frames[""]
    counted = np.array([by_hand(run, 4) for run in runs]).mean(0)
    for metric, expected in zip(("avg@4", "pass@4"), counted, strict=True):
        row = value(frame, "grpo-one", metric=metric)
        assert row["value"] == pytest.approx(expected)
        assert row["low"] < expected < row["high"]
        assert (row["seeds"], row["tasks"], row["samples"]) == (2, 128, 4)


def test_environment_failures_are_counted_apart(world):
    run = world.finish(world.cell(variant="grpo-one"), failures=6)
    doc = build(world)
    row = value(doc.frames[""], "grpo-one")
    assert row["environment_failures"] == 6
    assert row["value"] == pytest.approx(by_hand(run, 4)[0])
    passed = value(doc.frames[""], "grpo-one", metric="pass@4")
    assert passed["value"] == pytest.approx(by_hand(run, 4)[1]), (
        "tasks with fewer than four samples left have no pass@4"
    )
    assert "vaulthop: 6 evaluation episodes lost to environment failures, left out." in doc.markdown()


def test_missing_failed_interrupted_and_copied_runs_are_said(world, folders):
    cells = {name: world.cell(variant=name) for name in ("base", "grpo-one", "ppo-one", "gspo-one", "seeupo")}
    world.finish(cells["base"])
    world.finish(cells["seeupo"], 0, end=0.7)
    broken = world.open(cells["seeupo"], 1)
    world.train(broken, [0.2, 0.3])
    broken.record.set_status(FAILED, error="RuntimeError: out of memory")
    world.train(world.open(cells["grpo-one"]), [0.2] * 5)
    world.open(cells["gspo-one"])
    kept = world.finish(cells["ppo-one"], end=0.5)
    shutil.copytree(kept.record.folder, kept.record.folder.with_name("a-copy"))
    (folders / "results" / "mini" / "runs" / "torn").mkdir()

    doc = build(world)
    text = doc.markdown()
    table = next(section.frame for section in doc.sections if "verl: outcomes" in section.title)
    lines = {f"{row.variant} {row.steps}": " | ".join(row) for row in table.itertuples(index=False)}
    assert lines["GRPO matched"].endswith("| not run")
    assert "interrupted" in lines["GRPO one"] and "0/1: 1 interrupted" in lines["GRPO one"]
    assert "not run" in lines["GSPO one"], "a record that was only created has not been run"
    assert "1/2: 1 failed" in lines["SeeUPO per turn"]
    assert "1/1" in lines["PPO one"]
    assert f"{broken.run_id}: failed, RuntimeError: out of memory." in text
    assert value(doc.frames[""], "ppo-one")["seeds"] == 1, "a copy is no second run"
    assert math.isnan(value(doc.frames[""], "grpo-one")["value"])
    problems = load_store("mini").problems
    assert all(problem in text for problem in problems)
    assert [p.split(":")[0] for p in problems] == ["a-copy", "torn"]
    assert f"copy of {kept.run_id}" in problems[0] and "damaged record left out" in problems[1]


def test_a_copy_that_comes_first_does_not_replace_the_run(world):
    run = world.finish(world.cell())
    run.record.folder.rename(run.record.folder.with_name("zzz-moved"))
    assert [r.run_id for r in load_store("mini").all] == ["zzz-moved"], "found by what defines it, not by its name"
    shutil.copytree(run.record.folder.with_name("zzz-moved"), run.record.folder)
    store = load_store("mini")
    assert [r.run_id for r in store.all] == [run.run_id]
    assert store.problems == (f"zzz-moved: copy of {run.run_id}, left out",)


def test_damage_inside_a_record_is_said_and_does_not_stop_the_table(world):
    good, bad = (world.finish(world.cell(variant=name)) for name in ("grpo-one", "seeupo"))
    path = bad.record.folder / "eval.jsonl"
    path.write_bytes(path.read_bytes().replace(b'{"iteration"', b'{"itera', 1))
    doc = build(world)
    assert value(doc.frames[""], "grpo-one")["seeds"] == 1
    assert value(doc.frames[""], "seeupo")["seeds"] == 0
    assert "is damaged before its last line" in doc.markdown()


def test_a_finished_run_without_its_whole_evaluation_does_not_count(world):
    run = world.finish(world.cell())
    lines = (run.record.folder / "eval.jsonl").read_text().splitlines(keepends=True)
    (run.record.folder / "eval.jsonl").write_text("".join(lines[:-3]))
    doc = build(world)
    assert value(doc.frames[""], "seeupo")["seeds"] == 0
    assert "its evaluation lacks 3 samples" in doc.markdown()


def test_an_outcome_that_was_written_twice_counts_once(world):
    run = world.finish(world.cell())
    expected = by_hand(run, 4)
    path = run.record.folder / "eval.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines + lines[-9:]))
    frame = build(world).frames[""]
    assert value(frame, "seeupo")["value"] == pytest.approx(expected[0])
    assert value(frame, "seeupo", metric="pass@4")["value"] == pytest.approx(expected[1])


def rewrite(run, change):
    """Another identity in the manifest of a record, in a folder of its own."""
    manifest = json.loads(run.record.manifest_path.read_text())
    change(manifest)
    folder = run.record.folder.with_name(run.record.folder.name + "-other")
    shutil.copytree(run.record.folder, folder)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@pytest.mark.parametrize(
    "key",
    ["benchmark_version", "weights", "tasks"],
)
def test_f23_other_versions_tasks_and_weights_are_never_averaged(world, key):
    seeupo = world.cell()
    old = world.finish(seeupo, 0, end=0.9)

    def change(manifest):
        manifest["identity"][key] = {"test": "0"} if key == "tasks" else "other"
        manifest["created"] = "2020-01-01T00:00:00+0000"

    other = rewrite(old, change)
    world.finish(world.cell(variant="grpo-one"), 0, end=0.5)
    doc = build(world)
    row = value(doc.frames[""], "seeupo")
    assert row["seeds"] == 1 and row["value"] == pytest.approx(by_hand(old, 4)[0])
    assert f"{other.name}: left out, algorithm version {ALGORITHM_VERSION}" in doc.markdown()


def test_the_newest_context_is_shown_and_the_rest_is_not_run_there(world):
    old = world.finish(world.cell(), 0, end=0.9)

    def change(manifest):
        manifest["identity"]["benchmark_version"] = "newer"
        manifest["created"] = "2999-01-01T00:00:00+0000"

    rewrite(world.finish(world.cell(variant="grpo-one"), 0), change)
    doc = build(world)
    assert value(doc.frames[""], "grpo-one")["seeds"] == 1
    assert value(doc.frames[""], "seeupo")["seeds"] == 0 and f"{old.run_id}: left out" in doc.markdown()
    assert "differences" not in doc.frames


def test_other_algorithm_versions_are_left_out_by_name(world):
    run = world.finish(world.cell())

    def change(manifest):
        manifest["identity"]["algorithm_version"] = "0"

    folder = rewrite(run, change)
    assert load_store("mini").problems == (f"{folder.name}: left out, algorithm version 0 and not {ALGORITHM_VERSION}",)
    assert value(build(world).frames[""], "seeupo")["seeds"] == 1


def test_backends_stand_in_blocks_of_their_own(world):
    verl, lab = (world.finish(world.cell(backend=b), end=e) for b, e in (("verl", 0.3), ("lab", 0.8)))
    frame = build(world).frames[""]
    for run, backend in ((verl, "verl"), (lab, "lab")):
        assert value(frame, "seeupo", backend=backend)["value"] == pytest.approx(by_hand(run, 4)[0])


def test_the_average_needs_every_benchmark(world):
    runs = [world.finish(world.cell(benchmark=b), end=e) for b, e in (("vaulthop", 0.4), ("vaulthop-trap", 0.6))]
    world.finish(world.cell(variant="grpo-one"))
    frame = build(world).frames[""]
    mean = np.mean([by_hand(run, 4)[0] for run in runs])
    assert value(frame, "seeupo", "average")["value"] == pytest.approx(mean)
    assert math.isnan(value(frame, "grpo-one", "average")["value"])


def test_differences_are_paired_by_task_and_seed(world):
    for seed in (0, 1, 2):
        world.finish(world.cell(), seed, end=0.7)
        if seed < 2:
            world.finish(world.cell(variant="grpo-one"), seed, end=0.4)
    doc = build(world)
    (row,) = doc.frames["differences"].query("metric == 'avg@4'").to_dict("records")
    runs = {(r.config["algorithm"]["name"], r.seed): r for r in load_store("mini").all}
    plain = [
        runs["seeupo", s].tally("test", 12)[task].total / 4 - runs["grpo", s].tally("test", 12)[task].total / 4
        for s in (0, 1)
        for task in runs["grpo", s].tally("test", 12)
    ]
    assert row["seeds"] == 2 and row["value"] == pytest.approx(np.mean(plain))
    assert row["low"] > 0 and row["p"] < 0.01
    assert "| GRPO " in doc.markdown().split("paired differences")[1]


def test_aggregates_start_at_three_seeds(world):
    for seed in range(3):
        world.finish(world.cell(), seed, end=0.7)
        world.finish(world.cell(variant="grpo-one"), seed, end=0.4)
        if seed < 2:
            world.finish(world.cell(variant="ppo-one"), seed)
    frame = build(world).frames["seeds"]
    assert frame["variant"].tolist() == ["grpo-one", "seeupo"]
    assert frame.set_index("variant").loc["grpo-one", "better"] == 1.0


def test_collapsed_runs_are_counted_and_the_best_checkpoint_is_named(world):
    world.finish(world.cell(variant="grpo-one"), 0, curve=[0.1, 0.6, 0.6, 0.6, 0.6, 0.6] + [0.0] * 6, end=0.1)
    steady = world.finish(world.cell(variant="grpo-one"), 1, end=0.6)
    doc = build(world)
    (row,) = doc.frames["training"].to_dict("records")
    assert row["seeds"] == 2
    checkpoints = doc.frames["checkpoints"].set_index("seed")
    scores = {i: [] for i in (6, 12)}
    for line in steady.record.evaluations():
        if line["split"] == "validation":
            scores[line["iteration"]].append(line["score"])
    means = {i: np.mean(v) for i, v in scores.items()}
    assert checkpoints.loc[1, "best"] == max(means, key=means.get)
    assert checkpoints.loc[1, "validation_best"] == pytest.approx(max(means.values()))
    assert math.isnan(checkpoints.loc[0, "test_best"]) or checkpoints.loc[0, "best"] == 12


def test_costs_are_means_after_the_first_iteration_and_ratios_stay_on_one_machine(world):
    world.finish(world.cell(), seconds=9.0)
    world.finish(world.cell(variant="grpo-one"), seconds=6.0)
    elsewhere = world.finish(world.cell(variant="ppo-one"), seconds=3.0)
    manifest = json.loads(elsewhere.record.manifest_path.read_text())
    manifest["hardware"]["cores"] = 64
    elsewhere.record.manifest_path.write_text(json.dumps(manifest))
    frame = build(world, "table3").frames[""].set_index("variant")
    assert frame.loc["seeupo", "seconds"] == pytest.approx(9.0), "the first iteration took four times as long"
    assert frame.loc["grpo-one", "ratio"] == pytest.approx(1.5)
    assert math.isnan(frame.loc["ppo-one", "ratio"])
    assert frame.loc["grpo-one", ["rollout", "log_probs", "update", "other"]].tolist() == pytest.approx(
        [2.4, 0.6, 1.8, 1.2]
    )
    assert frame.loc["grpo-one", "memory_gb"] == pytest.approx(0.62) and frame.loc["seeupo", "optimizer_steps"] == 6
    assert math.isnan(frame.loc["seeupo", "forward_tokens"])
    assert "RLOO (one) on vaulthop: not run." in build(world, "table3").markdown()


def test_a_grid_study_pivots_and_chooses_by_validation(world, tmp_path):
    path = tmp_path / "lr.yaml"
    path.write_text(
        """
title: Learning rates
question: Which?
scales: {mini: {models: [tiny-qwen3], benchmarks: [vaulthop]}}
table: {layout: grid, reference: grpo-lr0.001, rows: method, columns: lr}
figures: [{name: lr, kind: sweep, title: Learning rates, x: lr, log: true}]
variants:
  - name: "{method}-lr{lr}"
    label: "{method} {lr}"
    style: "{method}"
    overrides: ["algorithm={method}", "training.learning_rate={lr}"]
    grid: {method: [grpo, seeupo], lr: [0.001, 0.004]}
"""
    )
    study = load_study(str(path))
    ends = {"grpo-lr0.001": 0.3, "grpo-lr0.004": 0.7, "seeupo-lr0.001": 0.8}
    for name, end in ends.items():
        cell = make_cell(study, world.selection(), "lab", "tiny-qwen3", "vaulthop", study.variant(name))
        world.finish(cell, end=end)
    builder = Builder("mini", [str(path)], world.overrides)
    (doc,) = builder.documents
    pivot = next(s for s in doc.sections if "over method and lr" in s.title).frame.set_index("method")
    assert pivot.loc["seeupo", "lr=0.004"] == "not run"
    assert pivot.loc["grpo", "best"].endswith("at 0.004") and pivot.loc["grpo", "worst"].endswith("at 0.001")
    assert sorted(p.name for p in builder.figures()) == ["lr-lab.csv", "lr-lab.pdf", "lr-lab.png"]


def test_a_table_without_any_record_says_so(world):
    text = build(world).markdown()
    assert text.count("None of its 20 cells has a recorded run.") == 2
    assert "Context: the paper's Table 2" in text


def test_more_recorded_seeds_than_asked_for_all_count(world):
    for seed in (0, 3, 11):
        world.finish(world.cell(), seed)
    row = value(build(world).frames[""], "seeupo")
    assert row["seeds"] == 3 and row["runs"] == "3/3"


def test_status_of_a_run_that_is_being_written_is_interrupted(world):
    run = world.open(world.cell())
    world.train(run, [0.2, 0.3])
    run.record.set_status(RUNNING)
    assert load_store("mini").all[0].problem == "stopped after iteration 2 of 12"
    assert FINISHED not in build(world).markdown().split("Context")[0]


def test_variants_of_a_benchmarks_own_settings_each_keep_their_version(world, tmp_path):
    """A study over a benchmark's options has a version per option; that is no mixture."""
    path = tmp_path / "turns.yaml"
    path.write_text(
        """
title: Turns
question: Do more turns help?
scales: {mini: {models: [tiny-qwen3], benchmarks: [vaulthop]}}
table: {layout: outcomes, reference: turns-6}
variants:
  - name: "turns-{turns}"
    label: "{turns} turns"
    overrides: ["benchmark.options.max_turns={turns}", "benchmark.max_turns={turns}"]
    grid: {turns: [4, 6]}
"""
    )
    study = load_study(str(path))
    for variant in study.variants:
        cell = make_cell(study, world.selection(), "lab", "tiny-qwen3", "vaulthop", variant)
        world.finish(cell, end=0.5)
    (doc,) = Builder("mini", [str(path)], world.overrides).documents
    assert doc.frames[""].query("backend == 'lab'")["seeds"].tolist() == [1] * 4
    assert "benchmark version 1/hops3/turns4" in doc.markdown() and "turns6" in doc.markdown()
    assert len(doc.frames["differences"]) == 2
