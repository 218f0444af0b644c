"""Random groups against a ten-line reference: what arrives, in any order, leaves the metrics and verdicts it must."""

from __future__ import annotations

import json
import random
import statistics
import tempfile
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from evalkit import MODEL, Bench, python, suite, task
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_evalgrader.aggregate import Group
from pytest_evalgrader.data.dataset import Rows
from pytest_evalgrader.graders.python import BatchOutcome
from pytest_evalgrader.plan import Candidate, TaskPlan
from pytest_evalgrader.records import SampleRecord
from pytest_evalgrader.reporting.files import RunWriter
from pytest_evalgrader.suite.manifest import parse_suite

State = tuple[str, float]  # scored | invalid | error | na | missing | lost, and the score
Cells = dict[tuple[int, int], State]
ONE_OF = {
    "mean": lambda rows: sum((sum(r) / len(r) for r in rows), Fraction()) / len(rows),
    "median": lambda rows: statistics.median(score for row in rows for score in row),
    "min": lambda rows: min(score for row in rows for score in row),
    "max": lambda rows: max(score for row in rows for score in row),
    "sum": lambda rows: sum((score for row in rows for score in row), Fraction()),
}


def reference(cells: Cells, metric: dict[str, Any], allow_errors: float) -> tuple[Fraction | None, bool]:
    """Value and verdict of a metric, said as DESIGN says them."""
    kinds = [kind for kind, _ in cells.values()]
    rows: dict[int, list[Fraction]] = {}
    for (row, _), (kind, score) in cells.items():
        if kind in ("scored", "invalid"):
            rows.setdefault(row, []).append(Fraction(score) if kind == "scored" else Fraction(0))
    value = ONE_OF[metric["aggregation"]](list(rows.values())) if rows else None
    low, high = metric["threshold"].get("min"), metric["threshold"].get("max")
    zero_helps = not metric["higher_is_better"] or high is not None or (low is not None and low < 0)
    return value, (
        value is not None
        and (low is None or value >= low - 1e-9)
        and (high is None or value <= high + 1e-9)
        and "lost" not in kinds
        and kinds.count("error") <= allow_errors * len(kinds)
        and kinds.count("missing") <= metric["allow_missing"] * len(kinds)
        and not ("invalid" in kinds and zero_helps)
    )


EIGHTHS = st.integers(-8, 16).map(lambda n: n / 8)
STATES = st.tuples(st.sampled_from(["scored"] * 6 + ["invalid", "error", "na", "missing", "lost"]), EIGHTHS)


@st.composite
def groups(draw: st.DrawFn) -> dict[str, Any]:
    """A group, what becomes of each sample, and the order in which workers report that."""
    count, epochs = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    plain = draw(st.booleans())  # half of the groups have nothing but scores, so that gates pass often enough
    keys = [(row, epoch) for row in range(count) for epoch in range(1, epochs + 1)]
    cells = {key: (("scored", draw(EIGHTHS)) if plain else draw(STATES)) for key in keys}
    events: list[tuple[tuple[int, int], State, bool]] = []
    earlier = [(key, draw(STATES), False) for key in keys if draw(st.integers(0, 3)) == 0]
    for event in draw(st.permutations([*earlier, *((key, cells[key], True) for key in keys)])):
        done = {key for key, _, last in events if last}
        if event[2] or event[0] not in done:  # no attempt follows the last one
            events.append(event)
    bounds = draw(st.sampled_from([("min",), ("max",), ("min", "max")]))
    ends = sorted(draw(st.tuples(EIGHTHS, EIGHTHS)))
    metric = {
        "id": "s",
        "aggregation": draw(st.sampled_from(sorted(ONE_OF))),
        "higher_is_better": draw(st.booleans()),
        "threshold": {"min": ends[0]} if bounds == ("min",) else {"max": ends[1]} if bounds == ("max",) else None,
        "allow_missing": draw(st.sampled_from([0.0, 0.25, 0.5, 1.0])),
    }
    metric["threshold"] = metric["threshold"] or {"min": ends[0], "max": ends[1]}
    return {
        "count": count,
        "epochs": epochs,
        "cells": cells,
        "events": events,
        "metric": metric,
        "allow_errors": draw(st.sampled_from([0.0, 0.25, 0.5, 1.0])),
        "batched": draw(st.booleans()),
    }


class Recorder:
    """A batch grader that writes down what it was given, and sets a score of its own."""

    model_access = False
    program = None

    def __init__(self) -> None:
        self.given: list[list[dict[str, Any]]] = []

    def grade_batch(self, sandbox: Any, samples: Any, seed: str, calls: Any, size: int) -> BatchOutcome:
        self.given.append(list(samples))
        return BatchOutcome(updates={s["sample_id"]: {"scores": {"batched": len(samples)}} for s in samples})


def plan_of(drawn: dict[str, Any], batch: Recorder | None) -> TaskPlan:
    """The plan of a drawn group."""
    rows = [{"question": f"q{n}", "answer": "a"} for n in range(drawn["count"])]
    doc = suite(
        task(
            dataset={"rows": rows},
            target_template=None,
            metrics=[drawn["metric"]],
            epochs=drawn["epochs"],
            allow_errors=drawn["allow_errors"],
        )
    )
    spec = parse_suite(json.loads(json.dumps(doc)), "s.json").tasks[0]
    return TaskPlan(
        suite="s.json",
        index=0,
        spec=spec,
        candidates=(Candidate(MODEL, "recorded", column="answer"),),
        rows=Rows.from_list(rows, where="rows"),
        count=len(rows),
        ids=[f"r{n}" for n in range(len(rows))],
        metrics={metric.id: metric for metric in spec.metrics},
        generation={},
        judge_model=None,
        embedding_model=None,
        concurrency=None,
        recording=Path("recording.jsonl"),
        batch_graders=() if batch is None else (batch,),  # type: ignore[arg-type]
    )


