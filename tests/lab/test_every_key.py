"""No key can be dead: each one changes what a short run does, and each one is listed here."""

import dataclasses
import typing

import pytest
import torch

from seeupo_recipe.algo.settings import AlgorithmSettings
from seeupo_recipe.config import RunConfig
from seeupo_recipe.lab.session import run_cell
from seeupo_recipe.runs import open_run

SEEUPO = "algorithm.seeupo"
EFFECTS = {
    "seed": ["seed=1"],
    "benchmark.train_split": ["benchmark.train_split=validation"],
    "benchmark.test_split": ["benchmark.test_split=validation"],
    "benchmark.validation_split": ["benchmark.validation_split=test", "evaluation.every=1"],
    "benchmark.max_turns": ["benchmark.max_turns=1"],
    "benchmark.max_prompt_tokens": ["benchmark.max_prompt_tokens=4"],
    "benchmark.max_new_tokens": ["benchmark.max_new_tokens=2"],
    "algorithm.name": ["algorithm=grpo"],
    "algorithm.steps_per_iteration": ["algorithm=grpo", "algorithm.steps_per_iteration=2"],
    "algorithm.inner_epochs": ["algorithm.inner_epochs=2"],
    "algorithm.inner_mini_batches": ["algorithm.inner_mini_batches=2"],
    "algorithm.surrogate.clip_low": ["algorithm.inner_epochs=3", "algorithm.surrogate.clip_low=0.001"],
    "algorithm.surrogate.clip_high": ["algorithm.inner_epochs=3", "algorithm.surrogate.clip_high=0.001"],
    "algorithm.surrogate.kl_coefficient": ["algorithm.surrogate.kl_coefficient=0.5"],
    "algorithm.surrogate.entropy_coefficient": ["algorithm.surrogate.entropy_coefficient=0.1"],
    "algorithm.critic.learning_rate": ["algorithm=ppo", "algorithm.critic.learning_rate=0.01"],
    "algorithm.critic.gamma": ["algorithm=ppo", "algorithm.critic.gamma=0.5"],
    "algorithm.critic.lam": ["algorithm=ppo", "algorithm.critic.lam=0.5"],
    "algorithm.critic.value_clip": [
        "algorithm=ppo",
        "algorithm.critic.learning_rate=0.01",
        "algorithm.inner_epochs=4",
        "algorithm.critic.value_clip=0.001",
    ],
    "algorithm.critic.whiten": ["algorithm=ppo", "algorithm.critic.whiten=false"],
    "algorithm.critic.level": ["algorithm=ppo", "benchmark.max_new_tokens=2", "algorithm.critic.level=turn"],
    "training.iterations": ["training.iterations=1"],
    "training.tasks_per_iteration": ["training.tasks_per_iteration=3"],
    "training.group_size": ["training.group_size=6"],
    "training.optimizer": ["training.optimizer=sgd"],
    "training.adapters": ["training.adapters=shared"],
    "training.adapter_rank": ["training.adapters=shared", "training.adapter_rank=2"],
    "training.learning_rate": ["training.learning_rate=0.001"],
    "training.weight_decay": ["training.weight_decay=0.5"],
    "training.beta1": ["training.beta1=0.5"],
    "training.beta2": ["training.beta2=0.9"],
    "training.grad_clip": ["training.grad_clip=0.001", "training.weight_decay=0"],
    "training.temperature": ["training.temperature=0.7"],
    "evaluation.samples_per_task": ["evaluation.samples_per_task=2"],
    "evaluation.temperature": ["evaluation.temperature=0.3"],
    "evaluation.top_p": ["evaluation.top_p=0.3"],
    "evaluation.top_k": ["evaluation.top_k=1"],
    "evaluation.every": ["evaluation.every=1"],
    "evaluation.periodic_samples": ["evaluation.every=1", "evaluation.periodic_samples=2"],
    f"{SEEUPO}.order": [f"{SEEUPO}.order=natural"],
    f"{SEEUPO}.normalization": [f"{SEEUPO}.normalization=none"],
    f"{SEEUPO}.std_floor": [f"{SEEUPO}.std_floor=10"],
    f"{SEEUPO}.advantage_clamp": [f"{SEEUPO}.advantage_clamp=[-0.1,0.1]"],
    f"{SEEUPO}.loss_ratio": ["benchmark.max_new_tokens=2", f"{SEEUPO}.loss_ratio=product"],
    f"{SEEUPO}.correction": [f"{SEEUPO}.correction=off"],
    f"{SEEUPO}.correction_ratio": ["benchmark.max_new_tokens=2", f"{SEEUPO}.correction_ratio=product"],
    f"{SEEUPO}.correction_ratio_clamp": [f"{SEEUPO}.correction_ratio_clamp=[0.999,1.001]"],
    f"{SEEUPO}.correction_product_clamp": [f"{SEEUPO}.correction_product_clamp=[0.999,1.001]"],
    f"{SEEUPO}.correction_alignment": [
        f"{SEEUPO}.correction_alignment=balanced_position",
        f"{SEEUPO}.balance_partitions=4",
    ],
    f"{SEEUPO}.balance_partitions": [
        f"{SEEUPO}.correction_alignment=balanced_position",
        f"{SEEUPO}.balance_partitions=2",
    ],
    f"{SEEUPO}.log_ratio_clamp": [f"{SEEUPO}.log_ratio_clamp=0.0001", "algorithm.inner_epochs=2"],
    f"{SEEUPO}.ratio_denominator": [f"{SEEUPO}.ratio_denominator=turn_start"],
    f"{SEEUPO}.pool_denominator": [f"{SEEUPO}.pool_denominator=real_rows"],
    f"{SEEUPO}.step_empty_pools": [f"{SEEUPO}.step_empty_pools=true", "benchmark.max_turns=3"],
}
# What an override is compared with, where that is not the plain run.
AGAINST = {
    "benchmark.validation_split": ["evaluation.every=1"],
    "algorithm.steps_per_iteration": ["algorithm=grpo"],
    "algorithm.surrogate.clip_low": ["algorithm.inner_epochs=3"],
    "algorithm.surrogate.clip_high": ["algorithm.inner_epochs=3"],
    "algorithm.critic.learning_rate": ["algorithm=ppo"],
    "algorithm.critic.gamma": ["algorithm=ppo"],
    "algorithm.critic.lam": ["algorithm=ppo"],
    "algorithm.critic.value_clip": EFFECTS["algorithm.critic.value_clip"][:3],
    "algorithm.critic.whiten": ["algorithm=ppo"],
    "algorithm.critic.level": ["algorithm=ppo", "benchmark.max_new_tokens=2"],
    "training.adapter_rank": ["training.adapters=shared"],
    "training.grad_clip": ["training.weight_decay=0"],
    "evaluation.periodic_samples": ["evaluation.every=1"],
    f"{SEEUPO}.balance_partitions": EFFECTS[f"{SEEUPO}.correction_alignment"],
    f"{SEEUPO}.log_ratio_clamp": ["algorithm.inner_epochs=2"],
    f"{SEEUPO}.loss_ratio": ["benchmark.max_new_tokens=2"],
    f"{SEEUPO}.correction_ratio": ["benchmark.max_new_tokens=2"],
    f"{SEEUPO}.step_empty_pools": ["benchmark.max_turns=3"],
}
# Keys whose effect is shown elsewhere, or that only name things.
ELSEWHERE = {
    "scale": "names the results folder; tests/study",
    "backend": "tests/verl_plugin/test_end_to_end.py",
    "model.name": "names the model in tables",
    "model.path": "every fixture sets it",
    "model.template": "tests/agents",
    "model.chat_template_kwargs": "tests/agents",
    "benchmark.name": "tests/envs",
    "benchmark.options": "tests/envs",
    "benchmark.paper_name": "tests/study",
    "algorithm.seeupo": "each of its keys is listed",
    "algorithm.critic.path": "tests/verl_plugin",
    "training.checkpoint_every": "tests/lab/test_lab.py: it changes what a kill loses, never a result",
    "verl": "tests/verl_plugin/test_translate.py",
}


