"""Named splits of the multi-turn tasks, and the versions under which results may be compared."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence

from seeupo_recipe.envs.bfcl.package import CATEGORIES, load_tasks
from seeupo_recipe.seeding import stream

TRAIN_TASKS = 100


def make_splits(seed: int) -> Mapping[str, tuple[str, ...]]:
    """All named splits.

    ``train`` and ``test`` are multi_turn_base 0-99 and 100-199, as in the paper's release. That is a domain
    shift: the first half plays in file systems and vehicles, the second in trading and travel.
    ``random_train`` and ``random_test`` divide the same 200 tasks at random, by scenario, without the shift.
    ``<category>``, ``<category>_train``, ``<category>_test``, ``<category>_random_train`` and
    ``<category>_random_test`` do the same for each category (``base``, ``miss_func``, ``miss_param``,
    ``long_context``), with the same division of scenarios; ``all`` is all 800.
    """
    clusters = scenario_clusters()
    names = sorted(set(clusters), key=int)
    order = [names[i] for i in stream("bfcl-split", seed).permutation(len(names))]
    chosen: set[int] = set()
    for name in order:
        members = [index for index, cluster in enumerate(clusters) if cluster == name]
        if len(chosen) + len(members) <= TRAIN_TASKS:
            chosen.update(members)
    splits: dict[str, tuple[str, ...]] = {}
    for category in CATEGORIES:
        ids = [task.task_id for task in load_tasks(category)]
        short = category.removeprefix("multi_turn_")
        splits[short] = tuple(ids)
        splits[f"{short}_train"], splits[f"{short}_test"] = tuple(ids[:TRAIN_TASKS]), tuple(ids[TRAIN_TASKS:])
        splits[f"{short}_random_train"] = tuple(id_ for index, id_ in enumerate(ids) if index in chosen)
        splits[f"{short}_random_test"] = tuple(id_ for index, id_ in enumerate(ids) if index not in chosen)
    for name in ("train", "test", "random_train", "random_test"):
        splits[name] = splits[f"base_{name}"]
    splits["all"] = tuple(id_ for category in CATEGORIES for id_ in splits[category.removeprefix("multi_turn_")])
    return splits


def scenario_clusters() -> tuple[str, ...]:
    """Scenario of each task index: the first index with the same initial state.

    The four categories vary the same 200 scenarios, index by index, and a few scenarios occur more than once.
    """
    first: dict[str, str] = {}
    return tuple(
        first.setdefault(json.dumps(task.config, sort_keys=True), str(index))
        for index, task in enumerate(load_tasks(CATEGORIES[0]))
    )


def hash_task_list(task_ids: Sequence[str]) -> str:
    """Short hash of an ordered list of task ids, for run records."""
    return hashlib.sha256("\n".join(task_ids).encode()).hexdigest()[:16]


def require_one_version(versions: Iterable[str]) -> str:
    """Return the single benchmark version of the given results.

    Raises:
        ValueError: If there are none, or if results of several versions are mixed (all are listed).
    """
    distinct = sorted(set(versions))
    if len(distinct) != 1:
        found = "\n  ".join(distinct) or "none"
        raise ValueError(f"results of one benchmark version are needed to average; found:\n  {found}")
    return distinct[0]
