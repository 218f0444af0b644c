"""Reward servers: the protocol, what they may answer, and metadata that does not fit."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_evalgrader.errors import BudgetExhausted, CallError, SampleError, SuiteError
from pytest_evalgrader.gateway.providers import EndpointConfig, Providers
from pytest_evalgrader.graders.endpoint import ExternalEndpoint

from .scripted import EndpointScope, ListRows

WHERE = "suites/q.json: tasks[0].grader"
URL = "http://127.0.0.1:8123"
LIMIT = {"type": "object", "properties": {"limit": {"type": "integer"}}, "required": ["limit"]}
ROW = {"metadata": {"limit": 3}, "gold": "4"}
SAMPLE = {"output_text": "four", "prompt": "2+2?"}


def endpoint(url: str = URL, **more: Any) -> ExternalEndpoint:
    providers = Providers({}, {"house": EndpointConfig("house", "https://rewards.example.org")}, {})
    spec = SimpleNamespace(key="short", url=url, timeout_seconds=5.0, max_retries=1)
    return ExternalEndpoint(spec, where=WHERE, providers=providers, **more)


def server(score: Any, *, schema: Any = True, info: Any = None) -> EndpointScope:
    said = {
        "/info": {"name": "n", "version": "1"} if info is None else info,
        "/metadata_schema": schema,
        "/score": score,
    }
    return EndpointScope(lambda path, body: said[path])


def test_the_protocol() -> None:
    scope = server({"reward": 0.25, "metadata": {"length": 4}}, schema=LIMIT)
    grader = endpoint()
    outcome = grader.grade(SAMPLE, {}, ROW, scope)
    assert outcome.scores == {"short": 0.25}
    assert outcome.judge == {"short": {"length": 4}}
    turns = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "four"}]
    assert scope.calls == [
        ("/info", None),
        ("/metadata_schema", None),
        ("/score", {"turns": turns, "metadata": {"limit": 3}}),
    ]
    grader.grade(SAMPLE, {}, ROW, scope)
    assert [path for path, _ in scope.calls][3:] == ["/score"]
    assert grader.info == {"name": "n", "version": "1"}


def test_without_a_metadata_column_the_row_is_the_metadata() -> None:
    scope = server({"reward": 1, "metadata": {}})
    endpoint().grade(SAMPLE, {}, {"limit": 3, "gold": "4"}, scope)
    body = scope.calls[-1][1]
    assert body is not None
    assert body["metadata"] == {"limit": 3, "gold": "4"}


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ({"reward": float("nan"), "metadata": {}}, "non_finite"),
        ({"reward": float("inf"), "metadata": {}}, "non_finite"),
        ({"reward": 10**400, "metadata": {}}, "non_finite"),
        ({"reward": True, "metadata": {}}, "boolean"),
        ({"reward": "0.9", "metadata": {}}, "wrong_type"),
        ({"reward": None, "metadata": {}}, "wrong_type"),
        ({"reward": [1.0]}, "wrong_type"),
        ({"metadata": {"a": 1}}, "no_finite_score"),
        ({"score": 1.0}, "no_finite_score"),
        ([1.0], "wrong_type"),
        ("1.0", "wrong_type"),
        (None, "wrong_type"),
    ],
)
def test_a_reward_that_is_no_finite_number_is_invalid(reply: Any, reason: str) -> None:
    outcome = endpoint().grade(SAMPLE, {}, ROW, server(reply))
    assert outcome.scores == {}
    assert outcome.invalid is not None
    assert outcome.invalid.reason == reason
    assert outcome.invalid.raw is not None or reply is None
    assert "127.0.0.1:8123" in outcome.invalid.message


@pytest.mark.parametrize("reply", [{"reward": 1}, {"reward": 1, "metadata": None}])
def test_a_server_may_leave_metadata_out(reply: Any) -> None:
    outcome = endpoint().grade(SAMPLE, {}, ROW, server(reply))
    assert (outcome.scores, outcome.judge) == ({"short": 1.0}, None)


def test_metadata_that_json_cannot_hold_costs_no_score() -> None:
    outcome = endpoint().grade(SAMPLE, {}, ROW, server({"reward": 1, "metadata": {"x": float("nan")}}))
    assert outcome.judge == {"short": {"x": "nan"}}


def test_metadata_that_does_not_fit_fails_before_anything_is_scored() -> None:
    scope = server({"reward": 1, "metadata": {}}, schema=LIMIT)
    grader = endpoint()
    with pytest.raises(SampleError) as caught:
        grader.check_row({"metadata": {"limit": "three"}}, scope)
    assert "metadata.limit: 'three' is not of type 'integer'" in caught.value.message
    assert [path for path, _ in scope.calls] == ["/info", "/metadata_schema"]
    grader.check_row(ROW, scope)


@pytest.mark.parametrize("schema", [{"type": "nonsense"}, "text", None, {"$ref": "http://127.0.0.1:9/s"}])
def test_a_schema_that_cannot_be_used_is_an_error_of_the_sample(schema: Any) -> None:
    with pytest.raises(SampleError, match="metadata schema"):
        endpoint().check_row(ROW, server({"reward": 1}, schema=schema))


@pytest.mark.parametrize("info", [[], "<html>", 3])
def test_what_is_no_reward_server_is_named(info: Any) -> None:
    with pytest.raises(CallError, match="expected an object with `name`"):
        endpoint().prepare(server({"reward": 1}, info=info))


def test_a_dead_server_is_asked_again_only_after_a_while() -> None:
    now = [0.0]
    grader = endpoint(clock=lambda: now[0])
    down = EndpointScope(lambda path, body: CallError("127.0.0.1:8123 refused the connection", "Unreachable"))
    for _ in range(3):
        with pytest.raises(CallError, match="refused the connection"):
            grader.grade(SAMPLE, {}, ROW, down)
    assert len(down.calls) == 1
    now[0] = 60.0
    assert grader.grade(SAMPLE, {}, ROW, server({"reward": 1})).scores == {"short": 1.0}


def test_an_exhausted_budget_is_not_remembered() -> None:
    grader = endpoint()
    with pytest.raises(BudgetExhausted):
        grader.prepare(EndpointScope(lambda path, body: BudgetExhausted("3 calls")))
    grader.prepare(server({"reward": 1}))


def test_the_server_is_asked_once_by_many_threads() -> None:
    grader = endpoint()
    scope = server({"reward": 1}, schema=LIMIT)
    threads = [threading.Thread(target=grader.prepare, args=(scope,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(scope.calls) == 2


@pytest.mark.parametrize("url", ["localhost:8000/score", "ftp://x/", "http://", "nohouse", "http://user:pw@h/"])
def test_addresses_that_cannot_be_used(url: str) -> None:
    with pytest.raises(SuiteError) as caught:
        endpoint(url)
    (problem,) = caught.value.problems
    assert problem.where == f"{WHERE}.url"
    assert "pw" not in problem.message
    if url == "nohouse":
        assert "house" in problem.message


def test_a_configured_endpoint_is_found_by_name() -> None:
    assert endpoint("house").endpoint.url == "https://rewards.example.org"


def test_metadata_must_be_an_object() -> None:
    rows = ListRows({"metadata": {"a": 1}}, {"metadata": "text"}, {"metadata": None}, {"metadata": [1]})
    problems = endpoint().check_rows(rows)
    assert [problem.where for problem in problems] == ["data/d.jsonl:2: metadata", "data/d.jsonl:4: metadata"]
    assert endpoint().check_rows(ListRows({"a": 1})) == []


def test_a_body_holds_nothing_that_the_server_refuses() -> None:
    body = endpoint().request(SAMPLE, {"messages": [{"role": "user", "content": "x", "name": "n"}], "metadata": {}})
    assert set(body) == {"turns", "metadata"}
    assert all(set(turn) == {"role", "content"} for turn in body["turns"])
