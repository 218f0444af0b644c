from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_evalgrader.gates import GateVerdict, GroupCounts, evaluate, reaches, sample_reaches, shown_value, worst
from pytest_evalgrader.metrics import MetricValue, Observation, State, summarise
from pytest_evalgrader.suite.manifest import MetricSpec


@dataclass
class Bounds:
    min: float | None = None
    max: float | None = None


def metric(**keys: Any) -> MetricSpec:
    return MetricSpec.model_validate({"id": "accuracy", **keys})


def judge(spec: MetricSpec, observations: list[Observation], **more: Any) -> GateVerdict:
    names = ("lowest", "misses", "known", "why_none")
    told = {key: more.pop(key) for key in names if key in more}
    states = [seen.state for seen in observations]
    counts: dict[str, Any] = {
        "planned": len(observations),
        "selected": len(observations),
        "recorded": len(observations),
        "errors": states.count("error"),
        "invalid": states.count("invalid"),
        **more,
    }
    value = summarise(observations, aggregation=spec.aggregation, higher_is_better=spec.higher_is_better, epochs=1)
    return evaluate(spec, value, GroupCounts(**counts), **told)


def scored(*scores: float) -> list[Observation]:
    return [Observation(row, 1, "scored", score) for row, score in enumerate(scores)]


def with_state(state: State, number: int, *scores: float) -> list[Observation]:
    return [*scored(*scores), *(Observation(len(scores) + i, 1, state) for i in range(number))]


@pytest.mark.parametrize(
    ("scores", "threshold", "aggregation"),
    [
        ([0.03] * 11, 0.03, "mean"),
        ([0.1] * 10, 1.0, "sum"),
        ([1.0] * 9 + [0.0], 0.9, "mean"),
        ([0.7, 0.8, 0.9], 0.8, "mean"),
        ([0.0], 0, "mean"),
        ([1.0], 1, "mean"),
        ([0.0, 0.0], {"max": 0}, "mean"),
        ([0.5], {"min": 0.5, "max": 0.5}, "mean"),
    ],
)
def test_a_value_at_the_threshold_passes(scores: list[float], threshold: Any, aggregation: str) -> None:
    assert judge(metric(threshold=threshold, aggregation=aggregation), scored(*scores)).outcome == "passed"


def test_the_message_of_a_missed_threshold() -> None:
    observations = with_state("error", 2, *[1.0] * 86, *[0.0] * 14)
    got = judge(metric(threshold=0.9), observations, allow_errors=0.1, lowest=["addition-3", "addition-41"])
    assert got.reason == (
        "accuracy >= 0.90 not met: 0.860 (95% interval 0.779 to 0.915, n=100 of 102 planned, 2 errors). "
        "Lowest: addition-3, addition-41."
    )
    assert got.to_dict() == {
        "metric": "accuracy",
        "threshold": {"min": 0.9},
        "value": 0.86,
        "n": 100,
        "outcome": "failed",
        "reason": got.reason,
    }


def test_the_message_of_a_gate_that_passes() -> None:
    got = judge(metric(threshold=0.5), scored(1.0, 0.0, 1.0, 1.0))
    assert got.reason == "accuracy >= 0.50 met: 0.750 (95% interval 0.301 to 0.954, n=4)."


def test_six_right_of_six_scored_is_no_pass_when_ten_were_asked() -> None:
    observations = with_state("error", 4, *[1.0] * 6)
    got = judge(metric(threshold=0.9), observations)
    assert got.outcome == "failed"
    assert "6 of 10 planned, 4 errors" in got.reason
    assert "4 of 10 planned samples are errors, more than allow_errors=0 lets pass" in got.reason
    assert judge(metric(threshold=0.9), observations, allow_errors=0.4).outcome == "passed"
    assert judge(metric(threshold=0.9), observations, allow_errors=0.39).outcome == "failed"


@pytest.mark.parametrize("share", [0.1, 0.3, 0.7])
def test_shares_are_compared_with_the_same_tolerance(share: float) -> None:
    errors = round(share * 10)
    observations = with_state("error", errors, *[1.0] * (10 - errors))
    assert judge(metric(threshold=0.5), observations, allow_errors=share).outcome == "passed"


