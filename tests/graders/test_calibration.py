"""Judges against people."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_evalgrader.graders.calibration import (
    Pair,
    Verdict,
    calibrate,
    calibrated_keys,
    calibration_problems,
    cohen_kappa,
    human_verdict,
    judge_verdict,
    metric_ids,
    pair_of,
)

from .scripted import ListRows


def pairs(*counts: tuple[bool | None, Verdict | None, int]) -> list[Pair]:
    return [Pair(human, judge) for human, judge, n in counts for _ in range(n)]


def test_the_textbook_example() -> None:
    # 50 grant applications: both yes 20, both no 15, 5 and 10 apart; p_o = 0.7, p_e = 0.5, kappa = 0.4.
    found = calibrate(pairs((True, "PASS", 20), (True, "FAIL", 5), (False, "PASS", 10), (False, "FAIL", 15)))
    assert found.agreement == pytest.approx(0.7)
    assert found.kappa == pytest.approx(0.4)
    assert found.confusion == {
        "PASS": {"PASS": 20, "FAIL": 5, "INVALID": 0},
        "FAIL": {"PASS": 10, "FAIL": 15, "INVALID": 0},
    }
    assert found.n == 50
    assert found.metrics("ok") == {"ok.agreement": found.agreement, "ok.kappa": found.kappa}
    assert tuple(found.metrics("ok")) == metric_ids("ok")


@pytest.mark.parametrize(
    ("given", "agreement", "kappa"),
    [
        (pairs((True, "PASS", 3), (False, "FAIL", 2)), 1.0, 1.0),
        (pairs((True, "FAIL", 2), (False, "PASS", 2)), 0.0, -1.0),
        (pairs((True, "PASS", 1), (True, "FAIL", 1), (False, "PASS", 1), (False, "FAIL", 1)), 0.5, 0.0),
        (pairs((True, "PASS", 3), (False, "PASS", 1)), 0.75, 0.0),
        (pairs((True, "FAIL", 2)), 0.0, 0.0),
        (pairs((True, "PASS", 4)), 1.0, None),
        (pairs((False, "FAIL", 1)), 1.0, None),
        ([], None, None),
        (pairs((None, "PASS", 2), (True, None, 1)), None, None),
    ],
)
def test_degenerate_tables(given: list[Pair], agreement: float | None, kappa: float | None) -> None:
    found = calibrate(given)
    assert found.agreement == agreement
    assert found.kappa == (kappa if kappa is None else pytest.approx(kappa))
    assert bool(found.note) == (kappa is None)


def test_an_invalid_verdict_counts_as_a_disagreement_and_a_missing_one_not() -> None:
    found = calibrate(
        pairs((True, "PASS", 3), (False, "FAIL", 3), (True, "INVALID", 2), (True, None, 1), (None, "PASS", 4))
    )
    assert found.agreement == pytest.approx(6 / 8)
    assert (found.n, found.without_judge, found.without_human) == (8, 1, 4)
    assert found.kappa is not None
    assert found.kappa < 1
    assert found.to_dict()["confusion"]["PASS"]["INVALID"] == 2


def test_order_does_not_matter_and_raters_may_be_swapped() -> None:
    given = pairs((True, "PASS", 7), (True, "FAIL", 2), (False, "PASS", 3), (False, "FAIL", 5))
    mixed = random.Random(1).sample(given, len(given))
    assert calibrate(given) == calibrate(mixed)
    counts = {("a", "a"): 7, ("a", "b"): 2, ("b", "a"): 3, ("b", "b"): 5}
    assert cohen_kappa(counts) == cohen_kappa({(b, a): n for (a, b), n in counts.items()})


@pytest.mark.parametrize("value", [True, 1, 1.0, "true", " PASS ", "Yes", "1", "passed"])
def test_verdicts_that_pass(value: Any) -> None:
    assert human_verdict(value) is True


@pytest.mark.parametrize("value", [False, 0, 0.0, "False", "fail", "no", "0"])
def test_verdicts_that_fail(value: Any) -> None:
    assert human_verdict(value) is False


@pytest.mark.parametrize("value", [None, "", "  ", "NA", "n/a"])
def test_no_verdict(value: Any) -> None:
    assert human_verdict(value) is None


@pytest.mark.parametrize("value", ["maybe", 2, -1, 0.5, math.nan, math.inf, [], {}, "PASS!"])
def test_what_is_no_verdict_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="expected true or false"):
        human_verdict(value)


def test_verdicts_of_scores() -> None:
    assert [judge_verdict(score) for score in (1.0, 0.0, 0.5, 1.0 - 1e-12)] == ["PASS", "FAIL", "FAIL", "PASS"]


def test_pairs_of_samples() -> None:
    assert pair_of("pass", "scored", 0.0) == Pair(True, "FAIL")
    assert pair_of(0, "invalid", 0.0) == Pair(False, "INVALID")
    for state in ("na", "error", "missing"):
        assert pair_of(None, state, None) == Pair(None, None)


def test_only_judges_are_calibrated() -> None:
    types = ("binary_judge", "python", "prebuilt_judge", "external_endpoint")
    specs = [SimpleNamespace(type=kind, own_key=kind[0]) for kind in types]
    assert calibrated_keys(specs) == ["b", "p"]


def test_problems_of_a_column() -> None:
    where = "s.json: tasks[0].calibration"
    rows = ListRows({"human_pass": True}, {"human_pass": "perhaps"}, {"human_pass": None}, {"other": 1})
    problems = calibration_problems(rows, "human_pass", where=where)
    assert [str(problem) for problem in problems] == [
        'data/d.jsonl:2: human_pass: found the text "perhaps", expected true or false, 1 or 0, pass or fail, '
        "or yes or no."
    ]
    assert 'Did you mean "human_pass"?' in str(calibration_problems(rows, "human_pas", where=where)[0])
    empty = ListRows({"human_pass": None}, {"human_pass": ""})
    assert "holds no human verdict" in str(calibration_problems(empty, "human_pass", where=where)[0])
    assert calibration_problems(ListRows({"human_pass": "yes"}, {}), "human_pass", where=where) == []
