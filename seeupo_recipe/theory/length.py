"""The length-normalised ratio ``s = (pi / pi_k)**(1 / L)`` of GSPO, in exact expectation.

``L`` is the number of tokens of an action (a whole response). SeeUPO's loss uses this ratio ("similar to GSPO"); it is
not an importance weight, so neither the surrogate nor the correction keeps its meaning.
"""

from __future__ import annotations

import numpy as np

from seeupo_recipe.theory.games import Array
from seeupo_recipe.theory.haml import ratio


def normalised_ratio(new: Array, old: Array, lengths: Array) -> Array:
    """``(new / old)**(1 / L)``, 1 where ``old`` is 0; ``lengths`` broadcasts over the last axis."""
    return ratio(new, old) ** (1.0 / lengths)


def normalised_objective(new: Array, old: Array, gain: Array, loss: Array, lengths: Array, eps: float) -> Array:
    """``sum_a old_a E[min(s_a M, clip(s_a) M) | a]``, ``(...,)``."""
    s = normalised_ratio(new, old, lengths)
    return (old * (gain * np.minimum(s, 1 + eps) + loss * np.maximum(s, 1 - eps))).sum(-1)


def normalised_argmax(old: Array, gain: Array, loss: Array, lengths: Array, eps: float, points: int = 801) -> Array:
    """Maximiser of ``normalised_objective`` for two actions by a global grid and one refinement around its best point.

    The objective is not concave (the negative part is convex in ``pi``), so a global search is needed. The old policy
    is a candidate, hence the result never has a lower objective than no update.

    Raises:
        ValueError: There are not exactly two actions.
    """
    if old.shape[-1] != 2:
        raise ValueError("the grid search covers two actions")

    def best(grid: Array) -> Array:
        grid = np.concatenate([np.clip(grid, 0.0, 1.0), old[..., :1]], -1)
        pairs = np.stack([grid, 1.0 - grid], -1)
        scores = normalised_objective(pairs, old[..., None, :], gain[..., None, :], loss[..., None, :], lengths, eps)
        return np.take_along_axis(grid, scores.argmax(-1)[..., None], -1)

    coarse = best(np.broadcast_to(np.linspace(0.0, 1.0, points), (*old.shape[:-1], points)))
    first = best(coarse + np.linspace(-1.0, 1.0, points) / (points - 1))
    return np.concatenate([first, 1.0 - first], -1)


def mirror_slope(policy: Array, advantage: Array, offset: Array, lengths: Array) -> Array:
    """``dV(h) / d alpha`` along ``pi ~ pi_k exp(alpha (A + offset) / L)``, the mirror (natural gradient) direction.

    Equals ``E[A**2 / L] + offset * Cov(A, 1 / L)``: the second term can outweigh the first.

    Args:
        policy: ``(..., A)``.
        advantage: Exact advantages, mean 0 under ``policy``, ``(..., A)``.
        offset: ``V(h) - V(s0)``, ``(...,)``.
        lengths: Tokens per action, broadcast over the last axis.
    """
    return (policy * advantage**2 / lengths).sum(-1) + offset * (policy * advantage / lengths).sum(-1)


def plain_slope(policy: Array, advantage: Array, offset: Array, lengths: Array) -> Array:
    """``dV(h) / d alpha`` along the plain gradient of the surrogate in the softmax logits, ``(...,)``."""
    signal = (advantage + offset[..., None]) / lengths
    gradient = policy * (signal - (policy * signal).sum(-1, keepdims=True))
    return (policy * advantage * gradient).sum(-1)
