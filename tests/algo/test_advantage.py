import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seeupo_recipe.algo.advantage import joint_advantages, leave_one_out_advantages


def plain_advantages(rewards, groups, normalization, valid):
    """Oracle in plain Python: lists, loops and the statistics definitions."""
    usable = [v and math.isfinite(r) for r, v in zip(rewards, valid, strict=True)]
    result = [0.0] * len(rewards)
    for i in range(len(rewards)):
        if usable[i]:
            peers = [rewards[j] for j in range(len(rewards)) if usable[j] and groups[j] == groups[i]]
            result[i] = rewards[i] - sum(peers) / len(peers)

    def unbiased_std(values):
        if len(values) < 2:
            return 0.0
        mean = sum(values) / len(values)
        return math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))

    if normalization == "batch":
        kept = [result[i] for i in range(len(result)) if usable[i]]
        if len(kept) > 1:
            mean, std = sum(kept) / len(kept), unbiased_std(kept)
            for i in range(len(result)):
                if usable[i]:
                    result[i] = (result[i] - mean) / (std if std > 1e-6 else 1.0)
    if normalization == "group":
        scaled = list(result)
        for i in range(len(result)):
            if usable[i]:
                std = unbiased_std([rewards[j] for j in range(len(rewards)) if usable[j] and groups[j] == groups[i]])
                scaled[i] = result[i] / (std if std > 1e-6 else 1.0)
        result = scaled
    return result


batches = st.lists(
    st.tuples(st.sampled_from([0.0, 0.4, 1.0, -1.0, math.nan, math.inf]), st.integers(0, 3), st.booleans()),
    min_size=1,
    max_size=24,
)


@given(batches, st.sampled_from(["batch", "group", "none"]))
@settings(max_examples=300, deadline=None)
def test_equals_plain_loops(batch, normalization):
    rewards, groups, valid = map(list, zip(*batch, strict=True))
    found = joint_advantages(
        torch.tensor(rewards), torch.tensor(groups), normalization=normalization, valid_N=torch.tensor(valid)
    )
    # single precision of the rewards themselves
    rewards = torch.tensor(rewards).double().tolist()
    assert found.tolist() == pytest.approx(plain_advantages(rewards, groups, normalization, valid), abs=1e-9)


@given(st.lists(st.floats(-5, 5), min_size=4, max_size=16), st.floats(-10, 10))
@settings(max_examples=100, deadline=None)
def test_a_constant_reward_shift_changes_nothing(rewards, shift):
    values = torch.tensor(rewards, dtype=torch.float64)
    groups = torch.arange(len(rewards)) % 3
    if joint_advantages(values, groups, normalization="none").std() < 1e-3:
        return
    for normalization in ("batch", "group", "none"):
        before = joint_advantages(values, groups, normalization=normalization)
        after = joint_advantages(values + shift, groups, normalization=normalization)
        assert torch.allclose(before, after, atol=1e-6)


def test_f1_the_baseline_is_a_mean_over_trajectories_not_over_turn_rows():
    turns = [2, 9]
    rewards = torch.tensor([1.0, 0.0])
    advantages = joint_advantages(rewards, torch.tensor([0, 0]), normalization="none")
    row_mean = sum(r * t for r, t in zip(rewards.tolist(), turns, strict=True)) / sum(turns)
    assert advantages.tolist() == [0.5, -0.5]
    assert advantages[0] != pytest.approx(1.0 - row_mean)


@pytest.mark.parametrize("normalization", ["batch", "group", "none"])
def test_f2_a_rejected_trajectory_moves_no_sibling(normalization):
    groups, valid = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([True, True, False, True, True])
    results = [
        joint_advantages(
            torch.tensor([1.0, 0.0, rejected, 0.3, 0.9]), groups, normalization=normalization, valid_N=valid
        )
        for rejected in (0.0, 1.0, 1e6, math.nan)
    ]
    assert all(torch.equal(results[0], other) for other in results)
    assert results[0][2] == 0


@pytest.mark.parametrize("normalization", ["batch", "group", "none"])
def test_f9_one_valid_reward_among_nans_gives_zero(normalization):
    rewards = torch.tensor([math.nan, 1.0, math.nan])
    assert joint_advantages(rewards, torch.zeros(3, dtype=torch.long), normalization=normalization).tolist() == [
        0,
        0,
        0,
    ]


@pytest.mark.parametrize("normalization", ["batch", "group", "none"])
def test_all_equal_and_singleton_groups_give_zero(normalization):
    rewards, groups = torch.tensor([0.7, 0.7, 0.7, 0.2]), torch.tensor([0, 0, 0, 1])
    assert joint_advantages(rewards, groups, normalization=normalization).abs().max() < 1e-12


def test_clamp_bounds_the_normalised_advantage():
    rewards, groups = torch.tensor([1.0] + [0.0] * 31), torch.zeros(32, dtype=torch.long)
    free = joint_advantages(rewards, groups)
    assert free.max() > 3
    assert joint_advantages(rewards, groups, clamp=(-3.0, 3.0)).max() == 3


def test_batch_statistics_use_the_unbiased_deviation():
    advantages = joint_advantages(torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.zeros(4, dtype=torch.long))
    assert advantages.std().item() == pytest.approx(1.0)


@given(batches)
@settings(max_examples=100, deadline=None)
def test_leave_one_out_equals_its_definition(batch):
    rewards, groups, valid = map(list, zip(*batch, strict=True))
    found = leave_one_out_advantages(torch.tensor(rewards), torch.tensor(groups), torch.tensor(valid)).tolist()
    exact = torch.tensor(rewards).double().tolist()
    for i in range(len(exact)):
        others = [
            exact[j]
            for j in range(len(exact))
            if j != i and groups[j] == groups[i] and valid[j] and math.isfinite(exact[j])
        ]
        usable = valid[i] and math.isfinite(exact[i])
        expected = exact[i] - sum(others) / len(others) if usable and others else 0.0
        assert found[i] == pytest.approx(expected, abs=1e-9)


def test_unknown_normalization_and_shapes_are_refused():
    with pytest.raises(ValueError, match="unknown normalization"):
        joint_advantages(torch.ones(2), torch.zeros(2, dtype=torch.long), normalization="row")
    with pytest.raises(ValueError, match="equal 1-d shapes"):
        joint_advantages(torch.ones(2), torch.zeros(3, dtype=torch.long))
