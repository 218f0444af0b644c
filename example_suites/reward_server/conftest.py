"""Starts a reward server for the suites of this folder: `url_env` in pyproject.toml names the variable set here.

With `-n`, each worker has a server of its own, on a port that was free. In the mode `replay` nobody asks it.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

VARIABLE = "REPLY_REWARD_URL"

SCHEMA = {
    "type": "object",
    "properties": {
        "facts": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "max_words": {"type": "integer", "minimum": 1},
    },
    "required": ["facts", "max_words"],
}


def score(turns: list[dict[str, str]], metadata: dict[str, Any]) -> dict[str, Any]:
    """Reward a reply for the facts in it, half where it is too long."""
    reply = turns[-1]["content"]
    words = len(reply.split())
    missing = [fact for fact in metadata["facts"] if fact.lower() not in reply.lower()]
    reward = 1 - len(missing) / len(metadata["facts"])
    if words > metadata["max_words"]:
        reward /= 2
    return {"reward": reward, "metadata": {"missing": missing, "words": words}}


class Handler(BaseHTTPRequestHandler):
    """The three addresses of the protocol."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Say who this is and what metadata it needs."""
        answers: dict[str, dict[str, Any]] = {
            "/info": {"name": "reply-reward", "version": "1", "description": "Facts in a reply, and its length."},
            "/metadata_schema": SCHEMA,
        }
        known = self.path in answers
        self._send(200 if known else 404, answers.get(self.path, {"error": f"there is no {self.path}"}))

    def do_POST(self) -> None:
        """Score one conversation."""
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path != "/score":
            return self._send(404, {"error": f"there is no {self.path}"})
        try:
            asked = json.loads(body)
            return self._send(200, score(asked["turns"], asked["metadata"]))
        except (ValueError, KeyError, IndexError, TypeError) as error:
            return self._send(422, {"error": f"{type(error).__name__}: {error}"})

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent: what a server prints is no part of the run's report."""

    def _send(self, status: int, data: dict[str, Any]) -> None:
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    """Ends with the process, also while a kept connection is open."""

    daemon_threads = True
    block_on_close = False


@pytest.fixture(scope="session", autouse=True)
def reward_server() -> Iterator[None]:
    """Serve on a free port of 127.0.0.1 while the session runs."""
    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="reward-server")
        thread.start()
        os.environ[VARIABLE] = f"http://127.0.0.1:{server.server_port}"
        yield
        del os.environ[VARIABLE]
        server.shutdown()
        thread.join()
