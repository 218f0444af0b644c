"""Length-framed JSON messages between the worker and a child. Standard library only: both sides import it."""

from __future__ import annotations

import json
import math
import struct
from typing import Any, Final, NoReturn

HEADER: Final = struct.Struct(">I")
# A message nested deeper than this is no message of ours: `reduce` cuts earlier, with room for the envelope.
MAX_DEPTH: Final = 160

LAYERS: Final = ("language", "process", "memory", "landlock", "seccomp")
"""Every layer of the sandbox, outermost last."""
PRINT_CAP: Final = 64 * 1024
"""Characters kept of what a grader prints for one sample."""
FRAMES_CAP: Final = 30
"""Frames kept of a traceback."""
EXIT_MEMORY: Final = 77
"""Exit status of a child that could not even say that it has no memory left."""
EXIT_UNLOCKED: Final = 78
"""Exit status of a child that could not lock itself."""

_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False, check_circular=False, separators=(",", ":")).encode


class FrameError(ValueError):
    """What came over the channel is not a message."""


def encode(message: dict[str, Any]) -> bytes:
    """Return a message as one frame: four bytes of length, big-endian, then ASCII JSON.

    Args:
        message: Builtins only, every number finite.

    Raises:
        ValueError: A number is not finite, or the message is 4 GiB or more.
    """
    body = _encode(message).encode("ascii")
    try:
        return HEADER.pack(len(body)) + body
    except struct.error as error:
        raise ValueError(f"a message of {len(body):,} bytes cannot be sent") from error


def decode(body: bytes | bytearray) -> dict[str, Any]:
    """Read the JSON of one frame without trusting it.

    Args:
        body: The bytes after the header.

    Returns:
        The message; every number in it is finite, and it is at most `MAX_DEPTH` deep.

    Raises:
        FrameError: It is anything else than a JSON object of that kind.
    """
    try:
        text = body.decode("ascii")
        message, end = _scan(text, 0)
    except FrameError:
        raise
    except (ValueError, RecursionError, MemoryError, StopIteration) as error:
        raise FrameError(f"not JSON: {type(error).__name__}") from error
    if end != len(text):
        raise FrameError("something follows the JSON")
    if type(message) is not dict:
        raise FrameError("not an object")
    # Counting brackets settles nearly every message at the speed of C.
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and not _is_shallow(message):
        raise FrameError("nested too deep")
    return message


def _is_shallow(message: dict[str, Any]) -> bool:
    level: list[Any] = [message]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for container in level
            for inner in (container.values() if type(container) is dict else container)
            if type(inner) in (dict, list)
        ]
        if not level:
            return True
    return False


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise FrameError("a number is not finite")
    return number


def _no_constant(name: str) -> NoReturn:
    raise FrameError(f"{name} is not JSON")


# What `decode` does, but for blanks around the value: there are none.
_decoder: Any = json.JSONDecoder(parse_float=_finite, parse_constant=_no_constant)
_scan = _decoder.scan_once
