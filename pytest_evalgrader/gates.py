"""A metric against its threshold → a verdict, with the reason in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pytest_evalgrader.metrics import MetricValue
    from pytest_evalgrader.suite.manifest import MetricSpec, ThresholdSpec

Outcome = Literal["passed", "failed", "skipped"]

# Sums of binary fractions miss a decimal threshold by rounding alone; this is far above that and far below a score.
TOLERANCE = 1e-9
_LISTED = 5
_ID_CHARS = 60


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """What became of a group's samples. Totals come from the plan, never from what arrived.

    Args:
        planned: Samples of the whole group (rows × epochs, after `--evals-limit`).
        selected: Those that this run was asked for.
        recorded: Those with a record, each counted once.
        errors: Records whose outcome is error.
        invalid: Records with an invalid result.
        rows: Rows that are asked.
        rows_total: Rows that the task has; more than `rows` with `--evals-limit`.
        allow_errors: The task's `allow_errors`, a share from 0 to 1.
        lost: Ids of planned samples without a record, in the plan's order; their number may be cut.
        stopped: Why the run stopped early, in words; empty where it did not.
        batch_problem: Why the result of the group's batch grader is invalid; empty where it is not.
        unbatched: Whether a batch grader was to run and has not ended.
    """

    planned: int
    selected: int
    recorded: int
    errors: int = 0
    invalid: int = 0
    rows: int = 0
    rows_total: int = 0
    allow_errors: float = 0.0
    lost: tuple[str, ...] = ()
    stopped: str = ""
    batch_problem: str = ""
    unbatched: bool = False

    @property
    def partly_selected(self) -> bool:
        """Whether part of the group was deselected."""
        return self.selected < self.planned

    @property
    def cut_short(self) -> bool:
        """Whether the run stopped before the group was done."""
        return bool(self.stopped) and (self.recorded < self.planned or self.unbatched)

    @property
    def partial(self) -> bool:
        """Whether gates and batch graders of the group are not evaluated."""
        return self.partly_selected or self.cut_short

    @property
    def limited(self) -> bool:
        """Whether `--evals-limit` left rows out."""
        return self.rows < self.rows_total


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """The outcome of one gate.

    Args:
        metric: Id of the metric.
        outcome: passed, failed, or skipped where the group is not complete.
        value: The metric's value; None where there is none.
        threshold: `{"min": …}`, `{"max": …}` or both; None for a gate on a sample threshold alone.
        n: Samples with a score.
        reason: One or more sentences; names samples as the dataset does, so make it safe before it is shown.
        bound: The threshold in words, such as `>= 0.90`.
    """

    metric: str
    outcome: Outcome
    value: float | None
    threshold: dict[str, float] | None
    n: int
    reason: str
    bound: str

    def to_dict(self) -> dict[str, Any]:
        """Return the form that stands in `run.json`."""
        return {
            "metric": self.metric,
            "threshold": self.threshold,
            "value": self.value,
            "n": self.n,
            "outcome": self.outcome,
            "reason": self.reason,
        }


def reaches(value: float, threshold: ThresholdSpec) -> bool:
    """Return whether a value lies within a threshold's bounds, give or take `TOLERANCE`."""
    return _within(value, threshold.min, threshold.max)


def sample_reaches(score: float, sample_threshold: float, *, higher_is_better: bool) -> bool:
    """Return whether one sample's score reaches a metric's `sample_threshold`, give or take `TOLERANCE`."""
    if higher_is_better:
        return score >= sample_threshold - TOLERANCE
    return score <= sample_threshold + TOLERANCE


def worst(scored: Iterable[tuple[str, float]], *, higher_is_better: bool, limit: int = 3) -> list[str]:
    """Return the ids of the samples with the worst scores, worst first, equal ones in the order given.

    A sample with the best score of all is never among them: with nothing worse than the rest, nothing is named.

    Args:
        scored: Sample id and score, in the plan's order.
        limit: How many at most.
    """
    listed = list(scored)
    if not listed:
        return []
    best = (max if higher_is_better else min)(score for _, score in listed)
    behind = [pair for pair in listed if pair[1] != best]
    behind.sort(key=lambda pair: pair[1], reverse=not higher_is_better)
    return [sample_id for sample_id, _ in behind[:limit]]


