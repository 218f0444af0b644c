"""Results become plain JSON, whatever they are."""
# ruff: noqa: E501 - one line for each case of a table

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict, UserDict, namedtuple
from datetime import datetime
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_evalgrader.sandbox import frames, reduce


class Level(IntEnum):
    HIGH = 2


class Half(float):
    def __float__(self) -> float:
        return math.nan

    def __repr__(self) -> str:
        raise SystemExit


class Endless(dict[str, Any]):
    def items(self) -> Any:
        raise AssertionError("never asked")

    keys = values = __iter__ = __len__ = items  # type: ignore[assignment]


class Broken:
    def __repr__(self) -> str:
        raise ValueError("no")


class Liar:
    @property
    def __class__(self) -> Any:  # type: ignore[override]
        return dict


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1, 1.0), (0.5, 0.5), (-0.0, 0.0), (Decimal("0.25"), 0.25), (Fraction(1, 4), 0.25), (Level.HIGH, 2.0), (Half(0.5), 0.5),
        (math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf"), (10**400, "inf"), (-(10**400), "-inf"),
        (Decimal("nan"), "nan"), (Decimal("sNaN"), "nan"), (Decimal("-Infinity"), "-inf"), (Decimal("1e999"), "inf"),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_numbers(value: Any, number: Any) -> None:
    reduced = reduce.reduce_result(value, "score")
    assert reduced["kind"] == "number"
    assert reduced["number"] == number
    assert type(reduced["number"]) in (float, str)


@pytest.mark.parametrize(
    ("value", "kind", "raw"),
    [
        (True, "boolean", True),
        (None, "none", None),
        ("0.9", "text", "0.9"),
        ("１２", "text", "１２"),
        ([1.0], "list", [1.0]),
        (Point(1, 2), "list", [1, 2]),
        ({1, 2, 10}, "other", [1, 2, 10]),
        (b"x", "other", "b'x'"),
        (1j, "other", "1j"),
        (Broken(), "other", "<Broken: its repr raised ValueError>"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_kinds(value: Any, kind: str, raw: Any) -> None:
    reduced = reduce.reduce_result(value, "score")
    assert (reduced["kind"], reduced["raw"], reduced["scores"]) == (kind, raw, {})


def test_a_generator_is_never_started() -> None:
    started = []

    def generate() -> Any:
        started.append(1)
        yield 1

    assert reduce.reduce_result(generate(), "score")["kind"] == "other"
    assert reduce.to_json({"details": generate()})["details"].startswith("<generator")
    assert not started


def test_no_address_in_memory_is_kept() -> None:
    for value in (lambda: 1, object(), [object()], {"a": iter([1])}):
        assert "0x" not in str(reduce.reduce_result(value, "score")["raw"])


def test_a_class_that_lies_about_itself() -> None:
    assert reduce.reduce_result(Liar(), "score")["kind"] == "other"


def test_scores() -> None:
    value = {
        "scores": {"a": 1, "b": True, "c": "x", "d": math.nan, "e": 0.5, "f": Decimal("0.1"), "g": None, "h": [1], "i": Half(0.25), 7: 1},
        "judge": OrderedDict(why=["because", 1]),
    }  # fmt: skip
    reduced = reduce.reduce_result(value, "score")
    assert reduced["scores"] == {"a": 1.0, "e": 0.5, "f": 0.1, "i": 0.25, "7": 1.0}
    assert reduced["dropped"] == {"b": "a bool", "c": "a text", "d": "not finite (nan)", "g": "None", "h": "a list"}
    assert reduced["judge"] == {"why": ["because", 1]}
    assert reduced["raw"] is None, "the payload is not sent twice"


@pytest.mark.parametrize(
    "value", [{}, {"accuracy": 1.0}, {"scores": {}}, {"scores": [1]}, {"scores": {"s": True}, "judge": {"k": "kept"}}]
)
def test_no_score(value: dict[str, Any]) -> None:
    reduced = reduce.reduce_result(value, "score")
    assert reduced["scores"] == {}
    assert reduced["raw"] == value
    assert reduced["judge"] == value.get("judge")


def test_overridden_methods_are_never_asked() -> None:
    reduced = reduce.reduce_result(Endless(scores=Endless(a=1), judge=Endless(b=2)), "score")
    assert (reduced["scores"], reduced["judge"]) == ({"a": 1.0}, {"b": 2})


def test_mappings_that_are_no_dict() -> None:
    assert reduce.reduce_result(UserDict(scores={"a": 1}), "score")["scores"] == {"a": 1.0}


def test_payloads() -> None:
    loop: list[Any] = []
    loop.append(loop)
    payload = {
        "when": datetime(2024, 1, 2), "tags": {"b", "a"}, "err": ValueError("x"), 3: "int", "3": "text", (1, 2): "tuple", None: 1, True: 2,
        1.5: 3, "loop": loop, "inf": math.inf, "counter": Counter("aab"), "level": Level.HIGH, "half": "bad \ud83d", "big": 10**5000,
        "long": "x" * 10_000, "mixed": {3, "3", None},
    }  # fmt: skip
    reduced = reduce.to_json(payload)
    assert json.loads(json.dumps(reduced)) == reduced
    assert reduced["when"] == "datetime.datetime(2024, 1, 2, 0, 0)"
    assert reduced["tags"] == ["a", "b"]
    assert reduced["err"] == "ValueError('x')"
    assert (reduced["3"], reduced["3 (int)"], reduced["(1, 2)"]) == ("text", "int", "tuple")
    assert (reduced["null"], reduced["true"], reduced["1.5"]) == (1, 2, 3)
    assert (reduced["loop"], reduced["inf"], reduced["level"]) == (["<cycle>"], "inf", 2)
    assert reduced["counter"] == {"a": 2, "b": 1}
    assert reduced["half"] == "bad \ud83d"
    assert reduced["big"].startswith("<an integer of 16,6")
    assert len(reduced["long"]) == 10_000, "text is never cut"
    assert len(reduced["mixed"]) == 3


def test_a_long_repr_is_cut() -> None:
    assert reduce.to_json(b"x" * 5_000).endswith("… (5,003 characters)")


def test_shared_objects_that_unfold_without_end_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduce, "MAX_NODES", 10_000)
    value: list[Any] = [1]
    for _ in range(60):
        value = [value, value]
    assert len(json.dumps(reduce.to_json(value))) < 1_000_000


def test_deep_values_are_cut() -> None:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    text = json.dumps(reduce.to_json(value))
    assert "nested more than 100 levels" in text
    frames.decode(frames.encode({"x": reduce.to_json(value)})[frames.HEADER.size :])


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (0.5, "grade_batch returned float"),
        ([0.1, 0.2, 0.3], "grade_batch returned list of 3"),
        ((1, 2), "grade_batch returned tuple of 2"),
        ("x", "grade_batch returned str"),
        (None, "grade_batch returned NoneType"),
        ({}, "neither `metrics` nor `samples`"),
        ({"samples": "abc"}, "`samples` is a str, not a list"),
        ({"samples": [1]}, "samples[0] is a int, not an object"),
        ({"samples": [{"scores": {}}]}, "samples[0] has no `sample_id`"),
        ({"samples": [{"sample_id": 3}]}, "samples[0] has a `sample_id` that is no text"),
        ({"samples": [{"sample_id": "a"}, {"sample_id": "a"}]}, "sample 'a' is updated twice"),
        ({"samples": [{"sample_id": "a", "judge": [1]}]}, "samples[0].judge is a list, not an object"),
        ({"samples": [{"sample_id": "a", "extracted_output": 4}]}, "samples[0].extracted_output is a int, not a text"),
    ],
)
def test_batches_of_another_shape(value: Any, problem: str) -> None:
    reduced = reduce.reduce_result(value, "batch")
    assert any(problem in found for found in reduced["problems"]), reduced


def test_batches() -> None:
    reduced = reduce.reduce_result(
        {
            "metrics": {"a": 1, "b": math.nan, "c": True},
            "samples": [
                {"sample_id": "x", "scores": {"s": 1, "t": "no"}, "judge": None},
                {"sample_id": "y", "extracted_output": None},
            ],
        },
        "batch",
    )
    assert reduced["metrics"] == {"a": 1.0}
    assert reduced["bad_metrics"] == {"b": "not finite (nan)", "c": "a bool"}
    assert reduced["samples"] == [
        {"sample_id": "x", "scores": {"s": 1.0}, "dropped": {"t": "a text"}, "judge": None},
        {"sample_id": "y", "extracted_output": None},
    ]
    assert reduced["problems"] == []


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "returned NoneType (missing return?), not a row"),
        ([1], "returned list, not a row"),
        ({"a": {1}}, "a is a set"),
        ({"a": {"b": [1, math.nan]}}, "a.b[1] is nan"),
        ({"a": datetime(2024, 1, 1)}, "a is a datetime"),
        ({3: 1}, "the result has the key 3, which is no text"),
        ({"a": 10**5000}, "a is an integer of more than 4,000 digits"),
    ],
)
def test_rows_are_exact_or_a_problem(value: Any, problem: str) -> None:
    reduced = reduce.reduce_result(value, "row")
    assert reduced["value"] is None
    assert problem in reduced["problem"]


