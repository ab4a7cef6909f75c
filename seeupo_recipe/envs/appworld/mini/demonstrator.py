"""A noisy demonstrator of ``appworld-mini`` for supervised warm starts.

It sees what the policy sees, the instruction and the observations, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from seeupo_recipe.envs.base import Action, Environment, Message, Outcome

from .families import AMOUNTS, FAMILIES, FIRST_NAMES, LAST_NAMES, PROFILE_FIELDS, WORDS, Family

GIVE_UP = "apis.supervisor.complete_task()"


def demonstrate(environment: Environment, rng: np.random.Generator, noise: float) -> tuple[list[Message], Outcome]:
    """Play one episode and return its whole conversation and outcome; closes ``environment``.

    Args:
        environment: A fresh episode of an ``appworld-mini`` task.
        rng: Decides where the demonstrator errs.
        noise: Probability of an error at each choice: taking a value from the wrong line or place, or
            calling ``complete_task`` too early. 0 gives a shortest solution.
    """
    try:
        messages = list(environment.reset().messages)
        actions = act(messages[-1]["content"], rng, noise)
        observation = None
        done = False
        while not done:
            try:
                code = actions.send(observation)
            except StopIteration:
                break
            message = f"```python\n{code}\n```"
            step = environment.step(Action(message))
            messages += [{"role": "assistant", "content": message}, *step.messages]
            observation, done = step.messages[-1]["content"], step.done
        return messages, environment.score()
    finally:
        environment.close()


def relabel(messages: Sequence[Message], rng: np.random.Generator) -> list[Message]:
    """The same conversation with words and people renamed throughout, as it would go in another task.

    The engine takes passwords, titles, contents and names as they are, so a demonstration stays right
    under any renaming. A tiny policy needs the variety to learn to copy instead of to remember.
    """
    names = {}
    for group in (WORDS, FIRST_NAMES, LAST_NAMES):
        names |= dict(zip(group, (str(name) for name in rng.permutation(group)), strict=True))
    pattern = re.compile(rf"\b(?:{'|'.join(names)})\b")
    return [
        {**message, "content": pattern.sub(lambda found: names[found[0]], message["content"])} for message in messages
    ]


def act(instruction: str, rng: np.random.Generator, noise: float) -> Iterator[str]:
    """Code of each turn; the generator is sent the observation of the turn before."""
    family, values = read_instruction(instruction)
    values["app"] = family.app
    slips = {name: _slip(name, rng) for name in values if name != "app" and rng.random() < noise}
    *turns, last = family.turns
    for turn in turns:
        if rng.random() < noise / len(turns):
            yield GIVE_UP
            return
        observation = yield turn.code.format(**values | slips)
        if turn.binds:
            value = _read(observation, values.get(turn.beside), rng, noise)
            if value is None:
                yield GIVE_UP
                return
            values[turn.binds] = value
    yield last.code.format(**values)


def read_instruction(instruction: str) -> tuple[Family, dict[str, str]]:
    """The family that an instruction belongs to, and its placeholders' values."""
    for family in FAMILIES:
        pattern = re.escape(family.instruction).replace(r"\{", "{").replace(r"\}", "}")
        match = re.fullmatch(re.sub(r"\{(\w+)\}", r"(?P<\1>.+?)", pattern), instruction)
        if match:
            return family, match.groupdict()
    raise ValueError(f"no family has the instruction {instruction!r}")


def _read(observation: str, beside: str | None, rng: np.random.Generator, noise: float) -> str | None:
    """The value that stands beside ``beside`` on its line, or all of the output; sometimes a wrong one."""
    if observation.startswith(("Error", "Execution")):
        return None
    if beside is None:
        return str(rng.choice(WORDS)) if rng.random() < noise else observation
    pairs = [line.split(" ", 1) for line in observation.splitlines() if " " in line]
    right = next((pair for pair in pairs if beside in pair), None)
    if right is None:
        return None
    pair = pairs[rng.integers(len(pairs))] if rng.random() < noise else right
    return pair[1 - right.index(beside)]


def _slip(name: str, rng: np.random.Generator) -> str:
    alternatives = {"amount": AMOUNTS, "name": FIRST_NAMES, "field": PROFILE_FIELDS}
    return str(rng.choice(alternatives.get(name, WORDS)))
