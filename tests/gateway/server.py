"""A model API on 127.0.0.1 that can also misbehave: each request is answered by a function of the test's."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Request:
    """One request that the server saw; `nth` counts requests with the same body, from 1."""

    method: str
    path: str
    body: Any
    headers: dict[str, str]
    nth: int


@dataclass
class Reply:
    """What to answer; a dict body is sent as JSON."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0


class Reset:
    """Close the connection with a reset, without a byte."""


class Half:
    """Promise 1000 bytes, send 12, close."""


@dataclass
class SlowBytes:
    """Send a byte at a time, for ever."""

    pause_s: float = 0.05


Action = Reply | Reset | Half | SlowBytes


def responses(text: str, **more: Any) -> dict[str, Any]:
    """Return an answer of the Responses API."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "model": "served",
        "output": [{"type": "message", "role": "assistant", "content": content}],
        "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
        **more,
    }


def chat(text: str | None, *, finish_reason: str = "stop", **message: Any) -> dict[str, Any]:
    """Return an answer of chat completions."""
    return {
        "id": "chat_1",
        "object": "chat.completion",
        "model": "served",
        "choices": [
            {"index": 0, "finish_reason": finish_reason, "message": {"role": "assistant", "content": text, **message}}
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }


class FakeServer:
    """Serves until closed.

    Attributes:
        answer: Called for each request in a thread of its own.
        requests: Every request, in the order of arrival.
        most_in_flight: How many were being answered at once.
    """

    def __init__(self) -> None:
        self.answer: Callable[[Request], Action] = lambda request: Reply(responses("4"))
        self.requests: list[Request] = []
        self.most_in_flight = 0
        self._in_flight = 0
        self._lock = threading.Lock()
        self._seen: dict[str, int] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Small answers in two writes would wait for the other side's acknowledgement.
            disable_nagle_algorithm = True

            def log_message(self, *args: Any) -> None:
                pass

            def do_POST(self) -> None:
                outer.serve(self, "POST")

            def do_GET(self) -> None:
                outer.serve(self, "GET")

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def bodies(self) -> list[Any]:
        """Return the bodies of all requests."""
        return [request.body for request in self.requests]

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def serve(self, handler: BaseHTTPRequestHandler, method: str) -> None:
        raw = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        body = json.loads(raw) if raw else None
        with self._lock:
            key = f"{handler.path} {raw!r}"
            self._seen[key] = self._seen.get(key, 0) + 1
            request = Request(
                method,
                handler.path,
                body,
                {name.lower(): value for name, value in handler.headers.items()},
                self._seen[key],
            )
            self.requests.append(request)
            self._in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self._in_flight)
        try:
            action = self.answer(request)
            if isinstance(action, Reply):
                time.sleep(action.delay_s)
        finally:
            with self._lock:
                self._in_flight -= 1
        self._act(handler, action)

    def _act(self, handler: BaseHTTPRequestHandler, action: Action) -> None:
        if isinstance(action, Reset):
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            handler.connection.close()
            handler.close_connection = True
        elif isinstance(action, Half):
            handler.send_response(200)
            handler.send_header("Content-Length", "1000")
            handler.end_headers()
            handler.wfile.write(b'{"id": "resp')
            handler.close_connection = True
        elif isinstance(action, SlowBytes):
            handler.send_response(200)
            handler.send_header("Content-Length", "100000")
            handler.end_headers()
            for _ in range(200):
                handler.wfile.write(b" ")
                handler.wfile.flush()
                time.sleep(action.pause_s)
            handler.close_connection = True
        else:
            data = action.body if isinstance(action.body, bytes) else json.dumps(action.body).encode()
            handler.send_response(action.status)
            if not any(name.lower() == "content-type" for name in action.headers):
                handler.send_header("Content-Type", "application/json")
            handler.send_header("Content-Length", str(len(data)))
            for name, value in action.headers.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(data)
