"""verl's training worker in this process, with every token that its model processes counted."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tensordict import TensorDict
from torch.nn.utils.rnn import pad_sequence
from verl.trainer.config import CheckpointConfig
from verl.utils import tensordict_utils as tu
from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig, TrainingWorkerConfig
from verl.workers.utils.padding import response_from_nested

from seeupo_recipe.algo.ratio import sequence_log_ratio
from seeupo_recipe.algo.settings import AlgorithmSettings, SurrogateSettings
from seeupo_recipe.bench.rollouts import BenchRow
from seeupo_recipe.verl_plugin.cpu.workers import CPUPoolTrainingWorker, CPUTrainingWorker
from seeupo_recipe.verl_plugin.loss import seeupo_loss
from seeupo_recipe.verl_plugin.rows import WEIGHT_COLUMN, nested

LEARNING_RATE = 1e-6
MICRO_BATCH_TOKENS = 512
KL_COEFFICIENT = 0.002
PHASES = ("log_probs", "reference", "update", "post_update")
FILLER = BenchRow("filler", 0, 0, (5,), (5,), real=False)


def make_worker(folder: Path, worker_class: type) -> Any:
    """A worker on the model in ``folder``: FSDP2, packed rows, token-balanced micro-batches."""
    worker = worker_class(
        TrainingWorkerConfig(
            model_type="language_model",
            model_config=HFModelConfig(
                path=str(folder),
                override_config={"attn_implementation": "sdpa"},
                enable_gradient_checkpointing=False,
                use_remove_padding=True,
            ),
            engine_config=FSDPEngineConfig(
                strategy="fsdp2",
                mixed_precision={"param_dtype": "fp32", "reduce_dtype": "fp32"},
                use_torch_compile=False,
                use_dynamic_bsz=True,
                max_token_len_per_gpu=MICRO_BATCH_TOKENS,
                infer_max_token_len_per_gpu=MICRO_BATCH_TOKENS,
                use_remove_padding=True,
            ),
            optimizer_config=FSDPOptimizerConfig(lr=LEARNING_RATE, total_training_steps=1000, clip_grad=1.0),
            checkpoint_config=CheckpointConfig(),
        )
    )
    worker.reset()
    return worker


class TokenCounter:
    """Counts the tokens that a model is called on, and those of them that are differentiated."""

    def __init__(self, *modules: torch.nn.Module) -> None:
        self.forward = self.backward = 0
        for module in modules:
            module.register_forward_pre_hook(self._count, with_kwargs=True)

    def _count(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        tokens = kwargs["input_ids"].numel()
        self.forward += tokens
        self.backward += tokens if torch.is_grad_enabled() else 0


class WorkerUpdater:
    """The updater of the methods on a policy and a reference worker; each rank holds its share of the rows.

    Args:
        policy: Worker whose weights are trained.
        reference: Worker with the initial weights.
    """

    def __init__(self, policy: CPUPoolTrainingWorker, reference: CPUTrainingWorker) -> None:
        self._policy, self._reference = policy, reference
        self._rank, self._ranks = dist.get_rank(), dist.get_world_size()
        self._initial = [p.detach().clone() for p in policy.engine.module.parameters()]
        self.counter = TokenCounter(policy.engine.module, reference.engine.module)
        self.begin(use_kl=True, loss_ratio="token")

    def begin(self, *, use_kl: bool, loss_ratio: str) -> None:
        """Initial weights, an empty optimizer, no log-probabilities; counts and CPU times (``seconds``) at 0."""
        self.use_kl = use_kl
        engine = self._policy.engine
        with torch.no_grad():
            for parameter, value in zip(engine.module.parameters(), self._initial, strict=True):
                parameter.copy_(value)
        engine.optimizer.state.clear()
        self._old: dict[tuple[str, int], torch.Tensor] = {}
        self._ref: dict[tuple[str, int], torch.Tensor] = {}
        self.counter.forward = self.counter.backward = 0
        self.seconds = dict.fromkeys(PHASES, 0.0)
        surrogate = SurrogateSettings(kl_coefficient=KL_COEFFICIENT if use_kl else 0.0)
        settings = AlgorithmSettings(loss_ratio=loss_ratio)
        self._policy.set_loss_fn(partial(seeupo_loss, settings=settings, surrogate=surrogate))

    def anchor(self, rows: Sequence[BenchRow]) -> None:
        with self._timed("log_probs"):
            self._old.update(self._log_probs(self._policy, rows))

    def refer(self, rows: Sequence[BenchRow]) -> None:
        """Compute the reference log-probabilities of ``rows``."""
        with self._timed("reference"):
            self._ref.update(self._log_probs(self._reference, rows))

    def step(
        self, rows: Sequence[BenchRow], weights_R: torch.Tensor, *, denominator: float, last: bool
    ) -> Mapping[str, float]:
        with self._timed("update"):
            weight = {row.key: w for row, w in zip(rows, weights_R.tolist(), strict=True)}
            if not self.use_kl:
                rows = [row for row in rows if weight[row.key]]
            share = self._share(rows)
            data = self._data(share, [weight.get(row.key, 0.0) for row in share])
            tu.assign_non_tensor(
                data, mini_batch_size=len(share) * self._ranks, global_batch_size=denominator, epochs=1, seed=0,
                dataloader_kwargs={"shuffle": False}, temperature=1.0, calculate_entropy=False,
                advance_lr_schedule=last,
            )  # fmt: skip
            metrics = tu.get(self._policy.train_mini_batch(data), "metrics")
            return {key: float(torch.tensor(value, dtype=torch.float64).mean()) for key, value in metrics.items()}

    def log_ratio(self, rows: Sequence[BenchRow], *, kind: str, clamp: float | None) -> torch.Tensor:
        with self._timed("post_update"):
            new = self._log_probs(self._policy, rows)
            mask = pad_sequence([torch.full((len(row.response_ids),), int(row.real)) for row in rows], True)
            present, old = (pad_sequence([v[row.key] for row in rows], True).double() for v in (new, self._old))
            return sequence_log_ratio(present, old, mask, kind=kind, clamp=clamp)

    # ---- rows as verl's tensors -----------------------------------------------------------------

    def _log_probs(self, worker: Any, rows: Sequence[BenchRow]) -> dict[tuple[str, int], torch.Tensor]:
        share = self._share(rows)
        data = self._data(share)
        tu.assign_non_tensor(data, compute_loss=False, calculate_entropy=False, temperature=1.0)
        output = worker.infer_batch(data)
        values = response_from_nested(output["log_probs"], data["response_mask"]).unbind()
        mine = {row.key: value for row, value in zip(share, values, strict=True)}
        if self._ranks == 1:
            return mine
        gathered: list[Any] = [None] * self._ranks
        dist.all_gather_object(gathered, mine)
        return {key: value for part in gathered for key, value in part.items()}

    def _share(self, rows: Sequence[BenchRow]) -> list[BenchRow]:
        """This rank's rows, longest first in turn; a two-token filler where there are too few."""
        ordered = sorted(rows, key=lambda row: row.tokens, reverse=True)
        filled = [*ordered, *[FILLER] * (-len(ordered) % self._ranks or (0 if ordered else self._ranks))]
        return filled[self._rank :: self._ranks]

    def _data(self, rows: Sequence[BenchRow], weights: Sequence[float] | None = None) -> TensorDict:
        prompts = [torch.tensor(row.prompt_ids) for row in rows]
        responses = [torch.tensor(row.response_ids) for row in rows]
        whole = [torch.cat(pair) for pair in zip(prompts, responses, strict=True)]
        mask = nested([torch.full_like(x, int(row.real)) for row, x in zip(rows, responses, strict=True)])
        columns = {
            "input_ids": nested(whole),
            "position_ids": nested([torch.arange(len(x)) for x in whole]),
            "prompts": nested(prompts),
            "responses": nested(responses),
            "response_mask": mask,
            "loss_mask": mask,
        }
        if weights is not None:
            columns[WEIGHT_COLUMN] = torch.tensor(weights, dtype=torch.float32)
            for name, known in (("old_log_probs", self._old), ("ref_log_prob", self._ref if self.use_kl else {})):
                if known:
                    columns[name] = nested([known.get(r.key, torch.zeros(len(r.response_ids))) for r in rows])
        return TensorDict(columns, batch_size=len(rows))

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        start = time.process_time()
        yield
        self.seconds[phase] += time.process_time() - start


def reset_peak_memory() -> None:
    """Forget the peak of the resident set (Linux); elsewhere the peak is that of the process so far."""
    path = Path("/proc/self/clear_refs")
    if path.exists():
        path.write_text("5")


def peak_memory_mib() -> float:
    """Peak resident set since :func:`reset_peak_memory`, in MiB."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
