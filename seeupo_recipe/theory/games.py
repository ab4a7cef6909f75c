"""Multi-turn contextual bandits as tables, with exact expectations.

A context ``s0`` is drawn from ``prior``; at turn ``t`` the actor of that turn picks one of ``A`` actions after
seeing the whole history ``h = (s0, a_0, ..., a_{t-1})``; after ``T`` turns the team is paid
``reward[s0, a_0..a_{T-1}]`` (paper section 4.1). Turns count from 0 here. Everything is enumerated in float64, nothing
is sampled.

Histories of length ``t`` are indexed by their actions read as a base-``A`` number, so an array over histories has
shape ``(S, A**t)``, one over (history, action) pairs ``(S, A**t, A)`` and one over trajectories ``(S, A**T)``.
A turn may belong to the environment (``chance``): its kernel is fixed and no update touches it, which makes
observations and random transitions expressible.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

Array = np.ndarray
Policy = list[np.ndarray]


def softmax(logits: Array) -> Array:
    """Softmax over the last axis."""
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


@dataclass(frozen=True)
class Game:
    """A cooperative multi-turn contextual bandit.

    Attributes:
        reward: Team reward of every trajectory, shape ``(S, A**T)``.
        turns: Number of turns ``T``.
        actions: Number of actions ``A`` of every turn.
        prior: Distribution of contexts, shape ``(S,)``; uniform if omitted.
        chance: Fixed kernels ``(S, A**t, A)`` of the turns that the environment plays, by turn.

    Raises:
        ValueError: A shape does not match, a number is not finite, or a distribution does not sum to 1.
    """

    reward: Array
    turns: int
    actions: int
    prior: Array | None = None
    chance: Mapping[int, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        reward = np.asarray(self.reward, dtype=np.float64)
        if reward.ndim != 2 or reward.shape[1] != self.actions**self.turns:
            raise ValueError(f"reward must have shape (S, {self.actions**self.turns}), got {reward.shape}")
        if not np.isfinite(reward).all():
            raise ValueError("reward must be finite")
        contexts = reward.shape[0]
        prior = np.full(contexts, 1.0 / contexts) if self.prior is None else np.asarray(self.prior, dtype=np.float64)
        if prior.shape != (contexts,) or (prior < 0).any() or abs(prior.sum() - 1.0) > 1e-12:
            raise ValueError(f"prior must be a distribution over {contexts} contexts, got {prior}")
        for t, kernel in self.chance.items():
            if not 0 <= t < self.turns or kernel.shape != (contexts, self.actions**t, self.actions):
                raise ValueError(f"chance kernel of turn {t} must have shape (S, A**t, A), got {kernel.shape}")
            if (kernel < 0).any() or np.abs(kernel.sum(-1) - 1.0).max() > 1e-12:
                raise ValueError(f"chance kernel of turn {t} is not a distribution over actions")
        object.__setattr__(self, "reward", reward)
        object.__setattr__(self, "prior", prior)

    @property
    def contexts(self) -> int:
        """Number of contexts ``S``."""
        return self.reward.shape[0]

    @property
    def agent_turns(self) -> tuple[int, ...]:
        """Turns that the policy plays, in execution order."""
        return tuple(t for t in range(self.turns) if t not in self.chance)

    def policy(self, rng: np.random.Generator, scale: float = 1.0) -> Policy:
        """Draw a full-support policy: softmax of normal logits with standard deviation ``scale``."""
        tables = [
            softmax(rng.normal(0.0, scale, (self.contexts, self.actions**t, self.actions))) for t in range(self.turns)
        ]
        return [self.chance.get(t, table) for t, table in enumerate(tables)]

    def value(self, policy: Policy, t: int) -> Array:
        """``V(h)`` of every history of length ``t``, shape ``(S, A**t)``."""
        value = self.reward
        for u in range(self.turns - 1, t - 1, -1):
            value = (policy[u] * value.reshape(self.contexts, -1, self.actions)).sum(-1)
        return value

    def action_value(self, policy: Policy, t: int) -> Array:
        """``Q(h, a)`` of turn ``t``, shape ``(S, A**t, A)``."""
        return self.value(policy, t + 1).reshape(self.contexts, -1, self.actions)

    def advantage(self, policy: Policy, t: int) -> Array:
        """``A(h, a) = Q(h, a) - V(h)`` of turn ``t``, shape ``(S, A**t, A)``."""
        return self.action_value(policy, t) - self.value(policy, t)[..., None]

    def reach(self, policy: Policy, t: int) -> Array:
        """Probability of every history of length ``t`` given its context, shape ``(S, A**t)``."""
        probability = np.ones((self.contexts, 1))
        for u in range(t):
            probability = (probability[..., None] * policy[u]).reshape(self.contexts, -1)
        return probability

    def trajectory_probs(self, policy: Policy) -> Array:
        """Probability of every trajectory given its context, shape ``(S, A**T)``."""
        return self.reach(policy, self.turns)

    def expected_return(self, policy: Policy) -> float:
        """``J``: the expected team reward."""
        return float(self.prior @ self.value(policy, 0)[:, 0])

    def optimal_policy(self) -> Policy:
        """A deterministic optimal policy by backward induction (ties to the first action)."""
        value, policy = self.reward, []
        for t in range(self.turns - 1, -1, -1):
            q = value.reshape(self.contexts, -1, self.actions)
            table = self.chance[t] if t in self.chance else np.eye(self.actions)[q.argmax(-1)]
            value = (table * q).sum(-1)
            policy.insert(0, table)
        return policy

    def optimal_return(self) -> float:
        """``J*``: the largest expected team reward of any policy."""
        return self.expected_return(self.optimal_policy())

    def expand(self, per_history: Array, t: int) -> Array:
        """Copy an array over histories of length ``t`` (any trailing axes flattened) to trajectories, ``(S, A**T)``."""
        return np.repeat(per_history.reshape(self.contexts, -1), self.actions ** (self.turns - t), axis=1)

    def conditional_mean(self, policy: Policy, per_trajectory: Array, t: int) -> Array:
        """``E[x | h, a]`` under ``policy`` of turn ``t``, shape ``(S, A**t, A)``.

        Pairs that ``policy`` never visits get 0: no sample says anything about them.
        """
        weights = self.trajectory_probs(policy)
        shape = (self.contexts, self.actions**t, self.actions, -1)
        mass = weights.reshape(shape).sum(-1)
        total = (weights * per_trajectory).reshape(shape).sum(-1)
        return np.divide(total, mass, out=np.zeros_like(total), where=mass > 0)


def random_game(
    rng: np.random.Generator, contexts: int, turns: int, actions: int, levels: tuple[float, ...] = ()
) -> Game:
    """Draw a game with rewards from ``levels``, or standard normal rewards if no levels are given."""
    shape = (contexts, actions**turns)
    return Game(rng.choice(levels, size=shape) if levels else rng.normal(size=shape), turns, actions)


def climbing_game() -> Game:
    """The climbing game of Claus and Boutilier (1998), scaled to a largest reward of 1; two turns, three actions."""
    return Game(np.array([[11.0, -30.0, 0.0, -30.0, 7.0, 6.0, 0.0, 0.0, 5.0]]) / 11.0, 2, 3)


def penalty_game(penalty: float = -2.0) -> Game:
    """The penalty game of Claus and Boutilier (1998), largest reward 1; two turns, three actions."""
    return Game(np.array([[1.0, 0.0, penalty, 0.0, 0.2, 0.0, penalty, 0.0, 1.0]]), 2, 3)


def lock_game(turns: int, early_exit: float = 0.3) -> Game:
    """Combination lock: leaving (action 0) at the first turn pays ``early_exit``, later 0; never leaving pays 1."""
    trajectories = itertools.product(range(2), repeat=turns)
    reward = [1.0 if all(actions) else early_exit * (actions[0] == 0) for actions in trajectories]
    return Game(np.array([reward]), turns, 2)


def deterministic_policy(game: Game, action: int) -> Policy:
    """The policy that always plays ``action``."""
    return [
        game.chance.get(t, np.tile(np.eye(game.actions)[action], (game.contexts, game.actions**t, 1)))
        for t in range(game.turns)
    ]
