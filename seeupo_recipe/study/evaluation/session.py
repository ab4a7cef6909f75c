"""One evaluation: what is played by whom, its record, and the episodes that it lacks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import yaml

from seeupo_recipe.agents.chat import ChatPlayer
from seeupo_recipe.agents.endpoint import ChatEndpoint, base_url
from seeupo_recipe.agents.episode import Limits
from seeupo_recipe.agents.facts import Facts, evaluation_rows, trajectory_facts
from seeupo_recipe.config import RunConfig
from seeupo_recipe.envs.base import Benchmark, EpisodeKey
from seeupo_recipe.models.sampling import SamplingParams
from seeupo_recipe.records.identity import folder_digest, make_run_id
from seeupo_recipe.records.run import FINISHED, INTERRUPTED, RUNNING, RunRecord
from seeupo_recipe.records.transcripts import transcript
from seeupo_recipe.runs import results_root


class Player(Protocol):
    """Who plays. ``weights`` names what is evaluated, in the record."""

    weights: str

    def play(self, benchmark: Benchmark, keys: Sequence[EpisodeKey]) -> Iterator[Facts]:
        """Facts of every episode, as they end."""
        ...


class LocalPlayer:
    """transformers in this process, on the CPU: for tiny models. A larger one belongs behind an endpoint."""

    def __init__(self, folder: Path, config: RunConfig, concurrency: int) -> None:
        from seeupo_recipe.agents.template import ContextTemplate
        from seeupo_recipe.models.tiny import load_model

        model, tokenizer = load_model(folder)
        self.weights = folder_digest(folder, 16)
        self._model = model.eval()
        self._template = ContextTemplate(tokenizer, config.model.template, dict(config.model.chat_template_kwargs))
        self._limits, self._params = limits_of(config), params_of(config)
        self._concurrency = concurrency

    def play(self, benchmark: Benchmark, keys: Sequence[EpisodeKey]) -> Iterator[Facts]:
        from seeupo_recipe.agents.rollout import play_batch

        for start in range(0, len(keys), self._concurrency):
            chunk = keys[start : start + self._concurrency]
            trajectories = play_batch(benchmark, chunk, self._model, self._template, self._limits, self._params)
            yield from map(trajectory_facts, trajectories)


class EndpointPlayer:
    """A chat endpoint, asked by as many threads as episodes are played at a time."""

    def __init__(self, endpoint: ChatEndpoint, config: RunConfig, concurrency: int) -> None:
        self.weights = f"{base_url(endpoint.url)} {endpoint.model}"
        self._endpoint = endpoint
        self._player = ChatPlayer(endpoint, limits_of(config), params_of(config), config.model.template)
        self._concurrency = concurrency

    def play(self, benchmark: Benchmark, keys: Sequence[EpisodeKey]) -> Iterator[Facts]:
        with ThreadPoolExecutor(self._concurrency) as pool:
            futures = [pool.submit(self._player.play, benchmark, key) for key in keys]
            try:
                for future in as_completed(futures):
                    yield future.result()
            finally:
                self._endpoint.stop()
                pool.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True)
class Evaluation:
    """Tasks, samples and the record they go to.

    Attributes:
        config: Benchmark, model and sampling; ``evaluation.samples_per_task`` is k.
        benchmark: Loaded.
        split: Whose tasks.
        tasks: The chosen ones of them.
        record: The evaluation's.
    """

    config: RunConfig
    benchmark: Benchmark
    split: str
    tasks: Sequence[str]
    record: RunRecord

    @property
    def k(self) -> int:
        return self.config.evaluation.samples_per_task

    def missing(self) -> list[EpisodeKey]:
        """Episodes that are not recorded yet, every task's first sample first."""
        done = self.record.evaluated(0, self.split)
        return [
            EpisodeKey(self.config.seed, 0, task, sample)
            for sample in range(self.k)
            for task in self.tasks
            if (task, sample) not in done
        ]

    def rows(self) -> list[dict[str, Any]]:
        """Recorded outcomes of the chosen tasks and samples."""
        chosen = set(self.tasks)
        return [r for r in self.record.evaluations() if r["task_id"] in chosen and r["sample"] < self.k]

    def keep(self, facts: Facts) -> None:
        """Record one episode: its transcript, then its outcome, which marks it as done."""
        self.record.append_transcripts([transcript(facts, iteration=0, split=self.split, longest=None)])
        self.record.append_evaluations(evaluation_rows([facts], self.benchmark, iteration=0, split=self.split))

    def run(self, player: Player) -> Iterator[Facts]:
        """Play what is missing; yields every episode after it has been recorded."""
        self.record.set_status(RUNNING)
        finished = False
        try:
            for facts in player.play(self.benchmark, self.missing()):
                self.keep(facts)
                yield facts
            finished = True
        finally:
            self.record.set_status(FINISHED if finished else INTERRUPTED)


def open_evaluation(
    config: RunConfig, benchmark: Benchmark, split: str, tasks: Sequence[str], weights: str, out: Path | None
) -> Evaluation:
    """The evaluation with its record, created if it does not exist yet.

    How many samples and which tasks of the split are wanted is not part of its identity, so that a later command
    with more of them adds to the same record.

    Raises:
        RecordError: If ``out`` holds a record of something else.
    """
    plain = config.as_dict()
    plain["evaluation"].pop("samples_per_task")
    identity = {
        "benchmark": config.benchmark.name,
        "model": config.model.name,
        "algorithm": "eval",
        "seed": config.seed,
        "split": split,
        "benchmark_version": benchmark.version,
        "weights": weights,
        "config": {key: plain[key] for key in ("benchmark", "model", "evaluation")},
    }
    record = RunRecord.create(
        out or results_root() / "eval" / make_run_id(identity),
        config_yaml=yaml.safe_dump(config.as_dict(), sort_keys=False),
        manifest={"identity": identity, "created": time.strftime("%Y-%m-%dT%H:%M:%S%z")},
    )
    return Evaluation(config, benchmark, split, tasks, record)


def limits_of(config: RunConfig) -> Limits:
    bounds = config.benchmark
    return Limits(bounds.max_turns, bounds.max_prompt_tokens, bounds.max_new_tokens)


def params_of(config: RunConfig) -> SamplingParams:
    choices = config.evaluation
    return SamplingParams(choices.temperature, choices.top_p, choices.top_k)
