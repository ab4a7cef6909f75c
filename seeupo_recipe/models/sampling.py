"""Batched sampling from a Hugging Face causal LM with a KV cache, one random stream per request.

The same code serves the lab's rollouts and the ``hf_cpu`` rollout backend of the verl plugin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel

from seeupo_recipe.seeding import stream


@dataclass(frozen=True)
class SamplingParams:
    """How to pick tokens. ``temperature=0`` is greedy; ``top_k=-1`` and ``top_p=1`` keep everything."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise ValueError(f"temperature={self.temperature}: must not be negative")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p}: must lie in (0, 1]")
        if self.top_k != -1 and self.top_k < 1:
            raise ValueError(f"top_k={self.top_k}: must be -1 (off) or at least 1")


@dataclass(frozen=True)
class Request:
    """One prompt to continue; ``seed`` names its own random stream."""

    prompt_ids: Sequence[int]
    max_new_tokens: int
    seed: int
    params: SamplingParams = SamplingParams()


@dataclass(frozen=True)
class Generation:
    """Sampled tokens, the end token included if it was reached.

    Attributes:
        token_ids: The sampled ids, at least one.
        log_probs: Log-probability of each under the temperature-scaled policy, before top-p and
            top-k: what the trainer computes for the same ids.
        finished: False if the token limit came before an end token.
    """

    token_ids: list[int]
    log_probs: list[float]
    finished: bool


@torch.inference_mode()
def sample_batch(
    model: PreTrainedModel, requests: Sequence[Request], *, eos_ids: Sequence[int], pad_id: int
) -> list[Generation]:
    """Continue all prompts together until each has ended.

    A request's tokens depend on the model, its own prompt, params and seed; other requests of the
    batch change logits by floating-point rounding at most.

    Raises:
        ValueError: If a prompt or a token limit is empty.
    """
    if not requests:
        return []
    if any(not r.prompt_ids or r.max_new_tokens < 1 for r in requests):
        raise ValueError("every request needs a prompt and at least one new token")
    batch, longest = len(requests), max(len(r.prompt_ids) for r in requests)
    limits = [r.max_new_tokens for r in requests]
    uniforms = np.ones((batch, max(limits)))
    for i, request in enumerate(requests):
        uniforms[i, : limits[i]] = stream("sampling", request.seed).random(limits[i])
    uniforms_BS = torch.from_numpy(uniforms)
    limits_B = torch.tensor(limits)
    ends = torch.tensor(sorted(eos_ids))

    ids_BL = torch.full((batch, longest), pad_id)
    attention_BL = torch.zeros((batch, longest), dtype=torch.long)
    for i, request in enumerate(requests):
        ids_BL[i, longest - len(request.prompt_ids) :] = torch.tensor(request.prompt_ids)
        attention_BL[i, longest - len(request.prompt_ids) :] = 1
    positions_BL = (attention_BL.cumsum(-1) - 1).clamp(min=0)
    pick = _TokenPicker([r.params for r in requests])

    cache, tokens, log_probs = None, [], []
    alive_B = torch.ones(batch, dtype=torch.bool)
    length_B, finished_B = torch.zeros(batch, dtype=torch.long), torch.zeros(batch, dtype=torch.bool)
    for step in range(max(limits)):
        out = model(
            input_ids=ids_BL,
            attention_mask=attention_BL,
            position_ids=positions_BL,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        cache = out.past_key_values
        token_B, log_prob_B = pick(out.logits[:, -1].float(), uniforms_BS[:, step])
        tokens.append(token_B)
        log_probs.append(log_prob_B)
        length_B += alive_B
        finished_B |= alive_B & torch.isin(token_B, ends)
        alive_B &= ~finished_B & (length_B < limits_B)
        if not alive_B.any():
            break
        ids_BL, positions_BL = token_B[:, None], positions_BL[:, -1:] + 1
        attention_BL = torch.cat([attention_BL, torch.ones(batch, 1, dtype=torch.long)], dim=1)
    tokens_BS, log_probs_BS = torch.stack(tokens, 1), torch.stack(log_probs, 1)
    return [
        Generation(tokens_BS[i, :n].tolist(), log_probs_BS[i, :n].tolist(), bool(finished_B[i]))
        for i, n in enumerate(length_B.tolist())
    ]


class _TokenPicker:
    """Inverse-CDF sampling with per-row temperature, top-p and top-k."""

    def __init__(self, params: Sequence[SamplingParams]) -> None:
        temperature_B = torch.tensor([p.temperature for p in params])
        self._greedy_B = temperature_B == 0
        self._scale_B1 = torch.where(self._greedy_B, 1.0, temperature_B)[:, None]
        self._top_p_B1 = torch.tensor([p.top_p for p in params])[:, None]
        self._top_k_B1 = torch.tensor([p.top_k for p in params])[:, None]
        self._filters = any(p.top_p < 1 or p.top_k > 0 for p in params)

    def __call__(self, logits_BV: torch.Tensor, uniform_B: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        log_probs_BV = (logits_BV / self._scale_B1).log_softmax(-1)
        probs_BV = log_probs_BV.double().exp()
        if self._filters:
            probs_BV = self._filtered(probs_BV)
        cumulative_BV = probs_BV.cumsum(-1)
        target_B1 = uniform_B[:, None] * cumulative_BV[:, -1:]
        token_B = torch.searchsorted(cumulative_BV, target_B1, right=True)[:, 0]
        last_B = probs_BV.shape[-1] - 1 - (probs_BV > 0).flip(-1).int().argmax(-1)
        token_B = torch.minimum(token_B, last_B)
        token_B = torch.where(self._greedy_B, logits_BV.argmax(-1), token_B)
        return token_B, log_probs_BV.gather(1, token_B[:, None])[:, 0]

    def _filtered(self, probs_BV: torch.Tensor) -> torch.Tensor:
        sorted_BV, order_BV = probs_BV.sort(dim=-1, descending=True, stable=True)
        rank = torch.arange(probs_BV.shape[-1])[None]
        dropped_BV = (self._top_k_B1 > 0) & (rank >= self._top_k_B1)
        dropped_BV = dropped_BV | ((sorted_BV.cumsum(-1) - sorted_BV >= self._top_p_B1) & (self._top_p_B1 < 1))
        keep_BV = torch.ones_like(dropped_BV).scatter(1, order_BV, ~dropped_BV)
        return torch.where(keep_BV, probs_BV, 0.0)
