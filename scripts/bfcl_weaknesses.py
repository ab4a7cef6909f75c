"""What the official BFCL multi-turn checker lets pass, measured on all 800 reference solutions.

The adapter changes none of it; scores are the official ones. The episode records count the same events
(``repeated_calls``, ``must_not_act_turns_with_calls``), so that they can be reported beside a model's score.

- doubled calls: every reference call is made twice in a row.
- acting when it must not: in every user turn that asks for something that cannot be done yet (a function or a
  parameter is missing), the agent calls a function that only reads. The package has an irrelevance check for
  this, which its multi-turn evaluation does not call.

Beside them, what the paper's step limit rules out: the tasks that fit into T = 10 assistant messages. A user turn
that needs calls takes two messages at least, one with calls and one without, so no policy can pass the others.

Usage: python scripts/bfcl_weaknesses.py [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from seeupo_recipe.envs.base import Action, EpisodeKey, Outcome, load_benchmark
from seeupo_recipe.envs.bfcl import BfclBenchmark
from seeupo_recipe.envs.bfcl.calls import Call
from seeupo_recipe.envs.bfcl.package import CATEGORIES, Task
from seeupo_recipe.envs.bfcl.qwen import to_text

Turns = Sequence[Sequence[Call]]

READ_ONLY = {
    "GorillaFileSystem": "pwd",
    "VehicleControlAPI": "find_nearest_tire_shop",
    "TradingBot": "get_current_time",
    "TravelAPI": "list_all_airports",
    "MessageAPI": "list_users",
    "TicketAPI": "ticket_get_login_status",
    "TwitterAPI": "posting_get_login_status",
}
"""A call without arguments and without effect, for each API class with state."""


def doubled(task: Task) -> Turns:
    return [[call for call in turn for _ in range(2)] for turn in task.ground_truth]


def acting_when_it_must_not(task: Task) -> Turns | None:
    if all(task.ground_truth):
        return None
    extra = Call(next(READ_ONLY[name] for name in task.classes if name in READ_ONLY), {})
    return [turn or (extra,) for turn in task.ground_truth]


VARIANTS: Mapping[str, Callable[[Task], Turns | None]] = {
    "doubled calls": doubled,
    "acting when it must not": acting_when_it_must_not,
}


def play(benchmark: BfclBenchmark, task: Task, turns: Turns) -> Outcome:
    """One message of calls per user turn that has any, then one without."""
    environment = benchmark.make(EpisodeKey(0, 0, task.task_id, 0))
    environment.reset()
    for turn in turns:
        for text in ([to_text(list(turn))] if turn else []) + ["Done."]:
            environment.step(Action(text))
    outcome = environment.score()
    environment.close()
    return outcome


def measure(benchmark: BfclBenchmark) -> dict[str, dict[str, tuple[int, int]]]:
    """Category (and the release's test split) -> variant -> (passed, tried)."""
    groups = {category: [t for t in benchmark.tasks.values() if t.category == category] for category in CATEGORIES}
    groups["release test split"] = [benchmark.tasks[task_id] for task_id in benchmark.task_ids("test")]
    result: dict[str, dict[str, tuple[int, int]]] = {}
    for group, tasks in groups.items():
        result[group] = {}
        for variant, change in VARIANTS.items():
            tries = [(task, turns) for task in tasks if (turns := change(task)) is not None]
            passed = sum(play(benchmark, task, turns).success for task, turns in tries)
            result[group][variant] = (passed, len(tries))
        messages = [sum(2 if turn else 1 for turn in task.ground_truth) for task in tasks]
        result[group]["fits into T = 10"] = (sum(count <= 10 for count in messages), len(tasks))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the counts to this file")
    options = parser.parse_args()
    benchmark = load_benchmark("bfcl", max_turns=10**6)
    counts = measure(benchmark)
    columns = [*VARIANTS, "fits into T = 10"]
    table = Table("tasks", *columns, title=f"passed / tried, {benchmark.version}")
    for group, row in counts.items():
        table.add_row(group, *("{} / {}".format(*row[column]) for column in columns))
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps({"version": benchmark.version, "counts": counts}, indent=1) + "\n")


if __name__ == "__main__":
    main()
