import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def two_turn_config(tmp_path, monkeypatch):
    """Compose lab configs on the two-turn problem with a randomly initialised policy."""
    import two_turn

    from seeupo_recipe.compose import compose_config
    from seeupo_recipe.envs import base
    from seeupo_recipe.models.tiny import build_model, build_tokenizer

    monkeypatch.setitem(base._BENCHMARKS, "two-turn", "two_turn:TwoTurn")
    monkeypatch.setenv("SEEUPO_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("SEEUPO_OUTPUTS", str(tmp_path / "outputs"))
    tokenizer = build_tokenizer(two_turn.TwoTurn().vocabulary())
    model = build_model("tiny-qwen3", tokenizer, seed=0, max_length=32, width=32, layers=1)
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")

    def compose(*overrides):
        return compose_config(
            [
                "backend=lab",
                "benchmark.name=two-turn",
                "benchmark.max_turns=2",
                "benchmark.max_new_tokens=1",
                "benchmark.max_prompt_tokens=32",
                f"model.path={tmp_path}/model",
                "training.tasks_per_iteration=4",
                "training.group_size=8",
                "training.learning_rate=0.003",
                *overrides,
            ]
        )

    return compose
