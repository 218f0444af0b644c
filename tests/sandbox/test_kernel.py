"""What the process and kernel layers refuse, with the language layer switched off: plain Python in a locked child.

Each probe runs outside first, in a Python of its own: what is refused there too proves nothing, and says so.
"""
# ruff: noqa: E501 - one line for each probe

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_evalgrader.sandbox import host
from pytest_evalgrader.sandbox.host import Program, Sandbox, SandboxError

PREAMBLE = """
import os, sys, ctypes, mmap, resource, select, signal, socket, subprocess, threading

libc = ctypes.CDLL(None, use_errno=True)

def call(number, *arguments):
    result = libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

def at(p):
    return os.path.join(p["dir"], "file")
"""

# Name → the body of `probe(p)`, which raises where it is refused.
PROBES: dict[str, str] = {
    "open_for_reading": "open(at(p)).close()",
    "open_for_writing": "open(at(p) + '.new', 'w').close()",
    "append": "open(at(p), 'a').close()",
    "stat": "os.stat(at(p))",
    "list_folder": "os.listdir(p['dir'])",
    "make_folder": "os.mkdir(at(p) + '.folder')",
    "remove": "open_ = os.unlink(p['victim'])",
    "rename": "os.rename(p['moved'], p['moved'] + '.2')",
    "symlink": "os.symlink('/etc', at(p) + '.link')",
    "truncate": "os.truncate(at(p), 0)",
    "chmod": "os.chmod(at(p), 0o600)",
    "change_folder": "os.chdir(p['dir'])",
    "working_folder": "os.getcwd()",
    "read_environment": "open('/proc/self/environ').close()",
    "read_parent_environment": "open(f'/proc/{p[\"host\"]}/environ').close()",
    "read_own_memory": "open('/proc/self/mem', 'rb').close()",
    "read_parent_memory": "open(f'/proc/{p[\"host\"]}/mem', 'rb').close()",
    "read_maps": "open('/proc/self/maps').close()",
    "device": "open('/dev/null').close()",
    "connect": "socket.create_connection(('127.0.0.1', p['port']), 2).close()",
    "bind": "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.close()",
    "udp": "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'x', ('127.0.0.1', p['port'])); s.close()",
    "resolve": "socket.getaddrinfo('localhost', 80)",
    "unix_socket": "s = socket.socket(socket.AF_UNIX); s.connect(p['unix']); s.close()",
    "abstract_unix_socket": "s = socket.socket(socket.AF_UNIX); s.connect('\\0' + p['abstract']); s.close()",
    "socket_pair": "[s.close() for s in socket.socketpair()]",
    "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()",
    "pipe": "[os.close(d) for d in os.pipe()]",
    "memory_file": "os.close(os.memfd_create('x'))",
    "duplicate": "os.close(os.dup(0))",
    "event_descriptor": "os.close(os.eventfd(0))",
    "fork": "pid = os.fork()\nif not pid: os._exit(0)\nos.waitpid(pid, 0)",
    "spawn": "os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)",
    "subprocess": "subprocess.run(['/bin/true'], check=True)",
    "system": "assert libc.system(b'true') == 0",
    "thread": "t = threading.Thread(target=int); t.start(); t.join()",
    "signal_parent": "os.kill(p['host'], 0)",
    "signal_group": "os.killpg(0, 0)",
    "signal_init": "os.kill(1, 0)",
    "signal_handler": "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
    "pidfd": "os.close(os.pidfd_open(p['host']))",
    "ptrace": "call(101, ctypes.c_long(0), 0, 0, 0)",
    "read_process_memory": "call(310, ctypes.c_int(os.getpid()), None, ctypes.c_ulong(0), None, ctypes.c_ulong(0), ctypes.c_ulong(0))",
    "unshare": "call(272, ctypes.c_int(0x20000))",
    "mount": "call(165, b'none', p['dir'].encode(), b'tmpfs', ctypes.c_ulong(0), None); libc.umount(p['dir'].encode())",
    "io_uring": "os.close(call(425, ctypes.c_uint(1), ctypes.create_string_buffer(120)))",
    "bpf": "call(321, ctypes.c_int(0), ctypes.create_string_buffer((2).to_bytes(4, 'little') + (4).to_bytes(4, 'little') * 3 + bytes(100)), ctypes.c_uint(72))",
    "userfaultfd": "os.close(call(323, ctypes.c_int(1)))",
    "perf_event": "os.close(call(298, ctypes.create_string_buffer((1).to_bytes(4, 'little') + (128).to_bytes(4, 'little') + bytes(120)), 0, -1, -1, ctypes.c_ulong(0)))",
    "keyring": "call(250, ctypes.c_int(0), ctypes.c_int(-3), ctypes.c_int(1))",
    "shared_memory": "call(29, ctypes.c_int(0), ctypes.c_size_t(4096), ctypes.c_int(0o1600))",
    "message_queue": "call(68, ctypes.c_int(0), ctypes.c_int(0o1600))",
    "executable_memory": "mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC).close()",
    "make_executable": "m = mmap.mmap(-1, 4096)\nif libc.mprotect(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(m)) & ~4095), 4096, 7): raise OSError(ctypes.get_errno(), 'mprotect')",
    "raise_limits": "resource.setrlimit(resource.RLIMIT_CORE, resource.getrlimit(resource.RLIMIT_CORE))",
    "change_process": "assert libc.prctl(15, b'name') == 0",
    "undo_no_new_privileges": "call(317, ctypes.c_uint(2), ctypes.c_uint(0), ctypes.byref(ctypes.c_uint(0x7fff0000)))",
    "change_user": "os.setuid(os.getuid())",
    "priority": "os.nice(0)",
    "affinity": "os.sched_setaffinity(0, os.sched_getaffinity(0))",
    "load_library": "ctypes.CDLL('libBrokenLocale.so.1')",
    "import_from_disk": "import wave",
    "log_to_stderr": "os.write(2, b'')",
}  # fmt: skip
X86_64_ONLY = {
    "ptrace", "read_process_memory", "unshare", "mount", "bpf", "userfaultfd", "perf_event", "keyring", "shared_memory",
    "message_queue", "undo_no_new_privileges",
}  # fmt: skip


