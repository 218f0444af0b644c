"""What a grader said of one sample, whatever kind of grader it was: scores, or why there are none."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Reason = Literal[
    "exception",
    "non_finite",
    "boolean",
    "wrong_type",
    "no_finite_score",
    "timeout",
    "memory",
    "crashed",
    "too_large",
    "out_of_range",
]


@dataclass(slots=True)
class Invalid:
    """Why a grader's result is no score.

    Args:
        reason: One of the reasons that the manifest documents.
        raw: The payload as JSON holds it, or its repr.
        message: One or two sentences for people, with a hint for the common slips.
        error: `{"type", "message", "traceback": [{"file", "line", "function", "text"}]}`, or None.
    """

    reason: Reason
    raw: Any
    message: str
    error: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the form that stands under `judge.invalid`."""
        out: dict[str, Any] = {"reason": self.reason, "raw": self.raw, "message": self.message}
        if self.error is not None:
            out["error"] = self.error
        return out


@dataclass(slots=True)
class GradeOutcome:
    """The result of one grader on one sample.

    Args:
        scores: Finite numbers by score id; empty where `invalid` is set.
        judge: The judge payload, a JSON object, or None.
        invalid: Set where the result is no score.
        not_applicable: Score ids that a judge declined to give (NA); the sample does not count for them.
        printed: What the grader printed, capped.
        exception: What it raised, where it ran in this process: a debugger looks at its frames.
        bare: Whether the grader returned a single number instead of an object.
    """

    scores: dict[str, float] = field(default_factory=dict)
    judge: dict[str, Any] | None = None
    invalid: Invalid | None = None
    not_applicable: tuple[str, ...] = ()
    printed: str = ""
    exception: BaseException | None = None
    bare: bool = False

    @property
    def payload(self) -> Any:
        """What the grader returned, as far as it was kept: the number, or the scores and the judge payload."""
        if self.bare:
            return next(iter(self.scores.values()), None)
        return {"scores": dict(self.scores), **({} if self.judge is None else {"judge": self.judge})}


def hint_for(reduced: Mapping[str, Any]) -> str:
    """Return what to write instead, for the slips that people make most; empty where none is known.

    Args:
        reduced: The reduced form of a result (see `sandbox.reduce`).
    """
    match reduced.get("kind"):
        case "boolean":
            return "A bool is no score: write `1.0 if … else 0.0`."
        case "none":
            return "grade returned None (missing return?): a path through the function ends without `return`."
        case "text":
            return "Text is never read as a number: return a float."
        case "mapping":
            raw = reduced.get("raw")
            dropped = reduced.get("dropped") or {}
            if dropped:
                listed = ", ".join(f"{key!r} is {why}" for key, why in list(dropped.items())[:5])
                return f"No finite number in `scores`: {listed}."
            if isinstance(raw, Mapping) and "scores" not in raw:
                return 'Scores belong under `scores`: return {"scores": {"accuracy": 1.0}}.'
            return "`scores` holds no finite number."
        case _:
            return 'Return a number, or {"scores": {…}, "judge": {…}}.'


def outcome_of(reduced: Mapping[str, Any], *, metric_id: str, printed: str = "") -> GradeOutcome:
    """Turn the reduced form of a sample grader's result into scores or an invalid result.

    Args:
        reduced: What `reduce_result(value, "score")` gives.
        metric_id: The id under which a single number is stored.
        printed: What the grader printed.
    """
    kind = reduced.get("kind")
    raw = reduced.get("raw")
    judge = reduced.get("judge") if isinstance(reduced.get("judge"), dict) else None
    if kind == "number":
        number = reduced.get("number")
        if isinstance(number, (int, float)) and not isinstance(number, bool):
            return GradeOutcome(scores={metric_id: number}, printed=printed, bare=True)
        invalid = Invalid("non_finite", raw, f"The grader returned {number}, not a finite number (non_finite).")
        return GradeOutcome(invalid=invalid, printed=printed)
    if kind == "mapping":
        scores = reduced.get("scores") or {}
        if scores:
            return GradeOutcome(scores=dict(scores), judge=judge, printed=printed)
        message = f"The grader's result holds no score (no_finite_score). {hint_for(reduced)}"
        return GradeOutcome(judge=judge, invalid=Invalid("no_finite_score", raw, message), printed=printed)
    reason: Reason = "boolean" if kind == "boolean" else "wrong_type"
    message = f"The grader returned {reduced.get('type', kind)}: {_shown(raw)} ({reason}). {hint_for(reduced)}"
    return GradeOutcome(invalid=Invalid(reason, raw, message), printed=printed)


def check_ranges(outcome: GradeOutcome, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Make the outcome invalid where a score lies outside its metric's declared range; nothing is clamped."""
    outside = outside_of(outcome.scores, ranges)
    if outside:
        message = f"{'; '.join(outside)} (out_of_range)."
        outcome.invalid = Invalid("out_of_range", outcome.payload, message)


def outside_of(scores: Mapping[str, float], ranges: Mapping[str, tuple[float, float]]) -> list[str]:
    """Say of each score that lies outside its metric's declared range what it is, and what it may be."""
    return [
        f"{key} is {score:g}, outside [{low:g}, {high:g}]"
        for key, score in scores.items()
        if key in ranges
        for low, high in [ranges[key]]
        if not low <= score <= high
    ]


def check_repeats(outcome: GradeOutcome, given: Collection[str]) -> None:
    """Make the outcome invalid where it gives a score that another grader of the task gave already."""
    twice = [key for key in outcome.scores if key in given]
    if twice:
        listed = ", ".join(repr(key) for key in twice[:5])
        message = (
            f"The grader gives {listed}, which another grader of the task gave already; each score needs one grader "
            "(wrong_type)."
        )
        outcome.invalid = Invalid("wrong_type", outcome.payload, message)


def zeros(metric_ids: Collection[str], fallback: str) -> dict[str, float]:
    """Return the scores of an invalid result: zero under every declared metric, else under the grader's own id."""
    return dict.fromkeys(metric_ids or (fallback,), 0.0)


def _shown(raw: Any) -> str:
    text = repr(raw)
    return text if len(text) <= 120 else text[:117] + "..."
