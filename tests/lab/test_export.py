import json

import pytest
import torch
from transformers import AutoModelForCausalLM

from seeupo_recipe.export import main
from seeupo_recipe.lab.session import run_cell
from seeupo_recipe.models.tiny import load_model
from seeupo_recipe.runs import open_run


@pytest.fixture
def run(two_turn_config):
    torch.set_num_threads(1)
    return open_run(two_turn_config("training.iterations=2", "evaluation.samples_per_task=1"))


def test_an_exported_lab_run_loads_and_is_the_trained_policy(run):
    run_cell(run)
    assert main([run.run_id]) == 0
    folder = run.outputs / "export"
    model, tokenizer = load_model(folder)
    state = torch.load(run.outputs / "checkpoint.pt", weights_only=True)["model"]
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    before, before_tokenizer = load_model(run.config.model_path)
    assert any(not torch.equal(a, b) for a, b in zip(model.parameters(), before.parameters(), strict=True))
    assert tokenizer.get_vocab() == before_tokenizer.get_vocab()
    assert tokenizer.chat_template == before_tokenizer.chat_template
    assert model.generation_config.eos_token_id == before.generation_config.eos_token_id
    assert AutoModelForCausalLM.from_pretrained(folder).dtype == torch.float32
    assert json.loads((folder / "export.json").read_text()) == {"run_id": run.run_id, "iteration": 2}
    assert main([run.run_id]) == 0, "an earlier export is replaced"


def test_what_cannot_be_exported_is_refused_with_one_line(run, two_turn_config, tmp_path, capsys):
    def refused(*arguments):
        capsys.readouterr()
        assert main(arguments) == 2
        message = capsys.readouterr().err
        assert message.count("\n") == 1
        return message

    assert "there is no such run" in refused("nothing")
    assert "no checkpoint under" in refused(run.run_id)
    run_cell(run)
    assert "no checkpoint of iteration 1" in refused(run.run_id, "--iteration", "1")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    assert "holds something else" in refused(run.run_id, "--out", str(tmp_path / "mine"))
    assert (tmp_path / "mine" / "thesis.txt").exists()
    base = open_run(two_turn_config("algorithm=base", "training.iterations=0"))
    assert "untrained policy has no checkpoint" in refused(base.run_id)
    assert "several runs start so" in refused("two-turn")
