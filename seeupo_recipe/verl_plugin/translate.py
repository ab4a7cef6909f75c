"""From a run config to verl's own config tree."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf, open_dict

from seeupo_recipe.algo.baselines import BASELINES
from seeupo_recipe.config import RunConfig
from seeupo_recipe.runs import ROOT, Run
from seeupo_recipe.strict import ConfigError, unknown_key_message

UNCLIPPED = 1e6
# Keys that verl reads although its YAML files do not list them, and trees with free keys.
EXTRA_KEYS = (
    "actor_rollout_ref.rollout.agent.agent_loop_manager_class",
    "critic.ppo_infer_max_token_len_per_gpu",
    "critic.ppo_max_token_len_per_gpu",
)
# Keys of the plugin's section that a recipe sets in its ``verl`` tree: where things run, not what is computed.
PLUGIN_KEYS = ("seeupo.critic_pool", "seeupo.drift_action", "seeupo.drift_limit")
FREE_TREES = (
    "actor_rollout_ref.model.override_config",
    "critic.model.override_config",
    "actor_rollout_ref.actor.fsdp_config.mixed_precision",
    "actor_rollout_ref.ref.fsdp_config.mixed_precision",
    "critic.fsdp.mixed_precision",
    "actor_rollout_ref.rollout.engine_kwargs",
    "ray_kwargs.ray_init",
)


def verl_config(run: Run) -> DictConfig:
    """verl's stock config with the run's values, the recipe's ``verl`` keys and ours.

    Raises:
        ConfigError: If a ``verl`` key does not exist in verl 0.9.1.
    """
    stock = stock_config()
    config = run.config
    known = {*_dotted(OmegaConf.to_container(stock, resolve=False)), *PLUGIN_KEYS}
    with open_dict(stock):
        stock.seeupo = _seeupo_section(config)
    values = {**_derived(run), **flatten(config.verl)}
    for key, value in values.items():
        free = key.startswith(tuple(f"{tree}." for tree in FREE_TREES)) or key in FREE_TREES or key in EXTRA_KEYS
        if key not in known and not free:
            raise ConfigError(unknown_key_message(key, known, "the verl section"))
        OmegaConf.update(stock, key, value, force_add=True)
    with open_dict(stock):
        stock.seeupo_run = {"run_id": run.run_id, "record": str(run.record.folder), "config": config.as_dict()}
        stock.data.seeupo_run = config.as_dict()
    return stock


def stock_config() -> DictConfig:
    """verl's ``ppo_trainer`` config as it ships."""
    spec = importlib.util.find_spec("verl")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("verl is not installed: make setup")
    folder = Path(spec.submodule_search_locations[0]) / "trainer" / "config"
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(folder), version_base=None):
        return compose("ppo_trainer")


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys of a nested mapping; empty mappings and lists are values."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{name}."))
        else:
            flat[name] = value
    return flat


def longest_row(config: RunConfig) -> int:
    """Tokens of the longest turn row, which a micro-batch must be able to hold (release: its token budget)."""
    return config.benchmark.max_prompt_tokens + config.benchmark.max_new_tokens


def _dotted(tree: Mapping[str, Any], prefix: str = "") -> list[str]:
    names = []
    for key, value in tree.items():
        names.append(f"{prefix}{key}")
        if isinstance(value, Mapping):
            names += _dotted(value, f"{prefix}{key}.")
    return names


