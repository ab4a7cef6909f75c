"""`doctor`: whatever is wrong with a machine gives one line that says what to do."""

import dataclasses
import json

import pytest

from seeupo_recipe.cluster import cli, machine
from seeupo_recipe.cluster.cells import Cell, Selection, select
from seeupo_recipe.cluster.doctor import examine
from seeupo_recipe.compose import compose_config
from seeupo_recipe.envs.appworld import worlds


def cell(model_folder, *overrides, benchmark="bfcl", algorithm="seeupo"):
    return Cell(algorithm, compose_config([
        "scale=paper", "model=qwen3-14b", f"benchmark={benchmark}", f"algorithm={algorithm}",
        "model.name=standin", f"model.path={model_folder}", *overrides,
    ]))  # fmt: skip


def change_json(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def failures(cells):
    """Without the packages, whose real versions are those of the CPU profile here."""
    return {f.check: f.text for f in examine(cells) if f.failed and f.check != "packages"}


def only_failure(cells, check):
    found = failures(cells)
    assert set(found) == {check}, found
    assert "\n" not in found[check]
    return found[check]


def test_a_node_with_everything_passes(node, standin):
    findings = examine([cell(standin)])
    assert [f.check for f in findings if f.state != "pass"] == ["packages"]
    texts = {f.check: f.text for f in findings}
    assert texts["GPUs"] == "8 x NVIDIA H20"
    assert texts["environment bfcl"] == "train 100, test 100"
    assert texts["template standin"] == "reasoning_augmented: earlier thinking is removed"


def test_a_wrong_model_path(node, tmp_path):
    found = failures([cell(tmp_path / "nowhere", "model.name=qwen3-14b")])
    assert set(found) == {"model qwen3-14b", "template qwen3-14b"}
    assert "no such folder): set model.path to the model's folder or hub name" in found["model qwen3-14b"]


def test_a_hub_name_that_was_not_downloaded(node):
    found = failures([cell("Qwen/Qwen3-14B", "model.name=qwen3-14b")])
    assert "not in the hub's cache): run `hf download Qwen/Qwen3-14B`" in found["model qwen3-14b"]


def test_another_model_under_the_papers_name(node, standin):
    text = only_failure([cell(standin, "model.name=qwen3-14b")], "model qwen3-14b")
    assert "is not qwen3-14b (vocabulary" in text and "set model.path" in text


def test_a_missing_weight_file(node, copied):
    (copied / "model.safetensors").unlink()
    assert "lacks 1 weight files (model.safetensors)" in only_failure([cell(copied)], "model standin")


@pytest.mark.parametrize(("key", "text"), [("eos_token", "eos_token_id=None"), ("pad_token", "pad_token_id=None")])
def test_a_missing_special_token(node, copied, key, text):
    change_json(copied / "tokenizer_config.json", **{key: None})
    assert text in only_failure([cell(copied)], "model standin")


def test_four_instead_of_eight_gpus(node, standin):
    node.gpus(4)
    found = failures([cell(standin)])
    assert set(found) == {"GPUs", "Ray"}
    assert "4 GPUs here, but the cells use 8 per node" in found["GPUs"]
    assert "verl.trainer.n_gpus_per_node=4" in found["GPUs"]


def test_gpus_that_are_too_small_name_the_setting_to_change(node):
    node.gpus(8, mib=61440)
    cells = select(Selection("paper", "table2", ("qwen3-14b",), ("bfcl",), ("seeupo",)))
    assert ": set verl." in failures(cells)["GPU memory"]


def test_an_old_driver(node, standin):
    node.gpus(8, driver="550.54.15")
    assert "driver 550.54.15: CUDA 13.0 needs 580.65.06" in only_failure([cell(standin)], "driver")


def test_no_gpu_at_all(node, standin):
    (node.folder / "nvidia-smi").unlink()
    node.monkeypatch.setenv("PATH", str(node.folder))
    findings = {f.check: f for f in examine([cell(standin)])}
    assert "no nvidia-smi here" in findings["GPUs"].text and findings["GPUs"].failed
    assert findings["GPU memory"].text == "not checked: no GPU was found" and not findings["GPU memory"].failed


def test_ppo_needs_the_gpus_of_two_nodes(node, standin):
    cells = [cell(standin), cell(standin, algorithm="ppo")]
    text = only_failure(cells, "Ray")
    assert "1 of 2 cells fit" in text and "needs 16" in text and "critic_pool=shared" in text
    node.ray(8, 8)
    assert failures(cells) == {}


def test_no_ray_cluster_at_the_address(node, standin, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    monkeypatch.setenv("RAY_gcs_rpc_server_connect_timeout_s", "1")
    monkeypatch.setattr("ray.init", _refuse)
    assert "no Ray cluster answers at RAY_ADDRESS=127.0.0.1:1" in only_failure([cell(standin)], "Ray")


def _refuse(**options):
    raise ConnectionError("nobody there")


def test_too_little_disk(node):
    node.disk(200)
    cells = select(Selection("paper", "table2", ("qwen3-14b",), ("bfcl",), ("seeupo",)))
    text = failures(cells)["disk"]
    assert "200 GiB free" in text and "take 495" in text and "SEEUPO_OUTPUTS" in text


def test_a_missing_environment_server(node, standin, tmp_path, monkeypatch):
    monkeypatch.setattr("seeupo_recipe.envs.appworld.benchmark.VENV", tmp_path / "no-venv")
    monkeypatch.setattr(worlds, "VENV", tmp_path / "no-venv")
    text = only_failure([cell(standin, benchmark="appworld")], "environment appworld")
    assert "make setup-appworld DATA=official" in text


def test_other_tasks_than_the_papers(node, standin, monkeypatch):
    monkeypatch.setattr("seeupo_recipe.envs.bfcl.benchmark.BfclBenchmark.task_ids", lambda self, split: ["a", "b"])
    monkeypatch.setattr("seeupo_recipe.cluster.doctor.check_environment", _without_episode)
    assert "has 2 tasks instead of 100" in only_failure([cell(standin)], "environment bfcl")


def _without_episode(config):
    from seeupo_recipe.cluster.environments import check_environment

    return check_environment(config, episode=False)


def test_a_context_template_that_keeps_thinking(node, standin):
    text = only_failure([cell(standin, "model.template=react")], "template standin")
    assert "contexts keep earlier thinking" in text and "model.template=reasoning_augmented" in text


def test_a_chat_template_that_writes_thinking_into_earlier_messages(node, copied):
    template = copied / "chat_template.jinja"
    assert template.is_file()
    template.write_text(
        "{%- for m in messages %}<|im_start|>{{ m['role'] }}\n"
        "{% if m['role'] == 'assistant' %}<think>\n\n</think>\n{% endif %}{{ m['content'] }}<|im_end|>\n{%- endfor %}"
    )
    assert "writes <think> into earlier messages" in only_failure([cell(copied)], "template standin")


def test_versions_are_compared_with_the_pins_of_the_profile(node, standin):
    wanted = {str(r).split(";")[0].strip() for r in machine.pins("gpu")}
    assert wanted >= {
        "vllm==0.24.0",
        "flash-attn==2.8.3",
        "torch==2.11.0",
        "verl[flash-attn-cu130torch211,vllm]==0.9.1",
    }
    missing = [text for r in machine.pins("gpu") if (text := machine.unmet(r))]
    assert "vllm missing (wanted ==0.24.0)" in missing
    assert not any(text.startswith("verl ") for text in missing)
    packages = next(f for f in examine([cell(standin)]) if f.check == "packages")
    assert packages.failed and "flash-attn missing (wanted ==2.8.3)" in packages.text
    assert "pip install -e '.[gpu]'" in packages.text


def test_the_page_ends_with_the_count(node, standin, capsys):
    node.gpus(4)
    overrides = ["scale=paper", f"model.path={standin}", "model.name=standin", "model=qwen3-14b", "benchmark=bfcl"]
    status = cli.main(["doctor", "--study", "none", *overrides[1:]])
    out = capsys.readouterr().out
    assert status == 1 and "FAIL  GPUs" in out and "3 of 10 checks failed" in out


def test_cells_are_examined_once_per_model_and_benchmark(node, standin):
    one = cell(standin)
    other = dataclasses.replace(one, row="again")
    assert len(examine([one, other])) == len(examine([one]))
