"""A model's reasoning and stop sequences, taken off the text it answered with. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_OPENING = re.compile(r"\s*<think(?:ing)?\s*>", re.IGNORECASE)
_OPENING_ANYWHERE = re.compile(r"<think(?:ing)?\s*>", re.IGNORECASE)
# A closing tag in quotes or backticks is talked about, not used.
_CLOSING = re.compile(r"(?<![`'\"])</think(?:ing)?\s*>", re.IGNORECASE)


class SplitText(NamedTuple):
    """An answer without its reasoning.

    Args:
        answer: The text after the reasoning, without the white space that follows it.
        reasoning: What stood in the blocks, joined by a blank line; None where there was none.
        unclosed: A block began and never ended, so that there is no answer.
    """

    answer: str
    reasoning: str | None
    unclosed: bool


def split_reasoning(text: str, *, prefilled: bool = False) -> SplitText:
    """Split a leading `<think>` or `<thinking>` block off a model's text.

    A closing tag without an opening one ends a block whose opening tag the chat template swallowed. A tag that
    does not lead the text is part of the answer.

    Args:
        text: What the model said.
        prefilled: The request itself opened the block, so that the text starts inside it.

    Returns:
        The answer, the reasoning, and whether the reasoning never closed.
    """
    reasoning: list[str] = []
    while True:
        opening = _OPENING.match(text)
        start = opening.end() if opening else 0
        closing = _CLOSING.search(text, start)
        if opening is None and not prefilled:
            if closing is None or reasoning:
                break
            inner = _OPENING_ANYWHERE.search(text)
            if inner is not None and inner.start() < closing.start():
                break
        prefilled = False
        if closing is None:
            reasoning.append(text[start:].strip())
            return SplitText("", "\n\n".join(part for part in reasoning if part), True)
        reasoning.append(text[start : closing.start()].strip())
        text = text[closing.end() :].lstrip()
    return SplitText(text, "\n\n".join(part for part in reasoning if part) if reasoning else None, False)


def cut_at_stop(text: str, stops: Sequence[str] | str | None) -> str:
    """Cut a text before the first of the stop sequences that it holds.

    Args:
        text: The answer, without reasoning.
        stops: One or several sequences; empty ones are ignored.

    Returns:
        The text before the earliest stop sequence, or the whole text.
    """
    if not stops:
        return text
    listed = [stops] if isinstance(stops, str) else stops
    found = [at for stop in listed if stop and (at := text.find(stop)) >= 0]
    return text[: min(found)] if found else text
