"""Whole runs through stock verl and through the lab: the same episodes, advantages, M and updates."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

from seeupo_recipe.export import main as export
from seeupo_recipe.models.tiny import load_model
from seeupo_recipe.records.run import RunRecord
from seeupo_recipe.runs import ROOT
from seeupo_recipe.study.transcripts import read_transcripts

SHORT = ["benchmark.test_split=validation", "evaluation.samples_per_task=2", "training.iterations=2"]


def run_cells(folder, *cells, timeout=420):
    """Run cells, each a list of overrides, one after the other in one child process."""
    arguments = [word for cell in cells for word in ("--", *SHORT, *cell)][1:]
    script, results, outputs = Path(__file__).with_name("cell.py"), folder / "results", folder / "outputs"
    command = [sys.executable, str(script), str(results), str(outputs), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-3000:]
    records = [RunRecord(Path(line)) for line in result.stdout.splitlines() if line.startswith(str(results))]
    assert len(records) == len(cells)
    return records


def run_cell(folder, *overrides):
    return run_cells(folder, overrides)[0]


@pytest.fixture(scope="module")
def through_verl(tmp_path_factory):
    return run_cell(tmp_path_factory.mktemp("verl"))


@pytest.fixture(scope="module")
def through_lab(tmp_path_factory):
    return run_cell(tmp_path_factory.mktemp("lab"), "backend=lab")


@pytest.mark.timeout(600)
def test_the_record_of_a_verl_run_is_complete(through_verl):
    assert through_verl.finished
    assert [line["iteration"] for line in through_verl.metrics()] == [1, 2]
    assert len(through_verl.evaluated(2, "validation")) == 128
    manifest = through_verl.manifest()
    assert manifest["versions"]["verl"] == "0.9.1" and manifest["identity"]["seed"] == 0
    config = yaml.safe_load((through_verl.folder / "config.yaml").read_text())
    assert config["algorithm"]["seeupo"]["order"] == "reverse"


def test_rollout_log_probs_equal_the_trainers(through_verl):
    for line in through_verl.metrics():
        assert line["training/rollout_probs_diff_max"] < 1e-5
        assert 0 < line["update/rollout_drift"] < 1e-5


def test_order_steps_and_padding_are_recorded(through_verl):
    for line in through_verl.metrics():
        turns = len(line["order"])
        assert line["order"] == list(range(turns, 0, -1))
        assert line["update/optimizer_steps"] == turns and line["update/padding_rows"] == 0
        assert line["actor/lr"] == pytest.approx(3e-4)


def test_an_iteration_of_verl_equals_the_labs(through_verl, through_lab):
    """From the same weights: identical episodes, so the same returns, pools, advantages, M and KL."""
    verl, lab = through_verl.metrics()[0], through_lab.metrics()[0]
    for key, value in lab.items():
        if key.startswith(("train/", "turn", "update/", "tokens/")):
            assert verl[key] == pytest.approx(value, rel=2e-4, abs=1e-6), key


def test_transcripts_of_the_first_iteration_equal_the_labs(through_verl, through_lab):
    verl, lab = (
        [t for t in read_transcripts(record.folder) if (t.split, t.iteration) == ("rollout", 1)]
        for record in (through_verl, through_lab)
    )
    assert len(verl) == len(lab) == 4
    for mine, theirs in zip(verl, lab, strict=True):
        assert replace(mine, turns=()) == replace(theirs, turns=())
        assert len(mine.turns) > 0
        for one, other in zip(mine.turns, theirs.turns, strict=True):
            assert one == pytest.approx(other, rel=2e-4, abs=1e-6)


def test_transcripts_of_a_run_are_small_and_hold_the_end_of_training(through_verl):
    found = read_transcripts(through_verl.folder)
    assert {(t.split, t.iteration) for t in found} == {("rollout", 1), ("rollout", 2), ("validation", 2)}
    assert (through_verl.folder / "transcripts.jsonl").stat().st_size < 60_000


def test_an_exported_verl_run_is_near_the_labs_and_far_from_the_initial_policy(
    through_verl, through_lab, tmp_path, monkeypatch
):
    """Two AdamW steps move a weight by at most twice the learning rate; both backends take the same ones."""
    policies = {}
    for name, record in (("verl", through_verl), ("lab", through_lab)):
        folder = record.folder.parents[3]
        monkeypatch.setenv("SEEUPO_RESULTS", str(folder / "results"))
        monkeypatch.setenv("SEEUPO_OUTPUTS", str(folder / "outputs"))
        assert export([record.run_id, "--out", str(tmp_path / name)]) == 0
        policies[name], _ = load_model(tmp_path / name)
    initial, _ = load_model(ROOT / "results/mini/warm_start/tiny-qwen3/vaulthop")

    def weights(model):
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    apart = (weights(policies["verl"]) - weights(policies["lab"])).abs().mean()
    moved = (weights(policies["verl"]) - weights(initial)).abs().mean()
    assert apart < 1e-3 * moved and moved > 1e-4


def test_evaluation_outcomes_repeat_across_backends(through_verl, through_lab):
    """Two optimizers that differ by rounding leave nearly every sampled outcome as it is."""

    def outcomes(record):
        return {(r["task_id"], r["sample"]): r["score"] for r in record.evaluations()}

    verl, lab = outcomes(through_verl), outcomes(through_lab)
    assert verl.keys() == lab.keys()
    assert sum(verl[key] == lab[key] for key in verl) >= 0.9 * len(verl)