def _derived(run: Run) -> dict[str, Any]:
    """The verl keys that follow from the run config."""
    config, actor, rollout = run.config, "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    training, bounds, surrogate = config.training, config.benchmark, config.algorithm.surrogate
    local = ROOT / config.model_path
    model = str(local) if local.is_dir() else config.model_path
    values = {
        "data.train_files": "seeupo://train",
        "data.val_files": "seeupo://train",
        "data.custom_cls.path": "pkg://seeupo_recipe.verl_plugin.dataset",
        "data.custom_cls.name": "TaskDataset",
        "data.train_batch_size": training.tasks_per_iteration,
        "data.max_prompt_length": bounds.max_prompt_tokens,
        "data.max_response_length": bounds.max_new_tokens,
        "data.shuffle": False,
        "data.dataloader_num_workers": 0,
        "actor_rollout_ref.model.path": model,
        f"{actor}.optim.optimizer": {"adamw": "AdamW", "sgd": "SGD"}[training.optimizer],
        f"{actor}.optim.lr": training.learning_rate,
        f"{actor}.optim.weight_decay": training.weight_decay,
        f"{actor}.optim.betas": [training.beta1, training.beta2],
        f"{actor}.optim.clip_grad": training.grad_clip,
        f"{actor}.grad_clip": training.grad_clip,
        f"{actor}.clip_ratio_low": surrogate.clip_low,
        f"{actor}.clip_ratio_high": surrogate.clip_high,
        f"{actor}.clip_ratio_c": UNCLIPPED,
        f"{actor}.use_kl_loss": surrogate.kl_coefficient > 0,
        f"{actor}.kl_loss_coef": surrogate.kl_coefficient,
        f"{actor}.kl_loss_type": "low_var_kl",
        f"{actor}.entropy_coeff": surrogate.entropy_coefficient,
        f"{actor}.loss_agg_mode": "seq-mean-token-mean",
        f"{actor}.ppo_epochs": config.algorithm.inner_epochs,
        f"{actor}.ppo_mini_batch_size": training.tasks_per_iteration,
        f"{actor}.ppo_max_token_len_per_gpu": longest_row(config),
        f"{actor}.fsdp_config.seed": config.seed,
        f"{rollout}.n": training.group_size,
        f"{rollout}.temperature": training.temperature,
        f"{rollout}.calculate_log_probs": True,
        f"{rollout}.max_model_len": longest_row(config),
        f"{rollout}.seed": config.seed,
        f"{rollout}.agent.default_agent_loop": "seeupo_turns",
        f"{rollout}.agent.agent_loop_manager_class": "seeupo_recipe.verl_plugin.agent_worker.TurnLoopManager",
        f"{rollout}.agent.agent_loop_config_path": str(Path(__file__).with_name("agent_loops.yaml")),
        f"{rollout}.val_kwargs.temperature": config.evaluation.temperature,
        f"{rollout}.val_kwargs.top_p": config.evaluation.top_p,
        f"{rollout}.val_kwargs.top_k": config.evaluation.top_k,
        f"{rollout}.val_kwargs.do_sample": config.evaluation.temperature > 0,
        "algorithm.adv_estimator": "gae" if config.algorithm.name == "ppo" else "grpo",
        "trainer.v1.trainer_mode": "seeupo_recorded" if config.algorithm.name == "seeupo" else "turn_rows_recorded",
        "trainer.total_epochs": 1,
        "trainer.total_training_steps": training.iterations,
        "trainer.val_before_train": False,
        "trainer.test_freq": -1,
        "trainer.save_freq": training.checkpoint_every,
        "trainer.project_name": "seeupo",
        "trainer.experiment_name": run.run_id,
        "trainer.default_local_dir": str(run.outputs / "checkpoints"),
        "trainer.logger": ["tensorboard"],
    }
    values.update(_method_keys(config, actor))
    if config.algorithm.name == "ppo":
        values.update(_critic_keys(config, model))
    return values


def _method_keys(config: RunConfig, actor: str) -> dict[str, Any]:
    """Loss keys of a baseline in verl's terms."""
    baseline = BASELINES.get(config.algorithm.name)
    if baseline is None:
        return {}
    keys: dict[str, Any] = {}
    if baseline.loss_ratio == "length_normalised":
        keys[f"{actor}.policy_loss.loss_mode"] = "gspo"
    if baseline.token_sum:
        keys[f"{actor}.loss_agg_mode"] = "seq-mean-token-sum"
    if not baseline.clipped:
        keys[f"{actor}.clip_ratio_low"] = keys[f"{actor}.clip_ratio_high"] = UNCLIPPED
    return keys


def _critic_keys(config: RunConfig, policy_path: str) -> dict[str, Any]:
    critic = config.algorithm.critic
    path = critic.path.replace("{benchmark}", config.benchmark.name) if critic.path else policy_path
    return {
        "critic.model.path": path,
        "critic.model.tokenizer_path": path,
        "critic.optim.lr": critic.learning_rate,
        "critic.optim.weight_decay": config.training.weight_decay,
        "critic.optim.clip_grad": config.training.grad_clip,
        "critic.cliprange_value": critic.value_clip,
        "critic.loss_agg_mode": "seq-mean-token-mean",
        "critic.ppo_epochs": config.algorithm.inner_epochs,
        "critic.ppo_mini_batch_size": config.training.tasks_per_iteration,
        "critic.ppo_max_token_len_per_gpu": longest_row(config),
        "critic.ppo_infer_max_token_len_per_gpu": longest_row(config),
        "algorithm.gamma": critic.gamma,
        "algorithm.lam": critic.lam,
    }


def _seeupo_section(config: RunConfig) -> dict[str, Any]:
    algorithm = config.algorithm
    section: dict[str, Any] = {"seed": config.seed, "inner_mini_batches": algorithm.inner_mini_batches}
    if algorithm.name == "seeupo":
        return {**section, **algorithm.settings().as_dict(), "horizon": config.benchmark.max_turns}
    method = algorithm.name if algorithm.name in BASELINES else "grpo"
    section.update(method=method, steps_per_iteration=algorithm.steps_per_iteration)
    return {**section, "whiten_advantages": algorithm.critic.whiten}
