"""One episode of a task as a generator: it yields prompts, is sent generations, returns the trajectory.

The generator form lets one loop serve the lab, which samples for many episodes in lock-step, and the
verl plugin, which awaits an inference server.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from seeupo_recipe.agents.template import ContextTemplate
from seeupo_recipe.envs.base import Action, Benchmark, Environment, EnvironmentFailure, EpisodeKey, Message, Outcome

DONE, MAX_TURNS, CONTEXT_LENGTH, ENVIRONMENT_FAILURE = "done", "max_turns", "context_length", "environment_failure"


@dataclass(frozen=True)
class Limits:
    """Bounds of an episode.

    Attributes:
        max_turns: Assistant messages (T); the paper allows 10.
        max_prompt_tokens: Longest context that is served; a longer one ends the episode.
        max_new_tokens: Longest assistant message.
    """

    max_turns: int
    max_prompt_tokens: int
    max_new_tokens: int


@dataclass(frozen=True)
class Sampled:
    """What a sampler answers to a prompt.

    Attributes:
        token_ids: Sampled ids, end token included if reached.
        log_probs: Log-probability of each under the sampling policy; empty if the server gave none.
        finished: False if the token limit came first.
    """

    token_ids: Sequence[int]
    log_probs: Sequence[float]
    finished: bool


@dataclass(frozen=True)
class Turn:
    """One assistant message: the exact prompt served and the exact ids sampled."""

    prompt_ids: list[int]
    response_ids: list[int]
    log_probs: list[float]
    finished: bool


@dataclass(frozen=True)
class TurnRequest:
    """A prompt to continue by at most ``max_new_tokens`` tokens."""

    turn: int
    prompt_ids: list[int]
    max_new_tokens: int


@dataclass
class Trajectory:
    """A finished episode.

    Attributes:
        key: What its random numbers depended on.
        turns: Turns with at least one sampled token, in order.
        stop_reason: ``done``, ``max_turns``, ``context_length`` or ``environment_failure``.
        outcome: The environment's verdict; None after an environment failure.
        messages: The whole conversation, for transcripts.
        failure: What broke, after an environment failure.
    """

    key: EpisodeKey
    turns: list[Turn] = field(default_factory=list)
    stop_reason: str = DONE
    outcome: Outcome | None = None
    messages: list[Message] = field(default_factory=list)
    failure: str | None = None

    @property
    def truncated(self) -> bool:
        """Whether a limit ended the episode before the environment did."""
        return self.stop_reason in (MAX_TURNS, CONTEXT_LENGTH)

    @property
    def cut_turns(self) -> int:
        """Number of messages that hit the token limit."""
        return sum(not turn.finished for turn in self.turns)


def play(
    benchmark: Benchmark, key: EpisodeKey, template: ContextTemplate, limits: Limits, end_ids: Sequence[int]
) -> Generator[TurnRequest, Sampled, Trajectory]:
    """Play one episode; environment failures end it as such instead of raising."""
    trajectory = Trajectory(key)
    try:
        environment = benchmark.make(key)
        try:
            yield from _interact(environment, trajectory, template, limits, end_ids)
            trajectory.outcome = environment.score()
        finally:
            environment.close()
    except EnvironmentFailure as failure:
        trajectory.stop_reason, trajectory.outcome, trajectory.failure = ENVIRONMENT_FAILURE, None, str(failure)
    return trajectory


def _interact(
    environment: Environment,
    trajectory: Trajectory,
    template: ContextTemplate,
    limits: Limits,
    end_ids: Sequence[int],
) -> Generator[TurnRequest, Sampled, None]:
    prompt = environment.reset()
    messages = trajectory.messages
    messages.extend(prompt.messages)
    for turn in range(limits.max_turns):
        prompt_ids = template.encode(messages, prompt.tools)
        if len(prompt_ids) > limits.max_prompt_tokens:
            trajectory.stop_reason = CONTEXT_LENGTH
            return
        sampled = yield TurnRequest(turn, prompt_ids, limits.max_new_tokens)
        response_ids = list(sampled.token_ids)
        if response_ids:
            trajectory.turns.append(Turn(prompt_ids, response_ids, list(sampled.log_probs), sampled.finished))
        text = template.decode(response_ids, end_ids)
        observation = environment.step(Action(text, complete=sampled.finished))
        messages.append(template.remember(text))
        messages.extend(observation.messages)
        if observation.done:
            return
    trajectory.stop_reason = MAX_TURNS
