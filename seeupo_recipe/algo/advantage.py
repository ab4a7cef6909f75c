"""The joint advantage: one number per trajectory, computed once per iteration (equation 9).

Statistics are taken over trajectories, never over turn rows: pools of late turns hold only the
trajectories that lasted, so row-weighted statistics would be biased towards long ones.

Shapes: N trajectories of the iteration.
"""

from __future__ import annotations

import torch

from seeupo_recipe.algo.settings import Interval


def joint_advantages(
    rewards_N: torch.Tensor,
    groups_N: torch.Tensor,
    *,
    normalization: str = "batch",
    std_floor: float = 1e-6,
    clamp: Interval | None = None,
    valid_N: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the advantage of every trajectory, detached, float64, shape (N,).

    The group mean is subtracted (equation 9), then the result is scaled: ``batch`` subtracts mu_B and
    divides by the unbiased sigma_B over all trajectories of the batch (section 4.2), ``group``
    divides by the unbiased standard deviation of the rewards of the same task (GRPO, GSPO), ``none``
    leaves it. A deviation at or below ``std_floor`` divides nothing.

    A trajectory is left out of every statistic, and gets advantage 0, if its reward is not finite or
    ``valid_N`` is False (rejected, or its environment failed).

    Args:
        rewards_N: Terminal reward of each trajectory, any float dtype.
        groups_N: Integer id of each trajectory's task; groups may have any sizes.
        normalization: ``batch``, ``group`` or ``none``.
        std_floor: See above; the release's value is 1e-6.
        clamp: Bounds applied last (the release's [-3, 3]).
        valid_N: Optional boolean mask.

    Raises:
        ValueError: If shapes differ or ``normalization`` is unknown.
    """
    if rewards_N.shape != groups_N.shape or rewards_N.dim() != 1:
        raise ValueError(
            f"rewards {tuple(rewards_N.shape)} and groups {tuple(groups_N.shape)} must be equal 1-d shapes"
        )
    usable_N = _usable(rewards_N, valid_N)
    rewards_N = rewards_N.detach().double()
    rewards_N = torch.where(usable_N, rewards_N, 0.0)

    _, index_N = torch.unique(groups_N, return_inverse=True)
    mean_N = _group_mean(rewards_N, index_N, usable_N)
    advantages_N = torch.where(usable_N, rewards_N - mean_N, 0.0)
    if normalization == "group":
        advantages_N = _divide(advantages_N, _group_std(advantages_N, index_N, usable_N), std_floor)
    elif normalization == "batch":
        kept = advantages_N[usable_N]
        if kept.numel() > 1:
            centred_N = torch.where(usable_N, advantages_N - kept.mean(), 0.0)
            advantages_N = _divide(centred_N, kept.std(), std_floor)
    elif normalization != "none":
        raise ValueError(f"unknown normalization {normalization!r}")
    if clamp is not None:
        advantages_N = advantages_N.clamp(*clamp)
    return advantages_N


def leave_one_out_advantages(
    rewards_N: torch.Tensor, groups_N: torch.Tensor, valid_N: torch.Tensor | None = None
) -> torch.Tensor:
    """RLOO (Ahmadian et al. 2024): reward minus the mean of the *other* trajectories of the task.

    Equals the group-centred advantage times n/(n-1). A trajectory without valid siblings gets 0.
    Returns float64 of shape (N,); arguments as in :func:`joint_advantages`.
    """
    centred_N = joint_advantages(rewards_N, groups_N, normalization="none", valid_N=valid_N)
    _, index_N = torch.unique(groups_N, return_inverse=True)
    count_N = _group_sum(_usable(rewards_N, valid_N).double(), index_N)
    return centred_N * count_N / (count_N - 1).clamp(min=1)


def _usable(rewards_N: torch.Tensor, valid_N: torch.Tensor | None) -> torch.Tensor:
    finite_N = torch.isfinite(rewards_N)
    return finite_N if valid_N is None else finite_N & valid_N.bool()


def _group_sum(values_N: torch.Tensor, index_N: torch.Tensor) -> torch.Tensor:
    size = int(index_N.max()) + 1 if index_N.numel() else 0
    return values_N.new_zeros(size).index_add(0, index_N, values_N)[index_N]


def _group_mean(values_N: torch.Tensor, index_N: torch.Tensor, usable_N: torch.Tensor) -> torch.Tensor:
    """Mean over the usable members of each row's group (values of others must be 0)."""
    return _group_sum(values_N, index_N) / _group_sum(usable_N.to(values_N.dtype), index_N).clamp(min=1)


def _group_std(centred_N: torch.Tensor, index_N: torch.Tensor, usable_N: torch.Tensor) -> torch.Tensor:
    """Unbiased standard deviation of already centred values; 0 for a group with one usable member."""
    freedom_N = (_group_sum(usable_N.to(centred_N.dtype), index_N) - 1).clamp(min=1)
    return (_group_sum(centred_N**2, index_N) / freedom_N).sqrt()


def _divide(values_N: torch.Tensor, std: torch.Tensor, floor: float) -> torch.Tensor:
    return torch.where(std > floor, values_N / std.clamp(min=floor if floor > 0 else 1e-300), values_N)
