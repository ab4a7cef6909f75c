"""verl's engines and workers on CPU: FSDP2 over gloo, and only what the platform cannot express."""

from __future__ import annotations

from typing import Any
from unittest import mock

from verl.utils.distributed import initialize_global_process_group_ray
from verl.utils.torch_functional import logprobs_from_logits_naive
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp import transformer_impl
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead, FSDPEngineWithValueHead
from verl.workers.engine_workers import TrainingWorker

from seeupo_recipe.verl_plugin.worker import PoolActorWorker, PoolTrainingWorker, ReferenceWorker

_offload_policy = transformer_impl.CPUOffloadPolicy


def _log_probs(logits: Any, labels: Any, inplace_backward: bool = True) -> Any:
    return logprobs_from_logits_naive(logits, labels)


class _NoPinnedMemory:
    """verl offloads the reference model with pinned memory, which needs an accelerator."""

    def _build_fsdp_module(self, module: Any) -> Any:
        with mock.patch.object(
            transformer_impl, "CPUOffloadPolicy", lambda pin_memory: _offload_policy(pin_memory=False)
        ):
            return super()._build_fsdp_module(module)


@EngineRegistry.register(model_type="language_model", backend="fsdp2", device="cpu")
class CPULanguageModelEngine(_NoPinnedMemory, FSDPEngineWithLMHead):
    """Policy and reference model.

    Without flash-attention verl takes the log-probabilities of packed logits in a loop over tokens, which
    costs a tiny model more than its own forward pass.
    """

    def prepare_model_outputs(self, *args: Any, **kwargs: Any) -> Any:
        with mock.patch.object(transformer_impl, "logprobs_from_logits", _log_probs):
            return super().prepare_model_outputs(*args, **kwargs)


@EngineRegistry.register(model_type="value_model", backend="fsdp2", device="cpu")
class CPUValueModelEngine(_NoPinnedMemory, FSDPEngineWithValueHead):
    """Critic. verl loads it with flash-attention whatever the config says."""

    def _build_module(self) -> Any:
        from transformers import AutoModelForTokenClassification
        from verl.utils import model as verl_model

        def load(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
            return AutoModelForTokenClassification.from_pretrained(
                local_path,
                dtype=torch_dtype,
                config=model_config,
                attn_implementation=model_config._attn_implementation,
                trust_remote_code=trust_remote_code,
            )

        with mock.patch.object(verl_model, "load_valuehead_model", load):
            return super()._build_module()


class _GlooGroup:
    """verl would ask for the backend string ``cpu:gloo,cpu:gloo``, which torch rejects."""

    def __init__(self, config: Any) -> None:
        initialize_global_process_group_ray(backend="cpu:gloo")
        super().__init__(config)


class CPUTrainingWorker(_GlooGroup, TrainingWorker):
    """Critic worker."""


class CPUReferenceWorker(_GlooGroup, ReferenceWorker):
    """Reference worker."""


class CPUPoolTrainingWorker(_GlooGroup, PoolTrainingWorker):
    """Actor worker."""


class CPUActorWorker(PoolActorWorker):
    """Actor, rollout and reference in one process."""

    actor_worker_cls = CPUPoolTrainingWorker
    ref_worker_cls = CPUReferenceWorker
