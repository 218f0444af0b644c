from __future__ import annotations

import json
import math
import random
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_evalgrader.metrics import MetricValue, Observation, mean, normal_interval, summarise, wilson_interval

SCORES = st.floats(-1e6, 1e6, allow_nan=False)
STATES = st.sampled_from(["scored", "scored", "scored", "invalid", "error", "na", "missing"])
AGGREGATIONS = st.sampled_from(["mean", "median", "min", "max", "sum", "none"])


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[Observation], int]:
    epochs = draw(st.integers(1, 3))
    rows = draw(st.integers(0, 8))
    binary = draw(st.booleans())
    scores = st.sampled_from([0.0, 1.0]) if binary else SCORES
    observations = [
        Observation(row, epoch, draw(STATES), draw(scores)) for row in range(rows) for epoch in range(1, epochs + 1)
    ]
    return observations, epochs


def scored(*scores: float) -> list[Observation]:
    return [Observation(row, 1, "scored", score) for row, score in enumerate(scores)]


@given(groups(), AGGREGATIONS, st.randoms(use_true_random=False))
def test_the_order_of_samples_plays_no_part(
    group: tuple[list[Observation], int], aggregation: str, shuffler: random.Random
) -> None:
    observations, epochs = group
    before = summarise(observations, aggregation=aggregation, epochs=epochs)
    shuffled = list(observations)
    shuffler.shuffle(shuffled)
    assert summarise(shuffled, aggregation=aggregation, epochs=epochs) == before


@given(groups(), AGGREGATIONS)
def test_values_agree_with_a_reference(group: tuple[list[Observation], int], aggregation: str) -> None:
    observations, epochs = group
    got = summarise(observations, aggregation=aggregation, epochs=epochs)
    by_row = defaultdict(list)
    for seen in observations:
        if seen.state in ("scored", "invalid"):
            by_row[seen.row].append(0.0 if seen.state == "invalid" else seen.score)
    scores = sorted(score for row in by_row.values() for score in row)
    assert got.n == len(scores)
    if not scores or aggregation == "none":
        assert (got.value, got.status) == (None, "no_value")
        return
    expected = {
        "mean": sum(sum(row) / len(row) for row in by_row.values()) / len(by_row),
        "median": (scores[len(scores) // 2] + scores[(len(scores) - 1) // 2]) / 2,
        "min": scores[0],
        "max": scores[-1],
        "sum": sum(scores),
    }[aggregation]
    assert got.value == pytest.approx(expected, rel=1e-9, abs=1e-6)


@given(groups())
def test_a_mean_lies_in_its_interval_and_everything_is_strict_json(group: tuple[list[Observation], int]) -> None:
    observations, epochs = group
    got = summarise(observations, epochs=epochs)
    json.dumps(got.to_dict(), allow_nan=False)
    if got.ci95 is not None and got.value is not None:
        assert got.ci95[0] <= got.value <= got.ci95[1]


def test_states_are_counted_apart_and_an_invalid_result_is_a_zero() -> None:
    observations = [
        Observation(0, 1, "scored", 1.0),
        Observation(1, 1, "invalid", None),
        Observation(2, 1, "error"),
        Observation(3, 1, "na"),
        Observation(4, 1, "missing"),
    ]
    got = summarise(observations)
    assert (got.value, got.n, got.total) == (0.5, 2, 5)
    assert (got.invalid, got.errors, got.na, got.missing) == (1, 1, 1, 1)


def test_nine_right_and_one_invalid_are_nine_tenths_over_ten() -> None:
    observations = [*scored(*[1.0] * 9), Observation(9, 1, "invalid")]
    got = summarise(observations)
    assert (got.value, got.n, got.invalid) == (0.9, 10, 1)


@pytest.mark.parametrize(
    ("aggregation", "scores", "expected"),
    [
        ("sum", [0.1] * 10, 1.0),
        ("mean", [0.1] * 10, 0.1),
        ("median", [3.0, 1.0, 2.0], 2.0),
        ("median", [4.0, 1.0, 2.0, 3.0], 2.5),
        ("median", [1e308, 1.7e308], 1.35e308),
        ("min", [0.5, -1.0], -1.0),
        ("max", [0.5, -1.0], 0.5),
        ("mean", [1e308, 1e308, 1e308], 1e308),
        ("mean", [1e308, -1e308, 3.0], 1.0),
    ],
)
def test_aggregations(aggregation: str, scores: list[float], expected: float) -> None:
    assert summarise(scored(*scores), aggregation=aggregation).value == expected


def test_a_sum_beyond_floats_has_no_value_and_says_so() -> None:
    got = summarise(scored(1e308, 1e308), aggregation="sum")
    assert (got.value, got.status, got.to_dict()["value"]) == (None, "not_finite", None)


def test_an_unknown_aggregation_is_refused() -> None:
    with pytest.raises(ValueError, match="mode"):
        summarise(scored(1.0), aggregation="mode")


def test_epochs_weigh_rows_alike() -> None:
    observations = [
        Observation(row, epoch, "scored", float(row == 0 and epoch < 3)) for row in (0, 1) for epoch in (1, 2, 3)
    ]
    got = summarise(observations, epochs=3)
    assert got.value == pytest.approx(1 / 3)
    assert got.by_epoch == [0.5, 0.5, 0.0]
    observations[2] = Observation(0, 3, "error")
    got = summarise(observations, epochs=3)
    assert (got.value, got.n, got.errors) == (0.5, 5, 1)
    assert got.by_epoch == [0.5, 0.5, 0.0]


def test_an_epoch_without_any_score_is_null() -> None:
    got = summarise([Observation(0, 1, "scored", 1.0), Observation(0, 2, "error")], epochs=2)
    assert got.by_epoch == [1.0, None]


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    # R: binom::binom.confint(x, n, methods = "wilson")
    [(86, 100, 0.77863, 0.91473), (0, 10, 0.0, 0.27753), (10, 10, 0.72247, 1.0), (1, 1, 0.20655, 1.0)],
)
def test_wilson_interval_of_published_values(successes: int, n: int, low: float, high: float) -> None:
    assert wilson_interval(successes, n) == pytest.approx((low, high), abs=1e-5)


@given(st.integers(1, 10**6), st.data())
def test_wilson_interval_holds_the_proportion(n: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, n))
    low, high = wilson_interval(successes, n)
    assert 0 <= low <= successes / n <= high <= 1


