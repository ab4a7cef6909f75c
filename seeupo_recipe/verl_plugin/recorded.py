"""Trainers of recorded runs: metrics, checkpoints and evaluations that survive a kill at any moment.

The end of an iteration is ordered: metrics line, checkpoint, evaluation. A resumed run continues from
its last complete checkpoint, moves later lines aside and first completes that checkpoint's evaluation.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import transfer_queue as tq
from omegaconf import DictConfig, OmegaConf
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.rl_dataset import collate_fn

from seeupo_recipe.agents.facts import Facts, evaluation_rows, training_metrics
from seeupo_recipe.config import build_config
from seeupo_recipe.envs.base import load_benchmark
from seeupo_recipe.records.run import FINISHED, RUNNING, RunRecord, finite
from seeupo_recipe.records.transcripts import Credit, TranscriptKeeper
from seeupo_recipe.verl_plugin.agent_loop import RUN_SECTION
from seeupo_recipe.verl_plugin.dataset import task_item
from seeupo_recipe.verl_plugin.rows import split_key, to_list
from seeupo_recipe.verl_plugin.seeupo_trainer import SeeUPOTrainer
from seeupo_recipe.verl_plugin.turn_rows import TurnRowsTrainer

COMPLETE = "complete.json"
EVALUATION_CHUNK = 32


class Recording:
    """Mixin that writes the run record; it comes before a turn-row trainer in the bases."""

    def __init__(self, config: DictConfig) -> None:
        section = config[RUN_SECTION]
        self.run_config = build_config(OmegaConf.to_container(section.config, resolve=True))
        self.record = RunRecord(Path(section.record))
        self.benchmark = load_benchmark(self.run_config.benchmark.name, **self.run_config.benchmark.options)
        self._transcripts = TranscriptKeeper(self.record, self.run_config, self.benchmark)
        self._checkpoint_due = False
        super().__init__(config)

    # ---- training -------------------------------------------------------------------------------

    def fit(self, agent_loop_manager: Any) -> None:
        """Complete a pending evaluation, train, evaluate, and mark the run finished."""
        self.agent_loop_manager = agent_loop_manager
        self.record.set_status(RUNNING, resumed_from=self.global_steps)
        self._started = time.time()
        if self.global_steps:
            self._evaluate_if_due(self.global_steps)
        super().fit(agent_loop_manager)
        final = self.run_config.training.iterations
        evaluation = self.run_config.evaluation
        self._evaluate(final, self.run_config.benchmark.test_split, evaluation.samples_per_task)
        self.record.set_status(FINISHED)

    def _compute_metrics(
        self, batch: KVBatchMeta, metrics: dict, timing_raw: dict, global_steps: int, epoch: int
    ) -> None:
        """verl's last call of an iteration before it logs: everything is known and nothing saved yet."""
        super()._compute_metrics(batch, metrics, timing_raw, global_steps=global_steps, epoch=epoch)
        facts = self._training_facts(batch)
        metrics.update(training_metrics(list(facts.values())))
        credit = Credit(self.current.advantages, self.current.weights)
        self._transcripts.rollouts(facts, credit, iteration=global_steps)
        self.record.append_metrics(
            global_steps,
            {"time": time.time(), "order": [u.turn + 1 for u in self.current.plan], **finite(metrics)},
        )
        if self._checkpoint_due:
            self._checkpoint_due = False
            self._save_complete()
        self._evaluate_if_due(global_steps)

    def _save_checkpoint(self) -> None:
        """verl saves before it logs; here the metrics line comes first."""
        self._checkpoint_due = True

    def _save_complete(self) -> None:
        super()._save_checkpoint()
        folder = self._checkpoints / f"global_step_{self.global_steps}"
        (folder / COMPLETE).write_text(json.dumps({"iteration": self.global_steps}))
        for old in self._complete_checkpoints()[:-1]:
            if not self._is_kept(int(old.name.rsplit("_", 1)[1])):
                shutil.rmtree(old)

    def _load_checkpoint(self) -> None:
        """Resume from the last checkpoint whose files are all there."""
        for folder in self._checkpoints.glob("global_step_*"):
            if not (folder / COMPLETE).exists():
                shutil.rmtree(folder)
        complete = self._complete_checkpoints()
        if complete:
            self.config.trainer.resume_mode = "resume_path"
            self.config.trainer.resume_from_path = str(complete[-1])
        else:
            self.config.trainer.resume_mode = "disable"
        super()._load_checkpoint()
        self.record.rewind(self.global_steps)

    @property
    def _checkpoints(self) -> Path:
        return Path(self.config.trainer.default_local_dir)

    def _complete_checkpoints(self) -> list[Path]:
        folders = [f for f in self._checkpoints.glob("global_step_*") if (f / COMPLETE).exists()]
        return sorted(folders, key=lambda f: int(f.name.rsplit("_", 1)[1]))

    def _is_kept(self, iteration: int) -> bool:
        """Whether a checkpoint outlives its successor: the best one on the validation split so far."""
        return iteration == best_iteration(self.record, self.run_config.benchmark.validation_split)

    def _training_facts(self, batch: KVBatchMeta) -> dict[str, Facts]:
        """Facts of all trajectories of the iteration by their ids."""
        facts = self._read_facts(batch)
        expected = self.run_config.training.tasks_per_iteration * self.run_config.training.group_size
        if len(facts) != expected:
            raise RuntimeError(f"{len(facts)} of {expected} trajectories came back; the log above says what failed")
        return facts

    def _read_facts(self, batch: KVBatchMeta) -> dict[str, Facts]:
        """The agent loop's facts of every trajectory in ``batch`` by its id, from its last row."""
        last: dict[str, tuple[int, str]] = {}
        for key in batch.keys:
            if key.startswith("pad"):
                continue
            uid, session, turn = split_key(key)
            last[f"{uid}_{session}"] = max(last.get(f"{uid}_{session}", (-1, "")), (turn, key))
        keys = [key for _, key in last.values()]
        if not keys:
            return {}
        data = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
        return dict(zip(last, (extra["trajectory"] for extra in to_list(data["extra_fields"])), strict=True))

    # ---- evaluation -----------------------------------------------------------------------------

    def _evaluate_if_due(self, iteration: int) -> None:
        evaluation = self.run_config.evaluation
        if evaluation.every and iteration % evaluation.every == 0:
            self._evaluate(iteration, self.run_config.benchmark.validation_split, evaluation.periodic_samples)

    def _evaluate(self, iteration: int, split: str, samples: int) -> None:
        """Play every task of ``split`` that is not recorded yet and record its outcomes."""
        recorded = self.record.evaluated(iteration, split)
        tasks = list(self.benchmark.task_ids(split))
        todo = [t for t in tasks if any((t, s) not in recorded for s in range(samples))]
        for start in range(0, len(todo), EVALUATION_CHUNK):
            facts = self._play(todo[start : start + EVALUATION_CHUNK], samples)
            fresh = [f for f in facts if (f["task_id"], f["sample"]) not in recorded]
            self._transcripts.evaluation(fresh, iteration=iteration, split=split)
            self.record.append_evaluations(evaluation_rows(fresh, self.benchmark, iteration=iteration, split=split))

    def _play(self, tasks: list[str], samples: int) -> list[Facts]:
        """Facts of ``samples`` episodes per task under the current weights."""
        items = [
            {
                **task_item(self.benchmark.name, task, i, iteration=0),
                "uid": f"eval{i}x{time.time_ns()}",
                "__rollout_n__": samples,
            }
            for i, task in enumerate(tasks)
        ]
        columns = collate_fn(items)
        batch = tu.get_tensordict(columns)
        tu.assign_non_tensor_data(batch, "global_steps", self.global_steps)
        tu.assign_non_tensor_data(batch, "validate", True)
        tags = [{"is_prompt": True, "status": "pending", "global_steps": self.global_steps} for _ in tasks]
        tq.kv_batch_put(keys=list(columns["uid"]), partition_id="val", tags=tags)
        self.agent_loop_manager.generate_sequences(batch)
        result, _ = self.replay_buffer.sample(self.global_steps, partition_id="val", batch_size=len(tasks))
        facts = list(self._read_facts(result).values())
        if len(facts) != len(tasks) * samples:
            raise RuntimeError(
                f"{len(facts)} of {len(tasks) * samples} evaluation episodes came back; the log above says what failed"
            )
        tq.kv_clear(keys=result.keys, partition_id="val")
        return sorted(facts, key=lambda f: (tasks.index(f["task_id"]), f["sample"]))


def best_iteration(record: RunRecord, split: str) -> int | None:
    """The evaluated iteration with the highest mean score on ``split``; the earliest one on a tie."""
    scores: dict[int, list[float]] = {}
    for row in record.evaluations():
        if row["split"] == split and row["failure"] is None:
            scores.setdefault(row["iteration"], []).append(row["score"])
    return max(sorted(scores), key=lambda i: float(np.mean(scores[i])), default=None)


@register_trainer("seeupo_recorded")
class RecordedSeeUPO(Recording, SeeUPOTrainer):
    """SeeUPO with a run record."""


@register_trainer("turn_rows_recorded")
class RecordedTurnRows(Recording, TurnRowsTrainer):
    """A baseline, or no training at all, with a run record."""
