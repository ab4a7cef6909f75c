"""HTTP client of one world."""

from __future__ import annotations

import http.client
import json
from typing import Any


class WorldDied(RuntimeError):
    """The world closed the connection or did not answer in time: it has to be replaced."""


class WorldError(RuntimeError):
    """The world is fine, but cannot do what was asked (its message says why)."""


class WorldClient:
    """Keeps one connection to the world at ``127.0.0.1:port``; not thread-safe."""

    def __init__(self, port: int, token: str) -> None:
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._connection = http.client.HTTPConnection("127.0.0.1", port)

    def post(self, endpoint: str, timeout: float, **arguments: Any) -> dict[str, Any]:
        """Call ``endpoint`` with JSON ``arguments``; wait at most ``timeout`` seconds for the answer.

        Raises:
            WorldDied: If the connection breaks, times out, or carries no JSON object.
            WorldError: If the world answers with an error.
        """
        self._connection.timeout = timeout
        if self._connection.sock is not None:
            self._connection.sock.settimeout(timeout)
        try:
            self._connection.request("POST", f"/{endpoint}", json.dumps(arguments), self._headers)
            response = self._connection.getresponse()
            content = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise WorldDied(f"{endpoint}: {type(error).__name__}: {error}") from error
        if response.status != 200:
            raise WorldError(f"{endpoint}: {content.get('error', content)}")
        return content

    def close(self) -> None:
        self._connection.close()
