"""Asking a judge: one request, one retry, and the object that its reply holds, or why the reply is of no use."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from pytest_evalgrader.graders.outcome import Invalid, Reason

T = TypeVar("T")

MAX_REPLY_CHARS = 1_000_000
_MAX_OBJECTS = 2_000
_MAX_DEPTH = 40
_RETRIES = 1


class JudgeScope(Protocol):
    """The model calls of one sample, as the gateway offers them."""

    def responses(self, model: str, body: dict[str, Any], *, role: str = "judge") -> dict[str, Any]:
        """Make one Responses API call; also raises CallError."""
        ...


class Unusable(Exception):
    """A judge's reply is no answer.

    Args:
        kind: `truncated`, `refused`, `content_filter`, `empty`, `not_json`, `missing_field` or `wrong_value`.
        message: What was found and expected, without a full stop.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back from a judge.

    Args:
        text: The output text; reasoning items are not part of it.
        trouble: `truncated`, `refused`, `content_filter` or None.
        refusal: The judge's words where it refused.
        raw: The form that is kept with an invalid result.
    """

    text: str
    trouble: str | None
    refusal: str
    raw: Any


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """A usable reply.

    Args:
        value: What `read` made of the object.
        retried: Why the first reply was of no use, or None.
    """

    value: T
    retried: str | None


def delimiter_for(*texts: str) -> str:
    """Return a mark that sets off texts and that none of them can hold.

    It is a hash over all the texts: the same for the same sample (recordings stay valid), and nobody can write a text
    that holds the hash of itself.
    """
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    while True:
        mark = digest.hexdigest()[:24]
        if not any(mark in text for text in texts):
            return mark
        digest.update(b"again")


def body_of(*, system: str, user: str, name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Responses API body that asks a judge for an object of a schema."""
    return {
        "input": [{"role": "system", "content": system}, {"role": "user", "content": user}],
        "text": {"format": {"type": "json_schema", "name": name, "schema": dict(schema), "strict": True}},
    }


def ask(
    scope: JudgeScope,
    *,
    model: str,
    system: str,
    user: str,
    name: str,
    schema: Mapping[str, Any],
    read: Callable[[dict[str, Any]], T],
    keys: Collection[str],
) -> Answer[T] | Invalid:
    """Ask a judge, once more where the first reply is of no use.

    Args:
        scope: Makes the call.
        model: The judge model.
        system: The system text.
        user: The user text.
        name: Name of the reply's schema.
        schema: JSON schema of the reply.
        read: Checks the object and makes a value of it; raises Unusable.
        keys: The keys that an object in the reply must have.

    Returns:
        The answer, or an invalid result that holds the last raw reply.

    Raises:
        CallError: The judge could not be reached.
    """
    trouble: Unusable | None = None
    raw: Any = None
    for attempt in range(1 + _RETRIES):
        # The note makes the retry a request of its own and says what to mend. It joins the one user message, since
        # some chat templates refuse two in a row, and quotes nothing of the reply.
        text = user if trouble is None else f"{user}\n\n{_note(trouble, keys)}"
        reply = read_reply(scope.responses(model, body_of(system=system, user=text, name=name, schema=schema)))
        raw = reply.raw
        try:
            value = read(answer_object(reply, keys))
        except Unusable as err:
            trouble = err
            continue
        return Answer(value, None if attempt == 0 or trouble is None else trouble.message)
    if trouble is None:
        raise AssertionError("a judge is asked at least once")
    return _invalid(trouble, raw, model)


def read_reply(response: Mapping[str, Any]) -> Reply:
    """Take the text, and what is wrong with it, out of a Responses-like reply.

    Args:
        response: Holds `output_text`, and where it ended early `status`, `incomplete_details`, `output`.
    """
    text = response.get("output_text")
    text = text if isinstance(text, str) else ""
    refusal = _refusal(response)
    details = response.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, Mapping) else None
    trouble: str | None = None
    if reason == "content_filter":
        trouble = "content_filter"
    elif refusal is not None and not text.strip():
        trouble = "refused"
    elif reason is not None or response.get("status") == "incomplete":
        trouble = "truncated"
    raw: Any = text
    if not text.strip():
        kept = {
            key: response[key] for key in ("status", "incomplete_details", "error") if response.get(key) is not None
        }
        raw = plain({"output_text": text, **kept, **({"refusal": refusal} if refusal else {})})
    return Reply(text, trouble, refusal or "", raw)


