"""Every baseline through stock verl equals the lab: same episodes, gradients and critic.

The cells run one after the other in one process, as those of a study do.
"""

import pytest
from test_end_to_end import run_cells

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


def overrides_of(method, critic):
    start = [f"algorithm.critic.path={critic}"] if method.startswith("ppo") else []
    return ["training.iterations=1", "evaluation.samples_per_task=1", *METHODS[method], *start]


@pytest.fixture(scope="module")
def first_iterations(critic, tmp_path_factory):
    """The first iteration's metrics of each method: (through verl, through the lab)."""
    cells = [overrides_of(method, critic) for method in METHODS]
    verl = run_cells(tmp_path_factory.mktemp("verl"), *cells, timeout=1500)
    lab = run_cells(tmp_path_factory.mktemp("lab"), *[["backend=lab", *cell] for cell in cells])
    return {m: (v.metrics()[0], o.metrics()[0]) for m, v, o in zip(METHODS, verl, lab, strict=True)}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("method", METHODS)
def test_one_iteration_of_verl_equals_the_labs(method, first_iterations):
    verl, lab = first_iterations[method]
    for key in lab:
        if key.startswith(("train/", "update/", "turn", "tokens/")):
            assert verl[key] == pytest.approx(lab[key], rel=1e-3, abs=1e-6), key
    if method.startswith("ppo"):
        assert verl["critic/explained_variance"] == pytest.approx(lab["critic/explained_variance"], rel=1e-3)
        assert verl["critic/vf_loss"] == pytest.approx(lab["critic/loss"], rel=1e-3)
