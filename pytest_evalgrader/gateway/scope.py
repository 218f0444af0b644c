"""The calls of one sample: built, answered from a recording or by a model, counted and recorded."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import BudgetExhausted, CallError, CallRefused, SuiteError
from . import bodies
from .providers import DEFAULT_MAX_RETRIES, DEFAULT_TIMEOUT_S, EndpointConfig, ProviderConfig
from .reasoning import cut_at_stop, split_reasoning
from .recording import Caller, Entry, request_digest
from .transport import Path as ApiPath

if TYPE_CHECKING:
    from .client import Gateway

Role = Literal["candidate", "judge", "embedding"]

_CTX_METHODS = ("responses_create", "embeddings_create")


@dataclass(slots=True)
class Generation:
    """What a candidate model answered.

    Args:
        output_text: The answer: reasoning taken off, cut at the stop sequences.
        response_id: The API's id of the answer, or None.
        model: The model that the API says answered, or None.
        reasoning: What was taken off, or None.
        reasoning_unclosed: The reasoning began and never ended, so that the answer is empty.
        raw: The JSON that was answered.
        notes: What a reader of the record should know: why the answer is empty, what the model did not take.
    """

    output_text: str
    response_id: str | None
    model: str | None
    reasoning: str | None
    reasoning_unclosed: bool
    raw: Any
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Call:
    """A request on its way; the event loop's thread adds `active_s` and `notes`."""

    label: str
    limit_name: str
    attempt: Callable[[Mapping[str, Any]], Coroutine[Any, Any, Any]]
    read: Callable[[Any], object]
    body: Mapping[str, Any]
    adapts: bool
    adapts_formats: bool
    max_retries: int
    suite: str
    suite_limit: int | None
    recording: str | None
    order: int = 0
    prepare: Callable[[], object] = lambda: None
    active_s: float = 0.0
    notes: list[str] = field(default_factory=list)


class StatusError(CallError):
    """A call that failed for good.

    Args:
        status: The last HTTP status, or None where there was no answer.
    """

    def __init__(self, message: str, type_name: str, status: int | None) -> None:
        super().__init__(message, type_name)
        self.status = status


