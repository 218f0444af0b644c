"""How rows are read, kept and named."""

from __future__ import annotations

import csv
import json
import random
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_evalgrader.data.dataset import Rows, load_rows, lookup, sample_ids
from pytest_evalgrader.errors import Problem, SuiteError
from pytest_evalgrader.suite.manifest import DatasetSpec

Load = Callable[..., Rows]
WHERE = "suites/s.json: tasks[0].dataset"


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load a dataset from bytes written to a file of that name, or from the fields of a spec."""

    def resolve(file_id: str) -> Path:
        path = (tmp_path / file_id).resolve()
        if not path.is_relative_to(tmp_path.resolve()):
            raise SuiteError([Problem(WHERE, "outside")])
        return path

    def do(name: str | None = None, data: bytes | str = b"", **fields: Any) -> Rows:
        if name is not None:
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data.encode() if isinstance(data, str) else data)
            fields["file_id"] = name
        spec = DatasetSpec.model_validate(fields)
        return load_rows(spec, resolve=resolve, rootdir=tmp_path, where=WHERE, base=tmp_path)

    return do


def problems(load: Load, *args: Any, **fields: Any) -> list[str]:
    with pytest.raises(SuiteError) as caught:
        load(*args, **fields)
    return [str(problem) for problem in caught.value.problems]


# --- JSONL ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (b'{"a":1}\r\n\r\n   \r\n{"a":2}', [{"a": 1}, {"a": 2}]),
        (b'\xef\xbb\xbf{"a":1}\n', [{"a": 1}]),
        ('{"q":"a\u2028b"}\n{"q":"c\u0085d\u2029"}\n', [{"q": "a\u2028b"}, {"q": "c\u0085d\u2029"}]),
        (b'{"q":"\\ud800"}', [{"q": "\ud800"}]),
        (b'{"id": 12345678901234567890123}', [{"id": 12345678901234567890123}]),
        (b'{"a": 1.0, "b": 1e5, "c": -0.0}', [{"a": 1.0, "b": 1e5, "c": -0.0}]),
        (b'{"a":' + b"[" * 199 + b"]" * 199 + b"}", None),
        (b'{"a":"' + b"[" * 5000 + b'"}', [{"a": "[" * 5000}]),
        (b"{}\n", [{}]),
    ],
)
def test_jsonl(load: Load, data: bytes | str, rows: list[dict[str, Any]] | None) -> None:
    found = load("data/d.jsonl", data)
    if rows is not None:
        assert list(found) == rows


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (b"null", "must be an object, found null"),
        (b"[1]", "must be an object, found a list"),
        (b"1", "must be an object"),
        (b'"x"', "must be an object"),
        (b'{"g": NaN}', "NaN is not JSON"),
        (b'{"g": Infinity}', "Infinity is not JSON"),
        (b'{"g": -Infinity}', "-Infinity is not JSON"),
        (b'{"g": 1e999}', "1e999 is beyond"),
        (b'{"g": -1e999}', "beyond"),
        (b'{"n": ' + b"1" * 5000 + b"}", "5,000 digits"),
        (b'{"a":1,"b":{"x":1,"x":2}}', 'the key "x" is given twice'),
        (b'{"question": ', "ends too early"),
        (b"{'a': 1}", "not valid JSON"),
        (b'{"a": 1} {"b": 2}', "not valid JSON"),
        (b'{"a": "\xff"}', "not UTF-8: byte 0xff at position 8"),
        (b'{"a":' + b"[" * 300 + b"]" * 300 + b"}", "nested more than"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested more than"),
    ],
)
def test_a_bad_line_is_named_by_its_physical_number(load: Load, line: bytes, word: str) -> None:
    (problem,) = problems(load, "data/d.jsonl", b'{"a": 1}\r\n\r\n' + line + b"\n")
    assert problem.startswith("data/d.jsonl:3: ")
    assert word in problem


def test_all_bad_lines_are_named_together_up_to_twenty(load: Load) -> None:
    found = problems(load, "d.jsonl", "x\n" * 100)
    assert [text.split(": ")[0] for text in found] == [*(f"d.jsonl:{i}" for i in range(1, 21)), "d.jsonl"]
    assert "80 more bad rows" in found[-1]


@pytest.mark.parametrize(
    ("data", "word"),
    [
        ('\n [{"a": 1}]', "d.jsonl:2: a JSON list"),
        ('{\n  "a": 1\n}\n', "d.jsonl:1: an object over several lines"),
        ("", "no rows"),
        ("\n\n", "no rows"),
        ('{"a": 1}'.encode("utf-16"), "UTF-16"),
    ],
)
def test_files_that_are_no_jsonl(load: Load, data: str | bytes, word: str) -> None:
    (problem,) = problems(load, "d.jsonl", data)
    assert word in problem


def test_columns_are_in_the_order_in_which_they_appear(load: Load) -> None:
    assert load("d.jsonl", '{"b":1}\n{"a":1,"b":2}\n{"c":1}').columns == ("b", "a", "c")


# --- CSV ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (b"\xef\xbb\xbfinput,target\r\nq,a\r\n", [{"input": "q", "target": "a"}]),
        (b'q,g\r\n"a, ""b""\nc",x\r\ny,z', [{"q": 'a, "b"\nc', "g": "x"}, {"q": "y", "g": "z"}]),
        (b'a,b\n"",\n,""\n', [{"a": "", "b": ""}, {"a": "", "b": ""}]),
        (b'a,b\n\n1,"2"\n\r\n3,4\n', [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]),
        ("a,b\n1,\u2028\x85é \n".encode(), [{"a": "1", "b": "\u2028\x85é "}]),
        (b"a\n1\n true\n", [{"a": "1"}, {"a": " true"}]),
        (b'a,b\r\n"x\r\ny",1', [{"a": "x\r\ny", "b": "1"}]),
    ],
)
def test_csv(load: Load, data: bytes, rows: list[dict[str, str]]) -> None:
    assert list(load("d.csv", data)) == rows


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'q,a\n"oops,1\nnext,2\n', ["d.csv:2: the quote that opens here is never closed"]),
        (b'q,a\nx,"oops\n\nnext,2\n', ["d.csv:2: the quote that opens here"]),
        (b'q,a\n"x\ny","oops\n', ["d.csv:3: the quote that opens here"]),
        (b"a,b\n1,2,3\n4,5\n6\n", ["d.csv:2: 3 cells, but the header has 2", "d.csv:4: 1 cell, but the header has 2"]),
        (b'a,b\n"1\n2",3\n4\n', ["d.csv:4: 1 cell"]),
        (b'a,b\n"x"y,1\n3\n', ["d.csv:2: text follows the closing quote", "d.csv:3: 1 cell"]),
        (b'a,b\n5" pipe,1\n', ["d.csv:2: a quote inside a cell that is not quoted"]),
        (b"a,a\n1,2\n", ['d.csv:1: the header names "a" twice']),
        (b"a,\n1,2\n", ["d.csv:1: column 2 of the header has no name"]),
        (b"a;b\n1;2\n", ["d.csv:1: the cells stand apart by semicolons"]),
        (b"a\tb\n1\t2\n", ["d.csv:1: the cells stand apart by tabs"]),
        (b"a,b\r1,2\r", ["d.csv:1: a carriage return without a line feed"]),
        (b"a,b\n1,2\n\xff,3", ["d.csv:3: not UTF-8: byte 0xff"]),
        (b"a,b\n", ["d.csv: the dataset has no rows"]),
        (b"", ["d.csv: the dataset has no rows"]),
    ],
)
def test_a_bad_record_is_named_by_its_line(load: Load, data: bytes, expected: list[str]) -> None:
    found = problems(load, "d.csv", data)
    assert len(found) == len(expected)
    for problem, start in zip(found, expected, strict=True):
        assert problem.startswith(start)


def test_a_large_cell_loads_and_the_csv_module_keeps_its_limit(load: Load) -> None:
    limit = csv.field_size_limit()
    rows = load("d.csv", "a,b\n" + "x" * 200_000 + ',"' + "y," * 100_000 + '"\n')
    assert rows[0] == {"a": "x" * 200_000, "b": "y," * 100_000}
    assert csv.field_size_limit() == limit


CELLS = st.text(st.characters(codec="utf-8"), max_size=8) | st.text(alphabet='",\r\n a', max_size=8)


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=5))
def test_csv_reads_what_the_csv_module_writes(tmp_path_factory: pytest.TempPathFactory, records: Any) -> None:
    path = tmp_path_factory.mktemp("csv") / "d.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerows([("a", "b"), *records])
    spec = DatasetSpec.model_validate({"file_id": "d.csv"})
    rows = load_rows(spec, resolve=lambda _: path, rootdir=path.parent, where=WHERE)
    assert [tuple(row.values()) for row in rows] == records


# --- rows -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data"), [("d.jsonl", '{"a":{"b":[1]}}\n\n{"a":2}\n'), ("d.csv", 'a,c\n1,"x\ny"\n2,3\n')]
)
def test_rows_are_a_sequence_of_fresh_dicts(load: Load, name: str, data: str) -> None:
    rows = load("data/" + name, data)
    assert len(rows) == 2
    row = rows[0]
    row["a"] = "changed"
    assert rows[0]["a"] != "changed"
    assert rows[-1] == rows[1] == rows[0:][1]
    assert [rows.where(i) for i in range(2)] == [f"data/{name}:{1 if name == 'd.jsonl' else 2}", rows.where(1)]
    assert rows.where(1) == f"data/{name}:{3 if name == 'd.jsonl' else 4}"
    assert rows.digest.startswith("sha256:")
    for wrong in (2, -3):
        with pytest.raises(IndexError):
            rows[wrong]


def test_many_rows_stay_small(load: Load) -> None:
    data = "".join(json.dumps({"question": f"What is {i}+{i}?", "gold": str(2 * i)}) + "\n" for i in range(20_000))
    rows = load("d.jsonl", data)
    size = sys.getsizeof(rows) + len(data)
    tracemalloc.start()
    rows = load("d.jsonl", data)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(rows) == 20_000
    assert kept < size + 20_000 * 40


def test_inline_rows_are_copied(load: Load) -> None:
    given_rows = [{"a": [1, {"b": None}], "q": "\ud800"}, {"c": 1.5, "n": 10**30}]
    rows = load(rows=given_rows)
    assert list(rows) == given_rows
    given_rows[0]["a"] = 0
    assert rows[0]["a"] == [1, {"b": None}]
    assert rows.columns == ("a", "q", "c", "n")
    assert rows.where(1) == f"{WHERE}.rows[1]"


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (float("nan"), "row.a is nan"),
        ({1, 2}, "row.a is a Python set"),
        (b"x", "a Python bytes"),
        ({1: 2}, "has the key 1"),
        pytest.param(10**5000, "4,300 digits", id="digits"),
    ],
)
def test_rows_in_memory_must_be_json(value: Any, word: str) -> None:
    with pytest.raises(SuiteError) as caught:
        Rows.from_list([{"row": {"a": value}}], where="here")
    assert str(caught.value).startswith("here[0]: ")
    assert word in str(caught.value)


@pytest.mark.parametrize(
    ("path", "value"),
    [("a.b", 1), ("a.c.d", 2), ("x", 3), ("l.1.y", 4), ("l.0", "p"), ("n.m", None), ("dotted.path.z", 5)],
)
def test_lookup(path: str, value: Any) -> None:
    row = {
        "a.b": 1,
        "a": {"b": "hidden", "c": {"d": 2}},
        "x": 3,
        "l": ["p", {"y": 4}],
        "n": {"m": None},
        "dotted.path": {"z": 5},
    }
    assert lookup(row, path) == value


@pytest.mark.parametrize("path", ["y", "a.x", "l.2", "l.-1", "l.x", "l.length", "s.0", "a.b.c", "", ".", "l.01"])
def test_lookup_of_what_is_not_there(path: str) -> None:
    with pytest.raises(KeyError):
        lookup({"a": {"b": 1}, "l": [0, 1], "s": "text"}, path)


# --- ids ------------------------------------------------------------------------------------------------------------


def rows_of(*ids: Any) -> Rows:
    return Rows.from_list([{} if i is ... else {"id": i} for i in ids], where="d")


@pytest.mark.parametrize(
    ("ids", "names"),
    [
        (("a", "b"), ["a", "b"]),
        ((1, 1.0, " 1", True), ["1", "1.0", " 1", "true"]),
        (("a::b", "", "l1\nl2", "\ud800"), ["a::b", "", "l1\nl2", "\ud800"]),
        ((12345678901234567890123,), ["12345678901234567890123"]),
        ((..., ...), ["0", "1"]),
    ],
)
def test_ids(ids: tuple[Any, ...], names: list[str]) -> None:
    assert sample_ids(rows_of(*ids), None) == (names, [])


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (("x", "y", "x"), ["d[2]", '"x"', "d[0]"]),
        ((1, "1"), ["d[1]", '"1"', "d[0]"]),
        (("a", ...), ["d[1]", "no"]),
        (("a", None), ["d[1]"]),
        (("a", [1]), ["d[1]"]),
    ],
)
def test_ids_that_do_not_name_samples(ids: tuple[Any, ...], words: list[str]) -> None:
    rows = rows_of(*ids)
    names, (warning,) = sample_ids(rows, None)
    assert names == [str(i) for i in range(len(ids))]
    assert all(word in warning for word in words)
    assert "index" in warning
    with pytest.raises(SuiteError) as caught:
        sample_ids(rows, "id")
    assert all(word in str(caught.value) for word in words)


def test_id_column() -> None:
    rows = Rows.from_list([{"id": "x", "meta": {"key": "p"}}, {"id": "x", "meta": {"key": "q"}}], where="d")
    assert sample_ids(rows, "meta.key") == (["p", "q"], [])
    for misspelt, hint in (("mete", 'Did you mean "meta"'), ("mete.key", 'Columns: "id", "meta"')):
        with pytest.raises(
            SuiteError, match=rf'no row has the column "{misspelt}" that id_column names. {hint}'
        ) as caught:
            sample_ids(rows, misspelt)
        assert len(caught.value.problems) == 1
    with pytest.raises(SuiteError, match="needs one of its own in every row") as caught:
        sample_ids(rows, "meta.kez")
    assert len(caught.value.problems) == 2


# --- files ----------------------------------------------------------------------------------------------------------


def test_the_format_comes_from_the_ending_or_the_suite(load: Load) -> None:
    assert list(load("d.data", "a\n1\n", format="csv")) == [{"a": "1"}]
    assert list(load("d.NDJSON", '{"a":1}')) == [{"a": 1}]
    assert "JSONL" in problems(load, "d.json", '[{"a":1}]')[0]
    assert '"jsonl" or "csv"' in problems(load, "d.txt", "a")[0]


def test_a_missing_file_is_an_error(load: Load, tmp_path: Path) -> None:
    (tmp_path / "d.csv").mkdir()
    assert "cannot be read" in problems(load, file_id="d.csv")[0]


# --- Hugging Face ---------------------------------------------------------------------------------------------------


@pytest.fixture
def hub(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Load with the real library; nothing but local files is read."""
    reason = "needs the extra huggingface (the datasets package)"
    config = pytest.importorskip("datasets.config", reason=reason)
    monkeypatch.setattr(config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(config, "HF_DATASETS_OFFLINE", True)
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "train.jsonl").write_text('{"q": "a", "n": 1, "d": {"x": [1.5]}}\n{"q": null, "n": 2, "d": {"x": []}}\n')
    (folder / "test.jsonl").write_text('{"q": "t", "n": 3, "d": {"x": [0.5]}}\n')
    return lambda **fields: load(source="huggingface", **fields)


