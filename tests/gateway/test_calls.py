"""Calls through a gateway: candidates, judges, embeddings, endpoints, ctx."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pytest_evalgrader.errors import BudgetExhausted, CallError, CallRefused
from pytest_evalgrader.gateway.providers import ProviderConfig

from .conftest import KEY, Bench
from .server import FakeServer, Reply, Request, chat, responses


def test_a_candidate_is_asked(bench: Bench, server: FakeServer) -> None:
    scope = bench.scope(bench.gateway())
    generation = scope.generate("openai:cand", prompt="2+2?", generation={"temperature": 0, "stop": None})
    assert (generation.output_text, generation.response_id, generation.model) == ("4", "resp_1", "served")
    assert server.bodies() == [{"model": "cand", "input": "2+2?", "temperature": 0}]
    assert server.requests[0].path == "/v1/responses"
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert scope.calls == [
        {"role": "candidate", "model": "openai:cand", "response_id": "resp_1", "input_tokens": 3, "output_tokens": 2}
    ]
    assert scope.usage == {"input_tokens": 3, "output_tokens": 2, "model_calls": 1}


def test_a_provider_without_a_key_gets_nothing_of_the_account(
    bench: Bench, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "of-the-account")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Own: of-the-account")
    server.answer = lambda request: Reply(chat("4"))
    scope = bench.scope(bench.gateway())
    assert scope.generate("local:m", prompt="p").output_text == "4"
    assert server.requests[0].path == "/v1/chat/completions"
    assert "of-the-account" not in str(server.requests[0].headers)
    assert KEY not in str(server.requests[0].headers)
    assert "authorization" not in server.requests[0].headers


def test_nothing_says_where_it_runs(bench: Bench, server: FakeServer) -> None:
    bench.scope(bench.gateway()).generate("openai:m", prompt="p")
    assert [n for n in server.requests[0].headers if n.startswith("x-stainless")] == ["x-stainless-raw-response"]


def test_reasoning_and_stops(bench: Bench, server: FakeServer) -> None:
    said = responses("<think>a STOP b</think>\n4 STOP 5")
    said["output"].insert(0, {"type": "reasoning", "summary": [{"text": "item"}]})
    server.answer = lambda request: Reply(said)
    generation = bench.scope(bench.gateway()).generate("cand", prompt="p", generation={"stop": ["STOP"]})
    assert (generation.output_text, generation.reasoning) == ("4 ", "item\n\na STOP b")
    server.answer = lambda request: Reply(responses("<think>7? 12"))
    generation = bench.scope(bench.gateway()).generate("cand", prompt="p", generation={"max_empty_retries": 3})
    assert (generation.output_text, generation.reasoning_unclosed) == ("", True)
    assert generation.notes == ["the reasoning never closed, so the output is empty"]
    assert len(server.requests) == 2


def test_an_empty_output_is_asked_again(bench: Bench, server: FakeServer) -> None:
    server.answer = lambda request: Reply(responses("" if request.nth < 3 else "4"))
    scope = bench.scope(bench.gateway())
    assert scope.generate("cand", prompt="p", generation={"max_empty_retries": 2}).output_text == "4"
    assert scope.usage["model_calls"] == 3
    server.answer = lambda request: Reply(responses(" "))
    generation = bench.scope(bench.gateway()).generate("cand", prompt="q", generation={"max_empty_retries": 1})
    assert generation.notes == ["the output is empty"]
    assert len(server.requests) == 5


@pytest.mark.parametrize(
    ("said", "text", "note"),
    [
        (chat(None, finish_reason="length", reasoning_content="r"), "", "the output is empty (max_output_tokens)"),
        (chat("a", finish_reason="length"), "a", "the output is incomplete (max_output_tokens)"),
        (chat(None, refusal="I will not"), "I will not", "the model refused; its refusal is the output"),
        (chat(None, finish_reason="content_filter"), "", "the output is empty (content_filter)"),
    ],
)
def test_odd_answers_are_noted(bench: Bench, server: FakeServer, said: dict[str, Any], text: str, note: str) -> None:
    server.answer = lambda request: Reply(said)
    generation = bench.scope(bench.gateway()).generate("local:m", prompt="p")
    assert (generation.output_text, generation.notes) == (text, [note])


def test_no_message_at_all_is_an_error_for_a_candidate_and_empty_for_a_judge(bench: Bench, server: FakeServer) -> None:
    server.answer = lambda request: Reply({"id": "c", "choices": []})
    scope = bench.scope(bench.gateway())
    with pytest.raises(CallError, match="no message at all"):
        scope.generate("local:m", prompt="p")
    assert scope.responses("local:m", {"input": "x"})["output_text"] == ""


def test_a_judge_is_asked_over_either_api(bench: Bench, server: FakeServer) -> None:
    server.answer = lambda request: Reply(chat("PASS") if "chat" in request.path else responses("PASS"))
    scope = bench.scope(bench.gateway())
    for model in ("openai:j", "local:j"):
        reply = scope.responses(model, {"input": "x", "text": {"format": {"type": "json_object"}}})
        assert (reply["output_text"], reply["model"]) == ("PASS", "served")
        assert reply["usage"]["input_tokens"] == 3
    assert server.bodies()[1]["response_format"] == {"type": "json_object"}
    assert [call["role"] for call in scope.calls] == ["judge", "judge"]


def unsupported(request: Request) -> Reply:
    """A reasoning model: no temperature, and max_completion_tokens."""
    body = request.body
    if "temperature" in body:
        message = "Unsupported value: 'temperature' does not support 0 with this model."
        return Reply({"error": {"message": message, "param": "temperature"}}, 400)
    if "max_tokens" in body:
        message = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
        return Reply({"error": {"message": message, "code": "unsupported_parameter"}}, 400)
    return Reply(chat("4"))


def test_refused_parameters_are_dropped_once_and_said(bench: Bench, server: FakeServer) -> None:
    server.answer = unsupported
    scope = bench.scope(bench.gateway())
    settings = {"temperature": 0, "max_output_tokens": 5, "max_retries": 0}
    for _ in range(3):
        generation = scope.generate("local:o", prompt="p", generation=settings)
        assert generation.output_text == "4"
        assert generation.notes == ["local:o does not take temperature; it was not sent"]
    assert len(server.requests) == 5
    assert server.bodies()[-1]["max_completion_tokens"] == 5
    assert scope.notes == ["local:o does not take temperature; it was not sent"]


def test_a_bad_value_is_not_dropped(bench: Bench, server: FakeServer) -> None:
    server.answer = lambda request: Reply({"error": {"message": "temperature must be at most 2"}}, 400)
    with pytest.raises(CallError, match="temperature must be at most 2"):
        bench.scope(bench.gateway()).generate("local:o", prompt="p", generation={"temperature": 3})
    assert len(server.requests) == 1


def test_a_server_that_takes_the_schema_beside_json_object(bench: Bench, server: FakeServer) -> None:
    """llama-cpp-python's server: it knows no json_schema, and says so with a 500."""
    schema = {"type": "object", "properties": {"score": {"type": "string"}}}

    def answer(request: Request) -> Reply:
        if request.body["response_format"]["type"] == "json_schema":
            said = "[{'loc': ('body', 'response_format', 'type'), 'msg': \"Input should be 'text' or 'json_object'\"}]"
            return Reply({"error": {"message": said, "type": "internal_server_error"}}, 500)
        return Reply(chat("PASS"))

    server.answer = answer
    scope = bench.scope(bench.gateway())
    form = {"type": "json_schema", "name": "verdict", "schema": schema, "strict": True}
    for _ in range(2):
        assert scope.responses("local:j", {"input": "x", "text": {"format": form}})["output_text"] == "PASS"
    sent = [body["response_format"] for body in server.bodies()]
    assert [form["type"] for form in sent] == ["json_schema", "json_object", "json_object"]
    assert sent[1] == {"type": "json_object", "schema": schema}
    assert scope.notes == [
        "local:j does not take the format json_schema; the format json_object with the schema was sent"
    ]


