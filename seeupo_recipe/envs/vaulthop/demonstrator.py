"""A noisy expert whose episodes warm-start tiny policies to a success rate of 15-30 %."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seeupo_recipe.envs.base import Action, Message
from seeupo_recipe.envs.vaulthop.environment import SYMBOLS, VaultHopEpisode, symbol_index


@dataclass(frozen=True)
class Noise:
    """Probabilities with which the demonstrator errs, per action.

    Attributes:
        password: Logs in with a random password.
        session: Uses a random session id.
        early_answer: Answers after 0, 1, 2 ... hops although more are needed (the last value repeats).
        late_answer: Queries once more although the target is known.
        random_query: Queries a random symbol.
        stale_query: Queries the previous symbol again.
        wrong_answer: Answers a random symbol although the target is known.
        blind_answer: The same in an early answer.
        give_up: Takes the trap's exit at the first turn.
    """

    password: float = 0.15
    session: float = 0.1
    early_answer: tuple[float, ...] = (0.1, 0.3, 0.55)
    late_answer: float = 0.3
    random_query: float = 0.1
    stale_query: float = 0.12
    wrong_answer: float = 0.1
    blind_answer: float = 0.3
    give_up: float = 0.3


class Demonstrator:
    """Plays one episode; it keeps what a reader of the conversation would know."""

    def __init__(self, episode: VaultHopEpisode, rng: np.random.Generator, noise: Noise) -> None:
        self._episode, self._rng, self._noise = episode, rng, noise
        self._session: int | None = None
        self._current = self._previous = episode.vault.start
        self._hops = 0

    def play(self) -> list[Message]:
        """The whole conversation, first user message included."""
        messages = list(self._episode.reset().messages)
        for turn in range(self._episode.rules.max_turns):
            text, queried = self._act(turn)
            observation = self._episode.step(Action(text))
            messages += [{"role": "assistant", "content": text}, *observation.messages]
            if observation.done:
                break
            self._learn(observation.messages[0]["content"].split(), queried)
        return messages

    def _act(self, turn: int) -> tuple[str, int | None]:
        """The action's text and the symbol it queries, if any."""
        vault, noise = self._episode.vault, self._noise
        if self._episode.rules.trap and turn == 0 and self._errs(noise.give_up):
            return "PASS", None
        if self._session is None:
            return f"LOGIN pwd{self._symbol() if self._errs(noise.password) else vault.password}", None
        session = self._symbol() if self._errs(noise.session) else self._session
        if self._hops < vault.hops:
            if self._errs(noise.early_answer[min(self._hops, len(noise.early_answer) - 1)]):
                return self._answer(session, noise.blind_answer), None
            queried = self._query()
        elif self._errs(noise.late_answer):
            queried = self._current
        else:
            return self._answer(session, noise.wrong_answer), None
        return f"GET ses{session} sym{queried}", queried

    def _query(self) -> int:
        draw = self._rng.random()
        if draw < self._noise.random_query:
            return self._symbol()
        return self._previous if draw < self._noise.random_query + self._noise.stale_query else self._current

    def _answer(self, session: int, error: float) -> str:
        return f"ANS ses{session} sym{self._symbol() if self._errs(error) else self._current}"

    def _learn(self, reply: list[str], queried: int | None) -> None:
        if reply[0] == "OK":
            self._session = symbol_index(reply[1], "ses")
        elif reply[0] == "VAL" and queried == self._current:
            self._previous, self._current = self._current, symbol_index(reply[1], "sym")
            self._hops = min(self._hops + 1, self._episode.vault.hops)

    def _errs(self, probability: float) -> bool:
        return bool(self._rng.random() < probability)

    def _symbol(self) -> int:
        return int(self._rng.integers(SYMBOLS))
