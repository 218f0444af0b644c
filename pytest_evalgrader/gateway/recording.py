"""Recordings: the calls of a suite in a file beside it, to be answered again without a model.

A recording is JSON Lines, one call a line, keys and lines in a fixed order, so that it diffs well. While a run calls,
each call goes to a journal beside the recording (`….jsonl.journal`) as it ends; the end of the run merges the journal
into the recording. A journal that a killed run left behind counts as part of the recording. Only one process writes:
the one that holds the lock on the journal.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

from ..errors import CallError

CallsMode = Literal["live", "replay", "fill", "refresh"]

FORMAT = 1
_NEAREST_AMONG = 500
_SHOWN = 60


class Caller(NamedTuple):
    """The sample that makes a call.

    Args:
        task_id: Its task.
        sample_id: Its id; empty for a batch grader.
        model: The candidate model.
        epoch: From 1.
    """

    task_id: str
    sample_id: str
    model: str
    epoch: int


class _Key(NamedTuple):
    digest: str
    epoch: int
    nth: int


@dataclass(slots=True)
class Entry:
    """A recorded call.

    Args:
        request: `{"api", "model", "body"}` as asked, before anything is adapted to a provider; no key, no header.
        response: The JSON that was answered.
        caller: Whose call it was.
        nth: From 1; the how-manieth such request of the caller.
        notes: What was adapted to get the answer.
        digest: `request_digest(request)`.
    """

    request: dict[str, Any]
    response: Any
    caller: Caller
    nth: int
    notes: list[str] = field(default_factory=list)
    digest: str = ""

    def __post_init__(self) -> None:
        self.digest = self.digest or request_digest(self.request)

    @property
    def key(self) -> _Key:
        """What a request is looked up by."""
        return _Key(self.digest, self.caller.epoch, self.nth)

    def to_dict(self) -> dict[str, Any]:
        """Return builtins, as a line of the file holds them."""
        data: dict[str, Any] = {
            "format": FORMAT,
            "task_id": self.caller.task_id,
            "sample_id": self.caller.sample_id,
            "model": self.caller.model,
            "epoch": self.caller.epoch,
            "nth": self.nth,
            "request": self.request,
            "response": self.response,
        }
        if self.notes:
            data["notes"] = self.notes
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Entry:
        """Read what `to_dict` returned.

        Raises:
            ValueError: A field is missing or of the wrong type.
        """
        try:
            caller = Caller(data["task_id"], data["sample_id"], data["model"], data["epoch"])
            nth, request = data["nth"], data["request"]
            sound = all(isinstance(text, str) for text in caller[:3]) and isinstance(request["body"], dict)
            sound = sound and isinstance(request["api"], str) and isinstance(request["model"], str)
            if not sound or not isinstance(caller.epoch, int) or not isinstance(nth, int):
                raise TypeError
            return cls(request, data["response"], caller, nth, list(data.get("notes", ())))
        except (KeyError, TypeError):
            raise ValueError("a field is missing or of the wrong type") from None

    def order(self) -> tuple[Any, ...]:
        """What the lines of a file are sorted by."""
        caller = self.caller
        kind = {"endpoint": 2, "embeddings": 1}.get(self.request["api"], 0)
        return (
            caller.task_id,
            _natural(caller.sample_id),
            caller.sample_id,
            caller.epoch,
            caller.model,
            kind,
            self.request["model"],
            self.digest,
            self.nth,
        )


def request_digest(request: Mapping[str, Any]) -> str:
    """Hash a request so that equal requests have equal hashes.

    The order of keys does not matter, nor whether a whole number is written as 1 or 1.0.
    """
    text = json.dumps(_canonical(request), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


class Recording:
    """The recorded calls of one suite, in memory.

    Args:
        path: The file, for messages.
        entries: In the order of the file; of two for the same call the later counts.
        warnings: What could not be read, with file and line.
    """

    def __init__(self, path: Path, entries: Iterable[Entry] = (), warnings: Iterable[str] = ()) -> None:
        self.path = path
        self.warnings = list(warnings)
        self._by_key: dict[_Key, dict[Caller, Entry]] = {}
        self._samples: dict[tuple[str, str], list[Entry]] = {}
        for entry in entries:
            self.add(entry)

    def __iter__(self) -> Iterator[Entry]:
        for by_caller in self._by_key.values():
            yield from by_caller.values()

    def __len__(self) -> int:
        return sum(map(len, self._by_key.values()))

    def add(self, entry: Entry) -> None:
        """Add a call, in place of an earlier one of the same caller."""
        self._by_key.setdefault(entry.key, {})[entry.caller] = entry
        self._samples = {}

    def discard_key_of(self, entry: Entry) -> None:
        """Forget every recorded answer to the request of an entry."""
        self._by_key.pop(entry.key, None)

    def find(self, digest: str, caller: Caller, nth: int) -> Entry | None:
        """Look a call up.

        Args:
            digest: `request_digest` of the request.
            caller: Who asks. Its own answer wins; else any that the same request got, so that rows can be inserted
                and renamed.
            nth: From 1.

        Returns:
            The entry, or None.
        """
        by_caller = self._by_key.get(_Key(digest, caller.epoch, nth))
        if not by_caller:
            return None
        return by_caller.get(caller) or next(iter(by_caller.values()))

    def explain_missing(self, request: Mapping[str, Any], caller: Caller, nth: int) -> str:
        """Say that a request is not recorded, and what the nearest recorded one is.

        Args:
            request: What was asked.
            caller: Who asked.
            nth: From 1.

        Returns:
            A message of a few lines at most.
        """
        rest = "Replay never calls a model; record with --evals-calls=fill."
        if self.warnings:
            count = f"{len(self.warnings)} lines" if len(self.warnings) > 1 else "a line"
            rest = f"{count} of the recording could not be read ({self.warnings[0]}). {rest}"
        if not self._by_key:
            there = "is empty" if self.path.exists() else "does not exist"
            return f"no recorded response for this request: {self.path.name} {there}. {rest}"
        digest = request_digest(request)
        same = [key for key in self._by_key if key.digest == digest]
        if same:
            epochs = sorted({key.epoch for key in same})
            if caller.epoch not in epochs:
                told = f"it is recorded for epoch {_listed(epochs)}, not for epoch {caller.epoch}"
            else:
                most = max(key.nth for key in same if key.epoch == caller.epoch)
                told = f"it is recorded {_times(most)} in a sample, and this one asks it {_times(nth)}"
            return f"no recorded response for this request: {told}. {rest}"
        differences = self._nearest(request, caller)
        if not differences:
            return f"no recorded response for this request, nor for any of its kind, in {self.path.name}. {rest}"
        return f"no recorded response for this request. The nearest differs in {'; '.join(differences)}. {rest}"

    def _of_sample(self) -> dict[tuple[str, str], list[Entry]]:
        if not self._samples:
            samples: dict[tuple[str, str], list[Entry]] = {}
            for entry in self:
                samples.setdefault((entry.caller.task_id, entry.caller.sample_id), []).append(entry)
            self._samples = samples
        return self._samples

    def _nearest(self, request: Mapping[str, Any], caller: Caller) -> list[str]:
        asked = _flat(request)
        best: tuple[float, dict[str, Any]] | None = None

        def is_comparable(entry: Entry) -> bool:
            # Requests of the two text APIs have much in common, others only with their own kind.
            apis = {entry.request["api"], request["api"]}
            return len(apis) == 1 or not apis & {"embeddings", "endpoint"}

        # The sample's own requests tell most; the rest is looked through within bounds, as every sample may ask.
        own = filter(is_comparable, self._of_sample().get((caller.task_id, caller.sample_id), ()))
        for entry in list(own) or itertools.islice(filter(is_comparable, self), _NEAREST_AMONG):
            recorded = _flat(entry.request)
            distance = sum(
                _distance(asked.get(key, _ABSENT), recorded.get(key, _ABSENT)) for key in {*asked, *recorded}
            )
            if best is None or distance < best[0]:
                best = (distance, recorded)
        if best is None:
            return []
        recorded = best[1]
        told = []
        for key in [*asked, *(key for key in recorded if key not in asked)]:
            old, new = recorded.get(key, _ABSENT), asked.get(key, _ABSENT)
            if _distance(old, new):
                shown_old, shown_new = _shown(old, new)
                told.append(f"{key} (recorded {shown_old}, asked {shown_new})")
        return told if len(told) <= 6 else [*told[:6], f"{len(told) - 6} more"]


def load_recording(path: Path, *, without_run: str | None = None) -> Recording:
    """Read a recording and the journal that a killed run left beside it.

    Args:
        path: The recording; it need not exist.
        without_run: Id of a run whose journalled calls are left out: the run that is going on.

    Returns:
        Every call that can be read; lines that cannot are told in its `warnings`.

    Raises:
        CallError: The file is of another format, or cannot be opened.
    """
    recording = Recording(path)
    for file in (path, journal_of(path)):
        for entry, run in _read(file, recording.warnings):
            if run is None or run != without_run:
                recording.add(entry)
    return recording


def journal_of(path: Path) -> Path:
    """Return where the calls of a run are kept until they are merged."""
    return path.with_name(path.name + ".journal")


def recording_path(suite: Path) -> Path:
    """Return where the recording of a suite file is."""
    return suite.parent / "recordings" / f"{suite.stem}.jsonl"


class RecordingStore:
    """Writes the recordings of a run: the only writer, in the controller (or the only) process.

    Args:
        mode: `fill` keeps what is there; `refresh` replaces every answer to a request that it asked anew.
        run_id: Marks the run's lines in journals.
    """

    def __init__(self, mode: CallsMode, run_id: str) -> None:
        self._mode = mode
        self._run_id = run_id
        self._journals: dict[str, IO[str]] = {}

    def claim(self, path: str) -> None:
        """Make sure that nobody else writes a recording, and that it can be written.

        Raises:
            CallError: Another run writes it, it is of another format, or it cannot be written.
        """
        if path not in self._journals:
            self._journals[path] = self._open(Path(path))

    def append(self, path: str, entry: dict[str, Any]) -> None:
        """Journal a finished call; it survives the end of this process.

        Raises:
            CallError: It cannot be written.
        """
        self.claim(path)
        try:
            line = _line({**entry, "run": self._run_id})
        except (ValueError, RecursionError) as error:
            raise CallError(f"the call cannot be recorded: {error}", "RecordingError") from None
        try:
            self._journals[path].write(line)
            self._journals[path].flush()
        except OSError as error:
            raise CallError(f"cannot write {journal_of(Path(path)).name}: {error}", "RecordingError") from None

    def finish(self) -> list[str]:
        """Merge the journals into the recordings and give them free.

        Returns:
            Warnings: what could not be read or written. A journal that could not be merged stays and is read by the
            next run.
        """
        warnings: list[str] = []
        for path, journal in self._journals.items():
            try:
                warnings += self._merge(Path(path))
            except (OSError, CallError) as error:
                warnings.append(
                    f"{Path(path).name}: not updated: {error}; its journal is kept and counts as part of it"
                )
            finally:
                journal.close()
        self._journals.clear()
        return warnings

    def _open(self, path: Path) -> IO[str]:
        load_recording(path)
        journal = journal_of(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            while True:
                file = open(journal, "a+", encoding="ascii", newline="\n", opener=_no_link)  # noqa: SIM115
                try:
                    _lock(file)
                    # A run that ended in between has removed the file that was opened here.
                    if os.path.exists(journal) and os.path.samestat(os.fstat(file.fileno()), os.stat(journal)):
                        break
                except BaseException:
                    file.close()
                    raise
                file.close()
            if file.tell() and not _ends_line(journal):
                file.write("\n")
                file.flush()
        except BlockingIOError:
            raise CallError(
                f"another pytest run is writing the recording {path.name} at this moment. Let it end first, or use "
                "--evals-calls=replay or live here.",
                "RecordingLocked",
            ) from None
        except OSError as error:
            raise CallError(f"the recording {path.name} cannot be written: {error}", "RecordingError") from None
        return file

    def _merge(self, path: Path) -> list[str]:
        journal = journal_of(path)
        warnings: list[str] = []
        recording = Recording(path, (entry for entry, _ in _read(path, warnings)), warnings)
        fresh: Recording = Recording(path)
        for entry, run in _read(journal, warnings):
            if self._mode == "refresh" and run == self._run_id:
                fresh.add(entry)
            else:
                recording.add(entry)
        for entry in fresh:
            recording.discard_key_of(entry)
        for entry in fresh:
            recording.add(entry)
        if os.path.getsize(journal):
            temporary = path.with_name(f".{path.name}.tmp")
            temporary.unlink(missing_ok=True)  # also a link that a suite brought along
            with open(temporary, "x", encoding="ascii", newline="\n") as file:
                for entry in sorted(recording, key=Entry.order):
                    try:
                        line = _line(entry.to_dict())
                    except (ValueError, RecursionError) as error:
                        # Only a line that was edited: what a run journals was written before.
                        told = f"task {entry.caller.task_id}, sample {entry.caller.sample_id}: {error}"
                        warnings.append(f"{path.name}: {told}; the call is left out")
                    else:
                        file.write(line)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        journal.unlink()
        with contextlib.suppress(OSError):
            path.parent.rmdir()
        return warnings


def _read(path: Path, warnings: list[str]) -> Iterator[tuple[Entry, str | None]]:
    try:
        file = open(path, "rb")  # noqa: SIM115
    except FileNotFoundError:
        return
    except OSError as error:
        raise CallError(f"the recording {path.name} cannot be read: {error}", "RecordingError") from None
    with file:
        for number, raw in enumerate(file, 1):
            if not raw.strip():
                continue
            where = f"{path.name}:{number}"
            try:
                data = json.loads(raw, parse_constant=_refuse_constant)
            except (ValueError, RecursionError):
                what = "a git conflict marker" if raw.startswith((b"<<<<<<<", b"=======", b">>>>>>>")) else "not JSON"
                warnings.append(f"{where}: {what} (cut off or edited); the line is left out")
                continue
            if not isinstance(data, dict) or data.get("format") != FORMAT:
                raise _wrong_format(where, data)
            try:
                entry = Entry.from_dict(data)
            except ValueError as error:
                warnings.append(f"{where}: {error}; the line is left out")
                continue
            run = data.get("run")
            yield entry, run if isinstance(run, str) else None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _wrong_format(where: str, data: object) -> CallError:
    found = data.get("format") if isinstance(data, dict) else None
    if isinstance(found, int) and not isinstance(found, bool) and found > FORMAT:
        told = f"format {found} is newer than the {FORMAT} that this version reads. Update pytest-evalgrader."
    else:
        stated = "no format" if found is None else f"format {found!r}"
        told = (
            f"the line states {stated}; this version reads format {FORMAT}. Move the file away and record again with "
            "--evals-calls=fill."
        )
    return CallError(f"{where}: not a recording of this version: {told}", "RecordingFormat")


def _no_link(path: str, flags: int) -> int:
    """Open a file, but not what a link of its name leads to: a suite may bring links along."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def _lock(file: IO[str]) -> None:
    try:
        import fcntl
    except ImportError:  # not a POSIX system: runs are not kept apart there
        return
    fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


