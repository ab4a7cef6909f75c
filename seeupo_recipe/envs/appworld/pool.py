"""A pool of worlds: separate processes, reached over loopback, replaced when they die or hang.

A :class:`WorldPool` starts one host process (see :mod:`.world.host`) when the first episode asks for a
world. The host loads AppWorld once and forks worlds and interpreters on demand, so that a new world
costs milliseconds. At most ``size`` episodes hold a world; the others wait in ``acquire``. An episode
keeps its world until it is closed: a driver that steps episodes in lockstep needs ``size`` of at least
the number of episodes in flight.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .client import WorldClient, WorldDied

_OPERATION_SECONDS = 30.0
_HEALTH_SECONDS = 30.0
_CLOSE_SECONDS = 5.0
_LOG_TAIL_BYTES = 2000


class HostDied(RuntimeError):
    """The host process is gone or does not answer."""


class PoolExhausted(RuntimeError):
    """No world became free for a long time: more episodes are held open than there are worlds."""


@dataclass(frozen=True)
class HostCommand:
    """How to start a host.

    Attributes:
        arguments: Program and arguments; ``--driver PID`` is added.
        environment: The host's whole environment (nothing is inherited from this process).
        directory: The host's working directory.
        startup_seconds: How long it may take until it is ready.
    """

    arguments: Sequence[str]
    environment: Mapping[str, str]
    directory: Path
    startup_seconds: float = 180.0


class _Host:
    """The host process and the JSON-line conversation with it; one request at a time."""

    def __init__(self, command: HostCommand, token: str) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the host
        self._process = subprocess.Popen(
            [*command.arguments, "--driver", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**command.environment, "SEEUPO_WORLD_TOKEN": token},
            cwd=command.directory,
            start_new_session=True,  # Ctrl-C is for the driver
        )
        try:
            self._read(command.startup_seconds)
        except HostDied:
            self.close()
            raise

    def request(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Have ``operation`` carried out.

        Raises:
            HostDied: If there is no answer.
            WorldDied: If the host cannot do it (only operations on a dead world fail).
        """
        try:
            self._process.stdin.write(json.dumps({"op": operation, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise HostDied(f"the world host ended: {error}\n{self.log_tail()}") from error
        reply = self._read(_OPERATION_SECONDS)
        if "error" in reply:
            raise WorldDied(f"{operation}: {reply['error']}")
        return reply

    def log_tail(self) -> str:
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), _LOG_TAIL_BYTES, max(0, size - _LOG_TAIL_BYTES)).decode(errors="replace")

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # an unsent command to a host that is gone
            self._process.stdin.close()
        try:
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def _read(self, timeout: float) -> dict[str, Any]:
        line = b""
        if select.select([self._process.stdout], [], [], timeout)[0]:
            line = self._process.stdout.readline()
        if not line:
            self._process.kill()
            raise HostDied(f"the world host ended or gave no answer within {timeout:g} s\n{self.log_tail()}")
        return json.loads(line)


class World:
    """A leased world with a fresh interpreter; talk to it with :meth:`post`."""

    def __init__(self, pool: WorldPool, host: _Host, pid: int, port: int, token: str) -> None:
        self._pool = pool
        self.host = host
        self.pid = pid
        self.port = port
        self.interpreter_pid: int | None = None
        self.episodes = 0
        self._client = WorldClient(port, token)

    def post(self, endpoint: str, timeout: float, **arguments: Any) -> dict[str, Any]:
        """See :meth:`WorldClient.post`."""
        return self._client.post(endpoint, timeout, **arguments)

    def renew_interpreter(self) -> None:
        """Replace a lost interpreter by a fresh one."""
        self._pool.send_interpreter(self)
        self.post("interpreter", _OPERATION_SECONDS)

    def disconnect(self) -> None:
        self._client.close()


class WorldPool:
    """See the module's description. Thread-safe; made for one process (not for its forks)."""

    def __init__(self, command: HostCommand, size: int, recycle_after: int, wait_seconds: float = 1800.0) -> None:
        """Make a pool; nothing starts before the first :meth:`acquire`.

        Args:
            command: Starts the host.
            size: Most worlds at the same time.
            recycle_after: Episodes after which a world is replaced.
            wait_seconds: Longest wait for a free world.
        """
        if size < 1 or recycle_after < 1:
            raise ValueError(f"size and recycle_after must be at least 1, got {size} and {recycle_after}")
        self._command = command
        self._size = size
        self._recycle_after = recycle_after
        self._wait_seconds = wait_seconds
        self._token = secrets.token_hex(16)
        self._free = threading.Semaphore(size)
        self._lock = threading.RLock()
        self._host: _Host | None = None
        self._idle: list[World] = []
        self.counts: Counter[str] = Counter()

    def acquire(self) -> World:
        """Wait for a free world; it is healthy and has a fresh interpreter.

        Raises:
            HostDied: If the host cannot be started.
            WorldDied: If a new world does not come up.
            PoolExhausted: If no world becomes free within ``wait_seconds``.
        """
        if not self._free.acquire(timeout=self._wait_seconds):
            raise PoolExhausted(
                f"no world became free within {self._wait_seconds:g} s: an episode holds its world until it is "
                f"closed, so `worlds` ({self._size}) must not be below the number of episodes stepped together"
            )
        try:
            while True:
                with self._lock:
                    used = bool(self._idle)
                    world = self._idle.pop() if used else self._new_world()
                try:
                    self.send_interpreter(world)
                    world.post("health", _HEALTH_SECONDS)
                    return world
                except WorldDied:
                    self.counts["lost"] += 1
                    self._discard(world)
                    if not used:
                        raise
        except BaseException:
            self._free.release()
            raise

    def release(self, world: World, healthy: bool) -> None:
        """Give a world back; an unhealthy one is killed."""
        world.episodes += 1
        try:
            if healthy and world.episodes < self._recycle_after:
                self._kill(world, [world.interpreter_pid])
                with self._lock:
                    if world.host is self._host:
                        self._idle.append(world)
            else:
                self.counts["recycled" if healthy else "lost"] += 1
                self._discard(world)
        finally:
            self._free.release()

    def send_interpreter(self, world: World) -> None:
        """Have the host kill the world's interpreter, if any, and send it a fresh one."""
        if world.interpreter_pid is not None:
            self._kill(world, [world.interpreter_pid])
        world.interpreter_pid = self._request(world.host, "interpreter", world=world.pid)["pid"]

    def close(self) -> None:
        """End the host and with it every world; the next :meth:`acquire` starts another."""
        with self._lock:
            host, self._host, self._idle = self._host, None, []
        if host is not None:
            host.close()

    def _new_world(self) -> World:
        if self._host is None:
            self._host = _Host(self._command, self._token)
            self.counts["hosts"] += 1
        host = self._host
        reply = self._request(host, "world")
        self.counts["worlds"] += 1
        return World(self, host, reply["pid"], reply["port"], self._token)

    def _discard(self, world: World) -> None:
        world.disconnect()
        self._kill(world, [world.pid, world.interpreter_pid])

    def _kill(self, world: World, pids: Sequence[int | None]) -> None:
        try:
            self._request(world.host, "kill", pids=[pid for pid in pids if pid is not None])
        except HostDied:
            return  # its worlds and interpreters ended with it
        if world.interpreter_pid in pids:
            world.interpreter_pid = None

    def _request(self, host: _Host, operation: str, **arguments: Any) -> dict[str, Any]:
        with self._lock:
            if host is not self._host:
                raise HostDied("the world host was replaced")
            try:
                return host.request(operation, **arguments)
            except HostDied:
                self._host, self._idle = None, []
                host.close()
                raise
