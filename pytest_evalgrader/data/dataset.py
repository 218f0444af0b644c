"""Rows of a dataset: read strictly, kept compact, handed out as fresh dicts."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, overload

from pytest_evalgrader.data.spool import SPOOL_BYTES, Spool
from pytest_evalgrader.errors import Problem, SuiteError
from pytest_evalgrader.suite.jsontext import MAX_DEPTH, MAX_DIGITS, too_deep
from pytest_evalgrader.suite.wording import describe, did_you_mean, quote

if TYPE_CHECKING:
    from pytest_evalgrader.suite.manifest import DatasetSpec

PROBLEM_LIMIT = 20
"""Bad lines of one file that are named; the rest is a count."""

_BOM = b"\xef\xbb\xbf"


class Rows(Sequence[dict[str, Any]]):
    """The rows of a dataset. Each access makes a fresh dict, so that nobody changes a row for another.

    What is kept is the text that was read and where each row stands in it: about 20 bytes a row beside the text, which
    is in a temporary file where it is large.

    Args:
        blob: The text, as UTF-8.
        spans: Start and end of each row in `blob`, one after the other.
        decode: Makes a row of its part of `blob`, which is known to be sound.
        columns: The top-level columns of all rows, in the order in which they first appear.
        label: Names a row by its index.
        digest: Hash of what was read.
    """

    __slots__ = ("_blob", "_decode", "_label", "_spans", "columns", "digest")

    def __init__(
        self,
        blob: bytes | Spool,
        spans: array[int],
        *,
        decode: Callable[[bytes], dict[str, Any]],
        columns: Sequence[str],
        label: Callable[[int], str],
        digest: str,
    ) -> None:
        self._blob = blob
        if isinstance(blob, bytes) and len(blob) >= SPOOL_BYTES:
            with contextlib.suppress(OSError):
                self._blob = Spool(io.BytesIO(blob))
        self._spans = spans
        self._decode = decode
        self._label = label
        self.columns: tuple[str, ...] = tuple(columns)
        self.digest = digest

    @classmethod
    def from_list(cls, rows: Iterable[Mapping[str, Any]], *, where: str) -> Rows:
        """Copy rows that are already in memory.

        Args:
            rows: Objects of plain JSON values.
            where: What holds them; row 3 is named `where[3]`.

        Raises:
            SuiteError: A row is not an object, or holds something that JSON cannot.
        """
        parts: list[bytes] = []
        spans = array("Q")
        columns: dict[str, None] = {}
        report = _Report(where)
        end = 0
        for index, row in enumerate(rows):
            try:
                plain = _plain(row, "")
                if not isinstance(plain, dict):
                    raise _RowError(f"a row must be an object, found {describe(plain)}.")
            except _RowError as error:
                report.add(f"{where}[{index}]", str(error))
                continue
            except RecursionError:
                report.add(f"{where}[{index}]", _TOO_DEEP)
                continue
            columns.update(dict.fromkeys(plain))
            part = json.dumps(plain).encode("ascii")
            parts.append(part)
            spans.extend((end, end + len(part)))
            end += len(part)
        report.close()
        blob = b"".join(parts)
        return cls(
            blob,
            spans,
            decode=json.loads,
            columns=tuple(columns),
            label=lambda index: f"{where}[{index}]",
            digest=_digest(blob),
        )

    def __len__(self) -> int:
        return len(self._spans) // 2

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if index < 0:
            raise IndexError(index)
        spans = self._spans
        return self._decode(self._blob[spans[2 * index] : spans[2 * index + 1]])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(self.__getitem__, range(len(self)))

    def where(self, index: int) -> str:
        """Name a row for a message, such as `data/d.jsonl:12`."""
        return self._label(index)


def load_rows(
    spec: DatasetSpec, *, resolve: Callable[[str], Path], rootdir: Path, where: str, base: Path | None = None
) -> Rows:
    """Load the rows of a dataset.

    Args:
        spec: What the suite says of the dataset.
        resolve: Finds a file of the suite inside the project; raises SuiteError.
        rootdir: The project; files are shown relative to it.
        where: The place in the suite, such as `suites/s.json: tasks[0].dataset`.
        base: The folder that the suite's paths are relative to; `rootdir` by default. Only local Hugging Face folders
            and patterns in `data_files` need it.

    Returns:
        The rows; at least one.

    Raises:
        SuiteError: The file is missing, outside the project, broken or empty. All bad lines are named together, up to
            20 of them.
    """
    if spec.rows is not None:
        rows = Rows.from_list(spec.rows, where=f"{where}.rows")
        shown = where
    elif spec.source == "huggingface":
        from pytest_evalgrader.data.huggingface import load_hub_rows

        rows = load_hub_rows(spec, resolve=resolve, rootdir=rootdir, base=base or rootdir, where=where)
        shown = where
    else:
        if spec.file_id is None:
            message = 'no rows; add "file_id" (a file), "rows" (a list), or "source": "huggingface" with "path".'
            raise SuiteError([Problem(where, message)])
        path = resolve(spec.file_id)
        shown = _shown_path(path, rootdir)
        kind = spec.format or _format_of(path, where)
        try:
            data = _read(path, spooled=kind == "jsonl")
        except OSError as error:
            raise SuiteError([Problem(shown, f"the dataset cannot be read: {error.strerror or error}.")]) from None
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise SuiteError([Problem(shown, "the file is UTF-16; a dataset must be UTF-8. Save it as UTF-8.")])
        rows = _read_csv(data, shown) if isinstance(data, bytes) and kind == "csv" else _read_jsonl(data, shown)
    if not len(rows):
        raise SuiteError([Problem(shown, "the dataset has no rows; an eval over nothing cannot pass.")])
    return rows


def sample_ids(rows: Rows, id_column: str | None) -> tuple[list[str], list[str]]:
    """Name the samples of a dataset by its rows.

    Ids are compared as text: `1` and `"1"` are the same.

    Args:
        rows: The rows.
        id_column: The column that the suite names, dots allowed; None takes `id` where every row has one and they
            differ, else the index of the row.

    Returns:
        An id for each row, all different, as they are written (they may hold any character); and warnings.

    Raises:
        SuiteError: `id_column` is set and a row lacks it, holds no plain value there, or repeats one.
    """
    by_index = [str(index) for index in range(len(rows))]
    if id_column is None and "id" not in rows.columns:
        return by_index, []
    column = "id" if id_column is None else id_column
    report = _Report("")
    ids: list[str] = []
    first: dict[str, int] = {}
    for index, row in enumerate(rows):
        why = None
        try:
            text = _id_text(row["id"] if id_column is None else lookup(row, column))
        except KeyError:
            near = "" if column in rows.columns else did_you_mean(column, rows.columns, what="Columns")
            parts = column.split(".")
            if not any(".".join(parts[:size]) in rows.columns for size in range(1, len(parts) + 1)):
                message = f"no row has the column {quote(column)} that id_column names. {near}".rstrip()
                raise SuiteError([Problem(rows.where(index), message)]) from None
            why = f"the row has no {quote(column)}"
        else:
            near = ""
            if text is None:
                why = f"{quote(column)} is no text or number, so it cannot name a sample"
            elif text in first:
                why = f"the id {quote(text)} stands already in {rows.where(first[text])}"
            else:
                first[text] = index
                ids.append(text)
        if why is None:
            continue
        if id_column is None:
            return by_index, [
                f"{rows.where(index)}: {why}; samples are named by the index of their row. "
                'Make the ids unique, or set "id_column".'
            ]
        report.add(rows.where(index), f"{why}; id_column needs one of its own in every row. {near}".rstrip())
    report.close()
    return ids, []


def lookup(row: Mapping[str, Any], path: str) -> Any:
    """Read a value of a row by a dotted path such as `a.b.0`.

    A column whose name holds the dots wins over the path. Numbers index lists.

    Args:
        row: The row.
        path: The path.

    Raises:
        KeyError: The row has no such value.
    """
    if path in row:
        return row[path]
    parts = path.split(".")
    for size in range(len(parts) - 1, 0, -1):
        head = ".".join(parts[:size])
        if head in row:
            value = row[head]
            break
    else:
        raise KeyError(path)
    for part in parts[size:]:
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and _INDEX.fullmatch(part) and int(part) < len(value):
            value = value[int(part)]
        else:
            raise KeyError(path)
    return value


_INDEX = re.compile(r"0|[1-9][0-9]{0,17}")
_TOO_DEEP = f"lists and objects are nested more than {MAX_DEPTH} levels deep."


class _RowError(Exception):
    """Why a row cannot be used."""


class _Report:
    """Gathers the bad rows of one file, and raises them together."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.problems: list[Problem] = []
        self.more = 0

    def add(self, where: str, message: str) -> None:
        if len(self.problems) < PROBLEM_LIMIT:
            self.problems.append(Problem(where, message))
        else:
            self.more += 1

    def close(self) -> None:
        if self.more:
            rows = "row" if self.more == 1 else "rows"
            self.problems.append(Problem(self.where, f"{self.more:,} more bad {rows}, not listed."))
        if self.problems:
            raise SuiteError(self.problems)


