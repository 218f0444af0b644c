"""A server that misbehaves: every call ends as an answer or as an error in words, never hangs, never tells a key."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pytest_evalgrader.errors import CallError
from pytest_evalgrader.gateway.transport import retry_after

from .conftest import KEY, Bench
from .server import Action, FakeServer, Half, Reply, Request, Reset, SlowBytes, responses

FAULTS: dict[str, tuple[Callable[[], Action], str]] = {
    "500": (lambda: Reply({"error": {"message": "broken inside"}}, 500), "HTTP 500 .*broken inside"),
    "503 without a body": (lambda: Reply(b"", 503), "HTTP 503"),
    "529": (lambda: Reply({"error": "overloaded"}, 529), "overloaded"),
    "429": (lambda: Reply({"error": {"message": "slow down"}}, 429), "HTTP 429 .*slow down"),
    "408": (lambda: Reply({}, 408), "HTTP 408"),
    "reset": (Reset, "broke|cannot connect"),
    "half a body": (Half, "broke"),
    "slow bytes": (SlowBytes, r"timeout_seconds=0\.3"),
    "no JSON": (lambda: Reply(b'{"id": "resp', headers={"Content-Type": "application/json"}), "not JSON"),
    "a page": (lambda: Reply(b"<html>hello</html>", headers={"Content-Type": "text/html"}), "text/html.*<html>hello"),
    "an empty body": (lambda: Reply(b""), "not JSON"),
    "NaN": (lambda: Reply(b'{"output": NaN}'), "not JSON"),
    "deep": (lambda: Reply(b"[" * 100_000), "not JSON"),
    "a list": (lambda: Reply([1]), "unusable answer"),
    "null": (lambda: Reply(b"null"), "not JSON|unusable"),
    "another object": (lambda: Reply({"result": "4"}), "unusable answer.*result"),
    "a failed response": (lambda: Reply(responses("", status="failed", error={"message": "m"})), "failed: m"),
}


def patience_s(name: str) -> float:
    """Time of one attempt: enough to reach the server on a busy machine, where it is not the fault to be slow."""
    return 0.3 if name == "slow bytes" else 5.0


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_passes_is_retried(bench: Bench, server: FakeServer, name: str) -> None:
    fault, _ = FAULTS[name]
    server.answer = lambda request: fault() if request.nth == 1 else Reply(responses("4"))
    scope = bench.scope(bench.gateway())
    assert scope.generate("cand", prompt="p", generation={"timeout_seconds": patience_s(name)}).output_text == "4"
    assert len(server.requests) == 2
    assert scope.usage["model_calls"] == 1


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_stays_is_an_error_in_words(bench: Bench, server: FakeServer, name: str) -> None:
    fault, words = FAULTS[name]
    server.answer = lambda request: fault()
    scope = bench.scope(bench.gateway())
    with pytest.raises(CallError, match=words) as caught:
        scope.generate("cand", prompt="p", generation={"timeout_seconds": patience_s(name), "max_retries": 1})
    assert len(server.requests) == 2
    assert "after 2 attempts" in str(caught.value)
    assert str(caught.value).startswith("openai:cand: ")
    assert scope.calls == []
    assert KEY not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (400, {"message": "no good"}, "HTTP 400 .*no good"),
        (401, {"message": f"bad key {KEY}"}, r"bad key \*\*\*.*Look at the key in OPENAI_API_KEY"),
        (403, {"message": "not yours"}, "OPENAI_API_KEY"),
        (404, {"message": "no such path"}, r'api = "chat_completions" in \[tool\.evalgrader\.providers\.openai\]'),
        (404, {"message": "no model cand", "code": "model_not_found"}, "no model cand$"),
        (422, {"message": "no good"}, "no good"),
        (429, {"message": "pay first", "code": "insufficient_quota"}, "pay first"),
        (302, {"message": "elsewhere"}, "HTTP 302"),
    ],
)
def test_what_cannot_pass_is_not_retried(
    bench: Bench, server: FakeServer, status: int, error: dict[str, str], words: str
) -> None:
    server.answer = lambda request: Reply({"error": error}, status)
    with pytest.raises(CallError, match=words) as caught:
        bench.scope(bench.gateway()).generate("cand", prompt="p")
    assert len(server.requests) == 1
    assert KEY not in "".join(traceback.format_exception(caught.value))


def test_a_key_that_the_server_repeats_is_taken_out(bench: Bench, server: FakeServer) -> None:
    server.answer = lambda request: Reply(responses(f"your key is {KEY}"))
    generation = bench.scope(bench.gateway()).generate("cand", prompt="p")
    assert generation.output_text == "your key is ***"


@pytest.mark.parametrize("key", ['sk-a"quoted\\secret/of tests', "sk/a+secret/with=slashes=="])
def test_a_key_that_the_server_repeats_in_escapes_is_taken_out(
    make_bench: Callable[[str], Bench], server: FakeServer, key: str
) -> None:
    shown = json.dumps(responses(f"your key is {key}, {key}")).replace("/", "\\/").replace("sk", "\\u0073k")
    server.answer = lambda request: Reply(shown.encode())
    bench = make_bench(server.url)
    scope = bench.scope(bench.gateway("fill", key=key))
    assert scope.generate("cand", prompt="p").output_text == "your key is ***, ***"
    bench.finish()
    assert "secret" not in bench.recording.read_text()


@pytest.mark.parametrize("key", ["sk-a\nsecret-0123", "sk-a\x00secret-0123", "sk-sécret-0123", "sk-\udce9-secret-0123"])
def test_a_key_that_no_header_can_hold_is_told_by_its_variable(
    make_bench: Callable[[str], Bench], server: FakeServer, key: str
) -> None:
    bench = make_bench(server.url)
    scope = bench.scope(bench.gateway(key=key))
    with pytest.raises(CallError, match="OPENAI_API_KEY holds a character that no HTTP header") as caught:
        scope.generate("cand", prompt="p")
    assert "0123" not in "".join(traceback.format_exception(caught.value))
    assert server.requests == []


def test_a_byte_order_mark_before_the_answer_is_taken_off(bench: Bench, server: FakeServer) -> None:
    server.answer = lambda request: Reply(b"\xef\xbb\xbf" + json.dumps(responses("4")).encode())
    assert bench.scope(bench.gateway()).generate("cand", prompt="p").output_text == "4"


def test_a_server_that_is_not_there(make_bench: Callable[[str], Bench]) -> None:
    bench = make_bench("http://127.0.0.1:9")
    scope = bench.scope(bench.gateway())
    with pytest.raises(CallError, match=r"cannot connect to http://127\.0\.0\.1:9/v1/responses.*Is the server running"):
        scope.generate("cand", prompt="p", generation={"max_retries": 1})
    with pytest.raises(CallError, match=r"http://127\.0\.0\.1:9/score"):
        scope.endpoint("http://127.0.0.1:9", "score", {}, max_retries=0, timeout_s=5)


def test_a_server_that_vanishes(make_bench: Callable[[str], Bench]) -> None:
    server = FakeServer()
    bench = make_bench(server.url)
    scope = bench.scope(bench.gateway())
    assert scope.generate("cand", prompt="p").output_text == "4"
    server.answer = lambda request: Reset()
    server.close()
    with pytest.raises(CallError):
        scope.generate("cand", prompt="q", generation={"max_retries": 1})


def test_an_error_of_an_endpoint_has_its_status(bench: Bench, server: FakeServer) -> None:
    server.answer = lambda request: Reply({"detail": "no such path"}, 404)
    with pytest.raises(CallError, match="no such path") as caught:
        bench.scope(bench.gateway()).endpoint(server.url, "metadata_schema")
    assert getattr(caught.value, "status", None) == 404


@pytest.mark.parametrize("status", [429, 500, 502, 503, 529, 408])
def test_retry_after_is_kept_by_everybody(bench: Bench, server: FakeServer, status: int) -> None:
    times: list[float] = []

    def answer(request: Request) -> Reply:
        times.append(time.monotonic())
        if len(times) == 1:
            return Reply({}, status, {"Retry-After": "0.4"})
        return Reply(responses("4"))

    server.answer = answer
    gateway = bench.gateway(concurrency=1)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda n: bench.scope(gateway, str(n)).generate("cand", prompt=str(n)), range(3)))
    assert min(times[1:]) - times[0] >= 0.38


def test_a_pause_that_is_too_long_is_an_error_at_once(bench: Bench, server: FakeServer) -> None:
    server.answer = lambda request: Reply({"error": {"message": "tomorrow"}}, 429, {"Retry-After": "86400"})
    with pytest.raises(CallError, match="asks to wait 86,400 s"):
        bench.scope(bench.gateway()).generate("cand", prompt="p")
    assert len(server.requests) == 1


def test_a_storm_of_429_is_survived(bench: Bench, server: FakeServer) -> None:
    server.answer = lambda request: (
        Reply({}, 429, {"Retry-After": "0"}) if request.nth <= 2 else Reply(responses("4"), delay_s=0.02)
    )
    gateway = bench.gateway(concurrency=8)
    with ThreadPoolExecutor(8) as pool:
        said = pool.map(lambda n: bench.scope(gateway, str(n)).generate("cand", prompt=str(n)).output_text, range(24))
        assert list(said) == ["4"] * 24
    assert len(server.requests) == 24 * 3


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, 50.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:01 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
    ],
)
def test_retry_after_is_read(headers: dict[str, Any], seconds: float | None) -> None:
    assert retry_after(headers, now=10.0) == seconds
