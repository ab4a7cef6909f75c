"""The memory model against the real architectures, and refusals that name what to change."""

import json

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from seeupo_recipe.cluster import cli
from seeupo_recipe.cluster.shape import MODELS, known_models, read_shape


@pytest.mark.parametrize("name", known_models())
def test_parameters_are_those_of_the_architecture(name):
    values = json.loads((MODELS / f"{name}.json").read_text())
    values.pop("source")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**values))
    shape = read_shape(values, name)
    assert shape.parameters == sum(p.numel() for p in model.parameters())
    layer = sum(p.numel() for p in model.model.layers[0].parameters())
    assert shape.layer_parameters == layer


def plan(capsys, *arguments):
    status = cli.main(["plan", "--study", "none", "model=qwen3-14b", "benchmark=bfcl", *arguments])
    return status, capsys.readouterr().out


def test_the_papers_setting_fits_its_gpus_with_the_papers_pace(capsys):
    status, out = plan(capsys, "algorithm=seeupo", "--json")
    cell = json.loads(out)[0]
    assert status == 0 and cell["problems"] == []
    assert cell["hours"] == pytest.approx(150 * cell["seconds_per_iteration"] / 3600, abs=0.1)
    assert cell["source"] == "Table 3"


@pytest.mark.parametrize(
    ("overrides", "setting"),
    [
        (["--gpu", "60"], "verl."),
        (["verl.actor_rollout_ref.actor.ppo_max_token_len_per_gpu=4096"], "ppo_max_token_len_per_gpu=18000"),
        (["benchmark.max_prompt_tokens=60000"], "benchmark.max_prompt_tokens"),
        (["verl.actor_rollout_ref.rollout.gpu_memory_utilization=0.15"], "gpu_memory_utilization="),
    ],
)
def test_what_cannot_fit_is_refused_with_the_setting_to_change(capsys, overrides, setting):
    status, out = plan(capsys, "algorithm=seeupo", *overrides)
    refused = [line for line in out.splitlines() if line.startswith("refused")]
    assert status == 1 and len(refused) >= 1 and any(setting in line for line in refused)


def test_a_wrong_name_gives_one_line(capsys):
    assert cli.main(["plan", "--study", "tabel2"]) == 2
    assert "did you mean table2" in capsys.readouterr().err
