"""The two AppWorld benchmarks: tasks and splits from a data folder, episodes in a shared pool of worlds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

from seeupo_recipe.envs.base import EpisodeKey, Message, Outcome, Vocabulary
from seeupo_recipe.seeding import stream
from seeupo_recipe.strict import ConfigError

from . import prompts
from .actions import Split
from .environment import AppWorldEnvironment, EpisodeSettings
from .mini import tasks as mini_tasks
from .mini.demonstrator import demonstrate, relabel
from .mini.vocabulary import PRETOKENIZER, spaced_pieces, vocabulary
from .reward import Reward
from .worlds import APPWORLD_VERSION, DATA, VENV, WorldSettings

ADAPTER_VERSION = 1  # raise it when the same actions may score differently
OFFICIAL_SIZES = {"train": 90, "dev": 57, "test_normal": 168}
DEMONSTRATOR_NOISE = 0.15
DEMONSTRATOR_THREADS = 8
WARM_START = {
    **{"width": 96, "layers": 3, "batch_size": 32, "split": "dev"},
    **{"min_steps": 400, "max_steps": 2000, "check_every": 100},
}


class AppWorldBenchmark:
    """Tasks of a data folder; see :class:`seeupo_recipe.envs.base.Benchmark`.

    Attributes:
        concurrent_episodes: Most episodes that may be open at the same time: each holds a world.
    """

    blocking = True

    def __init__(
        self, name: str, version: str, worlds: WorldSettings, episodes: EpisodeSettings, max_new_tokens: int
    ) -> None:
        self.name = name
        self.version = version
        self.max_turns = episodes.max_turns
        self.max_new_tokens = max_new_tokens
        self.concurrent_episodes = worlds.worlds
        self._worlds = worlds
        self._episodes = episodes

    def task_ids(self, split: str) -> Sequence[str]:
        """Task ids of ``train``, ``dev``, ``test_normal`` or another list of the data folder.

        Raises:
            ValueError: If the data folder has no such list.
        """
        folder = self._worlds.root / "data" / "datasets"
        path = folder / f"{split}.txt"
        if not path.is_file():
            known = ", ".join(sorted(path.stem for path in folder.glob("*.txt")))
            raise ValueError(f"{self.name} has no split {split!r}; known: {known}")
        return tuple(path.read_text().split())

    def cluster(self, task_id: str) -> str:
        """The task's scenario: AppWorld makes three variants of each."""
        return task_id.rsplit("_", 1)[0]

    def make(self, key: EpisodeKey) -> AppWorldEnvironment:
        """A new episode; of the key only the task matters, worlds are deterministic."""
        return AppWorldEnvironment(key.task_id, self._worlds.pool(), self._episodes)

    def close(self) -> None:
        """End the worlds, also those of other benchmarks with the same settings; they start again when needed."""
        self._worlds.pool().close()


class AppWorldMini(AppWorldBenchmark):
    """``appworld-mini`` with what a supervised warm start needs; see :class:`~.base.TeachableBenchmark`.

    The engine takes a tenth of a second per episode, so each task of the split ``warm_start`` is demonstrated
    once, when the first demonstration is asked for; what is handed out are relabelled copies.
    """

    context_length = 432
    warm_start: Mapping[str, int | float | str] = WARM_START

    def vocabulary(self) -> Vocabulary:
        """See :mod:`.mini.vocabulary`; messages are written without spaces."""
        return Vocabulary(vocabulary(), pattern=PRETOKENIZER, joiner="")

    def demonstrate(self, task_id: str, rng: np.random.Generator) -> list[Message]:
        """A noisy demonstration of a task of ``warm_start`` with its words and people renamed, drawn from ``rng``."""
        return relabel(self._demonstrations[int(rng.integers(len(self._demonstrations)))], rng)

    def play_demonstrator(self, task_id: str, rng: np.random.Generator, noise: float) -> tuple[list[Message], Outcome]:
        """An episode in a real world; see :func:`.mini.demonstrator.demonstrate`."""
        return demonstrate(self.make(EpisodeKey(0, 0, task_id, 0)), rng, noise)

    @cached_property
    def _demonstrations(self) -> list[list[Message]]:
        """The conversation of one episode per task of ``warm_start``, in the split's order."""

        def play(task_id: str) -> list[Message]:
            rng = stream("appworld-mini", "demonstration", task_id)
            return self.play_demonstrator(task_id, rng, DEMONSTRATOR_NOISE)[0]

        with ThreadPoolExecutor(DEMONSTRATOR_THREADS) as threads:
            return list(threads.map(play, self.task_ids("warm_start")))


