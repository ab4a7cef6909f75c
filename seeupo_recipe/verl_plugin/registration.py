"""Entries in verl's registries, made when the module that owns the registry has been imported."""

from types import ModuleType


def register_trainers(module: ModuleType) -> None:
    """``trainer.v1.trainer_mode``: seeupo, turn_rows, and their recorded forms."""
    from seeupo_recipe.verl_plugin import recorded, seeupo_trainer, turn_rows  # noqa: F401


def register_replica(module: ModuleType) -> None:
    """``rollout.name=hf_cpu`` on the driver's side."""

    def load() -> type:
        from seeupo_recipe.verl_plugin.cpu.rollout import HFReplica

        return HFReplica

    module.RolloutReplicaRegistry.register("hf_cpu", load)


def register_rollout(module: ModuleType) -> None:
    """``rollout.name=hf_cpu`` on the worker's side; verl offers no function for this registry."""
    module._ROLLOUT_REGISTRY[("hf_cpu", "async")] = "seeupo_recipe.verl_plugin.cpu.rollout.HFServerAdapter"
