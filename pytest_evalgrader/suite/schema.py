"""The JSON Schema of a suite, so that editors complete and check while one is written.

It is derived from the models of `manifest.py`; what a model checks over several keys is added here as far as JSON
Schema can say it. What it cannot say (unique ids, references, regular expressions, files) only `evalgrader validate`
finds.
"""

from __future__ import annotations

from typing import Any

from pytest_evalgrader.suite.manifest import (
    ACTING_MARKS,
    REFUSED_DATASET_KWARGS,
    SCHEMA_VERSION,
    DatasetSpec,
    GenerationSpec,
    SuiteSpec,
)

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_ONE_SOURCE = {"oneOf": [{"required": ["source"]}, {"required": ["file_id"]}]}
_PATH = {"type": "string", "pattern": r"\S"}
_STOP = {"type": "string", "minLength": 1}

# By model: constraints over several keys, which pydantic holds in validators.
_RULES: dict[str, dict[str, Any]] = {
    "PythonGraderSpec": _ONE_SOURCE,
    "PreprocessSpec": _ONE_SOURCE,
    "DatasetSpec": {
        "oneOf": [{"required": ["file_id"]}, {"required": ["rows"]}, {"required": ["source"]}],
        "dependentRequired": {
            "format": ["file_id"],
            "source": ["path"],
            **{key: ["source"] for key in DatasetSpec.hub_keys},
        },
    },
    "ThresholdSpec": {"minProperties": 1},
    "TaskSpec": {
        "oneOf": [{"required": ["grader"]}, {"required": ["graders"]}],
        "anyOf": [{"required": ["num_fewshot"]}, {"properties": {"fewshot": {"required": ["count"]}}}],
    },
}

# By model and key: what replaces or extends the schema of a value.
_VALUES: dict[str, dict[str, dict[str, Any]]] = {
    "DatasetSpec": {
        "data_files": {
            "anyOf": [
                _PATH,
                {"type": "array", "items": _PATH},
                {"type": "object", "additionalProperties": {"anyOf": [_PATH, {"type": "array", "items": _PATH}]}},
            ]
        },
        "dataset_kwargs": {
            "type": "object",
            "properties": {"trust_remote_code": {"const": False}},
            "propertyNames": {"not": {"enum": sorted(REFUSED_DATASET_KWARGS | set(DatasetSpec.model_fields))}},
        },
    },
    "EndpointSpec": {
        "url": {
            "type": "string",
            "pattern": r"^(?:[A-Za-z0-9_-]+|[Hh][Tt][Tt][Pp][Ss]?://[^/?#@\s]+(?:/[^?#]*)?)$(?!\n)",
        }
    },
    "GenerationSpec": {"stop": {"anyOf": [_STOP, {"type": "array", "items": _STOP}]}},
    "LabelSetExtraction": {"labels": {"uniqueItems": True}},
    "MetricSpec": {"threshold": {"anyOf": [{"type": "number"}, {"$ref": "#/$defs/ThresholdSpec"}]}},
    "RegexExtraction": {"group": {"type": ["integer", "string"], "minimum": 0}},
    "RunSpec": {"models": {"uniqueItems": True}},
    "SuiteSpec": {"schema_version": {"const": SCHEMA_VERSION}},
    "TaskSpec": {"models": {"uniqueItems": True}},
}


def suite_schema() -> dict[str, Any]:
    """Make the JSON Schema of a suite file.

    Returns:
        A draft 2020-12 schema. Unknown keys are refused; `$schema` is allowed at the top, and `metadata` is free.
    """
    schema = SuiteSpec.model_json_schema(by_alias=True)
    definitions = schema.pop("$defs")
    for name, definition in definitions.items():
        _finish(name, definition)
    _finish("SuiteSpec", schema)
    for other, own in GenerationSpec.other_names.items():
        keys = definitions["GenerationSpec"]["properties"]
        keys[other] = {**keys[own], "description": f"Another name of {own}."}
    tags = definitions["TaskSpec"]["properties"]["tags"]["items"]
    tags["not"] = {"enum": sorted(ACTING_MARKS)}
    definitions["FewShotSpec"]["required"].remove("count")  # num_fewshot of the task may stand for it
    return {"$schema": DIALECT, **schema, "title": "A suite of pytest-evalgrader", "$defs": definitions}


def _finish(name: str, definition: dict[str, Any]) -> None:
    """Make one model's schema as strict as the model, and readable in an editor."""
    definition["title"] = name.removesuffix("Spec")
    properties: dict[str, dict[str, Any]] = definition["properties"]
    for key, value in properties.items():
        _without_null(value)
        value.pop("title", None)
        more = _VALUES.get(name, {}).get(key, {})
        if "anyOf" in more or "type" in more:
            for old in ("anyOf", "oneOf", "$ref", "type", "items", "pattern", "additionalProperties"):
                value.pop(old, None)
        value.update(more)
    definition.setdefault("required", [])
    definition.update(_RULES.get(name, {}))


def _without_null(value: dict[str, Any]) -> None:
    """Take off the null that stands for `not given` in the model: the JSON leaves the key out instead."""
    options = value.get("anyOf")
    if options is None or {"type": "null"} not in options:
        return
    rest = [option for option in options if option != {"type": "null"}]
    del value["anyOf"]
    if value.get("default", 0) is None:
        del value["default"]
    if len(rest) == 1:
        value.update({key: inner for key, inner in rest[0].items() if key not in value})
    else:
        value["anyOf"] = rest
