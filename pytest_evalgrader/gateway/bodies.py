"""Request bodies and replies of the two text APIs, and the way between them. Pure functions on builtins.

The Responses API's shape is the common one: `ctx`, judges and recordings of them use it with every provider, and what
a chat completions server answers is brought into it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import CallRefused, Problem
from .providers import Api, ProviderConfig

# Settings of this program, never part of a body.
OWN_SETTINGS = ("timeout_seconds", "max_retries", "max_empty_retries", "use_cache")

_BOTH = ("temperature", "top_p", "parallel_tool_calls", "service_tier", "tool_choice", "tools")
_RESPONSES_ONLY = ("instructions", "max_output_tokens", "reasoning", "text", "max_tool_calls", "truncation")
_CHAT_ONLY = (
    "presence_penalty",
    "frequency_penalty",
    "top_k",
    "min_p",
    "repetition_penalty",
    "do_sample",
    "chat_template_kwargs",
)
# extra_body may not replace these: they decide which model is asked what, and how the answer is read.
_RESERVED_EXTRA = ("model", "input", "messages", "stream", "background", "n", "prompt")
_STORED_STATE = ("previous_response_id", "conversation", "prompt", "include")

CTX_RESPONSE_FIELDS = frozenset(
    (
        "model",
        "input",
        "instructions",
        "temperature",
        "top_p",
        "max_output_tokens",
        "text",
        "reasoning",
        "metadata",
        "truncation",
        "service_tier",
        "stream",
        "store",
        "background",
    )
)
CTX_TOOL_FIELDS = frozenset(
    ("tools", "tool_choice", "parallel_tool_calls", "max_tool_calls", "previous_response_id", "conversation", "include")
)
CTX_EMBEDDING_FIELDS = frozenset(("model", "input", "dimensions", "encoding_format"))
_CLIENT_OPTIONS = ("extra_headers", "extra_query", "extra_body", "timeout", "idempotency_key", "max_retries")

_CHAT_STOPS = 4
_REASONING_PARTS = ("thinking", "reasoning", "reasoning_text", "reasoning_content")
# What a part of `input` names that the provider stores: other people's data, too.
_STORED_PARTS = ("file_id", "container_id")


def check_generation(provider: ProviderConfig, generation: Mapping[str, Any]) -> list[Problem]:
    """List the settings that a provider's API does not have, or that its configuration does not allow.

    Args:
        provider: Who will be asked.
        generation: The merged `generation` of run and task; None means not set.

    Returns:
        Problems whose `where` is the setting's name.
    """
    problems = []
    given = {key: value for key, value in generation.items() if value is not None}
    chat = 'set api = "chat_completions" for the provider where its server has that API, or take the setting out'
    if provider.api == "responses":
        for key in (*_CHAT_ONLY, "prefill_think"):
            if key in given and (key != "prefill_think" or given[key]):
                problems.append(
                    Problem(key, f"the Responses API of provider {provider.name} has no such setting; {chat}.")
                )
    else:
        for key in ("max_tool_calls", "truncation"):
            if key in given:
                problems.append(
                    Problem(
                        key,
                        f"chat completions (provider {provider.name}) have no such setting; take it out, or set "
                        'api = "responses" for the provider.',
                    )
                )
        for key, inner in (("reasoning", ("effort",)), ("text", ("format", "verbosity"))):
            for name in sorted(set(given.get(key) or ()) - set(inner)):
                problems.append(
                    Problem(
                        f"{key}.{name}",
                        f"chat completions (provider {provider.name}) have no such setting; they have "
                        f"{' and '.join(f'{key}.{part}' for part in inner)}.",
                    )
                )
    extra = given.get("extra_body") or {}
    for key in _RESERVED_EXTRA:
        if key in extra:
            problems.append(Problem(f"extra_body.{key}", "is set by the run and cannot be replaced; take it out."))
    if not provider.allow_tools:
        hosted = [("tools", tool) for tool in given.get("tools") or ()]
        hosted += [("extra_body.tools", tool) for tool in extra.get("tools") or ()]
        for where, tool in hosted:
            kind = tool.get("type") if isinstance(tool, Mapping) else None
            if kind not in ("function", "custom"):
                problems.append(Problem(where, _tools_refusal(provider, f"the hosted tool {kind!r}")))
        for key in _STORED_STATE:
            if key in extra:
                problems.append(Problem(f"extra_body.{key}", _tools_refusal(provider, f"{key} (stored state)")))
    return problems


def generation_body(
    api: Api,
    model: str,
    *,
    prompt: str | None,
    messages: Sequence[Mapping[str, Any]] | None,
    generation: Mapping[str, Any],
) -> dict[str, Any]:
    """Build the request of a candidate.

    Args:
        api: Which API is asked.
        model: The model's name there.
        prompt: The prompt, or None where `messages` are the request.
        messages: The row's messages; a `document` turn is sent as a user's.
        generation: The merged `generation`; what the API does not have is left out (`check_generation` refuses it).

    Returns:
        The body.

    Raises:
        CallRefused: The messages cannot be a request.
    """
    given = {key: value for key, value in generation.items() if value is not None}
    turns = [{"role": "user", "content": prompt}] if prompt is not None else _turns(messages or ())
    if not turns:
        raise CallRefused("there is neither a prompt nor a message to send")
    body: dict[str, Any] = {"model": model}
    if api == "responses":
        body["input"] = prompt if prompt is not None else [_responses_turn(turn) for turn in turns]
        for key in (*_BOTH, *_RESPONSES_ONLY):
            if key in given:
                body[key] = given[key]
        if "tools" in body:
            body["tools"] = [_responses_tool(tool) for tool in body["tools"]]
    else:
        body["messages"] = [_chat_turn(turn) for turn in turns]
        if given.get("instructions"):
            body["messages"].insert(0, {"role": "system", "content": given["instructions"]})
        for key in (*_BOTH, *_CHAT_ONLY):
            if key in given:
                body[key] = given[key]
        body |= _chat_names(given)
        stop = given.get("stop")
        if stop:
            # OpenAI takes at most four; the answer is cut here in any case.
            body["stop"] = ([stop] if isinstance(stop, str) else list(stop))[:_CHAT_STOPS]
        if given.get("prefill_think"):
            body["messages"].append({"role": "assistant", "content": prefill(given["prefill_think"])})
            body |= {"add_generation_prompt": False, "continue_final_message": True}
    extra = given.get("extra_body") or {}
    return body | {key: value for key, value in extra.items() if key not in _RESERVED_EXTRA}


def prefill(setting: object) -> str:
    """Return the text that `prefill_think` puts at the start of the answer."""
    return setting if isinstance(setting, str) else "<think>\n"


def check_ctx_fields(method: str, fields: Mapping[str, Any], provider: ProviderConfig) -> None:
    """Refuse what a grader may not send.

    Args:
        method: `responses_create` or `embeddings_create`.
        fields: What the grader gave.
        provider: Who would be asked.

    Raises:
        CallRefused: A field is outside the allow-list, or is missing.
    """
    allowed = CTX_RESPONSE_FIELDS if method == "responses_create" else CTX_EMBEDDING_FIELDS
    for field in fields:
        if field in allowed:
            continue
        if field in CTX_TOOL_FIELDS and method == "responses_create":
            if provider.allow_tools:
                continue
            raise CallRefused(f"ctx.{method}: " + _tools_refusal(provider, f"the field {field!r}"))
        what = "a client option" if field in _CLIENT_OPTIONS else "not a field a grader may send"
        raise CallRefused(f"ctx.{method}: {field!r} is {what}. Allowed: {', '.join(sorted(allowed))}.")
    if fields.get("input") is None:
        raise CallRefused(f"ctx.{method}: input is missing.")
    try:
        stored = None if provider.allow_tools else _stored(fields["input"])
    except RecursionError:
        raise CallRefused(f"ctx.{method}: input is nested too deep.") from None
    if stored is not None:
        raise CallRefused(f"ctx.{method}: " + _tools_refusal(provider, f"{stored} in input (stored state)"))


def _stored(value: object) -> str | None:
    """Name what an input takes from the provider's store, None where it brings everything itself."""
    if isinstance(value, Mapping):
        if value.get("type") == "item_reference":
            return "an item_reference"
        found = next((key for key in _STORED_PARTS if value.get(key) is not None), None)
        return f"a {found}" if found else next(filter(None, map(_stored, value.values())), None)
    if isinstance(value, (list, tuple)):
        return next(filter(None, map(_stored, value)), None)
    return None


