"""One episode: ReAct code actions in a leased world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from seeupo_recipe.envs.base import Action, EnvironmentFailure, Message, Observation, Outcome, Prompt

from .actions import Split, cut, last_line_of_failure, python_block
from .client import WorldDied, WorldError
from .pool import HostDied, World, WorldPool
from .reward import Reward, reward

NO_CODE = "No Python code block was found in the message."
INTERPRETER_LOST = "Execution failed: the interpreter was stopped (time or memory limit). Its variables are lost."


@dataclass(frozen=True)
class EpisodeSettings:
    """How episodes of a benchmark are played.

    Attributes:
        max_turns: Messages after which an episode ends.
        observation_tokens: Most tokens of an output that the policy sees.
        split: Lossless split of a text into tokens.
        short_errors: Show the last line of a traceback only.
        wrap: Turns an output into the content of the message that carries it.
        prompt: Makes the opening messages from what the world says of the task.
        reward: Kind of reward.
        execute_seconds: How long the world may take for one code block, its own limits included.
        retries: How often a lost world is replaced within one episode.
        request_seconds: How long the world may take to open or evaluate a task.
    """

    max_turns: int
    observation_tokens: int
    split: Split
    short_errors: bool
    wrap: Callable[[str], str]
    prompt: Callable[[dict[str, Any]], tuple[Message, ...]]
    reward: Reward
    execute_seconds: float
    retries: int
    request_seconds: float = 60.0


class AppWorldEnvironment:
    """An episode of one task; see :class:`seeupo_recipe.envs.base.Environment`.

    If the world dies or hangs, the episode goes on in another one: the code blocks so far are run again
    (everything in a world is deterministic) and must give the same outputs. When more than ``retries``
    worlds were lost, or a replay differs, the episode is an :class:`EnvironmentFailure`.
    """

    def __init__(self, task_id: str, pool: WorldPool, settings: EpisodeSettings) -> None:
        self._task_id = task_id
        self._pool = pool
        self._settings = settings
        self._world: World | None = None
        self._lost_worlds = 0
        self._opened: dict[str, Any] = {}
        self._history: list[tuple[str, dict[str, Any]]] = []
        self._messages: list[str] = []
        self._completed = False
        self._without_code = 0

    def reset(self) -> Prompt:
        return Prompt(self._settings.prompt(self._with_world(lambda world: self._opened)))

    def step(self, action: Action) -> Observation:
        self._messages.append(action.text)
        code = python_block(action.text)
        if code is None:
            self._without_code += 1
            output = NO_CODE
        else:
            reply = self._with_world(lambda world: self._execute(world, code))
            self._history.append((code, reply))
            self._completed = reply["completed"]
            output = INTERPRETER_LOST if reply["interpreter_lost"] else reply["output"].strip()
        if self._settings.short_errors:
            output = last_line_of_failure(output)
        content = self._settings.wrap(cut(output, self._settings.observation_tokens, self._settings.split))
        done = self._completed or len(self._messages) >= self._settings.max_turns
        return Observation(({"role": "user", "content": content},), done)

    def score(self) -> Outcome:
        verdict = self._with_world(lambda world: world.post("evaluate", self._settings.request_seconds))
        passed, failed = len(verdict["passed"]), len(verdict["failed"])
        score, success = passed / (passed + failed), failed == 0
        return Outcome(
            reward=reward(self._settings.reward, score, success, self._messages),
            score=score,
            success=success,
            info={
                "passed": passed,
                "failed": failed,
                "completed": self._completed,
                "truncated": not self._completed,
                "turns": len(self._messages),
                "turns_without_code": self._without_code,
                "interpreters_lost": sum(reply["interpreter_lost"] for _, reply in self._history),
                "worlds_lost": self._lost_worlds,
                "evaluation_error": verdict["error"],
            },
        )

    def close(self) -> None:
        if self._world is not None:
            world, self._world = self._world, None
            self._pool.release(world, healthy=True)

    def _with_world(self, operation: Callable[[World], dict[str, Any]]) -> dict[str, Any]:
        """Run ``operation``, on a new world with the same state as often as worlds get lost."""
        while True:
            try:
                if self._world is None:
                    self._enter_world()
                return operation(self._world)
            except (WorldDied, HostDied) as error:
                if self._world is not None:
                    world, self._world = self._world, None
                    self._pool.release(world, healthy=False)
                self._lost_worlds += 1
                if self._lost_worlds > self._settings.retries:
                    raise self._failure(f"lost {self._lost_worlds} worlds: {error}") from error
            except WorldError as error:
                raise self._failure(str(error)) from error

    def _enter_world(self) -> None:
        self._world = self._pool.acquire()
        self._opened = self._world.post("reset", self._settings.request_seconds, task_id=self._task_id)
        for code, recorded in self._history:
            if self._execute(self._world, code) != recorded:
                raise self._failure("a code block gave another output when it was run again")

    def _execute(self, world: World, code: str) -> dict[str, Any]:
        reply = world.post("execute", self._settings.execute_seconds, code=code)
        if reply["interpreter_lost"]:
            world.renew_interpreter()
        return reply

    def _failure(self, reason: str) -> EnvironmentFailure:
        return EnvironmentFailure(f"AppWorld task {self._task_id}: {reason}")
