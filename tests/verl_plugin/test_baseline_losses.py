"""verl's own losses, as the recipes configure them, against the lab's and against plain loops."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seeupo_recipe.algo.baselines import BASELINES, row_parts, step_count, trajectory_advantages
from seeupo_recipe.algo.gae import value_loss
from seeupo_recipe.algo.loss import pool_loss
from seeupo_recipe.algo.settings import SurrogateSettings
from seeupo_recipe.strict import ConfigError


def actor_config(method):
    from verl.workers.config import FSDPActorConfig, PolicyLossConfig

    baseline = BASELINES[method]
    clip = 0.2 if baseline.clipped else 1e6
    config = FSDPActorConfig(
        strategy="fsdp2",
        rollout_n=1,
        ppo_mini_batch_size=4,
        use_dynamic_bsz=True,
        clip_ratio_low=clip,
        clip_ratio_high=clip,
        clip_ratio_c=1e6,
        loss_agg_mode="seq-mean-token-sum" if baseline.token_sum else "seq-mean-token-mean",
        policy_loss=PolicyLossConfig(loss_mode="gspo" if baseline.loss_ratio == "length_normalised" else "vanilla"),
    )
    return config


def verl_loss(method, new, old, mask, advantages, rows):
    from verl.trainer.ppo.core_algos import get_policy_loss_fn

    config = actor_config(method)
    config.global_batch_info.update(
        dp_size=1, batch_num_tokens=int(mask.sum()), global_batch_size=rows, loss_scale_factor=None
    )
    loss, _ = get_policy_loss_fn(config.policy_loss.loss_mode)(
        old_log_prob=old, log_prob=new, advantages=advantages, response_mask=mask,
        loss_agg_mode=config.loss_agg_mode, config=config, rollout_is_weights=None,
    )  # fmt: skip
    return loss


def example(seed, rows=6, width=5):
    generator = torch.Generator().manual_seed(seed)
    old = -3 * torch.rand(rows, width, generator=generator, dtype=torch.float64)
    new = old + 0.4 * torch.randn(rows, width, generator=generator, dtype=torch.float64)
    mask = torch.arange(width)[None] < torch.randint(1, width + 1, (rows, 1), generator=generator)
    return new, old, mask, torch.randn(rows, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("method", ["grpo", "gspo", "rloo", "ppo"])
@given(seed=st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_verls_loss_and_gradient_equal_the_labs(method, seed):
    new, old, mask, weights = example(seed)
    baseline = BASELINES[method]
    mine, theirs = new.clone().requires_grad_(), new.clone().requires_grad_()
    terms = pool_loss(
        mine, old, mask, weights, denominator=6, surrogate=SurrogateSettings(kl_coefficient=0.0),
        loss_ratio=baseline.loss_ratio, clip=baseline.clipped, token_sum=baseline.token_sum,
    )  # fmt: skip
    terms.loss.backward()
    loss = verl_loss(method, theirs, old, mask, weights[:, None] * mask, 6)
    loss.backward()
    assert loss.item() == pytest.approx(terms.loss.item(), rel=1e-5)
    assert torch.allclose(theirs.grad, mine.grad, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("method", ["grpo", "gspo", "rloo"])
def test_verls_loss_equals_plain_loops(method):
    new, old, mask, weights = example(1)
    total = 0.0
    for i in range(len(new)):
        tokens = [j for j in range(new.shape[1]) if mask[i, j]]
        differences = [float(new[i, j] - old[i, j]) for j in tokens]
        weight = float(weights[i])

        def clipped(ratio, weight=weight):
            return min(ratio * weight, min(max(ratio, 0.8), 1.2) * weight)

        if method == "gspo":
            total -= clipped(math.exp(sum(differences) / len(tokens)))
        elif method == "grpo":
            total -= sum(clipped(math.exp(d)) for d in differences) / len(tokens)
        else:
            total -= sum(math.exp(d) * weight for d in differences)
    found = verl_loss(method, new, old, mask, weights[:, None] * mask, 6).item()
    assert found == pytest.approx(total / 6, rel=1e-5)


def test_verls_value_loss_equals_the_labs():
    from verl.trainer.ppo.core_algos import compute_value_loss

    new, old, mask, _ = example(2)
    returns = old + 0.7
    theirs, _ = compute_value_loss(
        vpreds=new, values=old, returns=returns, response_mask=mask, cliprange_value=0.5,
        loss_agg_mode="seq-mean-token-mean", dp_size=1, global_batch_size=6,
    )  # fmt: skip
    mine = value_loss(new, old, returns, mask, clip=0.5, denominator=6)
    assert theirs.item() == pytest.approx(mine.item(), rel=1e-6)


def test_grpo_and_gspo_differ_after_one_matched_iteration():
    """F10: the release's loss_mode is read by nothing, so its GRPO and GSPO are the same."""
    new, old, mask, weights = example(3)
    weights_after = {}
    for method in ("grpo", "gspo"):
        x = old.clone()
        for part in row_parts(6, 2, seed=0, iteration=1):
            x.requires_grad_()
            loss = verl_loss(method, x[part], old[part], mask[part], (weights[:, None] * mask)[part], len(part))
            (gradient,) = torch.autograd.grad(loss, x)
            x = (x - 2.0 * gradient - 0.1 * (x - new)).detach()
        weights_after[method] = x
    assert not torch.allclose(weights_after["grpo"], weights_after["gspo"], atol=1e-4)


@given(
    st.lists(st.tuples(st.sampled_from([0.0, 0.25, 1.0]), st.integers(0, 2)), min_size=2, max_size=12),
    st.sampled_from(["grpo", "gspo", "rloo", "reinforce_pp"]),
)
@settings(max_examples=60, deadline=None)
def test_baseline_advantages_equal_plain_loops_over_trajectories(batch, method):
    rewards, groups = map(list, zip(*batch, strict=True))
    found = trajectory_advantages(method, torch.tensor(rewards), torch.tensor(groups)).tolist()

    def deviation(values):
        mean = sum(values) / len(values)
        return math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1)) if len(values) > 1 else 0.0

    for i, reward in enumerate(rewards):
        peers = [r for r, g in batch if g == groups[i]] if method != "reinforce_pp" else rewards
        centred = reward - sum(peers) / len(peers)
        if method == "rloo":
            expected = centred * len(peers) / max(1, len(peers) - 1)
        else:
            spread = deviation(peers)
            expected = centred / spread if spread > 1e-6 else centred
        assert found[i] == pytest.approx(expected, abs=1e-9)


def test_parts_and_steps():
    parts = row_parts(10, 4, seed=1, iteration=2)
    assert sorted(i for part in parts for i in part) == list(range(10))
    assert [len(p) for p in parts] == [3, 3, 2, 2] and len(row_parts(2, 5, seed=0, iteration=0)) == 2
    assert [step_count(s, 6) for s in ("one", "matched", 3)] == [1, 6, 3]
    with pytest.raises((ValueError, ConfigError), match="choose one, matched or a number"):
        step_count("two", 6)
