"""Memory of one GPU, of a node and of checkpoints, from a composed config and the model's sizes.

A model of verl's FSDP2 workers with a colocated vLLM: nothing here is measured, except that the formulas of
:mod:`.shape` are tested against the real architectures. Two numbers are estimates of ours, ``RESERVE`` and
``VLLM_WORKING``; the first recorded iteration shows the truth (``actor/perf/max_memory_reserved_gb``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from omegaconf import DictConfig

from seeupo_recipe.cluster.shape import ModelShape

GIB = 2**30
RESERVE = 6.0
"""GiB for the contexts of trainer and sleeping vLLM, communication buffers and fragmentation."""
VLLM_WORKING = 3.0
"""GiB of vLLM's own share for activations and CUDA graphs."""
KEPT_CHECKPOINTS = 3
"""The last, the best, and the one being written."""
BYTES = {"fp32": 4, "float32": 4, "bf16": 2, "bfloat16": 2}
ADAM_BYTES = 8
CHUNK_TOKENS = 512
"""Chunk of verl's fused log-prob kernel."""


@dataclass(frozen=True)
class Phase:
    """GiB on the fullest GPU in one phase of an iteration, part by part."""

    name: str
    parts: Mapping[str, float]

    @property
    def total(self) -> float:
        return sum(self.parts.values())


@dataclass(frozen=True)
class Layout:
    """What of a verl config decides about memory.

    Attributes:
        ranks: GPUs that the policy is sharded over.
        tokens: Most tokens of a micro-batch.
        row: Longest row in tokens.
        offloads: Whether weights and optimizer state of the policy leave the GPU while they are not used.
        critic: Whether there is one.
        critic_alone: Whether it has GPUs of its own.
        critic_offloads: As ``offloads``.
        reference: Whether a reference policy is held (on the host, layer by layer on the GPU).
        share: vLLM's share of the GPU.
        tensor_parallel: GPUs of a vLLM replica.
        sleeps: Whether vLLM gives its memory back during the update.
    """

    nodes: int
    ranks: int
    tokens: int
    row: int
    master: int
    reference_bytes: int
    offloads: tuple[bool, bool]
    fused: bool
    checkpointing: bool
    reference: bool
    critic: bool
    critic_alone: bool
    critic_master: int
    critic_offloads: tuple[bool, bool]
    critic_tokens: int
    share: float
    tensor_parallel: int
    sleeps: bool

    @property
    def gpus(self) -> int:
        """All GPUs that the run takes."""
        return self.ranks * (2 if self.critic and self.critic_alone else 1)


def read_layout(config: DictConfig) -> Layout:
    """The layout of a translated config."""
    actor, rollout, model = (config.actor_rollout_ref[k] for k in ("actor", "rollout", "model"))
    engine, critic = actor.fsdp_config, config.critic
    return Layout(
        nodes=config.trainer.nnodes,
        ranks=config.trainer.nnodes * config.trainer.n_gpus_per_node,
        tokens=actor.ppo_max_token_len_per_gpu,
        row=rollout.max_model_len,
        master=BYTES[engine.model_dtype],
        reference_bytes=BYTES[config.actor_rollout_ref.ref.fsdp_config.model_dtype],
        offloads=(engine.param_offload, engine.optimizer_offload),
        fused=model.use_fused_kernels,
        checkpointing=model.enable_gradient_checkpointing,
        reference=actor.use_kl_loss,
        critic=config.algorithm.adv_estimator == "gae",
        critic_alone=config.seeupo.get("critic_pool") == "own",
        critic_master=BYTES[critic.fsdp.model_dtype],
        critic_offloads=(critic.fsdp.param_offload, critic.fsdp.optimizer_offload),
        critic_tokens=critic.ppo_max_token_len_per_gpu,
        share=rollout.gpu_memory_utilization,
        tensor_parallel=rollout.tensor_model_parallel_size,
        sleeps=rollout.free_cache_engine,
    )


def phases(layout: Layout, shape: ModelShape, gpu_gib: float) -> list[Phase]:
    """The phases of an iteration on a GPU of the policy, then the critic's update if it has GPUs of its own."""
    resting = _resting(layout, shape)
    asleep = {} if layout.sleeps else {"vLLM": layout.share * gpu_gib}
    states = _states(layout, shape)
    critic = {"critic at rest": resting["critic"]} if resting["critic"] else {}
    at_rest = {"policy at rest": resting["policy"]} if resting["policy"] else {}
    reserve = {"reserve": RESERVE}
    found = [
        Phase("rollout", {"vLLM": layout.share * gpu_gib, **at_rest, **critic, **reserve}),
        Phase("weight sync", {**_weight_sync(layout, shape), **at_rest_optimizer(layout, shape), **critic, **reserve}),
        Phase("update", {**states, **_work(layout, shape, layout.tokens, head=True), **critic, **asleep, **reserve}),
    ]
    if layout.critic:
        work = {**_critic_states(layout, shape), **_work(layout, shape, layout.critic_tokens, head=False)}
        beside = reserve if layout.critic_alone else {**at_rest, **asleep, **reserve}
        found.append(Phase("critic update", {**work, **beside}))
    return [Phase(p.name, {k: round(v, 2) for k, v in p.parts.items()}) for p in found]