def evaluate(
    spec: MetricSpec,
    value: MetricValue,
    group: GroupCounts,
    *,
    lowest: Sequence[str] = (),
    misses: Sequence[str] = (),
    known: Iterable[str] = (),
    why_none: str = "",
) -> GateVerdict:
    """Judge a metric by its threshold and by what became of the group's samples.

    Every rule that fails the gate is named in the reason, the threshold first.

    Args:
        spec: The metric as the suite declares it.
        value: What its samples, or the batch grader, gave.
        group: What became of the samples.
        lowest: Ids of the worst samples (see `worst`).
        misses: Ids of all samples that miss the metric's `sample_threshold` after the batch grader's updates.
        known: Score and metric ids that the group does have, named where this metric has no value.
        why_none: Why the metric has no value, where its maker can tell.
    """
    bound = _bound(spec)
    head = f"{spec.id} {bound}" if bound else spec.id

    def verdict(outcome: Outcome, reason: str) -> GateVerdict:
        threshold = None if spec.threshold is None else _as_dict(spec.threshold)
        return GateVerdict(spec.id, outcome, value.value, threshold, value.n, reason, bound)

    if group.partly_selected:
        return verdict("skipped", f"{head} not evaluated: {group.selected:,} of {group.planned:,} selected.")
    if group.cut_short:
        done = f"{group.recorded:,} of {group.planned:,} samples done"
        done += ", the batch grader not" if group.unbatched else ""
        return verdict("skipped", f"{head} not evaluated: {group.stopped} ({done}).")

    faults = [*_group_faults(group), *_metric_faults(spec, value, group)]
    if misses:
        number = _count(len(misses), "sample misses", "samples miss")
        faults.append(f"{number} sample_threshold {_plain(spec.sample_threshold or 0.0)}: {_listed(misses)}")
    if value.value is None:
        faults.insert(0, f"{spec.id} has no value: {why_none}" if why_none else _no_value(spec, value, group, known))
        return verdict("failed", f"{head} not met: {_sentences(faults)}")
    limits = (spec.threshold.min, spec.threshold.max) if spec.threshold is not None else (None, None)
    text, facts = shown_value(value.value, *limits), _facts(value, group)
    if spec.threshold is not None and not reaches(value.value, spec.threshold):
        behind = "Lowest" if spec.higher_is_better else "Highest"
        named = f" {behind}: {_listed(lowest)}." if lowest else ""
        also = f" {_sentences(faults)}" if faults else ""
        return verdict("failed", f"{head} not met: {text} ({facts}).{named}{also}")
    if faults:
        return verdict("failed", f"{head} not met: {text} ({facts}) would do, but {_sentences(faults)}")
    return verdict("passed", f"{head} met: {text} ({facts}).")


def shown_value(value: float, low: float | None = None, high: float | None = None) -> str:
    """Return a value with three decimals, or as many as it takes to stand on its own side of both bounds."""
    side = _within(value, low, high)
    if math.isfinite(value):
        for digits in range(3, 18):
            text = f"{value + 0.0:.{digits}f}" if 1e-3 <= abs(value) < 1e15 or value == 0 else f"{value:.{digits}g}"
            if _within(float(text), low, high) == side:
                return text
    return repr(value)


def _within(value: float, low: float | None, high: float | None) -> bool:
    return (low is None or value >= low - TOLERANCE) and (high is None or value <= high + TOLERANCE)


def _group_faults(group: GroupCounts) -> list[str]:
    faults = []
    if group.batch_problem:
        faults.append(f"the batch grader's result is invalid: {group.batch_problem}")
    lost = group.planned - group.recorded
    if lost > 0:
        names = f": {_listed(group.lost, lost)}" if group.lost else ""
        have = "has" if lost == 1 else "have"
        faults.append(f"{lost:,} of {group.planned:,} planned samples {have} no record (did a worker crash?){names}")
    if group.planned and group.errors / group.planned > group.allow_errors + TOLERANCE:
        are = "is an error" if group.errors == 1 else "are errors"
        faults.append(
            f"{group.errors:,} of {group.planned:,} planned samples {are}, "
            f"more than allow_errors={_plain(group.allow_errors)} lets pass"
        )
    return faults