def chat_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """Turn a Responses API body into one of chat completions.

    `metadata`, `truncation`, `store` and the other fields that only say how the Responses API keeps things are left
    out.

    Raises:
        CallRefused: The input holds what chat completions cannot carry.
    """
    given = body["input"]
    turns = [{"role": "user", "content": given}] if isinstance(given, str) else _turns(given)
    out: dict[str, Any] = {"model": body["model"], "messages": [_chat_turn(turn) for turn in turns]}
    if body.get("instructions"):
        out["messages"].insert(0, {"role": "system", "content": body["instructions"]})
    for key in _BOTH:
        if body.get(key) is not None:
            out[key] = body[key]
    return out | _chat_names(body)


@dataclass(frozen=True, slots=True)
class Reply:
    """What a text API answered.

    Args:
        text: The message's text, as it was said; empty where there was none.
        reasoning: Reasoning that the API itself keeps apart, or None.
        refusal: The model's refusal, where the API marks it as one.
        response_id: The API's id of the answer, or None.
        model: The model that the API says answered, or None.
        ended: None for a complete answer, else why it is not: `max_output_tokens`, `content_filter`, …
        empty: The reply holds no message at all.
        input_tokens: As counted by the API; 0 where it says nothing.
        output_tokens: Likewise.
    """

    text: str
    reasoning: str | None
    refusal: str | None
    response_id: str | None
    model: str | None
    ended: str | None
    empty: bool
    input_tokens: int
    output_tokens: int


