"""The JSON Schema accepts and refuses what the models do, as far as a JSON Schema can say it."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from suite_cases import BAD, GOOD

from pytest_evalgrader.suite.schema import suite_schema

SCHEMA = suite_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("name", GOOD)
def test_good_suites_fit(name: str) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(GOOD[name])] == []


@pytest.mark.parametrize("name", BAD)
def test_bad_suites_do_not_fit(name: str) -> None:
    document, _, _, structural = BAD[name]
    assert VALIDATOR.is_valid(document) is not structural


def test_every_key_is_described_for_editors() -> None:
    def look(definition: dict[str, Any], at: str) -> None:
        assert definition["description"], at
        assert definition["additionalProperties"] is False, at
        for key, value in definition["properties"].items():
            assert value.get("description"), f"{at}.{key}"
            assert "null" not in str(value.get("type", "")), f"{at}.{key}"

    look(SCHEMA, "suite")
    for name, definition in SCHEMA["$defs"].items():
        look(definition, name)
