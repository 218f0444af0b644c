"""The building blocks of the manifest's models: strict values, and messages that a stranger can act on."""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError, core_schema

from pytest_evalgrader.suite.wording import describe, did_you_mean, listing, nearest, quote

_SAY = "say"
_MAX_EXACT = 2**53


def say(message: str) -> PydanticCustomError:
    """Make the error whose text is shown as it is."""
    return PydanticCustomError(_SAY, "{say}", {"say": message})


def found(value: object, expected: str) -> str:
    """Word the commonest message: what was found, and what was expected."""
    return f"found {describe(value)}, expected {expected}."


class Notes:
    """Collects problems of one object that its fields cannot see alone."""

    def __init__(self) -> None:
        self.details: list[InitErrorDetails] = []

    def add(self, message: str, *loc: str | int, value: object = None) -> None:
        """Note a problem.

        Args:
            message: What was found, expected, and to do.
            loc: The place, from the object down; empty for the object itself.
            value: What stands there.
        """
        self.details.append({"type": say(message), "loc": tuple(loc), "input": value})


def _checked(schema: core_schema.CoreSchema, prepare: Callable[[Any], Any], expected: str) -> core_schema.CoreSchema:
    def check(value: Any, handler: core_schema.ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(prepare(value))
        except ValidationError:
            raise say(found(value, expected)) from None

    return core_schema.no_info_wrap_validator_function(check, schema)


@dataclass(frozen=True)
class Within:
    """A number within bounds; text and booleans are not numbers, NaN and infinity neither.

    On an `int` field a float without a fraction counts as whole, as it does in JSON Schema. On a `float` field with a
    unit, a whole number stays an int, so that messages show `10` and not `10.0`.

    Args:
        low: The least value.
        high: The greatest value.
        unit: What is counted, as said in messages.
        above: The value must be above `low`, not at it.
    """

    low: float | None = None
    high: float | None = None
    unit: str = ""
    above: bool = False

    def expected(self, whole: bool) -> str:
        """Say what the field takes."""
        noun = ("a whole number" if whole else "a number") + (f" of {self.unit}" if self.unit else "")
        if self.low is None:
            return noun
        if self.high is not None:
            return f"{noun} from {self.low:,} to {self.high:,}"
        return f"{noun} above {self.low:,}" if self.above else f"{noun} that is at least {self.low:,}"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        whole = source is int
        low = None if self.above else self.low
        over = self.low if self.above else None
        if whole:
            as_int = core_schema.int_schema(
                strict=True,
                ge=None if low is None else int(low),
                gt=None if over is None else int(over),
                le=None if self.high is None else int(self.high),
            )
            return _checked(as_int, _integral, self.expected(True))
        as_float = core_schema.float_schema(strict=True, allow_inf_nan=False, ge=low, gt=over, le=self.high)
        schema = _checked(as_float, _representable, self.expected(False))
        if self.unit:
            return core_schema.no_info_after_validator_function(_integral, schema)
        return schema


@dataclass(frozen=True)
class Words:
    """A text that is not blank, and matches a pattern where one is given.

    Args:
        pattern: A regular expression for the whole text.
        expected: What the text should be, as said in messages.
    """

    pattern: str | None = None
    expected: str = "a text that says something"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        compiled = re.compile(self.pattern or r"(?s).*\S.*")

        def check(value: Any) -> Any:
            if isinstance(value, str) and not compiled.fullmatch(value):
                raise say(found(value, self.expected) if value.strip() or not value else _only_space(self.expected))
            if not isinstance(value, str):
                raise say(found(value, self.expected))
            return value

        # Python's $ also matches before a last line end; the look-ahead takes that away in every dialect.
        shown = r"\S" if self.pattern is None else rf"^(?:{self.pattern})$(?!\n)"
        return core_schema.no_info_before_validator_function(
            check,
            core_schema.str_schema(strict=True),
            metadata={"pydantic_js_updates": {"pattern": shown}},
        )


@dataclass(frozen=True)
class Either:
    """A value of one of several JSON types, otherwise free.

    Args:
        types: Names of JSON Schema types.
        expected: What that is, in words.
    """

    types: tuple[str, ...]
    expected: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        def check(value: Any) -> Any:
            if json_type(value) not in self.types:
                raise say(found(value, self.expected))
            return value

        return core_schema.no_info_before_validator_function(
            check, core_schema.any_schema(), metadata={"pydantic_js_updates": {"type": list(self.types)}}
        )


def json_type(value: object) -> str:
    """Name the JSON Schema type of a value, with `number` for every number."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, Mapping):
        return "object"
    return "array" if isinstance(value, Sequence) else "other"


def _only_space(expected: str) -> str:
    return f"found only white space, expected {expected}."


def _integral(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < _MAX_EXACT:
        return int(value)
    return value


def _representable(value: Any) -> Any:
    # pydantic would raise OverflowError from inside.
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**300:
        raise say("found a very large number, expected one below 1e300.")
    return value


def read(holder: object, key: str) -> Any:
    """Read a field of an object that may still be raw JSON, or already a model; None where it has none."""
    if isinstance(holder, Mapping):
        return holder.get(key)
    return getattr(holder, key, None)


class Spec(BaseModel):
    """Base of what the JSON says: unknown keys are refused, values are strict, problems are worded here."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())

    other_names: ClassVar[Mapping[str, str]] = {}
    """Other names of keys: as written → field."""

    kind: ClassVar[str] = "object"
    """What the object is, in messages."""

    @classmethod
    def prepare(cls, fields: dict[str, Any], notes: Notes) -> None:
        """Normalise the raw fields, and note what concerns several of them.

        Args:
            fields: A copy of the raw object; may be changed.
            notes: Collects the problems.
        """

    @classmethod
    def key_names(cls) -> list[str]:
        """List every key that the object takes, other names included."""
        own = [field.alias or name for name, field in cls.model_fields.items()]
        return [*own, *cls.other_names]

    @model_validator(mode="wrap")
    @classmethod
    def _validate(cls, data: Any, handler: ModelWrapValidatorHandler[Any]) -> Any:
        if not isinstance(data, dict):
            if isinstance(data, cls):
                return data
            raise say(found(data, f"an object ({cls.kind})"))
        notes = Notes()
        fields = dict(data)
        known = cls.key_names()
        for key, value in data.items():
            if value is None and key in known:
                notes.add("found null; leave the key out where there is nothing to say.", key)
                fields.pop(key)
        written = cls._one_name(fields, notes)
        cls.prepare(fields, notes)
        try:
            made = handler(fields)
        except ValidationError as error:
            nulls = {key for key, value in data.items() if value is None}
            for detail in error.errors(include_url=False):
                if detail["type"] == "missing" and detail["loc"] and detail["loc"][0] in nulls:
                    continue
                notes.details.append(cls._worded(detail, written))
        if notes.details:
            raise ValidationError.from_exception_data(cls.__name__, notes.details)
        return made

    @classmethod
    def _one_name(cls, fields: dict[str, Any], notes: Notes) -> dict[str, str]:
        """Move values to their field's own name; returns field → name as written."""
        written: dict[str, str] = {}
        for other, own in cls.other_names.items():
            if other not in fields:
                continue
            value = fields.pop(other)
            if own not in fields:
                fields[own] = value
                written[own] = other
            elif fields[own] != value:
                notes.add(f"{quote(other)} is another name of {quote(own)}, and they differ; keep one of them.", other)
        return written

    @classmethod
    def _worded(cls, detail: ErrorDetails, written: Mapping[str, str]) -> InitErrorDetails:
        loc = detail["loc"]
        if loc and isinstance(loc[0], str) and loc[0] in written:
            loc = (written[loc[0]], *loc[1:])
        message = detail["ctx"]["say"] if detail["type"] == _SAY else cls._message(detail)
        return {"type": say(message), "loc": loc, "input": detail.get("input")}

    @classmethod
    def _message(cls, detail: ErrorDetails) -> str:
        kind, loc, value = detail["type"], detail["loc"], detail["input"]
        context = detail.get("ctx", {})
        if kind == "extra_forbidden":
            return f"unknown key. {did_you_mean(str(loc[-1]), cls.key_names(), what='Known keys')}"
        if kind == "missing":
            field = next(f for n, f in cls.model_fields.items() if (f.alias or n) == loc[-1])
            what = field.description or "it has no default."
            return f"required, but missing. Add it: {what[0].lower()}{what[1:]}"
        if kind == "literal_error":
            options = cls._options(loc)
            near = nearest(value, options) if isinstance(value, str) else []
            meant = f" Did you mean {listing(near)}?" if near else ""
            return f"found {describe(value)}, expected {listing(options)}.{meant}"
        if kind == "too_short":
            return found(value, "at least one entry")
        if kind == "too_long":
            return f"found {context['actual_length']:,} entries, expected at most {context['max_length']:,}."
        expected = _EXPECTED.get(kind)
        return found(value, expected) if expected else f"{detail['msg'][:1].lower()}{detail['msg'][1:]}."

    @classmethod
    def _options(cls, loc: Sequence[str | int]) -> list[str]:
        annotation: Any = cls.model_fields[str(loc[0])].annotation
        return [str(option) for option in _literals(annotation)]


def _literals(annotation: Any) -> list[Any]:
    if typing.get_origin(annotation) is Literal:
        return list(typing.get_args(annotation))
    return [option for inner in typing.get_args(annotation) for option in _literals(inner)]


_EXPECTED = {
    "string_type": "a text",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "int_type": "a whole number",
    "float_type": "a number",
}
