"""The ``seeupo`` section of a verl config, and what of verl's own config cannot work with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from seeupo_recipe.algo.baselines import BASELINES
from seeupo_recipe.algo.settings import AlgorithmSettings, SurrogateSettings, resolve_settings
from seeupo_recipe.strict import ConfigError, build_strict, unknown_key_message


@dataclass(frozen=True)
class PluginOptions:
    """Keys of the ``seeupo`` section beside those of ``AlgorithmSettings`` and ``profile``.

    Attributes:
        method: A baseline, for ``trainer_mode=turn_rows`` only.
        steps_per_iteration: Optimizer steps of a baseline: ``one``, ``matched`` or a number.
        inner_mini_batches: Parts into which each pool is cut, one optimizer step each.
        seed: Seed of random orders and of random parts.
        horizon: T, the largest number of turns; needed by ``step_empty_pools``.
        whiten_advantages: PPO: whether GAE is whitened over the iteration's sampled tokens.
        drift_limit: Largest mean absolute difference between rollout and trainer log-probabilities.
        drift_action: ``warn`` or ``abort`` if it is passed.
        critic_pool: PPO: ``shared``, the critic works on the policy's GPUs, or ``own``, on as many others.
    """

    method: str | None = None
    steps_per_iteration: str | int = "one"
    inner_mini_batches: int = 1
    seed: int = 0
    horizon: int | None = None
    whiten_advantages: bool = True
    drift_limit: float = 0.05
    drift_action: str = "warn"
    critic_pool: str = "shared"

    def __post_init__(self) -> None:
        if self.method is not None and self.method not in BASELINES:
            raise ConfigError(f"method={self.method!r}: choose one of {', '.join(BASELINES)}")
        if self.inner_mini_batches < 1:
            raise ConfigError(f"inner_mini_batches={self.inner_mini_batches}: must be at least 1")
        if self.drift_action not in ("warn", "abort"):
            raise ConfigError(f"drift_action={self.drift_action!r}: choose warn or abort")
        if self.critic_pool not in ("shared", "own"):
            raise ConfigError(f"critic_pool={self.critic_pool!r}: choose shared or own")


@dataclass(frozen=True)
class PluginConfig:
    """Everything the trainers read beyond verl's own keys; ``surrogate`` is SeeUPO's alone."""

    options: PluginOptions
    settings: AlgorithmSettings
    surrogate: SurrogateSettings | None
    inner_epochs: int


def read_config(config: DictConfig) -> PluginConfig:
    """Read and check the ``seeupo`` section and the verl keys it depends on.

    Raises:
        ConfigError: With one line that names the key and what to change.
    """
    section = config.get("seeupo") or {}
    given: Mapping[str, Any] = OmegaConf.to_container(section, resolve=True) if section else {}
    option_names = {f.name for f in dataclasses.fields(PluginOptions)}
    setting_names = {f.name for f in dataclasses.fields(AlgorithmSettings)} | {"profile"}
    for key in given:
        if key not in option_names | setting_names:
            raise ConfigError(unknown_key_message(key, option_names | setting_names, "the seeupo section"))
    options = build_strict(PluginOptions, {k: v for k, v in given.items() if k in option_names}, where="seeupo")
    settings = resolve_settings({k: v for k, v in given.items() if k in setting_names})
    if settings.step_empty_pools and options.horizon is None:
        raise ConfigError("seeupo.step_empty_pools needs seeupo.horizon, the largest number of turns")
    if not is_seeupo(config) and options.method is None:
        raise ConfigError(f"trainer_mode=turn_rows needs seeupo.method: one of {', '.join(BASELINES)}")
    refuse_unsupported(config)
    surrogate = _surrogate(config) if is_seeupo(config) else None
    return PluginConfig(options, settings, surrogate, config.actor_rollout_ref.actor.ppo_epochs)


def is_seeupo(config: DictConfig) -> bool:
    """Whether the config selects SeeUPO, recorded or not, rather than a baseline."""
    return config.trainer.v1.trainer_mode.startswith("seeupo")


def _surrogate(config: DictConfig) -> SurrogateSettings:
    actor = config.actor_rollout_ref.actor
    return SurrogateSettings(
        clip_low=actor.clip_ratio_low,
        clip_high=actor.clip_ratio_high,
        kl_coefficient=actor.kl_loss_coef if actor.use_kl_loss else 0.0,
        entropy_coefficient=actor.entropy_coeff,
    )


def refuse_unsupported(config: DictConfig) -> None:
    """Refuse verl settings that the turn-row trainers would ignore or break.

    Raises:
        ConfigError: With the key and the value that works.
    """
    actor = config.actor_rollout_ref.actor
    seeupo = is_seeupo(config)
    correction = config.algorithm.get("rollout_correction") or {}
    rules = [
        ("actor_rollout_ref.actor.strategy", actor.strategy not in ("fsdp", "fsdp2"), "fsdp2"),
        (
            "actor_rollout_ref.actor.ulysses_sequence_parallel_size",
            actor.ulysses_sequence_parallel_size != 1,
            "1: sequence parallelism is not supported",
        ),
        ("actor_rollout_ref.hybrid_engine", not config.actor_rollout_ref.hybrid_engine, "true"),
        (
            "actor_rollout_ref.model.lora_rank",
            config.actor_rollout_ref.model.get("lora_rank", 0) > 0,
            "0: a LoRA policy, whose reference is its own base, is not supported",
        ),
        ("algorithm.use_kl_in_reward", config.algorithm.use_kl_in_reward, "false: use actor.use_kl_loss"),
        (
            "algorithm.rollout_correction.bypass_mode",
            bool(correction.get("bypass_mode")),
            "false: the ratio's denominator is computed by the trainer",
        ),
        ("algorithm.rollout_correction.rollout_is", correction.get("rollout_is") is not None, "null"),
        ("algorithm.rollout_correction.rollout_rs", correction.get("rollout_rs") is not None, "null"),
        ("actor_rollout_ref.actor.shuffle", actor.shuffle, "false: pools are cut by the trainer"),
        (
            "actor_rollout_ref.actor.kl_loss_type",
            actor.use_kl_loss and actor.kl_loss_type not in ("low_var_kl", "k3"),
            "low_var_kl",
        ),
        (
            "actor_rollout_ref.actor.policy_loss.loss_mode",
            seeupo and actor.policy_loss.loss_mode != "vanilla",
            "vanilla: SeeUPO brings its own loss (seeupo.loss_ratio chooses its form)",
        ),
        ("algorithm.adv_estimator", seeupo and config.algorithm.adv_estimator == "gae", "grpo: SeeUPO has no critic"),
        ("distillation.enabled", bool((config.get("distillation") or {}).get("enabled")), "false"),
    ]
    for key, refused, wanted in rules:
        if refused:
            raise ConfigError(f"{key}={OmegaConf.select(config, key)} does not work with turn rows: set {key}={wanted}")
