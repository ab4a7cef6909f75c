"""One world process: an HTTP server on loopback around one :class:`Engine`, one client at a time."""

from __future__ import annotations

import hmac
import json
import socket
import traceback
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from .engine import RANDOM_SEED, Engine
from .interpreter import Interpreter, InterpreterDied, Limits

_MAX_BODY = 4 * 2**20
_CONTROL_SECONDS = 10.0


class World:
    """What the HTTP endpoints do; every public method is one."""

    def __init__(self, engine: Engine, control: socket.socket, limits: Limits) -> None:
        self._engine = engine
        self._control = control
        self._control.settimeout(_CONTROL_SECONDS)
        self._limits = limits
        self._interpreter: Interpreter | None = None
        self._task: Any = None

    def health(self) -> dict[str, Any]:
        return {"status": "ready"}

    def reset(self, task_id: str) -> dict[str, Any]:
        """Open a task for the interpreter that the driver has had sent."""
        self._receive_interpreter()
        self._task = self._engine.open(task_id)
        self._interpreter.start(self._task.datetime, RANDOM_SEED)
        supervisor = {key: self._task.supervisor[key] for key in ("first_name", "last_name", "email", "phone_number")}
        return {
            "task_id": task_id,
            "instruction": self._task.instruction,
            "supervisor": supervisor,
            "datetime": self._task.datetime.isoformat(),
            "app_descriptions": dict(self._task.app_descriptions),
        }

    def interpreter(self) -> dict[str, Any]:
        """Go on with another interpreter that the driver has had sent."""
        self._receive_interpreter()
        self._interpreter.start(self._task.datetime, RANDOM_SEED)
        return {}

    def execute(self, code: str) -> dict[str, Any]:
        """Run one code block; ``interpreter_lost`` says that its process has to be replaced."""
        self._engine.begin_block()
        try:
            output, lost = self._interpreter.run(code, self._engine.call), False
        except InterpreterDied:
            traceback.print_exc()
            output, lost = "", True
        self._engine.begin_block()
        return {"output": output, "interpreter_lost": lost, "completed": self._engine.completed()}

    def evaluate(self) -> dict[str, Any]:
        """Passed and failed requirements of the task's evaluation program."""
        return self._engine.evaluate()

    def _receive_interpreter(self) -> None:
        if self._interpreter is not None:
            self._interpreter.close()
        _, (descriptor,), _, _ = socket.recv_fds(self._control, 1, 1)
        self._interpreter = Interpreter(socket.socket(fileno=descriptor), self._limits)


def serve(listener: socket.socket, world: World, token: str) -> None:
    """Answer requests on ``listener`` until the process is killed."""
    endpoints = {name: getattr(world, name) for name in ("health", "reset", "interpreter", "execute", "evaluate")}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            if not hmac.compare_digest(self.headers.get("Authorization", ""), f"Bearer {token}"):
                return self._reply(403, {"error": "wrong token"})
            endpoint = endpoints.get(self.path.removeprefix("/"))
            if endpoint is None or length > _MAX_BODY:
                self.close_connection = True
                return self._reply(404, {"error": f"no endpoint {self.path}, or a body of {length} bytes"})
            try:
                self._reply(200, endpoint(**json.loads(self.rfile.read(length))))
            except Exception as error:
                traceback.print_exc()
                self._reply(500, {"error": f"{type(error).__name__}: {error}"})

        def _reply(self, status: int, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response_only(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(listener.getsockname(), Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    server.serve_forever(poll_interval=3600)
