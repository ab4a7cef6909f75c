import json

import numpy as np
import pytest
import torch

from seeupo_recipe.compose import compose_config
from seeupo_recipe.lab.session import CellsFailed, run_cell, run_cells
from seeupo_recipe.lab.trainer import LabTrainer
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