def _metric_faults(spec: MetricSpec, value: MetricValue, group: GroupCounts) -> list[str]:
    faults = []
    allowed = spec.allow_missing or 0.0
    if group.planned and value.value is not None and value.missing / group.planned > allowed + TOLERANCE:
        lack = "lacks" if value.missing == 1 else "lack"
        faults.append(
            f"{value.missing:,} of {group.planned:,} samples {lack} the score {spec.id}, "
            f"more than allow_missing={_plain(allowed)} lets pass"
        )
    invalid = max(group.invalid, value.invalid)
    if invalid and _zero_helps(spec):
        is_are = "is" if invalid == 1 else "are"
        faults.append(f"{_count(invalid, 'sample', 'samples')} {is_are} invalid, and a zero must not help this metric")
    return faults


def _zero_helps(spec: MetricSpec) -> bool:
    """Return whether the zero of an invalid sample can move the metric towards its threshold."""
    if not spec.higher_is_better:
        return True
    threshold = spec.threshold
    return threshold is not None and (threshold.max is not None or (threshold.min is not None and threshold.min < 0))


def _no_value(spec: MetricSpec, value: MetricValue, group: GroupCounts, known: Iterable[str]) -> str:
    if value.status == "not_finite":
        return f"the value of {spec.id} is not finite"
    if group.batch_problem:
        return f"{spec.id} has no value"
    if group.recorded and group.errors >= group.recorded:
        return f"{spec.id} has no value, since every sample is an error"
    others = sorted(set(known) - {spec.id})
    there = f"; there {'is' if len(others) == 1 else 'are'} {_listed(others)}" if others else ""
    if others == ["score"]:
        there += " (a grader's plain number is stored under its metric_id, by default score)"
    if spec.aggregation == "none":
        return f"no batch grader returned a metric {spec.id} (aggregation none takes no sample scores){there}"
    if value.na and not value.missing:
        return f"{spec.id} has no value: the judge answered NA for {value.na:,} of {group.planned:,} samples"
    return f"no grader returned a score {spec.id}{there}"


def _facts(value: MetricValue, group: GroupCounts) -> str:
    facts = []
    if value.ci95 is not None:
        low, high = value.ci95
        facts.append(f"95% interval {shown_value(low)} to {shown_value(high)}")
    facts.append(f"n={value.n:,}" if value.n == group.planned else f"n={value.n:,} of {group.planned:,} planned")
    for number, one, many in (
        (group.errors, "error", "errors"),
        (group.invalid, "invalid", "invalid"),
        (value.na, "NA", "NA"),
        (value.missing, "missing", "missing"),
    ):
        if number:
            facts.append(_count(number, one, many))
    if group.limited:
        facts.append(f"{group.rows:,} of {group.rows_total:,} rows")
    if value.batch:
        facts.append("from the batch grader")
    return ", ".join(facts)


def _bound(spec: MetricSpec) -> str:
    if spec.threshold is None:
        return ""
    low, high = spec.threshold.min, spec.threshold.max
    parts = []
    if low is not None:
        parts.append(f">= {_plain(low)}")
    if high is not None:
        parts.append(f"<= {_plain(high)}")
    return " and ".join(parts)


def _as_dict(threshold: ThresholdSpec) -> dict[str, float]:
    pairs = (("min", threshold.min), ("max", threshold.max))
    return {key: bound for key, bound in pairs if bound is not None}


def _plain(number: float) -> str:
    """Return a number as a suite's author wrote it, a fraction with two decimals at least."""
    if float(number).is_integer() and abs(number) < 1e15:
        return f"{number:.0f}"
    text = repr(float(number))
    whole, dot, decimals = text.partition(".")
    return f"{whole}.{decimals:0<2}" if dot and decimals.isdigit() else text


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _listed(ids: Sequence[str], total: int | None = None) -> str:
    shown = [text if len(text) <= _ID_CHARS else f"{text[: _ID_CHARS - 3]}..." for text in ids[:_LISTED]]
    more = (len(ids) if total is None else total) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")


def _sentences(faults: Sequence[str]) -> str:
    joined = "; ".join(fault.rstrip(".") for fault in faults)
    return f"{joined}."
