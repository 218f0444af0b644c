"""The zygote and its children: the only processes that see a grader.

The zygote is executed anew, with an empty environment, by each worker that needs a sandbox. It imports what graders may
use, never sees a grader's source, and forks a child whenever the worker asks for one, which costs a millisecond or two.
A child locks itself, then serves one program: it compiles it once, and runs the module anew for each sample.

    worker ── control socket ── zygote          fork (with one end of a channel), end
       └───── channel (a socket) ── child       check, run, calls of ctx; frames as in `frames`

Standard library, RestrictedPython and pyseccomp only; `host` starts it.
"""

from __future__ import annotations

import codecs
import contextlib
import functools
import gc
import hashlib
import importlib
import io
import json
import os
import select
import signal
import socket
import sys
import time
import types
import warnings
from collections.abc import Callable, Container, Sequence
from typing import Any, Final, NoReturn

from . import frames, guards, jail, policy, reduce, standins

MESSAGE_CAP: Final = 2_000
"""Characters kept of an exception's message."""

# Each function's neighbour, and the contract that wants that one.
_TWINS: Final = {
    "grade": ("grade_batch", "batch"),
    "grade_batch": ("grade", "sample"),
    "transform": ("transform_batch", "batch"),
    "transform_batch": ("transform", "row"),
}

# Encodings that graders name; a child cannot load more, since it reads no files.
_ENCODINGS: Final = (
    "ascii utf-8 utf-8-sig utf-16 utf-16-le utf-16-be utf-32 utf-32-le utf-32-be utf-7 latin-1 cp1252 cp1250 cp1251 "
    "cp437 iso8859-2 iso8859-15 koi8-r mac-roman gbk gb18030 big5 shift_jis euc-jp euc-kr idna punycode unicode_escape "
    "raw_unicode_escape rot13 hex base64 zlib quopri uu"
)
# What the standard library imports inside functions that graders reach.
_LATE_IMPORTS: Final = (
    "_strptime locale calendar inspect traceback linecache stringprep _pydecimal numbers _pyrepr.utils"
)
# For tests that run plain Python in a child: what a probe needs must be there before the child is locked.
_PROBE_IMPORTS: Final = (
    "os socket ctypes subprocess threading signal mmap resource select fcntl multiprocessing asyncio"
)


# ------------------------------------------------------------------------------------------------------------- zygote


