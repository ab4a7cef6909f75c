"""PPO's advantages: GAE over each trajectory's sampled tokens, across its turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta

from seeupo_recipe.algo.gae import trajectory_gae, whiten
from seeupo_recipe.verl_plugin.rows import Row, nested
from seeupo_recipe.verl_plugin.updater import put


def write_gae(
    batch: KVBatchMeta,
    rows: Sequence[Row],
    rewards: Mapping[str, float],
    metrics: dict,
    *,
    gamma: float,
    lam: float,
    whitened: bool,
) -> KVBatchMeta:
    """Write advantages and returns of every row of ``batch``; rows without sampled tokens get zeros."""
    keys = [row.key for row in rows]
    data = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=["values", "response_mask"])
    values, mask = data["values"].to_padded_tensor(0.0), data["response_mask"].to_padded_tensor(0)
    advantages, returns = trajectory_gae(
        values,
        mask,
        torch.tensor([rewards[row.trajectory] for row in rows]),
        [row.trajectory for row in rows],
        [row.turn for row in rows],
        gamma=gamma,
        lam=lam,
    )
    sampled = mask.bool()
    spread = returns[sampled].var()
    metrics["critic/explained_variance"] = float(1 - (returns - values)[sampled].var() / spread) if spread > 0 else 0.0
    if whitened:
        advantages = whiten(advantages, mask)
    place = {key: i for i, key in enumerate(keys)}
    shapes = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["response_mask"])
    lengths = shapes["response_mask"].offsets().diff().tolist()

    def column(padded: torch.Tensor) -> torch.Tensor:
        return nested(
            [
                padded[place[key], :length] if key in place else torch.zeros(length)
                for key, length in zip(batch.keys, lengths, strict=True)
            ]
        )

    return put(batch, advantages=column(advantages), returns=column(returns))
