"""Reviewed snapshots of what the terminal shows, in a terminal of 100 columns."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_evalgrader.reporting.terminal import collection_line, header_lines, summary_lines


def metric(value: float | None, low: float | None = None, high: float | None = None, n: int = 98) -> dict[str, Any]:
    return {"value": value, "ci95": None if low is None else [low, high], "n": n, "aggregation": "mean"}


def gate(metric_id: str, outcome: str, value: float | None = None, reason: str = "", **bounds: float) -> dict[str, Any]:
    return {"metric": metric_id, "threshold": bounds, "value": value, "outcome": outcome, "reason": reason}


def group(task: str, model: str, metrics: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "suite": "suites/arith.json",
        "task_id": task,
        "model": model,
        "request_counts": {"total": 100, "completed": 98, "failed": 2, "invalid": 1},
        "metrics": metrics,
        "gates": [],
        "dropped_metrics": [],
        "usage": {"input_tokens": 12_000, "output_tokens": 345, "model_calls": 100},
        "seconds": 12.34,
        **more,
    }


def texts(run: dict[str, Any], **more: Any) -> str:
    return "\n".join(line.text for line in summary_lines(run, **more))


RUN = {
    "status": "completed",
    "groups": [
        group(
            "addition",
            "openai:gpt-4.1-mini",
            {"exact_match": metric(0.86, 0.779, 0.915), "f1": metric(0.9012, 0.8, 0.95)},
            gates=[gate("exact_match", "failed", 0.86, min=0.9)],
        ),
        group(
            "addition",
            "recorded:answer",
            {"exact_match": metric(1.0, 0.963, 1.0)},
            gates=[gate("exact_match", "passed", 1.0, min=0.9)],
            usage={"input_tokens": 0, "output_tokens": 0, "model_calls": 0},
            seconds=0.04,
            dropped_metrics=["stray"],
            rows={"asked": 100, "total": 1319},
        ),
        group(
            "a_task_whose_name_goes_on_and_on",
            "openai:gpt-4.1-mini-2025-04-14-of-a-long-name",
            {"mean_absolute_error_of_the_sum": metric(None, n=0)},
            suite="suites/b.json",
            request_counts={"total": 10, "completed": 1, "failed": 0, "invalid": 0},
            partial=True,
            gates=[
                gate(
                    "mean_absolute_error_of_the_sum",
                    "skipped",
                    reason="mean_absolute_error_of_the_sum <= 0.10 not evaluated: 1 of 10 selected.",
                    max=0.1,
                )
            ],
            seconds=300,
        ),
        group("tags", "m", {}, suite="suites/b.json", batch={"problem": "ValueError: no labels"}, partial=True),
    ],
}

WHOLE = """\
metric                     value    95% interval   n  gate            invalid  errors  tokens   time
suites/arith.json
addition  openai:gpt-4.1-mini                                               1       2   12.3k  12.3s
  exact_match              0.860  0.779 to 0.915  98  FAILED >= 0.9
  f1                       0.901  0.800 to 0.950  98
addition  recorded:answer                                                   1       2           0.0s
  exact_match              1.000  0.963 to 1.000  98  passed >= 0.9
suites/b.json
a_task_whose_name_goes_on_and_on ...1-mini-2025-04-14-of-a-long-name        0       0   12.3k     5m
  mean_absolu..of_the_sum      -                   0  skipped <= 0.1
tags  m                                                                     1       2   12.3k  12.3s
addition recorded:answer: dropped, since the task does not declare it: stray
addition recorded:answer: 100 of 1,319 rows
a_task_whose_name_goes_on_and..ini-2025-04-14-of-a-long-name: mean_absolute_error_of_the_sum <= 0.10 not evaluated: 1 of 10 selected.
tags m: invalid batch result: ValueError: no labels
tags m: partial, 100 of 100 samples
301 samples, 3 invalid, 6 errors, 1 gate passed, 1 gate failed, 1 gate skipped, 300 model calls
Written: out/samples.jsonl and run.json"""  # noqa: E501

QUIET = """\
metric                                value    95% interval   n  gate            invalid  errors
suites/arith.json
addition  openai:gpt-4.1-mini                                                          1       2
  exact_match                         0.860  0.779 to 0.915  98  FAILED >= 0.9
  f1                                  0.901  0.800 to 0.950  98
addition  recorded:answer                                                              1       2
  exact_match                         1.000  0.963 to 1.000  98  passed >= 0.9
suites/b.json
a_task_whose_name_goes_on_and_on  openai:gpt-4.1-mini-2025-04-14-of-a-long-name        0       0
  mean_absolute_error_of_the_sum          -                   0  skipped <= 0.1
