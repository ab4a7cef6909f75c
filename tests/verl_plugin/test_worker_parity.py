"""verl's worker against the lab's updater: the same pools, gradients, M and weights, on 1 and 2 ranks."""

import copy
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import worker_case as case

from seeupo_recipe.algo.sequential import plan_updates, sequential_update
from seeupo_recipe.algo.settings import AlgorithmSettings, SurrogateSettings
from seeupo_recipe.lab.policy import LabRow
from seeupo_recipe.lab.updater import LabUpdater, LossForm
from seeupo_recipe.models.tiny import load_model

RATE = 1e-3


def launch(folder, out, ranks, *arguments):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = Path(case.__file__)
    processes = []
    for rank in range(ranks):
        environment = {
            **os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            "WG_BACKEND": "ray", "VERL_PLATFORM": "cpu", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        command = [sys.executable, str(script), str(folder), str(out), *arguments]
        processes.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    for process in processes:
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors[-3000:]
    return torch.load(out, weights_only=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    case.build_folder(path)
    return path


@pytest.fixture(scope="module")
def cases(folder, tmp_path_factory):
    return launch(folder, tmp_path_factory.mktemp("one") / "out.pt", 1)


@pytest.fixture(scope="module")
def one_rank(cases):
    return cases["plain"]


@pytest.fixture(scope="module")
def two_ranks(folder, tmp_path_factory):
    return launch(folder, tmp_path_factory.mktemp("two") / "out.pt", 2)["plain"]


@pytest.fixture(scope="module")
def lab(folder):
    model, tokenizer = load_model(folder)
    settings = AlgorithmSettings()
    surrogate = SurrogateSettings(kl_coefficient=0.05)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.999), weight_decay=0.01)
    updater = LabUpdater(
        model=model, reference=None, optimizer=optimizer, grad_clip=1e9, temperature=1.0,
        pad_id=tokenizer.pad_token_id, form=LossForm(surrogate, settings.loss_ratio), gradients=[],
    )  # fmt: skip
    rows = [
        LabRow(r["trajectory"], r["turn"], *(tuple(r[name].tolist()) for name in ("prompt", "response")))
        for r in case.rows()
    ]
    before = copy.deepcopy(dict(model.named_parameters()))
    updater.begin(rows)
    updater._ref = {(r.trajectory, r.turn): torch.full((len(r.response_ids),), -3.0) for r in rows}
    old = dict(updater._old)
    advantages = {f"t{i}": float(i) / 3 - 0.8 for i in range(case.TRAJECTORIES)}
    metrics = sequential_update(plan_updates(rows, settings, seed=0, iteration=1), advantages, updater, settings)
    return {"old": old, "gradients": updater.gradients, "before": before, "model": model, "metrics": metrics}


def relative(a, b):
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("ranks", ["one_rank", "two_ranks"])
def test_log_probs_gradients_and_m_equal_the_pure_maths(ranks, lab, request):
    found = request.getfixturevalue(ranks)
    for key, value in lab["old"].items():
        assert torch.allclose(found["old"][key], value, atol=1e-5)
    assert len(found["gradients"]) == len(lab["gradients"]) == case.TURNS
    for mine, theirs in zip(found["gradients"], lab["gradients"], strict=True):
        assert relative(mine, theirs) < 1e-5
    for name, value in lab["metrics"].items():
        assert found["metrics"][name] == pytest.approx(value, rel=1e-4, abs=1e-6), name


@pytest.mark.parametrize("ranks", ["one_rank", "two_ranks"])
def test_weights_after_the_iteration_agree_within_the_optimizers_reach(ranks, lab, request):
    found = request.getfixturevalue(ranks)
    bound = 1e-2 * RATE * case.TURNS
    moved = 0.0
    for name, parameter in lab["model"].named_parameters():
        if name in found["after"]:
            assert (found["after"][name] - parameter).abs().max() < bound, name
            moved = max(moved, float((parameter.detach() - lab["before"][name].detach()).abs().max()))
    assert moved > 0.5 * RATE


def test_f18_both_rank_counts_take_the_same_steps(one_rank, two_ranks):
    assert one_rank["metrics"]["update/optimizer_steps"] == two_ranks["metrics"]["update/optimizer_steps"] == case.TURNS


def test_f13_without_learning_rate_ratio_is_one_and_m_is_a(cases):
    metrics = cases["still"]["metrics"]
    assert metrics["update/product_deviation"] < 1e-5
    for turn in range(1, case.TURNS + 1):
        assert metrics[f"turn{turn}/ratio_deviation"] < 1e-5
        assert metrics[f"turn{turn}/clipped"] == 0


def test_f6_an_empty_pool_takes_a_step_only_if_asked_for(cases, one_rank):
    asked = cases["empty"]
    assert one_rank["metrics"]["update/optimizer_steps"] == case.TURNS
    assert asked["metrics"]["update/optimizer_steps"] == case.TURNS + 1
    assert float(asked["gradients"][0].abs().max()) == 0.0
    assert relative(asked["gradients"][1], one_rank["gradients"][0]) < 1e-2


def test_a_learning_rate_schedule_advances_once_per_iteration(cases):
    assert cases["scheduled"]["metrics"]["update/optimizer_steps"] == case.TURNS
    assert cases["scheduled"]["schedule_steps"] == 1
