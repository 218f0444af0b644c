"""The worker's side of the sandbox: children by program, deadlines, and results that nobody trusts."""

from __future__ import annotations

import contextlib
import copy
import importlib.metadata
import importlib.util
import json
import linecache
import math
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from ..errors import CallError, CallRefused, EvalgraderError, Problem
from . import frames, reduce

Mode = Literal["auto", "strict", "off"]
Shape = Literal["score", "batch", "row", "rows"]
Status = Literal["returned", "raised", "timeout", "memory", "crashed", "too_large", "interrupted"]

DEFAULT_MAX_RESULT_BYTES: Final = 16 * 1024 * 1024
CHECK_TIMEOUT_S: Final = 20.0
CHECK_MEMORY_MB: Final = 1024
START_TIMEOUT_S: Final = 60.0
# A child's processor time is limited over its whole life, so a busy one is replaced before it comes near.
_CHILD_BUSY_S: Final = 600.0
_KERNEL_LAYERS: Final = ("landlock", "seccomp")
_METHODS: Final = ("responses_create", "embeddings_create")


# What the new interpreter runs: the sandbox's modules, without the package around them and what that imports.
_BOOTSTRAP: Final = """\
import sys, types, json
settings = json.loads(sys.argv[1])
sys.path.extend(settings["path"])
package = types.ModuleType("pytest_evalgrader")
package.__path__ = [settings["package"]]
sys.modules["pytest_evalgrader"] = package
from pytest_evalgrader.sandbox import child
child.zygote(settings)
"""


class SandboxError(EvalgraderError):
    """The sandbox cannot be set up as it was asked for."""


class _Ended(SandboxError):
    """The sandbox's process has ended; another can be started."""


@dataclass(frozen=True, slots=True)
class Program:
    """A file of grader or preprocessor code.

    Args:
        source: Its text.
        filename: Its name as people know it, shown in problems and tracebacks.
        functions: The functions of which at least one must be bound at its top level.
    """

    source: str
    filename: str
    functions: tuple[str, ...] = ()


@dataclass(slots=True)
class RunResult:
    """How one run of a grader ended.

    Args:
        status: `returned`, `raised`, `timeout`, `memory`, `crashed` (the process died, or said something that is no
            reply), `too_large` (the result), `interrupted` (the sandbox was closed).
        value: The reduced result (see `reduce.reduce_result`); empty unless it returned.
        error: `{"type", "message", "traceback": [{"file", "line", "function", "text"}]}` where it raised.
        printed: What it printed, capped; empty where the process was killed.
        call_failed: The call that failed, where the grader let that through.
        detail: A short text on a crash, for people.
        exception: The exception itself, with `off` only.
    """

    status: Status
    value: dict[str, Any] = field(default_factory=dict)
    error: dict[str, Any] | None = None
    printed: str = ""
    call_failed: CallError | None = None
    detail: str = ""
    exception: BaseException | None = None


Calls = Callable[[str, dict[str, Any]], dict[str, Any]]


