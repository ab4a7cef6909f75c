"""The small config that stands for a cell of the paper on a CPU, and everything in which the two differ."""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from seeupo_recipe.cluster.cells import Cell, verl_tree
from seeupo_recipe.cluster.environments import check_environment
from seeupo_recipe.cluster.shape import model_shape
from seeupo_recipe.cluster.standin import benchmark_actions, save_standin
from seeupo_recipe.compose import compose_config
from seeupo_recipe.config import BenchmarkConfig, ModelConfig, RunConfig
from seeupo_recipe.strict import ConfigError
from seeupo_recipe.verl_plugin.translate import flatten

ITERATIONS, TASKS = 2, 2
PROMPT, MESSAGE, OBSERVATION = 3000, 24, 60
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 4096,
}
UNPATHED = ("seeupo_run", "data.seeupo_run", "trainer.experiment_name", "trainer.default_local_dir")


@dataclass(frozen=True)
class DryCell:
    """A cell and the small config that stands for it on the CPU."""

    cell: Cell
    config: RunConfig


def shrink(cell: Cell, folder: Path) -> DryCell:
    """The small config of a cell; writes its stand-in model under ``folder``.

    Raises:
        ConfigError: If the benchmark's environment is not set up.
    """
    real = cell.config
    family = model_shape(real).family
    model = folder / f"{real.benchmark.name}-{family}"
    benchmark = _reachable_benchmark(real.benchmark, model)
    if not model.exists():
        save_standin(model, benchmark_actions(benchmark.name), family, **SIZES)
    check_environment(benchmark)
    config = dataclasses.replace(
        real,
        model=ModelConfig(f"standin-{family}", str(model), real.model.template, real.model.chat_template_kwargs),
        benchmark=benchmark,
        training=dataclasses.replace(real.training, iterations=ITERATIONS, tasks_per_iteration=TASKS),
        algorithm=dataclasses.replace(real.algorithm, critic=dataclasses.replace(real.algorithm.critic, path=None)),
        evaluation=dataclasses.replace(real.evaluation, samples_per_task=1, every=0),
        verl=_cpu_tree(real),
    )
    return DryCell(cell, config)


def _reachable_benchmark(real: BenchmarkConfig, model: Path) -> BenchmarkConfig:
    """The real benchmark with short lengths; for AppWorld without its official data, our own tasks on its engine."""
    small = {"max_prompt_tokens": PROMPT, "max_new_tokens": MESSAGE}
    options = dict(real.options)
    for option in ("observation_chars", "observation_tokens"):
        if option in options:
            options[option] = OBSERVATION
    if "tokenizer" in options:
        options["tokenizer"] = str(model)
    candidates = [dataclasses.replace(real, options=options, **small)]
    if real.name == "appworld":
        mini = {"reward": options["reward"], "max_turns": real.max_turns, "observation_tokens": OBSERVATION}
        candidates.append(dataclasses.replace(real, name="appworld-mini", options=mini, **small))
    for candidate in candidates[:-1]:
        with contextlib.suppress(ConfigError):
            check_environment(candidate, episode=False)
            return candidate
    check_environment(candidates[-1], episode=False)
    return candidates[-1]


def _cpu_tree(real: RunConfig) -> dict[str, Any]:
    """The mini scale's verl settings, with what the real cell sets about the computation itself."""
    mini = compose_config(["scale=mini"]).verl
    model = real.verl["actor_rollout_ref"]["model"]
    kept = {key: model[key] for key in ("use_fused_kernels", "fused_kernel_options", "enable_gradient_checkpointing")}
    tree = OmegaConf.merge(mini, {"actor_rollout_ref": {"model": kept}, "seeupo": real.verl["seeupo"]})
    tree.ray_kwargs.ray_init.num_gpus = 2  # as many pools as PPO has; a pool is one process here
    for section in (tree.actor_rollout_ref.actor, tree.critic):
        for key in ("ppo_max_token_len_per_gpu", "ppo_infer_max_token_len_per_gpu"):
            section.pop(key, None)
    return OmegaConf.to_container(tree)


def differences(dry: DryCell) -> dict[str, tuple[Any, Any]]:
    """Every key of the run's config, and of verl's, that differs: (value of the real cell, value here).

    Keys of the project's own config come first. Left out are verl's paths of the run, and copies of the config.
    """
    real, small = dry.cell.config, dry.config
    own = _differing(real.as_dict(), small.as_dict(), skip=("verl.",))
    trees = [OmegaConf.to_container(verl_tree(c), resolve=False) for c in (real, small)]
    return {**own, **{f"verl.{k}": v for k, v in _differing(*trees, skip=UNPATHED).items()}}


def _differing(real: dict[str, Any], small: dict[str, Any], skip: tuple[str, ...]) -> dict[str, tuple[Any, Any]]:
    real, small = flatten(real), flatten(small)
    keys = [key for key in sorted({*real, *small}) if not key.startswith(skip)]
    return {key: (real.get(key), small.get(key)) for key in keys if real.get(key) != small.get(key)}
