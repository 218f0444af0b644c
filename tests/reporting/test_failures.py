from __future__ import annotations

import json
from typing import Any

import pytest
from _pytest._code.code import ExceptionChainRepr
from _pytest.reports import TestReport

from pytest_evalgrader.errors import Problem
from pytest_evalgrader.gates import GateVerdict
from pytest_evalgrader.records import SampleRecord
from pytest_evalgrader.reporting.failures import (
    batch_failure,
    collection_failure,
    error_failure,
    gate_failure,
    invalid_failure,
    sample_threshold_failure,
)

SOURCE = """import re


def helper(x):
    return 1 / x


def grade(sample, item):
    total = 0
    words = sample["output_text"].split()
    for w in words:
        total += helper(len(w) - 1)
    return total
"""
HOSTILE = "\x00 \x1b[31mred\x1b[0m \x07 \x0b \ufffe \uffff ]]> \ud83d"


def record(**more: Any) -> SampleRecord:
    given: dict[str, Any] = {
        "prompt": "Work out 4+4?",
        "target": "8",
        "output_text": "I think\nit is 9",
        "extracted_output": "9",
        "scores": {"score": 0.0},
        "outcome": "failed",
        **more,
    }
    return SampleRecord("row7", "run", "suites/s.json::sums::sample[m-7]", "suites/s.json", "sums", "m", 7, 1, **given)


def invalid(reason: str, message: str, **more: Any) -> dict[str, Any]:
    return {"invalid": {"reason": reason, "raw": None, "message": message, **more}}


def frame(line: int, function: str, file: str = "suites/g.py", text: str = "?") -> dict[str, Any]:
    return {"file": file, "line": line, "function": function, "text": text}


RAISED = {
    "type": "ZeroDivisionError",
    "message": "division by zero",
    "traceback": [frame(12, "grade"), frame(5, "helper")],
}


def through_a_worker(shown: ExceptionChainRepr) -> TestReport:
    """Send a failure the way that xdist does."""
    report = TestReport("s.json::t::x", ("s.json", 0, "x"), {}, "failed", shown, "call")
    return TestReport._from_json(json.loads(json.dumps(report._to_json())))


def test_an_exception_shows_reason_source_and_sample() -> None:
    shown = invalid_failure(
        record(judge=invalid("exception", "ZeroDivisionError: division by zero", error=RAISED)),
        sources={"suites/g.py": SOURCE},
    )
    assert (
        str(shown)
        == """\
Invalid result (exception): the sample counts as 0.
ZeroDivisionError: division by zero

suites/g.py:12: in grade
    def grade(sample, item):
        total = 0
        words = sample["output_text"].split()
        for w in words:
>           total += helper(len(w) - 1)
suites/g.py:5: in helper
    def helper(x):
>       return 1 / x
E   ZeroDivisionError: division by zero

prompt:    Work out 4+4?
target:    8
output:
    I think
    it is 9
extracted: 9
scores:    score 0
judge:
    {
      "invalid": {
        "reason": "exception",
        "raw": null,
        "error": {
          "type": "ZeroDivisionError",
          "message": "division by zero"
        }
      }
    }"""
    )
    assert shown.reprcrash is not None
    assert (shown.reprcrash.path, shown.reprcrash.lineno) == ("suites/g.py", 5)
    assert shown.reprcrash.message == "invalid (exception): ZeroDivisionError: division by zero"


def test_a_result_of_the_wrong_kind_marks_the_only_return() -> None:
    source = "def grade(sample, item):\n    gold = item['gold']\n    return sample['output_text'] == gold\n\n\nX = 1\n"
    message = "The grader returned bool: True (boolean). A bool is no score: write `1.0 if … else 0.0`."
    text = str(invalid_failure(record(judge=invalid("boolean", message)), sources={"suites/g.py": source}))
    assert (
        f"""\
{message}

suites/g.py:3: in grade
    def grade(sample, item):
        gold = item['gold']
>       return sample['output_text'] == gold

prompt:"""
        in text
    )
    assert "X = 1" not in text


