"""Optimizer steps and log-probability passes on pools of turn rows, through verl's worker group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from omegaconf import DictConfig
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.utils.seqlen_balancing import calculate_workload, get_seqlen_balanced_partitions
from verl.workers.utils.padding import response_from_nested

from seeupo_recipe.algo.ratio import sequence_log_ratio
from seeupo_recipe.verl_plugin.rows import (
    POLICY_LOSS_COLUMNS,
    WEIGHT_COLUMN,
    Row,
    join,
    narrowed,
    pad_to_multiple,
    padding_only,
)

Part = tuple[Row, ...]


class PoolUpdater:
    """The ``Updater`` of :mod:`seeupo_recipe.algo.sequential` for one iteration.

    ``forwarded`` and ``backwarded`` count the tokens of its steps and passes, padding included; ``results``
    holds the worker's metrics of every step.

    Every part is padded to the data-parallel size once, before any column is computed for it, so that
    padding rows carry the same columns as real ones. Padding rows have no sampled token: they add
    nothing to loss, KL or counts.

    Args:
        batch: All rows of the iteration.
        parts: Rows of every optimizer step of a pass; an empty one becomes padding alone.
        workers: verl's actor worker group.
        config: verl's config.
        eos_token_id: Filler of padding rows.
        columns: What the model reads of a row.
    """

    def __init__(
        self,
        batch: KVBatchMeta,
        parts: Sequence[Part],
        workers: Any,
        config: DictConfig,
        eos_token_id: int,
        columns: Sequence[str],
    ) -> None:
        self._workers = workers
        self._actor = config.actor_rollout_ref.actor
        self._temperature = config.actor_rollout_ref.rollout.temperature
        self.ranks = data_parallel_size(workers)
        self._eos_token_id = eos_token_id
        self._columns = tuple(columns)
        self._batches = {self._name(part): self._prepare(batch, part) for part in parts}
        self.results: list[dict[str, float]] = []
        self.forwarded = self.backwarded = 0

    @property
    def batches(self) -> list[KVBatchMeta]:
        """The padded batches of all parts."""
        return list(self._batches.values())

    @property
    def padding(self) -> int:
        """Number of padding rows over all parts."""
        return sum(len(batch) for batch in self._batches.values()) - sum(len(name) for name in self._batches)

    def padded(self, batch: KVBatchMeta) -> KVBatchMeta:
        """``batch`` with padding up to the data-parallel size, cut evenly over the ranks."""
        return spread(pad_to_multiple(batch, self.ranks, self._eos_token_id), self.ranks)

    @contextmanager
    def resident(self) -> Iterator[None]:
        """Keep weights and optimizer state on the device between the steps of an iteration."""
        if self._offloads:
            self._workers.to("device", model=True, optimizer=True, grad=True)
        yield
        if self._offloads:
            self._workers.to("cpu", model=True, optimizer=True, grad=True)

    def step(
        self, rows: Sequence[Row], weights_R: torch.Tensor | None, *, denominator: float, last: bool
    ) -> Mapping[str, float]:
        """One optimizer step; without ``weights_R`` the loss reads the advantages column (verl's losses)."""
        batch = self._batches[self._name(rows)]
        if weights_R is not None:
            weight = dict(zip((row.key for row in rows), weights_R.tolist(), strict=True))
            if not (self._actor.use_kl_loss or self._actor.entropy_coeff):
                batch = self._without_zero_weights(batch, weight)
            put(batch, **{WEIGHT_COLUMN: torch.tensor([weight.get(key, 0.0) for key in batch.keys])})
        request = step_request(
            batch,
            columns=(*self._columns, *POLICY_LOSS_COLUMNS),
            denominator=denominator,
            temperature=self._temperature,
            calculate_entropy=bool(self._actor.calculate_entropy or self._actor.entropy_coeff),
        )
        request.extra_info.update(advance_lr_schedule=last, disable_auto_offload=self._offloads)
        self._count(batch, backward=True)
        result = scalars(self._workers.update_actor(request)["metrics"])
        self.results.append(result)
        return result

    def log_ratio(self, rows: Sequence[Row], *, kind: str, clamp: float | None) -> torch.Tensor:
        """Log-ratio of each row under the present weights, float64."""
        data, keys = self._present_log_probs(rows)
        log_ratio = sequence_log_ratio(
            data["log_probs"].to_padded_tensor(0.0).double(),
            data["old_log_probs"].to_padded_tensor(0.0).double(),
            data["response_mask"].to_padded_tensor(0),
            kind=kind,
            clamp=clamp,
        )
        place = {key: i for i, key in enumerate(keys)}
        return log_ratio[[place[row.key] for row in rows]]

    def anchor(self, rows: Sequence[Row]) -> None:
        """Replace the rows' ``old_log_probs`` by those under the present weights."""
        data, keys = self._present_log_probs(rows)
        tq.kv_batch_put(
            keys=keys,
            partition_id="train",
            fields=TensorDict({"old_log_probs": data["log_probs"]}, batch_size=len(keys)),
        )

    def _without_zero_weights(self, batch: KVBatchMeta, weight: Mapping[str, float]) -> KVBatchMeta:
        """Without KL and entropy terms rows of weight 0 have no gradient."""
        return self._only(batch, {key for key in batch.keys if weight.get(key)})

    def _only(self, batch: KVBatchMeta, wanted: set[str]) -> KVBatchMeta:
        """The wanted rows and as few others as fill the ranks."""
        kept = [key for key in batch.keys if key in wanted]
        others = [key for key in batch.keys if key not in wanted]
        missing = -len(kept) % self.ranks if kept else self.ranks
        return spread(batch.select_keys(kept + others[:missing]), self.ranks)

    def _present_log_probs(self, rows: Sequence[Row]) -> tuple[TensorDict, list[str]]:
        wanted = {row.key for row in rows}
        parts = [batch for batch in self._batches.values() if wanted & set(batch.keys)]
        request = narrowed(self._only(join(parts, parts[0]), wanted), self._columns)
        request.extra_info = {
            "calculate_entropy": False,
            "compute_loss": False,
            "temperature": self._temperature,
            "disable_auto_offload": self._offloads,
        }
        self._count(request, backward=False)
        self._workers.compute_log_prob(request)
        data = tq.kv_batch_get(
            keys=request.keys,
            partition_id=request.partition_id,
            select_fields=["log_probs", "old_log_probs", "response_mask"],
        )
        data["log_probs"] = response_from_nested(data["log_probs"], data["response_mask"])
        return data, request.keys

    def _count(self, batch: KVBatchMeta, *, backward: bool) -> None:
        tokens = sum(int(tag["seq_len"]) for tag in batch.tags)
        self.forwarded += tokens
        self.backwarded += tokens if backward else 0

    def _prepare(self, batch: KVBatchMeta, part: Part) -> KVBatchMeta:
        if not part:
            return padding_only(batch, self.ranks, self._eos_token_id)
        return self.padded(batch.select_keys([row.key for row in part]))

    @staticmethod
    def _name(rows: Sequence[Row]) -> tuple[str, ...]:
        return tuple(row.key for row in rows)

    @property
    def _offloads(self) -> bool:
        engine = self._actor.fsdp_config
        return bool(engine.param_offload or engine.optimizer_offload)


def data_parallel_size(workers: Any) -> int:
    """Data-parallel size of an actor worker group."""
    if "actor" not in workers._dispatch_info:
        workers._dispatch_info["actor"] = workers._query_dispatch_info("actor")
    return max(workers._dispatch_info["actor"]) + 1


def spread(batch: KVBatchMeta, ranks: int) -> KVBatchMeta:
    """Order rows so that every rank gets as many rows and about as many tokens."""
    if ranks > 1:
        load = calculate_workload(torch.tensor([tag["seq_len"] for tag in batch.tags]))
        parts = get_seqlen_balanced_partitions(load, k_partitions=ranks, equal_size=True)
        batch.reorder([i for part in parts for i in part])
    return batch


def step_request(
    batch: KVBatchMeta,
    *,
    columns: Sequence[str],
    denominator: float,
    temperature: float,
    calculate_entropy: bool = False,
) -> KVBatchMeta:
    """``batch`` as one mini-batch of a worker's ``train_mini_batch``."""
    request = narrowed(batch, columns)
    request.extra_info = {
        "calculate_entropy": calculate_entropy,
        "global_batch_size": denominator,
        "mini_batch_size": len(batch),
        "epochs": 1,
        "seed": 0,
        "dataloader_kwargs": {"shuffle": False},
        "temperature": temperature,
    }
    return request


def put(batch: KVBatchMeta, **columns: torch.Tensor) -> KVBatchMeta:
    """Write columns of ``batch`` to TransferQueue; returns ``batch``."""
    tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=TensorDict(columns, batch_size=len(batch)))
    return batch


def scalars(metrics: Mapping[str, Any]) -> dict[str, float]:
    """A worker's metrics with their prefix cut off and lists averaged."""
    return {key.removeprefix("actor/").removeprefix("critic/"): float(np.mean(value)) for key, value in metrics.items()}


def mean_of(results: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean of each metric over the steps that report it."""
    keys = sorted({key for result in results for key in result})
    return {key: float(np.mean([r[key] for r in results if key in r])) for key in keys}
