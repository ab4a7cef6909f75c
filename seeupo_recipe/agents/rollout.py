"""Play many episodes in one process, sampling for all of them in lock-step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from transformers import PreTrainedModel

from seeupo_recipe.agents.episode import Limits, Sampled, Trajectory, TurnRequest, play
from seeupo_recipe.agents.template import ContextTemplate
from seeupo_recipe.envs.base import Benchmark, EpisodeKey, concurrent_episodes
from seeupo_recipe.models.sampling import Generation, Request, SamplingParams, sample_batch
from seeupo_recipe.seeding import stream_seed

BLOCKING_THREADS = 32


def turn_seed(key: EpisodeKey, turn: int) -> int:
    """Seed of the random stream from which a turn's tokens are drawn, within 31 bits."""
    return stream_seed("turn", key.seed, key.iteration, key.task_id, key.session, turn) % 2**31


def play_batch(
    benchmark: Benchmark,
    keys: Sequence[EpisodeKey],
    model: PreTrainedModel,
    template: ContextTemplate,
    limits: Limits,
    params: SamplingParams,
    select: Callable[[int], None] | None = None,
) -> list[Trajectory]:
    """Play one episode per key and return the trajectories in the order of ``keys``.

    ``select`` makes the policy of a turn the active one, where turns have policies of their own.
    """
    most = concurrent_episodes(benchmark)
    batches = [keys[start : start + most] for start in range(0, len(keys), most)]
    played = [_play_together(benchmark, batch, model, template, limits, params, select) for batch in batches]
    return [trajectory for batch in played for trajectory in batch]


def _play_together(
    benchmark: Benchmark,
    keys: Sequence[EpisodeKey],
    model: PreTrainedModel,
    template: ContextTemplate,
    limits: Limits,
    params: SamplingParams,
    select: Callable[[int], None] | None,
) -> list[Trajectory]:
    end_ids = end_token_ids(model)
    episodes = [play(benchmark, key, template, limits, end_ids) for key in keys]
    finished: dict[int, Trajectory] = {}
    answers: dict[int, Sampled | None] = dict.fromkeys(range(len(keys)))

    def advance(index: int) -> TurnRequest | None:
        try:
            return episodes[index].send(answers[index])
        except StopIteration as stop:
            finished[index] = stop.value
            return None

    with ThreadPoolExecutor(BLOCKING_THREADS) as pool:
        while answers:
            run = pool.map if benchmark.blocking else map
            waiting = {i: r for i, r in zip(answers, run(advance, list(answers)), strict=True) if r is not None}
            answers = {}
            for turn in sorted({r.turn for r in waiting.values()}) if select else [None]:
                asked = {i: r for i, r in waiting.items() if turn in (None, r.turn)}
                if select:
                    select(turn)
                requests = [
                    Request(r.prompt_ids, r.max_new_tokens, turn_seed(keys[i], r.turn), params)
                    for i, r in asked.items()
                ]
                generations = sample_batch(model, requests, eos_ids=end_ids, pad_id=template.tokenizer.pad_token_id)
                answers |= {i: _sampled(g) for i, g in zip(asked, generations, strict=True)}
    return [finished[i] for i in range(len(keys))]


def end_token_ids(model: PreTrainedModel) -> list[int]:
    """Ids that end an assistant message, from the model's generation config.

    Raises:
        ValueError: If the model defines none.
    """
    ids = model.generation_config.eos_token_id
    if ids is None:
        raise ValueError("the model's generation config has no eos_token_id")
    return list(ids) if isinstance(ids, list | tuple) else [ids]


def _sampled(generation: Generation) -> Sampled:
    return Sampled(generation.token_ids, generation.log_probs, generation.finished)