tags  m                                                                                1       2
addition recorded:answer: dropped, since the task does not declare it: stray
a_task_whose_name_goes_on_and..ini-2025-04-14-of-a-long-name: mean_absolute_error_of_the_sum <= 0.10 not evaluated: 1 of 10 selected.
tags m: invalid batch result: ValueError: no labels
tags m: partial, 100 of 100 samples"""  # noqa: E501


SMALL = """\
metric        value    95% interval  n  invalid  errors  time
suites/arith.json
sums  recorded:answer                         0       0  0.0s
  score       0.750  0.301 to 0.954  4
4 samples"""


def test_the_summary_of_a_run() -> None:
    assert texts(RUN, folder="out") == WHOLE


def test_q_leaves_costs_and_totals_out() -> None:
    assert texts(RUN, folder="out", verbosity=-1) == QUIET


def test_qq_shows_nothing() -> None:
    assert summary_lines(RUN, verbosity=-2) == []


def test_a_run_without_groups_shows_nothing() -> None:
    assert summary_lines({"groups": []}) == []


def test_columns_without_a_cell_are_left_out() -> None:
    own = group("sums", "recorded:answer", {"score": metric(0.75, 0.301, 0.954, 4)}, usage={}, seconds=0.0)
    own["request_counts"] = {"total": 4, "completed": 4, "failed": 0, "invalid": 0}
    assert texts({"groups": [own]}) == SMALL


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_the_table_keeps_to_the_width_where_it_can(width: int) -> None:
    lines = texts(RUN, width=width).splitlines()
    table = lines[: next(i for i, line in enumerate(lines) if "dropped" in line)]
    assert max(map(len, table)) <= max(width, 74)


def test_names_come_before_counts_that_are_zero() -> None:
    own = group(
        "replies",
        "recorded:text",
        {"apologises.agreement": metric(0.4, n=5), "apologises": metric(0.8, 0.376, 0.964, 5)},
    )
    own["request_counts"] = {"total": 5, "completed": 5, "failed": 0, "invalid": 0}
    assert "invalid  errors  tokens   time" in texts({"groups": [own]})
    narrow = texts({"groups": [own]}, width=64)
    assert "apologises.agreement" in narrow
    assert "errors" not in narrow
    assert "tokens" in narrow


def test_outcomes_are_coloured() -> None:
    found = {line.text.split()[0]: dict(line.markup) for line in summary_lines(RUN) if line.text.startswith("  ")}
    assert found["mean_absolu..of_the_sum"] == {"yellow": True}
    assert found["f1"] == {}


def test_a_value_is_told_from_the_threshold_it_misses() -> None:
    own = group("t", "m", {"s": metric(0.8999999)}, gates=[gate("s", "failed", 0.8999999, min=0.9)])
    assert "0.8999999" in texts({"groups": [own]})


def test_hostile_names_stay_on_their_line() -> None:
    own = group("t\n\x1b[31m", "m\ud800", {"s\x00\n": metric(0.5)}, dropped_metrics=["\x07\n"])
    text = texts({"groups": [own]})
    assert not set(text) & {"\x1b", "\x00", "\x07", "\ud800"}
    assert len(text.splitlines()) == 6


def test_an_interrupted_run_says_so() -> None:
    assert texts({**RUN, "status": "interrupted"}).endswith("300 model calls (interrupted)")


def test_a_replay_called_no_model() -> None:
    assert texts({**RUN, "calls": "replay"}).endswith(" 300 recorded model calls")


@pytest.mark.parametrize(
    ("calls", "attempts", "said"),
    [
        ("live", 300, "300 model calls"),
        ("live", 317, "300 model calls (317 attempts made)"),
        ("fill", 1, "300 model calls (1 attempt made)"),
        ("fill", 0, "300 recorded model calls"),
    ],
)
def test_attempts_are_told_where_they_are_not_the_calls(calls: str, attempts: int, said: str) -> None:
    assert texts({**RUN, "calls": calls, "attempts": attempts}).endswith(f"gate skipped, {said}")


def test_the_header_names_layers_and_calls() -> None:
    assert header_lines(layers=["language", "process"], missing=[("landlock", "the kernel has none")]) == [
        "evals: sandbox language, process; calls live",
        "evals: no sandbox layer landlock: the kernel has none",
    ]
    off = header_lines(layers=[], missing=[("landlock", "off")], sandbox="off", calls="replay")
    assert off == ["evals: sandbox off, graders run in the worker process; calls replay"]
    assert header_lines(layers=["language"], verbosity=-1) == []


def test_the_line_after_collection() -> None:
    said = collection_line(suites=2, tasks=3, samples=1_200, models=2, gates=1)
    assert said == "evals: 2 suites, 3 tasks, 1,200 samples, 2 models, 1 gate"
    assert collection_line(suites=1, tasks=1, samples=1, models=1, gates=0, deselected=3).endswith("(3 deselected)")
