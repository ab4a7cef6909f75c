"""The rollout backend ``hf_cpu``: one Ray actor that samples with transformers, for machines without GPUs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import Any

import ray
import torch
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput

from seeupo_recipe.models.sampling import Request, SamplingParams, sample_batch
from seeupo_recipe.seeding import stream_seed

GATHER_SECONDS = 0.005


def server_name(replica_rank: int) -> str:
    """Name of a replica's Ray actor."""
    return f"hf_cpu_server_{replica_rank}"


class HFServer:
    """Holds a copy of the policy; samples whatever requests have arrived as one batch."""

    def __init__(self, config: Any, model_config: Any) -> None:
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(1)
        self.config = omega_conf_to_dataclass(config)
        model = omega_conf_to_dataclass(model_config)
        end = getattr(model.generation_config, "eos_token_id", None)
        end = model.tokenizer.eos_token_id if end is None else end
        self._end_ids = list(end) if isinstance(end, list | tuple) else [end]
        self._pad_id = model.tokenizer.pad_token_id
        hf_config = model.hf_config
        hf_config._attn_implementation = "sdpa"
        self._model = AutoModelForCausalLM.from_config(hf_config, dtype=torch.float32).eval()
        self._tied = {"lm_head.weight"} if hf_config.tie_word_embeddings else set()
        self._global_steps: int | None = None
        self._waiting: list[tuple[tuple[Any, ...], Request, asyncio.Future]] = []
        self._sampling: asyncio.Task | None = None

    async def load_weights(self, state: dict[str, torch.Tensor], global_steps: int | None = None) -> None:
        """Take over the trainer's weights.

        Raises:
            RuntimeError: If names do not fit the model.
        """
        missing, unexpected = self._model.load_state_dict(state, strict=False)
        if unexpected or set(missing) - self._tied:
            raise RuntimeError(f"weights do not fit the rollout model: missing {missing}, unexpected {unexpected}")
        self._model.tie_weights()
        if global_steps is not None:
            self._global_steps = global_steps

    async def generate(
        self, prompt_ids: list[int], sampling_params: dict[str, Any], request_id: str, **_: Any
    ) -> TokenOutput:
        """Sample one continuation.

        ``sampling_params`` may hold temperature, top_p, top_k, max_tokens and ``seed``; without a seed
        the request id names the random stream.
        """
        params = dict(sampling_params)
        limit = params.get("max_tokens") or params.get("max_new_tokens") or self.config.response_length
        room = self.config.max_model_len - len(prompt_ids)
        if room < 1:
            raise ValueError(f"a prompt of {len(prompt_ids)} tokens leaves no room in {self.config.max_model_len}")
        seed = params.get("seed")
        request = Request(
            list(prompt_ids),
            min(limit, room),
            seed=stream_seed("request", request_id) if seed is None else seed,
            params=SamplingParams(
                temperature=float(params.get("temperature", 1.0)),
                top_p=float(params.get("top_p", 1.0)),
                top_k=int(params.get("top_k", -1)) or -1,
            ),
        )
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(((seed, request_id), request, future))
        if self._sampling is None:
            self._sampling = asyncio.create_task(self._sample_waiting())
        return await future

    async def _sample_waiting(self) -> None:
        """Sample batch after batch until nobody waits; a batch's order does not depend on arrival."""
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                await self._gather()
                self._waiting.sort(key=lambda entry: str(entry[0]))
                batch = self._waiting[: self.config.max_num_seqs]
                self._waiting = self._waiting[self.config.max_num_seqs :]
                try:
                    results = await loop.run_in_executor(None, self._sample, [request for _, request, _ in batch])
                except Exception as error:  # every waiting episode must hear of it
                    for _, _, future in batch:
                        future.set_exception(error)
                    continue
                for (_, _, future), result in zip(batch, results, strict=True):
                    future.set_result(result)
        finally:
            self._sampling = None

    async def _gather(self) -> None:
        """Wait until no further request has arrived for a moment."""
        count = -1
        while count != len(self._waiting) < self.config.max_num_seqs:
            count = len(self._waiting)
            await asyncio.sleep(GATHER_SECONDS)

    def _sample(self, requests: list[Request]) -> list[TokenOutput]:
        generations = sample_batch(self._model, requests, eos_ids=self._end_ids, pad_id=self._pad_id)
        return [
            TokenOutput(
                token_ids=g.token_ids,
                log_probs=g.log_probs,
                stop_reason="completed",
                extra_fields={"global_steps": self._global_steps},
            )
            for g in generations
        ]

    async def _nothing(self, *args: Any, **kwargs: Any) -> None:
        """Lifecycle calls that free or profile accelerator memory."""

    wake_up = sleep = abort_all_requests = resume_generation = clear_kv_cache = _nothing
    release_kv_cache = resume_kv_cache = start_profile = stop_profile = _nothing


def start_servers(config: Any) -> list[Any]:
    """Start the servers of all replicas and return their handles without waiting for them.

    A server spends seconds importing; a trainer that starts it before its workers has both import at once.
    """
    rollout, trainer = config.actor_rollout_ref.rollout, config.trainer
    size = rollout.tensor_model_parallel_size * rollout.data_parallel_size * rollout.pipeline_model_parallel_size
    replicas = trainer.n_gpus_per_node * trainer.nnodes // size
    return [_start_server(rank, rollout, config.actor_rollout_ref.model) for rank in range(replicas)]


def _start_server(replica_rank: int, config: Any, model_config: Any) -> Any:
    actor = ray.remote(HFServer).options(
        name=server_name(replica_rank), num_cpus=1, max_concurrency=1000 + config.max_num_seqs
    )
    return actor.remote(config, model_config)


class HFReplica(RolloutReplica):
    """The server actor of one replica, started ahead by :func:`start_servers` or here."""

    async def launch_servers(self) -> None:
        try:
            self._server_handle = ray.get_actor(server_name(self.replica_rank))
        except ValueError:
            self._server_handle = _start_server(self.replica_rank, self.config, self.model_config)
        self.servers = [self._server_handle]
        self._server_address = server_name(self.replica_rank)
        await self._server_handle.__ray_ready__.remote()


class HFServerAdapter(BaseRollout):
    """The worker's side: sends weights to the replica's server."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1) -> None:
        super().__init__(config, model_config, device_mesh)
        size = self.config.tensor_model_parallel_size * self.config.data_parallel_size
        size *= self.config.pipeline_model_parallel_size
        rank = int(os.environ["RANK"])
        self._replica_rank, self._leads = rank // size, rank % size == 0

    async def resume(self, tags: list[str]) -> None:
        """Nothing was released."""

    async def release(self) -> None:
        """Nothing to release."""

    async def update_weights(
        self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None, **_: Any
    ) -> None:
        """Gather the weights (a collective on every rank) and send them from the replica's first rank."""
        state = {name: weight.detach().to("cpu", torch.float32) for name, weight in weights}
        if self._leads:
            await ray.get_actor(server_name(self._replica_rank)).load_weights.remote(state, global_steps)
