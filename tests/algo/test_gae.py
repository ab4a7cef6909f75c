import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seeupo_recipe.algo.gae import trajectory_gae, value_loss, whiten


def recursive_advantage(values, reward, j, gamma, lam):
    """GAE of token j by its recursive definition on one chain."""
    last = j == len(values) - 1
    delta = (reward if last else 0.0) + (0.0 if last else gamma * values[j + 1]) - values[j]
    return delta if last else delta + gamma * lam * recursive_advantage(values, reward, j + 1, gamma, lam)


def example():
    """Two trajectories; the first has turns of 2 and 3 tokens, rows out of order, a gap in a mask."""
    values = torch.tensor([[0.5, 0.1, 0.9, 9.0], [0.2, 0.4, 9.0, 9.0], [0.3, 9.0, 0.6, 9.0]], dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 1, 0]])
    return values, mask, ["a", "a", "b"], [1, 0, 0], torch.tensor([1.0, 1.0, -0.5], dtype=torch.float64)


@given(gamma=st.floats(0.5, 1.0), lam=st.floats(0.0, 1.0))
@settings(max_examples=50, deadline=None)
def test_equals_the_recursive_definition_across_turns(gamma, lam):
    values, mask, names, turns, rewards = example()
    advantages, returns = trajectory_gae(values, mask, rewards, names, turns, gamma=gamma, lam=lam)
    chain = [0.2, 0.4, 0.5, 0.1, 0.9]
    expected = [recursive_advantage(chain, 1.0, j, gamma, lam) for j in range(5)]
    found = [*advantages[1, :2].tolist(), *advantages[0, :3].tolist()]
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)
    other = [recursive_advantage([0.3, 0.6], -0.5, j, gamma, lam) for j in range(2)]
    assert advantages[2, [0, 2]].tolist() == pytest.approx(other, rel=1e-9, abs=1e-12)
    assert returns[1, :2].tolist() == pytest.approx([a + v for a, v in zip(expected[:2], chain[:2], strict=True)])
    assert torch.all(advantages[mask == 0] == 0) and torch.all(returns[mask == 0] == 0)


def test_lambda_below_one_bootstraps_from_the_next_turns_value():
    values, mask, names, turns, rewards = example()
    base, _ = trajectory_gae(values, mask, rewards, names, turns, lam=0.0)
    values[0, 0] += 1.0
    moved, _ = trajectory_gae(values, mask, rewards, names, turns, lam=0.0)
    assert (moved - base)[1, 1].item() == pytest.approx(1.0)


def test_at_gamma_and_lambda_one_it_equals_the_per_row_form():
    values, mask, names, turns, rewards = example()
    whole, _ = trajectory_gae(values, mask, rewards, names, turns)
    assert torch.allclose(whole, (rewards[:, None] - values) * mask)
    rows, _ = trajectory_gae(values, mask, rewards, ["x", "y", "z"], [0, 0, 0])
    assert torch.allclose(whole, rows)


def test_whitening_is_over_the_masked_in_tokens():
    values, mask, *_ = example()
    result = whiten(values, mask)
    kept = result[mask.bool()]
    assert kept.mean().item() == pytest.approx(0, abs=1e-9) and kept.std().item() == pytest.approx(1, rel=1e-6)
    assert torch.all(result[mask == 0] == 0)


def test_value_loss_takes_the_worse_of_clipped_and_plain_error():
    old = torch.tensor([[0.0, 0.0]], dtype=torch.float64)
    predictions = torch.tensor([[2.0, 0.1]], dtype=torch.float64, requires_grad=True)
    returns, mask = torch.tensor([[2.0, 1.0]], dtype=torch.float64), torch.tensor([[1, 1]])
    loss = value_loss(predictions, old, returns, mask, clip=0.5, denominator=1)
    assert loss.item() == pytest.approx(0.5 * ((0.5 - 2.0) ** 2 + (0.1 - 1.0) ** 2) / 2)
    loss.backward()
    assert predictions.grad[0, 0] == 0 and predictions.grad[0, 1] != 0
