"""`python:` candidates: what an application may return and raise, and that one cannot stop the others."""

from __future__ import annotations

from typing import Any

import pytest
from evalkit import FOUR, Bench, python, suite, task

APPLICATION = """
    import concurrent.futures, sys

    async def quits(prompt, row):
        sys.exit(2)

    def quits_at_once(prompt, row):
        sys.exit(3)

    async def answers(prompt, row):
        return {"output_text": row["gold"], "response_id": "r1"}

    class Later:
        def __await__(self):
            return answers("", {"gold": "2"}).__await__()

    def later(prompt, row):
        return Later()

    def generates(prompt, row):
        yield "2"

    def keyless(prompt, row):
        return {"text": "2"}
"""
NAMES = ("quits", "quits_at_once", "answers", "later", "generates", "keyless")


def test_an_application_is_answered_for_by_its_own_samples(bench: Bench) -> None:
    bench.write("application.py", APPLICATION)
    bench.write("pytest.ini", "[pytest]\nevals_trusted_modules = application\npythonpath = .\n")
    row = {"question": "1+1?", "gold": "2"}
    run = {"models": [f"python:application:{name}" for name in NAMES]}
    ran = bench.run(doc=suite(task(dataset={"rows": [row, row]}), run=run), subprocess=True)
    said = {sample["model"].rpartition(":")[2]: sample for sample in ran.samples}
    assert [said[name]["outcome"] for name in NAMES] == ["error", "error", "passed", "passed", "error", "error"]
    assert said["quits"]["error"]["message"] == "python:application:quits raised SystemExit: 2 (application.py:4)"
    assert (
        said["quits_at_once"]["error"]["message"]
        == "python:application:quits_at_once raised SystemExit: 3 (application.py:7)"
    )
    assert (said["answers"]["output_text"], said["answers"]["response_id"]) == ("2", "r1")
    assert "returned generator" in said["generates"]["error"]["message"]
    assert "returned a dict with nothing under output_text" in said["keyless"]["error"]["message"]


def test_the_outer_timeout_is_above_what_a_sample_may_wait_for(bench: Bench) -> None:
    bench.write(
        "pyproject.toml",
        """
        [tool.pytest.ini_options]
        [tool.evalgrader.providers.slow]
        base_url = "http://127.0.0.1:9/v1"
        timeout_seconds = 1000
        max_retries = 20
        """,
    )
    bench.write(
        "suites/conftest.py",
        """
        def pytest_collection_modifyitems(items):
            for item in items:
                marker = item.get_closest_marker("timeout")
                if marker is not None:
                    print("BOUND", item.nodeid.split("::")[1], marker.args[0])
        """,
    )
    tasks = [
        task(id="plain", grader=python(timeout_seconds=7), dataset={"rows": FOUR[:1]}),
        task(id="asked", grader=python(timeout_seconds=7), models=["slow:m"], dataset={"rows": FOUR[:1]}),
    ]
    ran = bench.run("suites", "--collect-only", "-s", doc=suite(*tasks))
    bounds = {line.split()[1]: float(line.split()[2]) for line in ran.text.splitlines() if line.startswith("BOUND")}
    assert 7 < bounds["plain"] < 600
    assert bounds["asked"] > 21 * 1000 + 20 * 30


def test_a_function_that_cannot_be_used_is_a_collection_error(bench: Bench) -> None:
    bench.write("application.py", "def takes_one(prompt):\n    return prompt\n")
    bench.write("pytest.ini", "[pytest]\nevals_trusted_modules = application absent_application\npythonpath = .\n")
    doc = suite(
        task(dataset={"rows": FOUR}, grader={"type": "custom", "key": "k", "function": "absent_application:check"}),
        run={"models": ["python:application:takes_one"]},
    )
    shown = bench.run(doc=doc, subprocess=True).text
    assert "application:takes_one is called with (prompt, row), but takes (prompt): too many positional" in shown
    assert "Install it, or name its folder in pytest's ini file, such as pythonpath = ." in shown