ROWS = [{"q": "a", "n": 1, "d": {"x": [1.5]}}, {"q": None, "n": 2, "d": {"x": []}}]


@pytest.mark.filterwarnings("ignore")
def test_hugging_face_from_local_files(hub: Load) -> None:
    assert list(hub(path="json", data_files="data/train.jsonl")) == ROWS
    assert list(hub(path="json", data_files=["data/train.jsonl", "data/test.jsonl"], max_rows=1)) == ROWS[:1]
    assert len(hub(path="json", data_files="data/*.jsonl", split="train")) == 3
    assert len(hub(path="json", data_files={"a": "data/train.jsonl", "b": ["data/test.jsonl"]}, split="b")) == 1
    assert list(hub(path="data", split="test")) == [{"q": "t", "n": 3, "d": {"x": [0.5]}}]
    assert next(iter(hub(path="text", data_files="data/test.jsonl")))["text"].startswith('{"q"')
    assert hub(path="data", split="train").where(1) == f"{WHERE}: row[1]"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"path": "data"}, 'set "split". Splits: "train", "test"'),
        ({"path": "data", "split": "dev"}, "datasets could not load"),
        ({"path": "json", "data_files": "../x.jsonl"}, "outside"),
        ({"path": "json", "data_files": "../*.jsonl"}, "may not leave"),
        ({"path": "json", "data_files": "data/*.csv"}, "no file fits"),
        ({"path": "json", "data_files": "https://example.com/x.jsonl"}, "address"),
        ({"path": "https://example.com/x"}, "address"),
        ({"path": "/etc"}, "outside the project"),
        ({"path": ".."}, "outside the project"),
        ({"path": "pandas", "data_files": "data/x.pkl"}, "not allowed"),
        ({"path": "owner/name", "data_files": "../x"}, "leaves the dataset"),
        ({"path": "no such/name/x"}, "neither a folder"),
        ({"path": "scripted"}, "own code is never run"),
        ({"path": "linked"}, "outside the project"),
    ],
)
def test_hugging_face_problems(hub: Load, tmp_path: Path, fields: dict[str, Any], word: str) -> None:
    (tmp_path / "scripted").mkdir()
    (tmp_path / "scripted" / "scripted.py").write_text("raise SystemExit\n")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "x.jsonl").symlink_to("/etc/hostname")
    assert word in problems(hub, **fields)[0]


