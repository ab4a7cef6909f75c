"""The BFCL v4 multi-turn benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from seeupo_recipe.envs.base import EpisodeKey
from seeupo_recipe.envs.bfcl import package
from seeupo_recipe.envs.bfcl.environment import BfclEnvironment, Dialect
from seeupo_recipe.envs.bfcl.package import Task
from seeupo_recipe.envs.bfcl.reward import REWARDS
from seeupo_recipe.envs.bfcl.splits import hash_task_list

ADAPTER = "1"
"""Raise this when the same assistant messages could get another score or reward."""


@dataclass
class BfclBenchmark:
    """Implements :class:`seeupo_recipe.envs.base.Benchmark` for any set of tasks on the bfcl-eval engine.

    Attributes:
        tasks: Task id -> task.
        splits: Split name -> task ids.
        clusters: Task id -> cluster for clustered statistics.
        content: Hash of everything generated here that decides a score, beside the package's own content.
        dialect: How calls and results are written.
        reward: ``sparse`` or ``shaped`` (see :func:`seeupo_recipe.envs.bfcl.reward.reward`).
    """

    name: str
    tasks: Mapping[str, Task] = field(repr=False)
    splits: Mapping[str, Sequence[str]] = field(repr=False)
    clusters: Mapping[str, str] = field(repr=False)
    content: str
    dialect: Dialect
    reward: str
    max_turns: int
    max_new_tokens: int
    version: str = field(init=False)
    blocking: bool = field(init=False, default=True)

    def __post_init__(self) -> None:
        if self.reward not in REWARDS:
            raise ValueError(f"unknown reward {self.reward!r}; known: {', '.join(REWARDS)}")
        for option in ("max_turns", "max_new_tokens"):
            if getattr(self, option) < 1:
                raise ValueError(f"{option} must be at least 1, not {getattr(self, option)}")
        package.package_dir()
        self.version = (
            f"{self.name} bfcl-eval=={package.VERSION} content={package.CONTENT} tasks={self.content} "
            f"adapter={ADAPTER} max_turns={self.max_turns} reward={self.reward}"
        )

    def task_ids(self, split: str) -> Sequence[str]:
        """Task ids of a named split, in a fixed order.

        Raises:
            ValueError: If the split is unknown (the message lists the known ones).
        """
        if split not in self.splits:
            raise ValueError(f"unknown split {split!r} of {self.name}; known: {', '.join(self.splits)}")
        return self.splits[split]

    def split_hash(self, split: str) -> str:
        """Hash of a split's task-id list, for the run record."""
        return hash_task_list(self.task_ids(split))

    def cluster(self, task_id: str) -> str:
        return self.clusters[task_id]

    def make(self, key: EpisodeKey) -> BfclEnvironment:
        """A fresh episode. The engine is deterministic: only the key's task matters."""
        return BfclEnvironment(self.tasks[key.task_id], self.dialect, self.max_turns, self.reward)