def test_a_format_that_is_always_refused_is_given_up(bench: Bench, server: FakeServer) -> None:
    server.answer = lambda request: Reply({"error": {"message": "response_format: use json_object"}}, 400)
    form = {"type": "json_schema", "name": "v", "schema": {"type": "object"}}
    with pytest.raises(CallError, match="use json_object"):
        bench.scope(bench.gateway()).responses("local:j", {"input": "x", "text": {"format": form}})
    forms = [body.get("response_format", {}) for body in server.bodies()]
    assert [sorted(form) for form in forms] == [["json_schema", "type"], ["schema", "type"], ["type"], []]


@pytest.mark.parametrize("model", ["openai:j", "local:j"])
def test_structured_output_falls_back_step_by_step(bench: Bench, server: FakeServer, model: str) -> None:
    def answer(request: Request) -> Reply:
        form = request.body.get("response_format") or (request.body.get("text") or {}).get("format")
        if form:
            return Reply({"error": {"message": f"{form['type']} is not available"}}, 400)
        return Reply(chat("PASS") if "chat" in request.path else responses("PASS"))

    server.answer = answer
    scope = bench.scope(bench.gateway())
    schema = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
    for _ in range(2):
        assert scope.responses(model, {"input": "x", "text": {"format": schema}})["output_text"] == "PASS"
    assert len(server.requests) == 4
    assert scope.notes == [f"{model} does not take the format json_schema; no format was sent"]


