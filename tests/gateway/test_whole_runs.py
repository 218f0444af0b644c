"""Whole pytest runs against the server: killed and resumed, interrupted, faulty, two at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from .conftest import KEY
from .server import Action, FakeServer, Half, Reply, Request, Reset, SlowBytes, responses

GRADER = "def grade(sample, item):\n    return 1.0 if sample['output_text'] == '4' else 0.0\n"


class Run:
    """Starts pytest in a folder with one suite."""

    def __init__(self, root: Path, server: FakeServer) -> None:
        self.root = root
        self.env = {**os.environ, "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{server.url}/v1", "NO_COLOR": "1"}
        self.recording = root / "suites" / "recordings" / "s.jsonl"

    def lay(self, questions: list[str], **generation: Any) -> None:
        task = {
            "id": "sums",
            "dataset": {"rows": [{"question": question} for question in questions]},
            "prompt_template": "{{question}}",
            "grader": {"type": "python", "source": GRADER},
        }
        run = {"models": ["openai:cand"], "generation": generation}
        (self.root / "suites").mkdir()
        suite = {"schema_version": "2026-05-27", "run": run, "tasks": [task]}
        (self.root / "suites" / "s.json").write_text(json.dumps(suite))
        (self.root / "pytest.ini").write_text("[pytest]\n")

    def start(self, *args: str) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "--evals",
            "suites",
            "--evals-output=out",
            "-p",
            "no:randomly",
            *args,
        ]
        self.shown = self.root / "terminal.txt"
        with open(self.shown, "wb") as file:
            return subprocess.Popen(
                command, cwd=self.root, env=self.env, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )

    def samples(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.root / "out" / "samples.jsonl").read_text().splitlines()]


@pytest.fixture
def run(tmp_path: Path, server: FakeServer) -> Run:
    return Run(tmp_path, server)


def until(reached: Any, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.01)


def test_a_killed_run_resumes_and_asks_nothing_twice(run: Run, server: FakeServer) -> None:
    server.answer = lambda request: Reply(responses("4"), delay_s=0.1)
    questions = [f"q{n}" for n in range(40)]
    run.lay(questions)
    journal = run.recording.with_name("s.jsonl.journal")
    args = ["--evals-calls=fill", "--evals-concurrency=4", "-n", "2"]
    killed = run.start(*args)
    until(lambda: journal.exists() and journal.read_bytes().count(b"\n") >= 10)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    time.sleep(0.3)
    whole = [line for line in journal.read_bytes().splitlines(True) if line.endswith(b"\n")]
    finished = {json.loads(line)["request"]["body"]["input"] for line in whole}
    before = len(server.requests)
    resumed = run.start(*args)
    assert resumed.wait(60) == 0, run.shown.read_text()
    again = {request.body["input"] for request in server.requests[before:]}
    assert not again & finished
    assert again | finished == set(questions)
    assert len(run.recording.read_text().splitlines()) == 40
    assert {sample["outcome"] for sample in run.samples()} == {"passed"}
    assert KEY not in run.recording.read_text() + run.shown.read_text()


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["plain", "n2"])
def test_ctrl_c_ends_soon_and_keeps_what_was_finished(run: Run, server: FakeServer, workers: list[str]) -> None:
    server.answer = lambda request: Reply(responses("4"), delay_s=0.1 if request.body["input"] < "q2" else 30)
    run.lay([f"q{n}" for n in range(10, 40)])
    started = run.start("--evals-calls=fill", *workers)
    out = run.root / "out" / "samples.jsonl"
    until(lambda: out.exists() and out.read_bytes().count(b"\n") >= 8)
    until(lambda: any(request.body["input"] >= "q2" for request in server.requests))
    time.sleep(0.3)
    began = time.monotonic()
    os.killpg(started.pid, signal.SIGINT) if workers else os.kill(started.pid, signal.SIGINT)
    assert started.wait(30) == 2
    # Two seconds on a machine of its own; here only apart from the answers, which take 30.
    assert time.monotonic() - began < 20
    finished = [sample["prompt"] for sample in run.samples() if sample["outcome"] == "passed"]
    assert len(finished) >= 8
    recorded = {json.loads(line)["request"]["body"]["input"] for line in run.recording.read_text().splitlines()}
    assert set(finished) <= recorded


def test_faults_harm_their_own_samples_only(run: Run, server: FakeServer) -> None:
    faults: dict[str, Action] = {
        "storm": Reply({}, 429, {"Retry-After": "0"}),
        "broken": Reply({}, 500),
        "reset": Reset(),
        "half": Half(),
        "slow": SlowBytes(),
        "garbage": Reply(b"{"),
        "page": Reply(b"<html></html>", headers={"Content-Type": "text/html"}),
        "bare": Reply({"object": "response"}),
    }

    def answer(request: Request) -> Action:
        return faults.get(request.body["input"], Reply(responses("4" if request.body["input"] != "empty" else "")))

    server.answer = answer
    run.lay([*faults, "empty", *[f"q{n}" for n in range(6)]], max_retries=1, timeout_seconds=1)
    assert run.start("-n", "2").wait(90) == 1
    outcomes = {sample["prompt"]: sample for sample in run.samples()}
    for name in faults:
        assert (outcomes[name]["outcome"], outcomes[name]["scores"]) == ("error", {}), name
        assert outcomes[name]["error"]["stage"] == "generate"
    assert outcomes["empty"]["outcome"] == "passed"
    assert "the output is empty" in outcomes["empty"]["notes"]
    assert {outcomes[f"q{n}"]["scores"]["score"] for n in range(6)} == {1.0}
    asked = Counter(request.body["input"] for request in server.requests)
    assert {asked[name] for name in faults} == {2}


def test_two_runs_do_not_write_one_recording(run: Run, server: FakeServer) -> None:
    second_ended = threading.Event()

    def answer(request: Request) -> Action:
        second_ended.wait(60)
        return Reply(responses("4"))

    server.answer = answer
    run.lay([f"q{n}" for n in range(8)])
    first = run.start("--evals-calls=fill", "--evals-concurrency=1")
    until(lambda: server.requests)
    second = run.start("--evals-calls=fill", "--evals-output=other")
    assert second.wait(60) == 1
    assert "another pytest run is writing the recording s.jsonl" in run.shown.read_text()
    second_ended.set()
    assert first.wait(60) == 0
    assert len(server.requests) == 8


def test_a_line_of_the_recording_that_was_lost_is_told(run: Run, server: FakeServer) -> None:
    server.answer = lambda request: Reply(responses("4"))
    run.lay(["q0", "q1"])
    assert run.start("--evals-calls=fill").wait(60) == 0
    first, second = run.recording.read_text().splitlines(True)
    run.recording.write_text(first + second[:40])
    assert run.start("--evals-calls=fill", "-W", "error").wait(60) == 0
    assert "recording: s.jsonl:2: not JSON (cut off or edited); the line is left out" in run.shown.read_text()
    assert run.recording.read_text() == first + second
    assert len(server.requests) == 3


LATE = """
import os, pathlib, time
def pytest_collection_modifyitems(items):
    if os.environ.get("PYTEST_XDIST_WORKER") == "gw1":
        while not pathlib.Path("asked").exists():
            time.sleep(0.02)
        {late}
