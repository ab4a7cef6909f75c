"""A stand-in for the world host at its process boundary: same pipes, same HTTP, scripted worlds.

What a fake world does follows from the code it is sent: ``say X``, ``complete``, ``pass``, ``fail``,
``die``, ``die unless FILE`` (once: it makes the file), ``hang``, ``lose``, ``pid``.
"""

import ctypes
import json
import os
import signal
import socket
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

children = set()


class FakeWorld:
    def __init__(self):
        self.passed, self.failed, self.completed = [], [], False

    def health(self):
        return {"status": "ready"}

    def interpreter(self):
        return {}

    def reset(self, task_id):
        if task_id == "unknown":
            raise ValueError("no such task")
        self.__init__()
        return {"task_id": task_id, "instruction": f"do {task_id}"}

    def execute(self, code):
        verb, _, rest = code.partition(" ")
        output, lost = "", False
        if verb == "say":
            output = rest
        elif verb == "complete":
            self.completed = True
        elif verb in ("pass", "fail"):
            (self.passed if verb == "pass" else self.failed).append(rest)
        elif verb == "die":
            file = Path(rest.removeprefix("unless ")) if rest else None
            if file is None or not file.exists():
                if file is not None:
                    file.touch()
                os._exit(1)
        elif verb == "hang":
            time.sleep(600)
        elif verb == "lose":
            lost = True
        elif verb == "pid":
            output = str(os.getpid())
        return {"output": output, "interpreter_lost": lost, "completed": self.completed}

    def evaluate(self):
        return {"passed": self.passed, "failed": self.failed, "difficulty": 1, "error": None}


def serve(listener, token):
    world = FakeWorld()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            arguments = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, content = 200, None
            try:
                if self.headers["Authorization"] != f"Bearer {token}":
                    raise PermissionError("wrong token")
                content = getattr(world, self.path[1:])(**arguments)
            except Exception as error:
                status, content = 500, {"error": f"{type(error).__name__}: {error}"}
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = HTTPServer(listener.getsockname(), Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    server.serve_forever()


def fork(run):
    pid = os.fork()
    if pid == 0:
        try:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # die with the host, as the real ones do
            os.close(0)
            os.close(1)
            run()
        finally:
            os._exit(1)
    children.add(pid)
    return pid


def world(token):
    listener = socket.create_server(("127.0.0.1", 0))
    return {"pid": fork(lambda: serve(listener, token)), "port": listener.getsockname()[1]}


def kill(pids):
    for pid in children.intersection(pids):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        children.discard(pid)
    return {}


def main():
    token = os.environ["SEEUPO_WORLD_TOKEN"]
    if "--broken" in sys.argv:
        sys.exit("this host is broken")
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if request["op"] == "world":
            reply = world(token)
        elif request["op"] == "interpreter":
            alive = os.waitpid(request["world"], os.WNOHANG)[0] == 0
            reply = {"pid": fork(lambda: time.sleep(600))} if alive else {"error": "that world is dead"}
            if not alive:
                children.discard(request["world"])
        else:
            reply = kill(request["pids"])
        print(json.dumps(reply), flush=True)
    kill(list(children))


if __name__ == "__main__":
    main()