def official(
    root: str | Path | None = None,
    tokenizer: str | None = None,
    reward: Reward = "sparse",
    max_turns: int = 10,
    max_new_tokens: int = 3000,
    observation_tokens: int = 3000,
    retries: int = 2,
    **worlds: float,
) -> AppWorldBenchmark:
    """AppWorld's own tasks (train 90, dev 57, test_normal 168).

    Args:
        root: AppWorld's root folder; default ``outputs/appworld/official``.
        tokenizer: Hugging Face name or folder of the policy's tokenizer, by which outputs are cut at
            ``observation_tokens``. Without it a token is taken to be four characters.
        reward: ``sparse`` or ``shaped`` (see :func:`.reward.reward`).
        max_turns: Step limit (10 in the paper).
        max_new_tokens: Token limit of one message (3000 in the release).
        observation_tokens: Token limit of one output (3000 in the release).
        retries: How often a lost world is replaced within one episode.
        worlds: Other fields of :class:`WorldSettings`.

    Raises:
        ConfigError: If the environment or the data is not set up (the message says what to run).
        ValueError: If the data folder's lists do not have the official sizes.
    """
    settings = WorldSettings(Path(root or DATA / "official").resolve(), **worlds)
    _require_setup(settings.root, "make setup-appworld DATA=official")
    folder = settings.root / "data" / "datasets"
    lists = {split: (folder / f"{split}.txt").read_text().split() for split in OFFICIAL_SIZES}
    sizes = {split: len(ids) for split, ids in lists.items()}
    if sizes != OFFICIAL_SIZES:
        raise ValueError(f"{settings.root} does not hold the official lists: {sizes}, expected {OFFICIAL_SIZES}")
    episodes = EpisodeSettings(
        max_turns=max_turns,
        observation_tokens=observation_tokens,
        split=_tokenizer_split(tokenizer) if tokenizer else _four_characters,
        short_errors=False,
        wrap=prompts.react_observation,
        prompt=prompts.react_prompt,
        reward=reward,
        execute_seconds=_execute_seconds(settings),
        retries=retries,
    )
    version = _version(_official_digest(settings.root / "data", lists))
    return AppWorldBenchmark("appworld", version, settings, episodes, max_new_tokens)


def mini(
    root: str | Path | None = None,
    reward: Reward = "sparse",
    max_turns: int = 8,
    max_new_tokens: int = 48,
    observation_tokens: int = 48,
    retries: int = 2,
    **worlds: float,
) -> AppWorldMini:
    """Our own short tasks on the real engine (splits: train, dev, test_normal, warm_start).

    Args:
        root: AppWorld's root folder; default ``outputs/appworld/mini``.
        reward: ``sparse`` or ``shaped`` (see :func:`.reward.reward`).
        max_turns: Step limit; the longest solution has 6 turns.
        max_new_tokens: Token limit of one message, in tokens of :mod:`.mini.vocabulary`.
        observation_tokens: Token limit of one output, in the same tokens.
        retries: How often a lost world is replaced within one episode.
        worlds: Other fields of :class:`WorldSettings`.

    Raises:
        ConfigError: If the environment or the data is not set up, or was built from other task
            specifications (the message says what to run).
    """
    settings = WorldSettings(Path(root or DATA / "mini").resolve(), **{"block_seconds": 30.0, **worlds})
    _require_setup(settings.root, "make setup-appworld")
    if (settings.root / "content_hash.txt").read_text() != mini_tasks.content_hash():
        raise ConfigError(f"{settings.root} was built from other task specifications: run `make setup-appworld` again")
    episodes = EpisodeSettings(
        max_turns=max_turns,
        observation_tokens=observation_tokens,
        split=spaced_pieces,
        short_errors=True,
        wrap=str,
        prompt=prompts.bare_prompt,
        reward=reward,
        execute_seconds=_execute_seconds(settings),
        retries=retries,
    )
    return AppWorldMini("appworld-mini", mini_version(), settings, episodes, max_new_tokens)


def mini_version() -> str:
    """Version of ``appworld-mini``, known without its set-up."""
    return _version(mini_tasks.content_hash())


def _execute_seconds(settings: WorldSettings) -> float:
    return settings.block_seconds + settings.grace_seconds + 10.0


def _official_digest(data: Path, lists: dict[str, list[str]]) -> str:
    """Hash of the lists and of what their tasks' scores depend on."""
    digest = hashlib.sha256(json.dumps(lists).encode())
    for task_id in sorted(task_id for task_ids in lists.values() for task_id in task_ids):
        folder = data / "tasks" / task_id
        for path in (*sorted(folder.glob("**/*.json")), folder / "ground_truth" / "evaluation.py"):
            digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()[:12]


def _version(digest: str) -> str:
    return f"appworld-{APPWORLD_VERSION}/adapter-{ADAPTER_VERSION}/data-{digest}"


def _require_setup(root: Path, command: str) -> None:
    for path in (VENV / "bin" / "python", root / "data" / "datasets"):
        if not path.exists():
            raise ConfigError(f"AppWorld is not set up ({path} is missing): run `{command}`")


def _four_characters(text: str) -> list[str]:
    return [text[i : i + 4] for i in range(0, len(text), 4)]


@lru_cache
def _tokenizer_split(name: str) -> Split:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(name)
    if not tokenizer.is_fast:
        raise ValueError(f"the tokenizer {name} gives no character offsets (a fast tokenizer is needed)")

    def split(text: str) -> list[str]:
        encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        starts = [0, *(start for start, _ in encoding.offset_mapping[1:])]
        return [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]

    return split
