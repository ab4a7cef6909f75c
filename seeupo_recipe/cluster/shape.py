"""Sizes of a policy's architecture, from the few numbers of its published config (``models/*.json``)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seeupo_recipe.config import RunConfig
from seeupo_recipe.runs import ROOT
from seeupo_recipe.strict import ConfigError

MODELS = Path(__file__).with_name("models")
FAMILIES = ("qwen2", "qwen3")


@dataclass(frozen=True)
class ModelShape:
    """A dense Qwen2.5 or Qwen3 decoder.

    Attributes:
        family: ``qwen2`` (biases on q, k and v) or ``qwen3`` (norms on q and k).
        tied: Whether the output head is the embedding.
    """

    family: str
    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    tied: bool
    max_positions: int

    @property
    def query(self) -> int:
        """Width of all query heads."""
        return self.heads * self.head_dim

    @property
    def key(self) -> int:
        """Width of all key heads, and of all value heads."""
        return self.kv_heads * self.head_dim

    @property
    def layer_parameters(self) -> int:
        attention = self.hidden * (self.query + 2 * self.key) + self.query * self.hidden
        attention += self.query + 2 * self.key if self.family == "qwen2" else 2 * self.head_dim
        return attention + 3 * self.hidden * self.intermediate + 2 * self.hidden

    @property
    def embedding_parameters(self) -> int:
        return self.vocabulary * self.hidden

    @property
    def body_parameters(self) -> int:
        """Embedding, layers and the last norm."""
        return self.embedding_parameters + self.layers * self.layer_parameters + self.hidden

    @property
    def parameters(self) -> int:
        """Of the policy."""
        return self.body_parameters + (0 if self.tied else self.embedding_parameters)

    @property
    def critic_parameters(self) -> int:
        """Of a value model: one output with a bias in place of the head."""
        return self.body_parameters + self.hidden + 1

    @property
    def cache_bytes_per_token(self) -> int:
        """Keys and values of one token in bfloat16."""
        return 2 * 2 * self.key * self.layers

    @property
    def saved_bytes_per_token(self) -> int:
        """What a layer keeps of one token for its backward pass, in bfloat16 with flash-attention.

        Two norms (input in float32, normalised and scaled values), q and k before and after their own
        norms (Qwen3), q, k, v and the output of attention, and four tensors of the gated MLP.
        """
        norms = 16 * self.hidden
        head_norms = 6 * (self.query + self.key) if self.family == "qwen3" else 0
        attention = 2 * (2 * self.query + 2 * self.key)
        return norms + head_norms + attention + 8 * self.intermediate

    @property
    def working_bytes_per_token(self) -> int:
        """Gradients of a layer's inner tensors that live at the same time: three of the MLP, two of the stream."""
        return 6 * self.intermediate + 4 * self.hidden


def read_shape(values: Mapping[str, Any], where: str) -> ModelShape:
    """The shape from the keys of a Hugging Face config.

    Raises:
        ConfigError: For another architecture.
    """
    family = values.get("model_type")
    if family not in FAMILIES:
        raise ConfigError(f"{where}: model_type={family!r}; sizes are known for {', '.join(FAMILIES)} only")
    return ModelShape(
        family=family,
        vocabulary=values["vocab_size"],
        hidden=values["hidden_size"],
        intermediate=values["intermediate_size"],
        layers=values["num_hidden_layers"],
        heads=values["num_attention_heads"],
        kv_heads=values["num_key_value_heads"],
        head_dim=values.get("head_dim") or values["hidden_size"] // values["num_attention_heads"],
        tied=values["tie_word_embeddings"],
        max_positions=values["max_position_embeddings"],
    )


def known_models() -> list[str]:
    """Names of the models whose sizes are stored here; they are those of the model recipes."""
    return sorted(path.stem for path in MODELS.glob("*.json"))


def model_shape(config: RunConfig) -> ModelShape:
    """The shape of a run's model: of its folder if it is one, else as stored here under its name.

    Raises:
        ConfigError: If neither is there.
    """
    own = ROOT / config.model_path / "config.json"
    stored = MODELS / f"{config.model.name}.json"
    path = own if own.is_file() else stored
    if not path.is_file():
        raise ConfigError(
            f"no sizes of model {config.model.name}: set model.path to its folder, or model to one of "
            f"{', '.join(known_models())}"
        )
    return read_shape(json.loads(path.read_text()), str(path))
