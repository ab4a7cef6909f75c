"""What is recorded of trajectories: facts of each, metrics of an iteration, rows of an evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from seeupo_recipe.agents.episode import DONE, Trajectory
from seeupo_recipe.envs.base import Benchmark

Facts = dict[str, Any]


def trajectory_facts(trajectory: Trajectory) -> Facts:
    """JSON-ready facts, the conversation included; score and success are None after an environment failure."""
    outcome = trajectory.outcome
    return {
        "task_id": trajectory.key.task_id,
        "sample": trajectory.key.session,
        "turns": len(trajectory.turns),
        "cut_turns": trajectory.cut_turns,
        "sampled_tokens": sum(len(turn.response_ids) for turn in trajectory.turns),
        "stop_reason": trajectory.stop_reason,
        "failure": trajectory.failure,
        "reward": None if outcome is None else float(outcome.reward),
        "score": None if outcome is None else float(outcome.score),
        "success": None if outcome is None else bool(outcome.success),
        "info": {} if outcome is None else dict(outcome.info),
        "messages": trajectory.messages,
    }


def training_metrics(facts: Sequence[Facts]) -> dict[str, float]:
    """Metrics of one iteration's rollouts; environment failures are counted and otherwise left out.

    Raises:
        RuntimeError: If every trajectory's environment failed.
    """
    played = [f for f in facts if f["failure"] is None]
    if not played:
        raise RuntimeError(
            f"all {len(facts)} episodes of the iteration had environment failures: {facts[0]['failure']}"
        )

    def mean(values: Iterable[float]) -> float:
        return float(np.mean(list(values)))

    return {
        "train/return_mean": mean(f["reward"] for f in played),
        "train/success_rate": mean(f["success"] for f in played),
        "train/turns_mean": mean(f["turns"] for f in played),
        "train/truncated_fraction": mean(f["stop_reason"] != DONE for f in played),
        "train/cut_turn_fraction": sum(f["cut_turns"] for f in played) / max(1, sum(f["turns"] for f in played)),
        "train/trajectories": len(played),
        "train/environment_failures": len(facts) - len(played),
        "tokens/sampled": sum(f["sampled_tokens"] for f in played),
    }


def evaluation_rows(
    facts: Iterable[Facts], benchmark: Benchmark, *, iteration: int, split: str
) -> list[Mapping[str, Any]]:
    """Lines of ``eval.jsonl`` for the given episodes."""
    kept = ("task_id", "sample", "score", "success", "turns", "cut_turns", "stop_reason", "failure", "info")
    return [
        {
            "iteration": iteration,
            "split": split,
            "cluster": benchmark.cluster(f["task_id"]),
            **{key: f[key] for key in kept},
        }
        for f in facts
    ]
