"""Seeded search for the smallest game that violates a statement.

Sizes ``(contexts, turns, actions)`` are tried from the smallest table up. Rewards come from a few round levels and
policies from tenths, so a counterexample can be checked with pencil and paper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from seeupo_recipe.seeding import stream
from seeupo_recipe.theory.games import Array, Game, Policy
from seeupo_recipe.theory.shared import Rows, Sharing

LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)
SINGLE_CONTEXT = ((2, 2), (2, 3), (3, 2), (3, 3))
"""``(turns, actions)`` in order of table size."""


@dataclass(frozen=True)
class Found:
    """A candidate of the search: the largest violation at the first size that has one above the margin.

    Attributes:
        violation: Its size; the largest seen anywhere if no size exceeded the margin.
        game: The game, one context.
        policy: The policy to start from.
        tried: Number of candidates examined.
    """

    violation: float
    game: Game
    policy: Policy
    tried: int

    def describe(self) -> str:
        """The instance in one line."""
        tables = "; ".join(f"pi{t + 1}={_short(p[0])}" for t, p in enumerate(self.policy) if t not in self.game.chance)
        fixed = "; ".join(f"environment at turn {t + 1}={_short(k[0])}" for t, k in self.game.chance.items())
        shape = f"T={self.game.turns} A={self.game.actions}"
        instance = f"{shape} r={_short(self.game.reward[0])}; {tables}" + (f"; {fixed}" if fixed else "")
        return f"{instance} (of {self.tried} games)"


def _short(values: Array) -> str:
    return (
        np.array2string(np.squeeze(values), separator=",", precision=4, suppress_small=True)
        .replace("\n", "")
        .replace(" ", "")
    )


def grid_policy(rng: np.random.Generator, contexts: int, turns: int, actions: int, parts: int = 20) -> Policy:
    """Full-support tables whose probabilities are multiples of ``1 / parts``."""
    tables = []
    for t in range(turns):
        cuts = rng.multinomial(parts - actions, rng.dirichlet(np.full(actions, 0.7), (contexts, actions**t)))
        tables.append((cuts + 1) / parts)
    return tables


def batch(
    name: str, turns: int, actions: int, candidates: int, chance_turns: Iterable[int] = (), levels=LEVELS
) -> tuple[Game, Policy]:
    """``candidates`` independent single-context games in one ``Game`` (its contexts), with a policy for each."""
    rng = stream("theory", name, turns, actions)
    policy = grid_policy(rng, candidates, turns, actions)
    chance = {t: policy[t] for t in chance_turns}
    return Game(rng.choice(levels, size=(candidates, actions**turns)), turns, actions, chance=chance), policy


def pick(game: Game, policy: Policy, index: int) -> tuple[Game, Policy]:
    """The ``index``-th candidate of a batch as a game of its own."""
    own = [table[index : index + 1] for table in policy]
    return Game(game.reward[index : index + 1], game.turns, game.actions, chance={t: own[t] for t in game.chance}), own


def smallest(
    name: str,
    violation: Callable[[Game, Policy], Array],
    margin: float,
    sizes: Iterable[tuple[int, int]] = SINGLE_CONTEXT,
    candidates: int = 2000,
    chance_turns: Iterable[int] = (),
) -> Found:
    """Search single-context games; stops at the first size whose largest violation exceeds ``margin``.

    Args:
        name: Names the random stream.
        violation: Maps a batch (contexts are candidates) to one violation per candidate, ``(candidates,)``.
        margin: A violation counts from here on; keep it far above rounding.
        sizes: ``(turns, actions)``, smallest first.
        candidates: Games drawn per size.
        chance_turns: Turns that the environment plays.
    """
    best, tried = None, 0
    for turns, actions in sizes:
        game, policy = batch(name, turns, actions, candidates, chance_turns)
        found = violation(game, policy)
        tried += candidates
        index = int(found.argmax())
        if best is None or found[index] > best.violation:
            best = Found(float(found[index]), *pick(game, policy, index), tried)
        if best.violation > margin:
            break
    return Found(best.violation, best.game, best.policy, tried)


@dataclass(frozen=True)
class FoundShared:
    """As ``Found`` for games whose histories share rows."""

    violation: float
    game: Game
    theta: Array
    tried: int

    def describe(self) -> str:
        """The instance in one line."""
        shape = f"S={self.game.contexts} T={self.game.turns} A={self.game.actions}"
        return f"{shape} r={_short(self.game.reward)}; rows={_short(self.theta)} (of {self.tried} games)"


def smallest_shared(
    name: str,
    sharing: Sharing,
    violation: Callable[[Game, Rows, Array], float],
    margin: float,
    sizes: Iterable[tuple[int, int, int]],
    candidates: int = 300,
) -> FoundShared:
    """As ``smallest`` for shared rows; sizes are ``(contexts, turns, actions)``, candidates are tried one by one."""
    best, tried = None, 0
    for contexts, turns, actions in sizes:
        rng = stream("theory", name, contexts, turns, actions)
        for _ in range(candidates):
            game = Game(rng.choice(LEVELS, size=(contexts, actions**turns)), turns, actions)
            rows = sharing(game)
            theta = grid_policy(rng, 1 + max(int(r.max()) for r in rows), 1, actions)[0][:, 0]
            found = violation(game, rows, theta)
            if best is None or found > best.violation:
                best = FoundShared(found, game, theta, tried)
        tried += candidates
        if best.violation > margin:
            break
    return FoundShared(best.violation, best.game, best.theta, tried)
