"""What the lab's trainer is made of, built from the run's config."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import torch
from transformers import PreTrainedModel

from seeupo_recipe.algo.baselines import BASELINES
from seeupo_recipe.config import RunConfig
from seeupo_recipe.lab.adapters import adapter_parameters, add_adapters, select_adapter
from seeupo_recipe.lab.policy import load_critic
from seeupo_recipe.lab.updater import CriticUpdater, LossForm
from seeupo_recipe.runs import ROOT
from seeupo_recipe.seeding import stream_seed


def loss_form(config: RunConfig) -> LossForm:
    """The surrogate of the run's method."""
    algorithm = config.algorithm
    if algorithm.name in ("seeupo", "base"):
        settings = algorithm.settings()
        return LossForm(algorithm.surrogate, settings.loss_ratio, settings.log_ratio_clamp)
    baseline = BASELINES[algorithm.name]
    turn_level = algorithm.name == "ppo" and algorithm.critic.level == "turn"
    ratio = "length_normalised" if turn_level else baseline.loss_ratio
    return LossForm(algorithm.surrogate, ratio, clip=baseline.clipped, token_sum=baseline.token_sum)


def add_turn_policies(model: PreTrainedModel, config: RunConfig) -> Callable[[int], None] | None:
    """Add the run's LoRAs; returns what selects a turn's own, if turns have their own."""
    training = config.training
    if training.adapters == "none":
        return None
    per_turn = training.adapters == "per_turn"
    count = config.benchmark.max_turns if per_turn else 1
    add_adapters(model, count, training.adapter_rank, stream_seed("adapters", config.seed) % 2**31)
    return partial(select_adapter, model) if per_turn else None


def policy_optimizer(model: PreTrainedModel, config: RunConfig) -> torch.optim.Optimizer:
    """Over all weights, or over the LoRAs if there are some."""
    training = config.training
    trained = model.parameters() if training.adapters == "none" else adapter_parameters(model)
    if training.optimizer == "sgd":
        return torch.optim.SGD(trained, lr=training.learning_rate, weight_decay=training.weight_decay)
    return _adamw(trained, config, training.learning_rate)


def make_critic(config: RunConfig, pad_id: int) -> CriticUpdater:
    """PPO's critic: the policy's body, or the one configured, with a fresh head."""
    choices = config.algorithm.critic
    folder = choices.path.replace("{benchmark}", config.benchmark.name) if choices.path else config.model_path
    critic = load_critic(str(ROOT / folder), seed=stream_seed("critic", config.seed) % 2**31)
    return CriticUpdater(
        critic=critic,
        optimizer=_adamw(critic.parameters(), config, choices.learning_rate),
        grad_clip=config.training.grad_clip,
        pad_id=pad_id,
        value_clip=choices.value_clip,
        turn_level=choices.level == "turn",
    )


def _adamw(parameters: Iterable[torch.nn.Parameter], config: RunConfig, rate: float) -> torch.optim.AdamW:
    training = config.training
    return torch.optim.AdamW(
        parameters, lr=rate, betas=(training.beta1, training.beta2), weight_decay=training.weight_decay
    )
