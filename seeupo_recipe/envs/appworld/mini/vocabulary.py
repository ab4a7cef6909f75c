"""The closed word-level vocabulary of ``appworld-mini``.

The matches of ``PRETOKENIZER`` are the tokens of a text. Spaces are dropped, so that a word is the same
token wherever it stands and can be copied as it is; a message of the policy is its tokens joined by
nothing (the solutions need no spaces). An API's full name is one token; symbols next to each other are
one token.
"""

from __future__ import annotations

import re

from .families import APPS, FAMILIES, FIRST_NAMES, LAST_NAMES, PROFILE_FIELDS, SEXES, WORDS

PRETOKENIZER = r"```python\n|\n```|apis\.[a-z_]+\.[a-z_]+|[A-Za-z_]+|[0-9]|[^\sA-Za-z0-9_]+|\n"

_PIECE = re.compile(PRETOKENIZER)
_SPACED_PIECE = re.compile(rf"[^\S\n]*(?:{PRETOKENIZER})|[^\S\n]+")
_MESSAGE = "```python\n{}\n```"
_OUTPUTS = (
    "Execution successful.",
    "No Python code block was found in the message.",
    "Execution failed: the interpreter was stopped (time or memory limit). Its variables are lost.",
    "venmo amber\nphone birch",
    "37.0",
    "Ana amber@mail.com\nBob birch@mail.com",
    "1 amber birch\n2 cedar",
    "\n[... 33 of 81 tokens left out ...]\n",
)
_ERRORS = (
    'Error: {"message":"Invalid credentials"}',
    'Error: {"message":"You are either not authorized to access this phone API endpoint or your access token is '
    "missing, invalid or expired. To authenticate, pass the correct access_token as a parameter, or use the login API "
    'to get it."}',
    'Error: {"message":"The note with id 9 does not exist."}',
    "Error: NameError: name 't' is not defined",
    "Error: Message: invalid syntax",
    "Error: KeyError: 'title'",
)


def pieces(text: str) -> list[str]:
    """The tokens of ``text``."""
    return _PIECE.findall(text)


def spaced_pieces(text: str) -> list[str]:
    """The tokens of ``text`` with the spaces before them: joined, they give the text back."""
    return _SPACED_PIECE.findall(text)


def vocabulary() -> tuple[str, ...]:
    """All tokens of prompts, demonstrated messages, outputs and common errors, sorted.

    Other errors that a policy's own code may bring about can hold further words: the tokenizer needs an
    unknown token for those.
    """
    values = {"title": "amber birch", "project": "cedar", "field": "first_name", "name": "Ana", "amount": "7"}
    values |= {"id": "1", "project_id": "2", "email": "amber@mail.com", "password": "coral", "answer": "amber"}
    texts = [*_OUTPUTS, *_ERRORS]
    for family in FAMILIES:
        texts.append(family.instruction.format(**values))
        texts += [_MESSAGE.format(turn.code.format(**values)) for turn in family.turns]
    texts.append(_MESSAGE.format('apis.supervisor.complete_task(answer="amber@mail.com")'))
    texts.append(_MESSAGE.format('apis.supervisor.complete_task(answer="37.0")'))
    words = [*WORDS, *FIRST_NAMES, *LAST_NAMES, *SEXES, *APPS, *PROFILE_FIELDS, *"0123456789"]
    return tuple(sorted({piece for text in texts for piece in pieces(text)} | set(words)))
