"""verl's task runner with the plugin's start-up checks."""

from __future__ import annotations

from typing import Any

from verl.trainer.main_ppo import TaskRunnerV1

from seeupo_recipe.verl_plugin import assert_ready


class CellRunner(TaskRunnerV1.__ray_metadata__.modified_class):
    """Fails at once, with one line, if the plugin or the platform is not what the config asks for."""

    def run(self, config: Any) -> None:
        assert_ready(config.trainer.device)
        super().run(config)