class CallScope:
    """The calls of one attempt at a sample: made, counted, recorded. Made by `Gateway.scope`.

    Attributes:
        calls: `{"role", "model", "response_id", "input_tokens", "output_tokens"}` for each answer, in their order.
        notes: What was adapted to get the answers, each once.
        exhausted: Set once the budget refused a call, also where a grader caught that: its result is worth nothing.
    """

    def __init__(
        self, gateway: Gateway, suite: str, recording: Path, caller: Caller, suite_limit: int | None, order: int
    ) -> None:
        self.calls: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.exhausted: BudgetExhausted | None = None
        self.gateway = gateway
        self._suite = suite
        self._recording = recording
        self._caller = caller
        self._suite_limit = suite_limit
        self._order = order
        self._asked: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def usage(self) -> dict[str, int]:
        """Tokens and calls so far: `input_tokens`, `output_tokens`, `model_calls`."""
        with self._lock:
            return {
                "input_tokens": sum(call["input_tokens"] for call in self.calls),
                "output_tokens": sum(call["output_tokens"] for call in self.calls),
                "model_calls": len(self.calls),
            }

    def generate(
        self,
        model: str,
        *,
        prompt: str | None = None,
        messages: Sequence[Mapping[str, Any]] | None = None,
        generation: Mapping[str, Any] | None = None,
    ) -> Generation:
        """Ask a candidate model.

        Args:
            model: As the suite names it.
            prompt: The prompt, or None where `messages` are the request.
            messages: The row's messages.
            generation: The merged settings; None values are not set. `use_cache: false` asks anew in the mode `fill`.

        Returns:
            The answer; an empty one was asked again `max_empty_retries` times.

        Raises:
            CallError: No usable answer.
        """
        settings = generation or {}
        provider, name, label = self._resolve(model)
        try:
            body = bodies.generation_body(provider.api, name, prompt=prompt, messages=messages, generation=settings)
        except CallRefused as error:
            raise CallError(str(error), "BadRequest") from None
        prefilled = provider.api == "chat_completions" and bool(settings.get("prefill_think"))
        empty_retries = settings.get("max_empty_retries") or 0
        for turn in range(empty_retries + 1):
            try:
                data, notes = self._model_call(
                    provider,
                    label,
                    provider.api,
                    provider.api,
                    body,
                    settings=settings,
                    adapts_formats=False,
                    reuses=settings.get("use_cache") is not False,
                )
            except CallError as error:
                # Recorded with fewer retries than are allowed now: the empty answer was the last.
                if turn and error.type_name == "MissingRecording":
                    break
                raise
            reply = bodies.read_reply(_shape(data), data)
            self._count("candidate", label, reply.response_id, reply.input_tokens, reply.output_tokens)
            # A server that keeps reasoning apart has closed the block that the request opened.
            begins_inside = prefilled and reply.reasoning is None
            answer, reasoning, unclosed = split_reasoning(reply.text, prefilled=begins_inside)
            if answer.strip() or unclosed or reply.refusal:
                break
        if reply.empty and not answer:
            raise CallError(f"{label}: the answer holds no message at all.", "EmptyReply")
        notes = list(notes)
        if not answer.strip() and reply.refusal:
            answer = reply.refusal
            notes.append("the model refused; its refusal is the output")
        elif unclosed:
            notes.append("the reasoning never closed, so the output is empty")
        elif not answer.strip():
            notes.append(f"the output is empty{f' ({reply.ended})' if reply.ended else ''}")
        if reply.ended and answer.strip():
            notes.append(f"the output is incomplete ({reply.ended})")
        self._note(notes)
        return Generation(
            output_text=cut_at_stop(answer, settings.get("stop")),
            response_id=reply.response_id,
            model=reply.model,
            reasoning="\n\n".join(part for part in (reply.reasoning, reasoning) if part) or None,
            reasoning_unclosed=unclosed,
            raw=data,
            notes=notes,
        )

    def responses(
        self,
        model: str,
        body: Mapping[str, Any],
        *,
        role: Role = "judge",
        timeout_s: float | None = None,
        max_retries: int | None = None,
        on_wait: Callable[[float], None] | None = None,
    ) -> dict[str, Any]:
        """Ask a model with a body of the Responses API, whatever API its provider speaks.

        Args:
            model: As the suite names it; `body["model"]` is ignored.
            body: `input` and other fields. A format that the model refuses (`text.format`) is weakened from
                json_schema to json_object to none, so that replies must be validated in any case.
            role: How the call is listed.
            timeout_s: Bound on one attempt; the provider's by default.
            max_retries: The provider's by default.
            on_wait: Told the seconds that were spent in queues and pauses and on the way, not in attempts.

        Returns:
            A plain dict of the Responses API with `output_text`, `id`, `model`, `status`, `incomplete_details`,
            `output`, `usage`. A reply without any message has an empty `output_text`.

        Raises:
            CallError: No usable answer.
            CallRefused: The body cannot be sent to this provider.
        """
        provider, _, label = self._resolve(model)
        data, notes = self._model_call(
            provider,
            label,
            "responses",
            provider.api,
            body,
            settings={"timeout_seconds": timeout_s, "max_retries": max_retries},
            adapts_formats=True,
            on_wait=on_wait,
        )
        self._note(notes)
        reply = bodies.read_reply(_shape(data), data)
        self._count(role, label, reply.response_id, reply.input_tokens, reply.output_tokens)
        return bodies.responses_dict(_shape(data), data)

    def embeddings(
        self,
        model: str,
        body: Mapping[str, Any],
        *,
        timeout_s: float | None = None,
        max_retries: int | None = None,
        on_wait: Callable[[float], None] | None = None,
    ) -> dict[str, Any]:
        """Ask for embeddings.

        Args:
            model: As the suite names it; `body["model"]` is ignored.
            body: `input` and other fields of the embeddings API.
            timeout_s: As for `responses`, like the others.

        Returns:
            The API's plain dict: `data[i]["embedding"]`, `model`, …

        Raises:
            CallError: No usable answer.
        """
        provider, _, label = self._resolve(model)
        data, _ = self._model_call(
            provider,
            label,
            "embeddings",
            "embeddings",
            body,
            settings={"timeout_seconds": timeout_s, "max_retries": max_retries},
            adapts_formats=False,
            on_wait=on_wait,
        )
        tokens = bodies.read_embeddings(data)
        self._count("embedding", label, data.get("id"), tokens["input_tokens"], tokens["output_tokens"])
        return dict(data)

    def endpoint(
        self,
        endpoint: str | EndpointConfig,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
        max_retries: int | None = None,
    ) -> Any:
        """Ask an external endpoint; recorded without headers, and no model call.

        Args:
            endpoint: A configured name, an address, or what `Providers.endpoint` returned.
            path: Below its address, such as `score`.
            body: JSON to POST; None makes it a GET.
            timeout_s: Bound on one attempt; 300 by default.
            max_retries: Further attempts on network faults, 429 and 5xx; 5 by default.

        Returns:
            The JSON of the answer.

        Raises:
            CallError: No usable answer; a `StatusError` where the endpoint answered.
        """
        gateway = self.gateway
        try:
            config = gateway.providers.endpoint(endpoint) if isinstance(endpoint, str) else endpoint
        except SuiteError as error:
            raise CallError(str(error), "UnknownEndpoint") from None
        method: Literal["GET", "POST"] = "GET" if body is None else "POST"
        label = f"endpoint {config.label}"
        bound_s = timeout_s or DEFAULT_TIMEOUT_S
        retries = DEFAULT_MAX_RETRIES if max_retries is None else max_retries

        async def attempt(sent: Mapping[str, Any]) -> Any:
            return await gateway.transport.ask_endpoint(config, method, path, sent, bound_s)

        call = self._call(label, label, attempt, lambda data: None, _sendable(dict(body or {})), retries)
        request = {"api": "endpoint", "model": config.label, "body": {"method": method, "path": path, "json": body}}
        data, _ = self._through_recording(request, call, once=method == "GET")
        return data

    def ctx(self, judge_model: str | None, embedding_model: str | None, max_calls: int) -> CtxCalls:
        """Return what answers the `ctx` helpers of one run of a grader.

        Args:
            judge_model: The run's, for `auto`.
            embedding_model: The run's, for `auto`.
            max_calls: The grader's `max_model_calls`.
        """
        return CtxCalls(self, judge_model, embedding_model, max_calls)

    def _resolve(self, model: str) -> tuple[ProviderConfig, str, str]:
        try:
            provider, name = self.gateway.providers.resolve(model)
        except SuiteError as error:
            raise CallError(str(error), "UnknownModel") from None
        return provider, name, f"{provider.name}:{name}"

    def _model_call(
        self,
        provider: ProviderConfig,
        label: str,
        api: str,
        path: ApiPath,
        body: Mapping[str, Any],
        *,
        settings: Mapping[str, Any],
        adapts_formats: bool,
        reuses: bool = True,
        on_wait: Callable[[float], None] | None = None,
    ) -> tuple[Any, list[str]]:
        """Answer a request in the shape `api` with the provider's API `path`."""
        gateway = self.gateway
        name = label.partition(":")[2]
        asked = {key: value for key, value in body.items() if key != "model"}
        sent = _sendable({"model": name, **asked})
        if api == "responses" and path == "chat_completions":
            sent = bodies.chat_body(sent)
        timeout_s = settings.get("timeout_seconds") or provider.timeout_seconds

        async def attempt(adapted: Mapping[str, Any]) -> Any:
            return await gateway.transport.post(provider, path, adapted, timeout_s)

        def read(data: Any, *, is_recorded: bool = False) -> object:
            if not isinstance(data, Mapping):
                raise bodies.UnusableReply(f"a JSON object is expected, not {str(data)[:100]!r}")
            if path == "embeddings":
                return bodies.read_embeddings(data)
            return bodies.read_reply(_shape(data) if is_recorded else path, data)

        retries = settings.get("max_retries")
        call = self._call(
            label, provider.name, attempt, read, sent, provider.max_retries if retries is None else retries
        )

        call.adapts = True
        call.adapts_formats = adapts_formats
        # Imports the client: part of no attempt, and of no grader's time.
        call.prepare = lambda: gateway.transport.prepare(provider)
        began = time.monotonic()
        try:
            return self._through_recording(
                {"api": api, "model": label, "body": asked},
                call,
                reuses=reuses,
                read_recorded=partial(read, is_recorded=True),
            )
        finally:
            if on_wait is not None:
                on_wait(max(0.0, time.monotonic() - began - call.active_s))

    def _call(
        self,
        label: str,
        limit_name: str,
        attempt: Callable[[Mapping[str, Any]], Coroutine[Any, Any, Any]],
        read: Callable[[Any], object],
        body: Mapping[str, Any],
        max_retries: int,
    ) -> Call:
        return Call(
            label=label,
            limit_name=limit_name,
            attempt=attempt,
            read=read,
            body=body,
            adapts=False,
            adapts_formats=False,
            max_retries=max_retries,
            suite=self._suite,
            suite_limit=self._suite_limit,
            recording=str(self._recording) if self.gateway.records else None,
            order=self._order,
        )

    def _through_recording(
        self,
        request: dict[str, Any],
        call: Call,
        *,
        reuses: bool = True,
        once: bool = False,
        read_recorded: Callable[[Any], object] = lambda data: None,
    ) -> tuple[Any, list[str]]:
        gateway = self.gateway
        if gateway.mode == "live":
            return gateway.run(gateway.perform(call)), call.notes
        digest = request_digest(request)
        with self._lock:
            self._asked[digest] += 1
            nth = self._asked[digest]
        caller = self._caller
        if once:
            # Asked once for all samples, by whichever comes first: in another run that may be one of another epoch.
            caller, nth = caller._replace(epoch=1), 1
        if gateway.mode == "replay" or (gateway.mode == "fill" and reuses):
            recording = gateway.recording(self._recording)
            entry = recording.find(digest, caller, nth)
            if entry is not None:
                try:
                    read_recorded(entry.response)
                except bodies.UnusableReply as error:
                    raise CallError(
                        f"{self._recording.name}: the recorded answer to this request, of task "
                        f"{entry.caller.task_id}, sample {entry.caller.sample_id}, is unusable (edited?): {error}. "
                        "Take its line out and record again with --evals-calls=fill.",
                        "UnusableRecording",
                    ) from None
                return entry.response, entry.notes
            if gateway.mode == "replay":
                raise CallError(recording.explain_missing(request, caller, nth), "MissingRecording")

        async def perform_and_record() -> Any:
            data = await gateway.perform(call)
            entry = Entry(request, data, caller, nth, call.notes, digest)
            await gateway.permits.record(str(self._recording), entry.to_dict())
            return data

        return gateway.run(perform_and_record()), call.notes

    def _count(self, role: Role, label: str, response_id: str | None, input_tokens: int, output_tokens: int) -> None:
        with self._lock:
            self.calls.append(
                {
                    "role": role,
                    "model": label,
                    "response_id": response_id,
                    "input_tokens": input_tokens,
                    "output_tokens": output_tokens,
                }
            )

    def _note(self, notes: Sequence[str]) -> None:
        with self._lock:
            self.notes += [note for note in notes if note not in self.notes]