def _read(path: Path, *, spooled: bool) -> bytes | Spool:
    """Read a file, a large one into a spool where its reader takes one."""
    with open(path, "rb") as file:
        if spooled and path.stat().st_size >= SPOOL_BYTES:
            with contextlib.suppress(OSError):  # no room for a copy: then memory has to do
                return Spool(file)
            file.seek(0)
        return file.read()


def _digest(data: bytes | Spool) -> str:
    if isinstance(data, Spool):
        return data.digest
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _shown_path(path: Path, rootdir: Path) -> str:
    try:
        return path.relative_to(rootdir.resolve()).as_posix()
    except ValueError:
        return path.name


def _format_of(path: Path, where: str) -> str:
    ending = path.suffix.lower()
    if ending in (".jsonl", ".ndjson"):
        return "jsonl"
    if ending == ".csv":
        return "csv"
    hint = " A .json file is no JSONL: write one object a line." if ending == ".json" else ""
    message = f'the ending of {quote(path.name)} says no format; set "format" to "jsonl" or "csv".{hint}'
    raise SuiteError([Problem(where, message)])


def _id_text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, (list, dict)):
        return None
    return json.dumps(value)


# --- JSONL ----------------------------------------------------------------------------------------------------------


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _RowError(f"the key {quote(key)} is given twice in one object; keep one of them.")
            seen.add(key)
    return made


