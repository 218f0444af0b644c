"""Who may make a call now: one limit, one budget and one back-off over all processes of a run.

Every attempt at a call needs a permit, also a repeated one, and costs one of `--evals-max-calls`. Without xdist the
book of permits is kept in the process (`LocalPermits`); with it the controller keeps the book (`PermitServer`) and
every process, the controller's own gateway included, asks over a socket (`RemotePermits`). The same way takes finished
calls to the recordings, which only the keeper of the book writes.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import hmac
import json
import secrets
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Literal, Protocol

from ..errors import BudgetExhausted, CallError

Outcome = Literal["ok", "limited", "failed"]

# Frames before the token are small; later ones hold a recorded call.
_HELLO_BYTES = 4096
_FRAME_BYTES = 1 << 30
_HELLO_TIMEOUT_S = 5.0
# Where no more calls than this may be in flight, servers may well refuse one more, and a moment costs little.
_FEW = 4
_SETTLE_S = 0.01


class Recorder(Protocol):
    """Where finished calls go; `recording.RecordingStore` is the real one."""

    def claim(self, path: str) -> None:
        """Make sure that this process is the only one that writes the recording; raises CallError."""

    def append(self, path: str, entry: dict[str, Any]) -> None:
        """Keep a finished call; raises CallError."""


class Ticket:
    """A request for a permit, and then the permit.

    Args:
        client: Who asks; clients are served in turn.
        provider: Whose limit it counts against.
        suite: Whose limit it counts against, if the suite has one.
        suite_limit: The suite's `run.concurrency`, or None.
        answer: Called once, with None when granted, else with the reason for refusal.
        order: Among tickets of one client the lowest is served first: what was begun is finished before more is begun.
    """

    __slots__ = ("answer", "client", "granted_as", "order", "provider", "seq", "state", "suite", "suite_limit")

    def __init__(
        self,
        client: int,
        provider: str,
        suite: str,
        suite_limit: int | None,
        answer: Callable[[CallError | None], None],
        order: int = 0,
    ) -> None:
        self.client = client
        self.order = order
        self.provider = provider
        self.suite = suite
        self.suite_limit = suite_limit
        self.answer = answer
        self.seq = 0
        self.granted_as = 0
        self.state: Literal["new", "waiting", "granted", "done"] = "new"


class _ProviderState:
    """How fast a provider may be asked: additive increase, multiplicative decrease."""

    __slots__ = ("in_flight", "last_cut", "paused_until", "window")

    def __init__(self, window: float) -> None:
        self.window = window
        self.in_flight = 0
        self.paused_until = 0.0
        self.last_cut = 0


class PermitBook:
    """The limits and the queue. Not thread-safe: used from one event loop.

    Args:
        concurrency: Calls in flight over the whole run, at least 1.
        max_calls: Attempts that may be made in all, or None.
        clock: Seconds that only grow.
        settle_s: Seconds for which a place stays taken after an answer, where no more than `_FEW` may be in flight.
            A server counts a call until it has closed its own side, a moment after the answer was read here.
    """

    def __init__(
        self,
        concurrency: int,
        max_calls: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        settle_s: float = 0.0,
    ) -> None:
        self.concurrency = max(1, concurrency)
        self.max_calls = max_calls
        self.granted = 0
        self.in_flight = 0
        self.most_in_flight = 0
        self._clock = clock
        self._seq = 0
        self._providers: dict[str, _ProviderState] = {}
        self._suites: dict[str, int] = {}
        self._clients: dict[int, int] = {}
        # Queues by what limits them, so that a paused provider holds up nobody else; within, by client.
        self._queues: dict[tuple[str, str, int | None], dict[int, deque[Ticket]]] = {}
        self._held: dict[int, set[Ticket]] = {}
        self._settle_s = settle_s
        self._settling: deque[tuple[float, Ticket]] = deque()

    def ask(self, ticket: Ticket) -> None:
        """Queue a ticket; `pump` answers it."""
        self._seq += 1
        ticket.seq = self._seq
        ticket.state = "waiting"
        by_client = self._queues.setdefault((ticket.provider, ticket.suite, ticket.suite_limit), {})
        bisect.insort(by_client.setdefault(ticket.client, deque()), ticket, key=lambda queued: queued.order)

    def release(self, ticket: Ticket, outcome: Outcome, retry_after_s: float | None = None) -> None:
        """Give a permit back, or leave the queue.

        Args:
            outcome: `ok`; `limited` where the provider said that it is asked too often; `failed` for anything else.
            retry_after_s: How long the provider wants to be left alone, by everybody.
        """
        if ticket.state == "waiting":
            self._leave(ticket)
        if ticket.state != "granted":
            ticket.state = "done"
            return
        ticket.state = "done"
        self._held[ticket.client].discard(ticket)
        state = self._providers[ticket.provider]
        in_flight = state.in_flight
        if outcome == "ok" and self._settle_s and min(self.concurrency, ticket.suite_limit or _FEW + 1) <= _FEW:
            self._settling.append((self._clock() + self._settle_s, ticket))
        else:
            self._free(ticket)
        if outcome == "limited" and ticket.granted_as > state.last_cut:
            # One cut for a burst: calls that were in flight at the last cut say nothing new.
            state.window = max(1.0, min(state.window, in_flight) / 2)
            state.last_cut = self.granted
        elif outcome == "ok" and state.window < self.concurrency:
            state.window = min(float(self.concurrency), state.window + 2 / state.window)
        if retry_after_s:
            state.paused_until = max(state.paused_until, self._clock() + retry_after_s)

    def _free(self, ticket: Ticket) -> None:
        self.in_flight -= 1
        self._suites[ticket.suite] -= 1
        self._providers[ticket.provider].in_flight -= 1
        if ticket.client in self._clients:  # it may be gone meanwhile
            self._clients[ticket.client] -= 1

    def drop(self, client: int) -> None:
        """Forget a client that is gone: its permits are free again, its tickets leave the queue."""
        for by_client in self._queues.values():
            for ticket in by_client.pop(client, ()):
                ticket.state = "done"
        for ticket in tuple(self._held.get(client, ())):
            self.release(ticket, "failed")
        self._held.pop(client, None)
        self._clients.pop(client, None)

    def pump(self) -> float | None:
        """Grant and refuse what can be answered now.

        Returns:
            Seconds after which a pause ends and `pump` is due again, or None.
        """
        now = self._clock()
        while self._settling and self._settling[0][0] <= now:
            self._free(self._settling.popleft()[1])
        waits = [wait for wait in (self._answer(), self._settling[0][0] - now if self._settling else None) if wait]
        return min(waits, default=None)

    def _answer(self) -> float | None:
        while self.in_flight < self.concurrency or self._is_spent():
            ticket, wait = self._next()
            if ticket is None:
                return wait
            if self._is_spent():
                self._leave(ticket)
                ticket.state = "done"
                ticket.answer(budget_exhausted(self.max_calls or 0))
            else:
                self._grant(ticket)
        return None

    def _is_spent(self) -> bool:
        return self.max_calls is not None and self.granted >= self.max_calls

    def _next(self) -> tuple[Ticket | None, float | None]:
        best: Ticket | None = None
        best_rank = (0, 0, 0)
        wait: float | None = None
        now = self._clock()
        spent = self._is_spent()
        for key in [key for key, by_client in self._queues.items() if not any(by_client.values())]:
            del self._queues[key]
        for (provider, suite, suite_limit), by_client in self._queues.items():
            if not spent:
                state = self._providers.setdefault(provider, _ProviderState(float(self.concurrency)))
                if state.paused_until > now:
                    wait = min(wait or 1e9, state.paused_until - now)
                    continue
                if state.in_flight >= int(state.window):
                    continue
                if suite_limit is not None and self._suites.get(suite, 0) >= suite_limit:
                    continue
            for client, tickets in by_client.items():
                if not tickets:
                    continue
                # The client with the fewest calls in flight, then the earliest sample, then who has waited longest.
                rank = (self._clients.get(client, 0), tickets[0].order, tickets[0].seq)
                if best is None or rank < best_rank:
                    best, best_rank = tickets[0], rank
        return best, wait

    def _grant(self, ticket: Ticket) -> None:
        self._leave(ticket)
        ticket.state = "granted"
        self.granted += 1
        ticket.granted_as = self.granted
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self._providers[ticket.provider].in_flight += 1
        self._suites[ticket.suite] = self._suites.get(ticket.suite, 0) + 1
        self._clients[ticket.client] = self._clients.get(ticket.client, 0) + 1
        self._held.setdefault(ticket.client, set()).add(ticket)
        ticket.answer(None)

    def _leave(self, ticket: Ticket) -> None:
        by_client = self._queues.get((ticket.provider, ticket.suite, ticket.suite_limit), {})
        with contextlib.suppress(KeyError, ValueError):
            by_client[ticket.client].remove(ticket)


def budget_exhausted(max_calls: int) -> BudgetExhausted:
    """Return the error of a call beyond the budget."""
    return BudgetExhausted(
        f"the budget of {max_calls:,} model call{'' if max_calls == 1 else 's'} (--evals-max-calls, repeated attempts "
        "included) is used up; the run stops. Raise it, or resume with --evals-calls=fill."
    )


class _Keeper:
    """A book, its timer and its recorder in one event loop."""

    def __init__(self, concurrency: int, max_calls: int | None, recorder: Recorder | None) -> None:
        self.book = PermitBook(concurrency, max_calls, settle_s=_SETTLE_S)
        self.recorder = recorder
        self._timer: asyncio.TimerHandle | None = None

    def pump(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wait = self.book.pump()
        if wait is not None:
            self._timer = asyncio.get_running_loop().call_later(wait, self.pump)

    def claim(self, recording: str | None) -> None:
        if recording is not None and self.recorder is not None:
            self.recorder.claim(recording)

    def append(self, recording: str, entry: dict[str, Any]) -> None:
        if self.recorder is not None:
            self.recorder.append(recording, entry)


class Permits(Protocol):
    """What the gateway needs; all methods run in the gateway's event loop."""

    async def acquire(
        self, provider: str, suite: str, suite_limit: int | None, recording: str | None, order: int = 0
    ) -> Any:
        """Wait for a permit.

        Args:
            recording: File that the call will be recorded in, or None.
            order: As in `Ticket`.

        Returns:
            The permit, for `release`.

        Raises:
            BudgetExhausted: No call may be made any more.
            CallError: The book cannot be reached, or another run writes the recording.
        """

    def release(self, permit: Any, outcome: Outcome, retry_after_s: float | None = None) -> None:
        """Give a permit back."""

    async def record(self, recording: str, entry: dict[str, Any]) -> None:
        """Journal a finished call; returns when it is written. Raises CallError."""

    async def close(self) -> None:
        """Give everything back."""


