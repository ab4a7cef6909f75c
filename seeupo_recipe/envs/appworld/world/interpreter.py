"""The process that runs the policy's code, apart from the world and locked down.

It is forked from the host, which loads no task, so neither a database nor a ground truth is in its
memory, and the kernel lets it open nothing. API calls travel as JSON over a socket pair to the world,
which answers them with the real engine. The code sees AppWorld's own names (``apis``, the preamble's
imports) and gets AppWorld's own wording of results and errors.
"""

from __future__ import annotations

import io
import json
import linecache
import os
import re
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from textwrap import dedent
from typing import Any

from appworld.apps.api_lib import set_local_date_and_time, set_local_random_seed
from appworld.common.safety_guard import SafetyGuard
from appworld.common.utils import CustomErrorMessageMunch, get_stack_trace_from_exception
from appworld.environment import TRUE_AVAILABLE_IMPORTS

from . import confinement

_MAX_FRAME = 16 * 2**20
_START_SECONDS = 30.0
_STANDARD_ERROR = 2
_LENGTH = struct.Struct("!I")

ApiHandler = Callable[[str, str, dict[str, Any]], Any]


@dataclass(frozen=True)
class Limits:
    """What one code block may use."""

    seconds: float
    grace_seconds: float
    memory_mb: int
    output_chars: int


class InterpreterDied(RuntimeError):
    """The interpreter was stopped or broke the protocol; its variables are lost."""


class Interpreter:
    """The world's handle on its interpreter process."""

    def __init__(self, connection: socket.socket, limits: Limits) -> None:
        self._socket = connection
        self._limits = limits

    def start(self, date_and_time: Any, seed: int) -> None:
        """Freeze the interpreter's clock at the task's date and seed its ``random``.

        Raises:
            InterpreterDied: If the process did not come up, locked down and ready.
        """
        self._socket.settimeout(_START_SECONDS)
        try:
            self._socket.sendall(_encode({"now": date_and_time.isoformat(), "seed": seed}))
            _receive(self._socket)
        except (OSError, EOFError) as error:
            raise InterpreterDied("the interpreter did not start; the host's log says why") from error

    def run(self, code: str, handle_api: ApiHandler) -> str:
        """Run one code block and return its output; ``handle_api`` answers its API calls.

        Raises:
            InterpreterDied: If the process ended, sent nonsense, or ignored its time limit.
        """
        deadline = self._deadline()
        try:
            self._send({"code": code}, deadline)
            while True:
                message = _receive(self._socket, deadline)
                if "output" in message:
                    return str(message["output"])[: 2 * self._limits.output_chars]
                app, api, arguments = message["api"]
                try:
                    reply = {"value": handle_api(app, api, arguments)}
                except Exception as error:
                    reply = {"error": str(error)}
                self._send(reply, deadline)
        except (OSError, EOFError, ValueError, KeyError, TypeError, RecursionError) as error:
            self.close()
            raise InterpreterDied(type(error).__name__) from error

    def close(self) -> None:
        self._socket.close()

    def _send(self, message: Any, deadline: float) -> None:
        self._socket.settimeout(_remaining(deadline))
        self._socket.sendall(_encode(message))

    def _deadline(self) -> float:
        return _monotonic() + self._limits.seconds + self._limits.grace_seconds


def _encode(message: Any) -> bytes:
    payload = json.dumps(message, default=_as_text).encode()
    if len(payload) > _MAX_FRAME:
        raise ValueError(f"a message of {len(payload)} bytes is over the limit of {_MAX_FRAME}")
    return _LENGTH.pack(len(payload)) + payload


def _receive(connection: socket.socket, deadline: float | None = None) -> dict[str, Any]:
    (length,) = _LENGTH.unpack(_receive_exactly(connection, _LENGTH.size, deadline))
    if length > _MAX_FRAME:
        raise ValueError(f"a message of {length} bytes is over the limit of {_MAX_FRAME}")
    return json.loads(_receive_exactly(connection, length, deadline))


