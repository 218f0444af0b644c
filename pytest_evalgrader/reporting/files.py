"""What `--evals-output` holds: `samples.jsonl` and `run.json`; and the spool that keeps records out of memory."""

from __future__ import annotations

import io
import json
import math
import os
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

SAMPLES = "samples.jsonl"
RUN = "run.json"
_ENCODE = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


class RunWriter:
    """Writes the records of a run as they arrive, and puts them in order at its end.

    With an output folder the spool is `samples.jsonl` itself, so that a run that is killed leaves every finished
    sample; without one it is a temporary file. Appending and reading are safe from several threads.

    Args:
        folder: Where to write, made where it is missing; None writes nothing that stays.

    Raises:
        OSError: The folder cannot be made or written.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._end = 0
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            # An earlier run's summary goes first: it must never stand beside this run's samples.
            for name in (RUN, SAMPLES, f"{RUN}.tmp", f"{SAMPLES}.tmp"):
                (folder / name).unlink(missing_ok=True)
        # Unbuffered: one system call for each record, as each lets another thread take over.
        self._spool: Any = (
            tempfile.TemporaryFile(prefix="evalgrader-", buffering=0)  # noqa: SIM115
            if folder is None
            else open(folder / SAMPLES, "w+b", buffering=0)  # noqa: SIM115
        )
        self._reader = io.BufferedReader(self._spool)

    def append(self, line: str) -> int:
        """Write a record and hand it to the operating system at once.

        Args:
            line: One line of ASCII JSON, without a line feed.

        Returns:
            The offset in bytes under which `read` finds it.

        Raises:
            ValueError: The text is more than one line, or not ASCII.
            OSError: The disk is full or gone; what was written of the line is taken back.
        """
        if "\n" in line or not line.isascii():
            raise ValueError("a record must be one line of ASCII")
        rest = memoryview(line.encode("ascii") + b"\n")
        with self._lock:
            offset = end = self._end
            try:
                while rest:
                    written = os.pwrite(self._spool.fileno(), rest, end)
                    rest, end = rest[written:], end + written
            except OSError:
                os.ftruncate(self._spool.fileno(), offset)
                raise
            self._end = end
            return offset

    def read(self, offset: int, size: int | None = None) -> str:
        """Return the line that `append` wrote at this offset, without its line feed.

        Args:
            offset: As `append` returned it.
            size: Characters of the line, where they are known.
        """
        with self._lock:
            self._reader.seek(offset)
            found = self._reader.readline() if size is None else self._reader.read(size)
        return found.decode("ascii").rstrip("\n")

    def finish(self, order: Iterable[int], updates: Mapping[int, Mapping[str, Any]] | None = None) -> None:
        """Put `samples.jsonl` in order, a line for each sample, in one step; nothing without an output folder.

        Args:
            order: Offsets of the records that count, in the plan's order; others (earlier attempts) are left out.
            updates: What batch graders changed, by offset: `scores` are merged, other keys replaced.

        Raises:
            OSError: The file cannot be written; the spool stays as it is.
        """
        if self.folder is None:
            return
        found = updates or {}
        temporary = self.folder / f"{SAMPLES}.tmp"
        try:
            with open(temporary, "wb") as out:
                for offset in order:
                    line = self.read(offset)
                    if offset in found:
                        line = _ENCODE(finite(merged(json.loads(line), found[offset])))
                    out.write(line.encode("ascii") + b"\n")
                out.flush()
                os.fsync(out.fileno())
            os.replace(temporary, self.folder / SAMPLES)
        finally:
            temporary.unlink(missing_ok=True)

    def write_run(self, run: Mapping[str, Any]) -> None:
        """Write `run.json` in one step, as strict JSON; nothing without an output folder.

        Args:
            run: The run; a number that is not finite is written as null.

        Raises:
            OSError: The file cannot be written; an earlier one stays as it is.
        """
        if self.folder is None:
            return
        temporary = self.folder / f"{RUN}.tmp"
        try:
            with open(temporary, "w", encoding="ascii") as out:
                json.dump(finite(run), out, ensure_ascii=True, allow_nan=False, indent=2)
                out.write("\n")
                out.flush()
                os.fsync(out.fileno())
            os.replace(temporary, self.folder / RUN)
        finally:
            temporary.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the spool; a temporary one is gone then."""
        self._reader.close()


def merged(record: dict[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with a batch grader's update: scores merge, other keys replace."""
    scores = {**(record.get("scores") or {}), **(update.get("scores") or {})}
    return {**record, **update, "scores": scores}


def finite(value: Any) -> Any:
    """Return a JSON value with null for every number that JSON does not know."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(part) for part in value]
    return value


def read_samples(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a run, of half a run too: a last line that was cut off is left out.

    Args:
        path: The output folder, or its `samples.jsonl`.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A line before the last is no record; names file and line.
    """
    file = path / SAMPLES if path.is_dir() else path
    with open(file, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError:
                if not line.endswith(b"\n"):
                    return
                raise ValueError(f"{file}:{number}: this line is no JSON; is it a samples.jsonl?") from None
            if not isinstance(record, dict) or record.get("object") != "eval.sample":
                raise ValueError(f"{file}:{number}: this line is no eval.sample; is it a samples.jsonl?")
            yield record


def read_run(path: Path) -> dict[str, Any] | None:
    """Return the `run.json` of an output folder; None where the run has not ended, or is no folder.

    Raises:
        ValueError: The file is no JSON object.
    """
    file = path / RUN
    if not file.is_file():
        return None
    try:
        run = json.loads(file.read_bytes())
    except ValueError:
        raise ValueError(f"{file}: not JSON; was it written by evalgrader?") from None
    if not isinstance(run, dict):
        raise ValueError(f"{file}: not a JSON object; was it written by evalgrader?")
    return run
