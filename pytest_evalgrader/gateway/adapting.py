"""What a model refuses, learnt from its 400 answers: parameters it does not take, formats it does not know."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, cast

# Only settings whose absence leaves the request's meaning: sampling that reasoning models fix themselves, and stop
# sequences, which are cut here in any case.
_DROPPABLE = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "stop")
_REFUSED = re.compile(
    r"unsupported|not support|n't support|unrecogni[sz]ed|unknown|unexpected|not (?:allowed|permitted|available)"
    r"|only the default|extra inputs|deprecated",
    re.IGNORECASE,
)
_CODES = ("unsupported_parameter", "unsupported_value", "unknown_parameter")
# 400s that are about something else than the format, whatever their text says.
_OTHER_CAUSES = (
    "context_length_exceeded",
    "invalid_api_key",
    "model_not_found",
    "content_filter",
    "insufficient_quota",
)

# How a format is asked for: json_schema; json_object with the schema beside it, as llama-cpp-python and some hosts
# take it over chat completions; json_object alone; not at all.
_FormatLevel = Literal[0, 1, 2, 3]


class Adaptation:
    """The changes that one model needs, made to each request before it is sent."""

    def __init__(self) -> None:
        self._dropped: frozenset[str] = frozenset()
        self._renamed = False
        self._format_level: _FormatLevel = 0

    def copy(self) -> Adaptation:
        """Return an adaptation that can learn without changing this one."""
        other = Adaptation()
        other.take(self)
        return other

    def take(self, other: Adaptation) -> None:
        """Add what another has learnt."""
        self._dropped |= other._dropped
        self._renamed = self._renamed or other._renamed
        self._format_level = max(self._format_level, other._format_level)

    def apply(self, body: Mapping[str, Any], *, formats: bool) -> dict[str, Any]:
        """Return the request as this model takes it.

        Args:
            formats: Whether the structured output that it asks for may be weakened.
        """
        out = {key: value for key, value in body.items() if key not in self._dropped}
        if self._renamed and "max_tokens" in out:
            out["max_completion_tokens"] = out.pop("max_tokens")
        if formats and self._format_level:
            _weaken(out, self._format_level)
        return out

    def notes(self, body: Mapping[str, Any], label: str, *, formats: bool) -> list[str]:
        """Say what `apply` changes in a request."""
        notes = [f"{label} does not take {key}; it was not sent" for key in sorted(self._dropped) if key in body]
        if formats and self._format_level and _format_type(body):
            adapted = self.apply(body, formats=True)
            used = "the format json_object" if _format_type(adapted) else "no format"
            if "schema" in (adapted.get("response_format") or {}):
                used += " with the schema"
            if adapted != self.apply(body, formats=False):
                notes.append(f"{label} does not take the format {_format_type(body)}; {used} was sent")
        return notes

    def learn(self, sent: Mapping[str, Any], error: object, *, formats: bool) -> bool:
        """Find out from a 400 what the model does not take.

        Args:
            sent: The body that was refused.
            error: The body of the 400.
            formats: As for `apply`.

        Returns:
            Whether the next request will differ.
        """
        details = error.get("error", error) if isinstance(error, Mapping) else error
        text = str(details.get("message", details)) if isinstance(details, Mapping) else str(details)
        param = str(details.get("param") or "") if isinstance(details, Mapping) else ""
        code = str(details.get("code") or "") if isinstance(details, Mapping) else ""
        if code in _OTHER_CAUSES:
            return False
        if "max_tokens" in sent and "max_completion_tokens" in text:
            self._renamed = True
            return True
        if code in _CODES or _REFUSED.search(text):
            for key in _DROPPABLE:
                if key in sent and (param == key or re.search(rf"\b{key}\b", text)):
                    self._dropped |= {key}
                    return True
        kind = _format_type(sent)
        if formats and kind is not None and self._format_level < 3:
            form = sent.get("response_format") or {}
            if kind == "json_schema":
                level = 1 if "json_schema" in form and "json_object" in text else 2
            else:
                level = 2 if "schema" in form else 3
            self._format_level = cast(_FormatLevel, max(level, self._format_level + 1))
            return True
        return False


def blames_format(error: object) -> bool:
    """Say whether the body of an error speaks of the format that was asked for.

    llama-cpp-python's server answers 500, not 422, to a request that it does not understand.
    """
    return "response_format" in str(error)


def _format_type(body: Mapping[str, Any]) -> str | None:
    form = body.get("response_format")
    if form is None and isinstance(body.get("text"), Mapping):
        form = body["text"].get("format")
    kind = form.get("type") if isinstance(form, Mapping) else None
    return kind if kind in ("json_schema", "json_object") else None


def _weaken(body: dict[str, Any], level: _FormatLevel) -> None:
    kind = _format_type(body)
    if kind is None or (level < 3 and kind == "json_object"):
        return
    weaker: dict[str, Any] | None = {"type": "json_object"} if level < 3 else None
    if "response_format" in body:
        form = body.pop("response_format")
        if weaker:
            schema = form["json_schema"].get("schema") if level == 1 else None
            body["response_format"] = weaker if schema is None else weaker | {"schema": schema}
    else:
        text = {key: value for key, value in body["text"].items() if key != "format"}
        body.pop("text")
        if weaker:
            text["format"] = weaker
        if text:
            body["text"] = text