def test_samples_without_the_score_are_allowed_up_to_the_share() -> None:
    observations = with_state("missing", 1, *[1.0] * 9)
    got = judge(metric(threshold=0.9), observations)
    assert got.outcome == "failed"
    assert "1 of 10 samples lacks the score accuracy, more than allow_missing=0" in got.reason
    assert judge(metric(threshold=0.9, allow_missing=0.1), observations).outcome == "passed"


def test_not_applicable_is_not_missing() -> None:
    got = judge(metric(threshold=0.9), with_state("na", 5, 1.0))
    assert got.outcome == "passed"
    assert "5 NA" in got.reason


def test_a_planned_sample_without_record_fails_whatever_is_allowed() -> None:
    got = judge(metric(threshold=0.1), scored(1.0, 1.0), planned=3, selected=3, lost=("row2",), allow_errors=1.0)
    assert got.outcome == "failed"
    assert "1 of 3 planned samples has no record (did a worker crash?): row2" in got.reason


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("missing", "no grader returned a score accuracy; there are exact, f1"),
        ("error", "every sample is an error"),
        ("na", "the judge answered NA for 4 of 4 samples"),
    ],
)
def test_no_value_fails_and_says_why(state: State, words: str) -> None:
    got = judge(metric(threshold=0.0), with_state(state, 4), allow_errors=1.0, known=["f1", "exact", "accuracy"])
    assert (got.outcome, got.value) == ("failed", None)
    assert words in got.reason


def test_a_number_under_the_default_id_says_where_it_went() -> None:
    got = judge(metric(threshold=0.0), with_state("missing", 4), known=["score"])
    assert "there is score (a grader's plain number is stored under its metric_id" in got.reason


def test_aggregation_none_takes_no_sample_scores() -> None:
    got = judge(metric(threshold=0.1, aggregation="none"), scored(1.0))
    assert got.outcome == "failed"
    assert "no batch grader returned a metric accuracy" in got.reason


def test_a_value_that_is_not_finite_fails() -> None:
    value = MetricValue.from_batch(float("nan"), n=4)
    got = evaluate(metric(threshold=0.1), value, GroupCounts(4, 4, 4))
    assert got.outcome == "failed"
    assert "not finite" in got.reason


def test_a_batch_value_is_compared_too() -> None:
    counts = GroupCounts(4, 4, 4)
    assert evaluate(metric(threshold=0.75), MetricValue.from_batch(0.75, n=4), counts).outcome == "passed"
    got = evaluate(metric(threshold=0.76), MetricValue.from_batch(0.75, n=4), counts)
    assert got.reason == "accuracy >= 0.76 not met: 0.750 (n=4, from the batch grader)."


def test_an_invalid_batch_result_fails_with_its_message() -> None:
    got = judge(metric(threshold=0.1), scored(1.0), batch_problem="ValueError: no labels")
    assert got.outcome == "failed"
    assert "no labels" in got.reason


@pytest.mark.parametrize(
    ("keys", "scores", "outcome"),
    [
        ({"threshold": 0.2, "higher_is_better": False}, [0.1, 0.1], "failed"),
        ({"threshold": {"max": 0.2}}, [0.1, 0.1], "failed"),
        ({"threshold": {"min": -1.0}}, [-0.5, -0.5], "failed"),
        ({"threshold": {"min": 0.2}}, [0.9, 0.9], "passed"),
    ],
)
def test_the_zero_of_an_invalid_sample_never_helps(keys: dict[str, Any], scores: list[float], outcome: str) -> None:
    spec = metric(**keys)
    assert judge(spec, scored(*scores)).outcome == "passed"
    got = judge(spec, with_state("invalid", 1, *scores))
    assert got.outcome == outcome
    assert outcome == "passed" or "a zero must not help" in got.reason


def test_a_part_of_the_samples_is_no_group() -> None:
    got = judge(metric(threshold=0.5), scored(1.0), planned=10, selected=1)
    assert got.outcome == "skipped"
    assert "1 of 10 selected" in got.reason


def test_a_run_that_stopped_early_judges_no_half_group() -> None:
    got = judge(metric(threshold=0.5), scored(1.0), planned=3, selected=3, stopped="the run stopped early")
    assert got.outcome == "skipped"
    assert "the run stopped early (1 of 3 samples done)" in got.reason
    assert judge(metric(threshold=0.5), scored(1.0), stopped="the run stopped early").outcome == "passed"


