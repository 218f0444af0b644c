"""Few-shot examples: which rows, and their text."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_evalgrader.data.fewshot import FewShot
from pytest_evalgrader.errors import SampleError, SuiteError

FOUR = [{"question": f"{i}+{i}?", "gold": str(2 * i)} for i in range(1, 5)]


def few_shot(rows: list[dict[str, Any]] | None = None, *, own: bool = True, **fields: Any) -> FewShot:
    given_here = {key: fields.pop(key) for key in ("task_prompt", "task_target", "extra", "check") if key in fields}
    spec = {
        "count": 2,
        "prompt_template": None,
        "target_template": None,
        "example_template": "{{prompt}}\n{{target}}",
        "separator": "\n\n",
        "strategy": "first",
        "seed": 0,
        **fields,
    }
    return FewShot(
        SimpleNamespace(**spec),  # type: ignore[arg-type]
        rows=FOUR if rows is None else rows,
        own_dataset=own,
        prompt_template=given_here.get("task_prompt", "Q: {{question}}\nA:"),
        target_template=given_here.get("task_target", "{{gold}}"),
        where="s.json: tasks[0].fewshot",
        extra=given_here.get("extra"),
        check=given_here.get("check", True),
    )


def test_examples_come_first_and_never_the_row_that_is_asked() -> None:
    shots = few_shot()
    assert shots.prefix(3) == "Q: 1+1?\nA:\n2\n\nQ: 2+2?\nA:\n4\n\n"
    assert shots.prefix(0) == "Q: 2+2?\nA:\n4\n\nQ: 3+3?\nA:\n6\n\n"
    assert [shots.examples(i) for i in range(4)] == [[1, 2], [0, 2], [0, 1], [0, 1]]


def test_data_and_templates_of_their_own() -> None:
    shots = few_shot(
        [{"q": "0+1?", "a": "1"}],
        own=False,
        count=1,
        prompt_template="<{{q}}>",
        target_template="{{a}}",
        example_template="{{prompt}} -> {{target}} ({{q}})",
        separator=" | ",
    )
    assert shots.prefix(0) == "<0+1?> -> 1 (0+1?) | "


def test_no_examples_is_no_text() -> None:
    assert few_shot([], count=0).prefix(0) == ""


def test_row_text_in_an_example_is_data() -> None:
    rows = [{"question": "{{gold}}", "gold": "{{#if x}}"}] * 2
    assert few_shot(rows, count=1).prefix(0) == "Q: {{gold}}\nA:\n{{#if x}}\n\n"


def test_choices_and_a_task_without_target() -> None:
    shots = few_shot(count=1, task_prompt="{{question}} {{choices.0}}", task_target=None, extra={"choices": ["a"]})
    assert shots.prefix(0) == "2+2? a\n\n\n"


def test_random_examples_are_the_same_for_ever() -> None:
    rows = [{"question": str(i), "gold": ""} for i in range(1000)]
    shots = few_shot(rows, strategy="random", seed=7, count=3)
    assert [shots.examples(i) for i in (0, 1, 999)] == [[459, 669, 863], [224, 949, 425], [921, 294, 530]]


@given(st.integers(1, 20), st.integers(0, 20), st.integers(), st.booleans(), st.data())
def test_random_examples_are_different_rows_and_never_the_one_asked(
    count: int, more: int, seed: int, own: bool, data: st.DataObject
) -> None:
    rows = [{"question": "q", "gold": "g"}] * (count + more + own)
    index = data.draw(st.integers(0, len(rows) - 1))
    for strategy in ("random", "first"):
        chosen = few_shot(rows, own=own, strategy=strategy, seed=seed, count=count).examples(index)
        assert len(chosen) == len(set(chosen)) == count
        assert all(0 <= i < len(rows) for i in chosen)
        assert not own or index not in chosen


def test_random_examples_are_spread() -> None:
    rows = [{"question": "q", "gold": "g"}] * 10
    shots = few_shot(rows, own=False, strategy="random", count=1)
    drawn = Counter(shots.examples(i)[0] for i in range(1000))
    assert min(drawn.values()) > 50
    other = few_shot(rows, own=False, strategy="random", count=1, seed=1)
    assert [other.examples(i) for i in range(20)] != [shots.examples(i) for i in range(20)]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"count": 4}, ["4 examples", "need 5 rows", "4 rows"]),
        ({"count": 5, "own": False}, ["need 5 rows", "4 rows"]),
        ({"count": 1, "rows": FOUR[:1]}, ["need 2 rows", "1 row."]),
        ({"task_prompt": None}, ["prompt_template"]),
        ({"prompt_template": "{{#if x}}"}, ["fewshot.prompt_template, line 1", "never closed"]),
        ({"example_template": "{{upper prompt}}"}, ["fewshot.example_template", "upper"]),
        ({"target_template": "{{gld}}"}, ["fewshot.target_template", '"gold"']),
        ({"example_template": "{{promt}}"}, ['Did you mean "prompt"']),
        ({"own": False, "rows": [{"q": "x", "gold": ""}] * 2}, ['"question"', "fewshot"]),
    ],
)
def test_what_cannot_work_is_said_before_the_run(fields: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(SuiteError) as caught:
        few_shot(**fields)
    for word in words:
        assert word in str(caught.value)


def test_the_last_row_needs_no_more_than_there_are() -> None:
    assert few_shot(count=3).examples(1) == [0, 2, 3]


def test_rows_come_through_the_preprocessor() -> None:
    asked: list[int] = []

    def fetch(index: int) -> dict[str, Any]:
        asked.append(index)
        return {"text": f"<{FOUR[index]['question']}>", "gold": "g"}

    shots = few_shot(count=1, task_prompt="{{text}}", check=False)
    assert shots.prefix(3, fetch) == shots.prefix(2, fetch) == "<1+1?>\ng\n\n"
    assert asked == [0]

    def broken(index: int) -> dict[str, Any]:
        raise SampleError("preprocess", "no")

    with pytest.raises(SampleError):
        shots.prefix(0, broken)
