"""Workers that update one pool per call, with the learning-rate schedule advanced once per iteration."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict
from torch.distributed.fsdp import FSDPModule
from verl.single_controller.base.decorator import Dispatch, make_nd_compute_dataproto_dispatch_fn, register
from verl.utils import tensordict_utils as tu
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker


class GatheredHead:
    """Mixin: the output head's weight is whole while the model runs, which verl's fused log-probs need.

    verl shards an untied head by itself, so FSDP2 gathers it when it is called; ``model.use_fused_kernels``
    reads its weight without calling it.
    """

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def reset(self) -> None:
        super().reset()
        if self.engine_config.use_fused_kernels:
            gather_head(self.engine.module)


def gather_head(model: Any) -> None:
    """Gather the head before every forward pass; FSDP2 reshards it after the backward pass if there is one."""
    head = model.get_output_embeddings()
    if isinstance(head, FSDPModule):
        model.register_forward_pre_hook(lambda *_: head.unshard())
        model.register_forward_hook(lambda *_: None if torch.is_grad_enabled() else head.reshard())


class ReferenceWorker(GatheredHead, TrainingWorker):
    """Reference policy."""


class PoolTrainingWorker(GatheredHead, TrainingWorker):
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
    ref_worker_cls = ReferenceWorker
