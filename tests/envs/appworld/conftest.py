import subprocess
import sys
from pathlib import Path

import pytest

from seeupo_recipe.envs.appworld.pool import HostCommand, WorldPool

HERE = Path(__file__).parent
PROJECT = HERE.parents[2]


def pytest_configure(config):
    config.addinivalue_line("markers", "appworld: needs .venv-appworld (made on the way); `make test-appworld`")


@pytest.fixture
def fake_pool(tmp_path):
    """Makes pools on the fake host and ends them."""
    pools = []

    def make(size=4, recycle_after=100, arguments=(), **options):
        command = HostCommand(
            [sys.executable, str(HERE / "fake_host.py"), *arguments], {}, tmp_path, startup_seconds=60
        )
        pools.append(WorldPool(command, size, recycle_after, **options))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


@pytest.fixture(scope="session")
def appworld_installed():
    """Runs the set-up script; it does nothing if all is there."""
    subprocess.run([sys.executable, str(PROJECT / "scripts" / "setup_appworld.py")], check=True)
