"""What JUnit shows of samples and gates beside pytest's own: `<property>` entries, each safe in XML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.junitxml import xml_key

from pytest_evalgrader.reporting.safetext import PLACE, VALUE_BYTES, one_line, property_name, safe

if TYPE_CHECKING:
    from pytest_evalgrader.gates import GateVerdict
    from pytest_evalgrader.records import SampleRecord

Properties = list[tuple[str, str]]

_SCORES = 100


def sample_properties(record: SampleRecord) -> Properties:
    """Return a sample's entries: `eval.model`, `eval.task_id`, `eval.sample_index`, and `eval.score.ID` for each score.

    The record itself is none of them: JUnit would print all of it.
    """
    out = _origin(record.task_id, record.model)
    out += [("eval.sample_index", str(record.sample_index)), ("eval.sample_id", safe(record.id, VALUE_BYTES))]
    if record.epoch > 1:
        out.append(("eval.epoch", str(record.epoch)))
    out.append(("eval.outcome", record.outcome))
    for key, score in list(record.scores.items())[:_SCORES]:
        out.append((f"eval.score.{property_name(key)}", repr(score)))
    if len(record.scores) > _SCORES:
        out.append(("eval.scores_cut", f"{len(record.scores) - _SCORES:,} more scores are in {PLACE}"))
    if record.response_id:
        out.append(("eval.response_id", safe(record.response_id, VALUE_BYTES)))
    return out


def gate_properties(verdict: GateVerdict, *, task_id: str, model: str) -> Properties:
    """Return a gate's entries: `eval.model`, `eval.task_id`, and metric, value, threshold, n and reason likewise."""
    out = _origin(task_id, model)
    out.append(("eval.metric", property_name(verdict.metric)))
    out.append(("eval.value", "" if verdict.value is None else repr(verdict.value)))
    out.append(("eval.threshold", verdict.bound))
    out.append(("eval.n", str(verdict.n)))
    out.append(("eval.reason", one_line(verdict.reason, 2_000)))
    return out


def _origin(task_id: str, model: str) -> Properties:
    return [("eval.model", safe(model, VALUE_BYTES)), ("eval.task_id", safe(task_id, VALUE_BYTES))]


def add_left(config: pytest.Config, left: Mapping[tuple[str, Any], Properties]) -> None:
    """Add the entries of samples whose teardown never came, since their worker died or the run was stopped.

    Args:
        left: By the node id and the worker of the reports.
    """
    xml = config.stash.get(xml_key, None)
    if xml is None:
        return
    # pytest takes properties off a test's last report alone, and keeps those open whose last has not come. Before 9.2
    # their node ids are texts.
    for (node_id, worker), reporter in xml.node_reporters.items():
        for name, value in left.get((str(node_id), worker), ()):
            reporter.add_property(name, value)


def keep_last_attempts(config: pytest.Config) -> None:
    """Leave one test case for each sample in the JUnit file: that of its last attempt.

    A plugin that runs a test again has pytest write a test case for each attempt, all of one name.
    """
    xml = config.stash.get(xml_key, None)
    if xml is None:
        return
    last: dict[tuple[str | None, str | None], int] = {}
    cases = [reporter.to_xml() for reporter in xml.node_reporters_ordered]
    for number, case in enumerate(cases):
        last[(case.get("classname"), case.get("name"))] = number
    xml.node_reporters_ordered[:] = [
        reporter
        for number, (reporter, case) in enumerate(zip(xml.node_reporters_ordered, cases, strict=True))
        if last[(case.get("classname"), case.get("name"))] == number
        or not (case.get("name") or "").startswith("sample[")
        # What pytest leaves of a crash that pytest-rerunfailures ran again: no name, no outcome.
        if case.get("name") is not None
    ]
