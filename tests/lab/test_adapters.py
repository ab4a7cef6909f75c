"""LoRA per turn: no turn's update moves another turn's policy; the shared one moves all of them."""

import pytest
import torch

from seeupo_recipe.agents.rollout import play_batch
from seeupo_recipe.envs.base import EpisodeKey
from seeupo_recipe.lab.adapters import adapter_parameters, select_adapter
from seeupo_recipe.lab.policy import log_probs, row_tensors
from seeupo_recipe.lab.session import run_cell
from seeupo_recipe.lab.trainer import LabTrainer, turn_rows
from seeupo_recipe.models.sampling import SamplingParams
from seeupo_recipe.runs import open_run
from seeupo_recipe.strict import ConfigError


@pytest.fixture
def trainer(two_turn_config):
    torch.set_num_threads(1)

    def make(*overrides):
        return LabTrainer(open_run(two_turn_config("training.iterations=1", *overrides)))

    return make


def first_turn_log_probs(trainer, rows):
    with torch.no_grad():
        return log_probs(trainer.model, row_tensors([r for r in rows if r.turn == 0], 0), 1.0)[0]


@pytest.mark.parametrize("adapters", ["shared", "per_turn"])
def test_updating_the_last_turn_moves_the_first_only_through_shared_weights(adapters, trainer):
    lab = trainer(f"training.adapters={adapters}")
    keys = _keys(lab)
    rows = [row for t in lab.rollout(keys, SamplingParams()) for row in turn_rows(t)]
    if adapters == "per_turn":
        select_adapter(lab.model, 0)
    before = first_turn_log_probs(lab, rows)
    last = [row for row in rows if row.turn == 1]
    lab.updater.begin(rows)
    lab.updater.step(last, torch.ones(len(last)), denominator=len(last), last=False)
    if adapters == "per_turn":
        select_adapter(lab.model, 0)
    moved = not torch.equal(first_turn_log_probs(lab, rows), before)
    assert moved == (adapters == "shared")


def test_new_adapters_leave_the_policy_and_only_they_are_trained(trainer):
    plain, adapted = trainer(), trainer("training.adapters=per_turn")
    keys = _keys(plain)
    rolled = [
        play_batch(lab.benchmark, keys, lab.model, lab.template, lab.limits, SamplingParams())
        for lab in (plain, adapted)
    ]
    assert [turn_rows(t) for t in rolled[0]] == [turn_rows(t) for t in rolled[1]]
    trained = {id(p) for group in adapted.updater.optimizer.param_groups for p in group["params"]}
    assert trained == {id(p) for p in adapter_parameters(adapted.model)}
    frozen = {name: p.clone() for name, p in adapted.model.named_parameters() if id(p) not in trained}
    adapted.train_iteration(1, ["train-0", "train-1", "train-2", "train-3"])
    assert frozen and all(torch.equal(p, dict(adapted.model.named_parameters())[name]) for name, p in frozen.items())


def test_per_turn_policies_sample_with_their_own_weights(trainer):
    lab = trainer("training.adapters=per_turn")
    keys = _keys(lab)
    before = lab.rollout(keys, SamplingParams())
    with torch.no_grad():
        for name, parameter in lab.model.named_parameters():
            if "lora_" in name and ".1." in name:
                parameter.add_(1.0)
    after = lab.rollout(keys, SamplingParams())
    assert [t.turns[0].response_ids for t in after] == [t.turns[0].response_ids for t in before]
    assert [t.turns[1].response_ids for t in after if len(t.turns) > 1] != [
        t.turns[1].response_ids for t in before if len(t.turns) > 1
    ]


@pytest.mark.parametrize(
    "overrides", [["algorithm=grpo"], ["algorithm.seeupo.order=joint", "algorithm.seeupo.correction=off"]]
)
def test_policies_per_turn_need_updates_per_turn(overrides, two_turn_config):
    with pytest.raises(ConfigError, match="updates of one turn at a time"):
        two_turn_config("training.adapters=per_turn", *overrides)


@pytest.mark.parametrize("override", ["training.adapters=shared", "algorithm.critic.level=turn"])
def test_what_only_the_lab_can_is_refused_for_verl(override, two_turn_config):
    with pytest.raises(ConfigError, match="runs in the lab only"):
        two_turn_config(override, "backend=verl")


def test_policies_per_turn_learn(two_turn_config):
    torch.set_num_threads(1)
    run = open_run(two_turn_config("training.iterations=80", "training.adapters=per_turn"))
    run_cell(run)
    returns = [line["train/return_mean"] for line in run.record.metrics()]
    assert sum(returns[-10:]) / 10 > 2 * sum(returns[:10]) / 10


def _keys(lab):
    return [EpisodeKey(0, 1, task, session) for task in lab.benchmark.task_ids("train")[:4] for session in range(4)]
