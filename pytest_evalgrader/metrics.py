"""Scores of a group → one number with its standard error and interval."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Any, Literal

State = Literal["scored", "invalid", "error", "na", "missing"]
Status = Literal["ok", "no_value", "not_finite"]
Interval = tuple[float, float]

LEVEL = 0.95


@dataclass(slots=True)
class Observation:
    """What one sample says about one metric.

    Args:
        row: Index of the sample's row, from 0; samples of one row are not independent.
        epoch: From 1.
        state: scored; invalid (counts as zero); error, na or missing (no score, counted beside).
        score: The finite score of a scored sample; ignored in every other state.
    """

    row: int
    epoch: int
    state: State
    score: float | None = None


@dataclass(slots=True)
class MetricValue:
    """A metric of one group.

    Args:
        value: The aggregate; None where there is none or it is not finite.
        aggregation: How it came about; `none` for what only a batch grader gives.
        n: Samples with a score, invalid ones (zeros) included.
        stderr: Standard error of a mean; None where it cannot be known.
        ci95: 95 % interval of a mean, low and high.
        higher_is_better: As the suite declares it.
        invalid: Samples whose grader's result was invalid.
        errors: Samples that the infrastructure failed.
        na: Samples for which a judge declined to give this score.
        missing: Valid samples whose grader left this score out.
        total: All samples that were looked at.
        by_epoch: The aggregate within each epoch, with more than one.
        batch: Whether a batch grader returned the value.
        status: Why `value` is None.
    """

    value: float | None
    aggregation: str
    n: int
    stderr: float | None = None
    ci95: Interval | None = None
    higher_is_better: bool = True
    invalid: int = 0
    errors: int = 0
    na: int = 0
    missing: int = 0
    total: int = 0
    by_epoch: list[float | None] | None = None
    batch: bool = False
    status: Status = "ok"

    @classmethod
    def from_batch(
        cls,
        value: float | None,
        *,
        aggregation: str = "none",
        higher_is_better: bool = True,
        n: int,
        invalid: int = 0,
        errors: int = 0,
        total: int = 0,
    ) -> MetricValue:
        """Make the value of a metric that a batch grader returned.

        Args:
            value: What it returned; NaN, infinity and None leave the metric without a value.
            aggregation: As the suite declares it; it plays no part.
            higher_is_better: As the suite declares it.
            n: Samples that the batch grader was given.
            invalid: Samples among them with an invalid result of another grader.
            errors: Samples of the group that were errors, and so not given.
            total: All samples of the group.
        """
        number, status = _finite(value)
        return cls(
            value=number,
            aggregation=aggregation,
            n=n,
            higher_is_better=higher_is_better,
            invalid=invalid,
            errors=errors,
            total=total,
            batch=True,
            status=status,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the form that stands in `run.json`; a number that is not finite is None."""
        out: dict[str, Any] = {
            "value": self.value,
            "status": self.status,
            "aggregation": self.aggregation,
            "n": self.n,
            "stderr": self.stderr,
            "ci95": None if self.ci95 is None else list(self.ci95),
            "higher_is_better": self.higher_is_better,
            "invalid": self.invalid,
            "errors": self.errors,
            "na": self.na,
            "missing": self.missing,
            "total": self.total,
            "batch": self.batch,
        }
        if self.by_epoch is not None:
            out["by_epoch"] = self.by_epoch
        return out


def summarise(
    observations: Sequence[Observation],
    *,
    aggregation: str = "mean",
    higher_is_better: bool = True,
    epochs: int = 1,
) -> MetricValue:
    """Aggregate the scores of a group; the order of the samples plays no part.

    A mean is over rows of each row's mean, so that a row with a failed epoch weighs as much as another. The other
    aggregations take every sample, and have no interval. `none` has no value: only a batch grader gives one.

    Args:
        observations: One for each sample, its last attempt.
        aggregation: mean, median, min, max, sum or none.
        higher_is_better: As the suite declares it; passed on.
        epochs: How many times each row was asked, from 1.

    Raises:
        ValueError: The aggregation is unknown.
    """
    counts = {"scored": 0, "invalid": 0, "error": 0, "na": 0, "missing": 0}
    scored: list[tuple[int, int, float]] = []
    for seen in observations:
        counts[seen.state] += 1
        if seen.state == "scored" and seen.score is not None:
            scored.append((seen.row, seen.epoch, float(seen.score)))
        elif seen.state == "invalid":
            scored.append((seen.row, seen.epoch, 0.0))
    scores = [score for _, _, score in scored]
    rows = _by_key((row, score) for row, _, score in scored)
    out = MetricValue(
        value=None,
        aggregation=aggregation,
        n=len(scores),
        higher_is_better=higher_is_better,
        invalid=counts["invalid"],
        errors=counts["error"],
        na=counts["na"],
        missing=counts["missing"],
        total=len(observations),
    )
    out.value, out.status = _finite(_aggregate(aggregation, scores, rows))
    if aggregation == "mean" and out.value is not None:
        out.stderr, out.ci95 = _precision(out.value, scores, [mean(group) for group in rows.values()])
    if epochs > 1 and aggregation != "none":
        within = _by_key((epoch, score) for _, epoch, score in scored)
        out.by_epoch = [
            _finite(_aggregate(aggregation, within.get(epoch, []), None))[0] for epoch in range(1, epochs + 1)
        ]
    return out