def source_of(body: str) -> str:
    indented = "\n".join(f"    {line}" for line in body.splitlines())
    return f"""{PREAMBLE}
def probe(p):
{indented}

def grade(sample, item):
    try:
        probe(sample)
    except Exception as error:
        return {{"scores": {{"refused": 1}}, "judge": {{"error": repr(error)}}}}
    return {{"scores": {{"refused": 0}}}}
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("k")
    for name in ("file", "victim", "moved"):
        (folder / name).write_text("x")
    abstract = f"evalgrader-{os.getpid()}"
    with contextlib.ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        unix, hidden = (stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2))
        unix.bind(str(folder / "u"))
        hidden.bind(f"\0{abstract}")
        unix.listen()
        hidden.listen()
        yield {
            "dir": str(folder),
            "victim": str(folder / "victim"),
            "moved": str(folder / "moved"),
            "port": tcp.getsockname()[1],
            "unix": str(folder / "u"),
            "abstract": abstract,
            "host": os.getpid(),
        }


def run_outside(body: str, places: dict[str, Any]) -> dict[str, Any]:
    script = source_of(body) + "\nimport json\nprint(json.dumps(grade(json.loads(sys.argv[1]), {})))\n"
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(places)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")
@pytest.mark.parametrize("name", PROBES)
def test_refused(unguarded: Sandbox, places: dict[str, Any], name: str) -> None:
    for layer in ("landlock", "seccomp"):
        if layer not in unguarded.layers:
            pytest.skip(f"this machine has no {layer}: {dict(unguarded.missing)[layer]}")
    if name in X86_64_ONLY and os.uname().machine != "x86_64":
        pytest.skip("the number of this system call is written for x86-64")
    program = Program(source_of(PROBES[name]), f"{name}.py", ("grade",))
    result = unguarded.run(program, "grade", [places, {}], shape="score", timeout_s=10)
    unguarded.retire(program)
    assert result.status == "returned", result
    assert result.value["scores"] == {"refused": 1.0}, result
    outside = run_outside(PROBES[name], places)
    if outside["scores"]["refused"]:
        pytest.skip(f"refused outside the sandbox too, so this proves nothing here: {outside['judge']['error']}")


def test_the_control_runs_most_probes() -> None:
    """A machine on which nothing works outside would pass every probe for the wrong reason."""
    assert run_outside("open('/proc/self/environ').close()", {})["scores"] == {"refused": 0}


LANDLOCK_ALONE = ("open_for_reading", "open_for_writing", "list_folder", "make_folder", "symlink", "connect", "bind")


@pytest.mark.skipif(sys.platform != "linux", reason="Landlock is Linux's")
@pytest.mark.parametrize("layer", ["landlock", "seccomp"])
def test_each_kernel_layer_was_probed_alone(layer: str) -> None:
    """A layer is named only after a child with nothing but that layer was refused what the layer refuses."""
    zygote = host._Zygote(guarded=True)
    zygote.wait()
    try:
        if layer in zygote.missing:
            pytest.skip(zygote.missing[layer])
        open_: dict[str, list[str]] = {}
        for layers in ((), (layer,)):
            child = zygote.fork(memory_mb=256, cpu_s=60, layers=layers, descriptors=16)
            reply = child.ask({"op": "probe", "what": layer}, host.time.monotonic() + 20, 1 << 16)
            open_["with" if layers else "without"] = reply["open"]
            zygote.end(child)
        assert open_["without"], "the control: without the layer the probes succeed"
        assert open_["with"] == []
    finally:
        zygote.close()


def test_nothing_is_inherited(unguarded: Sandbox, tmp_path: Path) -> None:
    """No descriptor but the channel, no environment, no argument, no standard stream."""
    source = """
