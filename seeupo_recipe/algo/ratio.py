"""The ratio of a whole turn under two weights, one scalar per row.

Shapes: R rows (one turn of one trajectory each), L response positions.
"""

from __future__ import annotations

import torch


def masked(values_RL: torch.Tensor, mask_RL: torch.Tensor) -> torch.Tensor:
    """``values_RL`` with 0 where the mask is 0, whatever stood there (NaN and infinities included).

    Selection instead of multiplication also keeps the gradient of masked positions exactly 0.
    """
    return torch.where(mask_RL.bool(), values_RL, torch.zeros((), dtype=values_RL.dtype, device=values_RL.device))


def token_counts(mask_RL: torch.Tensor) -> torch.Tensor:
    """Number of sampled tokens of each row, at least 1 so that it can divide; int64, shape (R,)."""
    return mask_RL.bool().sum(-1).clamp(min=1)


def sequence_log_ratio(
    log_probs_RL: torch.Tensor,
    old_log_probs_RL: torch.Tensor,
    response_mask_RL: torch.Tensor,
    *,
    kind: str,
    clamp: float | None = None,
) -> torch.Tensor:
    """Log of the turn's ratio r_t of section 4.2, shape (R,), differentiable in ``log_probs_RL``.

    ``length_normalised``: mean over the row's sampled tokens of log pi - log pi_old (the GSPO form);
    ``product``: their sum, the log of the plain importance ratio. A row without sampled tokens
    gives 0.

    Args:
        log_probs_RL: Log-probabilities of the sampled tokens under the current weights.
        old_log_probs_RL: The same under the denominator's weights.
        response_mask_RL: 1 on sampled tokens.
        kind: ``length_normalised`` or ``product``.
        clamp: Bound on the absolute value of the result, or None.
    """
    difference_RL = masked(log_probs_RL - old_log_probs_RL, response_mask_RL)
    log_ratio_R = difference_RL.sum(-1)
    if kind == "length_normalised":
        log_ratio_R = log_ratio_R / token_counts(response_mask_RL)
    elif kind != "product":
        raise ValueError(f"unknown ratio kind {kind!r}")
    return log_ratio_R if clamp is None else log_ratio_R.clamp(-clamp, clamp)
