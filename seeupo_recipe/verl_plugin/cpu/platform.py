"""A CPU platform for verl's platform registry, chosen if no accelerator is found or VERL_PLATFORM=cpu."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import psutil
import torch


class CPUDeviceModule(ModuleType):
    """``torch.cpu`` plus the calls that verl makes on ``torch.<device>``.

    It compares equal to ``torch.cpu``, which verl special-cases in its memory and FLOPs accounting.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    def __eq__(self, other: object) -> bool:
        return other is torch.cpu or other is self

    __hash__ = ModuleType.__hash__

    def empty_cache(self) -> None:
        """Nothing is cached."""

    ipc_collect = empty_cache

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        """The operating system's peak cannot be reset."""

    def memory_allocated(self, device: Any = None) -> int:
        return psutil.Process().memory_info().rss

    memory_reserved = memory_allocated

    def max_memory_allocated(self, device: Any = None) -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    max_memory_reserved = max_memory_allocated

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        memory = psutil.virtual_memory()
        return memory.available, memory.total

    def get_device_name(self, device: Any = None) -> str:
        return "CPU"

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        torch.set_rng_state(state)


def register(manager: ModuleType) -> None:
    """Add the platform ``cpu`` to the registry of verl's platform manager module."""
    module = CPUDeviceModule("seeupo_cpu_device")

    @manager.PlatformRegistry.register(platform="cpu")
    class CPUPlatform(manager.PlatformBase):
        """Ray's resource keeps the name GPU, the only one verl counts: ``ray_init.num_gpus`` declares them."""

        device_name = "cpu"
        vendor_name = "cpu"
        device_module = module

        def is_available(self) -> bool:
            return True

        def current_device(self) -> torch.device:
            return torch.device("cpu")

        def device_count(self) -> int:
            return 1

        def set_device(self, device_index: int) -> None: ...

        def synchronize(self, device_index: int | None = None) -> None: ...

        def manual_seed(self, seed: int) -> None:
            torch.manual_seed(seed)

        manual_seed_all = manual_seed

        def set_allocator_settings(self, settings: str) -> None: ...

        def empty_cache(self) -> None: ...

        def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
            return None, None

        def communication_backend_name(self) -> str:
            return "gloo"

        def visible_devices_envvar(self) -> str:
            return "CUDA_VISIBLE_DEVICES"

        @contextlib.contextmanager
        def nvtx_range(self, msg: str) -> Iterator[None]:
            yield

        def profiler_start(self) -> None: ...

        def profiler_stop(self) -> None: ...

        def ray_resource_name(self) -> str:
            return "GPU"

        def ray_noset_envvars(self) -> list[str]:
            return []

        def is_ipc_supported(self) -> bool:
            return False

        def cudart(self) -> None:
            return None
