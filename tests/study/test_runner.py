"""The runner against a small process at its boundary; the records are real."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seeupo_recipe.records.run import FAILED, FINISHED, INTERRUPTED
from seeupo_recipe.seeding import stream
from seeupo_recipe.study.build import Builder
from seeupo_recipe.study.cells import Selection
from seeupo_recipe.study.plan import make_plan, show_plan
from seeupo_recipe.study.progress import LineCount, Tail
from seeupo_recipe.study.runner import run_plan
from seeupo_recipe.study.spec import load_study
from seeupo_recipe.study.store import NOT_RUN, load_store

FAKE = (sys.executable, str(Path(__file__).with_name("fake_cells.py")))
SMALL = (
    "training.iterations=8",
    "evaluation.every=0",
    "evaluation.samples_per_task=1",
    "training.tasks_per_iteration=64",
)
DRIVER = """
import sys
from seeupo_recipe.study.cells import Selection
from seeupo_recipe.study.plan import make_plan
from seeupo_recipe.study.runner import run_plan
from seeupo_recipe.study.spec import load_study
orders = ("reverse", "natural", "random")
plan = make_plan(load_study("table4"), Selection(overrides=tuple(sys.argv[3:]), seeds=(0, 1), variants=orders))
sys.exit(1 if run_plan(plan, command=sys.argv[1:3]) else 0)
"""


ORDERS = ("reverse", "natural", "random")


def plan(variants=ORDERS, seeds=(0,), **values):
    return make_plan(load_study("table4"), Selection(overrides=SMALL, variants=variants, seeds=seeds, **values))


def states():
    return {run.manifest["labels"]["variant"]: run.state for run in load_store("mini").all}


def trace(results):
    """Everything a run has recorded, without the times."""
    found = {}
    for folder in sorted((results / "mini" / "runs").iterdir()):
        found[folder.name] = [(folder / name).read_text() for name in ("metrics.jsonl", "eval.jsonl")]
    return found


def test_all_cells_are_run_once_and_then_skipped(folders):
    assert run_plan(plan(), command=FAKE) == []
    assert states() == {"reverse": FINISHED, "natural": FINISHED, "random": FINISHED}
    before = trace(folders / "results")
    again = plan()
    assert [job.state for job in again.jobs] == [FINISHED] * 3 and not again.open_jobs
    assert run_plan(again, command=("false",)) == []
    assert trace(folders / "results") == before


def test_a_failed_cell_is_reported_and_the_rest_goes_on(monkeypatch, capsys):
    monkeypatch.setenv("FAKE_FAIL", "natural")
    failures = run_plan(plan(), command=FAKE)
    assert [f.job.cell.variant.name for f in failures] == ["natural"]
    assert states() == {"reverse": FINISHED, "natural": FAILED, "random": FINISHED}
    assert "natural seed 0: failed, ValueError: asked to fail" in capsys.readouterr().err
    assert run_plan(plan(), command=FAKE) == []
    assert set(states().values()) == {FINISHED}


def test_f19_a_run_killed_at_a_checkpoint_resumes_to_the_same_trace(folders, monkeypatch):
    """Four iterations are an epoch here, and a checkpoint falls on its end."""
    run_plan(plan(), command=FAKE)
    whole = trace(folders / "results")
    monkeypatch.setenv("SEEUPO_RESULTS", str(folders / "again"))
    monkeypatch.setenv("SEEUPO_OUTPUTS", str(folders / "again-outputs"))
    monkeypatch.setenv("FAKE_DIE", "natural")
    monkeypatch.setenv("FAKE_DIE_AT", "5")
    assert run_plan(plan(), command=FAKE) == []
    assert trace(folders / "again") == whole


def test_a_cell_that_kills_its_process_is_charged_with_it(monkeypatch):
    """No cell ended in its child, so it is not started again; the others are."""
    monkeypatch.setenv("FAKE_DIE", "reverse")
    failures = run_plan(plan(), command=FAKE)
    assert [(f.job.cell.variant.name, f.reason) for f in failures] == [
        ("reverse", "the process ended with status -9 before the run did")
    ]
    assert states() == {"reverse": FAILED, "natural": FINISHED, "random": FINISHED}


def test_a_child_that_cannot_start_fails_all_at_once():
    failures = run_plan(plan(), command=("false",))
    assert [f.reason for f in failures] == ["the process ended with status 1 before it began"] * 3
    assert load_store("mini").all == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_runner_stopped_in_the_middle_leaves_what_the_same_command_completes(folders, number):
    environment = {**os.environ, "FAKE_SECONDS": "0.15"}
    command = [sys.executable, "-c", DRIVER, *FAKE, *SMALL]
    runner = subprocess.Popen(
        command, env=environment, cwd=Path.cwd(), stderr=subprocess.DEVNULL, preexec_fn=heed_interrupts
    )
    deadline = time.monotonic() + 60
    while not any(line_count(f) >= 3 for f in (folders / "results").rglob("metrics.jsonl")):
        assert time.monotonic() < deadline and runner.poll() is None
        time.sleep(0.05)
    runner.send_signal(number)
    runner.wait(30)
    stopped = states_after_settling(folders)
    assert INTERRUPTED in stopped and NOT_RUN not in stopped[:1]
    assert subprocess.run(command, env={**os.environ}, cwd=Path.cwd(), stderr=subprocess.DEVNULL).returncode == 0

    builder = Builder("mini", ["table4"], SMALL)
    (doc,) = builder.documents
    broken = doc.frames[""]
    whole = folders / "whole"
    subprocess.run(
        command, env={**os.environ, "SEEUPO_RESULTS": str(whole), "SEEUPO_OUTPUTS": str(whole)}, check=True,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert trace(folders / "results") == trace(whole)
    shown = broken.query("backend == 'verl' and benchmark == 'vaulthop' and variant != 'base'")
    assert shown["seeds"].tolist() == [2] * 6


def heed_interrupts():
    """A shell starts its background jobs with SIGINT ignored, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def states_after_settling(folders):
    """States of the started runs once the orphaned child has let go of its record."""
    deadline = time.monotonic() + 30
    while True:
        found = [json.loads(f.read_text())["state"] for f in sorted((folders / "results").rglob("status.json"))]
        if "running" not in found or time.monotonic() > deadline:
            return [run.state for run in load_store("mini").all]
        time.sleep(0.1)


