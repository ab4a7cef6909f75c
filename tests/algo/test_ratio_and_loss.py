import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seeupo_recipe.algo.loss import k3, pool_loss
from seeupo_recipe.algo.ratio import sequence_log_ratio
from seeupo_recipe.algo.settings import SurrogateSettings

NO_KL = SurrogateSettings(kl_coefficient=0.0)


def random_rows(seed, rows=5, width=7):
    generator = torch.Generator().manual_seed(seed)
    old = -torch.rand(rows, width, generator=generator, dtype=torch.float64) * 3
    new = old + torch.randn(rows, width, generator=generator, dtype=torch.float64) * 0.4
    ref = old + torch.randn(rows, width, generator=generator, dtype=torch.float64) * 0.3
    lengths = torch.randint(1, width + 1, (rows,), generator=generator)
    mask = torch.arange(width)[None] < lengths[:, None]
    weights = torch.randn(rows, generator=generator, dtype=torch.float64)
    return new, old, ref, mask, weights


def plain_loss(new, old, ref, mask, weights, *, denominator, low, high, kl, kind):
    """Oracle: equation (6) and the k3 term in plain Python."""
    total = 0.0
    for i in range(len(new)):
        tokens = [j for j in range(len(new[i])) if mask[i][j]]
        if not tokens:
            continue
        differences = [new[i][j] - old[i][j] for j in tokens]

        def clipped(ratio, weight):
            bounded = max(1 - low, min(1 + high, ratio))
            return min(ratio * weight, bounded * weight)

        if kind == "token":
            objective = sum(clipped(math.exp(d), weights[i]) for d in differences) / len(tokens)
        else:
            exponent = sum(differences) / (len(tokens) if kind == "length_normalised" else 1)
            objective = clipped(math.exp(exponent), weights[i])
        divergences = []
        for j in tokens:
            d = ref[i][j] - new[i][j]
            divergences.append(math.exp(d) - d - 1)
        total += -objective + kl * sum(divergences) / len(tokens)
    return total / denominator


@pytest.mark.parametrize("kind", ["length_normalised", "product", "token"])
@given(seed=st.integers(0, 10_000), kl=st.sampled_from([0.0, 0.002, 0.5]), high=st.sampled_from([0.2, 0.4]))
@settings(max_examples=60, deadline=None)
def test_equals_plain_loops(kind, seed, kl, high):
    new, old, ref, mask, weights = random_rows(seed)
    surrogate = SurrogateSettings(clip_low=0.2, clip_high=high, kl_coefficient=kl)
    found = pool_loss(
        new, old, mask, weights, denominator=11, surrogate=surrogate, loss_ratio=kind, ref_log_probs_RL=ref
    )
    expected = plain_loss(
        new.tolist(), old.tolist(), ref.tolist(), mask.tolist(), weights.tolist(),
        denominator=11, low=0.2, high=high, kl=kl, kind=kind,
    )  # fmt: skip
    assert found.loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("kind", ["length_normalised", "product", "token"])
def test_gradient_equals_finite_differences(kind):
    new, old, ref, mask, weights = random_rows(3)
    surrogate = SurrogateSettings(kl_coefficient=0.1)

    def loss(x):
        return pool_loss(
            x, old, mask, weights, denominator=4, surrogate=surrogate, loss_ratio=kind, ref_log_probs_RL=ref
        ).loss

    variable = new.clone().requires_grad_()
    loss(variable).backward()
    step = 1e-6
    for i in range(new.shape[0]):
        for j in range(new.shape[1]):
            up, down = new.clone(), new.clone()
            up[i, j] += step
            down[i, j] -= step
            slope = (loss(up) - loss(down)).item() / (2 * step)
            assert variable.grad[i, j].item() == pytest.approx(slope, rel=1e-4, abs=1e-8)


