"""Workers that update one pool per call, with the learning-rate schedule advanced once per iteration."""

from __future__ import annotations

from tensordict import TensorDict
from verl.single_controller.base.decorator import make_nd_compute_dataproto_dispatch_fn, register
from verl.utils import tensordict_utils as tu
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker


class PoolTrainingWorker(TrainingWorker):
    """verl steps the schedule at the end of every ``train_mini_batch`` call, so once per pool.

    A batch may carry ``advance_lr_schedule`` (default True): the trainer sets it on the last pool only.
    """

    _advance_lr_schedule = True

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="train"), blocking=False)
    def train_mini_batch(self, data: TensorDict) -> TensorDict:
        self._advance_lr_schedule = tu.pop(data, key="advance_lr_schedule", default=True)
        return super().train_mini_batch(data)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="train"), blocking=False)
    def train_batch(self, data: TensorDict) -> TensorDict:
        if not self._advance_lr_schedule:
            tu.assign_non_tensor(data, update_lr_scheduler=False)
        return super().train_batch(data)


class PoolActorWorker(ActorRolloutRefWorker):
    """Actor, rollout and reference worker whose actor trains pool by pool."""

    actor_worker_cls = PoolTrainingWorker
