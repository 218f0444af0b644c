"""The gateway: the one place where model calls are made.

One `Gateway` a process. Its methods block and may be called from many threads; the calls themselves run in one event
loop, in a thread that starts with the first call.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import random
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from ..errors import CallError
from . import bodies
from .adapting import Adaptation, blames_format
from .permits import Outcome, Permits
from .providers import LONGEST_BACKOFF_S, Providers
from .recording import Caller, CallsMode, Recording, load_recording
from .scope import Call, CallScope, StatusError
from .transport import AttemptFailed, Transport

_T = TypeVar("_T")
_FIRST_BACKOFF_S = 0.5


class Gateway:
    """Makes the model calls of a process.

    Args:
        providers: Where models are.
        permits: The run's limits.
        calls: `live` calls and records nothing; `replay` never calls; `fill` calls what is not recorded; `refresh`
            calls for everything and records it anew.
        run_id: The run's id, the same in all of its processes.
    """

    def __init__(self, providers: Providers, permits: Permits, *, calls: CallsMode = "live", run_id: str = "") -> None:
        self.providers = providers
        self.mode: CallsMode = calls
        self.permits = permits
        self._run_id = run_id
        self.transport = Transport(providers)
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stopped: str | None = None
        self._scopes = itertools.count()
        self._adaptations: dict[str, Adaptation] = {}
        self._recordings: dict[Path, Recording] = {}
        self._recordings_lock = threading.Lock()

    @property
    def records(self) -> bool:
        """Whether finished calls are recorded."""
        return self.mode in ("fill", "refresh")

    @property
    def may_call(self) -> bool:
        """Whether models may be called."""
        return self.mode != "replay"

    def scope(
        self,
        *,
        suite: str,
        recording: Path,
        task_id: str,
        sample_id: str,
        model: str,
        epoch: int = 1,
        suite_limit: int | None = None,
    ) -> CallScope:
        """Begin the calls of one attempt at a sample, or of a batch grader.

        Args:
            suite: The suite's path relative to the rootdir.
            recording: The suite's recording (`recording_path`).
            sample_id: Empty for a batch grader.
            model: The candidate model, as the suite names it.
            epoch: From 1.
            suite_limit: The suite's `run.concurrency`, or None.

        Returns:
            The scope.
        """
        caller = Caller(task_id, sample_id, model, epoch)
        return CallScope(self, suite, recording, caller, suite_limit, next(self._scopes))

    def warm(self) -> None:
        """Start the event loop and import the openai package, in the background."""
        with self._lock:
            if self._stopped is None and self._loop is None:
                self._start().call_soon_threadsafe(_import_client)

    def abort(self, why: str = "the run was interrupted") -> None:
        """Cancel every call in flight; those who wait for one get a CallError, as do later calls."""
        with self._lock:
            self._stopped = self._stopped or why
            loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._cancel_all)

    def close(self) -> None:
        """Cancel what is in flight, close the connections and end the thread; safe to call twice."""
        self.abort("the gateway is closed")
        with self._lock:
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is None or thread is None:
            return

        async def shut() -> None:
            if self._tasks:
                await asyncio.wait(tuple(self._tasks), timeout=1)
            await self.transport.close()
            await self.permits.close()

        try:
            asyncio.run_coroutine_threadsafe(shut(), loop).result(2)
        except concurrent.futures.TimeoutError:
            pass  # a connection that does not close: the thread is a daemon and ends with the process
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(2)

    def recording(self, path: Path) -> Recording:
        """Return what is recorded for a suite, as it was before this run.

        Raises:
            CallError: It is of another format, or cannot be read.
        """
        with self._recordings_lock:
            if path not in self._recordings:
                self._recordings[path] = load_recording(path, without_run=self._run_id)
            return self._recordings[path]

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in the gateway's event loop and wait for it; from any thread but the loop's.

        Raises:
            CallError: The gateway was aborted or closed.
        """
        try:
            with self._lock:
                if self._stopped is not None:
                    raise CallError(f"no call was made: {self._stopped}.", "Interrupted")
                future = asyncio.run_coroutine_threadsafe(self._tracked(work), self._start())
        except BaseException:
            work.close()
            raise
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise CallError(
                f"the call was cancelled: {self._stopped or 'its event loop ended'}.", "Interrupted"
            ) from None
        except BaseException:
            future.cancel()
            raise

    def _start(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_serve, args=(self._loop,), name="evalgrader-gateway", daemon=True)
            self._thread.start()
        return self._loop

    async def _tracked(self, work: Coroutine[Any, Any, _T]) -> _T:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            return await work
        finally:
            self._tasks.discard(task)

    def _cancel_all(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()

    async def perform(self, call: Call) -> Any:
        """Make a call, with repetitions; in the event loop.

        Raises:
            CallError: No usable answer.
        """
        call.prepare()
        known = self._adaptations.setdefault(call.label, Adaptation())
        adaptation = known.copy()
        failures = 0
        while True:
            adaptation.take(known)
            sent = adaptation.apply(call.body, formats=call.adapts_formats)
            permit = await self.permits.acquire(
                call.limit_name, call.suite, call.suite_limit, call.recording, call.order
            )
            outcome: Outcome = "failed"
            pause_s: float | None = None
            began = time.monotonic()
            try:
                try:
                    data = await call.attempt(sent)
                finally:
                    call.active_s += time.monotonic() - began
                call.read(data)
                outcome = "ok"
            except AttemptFailed as error:
                failure = error
                outcome = "limited" if error.limited else "failed"
                pause_s = error.pause_s
            except bodies.UnusableReply as error:
                failure = AttemptFailed(f"an unusable answer: {error}", "InvalidReply", retry=True)
            finally:
                self.permits.release(permit, outcome, pause_s)
            if outcome == "ok":
                known.take(adaptation)
                call.notes += adaptation.notes(call.body, call.label, formats=call.adapts_formats)
                return data
            if call.adapts and (
                failure.status in (400, 422) or (failure.status == 500 and blames_format(failure.data))
            ):
                # Another call may have learnt it in the meantime.
                adaptation.take(known)
                if adaptation.apply(call.body, formats=call.adapts_formats) != sent:
                    continue
                if adaptation.learn(sent, failure.data, formats=call.adapts_formats):
                    continue
            failures += 1
            if not failure.retry or failures > call.max_retries:
                tries = f" (after {failures} attempts)" if failures > 1 else ""
                raise StatusError(f"{call.label}: {failure.message}{tries}", failure.type_name, failure.status)
            first_s = _FIRST_BACKOFF_S * (2 if failure.limited else 1)
            backoff_s = min(LONGEST_BACKOFF_S, first_s * 2 ** (failures - 1))
            # Where the server names the pause, the queue of permits keeps it, for everybody.
            wait_s = backoff_s * (random.uniform(0.5, 1.0) if pause_s is None else random.uniform(0.0, 0.2))
            await asyncio.sleep(wait_s)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


def _import_client() -> None:
    import openai  # noqa: F401
