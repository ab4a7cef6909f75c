"""Tiny models of real architectures with a closed word-level vocabulary, for the ``mini`` scale."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, Qwen3Config
from transformers import Qwen3ForCausalLM as Qwen3

from seeupo_recipe.envs.base import Vocabulary

PAD, BOS, END_OF_QUERY, END_OF_ACTION, UNKNOWN = "<pad>", "<bos>", "<eoq>", "<eoa>", "<unk>"

# A user message is <bos> text <eoq>, an assistant message is text <eoa>, a tool message is its text and a space.
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message['role'] == 'assistant' -%}{{ message['content'] + '<eoa>' }}"
    "{%- elif message['role'] == 'tool' -%}{{ message['content'] + ' ' }}"
    "{%- else -%}{{ '<bos>' + message['content'] + '<eoq>' }}"
    "{%- endif -%}{%- endfor -%}"
)


def build_tokenizer(vocabulary: Vocabulary, *, name: str = "tiny-qwen3") -> PreTrainedTokenizerFast:
    """A fast tokenizer over ``vocabulary`` whose chat template costs at most two extra tokens a message.

    For a Qwen2 model ``AutoTokenizer`` distrusts the class that a tokenizer's config names, and reads the files as
    Qwen's byte-level vocabulary, unless the config has an ``auto_map``; an empty one names no other code.
    """
    specials = [PAD, BOS, END_OF_QUERY, END_OF_ACTION, UNKNOWN]
    table = {word: i for i, word in enumerate(dict.fromkeys([*specials, *vocabulary.words]))}
    tokenizer = Tokenizer(models.WordLevel(vocab=table, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(vocabulary.pattern), behavior="removed", invert=True)
    if vocabulary.joiner == "":
        tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=END_OF_ACTION,
        pad_token=PAD,
        unk_token=UNKNOWN,
        clean_up_tokenization_spaces=False,
        **({"auto_map": {"AutoTokenizer": [None, None]}} if name == "tiny-qwen2.5" else {}),
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


ARCHITECTURES = {"tiny-qwen3": (Qwen3Config, Qwen3), "tiny-qwen2.5": (Qwen2Config, Qwen2ForCausalLM)}


def build_model(
    name: str, tokenizer: PreTrainedTokenizerFast, *, seed: int, max_length: int, width: int = 64, layers: int = 2
) -> PreTrainedModel:
    """A randomly initialised policy of the architecture of ``name`` (about 0.1 M parameters by default).

    Args:
        name: ``tiny-qwen3`` or ``tiny-qwen2.5``.
        tokenizer: Its vocabulary sets the embedding size.
        seed: Seed of the initial weights.
        max_length: Longest sequence in tokens.
        width: Hidden size; four heads share it, with two key-value heads.
        layers: Number of decoder layers.
    """
    config_class, model_class = ARCHITECTURES[name]
    head = {"head_dim": width // 4} if config_class is Qwen3Config else {}
    config = config_class(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=max_length,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        attention_dropout=0.0,
        initializer_range=0.05,
        **head,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = model_class(config)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model


def load_model(folder: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Load weights (float32, SDPA attention) and tokenizer from ``folder``, without any network."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="sdpa", local_files_only=True
    )
    return model, AutoTokenizer.from_pretrained(folder, local_files_only=True)
