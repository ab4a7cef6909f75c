"""Check a composed config as far as it goes without a GPU: verl's own dataclasses, and the plugin's rules."""

from __future__ import annotations

import contextlib
import io
import warnings
from pathlib import Path

from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from seeupo_recipe.cluster.cells import verl_tree
from seeupo_recipe.config import RunConfig
from seeupo_recipe.strict import ConfigError

TYPED = ("actor_rollout_ref.rollout", "actor_rollout_ref.model", "actor_rollout_ref.ref.fsdp_config", "algorithm")


def validate(config: RunConfig, model_folder: Path | None = None) -> DictConfig:
    """verl's config of a run after every check that verl and the plugin make before they start workers.

    Args:
        model_folder: Stands for the paths of policy and critic, whose files verl's dataclasses read.

    Raises:
        ConfigError: With what verl or the plugin refuse.
    """
    from omegaconf import OmegaConf
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    from seeupo_recipe.verl_plugin.config import read_config

    tree = verl_tree(config)
    if model_folder is not None:
        for model in (tree.actor_rollout_ref.model, tree.critic.model):
            model.path = model.tokenizer_path = str(model_folder)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            validate_config(tree, use_reference_policy=need_reference_policy(tree), use_critic=need_critic(tree))
            for key in TYPED:
                omega_conf_to_dataclass(OmegaConf.select(tree, key))
    except (AssertionError, ValueError, TypeError, OSError, OmegaConfBaseException) as error:
        raise ConfigError(f"verl refuses the config: {_first_line(error)}") from None
    read_config(tree)
    return tree


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