def answer_object(reply: Reply, keys: Collection[str]) -> dict[str, Any]:
    """Find the object that is the judge's answer.

    The whole reply is tried first, then the object that ends it, then the last fenced block, then the last object in
    the text that has the keys. An object inside another one, or after one that broke off, is never the answer: a judge
    quotes what it judges, and a planted verdict must not pass for its own.

    Args:
        reply: What the judge said.
        keys: The keys that the object must have, in any case.

    Returns:
        The object, its keys in lower case.

    Raises:
        Unusable: There is none, or the reply was cut off, refused or empty.
    """
    if reply.trouble == "content_filter":
        raise Unusable("content_filter", "the provider's content filter stopped the reply")
    if reply.trouble == "refused":
        raise Unusable("refused", f"the judge refused: {_cut(reply.refusal, 200)}" if reply.refusal else "it refused")
    if len(reply.text) > MAX_REPLY_CHARS:
        raise Unusable("not_json", f"the reply has {len(reply.text):,} characters, more than {MAX_REPLY_CHARS:,}")
    starts, unclosed = _starts(reply.text)
    cut_off = reply.trouble == "truncated"
    for start, swallowed in starts:
        whole, parsed = _parse(reply.text[start:].strip())
        if parsed and not (cut_off and swallowed):
            return _with_keys(whole, keys)
    start, swallowed = starts[-1]
    rest = "" if unclosed else reply.text[start:]
    if not rest.strip():
        if cut_off or unclosed:
            raise Unusable("truncated", "the reply was cut off before the answer began")
        raise Unusable("empty", "the reply is empty")
    if cut_off:
        # What stands in a reply that was cut off may be a quotation, so only a complete answer counts.
        raise Unusable("truncated", "the reply was cut off before its end")
    return _search(rest, keys, at_end=swallowed)


def _starts(text: str) -> tuple[list[tuple[int, bool]], bool]:
    """Find where the answer may begin: at the start, and after each leading reasoning block.

    Returns:
        Offsets, each with whether its block's opening tag was swallowed (by the chat template, as some do); and
        whether a block never closes.
    """
    starts = [(0, False)]
    while len(starts) < _MAX_BLOCKS:
        position = starts[-1][0]
        opened = _OPENED.match(text, position)
        if opened is not None:
            closing = _CLOSED[opened[1].lower()].search(text, opened.end())
            if closing is None:
                return starts, True
            starts.append((closing.end(), starts[-1][1]))
            continue
        tag = _TAG.search(text, position)
        if tag is None or not tag[1]:
            break
        starts.append((tag.end(), True))
    return starts, False


def as_text(value: Any, key: str) -> str:
    """Return a field that must be text.

    Raises:
        Unusable: It is something else.
    """
    if not isinstance(value, str):
        raise Unusable("wrong_value", f"`{key}` is {_cut(json.dumps(value, default=repr), 60)}, expected text")
    return value


def as_word(value: Any, key: str, words: Iterable[str]) -> str:
    """Return a field that must be one of some words, in any case and with spaces around it.

    Raises:
        Unusable: It is something else.
    """
    words = tuple(words)
    word = value.strip().upper() if isinstance(value, str) else None
    if word not in words:
        shown = _cut(json.dumps(value, ensure_ascii=False, default=repr), 60)
        raise Unusable("wrong_value", f"`{key}` is {shown}, expected {' or '.join(words)}")
    return word


def plain(value: Any, depth: int = 0) -> Any:
    """Return what JSON can hold of a value that came from outside: no NaN, no infinity, nothing too deep."""
    if depth > _MAX_DEPTH:
        return "…"
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, depth + 1) for item in value]
    return repr(value)


class _Conflict:
    """Stands for a key that an object holds twice with different values."""

    def __repr__(self) -> str:
        return "given twice, with different values"


_MAX_BLOCKS = 200
_OPENED = re.compile(r"\s*<(think|thinking)>", re.IGNORECASE)
_CLOSED = {name: re.compile(f"</{name}>", re.IGNORECASE) for name in ("think", "thinking")}
_TAG = re.compile(r"<(/?)(?:think|thinking)>", re.IGNORECASE)