class LocalPermits:
    """Permits of a run in one process.

    Args:
        concurrency: Calls in flight, at least 1.
        max_calls: Attempts in all, or None.
        recorder: Where finished calls go; None where nothing is recorded.
    """

    def __init__(self, concurrency: int, max_calls: int | None = None, recorder: Recorder | None = None) -> None:
        self._keeper = _Keeper(concurrency, max_calls, recorder)

    @property
    def book(self) -> PermitBook:
        """The book, for counts."""
        return self._keeper.book

    async def acquire(
        self, provider: str, suite: str, suite_limit: int | None, recording: str | None, order: int = 0
    ) -> Ticket:
        """See `Permits`."""
        self._keeper.claim(recording)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ticket = Ticket(0, provider, suite, suite_limit, _settle(future), order)
        self._keeper.book.ask(ticket)
        self._keeper.pump()
        try:
            await future
        except asyncio.CancelledError:
            self.release(ticket, "failed")
            raise
        return ticket

    def release(self, permit: Ticket, outcome: Outcome, retry_after_s: float | None = None) -> None:
        """See `Permits`."""
        self._keeper.book.release(permit, outcome, retry_after_s)
        self._keeper.pump()

    async def record(self, recording: str, entry: dict[str, Any]) -> None:
        """See `Permits`."""
        self._keeper.append(recording, entry)

    async def close(self) -> None:
        """See `Permits`."""


