"""The order in which a run trains on its tasks."""

from __future__ import annotations

from collections.abc import Sequence

from seeupo_recipe.config import RunConfig
from seeupo_recipe.seeding import stream
from seeupo_recipe.strict import ConfigError


def training_order(config: RunConfig, task_ids: Sequence[str]) -> list[list[str]]:
    """Task ids of every iteration.

    Each epoch is a fresh permutation; the last incomplete batch of an epoch is dropped (release).

    Raises:
        ConfigError: If the split holds fewer tasks than an iteration needs.
    """
    size = config.training.tasks_per_iteration
    per_epoch = len(task_ids) // size
    if per_epoch == 0:
        raise ConfigError(
            f"training.tasks_per_iteration={size}: split {config.benchmark.train_split} has only {len(task_ids)} tasks"
        )
    iterations: list[list[str]] = []
    epoch = 0
    while len(iterations) < config.training.iterations:
        order = [task_ids[i] for i in stream("epoch", config.seed, epoch).permutation(len(task_ids))]
        iterations += [order[i * size : (i + 1) * size] for i in range(per_epoch)]
        epoch += 1
    return iterations[: config.training.iterations]
