"""How the runs of a study trained: start, end, slope, collapses, effort, and their best checkpoints."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from seeupo_recipe.study.collect import Block
from seeupo_recipe.study.outcomes import best_checkpoint, outcomes
from seeupo_recipe.study.spec import Study
from seeupo_recipe.study.training import training_facts


def training_frame(study: Study, blocks: Iterable[Block]) -> pd.DataFrame:
    """One row per block, variant and benchmark with finished training runs."""
    rows = []
    for block in blocks:
        for variant in study.variants:
            for benchmark in block.benchmarks:
                runs = [run for run in block[variant.name, benchmark].finished if run.iterations]
                if runs:
                    head = {"backend": block.backend, "model": block.model, "benchmark": benchmark}
                    head |= {"variant": variant.name, "label": variant.label, "seeds": len(runs)}
                    rows.append({**head, **training_facts(runs)})
    return pd.DataFrame(rows)


def checkpoint_frame(study: Study, blocks: Iterable[Block]) -> pd.DataFrame:
    """Last against best checkpoint: one row per block, variant, benchmark and seed.

    The best checkpoint is the evaluated one with the highest mean validation score, the earliest on a tie.
    ``test_best`` is NaN if the test split was not played there.
    """
    k = study.table.k
    rows = []
    for block in blocks:
        for variant in study.variants:
            for benchmark in block.benchmarks:
                for run in block[variant.name, benchmark].finished:
                    best = best_checkpoint(run)
                    if best is None:
                        continue
                    last, at_best = outcomes([run], k), outcomes([run], k, iteration=best)
                    rows.append(
                        {
                            "backend": block.backend,
                            "model": block.model,
                            "benchmark": benchmark,
                            "variant": variant.name,
                            "seed": run.seed,
                            "last": run.iterations,
                            "best": best,
                            "validation_best": run.validation_scores()[best],
                            "test_last": float(np.nanmean(last.avg)) if last else np.nan,
                            "test_best": float(np.nanmean(at_best.avg)) if at_best else np.nan,
                        }
                    )
    return pd.DataFrame(rows)
