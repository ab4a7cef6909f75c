"""One rank of the benchmark: ``python -m seeupo_recipe.bench.process PLAN MODEL OUT``, with torchrun's variables.

PLAN is a JSON file with the settings of :class:`~seeupo_recipe.bench.plan.Plan`; rank 0 writes OUT, a CSV file.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.distributed as dist

from seeupo_recipe.bench.methods import METHODS
from seeupo_recipe.bench.plan import Case, Plan
from seeupo_recipe.bench.rollouts import Rollouts, record
from seeupo_recipe.bench.worker import (
    PHASES,
    CPUPoolTrainingWorker,
    CPUTrainingWorker,
    WorkerUpdater,
    make_worker,
    peak_memory_mib,
    reset_peak_memory,
)


def main(plan_file: str, model: str, out: str) -> None:
    """Run this rank count's cases and write their measurements."""
    torch.set_num_threads(1)
    plan = Plan.read(Path(plan_file))
    ranks = int(os.environ["WORLD_SIZE"])
    updater = WorkerUpdater(
        make_worker(Path(model), CPUPoolTrainingWorker), make_worker(Path(model), CPUTrainingWorker)
    )
    warm_up = record(2, "equal", **plan.sizes)
    for method in METHODS:
        _measure(method, warm_up, updater, use_kl=True)
    cases = [case for case in plan.cases if case.ranks == ranks]
    measured: list[dict[str, Any]] = []
    for repeat in range(max(case.repeats for case in cases)):
        for case in cases:
            if repeat < case.repeats:
                measured += _compare(case, repeat, plan, updater)
                if dist.get_rank() == 0:
                    pd.DataFrame(measured).to_csv(out, index=False)


def _compare(case: Case, repeat: int, plan: Plan, updater: WorkerUpdater) -> list[dict[str, Any]]:
    """Every method once; each repeat starts with the next method, and every second one goes backwards."""
    rollouts = record(case.turns, case.shape, **plan.sizes)
    names = list(METHODS)
    order = names[repeat % len(names) :] + names[: repeat % len(names)]
    measured = []
    for place, method in enumerate(order if repeat % 2 == 0 else order[::-1]):
        found = _measure(method, rollouts, updater, use_kl=case.kl)
        measured.append({**case.as_dict(), "repeat": repeat, "place": place, "method": method, **found})
        if dist.get_rank() == 0:
            print(f"{case} {method}: {found['cpu_seconds']:.2f} s", flush=True)
    return measured


def _measure(method: str, rollouts: Rollouts, updater: WorkerUpdater, *, use_kl: bool) -> dict[str, Any]:
    """Counts and CPU seconds summed over the ranks; wall time and peak memory of the worst rank."""
    run, loss_ratio = METHODS[method]
    updater.begin(use_kl=use_kl, loss_ratio=loss_ratio)
    reset_peak_memory()
    dist.barrier()
    start, cpu_start = time.perf_counter(), time.process_time()
    steps = run(rollouts, updater)
    cpu_seconds = time.process_time() - cpu_start
    dist.barrier()
    worst = torch.tensor([time.perf_counter() - start, peak_memory_mib()], dtype=torch.float64)
    counter = updater.counter
    total = torch.tensor([counter.forward, counter.backward, cpu_seconds, *updater.seconds.values()]).double()
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    dist.all_reduce(total)
    forward, backward, *cpu = total.tolist()
    return {
        "rows": len(rollouts.rows),
        "optimizer_steps": steps,
        "forward_tokens": int(forward),
        "backward_tokens": int(backward),
        **dict(zip(("wall_seconds", "peak_mib"), (round(x, 4) for x in worst.tolist()), strict=True)),
        **dict(zip(("cpu_seconds", *PHASES), (round(x, 4) for x in cpu), strict=True)),
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # verl's workers leave threads that would keep the process alive
