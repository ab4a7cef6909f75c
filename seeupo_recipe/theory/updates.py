"""The algorithms of the paper's Table 1 as exact iterations: an advantage estimator and an update mechanism each.

REINFORCE takes one gradient step in the softmax logits along the exact expected gradient estimate; PPU takes the exact
argmax of the expected clipped objective; SeeUPO takes it turn after turn in reverse order. "Bounded" variants keep
every ratio inside the clip range.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from seeupo_recipe.theory.estimators import (
    exact_critic,
    gae,
    group_standardised,
    over_groups,
    score_gradient,
)
from seeupo_recipe.theory.games import Array, Game, Policy, softmax
from seeupo_recipe.theory.haml import Solver, haml_iteration, joint_advantage, ppo_iteration, seeupo_iteration
from seeupo_recipe.theory.mirror import bounded, clipped, kl

LEARNING_RATE = 2.0
GAE_LAMBDA = 0.95
EPS = 0.2
"""The paper's clip range."""
GROUP = 3
HAML_ETA = 10.0
Update = Callable[[Game, Policy], Policy]


def reinforce_iteration(game: Game, old: Policy, advantages: Sequence[Array], lr: float) -> Policy:
    """One exact gradient step of size ``lr`` in the logits from per-turn trajectory advantages."""
    new = list(old)
    gradient = score_gradient(game, old, advantages)
    with np.errstate(divide="ignore"):
        for t in game.agent_turns:
            new[t] = softmax(np.log(old[t]) + lr * gradient[t])
    return new


def grouped_iteration(game: Game, old: Policy, size: int, estimator: Callable, solve: Solver) -> Policy:
    """One joint update from groups of ``size`` trajectories, expectation over all groups."""
    gain, loss = over_groups(game.reward, game.trajectory_probs(old), size, estimator)
    new = list(old)
    for t in game.agent_turns:
        new[t] = solve(old[t], game.conditional_mean(old, gain, t), game.conditional_mean(old, loss, t))
    return new


@dataclass(frozen=True)
class Algorithm:
    """A row of Table 1.

    Attributes:
        key: Short name used in check names.
        estimator: Advantage estimator.
        mechanism: Update mechanism.
        examples: Algorithms of this kind.
        update: One exact iteration.
        bounded: The same with every ratio kept in the clip range; None where nothing is clipped.
        iterations: Iterations after which a start has to be optimal.
        gradient: Whether it takes gradient steps, which never come to rest exactly.
    """

    key: str
    estimator: str
    mechanism: str
    examples: str
    update: Update
    bounded: Update | None = None
    iterations: int = 200
    gradient: bool = False


def _reinforce(estimate: Callable[[Game, Policy], list[Array]]) -> Update:
    return lambda game, old: reinforce_iteration(game, old, estimate(game, old), LEARNING_RATE)


def _grae(game: Game, old: Policy) -> list[Array]:
    return [joint_advantage(game, old)] * game.turns


def _gae(game: Game, old: Policy) -> list[Array]:
    return gae(game, exact_critic(game, old), GAE_LAMBDA)


def _ppu(estimate: Callable[[Game, Policy], list[Array]], solve: Solver) -> Update:
    return lambda game, old: ppo_iteration(game, old, estimate(game, old), solve)


def grouped(estimator: Callable[[Array], Array], solve: Solver | None = None) -> Update:
    """Joint exact clipped updates from groups of ``GROUP`` trajectories."""
    return lambda game, old: grouped_iteration(game, old, GROUP, estimator, solve or CLIPPED)


def _seeupo(solve: Solver) -> Update:
    return lambda game, old: seeupo_iteration(game, old, "reverse", solve)


CLIPPED, BOUNDED = clipped(EPS), bounded(EPS)
ALGORITHMS = (
    Algorithm("gae_reinforce", "GAE", "REINFORCE", "none in use", _reinforce(_gae), None, 10_000, True),
    Algorithm("gae_ppu", "GAE", "PPU", "PPO", _ppu(_gae, CLIPPED), _ppu(_gae, BOUNDED)),
    Algorithm("grae_reinforce", "GRAE", "REINFORCE", "RLOO", _reinforce(_grae), None, 10_000, True),
    Algorithm("grae_ppu", "GRAE", "PPU", "REINFORCE++, GRPO without std", _ppu(_grae, CLIPPED), _ppu(_grae, BOUNDED)),
    Algorithm(
        "grae_std_ppu",
        "GRAE / group std",
        "PPU",
        "GRPO, GSPO",
        grouped(group_standardised),
        grouped(group_standardised, BOUNDED),
    ),
    Algorithm("seeupo_clip", "GRAE", "PPU, turn by turn, reverse", "SeeUPO", _seeupo(CLIPPED), _seeupo(BOUNDED)),
    Algorithm(
        "seeupo_haml",
        "GRAE",
        "KL mirror step, turn by turn, reverse",
        "SeeUPO as in Theorem 2",
        lambda game, old: haml_iteration(game, old, "reverse", kl(HAML_ETA)),
    ),
)
