import json

import pytest
import torch

from seeupo_recipe.agents.template import ContextTemplate
from seeupo_recipe.envs.appworld.benchmark import mini_version
from seeupo_recipe.envs.base import load_benchmark
from seeupo_recipe.models.tiny import build_tokenizer, load_model
from seeupo_recipe.models.warm_start import WarmStartError, WarmStartSettings, _success, _tokens_and_mask, warm_start
from seeupo_recipe.records.identity import file_digest
from seeupo_recipe.runs import ROOT

SHIPPED = sorted((ROOT / "results" / "mini" / "warm_start").glob("*/*"))


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda f: f"{f.parent.name}-{f.name}")
def test_shipped_weights_are_what_their_provenance_says(folder):
    provenance = json.loads((folder / "provenance.json").read_text())
    assert file_digest(folder / "model.safetensors") == provenance["sha256"]["model.safetensors"]
    assert 0.15 <= provenance["validation_success"] <= 0.30
    assert (folder / "model.safetensors").stat().st_size <= 4 * 2**20
    model, tokenizer = load_model(folder)
    assert sum(p.numel() for p in model.parameters()) == provenance["parameters"]
    needs_set_up = provenance["benchmark"] == "appworld-mini"
    version = mini_version() if needs_set_up else load_benchmark(provenance["benchmark"]).version
    assert version == provenance["benchmark_version"]
    assert len(tokenizer) == model.config.vocab_size
    words = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    assert {word: tokenizer(word)["input_ids"] for word in words} == {word: [i] for word, i in words.items()}


@pytest.mark.parametrize("folder", [f for f in SHIPPED if f.name == "vaulthop"], ids=lambda f: f.parent.name)
def test_a_loaded_policy_succeeds_as_often_as_its_provenance_says(folder):
    provenance = json.loads((folder / "provenance.json").read_text())
    benchmark, (model, tokenizer) = load_benchmark("vaulthop"), load_model(folder)
    settings = WarmStartSettings(seed=provenance["settings"]["seed"])
    assert _success(model, ContextTemplate(tokenizer), benchmark, settings) == pytest.approx(
        provenance["validation_success"], abs=0.06
    )


def test_vaulthop_has_the_specified_vocabulary_and_context():
    tokenizer = build_tokenizer(load_benchmark("vaulthop").vocabulary())
    assert len(tokenizer) <= 64
    messages = [
        {"role": "user", "content": "N2 sym3 pwd4"},
        {"role": "assistant", "content": "LOGIN pwd4"},
        {"role": "tool", "content": "OK ses9"},
        {"role": "assistant", "content": "GET ses9 sym3"},
    ]
    ids, mask = _tokens_and_mask(ContextTemplate(tokenizer), messages)
    words = tokenizer.convert_ids_to_tokens(ids)
    assert " ".join(words) == ("<bos> N2 sym3 pwd4 <eoq> LOGIN pwd4 <eoa> OK ses9 GET ses9 sym3 <eoa>")
    assert mask == [0] * 5 + [1] * 3 + [0] * 2 + [1] * 4


def test_a_warm_start_repeats_bit_by_bit_and_misses_loudly(tmp_path):
    benchmark = load_benchmark("vaulthop")
    settings = WarmStartSettings(min_steps=2, max_steps=2, check_every=2, batch_size=4, target=0.0, ceiling=1.0)
    torch.set_num_threads(1)
    first = warm_start("tiny-qwen3", benchmark, settings, tmp_path / "a")
    second = warm_start("tiny-qwen3", benchmark, settings, tmp_path / "b")
    assert first == second
    with pytest.raises(WarmStartError, match="below 0.9"):
        missed = WarmStartSettings(min_steps=2, max_steps=2, check_every=2, batch_size=4, target=0.9, ceiling=1.0)
        warm_start("tiny-qwen3", benchmark, missed, tmp_path / "c")
    assert not (tmp_path / "c").exists()
