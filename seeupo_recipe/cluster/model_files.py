"""Whether a model's files are the expected ones, and whether contexts made with its template forget thinking."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from seeupo_recipe.agents.template import ContextTemplate
from seeupo_recipe.cluster.shape import MODELS, read_shape
from seeupo_recipe.config import ModelConfig, RunConfig
from seeupo_recipe.runs import ROOT
from seeupo_recipe.strict import ConfigError

SECRET, ANSWER = "a thought of the first turn", "the first answer"
INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"


def model_location(config: RunConfig) -> str:
    """The folder of a run's model, or its hub name."""
    folder = ROOT / config.model_path
    return str(folder) if folder.is_dir() else config.model_path


def load_tokenizer(location: str) -> Any:
    """Raises ConfigError with what to do if there is none."""
    from transformers import AutoTokenizer

    return _read(AutoTokenizer, location, "tokenizer")


def check_model(config: RunConfig) -> str:
    """Architecture, weights' files, tokenizer and special tokens.

    Raises:
        ConfigError: With the first thing that is wrong and what to do.
    """
    from transformers import AutoConfig

    location = model_location(config)
    found = read_shape(_read(AutoConfig, location, "config").to_dict(), f"{location}/config.json")
    stored = MODELS / f"{config.model.name}.json"
    if stored.is_file():
        expected = read_shape(json.loads(stored.read_text()), str(stored))
        wrong = [n for n in vars(expected) if n != "max_positions" and vars(expected)[n] != vars(found)[n]]
        if wrong:
            name = wrong[0]
            raise ConfigError(
                f"{location} is not {config.model.name} ({name} {vars(found)[name]} instead of "
                f"{vars(expected)[name]}): set model.path to its folder, or model.name to another name"
            )
    weights = _check_weights(location)
    tokenizer = load_tokenizer(location)
    _check_special_tokens(tokenizer, found.vocabulary, location)
    tokens = f"{len(tokenizer)} tokens, messages end with {tokenizer.eos_token}"
    return f"{found.parameters / 1e9:.2f} B parameters, {weights}, {tokens}"


def check_template(model: ModelConfig, location: str) -> str:
    """Render the second turn of a conversation whose first turn thought.

    Raises:
        ConfigError: If the first turn's thinking, or an empty place for it, is still there, or its answer is not.
    """
    tokenizer = load_tokenizer(location)
    try:
        template = ContextTemplate(tokenizer, model.template, dict(model.chat_template_kwargs))
        messages = [
            {"role": "user", "content": "a question"},
            template.remember(f"<think>\n{SECRET}\n</think>\n\n{ANSWER}"),
            {"role": "user", "content": "another question"},
        ]
        text = tokenizer.decode(template.encode(messages))
    except Exception as error:  # Jinja templates raise whatever they like
        raise ConfigError(f"the chat template of {location} does not render: {error}".splitlines()[0]) from None
    before, found, _ = text.partition("another question")
    if ANSWER not in before or not found:
        raise ConfigError(f"the chat template of {location} drops earlier messages: use the model's published one")
    if SECRET in before:
        raise ConfigError(
            f"contexts keep earlier thinking (model.template={model.template}): set model.template=reasoning_augmented"
        )
    if "<think>" in before:
        raise ConfigError(
            f"the chat template of {location} writes <think> into earlier messages: use the model's published "
            "chat_template.jinja"
        )
    return f"{model.template}: earlier thinking is removed"


def _read(loader: Any, location: str, what: str) -> Any:
    try:
        return loader.from_pretrained(location)
    except Exception as error:  # transformers raises OSError, ValueError, KeyError and the hub's own errors
        if Path(location).is_dir():
            reason, todo = type(error).__name__, "download the model again"
        elif location.startswith(("/", ".", "~")) or location.count("/") != 1:
            reason, todo = "no such folder", "set model.path to the model's folder or hub name"
        else:
            reason, todo = "neither in the cache nor reachable", f"run `hf download {location}`, or set model.path"
        raise ConfigError(f"cannot read the {what} of {location} ({reason}): {todo}") from None


def _check_weights(location: str) -> str:
    folder = Path(location)
    if not folder.is_dir():
        from huggingface_hub import try_to_load_from_cache

        cached = any(isinstance(try_to_load_from_cache(location, name), str) for name in (INDEX, SINGLE))
        return "weights in the hub's cache" if cached else "weights not downloaded yet (the start does it)"
    index = folder / INDEX
    files = sorted(set(json.loads(index.read_text())["weight_map"].values())) if index.is_file() else [SINGLE]
    missing = [name for name in files if not (folder / name).is_file()]
    if missing:
        raise ConfigError(
            f"{location} lacks {len(missing)} of its weight files ({missing[0]}): download the model again"
        )
    return f"{len(files)} weight files"


def _check_special_tokens(tokenizer: Any, vocabulary: int, location: str) -> None:
    for name in ("eos_token_id", "pad_token_id"):
        token = getattr(tokenizer, name)
        if token is None or token >= vocabulary:
            raise ConfigError(f"the tokenizer of {location} has {name}={token}: use the model's published tokenizer")
    if not tokenizer.chat_template:
        raise ConfigError(f"the tokenizer of {location} has no chat template: use an instruct model")
    end = tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False)
    if tokenizer.eos_token not in end:
        raise ConfigError(
            f"the chat template of {location} does not end messages with {tokenizer.eos_token}, the token that ends "
            "a sampled message: use the model's published tokenizer"
        )