def test_a_limited_run_says_so() -> None:
    got = judge(metric(threshold=0.5), scored(*[1.0] * 5), rows=5, rows_total=1319)
    assert "5 of 1,319 rows" in got.reason


def test_samples_that_a_batch_grader_put_below_their_threshold_are_named() -> None:
    spec = metric(threshold=0.1, sample_threshold=0.5)
    got = judge(spec, scored(1.0, 0.2), misses=["row1"])
    assert got.outcome == "failed"
    assert got.reason.startswith("accuracy >= 0.10 not met: 0.600 (")
    assert got.reason.endswith(" would do, but 1 sample misses sample_threshold 0.50: row1.")
    assert judge(spec, scored(1.0, 0.2)).outcome == "passed"


def test_a_gate_on_a_sample_threshold_alone() -> None:
    spec = metric(sample_threshold=0.5)
    assert judge(spec, scored(1.0)).outcome == "passed"
    assert judge(spec, scored(0.0), misses=["row0"]).outcome == "failed"


def test_many_names_are_cut() -> None:
    got = judge(metric(threshold=0.1), scored(1.0), misses=[f"row{i}" for i in range(40)])
    assert "row4 and 35 more" in got.reason
    assert "row5" not in got.reason


def test_every_fault_is_named() -> None:
    observations = [*with_state("error", 2, 0.0, 0.0), Observation(9, 1, "missing")]
    got = judge(metric(threshold=0.5), observations, planned=6, selected=6)
    for words in ("not met: 0.000", "no record", "are errors", "lacks the score"):
        assert words in got.reason


@pytest.mark.parametrize(
    ("value", "low", "high", "shown"),
    [
        (0.86, 0.9, None, "0.860"),
        (0.8999999, 0.9, None, "0.8999999"),
        (0.8999999999999, 0.9, None, "0.900"),
        (0.2000001, None, 0.2, "0.2000001"),
        (1234567.0, None, None, "1234567.000"),
        (0.00001, None, None, "1e-05"),
        (-0.0, None, None, "0.000"),
        (-0.5, None, None, "-0.500"),
    ],
)
def test_a_value_is_told_from_its_threshold(value: float, low: float | None, high: float | None, shown: str) -> None:
    assert shown_value(value, low, high) == shown


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_what_is_shown_stands_on_the_side_of_the_value(value: float, low: float) -> None:
    bounds = Bounds(min=low)
    shown = float(shown_value(value, low))
    assert reaches(shown, bounds) == reaches(value, bounds)  # type: ignore[arg-type]


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=30), st.floats(0, 1), st.integers(0, 5))
def test_errors_never_turn_a_failed_gate_into_a_passed_one(scores: list[float], threshold: float, errors: int) -> None:
    alone = judge(metric(threshold=threshold), scored(*scores))
    beside = judge(metric(threshold=threshold), with_state("error", errors, *scores))
    assert beside.outcome == "failed" or (errors == 0 and beside.outcome == alone.outcome)


def test_sample_thresholds_share_the_tolerance() -> None:
    assert sample_reaches(0.1 + 0.2, 0.3, higher_is_better=False)
    assert sample_reaches(0.7 + 0.1, 0.8, higher_is_better=True)
    assert not sample_reaches(0.5, 0.8, higher_is_better=True)
    assert not sample_reaches(0.5, 0.4, higher_is_better=False)


def test_worst_samples_are_named_in_order() -> None:
    pairs = [("a", 1.0), ("b", 0.0), ("c", 0.5), ("d", 0.0)]
    assert worst(pairs, higher_is_better=True) == ["b", "d", "c"]
    assert worst(pairs, higher_is_better=False, limit=1) == ["a"]
    assert worst([("a", 0.5), ("b", 0.5)], higher_is_better=True) == []
    assert worst([], higher_is_better=True) == []


def test_why_there_is_no_value_is_told_where_it_is_known() -> None:
    verdict = judge(metric(threshold=0.1), with_state("missing", 2), why_none="kappa is not defined")
    assert verdict.reason == "accuracy >= 0.10 not met: accuracy has no value: kappa is not defined."
