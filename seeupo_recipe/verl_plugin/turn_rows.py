"""The trainer for baselines on turn rows: verl's losses, estimators per trajectory, counted steps.

Stock verl takes an optimizer step per ``ppo_mini_batch_size * n`` rows and pads to that multiple, so
that on turn rows the number of steps follows the raggedness of the batch. Here an iteration's rows are
cut into as many parts as steps are wanted, padded to the data-parallel size only, and divided by their
real number.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
import torch
import transfer_queue as tq
from omegaconf import DictConfig
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from seeupo_recipe.algo.baselines import row_parts, step_count, trajectory_advantages
from seeupo_recipe.algo.sequential import JOINT, PoolUpdate
from seeupo_recipe.verl_plugin import assert_ready
from seeupo_recipe.verl_plugin.config import PluginOptions, read_config
from seeupo_recipe.verl_plugin.gae import write_gae
from seeupo_recipe.verl_plugin.rows import (
    MODEL_COLUMNS,
    VALUE_LOSS_COLUMNS,
    Row,
    join,
    narrowed,
    nested,
    read_rows,
)
from seeupo_recipe.verl_plugin.updater import PoolUpdater, mean_of, put, scalars, spread, step_request

POLL_SECONDS = 0.02
CRITIC_POOL = "critic_pool"

logger = logging.getLogger(__name__)


@dataclass
class Iteration:
    """What is known of the current iteration.

    Attributes:
        rows: Rows with sampled tokens, in canonical order.
        plan: Its pool updates in order.
        updater: Takes the steps.
        tokens: Tokens of all rows and their padding.
        rewards: Terminal reward of each trajectory id.
        advantages: Advantage of each trajectory id (critic-free methods).
        weights: M of each (trajectory id, turn) (SeeUPO).
    """

    rows: list[Row]
    plan: Sequence[PoolUpdate[Row]]
    updater: PoolUpdater
    tokens: int
    rewards: dict[str, float] = field(default_factory=dict)
    advantages: dict[str, float] = field(default_factory=dict)
    weights: dict[tuple[str, int], float] = field(default_factory=dict)


@register_trainer("turn_rows")
class TurnRowsTrainer(PPOTrainerSync):
    """GRPO, GSPO, RLOO and PPO with one row per turn."""

    def __init__(self, config: DictConfig) -> None:
        assert_ready(config.trainer.device)
        self.plugin = read_config(config)
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
        actor, critic = worker_classes(self.config.trainer.device)
        for role in self.role_worker_mapping:
            self.role_worker_mapping[role] = ray.remote(critic if role == Role.Critic else actor)
        if self.use_critic and self.plugin.options.critic_pool == "own":
            self._give_critic_a_pool()
        if self.config.actor_rollout_ref.rollout.name == "hf_cpu":
            from seeupo_recipe.verl_plugin.cpu.rollout import start_servers

            self._servers = start_servers(self.config)

    def _give_critic_a_pool(self) -> None:
        """As many GPUs as the policy has, so that pools padded to the policy's ranks fit the critic's too."""
        trainer = self.config.trainer
        self.mapping[Role.Critic] = CRITIC_POOL
        self.resource_pool_manager.resource_pool_spec[CRITIC_POOL] = [trainer.n_gpus_per_node] * trainer.nnodes

    # ---- rows and pools -------------------------------------------------------------------------

    def _balance_batch(self, batch: KVBatchMeta, metrics: dict, **_: Any) -> KVBatchMeta:
        """Sort the rows and plan the iteration's pools; the batch returned holds their padding too."""
        batch, rows = read_rows(batch)
        silent = {row.key for row in rows if not row.sampled}
        for key, tag in zip(batch.keys, batch.tags, strict=True):
            tag["is_padding"] = key in silent
        sampled = [row for row in rows if row.sampled]
        plan = self._plan(sampled)
        parts = [part for update in plan for part in update.parts]
        updater = PoolUpdater(
            batch, parts, self.actor_rollout_wg, self.config, self.tokenizer.eos_token_id, self._columns
        )
        batches = list(updater.batches)
        if silent:
            batches.append(updater.padded(batch.select_keys(sorted(silent))))
        whole = spread(join(batches, batch), updater.ranks)
        self.current = Iteration(sampled, plan, updater, sum(int(tag["seq_len"]) for tag in whole.tags))
        metrics["update/rows"] = len(sampled)
        metrics["update/padding_rows"] = updater.padding
        return whole

    def _plan(self, rows: list[Row]) -> Sequence[PoolUpdate[Row]]:
        """One pool per optimizer step, each a random part of the rows."""
        options = self.plugin.options
        steps = step_count(options.steps_per_iteration, len({row.turn for row in rows}))
        parts = row_parts(len(rows), steps * options.inner_mini_batches, seed=options.seed, iteration=self.global_steps)
        pools = [tuple(rows[i] for i in part) for part in parts]
        return [PoolUpdate(JOINT, pool, (pool,)) for pool in pools]

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """verl's pass, then the distance between the rollout's log-probabilities and the trainer's."""
        batch = super()._compute_old_log_prob(narrowed(batch, self._columns), metrics)
        metrics["update/rollout_drift"] = drift = rollout_drift([row.key for row in self.current.rows])
        judge_drift(drift, self.plugin.options, self.global_steps)
        return batch

    def _compute_ref_log_prob(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        return super()._compute_ref_log_prob(narrowed(batch, self._columns), metrics)

    def _compute_values(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        return super()._compute_values(narrowed(batch, self._columns), metrics)

    @property
    def _columns(self) -> tuple[str, ...]:
        return MODEL_COLUMNS if self.processor is None else (*MODEL_COLUMNS, "multi_modal_inputs")

    # ---- advantages -----------------------------------------------------------------------------

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """Advantages from rewards per trajectory, written to every row."""
        current = self.current
        current.rewards = self._read_rewards()
        if self.use_critic:
            return write_gae(
                batch,
                current.rows,
                current.rewards,
                metrics,
                gamma=self.config.algorithm.gamma,
                lam=self.config.algorithm.lam,
                whitened=self.plugin.options.whiten_advantages,
            )
        rewards = torch.tensor(list(current.rewards.values()), dtype=torch.float64)
        values = self._trajectory_advantages(rewards, self._groups())
        current.advantages = dict(zip(current.rewards, values.tolist(), strict=True))
        trajectory = {row.key: row.trajectory for row in current.rows}
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["response_mask"])
        column = nested(
            [
                mask.float() * current.advantages.get(trajectory.get(key, ""), 0.0)
                for key, mask in zip(batch.keys, data["response_mask"].unbind(), strict=True)
            ]
        )
        return put(batch, advantages=column, returns=column)

    def _trajectory_advantages(self, rewards: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
        return trajectory_advantages(self.plugin.options.method, rewards, groups)

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

    # ---- updates --------------------------------------------------------------------------------

    def _update_actor(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """One optimizer step per part and inner epoch."""
        updater = self.current.updater
        parts = [part for _ in range(self.plugin.inner_epochs) for update in self.current.plan for part in update.parts]
        with updater.resident():
            for i, part in enumerate(parts):
                updater.step(part, None, denominator=len(part), last=i == len(parts) - 1)
        metrics["update/optimizer_steps"] = len(parts)
        self._log_worker(metrics)
        return batch

    def _update_critic(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """The critic takes the same parts as the policy."""
        temperature = self.config.actor_rollout_ref.rollout.temperature
        columns = (*self._columns, *VALUE_LOSS_COLUMNS)
        results = []
        for _ in range(self.plugin.inner_epochs):
            for part in self.current.updater.batches:
                denominator = sum(not tag.get("is_padding", False) for tag in part.tags)
                request = step_request(part, columns=columns, denominator=denominator, temperature=temperature)
                results.append(scalars(self.critic_wg.train_mini_batch(request).get()["metrics"]))
        metrics.update({f"critic/{key}": value for key, value in mean_of(results).items()})
        metrics["update/critic_steps"] = len(results)
        return batch

    def _log_worker(self, metrics: dict) -> None:
        """Means of the worker's metrics over the iteration's steps, and tokens through policy and reference."""
        updater = self.current.updater
        results = updater.results
        passes = 2 if self.use_reference_policy else 1
        metrics["tokens/forward"] = updater.forwarded + passes * self.current.tokens
        metrics["tokens/backward"] = updater.backwarded
        metrics.update({f"actor/{key}": value for key, value in mean_of(results).items()})
        norms = [result["grad_norm"] for result in results]
        metrics["update/grad_norm_mean"] = sum(norms) / len(norms)
        metrics["update/grad_norm_max"] = max(norms)
        metrics["perf/mfu/actor"] = metrics.get("actor/mfu", 0.0)


def rollout_drift(keys: list[str]) -> float:
    """Mean absolute difference between rollout and trainer log-probabilities over all sampled tokens.

    0 if the rollout reported none.
    """
    data = tq.kv_batch_get(
        keys=keys, partition_id="train", select_fields=["old_log_probs", "rollout_log_probs", "response_mask"]
    )
    if "rollout_log_probs" not in data:
        return 0.0
    difference = (data["old_log_probs"].values() - data["rollout_log_probs"].values()).abs()
    sampled = data["response_mask"].values().bool()
    return float(difference[sampled].mean())


def judge_drift(drift: float, options: PluginOptions, iteration: int) -> None:
    """Warn of a drift above ``options.drift_limit``.

    Raises:
        RuntimeError: Instead, if ``options.drift_action`` is ``abort``.
    """
    if drift <= options.drift_limit:
        return
    message = (
        f"iteration {iteration}: rollout and trainer log-probabilities differ by {drift:.3g} on average, more than "
        f"seeupo.drift_limit={options.drift_limit}: the weights or the sampling settings of the two sides do not match"
    )
    if options.drift_action == "abort":
        raise RuntimeError(message)
    logger.warning(message)


def worker_classes(device: str) -> tuple[type, type]:
    """Actor and critic worker classes for ``device``."""
    if device == "cpu":
        from seeupo_recipe.verl_plugin.cpu.workers import CPUActorWorker, CPUTrainingWorker

        return CPUActorWorker, CPUTrainingWorker
    from verl.workers.engine_workers import TrainingWorker

    from seeupo_recipe.verl_plugin.worker import PoolActorWorker

    return PoolActorWorker, TrainingWorker