class PermitServer:
    """Keeps the book of a run of several processes, in a thread of its own on 127.0.0.1.

    Args:
        concurrency: Calls in flight over all processes, at least 1.
        max_calls: Attempts in all, or None.
        recorder: Where finished calls go; used from the server's thread only.
    """

    def __init__(self, concurrency: int, max_calls: int | None = None, recorder: Recorder | None = None) -> None:
        self._keeper = _Keeper(concurrency, max_calls, recorder)
        self._token = secrets.token_hex(32)
        self._port = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._clients = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="evalgrader-permits", daemon=True)

    @property
    def book(self) -> PermitBook:
        """The book, for counts."""
        return self._keeper.book

    @property
    def address(self) -> dict[str, Any]:
        """What `RemotePermits` needs, as builtins: `host`, `port`, `token` (a secret of this run)."""
        return {"host": "127.0.0.1", "port": self._port, "token": self._token}

    def start(self) -> None:
        """Listen.

        Raises:
            OSError: No port could be opened.
        """
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            raise OSError(f"the permit server could not start: {self._failure}") from self._failure

    def close(self) -> None:
        """Stop listening and end all connections; safe to call twice."""
        loop, stopping = self._loop, self._stopping
        if loop is not None and stopping is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(stopping.set)
            self._thread.join(5)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except OSError as error:
            self._failure = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stopping.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._talk(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients += 1
        client = self._clients
        tickets: dict[int, Ticket] = {}
        try:
            async with asyncio.timeout(_HELLO_TIMEOUT_S):
                hello = await _read_frame(reader, _HELLO_BYTES)
            if not hmac.compare_digest(str(hello.get("token", "")).encode(), self._token.encode()):
                return
            while True:
                self._hear(client, tickets, await _read_frame(reader, _FRAME_BYTES), writer)
        except (OSError, EOFError, ValueError, TimeoutError):
            # The process is gone, or was never one of ours: `finally` frees what it held.
            pass
        finally:
            self._keeper.book.drop(client)
            self._keeper.pump()
            writer.close()

    def _hear(
        self, client: int, tickets: dict[int, Ticket], frame: dict[str, Any], writer: asyncio.StreamWriter
    ) -> None:
        number = frame["id"]
        if frame["op"] == "acquire":
            try:
                self._keeper.claim(frame["recording"])
            except CallError as error:
                _write_frame(writer, _refusal(number, error))
                return

            def answer(error: CallError | None) -> None:
                if error is not None:
                    tickets.pop(number, None)
                _write_frame(writer, {"id": number} if error is None else _refusal(number, error))

            tickets[number] = Ticket(
                client, frame["provider"], frame["suite"], frame["suite_limit"], answer, frame["order"]
            )
            self._keeper.book.ask(tickets[number])
            self._keeper.pump()
        elif frame["op"] == "release":
            ticket = tickets.pop(number, None)
            if ticket is not None:
                self._keeper.book.release(ticket, frame["outcome"], frame["retry_after_s"])
                self._keeper.pump()
        elif frame["op"] == "record":
            try:
                self._keeper.append(frame["recording"], frame["entry"])
            except CallError as error:
                _write_frame(writer, _refusal(number, error))
            else:
                _write_frame(writer, {"id": number})


class RemotePermits:
    """Permits that a `PermitServer` keeps.

    Args:
        address: What `PermitServer.address` returned.
    """

    def __init__(self, address: dict[str, Any]) -> None:
        self._address = address
        self._connecting: asyncio.Lock | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reader_task: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._numbers = 0
        self._lost = False

    def __repr__(self) -> str:
        return f"RemotePermits(port={self._address['port']})"

    async def acquire(
        self, provider: str, suite: str, suite_limit: int | None, recording: str | None, order: int = 0
    ) -> int:
        """See `Permits`."""
        number = self._number()
        try:
            await self._ask(
                {
                    "op": "acquire",
                    "id": number,
                    "provider": provider,
                    "suite": suite,
                    "suite_limit": suite_limit,
                    "recording": recording,
                    "order": order,
                }
            )
        except asyncio.CancelledError:
            self.release(number, "failed")
            raise
        return number

    def release(self, permit: int, outcome: Outcome, retry_after_s: float | None = None) -> None:
        """See `Permits`."""
        if self._writer is not None and not self._lost:
            frame = {"op": "release", "id": permit, "outcome": outcome, "retry_after_s": retry_after_s}
            _write_frame(self._writer, frame)

    async def record(self, recording: str, entry: dict[str, Any]) -> None:
        """See `Permits`."""
        await self._ask({"op": "record", "id": self._number(), "recording": recording, "entry": entry})

    async def close(self) -> None:
        """See `Permits`."""
        if self._reader_task is not None:
            self._reader_task.cancel()
            await asyncio.gather(self._reader_task, return_exceptions=True)
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    async def _ask(self, frame: dict[str, Any]) -> None:
        writer = await self._connected()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[frame["id"]] = future
        _write_frame(writer, frame)
        try:
            await future
        finally:
            self._waiting.pop(frame["id"], None)

    async def _connected(self) -> asyncio.StreamWriter:
        if self._connecting is None:
            self._connecting = asyncio.Lock()
        async with self._connecting:
            if self._lost:
                raise _unreachable("the connection to it was lost")
            if self._writer is None:
                try:
                    async with asyncio.timeout(10):
                        reader, writer = await asyncio.open_connection(self._address["host"], self._address["port"])
                except (OSError, TimeoutError) as error:
                    raise _unreachable(str(error) or type(error).__name__) from None
                _write_frame(writer, {"token": self._address["token"]})
                self._writer = writer
                self._reader_task = asyncio.ensure_future(self._listen(reader))
            return self._writer

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                frame = await _read_frame(reader, _FRAME_BYTES)
                future = self._waiting.get(frame["id"])
                if future is None or future.done():
                    continue
                if "message" not in frame:
                    future.set_result(None)
                elif frame["type"] == "BudgetExhausted":
                    future.set_exception(BudgetExhausted(frame["message"]))
                else:
                    future.set_exception(CallError(frame["message"], frame["type"]))
        except (OSError, EOFError, ValueError) as error:
            self._lost = True
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(_unreachable(f"the connection to it was lost ({type(error).__name__})"))


def _settle(future: asyncio.Future[None]) -> Callable[[CallError | None], None]:
    def answer(error: CallError | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    return answer


def _refusal(number: int, error: CallError) -> dict[str, Any]:
    return {"id": number, "type": error.type_name, "message": error.message}


def _unreachable(why: str) -> CallError:
    return CallError(
        f"the permit server of the run's controller process cannot be reached: {why}. It hands out the permits for "
        "model calls, so none can be made; the controller has ended or was stopped.",
        "PermitServerLost",
    )


def _write_frame(writer: asyncio.StreamWriter, frame: dict[str, Any]) -> None:
    data = json.dumps(frame, separators=(",", ":")).encode("ascii")
    writer.write(struct.pack(">I", len(data)) + data)


async def _read_frame(reader: asyncio.StreamReader, limit: int) -> dict[str, Any]:
    """Read one frame.

    Raises:
        EOFError: The other side is gone.
        ValueError: It is not a frame, or longer than the limit.
    """
    (length,) = struct.unpack(">I", await reader.readexactly(4))
    if length > limit:
        raise ValueError("a frame is too long")
    frame = json.loads(await reader.readexactly(length))
    if not isinstance(frame, dict):
        raise ValueError("a frame is not an object")
    return frame