"""


@pytest.mark.parametrize("late", ["pass", "items.pop()"], ids=["same", "different"])
def test_the_first_worker_that_is_ready_does_not_wait_for_the_others(
    run: Run, server: FakeServer, tmp_path: Path, late: str
) -> None:
    def answer(request: Request) -> Action:
        (tmp_path / "asked").touch()
        return Reply(responses("4"), delay_s=0.1)

    server.answer = answer
    run.lay([f"q{n}" for n in range(40)])
    (tmp_path / "conftest.py").write_text(LATE.format(late=late))
    # The other worker is only ready once something was asked.
    code = run.start("--evals-concurrency=4", "-n", "2").wait(60)
    shown = run.shown.read_text()
    if late == "pass":
        assert code == 0, shown
        assert (len(server.requests), len(run.samples())) == (40, 40)
    else:
        assert code != 0
        assert "Different tests were collected" in shown


@pytest.mark.parametrize("mode", ["fill", "replay", "refresh"])
def test_a_recording_that_leads_out_of_the_rootdir_is_refused(tmp_path: Path, server: FakeServer, mode: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "project").mkdir()
    run = Run(tmp_path / "project", server)
    run.lay(["1"])
    run.recording.parent.symlink_to(outside)
    assert run.start(f"--evals-calls={mode}").wait(60) == 2
    assert "recordings/s.jsonl is a link that leaves pytest's rootdir" in run.shown.read_text()
    assert list(outside.iterdir()) == []
    assert server.requests == []


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["plain", "n2"])
def test_the_attempts_told_are_those_that_the_server_saw(run: Run, server: FakeServer, workers: list[str]) -> None:
    def answer(request: Request) -> Reply:
        return Reply({"error": {"message": "later"}}, status=500) if request.nth == 1 else Reply(responses("4"))

    server.answer = answer
    run.lay([f"q{n}" for n in range(3)])
    assert run.start("--evals-calls=fill", *workers).wait(60) == 0, run.shown.read_text()
    assert json.loads((run.root / "out" / "run.json").read_text())["attempts"] == len(server.requests) == 6
    assert "3 model calls (6 attempts made)" in run.shown.read_text()
    assert run.start("--evals-calls=fill", *workers).wait(60) == 0, run.shown.read_text()
    assert json.loads((run.root / "out" / "run.json").read_text())["attempts"] == 0
    assert "3 recorded model calls" in run.shown.read_text()


CATCHES = """
def grade(sample, item, ctx):
    try:
        ctx.responses_create(input="j")
    except Exception:
        pass
    return 1.0

def grade_batch(samples, ctx):
    try:
        ctx.responses_create(input="j")
    except Exception:
        pass
    return {"metrics": {"score": 1.0}}
"""


@pytest.mark.parametrize("execution", ["per_sample", "aggregate"])
def test_a_grader_cannot_catch_the_end_of_the_budget(run: Run, server: FakeServer, execution: str) -> None:
    run.lay(["1"])
    path = run.root / "suites" / "s.json"
    suite = json.loads(path.read_text())
    suite["run"]["judge_model"] = "openai:j"
    grader = {"type": "python", "contract": "model_backed", "execution": execution, "source": CATCHES}
    suite["tasks"][0] |= {"grader": grader, "metrics": [{"id": "score", "threshold": 0.5}]}
    path.write_text(json.dumps(suite))
    assert run.start("--evals-max-calls=1").wait(60) != 0
    shown = run.shown.read_text()
    assert "the budget of 1 model call (" in " ".join(shown.split())
    assert "met: 1.000" not in shown
    assert [sample["outcome"] for sample in run.samples()] == ["error" if execution == "per_sample" else "passed"]
    assert len(server.requests) == 1
