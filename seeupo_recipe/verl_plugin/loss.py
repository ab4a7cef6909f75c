"""The loss function that verl's worker calls for each micro-batch of a SeeUPO pool."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict
from verl.utils.metric import AggregationType, Metric
from verl.workers.utils.padding import no_padding_2_padding

from seeupo_recipe.algo.loss import pool_loss
from seeupo_recipe.algo.settings import AlgorithmSettings, SurrogateSettings
from seeupo_recipe.verl_plugin.rows import WEIGHT_COLUMN


def seeupo_loss(
    model_output: dict[str, torch.Tensor],
    data: TensorDict,
    dp_group: Any = None,
    *,
    settings: AlgorithmSettings,
    surrogate: SurrogateSettings,
) -> tuple[torch.Tensor, dict[str, Metric]]:
    """Loss of a micro-batch's share of the pool, and the sums of its diagnostics.

    ``data["global_batch_size"]`` is the pool's denominator. verl averages gradients over the
    data-parallel ranks and sums them over micro-batches, so shares are multiplied by ``dp_size``.
    """
    log_probs = no_padding_2_padding(model_output["log_probs"], data)
    entropy = model_output.get("entropy")
    columns = ["response_mask", "old_log_probs"] + (["ref_log_prob"] if "ref_log_prob" in data else [])
    padded = data.select(*columns).to_padded_tensor()
    terms = pool_loss(
        log_probs,
        padded["old_log_probs"],
        padded["response_mask"],
        data[WEIGHT_COLUMN],
        denominator=data["global_batch_size"],
        surrogate=surrogate,
        loss_ratio=settings.loss_ratio,
        log_ratio_clamp=settings.log_ratio_clamp,
        ref_log_probs_RL=padded.get("ref_log_prob", None),
        entropy_RL=None if entropy is None else no_padding_2_padding(entropy, data),
    )
    ranks = data["dp_size"]
    loss = terms.loss * ranks
    sums = {
        "pg_loss": loss,
        "clipped": terms.clipped * ranks,
        "ratio_deviation": terms.ratio_deviation * ranks,
        "kl_old": terms.kl_old * ranks,
        "kl_ref": terms.kl_ref * ranks,
        "rows": terms.rows * ranks,
    }
    return loss, {key: Metric(value=value, aggregation=AggregationType.SUM) for key, value in sums.items()}
