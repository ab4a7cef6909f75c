"""The distance between the rollout's log-probabilities and the trainer's."""

import dataclasses
import logging

import pytest
import torch
import transfer_queue as tq
import verl.trainer.ppo.v1.trainer_sync  # noqa: F401  (loads the plugin's trainers)
from tensordict import TensorDict

from seeupo_recipe.verl_plugin import turn_rows
from seeupo_recipe.verl_plugin.config import PluginOptions

OLD = [[-0.5, -1.0, -2.0], [-0.1, -3.0]]
MASK = [[1, 0, 1], [1, 1]]


def drift_of(monkeypatch, rollout, old=OLD):
    def nest(rows, dtype=torch.float32):
        return torch.nested.as_nested_tensor([torch.tensor(row, dtype=dtype) for row in rows], layout=torch.jagged)

    columns = {"old_log_probs": nest(old), "response_mask": nest(MASK, torch.long)}
    if rollout is not None:
        columns["rollout_log_probs"] = nest(rollout)
    monkeypatch.setattr(tq, "kv_batch_get", lambda **_: TensorDict(columns, batch_size=len(old)))
    return turn_rows.rollout_drift(["a", "b"])


@pytest.mark.parametrize(
    ("rollout", "expected"),
    [
        (OLD, 0.0),
        ([[-0.5, 9.0, -2.0], [-0.1, -3.0]], 0.0),
        ([[-0.6, -1.0, -2.1], [-0.2, -3.1]], 0.1),
        ([[-1.0, -2.0, -0.5], [-3.0, -0.1]], (0.5 + 1.5 + 2.9 + 2.9) / 4),
        (None, 0.0),
    ],
    ids=["equal", "only the environment's tokens", "offset", "shifted by one token", "not reported"],
)
def test_f14_drift_is_the_mean_difference_over_sampled_tokens(monkeypatch, rollout, expected):
    assert drift_of(monkeypatch, rollout) == pytest.approx(expected, abs=1e-6)


def test_f14_drift_above_the_limit_warns_or_aborts_by_config(caplog):
    options = PluginOptions(drift_limit=0.05)
    with caplog.at_level(logging.WARNING):
        turn_rows.judge_drift(0.05, options, 3)
        assert not caplog.records
        turn_rows.judge_drift(0.06, options, 3)
    (record,) = caplog.records
    assert "iteration 3: rollout and trainer log-probabilities differ by 0.06" in record.getMessage()
    with pytest.raises(RuntimeError, match="more than seeupo.drift_limit=0.05"):
        turn_rows.judge_drift(0.06, dataclasses.replace(options, drift_action="abort"), 3)
