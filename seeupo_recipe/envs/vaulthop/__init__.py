"""VaultHop, the diagnostic environment: multi-turn, stochastic, with a known optimum."""

from seeupo_recipe.envs.vaulthop.environment import VaultHop, vaulthop, vaulthop_trap

__all__ = ["VaultHop", "vaulthop", "vaulthop_trap"]
