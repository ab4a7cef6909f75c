"""What makes two runs the same run: ``run_id`` is a hash of everything that defines the result."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def digest(value: Any, length: int = 64) -> str:
    """SHA-256 (hex, first ``length`` digits) of the canonical JSON form of ``value``."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def file_digest(path: Path, length: int = 64) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as handle:
        return (
            hashlib.file_digest(handle, "sha256").hexdigest()[:length]
            if hasattr(hashlib, "file_digest")
            else hashlib.sha256(handle.read()).hexdigest()[:length]
        )


def folder_digest(folder: Path, length: int = 64) -> str:
    """SHA-256 over the names and bytes of the files in ``folder`` (not recursive)."""
    return digest({p.name: file_digest(p) for p in sorted(folder.iterdir()) if p.is_file()}, length)


def make_run_id(identity: Mapping[str, Any]) -> str:
    """Readable name plus a hash of ``identity``.

    ``identity`` must hold ``benchmark``, ``model``, ``algorithm`` and ``seed`` beside whatever else
    defines the result; a label that only names a run in a table must not be in it.
    """
    words = (identity["benchmark"], identity["model"], identity["algorithm"], f"s{identity['seed']}")
    name = "--".join(re.sub(r"[^A-Za-z0-9._]+", "-", str(w)) for w in words)
    return f"{name}--{digest(identity, 10)}"
