"""Any Python value → plain JSON. Runs inside the child, under its limits; the host uses it for trusted graders.

Nothing here trusts the value: plain data is read through the built-in types, past overridden methods, and what has to
be asked of an object (its `repr`, the items of a mapping that is no dict) may raise anything.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from types import MappingProxyType
from typing import Any, Final, Literal

Shape = Literal["score", "batch", "row", "rows"]

MAX_DEPTH: Final = 100
"""Levels of a payload that are kept; what lies deeper is cut (in a row: a problem)."""
MAX_NODES: Final = 1_000_000
"""Values of one payload that are kept; a small object graph can unfold into an endless payload."""
MAX_REPR: Final = 500
"""Characters kept of the `repr` of a value that JSON cannot hold."""
MAX_PROBLEMS: Final = 20
"""Problems that are listed for one result."""

_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")

# An overridden method may raise anything. In the worker, where trusted graders run, Ctrl-C must still get through;
# the child, which has no keyboard, widens this to BaseException.
caught: type[BaseException] = Exception


def reduce_result(value: Any, shape: Shape) -> dict[str, Any]:
    """Reduce what a grader or a preprocessor returned to plain JSON.

    Args:
        value: Anything.
        shape: `score` for a sample grader, `batch` for a batch grader, `row` and `rows` for preprocessors.

    Returns:
        Builtins only, every float finite, nested less than `MAX_DEPTH` + 10. By shape:

        - `score`: `kind` (number, boolean, text, none, mapping, list, other), `type`, `raw` (the payload; None where
          there are scores), `number` (a finite float, or the text `nan`, `inf` or `-inf`; None unless a number),
          `scores`, `dropped` (score id → why it is no score), `judge` (an object, or None).
        - `batch`: `kind`, `type`, `raw`, `metrics`, `bad_metrics` (metric id → why), `samples` (a list, or None),
          `problems`.
        - `row`, `rows`: `kind`, `type`, `value` (exactly what was returned, or None), `problem` (a text, or None).
    """
    if shape == "score":
        return _score(value)
    if shape == "batch":
        return _batch(value)
    return _exact(value, shape)


def to_json(value: Any) -> Any:
    """Reduce a payload to what JSON can hold; nothing is refused.

    Keys become text (a key that would collide is marked with its type), sets are sorted lists, numbers that are not
    finite become text, cycles and what lies too deep are cut, everything else is its `repr`, capped.
    """
    return _Reducer().reduce(value, 0)


def kind_of(value: Any) -> str:
    """Return number, boolean, text, none, mapping, list or other."""
    kind = type(value)
    plain = _PLAIN_KINDS.get(kind)
    if plain is not None:
        return plain
    if issubclass(kind, str):
        return "text"
    if _is_number(value):
        return "number"
    if _is_mapping(value):
        return "mapping"
    if issubclass(kind, (list, tuple)):
        return "list"
    return "other"


_PLAIN_KINDS: Final[dict[type, str]] = {
    bool: "boolean",
    type(None): "none",
    str: "text",
    int: "number",
    float: "number",
    dict: "mapping",
    list: "list",
    tuple: "list",
}


def type_name(value: Any) -> str:
    """Return the name of a value's type, capped; never runs code of the value."""
    return str.__str__(type(value).__name__)[:100]


def shown(value: Any) -> str:
    """Return the `repr` of a value, capped at `MAX_REPR` characters; never raises what the value raises.

    Addresses in memory are left out: they differ from run to run.
    """
    try:
        text = repr(value)
    except MemoryError:
        raise
    except caught as error:
        return f"<{type_name(value)}: its repr raised {type_name(error)}>"
    text = str.__str__(text)
    return cut(_ADDRESS.sub("", text[: 4 * MAX_REPR]) + text[4 * MAX_REPR :], MAX_REPR)


