"""What a manifest may say, and how each mistake is worded."""

from __future__ import annotations

import copy
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suite_cases import BAD, FULL, GOOD, GRADER, MKA1, metric, suite, task

from pytest_evalgrader.errors import Problem, SuiteError
from pytest_evalgrader.suite import manifest
from pytest_evalgrader.suite.fields import Spec
from pytest_evalgrader.suite.manifest import GenerationSpec, parse_suite
from pytest_evalgrader.suite.wording import nearest


def problems(document: Any) -> list[str]:
    with pytest.raises(SuiteError) as caught:
        parse_suite(document, "s.json")
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("name", GOOD)
def test_good_suites_load(name: str) -> None:
    parse_suite(GOOD[name], "s.json")


@pytest.mark.parametrize("name", BAD)
def test_each_mistake_is_named_with_its_place(name: str) -> None:
    document, at, words, _ = BAD[name]
    before = copy.deepcopy(document)
    found = problems(document)
    where = f"s.json: {at}: " if at else "s.json: "
    said = [text.removeprefix(where) for text in found if text.startswith(where)]
    assert len(said) == 1, found
    assert [word for word in words if word not in said[0]] == []
    assert len(found) == 1, "one mistake, one problem"
    assert document == before, "the document is left as it was"


@pytest.mark.parametrize("name", BAD)
def test_no_message_is_a_library_s_own(name: str) -> None:
    for text in problems(BAD[name][0]):
        for raw in ("Input should", "pydantic", "valid dictionary", "Extra inputs", "validation error", "<", "Spec"):
            assert raw not in text.replace("(?P<name>", "")
        assert "\n" not in text


def test_all_mistakes_come_at_once_in_the_order_of_the_document() -> None:
    document = suite(
        task(id="a b", grader={"type": "python", "contrat": "x"}, metrics=[{"id": "m", "threshold": "1"}, {"id": "m"}]),
        task(id="t", type="embedding", epochs=0),
        nme="x",
    )
    places = [text.split(": ")[1] for text in problems(document)]
    assert places == [
        "tasks[0].id",
        "tasks[0].grader",
        "tasks[0].grader.contrat",
        "tasks[0].metrics[0].threshold",
        "tasks[0].metrics[1].id",
        "tasks[1].type",
        "tasks[1].epochs",
        "nme",
    ]


def test_a_value_that_is_like_none_of_its_options_is_told_them_once() -> None:
    with pytest.raises(SuiteError) as caught:
        parse_suite(metric(aggregation="avg"), "s.json")
    assert str(caught.value).count('"sum"') == 1


def test_only_the_errors_of_the_chosen_type_are_shown() -> None:
    found = problems(suite(task(grader={"type": "binary_judge", "key": "k", "critera": "c"})))
    assert found == [
        's.json: tasks[0].grader.critera: unknown key. Did you mean "criteria"?',
        "s.json: tasks[0].grader.criteria: required, but missing. Add it: what must hold for PASS.",
    ]


def test_credentials_in_an_address_are_refused_and_not_shown() -> None:
    url = "https://user:hunter2@h.example/"
    (said,) = problems(suite(task(grader={"type": "external_endpoint", "key": "k", "url": url})))
    assert "headers_env" in said
    assert "hunter2" not in said


def test_hostile_text_in_a_message_stays_on_one_line() -> None:
    (said,) = problems(suite(task(type="a\n\x1b[31m\ud800" + "x" * 500)))
    assert said.isprintable()
    assert len(said) < 400


def test_a_public_manifest_loads_as_it_is() -> None:
    first, second = parse_suite(MKA1, "s.json").tasks
    assert first.grader_list[0].model_dump(exclude_unset=True) == MKA1["tasks"][0]["grader"]  # type: ignore[index]
    assert second.fewshot is not None
    assert second.fewshot.count == 1
    assert second.grader_list[0].access == "mka1"  # type: ignore[union-attr]


def test_defaults() -> None:
    spec = parse_suite(suite(task(metrics=[{"id": "a"}], fewshot={"count": 1})), "s.json")
    (one,) = spec.tasks
    (grader,) = one.grader_list
    assert grader.model_dump() == {
        "type": "python",
        "contract": "sample",
        "execution": None,
        "model_access": None,
        "metric_id": "score",
        "source": GRADER["source"],
        "file_id": None,
        "timeout_seconds": 120,
        "max_model_calls": 64,
        "memory_mb": 512,
    }
    assert grader.access == "none"  # type: ignore[union-attr]
    assert (one.epochs, one.allow_errors, one.tags, one.output_extraction.type) == (1, 0.0, [], "none")
    assert (one.metrics[0].aggregation, one.metrics[0].higher_is_better, one.metrics[0].allow_missing) == (
        "mean",
        True,
        0,
    )
    assert one.fewshot is not None
    assert (one.fewshot.example_template, one.fewshot.separator) == ("{{prompt}}\n{{target}}", "\n\n")
    assert spec.run.models is None


