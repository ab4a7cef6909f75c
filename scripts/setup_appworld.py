"""Install AppWorld in an environment of its own and make its data folder.

    python scripts/setup_appworld.py                  # .venv-appworld and the tasks of appworld-mini
    python scripts/setup_appworld.py --data official  # and AppWorld's own tasks

What is there already is kept, so the script can be run again at any time. Needs Linux and a Python 3.11
or 3.12 for the environment (it may differ from the one that runs this script).
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from seeupo_recipe.envs.appworld.benchmark import OFFICIAL_SIZES  # noqa: E402
from seeupo_recipe.envs.appworld.mini.tasks import build_input, content_hash  # noqa: E402
from seeupo_recipe.envs.appworld.worlds import APPWORLD_VERSION, DATA, VENV  # noqa: E402

CONSTRAINTS = PROJECT / "scripts" / "appworld_constraints.txt"
PYTHONS = ("3.11", "3.12")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=("mini", "official"), default="mini", help="data folders to make")
    parser.add_argument("--python", help=f"interpreter for .venv-appworld (default: a Python {' or '.join(PYTHONS)})")
    options = parser.parse_args()
    if sys.platform != "linux":
        sys.exit("AppWorld's worlds need Linux: the policy's code is locked down with seccomp")
    DATA.mkdir(parents=True, exist_ok=True)
    with open(DATA / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        install(options.python)
        build_mini()
        if options.data == "official":
            download_official()


def install(python: str | None) -> None:
    """Make ``.venv-appworld`` and unpack AppWorld's sources in it."""
    if installed_version() != APPWORLD_VERSION:
        say(f"installing appworld=={APPWORLD_VERSION} in {VENV.name}")
        subprocess.run([python or find_python(), "-m", "venv", "--clear", str(VENV)], check=True)
        pip = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--constraint", str(CONSTRAINTS), f"appworld=={APPWORLD_VERSION}"], check=True)
    if not list(VENV.glob("lib/python*/site-packages/appworld/apps/spotify/apis.py")):
        say("unpacking AppWorld's apps")
        subprocess.run([str(VENV / "bin" / "appworld"), "install"], check=True, env=environment(DATA))


def build_mini() -> None:
    """Make the data folder of ``appworld-mini`` with AppWorld's own models."""
    root = DATA / "mini"
    stamp = root / "content_hash.txt"
    if stamp.is_file() and stamp.read_text() == content_hash():
        say(f"{root.relative_to(PROJECT)} is up to date")
        return
    content = build_input()
    say(f"building {len(content['tasks'])} tasks in {root.relative_to(PROJECT)}")
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    subprocess.run(
        [str(VENV / "bin" / "python"), "-W", "ignore", "-m", "seeupo_recipe.envs.appworld.world.build"],
        input=json.dumps(content).encode(),
        env=environment(root) | {"PYTHONPATH": str(PROJECT)},
        cwd=root,
        check=True,
    )
    stamp.write_text(content_hash())


def download_official() -> None:
    """Fetch AppWorld's own data with its own command, unless it is there."""
    root = DATA / "official"
    root.mkdir(exist_ok=True)
    if missing_official(root):
        say("downloading AppWorld's data")
        command = [str(VENV / "bin" / "appworld"), "download", "data"]
        download = subprocess.run(command, env=environment(root), cwd=root, capture_output=True, text=True)
        if download.returncode:
            say(f"the download failed: {' '.join(download.stderr.split())[-200:]}")
    problem = missing_official(root)
    if problem:
        sys.exit(
            f"AppWorld's data is not in {root} ({problem}).\n"
            "On a machine that may download it, run there\n"
            f"    pip install appworld=={APPWORLD_VERSION} && appworld install && appworld download data\n"
            f"and copy the folder `data` that this makes to {root / 'data'};\n"
            "or pass the folder that holds it to the benchmark as its option `root`."
        )
    say(f"official data: {', '.join(f'{split} {size}' for split, size in OFFICIAL_SIZES.items())} tasks")


def missing_official(root: Path) -> str | None:
    """What is wrong with the official data folder, or None."""
    for split, size in OFFICIAL_SIZES.items():
        path = root / "data" / "datasets" / f"{split}.txt"
        if not path.is_file():
            return f"no {path.relative_to(root)}"
        task_ids = path.read_text().split()
        if len(task_ids) != size:
            return f"{len(task_ids)} tasks in {split}, expected {size}"
        lacking = [task_id for task_id in task_ids if not (root / "data" / "tasks" / task_id / "specs.json").is_file()]
        if lacking:
            return f"no folder for task {lacking[0]}"
    return None


def installed_version() -> str | None:
    """Version of the appworld package in ``.venv-appworld``, or None."""
    code = "import importlib.metadata as m; print(m.version('appworld'))"
    try:
        return subprocess.check_output(
            [str(VENV / "bin" / "python"), "-c", code], text=True, stderr=subprocess.DEVNULL
        ).strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def find_python() -> str:
    """An interpreter that AppWorld runs on."""
    for candidate in (sys.executable, *(f"python{version}" for version in PYTHONS)):
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        found = (
            subprocess.run([candidate, "-c", code], capture_output=True, text=True) if shutil.which(candidate) else None
        )
        if found is not None and found.stdout.strip() in PYTHONS:
            return candidate
    sys.exit(f"AppWorld needs a Python {' or '.join(PYTHONS)}: install one, or name it with --python")


def environment(root: Path) -> dict[str, str]:
    """Environment variables that keep AppWorld's files under ``root``."""
    return {**os.environ, "APPWORLD_ROOT": str(root), "APPWORLD_CACHE": str(root)}


def say(message: str) -> None:
    print(f"setup-appworld: {message}", flush=True)


if __name__ == "__main__":
    main()
