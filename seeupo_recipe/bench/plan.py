"""What the benchmark runs: sizes of rows and model, and the cases."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seeupo_recipe.bench.rollouts import SHAPES


@dataclass(frozen=True)
class Case:
    """One setting under which all methods are compared.

    Attributes:
        ranks: Data-parallel size.
        shape: ``equal`` or ``ragged``.
        turns: T.
        kl: Whether the KL term is on.
        repeats: How often every method runs.
    """

    ranks: int
    shape: str
    turns: int
    kl: bool
    repeats: int

    def as_dict(self) -> dict[str, Any]:
        return {"ranks": self.ranks, "shape": self.shape, "turns": self.turns, "kl": self.kl}

    def __str__(self) -> str:
        return f"{self.ranks} rank(s), {self.shape}, T={self.turns}, KL {'on' if self.kl else 'off'}"


@dataclass(frozen=True)
class Plan:
    """Model, rows and cases.

    Attributes:
        width: Hidden size of the policy.
        layers: Decoder layers of the policy.
        sizes: Arguments of :func:`~seeupo_recipe.bench.rollouts.record` beside turns and shape.
        cases: What is run.
    """

    width: int
    layers: int
    sizes: dict[str, int]
    cases: tuple[Case, ...]

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(dataclasses.asdict(self)))

    @staticmethod
    def read(path: Path) -> Plan:
        fields = json.loads(path.read_text())
        return Plan(**{**fields, "cases": tuple(Case(**case) for case in fields["cases"])})


def full_plan(repeats: int = 3) -> Plan:
    """22 M parameters; every T on one rank with KL, T = 10 without it, T = 5 and 10 on two ranks.

    T = 20, half of the whole cost, runs once less.
    """
    grid = [(1, shape, turns, True) for turns in (5, 10, 20, 2) for shape in SHAPES]
    grid += [(1, shape, 10, False) for shape in SHAPES]
    grid += [(2, "equal", 5, True), (2, "ragged", 10, True), (2, "ragged", 10, False)]
    cases = tuple(Case(*setting, repeats=max(1, repeats - (setting[2] == 20))) for setting in grid)
    sizes = {"groups": 2, "group_size": 4, "prompt": 6, "response": 3, "vocabulary": 300}
    return Plan(width=512, layers=7, sizes=sizes, cases=cases)


def quick_plan() -> Plan:
    """A small model and one repeat of few cases, to check that everything works."""
    cases = [Case(1, "equal", 5, True, 1), Case(1, "ragged", 10, True, 1), Case(2, "ragged", 5, False, 1)]
    sizes = {"groups": 2, "group_size": 4, "prompt": 6, "response": 3, "vocabulary": 60}
    return Plan(width=32, layers=1, sizes=sizes, cases=tuple(cases))