class UnusableReply(ValueError):
    """A body that is not an answer of the API."""


def read_responses(data: Mapping[str, Any]) -> Reply:
    """Read a reply of the Responses API.

    Raises:
        UnusableReply: It is not one.
    """
    output = data.get("output")
    if not isinstance(output, list):
        raise UnusableReply(f"an answer of the Responses API has a list `output`; this has {_keys(data)}")
    if data.get("status") in ("failed", "cancelled"):
        raise UnusableReply(f"the provider says that the response {data['status']}: {error_text(data)}")
    texts: list[str] = []
    reasoning: list[str] = []
    refusals: list[str] = []
    empty = True
    for item in output:
        if not isinstance(item, Mapping):
            raise UnusableReply("an item of `output` is not an object")
        parts = item.get("content")
        if item.get("type") == "reasoning":
            reasoning += [*_texts(item.get("summary")), *_texts(parts)]
        elif item.get("type") in ("message", None):
            empty = False
            if isinstance(parts, str):
                texts.append(parts)
                continue
            if parts is not None and not isinstance(parts, list):
                raise UnusableReply(f"the content of a message is {type(parts).__name__}, not a list of parts")
            for part in parts or ():
                if isinstance(part, Mapping) and part.get("type") in ("output_text", "text"):
                    texts.append(_text(part.get("text")))
                elif isinstance(part, Mapping) and part.get("type") == "refusal":
                    refusals.append(_text(part.get("refusal")))
        else:
            empty = False
    ended = None
    if data.get("status") == "incomplete":
        details = data.get("incomplete_details")
        ended = str(details.get("reason") or "incomplete") if isinstance(details, Mapping) else "incomplete"
    return Reply(
        text="".join(texts),
        reasoning="\n\n".join(part for part in reasoning if part) or None,
        refusal="".join(refusals) or None,
        response_id=_name(data.get("id")),
        model=_name(data.get("model")),
        ended=ended,
        empty=empty,
        **_usage(data, "input_tokens", "output_tokens"),
    )


