import json

import numpy as np
import pytest
import torch

from seeupo_recipe.compose import compose_config
from seeupo_recipe.envs.base import EpisodeKey
from seeupo_recipe.lab.session import CellsFailed, run_cell, run_cells
from seeupo_recipe.lab.trainer import LabTrainer, trajectory_id, turn_rows
from seeupo_recipe.models.sampling import SamplingParams
from seeupo_recipe.records.run import FAILED
from seeupo_recipe.runs import open_run
from seeupo_recipe.study.transcripts import read_transcripts

METHODS = [
    ["algorithm=seeupo"],
    ["algorithm=seeupo", "algorithm.seeupo.order=joint", "algorithm.seeupo.correction=off"],
    ["algorithm=grpo"],
    ["algorithm=gspo"],
    ["algorithm=rloo"],
    ["algorithm=reinforce_pp", "algorithm.steps_per_iteration=3"],
    ["algorithm=ppo", "algorithm.critic.learning_rate=0.003"],
    ["algorithm=ppo", "algorithm.critic.learning_rate=0.003", "algorithm.critic.level=turn"],
]


@pytest.mark.parametrize("overrides", METHODS, ids=lambda o: "-".join(x.split("=")[-1] for x in o))
def test_every_method_learns_the_two_turn_problem(overrides, two_turn_config):
    torch.set_num_threads(1)
    run = open_run(
        two_turn_config(
            "training.iterations=120", "training.learning_rate=0.004", "benchmark.test_split=train", *overrides
        )
    )
    run_cell(run)
    returns = [line["train/return_mean"] for line in run.record.metrics()]
    assert np.mean(returns[:3]) < 0.4
    assert np.mean(returns[-5:]) > 0.85
    assert np.mean([row["score"] for row in run.record.evaluations()]) > 0.85


def test_a_turn_level_critic_estimates_by_turns(two_turn_config):
    """Against the recursion over turns, written out."""
    overrides = ["algorithm=ppo", "algorithm.critic.level=turn", "algorithm.critic.whiten=false"]
    discounts = ["algorithm.critic.gamma=0.9", "algorithm.critic.lam=0.8"]
    trainer = LabTrainer(open_run(two_turn_config("training.iterations=1", *overrides, *discounts)))
    keys = [EpisodeKey(0, 1, f"train-{task}", session) for task in range(4) for session in range(4)]
    played = trainer.rollout(keys, SamplingParams())
    rows = [row for t in played for row in turn_rows(t)]
    place = {trajectory_id(t): i for i, t in enumerate(played)}
    rewards = torch.tensor([t.outcome.reward for t in played])
    before = trainer.critic.values(rows)[0][:, 0].tolist()
    weights, _ = trainer._baseline_weights(rows, rewards, torch.zeros(len(played)), place)
    values = {(row.trajectory, row.turn): v for row, v in zip(rows, before, strict=True)}
    assert len(rows) > len(played)
    for row, weight in zip(rows, weights.tolist(), strict=True):
        reward = rewards[place[row.trajectory]].item()
        here, following = values[row.trajectory, row.turn], values.get((row.trajectory, row.turn + 1))
        later = 0.9 * following + 0.9 * 0.8 * (reward - following) if following is not None else reward
        expected = later - here
        assert weight == pytest.approx(expected, abs=1e-5)


def lines(run):
    """Metrics without wall-clock times."""
    return [
        {key: value for key, value in line.items() if key != "time" and not key.startswith("timing_s/")}
        for line in run.record.metrics()
    ]


@pytest.mark.parametrize("algorithm", ["seeupo", "ppo"])
def test_f19_reruns_and_resumed_runs_are_bit_identical(algorithm, two_turn_config, monkeypatch, tmp_path):
    torch.set_num_threads(1)
    overrides = [f"algorithm={algorithm}", "training.iterations=9", "evaluation.every=3"]
    whole = open_run(two_turn_config(*overrides, "training.checkpoint_every=100"))
    run_cell(whole)

    monkeypatch.setenv("SEEUPO_RESULTS", str(tmp_path / "again"))
    monkeypatch.setenv("SEEUPO_OUTPUTS", str(tmp_path / "again_outputs"))
    again = open_run(two_turn_config(*overrides, "training.checkpoint_every=4"))
    assert again.run_id == whole.run_id
    trainer = LabTrainer(again)
    train = trainer.train_iteration

    def killed(iteration, tasks):
        if iteration == 7:
            raise SystemExit("killed")
        return train(iteration, tasks)

    trainer.train_iteration = killed
    with pytest.raises(SystemExit):
        trainer.fit()
    assert again.record.last_iteration() == 6 and not again.record.finished
    run_cell(again)
    assert again.record.finished
    assert lines(again) == lines(whole)
    assert again.record.evaluations() == whole.record.evaluations()
    assert read_transcripts(again.record.folder) == read_transcripts(whole.record.folder)
    moved = [json.loads(x) for x in (again.record.folder / "superseded.jsonl").read_text().splitlines()]
    assert [m["iteration"] for m in moved if m["file"] == "metrics.jsonl"] == [5, 6]