class CtxCalls:
    """Answers the `ctx` helpers of one run of a grader; knows no key. Made by `CallScope.ctx`.

    Attributes:
        waited_s: Seconds spent outside of attempts (waiting for a permit, between attempts, importing the client); they
            do not count as the grader's time.
    """

    def __init__(self, scope: CallScope, judge_model: str | None, embedding_model: str | None, max_calls: int) -> None:
        self.waited_s = 0.0
        self._scope = scope
        self._models = {"responses_create": judge_model, "embeddings_create": embedding_model}
        self._max_calls = max_calls
        self._made = 0
        self._lock = threading.Lock()

    def __call__(self, method: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Make a grader's call.

        Args:
            method: `responses_create` or `embeddings_create`.
            fields: Its keyword arguments.

        Returns:
            The API's plain dict.

        Raises:
            CallRefused: The grader may not make this call, or none any more.
            CallError: No usable answer.
        """
        if method not in _CTX_METHODS:
            raise CallRefused(f"ctx has no helper {method!r}; it has {' and '.join(_CTX_METHODS)}.")
        try:
            json.dumps(fields, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise CallRefused(f"ctx.{method}: the arguments are not JSON: {error}.") from None
        model = self._model(method, fields.get("model"))
        try:
            provider, _ = self._scope.gateway.providers.resolve(model)
        except SuiteError as error:
            raise CallRefused(f"ctx.{method}: {error}") from None
        bodies.check_ctx_fields(method, fields, provider)
        with self._lock:
            if self._made >= self._max_calls:
                raise CallRefused(
                    f"ctx.{method}: the grader has made its max_model_calls={self._max_calls} calls; raise "
                    "max_model_calls in the grader of the suite where it needs more."
                )
            self._made += 1
        body = {key: value for key, value in fields.items() if key != "model" and value is not None}
        try:
            if method == "embeddings_create":
                return self._scope.embeddings(model, body, on_wait=self._wait)
            body |= {"stream": False, "store": True, "background": False}
            return self._scope.responses(model, body, on_wait=self._wait)
        except BudgetExhausted as error:
            self._scope.exhausted = error
            raise

    def _model(self, method: str, given: object) -> str:
        if given not in (None, "auto"):
            if not isinstance(given, str):
                raise CallRefused(f"ctx.{method}: model must be text, not {type(given).__name__}.")
            return given
        model = self._models[method]
        if model is None:
            name = "judge_model" if method == "responses_create" else "embedding_model"
            raise CallRefused(
                f'ctx.{method}: model="auto" means the run\'s {name}, and there is none. Set run.{name} in the suite '
                f"or give --evals-{name.replace('_', '-')}."
            )
        return model

    def _wait(self, seconds: float) -> None:
        with self._lock:
            self.waited_s += seconds


def _shape(data: Mapping[str, Any]) -> Literal["responses", "chat_completions"]:
    """Tell by a reply itself which API it is of; a recording may be older than the provider's configuration."""
    return "chat_completions" if "choices" in data else "responses"


def _sendable(body: dict[str, Any]) -> dict[str, Any]:
    """Replace lone surrogates, which no UTF-8 request can hold.

    Raises:
        CallError: The body is not JSON.
    """
    try:
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        cleaned: dict[str, Any] = _replace_surrogates(body)
        return cleaned
    except (TypeError, ValueError) as error:
        raise CallError(f"the request is not JSON: {error}", "BadRequest") from None
    return body


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode() if not value.isascii() else value
    if isinstance(value, Mapping):
        return {_replace_surrogates(key): _replace_surrogates(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_replace_surrogates(inner) for inner in value]
    return value
