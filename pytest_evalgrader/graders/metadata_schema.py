"""Checking a row's metadata against a JSON schema that somebody else's server sent.

The schema is not trusted: nothing is fetched, patterns run under a time limit, and so does the whole check.
"""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jsonschema
import regex
from jsonschema.exceptions import SchemaError, ValidationError, relevance
from jsonschema.validators import extend, validator_for
from referencing.exceptions import Unresolvable
from referencing.jsonschema import EMPTY_REGISTRY

MAX_SCHEMA_CHARS = 500_000
MAX_PATTERN_CHARS = 2_000
MAX_DEPTH = 100
CHECK_S = 5.0
PATTERN_S = 1.0
_SHOWN_ERRORS = 5
_SHOWN_CHARS = 200

_Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]


class SchemaUnusable(ValueError):
    """The schema cannot be used, or takes too long; the message says why, without a full stop."""


# jsonschema's own annotations leave this function out.
_extend: Callable[..., Any] = extend


class MetadataSchema:
    """A schema, ready to check metadata with.

    Args:
        schema: As the server sent it.
        check_s: Bound on one check, in seconds.

    Raises:
        SchemaUnusable: It is no schema, too large, or holds what is refused.
    """

    def __init__(self, schema: Any, *, check_s: float = CHECK_S) -> None:
        if not isinstance(schema, (dict, bool)):
            raise SchemaUnusable(f"it is {_shown(schema)}, expected a JSON schema (an object)")
        try:
            size = len(json.dumps(schema))
        except (ValueError, RecursionError) as err:
            raise SchemaUnusable("it is nested too deeply") from err
        if size > MAX_SCHEMA_CHARS:
            raise SchemaUnusable(f"it has {size:,} characters, more than {MAX_SCHEMA_CHARS:,}")
        schema = copy.deepcopy(schema)
        base = validator_for(schema, default=jsonschema.Draft202012Validator)
        self._deadline = _Deadline()
        self._check_s = check_s
        if isinstance(schema, dict):
            # jsonschema goes back to its own unguarded classes wherever a subschema names a dialect.
            schema.pop("$schema", None)
        _refuse(schema)
        guarded = {name: self._guard(keyword) for name, keyword in base.VALIDATORS.items()}
        for name, keyword in _TIMED.items():
            if name in guarded:
                guarded[name] = self._guard(keyword)
        checked: Any = _extend(base, guarded)
        with self._deadline.running(check_s):
            try:
                base.check_schema(schema)
            except SchemaError as err:
                raise SchemaUnusable(f"it is no JSON schema: {_place('schema', err)}: {_cut(err.message)}") from err
            except RecursionError as err:
                raise SchemaUnusable("it is nested too deeply") from err
        self._validator = checked(schema, registry=EMPTY_REGISTRY)

    def problems(self, metadata: Any) -> list[str]:
        """List what does not fit, the most telling first.

        Args:
            metadata: The row's metadata.

        Returns:
            Texts such as `metadata.limit: 'three' is not of type 'integer'`; empty where it fits.

        Raises:
            SchemaUnusable: The check took too long, or the schema points somewhere else.
        """
        try:
            with self._deadline.running(self._check_s):
                errors = []
                for error in self._validator.iter_errors(metadata):
                    errors.append(error)
                    if len(errors) == 50:
                        break
        except Unresolvable as err:
            raise SchemaUnusable(f"it refers to {_shown(err.ref)}, which it does not hold; nothing is fetched") from err
        except RecursionError as err:
            raise SchemaUnusable("it refers to itself without end, or the metadata is nested too deeply") from err
        except regex.error as err:
            raise SchemaUnusable(f"a pattern in it is not valid: {err}") from err
        errors.sort(key=relevance, reverse=True)
        listed = [f"{_place('metadata', error)}: {_cut(error.message)}" for error in errors[:_SHOWN_ERRORS]]
        if len(errors) > _SHOWN_ERRORS:
            listed.append(f"and {len(errors) - _SHOWN_ERRORS} more")
        return listed

    def _guard(self, keyword: _Keyword) -> _Keyword:
        deadline = self._deadline

        def guarded(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError] | None:
            deadline.check()
            return keyword(validator, value, instance, schema)

        return guarded


