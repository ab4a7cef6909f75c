"""A stand-in for a published model where none can be downloaded: random weights, bytes as tokens, ChatML.

Beside bytes the vocabulary holds whole actions of a benchmark as single tokens, and a prior makes them and the end of
a message likely, so that an untrained policy calls tools, thinks, ends turns and reaches the step limit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
THOUGHT = "<think>\nshort\n</think>\n"
TEMPLATE = (
    "{%- for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}"
)
PRIOR = {"end": 0.25, "thought": 0.15, "actions": 0.35}
"""Probabilities of the end token, of a thought and of all actions together; bytes share the rest."""


def build_tokenizer(actions: Sequence[str]) -> PreTrainedTokenizerFast:
    """One token per byte, per special token, per thought and per action."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in (PAD, START, END)])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in (THOUGHT, *dict.fromkeys(actions))])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=PAD)
    fast.chat_template = TEMPLATE
    return fast


def build_model(
    tokenizer: PreTrainedTokenizerFast, actions: Sequence[str], family: str, *, seed: int, **sizes: Any
) -> PreTrainedModel:
    """A random policy of ``family`` (``qwen2`` or ``qwen3``) whose samples follow ``PRIOR`` at first.

    Channel 0 of every embedding is 1, far above the other channels, so the last norm leaves it nearly constant
    and the head's weights on it act as a bias.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        family,
        vocab_size=len(tokenizer),
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        attention_dropout=0.0,
        **sizes,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config)
    probabilities = token_prior(tokenizer, actions)
    with torch.no_grad():
        model.get_input_embeddings().weight[:, 0] = 1.0
        model.get_output_embeddings().weight[:, 0] = probabilities.log() / config.hidden_size**0.5
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model


def token_prior(tokenizer: PreTrainedTokenizerFast, actions: Sequence[str]) -> Any:
    """Probability of every token id under ``PRIOR``; shape (vocabulary,)."""
    import torch

    size = len(tokenizer)
    chosen = tokenizer.convert_tokens_to_ids(list(dict.fromkeys(actions)))
    end, thought = tokenizer.convert_tokens_to_ids([END, THOUGHT])
    never = tokenizer.convert_tokens_to_ids([PAD, START])
    rest = size - len(chosen) - 4
    share = (1 - sum(PRIOR.values()) + (0 if chosen else PRIOR["actions"])) / rest
    prior = torch.full((size,), share)
    prior[chosen] = PRIOR["actions"] / max(1, len(chosen))
    prior[end], prior[thought], prior[never] = PRIOR["end"], PRIOR["thought"], 1e-9
    return prior


def save_standin(folder: Path, actions: Sequence[str], family: str, *, seed: int = 0, **sizes: Any) -> None:
    """Write model and tokenizer as a Hugging Face folder."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer = build_tokenizer(actions)
    build_model(tokenizer, actions, family, seed=seed, **sizes).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def benchmark_actions(name: str) -> list[str]:
    """Actions that are valid on the tasks of a benchmark: BFCL's calls without arguments, AppWorld's code blocks."""
    if name == "bfcl":
        from seeupo_recipe.envs.bfcl.package import API_DOCS, tool_schemas

        schemas = [schema["function"] for class_name in API_DOCS for schema in tool_schemas(class_name).values()]
        names = sorted({s["name"] for s in schemas if not s["parameters"].get("required")})
        return [f"<tool_call>\n{json.dumps({'name': n, 'arguments': {}})}\n</tool_call>" for n in names]
    if name.startswith("appworld"):
        calls = ("print(apis.api_docs.show_app_descriptions())", "print(1 + 1)", "apis.supervisor.complete_task()")
        return [f"```python\n{call}\n```" for call in calls]
    return []
