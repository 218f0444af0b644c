"""Runs in which no sample runs: broken suites, dry runs, folders without a suite."""

from __future__ import annotations

import json

import pytest
from evalkit import FOUR, MODEL, Bench, gate, suite, task

TOUCHES = """
import pathlib

def pytest_evalgrader_grader(key):
    def grade(sample, item):
        pathlib.Path("ran").touch()
        return 1.0
    return grade
"""


def test_a_broken_suite_leaves_no_gate_and_no_older_results(bench: Bench) -> None:
    bench.write("suites/good.json", suite(task(metrics=gate(0.7))))
    bench.write("suites/broken.json", '{"tasks": [')
    bench.write("out/samples.jsonl", "of an earlier run\n")
    ran = bench.run()
    assert ran.code == 2
    assert "broken.json:1:12" in ran.text
    assert not any("gate" in name for name in ran.states)
    assert "partial" not in ran.text
    assert ran.samples == []
    assert ran.run["status"] == "interrupted"
    assert ran.run["reason"] == "nothing was run (1 error during collection)"


@pytest.mark.parametrize("option", ["--collect-only", "--setup-plan", "--setup-only"])
def test_dry_runs_run_no_grader_and_leave_results_alone(bench: Bench, option: str) -> None:
    bench.write("conftest.py", TOUCHES)
    bench.write("out/samples.jsonl", "[]\n")
    ran = bench.run(
        "suites", option, doc=suite(task(grader={"type": "custom", "key": "own"}, metrics=gate(0.7, "own")))
    )
    assert ran.code == 0
    assert "evals: 1 suite, 1 task, 4 samples, 1 model, 1 gate" in ran.text
    assert not (bench.pytester.path / "ran").exists()
    assert ran.samples == [[]]
    assert "partial" not in ran.text


def test_a_folder_without_a_suite_says_so(bench: Bench) -> None:
    bench.write("suites/package.json", {"name": "x"})
    bench.write("suites/test_x.py", "def test_one():\n    pass\n")
    assert "evals: no suite found" in bench.run().text


def test_quiet_leaves_the_line_after_collection_out(each_mode: Bench) -> None:
    assert "evals: 1 suite" not in each_mode.run("suites", "-q", doc=suite(task())).text


def test_a_warning_made_an_error_is_shown_in_its_words(bench: Bench) -> None:
    twice = [{**row, "id": "x"} for row in FOUR]
    ran = bench.run("suites", "-W", "error", doc=suite(task(dataset={"rows": twice})))
    assert ran.code == 2
    assert 'suites/s.json: tasks[0].dataset.rows[1]: the id "x" stands already in' in ran.flat
    assert "collection.py" not in ran.text
    assert ran.text.count("tasks[0].dataset.rows[1]") == 1


def test_a_file_in_the_place_of_the_output_folder_is_named(bench: Bench) -> None:
    bench.write("suites/s.json", suite(task()))
    bench.write("out/x", "")
    result = bench.pytester.runpytest_inprocess("--evals", "suites", "--evals-output=out/x/y", "-p", "no:randomly")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --evals-output: *out/x/y is a file, or below one; name a folder."])


def test_a_home_folder_is_expanded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(bench.pytester.path / "home"))
    bench.write("suites/s.json", suite(task(), run={"models": [MODEL]}))
    bench.pytester.runpytest_inprocess("--evals", "suites", "--evals-output=~/results", "-p", "no:randomly")
    assert json.loads((bench.pytester.path / "home/results/run.json").read_text("utf-8"))["status"] == "completed"
