"""The exceptions of the package; every layer may raise them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Stage = Literal["preprocess", "generate", "extract", "grade"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a suite, a dataset or a grader.

    Args:
        where: File and place, such as `arith.json: tasks[0].metrics[1].threshhold` or `data/rows.jsonl:12`.
        message: What was found, what was expected, and the next step.
    """

    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


class EvalgraderError(Exception):
    """Base class of what this package raises on purpose."""


class SuiteError(EvalgraderError):
    """A suite, or what belongs to it, cannot be used. Shown as a collection error.

    Args:
        problems: All that was found, in the order of the file.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class SampleError(EvalgraderError):
    """The infrastructure failed for one sample: it has no score, and that is not the model's fault.

    Args:
        stage: Where it broke.
        message: What happened and what to do.
        type_name: Name of the underlying exception, shown in the record.
    """

    def __init__(self, stage: Stage, message: str, type_name: str = "SampleError") -> None:
        super().__init__(message)
        self.stage: Stage = stage
        self.message = message
        self.type_name = type_name


class CallError(EvalgraderError):
    """A model or endpoint call that got no usable answer, after all retries.

    Args:
        message: What happened and what to do; holds no key and no header.
        type_name: Short name of the kind of failure, such as `RateLimited` or `MissingRecording`.
    """

    def __init__(self, message: str, type_name: str = "CallError") -> None:
        super().__init__(message)
        self.message = message
        self.type_name = type_name


class BudgetExhausted(CallError):
    """The run's `--evals-max-calls` is used up; the run stops."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "BudgetExhausted")


class CallRefused(EvalgraderError):
    """A call that a grader may not make (no access, a field outside the allow-list, the limit reached).

    It is raised inside the grader, which may catch it; it says nothing about the infrastructure.
    """
