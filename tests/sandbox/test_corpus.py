"""Ordinary graders give the same results in the sandbox as in plain Python."""

from __future__ import annotations

import random
import sys
import types
from typing import Any

import pytest

from pytest_evalgrader.sandbox import child, reduce
from pytest_evalgrader.sandbox.host import Program, Sandbox

from .graders import GRADERS, TEXTS


def plain(source: str, name: str, sample: dict[str, Any], item: dict[str, Any]) -> dict[str, Any]:
    """What the same grader gives in this interpreter."""
    module = types.ModuleType("grader")
    depth = sys.getrecursionlimit()
    sys.modules["grader"] = module
    try:
        random.seed("7")
        exec(compile(source, name, "exec", dont_inherit=True), module.__dict__)
        try:
            value = run_async(module.grade(dict(sample), dict(item)))
        except Exception as error:  # noqa: BLE001 - what a grader raises is its result
            return {"raised": child.describe(error, source, name)}
        return reduce.reduce_result(value, "score")
    finally:
        sys.setrecursionlimit(depth)
        del sys.modules["grader"]


def run_async(value: Any) -> Any:
    if isinstance(value, types.CoroutineType):
        import asyncio

        return asyncio.run(value)
    return value


@pytest.mark.parametrize("name", GRADERS)
def test_same_as_plain_python(sandbox: Sandbox, name: str) -> None:
    filename = f"{name}.py"
    program = Program(GRADERS[name], filename, ("grade",))
    assert sandbox.check(program) == []
    for text, target in TEXTS:
        sample, item = {"output_text": text}, {"target": target}
        expected = plain(program.source, filename, sample, item)
        result = sandbox.run(program, "grade", [sample, item], shape="score", timeout_s=10, seed="7")
        got = result.value if result.status == "returned" else {"raised": result.error}
        assert got == expected, (text, result)
    assert any(process.program == program for process in sandbox._idle), "its child is used again"
    sandbox.retire(program)


def test_there_are_enough() -> None:
    assert len(GRADERS) >= 100
