"""SeeUPO: one turn pool after the other, each weighted by what the earlier updates changed."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import transfer_queue as tq
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.workers.utils.padding import response_from_nested

from seeupo_recipe.algo.advantage import joint_advantages
from seeupo_recipe.algo.correction import TurnCorrection
from seeupo_recipe.algo.ratio import sequence_log_ratio
from seeupo_recipe.algo.schedule import turn_pools, update_order
from seeupo_recipe.seeding import stream
from seeupo_recipe.verl_plugin.loss import WEIGHT_COLUMN, seeupo_loss
from seeupo_recipe.verl_plugin.rows import Row, padding_only
from seeupo_recipe.verl_plugin.turn_rows import Pool, TurnRowsTrainer


@register_trainer("seeupo")
class SeeUPOTrainer(TurnRowsTrainer):
    """Replaces advantage computation and actor update (Algorithm 1); everything else is verl's."""

    def init(self) -> None:
        super().init()
        self.actor_rollout_wg.set_loss_fn(
            partial(seeupo_loss, settings=self.plugin.settings, surrogate=self.plugin.surrogate)
        )

    def _plan(self, rows: list[Row]) -> list[tuple[int, list[Row]]]:
        pools = turn_pools([row.turn for row in rows])
        if self.plugin.settings.order == "joint":
            return [(-1, rows)]
        return [(turn, [rows[i] for i in positions]) for turn, positions in pools.items()]

    def _trajectory_advantages(self) -> dict[str, float]:
        settings = self.plugin.settings
        values = joint_advantages(
            torch.tensor(list(self.current.rewards.values()), dtype=torch.float64),
            self._groups(),
            normalization=settings.normalization,
            std_floor=settings.std_floor,
            clamp=settings.advantage_clamp,
        )
        return dict(zip(self.current.rewards, values.tolist(), strict=True))

    def _update_actor(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        settings = self.plugin.settings
        pools = {pool.turn: pool for pool in self.current.pools}
        order = self.current.order = self._order(pools)
        correction = TurnCorrection(
            self.current.advantages,
            settings,
            {(row.trajectory, row.turn): row.tokens for row in self.current.rows},
        )
        results: list[dict[str, float]] = []
        with self._resident():
            for place, turn in enumerate(order):
                last = place == len(order) - 1
                pool = pools.get(turn) or self._empty_pool(batch, turn)
                if settings.ratio_denominator == "turn_start" and pool.rows:
                    self._refresh_old_log_probs(pool)
                weights = self._write_weights(pool, correction)
                steps = self._update_pool(pool, last=last)
                results += steps
                self._log_turn(pool, weights, steps, metrics)
                if not last and pool.rows and settings.correction != "off":
                    self._record(pool, correction, metrics)
        self._log_steps(results, metrics)
        products = torch.tensor(list(correction.products.values()), dtype=torch.float64)
        metrics["seeupo/product_deviation"] = float((products - 1).abs().mean())
        return batch

    def _order(self, pools: dict[int, Pool]) -> list[int]:
        """Turns in the order of their updates; -1 stands for all turns at once."""
        settings = self.plugin.settings
        if settings.order == "joint":
            return [-1]
        turns = range(self.plugin.options.horizon) if settings.step_empty_pools else pools
        updates = update_order(turns, settings.order, seed=self.plugin.options.seed, iteration=self.global_steps)
        return [turn for (turn,) in updates]

    def _empty_pool(self, batch: KVBatchMeta, turn: int) -> Pool:
        """A pool of padding only: its step has no gradient, but moves weights by momentum and decay."""
        return Pool([], padding_only(batch, self._ranks, self.tokenizer.eos_token_id), turn)

    def _denominator(self, pool: Pool) -> float:
        """What the pool's sums are divided by; ``joint`` takes the mean over its turns' objectives."""
        if self.plugin.settings.pool_denominator == "real_rows":
            return max(1, len(pool.rows))
        return len(self.current.rewards) * max(1, len({row.turn for row in pool.rows}))

    def _write_weights(self, pool: Pool, correction: TurnCorrection) -> torch.Tensor:
        """Put M of every row into its column, 0 for padding; returns those of the real rows."""
        by_turn: dict[int, list[Row]] = {}
        for row in pool.rows:
            by_turn.setdefault(row.turn, []).append(row)
        weight: dict[str, float] = {}
        for turn, rows in by_turn.items():
            values = correction.weights([row.trajectory for row in rows], turn)
            weight.update(zip((row.key for row in rows), values.tolist(), strict=True))
        column = torch.tensor([weight.get(key, 0.0) for key in pool.batch.keys], dtype=torch.float32)
        self._put(pool.batch, **{WEIGHT_COLUMN: column})
        return torch.tensor([weight[row.key] for row in pool.rows], dtype=torch.float64)

    def _update_pool(self, pool: Pool, *, last: bool) -> list[dict[str, float]]:
        """All inner steps on one pool."""
        parts = self._parts(pool)
        results = []
        for epoch in range(self.plugin.inner_epochs):
            for i, part in enumerate(parts):
                final = last and epoch == self.plugin.inner_epochs - 1 and i == len(parts) - 1
                share = len(part.rows) / len(pool.rows) if pool.rows else 1.0
                results.append(self._step(part, denominator=self._denominator(pool) * share, last=final))
        return results

    def _parts(self, pool: Pool) -> list[Pool]:
        """Cut a pool into ``inner_mini_batches`` parts, each padded to the ranks."""
        count = min(self.plugin.options.inner_mini_batches, len(pool.rows))
        if count <= 1:
            return [pool]
        order = stream("inner_parts", self.plugin.options.seed, self.global_steps, pool.turn).permutation(
            len(pool.rows)
        )
        return [
            self._pool(pool.batch, [pool.rows[j] for j in sorted(order[i::count])], pool.turn) for i in range(count)
        ]

    def _current_log_probs(self, pool: Pool) -> dict[str, Any]:
        """Log-probabilities of the pool under the present weights, and the columns beside them."""
        request = self._request(pool, denominator=1)
        request.extra_info.update(calculate_entropy=False, compute_loss=False)
        self.actor_rollout_wg.compute_log_prob(request)
        data = tq.kv_batch_get(
            keys=pool.batch.keys,
            partition_id=pool.batch.partition_id,
            select_fields=["log_probs", "old_log_probs", "response_mask"],
        )
        data["log_probs"] = response_from_nested(data["log_probs"], data["response_mask"])
        return data

    def _refresh_old_log_probs(self, pool: Pool) -> None:
        """The release's denominator: the weights at the start of the turn."""
        data = self._current_log_probs(pool)
        tq.kv_batch_put(
            keys=pool.batch.keys,
            partition_id=pool.batch.partition_id,
            fields=TensorDict({"old_log_probs": data["log_probs"]}, batch_size=len(pool.batch)),
        )

    def _record(self, pool: Pool, correction: TurnCorrection, metrics: dict) -> None:
        """Multiply the turn's ratio into M (equation 8)."""
        data = self._current_log_probs(pool)
        settings = self.plugin.settings
        log_ratio = sequence_log_ratio(
            data["log_probs"].to_padded_tensor(0.0).double(),
            data["old_log_probs"].to_padded_tensor(0.0).double(),
            data["response_mask"].to_padded_tensor(0),
            kind=settings.correction_ratio,
            clamp=settings.log_ratio_clamp,
        )
        place = {key: i for i, key in enumerate(pool.batch.keys)}
        picked = log_ratio[[place[row.key] for row in pool.rows]]
        correction.record([row.trajectory for row in pool.rows], pool.turn, picked)
        metrics[f"turn{pool.turn + 1}/correction_deviation"] = float((picked.exp() - 1).abs().mean())

    def _log_turn(self, pool: Pool, weights: torch.Tensor, steps: list[dict[str, float]], metrics: dict) -> None:
        """Diagnostics of one turn; clip, ratio and KL are those of its last inner step."""
        name = f"turn{pool.turn + 1}" if pool.turn >= 0 else "joint"
        rows, final = len(pool.rows), steps[-1]
        total = len(self.current.rewards)
        metrics[f"{name}/pool_size"] = rows
        metrics[f"{name}/placeholder_fraction"] = 1 - len({row.trajectory for row in pool.rows}) / total
        metrics[f"{name}/grad_norm"] = final["grad_norm"]
        if rows:
            advantages = [self.current.advantages[row.trajectory] for row in pool.rows]
            metrics[f"{name}/advantage_mean"] = sum(advantages) / rows
            metrics[f"{name}/weight_mean"] = float(weights.mean())
            for key in ("clipped_rows", "ratio_deviation", "kl_old", "kl_ref"):
                metrics[f"{name}/{key}"] = final[key] / max(1.0, final["rows"])
