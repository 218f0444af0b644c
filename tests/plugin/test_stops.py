"""Runs that are stopped, crash or are laid out oddly: what was not evaluated is never passed, and nothing vanishes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from evalkit import FOUR, Bench, gate, python, rows, suite, task

ENDLESS = "def grade_batch(samples):\n    while True:\n        pass\n"


def wait_for_lines(path: Path, lines: int) -> None:
    """Wait until a file holds so many lines; it is what a process under test has written so far."""
    deadline = time.monotonic() + 60
    while not (path.exists() and path.read_bytes().count(b"\n") >= lines):
        assert time.monotonic() < deadline, f"{path} never held {lines} lines"
        time.sleep(0.02)


def interrupted(bench: Bench, lines: int, *more: str) -> str:
    """Start a run, end it by Ctrl-C a moment after so many samples were written, and return what it showed."""
    out = bench.pytester.path / "out"
    args = [sys.executable, "-m", "pytest", "--evals", "suites", "--evals-output=out", "-p", "no:randomly", *more]
    run = subprocess.Popen(args, cwd=bench.pytester.path, stdout=subprocess.PIPE, start_new_session=True)
    try:
        wait_for_lines(out / "samples.jsonl", lines)
        time.sleep(0.5)
        os.kill(run.pid, signal.SIGINT)
        text = run.communicate(timeout=30)[0].decode()
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
    assert run.returncode == 2, text
    return text


@pytest.mark.parametrize("workers", [(), ("-n2",)])
def test_ctrl_c_while_a_batch_grader_runs_passes_no_gate(bench: Bench, workers: tuple[str, ...]) -> None:
    # The samples alone reach 0.7; what the batch grader would have said of them is not known.
    doc = suite(
        task(
            grader=None,
            graders=[python(), python(ENDLESS, contract="batch")],
            metrics=[*gate(0.7), *gate(0.1, "accuracy")],
        )
    )
    bench.write("suites/s.json", doc)
    text = interrupted(bench, 4, *workers)
    assert "2 skipped" in text
    assert "interrupted" in (bench.pytester.path / "out" / "run.json").read_text()


def test_two_suites_of_one_name_outside_the_rootdir(each_mode: Bench) -> None:
    each_mode.write("project/suites/s.json", suite(task(metrics=gate(0.7))))
    each_mode.write("project/suites/sub/s.json", suite(task(metrics=gate(0.8))))
    each_mode.write("root/pytest.ini", "[pytest]\n")
    ran = each_mode.run("project/suites", "--rootdir=root")
    assert ran.code == 1, ran.text
    assert [group["suite"] for group in ran.run["groups"]] == [
        "../project/suites/s.json",
        "../project/suites/sub/s.json",
    ]
    assert ran.state("suites.s.json", "gate[") == "passed"
    assert ran.state("suites.sub.s.json", "gate[") == "failure"
    again = each_mode.run("project/suites", "--rootdir=root", "--lf")
    assert len(again.states) == 5


def test_a_gate_given_twice_is_judged_once(bench: Bench) -> None:
    bench.write("conftest.py", "def pytest_collection_modifyitems(items):\n    items[:] = items * 2\n")
    ran = bench.run(doc=suite(task(metrics=gate(0.7))))
    assert len(ran.group["gates"]) == 1
    assert ran.group["request_counts"]["completed"] == 4


def test_a_crash_that_is_run_again_counts_by_its_last_attempt(bench: Bench) -> None:
    bench.mode = "-n 2"
    bench.write(
        "conftest.py",
        """
        import os, pathlib
        MARK = pathlib.Path(__file__).with_name("died")
        def pytest_evalgrader_grader(key):
            def grade(sample, item):
                if item["question"] == "q1" and not MARK.exists():
                    MARK.touch()
                    os._exit(3)
                if item["question"] == "q2":
                    os._exit(3)
                return 1.0
            return grade
        """,
    )
    doc = suite(
        task(grader={"type": "custom", "key": "k"}, dataset={"rows": rows(*[("a", "a")] * 4)}, metrics=gate(0.1, "k"))
    )
    ran = bench.run("suites", "--reruns", "1", doc=doc, subprocess=True)
    assert ran.code == 1
    assert ran.state("answer-1]") == "passed"
    assert ran.state("answer-2]") == "error"
    assert ran.state("gate[") == "failure"
    assert [sample["sample_index"] for sample in ran.samples] == [0, 1, 3]
    assert not [name for name in ran.cases if "None" in name], "a test case has no name"


@pytest.mark.parametrize("phase", ["setup", "call", "teardown"])
def test_the_test_case_of_a_sample_whose_worker_died_has_its_properties(bench: Bench, phase: str) -> None:
    bench.mode = "-n 2"
    bench.write(
        "conftest.py",
        f"""
        import os, pytest
        @pytest.hookimpl(trylast=True)
        def pytest_runtest_{phase}(item):
            if item.name.endswith("-1]"):
                os._exit(3)
        """,
    )
    ran = bench.run("suites", doc=suite(task()), subprocess=True)
    assert ran.state("answer-1]") == "error"
    for name, case in ran.cases.items():
        shown = {entry.get("name"): entry.get("value") for entry in case.iter("property")}
        assert len(shown) == len(list(case.iter("property"))), name
        assert shown["eval.model"] == "recorded:answer"
        assert name.endswith(f"-{shown['eval.sample_id']}]")
        died_early = name.endswith("-1]") and phase != "teardown"
        assert shown["eval.outcome"] == ("error" if died_early else "passed")
        assert ("eval.score.score" in shown) != died_early


def test_an_invalid_result_beside_a_batch_grader_is_zero_under_its_own_key(bench: Bench) -> None:
    update = """
        def grade_batch(samples):
            return {"samples": [{"sample_id": s["sample_id"], "scores": {"right": 1}} for s in samples]}
    """
    own = "def grade(sample, item):\n    return None if item['target'] == '4' else 1.0\n"
    doc = suite(
        task(
            grader=None,
            graders=[python(own), python(update, contract="batch")],
            metrics=[*gate(0.75), *gate(1.0, "right")],
        )
    )
    ran = bench.run(doc=doc)
    assert ran.state("gate[", "score") == "passed"
    assert ran.state("gate[", "right") == "passed"
    assert ran.samples[1]["scores"] == {"score": 0.0, "right": 1.0}


def test_ctrl_c_in_a_sample_leaves_gates_skipped(bench: Bench) -> None:
    # The interrupted item is never torn down by pytest's own loop.
    source = """
        def grade(sample, item):
            while item["question"] == "q2":
                pass
            return 1.0
    """
    bench.write("suites/s.json", suite(task(grader=python(source), metrics=gate(0.1))))
    text = interrupted(bench, 2)
    assert "2 passed, 1 skipped" in text


def test_stopping_in_one_file_leaves_the_gates_of_others_skipped(each_mode: Bench) -> None:
    bad = python("def grade(sample, item):\n    return None\n")
    each_mode.write("suites/a/s.json", suite(task(grader=bad, metrics=gate(0.1))))
    each_mode.write("suites/b/s.json", suite(task(metrics=gate(0.1), dataset={"rows": rows(*[("1", "1")] * 40)})))
    ran = each_mode.run("suites", "-x")
    assert ran.code in (1, 2)
    assert ran.state("suites.a", "gate[") == "skipped"
    assert ran.state("suites.b", "gate[") == "skipped"
    assert "stopped early" in ran.text


def test_autouse_fixtures_of_every_scope(each_mode: Bench) -> None:
    scopes = ["session", "package", "module", "class", "function"]
    each_mode.write(
        "suites/conftest.py",
        "import pytest\nSEEN = []\n"
        + "".join(
            f"@pytest.fixture(autouse=True, scope={scope!r})\n"
            f"def of_{scope}(request):\n    SEEN.append({scope!r})\n    assert request.config\n    yield\n"
            for scope in scopes
        )
        + "def pytest_evalgrader_generate(model, request):\n    return str(SEEN.count('module'))\n",
    )
    data = {"rows": rows(*[("1", "")] * 4)}
    ran = each_mode.run(doc=suite(task(dataset=data, metrics=gate(1.0)), run={"models": ["house:m"]}))
    assert ran.code == 0, ran.text
    assert {sample["output_text"] for sample in ran.samples} == {"1"}


def test_failures_beyond_the_first_many_are_short(each_mode: Bench) -> None:
    each_mode.write(
        "conftest.py",
        """
        import importlib
        # The package may still hold the module of an earlier run in this process.
        failures = importlib.import_module("pytest_evalgrader.reporting.failures")
        USUAL = failures.SHOWN_WHOLE
        def pytest_configure(config):
            failures.SHOWN_WHOLE = 2
        def pytest_unconfigure(config):
            failures.SHOWN_WHOLE = USUAL
        """,
    )
    bad = python("def grade(sample, item):\n    return 'bad'\n")
    ran = each_mode.run(doc=suite(task(grader=bad)))
    assert ran.code == 1
    bodies = [case.find("failure").text or "" for case in ran.cases.values()]  # type: ignore[union-attr]
    assert sorted("Work out" in body for body in bodies) == [False, False, True, True]
    assert all("wrong_type" in body for body in bodies)
    assert sum("Only the first 2 failures are shown whole" in body for body in bodies) == 2


def test_no_text_of_a_failed_sample_stays(bench: Bench) -> None:
    # pytest-rerunfailures keeps the exceptions of failed items, and with them all their frames.
    bench.write(
        "conftest.py",
        """
        import gc
        def pytest_sessionfinish():
            gc.collect()
            from pytest_evalgrader.records import SampleRecord
            held = [each for each in gc.get_objects() if isinstance(each, SampleRecord)]
            print("texts held:", sum(each.prompt is not None or each.dataset_row is not None for each in held))
        """,
    )
    bad = python("def grade(sample, item):\n    return 'bad'\n")
    broken = [{"question": "q", "gold": "1", "answer": None}, {"question": "q", "gold": "1", "answer": "1"}]
    doc = suite(task(grader=bad), task(id="errors", dataset={"rows": broken}))
    ran = bench.run("suites", "-s", doc=doc, subprocess=True)
    assert ran.code == 1
    assert "texts held: 0" in ran.text


def test_an_interrupt_in_a_frame_that_hides_itself_ends_like_any_other(bench: Bench) -> None:
    bench.write(
        "suites/conftest.py",
        """
        import pytest
        @pytest.fixture(autouse=True)
        def impatient(request):
            if request.node.name.endswith("-2]"):
                __tracebackhide__ = True
                raise KeyboardInterrupt
        """,
    )
    ran = bench.run(doc=suite(task(dataset={"rows": FOUR})), subprocess=True)
    assert ran.code == 2
    assert "KeyboardInterrupt" in ran.text
    assert "AssertionError" not in ran.text
    assert [sample["id"] for sample in ran.samples] == ["0", "1"]


FULL = """
import errno, os
count = 0
real = os.{name}
def full(*args):
    global count
    count += 1
    if count > {after}:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return real(*args)
def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        os.{name} = full
def pytest_unconfigure():
    os.{name} = real
"""


@pytest.mark.parametrize(
    ("name", "after", "arrived", "gates"), [("pwrite", 2, 2, "skipped"), ("fsync", 0, 4, "passed")]
)
def test_a_full_disk_ends_the_run_in_words(each_mode: Bench, name: str, after: int, arrived: int, gates: str) -> None:
    each_mode.write("conftest.py", FULL.format(name=name, after=after))
    ran = each_mode.run("suites", doc=suite(task(metrics=gate(0.5))))
    assert ran.code == 2, ran.text
    assert "INTERNALERROR" not in ran.text
    assert "out cannot be written: No space left on device" in ran.text
    assert len(ran.samples) == arrived
    assert ran.state("gate") == gates
