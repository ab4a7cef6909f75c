"""What sharing one set of weights between turns does to the guarantees."""

from __future__ import annotations

import numpy as np

from seeupo_recipe.seeding import stream
from seeupo_recipe.theory.checks.common import ROUNDING
from seeupo_recipe.theory.estimators import exact_critic, gae
from seeupo_recipe.theory.games import Array, Game, random_game, softmax
from seeupo_recipe.theory.haml import joint_advantage
from seeupo_recipe.theory.mirror import clipped, kl
from seeupo_recipe.theory.registry import Measurement, at_most, check
from seeupo_recipe.theory.search import smallest_shared
from seeupo_recipe.theory.shared import (
    Rows,
    Sharing,
    history_blind,
    one_row,
    shared_gradient,
    shared_gradient_iteration,
    shared_haml_iteration,
    shared_ppo_step,
    shared_return,
    tables,
)
from seeupo_recipe.theory.updates import EPS

SOURCE = "beyond the paper: shared parameters"
ETA = 10.0
SIZES = ((1, 2, 2), (1, 2, 3))


@check(
    claim=SOURCE,
    statement="With one row for all turns an exact reverse-order HAML iteration never lowers J",
    perturbation="every turn has a row of its own",
    mutation={"sharing": history_blind},
)
def shared_exact_step(sharing: Sharing = one_row) -> Measurement:
    def fall(game: Game, rows: Rows, theta: Array) -> float:
        new = shared_haml_iteration(game, rows, theta, "reverse", kl(ETA))
        return shared_return(game, rows, theta) - shared_return(game, rows, new)

    found = smallest_shared("shared exact", sharing, fall, 0.1, SIZES, 200)
    return at_most(found.violation, ROUNDING, found.describe(), "eta = 10; the last updated turn decides the row")


@check(
    claim=SOURCE,
    statement="With one row for all turns small gradient steps do raise J: (J(lr) - J) / lr tends to |grad J|^2 in "
    "reverse, natural and random order",
    condition="steps small enough",
    perturbation="learning rate 10",
    mutation={"lr": 10.0},
)
def shared_small_steps(lr: float = 1e-6) -> Measurement:
    worst = 0.0
    for index in range(60):
        rng = stream("theory", "shared small", index)
        game = random_game(rng, 1, 2 + index % 2, 2)
        rows, logits = one_row(game), rng.normal(size=(1, 2))
        norm = float((shared_gradient(game, rows, logits) ** 2).sum())
        before = shared_return(game, rows, softmax(logits))
        for order in ("reverse", "natural", "random"):
            after = shared_return(game, rows, softmax(shared_gradient_iteration(game, rows, logits, order, lr, rng)))
            worst = max(worst, abs((after - before) / lr - norm))
    return at_most(worst, 1e-4, "60 random games, T=2 and 3, A=2, one row", "largest error of the slope")


def _ppu_fall(estimator: str, sharing: Sharing) -> Measurement:
    def fall(game: Game, rows: Rows, theta: Array) -> float:
        policy = tables(theta, rows)
        grae = [joint_advantage(game, policy)] * game.turns
        advantages = grae if estimator == "grae" else gae(game, exact_critic(game, policy), 1.0)
        new = shared_ppo_step(game, rows, theta, advantages, clipped(EPS))
        return shared_return(game, rows, theta) - shared_return(game, rows, new)

    found = smallest_shared(f"shared ppu {estimator}", sharing, fall, 0.001, SIZES, 400)
    return at_most(found.violation, ROUNDING, found.describe(), "fall of J in one step")


@check(
    claim="Theorem 7",
    statement="With one row for all turns a joint GRAE + clip step never lowers J",
    perturbation="every turn has a row of its own",
    mutation={"sharing": history_blind},
)
def shared_grae_ppu(sharing: Sharing = one_row) -> Measurement:
    return _ppu_fall("grae", sharing)


@check(
    claim="Theorem 6",
    statement="With one row for all turns a joint clip step on the exact critic's GAE never lowers J",
    perturbation="every turn has a row of its own",
    mutation={"sharing": history_blind},
)
def shared_gae_ppu(sharing: Sharing = one_row) -> Measurement:
    return _ppu_fall("gae", sharing)


@check(
    claim=SOURCE,
    statement="With one row for all turns GRAE + clip falls about as often as exact GAE + clip: fractions of random "
    "games differ by at most 0.02",
    perturbation="an exact reverse-order HAML step (eta = 10) instead of GRAE + clip",
    mutation={"haml": True},
)
def shared_fall_rates(haml: bool = False) -> Measurement:
    falls = np.zeros(2)
    for index in range(600):
        rng = stream("theory", "shared rates", index)
        game = random_game(rng, 1, 2 + index % 2, 2)
        rows, theta = one_row(game), softmax(rng.normal(size=(1, 2)))
        policy, before = tables(theta, rows), shared_return(game, rows, theta)
        grae = [joint_advantage(game, policy)] * game.turns
        steps = (
            shared_haml_iteration(game, rows, theta, "reverse", kl(ETA))
            if haml
            else shared_ppo_step(game, rows, theta, grae, clipped(EPS)),
            shared_ppo_step(game, rows, theta, gae(game, exact_critic(game, policy), 1.0), clipped(EPS)),
        )
        falls += [before - shared_return(game, rows, new) > ROUNDING for new in steps]
    rates = falls / 600
    return at_most(
        abs(rates[0] - rates[1]), 0.02, "600 random games, T=2 and 3, A=2", f"falls {rates[0]:.3f}, {rates[1]:.3f}"
    )
