import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


class Server:
    """An OpenAI-style endpoint on loopback; ``answer`` maps a request to a message, or (status, body)."""

    def __init__(self):
        self.answer = lambda body: {"role": "assistant", "content": "Done."}
        self.models = ["tiny"]
        self.requests, self.headers = [], []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                self.reply(200, {"object": "list", "data": [{"id": name} for name in outer.models]})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append(body)
                outer.headers.append(dict(self.headers))
                found = outer.answer(body) if self.path == "/v1/chat/completions" else (404, {"error": self.path})
                if isinstance(found, tuple):
                    return self.reply(*found)
                reason = found.pop("finish_reason", "stop")
                choice = {"index": 0, "message": found, "finish_reason": reason}
                self.reply(200, {"choices": [choice], "usage": {"completion_tokens": 7}})

            def reply(self, status, body):
                data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def server(monkeypatch):
    from seeupo_recipe.agents import endpoint

    monkeypatch.setattr(endpoint, "RETRIES", 2)
    monkeypatch.delenv("MODEL_NAME", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()
