"""bfcl-mini: short generated tasks on the real API classes and the real checker, for tiny models.

A task is a pure function of its id, ``<split>_<domain>_<number>``. The splits ``warm`` (for supervised warm
starts), ``train``, ``validation`` and ``test`` draw from random streams of their own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from seeupo_recipe.envs.base import Action, Observation, Outcome, Prompt
from seeupo_recipe.envs.bfcl.calls import Call
from seeupo_recipe.envs.bfcl.environment import BfclEnvironment
from seeupo_recipe.envs.bfcl.mini_domains import DOMAINS, Turn, pick
from seeupo_recipe.envs.bfcl.mini_language import (
    DONE,
    MiniLanguage,
    language_tokens,
    tokenize,
    write_call,
)
from seeupo_recipe.envs.bfcl.mini_words import REQUESTS, VALUES
from seeupo_recipe.envs.bfcl.package import Task
from seeupo_recipe.seeding import stream

MAX_TURNS = 10
MAX_NEW_TOKENS = 16
SPLIT_SIZES: Mapping[str, int] = {"train": 512, "validation": 64, "test": 128, "warm": 4096}
DEMONSTRATOR_NOISE = 0.2
UNKNOWN = "<unk>"


def vocabulary() -> tuple[str, ...]:
    """All tokens of prompts, actions and observations under :data:`.mini_language.PRE_TOKENIZER`.

    The first is :data:`UNKNOWN`, which stands for any other text. Special tokens of a chat template are not
    in it.
    """
    words = {token for texts in REQUESTS.values() for text in texts for token in tokenize(text.format_map(_Blank()))}
    return (UNKNOWN, *sorted(words | language_tokens() | {value for pool in VALUES for value in pool}))


class _Blank(dict):
    def __missing__(self, key: str) -> str:
        return " "


@cache
def task_ids(split: str) -> tuple[str, ...]:
    domains = tuple(DOMAINS)
    return tuple(f"{split}_{domains[index % len(domains)]}_{index}" for index in range(SPLIT_SIZES[split]))


@cache
def _all_ids() -> frozenset[str]:
    return frozenset(task_id for split in SPLIT_SIZES for task_id in task_ids(split))


class GeneratedTasks(Mapping[str, Task]):
    """All tasks by id, generated at the first use."""

    def __getitem__(self, task_id: str) -> Task:
        if task_id not in _all_ids():
            raise KeyError(task_id)
        return make_task(task_id)

    def __iter__(self) -> Iterator[str]:
        return (task_id for split in SPLIT_SIZES for task_id in task_ids(split))

    def __len__(self) -> int:
        return sum(SPLIT_SIZES.values())


@cache
def make_task(task_id: str) -> Task:
    """The task named ``task_id``: 2 to 4 user turns that one call per message solves in at most 10 messages."""
    split, domain, _ = task_id.split("_")
    api_class, generate = DOMAINS[domain]
    rng = stream("bfcl-mini", split, task_id)
    config, source = generate(rng)
    count = int(rng.integers(2, 5))
    turns: list[Turn] = []
    while len(turns) < count:
        turn = next(source)
        later_turns = count - len(turns) - 1
        if sum(len(t.calls) + 1 for t in [*turns, turn]) + 2 * later_turns > MAX_TURNS:
            count = len(turns)
        else:
            turns.append(turn)
    return Task(
        task_id=task_id,
        classes=(api_class,),
        config={api_class: config},
        user_turns=tuple(({"role": "user", "content": turn.request(rng)},) for turn in turns),
        ground_truth=tuple(turn.calls for turn in turns),
    )


def content_hash() -> str:
    """Hash of every task of the train and test splits."""
    digest = hashlib.sha256()
    for split in ("train", "test"):
        for task in map(make_task, task_ids(split)):
            calls = [[write_call(call) for call in turn] for turn in task.ground_truth]
            digest.update(json.dumps([task.task_id, task.config, task.user_turns, calls]).encode())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Demonstration:
    """One demonstrated episode, for supervised warm starts."""

    prompt: Prompt
    steps: tuple[tuple[Action, Observation], ...]
    outcome: Outcome


def demonstrate(task: Task, rng: np.random.Generator, noise: float) -> Demonstration:
    """Play ``task`` with one reference call per message; make a mistake before each with probability ``noise``.

    The mistakes are those that a policy has to unlearn: a wrong value, another call of the task, the same call
    twice, a cut call, the end of the user turn too early. After a mistake the demonstrator goes on as if
    nothing had happened, except that a user turn that has ended is over.

    Raises:
        ValueError: If ``noise`` is not a probability.
    """
    if not 0 <= noise <= 1:
        raise ValueError(f"noise must be a probability, not {noise}")
    environment = BfclEnvironment(task, MiniLanguage(), MAX_TURNS, "sparse")
    prompt, steps = environment.reset(), []
    try:
        for text in _texts(task, rng, noise):
            steps.append((Action(text), environment.step(Action(text))))
            if steps[-1][1].done:
                break
        return Demonstration(prompt, tuple(steps), environment.score())
    finally:
        environment.close()


def _texts(task: Task, rng: np.random.Generator, noise: float) -> Iterator[str]:
    all_calls = [call for turn in task.ground_truth for call in turn]
    for turn in task.ground_truth:
        previous = None
        for call in turn:
            if rng.random() < noise:
                mistake = _mistake(call, previous, all_calls, rng)
                yield mistake
                if mistake == DONE:
                    break
            previous = write_call(call)
            yield previous
        else:
            if rng.random() < noise:
                yield write_call(pick(rng, all_calls))
            yield DONE


def _mistake(call: Call, previous: str | None, all_calls: list[Call], rng: np.random.Generator) -> str:
    tokens = write_call(call).split()
    kind = pick(rng, ["value", "value", "other", "repeat", "cut", "early"])
    if kind == "early":
        return DONE
    if kind == "repeat" and previous is not None:
        return previous
    if kind == "cut":
        return " ".join(tokens[:-1])
    if kind == "value":
        place = int(rng.integers(1, len(tokens)))
        pool = next((pool for pool in VALUES if tokens[place] in pool), tokens)
        return " ".join([*tokens[:place], pick(rng, pool), *tokens[place + 1 :]])
    return write_call(pick(rng, all_calls))
