"""Kernel limits for the process that runs the policy's code.

``lock_down`` installs a seccomp filter that leaves a process nothing but memory, time and the file
descriptors it already holds: no file can be opened, no process or thread started, no socket made, no
signal sent. Whatever the Python code in it manages to reach, the kernel refuses (``PermissionError``).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import signal
import struct

_PR_SET_PDEATHSIG = 1
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2
_RET_KILL_PROCESS = 0x80000000
_RET_ALLOW = 0x7FFF0000
_RET_EPERM = 0x00050000 | 1
_X32_BIT = 0x40000000

# (AUDIT_ARCH of the machine, system call numbers), from the kernel's syscall tables.
_SYSCALLS = {
    "x86_64": (
        0xC000003E,
        {
            "read": 0,
            "write": 1,
            "close": 3,
            "fstat": 5,
            "mmap": 9,
            "mprotect": 10,
            "munmap": 11,
            "brk": 12,
            "rt_sigaction": 13,
            "rt_sigprocmask": 14,
            "rt_sigreturn": 15,
            "sched_yield": 24,
            "mremap": 25,
            "madvise": 28,
            "setitimer": 38,
            "getpid": 39,
            "sendto": 44,
            "recvfrom": 45,
            "exit": 60,
            "gettimeofday": 96,
            "sigaltstack": 131,
            "gettid": 186,
            "time": 201,
            "futex": 202,
            "restart_syscall": 219,
            "clock_gettime": 228,
            "clock_getres": 229,
            "exit_group": 231,
            "getrandom": 318,
        },
    ),
    "aarch64": (
        0xC00000B7,
        {
            "close": 57,
            "read": 63,
            "write": 64,
            "fstat": 80,
            "exit": 93,
            "exit_group": 94,
            "futex": 98,
            "setitimer": 103,
            "clock_gettime": 113,
            "clock_getres": 114,
            "sched_yield": 124,
            "restart_syscall": 128,
            "sigaltstack": 132,
            "rt_sigaction": 134,
            "rt_sigprocmask": 135,
            "rt_sigreturn": 139,
            "gettimeofday": 169,
            "getpid": 172,
            "gettid": 178,
            "sendto": 206,
            "recvfrom": 207,
            "brk": 214,
            "munmap": 215,
            "mremap": 216,
            "mmap": 222,
            "mprotect": 226,
            "madvise": 233,
            "getrandom": 278,
        },
    ),
}


class _Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when process ``parent``, its parent, is gone."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def limit_memory(megabytes: int) -> None:
    """Let this process map at most ``megabytes`` more than it has mapped now, and write no core file."""
    with open("/proc/self/statm") as statm:
        mapped = int(statm.read().split()[0]) * resource.getpagesize()
    limit = mapped + megabytes * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def close_all_but(*descriptors: int) -> None:
    """Close every file descriptor of this process except ``descriptors``."""
    for descriptor in {int(name) for name in os.listdir("/proc/self/fd")}.difference(descriptors):
        with contextlib.suppress(OSError):  # the one that listed the folder is closed already
            os.close(descriptor)


def lock_down() -> None:
    """Refuse every system call outside the allow-list, for good.

    Raises:
        OSError: If the kernel does not take the filter.
        RuntimeError: If the machine's system call numbers are not known here.
    """
    machine = platform.machine()
    if machine not in _SYSCALLS:
        raise RuntimeError(f"no system call table for {machine!r}; known: {', '.join(_SYSCALLS)}")
    architecture, syscalls = _SYSCALLS[machine]
    numbers = sorted(syscalls.values())
    load, jump_equal, jump_greater_equal, ret = 0x20, 0x15, 0x35, 0x06
    program = [
        (load, 0, 0, 4),
        (jump_equal, 1, 0, architecture),
        (ret, 0, 0, _RET_KILL_PROCESS),
        (load, 0, 0, 0),
        (jump_greater_equal, len(numbers), 0, _X32_BIT),
        *((jump_equal, len(numbers) - i, 0, number) for i, number in enumerate(numbers)),
        (ret, 0, 0, _RET_EPERM),
        (ret, 0, 0, _RET_ALLOW),
    ]
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    instructions = ctypes.create_string_buffer(code, len(code))
    loaded = _Program(len(program), ctypes.addressof(instructions))
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(loaded))


def _prctl(option: int, argument: int, pointer: int = 0) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
    if libc.prctl(option, argument, pointer, 0, 0):
        errno = ctypes.get_errno()
        raise OSError(errno, f"prctl({option}): {os.strerror(errno)}")
