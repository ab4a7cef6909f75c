"""The reading side as a whole: it rebuilds the same files, and needs nothing that trains."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from seeupo_recipe.study.cli import main

BLOCKED = ("torch", "verl", "ray", "transformers", "tensordict", "transfer_queue", "bfcl_eval", "appworld")
PROGRAM = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked}:
            raise ImportError(name + " must not be imported here")
        if name.startswith("seeupo_recipe.envs.") and name != "seeupo_recipe.envs.base":
            raise ImportError(name + " must not be imported here")
        if name.split(".")[0] == "matplotlib" and not {{"figures", "report"}} & set(sys.argv):
            raise ImportError(name + " must not be imported here")
sys.meta_path.insert(0, Refuse())
from seeupo_recipe.study.cli import main
sys.exit(main(sys.argv[1:]))
"""


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(blocked=BLOCKED), *arguments],
        env={**os.environ, **environment},
        cwd=Path.cwd(),
        capture_output=True,
        text=True,
    )


def test_make_reads_the_records_once_for_all_it_is_asked_to_show():
    shown = subprocess.run(
        ["make", "-n", "tables", "figures", "report", "SCALE=mini"], capture_output=True, text=True, check=True
    )
    assert re.findall(r"-m seeupo_recipe.study (.*)", shown.stdout) == ["tables figures report --scale 'mini' "]


def contents(*folders):
    return {
        path: path.read_bytes()
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "runs" not in path.parts and "composed" not in path.parts
    }


def test_everything_is_rebuilt_identically_without_what_trains(world, folders):
    world.overrides = ("training.iterations=12",)
    for variant in ("base", "grpo-one", "seeupo"):
        world.finish(world.cell(variant=variant, backend="lab"), 0)
    commands = ("tables", "figures", "compare", "report")
    results, plots, custom = folders / "results", folders / "plots", folders / "outputs" / "custom"
    built = []
    for lines in ([(command,) for command in commands], [commands]):
        for line in lines:
            done = run(*line, *world.overrides)
            assert done.returncode == 0, done.stderr
        built.append(contents(results, plots, custom))
        for path in built[-1]:
            path.unlink()
        shutil.rmtree(custom)
    assert built[0] == built[1]
    names = {path.name for path in built[0]}
    assert {"table2.md", "table2.csv", "comparison.md", "report.html", "figure4-lab.png", "grim.csv"} <= names


def test_what_is_built_with_overrides_does_not_replace_the_standard_result(world, folders, capsys):
    world.finish(world.cell())
    assert main(["tables", "table2", *world.overrides]) == 0
    assert not (folders / "results" / "mini" / "tables").exists()
    assert (folders / "outputs" / "custom" / "mini" / "tables" / "table2.md").exists()
    assert main(["tables", "table2"]) == 0
    assert (
        "verl,tiny-qwen3,vaulthop,seeupo,SeeUPO,avg@4,,,,0,0,0,0,0,not run\n"
        in (folders / "results" / "mini" / "tables" / "table2.csv").read_text()
    )


def test_status_and_list(world, capsys):
    world.finish(world.cell())
    assert main(["status", "table2", *world.overrides]) == 0
    text = capsys.readouterr().out
    assert "1/1" in text and "cells not run" in text
    assert main(["list"]) == 0
    assert "make ablation-order" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tables", "tabel2"], "error: there is no study 'tabel2'; did you mean table2"),
        (["run", "table2", "--seeds", "none"], "error: SEEDS='none': give a number of seeds"),
        (["run", "table2", "--models", "tiny"], "error: MODELS=tiny: not in this study; did you mean tiny-qwen3"),
        (["run", "table2", "--workers", "-2"], "error: --workers=-2: give a number from 1"),
        (["run", "table2", "iterations"], "error: 'iterations' is not of the form key=value"),
        (["run", "table2", "training.iterations=0", "--dry"], "error: config: algorithm.name=ppo with training"),
        (["tables", "--scale", "huge"], "error: SCALE=huge: choose one of mini"),
        (["run", "table2", "--backend", "labb"], "error: BACKEND=labb: choose one of verl, lab"),
        (["train", "--algorithm", "grop"], "error: ALGO=grop: did you mean grpo"),
        (["train", "--benchmark", "vault"], "error: BENCH=vault: did you mean vaulthop"),
        (["train", "--model", "tiny"], "error: MODEL=tiny: did you mean tiny-qwen3"),
        (["train", "--seed", "-1"], "error: SEED=-1: give one number"),
        (["train", "--seed", "1,2"], "error: SEED=1,2: give one number"),
        (["train", "lr=3"], "error: unknown key 'lr' in the overrides"),
        (["figures", "--scale", "paper", "figure4"], "error: study figure4 is not defined at scale paper"),
    ],
)
def test_wrong_arguments_give_one_line_and_status_2(arguments, message, capsys):
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith(message) and err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["run", "table2", "--dri"], ["list", "x"], []])
def test_wrong_options_are_refused(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2


def test_a_dry_run_changes_nothing(folders, capsys):
    assert main(["run", "table2", "--dry", "--seeds", "2", "--variants", "base,seeupo"]) == 0
    text = capsys.readouterr().out
    assert text.count("not run") == 5 and "about unknown" in text
    assert not (folders / "results").exists()


def test_a_scale_without_studies_builds_what_there_is(folders):
    for command in ("tables", "figures", "compare", "report"):
        assert main([command, "--scale", "single_gpu"]) == 0
    assert "single_gpu" in (folders / "results" / "single_gpu" / "report.html").read_text()