def test_rows() -> None:
    row = {"a": [1, 2.5, "x", None, True], "b": {"c": {}}, "t": (1, 2)}
    assert reduce.reduce_result(row, "row")["value"] == {**row, "t": [1, 2]}
    assert reduce.reduce_result([row], "rows")["value"] == [{**row, "t": [1, 2]}]
    assert "[1] is a int" in reduce.reduce_result([row, 3], "rows")["problem"]
    loop: dict[str, Any] = {}
    loop["self"] = loop
    assert "contains itself" in reduce.reduce_result(loop, "row")["problem"]
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"d": deep}
    assert "nested more than 100 levels" in reduce.reduce_result(deep, "row")["problem"]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=5) | st.decimals() | st.fractions(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3) | st.integers() | st.none(), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(anything)
def test_any_value_travels(value: Any) -> None:
    for shape in ("score", "batch", "row", "rows"):
        reduced = reduce.reduce_result(value, shape)  # type: ignore[arg-type]
        assert frames.decode(frames.encode(reduced)[frames.HEADER.size :]) == reduced


@given(
    st.dictionaries(st.text(), st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text())
)
def test_plain_json_stays_as_it_is(value: dict[str, Any]) -> None:
    assert reduce.to_json(value) == value
    assert reduce.reduce_result(value, "row")["value"] == value


@pytest.mark.parametrize(
    "body", [b"", b"x", b"[]", b"1", b"NaN", b'{"a": Infinity}', b'{"a": 1e999}', b'{"a": "\xff"}', b"{" * 5_000, b'{"a":' * 500 + b"1" + b"}" * 500, b'{"a": ' + b"9" * 9_999 + b"}"]
)  # fmt: skip
def test_what_is_no_frame(body: bytes) -> None:
    with pytest.raises(frames.FrameError):
        frames.decode(body)
