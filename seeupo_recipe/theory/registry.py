"""Checks: a statement, a computation that measures it, and a perturbation that must make it fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Verdict(str, Enum):
    """What the computation says about a statement."""

    HOLDS = "holds"
    CONDITION = "holds under a stated condition"
    COUNTEREXAMPLE = "counterexample"


@dataclass(frozen=True)
class Measurement:
    """A number and the bound that decides the statement.

    Attributes:
        value: The measured number.
        bound: What it is compared with.
        relation: ``<=`` or ``>=``; the statement is true where ``value relation bound``.
        instance: The games measured on, or the counterexample, in one line.
        note: Further numbers worth reporting.
    """

    value: float
    relation: str
    bound: float
    instance: str
    note: str = ""

    @property
    def true(self) -> bool:
        """Whether the statement held. A value that is not a number never does."""
        return self.value <= self.bound if self.relation == "<=" else self.value >= self.bound


ZERO = 1e-9
"""Numbers below this are written as 0: they are rounding and differ between machines."""


def number(value: float) -> str:
    """Three significant digits, rounding noise as 0."""
    return "0" if abs(value) < ZERO else f"{value:.3g}"


def at_most(value: float, bound: float, instance: str, note: str = "") -> Measurement:
    """The statement is true if ``value <= bound``."""
    return Measurement(float(value), "<=", bound, instance, note)


def at_least(value: float, bound: float, instance: str, note: str = "") -> Measurement:
    """The statement is true if ``value >= bound``."""
    return Measurement(float(value), ">=", bound, instance, note)


@dataclass(frozen=True)
class Check:
    """One executable statement.

    Attributes:
        name: Unique name.
        claim: The paper's claim it tests (``Lemma 4``), or ``beyond the paper: ...``.
        statement: The statement that the unperturbed computation decides.
        condition: What has to be assumed for it to hold, empty if nothing beyond the statement.
        perturbation: The change of the statement that ``mutation`` makes.
        mutation: Keyword arguments that make the change.
        measure: The computation.
    """

    name: str
    claim: str
    statement: str
    condition: str
    perturbation: str
    mutation: Mapping[str, Any] = field(repr=False)
    measure: Callable[..., Measurement] = field(repr=False)

    def run(self) -> Outcome:
        """Decide the statement."""
        measurement = self.measure()
        if not measurement.true:
            verdict = Verdict.COUNTEREXAMPLE
        else:
            verdict = Verdict.CONDITION if self.condition else Verdict.HOLDS
        return Outcome(self, measurement, verdict)

    def perturbed(self) -> Measurement:
        """Decide the perturbed statement; its truth must be the opposite of the statement's."""
        return self.measure(**self.mutation)


@dataclass(frozen=True)
class Outcome:
    """A decided check."""

    check: Check
    measurement: Measurement
    verdict: Verdict


CHECKS: dict[str, Check] = {}


def check(*, claim: str, statement: str, perturbation: str, mutation: Mapping[str, Any], condition: str = ""):
    """Register the decorated function as a check named after it; the function stays callable.

    Raises:
        ValueError: Two checks have the same name.
    """

    def register(function: Callable[..., Measurement]) -> Callable[..., Measurement]:
        add(Check(function.__name__, claim, statement, condition, perturbation, mutation, function))
        return function

    return register


def add(new: Check) -> None:
    """Register a check.

    Raises:
        ValueError: Two checks have the same name.
    """
    if new.name in CHECKS:
        raise ValueError(f"two checks are named {new.name!r}")
    CHECKS[new.name] = new
