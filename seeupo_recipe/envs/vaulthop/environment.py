"""VaultHop: follow a hidden permutation through a vault, two tokens of observation per turn.

A vault hides a permutation F of 16 symbols, new for every task. The agent gets a hop count n in {1, 2, 3},
a start symbol x0 and a password, and must answer F applied n times to x0:

    LOGIN pwd        right password: ``OK ses`` with a session id drawn for this episode
    GET ses sym      valid session: ``VAL F(sym)``, but a transient ``ERR ERR`` with probability 0.1
    ANS ses sym      ends the episode: reward 1 if the session is valid and sym = F^n(x0), else 0

Anything else, or a message without its end token within 5 tokens, gives ``ERR ERR``. After 6 turns the
episode is truncated with reward 0. In ``vaulthop-trap`` the action ``PASS`` as the very first one ends the
episode with reward 0.4: a local optimum above the warm start's own success rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from seeupo_recipe.envs.base import Action, EpisodeKey, Message, Observation, Outcome, Prompt, Vocabulary
from seeupo_recipe.envs.vaulthop.optimum import optimal_success
from seeupo_recipe.seeding import stream

SYMBOLS = 16
TRAP_REWARD = 0.4
SPLIT_SIZES = {"train": 256, "validation": 64, "test": 128}

ERROR = Observation(({"role": "tool", "content": "ERR ERR"},))
CONTROL_WORDS = ("LOGIN", "GET", "ANS", "PASS", "OK", "VAL", "ERR")


@dataclass(frozen=True)
class Rules:
    """What varies between VaultHop benchmarks.

    Attributes:
        trap: Whether PASS as the first action pays.
        max_hops: Hop counts are drawn uniformly from 1 to this.
        max_turns: Assistant messages per episode.
        error_probability: Chance that a correct GET fails.
    """

    trap: bool = False
    max_hops: int = 3
    max_turns: int = 6
    error_probability: float = 0.1


@dataclass(frozen=True)
class Vault:
    """One task: a permutation, a hop count, a start symbol and a password."""

    permutation: tuple[int, ...]
    hops: int
    start: int
    password: int

    @property
    def target(self) -> int:
        symbol = self.start
        for _ in range(self.hops):
            symbol = self.permutation[symbol]
        return symbol

    @property
    def prompt(self) -> str:
        return f"N{self.hops} sym{self.start} pwd{self.password}"


@lru_cache(maxsize=4096)
def make_vault(task_id: str, max_hops: int) -> Vault:
    """The task named ``split-number``; splits never share a random stream."""
    rng = stream("vaulthop", "task", task_id)
    hops, start, password = int(rng.integers(1, max_hops + 1)), int(rng.integers(SYMBOLS)), int(rng.integers(SYMBOLS))
    return Vault(tuple(int(x) for x in rng.permutation(SYMBOLS)), hops, start, password)


class VaultHopEpisode:
    """One episode. Its random numbers come from (seed, iteration, task, session, turn)."""

    def __init__(self, key: EpisodeKey, rules: Rules) -> None:
        self._key = key
        self.rules = rules
        self._session: int | None = None
        self._turn = 0
        self._reward = 0.0
        self._answered = False
        self.vault = make_vault(key.task_id, rules.max_hops)

    def reset(self) -> Prompt:
        return Prompt(({"role": "user", "content": self.vault.prompt},))

    def step(self, action: Action) -> Observation:
        turn, self._turn = self._turn, self._turn + 1
        words = action.text.split() if action.complete else []
        if words == ["PASS"] and self.rules.trap and turn == 0:
            return self._end(TRAP_REWARD)
        if words[:1] == ["LOGIN"] and len(words) == 2:
            if words[1] == f"pwd{self.vault.password}":
                self._session = int(self._rng(turn).integers(SYMBOLS))
                return _tool(f"OK ses{self._session}")
        elif words[:1] == ["GET"] and len(words) == 3:
            symbol = symbol_index(words[2], "sym")
            lost = self._rng(turn).random() < self.rules.error_probability
            if self._valid(words[1]) and symbol is not None and not lost:
                return _tool(f"VAL sym{self.vault.permutation[symbol]}")
        elif words[:1] == ["ANS"] and len(words) == 3:
            return self._end(float(self._valid(words[1]) and words[2] == f"sym{self.vault.target}"))
        return ERROR

    def score(self) -> Outcome:
        solved = self._answered and self._reward == 1.0
        return Outcome(self._reward, float(solved), solved, {"hops": self.vault.hops})

    def close(self) -> None:
        """Nothing to release."""

    def _rng(self, turn: int) -> np.random.Generator:
        key = self._key
        return stream("vaulthop", "episode", key.seed, key.iteration, key.task_id, key.session, turn)

    def _valid(self, word: str) -> bool:
        return self._session is not None and word == f"ses{self._session}"

    def _end(self, reward: float) -> Observation:
        self._reward, self._answered = reward, True
        return Observation(done=True)


@dataclass(frozen=True)
class VaultHop:
    """The benchmark: 256 training, 64 validation and 128 test tasks."""

    name: str
    rules: Rules = Rules()
    max_new_tokens: int = 5
    blocking: bool = False
    context_length: int = 128

    @property
    def version(self) -> str:
        rules = self.rules
        return f"1/hops{rules.max_hops}/turns{rules.max_turns}/error{rules.error_probability}"

    @property
    def max_turns(self) -> int:
        return self.rules.max_turns

    def task_ids(self, split: str) -> Sequence[str]:
        if split not in SPLIT_SIZES:
            raise ValueError(f"{self.name} has no split {split!r}; choose one of {', '.join(SPLIT_SIZES)}")
        return [f"{split}-{i}" for i in range(SPLIT_SIZES[split])]

    def cluster(self, task_id: str) -> str:
        return task_id

    def make(self, key: EpisodeKey) -> VaultHopEpisode:
        return VaultHopEpisode(key, self.rules)

    def optimum(self) -> float:
        """Largest expected success rate, averaged over the hop counts (drawn uniformly)."""
        rules = self.rules
        per_hops = [
            optimal_success(n, turns=rules.max_turns, symbols=SYMBOLS, error=rules.error_probability)
            for n in range(1, rules.max_hops + 1)
        ]
        return float(np.mean(per_hops))

    def vocabulary(self) -> Vocabulary:
        hops = [f"N{n}" for n in range(1, self.rules.max_hops + 1)]
        numbered = [f"{kind}{i}" for kind in ("sym", "ses", "pwd") for i in range(SYMBOLS)]
        return Vocabulary((*CONTROL_WORDS, *hops, *numbered))

    def demonstrate(self, task_id: str, rng: np.random.Generator) -> list[Message]:
        from seeupo_recipe.envs.vaulthop.demonstrator import Demonstrator, Noise

        key = EpisodeKey(int(rng.integers(2**31)), 0, task_id, 0)
        return Demonstrator(self.make(key), rng, Noise()).play()


def vaulthop(**rules: float) -> VaultHop:
    return VaultHop("vaulthop", Rules(**rules))


def vaulthop_trap(**rules: float) -> VaultHop:
    return VaultHop("vaulthop-trap", Rules(trap=True, **rules))


def symbol_index(word: str, kind: str) -> int | None:
    """Number of the word ``<kind><number>``; None if it is no such word."""
    return next((i for i in range(SYMBOLS) if word == f"{kind}{i}"), None)


def _tool(text: str) -> Observation:
    return Observation(({"role": "tool", "content": text},))
