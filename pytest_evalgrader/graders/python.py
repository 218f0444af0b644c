"""Python graders in the sandbox: one sample, or a whole group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_evalgrader.graders.outcome import GradeOutcome, Invalid, Reason, outcome_of
from pytest_evalgrader.sandbox.host import Program, RunResult, Sandbox, StartedRun

MIB = 1024 * 1024
SAMPLE_RESULT_BYTES = 16 * MIB

Calls = Callable[[str, dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class SandboxedGrader:
    """What every Python grader is made of.

    Args:
        program: The source, its name for people, and the function it must have.
        place: Where the manifest holds it, such as `tasks[2].grader`.
        metric_id: Under which a single number is stored.
        timeout_s: Wall time of one run, model calls included, waiting for a place in the queue not.
        memory_mb: Address space beyond the interpreter's own.
        model_access: Whether `ctx` may call models.
        max_model_calls: Calls of one run.
    """

    program: Program
    place: str
    metric_id: str
    timeout_s: float
    memory_mb: int
    model_access: bool
    max_model_calls: int


@dataclass(frozen=True, slots=True)
class PythonGrader(SandboxedGrader):
    """A Python grader that scores one sample."""

    @property
    def score_ids(self) -> tuple[str, ...]:
        """The ids that an invalid result of this grader makes zero."""
        return (self.metric_id,)

    def start(self, sandbox: Sandbox, sample: dict[str, Any], item: dict[str, Any], calls: Calls | None) -> StartedRun:
        """Start scoring one sample in the sandbox; `outcome` takes what it comes to."""
        return sandbox.start(
            self.program,
            "grade",
            [sample, item],
            shape="score",
            timeout_s=self.timeout_s,
            memory_mb=self.memory_mb,
            seed=str(sample["sample_id"]),
            calls=calls,
            max_result_bytes=SAMPLE_RESULT_BYTES,
        )

    def outcome(self, run: StartedRun) -> GradeOutcome:
        """Wait for a run that was started, and say what it made of the sample.

        Raises:
            CallError: A model call got no answer and the grader did not catch it.
            KeyboardInterrupt: The run was interrupted.
        """
        result = run.result()
        if result.status == "returned":
            return outcome_of(result.value or {}, metric_id=self.metric_id, printed=result.printed)
        return GradeOutcome(
            invalid=invalid_of(result, self.place, self.timeout_s, self.memory_mb),
            printed=result.printed,
            exception=result.exception,
        )


def invalid_of(result: RunResult, place: str, timeout_s: float, memory_mb: int) -> Invalid:
    """Say why a run of a grader gave no result.

    Raises:
        CallError: A model call got no answer and the grader did not catch it.
        KeyboardInterrupt: The run was interrupted.
    """
    if result.call_failed is not None and result.status == "raised":
        raise result.call_failed
    reason: Reason
    match result.status:
        case "interrupted":
            raise KeyboardInterrupt
        case "raised":
            error = result.error or {"type": "Exception", "message": "", "traceback": []}
            said = f"{error['type']}: {error['message']}" if error["message"] else str(error["type"])
            return Invalid("exception", None, f"The grader raised {said} (exception).", error)
        case "timeout":
            reason = "timeout"
            message = (
                f"the grader reached timeout_seconds={timeout_s:g} and was stopped; the sample counts as 0 (timeout). "
                f"If the grader is sound, raise {place}.timeout_seconds."
            )
        case "memory":
            reason = "memory"
            message = (
                f"the grader needed more than memory_mb={memory_mb} and was stopped; the sample counts as 0 (memory). "
                f"If the grader is sound, raise {place}.memory_mb."
            )
        case "too_large":
            reason = "too_large"
            message = (
                "the grader's result is too large to send (too_large); return the score and a short judge payload."
            )
        case _:
            reason = "crashed"
            message = "the grader's process ended without a result (crashed); the sample counts as 0."
    return Invalid(reason, None, message, result.error)


@dataclass(slots=True)
class BatchOutcome:
    """What a batch grader said of its group.

    Args:
        metrics: Finite numbers by metric id.
        updates: By sample id, the keys among `scores`, `judge`, `extracted_output` that were given.
        invalid: Set where the result is not usable; then nothing of it is used.
        printed: What the grader printed, capped.
    """

    metrics: dict[str, float] = field(default_factory=dict)
    updates: dict[str, dict[str, Any]] = field(default_factory=dict)
    invalid: Invalid | None = None
    printed: str = ""


@dataclass(frozen=True, slots=True)
class PythonBatchGrader(SandboxedGrader):
    """A Python grader that scores a whole group at once."""

    def grade_batch(
        self, sandbox: Sandbox, samples: Sequence[dict[str, Any]], seed: str, calls: Calls | None, input_bytes: int
    ) -> BatchOutcome:
        """Score a group in the sandbox.

        Args:
            samples: Batch samples in the plan's order.
            seed: Seeds `random`.
            input_bytes: Size of the samples as JSON; memory and the size of the result grow with it.

        Raises:
            CallError: A model call got no answer and the grader did not catch it.
            KeyboardInterrupt: The run was interrupted.
        """
        memory_mb = self.memory_mb + 24 * input_bytes // MIB
        result = sandbox.run(
            self.program,
            "grade_batch",
            [list(samples)],
            shape="batch",
            timeout_s=self.timeout_s,
            memory_mb=memory_mb,
            seed=seed,
            calls=calls,
            max_result_bytes=SAMPLE_RESULT_BYTES + 4 * input_bytes,
        )
        if result.status != "returned":
            invalid = invalid_of(result, self.place, self.timeout_s, memory_mb)
            invalid.message = invalid.message.replace("the sample counts as 0", "the group has no batch result")
            return BatchOutcome(invalid=invalid, printed=result.printed)
        outcome = _batch_of(result.value or {}, [str(sample["sample_id"]) for sample in samples])
        outcome.printed = result.printed
        return outcome


def _batch_of(reduced: Mapping[str, Any], ids: Sequence[str]) -> BatchOutcome:
    raw = reduced.get("raw")

    def invalid(reason: Reason, message: str) -> BatchOutcome:
        return BatchOutcome(invalid=Invalid(reason, raw, f"{message} ({reason})."))

    if reduced.get("kind") != "mapping":
        return invalid(
            "wrong_type",
            f"grade_batch returned {reduced.get('type', reduced.get('kind'))}, "
            'expected {"metrics": {…}} and optionally "samples": [{"sample_id": …}]',
        )
    problems = [str(problem) for problem in reduced.get("problems") or ()]
    if problems:
        return invalid("wrong_type", "grade_batch: " + "; ".join(problems[:5]))
    bad = reduced.get("bad_metrics") or {}
    if bad:
        listed = "; ".join(f"metric {key!r} is {why}" for key, why in list(bad.items())[:5])
        reason: Reason = "non_finite" if all("finite" in str(why) for why in bad.values()) else "wrong_type"
        return invalid(reason, f"grade_batch: {listed}")
    metrics = dict(reduced.get("metrics") or {})
    samples = reduced.get("samples")
    if not metrics and not samples:
        return invalid(
            "no_finite_score", "grade_batch returned neither metrics nor sample updates: no finite number in `metrics`"
        )
    updates: dict[str, dict[str, Any]] = {}
    known = set(ids)
    unknown: list[str] = []
    twice: list[str] = []
    for update in samples or ():
        sample_id = str(update.get("sample_id"))
        if sample_id not in known:
            unknown.append(sample_id)
        elif sample_id in updates:
            twice.append(sample_id)
        else:
            updates[sample_id] = {key: update[key] for key in ("scores", "judge", "extracted_output") if key in update}
    if unknown:
        return invalid(
            "wrong_type",
            f"grade_batch updates {len(unknown)} sample ids that the group does not have: "
            f"{_some(unknown)}; the group's {len(ids)} ids are {_some(ids)}",
        )
    if twice:
        return invalid("wrong_type", f"grade_batch updates {len(twice)} samples more than once: {_some(twice)}")
    return BatchOutcome(metrics=metrics, updates=updates)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown
