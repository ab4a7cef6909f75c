"""A case for verl's training worker in this process: tiny model, turn rows, one SeeUPO iteration.

Started as a script with torchrun-like environment variables; writes its results to a file.
"""

import os
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import torch
from tensordict import TensorDict

TURNS, TRAJECTORIES = 3, 6


def build_folder(folder):
    from seeupo_recipe.envs.base import Vocabulary
    from seeupo_recipe.models.tiny import build_model, build_tokenizer

    tokenizer = build_tokenizer(Vocabulary([f"w{i}" for i in range(40)]))
    model = build_model("tiny-qwen3", tokenizer, seed=3, max_length=64)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def rows():
    """Ragged turn rows: trajectory i has 1 + i % TURNS turns; returns dicts in canonical order."""
    generator = torch.Generator().manual_seed(0)

    def ids(low, high):
        n = int(torch.randint(low, high, (1,), generator=generator))
        return torch.randint(5, 45, (n,), generator=generator)

    return [
        {"trajectory": f"t{i}", "turn": t, "prompt": ids(4, 20), "response": ids(1, 6)}
        for i in range(TRAJECTORIES)
        for t in range(1 + i % TURNS)
    ]


def launch(script, folder, out, *arguments, ranks):
    """Run a case script on ``ranks`` gloo ranks; returns what it saved in ``out``."""
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
        command = [sys.executable, str(script), str(folder), str(out), *arguments]
        processes.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    for process in processes:
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors[-3000:]
    return torch.load(out, weights_only=False)


