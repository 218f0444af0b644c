"""Recorded answers, a sample grader and a gate: what a user sees, in every mode."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from evalkit import FOUR, MODEL, Bench, gate, python, rows, suite, task


def test_passes_with_a_gate(each_mode: Bench) -> None:
    ran = each_mode.run(doc=suite(task(metrics=gate(0.75))))
    assert ran.code == 0, ran.text
    assert len(ran.states) == 5
    assert set(ran.states.values()) == {"passed"}
    assert ran.group["metrics"]["score"]["value"] == 0.75
    assert ran.group["request_counts"]["total"] == 4
    assert [sample["sample_index"] for sample in ran.samples] == [0, 1, 2, 3]
    assert ran.samples[3]["scores"] == {"score": 0.0}
    assert "evals: 1 suite, 1 task, 4 samples, 1 model, 1 gate" in ran.text


def test_missed_threshold_fails_the_run(each_mode: Bench) -> None:
    ran = each_mode.run(doc=suite(task(metrics=gate(0.8))))
    assert ran.code == 1
    assert ran.state("gate[") == "failure"
    assert ran.state("answer-3]") == "passed"
    assert "score >= 0.8" in ran.text
    assert "0.75" in ran.text


def test_without_evals_nothing_is_touched(bench: Bench) -> None:
    bench.write("suites/s.json", suite(task()))
    result = bench.pytester.runpytest_inprocess("suites", "-p", "no:randomly")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_evals_by_ini(bench: Bench) -> None:
    bench.pytester.makeini("[pytest]\nevals = true\nevals_limit = 2\n")
    ran = bench.run(doc=suite(task(metrics=gate(1.0))), evals=False)
    assert ran.code == 0, ran.text
    assert ran.group["rows"] == {"asked": 2, "total": 4}
    assert "2 of 4 rows" in ran.text


def test_no_xdist_at_all(bench: Bench) -> None:
    bench.mode = "-p no:xdist"
    assert bench.run(doc=suite(task(metrics=gate(0.75)))).code == 0


def test_ordinary_tests_run_beside(each_mode: Bench) -> None:
    each_mode.write("suites/test_x.py", "def test_one():\n    pass\n")
    ran = each_mode.run(doc=suite(task()))
    assert ran.code == 0
    assert ran.state("test_one") == "passed"
    assert len(ran.states) == 5


def test_invalid_result_shows_reason_source_and_payload(each_mode: Bench) -> None:
    source = "def grade(sample, item):\n    gold = item['gold']\n    return sample['nothing'] == gold\n"
    ran = each_mode.run(doc=suite(task(grader=python(source), dataset={"rows": FOUR[:1]})))
    assert ran.code == 1
    failure = ran.cases[next(name for name in ran.cases if "sample[" in name)].find("failure")
    assert failure is not None
    assert "KeyError" in failure.get("message", "")
    assert len(failure.get("message", "")) <= 520
    assert ">   " in (failure.text or "")
    assert "return sample['nothing'] == gold" in (failure.text or "")
    assert "Work out q0" in (failure.text or "")
    assert ran.samples[0]["judge"]["invalid"]["error"]["type"] == "KeyError"
    assert "pytest_evalgrader/" not in (failure.text or "")


@pytest.mark.parametrize(
    ("body", "reason", "hint"),
    [
        ("return sample['output_text'] == item['gold']", "boolean", "1.0 if"),
        ("if 0: return 1.0", "wrong_type", "missing return"),
        ("return '0.9'", "wrong_type", "Text"),
        ("return '１２'", "wrong_type", "Text"),
        ("return float('nan')", "non_finite", "finite"),
        ("return {'accuracy': 1}", "no_finite_score", "Scores belong under `scores`"),
        ("return {'scores': {'score': True}}", "no_finite_score", "score"),
    ],
)
def test_slips_get_a_hint(bench: Bench, body: str, reason: str, hint: str) -> None:
    doc = suite(task(grader=python(f"def grade(sample, item):\n    {body}\n"), dataset={"rows": FOUR[:1]}))
    ran = bench.run(doc=doc)
    assert ran.code == 1
    invalid = ran.samples[0]["judge"]["invalid"]
    assert invalid["reason"] == reason
    assert hint in invalid["message"]
    assert hint in re.sub(r"\s+", " ", ran.text)


def test_one_nan_of_ten_counts_as_zero(bench: Bench) -> None:
    source = "def grade(sample, item):\n    return float('nan') if item['question'] == 'q3' else 1.0\n"
    doc = suite(task(grader=python(source), dataset={"rows": rows(*[("a", "a")] * 10)}, metrics=gate(0.9)))
    ran = bench.run(doc=doc)
    assert ran.code == 1
    assert ran.state("gate[") == "passed"
    assert ran.group["metrics"]["score"] | {"value": 0.9, "n": 10, "invalid": 1} == ran.group["metrics"]["score"]


def test_invalid_zero_never_helps_where_lower_is_better(bench: Bench) -> None:
    source = "def grade(sample, item):\n    return True if item['question'] == 'q0' else 0.1\n"
    metrics = gate(0.5, higher_is_better=False)
    ran = bench.run(doc=suite(task(grader=python(source), metrics=metrics)))
    assert ran.state("gate[") == "failure"


@pytest.mark.parametrize(
    "payload", [1.5, {"scores": {"score": 1.5, "other": 1}}, {"scores": {"score": 1.5}, "judge": {"why": "x"}}]
)
def test_out_of_range_is_invalid_and_not_clamped(bench: Bench, payload: object) -> None:
    doc = suite(
        task(
            grader=python(f"def grade(sample, item):\n    return {payload!r}\n"),
            metrics=[{"id": "score", "range": [0, 1]}],
        )
    )
    ran = bench.run(doc=doc)
    assert ran.samples[0]["judge"]["invalid"]["reason"] == "out_of_range"
    assert ran.samples[0]["judge"]["invalid"]["raw"] == payload
    assert ran.samples[0]["scores"] == {"score": 0.0}


def test_sample_threshold(each_mode: Bench) -> None:
    ran = each_mode.run(doc=suite(task(metrics=[{"id": "score", "sample_threshold": 1.0}])))
    assert ran.code == 1
    assert ran.state("answer-3]") == "failure"
    assert ran.state("answer-0]") == "passed"


def test_missing_answer_is_an_error_of_its_sample(each_mode: Bench) -> None:
    data = [*FOUR[:3], {"question": "q", "gold": "a"}]
    ran = each_mode.run(doc=suite(task(dataset={"rows": data}, metrics=gate(0.9))))
    assert ran.code == 1
    assert ran.state("answer-3]") == "error"
    assert ran.state("gate[") == "failure"
    assert ran.samples[3]["error"]["stage"] == "generate"
    assert ran.samples[3]["status"] == "failed"
    assert "Error in generate (MissingAnswer): the sample has no score." in ran.text
    assert "SampleFault" not in ran.text
    assert "_pytest" not in ran.text


def test_allow_errors_makes_an_errored_sample_a_skip(each_mode: Bench) -> None:
    data = [*FOUR[:3], {"question": "q", "gold": "a"}]
    ran = each_mode.run(doc=suite(task(dataset={"rows": data}, metrics=gate(0.9), allow_errors=0.25)))
    assert ran.code == 0, ran.text
    assert ran.state("answer-3]") == "skipped"
    assert ran.samples[3]["outcome"] == "error"


def test_hostile_text_everywhere(each_mode: Bench) -> None:
    text = "\x00 \x1b[31mred\x1b[0m \x07 \x0b \ufffe \uffff ]]> \ud800 <b> {{x}}"
    data = [{"id": f"{text}{n}", "question": text, "gold": text, "answer": text} for n in range(2)]
    payload = f"{{'scores': {{}}, 'judge': {{{text!r}: {text!r}}}}}"
    source = f"def grade(sample, item):\n    print({text!r})\n    return {payload}\n"
    metrics = gate(0.5, metric="m <&> \x01")
    ran = each_mode.run(doc=suite(task(dataset={"rows": data}, grader=python(source), metrics=metrics)))
    assert ran.code == 1
    assert len(ran.states) == 3
    assert ran.samples[0]["output_text"] == text
    assert "\x1b[31mred" not in ran.text


def test_every_id_can_be_selected_again(bench: Bench) -> None:
    ids = ["a::b", "a/b", "x[y]", "", " lead", "l1\nl2", ".json", "-k", "a@b", "x" * 300, "é", "\ud800", "%", "_"]
    data = [{**FOUR[0], "id": name} for name in ids]
    bench.write("suites/s.json", suite(task(dataset={"rows": data})))
    listed = bench.pytester.runpytest_inprocess("--evals", "suites", "--collect-only", "-q", "-p", "no:randomly")
    names = [line for line in listed.outlines if "::sample[" in line]
    assert len(set(names)) == len(ids)
    assert all(name.isascii() for name in names)
    for name in names:
        again = bench.pytester.runpytest_inprocess("--evals", name, "-p", "no:randomly")
        again.assert_outcomes(passed=1)


def test_same_suite_name_in_two_folders(each_mode: Bench) -> None:
    each_mode.write("suites/a/smoke.json", suite(task(metrics=gate(0.7))))
    each_mode.write("suites/b/smoke.json", suite(task(metrics=gate(0.8))))
    ran = each_mode.run()
    assert ran.code == 1
    assert len(ran.states) == 10
    assert ran.state("suites.a.smoke", "gate[") == "passed"
    assert ran.state("suites.b.smoke", "gate[") == "failure"


def test_broken_suite_never_vanishes(bench: Bench) -> None:
    bench.write("suites/broken.json", '{"tasks": [')
    ran = bench.run(doc=suite(task()))
    assert ran.code == 2
    assert "broken.json" in ran.text


def test_all_problems_of_a_suite_at_once(bench: Bench) -> None:
    first = task(prompt_template="{{qestion}}")
    second = task(id="b", grader=python("def grade(sample, item):\n    return (1.0\n"))
    third = task(id="c", dataset={"file_id": "none.jsonl"})
    bench.write("suites/none.jsonl", "")
    ran = bench.run(doc=suite(first, second, third))
    assert ran.code == 2
    assert "qestion" in ran.text
    assert "tasks[1].grader.source:2" in ran.text
    assert "no rows" in ran.text


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--evals-calls=sometimes", "replay"),
        ("--evals-limit=0", "whole number"),
        ("--evals-limit=x", "whole number"),
        ("--evals-sandbox=none", "strict"),
        ("--evals-concurrency=0", "whole number"),
    ],
)
def test_wrong_options_name_the_valid_values(bench: Bench, option: str, words: str) -> None:
    bench.write("suites/s.json", suite(task()))
    result = bench.pytester.runpytest_inprocess("--evals", "suites", option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert words in result.stderr.str() + result.stdout.str()


def test_a_killed_run_leaves_what_was_finished(bench: Bench) -> None:
    bench.write(
        "conftest.py",
        """
        import os, signal
        def pytest_evalgrader_grader(key):
            def grade(sample, item):
                if item["question"] == "q2":
                    os.kill(os.getpid(), signal.SIGKILL)
                return 1.0
            return grade
        """,
    )
    ran = bench.run(doc=suite(task(grader={"type": "custom", "key": "deadly"})), subprocess=True)
    assert ran.code != 0
    assert [sample["id"] for sample in ran.samples] == ["0", "1"]
    assert ran.run == {}
    bench.write("conftest.py", "def pytest_evalgrader_grader(key):\n    return lambda sample, item: 1.0\n")
    assert bench.run().code == 0


def test_off_runs_in_process_and_refuses_workers(bench: Bench) -> None:
    ran = bench.run("suites", "--evals-sandbox=off", doc=suite(task(metrics=gate(0.75))))
    assert ran.code == 0, ran.text
    assert "off" in ran.text
    assert ran.run["sandbox"] == {"mode": "off", "layers": []}
    refused = bench.pytester.runpytest_inprocess("--evals", "suites", "--evals-sandbox=off", "-n2")
    assert refused.ret == pytest.ExitCode.USAGE_ERROR


def test_records_are_plain_lines(bench: Bench) -> None:
    bench.run(doc=suite(task()))
    for line in (bench.pytester.path / "out/samples.jsonl").read_text("ascii").splitlines():
        assert json.loads(line)["model"] == MODEL


def test_a_sample_that_ran_ahead_is_completed_once(each_mode: Bench) -> None:
    source = """
        def grade(sample, item, ctx):
            print("looking")
            return "?"
    """
    doc = suite(task(grader=python(source, contract="model_backed"), dataset={"rows": FOUR[:2]}))
    ran = each_mode.run("suites", "--evals-calls=replay", doc=doc)
    assert [sample["printed"] for sample in ran.samples] == ["looking\n"] * 2
    assert [sample["invalid_scores"] for sample in ran.samples] == [["score"]] * 2


def test_a_row_preprocessor_looks_at_each_row_once_at_collection(bench: Bench) -> None:
    from pytest_evalgrader.plan import Preprocessor

    seen: list[str] = []
    usual = Preprocessor.row

    def counted(self: Preprocessor, sandbox: Any, row: dict[str, Any], seed: str) -> dict[str, Any]:
        seen.append(seed)
        return usual(self, sandbox, row, seed)

    bench.pytester.makeini("[pytest]\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pytest_evalgrader.plan.Preprocessor.row", counted)
        pre = {"type": "python", "source": "def transform(row):\n    row['text'] = row['question']\n    return row\n"}
        lost = task(preprocess=pre, prompt_template="{{txt}} {{text}} {{tex}}")
        ran = bench.run("suites", "--collect-only", doc=suite(lost))
    assert ran.code == 2
    assert "txt" in ran.text
    assert sorted(seen) == ["0", "1", "2", "3"]


def test_a_sample_whose_grading_was_started_and_that_is_skipped_harms_no_other(each_mode: Bench) -> None:
    each_mode.write(
        "suites/conftest.py",
        """
        import pytest
        @pytest.fixture(autouse=True)
        def sometimes(request):
            if request.node.name.endswith("-1]") or request.node.name.endswith("-2]"):
                pytest.skip("not today")
        """,
    )
    source = """
        def grade(sample, item):
            print(sample["sample_id"])
            return 1.0
    """
    ran = each_mode.run("suites", doc=suite(task(grader=python(source), dataset={"rows": FOUR})))
    assert sorted(ran.states.values()) == ["passed", "passed", "skipped", "skipped"]
    assert [(sample["id"], sample["outcome"], sample["printed"]) for sample in ran.samples if sample["printed"]] == [
        ("0", "passed", "0\n"),
        ("3", "passed", "3\n"),
    ]


def test_what_was_started_for_a_skipped_sample_ends_before_the_next_item(bench: Bench) -> None:
    bench.write(
        "suites/conftest.py",
        """
        import pytest
        @pytest.fixture(autouse=True)
        def sometimes(request):
            if request.node.name.endswith("-3]"):
                pytest.skip("not today")
        """,
    )
    bench.write(
        "suites/test_zz.py",
        """
        from pytest_evalgrader.collection import SESSION_KEY
        def test_that_no_grader_runs(request):
            sandbox = request.config.stash[SESSION_KEY].sandbox
            assert sandbox._count == len(sandbox._idle)
        """,
    )
    source = """
        def grade(sample, item):
            while sample["sample_id"] == "3":
                pass
            return 1.0
    """
    ran = bench.run("suites", doc=suite(task(grader=python(source))))
    assert sorted(ran.states.values()) == ["passed", "passed", "passed", "passed", "skipped"]


def test_the_time_of_a_sample_is_not_that_of_fixtures(each_mode: Bench) -> None:
    each_mode.write(
        "conftest.py",
        """
        import pytest, time
        @pytest.fixture(autouse=True)
        def slow():
            time.sleep(0.25)
            yield
            time.sleep(0.25)
        """,
    )
    ran = each_mode.run("suites", doc=suite(task()))
    spent = [sample["completed_at"] - sample["started_at"] for sample in ran.samples]
    assert min(spent) >= 0
    assert sum(spent) < 0.8, spent


def test_what_cannot_be_started_ahead_is_a_fault_of_its_own_item(each_mode: Bench) -> None:
    each_mode.write(
        "conftest.py",
        """
        from pytest_evalgrader.graders.python import PythonGrader
        start = PythonGrader.start
        def broken(self, sandbox, sample, item, calls):
            if sample["sample_id"] == "2":
                raise RuntimeError("cannot be started")
            return start(self, sandbox, sample, item, calls)
        PythonGrader.start = broken
        def pytest_unconfigure():
            PythonGrader.start = start
        """,
    )
    ran = each_mode.run("suites", "-p", "no:cacheprovider", doc=suite(task()))
    assert [(sample["id"], sample["outcome"]) for sample in ran.samples] == [
        ("0", "passed"),
        ("1", "passed"),
        ("2", "error"),
        ("3", "passed"),
    ]


def test_stopping_leaves_the_sample_that_was_started_out(bench: Bench) -> None:
    ran = bench.run("suites", "-x", doc=suite(task(grader=python("def grade(sample, item):\n    return None\n"))))
    assert list(ran.states.values()) == ["failure"]
    assert [sample["id"] for sample in ran.samples] == ["0"]
