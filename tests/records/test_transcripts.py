import json
from dataclasses import replace

import pytest

from seeupo_recipe.compose import compose_config
from seeupo_recipe.envs.base import load_benchmark
from seeupo_recipe.records.run import RunRecord
from seeupo_recipe.records.transcripts import LONGEST_CONTENT, Credit, TranscriptKeeper, transcript
from seeupo_recipe.study.transcripts import read_transcripts


def facts(task="test-0", sample=0, reward=1.0, messages=None, turns=1):
    messages = messages or [{"role": "user", "content": "N1"}, {"role": "assistant", "content": "ANS ses1 sym2"}]
    outcome = {"reward": reward, "score": reward, "success": reward == 1.0}
    return {
        **outcome,
        "task_id": task,
        "sample": sample,
        "turns": turns,
        "stop_reason": "done",
        "failure": None,
        "messages": messages,
    }


@pytest.fixture
def keeper(tmp_path):
    config = compose_config(["backend=lab", "training.iterations=10", "evaluation.every=4"])
    record = RunRecord.create(tmp_path / "run", config_yaml="", manifest={"identity": {}})
    return TranscriptKeeper(record, config, load_benchmark("vaulthop"))


def kept(keeper):
    return [(t.split, t.iteration, t.task_id, t.sample) for t in read_transcripts(keeper.record.folder)]


def test_of_evaluations_the_first_tasks_at_the_first_and_the_last_checkpoint_are_kept(keeper):
    played = [facts(f"test-{i}", sample) for i in (5, 1, 0) for sample in (0, 1)]
    for iteration in (2, 4, 6, 8, 10):
        keeper.evaluation(played, iteration=iteration, split="test")
    assert kept(keeper) == [("test", i, f"test-{task}", 0) for task in (0, 1) for i in (4, 8, 10)]


def test_the_untrained_policy_keeps_the_same_tasks_at_iteration_0(keeper):
    config = compose_config(["backend=lab", "algorithm=base", "training.iterations=0"])
    base = replace(keeper, config=config)
    base.evaluation([facts("test-0"), facts("test-9")], iteration=0, split="test")
    assert kept(base) == [("test", 0, "test-0", 0)]


def test_of_rollouts_tasks_whose_rewards_differ_come_first_with_a_and_m_of_each_turn(keeper):
    rewards = {"a": (1.0, 1.0), "b": (1.0, 0.0), "c": (None, 0.0), "d": (0.0, 1.0)}
    rollouts = {
        f"{task}/{i}": facts(task, i, reward) for task, values in rewards.items() for i, reward in enumerate(values)
    }
    credit = Credit({name: float(i) for i, name in enumerate(rollouts)}, {("b/0", 0): 2.5})
    for iteration in (1, 5, 10):
        keeper.rollouts(rollouts, credit, iteration=iteration)
    assert kept(keeper) == [("rollout", i, task, s) for task in "bd" for i in (1, 10) for s in (0, 1)]
    first = read_transcripts(keeper.record.folder)[0]
    assert first.turns == [{"advantage": 2.0, "m": 2.5}]
    assert read_transcripts(keeper.record.folder)[1].turns == [{"advantage": 3.0, "m": None}]


def test_a_trajectory_that_no_update_used_and_a_message_without_tokens_have_no_turns(keeper):
    keeper.rollouts({"a/0": facts("a"), "b/0": facts("b", turns=0)}, Credit({"b/0": 1.0}), iteration=1)
    assert [t.turns for t in read_transcripts(keeper.record.folder)] == [[], []]


def test_long_messages_are_cut_and_say_so():
    line = transcript(facts(messages=[{"role": "tool", "content": "x" * 9000, "name": "f"}]), iteration=1, split="test")
    (message,) = line["messages"]
    assert message["content"] == "x" * LONGEST_CONTENT + "\n[6000 more characters]" and message["name"] == "f"


def test_a_resumed_run_moves_later_transcripts_aside(keeper):
    for iteration in (4, 8):
        keeper.evaluation([facts()], iteration=iteration, split="test")
    keeper.record.rewind(7)
    assert kept(keeper) == [("test", 4, "test-0", 0)]
    (moved,) = (keeper.record.folder / "superseded.jsonl").read_text().splitlines()
    assert json.loads(moved)["file"] == "transcripts.jsonl" and json.loads(moved)["iteration"] == 8