def test_a_path_without_return_shows_the_function_and_marks_nothing() -> None:
    source = "def grade(sample, item):\n    if item['gold']:\n        return 1.0\n    elif 0:\n        return 0.0\n"
    text = str(invalid_failure(record(judge=invalid("wrong_type", "None")), sources={"g.py": source}))
    assert "g.py:1: in grade\n    def grade(sample, item):\n" in text
    assert "\n>" not in text


def test_a_long_function_is_cut_around_its_failing_line() -> None:
    body = "".join(f"    x{i} = {i}\n" for i in range(100))
    source = f"def grade(sample, item):\n{body}    return True\n"
    text = str(invalid_failure(record(judge=invalid("boolean", "bool")), sources={"g.py": source}))
    assert ">       return True" in text
    assert "x98" in text
    assert "x50" not in text


def test_frames_of_unknown_files_show_the_line_they_bring() -> None:
    error = {"type": "E", "message": "m", "traceback": [frame(99, "grade", "elsewhere.py", "boom()")]}
    text = str(invalid_failure(record(judge=invalid("exception", "E: m", error=error))))
    assert "elsewhere.py:99: in grade\n>   boom()\nE   E: m" in text


@pytest.mark.parametrize("line", [None, -3, 0, "7", True, 10**9])
def test_a_forged_traceback_never_raises(line: Any) -> None:
    error = {"type": 3, "message": None, "traceback": [{"line": line}, "no frame", {"file": "g.py", "line": line}]}
    assert "in ?" in str(invalid_failure(record(judge=invalid("exception", "x", error=error)), sources={"g.py": "x"}))


@pytest.mark.parametrize("judge", [None, {"invalid": "yes"}, {"invalid": {}}, {"invalid": {"error": []}}])
def test_a_forged_payload_never_raises(judge: Any) -> None:
    assert "Invalid result (invalid)" in str(invalid_failure(record(judge=judge)))


def test_hostile_text_is_shown_and_everything_fits_into_ten_kilobytes() -> None:
    huge = HOSTILE + "<&é漢" * 3_000_000
    error = {
        "type": HOSTILE,
        "message": huge,
        "traceback": [frame(1, huge[:9000], huge[:9000], huge[:9000])] * 50,
    }
    sample = record(
        prompt=[{"role": "user", "content": huge}],
        target=huge,
        output_text=huge,
        extracted_output=huge[1:],
        scores={huge[:9000] + str(i): 0.0 for i in range(50)},
        notes=[huge] * 9,
        judge={"why": huge, **invalid("exception", huge, error=error)},
    )
    shown = invalid_failure(sample, sources={"suites/g.py": huge[:100_000]})
    text = str(shown)
    assert len(text.encode()) <= 10_000
    assert "samples.jsonl" in text
    assert not set(text) & {"\x00", "\x1b", "\x07", "\x0b", "\ufffe", "\uffff", "\ud83d"}
    assert shown.reprcrash is not None
    assert len(shown.reprcrash.message) <= 500
    assert "\n" not in shown.reprcrash.message
    assert str(through_a_worker(shown).longrepr) == text


@pytest.mark.parametrize("text", ["\n" * 9_000, "\n " * 9_000, (" " * 60 + "x" * 60 + "\n") * 90, "a\n" * 900])
def test_many_short_lines_are_cut_too(text: str) -> None:
    sample = record(
        prompt=text,
        target=text,
        output_text=text,
        extracted_output=text[1:],
        judge={"why": list(text), **invalid("x", text)},
    )
    shown = str(invalid_failure(sample, sources={"suites/g.py": text}))
    assert len(shown.encode()) <= 10_000
    assert len(shown.splitlines()) < 320
    assert "samples.jsonl" in shown


def test_lines_fit_a_terminal_of_a_hundred_columns() -> None:
    long = "some words of a sentence " * 40
    sample = record(prompt=long, output_text=long, judge={"why": long, **invalid("exception", long)})
    text = str(invalid_failure(sample))
    assert max(map(len, text.splitlines())) <= 100
    assert "samples.jsonl" not in text