KEEPER = """
    import asyncio, os

    KEY = os.environ["OPENAI_API_KEY"]

    def raises(prompt, row):
        raise RuntimeError("401 for " + KEY)

    def says(prompt, row):
        return "my key is " + KEY

    def gives_up(prompt, row):
        raise asyncio.CancelledError("no " + KEY)

    def grade(sample, item):
        raise ValueError(sample["output_text"] + KEY)

    async def stops(sample, item):
        raise asyncio.CancelledError()

    def tells(sample, item):
        return {"scores": {"tells": 1.0}, "judge": {"seen": [KEY]}}

    def odd(sample, item):
        return KEY
"""


def test_a_key_that_the_projects_own_code_reads_reaches_no_record(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-a-secret-of-the-tests")
    bench.write("keeper.py", KEEPER)
    bench.write("pytest.ini", "[pytest]\nevals_trusted_modules = keeper\npythonpath = .\n")
    data = {"rows": [{"question": "1+1?", "gold": "2", "answer": "2"}]}
    names = ("raises", "says", "gives_up")
    tasks = [task(id="asked", dataset=data, models=[f"python:keeper:{name}" for name in names])]
    tasks += [
        task(id=name, dataset=data, grader={"type": "custom", "key": name, "function": f"keeper:{name}"})
        for name in ("grade", "stops", "tells", "odd")
    ]
    ran = bench.run("suites", "-vv", doc=suite(*tasks), subprocess=True)
    by_name = {s["model"].rpartition(":")[2] if s["task_id"] == "asked" else s["task_id"]: s for s in ran.samples}
    assert {name: sample["outcome"] for name, sample in by_name.items()} == {
        "raises": "error",
        "says": "passed",
        "gives_up": "error",
        "grade": "failed",
        "stops": "failed",
        "tells": "passed",
        "odd": "failed",
    }
    assert by_name["says"]["output_text"] == "my key is ***"
    assert "RuntimeError: 401 for ***" in by_name["raises"]["error"]["message"]
    assert by_name["stops"]["judge"]["invalid"]["error"]["type"] == "CancelledError"
    assert by_name["tells"]["judge"] == {"seen": ["***"]}
    root = bench.pytester.path
    shown = [ran.text, *(path.read_text() for path in [*root.glob("out/*"), root / "junit.xml"])]
    assert not [text for text in shown if "a-secret-of" in text]


SLOW = """
    import asyncio, time

    async def sleeps(prompt, row):
        await asyncio.sleep(600)

    async def blocks(prompt, row):
        time.sleep(600)

    async def gives_up(prompt, row):
        raise TimeoutError("of my own")

    async def answers(prompt, row):
        return row["gold"]
"""


def test_an_async_application_that_hangs_ends_at_its_timeout(bench: Bench) -> None:
    bench.write("slow.py", SLOW)
    bench.write("pytest.ini", "[pytest]\nevals_trusted_modules = slow\npythonpath = .\n")
    data = {"rows": [{"question": "1+1?", "gold": "2"}]}

    def run(*names: str) -> list[dict[str, Any]]:
        bound = {"timeout_seconds": 2}
        tasks = [task(id=name, dataset=data, models=[f"python:slow:{name}"], generation=bound) for name in names]
        return bench.run(doc=suite(*tasks), subprocess=True).samples

    # The last one has a run of its own: it holds up the loop that all async applications share.
    samples = [*run("answers", "gives_up", "sleeps"), *run("blocks")]
    assert [sample["outcome"] for sample in samples] == ["passed", "error", "error", "error"]
    said = [sample["error"]["message"] for sample in samples[1:]]
    assert "raised TimeoutError: of my own" in said[0]
    assert said[1] == "python:slow:sleeps gave no answer within timeout_seconds=2 of generation."
    assert said[2].startswith("python:slow:blocks gave no answer")


def test_hooks_may_be_async_and_graders_must_be_functions(bench: Bench) -> None:
    bench.write(
        "suites/conftest.py",
        """
        async def pytest_evalgrader_generate(model, request):
            return {"output_text": request["row"]["gold"]}

        def pytest_evalgrader_grader(key):
            return "os:system"
        """,
    )
    row = {"question": "1+1?", "gold": "2", "answer": "2"}
    asked = task(dataset={"rows": [row]}, models=["house:m"])
    assert bench.run(doc=suite(asked)).samples[0]["output_text"] == "2"
    graded = task(dataset={"rows": [row]}, grader={"type": "custom", "key": "k"})
    ran = bench.run(doc=suite(graded))
    assert ran.code == 2
    assert 'returned str for the key "k"; expected a function' in ran.text
