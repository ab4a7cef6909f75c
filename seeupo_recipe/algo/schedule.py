"""Turn pools and the order in which they are updated (Algorithm 1, Table 4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from seeupo_recipe.seeding import stream


def turn_pools(turn_of_row: Sequence[int]) -> dict[int, list[int]]:
    """Map each turn to the positions of its rows, in row order.

    A turn that a trajectory does not have simply has no row: the paper's placeholders (ratio 1,
    advantage 0) are never materialised.
    """
    pools: dict[int, list[int]] = {}
    for position, turn in enumerate(turn_of_row):
        pools.setdefault(int(turn), []).append(position)
    return dict(sorted(pools.items()))


def update_order(turns: Iterable[int], order: str, *, seed: int, iteration: int) -> list[tuple[int, ...]]:
    """Return the sequence of updates of one iteration, each a tuple of the turns updated together.

    Args:
        turns: Turns of the iteration, 0-based.
        order: ``reverse`` (T..1, the paper's default), ``natural`` (1..T), ``random`` (a fresh
            permutation per iteration, from a stream named by ``seed`` and ``iteration``) or
            ``joint`` (one update of all turns).
        seed: Seed of the run.
        iteration: Number of the iteration.

    Raises:
        ValueError: If ``order`` is unknown.
    """
    turns = sorted(set(turns))
    if order == "joint":
        return [tuple(turns)] if turns else []
    if order == "reverse":
        turns = turns[::-1]
    elif order == "random":
        permutation = stream("update_order", seed, iteration).permutation(len(turns))
        turns = [turns[i] for i in permutation]
    elif order != "natural":
        raise ValueError(f"unknown order {order!r}")
    return [(turn,) for turn in turns]
