"""A server, gateways on it, and no other sockets."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_evalgrader.gateway.client import Gateway
from pytest_evalgrader.gateway.permits import LocalPermits
from pytest_evalgrader.gateway.providers import load_providers
from pytest_evalgrader.gateway.recording import RecordingStore, recording_path
from pytest_evalgrader.gateway.scope import CallScope

from .server import FakeServer

KEY = "sk-a-secret-of-the-tests"


@pytest.fixture(autouse=True)
def only_local_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1"):
            raise AssertionError(f"a test wanted to connect to {address}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture(autouse=True)
def quick_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_evalgrader.gateway.client._FIRST_BACKOFF_S", 0.01)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    served = FakeServer()
    yield served
    served.close()


class Bench:
    """Makes gateways on a server, and scopes."""

    def __init__(self, root: Path, url: str) -> None:
        self.root = root
        self.url = url
        self.suite = root / "suites" / "s.json"
        self.gateways: list[Gateway] = []
        self.stores: list[RecordingStore] = []
        (root / "pyproject.toml").write_text(
            f'[tool.evalgrader.providers.local]\nbase_url = "{url}"\napi = "chat_completions"\n'
        )

    @property
    def recording(self) -> Path:
        return recording_path(self.suite)

    def gateway(
        self,
        mode: Any = "live",
        *,
        concurrency: int = 10,
        max_calls: int | None = None,
        run_id: str = "run1",
        key: str = KEY,
    ) -> Gateway:
        env = {"OPENAI_API_KEY": key, "OPENAI_BASE_URL": f"{self.url}/v1"}
        store = RecordingStore(mode, run_id) if mode in ("fill", "refresh") else None
        if store:
            self.stores.append(store)
        providers = load_providers(self.root / "pyproject.toml", env)
        gateway = Gateway(providers, LocalPermits(concurrency, max_calls, store), calls=mode, run_id=run_id)
        self.gateways.append(gateway)
        return gateway

    def scope(
        self, gateway: Gateway, sample_id: str = "row0", *, epoch: int = 1, model: str = "openai:cand"
    ) -> CallScope:
        return gateway.scope(
            suite="suites/s.json",
            recording=self.recording,
            task_id="sums",
            sample_id=sample_id,
            model=model,
            epoch=epoch,
        )

    def finish(self) -> list[str]:
        """End the runs: merge what was recorded."""
        warnings = []
        for gateway in self.gateways:
            gateway.close()
        for store in self.stores:
            warnings += store.finish()
        self.gateways.clear()
        self.stores.clear()
        return warnings


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[Callable[[str], Bench]]:
    benches = []

    def make(url: str) -> Bench:
        benches.append(Bench(tmp_path, url))
        return benches[-1]

    yield make
    for made in benches:
        made.finish()


@pytest.fixture
def bench(make_bench: Callable[[str], Bench], server: FakeServer) -> Bench:
    return make_bench(server.url)
