from __future__ import annotations

import re
import time
import xml.etree.ElementTree as ET
from xml.sax.saxutils import quoteattr

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_evalgrader.reporting.safetext import MESSAGE_CHARS, one_line, pretty_json, property_name, safe

# Surrogates included: hypothesis leaves them out of text() by default.
ANY_TEXT = st.text(st.characters(categories=["L", "M", "N", "P", "S", "Z", "Cc", "Cf", "Cs", "Co", "Cn"]))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢 😀", "plain é 漢 😀"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("\x00\x07\x0b", r"\x00\x07\x0b"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x9b31m", r"\x9b31m"),
        ("half \ud83d emoji", r"half \ud83d emoji"),
        ("\ufffe\uffff", r"\ufffe\uffff"),
        ("over\rwritten", r"over\rwritten"),
        ("a\u2028b\u0085c", r"a\u2028b\x85c"),
        ("\u202egnihton\u2066", r"\u202egnihton\u2066"),
        ("]]> <b>&amp;", "]]> <b>&amp;"),
    ],
)
def test_what_must_not_be_printed_is_shown(text: str, shown: str) -> None:
    assert safe(text) == shown


@given(ANY_TEXT)
def test_what_comes_out_is_utf8_and_xml_and_comes_out_the_same_again(text: str) -> None:
    shown = safe(text)
    shown.encode()
    assert ET.fromstring(f"<a b={quoteattr(shown)}/>") is not None
    assert safe(shown) == shown
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)


@given(ANY_TEXT, st.integers(200, 400))
def test_a_limit_holds_in_bytes(text: str, limit: int) -> None:
    assert len(safe(text * 20, limit).encode()) <= limit


@given(ANY_TEXT, st.integers(60, 200))
def test_one_line_is_one_line_within_its_limit(text: str, limit: int) -> None:
    shown = one_line(text * 10, limit)
    assert len(shown) <= limit
    assert len(shown.splitlines()) <= 1


def test_a_cut_text_keeps_both_ends_and_says_where_the_rest_is() -> None:
    shown = safe("HEAD" + "x" * 50_000 + "TAIL", 1_000)
    assert shown.startswith("HEAD")
    assert shown.endswith("TAIL")
    assert "50,008 characters in all, the whole text is in samples.jsonl" in shown


def test_a_cut_message_says_where_the_rest_is() -> None:
    shown = one_line("word " * 1_000)
    assert len(shown) <= MESSAGE_CHARS
    assert shown.endswith("[cut; the rest is in samples.jsonl]")


@pytest.mark.parametrize("char", ["a", "\x1b", "\ud800"])
def test_twelve_megabytes_are_cut_at_once(char: str) -> None:
    text = char * 12_000_000
    start = time.perf_counter()
    safe(text, 10_000)
    one_line(text)
    property_name(text)
    pretty_json({"output": text})
    assert time.perf_counter() - start < 60


def test_a_property_name_is_one_safe_line() -> None:
    assert property_name("a\nb\t\x00 é") == r"a\nb\t\x00 é"
    assert len(property_name("x" * 10_000)) <= 201


def test_pretty_json_of_hostile_payloads() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert "too deep" in pretty_json(deep, 10**7)
    assert len(pretty_json(deep).encode()) <= 10_000
    assert pretty_json({"a": "\x1b\ud800"}) == '{\n  "a": "\\u001b\\ud800"\n}'
    assert len(pretty_json(["é" * 100] * 1_000, 2_000).encode()) <= 2_000
    while deep:  # Taken apart by hand: the interpreter would free it by recursion.
        deep = deep.pop()  # type: ignore[assignment]
