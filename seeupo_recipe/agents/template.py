"""What the model sees at a turn: the conversation so far, rendered by the tokenizer's chat template.

``react`` keeps earlier assistant messages whole. ``reasoning_augmented`` removes their thinking
(``<think> ... </think>``), so that a turn's reasoning is seen by that turn only (paper section 5.1,
Figure 3). Every turn's context is rendered anew and served as it is; a turn is trained on exactly the
prompt that was served and the token ids that were sampled, whatever the tokenizer does to their text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transformers import PreTrainedTokenizerBase

from seeupo_recipe.envs.base import Message

STYLES = ("react", "reasoning_augmented")

_CLOSED_THINKING = re.compile(r"<think>.*?</think>\s*", re.DOTALL)
_OPEN_THINKING = re.compile(r"<think>.*\Z", re.DOTALL)


def without_thinking(text: str) -> str:
    """``text`` without its thinking, unfinished thinking included.

    A template may open the thinking itself, so that a message can start inside it: everything up to an
    unmatched ``</think>`` counts as thinking too.
    """
    text = _CLOSED_THINKING.sub("", text)
    if "</think>" in text:
        text = text.rsplit("</think>", 1)[1].lstrip()
    return _OPEN_THINKING.sub("", text)


@dataclass(frozen=True)
class ContextTemplate:
    """Renders contexts and decodes actions.

    Attributes:
        tokenizer: A tokenizer with a chat template.
        style: ``react`` or ``reasoning_augmented``.
        chat_template_kwargs: Extra arguments of the chat template, such as ``enable_thinking``.
    """

    tokenizer: PreTrainedTokenizerBase
    style: str = "react"
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.style not in STYLES:
            raise ValueError(f"unknown context template {self.style!r}; choose one of {', '.join(STYLES)}")
        if not self.tokenizer.chat_template:
            raise ValueError("the model's tokenizer has no chat template; use an instruct model")

    def encode(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """Token ids of the context that asks for the next assistant message."""
        encoded = self.tokenizer.apply_chat_template(
            list(messages),
            tools=list(tools) or None,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            **self.chat_template_kwargs,
        )
        return list(encoded["input_ids"])

    def decode(self, token_ids: Sequence[int], end_ids: Sequence[int]) -> str:
        """Text of a sampled message without its end token; other special tokens stay visible."""
        kept = token_ids[:-1] if token_ids and token_ids[-1] in end_ids else token_ids
        return self.tokenizer.decode(kept, skip_special_tokens=False)

    def remember(self, text: str) -> Message:
        """The assistant message as later turns see it."""
        content = without_thinking(text) if self.style == "reasoning_augmented" else text
        return {"role": "assistant", "content": content}
