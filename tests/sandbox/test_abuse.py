"""Abuse stays alone: the right reason in time, the next run in a sound child, no process left."""
# ruff: noqa: E501 - one line for each abuse

from __future__ import annotations

import os
import resource
import socket
import threading
import time
from pathlib import Path

import pytest

from pytest_evalgrader.errors import CallError
from pytest_evalgrader.sandbox import frames, host
from pytest_evalgrader.sandbox.host import Program, RunResult, Sandbox, SandboxError, StartedRun

GOOD = Program("def grade(sample, item):\n    return 1.0\n", "good.py", ("grade",))


def program(body: str, name: str = "g.py") -> Program:
    indented = "\n".join(f"    {line}" for line in body.splitlines())
    return Program(f"def grade(sample, item, ctx=None):\n{indented}\n", name, ("grade",))


def run(
    sandbox: Sandbox, wanted: Program, *, timeout_s: float = 5, memory_mb: int = 128, sample: object = None
) -> RunResult:
    return sandbox.run(
        wanted, "grade", [sample, {}], shape="score", timeout_s=timeout_s, memory_mb=memory_mb, max_result_bytes=1 << 20
    )


# Name → body, the status, and a word of the exception where it raised.
ABUSE: dict[str, tuple[str, str, str]] = {
    "loop": ("while True:\n    pass", "timeout", ""),
    "loop_that_catches_everything": (
        "while True:\n    try:\n        while True:\n            x = 1\n    except BaseException:\n        pass", "timeout", ""),
    "loop_in_c": ("return sum(range(10**12))", "timeout", ""),
    "regex_without_end": ("import re\nreturn re.match('(a|aa)+$', 'a' * 60 + 'b')", "timeout", ""),
    "sleep": ("import time\ntime.sleep(600)", "timeout", ""),
    "loop_after_return": ("class D(dict):\n    def __repr__(self):\n        while True:\n            pass\n    __str__ = __repr__\nclass O:\n    __repr__ = D.__repr__\nreturn {'scores': {'a': 1}, 'judge': {'o': O()}}", "timeout", ""),
    "loop_in_comparison": ("class K(str):\n    def __eq__(self, other):\n        while True:\n            pass\n    __hash__ = str.__hash__\nreturn {K('scores'): 1, 'scores': 2}", "timeout", ""),
    "awaiting_for_ever": ("import asyncio\nclass A:\n    def __await__(self):\n        while True:\n            yield\nasync def f():\n    await A()\nasyncio.run(f())", "timeout", ""),
    "generator_that_never_ends": ("import itertools\nreturn max(itertools.count())", "timeout", ""),
    "one_allocation": ("x = 'a' * 10**10", "memory", ""),
    "format_width": ("return f'{1:>9999999999}'", "memory", ""),
    "endless_join": ("from itertools import repeat\nreturn ''.join(repeat('a' * 1000))", "memory", ""),
    "many_allocations": ("x = []\nwhile True:\n    x.append('a' * 10_000 + str(len(x)))", "memory", ""),
    "memory_in_result": ("class O:\n    def __repr__(self): return 'a' * 10**10\nreturn {'scores': {'a': 1}, 'judge': {'o': O()}}", "memory", ""),
    "print_of_2_gb": ("print('a' * (2 * 10**9))", "memory", ""),
    "power_tower": ("return 9 ** 9 ** 9", "timeout", ""),
    "result_of_100_mb": ("return {'scores': {'a': 1}, 'judge': {'x': ['y' * 1_000_000] * 20}}", "too_large", ""),
    "recursion": ("def f(): return f()\nreturn f()", "raised", "RecursionError"),
    "recursion_in_repr": ("class O:\n    def __repr__(self): return repr(self)\nreturn repr(O())", "raised", "RecursionError"),
    "int_of_a_huge_string": ("return int('9' * 1_000_000)", "raised", "ValueError"),
    "system_exit": ("raise SystemExit(0)", "raised", "SystemExit"),
    "sys_exit": ("import sys\nsys.exit(3)", "raised", "SystemExit"),
    "keyboard_interrupt": ("raise KeyboardInterrupt", "raised", "KeyboardInterrupt"),
    "generator_exit": ("raise GeneratorExit", "raised", "GeneratorExit"),
    "base_exception": ("class E(BaseException): pass\nraise E('mine')", "raised", "E"),
    "exception_that_cannot_be_shown": ("class E(Exception):\n    def __str__(self): raise SystemExit\nraise E()", "raised", "E"),
    "stop_iteration": ("raise StopIteration", "raised", "StopIteration"),
    "broken_str_of_huge_error": ("raise ValueError('x' * 10**7)", "raised", "ValueError"),
}  # fmt: skip


