"""The executable statements: importing this package registers all of them in ``CHECKS``."""

from seeupo_recipe.theory.checks import (
    advantage,
    cells,
    drift,
    gradients,
    improvement,
    length,
    normalisation,
    optimality,
    sharing,
    solver,
    stuck,
)
from seeupo_recipe.theory.registry import CHECKS

MODULES = (
    gradients,
    advantage,
    drift,
    normalisation,
    improvement,
    optimality,
    stuck,
    length,
    sharing,
    solver,
    cells,
)

__all__ = ["CHECKS", "MODULES"]
