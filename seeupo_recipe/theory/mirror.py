"""Exact one-history update steps: the argmax over the simplex of a turn's objective.

All steps act on the last axis and treat the axes before it as independent histories. ``old`` is the policy that
sampled the batch, shape ``(..., A)``. The maximiser is unique for the KL step; for the piecewise linear objectives
the maximiser nearest to ``old`` is returned (ties leave as much probability in place as possible).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from seeupo_recipe.theory.games import Array, softmax

TIE = 1e-12
"""Two slopes closer than this, relative to the largest slope of the history, count as equal."""


def kl_step(old: Array, q: Array, eta: float) -> Array:
    """``argmax_pi <pi, q> - KL(pi || old) / eta``: ``pi`` proportional to ``old * exp(eta * q)``.

    The HAML step (paper equation 3) with the drift functional ``KL / eta``. ``eta = inf`` is the greedy step.
    """
    if np.isinf(eta):
        return np.eye(q.shape[-1])[q.argmax(-1)]
    with np.errstate(divide="ignore"):
        return softmax(np.log(old) + eta * (q - q.max(-1, keepdims=True)))


def bounded_step(old: Array, q: Array, eps: float) -> Array:
    """``argmax_pi <pi, q>`` over the ratios ``pi / old`` in ``[1 - eps, 1 + eps]``: the clip range as a hard bound."""
    rest = np.maximum(eps * old, 0.0)
    return (1 - eps) * old + _fill(np.stack([rest, rest], -2), np.stack([q, q], -2), eps * np.ones(old.shape[:-1]))


def clipped_argmax(old: Array, gain: Array, loss: Array, eps: float) -> Array:
    """Exact maximiser of the expected clipped surrogate of one history (paper equation 6, product ratio).

    The objective is ``sum_a old_a E[min(r_a M, clip(r_a, 1 - eps, 1 + eps) M) | a]`` with ``r_a = pi_a / old_a``. It
    depends on the law of ``M`` only through ``gain = E[max(M, 0) | a]`` and ``loss = E[min(M, 0) | a]``, and is concave
    and piecewise linear in ``r_a`` with the slopes ``gain``, ``gain + loss``, ``loss`` on ``[0, 1 - eps]``,
    ``[1 - eps, 1 + eps]``, ``[1 + eps, inf)``. So pouring probability along decreasing slopes is exact. Actions with
    ``old_a = 0`` have no ratio and stay at 0.

    Args:
        old: Sampling policy, ``(..., A)``.
        gain: ``E[max(M, 0) | h, a]``, ``(..., A)``.
        loss: ``E[min(M, 0) | h, a]``, ``(..., A)``.
        eps: Clip range.
    """
    ceiling = np.where(old > 0, np.maximum(1.0 - (1 + eps) * old, 0.0), 0.0)
    capacity = np.stack([(1 - eps) * old, eps * old, eps * old, ceiling], -2)
    slope = np.stack([gain, gain + loss, gain + loss, loss], -2)
    return _fill(capacity, slope, np.ones(old.shape[:-1]))


def _fill(capacity: Array, slope: Array, budget: Array) -> Array:
    """Pour ``budget`` into segments by decreasing slope, ties by lower tier, then in proportion to capacity.

    Args:
        capacity: Segment sizes, ``(..., tiers, A)``, tiers ordered from the lowest ratio up.
        slope: Segment slopes, same shape.
        budget: Probability to place, ``(...,)``.

    Returns:
        Probability per action, ``(..., A)``.
    """
    tiers, actions = capacity.shape[-2:]
    flat_shape = (*capacity.shape[:-2], tiers * actions)
    size, key = capacity.reshape(flat_shape), slope.reshape(flat_shape)
    tier = np.repeat(np.arange(tiers), actions)
    gap = key[..., None, :] - key[..., :, None]
    tied = np.abs(gap) <= TIE * np.maximum(np.abs(key).max(-1), 1e-300)[..., None, None]
    first = (~tied & (gap > 0)) | (tied & (tier[None, :] < tier[:, None]))
    equal = tied & (tier[None, :] == tier[:, None])
    before = (first * size[..., None, :]).sum(-1)
    group = (equal * size[..., None, :]).sum(-1)
    share = np.divide(budget[..., None] - before, group, out=np.zeros_like(group), where=group > 0)
    poured = (size * np.clip(share, 0.0, 1.0)).reshape(capacity.shape).sum(-2)
    return poured * np.divide(budget, poured.sum(-1), out=np.ones_like(budget), where=poured.sum(-1) > 0)[..., None]


def clipped_objective(new: Array, old: Array, gain: Array, loss: Array, eps: float) -> Array:
    """Value of the objective that ``clipped_argmax`` maximises, ``(...,)``; actions with ``old = 0`` contribute 0."""
    ratio = np.divide(new, old, out=np.ones_like(new), where=old > 0)
    return (old * (gain * np.minimum(ratio, 1 + eps) + loss * np.maximum(ratio, 1 - eps))).sum(-1)


def kl(eta: float) -> Callable[[Array, Array], Array]:
    """The KL step as a function of ``(old, q)``."""
    return partial(kl_step, eta=eta)


def clipped(eps: float) -> Callable[[Array, Array, Array], Array]:
    """The exact clipped step as a function of ``(old, gain, loss)``."""
    return partial(clipped_argmax, eps=eps)


def bounded(eps: float) -> Callable[[Array, Array, Array], Array]:
    """The hard-bounded step as a function of ``(old, gain, loss)``; only their sum matters inside the clip range."""
    return lambda old, gain, loss: bounded_step(old, gain + loss, eps)
