"""What this machine and its Ray cluster have: GPUs, driver, memory, disk, package versions."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from seeupo_recipe.strict import ConfigError

QUERY = ("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits")
PROJECT = "seeupo"


@dataclass(frozen=True)
class Gpu:
    name: str
    mib: int
    driver: str


def gpus() -> list[Gpu]:
    """GPUs of this machine.

    Raises:
        ConfigError: If ``nvidia-smi`` is missing or fails.
    """
    try:
        output = subprocess.run(QUERY, capture_output=True, text=True, check=True, timeout=60).stdout
    except FileNotFoundError:
        raise ConfigError("no nvidia-smi here: run this on a GPU node, or install NVIDIA's driver") from None
    except (subprocess.SubprocessError, OSError) as error:
        reason = (getattr(error, "stderr", "") or getattr(error, "stdout", "") or str(error)).strip().splitlines()
        raise ConfigError(f"nvidia-smi fails ({reason[0] if reason else error}): mend NVIDIA's driver") from None
    rows = [[part.strip() for part in line.split(",")] for line in output.splitlines() if line.strip()]
    return [Gpu(name, int(mib), driver) for name, mib, driver in rows]


def ray_nodes(address: str) -> list[Mapping[str, float]]:
    """Resources of every living node of a running Ray cluster.

    Raises:
        ConfigError: If nothing answers there.
    """
    import ray

    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # ray raises ConnectionError, RuntimeError, ValueError ... for an unreachable address
        raise ConfigError(
            f"no Ray cluster answers at RAY_ADDRESS={address} ({type(error).__name__}): `ray start --head` there, or "
            "unset RAY_ADDRESS for one node"
        ) from None
    try:
        return [node["Resources"] for node in ray.nodes() if node["Alive"]]
    finally:
        ray.shutdown()


def existing(path: Path) -> Path:
    """The nearest folder above ``path`` that exists, which is on the same file system."""
    while not path.exists():
        path = path.parent
    return path


def pins(extra: str) -> Iterator[Requirement]:
    """What ``pip install seeupo[extra]`` asks for, with what the extras it names ask for in turn.

    Raises:
        ConfigError: If the project is not installed.
    """
    try:
        yield from _wanted(PROJECT, {extra}, set())
    except metadata.PackageNotFoundError:
        raise ConfigError(f"the project is not installed: pip install -e '.[{extra}]'") from None


def _wanted(package: str, extras: set[str], seen: set[tuple[str, str]]) -> Iterator[Requirement]:
    for text in metadata.requires(package) or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or "extra" not in str(marker):
            continue
        if not any(marker.evaluate({"extra": extra}) for extra in extras):
            continue
        yield requirement
        inner = {e for e in requirement.extras if (requirement.name, e) not in seen}
        if inner:
            seen |= {(requirement.name, extra) for extra in inner}
            yield from _inner(requirement.name, inner, seen)


def _inner(package: str, extras: set[str], seen: set[tuple[str, str]]) -> Iterator[Requirement]:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return
    yield from _wanted(package, extras, seen)


def unmet(requirement: Requirement) -> str | None:
    """How the installed version misses a requirement; None if it does not."""
    try:
        found = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return f"{requirement.name} missing" + (f" (wanted {requirement.specifier})" if requirement.specifier else "")
    if requirement.specifier.contains(found, prereleases=True):
        return None
    return f"{requirement.name} {found} (wanted {requirement.specifier})"


def ray_address() -> str | None:
    return os.environ.get("RAY_ADDRESS") or None