@pytest.mark.parametrize("name", ABUSE)
def test_abuse(sandbox: Sandbox, name: str) -> None:
    body, status, kind = ABUSE[name]
    timeout_s = 1.0 if status == "timeout" else 8.0
    abusive = program(body, f"{name}.py")
    assert sandbox.check(abusive) == []
    start = time.monotonic()
    result = run(sandbox, abusive, timeout_s=timeout_s)
    took = time.monotonic() - start
    assert result.status == status, result
    assert took < timeout_s + 2
    if kind:
        assert result.error is not None
        assert result.error["type"] == kind
        assert len(result.error["message"]) < 3_000
    assert run(sandbox, GOOD).value["number"] == 1.0
    sandbox.retire(abusive)


# With the language layer off, a grader can reach the process itself.
PROCESS_ABUSE: dict[str, tuple[str, str]] = {
    "os_exit": ("import os\nos._exit(0)", "crashed"),
    "os_exit_with_our_code": ("import os\nos._exit(1)", "crashed"),
    "segfault": ("import ctypes\nctypes.string_at(0)", "crashed"),
    "abort": ("import os\nos.abort()", "crashed"),
    "fork_bomb": ("import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        return 1.0", "returned"),
    "thread_bomb": ("import threading\nfor _ in range(10):\n    threading.Thread(target=int).start()", "raised"),
    "close_the_channel": ("import os\nos.close(0)", "raised"),
    "junk_on_the_channel": ("import os\nos.write(0, b'junk that is no frame')", "crashed"),
    "half_a_frame": ("import os\nos.write(0, (500).to_bytes(4, 'big') + b'{')\nwhile True:\n    pass", "timeout"),
    "huge_frame": ("import os\nos.write(0, (2**32 - 1).to_bytes(4, 'big'))", "crashed"),
    "empty_frame": ("import os\nos.write(0, bytes(4))", "crashed"),
    "deep_frame": ("import os\nb = b'[' * 100_000 + b']' * 100_000\nb = len(b).to_bytes(4, 'big') + b\nwhile b:\n    b = b[os.write(0, b):]", "crashed"),
    "nan_frame": ("import os\nb = b'{\"n\": NaN}'\nos.write(0, len(b).to_bytes(4, 'big') + b)", "crashed"),
    "infinite_number_frame": ("import os\nb = b'{\"n\": 1e999}'\nos.write(0, len(b).to_bytes(4, 'big') + b)", "crashed"),
    "frame_with_more": ("import os\nb = b'{} {}'\nos.write(0, len(b).to_bytes(4, 'big') + b)", "crashed"),
    "not_utf8_frame": ("import os\nb = b'\\xff\\xfe'\nos.write(0, len(b).to_bytes(4, 'big') + b)", "crashed"),
    "forged_reply": ("import os, json\nb = json.dumps({'n': 'guess', 'status': 'returned', 'value': {'kind': 'number', 'number': 1.0}}).encode()\nos.write(0, len(b).to_bytes(4, 'big') + b)", "crashed"),
    "ignored_signals": ("import signal\nfor s in range(1, 32):\n    try:\n        signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError):\n        pass\nwhile True:\n    pass", "timeout"),
    "raised_limits": ("import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))", "raised"),
}  # fmt: skip


@pytest.mark.parametrize("name", PROCESS_ABUSE)
def test_abuse_of_the_process(unguarded: Sandbox, name: str) -> None:
    if "seccomp" not in unguarded.layers:
        pytest.skip("without seccomp a plain Python may do some of this")
    body, status = PROCESS_ABUSE[name]
    abusive = program(body, f"{name}.py")
    result = run(unguarded, abusive, timeout_s=1.0 if status == "timeout" else 5)
    assert result.status == status, result
    assert run(unguarded, GOOD).value["number"] == 1.0
    unguarded.retire(abusive)