def read_chat(data: Mapping[str, Any]) -> Reply:
    """Read a reply of chat completions.

    Raises:
        UnusableReply: It is not one.
    """
    choices = data.get("choices")
    if not isinstance(choices, list):
        raise UnusableReply(f"an answer of chat completions has a list `choices`; this has {_keys(data)}")
    first = choices[0] if choices else {}
    if not isinstance(first, Mapping):
        raise UnusableReply("the first of `choices` is not an object")
    message = first.get("message")
    if choices and not isinstance(message, Mapping):
        raise UnusableReply("the first of `choices` has no `message`")
    said: Mapping[str, Any] = message if isinstance(message, Mapping) else {}
    content = said.get("content")
    reason = first.get("finish_reason")
    ended = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(str(reason))
    # A list of parts may hold the reasoning (Mistral) or a refusal beside the answer.
    parts = content if isinstance(content, list) else [content]
    kinds = [part.get("type") if isinstance(part, Mapping) else None for part in parts]
    thoughts = [said.get("reasoning_content") or said.get("reasoning")]
    for part, kind in zip(parts, kinds, strict=True):
        if kind in _REASONING_PARTS:
            thoughts.append("".join(_texts(part.get("thinking") or part.get("text"))))
    refused = [_text(part.get("refusal")) for part, kind in zip(parts, kinds, strict=True) if kind == "refusal"]
    answer = [part for part, kind in zip(parts, kinds, strict=True) if kind not in (*_REASONING_PARTS, "refusal")]
    return Reply(
        text="".join(_texts(answer)),
        reasoning="\n\n".join(text for text in thoughts if isinstance(text, str) and text) or None,
        refusal=_name(said.get("refusal")) or "".join(refused) or None,
        response_id=_name(data.get("id")),
        model=_name(data.get("model")),
        ended=ended,
        empty=not choices,
        **_usage(data, "prompt_tokens", "completion_tokens"),
    )


def read_reply(api: Api, data: Mapping[str, Any]) -> Reply:
    """Read a reply of either API.

    Raises:
        UnusableReply: It is not one.
    """
    return read_responses(data) if api == "responses" else read_chat(data)


def read_embeddings(data: Mapping[str, Any]) -> dict[str, int]:
    """Look whether a body is an answer of the embeddings API.

    Returns:
        `input_tokens` and `output_tokens` (0).

    Raises:
        UnusableReply: It is not one.
    """
    rows = data.get("data")
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) and row.get("embedding") for row in rows):
        raise UnusableReply(f"an answer of the embeddings API has `data[i].embedding`; this has {_keys(data)}")
    return _usage(data, "prompt_tokens", "total_tokens") | {"output_tokens": 0}


