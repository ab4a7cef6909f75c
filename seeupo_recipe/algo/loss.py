"""The objective of one turn pool (equation 6), with the KL and entropy terms.

Shapes: R rows (one turn of one trajectory each), L response positions. Sums over rows are divided by an
explicit denominator, so that micro-batches, ranks and padding rows do not change the gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from seeupo_recipe.algo.ratio import masked, sequence_log_ratio, token_counts
from seeupo_recipe.algo.settings import SurrogateSettings


@dataclass(frozen=True)
class PoolTerms:
    """Loss of a pool (or of a part of it) and sums for its diagnostics.

    Attributes:
        loss: Scalar to minimise: the part's contribution to the pool's loss.
        clipped: Sum over rows of the clipped fraction (0 or 1 for sequence ratios).
        ratio_deviation: Sum over rows of |ratio - 1|; tokens averaged first for ``loss_ratio=token``.
        kl_old: Sum over rows of the k3 estimate of KL(pi, pi_old), averaged over tokens.
        kl_ref: The same towards the reference policy; 0 without one.
        rows: Number of rows with at least one sampled token.
    """

    loss: torch.Tensor
    clipped: float
    ratio_deviation: float
    kl_old: float
    kl_ref: float
    rows: int


def k3(log_probs_RL: torch.Tensor, ref_log_probs_RL: torch.Tensor) -> torch.Tensor:
    """The k3 estimate of KL(pi, pi_ref) per token: exp(d) - d - 1 with d = log pi_ref - log pi.

    d is limited to 20 in absolute value and the estimate to 10, as verl's ``low_var_kl`` does.
    """
    difference_RL = (ref_log_probs_RL - log_probs_RL).clamp(-20.0, 20.0)
    return (difference_RL.exp() - difference_RL - 1).clamp(-10.0, 10.0)


def reduce_rows(values_RL: torch.Tensor, mask_RL: torch.Tensor, *, token_sum: bool = False) -> torch.Tensor:
    """Mean (or sum) over each row's sampled tokens, 0 for a row without any; shape (R,)."""
    sums_R = masked(values_RL, mask_RL).sum(-1)
    return sums_R if token_sum else sums_R / token_counts(mask_RL)


def pool_loss(
    log_probs_RL: torch.Tensor,
    old_log_probs_RL: torch.Tensor,
    response_mask_RL: torch.Tensor,
    weights: torch.Tensor,
    *,
    denominator: float,
    surrogate: SurrogateSettings,
    loss_ratio: str = "length_normalised",
    log_ratio_clamp: float | None = None,
    clip: bool = True,
    token_sum: bool = False,
    ref_log_probs_RL: torch.Tensor | None = None,
    entropy_RL: torch.Tensor | None = None,
) -> PoolTerms:
    """Negative of equation (6) for the given rows, plus KL minus entropy terms.

    Args:
        log_probs_RL: Log-probabilities of the sampled tokens, with gradient.
        old_log_probs_RL: Those under the ratio's denominator (theta_k).
        response_mask_RL: 1 on sampled tokens; a row without any contributes nothing.
        weights: M_{t+1} of each row, shape (R,), taken as a constant. With ``loss_ratio=token`` it may
            be (R, L): one advantage per token, as PPO has.
        denominator: What sums over rows are divided by (``pool_denominator``).
        surrogate: Clip range and coefficients.
        loss_ratio: ``length_normalised``, ``product`` or ``token``.
        log_ratio_clamp: Bound on the absolute log-ratio, or None.
        clip: False for the plain surrogate r M (RLOO).
        token_sum: Sum a row's tokens instead of averaging them (token ratio, KL and entropy).
        ref_log_probs_RL: Needed if ``surrogate.kl_coefficient`` is not 0.
        entropy_RL: Needed if ``surrogate.entropy_coefficient`` is not 0.

    Raises:
        ValueError: If a needed tensor is missing, the denominator is not positive, or weights per token
            meet a ratio per row.
    """
    if denominator <= 0:
        raise ValueError(f"denominator={denominator}: must be positive")
    if weights.dim() == 2 and loss_ratio != "token":
        raise ValueError("one weight per token needs loss_ratio=token")
    mask_RL = response_mask_RL.bool()
    sampled_R = mask_RL.any(-1)
    log_probs_RL = masked(log_probs_RL, mask_RL)
    old_log_probs_RL = masked(old_log_probs_RL, mask_RL)
    weights = weights.detach().to(log_probs_RL.dtype)

    if loss_ratio == "token":
        log_ratio = log_probs_RL - old_log_probs_RL
        ratio = (log_ratio if log_ratio_clamp is None else log_ratio.clamp(-log_ratio_clamp, log_ratio_clamp)).exp()
        weight = weights if weights.dim() == 2 else weights[:, None]
    else:
        ratio = sequence_log_ratio(
            log_probs_RL, old_log_probs_RL, mask_RL, kind=loss_ratio, clamp=log_ratio_clamp
        ).exp()
        weight = torch.where(sampled_R, weights, 0.0)
    low, high = 1 - surrogate.clip_low, 1 + surrogate.clip_high
    objective = torch.minimum(ratio * weight, ratio.clamp(low, high) * weight) if clip else ratio * weight
    clipped = (((weight > 0) & (ratio > high)) | ((weight < 0) & (ratio < low))) & clip
    deviation = (ratio - 1).abs()
    if loss_ratio == "token":
        objective = reduce_rows(objective, mask_RL, token_sum=token_sum)
        clipped, deviation = reduce_rows(clipped.float(), mask_RL), reduce_rows(deviation, mask_RL)

    loss = -objective.sum() / denominator
    kl_ref = 0.0
    if surrogate.kl_coefficient:
        if ref_log_probs_RL is None:
            raise ValueError("kl_coefficient is not 0: reference log-probabilities are needed")
        kl_R = reduce_rows(k3(log_probs_RL, masked(ref_log_probs_RL, mask_RL)), mask_RL, token_sum=token_sum)
        loss = loss + surrogate.kl_coefficient * kl_R.sum() / denominator
        kl_ref = float(kl_R.detach().sum())
    if surrogate.entropy_coefficient:
        if entropy_RL is None:
            raise ValueError("entropy_coefficient is not 0: token entropies are needed")
        loss = (
            loss
            - surrogate.entropy_coefficient * reduce_rows(entropy_RL, mask_RL, token_sum=token_sum).sum() / denominator
        )
    with torch.no_grad():
        kl_old_R = reduce_rows(k3(log_probs_RL, old_log_probs_RL), mask_RL)
    return PoolTerms(
        loss=loss,
        clipped=float(clipped.sum()),
        ratio_deviation=float(deviation.detach().sum()),
        kl_old=float(kl_old_R.sum()),
        kl_ref=kl_ref,
        rows=int(sampled_R.sum()),
    )
