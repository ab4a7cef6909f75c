"""The host process: loads AppWorld once and forks worlds and interpreters from it.

The driver (:mod:`seeupo_recipe.envs.appworld.pool`) speaks JSON lines with it over stdin and stdout:

========================================  ==========================================
``{"op": "world"}``                       ``{"pid": ..., "port": ...}``
``{"op": "interpreter", "world": pid}``   ``{"pid": ...}``; its socket went to the world
``{"op": "kill", "pids": [...]}``         ``{}``, when they are gone
========================================  ==========================================

A command that cannot be carried out (a world is dead, say) is answered by ``{"error": ...}``.

The host never loads a task, so what it forks as an interpreter knows of none. It ends when stdin is
closed or the driver is gone, and everything it forked ends with it.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO

from . import confinement, interpreter
from .engine import Engine, api_names
from .interpreter import Limits
from .server import World, serve

_POLL_SECONDS = 1.0
_exit = os._exit  # AppWorld's guard disables the name in os


class Host:
    def __init__(self, token: str, limits: Limits, world_memory_mb: int) -> None:
        self._token = token
        self._limits = limits
        self._world_memory_mb = world_memory_mb
        self._engine = Engine()
        interpreter.warm_up()
        self._engine.warm_up()
        self._api_names = api_names()
        self._controls: dict[int, socket.socket] = {}
        self.children: set[int] = set()

    def world(self) -> dict[str, Any]:
        listener = socket.create_server(("127.0.0.1", 0))
        ours, theirs = socket.socketpair()

        def run() -> None:
            confinement.limit_memory(self._world_memory_mb)
            serve(listener, World(self._engine, theirs, self._limits), self._token)

        pid = self._fork(run, keep=(listener, theirs))
        self._controls[pid] = ours
        port = listener.getsockname()[1]
        listener.close()
        theirs.close()
        return {"pid": pid, "port": port}

    def interpreter(self, world: int) -> dict[str, Any]:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            pid = self._fork(
                lambda: interpreter.serve_interpreter(theirs, self._api_names, self._limits), keep=(theirs,)
            )
            try:
                socket.send_fds(self._controls[world], [b"i"], [ours.fileno()])
            except OSError:
                self.kill([pid])
                raise
        return {"pid": pid}

    def kill(self, pids: list[int]) -> dict[str, Any]:
        for pid in self.children.intersection(pids):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            self.children.discard(pid)
            control = self._controls.pop(pid, None)
            if control is not None:
                control.close()
        return {}

    def _fork(self, run: Callable[[], None], keep: tuple[socket.socket, ...]) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid:
            self.children.add(pid)
            return pid
        try:
            confinement.die_with_parent(parent)
            confinement.close_all_but(0, 1, 2, *(kept.fileno() for kept in keep))
            run()
        except BaseException:
            traceback.print_exc()
        finally:
            _exit(1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--driver", type=int, required=True, help="process whose end ends this one")
    parser.add_argument("--limits", type=json.loads, required=True, help="fields of interpreter.Limits, as JSON")
    parser.add_argument("--world-memory-mb", type=int, required=True)
    options = parser.parse_args()
    commands, replies = _take_standard_streams()
    host = Host(os.environ.pop("SEEUPO_WORLD_TOKEN"), Limits(**options.limits), options.world_memory_mb)
    operations = {name: getattr(host, name) for name in ("world", "interpreter", "kill")}
    _say(replies, {"ready": True})
    while os.getppid() == options.driver:
        if not select.select([commands], [], [], _POLL_SECONDS)[0]:
            continue
        line = commands.readline()
        if not line:
            break
        arguments = json.loads(line)
        try:
            _say(replies, operations[arguments.pop("op")](**arguments))
        except Exception as error:
            traceback.print_exc()
            _say(replies, {"error": f"{type(error).__name__}: {error}"})
    host.kill(list(host.children))


def _take_standard_streams() -> tuple[BinaryIO, BinaryIO]:
    """Keep stdin and stdout for the driver, where no print of this or a forked process can reach them."""
    commands, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    return commands, replies


def _say(stream: BinaryIO, message: dict[str, Any]) -> None:
    stream.write(json.dumps(message).encode() + b"\n")
    stream.flush()


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    main()
