"""The executable statements. Importing this package registers all of them in ``registry.CHECKS``."""

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

__all__ = [
    "advantage",
    "cells",
    "drift",
    "gradients",
    "improvement",
    "length",
    "normalisation",
    "optimality",
    "sharing",
    "solver",
    "stuck",
]
