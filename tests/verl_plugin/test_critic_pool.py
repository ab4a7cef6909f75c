"""PPO with its critic on GPUs of its own (here: a worker process of its own) against the shared pool."""

import pytest
from test_end_to_end import run_cell
from transformers import AutoTokenizer

from seeupo_recipe.lab.policy import load_critic
from seeupo_recipe.runs import ROOT

PPO = ["algorithm=ppo", "training.iterations=1", "evaluation.samples_per_task=1"]


@pytest.fixture
def critic(tmp_path):
    """Critic weights with their head, which verl would else initialise without a seed."""
    source = ROOT / "results/mini/warm_start/tiny-qwen3/vaulthop"
    load_critic(str(source), seed=5).save_pretrained(tmp_path / "critic")
    AutoTokenizer.from_pretrained(source).save_pretrained(tmp_path / "critic")
    return f"algorithm.critic.path={tmp_path / 'critic'}"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_where_the_critic_runs_does_not_change_the_iteration(critic, tmp_path):
    shared = run_cell(tmp_path / "shared", *PPO, critic).metrics()[0]
    alone = ["verl.seeupo.critic_pool=own", "verl.ray_kwargs.ray_init.num_gpus=2"]
    own = run_cell(tmp_path / "own", *PPO, critic, *alone).metrics()[0]
    for key in ("critic/vf_loss", "critic/explained_variance", *shared):
        if key.startswith(("train/", "update/", "tokens/", "critic/vf_loss", "critic/explained")):
            assert own[key] == pytest.approx(shared[key], rel=1e-4, abs=1e-6), key


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_too_few_gpus_for_two_pools_is_said_at_start(tmp_path):
    with pytest.raises(AssertionError, match="Total available GPUs 1.0 is less than total desired GPUs 2"):
        run_cell(tmp_path, *PPO, "verl.seeupo.critic_pool=own")
