"""One episode against a chat endpoint, which is sent messages where a local policy is sent token ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seeupo_recipe.agents.endpoint import ChatEndpoint, ContextTooLong, EndpointError
from seeupo_recipe.agents.episode import CONTEXT_LENGTH, ENVIRONMENT_FAILURE, MAX_TURNS, Limits, Trajectory, Turn
from seeupo_recipe.agents.facts import Facts, trajectory_facts
from seeupo_recipe.agents.rollout import turn_seed
from seeupo_recipe.agents.template import without_thinking
from seeupo_recipe.envs.base import Action, Benchmark, Environment, EnvironmentFailure, EpisodeKey, Message
from seeupo_recipe.models.sampling import SamplingParams


@dataclass(frozen=True)
class ChatPlayer:
    """Plays episodes with an endpoint's model; safe to share between threads.

    Attributes:
        endpoint: Where messages come from.
        limits: Bounds of an episode; ``max_prompt_tokens`` is the endpoint's to enforce, since only it counts tokens.
        params: Sampling.
        style: Context template, ``react`` or ``reasoning_augmented`` (earlier thinking removed).
    """

    endpoint: ChatEndpoint
    limits: Limits
    params: SamplingParams
    style: str = "react"

    def play(self, benchmark: Benchmark, key: EpisodeKey) -> Facts:
        """Facts of one episode.

        Raises:
            EndpointError: If the endpoint fails, or its context is too short for any first prompt; nothing is
                then known of the episode.
        """
        trajectory, tokens = Trajectory(key), 0
        try:
            environment = benchmark.make(key)
            try:
                tokens = self._interact(environment, trajectory)
                trajectory.outcome = environment.score()
            finally:
                environment.close()
        except EnvironmentFailure as failure:
            trajectory.stop_reason, trajectory.outcome, trajectory.failure = ENVIRONMENT_FAILURE, None, str(failure)
        return {**trajectory_facts(trajectory), "sampled_tokens": tokens}

    def _interact(self, environment: Environment, trajectory: Trajectory) -> int:
        """Play to the end; returns the number of sampled tokens."""
        prompt = environment.reset()
        messages, tokens = trajectory.messages, 0
        messages.extend(prompt.messages)
        for turn in range(self.limits.max_turns):
            try:
                answer = self.endpoint.complete(
                    messages,
                    prompt.tools,
                    self.params,
                    max_tokens=self.limits.max_new_tokens,
                    seed=turn_seed(trajectory.key, turn),
                )
            except ContextTooLong as error:
                if turn == 0:
                    raise EndpointError(
                        "not even a task's first prompt and "
                        f"benchmark.max_new_tokens={self.limits.max_new_tokens} fit: {error}"
                    ) from None
                trajectory.stop_reason = CONTEXT_LENGTH
                return tokens
            tokens += answer.tokens
            trajectory.turns.append(Turn([], [], [], answer.complete))
            observation = environment.step(Action(answer.text, complete=answer.complete))
            message = dict(answer.message)
            if self.style == "reasoning_augmented":
                message["content"] = without_thinking(message["content"])
            messages.append(message)
            messages.extend(_addressed(observation.messages, message.get("tool_calls", ())))
            if observation.done:
                return tokens
        trajectory.stop_reason = MAX_TURNS
        return tokens


def _addressed(messages: Sequence[Message], calls: Sequence[Message]) -> list[Message]:
    """Tool messages with the ids of the calls that they answer.

    An endpoint wants one answer per call; a message that was refused as a whole gives one error for all of them.
    """
    if not calls:
        return list(messages)
    answers = [message for message in messages if message["role"] == "tool"]
    others = [message for message in messages if message["role"] != "tool"]
    answers += answers[-1:] * (len(calls) - len(answers))
    return [{**answer, "tool_call_id": call["id"]} for answer, call in zip(answers, calls, strict=False)] + others
