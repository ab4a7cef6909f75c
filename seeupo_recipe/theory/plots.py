"""Figures of the theory results, computed anew from the games (PNG and PDF)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from seeupo_recipe.seeding import stream
from seeupo_recipe.theory.checks.common import instance, optimal_values
from seeupo_recipe.theory.checks.optimality import greedy_lock_iterations, rate_bound
from seeupo_recipe.theory.checks.stuck import STARTS, smallest_cured, stuck_fraction
from seeupo_recipe.theory.estimators import group_centred, leave_one_out, over_groups, structural_bias
from seeupo_recipe.theory.games import Game
from seeupo_recipe.theory.haml import ORDERS, haml_iteration, joint_advantage, returns, seeupo_iteration
from seeupo_recipe.theory.length import mirror_slope, normalised_argmax
from seeupo_recipe.theory.mirror import clipped_argmax, clipped_objective, kl
from seeupo_recipe.theory.shared import history_blind, one_row, shared_haml_iteration, shared_return
from seeupo_recipe.theory.updates import BOUNDED, CLIPPED, EPS

COLOURS = {"reverse": "#0072B2", "natural": "#D55E00", "random": "#009E73", "joint": "#CC79A7"}
STYLE = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "font.size": 9,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "pdf.fonttype": 42,
}


def orders() -> Figure:
    """Distance from the optimum per iteration and order with the proven bounds; greedy iterations on the lock game."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), width_ratios=(3, 2))
    game, policy = instance("rates", 48, 3, 3, 1.5)
    for order in ORDERS:
        rng = stream("theory", "plot", order)
        curve, _ = returns(game, policy, partial(haml_iteration, game, order=order, step=kl(10.0), rng=rng), 60)
        gap = (optimal_values(game) - curve).mean(1)
        style = {"ls": (0, (2, 3)), "lw": 2.6} if order == "joint" else {}
        left.plot(np.maximum(gap, 1e-6), color=COLOURS[order], label=order, **style)
    for order, label in (("reverse", "bound, reverse"), ("natural", "bound, other orders")):
        bound = rate_bound(game, policy, order, 10.0, 60).mean(1)
        left.plot(np.arange(1, 61), bound, color=COLOURS[order], ls=":", label=label)
    left.set(yscale="log", ylim=(1e-4, None), xlabel="iteration K", ylabel="mean of J* - J_K")
    left.set_title("Exact HAML steps, eta = 10 (48 games, T=3, A=3)")
    left.legend(ncols=2)
    turns = range(2, 11)
    for order, marker in (("reverse", "o"), ("natural", "s"), ("joint", "x")):
        counts = [greedy_lock_iterations(t, order) for t in turns]
        right.plot(turns, counts, marker=marker, color=COLOURS[order], label=order)
    right.set(xlabel="turns T", ylabel="greedy iterations to the optimum", title="Lock game, start: always leave")
    right.legend()
    return figure


def bias() -> Figure:
    """GRAE's bias against the group size, and SeeUPO's M against the local advantage."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
    game, policy = instance("lemma4", 2, 2, 2)
    sizes, probs = range(2, 8), game.trajectory_probs(policy)
    for estimator, style in ((group_centred, "-o"), (leave_one_out, "--s")):
        biases = np.array(
            [
                game.conditional_mean(policy, sum(over_groups(game.reward, probs, g, estimator)), 1)
                - game.advantage(policy, 1)
                for g in sizes
            ]
        )
        for h in range(2):
            name = "group mean" if estimator is group_centred else "leave-one-out"
            left.plot(sizes, biases[:, 0, h, 0], style, color=f"C{h}", label=f"history {h + 1}, {name}", ms=4)
    for h, offset in enumerate(structural_bias(game, policy, 1)[0]):
        left.axhline(offset, color=f"C{h}", lw=0.8, ls=":")
    left.set(xlabel="group size G", ylabel="E[A_hat | h, a] - A(h, a), turn 2, action 1")
    left.set_title("GRAE: bias (dotted: V(h) - V(s0))")
    left.legend(fontsize=7)
    game, policy = instance("offset plot", 1, 2, 4)
    m = game.conditional_mean(policy, joint_advantage(game, policy), 1)[0]
    local, offset = game.advantage(policy, 1)[0], structural_bias(game, policy, 1)[0]
    reach = np.array([local.min(), local.max()])
    for h in range(4):
        right.plot(reach, reach + offset[h], color=f"C{h}", lw=0.8)
        right.plot(local[h], m[h], "o", color=f"C{h}", label=f"history {h + 1}: V(h) - V(s0) = {offset[h]:+.2f}")
    right.plot(reach, reach, color="black", lw=0.8, ls="--", label="no offset")
    right.set(xlabel="A(h, a), turn 2", ylabel="E[M | h, a]", title="SeeUPO: M carries the same offset")
    right.legend(fontsize=7)
    return figure


def drift() -> Figure:
    """The drift of the clipped objective with an offset baseline (Theorem 7) and with scaled advantages (Theorem 9)."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
    x = np.linspace(0.01, 0.99, 197)
    new, old, advantage = np.stack([x, 1 - x], -1), np.array([0.5, 0.5]), np.array([0.5, -0.5])

    def value(estimate: np.ndarray) -> np.ndarray:
        gain, loss = np.maximum(estimate, 0), np.minimum(estimate, 0)
        return (new * advantage).sum(-1) - clipped_objective(new, old, gain, loss, EPS)

    for offset, colour in ((0.0, "black"), (0.8, "C3"), (-0.8, "C0")):
        left.plot(x, value(advantage + offset), color=colour, label=f"V(h) - V(s0) = {offset:+.1f}")
        left.plot(0.5, -offset, "o", color=colour)
    left.set_title("Theorem 7: baseline V(s0) (dots: reference policy)")
    for scale, colour in ((0.5, "C0"), (1.0, "black"), (2.0, "C3")):
        right.plot(x, value(scale * advantage), color=colour, label=f"delta = {scale:g}")
    right.set_title("Theorem 9: advantages scaled by delta")
    left.set_ylim(None, 2.2)
    for axes in (left, right):
        axes.axhline(0, color="grey", lw=0.8)
        axes.set(xlabel="new probability of the better action (old: 0.5)", ylabel="drift D")
        axes.legend()
    return figure


