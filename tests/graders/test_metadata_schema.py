"""Metadata schemas that come from somebody else's server: what fits, and what must not hurt."""

from __future__ import annotations

import time
from typing import Any

import pytest

from pytest_evalgrader.graders.metadata_schema import MetadataSchema, SchemaUnusable

LIMIT = {"type": "object", "properties": {"limit": {"type": "integer"}}, "required": ["limit"]}
EVIL = "^(a|aa)+$"
LONG = "a" * 60 + "b"


def doubling() -> dict[str, Any]:
    levels: dict[str, Any] = {"l0": {"type": "object"}}
    for i in range(1, 40):
        levels[f"l{i}"] = {"allOf": [{"$ref": f"#/$defs/l{i - 1}"}] * 2}
    return {"$ref": "#/$defs/l39", "$defs": levels}


def check(schema: Any, metadata: dict[str, Any]) -> None:
    MetadataSchema(schema, check_s=0.3).problems({"x": "text", **metadata})
    MetadataSchema(schema, check_s=0.3).problems("text")


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"not": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "metadata", "found"),
    [
        (LIMIT, {"limit": 3}, ""),
        (LIMIT, {"limit": "three"}, "metadata.limit: 'three' is not of type 'integer'"),
        (LIMIT, {}, "metadata: 'limit' is a required property"),
        (True, {"a": 1}, ""),
        (False, {"a": 1}, "metadata: False schema does not allow"),
        ({"properties": {"a": {"pattern": "^b"}}}, {"a": "ab"}, 'metadata.a: "ab" does not match "^b"'),
        ({"properties": {"a": {"items": {"type": "string"}}}}, {"a": ["x", 1]}, "metadata.a[1]: 1 is not of type"),
        ({"properties": {"a": {}}, "additionalProperties": False}, {"b": 1}, 'metadata: the schema allows no "b"'),
        ({"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False}, {"x1": 2}, ""),
        ({"patternProperties": {"^x": {"type": "integer"}}}, {"x1": "2"}, "metadata.x1:"),
        ({"additionalProperties": {"type": "integer"}}, {"b": "1"}, "metadata.b:"),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": {"type": "integer"}}},
            {"a": "x"},
            "metadata.a",
        ),
        ({"$schema": "https://example.org/mine", "properties": {"a": {"type": "integer"}}}, {"a": "x"}, "metadata.a"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"required": ["z"]}}}, {}, "'z' is a required property"),
    ],
)
def test_says_what_does_not_fit(schema: Any, metadata: Any, found: str) -> None:
    problems = MetadataSchema(schema).problems(metadata)
    assert (found in problems[0] and found) if found else problems == []


@pytest.mark.parametrize(
    ("schema", "metadata", "why"),
    [
        ({"properties": {"a": {"pattern": EVIL}}}, {"a": LONG}, "took more than"),
        ({"patternProperties": {EVIL: {}}}, {LONG: 1}, "took more than"),
        ({"patternProperties": {EVIL: {}}, "additionalProperties": False}, {LONG: 1}, "took more than"),
        ({"propertyNames": {"pattern": EVIL}}, {LONG: 1}, "took more than"),
        (doubling(), {}, "took more than"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, {}, "refers to itself"),
        ({"$ref": "http://127.0.0.1:9/schema.json"}, {}, "nothing is fetched"),
        ({"$ref": "file:///etc/hostname"}, {}, "nothing is fetched"),
        ({"$ref": "#/$defs/none"}, {}, "nothing is fetched"),
        (
            {"properties": {"a": {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": EVIL}}},
            {"a": LONG},
            "dialect",
        ),
        ({"patternProperties": {EVIL: {}}, "unevaluatedProperties": False}, {LONG: 1}, "not supported"),
        ({"type": "obj"}, {}, "no JSON schema"),
        ({"pattern": "("}, {}, "pattern"),
        ({"properties": {"a": {"pattern": "x" * 3000}}}, {}, "characters"),
        ({"enum": ["x" * 600_000]}, {}, "characters"),
        ([1], {}, "expected a JSON schema"),
        ("text", {}, "expected a JSON schema"),
        (None, {}, "expected a JSON schema"),
        (deep(200), {}, "deep"),
        (deep(5000), {}, "deep"),
    ],
)
def test_a_hostile_schema_is_refused_in_bounded_time(schema: Any, metadata: Any, why: str) -> None:
    began = time.monotonic()
    with pytest.raises(SchemaUnusable, match=why):
        check(schema, metadata)
    assert time.monotonic() - began < 60  # bounded, whatever else the machine does


def test_messages_stay_short() -> None:
    problems = MetadataSchema({"properties": {"a": {"type": "integer"}}}).problems({"a": "x" * 100_000})
    assert len(problems[0]) < 300


def test_lists_a_few_problems() -> None:
    schema = {"properties": {name: {"type": "integer"} for name in "abcdefgh"}}
    problems = MetadataSchema(schema).problems(dict.fromkeys("abcdefgh", "x"))
    assert len(problems) == 6
    assert problems[-1] == "and 3 more"
