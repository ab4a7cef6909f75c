"""verl's agent loop worker for :class:`~seeupo_recipe.verl_plugin.agent_loop.TurnAgentLoop`.

verl writes every episode to TransferQueue by itself. Episodes that are sampled in lock-step end together, and a
write costs the same few round trips whether it holds five rows or three hundred: rows that are ready within a
moment of each other are written together here, with the columns that turn-row trainers read.
"""

from __future__ import annotations

import asyncio
from typing import Any

import ray
import torch
import transfer_queue as tq
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

GATHER_SECONDS = 0.01
TASK_COLUMNS = ("uid", "index", "data_source", "reward_model")

RowEntry = tuple[str, dict[str, Any], dict[str, Any]]


class TurnLoopWorker(AgentLoopWorkerTQ.__ray_metadata__.modified_class):
    """Text-only rows whose rewards the environment gave; anything else is verl's own worker's job."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._writer = RowWriter()

    async def _agent_loop_postprocess(self, output: list[AgentLoopOutput], validate: bool, **kwargs: Any) -> None:
        prefix = f"{kwargs['uid']}_{kwargs['session_id']}"
        columns = {name: kwargs[name] for name in TASK_COLUMNS}
        entries = [(f"{prefix}_{i}", *_row(turn, columns, kwargs["global_steps"])) for i, turn in enumerate(output)]
        await self._writer.put("val" if validate else "train", entries)


class TurnLoopManager(AgentLoopManagerTQ):
    """Starts :class:`TurnLoopWorker` actors (``rollout.agent.agent_loop_manager_class``)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(TurnLoopWorker)


class RowWriter:
    """Writes what several callers hand in within ``GATHER_SECONDS`` in one call per partition."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[list[RowEntry], asyncio.Task[None]]] = {}

    async def put(self, partition: str, entries: list[RowEntry]) -> None:
        """Return once the rows are written.

        Raises:
            Exception: What TransferQueue raised, in every caller whose rows were part of the write.
        """
        if partition not in self._waiting:
            self._waiting[partition] = ([], asyncio.create_task(self._write(partition)))
        rows, written = self._waiting[partition]
        rows.extend(entries)
        await asyncio.shield(written)

    async def _write(self, partition: str) -> None:
        await asyncio.sleep(GATHER_SECONDS)
        rows, _ = self._waiting.pop(partition)
        keys, fields, tags = (list(column) for column in zip(*rows, strict=True))
        await tq.async_kv_batch_put(
            keys=keys, partition_id=partition, fields=list_of_dict_to_tensordict(fields), tags=tags
        )


def _row(output: AgentLoopOutput, columns: dict[str, Any], global_steps: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Columns and tag of one turn, named as verl names them."""
    fields = {**output.as_dict(), **columns}
    del fields["metrics"]
    prompts, responses = fields["prompts"], fields["responses"]
    fields["input_ids"] = torch.cat([prompts, responses])
    fields["position_ids"] = torch.arange(len(fields["input_ids"]))
    fields["loss_mask"] = fields["response_mask"]
    tag = {
        "status": "success",
        "prompt_len": len(prompts),
        "response_len": len(responses),
        "seq_len": len(fields["input_ids"]),
        "global_steps": global_steps,
        "min_global_steps": output.extra_fields["min_global_steps"],
        "max_global_steps": output.extra_fields["max_global_steps"],
    }
    return fields, tag