def stuck() -> Figure:
    """How often the exact clipped argmax rests below the optimum, and a game that local centring cures."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), width_ratios=(3, 2))
    variants = (
        ("baseline V(s0)", "initial", False, "#D55E00"),
        ("baseline V(h)", "local", False, "#0072B2"),
        ("ratios kept in [0.8, 1.2]", "initial", True, "#009E73"),
    )
    for index, (label, centring, bounded, colour) in enumerate(variants):
        fractions = [stuck_fraction(order, centring, bounded=bounded) for order in ORDERS]
        at = np.arange(len(ORDERS)) + 0.27 * (index - 1)
        bars = left.bar(at, fractions, 0.25, color=colour, label=label)
        left.bar_label(bars, [f"{100 * f:.0f}%" for f in fractions], fontsize=7)
    left.set_xticks(range(len(ORDERS)), ORDERS)
    left.set(ylabel="fraction of starts", ylim=(0, 0.15), title=f"At rest below the optimum ({STARTS} games, T=3, A=2)")
    left.legend(fontsize=8, loc="upper center", ncols=3, columnspacing=1.0, handlelength=1.2)
    found = smallest_cured("local")
    for label, centring, bounded, colour in variants:
        solve = BOUNDED if bounded else CLIPPED
        update = partial(seeupo_iteration, found.game, order="reverse", solve=solve, centring=centring)
        curve, _ = returns(found.game, found.policy, update, 80)
        right.plot(curve[:, 0], color=colour, label=label)
    right.axhline(optimal_values(found.game)[0], color="grey", lw=0.8, ls=":", label="optimum")
    right.set(xlabel="iteration", ylabel="J", title="A game that V(h) solves")
    right.legend(fontsize=8)
    return figure


def length() -> Figure:
    """The length-normalised ratio: slope of a small step and value after an exact step, against the offset."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
    offsets = np.linspace(-1.0, 1.0, 201)
    policy, advantage = np.array([0.5, 0.5]), np.array([-0.05, 0.05])
    for lengths, colour in (((10, 10), "black"), ((5, 10), "C0"), ((2, 10), "C3")):
        tokens = np.array(lengths, float)
        slope = mirror_slope(np.tile(policy, (201, 1)), np.tile(advantage, (201, 1)), offsets, tokens)
        left.plot(offsets, slope, color=colour, label=f"tokens {lengths}")
        gain, loss = (part(advantage + offsets[:, None], 0.0) for part in (np.maximum, np.minimum))
        new = normalised_argmax(np.tile(policy, (201, 1)), gain, loss, tokens, EPS)
        right.plot(offsets, (new * advantage).sum(-1), color=colour, label=f"normalised, tokens {lengths}")
    product = clipped_argmax(np.tile(policy, (201, 1)), gain, loss, EPS)
    right.plot(offsets, (product * advantage).sum(-1), color="C2", ls="--", label="product ratio")
    left.set(ylabel="dV(h) / d alpha", title="Small mirror step (short action worse by 0.1)")
    right.set(ylabel="change of V(h)", ylim=(-0.07, None), title="Exact clipped step, eps = 0.2")
    for axes in (left, right):
        axes.axhline(0, color="grey", lw=0.8)
        axes.set_xlabel("offset V(h) - V(s0)")
        axes.legend(fontsize=8)
    return figure


def shared() -> Figure:
    """Return after one exact iteration when both turns of a coordination game share one row."""
    figure, axes = plt.subplots(figsize=(5.5, 3.4))
    game = Game(np.array([[0.0, 1.0, 1.0, 0.0]]), 2, 2)
    row, etas = np.array([[0.6, 0.4]]), np.geomspace(0.01, 100, 80)
    for order in ("reverse", "natural", "joint"):
        after = [
            shared_return(game, one_row(game), shared_haml_iteration(game, one_row(game), row, order, kl(eta)))
            for eta in etas
        ]
        axes.plot(etas, after, color=COLOURS[order], label=f"one row, {order}", ls="--" if order == "natural" else "-")
    blind, own = history_blind(game), np.repeat(row, 2, axis=0)
    after = [shared_return(game, blind, shared_haml_iteration(game, blind, own, "reverse", kl(eta))) for eta in etas]
    axes.plot(etas, after, color="black", label="a row per turn, reverse")
    axes.axhline(shared_return(game, one_row(game), row), color="grey", lw=0.8, ls=":", label="before")
    axes.set(xscale="log", xlabel="step size eta", ylabel="J after one iteration")
    axes.set_title("Reward 1 if the two turns differ, start (0.6, 0.4)")
    axes.legend(fontsize=8)
    return figure


FIGURES = {"orders": orders, "bias": bias, "drift": drift, "stuck": stuck, "length": length, "shared": shared}


def draw_all(directory: Path) -> list[Path]:
    """Draw every figure as ``NAME.png`` and ``NAME.pdf``; returns the files written."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    with plt.rc_context(STYLE):
        for name, draw in FIGURES.items():
            figure = draw()
            for suffix, metadata in (("png", {"Software": None}), ("pdf", {"CreationDate": None})):
                path = directory / f"{name}.{suffix}"
                figure.savefig(path, dpi=150, metadata=metadata)
                written.append(path)
            plt.close(figure)
    return written
