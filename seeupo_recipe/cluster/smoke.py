"""A few iterations on one GPU with nothing downloaded: a small Qwen3 with random weights on BFCL's own tasks.

Through the parts that a CPU cannot try: vLLM, bf16, flash-attention (SDPA where it is not installed), offloading.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

from rich.console import Console
from rich.table import Table

from seeupo_recipe.cluster.cell_process import run_in_process
from seeupo_recipe.cluster.standin import benchmark_actions, save_standin
from seeupo_recipe.compose import compose_config
from seeupo_recipe.config import ModelConfig, RunConfig
from seeupo_recipe.runs import outputs_root

ITERATIONS = 3
CELL_SECONDS = 200
SIZES = {
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 8192,
}
CELLS = {"grpo": ("grpo", False), "seeupo": ("seeupo", False), "seeupo, offloaded": ("seeupo", True)}
COLUMNS = {
    "s/iteration": "timing_s/step",
    "rollout": "timing_s/gen",
    "old log-probs": "timing_s/old_log_prob",
    "update": "timing_s/update_actor",
    "weight sync": "timing_s/update_weights",
    "GiB": "actor/perf/max_memory_reserved_gb",
    "MFU": "actor/mfu",
    "drift": "update/rollout_drift",
}


def smoke_config(algorithm: str, offload: bool, model: Path, attention: str) -> RunConfig:
    """The small config of a smoke cell; verl's settings are those of ``scale=single_gpu``."""
    engine, rollout = "verl.actor_rollout_ref.actor.fsdp_config", "verl.actor_rollout_ref.rollout"
    config = compose_config(
        [
            "scale=single_gpu",
            "model=qwen3-0.6b",
            "benchmark=bfcl",
            f"algorithm={algorithm}",
            f"training.iterations={ITERATIONS}",
            "training.tasks_per_iteration=4",
            "training.checkpoint_every=100",
            "evaluation.samples_per_task=1",
            "evaluation.every=0",
            "benchmark.max_prompt_tokens=3840",
            "benchmark.max_new_tokens=256",
            f"{engine}.param_offload={offload}",
            f"{engine}.optimizer_offload={offload}",
            f"{rollout}.gpu_memory_utilization=0.3",
            f"{rollout}.enforce_eager=true",
            f"verl.actor_rollout_ref.model.override_config.attn_implementation={attention}",
        ]
    )
    standin = ModelConfig("standin-qwen3", str(model), config.model.template, config.model.chat_template_kwargs)
    return dataclasses.replace(config, model=standin)


def attention_here() -> str:
    return "flash_attention_2" if importlib.util.find_spec("flash_attn") else "sdpa"


def smoke(say: Callable[[str], None] = print, folder: Path | None = None) -> dict[str, dict[str, Any]]:
    """Run all cells; facts of each, or its ``error``. They are also written to ``report.json`` in ``folder``."""
    folder = folder or outputs_root() / "gpu-smoke"
    report: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as models:
        model = Path(models) / "qwen3"
        save_standin(model, benchmark_actions("bfcl"), "qwen3", **SIZES)
        for name, (algorithm, offload) in CELLS.items():
            place = folder / name.replace(", ", "-")
            shutil.rmtree(place, ignore_errors=True)
            config = smoke_config(algorithm, offload, model, attention_here())
            outcome = run_in_process(config, place, {"HF_HUB_OFFLINE": "1"}, timeout=CELL_SECONDS)
            if outcome.error or outcome.record is None:
                report[name] = {"error": f"{outcome.error} (log: {outcome.log})"}
            else:
                report[name] = facts(outcome.record.metrics())
            say(f"{name}: {report[name].get('error') or 'done'} in {outcome.seconds:.0f} s")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "report.json").write_text(json.dumps({"attention": attention_here(), "cells": report}, indent=1))
    return report


def facts(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over the iterations after the first, which pays for compilation; memory and drift are maxima of all."""
    if len(lines) != ITERATIONS:
        return {"error": f"{len(lines)} of {ITERATIONS} iterations were recorded"}
    found: dict[str, Any] = {}
    for name, key in COLUMNS.items():
        worst = name in ("GiB", "drift")
        values = [line[key] for line in (lines if worst else lines[1:]) if key in line]
        found[name] = (max(values) if worst else mean(values)) if values else None
    return found


def show(report: dict[str, dict[str, Any]], console: Console) -> None:
    """Print the table, and errors below."""
    table = Table(title=f"{ITERATIONS} iterations with {attention_here()}", title_justify="left", box=None)
    for name in ("cell", *COLUMNS):
        table.add_column(name, justify="left" if name == "cell" else "right")
    for name, found in report.items():
        if "error" not in found:
            table.add_row(name, *("-" if found[c] is None else f"{found[c]:.3g}" for c in COLUMNS))
    console.print(table)
    for name, found in report.items():
        if "error" in found:
            console.print(f"failed: {name}: {found['error']}", soft_wrap=True, markup=False)
