"""Generalised advantage estimation over a trajectory's sampled tokens, and the critic's loss (PPO).

Shapes: R rows (one turn of one trajectory each), L response positions. The tokens of all turns of a
trajectory form one chain in time order; observation tokens are not part of it. The reward arrives at
the last sampled token. With gamma = lambda = 1 this equals the estimate within each row.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from seeupo_recipe.algo.ratio import masked, token_counts


def trajectory_gae(
    values_RL: torch.Tensor,
    response_mask_RL: torch.Tensor,
    rewards_R: torch.Tensor,
    trajectories: Sequence[str],
    turns: Sequence[int],
    *,
    gamma: float = 1.0,
    lam: float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return advantages and returns, both (R, L) with 0 off the mask, no gradient.

    delta_j = r_j + gamma V_{j+1} - V_j and A_j = delta_j + gamma lambda A_{j+1} over the chain of
    sampled tokens, V being 0 after the last one; returns are A + V. For lambda < 1 the estimate
    bootstraps across turn borders.

    Args:
        values_RL: Critic's value of the state before each token.
        response_mask_RL: 1 on sampled tokens.
        rewards_R: Terminal reward of the row's trajectory, repeated on each of its rows.
        trajectories: Trajectory id of each row.
        turns: Turn of each row.
        gamma: Discount per token.
        lam: Lambda of GAE.
    """
    values_RL = masked(values_RL.detach(), response_mask_RL)
    advantages_RL = torch.zeros_like(values_RL)
    chains: dict[str, list[tuple[int, int]]] = {}
    for row, (trajectory, turn) in enumerate(zip(trajectories, turns, strict=True)):
        chains.setdefault(trajectory, []).append((turn, row))
    for chain in chains.values():
        places = [
            (row, position)
            for _, row in sorted(chain)
            for position in torch.nonzero(response_mask_RL[row].bool())[:, 0].tolist()
        ]
        if not places:
            continue
        rows, positions = (torch.tensor(x) for x in zip(*places, strict=True))
        chain_values = values_RL[rows, positions]
        next_value = advantage = chain_values.new_zeros(())
        reward = rewards_R[places[-1][0]].to(chain_values.dtype)
        estimates = torch.empty_like(chain_values)
        for j in range(len(places) - 1, -1, -1):
            delta = (reward if j == len(places) - 1 else 0.0) + gamma * next_value - chain_values[j]
            advantage = delta + gamma * lam * advantage
            next_value = chain_values[j]
            estimates[j] = advantage
        advantages_RL[rows, positions] = estimates
    return advantages_RL, masked(advantages_RL + values_RL, response_mask_RL)


def whiten(values_RL: torch.Tensor, mask_RL: torch.Tensor, *, epsilon: float = 1e-8) -> torch.Tensor:
    """Shift and scale to mean 0 and unbiased variance 1 over all masked-in positions of the batch."""
    kept = values_RL[mask_RL.bool()]
    if kept.numel() < 2:
        return masked(values_RL, mask_RL)
    return masked((values_RL - kept.mean()) * torch.rsqrt(kept.var() + epsilon), mask_RL)


def value_loss(
    predictions_RL: torch.Tensor,
    values_RL: torch.Tensor,
    returns_RL: torch.Tensor,
    mask_RL: torch.Tensor,
    *,
    clip: float,
    denominator: float,
) -> torch.Tensor:
    """Clipped squared error of the critic (PPO), halved; rows averaged over tokens, summed, divided.

    Args:
        predictions_RL: Values under the current critic, with gradient.
        values_RL: Values at the start of the iteration; predictions further than ``clip`` from them
            are judged by the worse of the clipped and the plain error.
        returns_RL: Targets.
        mask_RL: 1 on sampled tokens.
        clip: Range around the old values.
        denominator: Number of rows of the whole mini-batch.
    """
    limited_RL = torch.clamp(predictions_RL, values_RL - clip, values_RL + clip)
    error_RL = torch.maximum((predictions_RL - returns_RL) ** 2, (limited_RL - returns_RL) ** 2)
    rows_R = masked(error_RL, mask_RL).sum(-1) / token_counts(mask_RL)
    return 0.5 * rows_R.sum() / denominator
