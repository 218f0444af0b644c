"""Permits: the limit, its shrinking and growing, fairness, the budget, and all that over several processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytest_evalgrader.errors import BudgetExhausted, CallError
from pytest_evalgrader.gateway.client import Gateway
from pytest_evalgrader.gateway.permits import LocalPermits, PermitBook, PermitServer, RemotePermits, Ticket
from pytest_evalgrader.gateway.providers import load_providers
from pytest_evalgrader.gateway.recording import RecordingStore, load_recording

from .server import FakeServer, Reply, responses


class Desk:
    """A book with a clock of its own; remembers who got a permit."""

    def __init__(self, concurrency: int, max_calls: int | None = None, settle_s: float = 0.0) -> None:
        self.now = 100.0
        self.book = PermitBook(concurrency, max_calls, lambda: self.now, settle_s)
        self.got: list[str] = []
        self.refused: list[str] = []
        self.held: dict[str, Ticket] = {}

    def ask(
        self,
        name: str,
        *,
        client: int = 0,
        provider: str = "p",
        suite: str = "s",
        limit: int | None = None,
        order: int = 0,
    ) -> None:
        def answer(error: CallError | None) -> None:
            (self.got if error is None else self.refused).append(name)

        self.held[name] = Ticket(client, provider, suite, limit, answer, order)
        self.book.ask(self.held[name])
        self.book.pump()

    def end(self, name: str, outcome: Any = "ok", pause_s: float | None = None) -> None:
        self.book.release(self.held[name], outcome, pause_s)
        self.book.pump()


def test_the_limit_holds_and_the_queue_is_in_order() -> None:
    desk = Desk(2)
    for name in "abcd":
        desk.ask(name)
    assert desk.got == ["a", "b"]
    desk.end("a")
    desk.end("a")
    assert desk.got == ["a", "b", "c"]
    desk.end("d")
    desk.end("b")
    assert (desk.got, desk.book.in_flight, desk.book.most_in_flight) == (["a", "b", "c"], 1, 2)


def test_few_places_stay_taken_for_a_moment_after_an_answer() -> None:
    desk = Desk(2, settle_s=0.5)
    for name in "abcd":
        desk.ask(name)
    desk.book.release(desk.held["a"], "ok")
    assert desk.book.pump() == 0.5
    assert (desk.got, desk.book.in_flight) == (["a", "b"], 2)
    desk.end("b", "failed")
    assert desk.got == ["a", "b", "c"], "no server is at work on what failed"
    desk.book.drop(0)
    desk.now += 0.5
    assert desk.book.pump() is None
    assert desk.book.in_flight == 0
    many = Desk(5, settle_s=0.5)
    for name in "abcdef":
        many.ask(name)
    many.end("a")
    assert many.got == list("abcdef")


def test_clients_are_served_in_turn() -> None:
    desk = Desk(2)
    for n in range(10):
        desk.ask(f"a{n}", client=1)
    desk.ask("b0", client=2)
    desk.ask("b1", client=2)
    desk.end("a0")
    desk.end("a1")
    assert desk.got == ["a0", "a1", "b0", "a2"]


def test_what_was_begun_is_finished_first() -> None:
    desk = Desk(1)
    desk.ask("candidate 0", order=0)
    desk.ask("candidate 1", order=1)
    desk.ask("candidate 2", order=2)
    desk.ask("judge 0", order=0, provider="other")
    desk.end("candidate 0")
    desk.end("judge 0")
    desk.ask("judge 1", order=1)
    desk.end("candidate 1")
    desk.end("judge 1")
    assert desk.got == ["candidate 0", "judge 0", "candidate 1", "judge 1", "candidate 2"]


def test_the_budget_is_for_all() -> None:
    desk = Desk(1, max_calls=2)
    for client in range(4):
        desk.ask(str(client), client=client)
    assert (desk.got, desk.refused) == (["0"], [])
    desk.end("0", "failed")
    assert (desk.got, desk.refused) == (["0", "1"], ["2", "3"])
    assert Desk(1, max_calls=0).book.pump() is None


def test_a_pause_holds_for_its_provider_only() -> None:
    desk = Desk(4)
    desk.ask("a")
    desk.end("a", "limited", 5.0)
    desk.ask("b")
    desk.ask("c", provider="other")
    assert desk.got == ["a", "c"]
    assert desk.book.pump() == pytest.approx(5.0)
    desk.now += 5.1
    assert desk.book.pump() is None
    assert desk.got == ["a", "c", "b"]


def test_a_suites_limit_holds_for_it_only() -> None:
    desk = Desk(4)
    for n in range(3):
        desk.ask(f"a{n}", suite="a", limit=1)
    desk.ask("b", suite="b")
    assert desk.got == ["a0", "b"]
    desk.end("a0")
    assert desk.got == ["a0", "b", "a1"]


def test_429_makes_the_window_small_once_and_success_makes_it_grow() -> None:
    desk = Desk(16)
    for n in range(16):
        desk.ask(f"a{n}")
    for n in range(16):
        desk.end(f"a{n}", "limited")
    for n in range(16):
        desk.ask(f"b{n}")
    assert desk.book.in_flight == 8
    desk.end("b0", "limited")
    for n in range(1, 5):
        desk.end(f"b{n}", "failed")
    # Window 4, and 11 wait: each that ends makes room for one, each success for a little more.
    assert desk.book.in_flight == 4
    for n in range(200):
        desk.ask(f"c{n}")
    for name in [f"b{n}" for n in range(5, 16)] + [f"c{n}" for n in range(60)]:
        desk.end(name)
    assert desk.book.in_flight == 16
    for name in list(desk.held):
        desk.end(name, "limited")
    desk.ask("last")
    assert "last" in desk.got


def test_who_is_gone_holds_nothing() -> None:
    desk = Desk(2)
    for name in ("a0", "a1", "a2"):
        desk.ask(name, client=1)
    desk.ask("b0", client=2)
    desk.book.drop(1)
    desk.book.pump()
    assert desk.got == ["a0", "a1", "b0"]
    assert desk.book.in_flight == 1


def test_a_cancelled_wait_leaves_the_queue() -> None:
    async def run() -> int:
        permits = LocalPermits(1)
        first = await permits.acquire("p", "s", None, None)
        waiting = [asyncio.ensure_future(permits.acquire("p", "s", None, None)) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        permits.release(first, "ok")
        await waiting[1]
        # Granted and cancelled in the same turn of the loop: the permit must not be lost.
        third = asyncio.ensure_future(permits.acquire("p", "s", None, None))
        await asyncio.sleep(0)
        permits.release(waiting[1].result(), "ok")
        third.cancel()
        await asyncio.gather(third, return_exceptions=True)
        await asyncio.wait_for(permits.acquire("p", "s", None, None), 1)
        return permits.book.in_flight

    assert asyncio.run(run()) == 1


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[PermitServer]:
    served = PermitServer(3, None, RecordingStore("fill", "run1"))
    served.start()
    yield served
    served.close()
    served.close()


def test_permits_over_the_socket(keeper: PermitServer, tmp_path: Path) -> None:
    async def run() -> float:
        one, other = RemotePermits(keeper.address), RemotePermits(keeper.address)
        held = [await one.acquire("p", "s", None, None) for _ in range(3)]
        waiting = asyncio.ensure_future(other.acquire("p", "s", None, None))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        one.release(held.pop(), "ok")
        await asyncio.wait_for(waiting, 1)
        other.release(waiting.result(), "ok")
        began = time.perf_counter()
        for _ in range(200):
            # An answered one would stay taken for a moment.
            one.release(await one.acquire("p", "s", None, None), "failed")
        each_s = (time.perf_counter() - began) / 200
        # A worker that ends without a word gives its permits back.
        await one.close()
        for _ in range(3):
            await asyncio.wait_for(other.acquire("p", "s", None, None), 1)
        await other.close()
        return each_s

    assert asyncio.run(run()) < 0.005
    assert keeper.book.most_in_flight == 3
    assert keeper.address["token"] not in repr(RemotePermits(keeper.address))


def test_the_budget_and_locks_come_over_the_socket(tmp_path: Path) -> None:
    path = tmp_path / "recordings" / "s.jsonl"
    held = RecordingStore("fill", "other")
    held.claim(str(path))
    served = PermitServer(3, 1, RecordingStore("fill", "run1"))
    served.start()

    async def run() -> None:
        permits = RemotePermits(served.address)
        with pytest.raises(CallError, match="another pytest run is writing"):
            await permits.acquire("p", "s", None, str(path))
        with pytest.raises(CallError, match="another pytest run is writing"):
            await permits.record(str(path), {"format": 1})
        await permits.acquire("p", "s", None, None)
        with pytest.raises(BudgetExhausted, match="budget of 1 model call "):
            await permits.acquire("p", "s", None, None)
        await permits.close()

    asyncio.run(run())
    served.close()
    held.finish()


@pytest.mark.parametrize("hello", [b'{"token": "wrong"}', b"no JSON", b"[]", b"x" * 5000, b""])
def test_strangers_are_not_heard(keeper: PermitServer, hello: bytes) -> None:
    ask = b'{"op":"acquire","id":1,"provider":"p","suite":"s","suite_limit":null,"recording":null}'
    with socket.create_connection((keeper.address["host"], keeper.address["port"]), 2) as connection:
        for frame in (hello, ask):
            connection.sendall(struct.pack(">I", len(frame)) + frame)
        connection.settimeout(2)
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(1) == b""
    assert keeper.book.granted == 0


def test_a_server_that_is_gone_is_told(keeper: PermitServer) -> None:
    async def run() -> None:
        permits = RemotePermits(keeper.address)
        for _ in range(3):
            await permits.acquire("p", "s", None, None)
        waiting = asyncio.ensure_future(permits.acquire("p", "s", None, None))
        await asyncio.sleep(0.05)
        await asyncio.to_thread(keeper.close)
        for _ in range(2):
            with pytest.raises(CallError, match="permit server of the run's controller process cannot be reached"):
                await asyncio.wait_for(waiting, 2)
            waiting = asyncio.ensure_future(permits.acquire("p", "s", None, None))
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await permits.close()
        with pytest.raises(CallError, match="cannot be reached"):
            await RemotePermits(keeper.address).acquire("p", "s", None, None)

    asyncio.run(run())


WORKER = textwrap.dedent(
    """
    import json, os, sys
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path
    from pytest_evalgrader.gateway.client import Gateway
    from pytest_evalgrader.gateway.permits import LocalPermits, RemotePermits
    from pytest_evalgrader.gateway.providers import load_providers
    from pytest_evalgrader.gateway.recording import RecordingStore

    url, address, recording, mode, samples = json.loads(sys.argv[1])
    env = {"OPENAI_API_KEY": "sk-a-secret-of-the-tests", "OPENAI_BASE_URL": url}
    store = None if address else RecordingStore(mode, str(os.getpid()))
    permits = RemotePermits(address) if address else LocalPermits(4, None, store)
    gateway = Gateway(load_providers(None, env), permits, calls=mode, run_id="run1" if address else str(os.getpid()))

    def ask(sample):
        scope = gateway.scope(suite="s", recording=Path(recording), task_id="t", sample_id=sample, model="openai:cand")
        return scope.generate("openai:cand", prompt=sample, generation={"max_retries": 2}).output_text

    print("ready", flush=True)
    with ThreadPoolExecutor(16) as pool:
        print(json.dumps(list(pool.map(ask, samples))), flush=True)
    gateway.close()
    if store:
        print(store.finish(), flush=True)
    """
)


def start_worker(url: str, address: Any, recording: Path, mode: str, samples: list[str]) -> subprocess.Popen[str]:
    import json

    argument = json.dumps([url, address, str(recording), mode, samples])
    return subprocess.Popen([sys.executable, "-c", WORKER, argument], stdout=subprocess.PIPE, text=True)


def test_the_limit_holds_over_processes_and_one_of_them_dies(server: FakeServer, tmp_path: Path) -> None:
    server.answer = lambda request: Reply(responses("4"), delay_s=0.1)
    recording = tmp_path / "recordings" / "s.jsonl"
    store = RecordingStore("fill", "run1")
    keeper = PermitServer(3, None, store)
    keeper.start()
    groups = [[f"w{w}-{n}" for n in range(8)] for w in range(3)]
    workers = [start_worker(server.url, keeper.address, recording, "fill", group) for group in groups]
    try:
        while len(server.requests) < 6:
            time.sleep(0.02)
        workers[0].kill()
        for worker in workers:
            worker.communicate(timeout=30)
        assert [worker.returncode for worker in workers] == [-signal.SIGKILL, 0, 0]
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    asked = {request.body["input"] for request in server.requests}
    assert {*groups[1], *groups[2]} <= asked
    # The server still answers the dead worker's requests when their permits are free again.
    assert server.most_in_flight <= 6
    assert keeper.book.most_in_flight == 3
    keeper.close()
    assert store.finish() == []
    recorded = {entry.caller.sample_id for entry in load_recording(recording)}
    assert {*groups[1], *groups[2]} <= recorded <= asked


def test_a_killed_run_resumes_without_paying_twice(server: FakeServer, tmp_path: Path) -> None:
    """Kill -9 in the middle; `fill` then makes only the calls whose answers had not arrived."""
    server.answer = lambda request: Reply(responses(request.body["input"]), delay_s=0.05)
    recording = tmp_path / "recordings" / "s.jsonl"
    samples = [f"row{n}" for n in range(40)]
    killed = start_worker(server.url, None, recording, "fill", samples)
    journal = recording.with_name("s.jsonl.journal")
    while not journal.exists() or journal.read_bytes().count(b"\n") < 12:
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    time.sleep(0.1)
    finished = {entry.caller.sample_id for entry in load_recording(recording)}
    assert 12 <= len(finished) < 40
    before = len(server.requests)
    assert before - len(finished) <= 4, "more than the calls in flight were lost"
    resumed = start_worker(server.url, None, recording, "fill", samples)
    out, _ = resumed.communicate(timeout=30)
    assert resumed.returncode == 0
    asked_again = [request.body["input"] for request in server.requests[before:]]
    assert sorted(asked_again) == sorted(set(samples) - finished)
    assert '"row39"' in out
    assert len(load_recording(recording)) == 40
    assert not journal.exists()


def test_a_gateway_over_a_permit_server(server: FakeServer, keeper: PermitServer, tmp_path: Path) -> None:
    server.answer = lambda request: Reply(responses("4"), delay_s=0.03)
    env = {"OPENAI_API_KEY": "sk-a-secret-of-the-tests", "OPENAI_BASE_URL": server.url}
    providers = load_providers(None, env)
    gateways = [Gateway(providers, RemotePermits(keeper.address)) for _ in range(3)]

    def ask(n: int) -> str:
        scope = gateways[n % 3].scope(suite="s", recording=tmp_path / "r", task_id="t", sample_id=str(n), model="m")
        return scope.generate("m", prompt=str(n)).output_text

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(ask, range(24))) == ["4"] * 24
    assert server.most_in_flight == 3
    for gateway in gateways:
        gateway.close()