def _resting(layout: Layout, shape: ModelShape) -> dict[str, float]:
    """GiB of weights and optimizer states that stay on a GPU of the policy between their uses."""

    def kept(parameters: int, master: int, offloads: tuple[bool, bool]) -> float:
        per_weight = (0 if offloads[0] else master) + (0 if offloads[1] else ADAM_BYTES)
        return parameters * per_weight / layout.ranks / GIB

    critic = layout.critic and not layout.critic_alone
    return {
        "policy": kept(shape.parameters, layout.master, layout.offloads),
        "critic": kept(shape.critic_parameters, layout.critic_master, layout.critic_offloads) if critic else 0.0,
    }


def at_rest_optimizer(layout: Layout, shape: ModelShape) -> dict[str, float]:
    """The optimizer's part of the policy at rest; the weights are on the GPU anyway while they are sent."""
    kept = 0 if layout.offloads[1] else ADAM_BYTES
    return {"optimizer at rest": shape.parameters * kept / layout.ranks / GIB} if kept else {}


def _states(layout: Layout, shape: ModelShape) -> dict[str, float]:
    share = shape.parameters / layout.ranks / GIB
    return {"weights": share * layout.master, "gradients": share * layout.master, "optimizer": share * ADAM_BYTES}


def _critic_states(layout: Layout, shape: ModelShape) -> dict[str, float]:
    share = shape.critic_parameters / layout.ranks / GIB
    master = layout.critic_master
    return {"weights": share * master, "gradients": share * master, "optimizer": share * ADAM_BYTES}


def _weight_sync(layout: Layout, shape: ModelShape) -> dict[str, float]:
    """vLLM's weights, the shard, and the largest tensor gathered in full."""
    return {
        "vLLM weights": shape.parameters * 2 / layout.tensor_parallel / GIB,
        "weights": shape.parameters * layout.master / layout.ranks / GIB,
        "gathered tensor": shape.embedding_parameters * layout.master / GIB,
    }


def _work(layout: Layout, shape: ModelShape, tokens: int, *, head: bool) -> dict[str, float]:
    """What a forward and backward pass over one micro-batch takes beside the states."""
    gathered = 2 * 2 * shape.layer_parameters + (2 + 2 + 4) * shape.layer_parameters
    edges = 2 if head and not shape.tied else 1
    gathered += edges * shape.embedding_parameters * (2 + 2 + 4)
    per_layer = shape.saved_bytes_per_token + shape.working_bytes_per_token
    if layout.checkpointing:
        activations = tokens * (2 * shape.hidden * shape.layers + per_layer)
    else:
        activations = tokens * (shape.saved_bytes_per_token * shape.layers + shape.working_bytes_per_token)
    work = {"gathered layers and gradients": gathered / GIB, "activations": activations / GIB}
    if head:
        work["log-probs"] = log_prob_bytes(layout, shape, tokens) / GIB
    return work


def log_prob_bytes(layout: Layout, shape: ModelShape, tokens: int) -> float:
    """From the last hidden states to log-probs and back.

    Fused: five float32 and two bfloat16 copies of one chunk's logits, and the head's gradient twice. Otherwise
    per token: logits, scaled logits and their gradients in bfloat16 and one float32 copy.
    """
    if layout.fused:
        return CHUNK_TOKENS * shape.vocabulary * (5 * 4 + 2 * 2) + 2 * 2 * shape.embedding_parameters
    return tokens * shape.vocabulary * (4 * 2 + 4)


def cache_tokens(layout: Layout, shape: ModelShape, gpu_gib: float) -> float:
    """Tokens whose keys and values fit one vLLM replica; negative if not even the weights do."""
    room = (layout.share * gpu_gib - VLLM_WORKING) * GIB * layout.tensor_parallel - 2 * shape.parameters
    return room / shape.cache_bytes_per_token


def host_gib(layout: Layout, shape: ModelShape) -> float:
    """GiB of a node's main memory for offloaded states, the reference, and loading.

    The first node holds a whole copy in the master's type while the weights are loaded.
    """
    states = shape.parameters * (
        (layout.master if layout.offloads[0] else 0) + (ADAM_BYTES if layout.offloads[1] else 0)
    )
    if layout.critic and not layout.critic_alone:
        states += shape.critic_parameters * sum(
            size for size, off in zip((layout.critic_master, ADAM_BYTES), layout.critic_offloads, strict=True) if off
        )
    reference = shape.parameters * layout.reference_bytes if layout.reference else 0
    loading = shape.parameters * layout.master
    return ((states + reference) / layout.nodes + loading) / GIB


def checkpoint_gib(layout: Layout, shape: ModelShape) -> float:
    """GiB of one checkpoint: weights in the master's type and Adam's moments, of policy and critic."""
    size = shape.parameters * (layout.master + ADAM_BYTES)
    if layout.critic:
        size += shape.critic_parameters * (layout.critic_master + ADAM_BYTES)
    return size / GIB