def line_count(path):
    return path.read_bytes().count(b"\n")


def test_a_record_held_by_another_process_is_left_alone(monkeypatch):
    monkeypatch.setattr("seeupo_recipe.study.runner.LOCK_SECONDS", 0.2)
    held = plan(("natural",)).jobs[0]
    with held.run.record.locked():
        failures = run_plan(plan(("reverse", "natural")), command=FAKE)
    assert [(f.job.cell.variant.name, f.reason) for f in failures] == [
        ("natural", "its record is being written by another process")
    ]


def test_a_dry_plan_lists_cells_with_their_states_and_an_estimate(world, capsys):
    study, selection = load_study("table2"), world.selection(variants=("base", "grpo-one", "seeupo"), seeds=(0, 1))
    world.finish(world.cell(variant="grpo-one"), 0, seconds=10.0)
    show_plan(make_plan(study, selection), every=True)
    text = capsys.readouterr().out
    assert "finished     vaulthop tiny-qwen3 grpo-one seed 0" in text
    assert "6 runs (5 not run, 1 finished)" in text and "5 to run, 1 at a time, about unknown" in text
    line = next(line for line in text.splitlines() if "grpo-one seed 1" in line)
    assert line.split()[-2:-1] == ["min"] and 2 <= int(line.split()[-3]) <= 3


def test_lab_jobs_share_their_time_over_the_workers(world):
    world.finish(world.cell(variant="grpo-one", backend="lab"), 0, seconds=10.0)
    selection = world.selection(variants=("grpo-one",), seeds=(0, 1, 2, 3, 4), backend="lab")
    one, four = (make_plan(load_study("table2"), selection, workers=n) for n in (1, 4))
    assert one.seconds == pytest.approx(4 * four.seconds) and one.seconds >= 4 * 12 * 10


def test_an_old_failure_is_not_taken_for_a_new_one(monkeypatch):
    """The process dies in the first cell; the second one, failed last time, has yet to get its turn."""
    monkeypatch.setenv("FAKE_FAIL", "random")
    assert len(run_plan(plan(("random",)), command=FAKE)) == 1
    monkeypatch.setenv("FAKE_FAIL", "")
    monkeypatch.setenv("FAKE_DIE", "natural")
    failures = run_plan(plan(("natural", "random")), command=FAKE)
    assert [f.job.cell.variant.name for f in failures] == ["natural"]
    assert states()["random"] == FINISHED


def test_a_run_whose_process_is_gone_is_marked_as_interrupted(world):
    run = world.open(world.cell("table4", "natural"))
    world.train(run, [0.2, 0.3])
    study, selection = load_study("table4"), world.selection(variants=("natural",), seeds=(0,))
    run_plan(make_plan(study, selection), command=("false",))
    assert run.record.status()["state"] == INTERRUPTED


def test_progress_counts_episodes_of_training_and_evaluation(world, folders):
    run = world.open(world.cell())
    (job,) = make_plan(load_study("table2"), world.selection(variants=("seeupo",), seeds=(0,))).jobs
    tail = Tail(job)
    assert job.evaluation_rows == 2 * 64 + 128 * 4 and tail.total == 12 * 4 * 8 + job.evaluation_rows
    assert tail.done() == 0
    world.train(run, [0.2] * 5)
    assert tail.done() == 5 * 32 and tail.text().endswith("iteration 5/12")
    world.train(run, [0.2] * 7, start=5)
    world.evaluate(run, 6, "validation", 1, 0.5, stream("x"))
    assert tail.done() == 12 * 32 + 64 and tail.text().endswith("evaluation 64/640")
    run.record.rewind(4)
    assert tail.done() == 4 * 32


def test_lines_are_counted_as_a_file_grows_or_is_replaced(tmp_path):
    count = LineCount(tmp_path / "lines")
    assert count() == 0
    for text, lines in (("a\nb", 1), ("a\nb\nc\n", 3), ("a\n", 1)):
        (tmp_path / "lines").write_text(text)
        assert count() == lines
