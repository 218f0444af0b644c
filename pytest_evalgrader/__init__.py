"""A pytest plugin that runs LLM evals as tests.

The names below build suites in Python; they are imported when they are first used, so that the plugin costs a pytest
run without `--evals` nothing. Its own asserts are not for pytest to explain: PYTEST_DONT_REWRITE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_evalgrader.suite.builders import (
        Suite,
        Task,
        binary_judge,
        custom,
        external_endpoint,
        prebuilt_judge,
        python_grader,
    )

__version__ = "0.1.0"

__all__ = ["Suite", "Task", "binary_judge", "custom", "external_endpoint", "prebuilt_judge", "python_grader"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pytest_evalgrader.suite import builders

    return getattr(builders, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
