"""The one place where text of models, graders and datasets is made safe to print and to put into XML.

What comes out holds no control character but line feed and tab, no escape sequence, no lone surrogate and nothing that
XML 1.0 forbids: each such character is shown as Python would write it, such as `\\x1b` or `\\ud83d`.
"""

from __future__ import annotations

import json
import re
from typing import Any

VALUE_BYTES = 10_000
# pytest cuts a message attribute at 500 characters of its own accord, and puts `failed on setup with "…"` around ours.
MESSAGE_CHARS = 460
PLACE = "samples.jsonl"

# C0 without \t and \n, DEL and C1 (0x9b alone starts an ANSI sequence), the separators that split lines elsewhere, the
# marks that reorder what is read (CVE-2021-42574), surrogates, and what XML 1.0 does not allow.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_ONE_LINE = re.compile(r"\s+")


class _Visible(dict[int, str]):
    """A table for `str.translate` that is filled as characters are met."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        shown = _escaped(char) if _UNSAFE.match(char) else char
        self[code] = shown
        return shown


def _escaped(char: str) -> str:
    code = ord(char)
    if char == "\r":
        return "\\r"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


_VISIBLE = _Visible()
_PRETTY = json.JSONEncoder(indent=2, ensure_ascii=False, default=repr)


def safe(text: str, limit: int | None = None) -> str:
    """Show every character that a terminal or an XML file must not get; line feeds and tabs stay.

    Args:
        text: Any text, of any size; lone surrogates are welcome.
        limit: Most bytes of UTF-8 to return, from 200. What is longer loses its middle, and says so.
    """
    if limit is None or len(text) <= limit // 6:
        return _show(text)
    if len(text) <= limit:
        shown = _show(text)
        if len(shown.encode()) <= limit:
            return shown
    # Only what can be shown is looked at, so that a text of many megabytes costs no more than a short one.
    room = limit - 120
    head = _first_bytes(_show(text[:room]), room * 2 // 3)
    tail = _last_bytes(_show(text[-room:]), room - room * 2 // 3)
    return f"{head}\n[… cut: {len(text):,} characters in all, the whole text is in {PLACE} …]\n{tail}"


def one_line(text: str, limit: int = MESSAGE_CHARS) -> str:
    """Make text safe and put it on one line, for messages, headings and table cells.

    Args:
        text: Any text.
        limit: Most characters to return, from 60; what is longer loses its end, and says so.
    """
    shown = _show(_ONE_LINE.sub(" ", text[: limit * 4]).strip())
    if len(shown) <= limit and len(text) <= limit * 4:
        return shown
    end = f"… [cut; the rest is in {PLACE}]"
    return shown[: limit - len(end)] + end


def property_name(text: str) -> str:
    """Make a metric's or a score's id safe as the name of a JUnit property; a line feed or tab is shown, too."""
    shown = _show(text[:200]).replace("\n", "\\n").replace("\t", "\\t")
    return shown if len(text) <= 200 else f"{shown}…"


def pretty_json(value: Any, limit: int = VALUE_BYTES) -> str:
    """Return a JSON value as indented, safe text; what JSON cannot hold is shown as text.

    Args:
        value: A payload as a record holds it, of any size and depth.
        limit: Most bytes of UTF-8 to return, from 200; what is longer loses its end, and says so.
    """
    parts: list[str] = []
    size = 0
    try:
        for part in _PRETTY.iterencode(value):
            parts.append(part[: limit + 1])
            size += len(part)
            if size > limit:
                break
    except RecursionError:
        parts.append("… nested too deep to show")
    shown = _show("".join(parts))
    if size <= limit and len(shown.encode()) <= limit:
        return shown
    return f"{_first_bytes(shown, limit - 80)}\n[… cut; the whole payload is in {PLACE} …]"


def _show(text: str) -> str:
    return text.translate(_VISIBLE) if _UNSAFE.search(text) else text


def _first_bytes(text: str, limit: int) -> str:
    return text.encode()[:limit].decode(errors="ignore")


def _last_bytes(text: str, limit: int) -> str:
    return text.encode()[-limit:].decode(errors="ignore")
