"""Whether a benchmark's environment answers here, and whether its tasks are the expected ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from seeupo_recipe.config import BenchmarkConfig
from seeupo_recipe.envs.base import Benchmark, EpisodeKey, load_benchmark
from seeupo_recipe.records.identity import digest
from seeupo_recipe.strict import ConfigError

DATASETS = Path(__file__).with_name("datasets.json")


def open_benchmark(config: BenchmarkConfig) -> Benchmark:
    """The benchmark of a config.

    Raises:
        ConfigError: With one line if its package or data is missing.
    """
    try:
        return load_benchmark(config.name, **config.options)
    except (ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(f"benchmark {config.name} is not set up: {_line(error)}") from None


def check_environment(config: BenchmarkConfig, *, episode: bool = True) -> Benchmark:
    """Load the benchmark and open its first training task.

    Args:
        episode: Whether to start an environment, beyond listing the tasks.

    Raises:
        ConfigError: With one line that says what does not answer.
    """
    benchmark = open_benchmark(config)
    try:
        tasks = benchmark.task_ids(config.train_split)
        if episode:
            environment = benchmark.make(EpisodeKey(0, 0, tasks[0], 0))
            try:
                environment.reset()
            finally:
                environment.close()
    except Exception as error:  # whatever an environment raises means that it does not answer
        raise ConfigError(f"the environment of {config.name} does not answer: {_line(error)}") from None
    return benchmark


def check_tasks(config: BenchmarkConfig, benchmark: Benchmark) -> str:
    """The sizes of the splits in use, if number and ids of the tasks are the expected ones.

    Raises:
        ConfigError: With the split that differs.
    """
    expected: dict[str, Any] = json.loads(DATASETS.read_text()).get(config.name, {}).get("splits", {})
    found = []
    for split in dict.fromkeys((config.train_split, config.validation_split, config.test_split)):
        tasks = list(benchmark.task_ids(split))
        wanted = expected.get(split, {})
        if len(tasks) != wanted.get("tasks", len(tasks)):
            raise ConfigError(f"{config.name} {split} has {len(tasks)} tasks instead of {wanted['tasks']}")
        if digest(tasks, 16) != wanted.get("digest", digest(tasks, 16)):
            raise ConfigError(f"the task list of {config.name} {split} is not the expected one (seeupo_recipe/cluster)")
        found.append(f"{split} {len(tasks)}")
    return ", ".join(found)


def _line(error: Exception) -> str:
    text = str(error).splitlines()
    return text[0] if text else type(error).__name__