def responses_dict(api: Api, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a reply of either API as a plain dict of the Responses API, with `output_text`.

    Raises:
        UnusableReply: It is not a reply of that API.
    """
    reply = read_reply(api, data)
    if api == "responses":
        return {**data, "output_text": reply.text}
    output: list[dict[str, Any]] = []
    if reply.reasoning:
        output.append(
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": reply.reasoning}]}
        )
    if not reply.empty:
        content: list[dict[str, Any]] = [{"type": "output_text", "text": reply.text, "annotations": []}]
        if reply.refusal:
            content = [{"type": "refusal", "refusal": reply.refusal}]
        output.append({"type": "message", "role": "assistant", "status": "completed", "content": content})
        for call in _tool_calls(data):
            output.append(call)
    return {
        "id": reply.response_id,
        "object": "response",
        "created_at": data.get("created"),
        "status": "incomplete" if reply.ended else "completed",
        "incomplete_details": {"reason": reply.ended} if reply.ended else None,
        "model": reply.model,
        "output": output,
        "output_text": reply.text,
        "usage": {
            "input_tokens": reply.input_tokens,
            "output_tokens": reply.output_tokens,
            "total_tokens": reply.input_tokens + reply.output_tokens,
        },
    }


def error_text(data: object) -> str:
    """Return what an error body says, in one line of at most 500 characters."""
    found: object = data
    if isinstance(data, Mapping):
        found = data.get("error", data.get("detail", data.get("message", data)))
        if isinstance(found, Mapping):
            found = found.get("message", found)
    text = found if isinstance(found, str) else json.dumps(found, default=repr)
    text = " ".join(text.split())
    return text if len(text) <= 500 else text[:500] + "…"


def _tools_refusal(provider: ProviderConfig, what: str) -> str:
    return (
        f"{what} leads to the network or to data that the provider stores, and is not allowed. Where that is wanted, "
        f"set allow_tools = true in [tool.evalgrader.providers.{provider.name}] of pyproject.toml."
    )


def _chat_names(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that chat completions have under another name."""
    out: dict[str, Any] = {}
    if given.get("max_output_tokens") is not None:
        out["max_tokens"] = given["max_output_tokens"]
    reasoning = given.get("reasoning") or {}
    if reasoning.get("effort") is not None:
        out["reasoning_effort"] = reasoning["effort"]
    text = given.get("text") or {}
    if text.get("verbosity") is not None:
        out["verbosity"] = text["verbosity"]
    form = text.get("format")
    if form and form.get("type") == "json_schema" and "json_schema" not in form:
        out["response_format"] = {
            "type": "json_schema",
            "json_schema": {key: value for key, value in form.items() if key != "type"},
        }
    elif form and form.get("type") != "text":
        out["response_format"] = form
    if given.get("tools"):
        out["tools"] = [_chat_tool(tool) for tool in given["tools"]]
    choice = given.get("tool_choice")
    if isinstance(choice, Mapping) and choice.get("type") == "function" and "name" in choice:
        out["tool_choice"] = {"type": "function", "function": {"name": choice["name"]}}
    return out


def _turns(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    turns = []
    for place, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            kind = message.get("type") if isinstance(message, Mapping) else None
            raise CallRefused(
                f"messages[{place}] must be an object with `role` and `content`"
                + (f"; an item of type {kind!r} cannot be sent" if kind else "")
            )
        turn = dict(message)
        if turn["role"] == "document":
            turn["role"] = "user"
        turns.append(turn)
    return turns


def _responses_turn(turn: dict[str, Any]) -> dict[str, Any]:
    content = turn.get("content")
    if isinstance(content, list):
        kind = "output_text" if turn["role"] == "assistant" else "input_text"
        content = [_responses_part(part, kind) for part in content]
    return {"role": turn["role"], "content": "" if content is None else content}


def _responses_part(part: object, kind: str) -> object:
    if not isinstance(part, Mapping):
        return {"type": kind, "text": part} if isinstance(part, str) else part
    if part.get("type") == "text":
        return {"type": kind, "text": part.get("text", "")}
    if part.get("type") == "image_url":
        image = part.get("image_url")
        url = image.get("url") if isinstance(image, Mapping) else image
        detail = image.get("detail", "auto") if isinstance(image, Mapping) else "auto"
        return {"type": "input_image", "image_url": url, "detail": detail}
    return part


def _chat_turn(turn: dict[str, Any]) -> dict[str, Any]:
    content = turn.get("content")
    role = "system" if turn["role"] == "developer" else turn["role"]
    if isinstance(content, list):
        parts = [_chat_part(part) for part in content]
        # Many local servers take text only as one string.
        if all(part.get("type") == "text" for part in parts):
            content = "".join(_text(part.get("text")) for part in parts)
        else:
            content = parts
    kept: dict[str, Any] = {key: turn[key] for key in ("name", "tool_calls", "tool_call_id") if key in turn}
    return {"role": role, "content": "" if content is None and "tool_calls" not in turn else content, **kept}


def _chat_part(part: object) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, Mapping):
        raise CallRefused(f"a part of a message's content must be an object, not {part!r}")
    if part.get("type") in ("input_text", "output_text", "text"):
        return {"type": "text", "text": part.get("text", "")}
    if part.get("type") == "input_image":
        return {"type": "image_url", "image_url": {"url": part.get("image_url"), "detail": part.get("detail", "auto")}}
    return dict(part)


def _chat_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    if tool.get("type") != "function" or "function" in tool:
        return dict(tool)
    return {"type": "function", "function": {key: value for key, value in tool.items() if key != "type"}}


def _responses_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    inner = tool.get("function")
    if tool.get("type") != "function" or not isinstance(inner, Mapping):
        return dict(tool)
    return {"type": "function", **inner}


def _tool_calls(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    calls = []
    listed = data["choices"][0]["message"].get("tool_calls")
    for call in listed if isinstance(listed, list) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            calls.append(
                {
                    "type": "function_call",
                    "call_id": call.get("id"),
                    "name": function.get("name"),
                    "arguments": function.get("arguments"),
                    "status": "completed",
                }
            )
    return calls


def _texts(parts: object) -> list[str]:
    if isinstance(parts, str):
        return [parts]
    if not isinstance(parts, list):
        return []
    return [_text(part.get("text")) if isinstance(part, Mapping) else _text(part) for part in parts]


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _name(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _usage(data: Mapping[str, Any], input_name: str, output_name: str) -> dict[str, int]:
    usage = data.get("usage")
    out = {}
    for key, name in (("input_tokens", input_name), ("output_tokens", output_name)):
        value = usage.get(name, usage.get(key)) if isinstance(usage, Mapping) else None
        out[key] = value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
    return out


def _keys(data: Mapping[str, Any]) -> str:
    if data.get("error"):
        return f"an error: {error_text(data)}"
    return f"the keys {', '.join(sorted(map(str, data))[:8])}" if data else "no keys"
