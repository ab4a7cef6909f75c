"""SeeUPO: one turn pool after the other, each weighted by what the earlier updates changed.

The maths stands in :mod:`seeupo_recipe.algo`; this class hands it verl's rows and workers. It replaces
the advantage computation and the actor update (Algorithm 1); everything else is verl's.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import register_trainer

from seeupo_recipe.algo.advantage import joint_advantages
from seeupo_recipe.algo.sequential import PoolUpdate, plan_updates, sequential_update
from seeupo_recipe.verl_plugin.loss import seeupo_loss
from seeupo_recipe.verl_plugin.rows import Row
from seeupo_recipe.verl_plugin.turn_rows import TurnRowsTrainer


@register_trainer("seeupo")
class SeeUPOTrainer(TurnRowsTrainer):
    """Select it with ``trainer.v1.trainer_mode=seeupo``; its choices are the ``seeupo`` section."""

    def init(self) -> None:
        super().init()
        self.actor_rollout_wg.set_loss_fn(
            partial(seeupo_loss, settings=self.plugin.settings, surrogate=self.plugin.surrogate)
        )

    def _plan(self, rows: list[Row]) -> Sequence[PoolUpdate[Row]]:
        options = self.plugin.options
        return plan_updates(
            rows,
            self.plugin.settings,
            seed=options.seed,
            iteration=self.global_steps,
            inner_mini_batches=options.inner_mini_batches,
            horizon=options.horizon or 0,
        )

    def _trajectory_advantages(self, rewards: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
        settings = self.plugin.settings
        return joint_advantages(
            rewards,
            groups,
            normalization=settings.normalization,
            std_floor=settings.std_floor,
            clamp=settings.advantage_clamp,
        )

    def _update_actor(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        current = self.current
        with current.updater.resident():
            diagnostics = sequential_update(
                current.plan,
                current.advantages,
                current.updater,
                self.plugin.settings,
                inner_epochs=self.plugin.inner_epochs,
                used_weights=current.weights,
            )
        self._log_worker(metrics)
        metrics.update(diagnostics)
        return batch
