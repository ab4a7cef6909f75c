"""A client of OpenAI-compatible chat endpoints, such as vLLM's and SGLang's servers."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import requests
from urllib3.util import Retry

from seeupo_recipe.envs.base import Message
from seeupo_recipe.models.sampling import SamplingParams

KEY_VARIABLE = "OPENAI_API_KEY"
TIMEOUT_SECONDS = 600
RETRIES = 5
_TOO_LONG = re.compile(r"context.{0,20}(length|window)|too long", re.IGNORECASE | re.DOTALL)


class EndpointError(RuntimeError):
    """The endpoint cannot be used; one line that says what it answered."""


class ContextTooLong(EndpointError):
    """The conversation is longer than the endpoint's model can read."""


@dataclass(frozen=True)
class Answer:
    """One assistant message.

    Attributes:
        message: As it goes back to the endpoint in later turns.
        text: As the environment reads it; calls that the endpoint had parsed are written in Qwen's form again.
        complete: False if the token limit ended it.
        tokens: Sampled tokens, 0 if the endpoint does not say.
    """

    message: Message
    text: str
    complete: bool
    tokens: int


def base_url(url: str) -> str:
    """``url`` without credentials and query; a bare host gets the usual ``/v1``.

    Raises:
        EndpointError: If it is no http URL with a host.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise EndpointError(f"{url}: not an http(s) URL of a host")
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/") or "/v1", "", ""))


class ChatEndpoint:
    """Asks for assistant messages; safe to share between threads.

    Overload (429) and server errors are tried again with growing pauses; ``Retry-After`` is respected. The API
    key is read from ``OPENAI_API_KEY`` and never recorded.

    Args:
        url: Base URL, as in :func:`base_url`.
        model: Name at the endpoint; None takes the only one that it serves.
        connections: Requests at a time.
        pause: Seconds of the first pause before a retry.

    Raises:
        EndpointError: If the endpoint does not answer, or serves several models and none is named.
    """

    def __init__(self, url: str, model: str | None = None, *, connections: int = 32, pause: float = 1.0) -> None:
        self.url = base_url(url)
        self._stopped = threading.Event()
        self._http = requests.Session()
        if key := os.environ.get(KEY_VARIABLE):
            self._http.headers["Authorization"] = f"Bearer {key}"
        retry = Retry(
            RETRIES,
            backoff_factor=pause,
            status_forcelist=(429, 500, 502, 503, 504),
            allowed_methods=None,
            raise_on_status=False,
        )
        adapter = requests.adapters.HTTPAdapter(pool_maxsize=connections, max_retries=retry)
        self._http.mount("http://", adapter)
        self._http.mount("https://", adapter)
        self.model = model or self._only_model()

    def stop(self) -> None:
        """Make every later request fail at once."""
        self._stopped.set()

    def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        params: SamplingParams,
        *,
        max_tokens: int,
        seed: int,
    ) -> Answer:
        """The next assistant message.

        Raises:
            ContextTooLong: If the conversation does not fit.
            EndpointError: For any other refusal, or an answer of another form.
        """
        body = {
            "model": self.model,
            "messages": list(messages),
            "max_tokens": max_tokens,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "seed": seed,
        }
        if params.top_k > 0:
            body["top_k"] = params.top_k
        if tools:
            body["tools"] = list(tools)
        reply = self._request("POST", "/chat/completions", json=body)
        try:
            return _read(reply)
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            raise EndpointError(f"{self.url}: not a chat completion ({type(error).__name__}: {error})") from None

    def _only_model(self) -> str:
        reply = self._request("GET", "/models")
        try:
            names = [str(model["id"]) for model in reply["data"]]
        except (KeyError, TypeError):
            raise EndpointError(f"{self.url}/models: not a list of models; set MODEL_NAME") from None
        if len(names) != 1:
            raise EndpointError(
                f"{self.url} serves {len(names)} models; set MODEL_NAME to one of {', '.join(names[:20])}"
            )
        return names[0]

    def _request(self, method: str, path: str, **options: Any) -> Any:
        if self._stopped.is_set():
            raise EndpointError("stopped")
        try:
            response = self._http.request(method, self.url + path, timeout=TIMEOUT_SECONDS, **options)
        except requests.RequestException as error:
            raise EndpointError(f"{self.url} does not answer: {type(error).__name__}") from None
        if response.status_code != 200:
            reason = " ".join(response.text[:1000].split())
            if response.status_code == 400 and _TOO_LONG.search(reason):
                raise ContextTooLong(reason)
            raise EndpointError(f"{self.url}{path} answered {response.status_code}: {reason[:300]}")
        try:
            return response.json()
        except ValueError:
            raise EndpointError(f"{self.url}{path} did not answer in JSON") from None


def _read(reply: Mapping[str, Any]) -> Answer:
    choice = reply["choices"][0]
    content = choice["message"].get("content") or ""
    if not isinstance(content, str):
        raise TypeError("content is no text")
    calls = choice["message"].get("tool_calls") or []
    named = [(str(c["id"]), str(c["function"]["name"]), str(c["function"]["arguments"] or "{}")) for c in calls]
    message: Message = {"role": "assistant", "content": content}
    if named:
        message["tool_calls"] = [
            {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
            for id_, name, arguments in named
        ]
    written = [
        f'<tool_call>\n{{"name": {json.dumps(name)}, "arguments": {arguments}}}\n</tool_call>'
        for _, name, arguments in named
    ]
    tokens = (reply.get("usage") or {}).get("completion_tokens") or 0
    return Answer(
        message,
        "\n".join([content, *written] if content else written),
        choice["finish_reason"] != "length",
        int(tokens),
    )
