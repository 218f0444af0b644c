"""Starts a judge that is no language model: it compares words. It speaks chat completions, as any judge may.

A claim is a sentence of the answer; it is supported where most of its words stand in one of the documents. So the suite
of this folder can be run anew anywhere, and shows what a server of one's own has to answer. For judging in earnest,
name a language model: --evals-judge-model=openai:… (docs/local-models.md).
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

VARIABLE = "LEXICAL_JUDGE_URL"
SUPPORTED_SHARE = 0.8
RELEVANT_SHARE = 0.4
_SMALL = "a an and are as at be by did do does for from has have in is it its of on or the to was were"
SMALL_WORDS = frozenset(_SMALL.split())


def words(text: str) -> set[str]:
    """Return the words of a text that carry meaning."""
    return set(re.findall(r"\w+", text.lower())) - SMALL_WORDS


def share(part: str, whole: str) -> float:
    """Return the share of a text's words that another text holds."""
    asked = words(part)
    return len(asked & words(whole)) / len(asked) if asked else 0.0


def parts_of(message: str) -> dict[str, str]:
    """Return the parts of a judge's message by name; the mark that sets them off stands in its first line."""
    found = re.match(r"The mark of this message is (\w+)\.", message)
    mark = found[1] if found else ""
    pattern = rf"^\[(?!end of)([\w ]+) {mark}\]\n(.*?)\n\[end of \1 {mark}\]$"
    return dict(re.findall(pattern, message, re.MULTILINE | re.DOTALL))


def judge(criterion: str, parts: dict[str, str]) -> dict[str, Any]:
    """Answer as the schema of a pre-built judge asks."""
    if criterion == "context_relevancy":
        chunks = [text for name, text in parts.items() if name.startswith("chunk")]
        shares = [share(parts["question"], chunk) for chunk in chunks]
        return {"verdicts": verdicts("chunk", shares, RELEVANT_SHARE, ("RELEVANT", "IRRELEVANT"))}
    documents = [text for name, text in parts.items() if name.startswith("document")]
    claims = [claim for claim in re.split(r"(?<=[.!?])\s+", parts["answer"].strip()) if claim]
    shares = [max(share(claim, document) for document in documents) for claim in claims]
    return {"claims": claims, "verdicts": verdicts("claim", shares, SUPPORTED_SHARE, ("SUPPORTED", "UNSUPPORTED"))}


def verdicts(number: str, shares: list[float], least: float, names: tuple[str, str]) -> list[dict[str, Any]]:
    """Return a verdict for each share."""
    return [
        {
            number: index,
            "reason": f"{found:.0%} of the words are there.",
            "verdict": names[0] if found >= least else names[1],
        }
        for index, found in enumerate(shares, 1)
    ]


class Handler(BaseHTTPRequestHandler):
    """Answers `/v1/chat/completions`."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Judge one message."""
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path != "/v1/chat/completions":
            return self._send(404, {"error": {"message": f"there is no {self.path}"}})
        try:
            asked = json.loads(body)
            message = asked["messages"][-1]["content"]
            said = json.dumps(judge(asked["response_format"]["json_schema"]["name"], parts_of(message)))
        except (ValueError, KeyError, IndexError, TypeError) as error:
            return self._send(400, {"error": {"message": f"{type(error).__name__}: {error}"}})
        return self._send(
            200,
            {
                "id": "lexical",
                "object": "chat.completion",
                "model": asked["model"],
                "choices": [{"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": len(message.split()), "completion_tokens": len(said.split())},
            },
        )

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
def lexical_judge() -> Iterator[None]:
    """Serve on a free port of 127.0.0.1 while the session runs."""
    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="lexical-judge")
        thread.start()
        os.environ[VARIABLE] = f"http://127.0.0.1:{server.server_port}/v1"
        yield
        del os.environ[VARIABLE]
        server.shutdown()
        thread.join()
