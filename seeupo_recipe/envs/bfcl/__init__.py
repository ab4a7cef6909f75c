"""BFCL v4 multi-turn (Berkeley Function Calling Leaderboard) and bfcl-mini on the same engine."""

from __future__ import annotations

import numpy as np

from seeupo_recipe.envs.base import Message, Vocabulary
from seeupo_recipe.envs.bfcl import mini
from seeupo_recipe.envs.bfcl.benchmark import BfclBenchmark
from seeupo_recipe.envs.bfcl.mini_language import PRE_TOKENIZER, MiniLanguage
from seeupo_recipe.envs.bfcl.package import CATEGORIES, load_tasks
from seeupo_recipe.envs.bfcl.qwen import QwenToolCalls
from seeupo_recipe.envs.bfcl.splits import hash_task_list, make_splits, scenario_clusters

__all__ = ["BfclBenchmark", "MiniBenchmark", "bfcl", "bfcl_mini"]


def bfcl(
    reward: str = "sparse",
    max_turns: int = 10,
    max_new_tokens: int = 4000,
    observation_chars: int | None = None,
    split_seed: int = 0,
) -> BfclBenchmark:
    """The 800 multi-turn tasks of bfcl-eval with the package's own data, API classes, executor and checker.

    Args:
        reward: ``sparse`` (the checker's verdict) or ``shaped`` (the release's rule).
        max_turns: Assistant messages per episode, those without calls included (the paper's T; the release
            uses 10). bfcl-eval itself allows 20 per user turn. With 10, a policy can pass at most 88 of the 100
            ``test`` tasks: a user turn that needs calls takes two messages (see scripts/bfcl_weaknesses.py).
        max_new_tokens: Token limit of one assistant message (the release uses 4000).
        observation_chars: Cut tool results at this length (the release: 3000; bfcl-eval: no cut).
        split_seed: Seed of the random splits (see :func:`seeupo_recipe.envs.bfcl.splits.make_splits`).

    Raises:
        RuntimeError: If bfcl-eval is missing, is another version, or was changed.
    """
    tasks = {task.task_id: task for category in CATEGORIES for task in load_tasks(category)}
    splits = make_splits(split_seed)
    scenarios = scenario_clusters()
    return BfclBenchmark(
        name="bfcl",
        tasks=tasks,
        splits=splits,
        clusters={task_id: scenarios[int(task_id.rpartition("_")[2])] for task_id in tasks},
        content=hash_task_list([f"{name}:{hash_task_list(ids)}" for name, ids in splits.items()]),
        dialect=QwenToolCalls(observation_chars),
        reward=reward,
        max_turns=max_turns,
        max_new_tokens=max_new_tokens,
    )


class MiniBenchmark(BfclBenchmark):
    """bfcl-mini, which a tiny policy can be warm-started on."""

    context_length = 256

    def vocabulary(self) -> Vocabulary:
        return Vocabulary(mini.vocabulary(), pattern=PRE_TOKENIZER)

    def demonstrate(self, task_id: str, rng: np.random.Generator) -> list[Message]:
        """A noisy expert's conversation on a task of the ``warm`` split, drawn from ``rng``."""
        warm = self.task_ids("warm")
        task = self.tasks[warm[int(rng.integers(len(warm)))]]
        demonstration = mini.demonstrate(task, rng, mini.DEMONSTRATOR_NOISE)
        messages = list(demonstration.prompt.messages)
        for action, observation in demonstration.steps:
            messages += [{"role": "assistant", "content": action.text}, *observation.messages]
        return messages


def bfcl_mini(reward: str = "sparse", max_turns: int = mini.MAX_TURNS) -> MiniBenchmark:
    """Generated tasks of 2-4 user turns on six of the real API classes, judged by the real checker.

    Splits: ``train``, ``validation``, ``test`` and ``warm`` (for supervised warm starts), from disjoint random
    streams. The tokenizer is :func:`seeupo_recipe.envs.bfcl.mini.vocabulary`; prompts offer no tools.

    Args:
        reward: As for :func:`bfcl`.
        max_turns: Assistant messages per episode; every task can be solved in 10 with one call per message.
    """
    splits = {split: mini.task_ids(split) for split in mini.SPLIT_SIZES}
    return MiniBenchmark(
        name="bfcl-mini",
        tasks=mini.GeneratedTasks(),
        splits=splits,
        clusters={task_id: task_id for ids in splits.values() for task_id in ids},
        content=mini.content_hash(),
        dialect=MiniLanguage(),
        reward=reward,
        max_turns=max_turns,
        max_new_tokens=mini.MAX_NEW_TOKENS,
    )
