"""Sessions of the bfcl-eval executor, run in one worker process per client process.

Why a process: a call with harmless literals can still run for ever in C code that holds the interpreter lock
(``power(9, 10**9)``, a logarithm to 10**9 digits), or double a directory tree with every copy. Bounds on
literals cannot rule that out without knowing every API method, and threads cannot stop it. In a process of
its own the kernel stops it, at a cost of some tens of microseconds per message. The worker also runs one
request at a time, so the module-level state of the API classes (decimal precision, ...) cannot mix between
threads.

A session's state is a function of its calls. When the worker dies, the next use of each session replays them.
"""

from __future__ import annotations

import contextlib
import itertools
import marshal
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seeupo_recipe.envs.base import EnvironmentFailure
from seeupo_recipe.envs.bfcl.package import API_DOCS, Task

WORKER = Path(__file__).with_name("worker.py")
MESSAGE_CPU_SECONDS = 1.0
CHECK_CPU_SECONDS = 20.0
_OUT_OF_MEMORY = 70
_HEADER_BYTES = 4
_PIPE_BYTES = 1 << 16


class CallsStopped(RuntimeError):
    """The calls of one message used up their time or memory; they were undone."""


@dataclass(frozen=True)
class Verdict:
    """What the package's checker says.

    Attributes:
        valid: Whether every user turn passed.
        error_type: The checker's name for the first failure.
        failed_turn: Index of the user turn that failed first, if known.
    """

    valid: bool
    error_type: str | None
    failed_turn: int | None


class _WorkerLost(Exception):
    def __init__(self, returncode: int):
        super().__init__(f"the BFCL executor process ended with code {returncode}")
        self.over_limit = returncode in (-signal.SIGPROF, -signal.SIGSEGV, _OUT_OF_MEMORY)


class _Worker:
    """One worker process and its pipe."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER), *API_DOCS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=os.environ | {"PYTHONHASHSEED": "0"},  # some error messages list the items of a set
            start_new_session=True,
        )
        self.receive()

    def send(self, message: dict[str, Any]) -> None:
        data = marshal.dumps(message)
        unsent = memoryview(len(data).to_bytes(_HEADER_BYTES, "big") + data)
        try:
            while unsent:
                unsent = unsent[self._process.stdin.write(unsent) :]
        except BrokenPipeError:
            raise self._lost() from None

    def receive(self) -> dict[str, Any]:
        reply = b""
        while len(reply) < _HEADER_BYTES or len(reply) - _HEADER_BYTES < int.from_bytes(reply[:_HEADER_BYTES], "big"):
            chunk = self._process.stdout.read(_PIPE_BYTES)
            if not chunk:
                raise self._lost()
            reply += chunk
        return marshal.loads(reply[_HEADER_BYTES:])

    def release(self) -> None:
        """Close this process's ends of the pipe; the worker ends when the last copy is closed."""
        self._process.stdin.close()
        self._process.stdout.close()

    def _lost(self) -> _WorkerLost:
        self.release()
        return _WorkerLost(self._process.wait())


class _Executor:
    """The worker of this process; all sessions take turns."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.generation = 0
        self._worker: _Worker | None = None

    @property
    def alive(self) -> bool:
        return self._worker is not None

    def start(self) -> None:
        """Start a worker unless there is one."""
        if self._worker is None:
            try:
                self._worker = _Worker()
            except _WorkerLost as loss:
                raise EnvironmentFailure(f"{loss}; to see why, run {sys.executable} {WORKER}") from loss
            self.generation += 1

    def exchange(self, message: dict[str, Any], wants_reply: bool = True) -> dict[str, Any]:
        try:
            self._worker.send(message)
            return self._worker.receive() if wants_reply else {}
        except BaseException:  # an interrupt, too, would leave the pipe out of step
            self.release()
            self._worker = None
            raise

    def release(self) -> None:
        if self._worker is not None:
            self._worker.release()


_executor = _Executor()
_session_numbers = itertools.count()


def _forget_inherited_worker() -> None:
    global _executor
    inherited, _executor = _executor, _Executor()
    inherited.release()


os.register_at_fork(after_in_child=_forget_inherited_worker)


class Session:
    """The API instances of one episode.

    Any number of sessions may be used from any number of threads; one session from one thread at a time.
    """

    def __init__(self, task: Task):
        self._number = next(_session_numbers)
        self._opened_in: tuple[_Executor, int] | None = None
        self._log: list[list[str]] = []
        self._opening = {
            "task": task.task_id,
            "classes": task.classes,
            "config": task.config,
            "long_context": "long_context" in task.category,
        }

    def run(self, calls: list[str]) -> list[str]:
        """Execute the gated calls of one message in order and return their results.

        Raises:
            CallsStopped: If they exceeded the limits on CPU time or memory.
            EnvironmentFailure: If the worker cannot be started, ends twice for another reason, or cannot rebuild
                the session's state.
        """
        reply = self._request({"do": "run", "messages": [calls]}, MESSAGE_CPU_SECONDS)
        self._log.append(calls)
        return reply["results"][0]

    def check(self, turns: list[list[list[str]]], ground_truth: list[list[str]]) -> Verdict:
        """Run the package's checker in fresh instances.

        Args:
            turns: Gated calls per user turn and assistant message.
            ground_truth: Gated reference calls per user turn; as many turns as ``turns``.

        Raises:
            EnvironmentFailure: As for :meth:`run`.
        """
        try:
            request = {"do": "check", "turns": turns, "ground_truth": ground_truth}
            return Verdict(**self._request(request, CHECK_CPU_SECONDS))
        except CallsStopped:
            return Verdict(valid=False, error_type="checker:stopped", failed_turn=None)

    def close(self) -> None:
        """Remove the instances. Idempotent."""
        with _executor.lock:
            if self._is_open():
                request = {"do": "close", "session": self._number, "cpu_seconds": CHECK_CPU_SECONDS}
                with contextlib.suppress(_WorkerLost):
                    _executor.exchange(request, wants_reply=False)
            self._opened_in = None

    def _is_open(self) -> bool:
        return _executor.alive and self._opened_in == (_executor, _executor.generation)

    def _request(self, request: dict[str, Any], cpu_seconds: float, retry: bool = True) -> dict[str, Any]:
        address = {"session": self._number, "cpu_seconds": cpu_seconds}
        try:
            with _executor.lock:
                _executor.start()
                reply = _executor.exchange(request | address | self._reopen())
                self._opened_in = (_executor, _executor.generation)
                return reply
        except _WorkerLost as loss:
            if loss.over_limit:
                raise CallsStopped(str(loss)) from loss
            if not retry:
                raise EnvironmentFailure(f"{loss} twice in a session of {self._opening['task']}") from loss
        return self._request(request, cpu_seconds, retry=False)

    def _reopen(self) -> dict[str, Any]:
        """Rebuild this session's state in a new worker; return what its first request there must carry."""
        if self._is_open():
            return {}
        opening = {"open": self._opening}
        if not self._log:
            return opening
        replay = {"do": "run", "messages": self._log, "session": self._number, "cpu_seconds": CHECK_CPU_SECONDS}
        try:
            _executor.exchange(replay | opening)
        except _WorkerLost as loss:
            if loss.over_limit:
                raise EnvironmentFailure(f"{loss} while it rebuilt a session of {self._opening['task']}") from loss
            raise
        return {}
