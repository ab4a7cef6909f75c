"""Rows of many episodes written in one call, and the same rows as verl's own agent loop worker writes."""

import asyncio

import pytest
import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput
from verl.trainer.ppo.v1 import agent_loop_tq

from seeupo_recipe.verl_plugin import agent_worker
from seeupo_recipe.verl_plugin.agent_worker import RowWriter, TurnLoopWorker

KWARGS = {
    "uid": "u", "session_id": 3, "index": 7, "data_source": "vaulthop", "reward_model": {"ground_truth": None},
    "raw_prompt": [{"role": "user", "content": "x"}], "global_steps": 2,
}  # fmt: skip


class Queue:
    """Keeps what is put; fails if told to."""

    def __init__(self, error=None):
        self.calls, self.error = [], error

    async def async_kv_batch_put(self, **call):
        self.calls.append(call)
        if self.error:
            raise self.error


@pytest.fixture
def queue(monkeypatch):
    queue = Queue()
    monkeypatch.setattr(agent_worker, "tq", queue)
    monkeypatch.setattr(agent_loop_tq, "tq", queue)
    return queue


def entries(*keys):
    return [(key, {"input_ids": torch.arange(1 + i)}, {"seq_len": 1 + i}) for i, key in enumerate(keys)]


def outputs():
    return [
        AgentLoopOutput(
            prompt_ids=[1, 2, 3][: 2 + turn],
            response_ids=[4, 5],
            response_mask=[1, 1],
            response_logprobs=[-0.5, -0.25],
            reward_score=0.75,
            num_turns=2,
            metrics=AgentLoopMetrics(),
            extra_fields={"min_global_steps": 1, "max_global_steps": 2, "trajectory": turn, "reward_extra_info": {}},
        )
        for turn in range(2)
    ]


def worker():
    """A worker without its start: nothing of it is needed to write rows of text."""
    instance = TurnLoopWorker.__new__(TurnLoopWorker)
    instance._writer = RowWriter()
    instance.processor = instance.reward_loop_worker_handles = None
    instance.distillation_enabled = False
    return instance


def values(call, name):
    column = call["fields"].get(name)
    return list(column.unbind()) if isinstance(column, torch.Tensor) else column.tolist()


def test_rows_are_those_of_verls_own_worker(queue):
    async def both():
        await worker()._agent_loop_postprocess(outputs(), False, **KWARGS)
        await super(TurnLoopWorker, worker())._agent_loop_postprocess(outputs(), False, **KWARGS)

    asyncio.run(both())
    ours, verls = queue.calls
    assert ours["keys"] == verls["keys"] == ["u_3_0", "u_3_1"]
    assert ours["tags"] == verls["tags"] and ours["partition_id"] == verls["partition_id"] == "train"
    assert {"input_ids", "position_ids", "rm_scores", "rollout_log_probs"} < set(ours["fields"].keys())
    for name in sorted(ours["fields"].keys()):
        for mine, theirs in zip(values(ours, name), values(verls, name), strict=True):
            assert torch.equal(mine, theirs) if isinstance(mine, torch.Tensor) else mine == theirs, name


def test_what_is_ready_together_is_written_together(queue):
    async def play():
        writer = RowWriter()
        await asyncio.gather(
            writer.put("train", entries("a", "b")), writer.put("val", entries("c")), writer.put("train", entries("d"))
        )
        await writer.put("train", entries("e"))

    asyncio.run(play())
    assert [(call["partition_id"], call["keys"]) for call in queue.calls] == [
        ("train", ["a", "b", "d"]),
        ("val", ["c"]),
        ("train", ["e"]),
    ]
    assert queue.calls[0]["fields"].batch_size[0] == 3 and len(queue.calls[0]["tags"]) == 3


def test_a_failed_write_is_heard_by_every_episode_in_it(queue):
    queue.error = RuntimeError("the store is full")

    async def play():
        writer = RowWriter()
        puts = [writer.put("train", entries(key)) for key in "ab"]
        return await asyncio.gather(*puts, return_exceptions=True)

    assert [str(error) for error in asyncio.run(play())] == ["the store is full"] * 2