import os, sys
def grade(sample, item):
    found = []
    for descriptor in range(1, 100):
        try:
            os.write(descriptor, b"junk")
            found.append(descriptor)
        except OSError:
            pass
    return {"scores": {"n": len(found)}, "judge": {"found": found, "env": sorted(os.environ), "stdin": repr(sys.stdin)}}
"""
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        program = Program(source, "g.py", ("grade",))
        with Sandbox(language=False) as sandbox:
            result = sandbox.run(program, "grade", [{}, {}], shape="score", timeout_s=5)
    judge = result.value["judge"]
    assert (judge["found"], judge["stdin"]) == ([], "None")
    # What Python sets itself on the way up.
    assert set(judge["env"]) <= {"LC_CTYPE", "PYTHONHASHSEED", "TZ"}
    assert (tmp_path / "open").read_text() == ""


def test_the_zygote_was_executed_with_an_empty_environment(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an environment held at execution stays readable in /proc, so clearing it afterwards would not do."""
    assert sandbox.layers
    zygote = sandbox._zygote
    assert zygote is not None
    environment = Path(f"/proc/{zygote._process.pid}/environ")
    if not environment.exists():
        pytest.skip("no /proc here")
    assert environment.read_bytes() == b"PYTHONHASHSEED=0\0"


def test_strict_names_what_is_missing_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    probed = host._Zygote.wait

    def without_landlock(self: host._Zygote) -> None:
        probed(self)
        self.missing["landlock"] = "this kernel has no Landlock"

    monkeypatch.setattr(host._Zygote, "wait", without_landlock)
    with (
        Sandbox("strict") as sandbox,
        pytest.raises(SandboxError, match=r"strict.*landlock: this kernel has no Landlock.*auto"),
    ):
        sandbox.layers  # noqa: B018 - asking is what starts it
    with Sandbox("auto") as sandbox:
        assert "landlock" not in sandbox.layers
        assert dict(sandbox.missing) == {"landlock": "this kernel has no Landlock"}


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")
def test_strict_runs_where_all_layers_hold(sandbox: Sandbox) -> None:
    if sandbox.missing:
        pytest.skip(f"missing here: {sandbox.missing}")
    with Sandbox("strict") as strict:
        assert strict.layers == ("language", "process", "memory", "landlock", "seccomp")


def test_a_core_is_never_dumped(unguarded: Sandbox) -> None:
    source = "import resource\ndef grade(s, i):\n    return float(sum(resource.getrlimit(resource.RLIMIT_CORE)))\n"
    result = unguarded.run(Program(source, "g.py"), "grade", [{}, {}], shape="score", timeout_s=5)
    # Either the limit is zero, or asking for it is refused.
    assert result.value.get("number") == 0.0 or result.error is not None
