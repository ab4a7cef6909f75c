"""How long a run will take, from what earlier runs took."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from statistics import median
from typing import NamedTuple

import numpy as np

from seeupo_recipe.config import RunConfig
from seeupo_recipe.records.run import FINISHED
from seeupo_recipe.study.store import RecordedRun, timestamp


class Pace(NamedTuple):
    """Seconds per iteration of training, and seconds of everything else of a run."""

    iteration: float
    rest: float


class Estimator:
    """Medians over the most similar earlier runs: same method on same benchmark first, then less alike."""

    def __init__(self, runs: Iterable[RecordedRun]) -> None:
        self._paces: dict[Hashable, list[Pace]] = {}
        for run in runs:
            pace = measure(run) if run.state == FINISHED else None
            for key in _levels(run.config) if pace else ():
                self._paces.setdefault(key, []).append(pace)

    def seconds(self, config: RunConfig, recorded: RecordedRun | None) -> float | None:
        """Estimate of what is left of a run; 0 if it is finished, None without any similar run."""
        if recorded and recorded.state == FINISHED:
            return 0.0
        for key in _levels(config.as_dict()):
            if key in self._paces:
                paces = self._paces[key]
                left = config.training.iterations - (len(recorded.metrics) if recorded else 0)
                return left * median(p.iteration for p in paces) + median(p.rest for p in paces)
        return None


def measure(run: RecordedRun) -> Pace | None:
    """What a finished run took; None if it was resumed or is too short to tell."""
    status, times = run.record.status(), run.series("time")
    if status.get("resumed_from") or "updated" not in status:
        return None
    ended, created = timestamp(status["updated"]), run.created
    if not run.iterations:
        return Pace(0.0, max(0.0, ended - created))
    if len(times) < 2 or np.isnan(times).any():
        return None
    per_iteration = float(np.median(np.diff(times)))
    start = float(times[0]) - per_iteration - created if run.config["backend"] == "verl" else 0.0
    return Pace(per_iteration, max(0.0, start) + max(0.0, ended - float(times[-1])))


def _levels(config: dict) -> list[Hashable]:
    backend, benchmark, model = config["backend"], config["benchmark"]["name"], config["model"]["name"]
    algorithm = config["algorithm"]
    trained = algorithm["name"] != "base"
    method = (algorithm["name"], str(algorithm["steps_per_iteration"]))
    return [
        (backend, benchmark, model, method),
        (backend, benchmark, method),
        (backend, method),
        (backend, trained),
    ]
