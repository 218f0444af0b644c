"""The process and kernel layers: what a child may still do once it is locked. Standard library and pyseccomp only.

Everything here is set after the fork and before any source of a grader is seen, and cannot be undone.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import signal
import sys
from dataclasses import dataclass
from typing import Any, Final

CHANNEL: Final = 0
"""The descriptor of a locked child's channel; it is the only one, and the limit leaves room for no other."""

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_SECCOMP: Final = 22
_PR_SET_NO_NEW_PRIVS: Final = 38
_SECCOMP_MODE_FILTER: Final = 2
# The same numbers on every architecture that Linux unified its tables for.
_LANDLOCK_CREATE_RULESET: Final = 444
_LANDLOCK_RESTRICT_SELF: Final = 446
_LANDLOCK_CREATE_RULESET_VERSION: Final = 1
# include/uapi/linux/landlock.h: how many rights of each kind the ABI versions know.
_LANDLOCK_FS_BITS: Final = {1: 13, 2: 14, 3: 15, 4: 15}
_LANDLOCK_FS_BITS_LATEST: Final = 16
_PROT_EXEC: Final = 4

# What CPython needs to compute. Everything else gives EPERM, so that a stray call is an exception of that grader.
_ALLOWED_CALLS: Final = (
    "brk",
    "clock_getres",
    "clock_gettime",
    "clock_nanosleep",
    "exit",
    "exit_group",
    "futex",
    "futex_time64",
    "getcpu",
    "getpid",
    "getrandom",
    "gettid",
    "gettimeofday",
    "madvise",
    "membarrier",
    "mremap",
    "munmap",
    "nanosleep",
    "poll",
    "ppoll",
    "restart_syscall",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sched_getaffinity",
    "sched_yield",
    "sigreturn",
    "time",
)
_CHANNEL_CALLS: Final = ("read", "write")


@dataclass(slots=True)
class Limits:
    """The limits of one child.

    Args:
        memory_mb: Mebibytes that it may add to the address space that it starts with.
        cpu_s: Seconds of processor time over its whole life; a backstop, the parent's clock comes first.
    """

    memory_mb: int
    cpu_s: int


class Jail:
    """What this machine can lock a child with, found out once in the zygote.

    Args:
        wanted: The kernel layers to set (`landlock`, `seccomp`).
    """

    def __init__(self, wanted: tuple[str, ...]) -> None:
        self.missing: dict[str, str] = {}
        self._libc = _libc()
        self._landlock_abi = 0
        self._filter: bytes | None = None
        if "landlock" in wanted:
            try:
                self._landlock_abi = self._find_landlock()
            except OSError as error:
                self.missing["landlock"] = str(error.strerror or error)
        if "seccomp" in wanted:
            try:
                self._filter = _seccomp_filter()
            except (ImportError, RuntimeError, OSError, AttributeError) as error:
                self.missing["seccomp"] = f"{error} (it needs Linux and libseccomp)"

    def lock(self, channel: int, limits: Limits, *, layers: tuple[str, ...], descriptors: int = 1) -> None:
        """Lock this process for good.

        Args:
            channel: The descriptor to keep; it becomes `CHANNEL`, all others are closed.
            limits: The limits to set.
            layers: The kernel layers to set, of those that the machine has; fewer only to probe one alone.
            descriptors: How many descriptors it may have open; more than the channel only to probe.

        Raises:
            OSError: A layer could not be set; the process must end.
        """
        parent = os.getppid()
        os.setsid()
        if self._libc is not None and sys.platform == "linux":
            self._prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
        if channel != CHANNEL:
            os.dup2(channel, CHANNEL)
        os.closerange(CHANNEL + 1, 4096)
        _close_others()
        _set_limits(limits)
        if self._libc is not None and sys.platform == "linux":
            self._prctl(_PR_SET_NO_NEW_PRIVS, 1)
        if "landlock" in layers and self._landlock_abi:
            self._restrict()
        _set_limit(resource.RLIMIT_NOFILE, descriptors)
        if "seccomp" in layers and self._filter is not None:
            self._set_filter(self._filter)

    def _prctl(self, option: int, argument: int, more: Any = None) -> None:
        zero = ctypes.c_ulong(0)
        value = zero if more is None else more
        if self._libc.prctl(option, ctypes.c_ulong(argument), value, zero, zero):
            raise OSError(ctypes.get_errno(), f"prctl({option})")

    def _find_landlock(self) -> int:
        if sys.platform != "linux" or self._libc is None:
            raise OSError(errno.ENOSYS, "Landlock is a feature of Linux")
        abi: int = self._libc.syscall(
            ctypes.c_long(_LANDLOCK_CREATE_RULESET),
            None,
            ctypes.c_size_t(0),
            ctypes.c_uint(_LANDLOCK_CREATE_RULESET_VERSION),
        )
        if abi > 0:
            return abi
        reason = {
            errno.ENOSYS: "this kernel has no Landlock (5.13 or later, built with it)",
            errno.EOPNOTSUPP: "Landlock is built into this kernel and switched off (boot with lsm=landlock,…)",
            errno.EPERM: "the container's seccomp profile refuses the Landlock calls",
        }.get(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        raise OSError(ctypes.get_errno(), reason)

    def _restrict(self) -> None:
        abi = self._landlock_abi
        rights = (1 << _LANDLOCK_FS_BITS.get(abi, _LANDLOCK_FS_BITS_LATEST)) - 1
        network = 0b11 if abi >= 4 else 0
        scopes = 0b11 if abi >= 6 else 0
        attributes = (ctypes.c_uint64 * 3)(rights, network, scopes)
        size = 24 if abi >= 6 else 16 if abi >= 4 else 8
        ruleset = self._libc.syscall(
            ctypes.c_long(_LANDLOCK_CREATE_RULESET), ctypes.byref(attributes), ctypes.c_size_t(size), ctypes.c_uint(0)
        )
        if ruleset < 0:
            raise OSError(ctypes.get_errno(), "landlock_create_ruleset")
        # No rule is added: what is handled and not allowed is denied, everywhere.
        failed = self._libc.syscall(ctypes.c_long(_LANDLOCK_RESTRICT_SELF), ctypes.c_int(ruleset), ctypes.c_uint(0))
        os.close(ruleset)
        if failed:
            raise OSError(ctypes.get_errno(), "landlock_restrict_self")

    def _set_filter(self, program: bytes) -> None:
        class Program(ctypes.Structure):
            _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))

        argument = Program(len(program) // 8, program)
        self._prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(argument))