def cut(text: str, limit: int) -> str:
    """Return the text, shortened to about `limit` characters with a note of how many there were."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


# ---------------------------------------------------------------------------------------------------------- shapes


def _score(value: Any) -> dict[str, Any]:
    kind = kind_of(value)
    out: dict[str, Any] = {
        "kind": kind,
        "type": type_name(value),
        "raw": None,
        "number": None,
        "scores": {},
        "dropped": {},
        "judge": None,
    }
    if kind == "number":
        number = _number(value)
        out["number"] = number
        out["raw"] = number
    elif kind == "mapping":
        entries = _entries(value)
        out["scores"], out["dropped"] = _finite_scores(entries.get("scores"), "scores")
        if _is_mapping(entries.get("judge")):
            out["judge"] = to_json(entries["judge"])
        if not out["scores"]:
            out["raw"] = to_json(value)
    else:
        out["raw"] = to_json(value)
    return out


def _batch(value: Any) -> dict[str, Any]:
    out: dict[str, Any] = {
        "kind": kind_of(value),
        "type": type_name(value),
        "raw": None,
        "metrics": {},
        "bad_metrics": {},
        "samples": None,
        "problems": [],
    }
    problems: list[str] = out["problems"]
    if out["kind"] != "mapping":
        out["raw"] = to_json(value)
        size = f" of {len(value):,}" if issubclass(type(value), (list, tuple)) else ""
        problems.append(f'grade_batch returned {out["type"]}{size}, not {{"metrics": {{…}}, "samples": […]}}')
        return out
    entries = _entries(value)
    metrics, samples = entries.get("metrics"), entries.get("samples")
    if metrics is None and samples is None:
        problems.append("the result has neither `metrics` nor `samples`")
    if metrics is not None:
        out["metrics"], out["bad_metrics"] = _finite_scores(metrics, "metrics")
    if samples is not None:
        if issubclass(type(samples), (list, tuple)):
            out["samples"] = _updates(samples, problems)
        else:
            problems.append(f"`samples` is a {type_name(samples)}, not a list")
    if problems or (out["bad_metrics"] and not out["metrics"]):
        out["raw"] = to_json(value)
    return out


def _updates(samples: list[Any] | tuple[Any, ...], problems: list[str]) -> list[dict[str, Any]]:
    updates: list[dict[str, Any]] = []
    seen: set[str] = set()

    def problem(text: str) -> None:
        if len(problems) < MAX_PROBLEMS:
            problems.append(text)

    for index, sample in enumerate(_items_of(samples)):
        entries = _entries(sample) if _is_mapping(sample) else None
        if entries is None:
            problem(f"samples[{index}] is a {type_name(sample)}, not an object")
            continue
        sample_id = entries.get("sample_id")
        if not issubclass(type(sample_id), str):
            problem(
                f"samples[{index}] has no `sample_id`"
                if sample_id is None
                else f"samples[{index}] has a `sample_id` that is no text"
            )
            continue
        sample_id = str.__str__(sample_id)
        if sample_id in seen:
            problem(f"sample {cut(sample_id, 100)!r} is updated twice")
            continue
        seen.add(sample_id)
        update: dict[str, Any] = {"sample_id": sample_id}
        if entries.get("scores") is not None:
            update["scores"], dropped = _finite_scores(entries["scores"], "scores")
            if dropped:
                update["dropped"] = dropped
        if "judge" in entries:
            judge = entries["judge"]
            if judge is None or _is_mapping(judge):
                update["judge"] = None if judge is None else to_json(judge)
            else:
                problem(f"samples[{index}].judge is a {type_name(judge)}, not an object")
        if "extracted_output" in entries:
            extracted = entries["extracted_output"]
            if extracted is None or issubclass(type(extracted), str):
                update["extracted_output"] = None if extracted is None else str.__str__(extracted)
            else:
                problem(f"samples[{index}].extracted_output is a {type_name(extracted)}, not a text")
        updates.append(update)
    return updates


def _exact(value: Any, shape: Shape) -> dict[str, Any]:
    kind = kind_of(value)
    out: dict[str, Any] = {"kind": kind, "type": type_name(value), "value": None, "problem": None}
    wanted, said = ("mapping", "a row (a dict)") if shape == "row" else ("list", "rows (a list of dicts)")
    if kind != wanted:
        hint = " (missing return?)" if value is None else ""
        out["problem"] = f"returned {out['type']}{hint}, not {said}"
        return out
    try:
        exact = _exact_value(value, "", 0, set())
    except _NotExactError as error:
        out["problem"] = str(error)
        return out
    if shape == "rows":
        for index, row in enumerate(exact):
            if type(row) is not dict:
                out["problem"] = f"[{index}] is a {type_name(row)}, not a row (a dict)"
                return out
    out["value"] = exact
    return out


class _NotExactError(Exception):
    pass


def _exact_value(value: Any, where: str, depth: int, open_ids: set[int]) -> Any:
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    place = cut(where, 200) or "the result"
    if issubclass(kind, str):
        return str.__str__(value)
    if issubclass(kind, int):
        number = int.__int__(value)
        if not -_INT_LIMIT < number < _INT_LIMIT:
            raise _NotExactError(f"{place} is an integer of more than 4,000 digits")
        return number
    if issubclass(kind, float):
        real = float.__float__(value)
        if not math.isfinite(real):
            raise _NotExactError(f"{place} is {real}, which JSON cannot hold")
        return real
    if not issubclass(kind, (dict, list, tuple)):
        raise _NotExactError(f"{place} is a {type_name(value)}, which JSON cannot hold: {cut(shown(value), 100)}")
    if depth >= MAX_DEPTH:
        raise _NotExactError(f"{place} is nested more than {MAX_DEPTH} levels deep")
    if id(value) in open_ids:
        raise _NotExactError(f"{place} contains itself")
    open_ids.add(id(value))
    exact: Any
    if issubclass(kind, dict):
        exact = {}
        for key, inner in list(dict.items(value)):
            if not issubclass(type(key), str):
                raise _NotExactError(f"{place} has the key {cut(shown(key), 100)}, which is no text")
            name = str.__str__(key)
            exact[name] = _exact_value(inner, f"{where}.{name}" if where else name, depth + 1, open_ids)
    else:
        exact = [
            _exact_value(inner, f"{where}[{index}]", depth + 1, open_ids)
            for index, inner in enumerate(_items_of(value))
        ]
    open_ids.discard(id(value))
    return exact


# --------------------------------------------------------------------------------------------------------- numbers

_INT_LIMIT: Final = 10**4000


def _is_number(value: Any) -> bool:
    kind = type(value)
    if kind is bool:
        return False
    if issubclass(kind, (float, int, Decimal, Fraction)):
        return True
    try:
        # Other registered numbers, such as those of numpy: trusted graders may return them.
        return issubclass(kind, Real)
    except caught:
        return False


def _number(value: Any) -> float | str:
    """Return the finite float that a number is, or `nan`, `inf` or `-inf`."""
    kind = type(value)
    try:
        if issubclass(kind, float):
            number = float.__float__(value)
        elif issubclass(kind, int):
            number = float(int.__int__(value))
        elif issubclass(kind, Decimal):
            number = Decimal.__float__(value)
        else:
            number = float(value)
    except OverflowError:
        return "-inf" if value < 0 else "inf"
    except MemoryError:
        raise
    except caught:
        # A signalling NaN, or an object that only calls itself a number.
        return "nan"
    number = float.__float__(number)
    if math.isfinite(number):
        return number
    return "nan" if math.isnan(number) else "inf" if number > 0 else "-inf"


def _finite_scores(value: Any, name: str) -> tuple[dict[str, float], dict[str, str]]:
    scores: dict[str, float] = {}
    dropped: dict[str, str] = {}
    if value is None:
        return scores, dropped
    if not _is_mapping(value):
        return scores, {name: f"a {type_name(value)}, not an object"}
    for key, entry in _text_keys(_pairs(value)):
        kind = kind_of(entry)
        if kind != "number":
            dropped[key] = {"boolean": "a bool", "text": "a text", "none": "None"}.get(kind, f"a {type_name(entry)}")
            continue
        number = _number(entry)
        if isinstance(number, str):
            dropped[key] = f"not finite ({number})"
        else:
            scores[key] = number
    return scores, dropped


# ------------------------------------------------------------------------------------------------------ containers


def _is_mapping(value: Any) -> bool:
    kind = type(value)
    plain = _PLAIN_KINDS.get(kind)
    if plain is not None:
        return plain == "mapping"
    if issubclass(kind, (dict, MappingProxyType)):
        return True
    try:
        return issubclass(kind, Mapping)
    except caught:
        return False


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    """Return the items of a mapping. A dict is read past its overridden methods."""
    if issubclass(type(value), dict):
        return list(dict.items(value))
    try:
        pairs = []
        for key in value:
            pairs.append((key, value[key]))
            if len(pairs) > MAX_NODES:
                break
    except MemoryError:
        raise
    except caught:
        return []
    return pairs


def _entries(value: Any) -> dict[str, Any]:
    """Return the items of a mapping whose keys are text."""
    return {str.__str__(key): entry for key, entry in _pairs(value) if issubclass(type(key), str)}


def _items_of(value: Any) -> Iterable[Any]:
    """Return the elements of a built-in collection, or of a subclass past its overridden methods."""
    for kind in (list, tuple, set, frozenset):
        if issubclass(type(value), kind):
            return list(_ITERATE[kind](value))
    return []


_ITERATE: Final[dict[type, Callable[[Any], Iterable[Any]]]] = {
    kind: kind.__iter__ for kind in (list, tuple, set, frozenset)
}


def _text_keys(pairs: list[tuple[Any, Any]]) -> Iterable[tuple[str, Any]]:
    """Give every key a text of its own: text keys keep theirs, others that collide are marked with their type."""
    if len({key for key, _ in pairs if type(key) is str}) == len(pairs):
        return pairs
    return _distinct_keys(pairs)


def _distinct_keys(pairs: list[tuple[Any, Any]]) -> Iterable[tuple[str, Any]]:
    taken = {str.__str__(key) for key, _ in pairs if issubclass(type(key), str)}
    used: set[str] = set()
    for key, entry in pairs:
        if issubclass(type(key), str):
            text = str.__str__(key)
            # A subclass may compare unequal to its own text, so even two text keys can meet.
            free = text not in used
        else:
            text = _key_text(key)
            free = text not in taken and text not in used
        if not free:
            text = f"{text} ({type_name(key)})"
            base, count = text, 2
            while text in taken or text in used:
                text = f"{base} #{count}"
                count += 1
        used.add(text)
        yield text, entry


def _key_text(key: Any) -> str:
    kind = type(key)
    if key is None:
        return "null"
    if kind is bool:
        return "true" if key else "false"
    if issubclass(kind, (int, float)):
        reduced = _Reducer().reduce(key, 0)
        return reduced if isinstance(reduced, str) else json.dumps(reduced)
    return shown(key)


class _Reducer:
    """Reduces one payload; counts its values and knows the containers that are open."""

    def __init__(self) -> None:
        self.nodes = 0
        self.open_ids: set[int] = set()

    def reduce(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if value is None or kind is bool or kind is str or (kind is float and math.isfinite(value)):
            self.nodes += 1
            return value
        if issubclass(kind, str):
            self.nodes += 1
            return str.__str__(value)
        if issubclass(kind, int):
            self.nodes += 1
            number = int.__int__(value)
            if -_INT_LIMIT < number < _INT_LIMIT:
                return number
            return f"<an integer of {number.bit_length():,} bits>"
        if issubclass(kind, (float, Decimal, Fraction)):
            self.nodes += 1
            return _number(value)
        if _is_mapping(value) or issubclass(kind, (list, tuple, set, frozenset)):
            return self._container(value, kind, depth)
        self.nodes += 1
        if _is_number(value):
            return _number(value)
        return shown(value)

    def _container(self, value: Any, kind: type, depth: int) -> Any:
        if id(value) in self.open_ids:
            return "<cycle>"
        if depth >= MAX_DEPTH:
            return f"<{type_name(value)} nested more than {MAX_DEPTH} levels deep>"
        self.nodes += 1
        self.open_ids.add(id(value))
        try:
            if issubclass(kind, (list, tuple)):
                return self._elements(_items_of(value), depth)
            if issubclass(kind, (set, frozenset)):
                elements = self._elements(_items_of(value), depth)
                return sorted(elements, key=_order)
            out = {}
            for key, entry in _text_keys(_pairs(value)):
                if self.nodes > MAX_NODES:
                    out[_MORE] = _MORE
                    break
                out[key] = self.reduce(entry, depth + 1)
            return out
        finally:
            self.open_ids.discard(id(value))

    def _elements(self, elements: Iterable[Any], depth: int) -> list[Any]:
        out = []
        for element in elements:
            if self.nodes > MAX_NODES:
                out.append(_MORE)
                break
            out.append(self.reduce(element, depth + 1))
        return out


def _order(element: Any) -> tuple[str, Any]:
    # Numbers by size, everything else by its text: an order that does not depend on hashes.
    if type(element) in (int, float):
        return "", element
    return type(element).__name__, json.dumps(element, sort_keys=True)


_MORE: Final = f"<cut: more than {MAX_NODES:,} values>"
