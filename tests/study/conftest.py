"""Synthetic records, written through the same classes that the backends use."""

import time

import numpy as np
import pytest

from seeupo_recipe.envs.base import load_benchmark
from seeupo_recipe.records.run import FINISHED, RUNNING
from seeupo_recipe.runs import open_run
from seeupo_recipe.seeding import stream
from seeupo_recipe.study import spec
from seeupo_recipe.study.cells import Selection, make_cell
from seeupo_recipe.study.spec import load_study

SMALL = ("training.iterations=12", "evaluation.every=6", "training.tasks_per_iteration=4")


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """Results, plots and outputs of a test lie in its own folder."""
    for name in ("RESULTS", "PLOTS", "OUTPUTS"):
        monkeypatch.setenv(f"SEEUPO_{name}", str(tmp_path / name.lower()))
    return tmp_path


@pytest.fixture(autouse=True)
def two_benchmarks(monkeypatch):
    """The studies of the paper's tables over one model and two benchmarks, whatever the recipes list."""
    read = spec._read

    def narrowed(path):
        values = read(path)
        if path.stem in ("table2", "table4", "table5"):
            values["scales"] = {"mini": {"models": ["tiny-qwen3"], "benchmarks": ["vaulthop", "vaulthop-trap"]}}
            values["defaults"] = {**values["defaults"], "benchmarks": ["vaulthop"]}
        return values

    monkeypatch.setattr(spec, "_read", narrowed)
    spec.load_study.cache_clear()
    yield
    spec.load_study.cache_clear()


class World:
    """Records of cells of the real studies, in small."""

    overrides = SMALL

    def selection(self, **values):
        return Selection(overrides=self.overrides, **values)

    def cell(self, study="table2", variant="seeupo", benchmark="vaulthop", backend="verl", model="tiny-qwen3"):
        loaded = load_study(study)
        return make_cell(loaded, self.selection(), backend, model, benchmark, loaded.variant(variant))

    def open(self, cell, seed=0):
        return open_run(cell.at(seed))

    def finish(self, cell, seed=0, *, end=0.6, curve=None, failures=0, seconds=5.0):
        """A finished record whose success goes from 0.2 to ``end``, or along ``curve``."""
        run = self.open(cell, seed)
        rng = stream("synthetic", cell.key, seed)
        iterations = cell.config.training.iterations
        self.train(run, curve if curve is not None else np.linspace(0.2, end, iterations), seconds)
        evaluation = cell.config.evaluation
        for iteration in range(evaluation.every, iterations + 1, evaluation.every) if evaluation.every else ():
            share = 0.2 + (end - 0.2) * iteration / iterations
            self.evaluate(run, iteration, "validation", evaluation.periodic_samples, share, rng)
        self.evaluate(run, iterations, "test", evaluation.samples_per_task, end if iterations else 0.2, rng, failures)
        run.record.set_status(FINISHED)
        return run

    def train(self, run, curve, seconds=5.0, start=0):
        run.record.set_status(RUNNING)
        started = time.time() - seconds * len(curve)
        steps = 6.0 if run.config.algorithm.name == "seeupo" else 1.0
        for i, success in enumerate(curve[: run.config.training.iterations], start=start + 1):
            turns = {
                f"turn{t}/{name}": value / t
                for t in range(1, 7)
                for name, value in (
                    ("pool_size", 32.0), ("advantage_mean", 0.1), ("ratio_deviation", 0.05),
                    ("correction_deviation", 0.08), ("kl_old", 0.01), ("grad_norm", 0.3),
                )
            }  # fmt: skip
            run.record.append_metrics(
                i,
                {
                    "time": started + (i - start) * seconds,
                    "train/success_rate": float(success),
                    "train/return_mean": float(success),
                    "train/environment_failures": 0,
                    "update/optimizer_steps": steps,
                    "tokens/sampled": 500,
                    "timing_s/gen": 0.4 * seconds,
                    "timing_s/old_log_prob": 0.1 * seconds,
                    "timing_s/update_actor": 0.3 * seconds,
                    "timing_s/step": seconds * (4 if i == 1 else 1),
                    "actor/perf/max_memory_allocated_gb": 0.5 + 0.01 * i,
                    **(turns if run.config.algorithm.name == "seeupo" else {}),
                },
            )

    def evaluate(self, run, iteration, split, samples, share, rng, failures=0):
        benchmark = load_benchmark(run.config.benchmark.name, **run.config.benchmark.options)
        rows = []
        for task in benchmark.task_ids(split):
            skill = rng.beta(4 * share + 0.05, 4 * (1 - share) + 0.05)
            for sample in range(samples):
                failed = len(rows) < failures
                won = None if failed else bool(rng.random() < skill)
                rows.append(
                    {
                        "iteration": iteration, "split": split, "task_id": task, "cluster": benchmark.cluster(task),
                        "sample": sample, "turns": 4, "cut_turns": 0, "stop_reason": "done",
                        "failure": "server died" if failed else None, "score": None if failed else float(won),
                        "success": won, "info": {},
                    }
                )  # fmt: skip
        run.record.append_evaluations(rows)


@pytest.fixture
def world():
    return World()


@pytest.fixture
def rng():
    return stream("tests", "study")