@pytest.mark.parametrize(
    ("fields", "low", "high"),
    [
        ({"threshold": 0}, 0, None),
        ({"threshold": 0.9}, 0.9, None),
        ({"threshold": 0.2, "higher_is_better": False}, None, 0.2),
        ({"higher_is_better": False, "threshold": {"min": 0.2}}, 0.2, None),
        ({"threshold": {"min": 1, "max": 1}}, 1, 1),
    ],
)
def test_a_plain_threshold_is_a_bound_on_the_better_side(fields: dict[str, Any], low: Any, high: Any) -> None:
    bound = parse_suite(metric(**fields), "s.json").tasks[0].metrics[0].threshold
    assert bound is not None
    assert (bound.min, bound.max) == (low, high)


def test_other_names_of_settings() -> None:
    made = parse_suite(suite(task(generation={"max_gen_toks": 5, "until": "x"})), "s.json").tasks[0].generation
    assert made.settings() == {"max_output_tokens": 5, "stop": ["x"]}


def test_the_same_value_under_both_names_is_no_mistake() -> None:
    document = suite(task(generation={"max_gen_toks": 5, "max_output_tokens": 5}, num_fewshot=2, fewshot={"count": 2}))
    assert parse_suite(document, "s.json").tasks[0].generation.max_output_tokens == 5


def test_a_task_s_settings_win_key_by_key() -> None:
    run = GenerationSpec(temperature=0.5, stop=["a"], instructions="i")
    over = GenerationSpec(temperature=0.0, stop=[])
    assert run.merged(over).settings() == {"instructions": "i", "temperature": 0.0, "stop": []}
    assert run.merged(None) == run


def test_references_are_resolved_in_order() -> None:
    spec = parse_suite(FULL, "s.json")
    (one,) = spec.tasks
    assert [grader.own_key for grader in one.grader_list] == ["score", "f", "p", "e", "m", "score"]
    assert one.grader_places[:2] == ["graders.exact", "tasks[0].graders[1]"]
    again = parse_suite(suite(task(grader={"ref": "by hand"}), graders=FULL["graders"]), "s.json")
    assert again.tasks[0].grader_places == ['graders["by hand"]']


def test_a_batch_grader_shares_no_key_with_a_sample_grader() -> None:
    batch = {**GRADER, "contract": "batch"}
    aggregate = {**GRADER, "execution": "aggregate"}
    parse_suite(suite(task(grader=None, graders=[GRADER, batch, aggregate])), "s.json")


def models() -> list[type[Spec]]:
    found = [value for value in vars(manifest).values() if isinstance(value, type) and issubclass(value, Spec)]
    return [model for model in found if model is not Spec]


KEYS = sorted({(model.__name__, key) for model in models() for key in model.key_names() if len(key) > 3})


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(KEYS), st.data())
def test_a_key_with_one_slip_is_always_named(which: tuple[str, str], data: st.DataObject) -> None:
    model, key = getattr(manifest, which[0]), which[1]
    index = data.draw(st.integers(0, len(key) - 1))
    letter = data.draw(st.sampled_from(string.ascii_lowercase + "_"))
    slip = data.draw(
        st.sampled_from(
            [
                key[:index] + key[index + 1 :],
                key[:index] + letter + key[index:],
                key[:index] + letter + key[index + 1 :],
                key[:index] + key[index + 1 : index + 2] + key[index] + key[index + 2 :],
                key.upper(),
                key.replace("_", "-"),
            ]
        )
    )
    if slip in model.key_names() or not slip:
        return
    assert key in nearest(slip, model.key_names())


@pytest.mark.parametrize("other", ["max_tokens", "max_completion_tokens", "max_new_tokens"])
def test_other_tools_names_of_a_setting_are_understood(other: str) -> None:
    assert "max_output_tokens" in nearest(other, manifest.GenerationSpec.key_names())


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([name for name in GOOD if name != "mka1"]), st.data())
def test_a_broken_place_is_a_problem_and_never_a_crash(name: str, data: st.DataObject) -> None:
    document = copy.deepcopy(GOOD[name])
    holder: Any = document
    while True:
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            return
        key = data.draw(st.sampled_from(keys))
        if not isinstance(holder[key], (dict, list)) or data.draw(st.booleans()):
            break
        holder = holder[key]
    junk = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    holder[key] = data.draw(junk | st.lists(junk, max_size=3) | st.dictionaries(st.text(max_size=5), junk, max_size=3))
    found: tuple[Problem, ...] = ()
    try:
        parse_suite(document, "s.json")
    except SuiteError as error:
        found = error.problems or pytest.fail("no problem named")
    assert all(problem.where.startswith("s.json") and problem.message for problem in found)
