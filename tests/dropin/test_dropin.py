"""A separate project keeps its agent loop and verl's own entry point; config lines alone bring SeeUPO."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

PROJECT = Path(__file__).with_name("tinyagent")
CHAT = (
    "{%- for m in messages %}{{- '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)


def build_model(folder):
    """A random Qwen3 with one token per character, ChatML and the usual special tokens."""
    from seeupo_recipe.models.tiny import build_model as build

    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    words = [*specials, "user", "assistant", "system", "\n", *"0123456789+=?"]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate([*words, "<unk>"])}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"user|assistant|system|[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>", unk_token="<unk>"
    )
    fast.chat_template = CHAT
    model = build("tiny-qwen3", fast, seed=0, max_length=128)
    model.save_pretrained(folder)
    fast.save_pretrained(folder)


@pytest.fixture(scope="module")
def metrics(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dropin")
    build_model(folder / "model")
    sys.path.insert(0, str(PROJECT))
    try:
        import tinyagent

        tinyagent.write_data(folder)
    finally:
        sys.path.remove(str(PROJECT))
    lines = [*(PROJECT / "cpu.txt").read_text().split(), *(PROJECT / "seeupo.txt").read_text().split()]
    lines += [
        f"data.train_files={folder}/train.parquet",
        f"data.val_files={folder}/val.parquet",
        f"actor_rollout_ref.model.path={folder}/model",
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path={PROJECT}/loops.yaml",
        f"trainer.default_local_dir={folder}/checkpoints",
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": str(PROJECT),
        "VERL_PLATFORM": "cpu",
        "VERL_FILE_LOGGER_PATH": str(folder / "metrics.jsonl"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "verl.trainer.main_ppo", *lines]
    result = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=500)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-2000:]
    return [json.loads(line)["data"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.timeout(600)
def test_stock_trajectories_are_split_into_turns_and_updated_in_reverse(metrics):
    assert len(metrics) == 2
    for line in metrics:
        turns = sorted(int(m.group(1)) for key in line if (m := re.fullmatch(r"turn(\d+)/pool_size", key)))
        assert len(turns) >= 2, "the agent never called its tool"
        assert line["update/optimizer_steps"] == len(turns)
        sizes = [line[f"turn{t}/pool_size"] for t in turns]
        assert sizes[0] == 16 and sizes == sorted(sizes, reverse=True)
        assert line["update/rows"] == sum(sizes)
        assert line[f"turn{turns[-1]}/ratio_deviation"] < 1e-5


def test_log_probs_of_split_rows_equal_those_of_the_rollout(metrics):
    """A turn's row is the prefix that ends with it: the same tokens, so the same log-probabilities."""
    for line in metrics:
        assert 0 < line["update/rollout_drift"] < 1e-5