def _receive_exactly(connection: socket.socket, length: int, deadline: float | None) -> bytes:
    parts = []
    while length:
        if deadline is not None:
            connection.settimeout(_remaining(deadline))
        part = connection.recv(min(length, 2**20))
        if not part:
            raise EOFError
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _monotonic() -> float:
    """Real seconds, through a call that AppWorld's frozen clock leaves alone."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def _remaining(deadline: float) -> float:
    remaining = deadline - _monotonic()
    if remaining <= 0:
        raise TimeoutError
    return remaining


def warm_up() -> None:
    """Import in the host what an interpreter would import at first use, when it can no longer open files."""
    namespace: dict[str, Any] = {}
    exec(TRUE_AVAILABLE_IMPORTS, namespace)
    _execute("import json\njson.loads('no json')", "<python-input-0>", namespace, SafetyGuard())


def serve_interpreter(connection: socket.socket, api_names: Mapping[str, Sequence[str]], limits: Limits) -> None:
    """The interpreter process itself: lock down, then run code blocks until the world closes the connection."""
    guard = SafetyGuard()
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(TRUE_AVAILABLE_IMPORTS, namespace)
    namespace |= {"print": _print, "input": _input, "apis": _api_stubs(connection, api_names, _Alarm())}
    confinement.limit_memory(limits.memory_mb)
    confinement.close_all_but(connection.fileno(), _STANDARD_ERROR)
    confinement.lock_down()
    os.close(_STANDARD_ERROR)
    guard.enable()
    count = 0
    while True:
        message = _receive(connection)
        if "now" in message:
            if message["now"] != datetime.now().isoformat():
                set_local_date_and_time(datetime.fromisoformat(message["now"]))
            set_local_random_seed(message["seed"])
            connection.sendall(_encode({"ready": True}))
            continue
        count += 1
        connection.sendall(_encode({"output": _run(message["code"], count, namespace, guard, limits)}))


def _run(code: str, count: int, namespace: dict[str, Any], guard: SafetyGuard, limits: Limits) -> str:
    code = code.strip()
    if not code:
        return "No code available to execute."
    output = _BoundedOutput(limits.output_chars)
    sys.stdout = sys.stderr = output
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, limits.seconds)
            failure = _execute(code, f"<python-input-{count}>", namespace, guard)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except _TimeOut:
        failure = f"Execution timed out after {limits.seconds:g} seconds."
    if failure is not None:
        return "Execution failed. Traceback:\n" + failure[: limits.output_chars]
    text = output.getvalue()
    return text if text.strip() else "Execution successful."


def _execute(code: str, file_name: str, namespace: dict[str, Any], guard: SafetyGuard) -> str | None:
    linecache.cache[file_name] = (len(code), None, f"{code}\n".splitlines(keepends=True), file_name)
    try:
        is_safe, reason = guard.is_syntax_safe(code)
        if not is_safe:
            return reason
        program = compile(code, file_name, "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"Syntax error in line:\n{(error.text or '').rstrip()}\nMessage: {error.msg}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    try:
        exec(program, namespace)
    except _TimeOut:
        raise
    except BaseException as error:
        return _describe(error)
    return None


def _describe(error: BaseException) -> str:
    lines = get_stack_trace_from_exception(error, remove_cwd=False, only_ipython=True).splitlines()
    first = next((i for i, line in enumerate(lines) if "<python-input-" in line), 0)
    return dedent(re.sub(r"<python-input-\d+>", "<python-input>", "\n".join(lines[first:])))


class _TimeOut(BaseException):
    pass


class OutputLimit(Exception):
    """The policy's code printed too much."""

    __module__ = "builtins"  # shown without a module in the traceback


class _BoundedOutput(io.StringIO):
    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = self._left = limit

    def write(self, text: str) -> int:
        super().write(text[: self._left])
        self._left -= min(len(text), self._left)
        if not self._left:
            raise OutputLimit(f"more than {self._limit} characters of output")
        return len(text)


class _Alarm:
    """Raises in the policy's code when its time is up, but never in the middle of a message to the world."""

    def __init__(self) -> None:
        self._calling = self._due = False
        signal.signal(signal.SIGALRM, self._ring)

    def _ring(self, *_: Any) -> None:
        if self._calling:
            self._due = True
        else:
            raise _TimeOut

    def __enter__(self) -> None:
        self._calling, self._due = True, False

    def __exit__(self, *_: Any) -> None:
        self._calling = False
        if self._due:
            raise _TimeOut


def _print(*values: Any, **options: Any) -> None:
    """AppWorld's ``print``: one container alone is shown as JSON, over several lines if it is long."""
    if not options and len(values) == 1 and isinstance(values[0], (list, tuple, dict)):
        text = json.dumps(values[0])
        print(json.dumps(values[0], indent=1) if len(text) >= 100 else text)
    else:
        print(*values, **options)


def _input(*_: Any, **__: Any) -> None:
    raise Exception("input(..) is not allowed. All decisions must be made autonomously.")


def _api_stubs(
    connection: socket.socket, api_names: Mapping[str, Sequence[str]], alarm: _Alarm
) -> CustomErrorMessageMunch:
    apis = CustomErrorMessageMunch(error_message="No app named '{key}' found.")
    for app, names in api_names.items():
        apis[app] = CustomErrorMessageMunch.build("No API named '{key}' found in the " + app + " app.")
        for name in names:
            apis[app][name] = _wrap_api_request(connection, app, name, alarm)
    return apis


def _wrap_api_request(connection: socket.socket, app: str, name: str, alarm: _Alarm) -> Callable[..., Any]:
    def _api_request(**arguments: Any) -> Any:
        payload = _encode({"api": [app, name, arguments]})
        with alarm:
            connection.sendall(payload)
            reply = _receive(connection)
        if "error" in reply:
            raise Exception(reply["error"])
        return reply["value"]

    return _api_request


def _as_text(value: Any) -> str:
    if hasattr(value, "isoformat"):
        return str(value)
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
