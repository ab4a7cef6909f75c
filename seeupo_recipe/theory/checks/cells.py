"""The cells of Table 1: every algorithm in the bandit and in the multi-turn setting, on batches of random games.

Two statements per cell, since "converges" asks for both: no iteration lowers any context's value, and every start ends
at the optimum; a third repeats the second with every ratio kept in the clip range. REINFORCE, whose steps vanish near
any deterministic policy, gets easier games and has to come within 0.01.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from seeupo_recipe.seeding import stream
from seeupo_recipe.theory.checks.common import OPTIMAL, ROUNDING, gaps, worst_fall
from seeupo_recipe.theory.estimators import group_centred
from seeupo_recipe.theory.games import Game, Policy, softmax
from seeupo_recipe.theory.registry import Check, Measurement, add, at_most
from seeupo_recipe.theory.updates import ALGORITHMS, BOUNDED, Algorithm, Update, grouped

SETTINGS = {"bandit": "in the bandit (T = 1, random reward)", "multi": "in the multi-turn game"}
CONTEXTS = 64
MONOTONE_ITERATIONS = 60

CLAIMS = {
    ("grae_reinforce", "multi"): "Theorem 5",
    ("gae_ppu", "multi"): "Theorem 6",
    ("grae_ppu", "multi"): "Theorem 7",
    ("grae_ppu", "bandit"): "Theorem 8",
    ("grae_std_ppu", "bandit"): "Theorem 9",
    ("seeupo_clip", "multi"): "Theorems 1 and 2 with the clipped objective",
    ("seeupo_haml", "multi"): "Theorems 1 and 2",
}
SMALL_STEP = "small enough learning rate"
ASSUMPTIONS = {
    ("gae_reinforce", "bandit"): f"exact critic; {SMALL_STEP}",
    ("gae_reinforce", "multi"): f"exact critic; {SMALL_STEP}",
    ("gae_ppu", "bandit"): "exact critic",
    ("gae_ppu", "multi"): "exact critic",
    ("grae_reinforce", "bandit"): SMALL_STEP,
    ("grae_reinforce", "multi"): f"gamma = 1; {SMALL_STEP}",
}
FULL_SUPPORT = "start with full support"
NEAR_UNIFORM = "near-uniform start and coarse rewards; from skewed starts it plateaus for longer than was run"
CLOSE = 0.01
"""Distance from the optimum that a REINFORCE run has to reach."""


def batch(setting: str, easy: bool = False) -> tuple[Game, Policy]:
    """The games of a setting with their starts.

    Args:
        setting: ``bandit`` (one agent turn, then a random outcome) or ``multi`` (three agent turns, a random
            observation after the first).
        easy: Rewards 0, 0.5, 1, near-uniform starts and no random observation, instead of normal rewards and starts
            whose logits have standard deviation 1.5.
    """
    turns, actions, chance_turns = (2, 3, (1,)) if setting == "bandit" else (3, 2, ()) if easy else (4, 2, (1,))
    rng = stream("theory", "cells", setting, int(easy))
    chance = {t: softmax(rng.normal(size=(CONTEXTS, actions**t, actions))) for t in chance_turns}
    shape = (CONTEXTS, actions**turns)
    reward = rng.choice((0.0, 0.5, 1.0), size=shape) if easy else rng.normal(size=shape)
    game = Game(reward, turns, actions, chance=chance)
    return game, game.policy(rng, 0.5 if easy else 1.5)


def _instance(setting: str, easy: bool = False) -> str:
    observation = "" if easy else ", random observation after the 1st"
    sizes = "T=1, A=3, then one of 3 random outcomes" if setting == "bandit" else f"3 agent turns, A=2{observation}"
    law = "rewards 0, 0.5, 1, logits normal(0, 0.5)" if easy else "normal rewards, logits normal(0, 1.5)"
    return f"{CONTEXTS} games: {sizes}; {law}"


def monotone(
    algorithm: Algorithm, setting: str, misassigned: bool = False, update: Update | None = None
) -> Measurement:
    """Largest fall of a context's value in one iteration."""
    game, policy = batch(setting)
    paid = Game(np.roll(game.reward, 1, axis=1), game.turns, game.actions, chance=game.chance) if misassigned else game
    fall = worst_fall(game, policy, partial(update or algorithm.update, paid), MONOTONE_ITERATIONS)
    return at_most(fall, ROUNDING, _instance(setting), f"{MONOTONE_ITERATIONS} iterations")


def optimal(algorithm: Algorithm, setting: str, support: bool = True, update: Update | None = None) -> Measurement:
    """Largest distance from the optimum at the end of the runs."""
    game, policy = batch(setting, algorithm.gradient)
    if not support:
        others = np.where(game.optimal_policy()[0] > 0, 0.0, policy[0])
        policy[0] = others / others.sum(-1, keepdims=True)
    gap, at_rest = gaps(game, policy, partial(update or algorithm.update, game), algorithm.iterations)
    tolerance = CLOSE if algorithm.gradient else OPTIMAL
    below = gap > tolerance
    note = (
        f"after {algorithm.iterations} iterations {int(below.sum())} of {CONTEXTS} starts are below the optimum, "
        f"{int((below & at_rest).sum())} of them at rest"
    )
    return at_most(gap.max(), tolerance, _instance(setting, algorithm.gradient), note)


def _register(algorithm: Algorithm, setting: str) -> None:
    claim = CLAIMS.get((algorithm.key, setting), "Table 1")
    subject = f"{algorithm.estimator} + {algorithm.mechanism} {SETTINGS[setting]}"
    assumption = ASSUMPTIONS.get((algorithm.key, setting), "")
    start = "; ".join(filter(None, (assumption, NEAR_UNIFORM if algorithm.gradient else FULL_SUPPORT)))
    undivided = algorithm.key == "grae_std_ppu"
    no_std, no_support = "nothing is divided by the group std", "the optimal first action starts at probability 0"
    no_bound, kept = "the clipped objective without the bound", "every ratio is kept in [0.8, 1.2]"

    def register(kind: str, end: str, condition: str, perturbation: str, mutation: dict, measure) -> None:
        name = f"cell_{algorithm.key}_{setting}_{kind}"
        add(Check(name, claim, f"{subject}: {end}", condition, perturbation, mutation, measure))

    register(
        "monotone",
        "no iteration lowers any value",
        assumption,
        no_std if undivided else "every trajectory is paid its neighbour's reward",
        {"update": grouped(group_centred)} if undivided else {"misassigned": True},
        partial(monotone, algorithm, setting),
    )
    clipped_multi = algorithm.bounded is not None and setting == "multi"
    end = f"every start ends {'within 0.01 of' if algorithm.gradient else 'at'} the optimum"
    if undivided:
        perturbation, mutation = f"{no_std} and {kept}", {"update": grouped(group_centred, BOUNDED)}
    elif clipped_multi:
        perturbation, mutation = kept, {"update": algorithm.bounded}
    else:
        perturbation, mutation = no_support, {"support": False}
    register("optimal", end, start, perturbation, mutation, partial(optimal, algorithm, setting))
    if clipped_multi:
        perturbation, mutation = no_bound, {"update": algorithm.update}
        if undivided:
            perturbation, mutation = no_std, {"update": grouped(group_centred, BOUNDED)}
        measure = partial(optimal, replace(algorithm, update=algorithm.bounded), setting)
        register("bounded", f"{end} if {kept}", start, perturbation, mutation, measure)


for _algorithm in ALGORITHMS:
    for _setting in SETTINGS:
        _register(_algorithm, _setting)
