"""Write the trained policy of a run as a Hugging Face checkpoint: ``python -m seeupo_recipe.export RUN``.

The lab's ``checkpoint.pt`` and verl's FSDP shards both become a folder that ``from_pretrained`` reads, in the
precision in which they were trained, with tokenizer, generation config and ``export.json`` (which run, which
iteration). verl's own merger would round every weight to bfloat16.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from seeupo_recipe.config import RunConfig, build_config
from seeupo_recipe.runs import ROOT, outputs_root, results_root
from seeupo_recipe.strict import ConfigError

if TYPE_CHECKING:
    import torch

MARK = "export.json"


@dataclass(frozen=True)
class Checkpoint:
    """Trained weights.

    Attributes:
        iteration: After which they were saved.
        state: Parameters by name.
        model: Folder or hub name of configuration and tokenizer.
    """

    iteration: int
    state: Mapping[str, torch.Tensor]
    model: str


def find_record(name: str) -> Path:
    """The record folder of the run whose id is ``name`` or starts with it.

    Raises:
        ConfigError: If there is none, or several.
    """
    folders = sorted(path.parent for path in results_root().glob("*/runs/*/manifest.json"))
    found = [f for f in folders if f.name == name] or [f for f in folders if name and f.name.startswith(name)]
    if len(found) != 1:
        what = f"several runs start so: {', '.join(f.name for f in found)}" if found else "there is no such run"
        raise ConfigError(f"RUN={name}: {what} under {results_root()}")
    return found[0]


def load_checkpoint(config: RunConfig, outputs: Path, iteration: int | None = None) -> Checkpoint:
    """The checkpoint of ``iteration``, or the last one.

    Raises:
        ConfigError: If it is not there.
    """
    if config.algorithm.name == "base":
        raise ConfigError(
            f"RUN={outputs.name}: an untrained policy has no checkpoint; its weights are {config.model_path}"
        )
    found = _lab_checkpoint(config, outputs) if config.backend == "lab" else _verl_checkpoint(outputs, iteration)
    if found is None or iteration not in (None, found.iteration):
        which = "no checkpoint" if found is None else f"no checkpoint of iteration {iteration}"
        raise ConfigError(
            f"RUN={outputs.name}: {which} under {outputs}; checkpoints are not kept with records, so "
            "train the run again here to get it"
        )
    return found


def _lab_checkpoint(config: RunConfig, outputs: Path) -> Checkpoint | None:
    import torch

    path = outputs / "checkpoint.pt"
    if not path.exists():
        return None
    saved = torch.load(path, weights_only=True, map_location="cpu")
    local = ROOT / config.model_path
    return Checkpoint(saved["iteration"], saved["model"], str(local) if local.is_dir() else config.model_path)


def _verl_checkpoint(outputs: Path, iteration: int | None) -> Checkpoint | None:
    folders = {
        int(path.parent.name.rsplit("_", 1)[1]): path.parent
        for path in outputs.glob("checkpoints/global_step_*/complete.json")
    }
    if not folders or iteration not in (None, *folders):
        return None
    number = max(folders) if iteration is None else iteration
    actor = folders[number] / "actor"
    return Checkpoint(number, _merge_shards(actor), str(actor / "huggingface"))


def _merge_shards(actor: Path) -> dict[str, torch.Tensor]:
    """Whole parameters from the shards that verl's FSDP engines save, one file per rank."""
    import torch
    from torch.distributed.tensor import DTensor

    ranks = json.loads((actor / "fsdp_config.json").read_text())["world_size"]
    shards = [
        torch.load(actor / f"model_world_size_{ranks}_rank_{rank}.pt", weights_only=False, map_location="cpu")
        for rank in range(ranks)
    ]
    merged = {}
    for name, first in shards[0].items():
        if not isinstance(first, DTensor):
            merged[name] = first
            continue
        placement = first.placements[-1]
        size = first.device_mesh.mesh.shape[-1]
        parts = [shard[name].to_local() for shard in shards[:size]]
        merged[name] = torch.cat(parts, placement.dim) if placement.is_shard() else parts[0]
    return merged


def export(checkpoint: Checkpoint, out: Path, *, run_id: str) -> None:
    """Write the folder; an earlier export in its place is replaced when the new one is complete.

    Raises:
        ConfigError: If ``out`` holds something else, or the weights do not fit the model.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    if out.exists() and any(out.iterdir()) and not (out / MARK).exists():
        raise ConfigError(f"OUT={out}: the folder holds something else than an export; choose another one")
    precision = next(iter(checkpoint.state.values())).dtype
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(checkpoint.model), dtype=precision)
    try:
        model.load_state_dict(checkpoint.state, strict=True, assign=True)
    except RuntimeError as error:
        raise ConfigError(f"RUN={run_id}: its weights do not fit {checkpoint.model}: {error}") from None
    model.tie_weights()
    model.generation_config = GenerationConfig.from_pretrained(checkpoint.model)
    temporary = out.with_name(f".{out.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    model.save_pretrained(temporary)
    AutoTokenizer.from_pretrained(checkpoint.model).save_pretrained(temporary)
    (temporary / MARK).write_text(json.dumps({"run_id": run_id, "iteration": checkpoint.iteration}) + "\n")
    shutil.rmtree(out, ignore_errors=True)
    temporary.rename(out)


def main(arguments: Sequence[str] | None = None) -> int:
    """Export one run; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m seeupo_recipe.export", description=__doc__.splitlines()[0])
    parser.add_argument("run", help="run id, or the beginning of one")
    parser.add_argument("--out", type=Path, help="default: outputs/<scale>/<run id>/export")
    parser.add_argument("--iteration", type=int, help="verl: a kept checkpoint; default: the last one")
    parsed = parser.parse_args(arguments)
    try:
        record = find_record(parsed.run)
        config = build_config(yaml.safe_load((record / "config.yaml").read_text()))
        outputs = outputs_root() / config.scale / record.name
        checkpoint = load_checkpoint(config, outputs, parsed.iteration)
        out = parsed.out or outputs / "export"
        export(checkpoint, out, run_id=record.name)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{out}: the policy of {record.name} after iteration {checkpoint.iteration}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
