"""Reads suite files from disk: which JSON is a suite, and where the files of a suite are."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pytest_evalgrader.errors import Problem, SuiteError
from pytest_evalgrader.suite.jsontext import parse_json
from pytest_evalgrader.suite.manifest import (
    SCHEMA_VERSION,
    DatasetSpec,
    PreprocessSpec,
    PythonGraderSpec,
    SuiteSpec,
    parse_suite,
)
from pytest_evalgrader.suite.wording import did_you_mean, place, quote

SuiteFileKind = Literal["suite", "not_a_suite"]

# The key `tasks` in JSON text: plain, in the encodings that JSON may not have, and with letters written as \u escapes.
_CODES = ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
_TASKS_KEYS = tuple('"tasks"'.encode(code) for code in _CODES)
_ESCAPED_KEY = re.compile(rb'"(?:t|\\u0074)(?:a|\\u0061)(?:s|\\u0073)(?:k|\\u006[bB])(?:s|\\u0073)"')
_MARKS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
_GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Source:
    """Python text of a suite.

    Args:
        text: The code, line ends as `\\n`.
        filename: As shown to people and in tracebacks: `suites/g.py`, or the suite with the place inside it.
        place: Where the suite names it, such as `tasks[0].grader`.
    """

    text: str
    filename: str
    place: str


@dataclass(frozen=True, slots=True)
class LoadedSuite:
    """A valid suite, and where its files are.

    Args:
        path: The suite file.
        relpath: The same, relative to the rootdir, with forward slashes.
        rootdir: What no file of the suite may leave.
        spec: What the JSON says, references resolved: every task has its `grader_list`.
        digest: `sha256:` and the hash of the file's bytes.
    """

    path: Path
    relpath: str
    rootdir: Path
    spec: SuiteSpec
    digest: str

    def resolve(self, file_id: str) -> Path:
        """Find a file of the suite.

        Args:
            file_id: A key of `files`, or a path relative to the suite.

        Returns:
            The regular file, links resolved; it is inside the rootdir.

        Raises:
            SuiteError: There is no such file, or it is outside the rootdir.
        """
        found, problem = _locate(file_id, self.spec.files, self.path, self.rootdir)
        if found is None:
            raise SuiteError([Problem(self.relpath, problem)])
        return found

    def source_of(self, spec: PythonGraderSpec | PreprocessSpec, place: str) -> Source:
        """Read the code of a grader or a preprocessor.

        Args:
            spec: What the suite says of it.
            place: Where the suite says it, such as `tasks[0].grader` (see `TaskSpec.grader_places`).

        Returns:
            The code and how to name it.

        Raises:
            SuiteError: The file is missing, outside the rootdir, unreadable or not UTF-8.
        """
        if spec.source is not None:
            return Source(_plain_lines(spec.source), f"{self.relpath}:{place}.source", place)
        assert spec.file_id is not None
        path, problem = _locate(spec.file_id, self.spec.files, self.path, self.rootdir)
        where = f"{self.relpath}: {place}.file_id"
        if path is None:
            raise SuiteError([Problem(where, problem)])
        shown = shown_path(path, self.rootdir)
        return Source(_plain_lines(_decode(_read_bytes(path, where), shown)), shown, place)


def read_suite_text(path: Path, *, named: bool, where: str | None = None) -> SuiteFileKind:
    """Decide whether a JSON file is a suite.

    A document with a top-level `tasks` list is one, and so is one that says `schema_version` of this format, so that a
    misspelt `tasks` is an error and not a suite that vanished. Other JSON is left alone, unless it was named. A file
    whose bytes hold no key `tasks` is not parsed, however large it is.

    Args:
        path: The file.
        named: Whether it was named on the command line, and not only found in a folder.
        where: The file as shown in messages; the path by default.

    Returns:
        `suite`, or `not_a_suite` for what is left alone.

    Raises:
        SuiteError: It cannot be read; it was named and is no suite; it is not valid JSON and was named or mentions
            `"tasks"`.
    """
    shown = where if where is not None else path.as_posix()
    try:
        if not named and not _may_be_a_suite(path):
            return "not_a_suite"
        data = path.read_bytes()
    except OSError as error:
        raise SuiteError([Problem(shown, _unreadable(error))]) from None
    document = _parse_loosely(data, shown)
    if isinstance(document, _TopLevel) and document.is_suite:
        return "suite"
    if not named:
        return "not_a_suite"
    raise SuiteError([Problem(shown, _no_suite(document))])


def load_suite(path: Path, *, rootdir: Path, shown_from: Path | None = None) -> LoadedSuite:
    """Read a suite file, and check that every file it names is there.

    Args:
        path: The suite.
        rootdir: pytest's rootdir; paths of the suite may not leave it, links resolved.
        shown_from: What the suite is named relative to, where that is another folder.

    Returns:
        The suite.

    Raises:
        SuiteError: All problems: of the JSON, or else of the manifest and of the files it names.
    """
    shown = shown_path(path, shown_from or rootdir)
    data = _read_bytes(path, shown)
    document = parse_json(_decode(data, shown), shown)
    spec = parse_suite(document, shown)
    problems = list(_check_files(spec, path, rootdir, shown))
    if problems:
        raise SuiteError(problems)
    return LoadedSuite(path, shown, rootdir, spec, f"sha256:{hashlib.sha256(data).hexdigest()}")


def shown_path(path: Path, rootdir: Path) -> str:
    """Name a file relative to the rootdir, with forward slashes; a file outside it starts with `../`."""
    absolute, root = Path(os.path.abspath(path)), Path(os.path.abspath(rootdir))
    for base in (root, root.resolve()):
        if absolute.is_relative_to(base):
            return absolute.relative_to(base).as_posix()
    return Path(os.path.relpath(absolute, root)).as_posix()


# --- which JSON is a suite ------------------------------------------------------------------------------------------


class _TopLevel(dict[str, Any]):
    """The top-level object; knows of every `tasks` key, also of one that a later one of the same name hides."""

    is_suite = False


def _may_be_a_suite(path: Path) -> bool:
    with path.open("rb") as stream:
        if os.fstat(stream.fileno()).st_size == 0:
            return False
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return (
                any(data.find(key) >= 0 for key in _TASKS_KEYS)
                or (data.find(b'"schema_version"') >= 0 and data.find(SCHEMA_VERSION.encode()) >= 0)
                or (data.find(b"\\u00") >= 0 and _ESCAPED_KEY.search(data) is not None)
            )


def _parse_loosely(data: bytes, where: str) -> Any:
    """Parse without the strictness of `load_suite`, which is for suites alone."""
    text = _decode(data, where)

    def top(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = _TopLevel(pairs)
        made.is_suite = any(key == "tasks" and isinstance(value, list) for key, value in pairs) or (
            made.get("schema_version") == SCHEMA_VERSION
        )
        return made

    try:
        return json.loads(text, object_pairs_hook=top, parse_int=str)
    except (json.JSONDecodeError, RecursionError):
        return parse_json(text, where)


def _no_suite(document: Any) -> str:
    if not isinstance(document, dict):
        return 'not a suite: found no object at the top, expected one with a list "tasks".'
    if "tasks" in document:
        return 'not a suite: "tasks" is not a list.'
    near = did_you_mean("tasks", document) if document else ""
    return f'not a suite: it has no list "tasks" at the top. {near if "Did" in near else ""}'.rstrip()


# --- bytes and paths ------------------------------------------------------------------------------------------------


def _read_bytes(path: Path, where: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SuiteError([Problem(where, _unreadable(error))]) from None


def _unreadable(error: OSError) -> str:
    return f"cannot be read: {(error.strerror or 'unknown reason').lower()}."


def _decode(data: bytes, where: str) -> str:
    for mark, name in _MARKS.items():
        if data.startswith(mark):
            raise SuiteError([Problem(where, f"the file is encoded as {name}; save it as UTF-8.")])
    if b"\0" in data[:4]:
        raise SuiteError([Problem(where, "the file holds null bytes, as UTF-16 does; save it as UTF-8.")])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"not UTF-8: the byte 0x{data[error.start]:02x} stands for no character. Save the file as UTF-8."
        raise SuiteError([Problem(f"{where}:{line}", message)]) from None


def _plain_lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _check_files(spec: SuiteSpec, suite: Path, rootdir: Path, shown: str) -> Iterator[Problem]:
    broken = set()
    for name, target in spec.files.items():
        found, problem = _locate(target, {}, suite, rootdir)
        if found is None:
            broken.add(name)
            yield Problem(f"{shown}: {place(['files', name])}", problem)
    for at, file_id in _file_ids(spec):
        if file_id in broken:
            continue
        found, problem = _locate(file_id, spec.files, suite, rootdir)
        if found is None:
            yield Problem(f"{shown}: {at}", problem)


def _file_ids(spec: SuiteSpec) -> Iterator[tuple[str, str]]:
    """Every file that the suite names, with its place, in the order of the document."""
    for index, task in enumerate(spec.tasks):
        at = f"tasks[{index}]"
        yield from _dataset_files(task.dataset, f"{at}.dataset")
        for grader, where in zip(task.grader_list, task.grader_places, strict=True):
            if isinstance(grader, PythonGraderSpec) and grader.file_id and where.startswith(at):
                yield f"{where}.file_id", grader.file_id
        if task.preprocess is not None and task.preprocess.file_id:
            yield f"{at}.preprocess.file_id", task.preprocess.file_id
        if task.fewshot is not None and task.fewshot.dataset is not None:
            yield from _dataset_files(task.fewshot.dataset, f"{at}.fewshot.dataset")
    for name, grader in spec.graders.items():
        if isinstance(grader, PythonGraderSpec) and grader.file_id:
            yield f"{place(['graders', name])}.file_id", grader.file_id


def _dataset_files(dataset: DatasetSpec, at: str) -> Iterator[tuple[str, str]]:
    if dataset.file_id:
        yield f"{at}.file_id", dataset.file_id


def _locate(file_id: str, files: dict[str, str], suite: Path, rootdir: Path) -> tuple[Path | None, str]:
    """Find a regular file inside the rootdir; else say why not."""
    target = files.get(file_id, file_id)
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", target):
        return None, f"found the address {quote(target)}, expected a path; download the file into the project."
    if "\0" in target:
        return None, "found a path with a null character in it."
    if os.path.isabs(target) or re.match(r"[A-Za-z]:[\\/]", target):
        return None, f"found the absolute path {quote(target)}, expected a path relative to the suite file."
    root = rootdir.resolve()
    try:
        found = (suite.parent / target).resolve()
        if not found.is_relative_to(root):
            return (
                None,
                f"{quote(target)} leads out of the project (rootdir {root.as_posix()}); keep files inside it.",
            )
        if found.is_file():
            return found, ""
        if found.is_dir():
            return None, f"{quote(target)} is a folder, expected a file."
        if found.exists():
            return None, f"{quote(target)} is no regular file."
    except (OSError, RuntimeError):
        return None, f"{quote(target)} cannot be read as a path."
    looked = shown_path(suite.parent / target, rootdir)
    message = f"no file {quote(target)} (looked for {looked})."
    if file_id not in files:
        if files:
            message = f"{quote(file_id)} is no key of files, and no file (looked for {looked})."
        near = did_you_mean(file_id, [*files, *_neighbours(suite.parent / target, target)])
        if "Did you mean" in near:
            message += f" {near}"
    if "\\" in target:
        message += " Write the path with forward slashes."
    return None, message


def _neighbours(missing: Path, target: str) -> list[str]:
    """Name the files beside one that is missing, spelt as it was."""
    try:
        names = sorted(entry.name for entry in missing.parent.iterdir())[:2000]
    except OSError:
        return []
    head = target.rpartition("/")[0]
    return [f"{head}/{name}" if head else name for name in names]
