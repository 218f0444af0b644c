"""Autouse fixtures of several folders: what they start is there before anything asks for it."""

from __future__ import annotations

from typing import Any

from evalkit import Bench, rows, suite, task

# An async application runs ahead of its items. It is slow, so that all of a worker's queue is started meanwhile.
APPLICATION = """
import asyncio, os
async def answer(prompt, row):
    await asyncio.sleep(0.05)
    return os.environ.get(row["variable"], "not started")
"""
CONFTEST = """
import os, pytest
@pytest.fixture(scope="session", autouse=True)
def application():
    os.environ["{variable}"] = "started"
    yield
    del os.environ["{variable}"]
"""


def folder(bench: Bench, name: str) -> None:
    variable = f"EVALGRADER_TEST_{name.upper()}"
    bench.write(f"suites/{name}/conftest.py", CONFTEST.format(variable=variable))
    asked: list[dict[str, Any]] = [row | {"variable": variable} for row in rows(*[("started", "")] * 6)]
    doc = suite(task(dataset={"rows": asked}, metrics=[{"id": "score", "threshold": 1}]))
    bench.write(f"suites/{name}/s.json", doc | {"run": {"models": ["python:application:answer"]}})


def test_nothing_runs_ahead_of_the_fixtures_of_its_own_folder(each_mode: Bench) -> None:
    each_mode.pytester.makeini("[pytest]\npythonpath = .\nevals_trusted_modules = application\n")
    each_mode.write("application.py", APPLICATION)
    for name in ("a", "b", "c"):
        folder(each_mode, name)
    ran = each_mode.run()
    assert {sample["output_text"] for sample in ran.samples} == {"started"}, ran.text
    assert len(ran.samples) == 18
    assert ran.code == 0
