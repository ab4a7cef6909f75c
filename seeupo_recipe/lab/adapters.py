"""LoRA policies of the lab: one for all turns, or one per turn so that turns share no trained weight."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.tuners_utils import BaseTunerLayer
from transformers import PreTrainedModel

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
MARK = "lora_"


def add_adapters(model: PreTrainedModel, count: int, rank: int, seed: int) -> None:
    """Give every linear layer of the blocks ``count`` LoRAs, in place; at first none changes the policy.

    Args:
        model: The policy; its own weights are frozen.
        count: Number of LoRAs, named by their index.
        rank: Rank of each; alpha is twice the rank.
        seed: Of their random halves.
    """
    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=list(TARGETS))
    with torch.random.fork_rng(), warnings.catch_warnings():
        torch.manual_seed(seed)
        warnings.filterwarnings("ignore", message="Already found a `peft_config`")
        for index in range(count):
            inject_adapter_in_model(config, model, adapter_name=str(index))
    select_adapter(model, 0)


def select_adapter(model: PreTrainedModel, index: int) -> None:
    """Make LoRA ``index`` the policy; only it takes gradients."""
    for module in model.modules():
        if isinstance(module, BaseTunerLayer):
            module.set_adapter(str(index))


def adapter_parameters(model: PreTrainedModel) -> Iterator[torch.nn.Parameter]:
    """The weights of all LoRAs."""
    return (parameter for name, parameter in model.named_parameters() if MARK in name)