def leaves(cls, prefix=""):
    hints = typing.get_type_hints(cls)
    for spec in dataclasses.fields(cls):
        if dataclasses.is_dataclass(hints[spec.name]):
            yield from leaves(hints[spec.name], f"{prefix}{spec.name}.")
        else:
            yield prefix + spec.name


def test_every_key_is_listed():
    keys = {*leaves(RunConfig), *(f"{SEEUPO}.{f.name}" for f in dataclasses.fields(AlgorithmSettings))}
    assert keys == set(EFFECTS) | set(ELSEWHERE)


@pytest.fixture
def outcome(two_turn_config):
    torch.set_num_threads(1)

    def run(overrides):
        base = ["training.iterations=2", "evaluation.samples_per_task=1"]
        cell = open_run(two_turn_config(*base, *overrides))
        if not cell.record.finished:
            run_cell(cell)
        state = torch.load(cell.outputs / "checkpoint.pt", weights_only=True)["model"]
        weights = torch.cat([w.flatten() for w in state.values()]).tolist()
        scores = [{k: v for k, v in row.items() if k != "info"} for row in cell.record.evaluations()]
        return weights, scores

    return run


@pytest.mark.parametrize("key", EFFECTS)
def test_a_key_changes_what_a_run_does(key, outcome):
    assert outcome(EFFECTS[key]) != outcome(AGAINST.get(key, []))
