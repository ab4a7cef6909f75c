"""verl's agent loop around :func:`seeupo_recipe.agents.episode.play`: one output per turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from omegaconf import DictConfig, OmegaConf
from transformers import GenerationConfig
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from seeupo_recipe.agents.episode import Limits, Sampled, Trajectory, TurnRequest, play
from seeupo_recipe.agents.facts import trajectory_facts
from seeupo_recipe.agents.rollout import BLOCKING_THREADS, turn_seed
from seeupo_recipe.agents.template import ContextTemplate
from seeupo_recipe.config import RunConfig, build_config
from seeupo_recipe.envs.base import Benchmark, EpisodeKey, concurrent_episodes, load_benchmark

RUN_SECTION = "seeupo_run"


@dataclass(frozen=True)
class _Shared:
    """What all episodes of a run use in one process."""

    run: RunConfig
    benchmark: Benchmark
    end_ids: tuple[int, ...]
    threads: ThreadPoolExecutor
    open_episodes: asyncio.Semaphore


_CACHE: dict[str, _Shared] = {}


def _shared(config: DictConfig, eos_token_id: int) -> _Shared:
    """What the run's episodes share, built once per process: an episode lasts milliseconds."""
    section = config[RUN_SECTION]
    if section.run_id not in _CACHE:
        run = build_config(OmegaConf.to_container(section.config, resolve=True))
        benchmark = load_benchmark(run.benchmark.name, **run.benchmark.options)
        end_ids = _end_ids(config.actor_rollout_ref.model.path, eos_token_id)
        open_episodes = asyncio.Semaphore(concurrent_episodes(benchmark))
        threads = ThreadPoolExecutor(BLOCKING_THREADS)
        _CACHE[section.run_id] = _Shared(run, benchmark, end_ids, threads, open_episodes)
    return _CACHE[section.run_id]


def _end_ids(model_path: str, eos_token_id: int) -> tuple[int, ...]:
    """Ids that end a message: the generation config's if the model has one."""
    try:
        ids = GenerationConfig.from_pretrained(model_path).eos_token_id
    except OSError:
        ids = None
    ids = eos_token_id if ids is None else ids
    return tuple(ids) if isinstance(ids, list | tuple) else (ids,)


class TurnAgentLoop(AgentLoopBase):
    """Plays one episode of the run's benchmark.

    A trajectory whose environment failed comes back as a single row without sampled tokens, so that it
    is counted and left out of everything else.

    verl makes one loop per episode. Its base class would build a tokenizer wrapper that asks for the
    model family's usual vocabulary; contexts come from ``ContextTemplate`` here, so nothing of it is used.
    """

    def __init__(self, trainer_config: Any, server_manager: Any, tokenizer: Any, **_: Any) -> None:
        self.config = trainer_config.config
        self.server_manager = server_manager
        self.tokenizer = tokenizer

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> list[AgentLoopOutput]:
        shared = _shared(self.config, self.tokenizer.eos_token_id)
        run, bounds = shared.run, shared.run.benchmark
        key = EpisodeKey(run.seed, int(kwargs["iteration"]), kwargs["task_id"], int(kwargs["session_id"]))
        template = ContextTemplate(self.tokenizer, run.model.template, dict(run.model.chat_template_kwargs))
        limits = Limits(bounds.max_turns, bounds.max_prompt_tokens, bounds.max_new_tokens)
        episode = play(shared.benchmark, key, template, limits, shared.end_ids)
        sampler = _Sampler(self.server_manager, sampling_params, key, shared.end_ids)
        threads = shared.threads if shared.benchmark.blocking else None
        async with shared.open_episodes:
            step = await _advance(episode, None, threads)
            while not isinstance(step, Trajectory):
                step = await _advance(episode, await sampler(step), threads)
        return _outputs(step, sampler, self.tokenizer.eos_token_id)


class _Sampler:
    """Asks the inference server for one turn, with the turn's own random stream."""

    def __init__(self, server: Any, params: dict[str, Any], key: EpisodeKey, end_ids: Sequence[int]) -> None:
        self._server, self._params, self._key, self._end_ids = server, params, key, end_ids
        self._request_id = uuid4().hex
        self.seconds = 0.0
        self.weights: list[int] = []

    async def __call__(self, request: TurnRequest) -> Sampled:
        started = time.perf_counter()
        output = await self._server.generate(
            request_id=self._request_id,
            prompt_ids=request.prompt_ids,
            sampling_params={
                **self._params,
                "max_tokens": request.max_new_tokens,
                "seed": turn_seed(self._key, request.turn),
            },
        )
        self.seconds += time.perf_counter() - started
        self.weights.append(output.extra_fields.get("global_steps") or 0)
        ids = list(output.token_ids)
        return Sampled(ids, list(output.log_probs or []), finished=bool(ids) and ids[-1] in self._end_ids)


async def _advance(
    episode: Generator[TurnRequest, Sampled, Trajectory], answer: Sampled | None, threads: ThreadPoolExecutor | None
) -> TurnRequest | Trajectory:
    """Send ``answer`` into the episode, in a thread if its environment blocks."""

    def send() -> TurnRequest | Trajectory:
        try:
            return episode.send(answer)
        except StopIteration as stop:
            return stop.value

    if threads is None:
        return send()
    return await asyncio.get_running_loop().run_in_executor(threads, send)


def _outputs(trajectory: Trajectory, sampler: _Sampler, filler_id: int) -> list[AgentLoopOutput]:
    """One output per turn; every one carries the trajectory's reward and facts."""
    outcome = trajectory.outcome
    facts = trajectory_facts(trajectory)
    common = {
        "reward_score": 0.0 if outcome is None else float(outcome.reward),
        "num_turns": len(trajectory.turns),
        "metrics": AgentLoopMetrics(generate_sequences=sampler.seconds),
    }
    extra = {
        "min_global_steps": min(sampler.weights, default=0),
        "max_global_steps": max(sampler.weights, default=0),
        "reward_extra_info": {"acc": 0.0 if outcome is None else outcome.score},
    }
    if not trajectory.turns or outcome is None:
        rows = [([filler_id], [filler_id], [0], [0.0])]
    else:
        rows = [
            (turn.prompt_ids, turn.response_ids, [1] * len(turn.response_ids), turn.log_probs)
            for turn in trajectory.turns
        ]
    return [
        AgentLoopOutput(
            prompt_ids=prompt_ids,
            response_ids=response_ids,
            response_mask=mask,
            response_logprobs=log_probs or None,
            extra_fields={**extra, "trajectory": facts if i == len(rows) - 1 else None},
            **common,
        )
        for i, (prompt_ids, response_ids, mask, log_probs) in enumerate(rows)
    ]
