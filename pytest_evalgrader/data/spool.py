"""The bytes of a large dataset, in a file of our own instead of in memory."""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections.abc import Iterator
from typing import IO

SPOOL_BYTES = 16 * 1024 * 1024
"""Datasets from this size on are spooled: every process of a run holds the rows, and only reads one at a time."""

_CHUNK = 1024 * 1024


class Spool:
    """A copy of a file that nobody else can change; its slices are read when they are asked for, from any thread.

    Args:
        source: What to copy, from where it stands to its end.

    Raises:
        OSError: There is no room for the copy.
    """

    def __init__(self, source: IO[bytes]) -> None:
        self._file = tempfile.TemporaryFile(prefix="evalgrader-rows-")  # noqa: SIM115 - closed with the spool
        self._lock = threading.Lock()
        digest = hashlib.sha256()
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
            self._file.write(chunk)
        self._file.flush()
        self._size = self._file.tell()
        self.digest = "sha256:" + digest.hexdigest()

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        start, end, _ = part.indices(self._size)
        if hasattr(os, "pread"):
            found = bytearray()
            while start + len(found) < end:
                more = os.pread(self._file.fileno(), end - start - len(found), start + len(found))
                if not more:
                    break
                found += more
            return bytes(found)
        with self._lock:
            self._file.seek(start)
            return self._file.read(max(0, end - start))

    def lines(self, start: int) -> Iterator[tuple[int, bytes]]:
        """Yield where each line begins, and the line without its line feed; not while another thread reads."""
        self._file.seek(start)
        for line in self._file:
            yield start, line.removesuffix(b"\n")
            start += len(line)
