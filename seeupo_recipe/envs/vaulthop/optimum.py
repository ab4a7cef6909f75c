"""The exact optimum of VaultHop by dynamic programming."""

from __future__ import annotations

from functools import cache


def optimal_success(hops: int, *, turns: int, symbols: int, error: float) -> float:
    """Largest success probability on a task that needs ``hops`` applications of F, with ``turns`` turns.

    The first turn logs in, the last one answers. Every GET in between asks for the image of the chain's
    end and fails with probability ``error``. Knowledge is the number of links of the chain x0 -> F(x0)
    -> ... seen so far: if it closes to a cycle, every further image is known; if turns run out, the
    answer is the most probable symbol.
    """

    @cache
    def value(left: int, need: int, links: int) -> float:
        if left == 0:
            return 0.0
        if need == 0:
            return 1.0
        guess = best_guess(need, links, symbols)
        if left == 1:
            return guess
        closing = 1.0 / (symbols - links)
        hit = 1.0 if need == 1 else closing + (1 - closing) * value(left - 1, need - 1, links + 1)
        return max(guess, (1 - error) * hit + error * value(left - 1, need, links))

    return value(turns - 1, hops, 0)


def best_guess(need: int, links: int, symbols: int) -> float:
    """Probability of the most probable value of F^need(c), c being the end of an open chain of ``links``.

    The walk from c returns to the chain's start at step s with probability 1 / (symbols - links) for
    every s; from then on it repeats the cycle. Symbols off the chain are exchangeable.
    """
    outside = symbols - 1 - links
    closing = 1.0 / (symbols - links)
    known: dict[int, float] = {}
    fresh = 1.0 - closing * min(need, outside + 1)
    for step in range(1, min(need, outside + 1) + 1):
        node = (need - step) % (links + step)
        if node <= links:
            known[node] = known.get(node, 0.0) + closing
        else:
            fresh += closing
    return max([*known.values(), fresh / outside if outside else 0.0])