@pytest.mark.parametrize("algorithm", ["seeupo", "rloo", "ppo", "base"])
def test_transcripts_hold_both_ends_of_training_with_what_the_update_used(algorithm, two_turn_config):
    torch.set_num_threads(1)
    iterations = 0 if algorithm == "base" else 4
    run = open_run(two_turn_config(f"algorithm={algorithm}", f"training.iterations={iterations}", "evaluation.every=2"))
    run_cell(run)
    found = read_transcripts(run.record.folder)
    ends = {split: sorted({t.iteration for t in found if t.split == split}) for split in {t.split for t in found}}
    assert ends == ({"test": [0]} if algorithm == "base" else {"rollout": [1, 4], "validation": [2, 4], "test": [4]})
    scores = {(r["split"], r["iteration"], r["task_id"], r["sample"]): r["score"] for r in run.record.evaluations()}
    for t in found:
        said = [m["content"] for m in t.messages if m["role"] == "assistant"]
        assert t.messages[0]["role"] == "user" and len(said) in (1, 2)
        assert t.split == "rollout" or scores[t.split, t.iteration, t.task_id, t.sample] == t.score
    rollouts = [t for t in found if t.split == "rollout"]
    turns = [turn for t in rollouts for turn in t.turns]
    if algorithm in ("ppo", "base"):
        assert turns == []
        return
    assert all(len({turn["advantage"] for turn in t.turns}) == 1 for t in rollouts)
    assert any(turn["advantage"] for turn in turns)
    if algorithm == "rloo":
        assert all(turn["m"] is None for turn in turns)
        return
    last = [t.turns[-1] for t in rollouts if len(t.turns) == 2]
    assert all(turn["m"] == turn["advantage"] for turn in last), "reverse order: the last turn goes first"
    assert any(t.turns[0]["m"] != t.turns[0]["advantage"] for t in rollouts if len(t.turns) == 2)


def test_cells_run_in_parallel_and_a_failed_one_stops_no_other(tmp_path, monkeypatch):
    monkeypatch.setenv("SEEUPO_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("SEEUPO_OUTPUTS", str(tmp_path / "outputs"))
    small = ["backend=lab", "training.iterations=1", "training.group_size=2", "evaluation.samples_per_task=1"]
    good = [open_run(compose_config([*small, "training.tasks_per_iteration=2", f"seed={s}"])) for s in (1, 2)]
    bad = open_run(compose_config([*small, "training.tasks_per_iteration=999"]))
    with pytest.raises(CellsFailed, match="tasks_per_iteration=999"):
        run_cells([bad, *good], workers=2)
    assert all(run.record.finished for run in good)
    assert bad.record.status()["state"] == FAILED and "has only 256 tasks" in bad.record.status()["error"]


def test_the_number_of_optimizer_steps_is_what_was_asked_for(two_turn_config):
    def steps(*overrides):
        run = open_run(two_turn_config("training.iterations=1", *overrides))
        run_cell(run)
        return run.record.metrics()[0]["update/optimizer_steps"]

    assert steps("algorithm=grpo") == 1
    assert steps("algorithm=grpo", "algorithm.steps_per_iteration=matched") == 2
    assert steps("algorithm=grpo", "algorithm.steps_per_iteration=5") == 5
    assert steps("algorithm=gspo", "algorithm.inner_epochs=3") == 3
    assert steps("algorithm=seeupo", "algorithm.inner_epochs=2", "algorithm.inner_mini_batches=3") == 12


def test_no_more_episodes_are_open_than_the_benchmark_allows(two_turn_config):
    import two_turn

    class Scarce(two_turn.TwoTurn):
        concurrent_episodes = 3
        open, most = [], []

        def make(self, key):
            episode = super().make(key)
            self.open.append(key)
            self.most.append(len(self.open))
            episode.close = lambda: self.open.remove(key)
            return episode

    trainer = LabTrainer(open_run(two_turn_config()))
    keys = [EpisodeKey(0, 1, task, 0) for task in trainer.benchmark.task_ids("train")]
    whole = trainer.rollout(keys, SamplingParams())
    trainer.benchmark = Scarce()
    parts = trainer.rollout(keys, SamplingParams())
    assert max(Scarce.most) == 3 and not Scarce.open
    assert [(t.key, t.messages) for t in parts] == [(t.key, t.messages) for t in whole]
