"""A GPU node as `doctor` sees it: `nvidia-smi` on the path, model folders, disk, memory and Ray's answers."""

import collections
import os
import shutil

import psutil
import pytest

from seeupo_recipe.cluster.standin import save_standin

SIZES = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 40960,
}  # fmt: skip
Usage = collections.namedtuple("Usage", "total used free")
Memory = collections.namedtuple("Memory", "total")


@pytest.fixture(scope="session")
def standin(tmp_path_factory):
    """A small Qwen3 with random weights, as a Hugging Face folder."""
    folder = tmp_path_factory.mktemp("standin") / "qwen3"
    save_standin(folder, (), "qwen3", **SIZES)
    return folder


class Node:
    """A machine that passes; tests take something away from it."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.monkeypatch = folder, monkeypatch
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("SEEUPO_OUTPUTS", str(folder / "outputs"))
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        self.gpus(8)
        self.disk(20_000)
        monkeypatch.setattr(psutil, "virtual_memory", lambda: Memory(1024 * 2**30))

    def gpus(self, count, mib=97871, driver="580.95.05"):
        lines = "".join(f"NVIDIA H20, {mib}, {driver}\\n" for _ in range(count))
        script = self.folder / "nvidia-smi"
        script.write_text(f"#!/bin/sh\nprintf '{lines}'\n")
        script.chmod(0o755)

    def disk(self, gib):
        usage = Usage(gib * 2**30, 0, gib * 2**30)
        self.monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)

    def ray(self, *gpus_per_node):
        self.monkeypatch.setenv("RAY_ADDRESS", "head:6379")
        nodes = [{"Alive": True, "Resources": {"GPU": float(n)}} for n in gpus_per_node]
        nodes.append({"Alive": False, "Resources": {"GPU": 8.0}})
        self.monkeypatch.setattr("ray.init", lambda **options: None)
        self.monkeypatch.setattr("ray.nodes", lambda: nodes)
        self.monkeypatch.setattr("ray.shutdown", lambda: None)


@pytest.fixture
def node(tmp_path, monkeypatch):
    return Node(tmp_path, monkeypatch)


@pytest.fixture
def copied(standin, tmp_path):
    """A copy of the stand-in that a test may spoil."""
    return shutil.copytree(standin, tmp_path / "model")
