import json

import numpy as np
import pytest
import torch

from seeupo_recipe.compose import compose_config
from seeupo_recipe.envs.base import EpisodeKey
from seeupo_recipe.lab.session import CellsFailed, run_cell, run_cells
from seeupo_recipe.lab.trainer import LabTrainer
from seeupo_recipe.models.sampling import SamplingParams
from seeupo_recipe.records.run import FAILED
from seeupo_recipe.runs import open_run

METHODS = [
    ["algorithm=seeupo"],
    ["algorithm=seeupo", "algorithm.seeupo.order=joint", "algorithm.seeupo.correction=off"],
    ["algorithm=grpo"],
    ["algorithm=gspo"],
    ["algorithm=rloo"],
    ["algorithm=reinforce_pp", "algorithm.steps_per_iteration=3"],
    ["algorithm=ppo", "algorithm.critic.learning_rate=0.003"],
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
    moved = [json.loads(x) for x in (again.record.folder / "superseded.jsonl").read_text().splitlines()]
    assert [m["iteration"] for m in moved if m["file"] == "metrics.jsonl"] == [5, 6]


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
