"""The exact optimum of VaultHop by dynamic programming over what can be known of the permutation.

Symbols are exchangeable, so knowledge is a set of paths: runs of symbols whose images are known to follow
each other. Closed cycles that do not hold the start symbol can be left out, with their symbols.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Knowledge:
    """What has been seen of F.

    Attributes:
        unseen: Symbols on no path.
        behind: Known predecessors of the start symbol.
        ahead: Known applications of F from the start symbol.
        others: Numbers of known images on the other open paths, ascending.
    """

    unseen: int
    behind: int
    ahead: int
    others: tuple[int, ...] = ()

    @property
    def images(self) -> int:
        """Symbols that can be the image of a path's end: first symbols of paths and unseen ones."""
        return self.unseen + 1 + len(self.others)


def optimal_success(hops: int, *, turns: int, symbols: int, error: float) -> float:
    """Success probability of the best policy on a task of ``hops`` applications of F.

    The first turn logs in and one turn answers; every turn in between may ask for the image of any symbol
    and gets no reply with probability ``error``.
    """

    @cache
    def value(left: int, known: Knowledge) -> float:
        if known.ahead >= hops:
            return 1.0 if left else 0.0
        best = max(distribution(hops, known).values())
        if left <= 1:
            return best if left else 0.0
        for query in queries(known):
            hit = sum(p * (1.0 if after is None else value(left - 1, after)) for p, after in query)
            best = max(best, (1 - error) * hit + error * value(left - 1, known))
        return best

    return value(turns - 1, Knowledge(symbols - 1, 0, 0))


Outcomes = list[tuple[float, Knowledge | None]]


def queries(known: Knowledge) -> Iterator[Outcomes]:
    """Each symbol worth asking for, as the probabilities of what is known afterwards.

    ``None`` stands for a closed cycle through the start symbol: every image that matters is known.
    """
    yield _ask_chain(known)
    for i, length in enumerate(known.others):
        rest = known.others[:i] + known.others[i + 1 :]
        yield _ask_path(Knowledge(known.unseen, known.behind, known.ahead, rest), length)
    if known.unseen:
        yield _ask_path(Knowledge(known.unseen - 1, known.behind, known.ahead, known.others), 0)


def _ask_chain(known: Knowledge) -> Outcomes:
    """Ask for the image of the end of the start symbol's path."""
    share = 1.0 / known.images
    outcomes: Outcomes = [(share, None)]
    for i, length in enumerate(known.others):
        rest = known.others[:i] + known.others[i + 1 :]
        outcomes.append((share, Knowledge(known.unseen, known.behind, known.ahead + 1 + length, rest)))
    if known.unseen:
        grown = Knowledge(known.unseen - 1, known.behind, known.ahead + 1, known.others)
        outcomes.append((share * known.unseen, grown))
    return outcomes


def _ask_path(rest: Knowledge, length: int) -> Outcomes:
    """Ask for the image of the end of another path of ``length`` known images, already taken out of ``rest``."""
    share = 1.0 / (rest.images + 1)
    outcomes: Outcomes = [(share, rest)]
    outcomes.append((share, Knowledge(rest.unseen, rest.behind + length + 1, rest.ahead, rest.others)))
    for i, other in enumerate(rest.others):
        joined = tuple(sorted((*rest.others[:i], *rest.others[i + 1 :], length + 1 + other)))
        outcomes.append((share, Knowledge(rest.unseen, rest.behind, rest.ahead, joined)))
    if rest.unseen:
        grown = tuple(sorted((*rest.others, length + 1)))
        outcomes.append((share * rest.unseen, Knowledge(rest.unseen - 1, rest.behind, rest.ahead, grown)))
    return outcomes


def distribution(hops: int, known: Knowledge) -> dict[object, float]:
    """Probability of each single symbol as the target F^hops(start).

    Symbols are named by their place: an offset from the start symbol, a place on another path, or one of
    the unseen ones, which all have the same probability.
    """
    found: dict[object, float] = {}

    def walk(node: tuple, steps: int, open_paths: tuple[int, ...], unseen: int, trail: tuple, weight: float) -> None:
        """``trail`` lists the symbols from the path's first one to ``node``, whose image is unknown."""
        if steps == 0:
            found[node] = found.get(node, 0.0) + weight
            return
        share = weight / (1 + len(open_paths) + unseen)
        cycle = trail[(steps - 1) % len(trail)]
        found[cycle] = found.get(cycle, 0.0) + share
        for path in open_paths:
            rest = tuple(p for p in open_paths if p != path)
            members = tuple(("path", path, j) for j in range(known.others[path] + 1))
            if steps - 1 < len(members):
                target = members[steps - 1]
                found[target] = found.get(target, 0.0) + share
            else:
                walk(members[-1], steps - len(members), rest, unseen, trail + members, share)
        if unseen:
            member = ("unseen", known.unseen - unseen)
            walk(member, steps - 1, open_paths, unseen - 1, (*trail, member), share * unseen)

    chain = tuple(("start", j) for j in range(-known.behind, known.ahead + 1))
    if hops <= known.ahead:
        return {("start", hops): 1.0}
    walk(chain[-1], hops - known.ahead, tuple(range(len(known.others))), known.unseen, chain, 1.0)
    mass = sum(p for node, p in found.items() if node[0] == "unseen")
    single = {node: p for node, p in found.items() if node[0] != "unseen"}
    if known.unseen and mass:
        single["unseen"] = mass / known.unseen
    return single
