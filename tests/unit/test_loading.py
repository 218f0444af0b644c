"""Which JSON is a suite, what strict JSON is, and where the files of a suite are."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suite_cases import GRADER, suite, task

from pytest_evalgrader.errors import SuiteError
from pytest_evalgrader.suite.jsontext import parse_json
from pytest_evalgrader.suite.loading import LoadedSuite, load_suite, read_suite_text


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    (made / "suites").mkdir(parents=True)
    return made


def write(root: Path, content: Any, name: str = "suites/s.json") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content if isinstance(content, (bytes, str)) else json.dumps(content)
    path.write_bytes(data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass"))
    return path


def load(root: Path, content: Any) -> LoadedSuite:
    return load_suite(write(root, content), rootdir=root)


def problems(root: Path, content: Any) -> list[str]:
    with pytest.raises(SuiteError) as caught:
        load(root, content)
    return [str(problem) for problem in caught.value.problems]


TASKS = '"tasks": [' + json.dumps(task()) + "]"


# --- what is a suite ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        {"tasks": []},
        {"tasks": [1], "other": 1},
        '\ufeff  {"tasks": []}',
        '{"\\u0074as\\u006Bs": []}',
        '{"tasks": [], "tasks": {}}',
        '{"tasks": [NaN, 1e999, ' + "9" * 5000 + "]}",
        {"schema_version": "2026-05-27", "task": []},
        {"schema_version": "2026-05-27", "tasks": {}},
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_a_suite(root: Path, content: Any, named: bool) -> None:
    assert read_suite_text(write(root, content), named=named) == "suite"


@pytest.mark.parametrize(
    "content",
    [
        {},
        [],
        3,
        "",
        "   ",
        {"name": "x", "version": "1"},
        [{"tasks": []}],
        {"a": {"tasks": []}},
        {"tasks": {"a": 1}},
        {"tasks": None},
        {"Tasks": []},
        {"schema_version": "1", "task": []},
        "{broken",
        "{'tasks': []}",
        "[" * 100_000,
        b"\xff\xfe" + '{"a": 1}'.encode("utf-16-le"),
        b'{"a": "\xe9"}',
    ],
)
def test_other_json_is_left_alone_unless_it_was_named(root: Path, content: Any) -> None:
    path = write(root, content)
    assert read_suite_text(path, named=False) == "not_a_suite"
    with pytest.raises(SuiteError):
        read_suite_text(path, named=True)


@pytest.mark.parametrize(
    ("content", "at", "words"),
    [
        ('{"tasks": [', "s.json:1:12", "ends too early"),
        ('{"a": 1\n "tasks": []}', "s.json:2:2", "a comma"),
        ('{"tasks": [1,],}', "s.json:1:", "not valid JSON"),
        ('{"tasks": [] // x\n}', "s.json:1:14", "a comma"),
        ('{"a": "x\ny", "tasks": []}', "s.json:1:9", '"\\n"'),
        ('{"tasks": [' + "[" * 100_000, "s.json", "nested"),
        ('{"tasks": []}'.encode("utf-16"), "s.json", "UTF-16"),
        ('{"tasks": []}'.encode("utf-16-be"), "s.json", "UTF-16"),
        (b"\xff\xfe\x00\x00" + '{"tasks": []}'.encode("utf-32-le"), "s.json", "UTF-32"),
        (b'{"tasks":\n["\xe9"]}', "s.json:2", "0xe9"),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_a_broken_suite_never_vanishes(root: Path, content: Any, at: str, words: str, named: bool) -> None:
    path = write(root, content)
    with pytest.raises(SuiteError) as caught:
        read_suite_text(path, named=named, where="s.json")
    (problem,) = caught.value.problems
    assert problem.where.startswith(at)
    assert words in problem.message
    with pytest.raises(SuiteError):
        load_suite(path, rootdir=root)


def test_a_file_that_is_not_there_is_said(root: Path) -> None:
    for named in (True, False):
        with pytest.raises(SuiteError, match="cannot be read: no such file"):
            read_suite_text(root / "no.json", named=named)
    with pytest.raises(SuiteError, match="cannot be read"):
        load_suite(root / "suites", rootdir=root)


def test_what_was_named_says_what_is_missing(root: Path) -> None:
    with pytest.raises(SuiteError, match=r'no list "tasks".*Did you mean "task"'):
        read_suite_text(write(root, {"task": []}), named=True)
    with pytest.raises(SuiteError, match='"tasks" is not a list'):
        read_suite_text(write(root, {"tasks": {}}), named=True)
    with pytest.raises(SuiteError, match="no object at the top"):
        read_suite_text(write(root, []), named=True)


def test_a_large_file_without_the_key_is_not_parsed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(root, {"rows": ["x" * 1000] * 2000})
    monkeypatch.setattr(Path, "read_bytes", lambda self: pytest.fail("read whole"))
    assert read_suite_text(path, named=False) == "not_a_suite"


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=40) | st.text(alphabet='{}[]":, \\ntasku0123e-', max_size=40).map(str.encode))
def test_any_bytes_have_an_answer(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_bytes(data)
    for named in (True, False):
        with contextlib.suppress(SuiteError):
            assert read_suite_text(path, named=named) in ("suite", "not_a_suite")


# --- strict JSON ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '{"a": 1,\n"b": [{"c": 1,\n"c": 2}],\n"a": 2}',
            [r"f:3: b\[0\].c: .* twice .*line 2", "f:4: a: .* twice .*line 1"],
        ),
        ('{"a": 1, "\\u0061": 2}', ["f:1: a: .*twice"]),
        ('{"a": "{\\"a\\": NaN}", "b": [NaN,\n-Infinity]}', [r"f:1: b\[0\]: NaN", r"f:2: b\[1\]: -Infinity"]),
        ('{"x y": 1e999, "z": -1e999}', [r'f:1: \["x y"\]: 1e999 is beyond', "f:1: z: -1e999"]),
        ("9" * 5000, ["f:1: a whole number of 5,000 digits"]),
        ('{"a": [[1, ' + "9" * 4301 + "]]}", [r"f:1: a\[0\]\[1\]: .*4,301 digits"]),
        ("[" * 201 + "]" * 201, ["f: .*nested more than 200"]),
        ("[" * 200_000 + "]" * 200_000, ["f: .*nested"]),
    ],
)
def test_each_refused_value_is_found_by_line(text: str, expected: list[str]) -> None:
    with pytest.raises(SuiteError) as caught:
        parse_json(text, "f")
    said = [str(problem) for problem in caught.value.problems]
    assert len(said) == len(expected), said
    for found, pattern in zip(said, expected, strict=True):
        assert re.match(pattern, found), found


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    )
)
def test_whatever_json_can_say_is_read_as_it_is(document: Any) -> None:
    assert parse_json(json.dumps(document), "f") == document
    assert parse_json("200", "f") == 200
    assert parse_json("9" * 4300, "f") == int("9" * 4300)


# --- the files of a suite -------------------------------------------------------------------------------------------


def test_what_is_loaded(root: Path) -> None:
    write(root, "def grade(sample, item):\r\n    return 1.0\r\n", "suites/graders/g.py")
    write(root, '{"q": 1}\n', "data/d.jsonl")
    document = suite(
        task(dataset={"file_id": "file_1"}, grader={"type": "python", "file_id": "graders/g.py"}),
        task(id="u", grader={"ref": "exact"}),
        files={"file_1": "../data/d.jsonl"},
        graders={"exact": GRADER},
    )
    loaded = load(root, document)
    first, second = loaded.spec.tasks
    assert loaded.relpath == "suites/s.json"
    assert loaded.digest == "sha256:" + hashlib.sha256(loaded.path.read_bytes()).hexdigest()
    assert loaded.resolve("file_1") == (root / "data/d.jsonl").resolve()
    assert loaded.resolve("graders/g.py") == (root / "suites/graders/g.py").resolve()
    source = loaded.source_of(first.grader_list[0], first.grader_places[0])  # type: ignore[arg-type]
    assert source.text == "def grade(sample, item):\n    return 1.0\n"
    assert (source.filename, source.place) == ("suites/graders/g.py", "tasks[0].grader")
    inline = loaded.source_of(second.grader_list[0], second.grader_places[0])  # type: ignore[arg-type]
    assert (inline.text, inline.filename) == (GRADER["source"], "suites/s.json:graders.exact.source")


def test_a_byte_order_mark_is_taken_off(root: Path) -> None:
    assert load(root, "\ufeff{" + TASKS + "}").spec.tasks[0].id == "t"


def test_every_missing_file_is_named_once(root: Path) -> None:
    write(root, "", "suites/g.py")
    found = problems(
        root,
        suite(
            task(dataset={"file_id": "file_1"}, grader={"type": "python", "file_id": "gg.py"}),
            task(
                id="u",
                dataset={"file_id": "file_2"},
                fewshot={"count": 1, "dataset": {"file_id": "d\\e.csv"}},
                preprocess={"type": "python", "file_id": "."},
            ),
            files={"file_1": "no.jsonl", "fil_2": "g.py"},
            graders={"named": {"type": "python", "file_id": "https://h.example/g.py"}},
        ),
    )
    assert [text.split(": ")[1] for text in found] == [
        "files.file_1",
        "tasks[0].grader.file_id",
        "tasks[1].dataset.file_id",
        "tasks[1].preprocess.file_id",
        "tasks[1].fewshot.dataset.file_id",
        "graders.named.file_id",
    ]
    assert 'no file "no.jsonl" (looked for suites/no.jsonl)' in found[0]
    assert 'Did you mean "g.py"?' in found[1]
    assert "fil_2" in found[2]
    assert "folder" in found[3]
    assert "forward slashes" in found[4]
    assert "download" in found[5]


@pytest.mark.parametrize(
    "target", ["../../secret.txt", "../../../../../../../../etc/passwd", "link.txt", "dir/secret.txt"]
)
def test_no_path_leaves_the_rootdir(root: Path, target: str) -> None:
    write(root.parent, "root:x:secret", "secret.txt")
    (root / "suites/link.txt").symlink_to(root.parent / "secret.txt")
    (root / "suites/dir").symlink_to(root.parent)
    (said,) = problems(root, suite(task(dataset={"file_id": target, "format": "jsonl"})))
    assert "leads out of the project" in said
    assert "root:x" not in said


def test_links_inside_the_rootdir_are_followed(root: Path) -> None:
    write(root, "", "data/d.jsonl")
    (root / "suites/d.jsonl").symlink_to(root / "data/d.jsonl")
    assert (
        load(root, suite(task(dataset={"file_id": "d.jsonl"}))).resolve("d.jsonl") == (root / "data/d.jsonl").resolve()
    )


def test_a_rootdir_that_is_a_link_itself(root: Path) -> None:
    link = root.parent / "link"
    link.symlink_to(root)
    write(root, "", "suites/d.jsonl")
    path = write(root, suite(task(dataset={"file_id": "d.jsonl"})))
    for suite_path, rootdir in ((link / "suites/s.json", link), (path, link), (link / "suites/s.json", root)):
        assert load_suite(suite_path, rootdir=rootdir).spec.tasks[0].id == "t"
    assert load_suite(link / "suites/s.json", rootdir=link).relpath == "suites/s.json"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("/etc/passwd", "absolute path"),
        ("C:\\data\\d.csv", "absolute path"),
        ("a\0b", "null character"),
        ("x" * 5000, "cannot be read as a path|no file"),
        ("loop", "cannot be read as a path"),
        ("pipe", "no regular file"),
        ("~/d.jsonl", "no file"),
    ],
)
def test_odd_paths_are_problems_and_no_crash(root: Path, target: str, words: str) -> None:
    (root / "suites/loop").symlink_to("loop")
    os.mkfifo(root / "suites/pipe")
    with pytest.raises(SuiteError, match=words):
        load(root, suite(task(dataset={"file_id": target})))


def test_a_grader_that_is_no_text_is_said(root: Path) -> None:
    write(root, b"x = '\xe9'", "suites/g.py")
    loaded = load(root, suite(task(grader={"type": "python", "file_id": "g.py"})))
    with pytest.raises(SuiteError, match=r"suites/g\.py:1: not UTF-8"):
        loaded.source_of(loaded.spec.tasks[0].grader_list[0], "tasks[0].grader")  # type: ignore[arg-type]


def test_a_file_that_goes_away_later_is_said(root: Path) -> None:
    path = write(root, "", "suites/g.py")
    loaded = load(root, suite(task(grader={"type": "python", "file_id": "g.py"})))
    path.unlink()
    with pytest.raises(SuiteError, match=r"suites/s.json: tasks\[0\].grader.file_id: no file"):
        loaded.source_of(loaded.spec.tasks[0].grader_list[0], "tasks[0].grader")  # type: ignore[arg-type]
