"""Settings, bodies and replies of the two APIs."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_evalgrader.errors import CallRefused
from pytest_evalgrader.gateway import bodies
from pytest_evalgrader.gateway.providers import ProviderConfig

RESPONSES = ProviderConfig("openai", "http://h/v1")
CHAT = ProviderConfig("local", "http://h/v1", api="chat_completions")
FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object"}}
CHAT_FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
SCHEMA = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}


def body(api: Any, **generation: Any) -> dict[str, Any]:
    built = bodies.generation_body(api, "m", prompt="p", messages=None, generation=generation)
    assert not bodies.check_generation(RESPONSES if api == "responses" else CHAT, generation)
    return built


@pytest.mark.parametrize(
    "settings",
    [
        {"instructions": "i", "temperature": 0, "top_p": 0.5, "max_output_tokens": 7},
        {"reasoning": {"effort": "low", "summary": "auto"}, "text": {"format": SCHEMA, "verbosity": "low"}},
        {"tools": [FUNCTION], "tool_choice": {"type": "function", "name": "f"}, "parallel_tool_calls": False},
        {"max_tool_calls": 2, "truncation": "auto", "service_tier": "flex"},
    ],
)
def test_the_responses_api_gets_its_settings_as_they_are(settings: dict[str, Any]) -> None:
    assert body("responses", **settings) == {"model": "m", "input": "p", **settings}


@pytest.mark.parametrize(
    ("settings", "sent"),
    [
        ({"temperature": 0, "top_p": 0.5, "max_output_tokens": 7}, {"temperature": 0, "top_p": 0.5, "max_tokens": 7}),
        ({"stop": ["a", "b"]}, {"stop": ["a", "b"]}),
        ({"stop": list("abcdef")}, {"stop": list("abcd")}),
        ({"reasoning": {"effort": "low"}}, {"reasoning_effort": "low"}),
        (
            {"text": {"format": SCHEMA}},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True},
                }
            },
        ),
        ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
        ({"text": {"format": {"type": "text"}, "verbosity": "low"}}, {"verbosity": "low"}),
        (
            {"tools": [FUNCTION], "tool_choice": {"type": "function", "name": "f"}},
            {"tools": [CHAT_FUNCTION], "tool_choice": {"type": "function", "function": {"name": "f"}}},
        ),
        ({"presence_penalty": 1, "frequency_penalty": 2}, {"presence_penalty": 1, "frequency_penalty": 2}),
        (
            {"top_k": 3, "min_p": 0.1, "repetition_penalty": 1.1, "do_sample": False, "service_tier": "flex"},
            {"top_k": 3, "min_p": 0.1, "repetition_penalty": 1.1, "do_sample": False, "service_tier": "flex"},
        ),
        (
            {"chat_template_kwargs": {"enable_thinking": False}, "extra_body": {"seed": 1}},
            {"chat_template_kwargs": {"enable_thinking": False}, "seed": 1},
        ),
        ({"timeout_seconds": 3, "max_retries": 1, "max_empty_retries": 1, "use_cache": True}, {}),
    ],
)
def test_chat_completions_get_settings_under_their_names(settings: dict[str, Any], sent: dict[str, Any]) -> None:
    assert body("chat_completions", **settings) == {
        "model": "m",
        "messages": [{"role": "user", "content": "p"}],
        **sent,
    }


def test_instructions_and_prefill_become_messages() -> None:
    assert body("chat_completions", instructions="i", prefill_think=True) == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "i"},
            {"role": "user", "content": "p"},
            {"role": "assistant", "content": "<think>\n"},
        ],
        "add_generation_prompt": False,
        "continue_final_message": True,
    }


def test_stop_is_not_sent_to_the_responses_api() -> None:
    assert body("responses", stop=["x"]) == {"model": "m", "input": "p"}


@pytest.mark.parametrize(
    ("provider", "settings", "where", "words"),
    [
        *[
            (RESPONSES, {key: value}, key, 'api = "chat_completions"')
            for key, value in {
                "top_k": 3,
                "min_p": 0.1,
                "repetition_penalty": 1.0,
                "do_sample": True,
                "presence_penalty": 0.0,
                "frequency_penalty": 1,
                "chat_template_kwargs": {},
                "prefill_think": True,
            }.items()
        ],
        (CHAT, {"max_tool_calls": 1}, "max_tool_calls", 'api = "responses"'),
        (CHAT, {"truncation": "auto"}, "truncation", 'api = "responses"'),
        (CHAT, {"reasoning": {"summary": "auto"}}, "reasoning.summary", "reasoning.effort"),
        (CHAT, {"extra_body": {"model": "x"}}, "extra_body.model", "cannot be replaced"),
        (RESPONSES, {"tools": [{"type": "web_search"}]}, "tools", "allow_tools = true"),
        (RESPONSES, {"extra_body": {"tools": [{"type": "mcp"}]}}, "extra_body.tools", "allow_tools = true"),
        (RESPONSES, {"extra_body": {"previous_response_id": "r"}}, "extra_body.previous_response_id", "allow_tools"),
    ],
)
def test_what_the_api_does_not_have_is_refused(
    provider: ProviderConfig, settings: dict[str, Any], where: str, words: str
) -> None:
    problems = bodies.check_generation(provider, settings)
    assert [problem.where for problem in problems] == [where]
    assert words in problems[0].message


def test_allowed_tools_are_sent() -> None:
    provider = ProviderConfig("openai", "http://h/v1", allow_tools=True)
    assert bodies.check_generation(provider, {"tools": [{"type": "web_search"}]}) == []


def test_rows_with_messages() -> None:
    messages = [
        {"role": "document", "content": "d"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]},
        {"role": "developer", "content": None},
    ]
    chat = bodies.generation_body("chat_completions", "m", prompt=None, messages=messages, generation={})
    assert chat["messages"] == [
        {"role": "user", "content": "d"},
        {"role": "user", "content": "ab"},
        {"role": "system", "content": ""},
    ]
    responses = bodies.generation_body("responses", "m", prompt=None, messages=messages, generation={})
    assert responses["input"][1]["content"] == [
        {"type": "input_text", "text": "a"},
        {"type": "input_text", "text": "b"},
    ]
    image = [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}, {"type": "text", "text": "x"}]}
    ]
    responses = bodies.generation_body("responses", "m", prompt=None, messages=image, generation={})
    assert responses["input"][0]["content"][0] == {"type": "input_image", "image_url": "u", "detail": "auto"}
    chat = bodies.generation_body("chat_completions", "m", prompt=None, messages=image, generation={})
    assert chat["messages"][0]["content"][0] == {"type": "image_url", "image_url": {"url": "u"}}
    for bad in ([], ["text"], [{"content": "x"}]):
        with pytest.raises(CallRefused):
            bodies.generation_body("responses", "m", prompt=None, messages=bad, generation={})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "more",
    [
        {"extra_headers": {}},
        {"timeout": 1},
        {"previous_response_id": "r"},
        {"tools": []},
        {"conversation": "c"},
        {"n": 2},
        {"include": []},
    ],
)
def test_graders_may_not_send(more: dict[str, Any]) -> None:
    with pytest.raises(CallRefused, match=next(iter(more))):
        bodies.check_ctx_fields("responses_create", {"input": "x", **more}, RESPONSES)


@pytest.mark.parametrize(
    ("item", "named"),
    [
        ({"type": "item_reference", "id": "msg_1"}, "an item_reference"),
        ({"role": "user", "content": [{"type": "input_file", "file_id": "file-1"}]}, "a file_id"),
        ({"role": "user", "content": [{"type": "input_image", "file_id": "file-1"}]}, "a file_id"),
        ({"type": "code_interpreter_call", "container_id": "c"}, "a container_id"),
    ],
)
def test_graders_may_not_name_what_the_provider_stores(item: dict[str, Any], named: str) -> None:
    fields = {"input": [{"role": "user", "content": "the file_id"}, item]}
    with pytest.raises(CallRefused, match=f"{named} in input.*allow_tools = true"):
        bodies.check_ctx_fields("responses_create", fields, RESPONSES)
    allowing = ProviderConfig("openai", "http://h/v1", allow_tools=True)
    bodies.check_ctx_fields("responses_create", fields, allowing)
    bodies.check_ctx_fields("responses_create", {"input": fields["input"][:1]}, RESPONSES)


def test_graders_may_send() -> None:
    fields = dict.fromkeys(bodies.CTX_RESPONSE_FIELDS, "x")
    bodies.check_ctx_fields("responses_create", fields, RESPONSES)
    bodies.check_ctx_fields("embeddings_create", {"input": "x", "dimensions": 3, "encoding_format": "float"}, RESPONSES)
    allowing = ProviderConfig("openai", "http://h/v1", allow_tools=True)
    bodies.check_ctx_fields("responses_create", {"input": "x", "tools": [], "previous_response_id": "r"}, allowing)
    with pytest.raises(CallRefused, match="temperature"):
        bodies.check_ctx_fields("embeddings_create", {"input": "x", "temperature": 0}, RESPONSES)
    with pytest.raises(CallRefused, match="timeout"):
        bodies.check_ctx_fields("responses_create", {"input": "x", "timeout": 3}, allowing)
    with pytest.raises(CallRefused, match="input is missing"):
        bodies.check_ctx_fields("responses_create", {}, RESPONSES)


def test_a_judges_body_is_translated() -> None:
    asked = {
        "model": "m",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "q"}]}],
        "instructions": "i",
        "max_output_tokens": 5,
        "text": {"format": SCHEMA},
        "reasoning": {"effort": "low"},
        "metadata": {"a": "b"},
        "store": True,
        "stream": False,
        "background": False,
        "truncation": "auto",
    }
    assert bodies.chat_body(asked) == {
        "model": "m",
        "messages": [{"role": "system", "content": "i"}, {"role": "user", "content": "q"}],
        "max_tokens": 5,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True},
        },
        "reasoning_effort": "low",
    }
    with pytest.raises(CallRefused, match="function_call_output"):
        bodies.chat_body({"model": "m", "input": [{"type": "function_call_output", "output": "x"}]})


def chat(message: dict[str, Any], **choice: Any) -> dict[str, Any]:
    return {"id": "c", "model": "m", "choices": [{"message": message, **choice}], "usage": {"prompt_tokens": 3}}


@pytest.mark.parametrize(
    ("data", "text", "status", "reason"),
    [
        (chat({"content": "a"}), "a", "completed", None),
        (chat({"content": None}, finish_reason="length"), "", "incomplete", "max_output_tokens"),
        (chat({"content": None}, finish_reason="content_filter"), "", "incomplete", "content_filter"),
        (chat({"content": "", "reasoning_content": "r"}), "", "completed", None),
        (chat({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}), "ab", "completed", None),
        ({"id": "c", "choices": []}, "", "completed", None),
    ],
)
def test_chat_replies_become_responses(data: dict[str, Any], text: str, status: str, reason: str | None) -> None:
    out = bodies.responses_dict("chat_completions", data)
    assert (out["output_text"], out["status"]) == (text, status)
    assert out["incomplete_details"] == (None if reason is None else {"reason": reason})


def test_parts_of_chat_replies_are_kept() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    out = bodies.responses_dict(
        "chat_completions", chat({"content": "a", "reasoning_content": "r", "tool_calls": [call]})
    )
    assert [item["type"] for item in out["output"]] == ["reasoning", "message", "function_call"]
    odd = bodies.responses_dict("chat_completions", chat({"content": "a", "tool_calls": 5}))
    assert [item["type"] for item in odd["output"]] == ["message"]
    refused = bodies.responses_dict("chat_completions", chat({"content": None, "refusal": "no"}))
    assert refused["output"][0]["content"] == [{"type": "refusal", "refusal": "no"}]


@pytest.mark.parametrize(
    "thought",
    [
        {"type": "thinking", "thinking": [{"type": "text", "text": "why"}]},
        {"type": "thinking", "thinking": "why"},
        {"type": "reasoning", "text": "why"},
        {"type": "reasoning_text", "text": "why"},
    ],
)
def test_reasoning_among_the_parts_of_a_chat_reply_is_kept_apart(thought: dict[str, Any]) -> None:
    reply = bodies.read_chat(chat({"content": [thought, {"type": "text", "text": "4"}]}))
    assert (reply.text, reply.reasoning) == ("4", "why")


def test_a_refusal_among_the_parts_of_a_chat_reply_is_one() -> None:
    reply = bodies.read_chat(chat({"content": [{"type": "refusal", "refusal": "no"}]}))
    assert (reply.text, reply.refusal) == ("", "no")


def test_responses_replies_are_read() -> None:
    data = {
        "id": "r",
        "model": "m",
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
        "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "why"}]},
            {
                "type": "message",
                "content": [{"type": "output_text", "text": "a"}, {"type": "output_text", "text": "b"}],
            },
            {"type": "function_call", "name": "f"},
        ],
        "usage": {"input_tokens": 3, "output_tokens": None},
    }
    reply = bodies.read_responses(data)
    assert (reply.text, reply.reasoning, reply.ended) == ("ab", "why", "max_output_tokens")
    assert (reply.input_tokens, reply.output_tokens) == (3, 0)
    assert bodies.responses_dict("responses", data)["output_text"] == "ab"


@pytest.mark.parametrize(
    ("api", "data"),
    [
        ("responses", {"error": {"message": "overloaded"}}),
        ("chat_completions", {"error": {"message": "overloaded", "code": 529}}),
        ("chat_completions", {"choices": None, "error": "overloaded"}),
    ],
)
def test_an_error_that_came_with_status_200_is_told(api: Any, data: dict[str, Any]) -> None:
    with pytest.raises(bodies.UnusableReply, match="this has an error: overloaded"):
        bodies.read_reply(api, data)


@pytest.mark.parametrize(
    ("api", "data"),
    [
        ("responses", {}),
        ("responses", {"output": "text"}),
        ("responses", {"output": ["text"]}),
        ("responses", {"output": [{"type": "message", "content": 5}]}),
        ("responses", {"output": [], "status": "failed", "error": {"message": "m"}}),
        ("chat_completions", {"choices": None}),
        ("chat_completions", {"choices": ["x"]}),
        ("chat_completions", {"choices": [{"message": None}]}),
    ],
)
def test_other_bodies_are_unusable(api: Any, data: dict[str, Any]) -> None:
    with pytest.raises(bodies.UnusableReply):
        bodies.read_reply(api, data)


def test_embeddings_are_looked_at() -> None:
    assert bodies.read_embeddings({"data": [{"embedding": [0.0]}], "usage": {"prompt_tokens": 2}})["input_tokens"] == 2
    for bad in ({}, {"data": [{}]}, {"data": ["x"]}, {"data": None}):
        with pytest.raises(bodies.UnusableReply):
            bodies.read_embeddings(bad)


def test_a_switch_that_changes_the_sampling_is_refused_also_when_off() -> None:
    assert [p.where for p in bodies.check_generation(RESPONSES, {"do_sample": False})] == ["do_sample"]
    assert bodies.check_generation(RESPONSES, {"prefill_think": False}) == []
