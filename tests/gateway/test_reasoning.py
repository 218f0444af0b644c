"""Reasoning and stop sequences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_evalgrader.gateway.reasoning import cut_at_stop, split_reasoning


@pytest.mark.parametrize(
    ("text", "answer", "reasoning", "unclosed"),
    [
        ("9", "9", None, False),
        ("<think>7? 12?</think>\n9", "9", "7? 12?", False),
        ("  \n<think>7?</think>9", "9", "7?", False),
        ("7? 12?</think>9", "9", "7? 12?", False),
        ("<think>7? 12", "", "7? 12", True),
        ("<thinking>\n7\n</thinking>\n\n9\n", "9\n", "7", False),
        ("<THINK>7</THINK> 9", "9", "7", False),
        ("<think></think>\n\n9", "9", "", False),
        ("<think>a</think><think>b</think>9", "9", "a\n\nb", False),
        ("Write `<think>` first, then `</think>`.", "Write `<think>` first, then `</think>`.", None, False),
        ("x = '<think>'", "x = '<think>'", None, False),
        ("Close it with `</think>` here", "Close it with `</think>` here", None, False),
        ("<think>the tag `</think>` ends</think>9", "9", "the tag `</think>` ends", False),
        ("<thinker>9", "<thinker>9", None, False),
        ("", "", None, False),
    ],
)
def test_reasoning_is_split_off(text: str, answer: str, reasoning: str | None, unclosed: bool) -> None:
    assert split_reasoning(text) == (answer, reasoning, unclosed)


def test_a_block_that_the_request_opened() -> None:
    assert split_reasoning("7?</think>9", prefilled=True) == ("9", "7?", False)
    assert split_reasoning("7? 12", prefilled=True) == ("", "7? 12", True)
    assert split_reasoning("<think>7?</think>9", prefilled=True) == ("9", "7?", False)


@given(st.text(alphabet="<think/>ing `'\n9", max_size=60))
def test_any_text_can_be_split(text: str) -> None:
    split = split_reasoning(text)
    assert split.answer in text
    if "think" not in text:
        assert split == (text, None, False)


@pytest.mark.parametrize(
    ("text", "stops", "cut"),
    [
        ("a STOP b", ["STOP"], "a "),
        ("a STOP b", "STOP", "a "),
        ("a END STOP", ["STOP", "END"], "a "),
        ("abc", ["", "x"], "abc"),
        ("abc", None, "abc"),
        ("STOP", ["STOP"], ""),
    ],
)
def test_stop_sequences_cut(text: str, stops: list[str] | str | None, cut: str) -> None:
    assert cut_at_stop(text, stops) == cut
