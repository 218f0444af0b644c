"""Custom graders: trusted Python in the worker process, inside its own pytest item."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_evalgrader.errors import CallError, Problem, SampleError, SuiteError
from pytest_evalgrader.graders.outcome import GradeOutcome, Invalid, outcome_of
from pytest_evalgrader.sandbox.reduce import reduce_result


@dataclass(frozen=True, slots=True)
class CustomGrader:
    """A trusted function that scores one sample.

    Args:
        function: `(sample, item)`, plain or async, with the results of the `sample` contract.
        place: Where the manifest holds it.
        metric_id: Under which a single number is stored.
    """

    function: Callable[..., Any]
    place: str
    metric_id: str

    @property
    def score_ids(self) -> tuple[str, ...]:
        """The ids that an invalid result of this grader makes zero."""
        return (self.metric_id,)

    def grade(self, sample: dict[str, Any], item: dict[str, Any]) -> GradeOutcome:
        """Score one sample in this process.

        Raises:
            CallError: The function said that its own infrastructure failed.
        """
        try:
            value = self.function(sample, item)
            if inspect.isawaitable(value):
                value = asyncio.run(_awaited(value))
        except (CallError, SampleError, KeyboardInterrupt):
            raise
        # Any exception of a grader is an invalid result; what pytest raises to end an item is none of it.
        except (Exception, SystemExit, GeneratorExit, asyncio.CancelledError) as error:  # noqa: BLE001
            return GradeOutcome(invalid=_raised(error), exception=error)
        return outcome_of(reduce_result(value, "score"), metric_id=self.metric_id)


async def _awaited(value: Any) -> Any:
    return await value


def _raised(error: BaseException) -> Invalid:
    name = type(error).__name__
    frames = [
        {"file": frame.filename, "line": frame.lineno, "function": frame.name, "text": frame.line or ""}
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename != __file__
    ]
    said = f"{name}: {error}" if str(error) else name
    return Invalid(
        "exception",
        None,
        f"The grader raised {said} (exception).",
        {"type": name, "message": str(error), "traceback": frames},
    )


def import_trusted(
    name: str, trusted: Sequence[str], *, where: str, takes: tuple[str, str], check_trust: bool = True
) -> Callable[..., Any]:
    """Import `module:function` if the project trusts the module.

    Args:
        name: `module:function`; the function may be dotted.
        trusted: The ini option `evals_trusted_modules`.
        where: Named in the error.
        takes: What the function is called with, such as `("sample", "item")`.
        check_trust: False where the name came from the command line, which is trusted.

    Raises:
        SuiteError: The module is not trusted, does not import, lacks the function, or that cannot be called so.
    """
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise SuiteError([Problem(where, f'{name!r}: expected "module:function".')])
    if check_trust and module_name not in trusted:
        raise SuiteError(
            [
                Problem(
                    where,
                    f"a suite may only run modules that the project trusts, and {module_name!r} is not among them. "
                    f"If it is yours, add it to pytest's ini file, one module a line: "
                    f"evals_trusted_modules = {module_name}",
                )
            ]
        )
    try:
        found: Any = importlib.import_module(module_name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        message = f"module {module_name!r} could not be imported: {type(error).__name__}: {error}"
        if isinstance(error, ModuleNotFoundError) and error.name == module_name.partition(".")[0]:
            message += ". Install it, or name its folder in pytest's ini file, such as pythonpath = ."
        raise SuiteError([Problem(where, message)]) from error
    for part in path.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise SuiteError([Problem(where, f"module {module_name!r} has no function {path!r}.")])
    function: Callable[..., Any] = found
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # Some that are written in C tell nothing.
        return function
    try:
        signature.bind(*takes)
    except TypeError as error:
        message = f"{name} is called with ({', '.join(takes)}), but takes {signature}: {error}."
        raise SuiteError([Problem(where, message)]) from error
    return function
