"""Process environment of a verl session; to be set before verl is imported."""

from __future__ import annotations

import os

import psutil

from seeupo_recipe.config import RunConfig


def set_environment(config: RunConfig) -> None:
    """Set what verl, Ray and TransferQueue read from the environment, where the user has not.

    Ray's processes inherit it from the driver. On CPU every process computes with one thread, since several
    of them share the cores.
    """
    device = config.verl.get("trainer", {}).get("device", "cuda")
    values = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "TOKENIZERS_PARALLELISM": "false"}
    if device == "cpu":
        cores = psutil.cpu_count(logical=False) or 1
        values |= {
            "VERL_PLATFORM": "cpu",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "TQ_NUM_THREADS": str(min(8, cores)),
        }
    for name, value in values.items():
        os.environ.setdefault(name, value)
