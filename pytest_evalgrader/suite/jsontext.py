"""Reads the JSON of a suite strictly, and says by line what is wrong with it."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, NoReturn

from pytest_evalgrader.errors import Problem, SuiteError
from pytest_evalgrader.suite.wording import place, quote

MAX_DEPTH = 200
"""Deepest nesting of lists and objects in a suite; deeper values break other JSON tools on the way."""

MAX_DIGITS = 4300
"""Longest whole number, in digits: the limit that Python itself sets on reading one."""

_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"|-?Infinity|NaN|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|[{}\[\],:]|true|false|null', re.S
)

_JSON_ADVICE = {
    "Expecting property name enclosed in double quotes": "expected a key in double quotes (a comma before a closing"
    " brace, a comment, or single quotes are not JSON)",
    "Illegal trailing comma before end of object": "a comma before the closing brace is not JSON",
    "Illegal trailing comma before end of array": "a comma before the closing bracket is not JSON",
    "Expecting value": "expected a value",
    "Expecting ',' delimiter": "expected a comma, or the end of the list or object",
    "Expecting ':' delimiter": "expected a colon after the key",
    "Unterminated string starting at": "this text is never closed by a double quote",
    "Invalid control character at": "a line end or control character inside a text must be written as an escape,"
    ' such as "\\n"',
    "Invalid \\escape": "an unknown escape; a backslash itself is written as two",
    "Invalid \\uXXXX escape": "an escape \\u needs four hexadecimal digits",
    "Extra data": "something follows after the end of the document",
}


class _Suspect(Exception):
    """A value that the strict reader refuses; the slow scan finds where it stands."""


def parse_json(text: str, where: str) -> Any:
    """Read a JSON document strictly.

    Args:
        text: The document, without a byte order mark.
        where: The file as shown in messages.

    Returns:
        The document as builtins.

    Raises:
        SuiteError: Broken JSON; a key given twice in an object; NaN, Infinity or a number beyond the range of a
            double; a whole number of more than 4,300 digits; nesting deeper than 200. Every problem of the same
            kind is named with its line.
    """
    if not text.strip():
        raise SuiteError([Problem(where, "the file is empty; expected a JSON object")])
    try:
        document = _read(text)
    except json.JSONDecodeError as error:
        raise SuiteError([_syntax(error, where)]) from None
    except RecursionError:
        message = f"lists and objects are nested more than {MAX_DEPTH} levels deep; a suite needs far fewer"
        raise SuiteError([Problem(where, message)]) from None
    except _Suspect:
        raise SuiteError(_scan(text, where)) from None
    return document


def _read(text: str) -> Any:
    try:
        document = json.loads(
            text, object_pairs_hook=_pairs, parse_constant=_constant, parse_float=_float, parse_int=_int
        )
    except _Suspect:
        json.loads(text, parse_int=str)  # the scan needs a document that is otherwise well-formed
        raise
    if too_deep(document):
        raise RecursionError
    return document


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _Suspect
    return made


def _constant(literal: str) -> NoReturn:
    raise _Suspect


def _float(literal: str) -> float:
    value = float(literal)
    if math.isinf(value):
        raise _Suspect
    return value


def _int(literal: str) -> int:
    if len(literal.lstrip("-")) > MAX_DIGITS:
        raise _Suspect
    return int(literal)


def too_deep(document: Any) -> bool:
    """Say whether lists and objects are nested deeper than `MAX_DEPTH`; itself without recursion."""
    level = [document]
    for _ in range(MAX_DEPTH + 1):
        level = [value for value in level if isinstance(value, (dict, list))]
        if not level:
            return False
        level = [inner for value in level for inner in (value.values() if isinstance(value, dict) else value)]
    return True


def _syntax(error: json.JSONDecodeError, where: str) -> Problem:
    advice = _JSON_ADVICE.get(error.msg, error.msg[:1].lower() + error.msg[1:])
    if error.pos >= len(error.doc.rstrip()):
        advice = f"the file ends too early; {advice}"
    shown = error.doc[error.pos : error.pos + 30].split("\n")[0].rstrip()
    found = f", found {quote(shown)}" if shown else ""
    return Problem(f"{where}:{error.lineno}:{error.colno}", f"not valid JSON: {advice}{found}")


@dataclass(slots=True)
class _Open:
    """An object or list that the scan is inside of."""

    lines: dict[str, int] | None  # key → line where it was first given; None for a list
    key: str | None = None
    index: int = 0
    awaits_key: bool = True


def _scan(text: str, where: str) -> list[Problem]:
    """Find each refused value in a document that is otherwise valid JSON, in the order of the file."""
    problems: list[Problem] = []
    stack: list[_Open] = []
    line, counted = 1, 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        line += text.count("\n", counted, match.start())
        counted = match.start()
        top = stack[-1] if stack else None
        if token in "{[":
            stack.append(_Open({} if token == "{" else None))
        elif token in "}]":
            stack.pop()
        elif token == ",":
            if top is not None:
                top.awaits_key = True
                top.index += 1
        elif token == ":":
            pass
        elif token[0] == '"':
            if top is not None and top.lines is not None and top.awaits_key:
                top.awaits_key = False
                top.key = str(json.loads(token, strict=False))
                if top.key in top.lines:
                    first = top.lines[top.key]
                    message = f"this key is given twice in one object (first on line {first}); keep one of them"
                    problems.append(Problem(f"{where}:{line}", f"{place(_path(stack))}: {message}"))
                else:
                    top.lines[top.key] = line
        elif (why := _refused(token)) is not None:
            at = place(_path(stack))
            problems.append(Problem(f"{where}:{line}", f"{at}: {why}" if at else why))
    return problems


def _path(stack: list[_Open]) -> list[str | int]:
    return [frame.index if frame.lines is None else frame.key or "" for frame in stack]


def _refused(token: str) -> str | None:
    if token in ("NaN", "Infinity", "-Infinity"):
        return f"{token} is not JSON; write a number, or leave the key out"
    if token[0] in "-0123456789":
        if token.lstrip("-").isdigit():
            digits = len(token.lstrip("-"))
            if digits > MAX_DIGITS:
                return f"a whole number of {digits:,} digits; at most {MAX_DIGITS:,} can be read. Write it as text"
        elif math.isinf(float(token)):
            return f"{token[:40]} is beyond the range of a number (about 1.8e308)"
    return None
