"""Throughput of the BFCL adapter: steps and checks per second on one core, and its overhead over the bare executor.

The same ground-truth messages of all 800 tasks go (a) straight into bfcl-eval's executor and checker in this
process and (b) through the environment as assistant messages in Qwen's format (parsing, gate, worker process,
observations). Both run in alternation, with this process and the worker pinned to one core.

Usage: python scripts/bench_bfcl.py [--repeats 7] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from seeupo_recipe.envs.base import Action, EpisodeKey, load_benchmark
from seeupo_recipe.envs.bfcl import BfclBenchmark
from seeupo_recipe.envs.bfcl.calls import Call, render
from seeupo_recipe.envs.bfcl.package import Task, functions_of
from seeupo_recipe.envs.bfcl.qwen import to_text

Script = Sequence[Sequence[Sequence[Call]]]
"""User turn -> assistant message -> calls."""


def scripts(task: Task, one_call_per_message: bool) -> Script:
    if one_call_per_message:
        return [[[call] for call in turn] for turn in task.ground_truth]
    return [[list(turn)] if turn else [] for turn in task.ground_truth]


def time_adapter(benchmark: BfclBenchmark, work: Sequence[tuple[Task, Script]]) -> tuple[float, float]:
    """Seconds for all steps (episodes opened and closed) and for all checks."""
    texts = [[[to_text(message) for message in turn] for turn in script] for _, script in work]
    steps = checks = 0.0
    for (task, _), turns in zip(work, texts, strict=True):
        start = time.perf_counter()
        environment = benchmark.make(EpisodeKey(0, 0, task.task_id, 0))
        environment.reset()
        for turn in turns:
            for text in (*turn, "Done."):
                environment.step(Action(text))
        scored = time.perf_counter()
        assert environment.score().success, task.task_id
        closed = time.perf_counter()
        environment.close()
        steps += time.perf_counter() - closed + scored - start
        checks += closed - scored
    return steps, checks


def time_bare(_: BfclBenchmark, work: Sequence[tuple[Task, Script]]) -> tuple[float, float]:
    """The same for the package alone, called as its own evaluation runner calls it."""
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_checker, multi_turn_utils

    steps = checks = 0.0
    for number, (task, script) in enumerate(work):
        functions = functions_of(task.classes)
        turns = [[[render(call, functions) for call in message] for message in turn] for turn in script]
        truth = [[render(call, functions) for call in turn] for turn in task.ground_truth]
        entry = {"id": task.task_id, "initial_config": task.config, "involved_classes": task.classes}
        known = set(vars(multi_turn_utils))
        start = time.perf_counter()
        for turn in turns:
            for message in turn:
                multi_turn_utils.execute_multi_turn_func_call(
                    message,
                    task.config,
                    task.classes,
                    f"bare{number}",
                    task.task_id,
                    long_context="long_context" in task.category,
                )
        scored = time.perf_counter()
        verdict = multi_turn_checker.multi_turn_checker(turns, truth, entry, "", f"bare{number}")
        checks += time.perf_counter() - scored
        steps += scored - start
        assert verdict["valid"], task.task_id
        for name in set(vars(multi_turn_utils)) - known:
            delattr(multi_turn_utils, name)
    return steps, checks


def measure(benchmark: BfclBenchmark, one_call_per_message: bool, repeats: int) -> dict[str, dict[str, list[float]]]:
    work = [(task, scripts(task, one_call_per_message)) for task in benchmark.tasks.values()]
    messages = sum(len(turn) for _, script in work for turn in script)
    runs: dict[str, Callable[..., tuple[float, float]]] = {"adapter": time_adapter, "bare": time_bare}
    for run in runs.values():
        run(benchmark, work[:100])
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for repeat in range(repeats):
        for name in sorted(runs, reverse=bool(repeat % 2)):
            seconds[name].append(runs[name](benchmark, work))
    result = {}
    for index, kind, count in ((0, "steps", messages), (1, "checks", len(work))):
        adapter, bare = ([pair[index] for pair in seconds[name]] for name in ("adapter", "bare"))
        result[kind] = {
            "adapter per second": [count / value for value in adapter],
            "bare per second": [count / value for value in bare],
            "ratio": [ours / theirs for ours, theirs in zip(adapter, bare, strict=True)],
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
        record[label] = measure(benchmark, one_call_per_message, options.repeats)
        for kind, quantities in record[label].items():
            for quantity, values in quantities.items():
                row = (min(values), statistics.median(values), max(values))
                table.add_row(label, kind, quantity, *(f"{value:.2f}" for value in row))
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps({"version": benchmark.version, **record}, indent=1) + "\n")


if __name__ == "__main__":
    main()
