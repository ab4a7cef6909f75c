"""A stand-in for the process that trains cells: it keeps the worker's contract and writes real records.

Training is a known sequence of numbers with a checkpoint every second iteration, so that a resumed run can be
compared with one that was never stopped. What goes wrong is asked for in the environment:

FAKE_FAIL, FAKE_DIE   variant that fails, or whose process kills itself, the first time
FAKE_DIE_AT           iteration at which it does (default 3)
FAKE_SECONDS          pause per iteration
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from seeupo_recipe.config import build_config
from seeupo_recipe.envs.base import load_benchmark
from seeupo_recipe.records.run import FAILED, FINISHED, INTERRUPTED, RUNNING
from seeupo_recipe.runs import open_run
from seeupo_recipe.seeding import stream
from seeupo_recipe.study.worker import end_with_parent


def main(cells, backend, workers):
    end_with_parent()
    for entry in json.loads(Path(cells).read_text()):
        run = open_run(build_config(entry["config"]), labels=entry["labels"])
        with run.record.locked():
            try:
                play(run, entry["labels"]["variant"])
            except KeyboardInterrupt:
                run.record.set_status(INTERRUPTED)
                raise
            except ValueError as error:
                run.record.set_status(FAILED, error=f"ValueError: {error}")
                raise


def play(run, variant):
    checkpoint = run.outputs / "iteration"
    done = int(checkpoint.read_text()) if checkpoint.exists() else 0
    run.record.rewind(done)
    run.record.set_status(RUNNING, resumed_from=done)
    for iteration in range(done + 1, run.config.training.iterations + 1):
        trouble(run, variant, iteration)
        time.sleep(float(os.environ.get("FAKE_SECONDS", 0)))
        value = float(stream("fake", run.run_id, iteration).random())
        run.record.append_metrics(
            iteration, {"train/success_rate": value, "train/return_mean": value, "timing_s/step": 1.0}
        )
        if iteration % 2 == 0:
            run.outputs.mkdir(parents=True, exist_ok=True)
            checkpoint.write_text(str(iteration))
    evaluate(run)
    run.record.set_status(FINISHED)


def trouble(run, variant, iteration):
    first = not (run.outputs / "troubled").exists()
    if first and iteration == int(os.environ.get("FAKE_DIE_AT", 3)):
        if variant in (os.environ.get("FAKE_FAIL"), os.environ.get("FAKE_DIE")):
            run.outputs.mkdir(parents=True, exist_ok=True)
            (run.outputs / "troubled").touch()
        if variant == os.environ.get("FAKE_FAIL"):
            raise ValueError("asked to fail")
        if variant == os.environ.get("FAKE_DIE"):
            os.kill(os.getpid(), signal.SIGKILL)


def evaluate(run):
    benchmark, final = load_benchmark(run.config.benchmark.name), run.config.training.iterations
    for task in benchmark.task_ids("test"):
        rng = stream("fake", run.run_id, task)
        run.record.append_evaluations(
            {
                "iteration": final, "split": "test", "task_id": task, "cluster": task, "sample": sample, "turns": 1,
                "cut_turns": 0, "stop_reason": "done", "failure": None, "score": float(won), "success": won, "info": {},
            }
            for sample, won in enumerate((rng.random(run.config.evaluation.samples_per_task) < 0.5).tolist())
        )  # fmt: skip


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