def zygote(settings: dict[str, Any]) -> NoReturn:
    """Serve fork and end on the control socket, until it closes or the worker is gone.

    Args:
        settings: `control` (descriptor), `parent` (process id of the worker), `layers` (kernel layers wanted),
            `guarded` (whether the language layer is on).
    """
    control = socket.socket(fileno=settings["control"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    guarded = bool(settings["guarded"])
    _prepare(guarded)
    cage = jail.Jail(tuple(settings["layers"]))
    # What is frozen is not looked at by the collections that follow each sample, nor copied by them after a fork.
    gc.collect()
    gc.freeze()
    _tell(control, {"ready": True, "missing": cage.missing})
    os.dup2(os.open(os.devnull, os.O_RDWR), 2)
    children: set[int] = set()
    try:
        _serve_control(control, settings["parent"], cage, guarded, children)
    finally:
        for pid in children:
            _kill(pid)
        os._exit(0)


def _serve_control(control: socket.socket, parent: int, cage: jail.Jail, guarded: bool, children: set[int]) -> None:
    watched: list[Any] = [control]
    patience: float | None = None
    try:
        parent_fd = os.pidfd_open(parent)
        watched.append(parent_fd)
    except (AttributeError, OSError):
        # A copy of the worker's end may live on in a process that the worker forked, so its end alone tells nothing.
        patience = 1.0
    if os.getppid() != parent:
        return
    while True:
        ready, _, _ = select.select(watched, [], [], patience)
        if control not in ready:
            if ready or os.getppid() != parent:
                return
            continue
        request, descriptors = _hear(control)
        if request is None:
            return
        if request["op"] == "fork":
            (channel,) = descriptors
            pid = os.fork()
            if pid == 0:
                _child(channel, cage, request, guarded)
            os.close(channel)
            children.add(pid)
            _tell(control, {"pid": pid})
        elif request["op"] == "end":
            pid = request["pid"]
            children.discard(pid)
            _kill(pid)
            # Reaped here and nowhere else: until then the number cannot mean another process.
            _, status, usage = os.wait4(pid, 0)
            _tell(control, {"status": status, "max_rss": usage.ru_maxrss})


def _kill(pid: int) -> None:
    # A child is the leader of a session of its own, once it has come so far.
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(OSError):
            kill(pid, signal.SIGKILL)


def _tell(control: socket.socket, message: dict[str, Any]) -> None:
    control.sendall(frames.encode(message))


def _hear(control: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    data = bytearray()
    descriptors: list[int] = []
    wanted = frames.HEADER.size
    while len(data) < wanted:
        part, received, _, _ = socket.recv_fds(control, wanted - len(data), 1)
        descriptors.extend(received)
        if not part:
            return None, descriptors
        data += part
        if wanted == frames.HEADER.size == len(data):
            wanted += frames.HEADER.unpack(data)[0]
    return frames.decode(data[frames.HEADER.size :]), descriptors


def _prepare(guarded: bool) -> None:
    os.environ["TZ"] = "UTC"
    time.tzset()
    warnings.simplefilter("ignore")
    for name in _ENCODINGS.split():
        with contextlib.suppress(LookupError):
            codecs.lookup(name)
    for name in (_LATE_IMPORTS if guarded else f"{_LATE_IMPORTS} {_PROBE_IMPORTS}").split():
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    hashlib.new("md5", usedforsecurity=False)
    # Compiling and formatting once loads what they load late.
    compile('"\\N{BULLET}"', "warm", "exec")
    time.strptime("2024", "%Y")
    jail.address_space()
    reduce.caught = BaseException
    guards.prepare_process()


# -------------------------------------------------------------------------------------------------------------- child


def _child(channel: int, cage: jail.Jail, request: dict[str, Any], guarded: bool) -> NoReturn:
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        limits = jail.Limits(memory_mb=request["memory_mb"], cpu_s=request["cpu_s"])
        layers = tuple(request["layers"])
        try:
            cage.lock(channel, limits, layers=layers, descriptors=request.get("descriptors", 1))
        except OSError:
            os._exit(frames.EXIT_UNLOCKED)
        sys.stdin = None
        Child(guarded).serve()
        code = 0
    except MemoryError:
        code = frames.EXIT_MEMORY
    finally:
        os._exit(code)


class _Printed(io.TextIOBase):
    """Takes what a grader prints: the first `PRINT_CAP` characters, and a count of the rest."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._kept = 0
        self._dropped = 0

    def write(self, text: str, /) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        room = frames.PRINT_CAP - self._kept
        if room > 0:
            kept = str.__str__(text[:room])
            self._parts.append(kept)
            self._kept += len(kept)
        self._dropped += max(0, len(text) - max(room, 0))
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False

    def take(self) -> str:
        text = "".join(self._parts)
        if self._dropped:
            text += f"\n… ({self._dropped:,} more characters were printed)\n"
        return text


class CallRefused(RuntimeError):
    """A call that a grader may not make; raised inside the grader."""


class CallFailed(RuntimeError):
    """A call that got no usable answer; raised inside the grader."""


class AwaitableReply(dict[str, Any]):
    """What `ctx` gives to an `async` grader: a dict that may be awaited, and need not."""

    def __await__(self) -> Any:
        return self
        yield


class Ctx:
    """`ctx` as a grader sees it."""

    __slots__ = ("embeddings_create", "responses_create")

    def __init__(self, responses_create: Callable[..., Any], embeddings_create: Callable[..., Any]) -> None:
        self.responses_create = responses_create
        self.embeddings_create = embeddings_create

    def __repr__(self) -> str:
        return "<ctx: responses_create, embeddings_create>"


NO_ACCESS: Final = (
    'this grader has no access to models: set "contract": "model_backed" (and "model_access": "mka1") on the grader'
)


class Child:
    """Serves one program over the channel."""

    def __init__(self, guarded: bool) -> None:
        self._guarded = guarded
        self._source = ""
        self._filename = ""
        self._compiled: policy.Compiled | None = None
        self._nonce = ""
        self._spent = False
        self._failed_call: BaseException | None = None
        self._max_bytes = 0

    def serve(self) -> None:
        """Answer the worker until it closes the channel."""
        while True:
            message = _read()
            if message is None:
                return
            self._nonce = message["n"]
            program = message.get("program")
            if program is not None:
                self._source, self._filename = program["source"], program["filename"]
                self._compiled = None
            if message["op"] == "check":
                _write(self._check(message["functions"]))
            elif message["op"] == "probe":
                _write({"n": self._nonce, "open": probe(message["what"])})
            else:
                self._run(message)

    # ------------------------------------------------------------------------------------------------------- checks

    def _check(self, functions: list[str]) -> dict[str, Any]:
        problems: list[tuple[int, str]] = []
        try:
            self._compiled = policy.compile_grader(self._source, self._filename, guarded=self._guarded)
            if functions and not any(name in self._compiled.names for name in functions):
                problems.append((0, no_function(functions, self._compiled.names)))
        except policy.Refusal as refusal:
            problems = refusal.problems
        return {"n": self._nonce, "problems": [[line, reduce.cut(text, 1_000)] for line, text in problems[:50]]}

    # --------------------------------------------------------------------------------------------------------- runs

    def _run(self, message: dict[str, Any]) -> None:
        started = time.monotonic()
        printed = _Printed()
        sys.stdout = sys.stderr = printed
        self._failed_call = None
        self._max_bytes = message["max_bytes"]
        reply: dict[str, Any]
        try:
            reply = self._outcome(message, printed)
            reply["printed"] = printed.take()
            reply["took"] = time.monotonic() - started
            if self._spent:
                reply["spent"] = True
            frame = frames.encode(reply)
        except MemoryError:
            frame = self._memory_frame()
        except BaseException:  # noqa: BLE001 - a hostile object may raise anything, anywhere; the worker must hear of it
            frame = frames.encode({"n": self._nonce, "status": "crashed"})
        if len(frame) > message["max_bytes"]:
            frame = frames.encode(
                {"n": self._nonce, "status": "too_large", "size": len(frame), "printed": printed.take()}
            )
        reply = {}
        _send(frame)

    def _memory_frame(self) -> bytes:
        body = b'{"n":"%s","status":"memory"}' % self._nonce.encode()
        return frames.HEADER.pack(len(body)) + body

    def _outcome(self, message: dict[str, Any], printed: _Printed) -> dict[str, Any]:
        namespace = guards.Namespace(printed, message["seed"], guarded=self._guarded)
        try:
            value = self._call_grader(message, namespace)
            return {"n": self._nonce, "status": "returned", "value": reduce.reduce_result(value, message["shape"])}
        except MemoryError:
            raise
        except policy.Refusal as refusal:
            line, text = refusal.problems[0]
            error = {"type": "SyntaxError", "message": f"{self._filename}:{line}: {text}", "traceback": []}
            return {"n": self._nonce, "status": "raised", "error": error}
        except BaseException as raised:  # noqa: BLE001 - SystemExit and KeyboardInterrupt of a grader are its result too
            return {
                "n": self._nonce,
                "status": "raised",
                "error": describe(raised, self._source, self._filename),
                "uncaught_call": raised is self._failed_call,
            }
        finally:
            value = self._failed_call = None
            survives = namespace.close()
            # What the grader left in cycles ends now, in its own time, not in that of a later sample.
            _collect()
            self._spent = survives()

    def _call_grader(self, message: dict[str, Any], namespace: guards.Namespace) -> Any:
        if self._compiled is None:
            self._compiled = policy.compile_grader(self._source, self._filename, guarded=self._guarded)
        exec(self._compiled.code, namespace.globals)
        name = message["function"]
        try:
            function = namespace.globals[name]
        except KeyError:
            raise NameError(f"the grader does not bind {name!r} at its top level") from None
        arguments = message["args"]
        takes = self._compiled.names.get(name)
        if takes is None:
            takes = positional(function)
        if message["ctx"] is not None and takes > len(arguments):
            arguments.append(self._ctx(message["ctx"], _is_async(function)))
        return awaited(function(*arguments))

    # ------------------------------------------------------------------------------------------------------- models

    def _ctx(self, access: bool, awaitable: bool) -> Ctx:
        def responses_create(model: str = "auto", **fields: Any) -> Any:
            return self._call("responses_create", {"model": model, **fields}, access, awaitable)

        def embeddings_create(model: str = "auto", **fields: Any) -> Any:
            return self._call("embeddings_create", {"model": model, **fields}, access, awaitable)

        return Ctx(responses_create, embeddings_create)

    def _call(self, method: str, fields: dict[str, Any], access: bool, awaitable: bool) -> Any:
        if not access:
            raise CallRefused(NO_ACCESS)
        exact = reduce.reduce_result(fields, "row")
        if exact["problem"] is not None:
            raise TypeError(f"ctx.{method}: {exact['problem']}")
        frame = frames.encode({"n": self._nonce, "call": method, "fields": exact["value"]})
        if len(frame) > self._max_bytes:
            raise TypeError(
                f"ctx.{method}: the arguments take {len(frame):,} bytes, more than the {self._max_bytes:,} allowed"
            )
        _send(frame)
        reply = _read()
        if reply is None:
            os._exit(0)
        if "refused" in reply:
            raise CallRefused(reply["refused"])
        if "failed" in reply:
            self._failed_call = CallFailed(reply["failed"])
            raise self._failed_call
        answer = reply["answer"]
        return AwaitableReply(answer) if awaitable else answer


def _collect() -> None:
    """Collect the garbage of a sample; all of it, though not always with a full collection, which costs 20 µs more."""
    global _oldest
    # What a sample made is young, unless a collection of Python's own has aged it meanwhile.
    if _GENERATIONS and gc.get_count()[2] == _oldest:
        gc.collect(1)
    else:
        gc.collect()
    _oldest = gc.get_count()[2]


# Later versions collect in increments, of which one promises nothing.
_GENERATIONS: Final = sys.version_info < (3, 14)
_oldest = -1


def describe(raised: BaseException, source: str, filename: str) -> dict[str, Any]:
    """Return an exception as type, message and the frames that belong to the grader's own file."""
    try:
        text = str.__str__(str(raised))
    except MemoryError:
        raise
    except BaseException as error:  # noqa: BLE001 - `__str__` is the grader's
        text = f"<its __str__ raised {reduce.type_name(error)}>"
    lines = source.splitlines()
    trace = []
    step = raised.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if code.co_filename == filename:
            line = step.tb_lineno or 0
            text_of_line = lines[line - 1].strip() if 0 < line <= len(lines) else ""
            trace.append({"file": filename, "line": line, "function": code.co_name[:100], "text": text_of_line[:200]})
        step = step.tb_next
    if len(trace) > frames.FRAMES_CAP:
        trace = trace[: frames.FRAMES_CAP // 2] + trace[-frames.FRAMES_CAP // 2 :]
    return {"type": reduce.type_name(raised), "message": reduce.cut(text, MESSAGE_CAP), "traceback": trace}


def no_function(functions: Sequence[str], names: Container[str] = ()) -> str:
    """Return the problem of a program that binds none of its functions.

    Args:
        functions: What it should bind.
        names: What it does bind; the function of another contract is pointed out.
    """
    text = f"no function {' or '.join(functions)}: define `def {functions[0]}(…)` at the top level of the file"
    twin, contract = _TWINS.get(functions[0], ("", ""))
    return f'{text}. There is {twin}, which goes with "contract": "{contract}".' if twin in names else text


def awaited(result: Any) -> Any:
    """Return what a function returned, or where it is `async`, what its coroutine returns."""
    return standins.drive(result) if type(result) is types.CoroutineType else result


def positional(function: Any) -> int:
    """Return how many positional arguments a callable is to be given at most; never asks the callable itself."""
    kind = type(function)
    if kind is types.FunctionType:
        code = function.__code__
        defaults = len(function.__defaults__ or ())
        return policy.positional(code.co_varnames[: code.co_argcount], defaults, bool(code.co_flags & 0x04))
    if kind is types.MethodType:
        return max(0, positional(function.__func__) - 1)
    if kind is functools.partial:
        return max(0, positional(function.func) - len(function.args))
    for base in kind.__mro__:
        call = vars(base).get("__call__")
        if type(call) is types.FunctionType:
            return max(0, positional(call) - 1)
    return 0


def _is_async(function: Any) -> bool:
    return type(function) is types.FunctionType and bool(function.__code__.co_flags & 0x80)


# ------------------------------------------------------------------------------------------------------------ channel


_readable: Final = select.poll()
_readable.register(jail.CHANNEL, select.POLLIN)


def _read() -> dict[str, Any] | None:
    # A process that sleeps in `read` on a socket is woken also when the other side takes what was written before.
    _readable.poll()
    # The worker waits for an answer to each frame, so what is read is one frame at most.
    data: bytes | bytearray = os.read(jail.CHANNEL, 1 << 16)
    header = frames.HEADER.size
    if len(data) < header or len(data) < header + frames.HEADER.unpack_from(data)[0]:
        data = bytearray(data)
        while len(data) < header or len(data) < header + frames.HEADER.unpack_from(data)[0]:
            part = os.read(jail.CHANNEL, 1 << 20)
            if not part:
                return None
            data += part
    # The worker is trusted; a message may be as deep as the rows are. It is ASCII.
    message: dict[str, Any] = _scan(str(memoryview(data)[header:], "ascii"), 0)[0]
    return message


_decoder: Any = json.JSONDecoder()
_scan: Final = _decoder.scan_once


def _write(message: dict[str, Any]) -> None:
    _send(frames.encode(message))


def _send(frame: bytes) -> None:
    sent = os.write(jail.CHANNEL, frame)
    while sent < len(frame):
        sent += os.write(jail.CHANNEL, memoryview(frame)[sent : sent + (1 << 20)])


# ------------------------------------------------------------------------------------------------------------- probes


def probe(what: str) -> list[str]:
    """Try what a layer must refuse, and return what was not refused.

    Args:
        what: `process`, `memory`, `landlock` or `seccomp`: the layer that is alone in this child.
    """
    return [name for name, attempt in _PROBES[what] if _succeeds(attempt)]


def _succeeds(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except (OSError, MemoryError, RuntimeError):
        return False
    return True


def _probe_open() -> None:
    # Room for one descriptor, so that what refuses is the layer and not the limit.
    os.close(os.open("/", os.O_RDONLY))


def _probe_connect() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        connection.settimeout(1)
        try:
            connection.connect(("127.0.0.1", 9))
        except (ConnectionRefusedError, TimeoutError):
            # It was allowed to try.
            return


def _probe_fork() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _probe_descriptors() -> None:
    for descriptor in (*range(jail.CHANNEL + 1, 64),):
        try:
            os.fstat(descriptor)
        except OSError:
            continue
        return
    raise OSError("no other descriptor is open")


def _probe_environment() -> None:
    if set(os.environ) - {"PYTHONHASHSEED", "TZ", "LC_CTYPE"}:
        return
    raise OSError("the environment is empty")


def _probe_memory() -> None:
    bytearray(1 << 30)


def _probe_signal() -> None:
    os.kill(os.getppid(), 0)


_PROBES: Final[dict[str, tuple[tuple[str, Callable[[], None]], ...]]] = {
    "process": (("inherited descriptors", _probe_descriptors), ("environment", _probe_environment)),
    "memory": (("allocate beyond the limit", _probe_memory),),
    "landlock": (("open a directory", _probe_open),),
    "seccomp": (
        ("open a directory", _probe_open),
        ("open a socket", _probe_connect),
        ("fork", _probe_fork),
        ("signal the parent", _probe_signal),
    ),
}
