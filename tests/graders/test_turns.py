"""The conversation of a row, and what templates can name of it."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_evalgrader.errors import SampleError
from pytest_evalgrader.graders.turns import (
    TEMPLATE_VARIABLES,
    TurnsError,
    conversation_of,
    read_turns,
    template_context,
    turn_problems,
    turns_text,
)

from .scripted import ListRows

DOC = {"role": "document", "content": "Water boils at 100 degrees <at sea level>."}
ASK = {"role": "user", "content": "When does water boil?"}


def context_of(row: dict[str, Any], completion: str = "At 100.", **more: Any) -> dict[str, Any]:
    conversation = conversation_of(row, prompt="P", completion=completion)
    given: dict[str, Any] = {
        "output_schema": "{}",
        "criteria": "c",
        "examples": [],
        "template_variables": {},
        "delimiter": "d",
        **more,
    }
    return template_context(conversation, **given)


def test_every_documented_variable_is_there() -> None:
    documented = """completion last_user_turn_content context_str context_str_without_last_user turns context_turns
        context_turns_without_last_user metadata output_schema template_variables criteria examples"""
    assert set(documented.split()) <= set(TEMPLATE_VARIABLES)


def test_a_row_with_messages() -> None:
    context = context_of({"messages": [DOC, ASK], "metadata": {"domain": "physics"}, "gold": "100"})
    assert [turn["role"] for turn in context["turns"]] == ["document", "user", "assistant"]
    assert len(context["context_turns"]) == 2
    assert context["context_turns_without_last_user"] == [DOC]
    assert context["context_str"] == (
        "[document]\nWater boils at 100 degrees <at sea level>.\n\n[user]\nWhen does water boil?"
    )
    assert context["context_str_without_last_user"] == "[document]\nWater boils at 100 degrees <at sea level>."
    assert context["last_user_turn_content"] == "When does water boil?"
    assert context["completion"] == "At 100."
    assert context["metadata"] == {"domain": "physics"}


def test_a_row_without_turns_is_one_user_turn_with_the_prompt() -> None:
    context = context_of({"question": "?"})
    assert context["turns"] == [{"role": "user", "content": "P"}, {"role": "assistant", "content": "At 100."}]
    assert context["metadata"] == {"question": "?"}
    assert context["context_turns_without_last_user"] == []
    assert context["context_str_without_last_user"] == ""


def test_messages_win_over_turns_and_empty_columns_fall_through() -> None:
    assert read_turns({"messages": [ASK], "turns": [DOC]}) == [ASK]
    assert read_turns({"messages": None, "turns": [DOC]}) == [DOC]
    assert read_turns({"messages": [], "turns": None}) is None


def test_what_follows_the_last_user_turn_stays_in_the_context() -> None:
    context = context_of({"turns": [ASK, DOC]})
    assert context["context_turns_without_last_user"] == [DOC]
    assert context["last_user_turn_content"] == ASK["content"]


def test_without_a_user_turn_nothing_is_left_out() -> None:
    context = context_of({"turns": [DOC]})
    assert context["last_user_turn_content"] == ""
    assert context["context_turns_without_last_user"] == [DOC]


def test_the_recorded_answer_that_ends_the_turns_is_not_shown_twice() -> None:
    row = {"messages": [ASK, {"role": "assistant", "content": "At 100."}]}
    assert len(context_of(row)["turns"]) == 2
    assert len(context_of(row, completion="At 90.")["turns"]) == 3


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        (None, ""),
        ([{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}, "c"], "abc"),
        ([{"type": "input_image", "image_url": "http://x"}, {"type": "text", "text": "what?"}], "[input_image]what?"),
        ({"a": 1}, '{"a": 1}'),
        (3, "3"),
    ],
)
def test_content_becomes_text(content: Any, text: str) -> None:
    assert read_turns({"messages": [{"role": "user", "content": content}]}) == [{"role": "user", "content": text}]


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({"messages": "hi"}, "column `messages` is text"),
        ({"turns": 3}, "column `turns` is a number"),
        ({"messages": ["hi"]}, "`messages[0]` is text"),
        ({"messages": [{"content": "x"}]}, "`messages[0].role` is null"),
        ({"turns": [{"role": "usr", "content": "x"}]}, '`turns[0].role` is "usr", expected one of system'),
    ],
)
def test_what_is_no_conversation_is_named(row: dict[str, Any], found: str) -> None:
    with pytest.raises(TurnsError, match=found.replace("[", r"\[")):
        read_turns(row)
    with pytest.raises(SampleError) as caught:
        conversation_of(row, prompt="P", completion="c")
    assert caught.value.stage == "grade"
    problems = turn_problems(ListRows({"messages": [ASK]}, row))
    assert [problem.where for problem in problems] == ["data/d.jsonl:2"]


def test_developer_turns_are_system_turns() -> None:
    assert read_turns({"messages": [{"role": "developer", "content": "x"}]}) == [{"role": "system", "content": "x"}]


def test_only_so_many_problems_are_listed() -> None:
    rows = ListRows(*[{"messages": "x"} for _ in range(50)])
    assert len(turn_problems(rows)) == 20
    assert turn_problems(ListRows({"a": 1})) == []


def test_template_variables_have_their_own_names_where_those_are_free() -> None:
    context = context_of({}, template_variables={"tone": "kind", "completion": "mine"})
    assert context["tone"] == "kind"
    assert context["completion"] == "At 100."
    assert context["template_variables"]["completion"] == "mine"


def test_turns_text_of_nothing() -> None:
    assert turns_text([]) == ""
