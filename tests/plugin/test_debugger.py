"""`--pdb`: what a grader raised in this process is looked at in the grader's own frame."""

from __future__ import annotations

import sys

import pytest
from evalkit import FOUR, Bench, python, suite, task

RAISES = """
def grade(sample, item):
    wanted = "<" + item["target"] + ">"
    return {}[wanted]
"""


def debug(bench: Bench, *args: str, said: str) -> str:
    """Run one sample under the debugger and answer its prompts; returns what was shown."""
    given = ["--evals", "suites", "-p", "no:randomly", "--pdb", *args]
    run = bench.pytester.run(sys.executable, "-m", "pytest", *given, stdin=said.encode())
    return run.stdout.str()


@pytest.mark.parametrize("place", ["source", "file"])
def test_without_the_sandbox_the_debugger_stops_in_the_grader(bench: Bench, place: str) -> None:
    grader = python(RAISES)
    if place == "file":
        bench.write("suites/g.py", RAISES)
        grader = {"type": "python", "file_id": "g.py"}
    bench.write("suites/s.json", suite(task(dataset={"rows": FOUR[3:]}, grader=grader)))
    shown = debug(bench, "--evals-sandbox=off", said="p wanted\nll\nc\n")
    assert "'<8>'" in shown
    assert "->\t    return {}[wanted]" in shown


def test_a_custom_graders_exception_is_looked_at_in_its_frame(bench: Bench) -> None:
    bench.write("conftest.py", f"{RAISES}\n\ndef pytest_evalgrader_grader(key):\n    return grade\n")
    bench.write("suites/s.json", suite(task(dataset={"rows": FOUR[3:]}, grader={"type": "custom", "key": "own"})))
    assert "'<8>'" in debug(bench, said="p wanted\nc\n")


def test_in_the_sandbox_the_debugger_opens_where_the_report_is_made(bench: Bench) -> None:
    bench.write("suites/s.json", suite(task(dataset={"rows": FOUR[3:]}, grader=python(RAISES))))
    shown = debug(bench, said="c\n")
    assert "entering PDB" in shown
    assert "return {}[wanted]" in shown