def test_a_400_of_another_kind_teaches_nothing(bench: Bench, server: FakeServer) -> None:
    server.answer = lambda request: Reply({"error": {"message": "too long"}}, 400)
    scope = bench.scope(bench.gateway())
    schema = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
    with pytest.raises(CallError):
        scope.responses("local:j", {"input": "x", "text": {"format": schema}})
    server.answer = lambda request: Reply(chat("PASS"))
    scope.responses("local:j", {"input": "x", "text": {"format": schema}})
    assert server.bodies()[-1]["response_format"]["type"] == "json_schema"


def test_ctx(bench: Bench, server: FakeServer) -> None:
    def answer(request: Request) -> Reply:
        if request.path == "/v1/embeddings":
            return Reply({"model": "e", "data": [{"embedding": [1.0]}], "usage": {"prompt_tokens": 2}})
        return Reply(responses("yes"))

    server.answer = answer
    scope = bench.scope(bench.gateway())
    ctx = scope.ctx("openai:judge", "openai:emb", 3)
    reply = ctx("responses_create", {"model": "auto", "input": "x", "stream": True, "background": True, "store": False})
    waited_s = ctx.waited_s  # the client's import, once
    assert reply["output_text"] == "yes"
    assert server.bodies()[0] == {"model": "judge", "input": "x", "stream": False, "store": True, "background": False}
    assert ctx("responses_create", {"model": "openai:other", "input": "x"})["id"] == "resp_1"
    assert server.bodies()[1]["model"] == "other"
    assert ctx("embeddings_create", {"input": ["a"]})["data"][0]["embedding"] == [1.0]
    with pytest.raises(CallRefused, match="max_model_calls=3"):
        ctx("responses_create", {"input": "x"})
    assert [call["role"] for call in scope.calls] == ["judge", "judge", "embedding"]
    assert ctx.waited_s - waited_s < 0.5


@pytest.mark.parametrize(
    ("method", "fields", "words"),
    [
        ("responses_create", {"input": "x"}, "run.judge_model"),
        ("responses_create", {"model": "auto", "input": "x"}, "--evals-judge-model"),
        ("embeddings_create", {"input": "x"}, "--evals-embedding-model"),
        ("files_create", {}, "responses_create and embeddings_create"),
        ("responses_create", {"model": "nowhere:m", "input": "x"}, "unknown provider"),
        ("responses_create", {"model": 3, "input": "x"}, "model must be text"),
        ("responses_create", {"model": "openai:m", "input": "x", "temperature": float("nan")}, "not JSON"),
        ("responses_create", {"model": "openai:m", "input": {1, 2}}, "not JSON"),
        ("responses_create", {"model": "openai:m", "input": "x", "extra_headers": {}}, "extra_headers"),
    ],
)
def test_ctx_refuses(bench: Bench, server: FakeServer, method: str, fields: dict[str, Any], words: str) -> None:
    ctx = bench.scope(bench.gateway()).ctx(None, None, 5)
    with pytest.raises(CallRefused, match=words.replace(".", r"\.")):
        ctx(method, fields)
    assert server.requests == []


def test_waiting_in_the_queue_is_not_the_graders_time(bench: Bench, server: FakeServer) -> None:
    server.answer = lambda request: Reply(responses("4"), delay_s=0.3)
    gateway = bench.gateway(concurrency=1)
    bench.scope(gateway, "first").generate("cand", prompt="imports the client")
    contexts = [bench.scope(gateway, str(n)).ctx("openai:j", None, 5) for n in range(2)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda ctx: ctx("responses_create", {"input": "x"}), contexts))
    waits = sorted(ctx.waited_s for ctx in contexts)
    assert waits[0] < 0.25 < waits[1] < 1.5