@pytest.mark.filterwarnings("ignore")
def test_hugging_face_values_become_json(hub: Load, tmp_path: Path) -> None:
    import datetime

    datasets = pytest.importorskip("datasets")
    made = datasets.Dataset.from_dict(
        {"day": [datetime.date(2024, 2, 29)], "at": [datetime.datetime(2024, 1, 1, 12)], "raw": [b"\x00"]}
    )
    made.remove_columns("raw").to_parquet(tmp_path / "times.parquet")
    made.to_parquet(tmp_path / "raw.parquet")
    rows = hub(path="parquet", data_files="times.parquet")
    assert list(rows) == [{"day": "2024-02-29", "at": "2024-01-01T12:00:00"}]
    assert "row[0]: raw is a Python bytes" in problems(hub, path="parquet", data_files="raw.parquet")[0]


def test_hugging_face_without_the_extra(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    (problem,) = problems(load, source="huggingface", path="owner/name")
    assert 'pip install "pytest-evalgrader[huggingface]"' in problem


def test_remote_code_is_never_trusted(load: Load) -> None:
    from types import SimpleNamespace

    for key in ("trust_remote_code", "storage_options"):
        spec = SimpleNamespace(
            rows=None, source="huggingface", path="json", data_files=None, dataset_kwargs={key: True}, file_id=None
        )
        with pytest.raises(SuiteError, match=key):
            load_rows(spec, resolve=Path, rootdir=Path(), where=WHERE)  # type: ignore[arg-type]


def test_reading_is_quick(load: Load) -> None:
    import time

    rng = random.Random(1)
    data = "".join(json.dumps({"q": rng.random(), "g": "x" * 20}) + "\n" for _ in range(20_000))
    start = time.perf_counter()
    rows = load("d.jsonl", data)
    assert sum(1 for _ in rows) == 20_000
    assert time.perf_counter() - start < 60


SPOOLED = [
    ("d.jsonl", b'\xef\xbb\xbf{"q":"a","n":1}\r\n\r\n   \r\n{"q":"\xe2\x80\xa8","m":null}'),
    ("d.jsonl", b'{"q":1}\n{"q":2}\n'),
    ("d.csv", b'q,a\r\n"x,\n""y""",1\r\n,2'),
]


@pytest.mark.parametrize(("name", "data"), SPOOLED)
def test_a_large_dataset_is_the_same_outside_of_memory(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, data: bytes
) -> None:
    held = load(name, data)
    monkeypatch.setattr("pytest_evalgrader.data.dataset.SPOOL_BYTES", 1)
    spooled = load(name, data)
    (tmp_path / name).write_bytes(b"something else")
    assert list(spooled) == list(held)
    assert spooled[-1] == held[-1]
    assert [spooled.where(n) for n in range(len(held))] == [held.where(n) for n in range(len(held))]
    assert (spooled.columns, spooled.digest) == (held.columns, held.digest)
    assert type(spooled._blob).__name__ == "Spool"


def test_problems_of_a_large_dataset_name_their_lines(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_evalgrader.data.dataset.SPOOL_BYTES", 1)
    for data, line in ((b'{"q":1}\n\nnull\n', 3), (b"\n\n[1]\n", 3), (b'{"q":1}\n\xff', 2)):
        with pytest.raises(SuiteError) as caught:
            load("d.jsonl", data)
        assert caught.value.problems[0].where == f"d.jsonl:{line}"


def test_without_room_for_a_copy_memory_has_to_do(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pytest_evalgrader.data.dataset.SPOOL_BYTES", 1)
    monkeypatch.setattr("pytest_evalgrader.data.dataset.Spool.__init__", lambda self, source: full(source))
    assert list(load("d.jsonl", b'{"q":1}\n')) == [{"q": 1}]
