"""Transcripts of single episodes, kept beside a run's record: a few of them, whole enough to be read.

A run's folder may hold ``transcripts.jsonl``: one JSON object per line, each an episode.

========== ============================ ==========================================================================
key        type                         meaning
========== ============================ ==========================================================================
iteration  int                          Weights that played: 0 before training, n after iteration n. For a rollout
                                        of training iteration n, n (it was played with the weights of n - 1).
split      str                          The split of ``eval.jsonl``, or ``rollout`` for an episode trained on.
task_id    str                          As in ``eval.jsonl``.
sample     int                          As in ``eval.jsonl``; the session of a rollout.
score      float or null                Null after an environment failure.
success    bool or null                 Null after an environment failure.
stop       str                          ``done``, ``max_turns``, ``context_length`` or ``environment_failure``.
failure    str or null                  What broke in the environment.
messages   list                         The whole conversation: objects with ``role`` and ``content`` (str); other
                                        keys, such as ``tool_calls``, are shown as JSON.
turns      list                         One object per assistant message, in order: ``advantage`` (float or null),
                                        the trajectory's A, and ``m`` (float or null), the weight M_{t+1} that
                                        multiplied this turn's ratio (equation 6). Empty or null values where the
                                        episode was not trained on, or the method has no M.
========== ============================ ==========================================================================

Lines are appended in any order; of two lines for the same (iteration, split, task_id, sample) the later one
counts. A torn last line is ignored. A training run keeps

- of its evaluations: the first tasks of the split, one sample each, at the first and the last periodic
  evaluation and at the final one (the run of the untrained policy has the same tasks at iteration 0);
- of its rollouts: the first tasks of the first and the last iteration whose rollouts differ in reward, so that
  there is an advantage to see.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seeupo_recipe.config import RunConfig
from seeupo_recipe.envs.base import Benchmark
from seeupo_recipe.records.run import RunRecord

ROLLOUT = "rollout"
EVALUATION_TASKS, EVALUATION_SAMPLES = 4, 1
ROLLOUT_TASKS, ROLLOUT_SESSIONS = 2, 2
LONGEST_CONTENT = 3000

Facts = Mapping[str, Any]


@dataclass
class Credit:
    """What an iteration's update multiplied the ratios with.

    Attributes:
        advantages: A of each trajectory id; empty for a method without one number per trajectory.
        weights: M of each (trajectory id, turn), turns from 0; empty for a method without M.
    """

    advantages: dict[str, float] = field(default_factory=dict)
    weights: dict[tuple[str, int], float] = field(default_factory=dict)

    def of(self, trajectory: str, turns: int) -> list[dict[str, float | None]]:
        """The ``turns`` of a transcript; empty for a trajectory that no update used."""
        if trajectory not in self.advantages:
            return []
        return [
            {"advantage": self.advantages[trajectory], "m": self.weights.get((trajectory, turn))}
            for turn in range(turns)
        ]


@dataclass(frozen=True)
class TranscriptKeeper:
    """Picks the episodes of a training run that are kept; call it before their outcomes are recorded."""

    record: RunRecord
    config: RunConfig
    benchmark: Benchmark

    def evaluation(self, facts: Iterable[Facts], *, iteration: int, split: str) -> None:
        """Keep the chosen ones of the episodes of an evaluation, played with the weights of ``iteration``."""
        training, every = self.config.training, self.config.evaluation.every
        periodic = (every, training.iterations // every * every) if every else ()
        if iteration in (*periodic, training.iterations):
            tasks = self.benchmark.task_ids(split)[:EVALUATION_TASKS]
            kept = [f for f in facts if f["task_id"] in tasks and f["sample"] < EVALUATION_SAMPLES]
            self.record.append_transcripts(transcript(f, iteration=iteration, split=split) for f in kept)

    def rollouts(self, facts: Mapping[str, Facts], credit: Credit, *, iteration: int) -> None:
        """Keep the chosen ones of the rollouts of training iteration ``iteration``, by trajectory id."""
        if iteration in (1, self.config.training.iterations):
            tasks = _contrasted(list(facts.values()))[:ROLLOUT_TASKS]
            self.record.append_transcripts(
                transcript(f, iteration=iteration, split=ROLLOUT, turns=credit.of(trajectory, f["turns"]))
                for trajectory, f in sorted(facts.items(), key=lambda item: (item[1]["task_id"], item[1]["sample"]))
                if f["task_id"] in tasks and f["sample"] < ROLLOUT_SESSIONS
            )


def transcript(
    facts: Facts, *, iteration: int, split: str, turns: Sequence[Mapping[str, float | None]] = ()
) -> dict[str, Any]:
    """One line of the file.

    Args:
        facts: Of the episode, as ``trajectory_facts`` gives them.
        iteration: As in the file.
        split: As in the file.
        turns: As in the file; left out if a message had no sampled token, since turns and messages then differ.
    """
    messages = [_shortened(message) for message in facts["messages"]]
    assistant = sum(message["role"] == "assistant" for message in messages)
    return {
        "iteration": iteration,
        "split": split,
        **{key: facts[key] for key in ("task_id", "sample", "score", "success")},
        "stop": facts["stop_reason"],
        "failure": facts["failure"],
        "messages": messages,
        "turns": list(turns) if len(turns) == assistant else [],
    }


def _contrasted(facts: Sequence[Facts]) -> list[str]:
    """Task ids, those first whose rollouts differ in reward."""
    rewards: dict[str, set[float | None]] = {}
    for f in facts:
        rewards.setdefault(f["task_id"], set()).add(f["reward"])
    return sorted(rewards, key=lambda task: (len(rewards[task] - {None}) < 2, task))


def _shortened(message: Mapping[str, Any]) -> dict[str, Any]:
    text = message.get("content")
    if not isinstance(text, str) or len(text) <= LONGEST_CONTENT:
        return dict(message)
    return {**message, "content": f"{text[:LONGEST_CONTENT]}\n[{len(text) - LONGEST_CONTENT} more characters]"}
