"""One run as a study of one cell, for ``make train``."""

from __future__ import annotations

from collections.abc import Sequence

from seeupo_recipe.compose import options
from seeupo_recipe.config import BACKENDS, SCALES
from seeupo_recipe.strict import ConfigError
from seeupo_recipe.study.spec import Defaults, Matrix, Study, Variant, nearest


def single_study(
    *, scale: str, backend: str, model: str, benchmark: str, algorithm: str, overrides: Sequence[str]
) -> Study:
    """A study with one variant.

    Raises:
        ConfigError: With one line that names the wrong variable and the nearest valid value.
    """
    for variable, value, allowed in (
        ("SCALE", scale, SCALES),
        ("BACKEND", backend, BACKENDS),
        ("MODEL", model, options("model")),
        ("BENCH", benchmark, options("benchmark")),
        ("ALGO", algorithm, options("algorithm")),
    ):
        if value not in allowed:
            raise ConfigError(f"{variable}={value}: {nearest(value, allowed)}")
    return Study(
        name="train",
        title=f"{algorithm} on {benchmark}",
        question="",
        scales={scale: Matrix((model,), (benchmark,))},
        variants=(Variant(algorithm, algorithm, (f"algorithm={algorithm}", *overrides)),),
        defaults=Defaults(backend=backend),
    )