def _ends_line(path: Path) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _line(data: Mapping[str, Any]) -> str:
    return json.dumps(data, sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(", ", ": ")) + "\n"


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _canonical(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_canonical(inner) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _natural(text: str) -> tuple[tuple[int, int | str], ...]:
    parts = re.findall(r"[0-9]{1,18}|[^0-9]+", text)
    return tuple((0, int(part)) if part[0] in "0123456789" else (1, part) for part in parts)


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


_ABSENT = _Absent()


def _flat(value: Any, place: str = "") -> dict[str, Any]:
    """Spread a request into paths; the body's own keys come without `body.`."""
    if isinstance(value, Mapping):
        pairs = [(f"{place}.{key}" if place else str(key), inner) for key, inner in value.items()]
        if not place:
            # The body names the model without its provider; `model` tells more.
            body = {key: inner for key, inner in value.get("body", {}).items() if key != "model"}
            pairs = [("api", value.get("api")), ("model", value.get("model")), *body.items()]
    elif isinstance(value, list):
        pairs = [(f"{place}[{index}]", inner) for index, inner in enumerate(value)]
    else:
        return {place: value}
    out: dict[str, Any] = {}
    for key, inner in pairs:
        out |= _flat(inner, key) if inner not in ({}, []) else {key: inner}
    return out


def _distance(a: Any, b: Any) -> float:
    if type(a) is type(b) is str and a != b:
        same = _common(a, b)
        return 0.05 + 0.9 * (1 - sum(same) / max(len(a), len(b)))
    return float(a != b)


def _common(a: str, b: str) -> tuple[int, int]:
    """Lengths of the common start and of the common end after it."""
    shorter = min(len(a), len(b))
    head = next((at for at in range(shorter) if a[at] != b[at]), shorter)
    most = shorter - head
    tail = next((at for at in range(most) if a[-1 - at] != b[-1 - at]), most)
    return head, tail


def _shown(old: Any, new: Any) -> tuple[str, str]:
    if isinstance(old, str) and isinstance(new, str):
        start = max(0, _common(old, new)[0] - _SHOWN // 3)
        return _excerpt(old, start), _excerpt(new, start)
    return tuple(  # type: ignore[return-value]
        _excerpt(v, 0) if isinstance(v, str) else repr(v) if v is _ABSENT else _cut(json.dumps(v)) for v in (old, new)
    )


def _excerpt(text: str, start: int) -> str:
    piece = text[start : start + _SHOWN]
    quoted = json.dumps(piece, ensure_ascii=False)
    return ("…" if start else "") + quoted + ("…" if start + _SHOWN < len(text) else "")


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:8])) + (", …" if len(numbers) > 8 else "")


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
