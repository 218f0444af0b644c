"""Suites built in Python: what they write loads again equal."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pytest_evalgrader
from pytest_evalgrader import (
    Suite,
    Task,
    binary_judge,
    custom,
    external_endpoint,
    prebuilt_judge,
    python_grader,
)
from pytest_evalgrader.errors import SuiteError
from pytest_evalgrader.suite.loading import load_suite

EXACT = "def grade(sample, item):\n    return 1.0\n"


def grade(sample, item):  # type: ignore[no-untyped-def]
    import math

    def half(number):  # type: ignore[no-untyped-def]
        return number / 2

    return math.floor(half(2.0)) if sample else sum(len(x) for x in [item])


def grade_batch(samples: list) -> dict:  # type: ignore[type-arg]
    return {"metrics": {"n": float(len(samples))}}


def of_another_name(sample, item):  # type: ignore[no-untyped-def]
    return 1.0


def with_global(sample, item):  # type: ignore[no-untyped-def]
    return json.loads(sample["output_text"])["a"] + len(re.findall("a", "b"))


async def asynchronous(sample, item):  # type: ignore[no-untyped-def]
    return 1.0


def reloaded(suite: Suite, folder: Path) -> Any:
    return load_suite(suite.to_json(folder / "s.json"), rootdir=folder).spec


def test_everything_loads_again_equal(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").touch()
    (tmp_path / "g.py").touch()
    suite = Suite(
        [
            Task(
                "a",
                dataset="d.jsonl",
                type="qa",
                name="A",
                prompt_template="{{q}}",
                target_template="{{a}}",
                choices=("a", 1),
                output_extraction={"type": "number"},
                metrics=["n", {"id": "score", "threshold": 0.9}],
                generation={"until": "x", "temperature": 0},
                graders=[
                    python_grader(Path("g.py"), timeout_seconds=5, max_model_calls=0, memory_mb=256),
                    binary_judge(
                        "k",
                        "c",
                        judge_model="m",
                        feedback_key="f",
                        examples=[{"input": [{"role": "user", "content": "u"}], "output": "o", "passes": True}],
                        system_template="s",
                        user_template="u",
                        template_variables={"tone": "kind"},
                    ),
                    prebuilt_judge("p", "FAITHFULNESS"),
                    external_endpoint("e", "http://127.0.0.1:9", timeout_seconds=1, max_retries=0),
                    custom("c", "mod:function", metric_id="x"),
                    "shared",
                ],
                preprocess={"type": "python", "source": "x"},
                fewshot=2,
                models=["recorded:a"],
                epochs=3,
                allow_errors=0.1,
                tags=["slow"],
                calibration_column="human",
                metadata={"free": None},
            ),
            Task("b", dataset=[{"q": "é\ud800", "messages": ()}], grader="shared", fewshot={"count": 1, "seed": 3}),
            Task("c", dataset={"source": "huggingface", "path": "x"}, grader=python_grader(grade)),
        ],
        name="n",
        description="d",
        models=["openai:m"],
        judge_model="openai:j",
        embedding_model="openai:e",
        generation={"max_gen_toks": 3},
        concurrency=5,
        max_samples_per_task=7,
        files={"f": Path("d.jsonl")},
        graders={"shared": python_grader(EXACT, metric_id="shared")},
        metadata={"owner": "o"},
    )
    assert reloaded(suite, tmp_path) == suite.spec
    text = (tmp_path / "s.json").read_text("utf-8")
    assert '"é\\ud800"' in text
    assert "null" not in text.replace('"free": null', "")


texts = st.text(min_size=1, max_size=8).filter(str.strip)
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
)
graders = st.one_of(
    st.builds(
        python_grader,
        texts.map(lambda t: t + "\n"),
        metric_id=st.none() | texts,
        memory_mb=st.none() | st.integers(16, 99),
    ),
    st.builds(binary_judge, texts, texts, template_variables=st.dictionaries(st.text(max_size=3), scalars, max_size=2)),
    st.builds(prebuilt_judge, texts, st.sampled_from(["FAITHFULNESS", "ANSWER_RELEVANCY"])),
    st.builds(custom, texts, metric_id=st.none() | texts),
)
metrics = st.fixed_dictionaries(
    {"id": texts},
    optional={
        "threshold": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-5, 5).map(lambda n: {"max": n}),
        "higher_is_better": st.booleans(),
        "allow_missing": st.floats(0, 1),
    },
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.dictionaries(st.text(max_size=4), scalars, max_size=3), min_size=1, max_size=3),
    graders,
    st.lists(metrics, max_size=3, unique_by=lambda m: m["id"]),
    st.dictionaries(st.text(max_size=4), scalars | st.lists(scalars, max_size=2), max_size=3),
)
def test_any_suite_loads_again_equal(
    tmp_path_factory: pytest.TempPathFactory, rows: Any, grader: Any, declared: Any, metadata: Any
) -> None:
    suite = Suite([Task("t", dataset=rows, grader=grader, metrics=declared, metadata=metadata)], models=["m"])
    assert reloaded(suite, tmp_path_factory.getbasetemp()) == suite.spec


def test_a_function_goes_along_as_its_text() -> None:
    made = python_grader(grade)
    assert made.source is not None
    assert made.source.startswith("def grade(sample, item):")
    scope: dict[str, Any] = {}
    exec(made.source, scope)
    assert scope["grade"]({"a": 1}, {}) == 1
    assert made.model_dump(exclude_unset=True).keys() == {"type", "source"}


def test_a_function_of_another_name_is_bound_to_the_one_that_is_called() -> None:
    source = python_grader(of_another_name).source
    assert source is not None
    assert source.endswith("\ngrade = of_another_name\n")
    batch = python_grader(of_another_name, contract="batch").source
    assert batch is not None
    assert batch.endswith("\ngrade_batch = of_another_name\n")


def test_grade_batch_is_a_batch_grader() -> None:
    assert python_grader(grade_batch).contract == "batch"


def test_an_indented_function_is_taken_out() -> None:
    def grade(sample, item):  # type: ignore[no-untyped-def]
        return 0.5

    source = python_grader(grade).source
    assert source is not None
    assert source.startswith("def grade")


def test_what_a_function_cannot_take_along_is_said() -> None:
    outside = 3

    def closure(sample, item):  # type: ignore[no-untyped-def]
        return outside

    for code, words in [
        (with_global, "json, re"),
        (closure, "outside"),
        (asynchronous, "async"),
        (lambda sample, item: 1.0, "with def"),
        (len, "no plain function"),
        (
            eval("__import__('types').FunctionType((lambda a: a).__code__.replace(co_filename='?'), {}, 'x')"),
            "cannot be found",
        ),
    ]:
        with pytest.raises(SuiteError, match=words):
            python_grader(code)


def test_files_and_texts() -> None:
    assert python_grader("graders/g.py").file_id == "graders/g.py"
    assert python_grader("x = 1 # g.py\n").source == "x = 1 # g.py\n"
    assert python_grader("grade = lambda s, i: 1.0").source is not None


def test_absolute_paths_become_relative_to_the_suite(tmp_path: Path) -> None:
    (tmp_path / "suites").mkdir()
    (tmp_path / "d.jsonl").touch()
    suite = Suite([Task("t", dataset=tmp_path / "d.jsonl", grader=python_grader(EXACT))])
    path = suite.to_json(tmp_path / "suites/s.json")
    assert json.loads(path.read_text())["tasks"][0]["dataset"] == {"file_id": "../d.jsonl"}
    load_suite(path, rootdir=tmp_path)


def test_problems_are_worded_as_in_files() -> None:
    with pytest.raises(SuiteError) as caught:
        Task("a b", dataset=[{}], grader=python_grader(EXACT), metrics=[{"id": "x", "treshold": 1}], epochs=0)
    assert [str(problem) for problem in caught.value.problems] == [
        'Task(\'a b\'): id: found the text "a b", expected letters, digits, "_", "." and "-".',
        "Task('a b'): metrics[0].treshold: unknown key. Did you mean \"threshold\"?",
        "Task('a b'): epochs: found 0, expected a whole number from 1 to 100.",
    ]
    with pytest.raises(SuiteError, match=r"Suite: tasks\[1\].id: .*tasks\[0\]"):
        Suite([Task("t", dataset=[{}], grader=custom("k"))] * 2)
    with pytest.raises(SuiteError, match="no grader of this suite"):
        Suite([Task("t", dataset=[{}], grader="x")])
    with pytest.raises(SuiteError, match="cannot be imported"):
        custom("k", lambda sample, item: 1.0)
    with pytest.raises(SuiteError, match="cannot be written as JSON"):
        Suite([Task("t", dataset=[{"a": {1, 2}}], grader=custom("k"))]).to_json("never.json")


def test_a_function_as_custom_grader_is_named() -> None:
    assert custom("k", reloaded).function == f"{__name__}:reloaded"


def test_suites_compare_by_what_they_say() -> None:
    def one() -> Suite:
        return Suite([Task("t", dataset=[{}], grader=custom("k"))])

    assert one() == one()
    assert one() != Suite([Task("u", dataset=[{}], grader=custom("k"))])
    assert repr(one()) == "Suite(['t'])"


def test_the_package_imports_nothing_until_a_name_is_used() -> None:
    code = (
        "import sys, pytest_evalgrader\n"
        "assert not {'pydantic', 'openai', 'pytest', 'jsonschema'} & set(sys.modules), sys.modules.keys()\n"
        "assert 'Suite' in dir(pytest_evalgrader)\n"
        "from pytest_evalgrader import Suite\n"
        "assert 'pydantic' in sys.modules and not {'openai', 'pytest', 'regex'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="nothing"):
        pytest_evalgrader.nothing  # noqa: B018
