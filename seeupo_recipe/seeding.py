"""Independent random streams named by what they are for.

Every random choice of the project is drawn from a stream whose name holds the run's seed and the
place of the choice (iteration, task, session, turn). Nothing reads global random state, so results
do not depend on the order in which concurrent episodes happen to finish.
"""

from __future__ import annotations

import hashlib

import numpy as np

Part = int | str


def stream_seed(*parts: Part) -> int:
    """Hash ``parts`` to a seed in ``[0, 2**63)``, stable across processes and Python versions."""
    digest = hashlib.sha256("\x1f".join(f"{type(p).__name__}:{p}" for p in parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def stream(*parts: Part) -> np.random.Generator:
    """Return the NumPy generator of the stream named by ``parts``."""
    return np.random.Generator(np.random.Philox(stream_seed(*parts)))
