"""The registry of statements: coverage of the claims, verdicts, perturbations."""

import fnmatch
import json
import re
from pathlib import Path

import pytest

from seeupo_recipe.theory import checks, table1
from seeupo_recipe.theory.checks import CHECKS
from seeupo_recipe.theory.registry import Check, Verdict, add, at_least, at_most, check
from seeupo_recipe.theory.updates import ALGORITHMS

RECORD = Path(__file__).parents[2] / "results" / "theory" / "verdicts.json"
CLAIMS = [f"Lemma {n}" for n in (1, 4, 5, 6)] + [f"Theorem {n}" for n in (1, 2, 5, 6, 7, 8, 9)] + ["Appendix H.3.3"]
SLOW = re.compile(
    r"cell_\w+_(optimal|bounded)|clipped_argmax_reverse|local_centring_\w+|bounded_ratio_cures|theorem6_optimum"
    r"|every_order_optimal|theorem2_\w+|reverse_\w+|cell_grae_std_ppu_\w+"
)
FAST_CHECKS = [name for name in CHECKS if not SLOW.fullmatch(name)]
SLOW_CHECKS = [name for name in CHECKS if SLOW.fullmatch(name)]


def assert_as_recorded_and_sensitive(name):
    recorded = json.loads(RECORD.read_text())["checks"][name]
    outcome = CHECKS[name].run()
    assert outcome.verdict.value == recorded, outcome.measurement
    assert CHECKS[name].perturbed().true != outcome.measurement.true


@pytest.mark.parametrize("name", FAST_CHECKS)
def test_check_gives_its_recorded_verdict_and_fails_when_perturbed(name):
    assert_as_recorded_and_sensitive(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW_CHECKS)
def test_slow_check_gives_its_recorded_verdict_and_fails_when_perturbed(name):
    assert_as_recorded_and_sensitive(name)


@pytest.mark.parametrize("claim", CLAIMS)
def test_every_claim_of_the_paper_has_a_check(claim):
    assert [c.name for c in CHECKS.values() if c.claim == claim]


def test_every_module_of_checks_is_registered():
    modules = {path.stem for path in Path(checks.__file__).parent.glob("*.py")} - {"__init__", "common"}
    assert modules == {module.__name__.rsplit(".", 1)[1] for module in checks.MODULES}


def test_the_readme_explains_every_check():
    text = (Path(checks.__file__).parents[1] / "README.md").read_text()
    patterns = set(re.findall(r"`([a-z0-9_*]+)`", text))
    assert [name for name in CHECKS if not any(fnmatch.fnmatch(name, p) for p in patterns - {"*"})] == []


def test_the_record_holds_every_check_and_every_cell():
    record = json.loads(RECORD.read_text())
    assert set(record["checks"]) == set(CHECKS)
    assert set(record["table1"]) == {table1.cell_name(a, s) for a in ALGORITHMS for s in ("bandit", "multi")}


def test_verdicts_follow_from_the_measurement_and_the_condition():
    def verdict(measurement, condition=""):
        return Check("x", "c", "s", condition, "p", {}, lambda: measurement).run().verdict

    assert verdict(at_most(1.0, 1.0, "i")) is Verdict.HOLDS
    assert verdict(at_most(1.0, 1.0, "i"), "if") is Verdict.CONDITION
    assert verdict(at_most(1.1, 1.0, "i"), "if") is Verdict.COUNTEREXAMPLE
    assert verdict(at_least(1.1, 1.0, "i")) is Verdict.HOLDS
    assert verdict(at_least(float("nan"), 1.0, "i")) is Verdict.COUNTEREXAMPLE
    assert verdict(at_most(float("nan"), 1.0, "i")) is Verdict.COUNTEREXAMPLE


def test_names_are_unique():
    with pytest.raises(ValueError, match="two checks are named"):
        add(next(iter(CHECKS.values())))


def test_decorating_registers_under_the_function_name_and_keeps_the_function(monkeypatch):
    monkeypatch.setattr("seeupo_recipe.theory.registry.CHECKS", registered := {})

    @check(claim="c", statement="s", perturbation="p", mutation={"value": 2.0})
    def sample(value=0.0):
        return at_most(value, 1.0, "i")

    assert sample(3.0).value == 3.0
    assert registered["sample"].run().verdict is Verdict.HOLDS
    assert not registered["sample"].perturbed().true