@pytest.mark.parametrize(
    ("successes", "n", "level"), [(1, 0, 0.95), (3, 2, 0.95), (-1, 2, 0.95), (1, 2, 1.0), (1, 2, 0)]
)
def test_wilson_interval_refuses_what_makes_no_sense(successes: int, n: int, level: float) -> None:
    with pytest.raises(ValueError):
        wilson_interval(successes, n, level=level)


def test_proportions_get_the_wilson_interval_and_others_the_normal_one() -> None:
    binary = summarise(scored(*[1.0] * 86, *[0.0] * 14))
    assert binary.ci95 == pytest.approx(wilson_interval(86, 100))
    assert binary.stderr == pytest.approx(math.sqrt(0.86 * 0.14 / 99))
    graded = summarise(scored(0.2, 0.4, 0.9))
    spread = math.sqrt(sum((x - 0.5) ** 2 for x in (0.2, 0.4, 0.9)) / 2)
    assert graded.stderr == pytest.approx(spread / math.sqrt(3))
    assert graded.ci95 == pytest.approx(normal_interval(0.5, graded.stderr or 0))


def test_a_single_sample_has_no_standard_error() -> None:
    assert summarise(scored(0.4)).ci95 is None
    one = summarise(scored(1.0))
    assert one.stderr is None
    assert one.ci95 == pytest.approx(wilson_interval(1, 1))


def test_epochs_of_one_row_do_not_count_as_samples_of_their_own() -> None:
    once = summarise(scored(*[1.0, 0.0] * 10))
    thrice = summarise(
        [Observation(row, epoch, "scored", float(row % 2 == 0)) for row in range(20) for epoch in (1, 2, 3)], epochs=3
    )
    assert thrice.stderr == pytest.approx(once.stderr)
    assert thrice.ci95 == pytest.approx(once.ci95)


def test_epochs_that_differ_within_a_row_narrow_the_interval_up_to_their_number() -> None:
    mixed = [Observation(row, epoch, "scored", float(epoch == 1)) for row in range(10) for epoch in (1, 2)]
    got = summarise(mixed, epochs=2)
    assert got.stderr == 0
    assert got.ci95 == pytest.approx(wilson_interval(10, 20))


@pytest.mark.parametrize("aggregation", ["median", "min", "max", "sum"])
def test_other_aggregations_have_no_interval(aggregation: str) -> None:
    got = summarise(scored(0.0, 1.0, 1.0), aggregation=aggregation)
    assert (got.stderr, got.ci95) == (None, None)


def test_scores_of_any_size_never_raise() -> None:
    got = summarise(scored(1.7e308, -1.7e308, 1e-300))
    assert got.ci95 is None or all(map(math.isfinite, got.ci95))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_batch_value_that_is_not_finite_is_null(value: float) -> None:
    got = MetricValue.from_batch(value, n=4)
    assert (got.value, got.status, got.batch) == (None, "not_finite", True)


def test_mean_is_an_exact_sum() -> None:
    assert mean([0.1] * 10) == 0.1
