import runpy
from pathlib import Path

import psutil
import pytest

from seeupo_recipe.envs.base import load_benchmark
from seeupo_recipe.envs.bfcl import executor
from seeupo_recipe.envs.bfcl.qwen import to_text

DRIVERS = Path(__file__).with_name("drivers")


@pytest.fixture(scope="session")
def bfcl():
    """The real benchmark without a step limit, so that every reference solution fits."""
    return load_benchmark("bfcl", max_turns=10**6)


@pytest.fixture(scope="session")
def drivers():
    return DRIVERS


@pytest.fixture(scope="session")
def play():
    """play(benchmark, task_id, texts) -> [observations, [reward, score, success, info]]."""
    return runpy.run_path(str(DRIVERS / "transcripts.py"))["play"]


@pytest.fixture(scope="session")
def texts_of():
    """texts_of(turns) -> assistant messages for turns of messages of calls; each turn closed by a call-free one."""

    def texts(turns):
        return [text for turn in turns for text in (*(to_text(message) for message in turn), "Done.")]

    return texts


@pytest.fixture(scope="session")
def together():
    """together(ground_truth) -> one message per user turn that has calls."""
    return lambda ground_truth: [[list(turn)] if turn else [] for turn in ground_truth]


@pytest.fixture(scope="session")
def one_by_one():
    """one_by_one(ground_truth) -> one message per call."""
    return lambda ground_truth: [[[call] for call in turn] for turn in ground_truth]


@pytest.fixture(scope="session")
def worker_processes():
    """worker_processes() -> the live executor processes of this process."""

    def find():
        alive = [process for process in psutil.Process().children() if process.status() != psutil.STATUS_ZOMBIE]
        return [process for process in alive if str(executor.WORKER) in process.cmdline()]

    return find