def test_what_a_worker_sends_is_what_is_shown() -> None:
    shown = invalid_failure(
        record(judge=invalid("exception", "ZeroDivisionError: division by zero", error=RAISED)),
        sources={"suites/g.py": SOURCE},
    )
    arrived = through_a_worker(shown).longrepr
    assert str(arrived) == str(shown)
    assert arrived.reprcrash.message == shown.reprcrash.message  # type: ignore[union-attr]


def test_a_missed_sample_threshold() -> None:
    shown = sample_threshold_failure(
        record(), [("score", 0.0, 1.0, True), ("mae", 0.25, 0.2, False), ("f1", None, 1, True)]
    )
    assert str(shown).startswith(
        "Below the sample_threshold:\n"
        "  score >= 1 not met: 0.\n"
        "  mae <= 0.2 not met: 0.25.\n"
        "  f1 >= 1 not met: the sample has no such score.\n"
        "\n"
        "prompt:    Work out 4+4?\n"
    )


def test_an_error_is_told_from_a_failure() -> None:
    sample = record(
        output_text=None,
        extracted_output=None,
        scores={},
        outcome="error",
        error={"stage": "generate", "type": "MissingRecording", "message": "no recorded response for this request."},
    )
    shown = error_failure(sample)
    assert str(shown) == (
        "Error in generate (MissingRecording): the sample has no score.\n"
        "no recorded response for this request.\n"
        "\n"
        "prompt:    Work out 4+4?\n"
        "target:    8"
    )
    assert shown.reprcrash is not None
    assert shown.reprcrash.message == "generate: MissingRecording: no recorded response for this request."


def test_nothing_extracted_is_said() -> None:
    assert "extracted: (nothing was extracted)" in str(invalid_failure(record(extracted_output=None)))
    assert "extracted" not in str(invalid_failure(record(output_text="9")))


def test_messages_of_a_prompt_are_shown_with_their_roles() -> None:
    prompt = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "4+4?"}]},
    ]
    text = str(invalid_failure(record(prompt=prompt)))
    assert '    [system] Be brief.\n    [user] [ { "type": "text", "text": "4+4?" } ]' in text


VERDICT = GateVerdict("f1", "failed", 0.75, {"min": 0.8}, 4, "f1 >= 0.80 not met: 0.750 (n=4).", ">= 0.80")


def test_a_gate_shows_its_reason() -> None:
    shown = gate_failure(VERDICT, suite="suites/s.json", task_id="sums", model="m")
    assert str(shown) == "f1 >= 0.80 not met: 0.750 (n=4).\n\nTask sums, model m, suite suites/s.json"
    assert shown.reprcrash is not None
    assert shown.reprcrash.message == VERDICT.reason


def test_an_invalid_batch_result_shows_its_source_and_payload() -> None:
    bad = {
        "reason": "exception",
        "raw": {"x": 1},
        "message": "ValueError: no labels",
        "error": {"type": "ValueError", "message": "no labels", "traceback": [frame(2, "grade_batch")]},
    }
    sources = {"suites/g.py": "def grade_batch(samples):\n    raise ValueError('no labels')\n"}
    shown = batch_failure(bad, suite="suites/s.json", task_id="sums", model="m", sources=sources)
    assert (
        str(shown)
        == """\
Invalid batch result (exception): it gives no metric.
ValueError: no labels

suites/g.py:2: in grade_batch
    def grade_batch(samples):
>       raise ValueError('no labels')
E   ValueError: no labels

payload:
    {
      "x": 1
    }

Task sums, model m, suite suites/s.json"""
    )
    with_gate = batch_failure(bad, suite="s", task_id="t", model="m", sources=sources, gate=VERDICT)
    assert str(with_gate).startswith(VERDICT.reason)


def test_all_problems_of_a_suite_are_listed() -> None:
    problems = [Problem("arith.json: tasks[0].metrics[1].threshhold", 'unknown key. Did you mean "threshold"?')]
    assert collection_failure(problems) == (
        'arith.json: tasks[0].metrics[1].threshhold: unknown key. Did you mean "threshold"?'
    )
    many = collection_failure([Problem("s.json", HOSTILE)] * 60)
    assert many.endswith("… and 10 more problems.")
    assert "\x1b" not in many