FORGED = {
    "score_of_text": {"kind": "number", "type": "float", "number": "much", "raw": 1, "scores": {}, "dropped": {}, "judge": None},
    "scores_of_text": {"kind": "mapping", "type": "dict", "number": None, "raw": None, "scores": {"a": "1"}, "dropped": {}, "judge": None},
    "bool_score": {"kind": "mapping", "type": "dict", "number": None, "raw": None, "scores": {"a": True}, "dropped": {}, "judge": None},
    "judge_of_list": {"kind": "mapping", "type": "dict", "number": None, "raw": None, "scores": {}, "dropped": {}, "judge": [1]},
    "nothing": {},
    "a_list": [1],
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_value_of_another_form_is_refused(name: str) -> None:
    with pytest.raises(frames.FrameError):
        host._result_of({"n": "x", "status": "returned", "value": FORGED[name]}, "score", None)


def test_a_reply_written_ahead_is_never_taken_for_the_next_one(unguarded: Sandbox) -> None:
    """A child that knows the form of a reply writes two: the first is an honest one, the second is for the next run."""
    body = (
        "import gc, os, json\n"
        "child = [o for o in gc.get_objects() if type(o).__name__ == 'Child']\n"
        "nonce = child[0]._nonce if child else ''\n"
        "value = {'kind': 'number', 'type': 'float', 'number': 0.5, 'raw': 0.5, 'scores': {}, 'dropped': {}, 'judge': None}\n"
        "b = json.dumps({'n': nonce, 'status': 'returned', 'value': value, 'printed': ''}).encode()\n"
        "os.write(0, (len(b).to_bytes(4, 'big') + b) * 2)\n"
        "return 0.25"
    )
    abusive = program(body)
    for _ in range(3):
        # It falsified its own score; the child is not used again, so the next reply is that of the next run.
        result = run(unguarded, abusive)
        assert result.status in ("returned", "crashed"), result
    assert not unguarded._idle or all(process.program != abusive for process in unguarded._idle)
    assert run(unguarded, GOOD).value["number"] == 1.0


def test_deep_and_cyclic_results_keep_the_score(sandbox: Sandbox) -> None:
    body = "x = []\nfor _ in range(100_000):\n    x = [x]\ny = []\ny.append(y)\nreturn {'scores': {'a': 1}, 'judge': {'x': x, 'y': y}}"
    result = run(sandbox, program(body))
    assert result.value["scores"] == {"a": 1.0}
    assert result.value["judge"]["y"] == ["<cycle>"]


def test_a_thread_left_behind_ends_with_the_child(unguarded: Sandbox) -> None:
    """Threads cannot be started at all; what is promised is that none outlives its child."""
    result = run(unguarded, program("import threading\nt = threading.Thread(target=print)\nt.start()\nreturn 1.0"))
    assert result.status == "raised"
    assert result.error is not None
    assert "thread" in result.error["message"]


def test_printing_without_end_is_capped(sandbox: Sandbox) -> None:
    start = time.monotonic()
    result = run(sandbox, program("for i in range(1000):\n    print('x' * 1_000_000)\nreturn 1.0"), timeout_s=20)
    assert result.value["number"] == 1.0
    assert 64 * 1024 <= len(result.printed) < 66 * 1024
    assert "more characters were printed" in result.printed
    assert time.monotonic() - start < 20


def test_printed_text_is_text(sandbox: Sandbox) -> None:
    body = "print('{\"score\": 1.0}')\nprint('é \\ud800', 1, sep='|')\nimport sys\nprint('err', file=sys.stderr)\nsys.stdout.write('w')\nreturn 0.5"
    result = run(sandbox, program(body))
    assert result.value["number"] == 0.5
    assert result.printed == '{"score": 1.0}\né \ud800|1\nerr\nw'


@pytest.mark.parametrize("objects", [0, 200_000])
def test_what_is_left_in_cycles_ends_with_its_own_sample(sandbox: Sandbox, objects: int) -> None:
    """However old Python's own collections have made it meanwhile."""
    body = (
        "def gen():\n    try:\n        yield\n    finally:\n        print('ended')\n"
        f"cycle = [gen()]\ncycle.append(cycle)\nnext(cycle[0])\nkept = [[i] for i in range({objects})]\nreturn 1.0"
    )
    own = program(body, "cycles.py")
    for _ in range(3):
        assert run(sandbox, own).printed == "ended\n"
    assert run(sandbox, own).printed == "ended\n"
    sandbox.retire(own)


def test_the_worker_does_not_grow(sandbox: Sandbox) -> None:
    abusive = program("return {'scores': {'a': 1}, 'judge': {'x': 'y' * 900_000}}")
    for _ in range(3):
        run(sandbox, abusive)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(20):
        run(sandbox, abusive)
        run(sandbox, program("print('z' * 10_000_000)\nreturn 'x' * 20_000_000"))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


def test_many_abuses_at_once_delay_nothing_else(sandbox: Sandbox) -> None:
    loop = program("while sample['i'] % 5 == 0:\n    pass\nreturn 1.0")
    results: dict[int, RunResult] = {}

    def work(first: int) -> None:
        for i in range(first, 20, 4):
            results[i] = run(sandbox, loop, timeout_s=1, sample={"i": i})

    start = time.monotonic()
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[i].status for i in range(20)] == ["timeout" if i % 5 == 0 else "returned" for i in range(20)]
    assert time.monotonic() - start < 30
    sandbox.retire(loop)


