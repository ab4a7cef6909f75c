"""`kill -9` of the driver in training, in a checkpoint and in the evaluation; the same command finishes the run."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from seeupo_recipe.records.run import RunRecord

OVERRIDES = [
    "training.iterations=4",
    "training.checkpoint_every=2",
    "training.tasks_per_iteration=4",
    "training.group_size=4",
    "evaluation.every=2",
    "evaluation.samples_per_task=4",
]


def start(folder, extra=()):
    script = Path(__file__).with_name("cell.py")
    command = [sys.executable, str(script), str(folder / "results"), str(folder / "outputs"), *OVERRIDES, *extra]
    with log_of(folder).open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


def log_of(folder):
    """A file, since nobody reads while the driver is watched, and a full pipe would stop it."""
    return folder / "log.txt"


def the_record(folder):
    found = list((folder / "results" / "mini" / "runs").glob("*"))
    return RunRecord(found[0]) if found else None


def in_training(folder, record):
    return record.last_iteration() == 3


def in_checkpoint(folder, record):
    """The second checkpoint's folder exists and is not complete."""
    saves = list(folder.glob("outputs/mini/*/checkpoints/global_step_4"))
    return bool(saves) and not (saves[0] / "complete.json").exists()


def in_evaluation(folder, record):
    return any(row["split"] == "test" for row in record.evaluations())


def kill_when(process, folder, condition):
    """SIGKILL the driver as soon as ``condition`` holds; returns its former descendants."""
    deadline = time.time() + 300
    while time.time() < deadline:
        record = the_record(folder)
        if record is not None and condition(folder, record):
            children = psutil.Process(process.pid).children(recursive=True)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            return children
        assert process.poll() is None, log_of(folder).read_text()[-3000:]
        time.sleep(0.002)  # a checkpoint of so small a model is written in 20 ms
    raise AssertionError("the moment to kill never came")


def finish(folder):
    process = start(folder)
    assert process.wait(timeout=420) == 0, log_of(folder).read_text()[-3000:]
    return the_record(folder)


def trace(record):
    keys = ("iteration", "train/return_mean", "train/turns_mean", "update/rows", "update/optimizer_steps")
    return [{key: line[key] for key in keys} for line in record.metrics()]


def outcomes(record):
    return {(r["iteration"], r["split"], r["task_id"], r["sample"]): r["score"] for r in record.evaluations()}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    return finish(tmp_path_factory.mktemp("whole"))


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("moment", [in_training, in_checkpoint, in_evaluation])
def test_a_killed_run_resumes_and_its_record_is_complete(moment, uninterrupted, tmp_path):
    children = kill_when(start(tmp_path), tmp_path, moment)
    psutil.wait_procs(children, timeout=180)  # Ray's own agents outlive their raylet by a minute
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    record = finish(tmp_path)
    assert record.finished
    assert [line["iteration"] for line in record.metrics()] == [1, 2, 3, 4]
    assert len(outcomes(record)) == len(record.evaluations()) == 2 * 64 + 4 * 128
    assert outcomes(record).keys() == outcomes(uninterrupted).keys()
    assert trace(record)[:2] == trace(uninterrupted)[:2]
    for mine, whole in zip(trace(record)[2:], trace(uninterrupted)[2:], strict=True):
        assert mine == pytest.approx(whole, rel=0.1)
    if moment is in_training:
        moved = (record.folder / "superseded.jsonl").read_text().splitlines()
        assert [json.loads(line)["iteration"] for line in moved] == [3]