def _constant(literal: str) -> NoReturn:
    raise _RowError(f"{literal} is not JSON; write a number, null, or leave the key out.")


def _float(literal: str) -> float:
    value = float(literal)
    if math.isinf(value):
        raise _RowError(f"{literal[:40]} is beyond the range of a number (about 1.8e308).")
    return value


def _int(literal: str) -> int:
    if len(literal) > MAX_DIGITS and len(literal.lstrip("-")) > MAX_DIGITS:
        digits = len(literal.lstrip("-"))
        raise _RowError(f"a whole number of {digits:,} digits; at most {MAX_DIGITS:,} can be read. Write it as text.")
    return int(literal)


_STRICT = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant, parse_float=_float, parse_int=_int)


def _strict_row(line: bytes) -> dict[str, Any]:
    try:
        row = _STRICT.decode(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        byte = line[error.start]
        raise _RowError(f"not UTF-8: byte 0x{byte:02x} at position {error.start + 1} of the line.") from None
    except json.JSONDecodeError as error:
        rest = error.doc[error.pos : error.pos + 30].rstrip()
        if error.pos >= len(error.doc.rstrip()):
            raise _RowError(f"not valid JSON: the line ends too early (column {error.colno}).") from None
        what = error.msg[:1].lower() + error.msg[1:]
        raise _RowError(f"not valid JSON: {what}, column {error.colno}, found {quote(rest)}.") from None
    except RecursionError:
        raise _RowError(_TOO_DEEP) from None
    if not isinstance(row, dict):
        raise _RowError(f"a row must be an object, found {describe(row)}.")
    if line.count(b"[") + line.count(b"{") > MAX_DEPTH and too_deep(row):
        raise _RowError(_TOO_DEEP)
    return row


def _lines(data: bytes | Spool, position: int) -> Iterator[tuple[int, bytes]]:
    """Yield where each line begins, and the line without its line feed."""
    if isinstance(data, Spool):
        yield from data.lines(position)
        return
    while position < len(data):
        end = data.find(b"\n", position)
        end = len(data) if end < 0 else end
        yield position, data[position:end]
        position = end + 1


def _read_jsonl(data: bytes | Spool, shown: str) -> Rows:
    spans = array("Q")
    lines = array("Q")
    columns: dict[str, None] = {}
    report = _Report(shown)
    begin = len(_BOM) if data[: len(_BOM)] == _BOM else 0
    head = data[: begin + 200]
    if head[begin:].lstrip()[:1] == b"[":
        message = "a JSON list, not JSONL: write one object a line, without brackets and commas around them."
        raise SuiteError([Problem(f"{shown}:{_line_of_first_text(head, begin)}", message)])
    for number, (position, line) in enumerate(_lines(data, begin), 1):
        if line.strip():
            try:
                row = _strict_row(line)
            except _RowError as error:
                report.add(f"{shown}:{number}", str(error))
                if not spans and line.strip() == b"{":
                    report.problems[-1] = Problem(
                        f"{shown}:{number}", "an object over several lines; JSONL has one whole object on each line."
                    )
                    break
            else:
                if not columns.keys() >= row.keys():
                    columns.update(dict.fromkeys(row))
                spans.extend((position, position + len(line)))
                lines.append(number)
    report.close()
    return Rows(
        data,
        spans,
        decode=_decode_json,
        columns=tuple(columns),
        label=lambda index: f"{shown}:{lines[index]}",
        digest=_digest(data),
    )


def _decode_json(line: bytes) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(line.decode("utf-8"))
    return row


def _line_of_first_text(data: bytes, start: int) -> int:
    rest = data[start:]
    return 1 + data.count(b"\n", 0, start + len(rest) - len(rest.lstrip()))


# --- CSV ------------------------------------------------------------------------------------------------------------

# The csv module's limit on a cell is global to the process, and it takes an unterminated quote for the end of the file.
_CELL = re.compile(rb'"([^"]*+(?:""[^"]*+)*+)"|([^",\r\n]*+)')


def _cells(record: bytes) -> list[str]:
    """Split a record that is known to be sound."""
    if b'"' not in record:
        return record.decode("utf-8").split(",")
    out: list[str] = []
    position = 0
    while True:
        match = _CELL.match(record, position)
        assert match is not None
        quoted, plain = match.groups()
        out.append((plain if quoted is None else quoted.replace(b'""', b'"')).decode("utf-8"))
        position = match.end() + 1
        if position > len(record):
            return out


class _BrokenRecord(Exception):
    def __init__(self, position: int, message: str, *, fatal: bool = False) -> None:
        super().__init__(message)
        self.position = position
        self.fatal = fatal


def _record_end(data: bytes, start: int) -> tuple[int, int]:
    """Find the end of a record, and the start of the next one.

    Raises:
        _BrokenRecord: It is not RFC 4180; `position` is where.
    """
    newline = data.find(b"\n", start)
    newline = len(data) if newline < 0 else newline
    if data.find(b'"', start, newline) < 0:
        end = newline - 1 if data[newline - 1 : newline] == b"\r" and newline > start else newline
        bare = data.find(b"\r", start, end)
        if bare >= 0:
            raise _BrokenRecord(bare, _BARE_RETURN)
        return end, newline + 1
    position = start
    while True:
        match = _CELL.match(data, position)
        assert match is not None
        opened, quoted = position, match.group(1) is not None
        if not quoted and data[position : position + 1] == b'"':
            raise _BrokenRecord(position, "the quote that opens here is never closed.", fatal=True)
        position = match.end()
        after = data[position : position + 1]
        if after == b",":
            position += 1
        elif after == b"\n" or not after:
            return position, position + 1
        elif after == b"\r" and data[position + 1 : position + 2] in (b"\n", b""):
            return position, position + 2
        elif quoted:
            raise _BrokenRecord(
                opened,
                "text follows the closing quote of the cell that opens here; a quote inside a quoted cell is written "
                'twice ("").',
            )
        elif after == b"\r":
            raise _BrokenRecord(position, _BARE_RETURN)
        else:
            raise _BrokenRecord(
                position,
                "a quote inside a cell that is not quoted; put the whole cell in quotes and write the quote twice "
                '("5"" pipe").',
            )


_BARE_RETURN = "a carriage return without a line feed; save the file with LF or CRLF line ends, or quote the cell."


def _read_csv(data: bytes, shown: str) -> Rows:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = 1 + data.count(b"\n", 0, error.start)
        byte = data[error.start]
        raise SuiteError(
            [Problem(f"{shown}:{line}", f"not UTF-8: byte 0x{byte:02x}. Save the file as UTF-8.")]
        ) from None
    spans = array("Q")
    lines = array("Q")
    report = _Report(shown)
    header: list[str] | None = None
    position = len(_BOM) if data.startswith(_BOM) else 0
    line = 1
    while position < len(data):
        start = position
        try:
            end, position = _record_end(data, start)
        except _BrokenRecord as error:
            at = line + data.count(b"\n", start, error.position)
            report.add(f"{shown}:{at}", str(error))
            if error.fatal or header is None:
                break
            newline = data.find(b"\n", error.position)
            position = len(data) if newline < 0 else newline + 1
        else:
            if end > start:
                cells = _cells(data[start:end])
                if header is None:
                    header = _header(cells, f"{shown}:{line}")
                elif len(cells) != len(header):
                    report.add(
                        f"{shown}:{line}",
                        f"{_count(len(cells), 'cell')}, but the header has {len(header)}. "
                        "A cell that holds a comma must be in quotes.",
                    )
                else:
                    spans.extend((start, end))
                    lines.append(line)
        line += data.count(b"\n", start, position)
    report.close()
    columns = tuple(header or ())
    return Rows(
        data,
        spans,
        decode=lambda record: dict(zip(columns, _cells(record), strict=True)),
        columns=columns,
        label=lambda index: f"{shown}:{lines[index]}",
        digest=_digest(data),
    )


def _header(cells: list[str], where: str) -> list[str]:
    seen: set[str] = set()
    for number, name in enumerate(cells, 1):
        if not name.strip():
            raise SuiteError([Problem(where, f"column {number} of the header has no name.")])
        if name in seen:
            raise SuiteError([Problem(where, f"the header names {quote(name)} twice; columns need different names.")])
        seen.add(name)
    for character, called in ((";", "semicolons"), ("\t", "tabs")):
        if len(cells) == 1 and character in cells[0]:
            raise SuiteError([Problem(where, f"the cells stand apart by {called}; CSV has commas between them.")])
    return cells


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# --- values in memory -----------------------------------------------------------------------------------------------


def _plain(value: Any, path: str, depth: int = 0) -> Any:
    """Copy a value as exact JSON.

    Raises:
        _RowError: JSON cannot hold it.
    """
    if value is None or value is True or value is False or type(value) is str:
        return value
    if type(value) is int:
        if value.bit_length() > 14_000 and abs(value) >= 10**MAX_DIGITS:
            raise _RowError(f"{path or 'the row'} is a whole number of more than {MAX_DIGITS:,} digits.")
        return value
    if type(value) is float:
        if not math.isfinite(value):
            raise _RowError(f"{path or 'the row'} is {value}, which JSON cannot hold.")
        return value
    if depth > MAX_DEPTH:
        raise _RowError(_TOO_DEEP)
    if isinstance(value, (list, tuple)):
        return [_plain(inner, f"{path}[{i}]", depth + 1) for i, inner in enumerate(value)]
    if isinstance(value, Mapping):
        out: dict[str, Any] = {}
        for key, inner in value.items():
            if not isinstance(key, str):
                raise _RowError(f"{path or 'the row'} has the key {key!r:.60}; keys must be text.")
            out[str(key)] = _plain(inner, f"{path}.{key}" if path else key, depth + 1)
        return out
    raise _RowError(f"{path or 'the row'} is a Python {type(value).__name__}, which JSON cannot hold.")
