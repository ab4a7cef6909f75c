"""The length-normalised ratio (GSPO's form of equation 6) in exact expectation."""

from __future__ import annotations

from functools import partial

import numpy as np

from seeupo_recipe.seeding import stream
from seeupo_recipe.theory.checks.common import ROUNDING, start_values
from seeupo_recipe.theory.checks.improvement import worst_turn_fall
from seeupo_recipe.theory.games import Array, Game, Policy
from seeupo_recipe.theory.haml import Solver, seeupo_iteration
from seeupo_recipe.theory.length import mirror_slope, normalised_argmax, normalised_ratio, plain_slope
from seeupo_recipe.theory.mirror import clipped, kl_step
from seeupo_recipe.theory.registry import Measurement, at_most, check
from seeupo_recipe.theory.search import smallest
from seeupo_recipe.theory.updates import EPS

LENGTHS = np.array([1.0, 2.0])
"""Tokens of the two actions where a counterexample is sought: one is twice as long."""
PRODUCT = clipped(EPS)
NORMALISED = partial(normalised_argmax, lengths=LENGTHS, eps=EPS)
SOURCE = "beyond the paper: length-normalised ratio"


def _states(actions: int, count: int, lengths: tuple[float, ...]) -> tuple[Array, Array, Array, Array]:
    """Random policies, exact advantages, offsets and token counts, ``count`` states each."""
    rng = stream("theory", "length", actions)
    policy, q = rng.dirichlet(np.ones(actions), count), rng.random((count, actions))
    advantage = q - (policy * q).sum(-1, keepdims=True)
    return policy, advantage, rng.uniform(-1.0, 1.0, count), rng.choice(lengths, size=(count, actions))


@check(
    claim=SOURCE,
    statement="Along the mirror step of the length-normalised surrogate dV(h)/dalpha = E[A^2 / L] + (V(h) - V(s0)) "
    "Cov(A, 1/L)",
    perturbation="the offset V(h) - V(s0) is left out",
    mutation={"with_offset": False},
)
def length_slope(with_offset: bool = True) -> Measurement:
    policy, advantage, offset, lengths = _states(3, 256, (1, 2, 4, 8))
    step = 1e-5
    signal = (advantage + offset[:, None]) / lengths
    ahead, behind = ((kl_step(policy, sign * signal, step) * advantage).sum(-1) for sign in (1.0, -1.0))
    predicted = mirror_slope(policy, advantage, offset * with_offset, lengths)
    error = np.abs((ahead - behind) / (2 * step) - predicted).max()
    return at_most(error, 1e-8, "256 states, 3 actions, 1 to 8 tokens", "central difference against the formula")


@check(
    claim=SOURCE,
    statement="A small mirror step on the length-normalised surrogate with baseline V(s0) never lowers V(h)",
    perturbation="M is centred at the value of its own history",
    mutation={"centred": True},
)
def length_small_step(centred: bool = False) -> Measurement:
    def fall(game: Game, policy: Policy) -> Array:
        t = game.turns - 1
        offset = 0.0 if centred else game.value(policy, t) - game.value(policy, 0)
        advantage = game.advantage(policy, t)
        return -mirror_slope(policy[t], advantage, offset + np.zeros(advantage.shape[:-1]), LENGTHS).min(-1)

    found = smallest("length step", fall, 0.01, ((2, 2),))
    return at_most(found.violation, ROUNDING, f"{found.describe()}; tokens (1, 2)", "fall of V(h) per unit step")


@check(
    claim=SOURCE,
    statement="An exact step on the length-normalised clipped objective with baseline V(s0) never lowers J",
    perturbation="the product ratio",
    mutation={"solve": PRODUCT},
)
def length_exact_step(solve: Solver = NORMALISED) -> Measurement:
    def fall(game: Game, policy: Policy) -> Array:
        return start_values(game, policy) - start_values(game, seeupo_iteration(game, policy, "reverse", solve))

    found = smallest("length argmax", fall, 0.005, ((2, 2),), 1000, chance_turns=(0,))
    note = "the environment plays turn 1, so only turn 2 moves"
    return at_most(found.violation, ROUNDING, f"{found.describe()}; tokens (1, 2)", note)


@check(
    claim=SOURCE,
    statement="With M centred at V(h) and two actions an exact step on the length-normalised objective never lowers J",
    condition="two actions (one-dimensional policies), one token count per action",
    perturbation="baseline V(s0)",
    mutation={"centring": "initial"},
)
def length_exact_step_centred(centring: str = "local") -> Measurement:
    def fall(game: Game, policy: Policy) -> Array:
        new = seeupo_iteration(game, policy, "reverse", NORMALISED, centring=centring)
        return start_values(game, policy) - start_values(game, new)

    found = smallest("length argmax", fall, 0.005, ((2, 2),), 1000, chance_turns=(0,))
    return at_most(found.violation, ROUNDING, "1000 games T=2 A=2, environment at turn 1; tokens (1, 2)")


@check(
    claim=SOURCE,
    statement="With M centred at V(h) a small plain gradient step in the softmax logits never lowers V(h)",
    perturbation="all actions have the same number of tokens",
    mutation={"lengths": (20.0,)},
)
def length_plain_gradient(lengths: tuple[float, ...] = (1.0, 100.0)) -> Measurement:
    for actions in (2, 3):
        policy, advantage, offset, tokens = _states(actions, 100_000, lengths)
        slope = plain_slope(policy, advantage, np.zeros_like(offset), tokens)
        worst = int(slope.argmin())
        if slope[worst] < -1e-5:
            break
    where = (
        f"A={actions} pi={policy[worst].round(4).tolist()} A(h,.)={advantage[worst].round(4).tolist()} "
        f"tokens={tokens[worst].astype(int).tolist()}"
    )
    return at_most(-slope[worst], ROUNDING, where, "needs three actions; the mirror step is safe")


@check(
    claim=SOURCE,
    statement="The length-normalised ratio is an importance weight: E_old[(new/old)^(1/L)] = 1",
    perturbation="the product ratio",
    mutation={"product": True},
)
def length_weight(product: bool = False) -> Measurement:
    policy, _, _, lengths = _states(2, 1000, (1, 2))
    new = np.roll(policy, 1, axis=0)
    ratio = normalised_ratio(new, policy, np.ones_like(lengths) if product else lengths)
    error = np.abs((policy * ratio).sum(-1) - 1.0)
    worst = int(error.argmax())
    where = f"old={policy[worst].round(3)} new={new[worst].round(3)} tokens={lengths[worst].astype(int)}"
    return at_most(error[worst], ROUNDING, where)


@check(
    claim=SOURCE,
    statement="Correcting M by length-normalised ratios keeps every turn's exact clipped update monotone",
    perturbation="the correction uses the product ratio",
    mutation={"lengths": np.ones(2)},
)
def length_correction(lengths: Array = LENGTHS) -> Measurement:
    weigh = partial(normalised_ratio, lengths=lengths)
    found = smallest(
        "length correction",
        lambda game, policy: worst_turn_fall(game, policy, ("reverse",), weigh),
        0.005,
        ((2, 2), (3, 2)),
    )
    return at_most(found.violation, ROUNDING, f"{found.describe()}; tokens (1, 2)", "product ratio in the objective")
