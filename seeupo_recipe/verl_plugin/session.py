"""Run cells through verl in one Ray session."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import ray
from omegaconf import OmegaConf
from verl.trainer.main_ppo import TaskRunnerV1, run_ppo
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import validate_config

from seeupo_recipe.records.run import FAILED, INTERRUPTED
from seeupo_recipe.runs import Run
from seeupo_recipe.verl_plugin.translate import verl_config

_Runner = TaskRunnerV1.__ray_metadata__.modified_class


class CellRunner(_Runner):
    """verl's task runner, without printing the whole config."""

    def run(self, config: Any) -> None:
        from seeupo_recipe.verl_plugin import assert_ready

        assert_ready(config.trainer.device)
        super().run(config)


def run_cell(run: Run) -> None:
    """Train and evaluate one run; its record says how it ended.

    Raises:
        Exception: Whatever stopped the run, after it has been recorded.
    """
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
            run.record.set_status(
                FAILED, error=f"{type(error).__name__}: {str(error).splitlines()[-1] if str(error) else ''}"
            )
            raise


def run_cells(runs: Iterable[Run]) -> None:
    """Run several cells one after the other; Ray is started once and stopped at the end."""
    try:
        for run in runs:
            run_cell(run)
    finally:
        ray.shutdown()