# -------------------------------------------------------------------------------------------------------- started runs


def start(sandbox: Sandbox, wanted: Program, *, timeout_s: float = 5) -> StartedRun:
    return sandbox.start(wanted, "grade", [{}, {}], shape="score", timeout_s=timeout_s, memory_mb=128)


def test_a_started_run_that_was_done_in_time_is_not_late(sandbox: Sandbox) -> None:
    started = start(sandbox, GOOD, timeout_s=0.5)
    time.sleep(0.7)
    result = started.result()
    assert (result.status, result.value["number"]) == ("returned", 1.0)


def test_a_large_result_that_waited_is_read_whole(sandbox: Sandbox) -> None:
    started = start(sandbox, program("return {'score': 1.0, 'judge': {'text': 'x' * 3_000_000}}"), timeout_s=0.5)
    time.sleep(0.7)
    result = started.result()
    assert result.status == "returned"
    assert len(result.value["judge"]["text"]) == 3_000_000


def test_a_started_run_that_never_ends_is_stopped_when_it_is_asked_for(sandbox: Sandbox) -> None:
    started = start(sandbox, program("while True:\n    pass"), timeout_s=0.2)
    time.sleep(0.4)
    assert started.result().status == "timeout"


def test_a_started_run_that_took_too_long_is_late_whenever_it_is_asked_for(sandbox: Sandbox) -> None:
    slow = program(
        "import datetime\nend = datetime.datetime.now() + datetime.timedelta(seconds=0.5)\n"
        "while datetime.datetime.now() < end:\n    pass\nreturn 1.0"
    )
    started = start(sandbox, slow, timeout_s=0.2)
    time.sleep(1)
    assert started.result().status == "timeout"
    assert run(sandbox, slow).status == "returned"


def test_a_stopped_clock_does_not_stop_the_time_out(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: now)
        assert start(sandbox, program("while True:\n    pass"), timeout_s=0.2).result().status == "timeout"


def test_large_texts_pass_whatever_time_out_sockets_have() -> None:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(5)
    try:
        with Sandbox() as sandbox:
            result = start(sandbox, program("return {'score': 1.0, 'judge': {'text': 'x' * 3_000_000}}")).result()
    finally:
        socket.setdefaulttimeout(before)
    assert result.status == "returned"


def test_a_call_that_was_asked_for_early_gives_no_more_time(sandbox: Sandbox) -> None:
    own = program("ctx.responses_create(input='q')\nreturn 1.0")
    started = sandbox.start(own, "grade", [{}, {}], shape="score", timeout_s=0.5, calls=Waiting(0.6, 0.0))
    time.sleep(0.2)
    assert started.result().status == "timeout"


def test_a_started_run_has_one_end(sandbox: Sandbox) -> None:
    started = start(sandbox, GOOD)
    assert started.result().status == "returned"
    with pytest.raises(RuntimeError, match="ended already"):
        started.result()
    started.cancel()


def test_closing_interrupts_a_started_run() -> None:
    with Sandbox() as sandbox:
        started = start(sandbox, program("while True:\n    pass"))
    assert started.result().status == "interrupted"


# ------------------------------------------------------------------------------------------------------------ processes


