"""Ray worker processes that import verl before the actors they become are asked for.

verl creates its actors one after the other and each spends most of its start importing torch, transformers and
verl, with one core busy. Ray gives an actor an idle process of the same job and runtime environment if there is
one, so tasks that import the same modules at once, at the very start, take that time off all actors but the
workers, which have an environment of their own.
"""

from __future__ import annotations

import importlib
from typing import Any

import ray

ACTORS = 5  # TransferQueue's controller and storage, the inference server, its load balancer, the agent loop
MODULES = ("seeupo_recipe.verl_plugin.cpu.rollout", "seeupo_recipe.verl_plugin.agent_loop")


class PrestartedRunner:
    """A task runner class for ``run_ppo`` that starts the processes together with the runner."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner

    def options(self, **options: Any) -> Any:
        return PrestartedRunner(self._runner.options(**options))

    def remote(self) -> Any:
        handle = self._runner.remote()
        for _ in range(ACTORS):
            _import_modules.remote()
        return handle


@ray.remote(num_cpus=0)
def _import_modules() -> None:
    for name in MODULES:
        importlib.import_module(name)