def _fences(text: str) -> list[tuple[int, int]]:
    """Return where the fenced blocks of a text begin and end, without their fences."""
    blocks: list[tuple[int, int]] = []
    opened: int | None = None
    position = 0
    for line in text.splitlines(keepends=True):
        if line.lstrip(" \t").startswith("```"):
            if opened is None:
                opened = position + len(line)
            else:
                blocks.append((opened, position))
                opened = None
        position += len(line)
    return blocks


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in pairs:
        name = key.strip().lower() if len(key) < 64 else key
        if name in out and out[name] != value:
            value = _Conflict()
        out[name] = value
    return out


# Models write line breaks into strings, so control characters are let through.
_DECODER = json.JSONDecoder(strict=False, object_pairs_hook=_pairs)


def _parse(text: str) -> tuple[Any, bool]:
    """Parse a text that is one JSON value and nothing else."""
    try:
        return _DECODER.decode(text), True
    except (ValueError, RecursionError):
        return None, False


def _object_at(text: str, start: int) -> tuple[dict[str, Any], int] | None:
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return (value, end) if isinstance(value, dict) else None


def _search(text: str, keys: Collection[str], *, at_end: bool) -> dict[str, Any]:
    """Find the answer in a text that is no JSON as a whole.

    Args:
        text: The reply without its reasoning.
        keys: The keys that the object must have.
        at_end: Take only an object that ends the text. The closing tag that the text follows may itself be quoted.
    """
    begun = re.compile(r"\{\s*\"(?:" + "|".join(re.escape(key) for key in sorted(keys)) + r")\"\s*:", re.IGNORECASE)
    found: list[tuple[int, int, dict[str, Any]]] = []
    partial: dict[str, Any] | None = None
    position, tries = text.find("{"), 0
    while position >= 0 and tries < _MAX_OBJECTS:
        tries += 1
        at = _object_at(text, position)
        if at is None:
            if begun.match(text, position):
                raise Unusable("not_json", "the reply holds an answer that is not valid JSON")
            position = text.find("{", position + 1)
            continue
        value, end = at
        if all(key in value for key in keys):
            found.append((position, end, value))
        elif any(key in value for key in keys):
            partial = value
        position = text.find("{", end)
    if position >= 0:
        raise Unusable("not_json", f"the reply holds more than {_MAX_OBJECTS:,} braces")
    if not found:
        if partial is not None:
            return _with_keys(partial, keys)
        raise Unusable("not_json", "the reply holds no JSON object")
    _, end, last = found[-1]
    if text[end:].strip() in ("", "```"):
        return last
    if at_end:
        raise Unusable("not_json", "the reply does not end with a JSON object")
    for begin, stop in reversed(_fences(text)):
        inside = [value for first, last_end, value in found if begin <= first and last_end <= stop]
        if inside:
            return inside[-1]
    return last


def _with_keys(value: Any, keys: Collection[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        shown = _cut(json.dumps(value, ensure_ascii=False, default=repr), 60)
        raise Unusable("not_json", f"the reply is {shown}, expected a JSON object")
    missing = [key for key in keys if key not in value]
    if missing:
        raise Unusable("missing_field", f"the reply's object has no {' and no '.join(f'`{key}`' for key in missing)}")
    return value


def _refusal(response: Mapping[str, Any]) -> str | None:
    """Return the words of a refusal, wherever the reply holds them."""
    if isinstance(response.get("refusal"), str) and response["refusal"]:
        return str(response["refusal"])
    output = response.get("output")
    for item in output if isinstance(output, list) else []:
        content = item.get("content") if isinstance(item, Mapping) else None
        for part in content if isinstance(content, list) else []:
            if isinstance(part, Mapping) and part.get("type") == "refusal":
                return str(part.get("refusal") or "")
    return None


def _note(trouble: Unusable, keys: Collection[str]) -> str:
    fields = ", ".join(f'"{key}"' for key in keys)
    why = {"refused": "it was a refusal", "content_filter": "it was stopped by a filter"}.get(
        trouble.kind, "it was empty or cut off" if trouble.kind in ("empty", "truncated") else "it was not as asked"
    )
    return (
        f"Your earlier reply could not be used: {why}. Reply with one JSON object that has {fields}, and nothing else."
    )


def _invalid(trouble: Unusable, raw: Any, model: str) -> Invalid:
    reason: Reason = "no_finite_score" if trouble.kind in ("missing_field", "wrong_value") else "wrong_type"
    message = f"The judge {model} gave no usable answer, also when asked again: {trouble.message} ({trouble.kind})."
    return Invalid(reason, raw, message, {"type": trouble.kind, "message": trouble.message, "traceback": []})


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."