def processes_of(sandbox: Sandbox) -> list[int]:
    """The zygote and its children, by the kernel's own account."""
    zygote = sandbox._zygote
    assert zygote is not None
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(entry.name) == zygote._process.pid or int(fields[1]) == zygote._process.pid:
                found.append(int(entry.name))
    return found


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def gone(pids: list[int], within_s: float = 5) -> bool:
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if not any(alive(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="counts processes in /proc")


@needs_proc
def test_no_process_is_left() -> None:
    with Sandbox() as sandbox:
        for wanted in (GOOD, program("while True:\n    pass"), program("x = 'a' * 10**11")):
            run(sandbox, wanted, timeout_s=0.5)
        sandbox.check(program("import os"))
        children = processes_of(sandbox)
        assert len(children) == 2, "the zygote, and one warm child of GOOD"
        sandbox.retire(GOOD)
        assert len(processes_of(sandbox)) == 1
        run(sandbox, GOOD)
        children = processes_of(sandbox)
    assert gone(children)


@needs_proc
def test_a_cancelled_run_leaves_no_process() -> None:
    with Sandbox() as sandbox:
        sandbox.warm()
        started = start(sandbox, program("while True:\n    pass"))
        assert len(processes_of(sandbox)) == 2
        started.cancel()
        assert len(processes_of(sandbox)) == 1
        assert run(sandbox, GOOD).status == "returned"


@needs_proc
def test_a_started_run_survives_its_zygote() -> None:
    with Sandbox() as sandbox:
        started = start(sandbox, GOOD)
        children = processes_of(sandbox)
        assert sandbox._zygote is not None
        os.kill(sandbox._zygote._process.pid, 9)
        assert gone(children[1:])
        assert started.result().status == "returned"


def test_a_zygote_that_is_killed_again_and_again_is_no_fault_of_the_grader(monkeypatch: pytest.MonkeyPatch) -> None:
    post = StartedRun._post

    def post_and_kill(self: StartedRun) -> None:
        post(self)
        assert self._process is not None
        zygote = self._process.zygote._process
        zygote.kill()
        zygote.wait()

    monkeypatch.setattr(StartedRun, "_post", post_and_kill)
    with Sandbox() as sandbox, pytest.raises(SandboxError, match="ended from outside"):
        run(sandbox, program("while True:\n    pass"))


@needs_proc
@pytest.mark.parametrize("asked", ["run", "check"])
def test_a_zygote_that_is_killed_while_it_has_no_child_is_replaced(asked: str) -> None:
    with Sandbox() as sandbox:
        sandbox.warm()
        assert sandbox._zygote is not None
        zygote = sandbox._zygote._process
        zygote.kill()
        zygote.wait()
        if asked == "run":
            assert run(sandbox, GOOD).status == "returned"
        else:
            assert sandbox.check(GOOD) == []


@needs_proc
def test_nothing_survives_a_killed_worker(tmp_path: Path) -> None:
    script = """
import sys, threading, time
from pytest_evalgrader.sandbox.host import Sandbox, Program
sandbox = Sandbox()
loop = Program("def grade(s, i):\\n    while True: pass\\n", "g.py")
for _ in range(3):
    threading.Thread(target=lambda: sandbox.run(loop, "grade", [{}, {}], shape="score", timeout_s=600), daemon=True).start()
sandbox.run(Program("def grade(s, i):\\n    return 1.0\\n", "h.py"), "grade", [{}, {}], shape="score", timeout_s=600)
while len(sandbox._zygote.children) < 4: time.sleep(0.01)
print(sandbox._zygote._process.pid, *list(sandbox._zygote.children), flush=True)
time.sleep(600)
"""
    import subprocess
    import sys

    root = str(Path(host.__file__).resolve().parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": root}
    ) as worker:
        assert worker.stdout is not None
        pids = [int(word) for word in worker.stdout.readline().split()]
        assert len(pids) == 5
        assert all(map(alive, pids))
        worker.kill()
    assert gone(pids)


@needs_proc
def test_a_killed_zygote_takes_its_children_along_and_is_replaced() -> None:
    with Sandbox() as sandbox:
        assert run(sandbox, GOOD).status == "returned"
        children = processes_of(sandbox)
        assert sandbox._zygote is not None
        os.kill(sandbox._zygote._process.pid, 9)
        sandbox._zygote._process.wait()
        assert gone(children)
        assert run(sandbox, GOOD).status == "returned"
        assert run(sandbox, GOOD).status == "returned"


# ----------------------------------------------------------------------------------------------------------------- host


def test_a_warm_child_is_used_again_and_retired(sandbox: Sandbox) -> None:
    own = program("return 1.0", "warm.py")
    pids = set()
    for _ in range(3):
        run(sandbox, own)
        pids.add(next(process.pid for process in sandbox._idle if process.program == own))
    assert len(pids) == 1
    sandbox.retire(own)
    assert all(process.program != own for process in sandbox._idle)


def test_a_child_is_never_shared_between_programs(sandbox: Sandbox) -> None:
    one, two = program("return 1.0", "one.py"), program("return 2.0", "two.py")
    assert [run(sandbox, p).value["number"] for p in (one, two, one, two)] == [1.0, 2.0, 1.0, 2.0]
    by_pid = {process.pid: process.program for process in sandbox._idle}
    assert len(by_pid) == len(sandbox._idle)


def test_the_cap_of_children_makes_runs_wait() -> None:
    with Sandbox(max_children=2) as sandbox:
        slow = program("import time\ntime.sleep(0.3)\nreturn 1.0")
        results: list[str] = []
        threads = [threading.Thread(target=lambda: results.append(run(sandbox, slow).status)) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == ["returned"] * 5
        assert sandbox._count <= 2
        # Another program takes the place of an idle child.
        assert run(sandbox, GOOD).status == "returned"


def test_closing_interrupts_what_runs() -> None:
    sandbox = Sandbox()
    sandbox.warm()
    results: list[RunResult] = []
    thread = threading.Thread(
        target=lambda: results.append(run(sandbox, program("while True:\n    pass"), timeout_s=60))
    )
    thread.start()
    time.sleep(0.3)
    sandbox.close()
    thread.join(10)
    assert [result.status for result in results] == ["interrupted"]
    with pytest.raises(SandboxError, match="closed"):
        run(sandbox, GOOD)


def test_a_call_that_is_too_large_raises_in_the_grader(sandbox: Sandbox) -> None:
    def calls(method: str, fields: dict[str, object]) -> dict[str, object]:
        raise AssertionError("it was made")

    own = program("return ctx.responses_create(input='x' * 20_000_000)", "large.py")
    result = sandbox.run(own, "grade", [{}, {}], shape="score", timeout_s=20, calls=calls)
    assert result.status == "raised"
    assert result.error is not None
    assert result.error["message"].startswith("ctx.responses_create: the arguments take 20,000,")


def test_an_interrupt_ends_the_child_in_use(sandbox: Sandbox) -> None:
    def calls(method: str, fields: dict[str, object]) -> dict[str, object]:
        raise KeyboardInterrupt

    own = program("return ctx.responses_create(input='x')", "interrupt.py")
    with pytest.raises(KeyboardInterrupt):
        sandbox.run(own, "grade", [{}, {}], shape="score", timeout_s=5, calls=calls)
    assert all(process.program != own for process in sandbox._idle)


class Waiting:
    def __init__(self, wait_s: float, permit_s: float) -> None:
        self.waited_s = 0.0
        self._wait_s, self._permit_s = wait_s, permit_s

    def __call__(self, method: str, fields: dict[str, object]) -> dict[str, object]:
        time.sleep(self._wait_s)
        self.waited_s += self._permit_s
        return {"output_text": "ok"}


@pytest.mark.parametrize(("permit_s", "status"), [(0.6, "returned"), (0.0, "timeout")])
def test_waiting_for_a_permit_does_not_count(sandbox: Sandbox, permit_s: float, status: str) -> None:
    own = program("ctx.responses_create(input='x')\nreturn 1.0", "wait.py")
    result = sandbox.run(own, "grade", [{}, {}], shape="score", timeout_s=0.5, calls=Waiting(0.6, permit_s))
    assert result.status == status, result


def test_ctx(sandbox: Sandbox) -> None:
    asked: list[tuple[str, dict[str, object]]] = []

    def calls(method: str, fields: dict[str, object]) -> dict[str, object]:
        asked.append((method, fields))
        if fields.get("input") == "down":
            raise CallError("the provider is down", "Down")
        return {"output_text": "fine", "id": "r1"}

    own = Program(
        "async def grade(sample, item, ctx):\n"
        "    reply = await ctx.responses_create(input=sample, temperature=0)\n"
        "    vectors = ctx.embeddings_create(input=['a'])\n"
        "    return {'scores': {'a': 1}, 'judge': {'reply': reply, 'plain': type(vectors) is not str}}\n"
        "def caught(sample, item, ctx):\n"
        "    try:\n        ctx.responses_create(input='down')\n"
        "    except Exception as error:\n        return {'scores': {'a': 0}, 'judge': {'error': str(error)}}\n",
        "ctx.py",
    )
    result = sandbox.run(own, "grade", ["q", {}], shape="score", timeout_s=5, calls=calls)
    assert result.value["judge"]["reply"] == {"output_text": "fine", "id": "r1"}
    assert asked == [
        ("responses_create", {"model": "auto", "input": "q", "temperature": 0}),
        ("embeddings_create", {"model": "auto", "input": ["a"]}),
    ]
    down = sandbox.run(own, "grade", ["down", {}], shape="score", timeout_s=5, calls=calls)
    assert down.call_failed is not None
    assert down.call_failed.type_name == "Down"
    caught = sandbox.run(own, "caught", ["down", {}], shape="score", timeout_s=5, calls=calls)
    assert caught.call_failed is None
    assert caught.value["judge"] == {"error": "the provider is down"}
    refused = sandbox.run(own, "grade", ["q", {}], shape="score", timeout_s=5, calls=None)
    assert refused.error is not None
    assert "model_backed" in refused.error["message"]
    assert "model_access" in refused.error["message"]
    sandbox.retire(own)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def grade(s, i):\n    return 2", 2),
        ("def grade(s, i, ctx):\n    return 3 if ctx else 0", 3),
        ("def grade(s, i, ctx=None):\n    return 3 if ctx else 0", 3),
        ("def grade(s, i, limit=4):\n    return limit", 4),
        ("def grade(*a):\n    return len(a)", 3),
        ("grade = lambda s, i, ctx: 3 if ctx else 0", 3),
        ("class G:\n    def __call__(self, s, i, ctx): return 3 if ctx else 0\ngrade = G()", 3),
        ("from functools import partial\ndef f(n, s, i, ctx): return n if ctx else 0\ngrade = partial(f, 7)", 7),
        ("if True:\n    def grade(s, i): return 5", 5),
        ("grade, other = (lambda s, i: 6), 1", 6),
    ],
)
def test_ctx_is_given_to_functions_that_take_it(sandbox: Sandbox, source: str, expected: int) -> None:
    own = Program(source, "arity.py", ("grade",))
    assert sandbox.check(own) == []
    result = sandbox.run(own, "grade", [{}, {}], shape="score", timeout_s=5, calls=lambda method, fields: {})
    assert result.value.get("number") == expected, result
    sandbox.retire(own)


