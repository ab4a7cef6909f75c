"""The tasks of a run in the order in which they are trained on, as verl's dataset."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf
from torch.utils.data import Dataset

from seeupo_recipe.config import RunConfig, build_config
from seeupo_recipe.envs.base import load_benchmark
from seeupo_recipe.seeding import stream


def training_order(run: RunConfig, task_ids: list[str]) -> list[list[str]]:
    """Task ids of every iteration.

    Each epoch is a fresh permutation; the last incomplete batch of an epoch is dropped, as in the paper.

    Raises:
        ValueError: If the split holds fewer tasks than an iteration needs.
    """
    size = run.training.tasks_per_iteration
    per_epoch = len(task_ids) // size
    if per_epoch == 0:
        raise ValueError(
            f"split {run.benchmark.train_split} has {len(task_ids)} tasks, fewer than tasks_per_iteration={size}"
        )
    iterations: list[list[str]] = []
    epoch = 0
    while len(iterations) < run.training.iterations:
        order = [task_ids[i] for i in stream("epoch", run.seed, epoch).permutation(len(task_ids))]
        iterations += [order[i * size : (i + 1) * size] for i in range(per_epoch)]
        epoch += 1
    return iterations[: run.training.iterations]


class TaskDataset(Dataset):
    """All iterations laid end to end, so that the position of a resumed run names its next tasks.

    verl calls it with ``data_files`` ``seeupo://train`` or ``seeupo://none``; the run's config travels in
    the data config under ``seeupo_run``.
    """

    def __init__(self, data_files: Any, config: DictConfig, **_: Any) -> None:
        run = build_config(OmegaConf.to_container(config.seeupo_run, resolve=True))
        tasks = list(load_benchmark(run.benchmark.name, **run.benchmark.options).task_ids(run.benchmark.train_split))
        number = {task_id: i for i, task_id in enumerate(tasks)}
        iterations = training_order(run, tasks) or [tasks[: run.training.tasks_per_iteration]]
        self._items = [
            task_item(run.benchmark.name, task_id, number[task_id], iteration)
            for iteration, chunk in enumerate(iterations, start=1)
            for task_id in chunk
        ]

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, position: int) -> dict[str, Any]:
        return dict(self._items[position])


def task_item(benchmark: str, task_id: str, number: int, iteration: int) -> dict[str, Any]:
    """The columns that verl and the agent loop need of one task."""
    return {
        "raw_prompt": [{"role": "user", "content": task_id}],
        "task_id": task_id,
        "index": number,
        "iteration": iteration,
        "data_source": benchmark,
        "reward_model": {"ground_truth": None},
        "agent_name": "seeupo_turns",
    }