def _libc() -> Any:
    try:
        return ctypes.CDLL(None, use_errno=True)
    except OSError:
        return None


def _seccomp_filter() -> bytes:
    """Return the filter as the kernel takes it. Compiled once: libseccomp needs a millisecond for it."""
    if sys.platform != "linux":
        raise ImportError("seccomp is a feature of Linux")
    import pyseccomp

    rules = pyseccomp.SyscallFilter(pyseccomp.ERRNO(errno.EPERM))
    # A process that calls the kernel as another architecture is killed: its numbers mean other calls.
    rules.set_attr(pyseccomp.Attr.ACT_BADARCH, pyseccomp.KILL_PROCESS)
    with contextlib.suppress(OSError, ValueError, AttributeError):
        # A binary tree instead of a chain: needs libseccomp 2.5.
        rules.set_attr(pyseccomp.Attr.CTL_OPTIMIZE, 2)
    for name in _ALLOWED_CALLS:
        with contextlib.suppress(ValueError, OSError):
            # Not every architecture has every call.
            rules.add_rule(pyseccomp.ALLOW, name)
    for name in _CHANNEL_CALLS:
        rules.add_rule(pyseccomp.ALLOW, name, pyseccomp.Arg(0, pyseccomp.EQ, CHANNEL))
    for name in ("mmap", "mprotect"):
        # Memory, but never memory to run code from.
        rules.add_rule(pyseccomp.ALLOW, name, pyseccomp.Arg(2, pyseccomp.MASKED_EQ, _PROT_EXEC, 0))
    with os.fdopen(os.memfd_create("filter"), "w+b") as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()


def _set_limit(which: int, value: int) -> None:
    with contextlib.suppress(ValueError, OSError):
        # Lower than asked for stays as it is, and macOS has no limit of the address space: `memory` is probed for.
        resource.setrlimit(which, (value, value))


def _set_limits(limits: Limits) -> None:
    _set_limit(resource.RLIMIT_CORE, 0)
    _set_limit(resource.RLIMIT_FSIZE, 0)
    _set_limit(resource.RLIMIT_CPU, limits.cpu_s)
    with contextlib.suppress(AttributeError):
        # Binds everybody but root, whom seccomp binds.
        _set_limit(resource.RLIMIT_NPROC, 0)
    _set_limit(resource.RLIMIT_AS, address_space() + limits.memory_mb * 1024 * 1024)


_address_space = 0


def address_space() -> int:
    """Return the bytes of address space of this process; measured before it was locked, the same for every fork."""
    global _address_space
    if not _address_space:
        try:
            with open("/proc/self/statm") as file:
                _address_space = int(file.read().split()[0]) * resource.getpagesize()
        except OSError:
            _address_space = 256 * 1024 * 1024
    return _address_space


def _close_others() -> None:
    # closerange above is one call where the kernel has close_range; a descriptor beyond it can only be a leak.
    highest = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if highest > 4096:
        os.closerange(4096, min(highest, 1 << 20))
