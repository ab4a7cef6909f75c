"""Every baseline through stock verl equals the lab: same episodes, gradients and critic."""

import pytest
from test_end_to_end import run_cell

from seeupo_recipe.runs import ROOT

METHODS = {
    "grpo-one": ["algorithm=grpo"],
    "grpo-matched": ["algorithm=grpo", "algorithm.steps_per_iteration=matched"],
    "gspo-matched": ["algorithm=gspo", "algorithm.steps_per_iteration=matched"],
    "rloo-one": ["algorithm=rloo"],
    "ppo-one": ["algorithm=ppo"],
    "seeupo-as-released": ["profile=as_released"],
    "seeupo-inner-steps": ["algorithm.inner_epochs=2", "algorithm.inner_mini_batches=2"],
    "seeupo-without-kl": ["algorithm.surrogate.kl_coefficient=0"],
}


@pytest.fixture(scope="module")
def critic(tmp_path_factory):
    """Critic weights with their head, so that both backends start from the same."""
    from transformers import AutoTokenizer

    from seeupo_recipe.lab.policy import load_critic

    folder = tmp_path_factory.mktemp("critic")
    source = ROOT / "results/mini/warm_start/tiny-qwen3/vaulthop"
    load_critic(str(source), seed=5).save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return folder


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("method", METHODS)
def test_one_iteration_of_verl_equals_the_labs(method, critic, tmp_path):
    overrides = ["training.iterations=1", "evaluation.samples_per_task=1", *METHODS[method]]
    if method.startswith("ppo"):
        overrides.append(f"algorithm.critic.path={critic}")
    verl = run_cell(tmp_path / "verl", *overrides).metrics()[0]
    lab = run_cell(tmp_path / "lab", "backend=lab", *overrides).metrics()[0]
    for key in lab:
        if key.startswith(("train/", "update/", "turn", "tokens/")):
            assert verl[key] == pytest.approx(lab[key], rel=1e-3, abs=1e-6), key
    if method.startswith("ppo"):
        assert verl["critic/explained_variance"] == pytest.approx(lab["critic/explained_variance"], rel=1e-3)
        assert verl["critic/vf_loss"] == pytest.approx(lab["critic/loss"], rel=1e-3)