class _Deadline(threading.local):
    """When the check of this thread has to be done."""

    def __init__(self) -> None:
        self.at = float("inf")
        self.limit = 0.0

    def running(self, limit: float) -> _Running:
        return _Running(self, limit)

    def check(self) -> None:
        if time.monotonic() > self.at:
            raise SchemaUnusable(f"checking against it took more than {self.limit:g} s")


class _Running:
    def __init__(self, deadline: _Deadline, limit: float) -> None:
        self._deadline = deadline
        self._limit = limit

    def __enter__(self) -> None:
        self._deadline.limit = self._limit
        self._deadline.at = time.monotonic() + self._limit

    def __exit__(self, *_: object) -> None:
        self._deadline.at = float("inf")


def _refuse(schema: Any) -> None:
    """Refuse what the checks below cannot hold within bounds.

    Raises:
        SchemaUnusable: With the place.
    """
    names: set[str] = set()
    todo: list[tuple[Any, int]] = [(schema, 0)]
    while todo:
        node, depth = todo.pop()
        if depth > MAX_DEPTH:
            raise SchemaUnusable(f"it is nested more than {MAX_DEPTH} levels deep")
        if isinstance(node, list):
            todo += [(item, depth + 1) for item in node]
        if not isinstance(node, dict):
            continue
        if isinstance(node.get("$schema"), str):
            raise SchemaUnusable("a part of it names a dialect of its own ($schema), which is not supported")
        patterns = node.get("patternProperties")
        for pattern in [node.get("pattern"), *(patterns if isinstance(patterns, dict) else ())]:
            if isinstance(pattern, str) and len(pattern) > MAX_PATTERN_CHARS:
                raise SchemaUnusable(f"a pattern in it has more than {MAX_PATTERN_CHARS:,} characters")
        names.update(node)
        todo += [(item, depth + 1) for item in node.values()]
    if {"unevaluatedProperties", "patternProperties"} <= names:
        # That keyword runs the patterns itself, without a time limit.
        raise SchemaUnusable("it uses unevaluatedProperties together with patternProperties, which is not supported")


def _search(pattern: str, text: str) -> bool:
    try:
        return regex.search(pattern, text, timeout=PATTERN_S) is not None
    except TimeoutError as err:
        raise SchemaUnusable(f"its pattern {_shown(pattern)} took more than {PATTERN_S:g} s on a text") from err


def _pattern(validator: Any, pattern: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not _search(pattern, instance):
        yield ValidationError(f"{_shown(instance)} does not match {_shown(pattern)}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, subschema in patterns.items():
        for key, value in instance.items():
            if _search(pattern, key):
                yield from validator.descend(value, subschema, path=key, schema_path=pattern)


def _additional_properties(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    known = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    extra = [key for key in instance if key not in known and not any(_search(p, key) for p in patterns)]
    if isinstance(allowed, Mapping):
        for key in extra:
            yield from validator.descend(instance[key], allowed, path=key)
    elif not allowed and extra:
        listed = ", ".join(_shown(key) for key in sorted(extra)[:10])
        yield ValidationError(f"the schema allows no {listed}" + (" and more" if len(extra) > 10 else ""))


_TIMED: dict[str, _Keyword] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
}


def _place(root: str, error: Any) -> str:
    place = root
    for part in error.absolute_path:
        place += f"[{part}]" if isinstance(part, int) else f".{part}"
    return place if len(place) <= _SHOWN_CHARS else place[: _SHOWN_CHARS - 3] + "..."


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 80 else text[:77] + "..."