def test_f4_nan_at_masked_positions_gives_a_finite_loss_and_no_gradient_there():
    new, old, ref, mask, weights = random_rows(1)
    mask[2] = False
    clean = new.clone().requires_grad_()
    surrogate = SurrogateSettings(kl_coefficient=0.1)
    reference = pool_loss(clean, old, mask, weights, denominator=5, surrogate=surrogate, ref_log_probs_RL=ref)
    reference.loss.backward()
    for poison in (math.nan, math.inf, -math.inf):
        dirty = torch.where(mask, new, poison).requires_grad_()
        terms = pool_loss(
            dirty,
            torch.where(mask, old, poison),
            mask,
            weights.masked_fill(~mask.any(-1), math.nan),
            denominator=5,
            surrogate=surrogate,
            ref_log_probs_RL=torch.where(mask, ref, poison),
        )
        terms.loss.backward()
        assert terms.loss.item() == reference.loss.item()
        assert torch.equal(dirty.grad, clean.grad)
        assert torch.all(dirty.grad[~mask] == 0)


@given(seed=st.integers(0, 1000), extra=st.integers(1, 6), split=st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_f5_padding_rows_order_and_batch_split_leave_the_gradient_as_it_is(seed, extra, split):
    new, old, ref, mask, weights = random_rows(seed)
    surrogate = SurrogateSettings(kl_coefficient=0.3)

    def gradient(order, padding):
        x = new.clone().requires_grad_()
        rows = torch.tensor(order)
        blank = torch.zeros(padding, new.shape[1], dtype=new.dtype)
        for part in rows.split(split):
            pool_loss(
                torch.cat([x[part], blank]),
                torch.cat([old[part], blank]),
                torch.cat([mask[part], blank.bool()]),
                torch.cat([weights[part], torch.full((padding,), 7.0, dtype=weights.dtype)]),
                denominator=len(order),
                surrogate=surrogate,
                ref_log_probs_RL=torch.cat([ref[part], blank]),
            ).loss.backward()
        return x.grad

    plain = gradient([0, 1, 2, 3, 4], 0)
    assert torch.allclose(plain, gradient([3, 1, 4, 0, 2], extra), atol=1e-15)


def test_f7_turns_of_3_and_300_tokens_weigh_the_same():
    length = 300
    old = torch.full((2, length), -1.0, dtype=torch.float64)
    mask = torch.zeros(2, length, dtype=torch.bool)
    mask[0, :3], mask[1, :] = True, True
    x = old.clone().requires_grad_()
    terms = pool_loss(x, old, mask, torch.ones(2), denominator=2, surrogate=NO_KL)
    terms.loss.backward()
    assert terms.rows == 2
    assert x.grad[0].sum().item() == pytest.approx(x.grad[1].sum().item())


@pytest.mark.parametrize("length", [1, 3, 50])
def test_f8_a_constant_shift_gives_exp_d_at_any_length_and_exp_dl_as_product(length):
    old, mask = torch.zeros(1, length), torch.ones(1, length)
    shift = 0.01
    normalised = sequence_log_ratio(old + shift, old, mask, kind="length_normalised")
    product = sequence_log_ratio(old + shift, old, mask, kind="product")
    assert normalised.item() == pytest.approx(shift, rel=1e-5)
    assert product.item() == pytest.approx(shift * length, rel=1e-5)


def test_f3_a_row_without_sampled_tokens_contributes_nothing():
    new, old, ref, mask, weights = random_rows(2)
    mask[1] = False
    surrogate = SurrogateSettings(kl_coefficient=0.1)
    keep = [0, 2, 3, 4]
    with_row = pool_loss(new, old, mask, weights, denominator=5, surrogate=surrogate, ref_log_probs_RL=ref)
    without = pool_loss(
        new[keep], old[keep], mask[keep], weights[keep], denominator=5, surrogate=surrogate, ref_log_probs_RL=ref[keep]
    )
    assert with_row.loss.item() == pytest.approx(without.loss.item(), rel=1e-12)
    assert with_row.rows == without.rows == 4


def test_f12_with_zero_advantage_the_step_lowers_the_kl():
    torch.manual_seed(0)
    logits = torch.randn(4, 9, dtype=torch.float64, requires_grad=True)
    ref_logits = logits.detach() + 0.5 * torch.randn(4, 9, dtype=torch.float64)
    tokens = torch.distributions.Categorical(logits=logits.detach()).sample((64,)).T

    def exact_kl():
        p = logits.detach().log_softmax(-1)
        return float((p.exp() * (p - ref_logits.log_softmax(-1))).sum(-1).mean())

    before = exact_kl()
    for _ in range(5):
        log_probs = logits.log_softmax(-1).gather(1, tokens)
        ref = ref_logits.log_softmax(-1).gather(1, tokens)
        loss = pool_loss(
            log_probs,
            log_probs.detach(),
            torch.ones_like(log_probs),
            torch.zeros(4),
            denominator=4,
            surrogate=SurrogateSettings(kl_coefficient=1.0),
            ref_log_probs_RL=ref,
        ).loss
        (gradient,) = torch.autograd.grad(loss, logits)
        with torch.no_grad():
            logits -= 0.5 * gradient
    assert exact_kl() < before


def test_clipping_is_asymmetric_and_follows_the_sign_of_the_weight():
    old, mask = torch.zeros(4, 1), torch.ones(4, 1)
    new = torch.log(torch.tensor([[1.3], [0.7], [1.3], [0.7]])).requires_grad_()
    surrogate = SurrogateSettings(clip_low=0.2, clip_high=0.25, kl_coefficient=0.0)
    terms = pool_loss(new, old, mask, torch.tensor([2.0, 1.0, -1.0, -1.0]), denominator=1, surrogate=surrogate)
    terms.loss.backward()
    assert terms.clipped == 2
    assert (new.grad[:, 0] != 0).tolist() == [False, True, True, False]
    assert terms.loss.item() == pytest.approx(-(2 * 1.25 + 0.7 - 1.3 - 0.8), rel=1e-5)


def test_unclipped_and_summed_tokens_are_the_reinforce_gradient_at_ratio_one():
    new, old, _, mask, weights = random_rows(5)
    x = old.clone().requires_grad_()
    pool_loss(
        x, old, mask, weights, denominator=3, surrogate=NO_KL, loss_ratio="token", clip=False, token_sum=True
    ).loss.backward()
    assert torch.allclose(x.grad, -(mask.double() * weights[:, None]) / 3)
    assert new.shape == old.shape


def test_log_ratio_clamp_bounds_the_ratio():
    log_ratio = sequence_log_ratio(
        torch.tensor([[50.0]]), torch.zeros(1, 1), torch.ones(1, 1), kind="product", clamp=10
    )
    assert log_ratio.item() == 10


def test_k3_is_zero_at_equality_and_positive_elsewhere():
    values = torch.linspace(-3, 3, 13)
    assert k3(values, values).abs().max() == 0
    assert torch.all(k3(values, values + 0.3) > 0)


def test_missing_tensors_and_bad_denominators_are_refused():
    new, old, ref, mask, weights = random_rows(0)
    with pytest.raises(ValueError, match="reference log-probabilities"):
        pool_loss(new, old, mask, weights, denominator=1, surrogate=SurrogateSettings())
    with pytest.raises(ValueError, match="must be positive"):
        pool_loss(new, old, mask, weights, denominator=0, surrogate=NO_KL)
    with pytest.raises(ValueError, match="entropies are needed"):
        pool_loss(
            new,
            old,
            mask,
            weights,
            denominator=1,
            surrogate=SurrogateSettings(kl_coefficient=0, entropy_coefficient=0.1),
        )
    with pytest.raises(ValueError, match="loss_ratio=token"):
        pool_loss(new, old, mask, weights[:, None].expand(5, 7), denominator=1, surrogate=NO_KL)
    assert ref.shape == new.shape
