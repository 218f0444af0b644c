"""A judge measured against people: agreement, Cohen's kappa, and the table of verdicts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pytest_evalgrader.errors import Problem
from pytest_evalgrader.graders.turns import columns_of, place_of
from pytest_evalgrader.suite.wording import describe, did_you_mean

Verdict = Literal["PASS", "FAIL", "INVALID"]

_WORDS = {
    **dict.fromkeys(("true", "1", "1.0", "pass", "passed", "yes", "y", "t"), True),
    **dict.fromkeys(("false", "0", "0.0", "fail", "failed", "no", "n", "f"), False),
}
_TOLERANCE = 1e-9
_NONE = ("", "na", "n/a", "null", "none")


@dataclass(frozen=True, slots=True)
class Pair:
    """What a person and a judge said of one sample.

    Args:
        human: The person's verdict, or None where the row holds none.
        judge: The judge's; INVALID where it gave no usable answer, None where it declined (NA) or was not reached.
    """

    human: bool | None
    judge: Verdict | None


@dataclass(frozen=True, slots=True)
class Calibration:
    """How far a judge and people agree.

    Args:
        n: Samples that have both verdicts; an invalid judge result counts, and as a disagreement.
        agreement: Share of them on which both agree, from 0 to 1; None where n is 0.
        kappa: Cohen's kappa, from -1 to 1; None where it is not defined.
        confusion: `{human: {judge: samples}}`, human PASS or FAIL, judge PASS, FAIL or INVALID.
        without_human: Samples whose row holds no human verdict.
        without_judge: Samples with a human verdict that the judge gave no verdict on.
        note: Why there is no agreement or no kappa; empty where both are there.
    """

    n: int
    agreement: float | None
    kappa: float | None
    confusion: dict[str, dict[str, int]]
    without_human: int
    without_judge: int
    note: str = ""

    def metrics(self, key: str) -> dict[str, float | None]:
        """Return the values by metric id: `<key>.agreement` and `<key>.kappa`."""
        return {f"{key}.agreement": self.agreement, f"{key}.kappa": self.kappa}

    def to_dict(self) -> dict[str, Any]:
        """Return builtins for `run.json`."""
        return {
            "n": self.n,
            "agreement": self.agreement,
            "kappa": self.kappa,
            "confusion": {human: dict(row) for human, row in self.confusion.items()},
            "without_human": self.without_human,
            "without_judge": self.without_judge,
            "note": self.note,
        }


def metric_ids(key: str) -> tuple[str, str]:
    """Return the ids under which a judge's calibration is reported and can be gated."""
    return (f"{key}.agreement", f"{key}.kappa")


def calibrated_keys(specs: Iterable[Any]) -> list[str]:
    """Return the score ids of a task's judges: those that people's verdicts can be held against.

    Args:
        specs: The task's graders as the manifest has them.
    """
    return [spec.own_key for spec in specs if spec.type in ("binary_judge", "prebuilt_judge")]


def pair_of(human: Any, state: str, score: float | None) -> Pair:
    """Make the pair of one sample.

    Args:
        human: The value in the row's column.
        state: What became of the judge's score: `scored`, `invalid`, `error`, `na` or `missing`.
        score: The score, where there is one.

    Raises:
        ValueError: The value is no verdict.
    """
    verdict: Verdict | None = None
    if state == "invalid":
        verdict = "INVALID"
    elif state == "scored" and score is not None:
        verdict = judge_verdict(score)
    return Pair(human_verdict(human), verdict)


