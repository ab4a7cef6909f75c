"""AppWorld: the real engine behind loopback HTTP, with the official tasks or our own short ones.

This process needs neither the ``appworld`` package nor its pydantic 1: worlds run on the interpreter
of ``.venv-appworld``, made by ``scripts/setup_appworld.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the worlds' interpreter imports this package, and has no numpy
    from seeupo_recipe.envs.base import Benchmark


def appworld(**options: Any) -> Benchmark:
    """The official tasks; see :func:`seeupo_recipe.envs.appworld.benchmark.official` for the options."""
    from .benchmark import official

    return official(**options)


def appworld_mini(**options: Any) -> Benchmark:
    """Our own short tasks; see :func:`seeupo_recipe.envs.appworld.benchmark.mini` for the options."""
    from .benchmark import mini

    return mini(**options)
