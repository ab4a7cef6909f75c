"""The tasks of a run in the order in which they are trained on, as verl's dataset."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf
from torch.utils.data import Dataset

from seeupo_recipe.config import build_config
from seeupo_recipe.envs.base import load_benchmark
from seeupo_recipe.tasks import training_order


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
