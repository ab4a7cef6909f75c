"""What to change so that a cell fits: each setting is tried on the memory model, and one that suffices is named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from seeupo_recipe.cluster.memory import Layout, cache_tokens, phases
from seeupo_recipe.cluster.shape import ModelShape

ACTOR, ROLLOUT = "verl.actor_rollout_ref.actor", "verl.actor_rollout_ref.rollout"
SMALLEST_SHARE = 0.2


def problems(layout: Layout, shape: ModelShape, gpu_gib: float) -> list[str]:
    """One line per reason why the cell cannot run on GPUs of ``gpu_gib``, with what to change."""
    found = []
    if layout.row > shape.max_positions:
        found.append(
            f"rows of {layout.row} tokens, but the model has {shape.max_positions} positions: lower "
            "benchmark.max_prompt_tokens or benchmark.max_new_tokens"
        )
    if layout.tokens < layout.row:
        found.append(
            f"a micro-batch of {layout.tokens} tokens cannot hold a row of {layout.row}: set "
            f"{ACTOR}.ppo_max_token_len_per_gpu={layout.row}"
        )
    if layout.ranks % layout.tensor_parallel:
        found.append(
            f"{layout.ranks} GPUs are no multiple of {ROLLOUT}.tensor_model_parallel_size={layout.tensor_parallel}"
        )
    worst = max(phases(layout, shape, gpu_gib), key=lambda phase: phase.total)
    if worst.total > gpu_gib:
        found.append(
            f"{worst.name} needs {worst.total:.0f} GiB of {gpu_gib:.0f} per GPU: {remedy(layout, shape, gpu_gib)}"
        )
    elif (room := cache_tokens(layout, shape, gpu_gib)) < layout.row:
        found.append(
            f"vLLM has room for {max(0, int(room))} tokens, a context takes {layout.row}: "
            f"{cache_remedy(layout, shape, gpu_gib)}"
        )
    return found


def remedy(layout: Layout, shape: ModelShape, gpu_gib: float) -> str:
    """One change that makes everything fit, else as many as it takes, else more GPUs."""
    candidates = list(changes(layout))
    for text, change in candidates:
        if fits(replace(layout, **change), shape, gpu_gib):
            return f"set {text}"
    chosen: dict[tuple, str] = {}
    changed = layout
    for text, change in candidates:
        smaller = replace(changed, **change)
        if _peak(smaller, shape, gpu_gib) < _peak(changed, shape, gpu_gib):
            changed = smaller
            chosen[tuple(change)] = text
            if fits(changed, shape, gpu_gib):
                return "set " + " ".join(chosen.values())
    for factor in (2, 4):
        if fits(replace(changed, nodes=layout.nodes * factor, ranks=layout.ranks * factor), shape, gpu_gib):
            return "set " + " ".join([*chosen.values(), f"verl.trainer.nnodes={layout.nodes * factor}"])
    return "no setting makes it fit: use a smaller model, shorter lengths or larger GPUs"


def _peak(layout: Layout, shape: ModelShape, gpu_gib: float) -> float:
    return max(phase.total for phase in phases(layout, shape, gpu_gib))


def changes(layout: Layout) -> Iterator[tuple[str, dict]]:
    """Settings that lower the need and are not taken yet, the cheapest first."""
    if not layout.fused:
        yield "verl.actor_rollout_ref.model.use_fused_kernels=true", {"fused": True}
    if not layout.sleeps:
        yield f"{ROLLOUT}.free_cache_engine=true", {"sleeps": True}
    if not layout.checkpointing:
        yield "verl.actor_rollout_ref.model.enable_gradient_checkpointing=true", {"checkpointing": True}
    if not layout.offloads[1]:
        moved = {"offloads": (layout.offloads[0], True)}
        yield f"{ACTOR}.fsdp_config.optimizer_offload=true", moved
    if not all(layout.offloads):
        both = f"{ACTOR}.fsdp_config.param_offload=true {ACTOR}.fsdp_config.optimizer_offload=true"
        yield both, {"offloads": (True, True)}
    if layout.critic and not layout.critic_alone and not all(layout.critic_offloads):
        yield (
            "verl.critic.fsdp.param_offload=true verl.critic.fsdp.optimizer_offload=true",
            {"critic_offloads": (True, True)},
        )
    for tenths in range(int(layout.share * 10 + 1e-9) - 1, int(SMALLEST_SHARE * 10) - 1, -1):
        yield f"{ROLLOUT}.gpu_memory_utilization={tenths / 10}", {"share": tenths / 10}
    if layout.tokens > layout.row:
        yield f"{ACTOR}.ppo_max_token_len_per_gpu={layout.row}", {"tokens": layout.row, "critic_tokens": layout.row}
    if layout.critic and not layout.critic_alone:
        yield "verl.seeupo.critic_pool=own", {"critic_alone": True}


def fits(layout: Layout, shape: ModelShape, gpu_gib: float) -> bool:
    """Whether every phase fits and vLLM can hold one longest context."""
    return (
        all(phase.total <= gpu_gib for phase in phases(layout, shape, gpu_gib))
        and cache_tokens(layout, shape, gpu_gib) >= layout.row
    )


def cache_remedy(layout: Layout, shape: ModelShape, gpu_gib: float) -> str:
    """A larger share of the GPU, or more GPUs per replica."""
    for tenths in range(int(layout.share * 10) + 1, 10):
        if fits(replace(layout, share=tenths / 10), shape, gpu_gib):
            return f"set {ROLLOUT}.gpu_memory_utilization={tenths / 10}"
    size = layout.tensor_parallel * 2
    while size <= layout.ranks:
        if fits(replace(layout, tensor_parallel=size), shape, gpu_gib):
            return f"set {ROLLOUT}.tensor_model_parallel_size={size}"
        size *= 2
    return "use shorter lengths, a smaller model or larger GPUs"
