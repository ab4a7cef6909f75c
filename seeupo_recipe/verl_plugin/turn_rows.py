"""The trainer for baselines on turn rows: verl's losses, estimators per trajectory, counted steps.

Stock verl takes an optimizer step per ``ppo_mini_batch_size * n`` rows and pads to that multiple, so
that on turn rows the number of steps follows the raggedness of the batch. Here an iteration's rows are
cut into as many parts as steps are wanted, padded to the data-parallel size only, and divided by their
real number.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import ray
import torch
import transfer_queue as tq
from omegaconf import DictConfig
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.seqlen_balancing import calculate_workload, get_seqlen_balanced_partitions

from seeupo_recipe.algo.baselines import row_parts, step_count, trajectory_advantages
from seeupo_recipe.algo.gae import trajectory_gae, whiten
from seeupo_recipe.verl_plugin import assert_ready
from seeupo_recipe.verl_plugin.config import PluginConfig, read_config
from seeupo_recipe.verl_plugin.rows import Row, is_padding, join, nested, pad_to_multiple, read_rows

POLL_SECONDS = 0.02


@dataclass
class Pool:
    """Rows of one optimizer step; ``batch`` holds them and their padding.

    Attributes:
        rows: The real rows, in canonical order.
        batch: Their keys and those of the padding rows, cut evenly over the ranks.
        turn: The turn they belong to; -1 for a pool of several turns.
    """

    rows: list[Row]
    batch: KVBatchMeta
    turn: int = -1

    @property
    def padding(self) -> int:
        return len(self.batch) - len(self.rows)


@dataclass
class Iteration:
    """What is known of the current iteration's rows and trajectories.

    Attributes:
        rows: Rows with sampled tokens, in canonical order.
        pools: Planned pools.
        rewards: Terminal reward of each trajectory id.
        advantages: Advantage of each trajectory id (critic-free methods).
        order: Turns in the order of their updates (SeeUPO; -1 for a joint update).
    """

    rows: list[Row]
    pools: list[Pool]
    rewards: dict[str, float] = field(default_factory=dict)
    advantages: dict[str, float] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)


@register_trainer("turn_rows")
class TurnRowsTrainer(PPOTrainerSync):
    """GRPO, GSPO, RLOO and PPO with one row per turn."""

    def __init__(self, config: DictConfig) -> None:
        assert_ready(config.trainer.device)
        self.plugin: PluginConfig = read_config(config)
        self.current: Iteration
        super().__init__(config)

    @property
    def trainer_mode(self) -> str:
        """verl compares the mode's name with "sync" where it means this class's base."""
        return "sync"

    @trainer_mode.setter
    def trainer_mode(self, value: str) -> None:
        """verl sets the registered name, which only selects the class."""

    def _build_replay_buffer(self) -> Any:
        buffer = super()._build_replay_buffer()
        buffer.poll_interval = POLL_SECONDS
        return buffer

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        actor, other = worker_classes(self.config.trainer.device)
        for role in self.role_worker_mapping:
            if role == Role.Critic:
                if other is not None:
                    self.role_worker_mapping[role] = ray.remote(other)
            else:
                self.role_worker_mapping[role] = ray.remote(actor)

    # ---- rows and pools -------------------------------------------------------------------------

    def _balance_batch(self, batch: KVBatchMeta, metrics: dict, **_: Any) -> KVBatchMeta:
        """Sort the rows, plan the iteration's pools and pad each to the data-parallel size."""
        batch, rows = read_rows(batch)
        sampled = [row for row in rows if row.sampled]
        silent = [row.key for row in rows if not row.sampled]
        for key, tag in zip(batch.keys, batch.tags, strict=True):
            if key in silent:
                tag["is_padding"] = True
        self.current = Iteration(sampled, [self._pool(batch, part, turn) for turn, part in self._plan(sampled)])
        parts = [pool.batch for pool in self.current.pools]
        if silent:
            parts.append(self._padded(batch.select_keys(silent)))
        metrics["update/rows"] = len(sampled)
        metrics["update/padding_rows"] = sum(pool.padding for pool in self.current.pools)
        return self._spread(join(parts, batch))

    def _plan(self, rows: list[Row]) -> list[tuple[int, list[Row]]]:
        """Cut the rows into the parts of the iteration's optimizer steps: (turn or -1, rows)."""
        options = self.plugin.options
        steps = step_count(options.steps_per_iteration, len({row.turn for row in rows}))
        parts = row_parts(len(rows), steps * options.inner_mini_batches, seed=options.seed, iteration=self.global_steps)
        return [(-1, [rows[i] for i in part]) for part in parts]

    def _pool(self, batch: KVBatchMeta, rows: list[Row], turn: int) -> Pool:
        return Pool(rows, self._spread(self._padded(batch.select_keys([row.key for row in rows]))), turn)

    def _padded(self, batch: KVBatchMeta) -> KVBatchMeta:
        return pad_to_multiple(batch, self._ranks, self.tokenizer.eos_token_id)

    @property
    def _ranks(self) -> int:
        """Data-parallel size of the actor."""
        group = self.actor_rollout_wg
        if "actor" not in group._dispatch_info:
            group._dispatch_info["actor"] = group._query_dispatch_info("actor")
        return max(group._dispatch_info["actor"]) + 1

    def _spread(self, batch: KVBatchMeta) -> KVBatchMeta:
        """Order rows so that every rank gets as many rows and about as many tokens."""
        if self._ranks > 1:
            load = calculate_workload(torch.tensor([tag["seq_len"] for tag in batch.tags]))
            parts = get_seqlen_balanced_partitions(load, k_partitions=self._ranks, equal_size=True)
            batch.reorder([i for part in parts for i in part])
        return batch

    # ---- advantages -----------------------------------------------------------------------------

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """Advantages from rewards per trajectory, written to every row."""
        self.current.rewards = self._read_rewards()
        if self.plugin.options.method == "ppo":
            return self._write_gae(batch, metrics)
        self.current.advantages = self._trajectory_advantages()
        return self._write_advantages(batch)

    def _read_rewards(self) -> dict[str, float]:
        """Reward of each trajectory: that of its last row."""
        last = {row.trajectory: row.key for row in self.current.rows}
        data = tq.kv_batch_get(keys=list(last.values()), partition_id="train", select_fields=["rm_scores"])
        return dict(zip(last, (float(scores.sum()) for scores in data["rm_scores"].unbind()), strict=True))

    def _groups(self) -> torch.Tensor:
        """Task number of each trajectory in the order of ``rewards``."""
        group = {row.trajectory: row.group for row in self.current.rows}
        number = {uid: i for i, uid in enumerate(dict.fromkeys(group.values()))}
        return torch.tensor([number[group[trajectory]] for trajectory in self.current.rewards])

    def _trajectory_advantages(self) -> dict[str, float]:
        rewards = torch.tensor(list(self.current.rewards.values()), dtype=torch.float64)
        values = trajectory_advantages(self.plugin.options.method, rewards, self._groups())
        return dict(zip(self.current.rewards, values.tolist(), strict=True))

    def _write_advantages(self, batch: KVBatchMeta) -> KVBatchMeta:
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["response_mask"])
        trajectory = {row.key: row.trajectory for row in self.current.rows}
        per_row = [
            mask.float() * self.current.advantages.get(trajectory.get(key, ""), 0.0)
            for key, mask in zip(batch.keys, data["response_mask"].unbind(), strict=True)
        ]
        return self._put(batch, advantages=nested(per_row), returns=nested(per_row))

    def _write_gae(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """GAE over each trajectory's sampled tokens, across its turns."""
        keys = [row.key for row in self.current.rows]
        data = tq.kv_batch_get(keys=keys, partition_id="train", select_fields=["values", "response_mask"])
        values, mask = data["values"].to_padded_tensor(0.0), data["response_mask"].to_padded_tensor(0)
        advantages, returns = trajectory_gae(
            values,
            mask,
            torch.tensor([self.current.rewards[row.trajectory] for row in self.current.rows]),
            [row.trajectory for row in self.current.rows],
            [row.turn for row in self.current.rows],
            gamma=self.config.algorithm.gamma,
            lam=self.config.algorithm.lam,
        )
        residual = (returns - values)[mask.bool()]
        spread = returns[mask.bool()].var()
        metrics["critic/explained_variance"] = float(1 - residual.var() / spread) if spread > 0 else 0.0
        if self.plugin.options.whiten_advantages:
            advantages = whiten(advantages, mask)
        lengths = dict(zip(keys, data["response_mask"].offsets().diff().tolist(), strict=True))
        place = {key: i for i, key in enumerate(keys)}
        masks = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["response_mask"])
        silent = {k: torch.zeros(m.numel()) for k, m in zip(batch.keys, masks["response_mask"].unbind(), strict=True)}

        def column(padded: torch.Tensor) -> torch.Tensor:
            return nested([padded[place[k], : lengths[k]] if k in place else silent[k] for k in batch.keys])

        return self._put(batch, advantages=column(advantages), returns=column(returns))

    def _put(self, batch: KVBatchMeta, **columns: torch.Tensor) -> KVBatchMeta:
        tq.kv_batch_put(
            keys=batch.keys, partition_id=batch.partition_id, fields=TensorDict(columns, batch_size=len(batch))
        )
        return batch

    # ---- updates --------------------------------------------------------------------------------

    def _update_actor(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """One optimizer step per part and inner epoch."""
        results = []
        pools = [pool for pool in self.current.pools for _ in range(self.plugin.inner_epochs)]
        with self._resident():
            for step, pool in enumerate(pools):
                results.append(self._step(pool, denominator=len(pool.rows), last=step == len(pools) - 1))
        self._log_steps(results, metrics)
        return batch

    def _update_critic(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """The critic takes the same parts as the policy."""
        results = []
        for pool in self.current.pools:
            for _ in range(self.plugin.inner_epochs):
                output = self.critic_wg.train_mini_batch(self._request(pool, len(pool.rows)))
                results.append(mean_metrics(output.get()["metrics"]))
        metrics.update({f"critic/{key}": value for key, value in mean_of(results).items()})
        metrics["critic/optimizer_steps"] = len(results)
        return batch

    def _step(self, pool: Pool, *, denominator: float, last: bool) -> dict[str, float]:
        """One optimizer step on ``pool``; returns the worker's metrics."""
        request = self._request(pool, denominator)
        request.extra_info["advance_lr_schedule"] = last
        return mean_metrics(self.actor_rollout_wg.update_actor(request)["metrics"])

    def _request(self, pool: Pool, denominator: float) -> KVBatchMeta:
        actor = self.config.actor_rollout_ref.actor
        request = pool.batch.select_keys(pool.batch.keys)
        request.extra_info = {
            "calculate_entropy": bool(actor.calculate_entropy or actor.entropy_coeff),
            "global_batch_size": denominator,
            "mini_batch_size": len(pool.batch),
            "epochs": 1,
            "seed": actor.data_loader_seed,
            "dataloader_kwargs": {"shuffle": False},
            "temperature": self.config.actor_rollout_ref.rollout.temperature,
            "disable_auto_offload": self._offloads,
        }
        return request

    @property
    def _offloads(self) -> bool:
        engine = self.config.actor_rollout_ref.actor.fsdp_config
        return bool(engine.param_offload or engine.optimizer_offload)

    @contextmanager
    def _resident(self) -> Iterator[None]:
        """Keep weights and optimizer state on the device between the steps of an iteration."""
        if self._offloads:
            self.actor_rollout_wg.to("device", model=True, optimizer=True, grad=True)
        yield
        if self._offloads:
            self.actor_rollout_wg.to("cpu", model=True, optimizer=True, grad=True)

    def _log_steps(self, results: list[dict[str, float]], metrics: dict) -> None:
        metrics.update({f"actor/{key.removeprefix('actor/')}": value for key, value in mean_of(results).items()})
        norms = [result["grad_norm"] for result in results if "grad_norm" in result]
        metrics["actor/grad_norm_max"] = max(norms, default=0.0)
        metrics["update/optimizer_steps"] = len(results)
        metrics.setdefault("perf/mfu/actor", metrics.get("actor/mfu", 0.0))


def worker_classes(device: str) -> tuple[type, type | None]:
    """Actor worker class, and the critic's if verl's own does not run on ``device``."""
    if device == "cpu":
        from seeupo_recipe.verl_plugin.cpu.workers import CPUActorWorker, CPUTrainingWorker

        return CPUActorWorker, CPUTrainingWorker
    from seeupo_recipe.verl_plugin.worker import PoolActorWorker

    return PoolActorWorker, None


def mean_metrics(metrics: dict[str, Any]) -> dict[str, float]:
    """Scalars of one worker call: lists averaged."""
    return {key: float(np.mean(value)) for key, value in metrics.items()}


def mean_of(results: list[dict[str, float]]) -> dict[str, float]:
    """Mean of each metric over the steps that report it."""
    keys = {key for result in results for key in result}
    return {key: float(np.mean([r[key] for r in results if key in r])) for key in sorted(keys)}


def real_rows(batch: KVBatchMeta) -> int:
    """Number of rows that are not padding."""
    return sum(not is_padding(tag) for tag in batch.tags)