def test_neither_pauses_nor_the_clients_import_are_the_graders_time(
    bench: Bench, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answer = lambda request: (
        Reply({}, 503, {"Retry-After": "0.3"}) if request.nth == 1 else Reply(responses("4"), delay_s=0.2)
    )
    gateway = bench.gateway()
    prepare = gateway.transport.prepare

    def prepared(provider: ProviderConfig) -> None:
        time.sleep(0.4)
        prepare(provider)

    monkeypatch.setattr(gateway.transport, "prepare", prepared)
    ctx = bench.scope(gateway).ctx("openai:j", None, 5)
    began = time.monotonic()
    ctx("responses_create", {"input": "x"})
    took = time.monotonic() - began
    assert 0.68 < ctx.waited_s < took - 0.18


def test_an_endpoint_is_asked_without_the_key(bench: Bench, server: FakeServer) -> None:
    server.answer = lambda request: Reply({"reward": 1.0} if request.method == "POST" else {"name": "n"})
    scope = bench.scope(bench.gateway())
    assert scope.endpoint(server.url, "/info") == {"name": "n"}
    assert scope.endpoint(server.url, "score", {"turns": ["\ud800"]}) == {"reward": 1.0}
    assert [(request.method, request.path) for request in server.requests] == [("GET", "/info"), ("POST", "/score")]
    assert KEY not in str(server.requests[1].headers)
    assert scope.usage["model_calls"] == 0
    with pytest.raises(CallError, match="neither an address"):
        scope.endpoint("nowhere", "score", {})


def test_lone_surrogates_are_sent_as_replacements(bench: Bench, server: FakeServer) -> None:
    bench.scope(bench.gateway()).generate("cand", prompt="a \ud800 é")
    assert server.bodies()[0]["input"] == "a ? é"


def test_calls_overlap_up_to_the_limit(bench: Bench, server: FakeServer) -> None:
    server.answer = lambda request: Reply(responses("4"), delay_s=0.05)
    gateway = bench.gateway(concurrency=5)
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(lambda n: bench.scope(gateway, str(n)).generate("cand", prompt=f"{n}"), range(40)))
    assert server.most_in_flight == 5


def test_the_budget_counts_attempts(bench: Bench, server: FakeServer) -> None:
    server.answer = lambda request: Reply(responses("4")) if request.nth > 1 else Reply({}, 500)
    scope = bench.scope(bench.gateway(max_calls=3))
    assert scope.generate("cand", prompt="a").output_text == "4"
    with pytest.raises(BudgetExhausted, match="budget of 3 model calls"):
        scope.generate("cand", prompt="b")
    assert len(server.requests) == 3


def test_a_suite_has_a_limit_of_its_own(bench: Bench, server: FakeServer) -> None:
    server.answer = lambda request: Reply(responses("4"), delay_s=0.05)
    gateway = bench.gateway(concurrency=8)

    def ask(n: int) -> None:
        scope = gateway.scope(
            suite="s", recording=bench.recording, task_id="t", sample_id=str(n), model="cand", suite_limit=2
        )
        scope.generate("cand", prompt=str(n))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(8)))
    assert server.most_in_flight == 2


def test_abort_frees_those_who_wait(bench: Bench, server: FakeServer) -> None:
    server.answer = lambda request: Reply(responses("4"), delay_s=1)
    gateway = bench.gateway(concurrency=1)
    errors: list[CallError] = []

    def ask(n: int) -> None:
        try:
            bench.scope(gateway, str(n)).generate("cand", prompt=str(n))
        except CallError as error:
            errors.append(error)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    while not server.requests:
        time.sleep(0.01)
    began = time.monotonic()
    gateway.abort()
    for thread in threads:
        thread.join()
    assert time.monotonic() - began < 15  # the three answers one after the other, and no repeats
    assert [error.type_name for error in errors] == ["Interrupted"] * 3
    with pytest.raises(CallError, match="the run was interrupted"):
        bench.scope(gateway).generate("cand", prompt="x")
    gateway.close()
    gateway.close()


def test_a_missing_key_is_an_error_in_words(bench: Bench, server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = bench.gateway()
    monkeypatch.setattr(gateway.providers, "_env", {})
    with pytest.raises(CallError, match="OPENAI_API_KEY is not set"):
        bench.scope(gateway).generate("cand", prompt="x")
    assert "OPENAI_API_KEY" in str(gateway.providers.check("cand", may_call=True)[0])
    assert server.requests == []


def test_the_longest_call_counts_attempts_and_pauses() -> None:
    provider = ProviderConfig("local", "http://127.0.0.1", timeout_seconds=100, max_retries=2)
    assert provider.longest_call_s({}) == 3 * 100 + 2 * 30
    assert provider.longest_call_s({"timeout_seconds": 10, "max_retries": 0}) == 10
    assert provider.longest_call_s({"max_empty_retries": 1}) == 2 * 360


def test_importing_the_gateway_imports_no_client() -> None:
    import subprocess

    code = "import sys, pytest_evalgrader.gateway.client; print({'openai', 'httpx', 'pytest'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"


def test_a_block_that_the_request_opened_may_be_closed_by_the_server(bench: Bench, server: FakeServer) -> None:
    server.answer = lambda request: Reply(chat("4", reasoning_content="2 and 2"))
    scope = bench.scope(bench.gateway())
    generation = scope.generate("local:cand", prompt="p", generation={"prefill_think": True})
    assert (generation.output_text, generation.reasoning) == ("4", "2 and 2")
    assert not generation.reasoning_unclosed
