"""Composed configs of the cells in short. Rewrite with ``python tests/cluster/snapshot.py`` and read the diff."""

import json
from pathlib import Path

from omegaconf import OmegaConf

from seeupo_recipe.cluster.cells import Selection, select, verl_tree
from seeupo_recipe.verl_plugin.translate import flatten, stock_config

FILE = Path(__file__).with_name("snapshot.json")
FIRST = "qwen3-14b bfcl seeupo"
UNSTABLE = ("seeupo_run", "data.seeupo_run", "trainer.default_local_dir", "trainer.experiment_name",
            "actor_rollout_ref.rollout.agent.agent_loop_config_path")  # fmt: skip


def tree(config):
    own = {k: v for k, v in flatten(config.as_dict()).items() if not k.startswith("verl.")}
    verl = flatten(OmegaConf.to_container(verl_tree(config), resolve=False))
    return {**own, **{f"verl.{k}": v for k, v in verl.items() if not k.startswith(UNSTABLE)}}


def difference(found, base):
    """Keys of ``found`` that differ from ``base``; null for those it lacks."""
    return {k: found.get(k) for k in sorted({*found, *base}) if found.get(k) != base.get(k)}


def compose():
    """The first cell against verl's defaults, one GPU's against it, every other cell against the first of its scale."""
    stock = {f"verl.{k}": v for k, v in flatten(OmegaConf.to_container(stock_config(), resolve=False)).items()}
    stock = {k: v for k, v in stock.items() if not k.removeprefix("verl.").startswith(UNSTABLE)}
    cells = [*select(Selection("paper", "table2")), *select(Selection("paper", "table4", (), ("bfcl",)))]
    cells += select(Selection("paper", "table5", (), ("bfcl",)))
    trees = {cell.name: tree(cell.config) for cell in cells}
    first = trees.pop(FIRST)
    found = {f"{FIRST}, against verl": difference(first, stock)}
    found |= {name: difference(t, first) for name, t in trees.items()}
    for model in ("qwen3-0.6b", "qwen3-1.7b"):
        one = select(Selection("single_gpu", "table2", (model,), ("bfcl",), ("seeupo",)))[0]
        found[f"single_gpu {one.name}"] = difference(tree(one.config), first)
    return json.loads(json.dumps(found))


if __name__ == "__main__":
    FILE.write_text(json.dumps(compose(), indent=1) + "\n")