def full(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def nest(tensors):
    return torch.nested.as_nested_tensor(tensors, layout=torch.jagged)


def make_worker(folder, *, rate, offload=False, clip_grad=1e9, schedule="constant", fused=False):
    from verl.trainer.config import CheckpointConfig
    from verl.workers.config import (
        FSDPEngineConfig,
        FSDPOptimizerConfig,
        HFModelConfig,
        TrainingWorkerConfig,
    )

    from seeupo_recipe.verl_plugin.cpu.workers import CPUPoolTrainingWorker

    model = HFModelConfig(
        path=str(folder),
        override_config={"attn_implementation": "sdpa"},
        enable_gradient_checkpointing=False,
        use_remove_padding=True,
        use_fused_kernels=fused,
        fused_kernel_options={"impl_backend": "torch"},
    )
    engine = FSDPEngineConfig(
        strategy="fsdp2",
        mixed_precision={"param_dtype": "fp32", "reduce_dtype": "fp32"},
        use_torch_compile=False,
        use_dynamic_bsz=True,
        max_token_len_per_gpu=64,
        infer_max_token_len_per_gpu=64,
        use_remove_padding=True,
        param_offload=offload,
        optimizer_offload=offload,
    )
    optimizer = FSDPOptimizerConfig(
        lr=rate, total_training_steps=10, clip_grad=clip_grad, lr_scheduler_type=schedule, weight_decay=0.01
    )
    worker = CPUPoolTrainingWorker(
        TrainingWorkerConfig(
            model_type="language_model",
            model_config=model,
            engine_config=engine,
            optimizer_config=optimizer,
            checkpoint_config=CheckpointConfig(),
        )
    )
    worker.reset()
    return worker


class WorkerUpdater:
    """The ``Updater`` of the sequential update on a worker in this process; every rank holds its share."""

    def __init__(self, worker, settings, surrogate, reference):
        import torch.distributed as dist

        from seeupo_recipe.verl_plugin.loss import seeupo_loss

        self.worker, self.reference = worker, reference
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.old, self.gradients, self.norms, self.lengths = {}, [], [], []
        worker.set_loss_fn(partial(seeupo_loss, settings=settings, surrogate=surrogate))
        self.take_step, worker.engine.optimizer_step = worker.engine.optimizer_step, self.observed_step

    def observed_step(self):
        whole = [full(p.grad).flatten() for p in self.worker.engine.module.parameters()]
        self.gradients.append(torch.cat(whole).clone())
        return self.take_step()

    def data(self, part, weights=None):
        """This rank's share, padded with rows that hold no sampled token and NaN log-probabilities."""
        weights = [0.0] * len(part) if weights is None else [float(w) for w in weights]
        share = list(zip(part, weights, strict=True))[self.rank :: self.ranks]
        size = -(-len(part) // self.ranks) if part else 1
        padded = share + [(None, 0.0)] * (size - len(share))
        prompts = [torch.full((3,), 7) if r is None else r.fields["prompt"] for r, _ in padded]
        responses = [torch.full((1,), 7) if r is None else r.fields["response"] for r, _ in padded]
        mask = nest([torch.full_like(x, int(r is not None)) for (r, _), x in zip(padded, responses, strict=True)])
        whole = [torch.cat(pair) for pair in zip(prompts, responses, strict=True)]
        columns = {
            "input_ids": nest(whole),
            "position_ids": nest([torch.arange(len(x)) for x in whole]),
            "prompts": nest(prompts),
            "responses": nest(responses),
            "response_mask": mask,
            "loss_mask": mask,
            "seeupo_weight": torch.tensor([weight for _, weight in padded]),
        }
        for name, known in (("old_log_probs", self.old), ("ref_log_prob", self.reference)):
            if known:
                missing = torch.full((1,), float("nan"))
                columns[name] = nest([missing if r is None else known.get(r.key, r.fields["zeros"]) for r, _ in padded])
        return TensorDict(columns, batch_size=size), [row for row, _ in padded], size

    def log_probs(self, part):
        import torch.distributed as dist
        from verl.utils import tensordict_utils as tu
        from verl.workers.utils.padding import response_from_nested

        data, kept, _ = self.data(part)
        tu.assign_non_tensor(data, compute_loss=False, calculate_entropy=False, temperature=1.0)
        output = self.worker.infer_batch(data)
        values = response_from_nested(output["log_probs"], data["response_mask"]).unbind()
        mine = {row.key: value for row, value in zip(kept, values, strict=True) if row is not None}
        shared = [None] * self.ranks
        dist.all_gather_object(shared, mine)
        return {key: value for part in shared for key, value in part.items()}

    def anchor(self, part):
        self.old.update(self.log_probs(part))

    def step(self, part, weights, *, denominator, last):
        from verl.utils import tensordict_utils as tu

        data, _, size = self.data(part, weights)
        tu.assign_non_tensor(
            data, mini_batch_size=size * self.ranks, global_batch_size=denominator, epochs=1, seed=0,
            dataloader_kwargs={"shuffle": False}, temperature=1.0, calculate_entropy=False, advance_lr_schedule=last,
        )  # fmt: skip
        metrics = tu.get(self.worker.train_mini_batch(data), "metrics")
        stats = {key: float(value[0]) for key, value in metrics.items()}
        self.norms.append(stats["grad_norm"])
        return stats

    def log_ratio(self, part, *, kind, clamp):
        from seeupo_recipe.algo.ratio import sequence_log_ratio

        new = self.log_probs(part)
        pad = partial(torch.nn.utils.rnn.pad_sequence, batch_first=True)
        mask = pad([torch.ones(len(new[row.key])) for row in part])
        present, old = (pad([values[r.key] for r in part]).double() for values in (new, self.old))
        return sequence_log_ratio(present, old, mask, kind=kind, clamp=clamp)

    def weights(self):
        return {name: full(p).detach().clone() for name, p in self.worker.engine.module.named_parameters()}


class CaseRow:
    def __init__(self, fields):
        self.fields, self.trajectory, self.turn = fields, fields["trajectory"], fields["turn"]
        self.tokens = len(fields["prompt"]) + len(fields["response"])
        self.key = (self.trajectory, self.turn)
        self.fields["zeros"] = torch.zeros(len(fields["response"]))


def run(folder, *, rate, empty_pools=False, schedule="constant", fused=False):
    """One iteration; returns what every rank agrees on."""
    from seeupo_recipe.algo.sequential import plan_updates, sequential_update
    from seeupo_recipe.algo.settings import AlgorithmSettings, SurrogateSettings

    settings = AlgorithmSettings(step_empty_pools=empty_pools)
    worker = make_worker(folder, rate=rate, schedule=schedule, fused=fused)
    case = [CaseRow(r) for r in rows()]
    reference = {r.key: torch.full((len(r.fields["response"]),), -3.0) for r in case}
    updater = WorkerUpdater(worker, settings, SurrogateSettings(kl_coefficient=0.05), reference)
    updater.anchor(case)
    advantages = {f"t{i}": float(i) / 3 - 0.8 for i in range(TRAJECTORIES)}
    plan = plan_updates(case, settings, seed=0, iteration=1, horizon=TURNS + 1)
    metrics = sequential_update(plan, advantages, updater, settings)
    return {
        "old": updater.old,
        "gradients": updater.gradients,
        "after": updater.weights(),
        "metrics": metrics,
        "schedule_steps": worker.engine.lr_scheduler.last_epoch,
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    import torch.distributed as dist

    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    results = {"plain": run(folder, rate=1e-3)}
    if sys.argv[3:] == ["fused"]:
        results["fused"] = run(folder, rate=1e-3, fused=True)
    elif dist.get_world_size() == 1:
        results["still"] = run(folder, rate=0.0)
        results["empty"] = run(folder, rate=1e-3, empty_pools=True)
        results["scheduled"] = run(folder, rate=1e-3, schedule="cosine")
    if dist.get_rank() == 0:
        torch.save(results, out)
    os._exit(0)
