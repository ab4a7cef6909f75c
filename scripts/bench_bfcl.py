"""Throughput of the BFCL adapter: steps and checks per second and core, and its overhead over the bare executor.

The same ground-truth messages of all 800 tasks go (a) straight into bfcl-eval's executor and checker in this
process and (b) through the environment as assistant messages in Qwen's format (parsing, gate, worker process,
observations). Both run in alternation, with this process and the worker pinned to one core. Rates and ratios
are of CPU time of both processes, so that other load on the machine counts little; wall time is beside them.

Usage: python scripts/bench_bfcl.py [--repeats 7] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_checker, multi_turn_utils
from rich.console import Console
from rich.table import Table

from seeupo_recipe.envs.base import Action, EpisodeKey, load_benchmark
from seeupo_recipe.envs.bfcl import BfclBenchmark
from seeupo_recipe.envs.bfcl.calls import Call, render
from seeupo_recipe.envs.bfcl.package import Task, functions_of
from seeupo_recipe.envs.bfcl.qwen import to_text

Script = Sequence[Sequence[Sequence[Call]]]
"""User turn -> assistant message -> calls."""
Work = Sequence[tuple[Task, Script]]
Seconds = dict[str, dict[str, float]]
"""steps | checks -> cpu | wall -> seconds."""


def scripts(task: Task, one_call_per_message: bool) -> Script:
    if one_call_per_message:
        return [[[call] for call in turn] for turn in task.ground_truth]
    return [[list(turn)] if turn else [] for turn in task.ground_truth]


class Stopwatch:
    """CPU and wall seconds of named phases, over this process and its children."""

    def __init__(self) -> None:
        self.seconds: Seconds = {}
        self._processes = [psutil.Process(), *psutil.Process().children()]
        self._last = self._read()

    def _read(self) -> dict[str, float]:
        times = [process.cpu_times() for process in self._processes]
        return {"cpu": sum(t.user + t.system for t in times), "wall": time.perf_counter()}

    def lap(self, phase: str) -> None:
        """Add the time since the last lap to ``phase``."""
        now = self._read()
        spent = self.seconds.setdefault(phase, dict.fromkeys(now, 0.0))
        for clock, value in now.items():
            spent[clock] += value - self._last[clock]
        self._last = now


def time_adapter(benchmark: BfclBenchmark, work: Work) -> Seconds:
    """All episodes opened and played, then all scored, then all closed (which counts as steps)."""
    texts = [[[to_text(message) for message in turn] for turn in script] for _, script in work]
    watch = Stopwatch()
    environments = []
    for (task, _), turns in zip(work, texts, strict=True):
        environment = benchmark.make(EpisodeKey(0, 0, task.task_id, 0))
        environments.append(environment)
        environment.reset()
        for turn in turns:
            for text in (*turn, "Done."):
                environment.step(Action(text))
    watch.lap("steps")
    assert all(environment.score().success for environment in environments)
    watch.lap("checks")
    for environment in environments:
        environment.close()
    watch.lap("steps")
    return watch.seconds


def time_bare(_: BfclBenchmark, work: Work) -> Seconds:
    """The same for the package alone, called as its own evaluation runner calls it."""
    prepared = []
    for task, script in work:
        functions = functions_of(task.classes)
        turns = [[[render(call, functions) for call in message] for message in turn] for turn in script]
        truth = [[render(call, functions) for call in turn] for turn in task.ground_truth]
        prepared.append((task, turns, truth))
    known = set(vars(multi_turn_utils))
    watch = Stopwatch()
    for task, turns, _ in prepared:
        for turn in turns:
            for message in turn:
                multi_turn_utils.execute_multi_turn_func_call(
                    message, task.config, task.classes, "bare", task.task_id, "long_context" in task.category
                )
    watch.lap("steps")
    for task, turns, truth in prepared:
        entry = {"id": task.task_id, "initial_config": task.config, "involved_classes": task.classes}
        assert multi_turn_checker.multi_turn_checker(turns, truth, entry, "", "bare")["valid"]
    watch.lap("checks")
    for name in set(vars(multi_turn_utils)) - known:
        delattr(multi_turn_utils, name)
    return watch.seconds


def measure(benchmark: BfclBenchmark, work: Work, repeats: int) -> dict[str, dict[str, list[float]]]:
    """steps | checks -> quantity -> one value per repeat."""
    runs = {"adapter": time_adapter, "bare": time_bare}
    for run in runs.values():
        run(benchmark, work[:100])
    seconds: dict[str, list[Seconds]] = {name: [] for name in runs}
    for repeat in range(repeats):
        for name in sorted(runs, reverse=bool(repeat % 2)):
            seconds[name].append(runs[name](benchmark, work))
    counts = {"steps": sum(len(turn) for _, script in work for turn in script), "checks": len(work)}
    result: dict[str, dict[str, list[float]]] = {}
    for phase, count in counts.items():
        pairs = [(a[phase], b[phase]) for a, b in zip(seconds["adapter"], seconds["bare"], strict=True)]
        result[phase] = {
            "adapter, per CPU second": [count / adapter["cpu"] for adapter, _ in pairs],
            "bare, per CPU second": [count / bare["cpu"] for _, bare in pairs],
            "ratio of CPU time": [adapter["cpu"] / bare["cpu"] for adapter, bare in pairs],
            "ratio of wall time": [adapter["wall"] / bare["wall"] for adapter, bare in pairs],
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path, help="also write all measurements to this file")
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    benchmark = load_benchmark("bfcl", max_turns=10**6)
    table = Table("messages", "what", "quantity", "min", "median", "max", title=benchmark.version)
    record = {}
    for label, one_call_per_message in (("one call each", True), ("one per user turn", False)):
        work = [(task, scripts(task, one_call_per_message)) for task in benchmark.tasks.values()]
        record[label] = measure(benchmark, work, options.repeats)
        for phase, quantities in record[label].items():
            for quantity, values in quantities.items():
                row = (min(values), statistics.median(values), max(values))
                table.add_row(label, phase, quantity, *(f"{value:.2f}" for value in row))
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps({"version": benchmark.version, **record}, indent=1) + "\n")


if __name__ == "__main__":
    main()
