"""Reward servers over real HTTP: slow, wrong, restarting, refusing."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_evalgrader.errors import CallError
from pytest_evalgrader.gateway.client import Gateway
from pytest_evalgrader.gateway.permits import LocalPermits
from pytest_evalgrader.gateway.providers import Providers
from pytest_evalgrader.gateway.recording import RecordingStore
from pytest_evalgrader.graders.endpoint import ExternalEndpoint

Answer = tuple[int, bytes]
SAMPLE = {"output_text": "four", "prompt": "2+2?"}
ROW = {"metadata": {"limit": 3}}


class RewardServer(ThreadingHTTPServer):
    """Answers by path; a path may hold a list of answers, the last one is repeated."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, list[Answer | Callable[[], Answer]]] = {}
        self.seen: list[tuple[str, Any, dict[str, str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def say(self, path: str, *answers: Any) -> None:
        self.answers[path] = [
            answer if callable(answer) or isinstance(answer, tuple) else (200, json.dumps(answer).encode())
            for answer in answers
        ]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: RewardServer

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.answer(None)

    def do_POST(self) -> None:
        self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def answer(self, body: Any) -> None:
        self.server.seen.append((self.path, body, dict(self.headers)))
        left = self.server.answers[self.path]
        said = left.pop(0) if len(left) > 1 else left[0]
        status, data = said() if callable(said) else said
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def running_server() -> Iterator[RewardServer]:
    server = RewardServer()
    server.say("/info", {"name": "n", "version": "1", "description": "d"})
    server.say("/metadata_schema", {"type": "object"})
    server.say("/score", {"reward": 0.5, "metadata": {"length": 4}})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def server() -> Iterator[RewardServer]:
    with running_server() as server:
        yield server


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    gateway = Gateway(Providers({}, {}, {}), LocalPermits(4))
    yield gateway
    gateway.close()


def scope(gateway: Gateway) -> Any:
    return gateway.scope(suite="s.json", recording=Path("none.jsonl"), task_id="t", sample_id="1", model="m")


def endpoint(url: str, *, timeout_seconds: float = 5.0, max_retries: int = 1) -> ExternalEndpoint:
    spec = SimpleNamespace(key="short", url=url, timeout_seconds=timeout_seconds, max_retries=max_retries)
    return ExternalEndpoint(spec, where="s.json: tasks[0].grader", providers=Providers({}, {}, {}))


def test_a_sample_is_scored(server: RewardServer, gateway: Gateway) -> None:
    outcome = endpoint(server.url + "/").grade(SAMPLE, {}, ROW, scope(gateway))
    assert outcome.scores == {"short": 0.5}
    assert [path for path, _, _ in server.seen] == ["/info", "/metadata_schema", "/score"]
    assert server.seen[-1][1] == {
        "turns": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "four"}],
        "metadata": {"limit": 3},
    }
    assert "Authorization" not in server.seen[-1][2]


def test_a_restarting_server_is_asked_again(server: RewardServer, gateway: Gateway) -> None:
    server.say("/score", (503, b"{}"), {"reward": 1, "metadata": {}})
    assert endpoint(server.url).grade(SAMPLE, {}, ROW, scope(gateway)).scores == {"short": 1.0}


@pytest.mark.parametrize("answer", [(500, b"{}"), (404, b"{}"), (422, b'{"detail": "extra field"}'), (200, b"<html>")])
def test_a_wrong_server_is_an_error(server: RewardServer, gateway: Gateway, answer: Answer) -> None:
    server.say("/score", answer)
    with pytest.raises(CallError):
        endpoint(server.url, max_retries=0).grade(SAMPLE, {}, ROW, scope(gateway))


def test_a_slow_server_is_an_error(server: RewardServer, gateway: Gateway) -> None:
    def slow() -> Answer:
        time.sleep(0.6)
        return 200, b'{"reward": 1, "metadata": {}}'

    server.say("/score", slow)
    with pytest.raises(CallError):
        endpoint(server.url, timeout_seconds=0.2, max_retries=0).grade(SAMPLE, {}, ROW, scope(gateway))


@pytest.mark.parametrize(
    ("reward", "reason"),
    [
        (b"NaN", "non_finite"),
        (b"-Infinity", "non_finite"),
        (b"1e999", "non_finite"),
        (b'"1.0"', "wrong_type"),
        (b"true", "boolean"),
        (b"null", "wrong_type"),
    ],
)
def test_no_number_is_no_reward(server: RewardServer, gateway: Gateway, reward: bytes, reason: str) -> None:
    server.say("/score", (200, b'{"reward": ' + reward + b', "metadata": {}}'))
    outcome = endpoint(server.url, max_retries=0).grade(SAMPLE, {}, ROW, scope(gateway))
    assert outcome.scores == {}
    assert outcome.invalid is not None
    assert outcome.invalid.reason == reason


def test_a_server_that_is_not_there_is_named(gateway: Gateway) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with pytest.raises(CallError, match=f"127.0.0.1:{port}"):
            endpoint(f"http://127.0.0.1:{port}", max_retries=0).prepare(scope(gateway))


def test_a_replay_does_not_depend_on_which_sample_came_first(server: RewardServer, tmp_path: Path) -> None:
    recording = tmp_path / "recordings" / "s.jsonl"

    def opened(gateway: Gateway, epoch: int) -> Any:
        return gateway.scope(suite="s.json", recording=recording, task_id="t", sample_id="1", model="m", epoch=epoch)

    store = RecordingStore("fill", "run1")
    gateway = Gateway(Providers({}, {}, {}), LocalPermits(4, None, store), calls="fill", run_id="run1")
    first = endpoint(server.url)
    for epoch in (2, 1):
        first.grade(SAMPLE, {}, ROW, opened(gateway, epoch))
    gateway.close()
    store.finish()
    asked = len(server.seen)

    gateway = Gateway(Providers({}, {}, {}), LocalPermits(4), calls="replay")
    again, other = endpoint(server.url), endpoint(server.url)
    scope_1 = opened(gateway, 1)
    other.prepare(scope_1)
    for grader, epoch_scope in ((again, scope_1), (again, opened(gateway, 2))):
        assert grader.grade(SAMPLE, {}, ROW, epoch_scope).scores == {"short": 0.5}
    gateway.close()
    assert len(server.seen) == asked
