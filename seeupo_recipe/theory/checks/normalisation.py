"""Normalised advantages: group std (Theorem 9) and batch statistics (Appendix H.3.3)."""

from __future__ import annotations

import numpy as np

from seeupo_recipe.seeding import stream
from seeupo_recipe.theory.checks.common import ROUNDING, describe, start_values
from seeupo_recipe.theory.checks.drift import candidates, drift, last_turn
from seeupo_recipe.theory.estimators import group_centred, group_standardised
from seeupo_recipe.theory.games import Array, Game, Policy
from seeupo_recipe.theory.haml import joint_advantage
from seeupo_recipe.theory.mirror import clipped, clipped_argmax, kl_step
from seeupo_recipe.theory.registry import Measurement, at_most, check
from seeupo_recipe.theory.search import smallest, smallest_shared
from seeupo_recipe.theory.shared import Rows, one_row, shared_ppo_step, shared_return, tables
from seeupo_recipe.theory.updates import EPS, grouped_iteration

SCALES = (0.25, 0.5, 0.8, 1.25, 2.0, 4.0)


@check(
    claim="Theorem 9",
    statement="Scaling the advantage by delta = 0.25, 0.5, 0.8, 1.25, 2 or 4 makes the drift negative somewhere "
    "(below -0.001)",
    perturbation="delta = 1",
    mutation={"scales": (1.0,)},
)
def theorem9_scaled_drift(scales: tuple[float, ...] = SCALES) -> Measurement:
    game, old, advantage, _ = last_turn("theorem9", 1)
    lowest = [drift(candidates(old), old, advantage, delta * advantage).min() for delta in scales]
    return at_most(max(lowest), -1e-3, describe(game))


@check(
    claim="beyond the paper: Theorem 9 and batch normalisation",
    statement="Theorem 9's criterion also rejects batch normalisation: dividing by sigma_B = 0.37 makes the drift "
    "negative (below -0.001)",
    perturbation="sigma_B = 1",
    mutation={"sigma": 1.0},
)
def theorem9_rejects_batch_std(sigma: float = 0.37) -> Measurement:
    game, old, advantage, _ = last_turn("theorem9", 1)
    return at_most(drift(candidates(old), old, advantage, advantage / sigma).min(), -1e-3, describe(game))


@check(
    claim="Theorem 9",
    statement="Scaling the advantage of a state by any delta(s) > 0 leaves that state's exact clipped step unchanged",
    condition="every state has its own table row",
    perturbation="pairs of states share a row",
    mutation={"shared": True},
)
def theorem9_argmax_per_state(shared: bool = False) -> Measurement:
    game, old, advantage, _ = last_turn("theorem9", 1)
    scale = np.exp(stream("theory", "theorem9", "scale").normal(size=(game.contexts, 1, 1)))
    steps = []
    for estimate in (advantage, scale * advantage):
        gain, loss, base = np.maximum(estimate, 0), np.minimum(estimate, 0), old
        if shared:
            gain, loss, base = gain[::2] + gain[1::2], loss[::2] + loss[1::2], old[::2]
        steps.append(clipped_argmax(base, gain, loss, EPS))
    return at_most(np.abs(steps[0] - steps[1]).max(), ROUNDING, describe(game))


@check(
    claim="Theorem 9",
    statement="With one row for two states a clipped step on group-standardised advantages never lowers J",
    perturbation="the batch std replaces the group std",
    mutation={"normalise": "batch"},
)
def theorem9_shared_states(normalise: str = "group") -> Measurement:
    def fall(game: Game, rows: Rows, theta: Array) -> float:
        policy = tables(theta, rows)
        advantage = joint_advantage(game, policy)
        second = game.trajectory_probs(policy) * advantage**2
        std = np.sqrt(second.sum(-1, keepdims=True) if normalise == "group" else (game.prior @ second).sum())
        scaled = np.divide(advantage, std, out=np.zeros_like(advantage), where=std > 0)
        new = shared_ppo_step(game, rows, theta, [scaled], clipped(EPS))
        return shared_return(game, rows, theta) - shared_return(game, rows, new)

    found = smallest_shared("theorem9", one_row, fall, 0.002, ((2, 1, 2), (3, 1, 2), (2, 1, 3)))
    return at_most(found.violation, ROUNDING, found.describe())


@check(
    claim="beyond the paper: group std at finite G",
    statement="In a bandit with random reward and separate tables, a clipped step on group-standardised advantages "
    "(G = 4, exact expectation) never lowers J",
    perturbation="the group mean is subtracted but nothing is divided",
    mutation={"estimator": group_centred},
)
def theorem9_finite_group(estimator=group_standardised) -> Measurement:
    def fall(game: Game, policy: Policy) -> Array:
        new = grouped_iteration(game, policy, 4, estimator, clipped(EPS))
        return start_values(game, policy) - start_values(game, new)

    found = smallest("finite group", fall, 0.005, ((2, 2),), 1000, chance_turns=(1,))
    return at_most(found.violation, ROUNDING, found.describe(), "the safe action wins more often, the other pays more")


def _advantages(name: str) -> tuple[Array, Array]:
    rng = stream("theory", name)
    return rng.dirichlet(np.ones(4), 256), rng.normal(size=(256, 4))


@check(
    claim="Appendix H.3.3",
    statement="Dividing all advantages by one sigma_B > 0 leaves the exact clipped step unchanged",
    perturbation="a KL step instead of the clipped one",
    mutation={"penalty": True},
)
def h33_scale(penalty: bool = False) -> Measurement:
    old, m = _advantages("h33")

    def solve(x: Array) -> Array:
        return kl_step(old, x, 1.0) if penalty else clipped_argmax(old, np.maximum(x, 0), np.minimum(x, 0), EPS)

    error = max(np.abs(solve(m) - solve(m / sigma)).max() for sigma in (0.1, 0.37, 3.0))
    return at_most(error, ROUNDING, "256 states, 4 actions")


@check(
    claim="Appendix H.3.3",
    statement="Subtracting one mu_B = 0.25 from all advantages leaves the exact clipped step unchanged",
    perturbation="mu_B = 0, its value when the statistics count every trajectory once",
    mutation={"mu": 0.0},
)
def h33_shift(mu: float = 0.25) -> Measurement:
    def change(game: Game, policy: Policy) -> Array:
        m = game.advantage(policy, 0)
        steps = [clipped_argmax(policy[0], np.maximum(x, 0), np.minimum(x, 0), EPS) for x in (m, m - mu)]
        return np.abs(steps[0] - steps[1]).max((1, 2))

    found = smallest("h33 shift", change, 0.05, ((1, 2), (1, 3)))
    return at_most(found.violation, ROUNDING, found.describe())


@check(
    claim="Appendix H.3.3",
    statement="Dividing all advantages by sigma_B leaves a KL-penalised step (fixed coefficient) unchanged",
    perturbation="the KL coefficient is divided by sigma_B as well",
    mutation={"compensate": True},
)
def h33_kl_penalty(compensate: bool = False) -> Measurement:
    sigma = 0.37

    def change(game: Game, policy: Policy) -> Array:
        m = game.advantage(policy, 0)
        scaled = kl_step(policy[0], m / sigma, sigma if compensate else 1.0)
        return np.abs(kl_step(policy[0], m, 1.0) - scaled).max((1, 2))

    found = smallest("h33 kl", change, 0.05, ((1, 2),))
    return at_most(found.violation, ROUNDING, found.describe())
