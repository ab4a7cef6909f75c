"""``python -m seeupo_recipe.theory``: exit codes, files, comparison with the record."""

import json

import pandas as pd
import pytest

from seeupo_recipe.theory import __main__ as cli
from seeupo_recipe.theory import report, table1
from seeupo_recipe.theory.checks import CHECKS
from seeupo_recipe.theory.registry import Check, Verdict, at_most, number
from seeupo_recipe.theory.updates import ALGORITHMS


def measure(value=0.0):
    return at_most(value, 1.0, "instance")


@pytest.fixture
def tiny(monkeypatch):
    """Replace every check by an instant one with the same name."""
    tiny = {
        name: Check(name, c.claim, c.statement, "", c.perturbation, {"value": 2.0}, measure)
        for name, c in CHECKS.items()
    }
    monkeypatch.setattr(cli, "CHECKS", tiny)
    return tiny


def call(tmp_path, *options):
    return cli.main(["--results", str(tmp_path / "r"), "--plots", str(tmp_path / "p"), "--no-plots", *options])


def test_a_run_without_record_says_how_to_make_one(tiny, tmp_path, capsys):
    assert call(tmp_path) == 2
    assert "--update" in capsys.readouterr().out
    assert not (tmp_path / "r").exists()


def test_record_then_compare_then_change(tiny, tmp_path, capsys):
    assert call(tmp_path, "--update") == 0
    assert call(tmp_path) == 0
    before = (tmp_path / "r" / "checks.csv").read_bytes()
    name = "lemma1_baseline_invariance"
    tiny[name] = Check(name, "Lemma 1", "s", "", "p", {}, lambda: at_most(5.0, 1.0, "instance"))
    assert call(tmp_path) == 1
    assert f"{name}: recorded holds, now counterexample" in capsys.readouterr().out.replace("\n", "")
    assert (tmp_path / "r" / "checks.csv").read_bytes() == before
    assert call(tmp_path, "--update") == 0
    assert json.loads((tmp_path / "r" / "verdicts.json").read_text())["checks"][name] == "counterexample"


def test_checks_that_appear_or_vanish_count_as_changes(tiny, tmp_path, capsys):
    assert call(tmp_path, "--update") == 0
    path = tmp_path / "r" / "verdicts.json"
    record = json.loads(path.read_text())
    record["checks"]["gone"] = record["checks"].pop("lemma5_drift_form")
    path.write_text(json.dumps(record))
    assert call(tmp_path) == 1
    out = capsys.readouterr().out
    assert "gone: recorded holds, now nothing" in out and "lemma5_drift_form: recorded nothing" in out


def test_mutate_demands_that_every_check_fails(tiny, tmp_path, capsys):
    assert call(tmp_path, "--mutate") == 0
    name = "lemma1_baseline_invariance"
    tiny[name] = Check(name, "Lemma 1", "s", "", "p", {"value": 0.5}, measure)
    assert call(tmp_path, "--mutate") == 1
    assert f"still not failing: {name}" in capsys.readouterr().out


def test_only_runs_a_selection_and_writes_nothing(tmp_path, capsys):
    assert call(tmp_path, "--only", "lemma?_*") == 0
    out = capsys.readouterr().out
    assert "lemma4_structural_bias" in out and "theorem1_haml" not in out
    assert not (tmp_path / "r").exists()
    assert call(tmp_path, "--only", "nothing*") == 2


def test_update_and_mutate_exclude_each_other(tmp_path):
    with pytest.raises(SystemExit) as stop:
        call(tmp_path, "--update", "--mutate")
    assert stop.value.code == 2


def test_results_list_every_check_and_render_table_1(tiny, tmp_path):
    assert call(tmp_path, "--update") == 0
    frame = pd.read_csv(tmp_path / "r" / "checks.csv")
    assert set(frame["check"]) == set(CHECKS)
    assert {"claim", "instance", "value", "tolerance", "verdict"} <= set(frame.columns)
    text = (tmp_path / "r" / "table1.md").read_text()
    assert text.count("**holds**") == 2 * len(ALGORITHMS)


def test_a_cell_is_as_good_as_its_weaker_half(tiny):
    outcomes = {name: check.run() for name, check in tiny.items()}
    algorithm = ALGORITHMS[1]
    name = f"cell_{algorithm.key}_multi_optimal"
    worse = Check(name, "c", "s", "", "p", {}, lambda: at_most(5.0, 1.0, "i"))
    outcomes[name] = worse.run()
    assert table1.cell_verdict(algorithm, "multi", outcomes) is Verdict.COUNTEREXAMPLE
    assert table1.cell_verdict(algorithm, "bandit", outcomes) is Verdict.HOLDS
    assert "**counterexample**" in table1.render(outcomes)


def test_critic_free_follows_the_checks(tiny):
    outcomes = {name: check.run() for name, check in tiny.items()}
    by_key = {a.key: table1.critic_free(a, outcomes) for a in ALGORITHMS}
    assert by_key == {a.key: not a.estimator.startswith("GAE") for a in ALGORITHMS}


def test_rounding_noise_is_written_as_zero():
    assert number(3e-16) == "0" and number(-2e-10) == "0" and number(0.12345) == "0.123"


def test_the_committed_results_match_the_record():
    directory = cli.parser().get_default("results")
    root = report.__file__.split("seeupo_recipe")[0]
    frame = pd.read_csv(f"{root}{directory}/checks.csv")
    record = report.recorded(type(directory)(f"{root}{directory}"))
    assert dict(zip(frame["check"], frame["verdict"], strict=True)) == record["checks"]
