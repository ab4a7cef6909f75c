"""The baselines on the same turn rows: what each takes as advantage, ratio and step, and from where.

All of them train on the rows of all turns at once. ``one`` optimizer step per iteration is what the
paper's and the release's baselines take; ``matched`` gives a baseline as many steps as SeeUPO takes in
the same iteration, each on its own part of the rows, so that every sample is used once by every method.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from seeupo_recipe.algo.advantage import joint_advantages, leave_one_out_advantages
from seeupo_recipe.seeding import stream


@dataclass(frozen=True)
class Baseline:
    """One baseline method.

    Attributes:
        advantage: ``group_std`` (reward centred and divided by the task's deviation),
            ``leave_one_out``, ``batch_std`` (centred and divided over the whole batch, no groups)
            or ``gae`` (needs a critic).
        loss_ratio: ``token`` or ``length_normalised`` (per turn row), as in ``pool_loss``.
        clipped: Whether the surrogate is clipped.
        token_sum: Whether a row's tokens are summed instead of averaged.
        source: Where these choices come from.
    """

    advantage: str
    loss_ratio: str
    clipped: bool
    token_sum: bool
    source: str


BASELINES: dict[str, Baseline] = {
    "grpo": Baseline(
        "group_std", "token", True, False, "Shao et al. 2024, eq. 3: group mean and std, token ratio, 1/|o|"
    ),
    "gspo": Baseline("group_std", "length_normalised", True, False, "Zheng et al. 2025, eq. 5-7: sequence ratio"),
    "rloo": Baseline("leave_one_out", "token", False, True, "Ahmadian et al. 2024: REINFORCE on the whole sequence"),
    "reinforce_pp": Baseline("batch_std", "token", True, False, "Hu 2025: global normalisation, PPO clip, no critic"),
    "ppo": Baseline("gae", "token", True, False, "Schulman et al. 2017: clipped surrogate, GAE"),
}


def trajectory_advantages(
    method: str, rewards_N: torch.Tensor, groups_N: torch.Tensor, valid_N: torch.Tensor | None = None
) -> torch.Tensor:
    """Advantage of every trajectory under a critic-free baseline; float64, shape (N,).

    Group statistics are over trajectories. Arguments as in ``joint_advantages``.

    Raises:
        ValueError: For ``ppo``, whose advantages are per token (``trajectory_gae``).
    """
    kind = BASELINES[method].advantage
    if kind == "group_std":
        return joint_advantages(rewards_N, groups_N, normalization="group", valid_N=valid_N)
    if kind == "leave_one_out":
        return leave_one_out_advantages(rewards_N, groups_N, valid_N)
    if kind == "batch_std":
        return joint_advantages(rewards_N, torch.zeros_like(groups_N), normalization="batch", valid_N=valid_N)
    raise ValueError(f"{method} estimates its advantages per token")


def step_count(steps_per_iteration: str | int, turns_present: int) -> int:
    """Optimizer steps a baseline takes: ``one``, ``matched`` (one per turn present) or a number.

    Raises:
        ValueError: For anything else.
    """
    if steps_per_iteration == "one":
        return 1
    if steps_per_iteration == "matched":
        return turns_present
    if isinstance(steps_per_iteration, int) and steps_per_iteration >= 1:
        return steps_per_iteration
    raise ValueError(f"steps_per_iteration={steps_per_iteration!r}: choose one, matched or a number from 1")


def row_parts(rows: int, steps: int, *, seed: int, iteration: int) -> list[np.ndarray]:
    """Split row positions at random into at most ``steps`` parts of nearly equal size, none empty."""
    permutation = stream("row_parts", seed, iteration).permutation(rows)
    return [np.sort(part) for part in np.array_split(permutation, min(steps, rows))]
