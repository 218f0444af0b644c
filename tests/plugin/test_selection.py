"""Gates under every way of choosing items: -k, -m, node ids, --deselect, --lf, --ff, -x, --maxfail, Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from evalkit import Bench, gate, python, rows, suite, task

GATE = "suites/s.json::sums::gate[recorded:answer-score]"
SAMPLE = "suites/s.json::sums::sample[recorded:answer-{}]"
INVALID_AT_4 = "def grade(sample, item):\n    return 1.0 if item['target'] != '4' else 'bad'\n"


def test_task_by_keyword(each_mode: Bench) -> None:
    each_mode.write("suites/s.json", suite(task(metrics=gate(0.7)), task(id="other", metrics=gate(0.7))))
    ran = each_mode.run("suites", "-k", "other")
    assert ran.code == 0
    assert len(ran.states) == 5


def test_tag_by_marker(each_mode: Bench) -> None:
    each_mode.write("suites/s.json", suite(task(metrics=gate(0.7), tags=["slow"]), task(id="other")))
    ran = each_mode.run("suites", "-m", "slow", "--strict-markers")
    assert ran.code == 0, ran.text
    assert len(ran.states) == 5


def test_gate_alone_brings_its_samples(each_mode: Bench) -> None:
    each_mode.write("suites/s.json", suite(task(metrics=gate(0.7)), task(id="other", metrics=gate(0.7))))
    ran = each_mode.run(GATE)
    assert ran.code == 0, ran.text
    assert len(ran.states) == 5
    by_word = each_mode.run("suites", "-k", "gate and sums")
    assert len(by_word.states) == 5
    assert by_word.state("gate[") == "passed"


def test_sample_alone_reports_no_gate(each_mode: Bench) -> None:
    ran = each_mode.run(SAMPLE.format(1), doc=suite(task(metrics=gate(0.7))))
    assert ran.code == 0
    assert list(ran.states.values()) == ["passed"]
    assert ran.group["partial"] is True


def test_part_of_a_group_skips_its_gate(each_mode: Bench) -> None:
    ran = each_mode.run("suites", "--deselect", SAMPLE.format(3), doc=suite(task(metrics=gate(0.7))))
    assert ran.code == 0
    assert ran.state("gate[") == "skipped"
    assert "3 of 4 selected" in ran.text
    assert len(ran.states) == 4


@pytest.mark.parametrize(
    ("mark", "bound", "state"),
    [
        ("xfail(reason='known')", 2.0, "skipped"),
        ("xfail(strict=True)", 0.0, "failure"),
        ("skip(reason='later')", 2.0, "skipped"),
        ("xfail(raises=ZeroDivisionError)", 2.0, "failure"),
    ],
)
def test_marks_that_a_hook_puts_on_a_gate_count(each_mode: Bench, mark: str, bound: float, state: str) -> None:
    each_mode.write(
        "conftest.py",
        "import pytest\n"
        "def pytest_collection_modifyitems(items):\n"
        "    for item in items:\n"
        "        if item.name.startswith('gate['):\n"
        f"            item.add_marker(pytest.mark.{mark})\n",
    )
    ran = each_mode.run(doc=suite(task(metrics=gate(bound))))
    assert ran.state("gate[") == state
    assert ran.code == (1 if state == "failure" else 0)


def test_last_failed_gate_runs_its_group(each_mode: Bench) -> None:
    each_mode.write("suites/s.json", suite(task(metrics=gate(0.8)), task(id="other")))
    assert each_mode.run().code == 1
    again = each_mode.run("suites", "--lf")
    assert again.code == 1
    assert len(again.states) == 5
    assert again.state("gate[") == "failure"


def test_last_failed_gate_and_sample(each_mode: Bench) -> None:
    each_mode.write("suites/s.json", suite(task(metrics=[{"id": "score", "threshold": 0.9, "sample_threshold": 1.0}])))
    assert each_mode.run().code == 1
    again = each_mode.run("suites", "--lf")
    assert len(again.states) == 5
    assert again.state("answer-0]") == "passed"


def test_gate_that_was_not_evaluated_stays_in_last_failed(bench: Bench) -> None:
    bench.write("suites/s.json", suite(task(metrics=gate(0.8))))
    assert bench.run().code == 1
    assert bench.run("suites", "--deselect", SAMPLE.format(0)).state("gate[") == "skipped"
    assert bench.run("suites", "--lf").state("gate[") == "failure"


def test_last_failed_batch_item(each_mode: Bench) -> None:
    batch = python("def grade_batch(samples):\n    return {}\n", contract="batch")
    each_mode.write("suites/s.json", suite(task(grader=batch), task(id="other", metrics=gate(0.9))))
    first = each_mode.run()
    assert first.state("batch[") == "failure"
    again = each_mode.run("suites", "--lf")
    assert again.state("batch[") == "failure"
    assert again.state("other", "gate[") == "failure"


def test_failed_first_keeps_every_gate(each_mode: Bench) -> None:
    each_mode.write("suites/s.json", suite(task(metrics=gate(0.8)), task(id="other", metrics=gate(0.7))))
    assert each_mode.run().code == 1
    again = each_mode.run("suites", "--ff")
    assert len(again.states) == 10
    assert again.state("other", "gate[") == "passed"


def test_first_failure_stops_without_a_false_pass(each_mode: Bench) -> None:
    doc = suite(task(grader=python(INVALID_AT_4), metrics=gate(0.1), dataset={"rows": rows(*[("4", "4")] * 30)}))
    ran = each_mode.run("suites", "-x", doc=doc)
    assert ran.code in (1, 2)
    assert ran.state("gate[") == "skipped"
    assert ran.run["status"] == "interrupted"
    assert "stopped early" in ran.group["gates"][0]["reason"]


def test_maxfail(each_mode: Bench) -> None:
    source = "def grade(sample, item):\n    return None\n"
    doc = suite(task(grader=python(source), metrics=gate(0.0), dataset={"rows": rows(*[("4", "4")] * 30)}))
    ran = each_mode.run("suites", "--maxfail=2", doc=doc)
    assert ran.state("gate[") != "passed"
    assert ran.samples


@pytest.mark.parametrize("workers", [(), ("-n2",)])
def test_ctrl_c_ends_soon_and_keeps_what_was_finished(bench: Bench, workers: tuple[str, ...]) -> None:
    source = """
        def grade(sample, item):
            while item["question"] not in ("q0", "q1"):
                pass
            return 1.0
    """
    bench.write("suites/s.json", suite(task(grader=python(source, timeout_seconds=60), metrics=gate(0.1))))
    out = bench.pytester.path / "out"
    args = [sys.executable, "-m", "pytest", "--evals", "suites", "--evals-output=out", "-p", "no:randomly", *workers]
    run = subprocess.Popen(
        args, cwd=bench.pytester.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if (out / "samples.jsonl").exists() and (out / "samples.jsonl").read_text().count("\n") >= 2:
                break
            time.sleep(0.05)
        os.kill(run.pid, signal.SIGINT)
        asked = time.monotonic()
        text = run.communicate(timeout=30)[0].decode()
        took = time.monotonic() - asked
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
    assert run.returncode == 2, text
    # The bound is generous: it tells an end at once from one that waits for the grader's minute.
    assert took < 20
    assert (out / "samples.jsonl").read_text().count("\n") >= 2
    assert '"interrupted"' in (out / "run.json").read_text()
