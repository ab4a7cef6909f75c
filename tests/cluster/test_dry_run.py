"""The dry run's parts that train nothing."""

from seeupo_recipe.cluster.cells import Selection, select
from seeupo_recipe.cluster.dry_report import Report, verdict
from seeupo_recipe.cluster.dry_run import fault, representatives
from seeupo_recipe.cluster.shrink import differences, shrink
from seeupo_recipe.cluster.smoke import smoke_config
from seeupo_recipe.cluster.validate import validate
from seeupo_recipe.records.run import FINISHED


class Record:
    finished = True

    def __init__(self, **changes):
        line = {
            "train/trajectories": 16, "train/environment_failures": 0, "update/optimizer_steps": 2.0, "order": [3, 2],
            "update/rollout_drift": 1e-8, "update/grad_norm_max": 1.0, **changes,
        }  # fmt: skip
        self.lines = [line, line]

    def metrics(self):
        return self.lines

    def evaluations(self):
        return [FINISHED]


def test_a_small_run_keeps_the_algorithm_and_reports_what_it_changes(tmp_path):
    cell = select(Selection("paper", "table2", ("qwen3-14b",), ("bfcl",), ("seeupo",)))[0]
    dry = shrink(cell, tmp_path)
    assert dry.config.algorithm.settings() == cell.config.algorithm.settings()
    assert dry.config.benchmark.max_turns == 10 and dry.config.training.group_size == 8
    found = differences(dry)
    assert found["training.tasks_per_iteration"] == (32, 2)
    assert found["verl.actor_rollout_ref.rollout.name"] == ("vllm", "hf_cpu")
    assert not any(key.startswith("algorithm") for key in found)
    standin = tmp_path / "bfcl-qwen3"
    for offload in (False, True):
        tree = validate(smoke_config("seeupo", offload, standin, "sdpa"), standin)
        assert tree.actor_rollout_ref.actor.fsdp_config.optimizer_offload is offload


def test_one_cell_per_benchmark_and_algorithm_from_both_models():
    chosen = representatives(select(Selection("paper", "table2")))
    pairs = {(c.config.benchmark.name, c.config.algorithm.name) for c in chosen}
    assert len(chosen) == len(pairs) == 8
    assert {c.config.model.name for c in chosen} == {"qwen3-14b", "qwen2.5-14b"}


def test_a_run_that_did_otherwise_than_its_algorithm_is_a_fault():
    config = select(Selection("paper", "table2", ("qwen3-14b",), ("bfcl",), ("seeupo",)))[0].config
    assert fault(Record(), config) is None
    assert "1 optimizer steps instead of 2" in fault(Record(**{"update/optimizer_steps": 1.0}), config)
    assert "15 of 16 trajectories" in fault(Record(**{"train/trajectories": 15}), config)
    assert "differ by 0.01" in fault(Record(**{"update/rollout_drift": 0.01}), config)


def test_the_verdict_leaves_nothing_out():
    report = Report(checked=["a", "b"], not_run={"a": "x"})
    assert verdict(report) == "dry run passed: 2 cells checked, 0 trained in 0.0 minutes, 1 NOT RUN"
    report.failed["b"] = "y"
    assert not report.passed and verdict(report).startswith("dry run FAILED")
