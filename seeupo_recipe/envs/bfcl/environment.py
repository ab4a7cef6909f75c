"""One BFCL episode: user turns, the agent's calls in between, the checker's verdict at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from seeupo_recipe.envs.base import Action, Message, Observation, Outcome, Prompt
from seeupo_recipe.envs.bfcl.calls import Call, MalformedMessage, RefusedCall, render
from seeupo_recipe.envs.bfcl.executor import CallsStopped, Session, Verdict
from seeupo_recipe.envs.bfcl.package import Task, functions_of
from seeupo_recipe.envs.bfcl.reward import is_degenerate, reward

_STOPPED = "the calls of this message took too much time or memory and were undone"


class Dialect(Protocol):
    """How calls are written in assistant messages and results in tool messages."""

    def parse(self, text: str) -> list[Call]: ...

    def result(self, text: str) -> Message: ...

    def error(self, reason: str) -> Message: ...


@dataclass
class _Counts:
    """Facts about an episode that are reported beside its score."""

    messages: int = 0
    calls: int = 0
    malformed_messages: int = 0
    incomplete_messages: int = 0
    refused_calls: int = 0
    stopped_messages: int = 0
    calls_before_offered: int = 0
    repeated_calls: int = 0
    degenerate_messages: int = 0


@dataclass
class BfclEnvironment:
    """Implements :class:`seeupo_recipe.envs.base.Environment`.

    An assistant message without calls ends the user turn; the next user turn follows, or the episode ends.
    A malformed message, a refused call and a message cut off at the token limit come back as errors in tool
    messages; nothing of a malformed or cut message is executed, and refused calls are no part of the checked
    trajectory. After ``max_turns`` assistant messages the episode ends; unless the last of them ended the
    last user turn, it is truncated and counts as incorrect, as bfcl-eval's own force-terminated runs do.
    """

    task: Task
    dialect: Dialect
    max_turns: int
    reward_profile: str
    _session: Session = field(init=False)
    _turns: list[list[list[str]]] = field(init=False, default_factory=lambda: [[]])
    _finished_turns: int = field(init=False, default=0)
    _done: bool = field(init=False, default=False)
    _counts: _Counts = field(init=False, default_factory=_Counts)
    _acted_against_ground_truth: set[int] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self._functions = functions_of(self.task.classes)
        self._session = Session(self.task)

    def reset(self) -> Prompt:
        return Prompt(messages=self._user_turn(0), tools=self.task.tools)

    def step(self, action: Action) -> Observation:
        if self._done:
            raise RuntimeError("step() after the end of the episode")
        self._counts.messages += 1
        self._counts.degenerate_messages += is_degenerate(action.text)
        messages = self._answer(action)
        self._done |= self._counts.messages >= self.max_turns
        return Observation(messages=messages, done=self._done)

    def _answer(self, action: Action) -> tuple[Message, ...]:
        if not action.complete:
            self._counts.incomplete_messages += 1
            return (self.dialect.error("the message was cut off at the token limit"),)
        try:
            calls = self.dialect.parse(action.text)
        except MalformedMessage as error:
            self._counts.malformed_messages += 1
            return (self.dialect.error(str(error)),)
        return self._execute(calls) if calls else self._end_user_turn()

    def _end_user_turn(self) -> tuple[Message, ...]:
        self._finished_turns += 1
        if self._finished_turns == len(self.task.user_turns):
            self._done = True
            return ()
        self._turns.append([])
        return self._user_turn(self._finished_turns)

    def _user_turn(self, index: int) -> tuple[Message, ...]:
        return tuple(dict(message) for message in self.task.user_turns[index])

    def _execute(self, calls: list[Call]) -> tuple[Message, ...]:
        self._counts.calls += len(calls)
        if not self.task.ground_truth[self._finished_turns]:
            self._acted_against_ground_truth.add(self._finished_turns)
        texts: list[str] = []
        answers: list[Message | None] = []
        for call in calls:
            try:
                texts.append(render(call, self._functions))
                answers.append(None)
                self._counts.calls_before_offered += self.task.held_out.get(call.name, 0) > self._finished_turns
            except RefusedCall as error:
                self._counts.refused_calls += 1
                answers.append(self.dialect.error(str(error)))
        results = iter(self._run(texts))
        return tuple(answer or next(results) for answer in answers)

    def _run(self, texts: list[str]) -> list[Message]:
        if not texts:
            return []
        try:
            results = self._session.run(texts)
        except CallsStopped:
            self._counts.stopped_messages += 1
            return [self.dialect.error(_STOPPED) for _ in texts]
        earlier = {text for message in self._turns[-1] for text in message}
        self._counts.repeated_calls += len(texts) - len(set(texts) - earlier)
        self._turns[-1].append(texts)
        return [self.dialect.result(result) for result in results]

    def score(self) -> Outcome:
        total, finished = len(self.task.user_turns), self._finished_turns
        truncated = finished < total
        expected = [[render(call, self._functions) for call in turn] for turn in self.task.ground_truth[:finished]]
        verdict = self._session.check(self._turns[:finished], expected) if finished else Verdict(True, None, None)
        passed = finished if verdict.valid else verdict.failed_turn or 0
        success = verdict.valid and not truncated
        error_type = "multi_turn:force_terminated" if truncated else verdict.error_type
        degenerate = self._counts.degenerate_messages > 0
        return Outcome(
            reward=reward(self.reward_profile, success, passed / total, degenerate),
            score=float(success),
            success=success,
            info={
                "category": self.task.category,
                "user_turns": total,
                "passed_user_turns": passed,
                "truncated": truncated,
                "error_type": error_type,
                "must_not_act_turns_with_calls": len(self._acted_against_ground_truth),
                **vars(self._counts),
            },
        )

    def close(self) -> None:
        self._session.close()
