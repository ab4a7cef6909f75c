"""Run many lab cells in parallel, one process and one thread each."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from seeupo_recipe.records.run import FAILED, INTERRUPTED
from seeupo_recipe.runs import Run


class CellsFailed(RuntimeError):
    """At least one cell failed; the message names each with its error."""


def run_cell(run: Run) -> None:
    """Train, evaluate and record one run in this process."""
    import torch

    from seeupo_recipe.lab.trainer import LabTrainer

    torch.set_num_threads(1)
    with run.record.locked():
        try:
            LabTrainer(run).fit()
        except KeyboardInterrupt:
            run.record.set_status(INTERRUPTED)
            raise
        except Exception as error:
            run.record.set_status(FAILED, error=f"{type(error).__name__}: {error}")
            raise


def run_cells(runs: Sequence[Run], workers: int) -> None:
    """Run all cells over ``workers`` processes; goes on past failures.

    Raises:
        CellsFailed: At the end, if any cell failed.
    """
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"
    failures: dict[str, BaseException] = {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=workers, mp_context=context) as pool:
        futures = {pool.submit(run_cell, run): run.run_id for run in runs}
        try:
            for future in as_completed(futures):
                if (error := future.exception()) is not None:
                    failures[futures[future]] = error
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    if failures:
        raise CellsFailed("; ".join(f"{run_id}: {error}" for run_id, error in failures.items()))