def test_a_fork_of_the_worker_leaves_the_sandbox_alone(sandbox: Sandbox) -> None:
    assert run(sandbox, GOOD).status == "returned"
    pid = os.fork()
    if pid == 0:
        try:
            sandbox.close()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert run(sandbox, GOOD).status == "returned"


def test_off_runs_in_this_process() -> None:
    source = "import os\ndef grade(sample, item):\n    return {'scores': {'pid': os.getpid()}}\ndef bad(sample, item):\n    return 1 / 0\n"
    with Sandbox("off") as sandbox:
        own = Program(source, "off.py", ("grade",))
        assert sandbox.layers == ()
        assert {layer for layer, _ in sandbox.missing} == set(frames.LAYERS)
        assert sandbox.check(own) == []
        assert sandbox.check(Program("x = (", "x.py"))[0].where == "x.py:1"
        assert "function grade" in sandbox.check(Program("x = 1", "x.py", ("grade",)))[0].message
        assert run(sandbox, own).value["scores"] == {"pid": float(os.getpid())}
        raised = sandbox.run(own, "bad", [{}, {}], shape="score", timeout_s=1)
        assert isinstance(raised.exception, ZeroDivisionError)
        assert raised.error is not None
        assert raised.error["traceback"] == [{"file": "off.py", "line": 5, "function": "bad", "text": "return 1 / 0"}]


def test_a_mode_that_is_none() -> None:
    with pytest.raises(ValueError, match="auto, strict, off"):
        Sandbox("on")  # type: ignore[arg-type]


def test_a_large_batch_passes_in_both_directions(sandbox: Sandbox) -> None:
    source = "def grade_batch(samples):\n    return {'samples': [{'sample_id': s['id'], 'judge': {'n': [s['text'][:9]]}} for s in samples]}\n"
    samples = [{"id": str(i), "text": "x" * 1000} for i in range(5_000)]
    result = sandbox.run(
        Program(source, "b.py"), "grade_batch", [samples], shape="batch", timeout_s=20, max_result_bytes=1 << 26
    )
    assert len(result.value["samples"]) == 5_000
