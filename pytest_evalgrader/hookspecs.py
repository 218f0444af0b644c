"""The hooks that a conftest.py may implement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.hookspec(firstresult=True)
def pytest_evalgrader_generate(model: str, request: dict[str, Any]) -> str | dict[str, Any] | None:
    """Answer for a model whose provider is not a configured one, such as `house:m1`.

    Runs in the worker process, inside its own pytest item.

    Args:
        model: The name as the suite or the command line gives it.
        request: `{"prompt": str | None, "messages": list | None, "generation": dict, "row": dict, "task_id": str,
            "sample_id": str, "epoch": int}`.

    Returns:
        The answer as text, or `{"output_text": str, "response_id": str | None}`; None leaves the model to others.
    """


@pytest.hookspec(firstresult=True)
def pytest_evalgrader_grader(key: str) -> Callable[..., Any] | None:
    """Return the function that grades for `{"type": "custom", "key": key}`, or None.

    Args:
        key: The grader's `key`.

    Returns:
        A function `(sample, item)` with the results of the `sample` contract.
    """


@pytest.hookspec
def pytest_evalgrader_sample(record: dict[str, Any]) -> None:
    """Called on the controller as each sample's record arrives.

    Args:
        record: The line of `samples.jsonl` as builtins; changing it has no effect.
    """


@pytest.hookspec
def pytest_evalgrader_run(run: dict[str, Any]) -> None:
    """Called on the controller at the end of the run, after the gates.

    Args:
        run: What `run.json` holds, as builtins.
    """
