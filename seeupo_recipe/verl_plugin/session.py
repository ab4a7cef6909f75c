"""Run cells through verl."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from omegaconf import OmegaConf

from seeupo_recipe.records.run import FAILED, INTERRUPTED
from seeupo_recipe.runs import Run
from seeupo_recipe.verl_plugin.environment import set_environment


def run_cells(runs: Iterable[Run]) -> None:
    """Run several cells one after the other, each in a Ray session of its own.

    Actors outlive the task that made them for as long as something holds a handle; only the end of the
    session is sure to give their resources back to the next cell. The imports are paid once. verl and ray
    are imported after the environment that they read at import time has been set.
    """
    for run in runs:
        set_environment(run.config)
        try:
            run_cell(run)
        finally:
            if "ray" in sys.modules:
                sys.modules["ray"].shutdown()


def run_cell(run: Run) -> None:
    """Train and evaluate one run; its record says how it ended.

    Raises:
        Exception: Whatever stopped the run, after it has been recorded.
    """
    import ray
    from verl.trainer.main_ppo import run_ppo
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    from seeupo_recipe.verl_plugin.task_runner import CellRunner
    from seeupo_recipe.verl_plugin.translate import verl_config

    config = verl_config(run)
    validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    run.outputs.mkdir(parents=True, exist_ok=True)
    os.environ["TENSORBOARD_DIR"] = str(run.outputs / "tensorboard")
    (run.outputs / "verl_config.yaml").write_text(OmegaConf.to_yaml(config))
    with run.record.locked():
        try:
            run_ppo(config, task_runner_class=ray.remote(num_cpus=1)(CellRunner))
        except KeyboardInterrupt:
            run.record.set_status(INTERRUPTED)
            raise
        except Exception as error:
            run.record.set_status(FAILED, error=_last_line(error))
            raise


def _last_line(error: Exception) -> str:
    """Type and last line of the message: Ray puts the remote traceback before it."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[-1]}"
