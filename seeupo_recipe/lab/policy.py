"""Log-probabilities and values of turn rows under a Hugging Face model, in one process.

Shapes: R rows, L response positions (padded on the right), S positions of prompt and response.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import AutoConfig, AutoModelForTokenClassification, PreTrainedModel


@dataclass(frozen=True)
class LabRow:
    """One turn of one trajectory with its token ids."""

    trajectory: str
    turn: int
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]

    @property
    def tokens(self) -> int:
        return len(self.prompt_ids) + len(self.response_ids)


@dataclass(frozen=True)
class RowTensors:
    """Rows as tensors.

    Attributes:
        ids_RS: Prompt and response, padded on the right.
        attention_RS: 1 on both.
        places_RL: Position before each response token (whose output predicts it); 0 where padded.
        tokens_RL: Response ids.
        mask_RL: True on response tokens.
    """

    ids_RS: torch.Tensor
    attention_RS: torch.Tensor
    places_RL: torch.Tensor
    tokens_RL: torch.Tensor
    mask_RL: torch.Tensor


def row_tensors(rows: Sequence[LabRow], pad_id: int) -> RowTensors:
    """Pad the rows to common lengths."""
    longest, longest_response = max(row.tokens for row in rows), max(len(row.response_ids) for row in rows)
    ids_RS = torch.full((len(rows), longest), pad_id)
    attention_RS = torch.zeros((len(rows), longest), dtype=torch.long)
    places_RL = torch.zeros((len(rows), longest_response), dtype=torch.long)
    tokens_RL = torch.zeros((len(rows), longest_response), dtype=torch.long)
    mask_RL = torch.zeros((len(rows), longest_response), dtype=torch.bool)
    for i, row in enumerate(rows):
        start, length = len(row.prompt_ids), len(row.response_ids)
        ids_RS[i, : row.tokens] = torch.tensor(row.prompt_ids + row.response_ids)
        attention_RS[i, : row.tokens] = 1
        places_RL[i, :length] = torch.arange(start - 1, start + length - 1)
        tokens_RL[i, :length] = torch.tensor(row.response_ids)
        mask_RL[i, :length] = True
    return RowTensors(ids_RS, attention_RS, places_RL, tokens_RL, mask_RL)


def log_probs(
    model: PreTrainedModel, tensors: RowTensors, temperature: float, *, entropy: bool = False
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Log-probabilities of the response tokens at ``temperature``, and entropies if asked; both (R, L)."""
    logits_RSV = model(input_ids=tensors.ids_RS, attention_mask=tensors.attention_RS, use_cache=False).logits
    index_RLV = tensors.places_RL[..., None].expand(-1, -1, logits_RSV.shape[-1])
    log_softmax_RLV = (logits_RSV.gather(1, index_RLV).float() / temperature).log_softmax(-1)
    picked_RL = log_softmax_RLV.gather(-1, tensors.tokens_RL[..., None])[..., 0]
    entropy_RL = -(log_softmax_RLV.exp() * log_softmax_RLV).sum(-1) if entropy else None
    return picked_RL, entropy_RL


def values(critic: PreTrainedModel, tensors: RowTensors) -> torch.Tensor:
    """The critic's value before each response token, shape (R, L)."""
    outputs_RS = critic(input_ids=tensors.ids_RS, attention_mask=tensors.attention_RS, use_cache=False).logits[..., 0]
    return outputs_RS.gather(1, tensors.places_RL)


def load_critic(folder: str, seed: int) -> PreTrainedModel:
    """A critic with the policy's body and a fresh scalar head."""
    config = AutoConfig.from_pretrained(folder, num_labels=1, attn_implementation="sdpa")
    config.classifier_dropout = 0.0
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        critic = AutoModelForTokenClassification.from_pretrained(folder, config=config, dtype=torch.float32)
    return critic
