"""The protocol between an agent and a multi-turn environment.

A :class:`Benchmark` lists task ids and makes one :class:`Environment` per episode. An environment is
used by one episode only: ``reset`` once, ``step`` once per assistant message, ``score`` once, ``close``
always. Its random numbers come from the :class:`EpisodeKey` alone.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

Message = dict[str, Any]


class EnvironmentFailure(RuntimeError):
    """The environment itself broke: the episode is neither a success nor a failure of the policy.

    Such an episode is recorded and counted apart, and left out of group statistics and scores.
    """


@dataclass(frozen=True)
class EpisodeKey:
    """What an episode's random numbers depend on; equal keys give equal streams."""

    seed: int
    iteration: int
    task_id: str
    session: int


@dataclass(frozen=True)
class Prompt:
    """The conversation before the first assistant message, with the callable tools if any."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Action:
    """One assistant message. ``complete`` is False if it hit the token limit before its end token."""

    text: str
    complete: bool = True


@dataclass(frozen=True)
class Observation:
    """What the environment adds to the conversation; ``done`` ends the episode."""

    messages: tuple[Message, ...] = ()
    done: bool = False


@dataclass(frozen=True)
class Outcome:
    """The verdict on an episode.

    Attributes:
        reward: The scalar the policy is trained on (the paper's team reward).
        score: Task score in [0, 1], independent of reward shaping; avg@k averages it.
        success: Whether the task counts as solved; pass@k counts it.
        info: Extra facts for the record (JSON scalars only).
    """

    reward: float
    score: float
    success: bool
    info: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Environment(Protocol):
    """One episode of one task. Methods may block; they are never called concurrently."""

    def reset(self) -> Prompt: ...

    def step(self, action: Action) -> Observation: ...

    def score(self) -> Outcome: ...

    def close(self) -> None: ...


@runtime_checkable
class Benchmark(Protocol):
    """A set of tasks with their splits.

    Attributes:
        name: Name used in configs and records.
        version: Changes whenever the same actions could score differently (package version and
            content hash); records of different versions are never averaged.
        max_turns: Step limit per episode (T of the paper).
        max_new_tokens: Token limit of one assistant message.
        blocking: True if episodes wait on other processes, so that they must run in threads.
    """

    name: str
    version: str
    max_turns: int
    max_new_tokens: int
    blocking: bool

    def task_ids(self, split: str) -> Sequence[str]: ...

    def cluster(self, task_id: str) -> str: ...

    def make(self, key: EpisodeKey) -> Environment: ...


def concurrent_episodes(benchmark: Benchmark) -> int:
    """Most episodes of ``benchmark`` that may be open at the same time in one process.

    A benchmark whose episodes hold a scarce resource sets it as its attribute ``concurrent_episodes``.
    """
    return getattr(benchmark, "concurrent_episodes", sys.maxsize)


@dataclass(frozen=True)
class Vocabulary:
    """A closed vocabulary, for policies that are trained from nothing.

    Attributes:
        words: Every word that prompts, actions and observations can hold.
        pattern: Regular expression of one word; what it skips (spaces) is not encoded.
        joiner: What stands between words when ids are decoded to text.
    """

    words: Sequence[str]
    pattern: str = r"\S+"
    joiner: str = " "


@runtime_checkable
class TeachableBenchmark(Benchmark, Protocol):
    """A benchmark that a tiny policy can be warm-started on.

    Settings of the warm start that are not the usual ones stand in its attribute ``warm_start`` if it has one
    (a mapping of fields of :class:`seeupo_recipe.models.warm_start.WarmStartSettings`).

    Attributes:
        context_length: Longest conversation in tokens of its vocabulary.
    """

    context_length: int

    def vocabulary(self) -> Vocabulary: ...

    def demonstrate(self, task_id: str, rng: np.random.Generator) -> list[Message]:
        """The whole conversation of one noisy expert episode on a task of no other split."""
        ...


_BENCHMARKS = {
    "vaulthop": "seeupo_recipe.envs.vaulthop:vaulthop",
    "vaulthop-trap": "seeupo_recipe.envs.vaulthop:vaulthop_trap",
    "bfcl": "seeupo_recipe.envs.bfcl:bfcl",
    "bfcl-mini": "seeupo_recipe.envs.bfcl:bfcl_mini",
    "appworld": "seeupo_recipe.envs.appworld:appworld",
    "appworld-mini": "seeupo_recipe.envs.appworld:appworld_mini",
}

BENCHMARK_NAMES = tuple(_BENCHMARKS)


def load_benchmark(name: str, **options: Any) -> Benchmark:
    """Build the benchmark ``name``; ``options`` go to its factory.

    Raises:
        ValueError: If ``name`` is unknown (the message lists the known ones).
    """
    if name not in _BENCHMARKS:
        raise ValueError(f"unknown benchmark {name!r}; known: {', '.join(BENCHMARK_NAMES)}")
    module, factory = _BENCHMARKS[name].split(":")
    return getattr(importlib.import_module(module), factory)(**options)