def mean(scores: Sequence[float]) -> float:
    """Return the mean of at least one finite number, from an exact sum, so that order plays no part."""
    return _exact_sum(scores, len(scores))


def wilson_interval(successes: float, n: float, *, level: float = LEVEL) -> Interval:
    """Bound a proportion with the Wilson score interval.

    Args:
        successes: Samples scored 1, from 0 to `n`; a fraction where `n` is an effective number of samples.
        n: Samples that have a score; errored samples are left out.
        level: Two-sided confidence, strictly between 0 and 1.

    Returns:
        Low and high bound, both within [0, 1].

    Raises:
        ValueError: `n` is 0, `successes` is out of range, or `level` is.

    Source:
        E. B. Wilson, JASA 22 (1927), 209-212.
    """
    if not n > 0 or not 0 <= successes <= n:
        raise ValueError(f"successes must lie within [0, n] and n above 0, not {successes} of {n}")
    z2 = _quantile(level) ** 2
    p = successes / n
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2) * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    # The bounds are exactly 0 and 1 at the ends; rounding must not move them past the proportion itself.
    low = 0.0 if successes == 0 else max(0.0, min(centre - half, p))
    high = 1.0 if successes == n else min(1.0, max(centre + half, p))
    return low, high


def normal_interval(value: float, stderr: float, *, level: float = LEVEL) -> Interval:
    """Bound a mean by the normal approximation: `value` ± z · `stderr`.

    Args:
        value: The mean.
        stderr: Its standard error, in the same unit.
        level: Two-sided confidence, strictly between 0 and 1.

    Source:
        E. Miller, Adding Error Bars to Evals, arXiv:2411.00640 (2024), section 2.
    """
    half = _quantile(level) * stderr
    return value - half, value + half


def _precision(value: float, scores: list[float], row_means: list[float]) -> tuple[float | None, Interval | None]:
    """Return standard error and interval of a mean of row means.

    Rows are what was sampled: answers of one row resemble each other, so the spread is that of the row means (the
    clustered standard error, with n-1). Proportions get the Wilson interval at the effective number of samples
    that this spread implies, which with one epoch is exactly the number of samples.

    Source:
        E. Miller, arXiv:2411.00640 (2024), section 2.2, for the clustered standard error. E. L. Korn and
        B. I. Graubard, Survey Methodology 24 (1998), 193-201, for the effective number of samples, bounded by the
        real one.
    """
    rows = len(row_means)
    variance = _variance(row_means, value)
    stderr = None if variance is None else math.sqrt(variance / rows)
    if all(score in (0.0, 1.0) for score in scores):
        own = value * (1 - value)
        effective = float(rows)
        if own > 0 and variance is not None:
            around = variance * (rows - 1) / rows
            effective = min(own * rows / around, len(scores)) if around > 0 else float(len(scores))
        # A sum of ones divided back is off by a rounding error at most; it must not leave [0, n].
        return stderr, wilson_interval(min(value * effective, effective), effective)
    if stderr is None:
        return None, None
    low, high = normal_interval(value, stderr)
    return stderr, (low, high) if math.isfinite(low) and math.isfinite(high) else None


def _variance(values: Sequence[float], centre: float) -> float | None:
    """Return the sample variance (n-1); None for a single value, or where it is too large for a float."""
    if len(values) < 2:
        return None
    try:
        out = math.fsum((value - centre) * (value - centre) for value in values) / (len(values) - 1)
    except OverflowError:
        return None
    return out if math.isfinite(out) else None


def _aggregate(aggregation: str, scores: list[float], rows: dict[int, list[float]] | None) -> float | None:
    if aggregation == "none" or not scores:
        return None
    match aggregation:
        case "mean":
            return mean(scores if rows is None else [mean(group) for group in rows.values()])
        case "median":
            ordered = sorted(scores)
            half = len(ordered) // 2
            return ordered[half] if len(ordered) % 2 else mean(ordered[half - 1 : half + 1])
        case "min":
            return min(scores)
        case "max":
            return max(scores)
        case "sum":
            return _exact_sum(scores, 1)
        case _:
            raise ValueError(f"unknown aggregation {aggregation!r}; known are mean, median, min, max, sum and none")


def _exact_sum(scores: Sequence[float], divisor: int) -> float:
    try:
        return math.fsum(scores) / divisor
    except OverflowError:
        # fsum gives up where a partial sum leaves the range of a float, though the mean need not.
        exact = sum((Fraction(score) for score in scores), Fraction()) / divisor
        try:
            return float(exact)
        except OverflowError:
            return math.inf if exact > 0 else -math.inf


def _by_key(pairs: Iterable[tuple[int, float]]) -> dict[int, list[float]]:
    out: dict[int, list[float]] = {}
    for key, score in pairs:
        out.setdefault(key, []).append(score)
    return out


def _finite(value: float | None) -> tuple[float | None, Status]:
    if value is None:
        return None, "no_value"
    return (value, "ok") if math.isfinite(value) else (None, "not_finite")


def _quantile(level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1, not {level}")
    return NormalDist().inv_cdf((1 + level) / 2)