class Sandbox:
    """Runs programs in locked child processes; may be used from several threads at once.

    Args:
        mode: `auto` goes on with the layers that the machine has; `strict` refuses where one is missing; `off` runs
            programs in this process, unrestricted and without time-outs, for a debugger.
        max_children: Most child processes at a time; a run waits for a place.
        max_idle: Most children that are kept warm while nothing runs in them.
        language: False switches the language layer off. For the sandbox's own tests: plain Python in the child.
    """

    def __init__(
        self, mode: Mode = "auto", *, max_children: int = 64, max_idle: int = 16, language: bool = True
    ) -> None:
        if mode not in ("auto", "strict", "off"):
            raise ValueError(f'sandbox mode "{mode}": one of auto, strict, off')
        self.mode = mode
        self._language = language
        self._max_children = max(1, max_children)
        self._max_idle = max_idle
        self._condition = threading.Condition()
        self._start_lock = threading.Lock()
        self._zygote: _Zygote | None = None
        self._coming: _Zygote | None = None
        self._idle: list[_Child] = []
        self._count = 0
        self._closed = False
        self._owner = os.getpid()
        self._layers: tuple[str, ...] | None = None
        self._missing: tuple[tuple[str, str], ...] = ()

    # ------------------------------------------------------------------------------------------------------- layers

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers that were probed and hold, of language, process, memory, landlock and seccomp; none with `off`.

        Raises:
            SandboxError: The sandbox cannot be started, or `strict` and a layer is missing.
        """
        self._started()
        return self._layers or ()

    @property
    def missing(self) -> tuple[tuple[str, str], ...]:
        """The layers that are missing, each with the reason.

        Raises:
            SandboxError: As for `layers`.
        """
        self._started()
        return self._missing

    def begin(self) -> None:
        """Start the sandbox's process, and leave it to whoever needs it first to wait for it.

        Raises:
            SandboxError: It cannot be started.
        """
        with self._start_lock:
            if self.mode != "off" and self._zygote is None and self._coming is None:
                self._coming = _Zygote(guarded=self._language)

    def _started(self) -> _Zygote | None:
        if self.mode == "off":
            self._missing = tuple((layer, "the sandbox is off") for layer in frames.LAYERS)
            return None
        zygote = self._zygote
        if zygote is not None and zygote.alive and not self._closed and os.getpid() == self._owner:
            return zygote
        with self._start_lock:
            if self._closed or os.getpid() != self._owner:
                raise SandboxError("the sandbox is closed")
            if self._zygote is not None:
                if self._zygote.alive:
                    return self._zygote
                # Killed from outside, or out of step after an interrupt; its children go with it.
                self._zygote.close()
            zygote = self._coming or _Zygote(guarded=self._language)
            self._coming = None
            try:
                zygote.wait()
                self._probe(zygote)
                if self.mode == "strict" and self._missing:
                    listed = "; ".join(f"{layer}: {why}" for layer, why in self._missing)
                    raise SandboxError(
                        f"--evals-sandbox=strict: this machine cannot give every layer of the sandbox ({listed}). "
                        "Run on Linux 5.13 or later with Landlock and libseccomp, outside a container profile that "
                        "refuses them, or use --evals-sandbox=auto to go on without."
                    )
            except BaseException:
                zygote.close()
                raise
            self._zygote = zygote
            return zygote

    def _probe(self, zygote: _Zygote) -> None:
        missing = dict(zygote.missing)
        if not self._language:
            missing["language"] = "switched off by a test"
        alone: dict[str, tuple[str, ...]] = {
            "process": (),
            "memory": (),
            "landlock": ("landlock",),
            "seccomp": ("seccomp",),
        }
        for layer, layers in alone.items():
            if layer in missing:
                continue
            probe = zygote.fork(memory_mb=256, cpu_s=60, layers=layers, descriptors=1 if layer == "process" else 16)
            try:
                reply = probe.ask({"op": "probe", "what": layer}, time.monotonic() + START_TIMEOUT_S, 1 << 16)
                if reply["open"]:
                    missing[layer] = f"it does not hold: {', '.join(map(str, reply['open']))}"
            except (_Gone, TimeoutError, frames.FrameError, KeyError):
                missing[layer] = "a child that sets it up does not start"
            finally:
                zygote.end(probe)
        self._layers = tuple(layer for layer in frames.LAYERS if layer not in missing)
        self._missing = tuple((layer, missing[layer]) for layer in frames.LAYERS if layer in missing)

    # -------------------------------------------------------------------------------------------------------- usage

    def check(self, program: Program) -> list[Problem]:
        """Compile a program in a child, and list everything that is wrong with it.

        Returns:
            The problems in the order of the lines, `where` being `g.py:2`; empty for a program that can run.

        Raises:
            SandboxError: The sandbox cannot be started.
        """
        if self.mode == "off":
            return _check_in_process(program)
        for _ in range(2):
            zygote, problems = self._check_in_child(program)
            if zygote.alive:
                break
            # Not the program's doing: the zygote was killed, and took the child with it.
        return problems

    def _check_in_child(self, program: Program) -> tuple[_Zygote, list[Problem]]:
        deadline = time.monotonic() + CHECK_TIMEOUT_S
        process = self._acquire(program, CHECK_MEMORY_MB)
        try:
            request = process.request({"op": "check", "functions": program.functions})
            reply = process.ask(request, deadline, 1 << 20)
            problems = [
                Problem(f"{program.filename}:{int(line)}" if line else program.filename, str(text))
                for line, text in reply["problems"]
            ]
        except TimeoutError:
            problems = [Problem(program.filename, f"it could not be compiled within {CHECK_TIMEOUT_S:g} s")]
        except (_Gone, frames.FrameError, KeyError, TypeError, ValueError):
            problems = [
                Problem(
                    program.filename, "Python's compiler did not survive this file; it is nested too deep, or too large"
                )
            ]
        finally:
            # Made with room for compiling, which is not the room that this program has asked for.
            self._discard(process)
        return process.zygote, problems

    def run(
        self,
        program: Program,
        function: str,
        args: list[Any],
        *,
        shape: Shape,
        timeout_s: float,
        memory_mb: int = 512,
        seed: str = "",
        calls: Calls | None = None,
        max_result_bytes: int = DEFAULT_MAX_RESULT_BYTES,
    ) -> RunResult:
        """Run one function of a program on copies of the arguments, in a namespace of its own.

        Args:
            program: One that `check` found no problem with.
            function: The function to call; an `async` one is awaited.
            args: Positional arguments, plain JSON values. A function that takes one more gets `ctx`.
            shape: How the result is reduced (see `reduce.reduce_result`).
            timeout_s: Seconds from the start of the run until the child is killed. What `calls.waited_s` grows by,
                where `calls` has that attribute, does not count.
            memory_mb: Mebibytes that the program may use.
            seed: Seeds `random`.
            calls: Makes a model call, by method and fields, in this thread; None where the program has no access. It
                may raise CallRefused (the grader sees it) and CallError.
            max_result_bytes: Most bytes of the reduced result as JSON.

        Returns:
            How it ended; whatever the program does, this method does not raise.

        Raises:
            SandboxError: The sandbox cannot be started.
        """
        return self.start(
            program,
            function,
            args,
            shape=shape,
            timeout_s=timeout_s,
            memory_mb=memory_mb,
            seed=seed,
            calls=calls,
            max_result_bytes=max_result_bytes,
        ).result()

    def start(
        self,
        program: Program,
        function: str,
        args: list[Any],
        *,
        shape: Shape,
        timeout_s: float,
        memory_mb: int = 512,
        seed: str = "",
        calls: Calls | None = None,
        max_result_bytes: int = DEFAULT_MAX_RESULT_BYTES,
    ) -> StartedRun:
        """Start what `run` runs, and wait for it later; arguments as for `run`.

        With `off` nothing happens before the result is asked for.

        Raises:
            SandboxError: The sandbox cannot be started.
        """
        order = _Order(program, function, args, shape, timeout_s, memory_mb, seed, calls, max_result_bytes)
        return StartedRun(self, order)

    # ----------------------------------------------------------------------------------------------------- children

    def warm(self, program: Program | None = None, memory_mb: int = 512) -> None:
        """Start the sandbox, and a child for a program, before they are needed.

        Raises:
            SandboxError: The sandbox cannot be started.
        """
        self._started()
        if program is not None and self.mode != "off":
            self._release(self._acquire(program, memory_mb))

    def retire(self, program: Program) -> None:
        """End the children of a program: its group is done. A later run starts a new one."""
        with self._condition:
            leaving = [process for process in self._idle if process.program == program]
            self._idle = [process for process in self._idle if process.program != program]
            # Children that are busy now end when they are released.
            for process in _living(self._zygote):
                if process.program == program:
                    process.retired = True
        for process in leaving:
            self._discard(process)

    def close(self) -> None:
        """End every child and the zygote. Runs that are under way return `interrupted`."""
        if os.getpid() != self._owner:
            return
        with self._condition:
            self._closed = True
            idle, self._idle = self._idle, []
            self._condition.notify_all()
        for zygote in (self._zygote, self._coming):
            if zygote is not None:
                zygote.close()
        # Nobody uses these any more; those in use are closed by the threads that use them.
        for process in idle:
            process.channel.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _acquire(self, program: Program, memory_mb: int) -> _Child:
        try:
            return self._acquire_once(program, memory_mb)
        except _Ended:
            # Killed from outside since it was last asked, which only this question showed.
            return self._acquire_once(program, memory_mb)

    def _acquire_once(self, program: Program, memory_mb: int) -> _Child:
        zygote = self._started()
        assert zygote is not None
        while True:
            evicted: _Child | None = None
            with self._condition:
                for index in range(len(self._idle) - 1, -1, -1):
                    process = self._idle[index]
                    if process.program == program and process.memory_mb == memory_mb:
                        del self._idle[index]
                        if process.zygote is zygote:
                            return process
                        evicted = process
                        break
                if self._closed:
                    raise SandboxError("the sandbox is closed")
                if evicted is None and self._count < self._max_children:
                    self._count += 1
                    break
                if evicted is None and self._idle:
                    evicted = self._idle.pop(0)
                elif evicted is None:
                    self._condition.wait(1.0)
            if evicted is not None:
                self._discard(evicted)
        try:
            return zygote.fork(
                memory_mb=memory_mb,
                cpu_s=int(2 * _CHILD_BUSY_S),
                # One that did not hold in its probe may not even let a child start.
                layers=tuple(layer for layer in _KERNEL_LAYERS if layer in self.layers),
                program=program,
            )
        except BaseException:
            self._forget()
            raise

    def _release(self, process: _Child) -> None:
        superfluous: _Child | None = None
        with self._condition:
            if process.retired or self._closed or process.busy_s > _CHILD_BUSY_S:
                superfluous = process
            else:
                self._idle.append(process)
                if len(self._idle) > self._max_idle:
                    superfluous = self._idle.pop(0)
                self._condition.notify()
        if superfluous is not None:
            self._discard(superfluous)

    def _discard(self, process: _Child) -> tuple[int, int]:
        try:
            return process.zygote.end(process)
        finally:
            self._forget()

    def _forget(self) -> None:
        with self._condition:
            self._count -= 1
            self._condition.notify()


@dataclass(frozen=True, slots=True)
class _Order:
    """What `Sandbox.run` was asked to run; fields as its arguments."""

    program: Program
    function: str
    args: list[Any]
    shape: Shape
    timeout_s: float
    memory_mb: int
    seed: str
    calls: Calls | None
    max_result_bytes: int

    @property
    def max_reply_bytes(self) -> int:
        """Most bytes of a reply: the result, what was printed, and what is around both."""
        return self.max_result_bytes + 8 * frames.PRINT_CAP + (1 << 16)

    def request(self) -> dict[str, Any]:
        """Return the message that has a child run it."""
        return {
            "op": "run",
            "function": self.function,
            "args": self.args,
            "shape": self.shape,
            "seed": self.seed,
            "ctx": self.calls is not None,
            "max_bytes": self.max_reply_bytes,
        }


# How long a child may still talk that began before its time ended, while nobody listened.
_LATE_S: Final = 1.0


class StartedRun:
    """A run in a child: asked for by `result` or ended by `cancel`, each once."""

    def __init__(self, sandbox: Sandbox, order: _Order) -> None:
        self._sandbox = sandbox
        self._order = order
        self._process: _Child | None = None
        self._asked_at = self._deadline = 0.0
        self._late = False
        self._unsent: Exception | None = None
        if sandbox.mode != "off":
            self._post()

    def _post(self) -> None:
        order = self._order
        process = self._process = self._sandbox._acquire(order.program, order.memory_mb)
        self._asked_at = time.monotonic()
        self._deadline = self._asked_at + order.timeout_s
        try:
            process.post(process.request(order.request()), self._deadline)
        except (TimeoutError, _Gone) as error:
            self._unsent = error
        except BaseException:
            self.cancel()
            raise

    def result(self) -> RunResult:
        """Wait until the run has ended, and return how.

        A program that was done in time is not called late because nobody asked, and one that was not still is.

        Raises:
            SandboxError: The sandbox had to be started anew and cannot be.
        """
        sandbox, order = self._sandbox, self._order
        if sandbox.mode == "off":
            return _run_in_process(order.program, order.function, order.args, order.shape, order.seed, order.calls)
        if self._process is None:
            raise RuntimeError("this run has ended already")
        now = time.monotonic()
        self._late = now > self._deadline
        # What it began to say while nobody listened is heard to its end.
        first_s = 0.0 if self._process.is_silent() else now + _LATE_S
        again = False
        while True:
            process = self._process
            assert process is not None
            try:
                result = self._converse(process, first_s)
            except BaseException:
                self.cancel()
                raise
            self._process = None
            process.busy_s += time.monotonic() - self._asked_at
            if result is not None:
                if result.status in ("returned", "raised", "too_large") and process.is_silent():
                    sandbox._release(process)
                else:
                    sandbox._discard(process)
                return result
            status, max_rss_kb = sandbox._discard(process)
            if process.zygote.alive:
                return _died(status, max_rss_kb, order.memory_mb)
            if again:
                raise SandboxError("the sandbox's process was ended from outside, and so was the one after it")
            # Not the program's doing: the zygote is gone, and took the child with it. Once more, with a new one.
            again, self._unsent, self._late, first_s = True, None, False, 0.0
            self._post()

    def cancel(self) -> None:
        """End the run: its child goes with it."""
        process, self._process = self._process, None
        if process is not None:
            self._sandbox._discard(process)

    def _converse(self, process: _Child, first_s: float) -> RunResult | None:
        order, calls = self._order, self._order.calls
        deadline = self._deadline
        until = max(deadline, first_s)
        failed: CallError | None = None
        try:
            if self._unsent is not None:
                raise self._unsent
            while True:
                reply = process.hear(until, order.max_reply_bytes)
                if "call" not in reply:
                    if self._late and not _was_in_time(reply, order.timeout_s):
                        return RunResult("timeout")
                    # Something of this sample stayed in the process, where a later one could meet it.
                    process.retired = process.retired or "spent" in reply
                    return _result_of(reply, order.shape, failed)
                method, fields = reply["call"], reply.get("fields")
                if calls is None or method not in _METHODS or type(fields) is not dict:
                    return RunResult("crashed", detail="it sent a call that is none")
                waited_before = _waited(calls)
                try:
                    answer: dict[str, Any] = {"answer": calls(method, fields)}
                except CallRefused as refused:
                    answer = {"refused": str(refused)}
                except CallError as error:
                    failed = error
                    answer = {"failed": error.message}
                until = deadline = deadline + _waited(calls) - waited_before
                process.post(answer, deadline)
        except TimeoutError:
            return RunResult("timeout")
        except frames.FrameError as error:
            return RunResult("crashed", detail=f"its reply is not one ({error})")
        except _Gone:
            if self._sandbox._closed:
                return RunResult("interrupted")
            return None


# ------------------------------------------------------------------------------------------------------------- zygote


class _Gone(Exception):
    """The other side of a channel is gone."""


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return this process's end and the other's, which waits whatever `socket.setdefaulttimeout` a test has set."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(True)
    return ours, theirs


class _Zygote:
    """The process that forks children, and the control socket to it."""

    def __init__(self, *, guarded: bool) -> None:
        ours, theirs = _socket_pair()
        package = Path(__file__).resolve().parents[1]
        settings = {
            "control": theirs.fileno(),
            "parent": os.getpid(),
            "path": _library_paths(),
            "package": str(package),
            "layers": _KERNEL_LAYERS,
            "guarded": guarded,
        }
        self._lock = threading.Lock()
        self._channel = _Channel(ours)
        self.alive = True
        self.children: dict[int, _Child] = {}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-s", "-S", "-P", "-B", "-X", "utf8", "-c", _BOOTSTRAP, json.dumps(settings)],
                env={"PYTHONHASHSEED": "0"},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._finalizer = weakref.finalize(self, _end_process, self._process, ours, os.getpid())
        self.missing: dict[str, str] = {}

    def wait(self) -> None:
        """Wait until it can fork.

        Raises:
            SandboxError: It did not come so far.
        """
        stderr = self._process.stderr
        assert stderr is not None
        try:
            ready = frames.decode(self._channel.receive(time.monotonic() + START_TIMEOUT_S, 1 << 16))
            self.missing = {str(layer): str(why) for layer, why in ready["missing"].items()}
        except (_Gone, TimeoutError, frames.FrameError, KeyError) as error:
            self._process.kill()
            said = stderr.read().decode("utf-8", "replace").strip()
            stderr.close()
            self.close()
            silent = "it said nothing in time" if isinstance(error, TimeoutError) else "something ended it"
            raise SandboxError(f"the sandbox's process did not start: {said[-2000:] or silent}") from error
        stderr.close()

    def fork(
        self,
        *,
        memory_mb: int,
        cpu_s: int,
        layers: tuple[str, ...],
        descriptors: int = 1,
        program: Program | None = None,
    ) -> _Child:
        ours, theirs = _socket_pair()
        request = {"op": "fork", "memory_mb": memory_mb, "cpu_s": cpu_s, "layers": layers, "descriptors": descriptors}
        try:
            with theirs:
                reply = self._ask(request, [theirs.fileno()])
        except BaseException:
            ours.close()
            raise
        process = _Child(self, int(reply["pid"]), _Channel(ours), program, memory_mb)
        self.children[process.pid] = process
        return process

    def end(self, process: _Child) -> tuple[int, int]:
        """Kill and reap a child; return its wait status and most resident memory in kilobytes."""
        self.children.pop(process.pid, None)
        try:
            reply = self._ask({"op": "end", "pid": process.pid}, [])
        except SandboxError:
            # The zygote is gone, and took its children with it.
            return signal.SIGKILL, 0
        finally:
            process.channel.close()
        rss = int(reply["max_rss"])
        return int(reply["status"]), rss // 1024 if sys.platform == "darwin" else rss

    def _ask(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        with self._lock:
            if not self.alive:
                raise _Ended("the sandbox's process has ended")
            try:
                self._channel.send(frames.encode(request), time.monotonic() + START_TIMEOUT_S, descriptors)
                return frames.decode(self._channel.receive(time.monotonic() + START_TIMEOUT_S, 1 << 16))
            except (_Gone, TimeoutError, frames.FrameError) as error:
                self.alive = False
                raise _Ended("the sandbox's process has ended") from error
            except BaseException:
                # Interrupted between question and answer: the next answer would be taken for another question's.
                self.alive = False
                raise

    def close(self) -> None:
        with self._lock:
            self.alive = False
            self._finalizer()
        for process in list(self.children.values()):
            process.channel.shut()


def _living(zygote: _Zygote | None) -> list[_Child]:
    return [] if zygote is None else list(zygote.children.values())


def _end_process(process: subprocess.Popen[bytes], control: socket.socket, owner: int) -> None:
    if os.getpid() != owner:
        # A fork of the worker inherited this object; the zygote is not its to end.
        return
    # The zygote kills and leaves its children when the socket closes. Shut down first: a fork may hold a copy.
    with contextlib.suppress(OSError):
        control.shutdown(socket.SHUT_RDWR)
    control.close()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stderr is not None:
        process.stderr.close()


def _library_paths() -> list[str]:
    """Return the folders that hold the libraries of the child; site-packages as such would run its .pth files."""
    try:
        require_restricted_python(importlib.metadata.version("RestrictedPython"))
    except importlib.metadata.PackageNotFoundError as error:
        raise SandboxError("the sandbox needs RestrictedPython: pip install RestrictedPython") from error
    paths = []
    for name in ("RestrictedPython", "pyseccomp"):
        found = importlib.util.find_spec(name)
        if found is not None and found.origin is not None:
            origin = Path(found.origin).resolve()
            paths.append(str(origin.parents[1] if origin.name == "__init__.py" else origin.parent))
    return list(dict.fromkeys(paths))


_LOWEST_RESTRICTED_PYTHON: Final = (9, 0)


def require_restricted_python(version: str) -> None:
    """Refuse a RestrictedPython with published ways out.

    Raises:
        SandboxError: It is older than 9.0.
    """
    found = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if found < _LOWEST_RESTRICTED_PYTHON:
        raise SandboxError(
            f"RestrictedPython {version} has published ways out; the sandbox needs 9.0 or later: "
            'pip install "RestrictedPython>=9.0"'
        )


class _Child:
    """A locked process that serves one program."""

    def __init__(self, zygote: _Zygote, pid: int, channel: _Channel, program: Program | None, memory_mb: int) -> None:
        self.zygote = zygote
        self.pid = pid
        self.channel = channel
        self.program = program
        self.memory_mb = memory_mb
        self.busy_s = 0.0
        self.retired = False
        self._knows_program = False
        self._nonce = ""

    def request(self, message: dict[str, Any]) -> dict[str, Any]:
        """Add the program, where the child does not know it yet."""
        if not self._knows_program and self.program is not None:
            self._knows_program = True
            message["program"] = {"source": self.program.source, "filename": self.program.filename}
        return message

    def ask(self, message: dict[str, Any], deadline: float, limit: int) -> dict[str, Any]:
        """Send a message and wait for the frame that answers it; errors as for `post` and `hear`."""
        self.post(message, deadline)
        return self.hear(deadline, limit)

    def post(self, message: dict[str, Any], deadline: float) -> None:
        """Send a message.

        Raises:
            TimeoutError: The deadline passed.
            _Gone: The process is gone.
        """
        if "op" in message:
            # A reply must repeat it, so that nothing written ahead of time can pass for the next reply.
            self._nonce = os.urandom(8).hex()
            message["n"] = self._nonce
        self.channel.send(_encode_request(message), deadline)

    def hear(self, deadline: float, limit: int) -> dict[str, Any]:
        """Wait for the frame that answers what was posted.

        Raises:
            TimeoutError: The deadline passed.
            FrameError: What came is not a frame, or answers something else.
            _Gone: The process is gone.
        """
        reply = frames.decode(self.channel.receive(deadline, limit))
        if reply.get("n") != self._nonce:
            raise frames.FrameError("it answers something else")
        return reply

    def is_silent(self) -> bool:
        """Whether nothing waits on the channel: a child that says more than it was asked is not used again."""
        return self.channel.is_silent()


def _encode_request(message: dict[str, Any]) -> bytes:
    body = _dumps(message).encode("ascii")
    return frames.HEADER.pack(len(body)) + body


# Rows may hold what JSON has no word for, and be deeper than a reply may: the child trusts the worker.
_dumps: Final = json.JSONEncoder(ensure_ascii=True, check_circular=False, separators=(",", ":")).encode


class _Channel:
    """A socket that carries frames, with a deadline for each operation."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._rest = bytearray()
        self._readable = select.poll()
        self._readable.register(connection, select.POLLIN)
        self._writable = select.poll()
        self._writable.register(connection, select.POLLOUT)

    def send(self, data: bytes, deadline: float, descriptors: list[int] | None = None) -> None:
        """Send a frame, and descriptors with its first byte.

        Raises:
            TimeoutError: The deadline passed.
            _Gone: The other side is gone.
        """
        view = memoryview(data)
        while view:
            try:
                sent = (
                    socket.send_fds(self._connection, [view], descriptors)
                    if descriptors
                    else self._connection.send(view)
                )
            except BlockingIOError:
                _wait(self._writable, deadline)
                continue
            except OSError as error:
                raise _Gone from error
            descriptors = None
            view = view[sent:]

    def receive(self, deadline: float, limit: int) -> bytearray:
        """Return the body of the next frame.

        Raises:
            TimeoutError: The deadline passed.
            FrameError: The frame is longer than `limit` bytes.
            _Gone: The other side is gone.
        """
        data = self._rest
        header = frames.HEADER.size
        wanted = 0
        while not wanted or len(data) < wanted:
            if not wanted and len(data) >= header:
                size: int = frames.HEADER.unpack_from(data)[0]
                if size > limit:
                    raise frames.FrameError(f"it says it is {size:,} bytes long")
                wanted = header + size
                continue
            _wait(self._readable, deadline)
            try:
                part = self._connection.recv(min(max(wanted - len(data), 1 << 16), 1 << 20))
            except BlockingIOError:
                continue
            except OSError as error:
                raise _Gone from error
            if not part:
                raise _Gone
            data += part
        self._rest = data[wanted:]
        return data[header:wanted]

    def is_silent(self) -> bool:
        """Whether nothing waits to be read, and the other side is there."""
        return not self._rest and not self._readable.poll(0)

    def shut(self) -> None:
        """Wake whoever waits on it."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._connection.close()


def _wait(ready: select.poll, deadline: float) -> None:
    remaining_ms = (deadline - time.monotonic()) * 1e3
    # Rounded up: a millisecond early would turn the last of them into a busy loop.
    if remaining_ms <= 0:
        raise TimeoutError
    # The clock is not asked again: one that a test has stopped would never reach the deadline.
    if not ready.poll(math.ceil(min(remaining_ms, _LONGEST_WAIT_MS))) and remaining_ms <= _LONGEST_WAIT_MS:
        raise TimeoutError


# What fits the system call; a longer wait is asked for again.
_LONGEST_WAIT_MS: Final = 1_000_000_000


# ------------------------------------------------------------------------------------------------------------ results


def _waited(calls: Calls) -> float:
    return float(getattr(calls, "waited_s", 0.0))


def _result_of(reply: dict[str, Any], shape: Shape, failed: CallError | None) -> RunResult:
    """Read a reply without trusting it.

    Raises:
        FrameError: It does not have the form of one.
    """
    status = reply.get("status")
    printed = reply.get("printed", "")
    if type(printed) is not str:
        raise frames.FrameError("its output is no text")
    printed = reduce.cut(printed, 2 * frames.PRINT_CAP)
    if status == "returned":
        value = reply.get("value")
        if type(value) is not dict or not _FORMS[shape](value):
            raise frames.FrameError("its value has another form")
        return RunResult("returned", value=value, printed=printed)
    if status == "raised":
        error = reply.get("error")
        if not _is_error(error):
            raise frames.FrameError("its error has another form")
        return RunResult(
            "raised", error=error, printed=printed, call_failed=failed if reply.get("uncaught_call") is True else None
        )
    if status == "memory":
        return RunResult("memory")
    if status == "too_large":
        return RunResult("too_large", printed=printed)
    raise frames.FrameError("it has no status that is known")


def _died(status: int, max_rss_kb: int, memory_mb: int) -> RunResult:
    if os.WIFEXITED(status):
        code = os.WEXITSTATUS(status)
        if code == frames.EXIT_MEMORY:
            return RunResult("memory")
        if code == frames.EXIT_UNLOCKED:
            return RunResult("crashed", detail="a layer of the sandbox could not be set up in its process")
        return RunResult("crashed", detail=f"its process ended itself with status {code}")
    number = os.WTERMSIG(status)
    # Nobody asked for this kill (a child that is asked is gone from here): the kernel ran out of memory. And where
    # memory was nearly used up, a crash is what the limit looks like from inside C code.
    if (number == signal.SIGKILL and max_rss_kb) or max_rss_kb > 0.8 * memory_mb * 1024:
        return RunResult("memory", detail=f"its process was ended by signal {number}")
    if number == signal.SIGXCPU:
        return RunResult("timeout", detail="its process used up its processor time")
    name = signal.Signals(number).name if number in signal.valid_signals() else str(number)
    return RunResult("crashed", detail=f"its process was ended by {name}")


def _was_in_time(reply: dict[str, Any], timeout_s: float) -> bool:
    # The program's own word: it may lie about its own result, and gains no more than that.
    took = reply.get("took")
    return type(took) is not float or took <= timeout_s


def _is_error(error: Any) -> bool:
    return (
        type(error) is dict
        and type(error.get("type")) is str
        and type(error.get("message")) is str
        and type(error.get("traceback")) is list
        and len(error["traceback"]) <= frames.FRAMES_CAP + 1
        and all(
            type(step) is dict
            and type(step.get("line")) is int
            and all(type(step.get(key)) is str for key in ("file", "function", "text"))
            for step in error["traceback"]
        )
    )


def _is_scores(value: Any) -> bool:
    return type(value) is dict and all(type(score) in (float, int) for score in value.values())


def _is_texts(value: Any) -> bool:
    return type(value) is dict and all(type(text) is str for text in value.values())


def _is_score_form(value: dict[str, Any]) -> bool:
    number = value.get("number")
    judge = value.get("judge")
    return (
        type(value.get("kind")) is str
        and type(value.get("type")) is str
        and (number is None or type(number) in (float, int) or number in ("nan", "inf", "-inf"))
        and (value["kind"] != "number" or number is not None)
        and _is_scores(value.get("scores"))
        and _is_texts(value.get("dropped"))
        and (judge is None or type(judge) is dict)
        and "raw" in value
    )


def _is_batch_form(value: dict[str, Any]) -> bool:
    samples = value.get("samples")
    return (
        type(value.get("kind")) is str
        and type(value.get("type")) is str
        and _is_scores(value.get("metrics"))
        and _is_texts(value.get("bad_metrics"))
        and type(value.get("problems")) is list
        and all(type(problem) is str for problem in value["problems"])
        and (samples is None or (type(samples) is list and all(map(_is_update, samples))))
        and "raw" in value
    )


def _is_update(update: Any) -> bool:
    return (
        type(update) is dict
        and type(update.get("sample_id")) is str
        and _is_scores(update.get("scores", {}))
        and _is_texts(update.get("dropped", {}))
        and type(update.get("judge")) in (dict, type(None))
        and type(update.get("extracted_output")) in (str, type(None))
    )


def _is_row_form(value: dict[str, Any]) -> bool:
    problem, row = value.get("problem"), value.get("value")
    return type(value.get("kind")) is str and (type(row) is dict if problem is None else type(problem) is str)


def _is_rows_form(value: dict[str, Any]) -> bool:
    problem, rows = value.get("problem"), value.get("value")
    if problem is not None:
        return type(value.get("kind")) is str and type(problem) is str
    return type(value.get("kind")) is str and type(rows) is list and all(type(row) is dict for row in rows)


_FORMS: Final[dict[str, Callable[[dict[str, Any]], bool]]] = {
    "score": _is_score_form,
    "batch": _is_batch_form,
    "row": _is_row_form,
    "rows": _is_rows_form,
}


# ---------------------------------------------------------------------------------------------------------------- off


def _check_in_process(program: Program) -> list[Problem]:
    from . import child, policy

    try:
        compiled = policy.compile_grader(program.source, program.filename, guarded=False)
    except policy.Refusal as refusal:
        return [
            Problem(f"{program.filename}:{line}" if line else program.filename, text) for line, text in refusal.problems
        ]
    if program.functions and not any(name in compiled.names for name in program.functions):
        return [Problem(program.filename, child.no_function(program.functions, compiled.names))]
    return []


def _run_in_process(
    program: Program, function: str, args: list[Any], shape: Shape, seed: str, calls: Calls | None
) -> RunResult:
    """Run a program here, unrestricted: the debugger's way. What it raises is handed on, with its traceback."""
    import random

    from . import child, policy

    # Python cannot find the text of a grader that stands inside a suite; a debugger looks here, under either name.
    lines = program.source.splitlines(keepends=True)
    for name in (program.filename, os.path.abspath(program.filename)):
        linecache.cache[name] = (len(program.source), None, lines, name)
    raised: BaseException
    try:
        compiled = policy.compile_grader(program.source, program.filename, guarded=False)
        namespace: dict[str, Any] = {"__name__": "grader"}
        random.seed(seed)
        exec(compiled.code, namespace)
        called = namespace[function]
        arguments = copy.deepcopy(args)
        takes = compiled.names.get(function)
        if (child.positional(called) if takes is None else takes) > len(arguments):
            arguments.append(child.Ctx(*(_in_process_call(calls, method) for method in _METHODS)))
        value = child.awaited(called(*arguments))
        return RunResult("returned", value=reduce.reduce_result(value, shape))
    except MemoryError as error:
        return RunResult("memory", exception=error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a grader raises is its result
        raised = error
    described = child.describe(raised, program.source, program.filename)
    failed = (
        raised.__cause__ if isinstance(raised, child.CallFailed) and isinstance(raised.__cause__, CallError) else None
    )
    return RunResult("raised", error=described, exception=raised, call_failed=failed)


def _in_process_call(calls: Calls | None, method: str) -> Callable[..., Any]:
    from . import child

    def call(model: str = "auto", **fields: Any) -> Any:
        if calls is None:
            raise child.CallRefused(child.NO_ACCESS)
        try:
            return calls(method, {"model": model, **fields})
        except CallRefused as refused:
            raise child.CallRefused(str(refused)) from refused
        except CallError as error:
            raise child.CallFailed(error.message) from error

    return call