def calibrate(pairs: Iterable[Pair]) -> Calibration:
    """Compare a judge's verdicts with people's.

    Args:
        pairs: One for each sample of the group.

    Returns:
        Agreement, kappa and the table. Kappa is None where chance alone gives full agreement: both sides said one and
        the same verdict throughout, so that the data cannot tell a good judge from one that always says it.
    """
    counts: Counter[tuple[str, str]] = Counter()
    without_human = without_judge = 0
    for pair in pairs:
        if pair.human is None:
            without_human += 1
        elif pair.judge is None:
            without_judge += 1
        else:
            counts["PASS" if pair.human else "FAIL", pair.judge] += 1
    confusion = {
        human: {judge: counts[human, judge] for judge in ("PASS", "FAIL", "INVALID")} for human in ("PASS", "FAIL")
    }
    n = sum(counts.values())
    agreement = sum(count for (human, judge), count in counts.items() if human == judge) / n if n else None
    kappa = cohen_kappa(counts)
    note = ""
    if n == 0:
        note = "no sample has both a human verdict and one of the judge"
    elif kappa is None:
        note = "kappa is not defined: people and the judge gave one and the same verdict throughout"
    return Calibration(n, agreement, kappa, confusion, without_human, without_judge, note)


def cohen_kappa(counts: Mapping[tuple[str, str], int]) -> float | None:
    """Return Cohen's kappa, the agreement beyond chance.

    kappa = (p_o - p_e) / (1 - p_e), where p_o is the share of agreements and p_e the share that two independent raters
    with the same habits would reach, the sum over the verdicts of the product of both shares.

    Args:
        counts: Samples by (first rater's verdict, second rater's verdict).

    Returns:
        From -1 to 1; None where there is no sample or p_e is 1.

    Source:
        J. Cohen, Educational and Psychological Measurement 20 (1960), 37-46.
    """
    n = sum(counts.values())
    if n == 0:
        return None
    first: Counter[str] = Counter()
    second: Counter[str] = Counter()
    for (a, b), count in counts.items():
        first[a] += count
        second[b] += count
    # In whole numbers, so that p_e = 1 is told exactly.
    agreed = sum(count for (a, b), count in counts.items() if a == b) * n
    expected = sum(first[verdict] * second[verdict] for verdict in first)
    if expected == n * n:
        return None
    return (agreed - expected) / (n * n - expected)


def human_verdict(value: Any) -> bool | None:
    """Read a person's verdict.

    Args:
        value: true, false, 1, 0, or text: true/false, 1/0, pass/fail, yes/no, in any case; null, empty text and NA
            are no verdict.

    Raises:
        ValueError: It is something else.
    """
    if isinstance(value, bool):
        return value
    if value is None:
        return None
    if isinstance(value, (int, float)) and math.isfinite(value) and value in (0, 1):
        return bool(value)
    if isinstance(value, str):
        word = value.strip().casefold()
        if word in _NONE:
            return None
        if word in _WORDS:
            return _WORDS[word]
    raise ValueError(f"found {describe(value)}, expected true or false, 1 or 0, pass or fail, or yes or no")


def judge_verdict(score: float) -> Verdict:
    """Return the verdict in a judge's score: PASS where it is 1, as when every claim is supported, else FAIL."""
    return "PASS" if score >= 1.0 - _TOLERANCE else "FAIL"


def calibration_problems(
    rows: Iterable[Mapping[str, Any]], column: str, *, where: str, limit: int = 20
) -> list[Problem]:
    """List what is wrong with a column of human verdicts.

    Args:
        rows: The dataset, after preprocessing.
        column: The column's name.
        where: File and place of `calibration`, such as `suites/qa.json: tasks[0].calibration`.
        limit: Rows to list at most.
    """
    columns = columns_of(rows)
    if column not in columns:
        suggestion = did_you_mean(column, columns, what="Columns")
        return [Problem(f"{where}.column", f'no row has a column "{column}". {suggestion}'.rstrip())]
    problems: list[Problem] = []
    found = 0
    for index, row in enumerate(rows):
        try:
            found += human_verdict(row.get(column)) is not None
        except ValueError as err:
            problems.append(Problem(f"{place_of(rows, index)}: {column}", f"{err}."))
            if len(problems) == limit:
                break
    if not problems and not found:
        problems.append(Problem(f"{where}.column", f'column "{column}" holds no human verdict in any row.'))
    return problems