def record_of(plan: TaskPlan, key: tuple[int, int], state: State, last: bool) -> SampleRecord:
    """What a worker says of an attempt."""
    kind, score = state
    record = SampleRecord(plan.sample_id(*key), "run", "node", "s.json", plan.id, MODEL, *key, outcome="passed")
    record.output_text = "last" if last else "earlier"
    if kind == "error":
        record.outcome, record.error = "error", {"stage": "generate", "type": "T", "message": "m"}
    elif kind == "invalid":
        record.outcome, record.invalid, record.invalid_scores, record.scores = "failed", True, ["s"], {"s": 0.0}
    elif kind == "scored":
        record.scores = {"s": score}
    elif kind == "na":
        record.not_applicable = ["s"]
    return record


@settings(deadline=None, max_examples=150)
@given(groups())
def test_what_arrives_in_any_order_is_judged_like_the_reference(drawn: dict[str, Any]) -> None:
    recorder = Recorder() if drawn["batched"] else None
    plan = plan_of(drawn, recorder)
    cells, metric = drawn["cells"], drawn["metric"]
    group = Group(plan, plan.candidates[0])
    sandbox: Any = SimpleNamespace(retire=lambda program: None)
    with tempfile.TemporaryDirectory() as folder:
        writer = RunWriter(Path(folder))
        for n, (key, state, last) in enumerate(drawn["events"]):
            if state[0] == "lost" and not last:
                continue  # a crash that is run again: nothing arrives
            if state[0] == "lost":
                group.lose(key)
            else:
                text = record_of(plan, key, state, last).to_json()
                group.add(SampleRecord.from_json(text), writer.append(text), len(text), last=last)
            assert group.complete is (n == max(m for m, event in enumerate(drawn["events"]) if event[2]))
            if last and group.wants_batch:
                group.run_batch(sandbox, lambda: None, writer.read)
        writer.finish([brief.offset for _, brief in group.ordered()], group.updates())
        lines = [json.loads(line) for line in (Path(folder) / "samples.jsonl").read_text("ascii").splitlines()]
        writer.close()

    value, passes = reference(cells, metric, drawn["allow_errors"])
    found = group.metrics()["s"]
    verdict = group.verdict(plan.metrics["s"])
    assert found.value == (None if value is None else pytest.approx(float(value), abs=1e-12))
    assert verdict.outcome == ("passed" if passes else "failed"), (verdict.reason, cells)
    kinds = [kind for kind, _ in cells.values()]
    counts = group.to_dict([verdict])["request_counts"]
    assert counts["total"] == len(cells)
    assert counts["failed"] == kinds.count("error")
    assert counts["invalid"] == kinds.count("invalid")
    assert counts["completed"] == len(kinds) - kinds.count("error") - kinds.count("lost")

    arrived = [key for key in plan.sample_keys() if cells[key][0] != "lost"]
    assert [(line["sample_index"], line["epoch"]) for line in lines] == arrived
    assert {line["output_text"] for line in lines} <= {"last"}
    graded = [plan.sample_id(*key) for key in arrived if cells[key][0] != "error"]
    if recorder is not None:
        # Once, over the last attempts without an error, in the plan's order.
        assert [[sample["sample_id"] for sample in call] for call in recorder.given] == ([graded] if graded else [])
        updated = [line["id"] for line in lines if line["scores"].get("batched") == len(graded)]
        assert updated == graded


GRADER = """
def grade(sample, item):
    said = sample["output_text"]
    if said == "invalid":
        return said
    if said == "missing":
        return {"scores": {"other": 1.0}}
    return {"scores": {"s": float(said)}}
"""
MODES = ["-n 0", "-n 1", "-n 2", "-n 3", "-n 2 --dist loadfile", "-n 3 --dist worksteal"]


@pytest.mark.parametrize("seed", range(4))
def test_whole_runs_are_judged_like_the_reference(bench: Bench, seed: int) -> None:
    rng = random.Random(seed)
    kinds = rng.choices(["scored", "invalid", "error", "missing"], weights=[9, rng.choice([0, 1]), 1, 1], k=12)
    states = [(kind, rng.randrange(9) / 8) for kind in kinds]
    said = {"scored": lambda score: str(score), "error": lambda score: None}
    rows = [{"question": "q", "answer": said.get(kind, lambda _, k=kind: k)(score)} for kind, score in states]
    metric: dict[str, Any] = {
        "id": "s",
        "aggregation": rng.choice(sorted(ONE_OF)),
        "higher_is_better": rng.random() < 0.7,
        "threshold": {"min": rng.randrange(6) / 8},
        "allow_missing": rng.choice([0.0, 0.25, 0.5]),
    }
    allow_errors, epochs = rng.choice([0.0, 0.25, 0.5]), rng.choice([1, 2])
    bench.mode = rng.choice(MODES)
    ran = bench.run(
        doc=suite(
            task(
                grader=python(GRADER, metric_id="s"),
                dataset={"rows": rows},
                target_template=None,
                metrics=[metric],
                allow_errors=allow_errors,
                epochs=epochs,
            )
        )
    )
    cells = {(n, epoch): state for n, state in enumerate(states) for epoch in range(1, epochs + 1)}
    value, passes = reference(cells, metric, allow_errors)
    assert ran.group["metrics"]["s"]["value"] == pytest.approx(float(value or 0))
    assert ran.state("gate[") == ("passed" if passes else "failure"), (bench.mode, ran.flat)
