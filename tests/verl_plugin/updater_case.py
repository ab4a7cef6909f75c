"""A case for ``PoolUpdater`` on verl's worker in this process, with rows kept in a dictionary.

Started as a script with torchrun-like environment variables; writes its results to a file.
"""

import os
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import torch
import worker_case as case
from omegaconf import OmegaConf
from tensordict import TensorDict
from transfer_queue import KVBatchMeta

# Trajectories with an advantage of exactly 0 are there to be left out.
ADVANTAGES = {f"t{i}": (0.0, 1.5, -0.5)[i % 3] for i in range(case.TRAJECTORIES)}


class Store:
    """What ``PoolUpdater`` needs of TransferQueue: columns of rows by key."""

    def __init__(self):
        self.rows = {}

    def kv_batch_put(self, keys, partition_id, fields):
        for name, column in fields.items():
            for key, value in zip(keys, column.unbind(), strict=True):
                self.rows.setdefault(key, {})[name] = value

    def kv_batch_get(self, keys, partition_id, select_fields):
        rows = [self.rows[key] for key in keys]
        columns = {name: [row[name] for row in rows] for name in select_fields if name in rows[0]}
        return TensorDict(
            {name: torch.stack(c) if c[0].dim() == 0 else case.nest(c) for name, c in columns.items()},
            batch_size=len(keys),
        )


class Workers:
    """verl's worker group as one worker in this process; keeps the requests it gets."""

    def __init__(self, worker, store):
        self.worker, self.store, self.requests, self.moves = worker, store, [], 0
        self._dispatch_info = {"actor": [0]}
        self.move, worker.engine.to = worker.engine.to, self.observed_move

    def observed_move(self, device, model=True, optimizer=True, grad=True):
        self.moves += bool(model or optimizer or grad)
        self.move(device, model=model, optimizer=optimizer, grad=grad)

    def to(self, *args, **kwargs):
        self.worker.to(*args, **kwargs)

    def data(self, request):
        from verl.utils import tensordict_utils as tu

        self.requests.append(request)
        data = self.store.kv_batch_get(request.keys, request.partition_id, request.fields)
        tu.assign_non_tensor(data, **request.extra_info)
        return data

    def update_actor(self, request):
        from verl.utils import tensordict_utils as tu

        return {"metrics": tu.get(self.worker.train_mini_batch(self.data(request)), "metrics")}

    def compute_log_prob(self, request):
        output = self.worker.infer_batch(self.data(request))
        self.store.kv_batch_put(request.keys, "train", output.select("log_probs"))


def run(folder, *, kl=0.0, offload=False, resident=True, skip=True):
    """One iteration; ``resident`` and ``skip`` off give the plain forms of two savings."""
    from seeupo_recipe.algo.sequential import plan_updates, sequential_update
    from seeupo_recipe.algo.settings import AlgorithmSettings, SurrogateSettings
    from seeupo_recipe.verl_plugin import updater as module
    from seeupo_recipe.verl_plugin.loss import seeupo_loss
    from seeupo_recipe.verl_plugin.rows import MODEL_COLUMNS, Row

    worker, store = case.make_worker(folder, rate=1e-3, offload=offload), Store()
    module.tq = store
    settings = AlgorithmSettings()
    worker.set_loss_fn(partial(seeupo_loss, settings=settings, surrogate=SurrogateSettings(kl_coefficient=kl)))
    workers = Workers(worker, store)
    rows, tags = [], []
    for fields in case.rows():
        prompt, response = fields["prompt"], fields["response"]
        whole = torch.cat([prompt, response])
        row = Row(
            f"{fields['trajectory']}_{fields['turn']}",
            fields["trajectory"],
            "g",
            fields["turn"],
            len(whole),
            len(response),
        )
        mask = torch.ones_like(response)
        store.rows[row.key] = {
            "input_ids": whole, "position_ids": torch.arange(len(whole)), "prompts": prompt, "responses": response,
            "response_mask": mask, "loss_mask": mask, "ref_log_prob": torch.full((len(response),), -3.0),
            "task_facts": torch.zeros(1),
        }  # fmt: skip
        rows.append(row)
        tags.append({"seq_len": len(whole)})
    batch = KVBatchMeta(keys=[row.key for row in rows], tags=tags, partition_id="train")
    plan = plan_updates(rows, settings, seed=0, iteration=1)
    actor = {
        "use_kl_loss": kl > 0, "entropy_coeff": 0.0, "calculate_entropy": False,
        "fsdp_config": {"param_offload": offload and resident, "optimizer_offload": offload and resident},
    }  # fmt: skip
    config = OmegaConf.create({"actor_rollout_ref": {"actor": actor, "rollout": {"temperature": 1.0}}})
    parts = [part for update in plan for part in update.parts]
    updater = module.PoolUpdater(batch, parts, workers, config, 0, MODEL_COLUMNS)
    if not skip:
        updater._without_zero_weights = lambda batch, weight: batch
    for update in plan:
        updater.anchor(update.rows)
    updater.forwarded = workers.moves = 0
    workers.requests.clear()
    with updater.resident():
        metrics = sequential_update(plan, ADVANTAGES, updater, settings)
    return {
        "weights": {name: case.full(p).detach().clone() for name, p in worker.engine.module.named_parameters()},
        "metrics": metrics,
        "backward": updater.backwarded,
        "moves": workers.moves,
        "requests": [SimpleNamespace(keys=r.keys, fields=r.fields) for r in workers.requests],
        "rows": rows,
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    results = {
        "plain": run(folder),
        "unskipped": run(folder, skip=False),
        "kl": run(folder, kl=0.05),
        "kl_unskipped": run(folder, kl=0.05, skip=False),
        "offload": run(folder, offload=True),
        "restless": run(folder, offload=True, resident=False),
    }
    torch.save(results, out)
    os._exit(0)
