"""verl's fused log-probs on a sharded head of its own: as without fusing, on two ranks."""

import pytest
import torch
import worker_case as case
from test_worker_parity import RATE, relative
from worker_case import TURNS

from seeupo_recipe.cluster.standin import save_standin

SIZES = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 64,
}  # fmt: skip


@pytest.mark.timeout(600)
def test_f24_log_probs_in_chunks_give_the_same_iteration(tmp_path):
    save_standin(tmp_path / "model", (), "qwen3", **SIZES)
    found = case.launch(case.__file__, tmp_path / "model", tmp_path / "out.pt", "fused", ranks=2)
    plain, fused = found["plain"], found["fused"]
    for key, value in plain["old"].items():
        assert torch.allclose(fused["old"][key], value, atol=1e-5)
    assert len(fused["gradients"]) == TURNS
    for mine, theirs in zip(fused["gradients"], plain["gradients"], strict=True):
        assert relative(mine, theirs) < 1e-4
    head = "lm_head.weight"
    assert head in plain["after"]
    assert (fused["after"][head] - plain["after"][head]).abs().max() < 1e-2 * RATE * TURNS
