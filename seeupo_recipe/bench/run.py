"""Run the benchmark: build the model, start one process per rank, collect the measurements."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

from seeupo_recipe.bench.plan import Plan
from seeupo_recipe.envs.base import Vocabulary
from seeupo_recipe.models.tiny import build_model, build_tokenizer


def run_plan(plan: Plan) -> tuple[pd.DataFrame, int]:
    """Measure all cases of ``plan``, one rank count after the other.

    Returns:
        The measurements, and the number of the model's parameters.

    Raises:
        RuntimeError: If a process fails, with the end of its output.
    """
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        parameters = _build_model(base / "model", plan)
        plan.write(base / "plan.json")
        tables = []
        for ranks in sorted({case.ranks for case in plan.cases}):
            out = base / f"ranks{ranks}.csv"
            _launch([str(base / "plan.json"), str(base / "model"), str(out)], ranks)
            tables.append(pd.read_csv(out))
    return pd.concat(tables, ignore_index=True), parameters


def _build_model(folder: Path, plan: Plan) -> int:
    """Random weights of the Qwen3 architecture; returns the number of parameters."""
    vocabulary = plan.sizes["vocabulary"]
    tokenizer = build_tokenizer(Vocabulary([f"w{i}" for i in range(vocabulary)]))
    model = build_model("tiny-qwen3", tokenizer, seed=0, max_length=64, width=plan.width, layers=plan.layers)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model.num_parameters()


def _launch(arguments: list[str], ranks: int) -> None:
    """Run ``seeupo_recipe.bench.process`` on ``ranks`` gloo ranks; rank 0's lines go to this process's output."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for rank in range(ranks):
        environment = {
            **os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            "WG_BACKEND": "ray", "VERL_PLATFORM": "cpu", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        command = [sys.executable, "-m", "seeupo_recipe.bench.process", *arguments]
        processes.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    failures = [errors for process in processes if (errors := process.communicate()[1]) and process.returncode]
    if failures:
        raise RuntimeError(f"the benchmark on {ranks} rank(s) failed:\n{failures[0][-3000:]}")
