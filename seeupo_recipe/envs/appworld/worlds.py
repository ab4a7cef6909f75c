"""Where AppWorld is installed, and the pools of worlds of this process."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path

from .pool import HostCommand, WorldPool

APPWORLD_VERSION = "0.1.3.post1"
PROJECT = Path(__file__).resolve().parents[3]
VENV = PROJECT / ".venv-appworld"
DATA = PROJECT / "outputs" / "appworld"

_pools: dict[tuple[int, WorldSettings], WorldPool] = {}
_pools_lock = threading.Lock()


@dataclass(frozen=True)
class WorldSettings:
    """The worlds of one data folder.

    Attributes:
        root: AppWorld's root folder (it holds ``data``).
        worlds: Most worlds, so most episodes in flight, per process.
        recycle_after: Episodes after which a world is replaced.
        block_seconds: Time limit of a code block.
        grace_seconds: Time after that limit until the interpreter is killed.
        interpreter_memory_mb: Memory that a policy's code may use.
        world_memory_mb: Memory that a world may use.
        output_chars: Longest output of a code block.
    """

    root: Path
    worlds: int = 64
    recycle_after: int = 100
    block_seconds: float = 100.0
    grace_seconds: float = 5.0
    interpreter_memory_mb: int = 512
    world_memory_mb: int = 4096
    output_chars: int = 200_000

    def pool(self) -> WorldPool:
        """The pool of this process for these settings; made at first use."""
        with _pools_lock:
            key = (os.getpid(), self)
            if key not in _pools:
                _pools[key] = WorldPool(self._command(), self.worlds, self.recycle_after)
            return _pools[key]

    def _command(self) -> HostCommand:
        limits = {
            "seconds": self.block_seconds,
            "grace_seconds": self.grace_seconds,
            "memory_mb": self.interpreter_memory_mb,
            "output_chars": self.output_chars,
        }
        module = f"{__package__}.world.host"
        arguments = ["-P", "-W", "ignore", "-m", module, "--limits", json.dumps(limits)]
        root = str(self.root)
        return HostCommand(
            [str(VENV / "bin" / "python"), *arguments, "--world-memory-mb", str(self.world_memory_mb)],
            {
                "APPWORLD_ROOT": root,
                "APPWORLD_CACHE": root,
                "HOME": root,
                "LANG": "C.UTF-8",
                "PYTHONHASHSEED": "0",
                "PYTHONPATH": str(PROJECT),
                "TZ": "UTC",
            },
            self.root,
        )
