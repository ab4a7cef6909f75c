"""Reads the transcripts of a run for the report's viewer; the format stands in ``records/transcripts.py``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seeupo_recipe.records.run import TRANSCRIPTS, RecordError

LONGEST_MESSAGE = 4000


@dataclass(frozen=True)
class Transcript:
    """One episode; the attributes are the keys of a line."""

    iteration: int
    split: str
    task_id: str
    sample: int
    score: float | None
    success: bool | None
    stop: str
    failure: str | None
    messages: Sequence[Mapping[str, Any]]
    turns: Sequence[Mapping[str, float | None]]

    def plain(self) -> dict[str, Any]:
        """JSON values for the viewer; long messages are cut and say so."""
        turns = iter(self.turns)
        return {
            "iteration": self.iteration,
            "split": self.split,
            "task": self.task_id,
            "sample": self.sample,
            "score": self.score,
            "success": self.success,
            "stop": self.stop,
            "failure": self.failure,
            "messages": [_shown(m, next(turns, {}) if m["role"] == "assistant" else {}) for m in self.messages],
        }


def read_transcripts(folder: Path) -> list[Transcript]:
    """All transcripts of a run, ordered by split, task, iteration and sample; empty without the file.

    Raises:
        RecordError: With the line that does not fit the format.
    """
    path = folder / TRANSCRIPTS
    if not path.exists():
        return []
    found: dict[tuple, Transcript] = {}
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        if not line:
            continue
        try:
            transcript = _parse(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise RecordError(f"{path}, line {number}: {type(error).__name__}: {error}") from None
        found[transcript.split, transcript.task_id, transcript.iteration, transcript.sample] = transcript
    return [found[key] for key in sorted(found)]


def _parse(values: Mapping[str, Any]) -> Transcript:
    messages = values["messages"]
    if not isinstance(messages, list) or not all(isinstance(m, dict) and isinstance(m["role"], str) for m in messages):
        raise ValueError("messages must be a list of objects with a role")
    turns = values.get("turns") or []
    assistant = sum(m["role"] == "assistant" for m in messages)
    if len(turns) not in (0, assistant):
        raise ValueError(f"{len(turns)} turns for {assistant} assistant messages")
    return Transcript(
        int(values["iteration"]),
        str(values["split"]),
        str(values["task_id"]),
        int(values["sample"]),
        values["score"],
        values["success"],
        str(values["stop"]),
        values.get("failure"),
        messages,
        turns,
    )


def _shown(message: Mapping[str, Any], turn: Mapping[str, float | None]) -> dict[str, Any]:
    text = message.get("content")
    text = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
    rest = {key: value for key, value in message.items() if key not in ("role", "content")}
    if rest:
        text += "\n" + json.dumps(rest, ensure_ascii=False, indent=1)
    if len(text) > LONGEST_MESSAGE:
        text = f"{text[:LONGEST_MESSAGE]}\n[{len(text) - LONGEST_MESSAGE} more characters]"
    return {"role": message["role"], "text": text, "advantage": turn.get("advantage"), "m": turn.get("m")}
