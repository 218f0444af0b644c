"""External endpoints: a reward server that scores turns and metadata over HTTP.

The protocol is that of published reward servers: GET `/info` and `/metadata_schema`, POST `/score`. `/batch_score` is
not used: the gateway keeps many `/score` calls in flight on kept connections, while a batch would hold back samples
that are ready, tie the time-outs and retries of unrelated samples together, and make recordings depend on who came
first.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from pytest_evalgrader.errors import BudgetExhausted, CallError, Problem, SampleError, SuiteError
from pytest_evalgrader.gateway.providers import LONGEST_BACKOFF_S, EndpointConfig, Providers
from pytest_evalgrader.graders.outcome import GradeOutcome, Invalid, Reason
from pytest_evalgrader.graders.replies import plain
from pytest_evalgrader.graders.turns import columns_of, conversation_of, metadata_of, place_of, turn_problems

if TYPE_CHECKING:
    from pytest_evalgrader.graders.metadata_schema import MetadataSchema

_COOL_DOWN_S = 10.0


class EndpointSpec(Protocol):
    """What this module needs of a manifest's external endpoint."""

    @property
    def key(self) -> str: ...
    @property
    def url(self) -> str: ...
    @property
    def timeout_seconds(self) -> float: ...
    @property
    def max_retries(self) -> int: ...


class EndpointScope(Protocol):
    """The endpoint calls of one sample, as the gateway offers them."""

    def endpoint(
        self,
        endpoint: EndpointConfig,
        path: str,
        body: dict[str, Any] | None,
        *,
        timeout_s: float,
        max_retries: int,
    ) -> Any:
        """GET (no body) or POST a path; raises CallError."""
        ...


class ExternalEndpoint:
    """A grader that asks a reward server.

    Args:
        spec: The manifest's grader.
        where: File and place, such as `suites/qa.json: tasks[0].grader`.
        providers: Knows the configured endpoints.
        clock: Seconds that only grow.

    Raises:
        SuiteError: The URL cannot be used, or names no configured endpoint.
    """

    def __init__(
        self, spec: EndpointSpec, *, where: str, providers: Providers, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.where = where
        self.key = spec.key
        self.timeout_s = spec.timeout_seconds
        self.max_retries = spec.max_retries
        try:
            self.endpoint = providers.endpoint(spec.url)
        except SuiteError as err:
            raise SuiteError([Problem(f"{where}.url", problem.message) for problem in err.problems]) from None
        self.info: dict[str, Any] | None = None
        self._schema: MetadataSchema | None = None
        self._lock = threading.Lock()
        self._failed: tuple[float, Callable[[], CallError | SampleError]] | None = None
        self._clock = clock

    @property
    def longest_call_s(self) -> float:
        """A bound on the seconds of one request, its repetitions and pauses included, but not the queue."""
        return float((self.timeout_s + LONGEST_BACKOFF_S) * (self.max_retries + 1))

    @property
    def score_ids(self) -> tuple[str, ...]:
        """The ids that an invalid result of this grader makes zero."""
        return (self.key,)

    @property
    def models(self) -> tuple[str, ...]:
        """An endpoint calls no model."""
        return ()

    def check_rows(self, rows: Iterable[Mapping[str, Any]], *, limit: int = 20) -> list[Problem]:
        """List the rows whose turns cannot be read or whose `metadata` is no object.

        Args:
            rows: The dataset, after preprocessing.
            limit: Rows to list at most.
        """
        problems = turn_problems(rows, limit=limit)
        if "metadata" not in columns_of(rows):
            return problems
        for index, row in enumerate(rows):
            if len(problems) >= limit:
                break
            if not isinstance(metadata_of(row), dict):
                problems.append(
                    Problem(
                        f"{place_of(rows, index)}: metadata",
                        "expected an object: a reward server takes no other metadata.",
                    )
                )
        return problems

    def prepare(self, scope: EndpointScope) -> None:
        """Ask the server who it is and what metadata it needs; done once, later calls return at once.

        Call it before a sample's generation, with a scope of epoch 1: whichever sample comes first, the recording holds
        the same two requests. Thread-safe. A failure is kept for a few seconds, so that a dead server costs the first
        samples their retries and not every one.

        Raises:
            CallError: The server could not be reached, or does not speak the protocol.
            SampleError: Its metadata schema cannot be used.
        """
        if self._schema is not None:
            return
        with self._lock:
            if self._schema is not None:
                return
            if self._failed is not None and self._clock() - self._failed[0] < _COOL_DOWN_S:
                raise self._failed[1]()
            try:
                self.info, self._schema = self._ask_server(scope)
            except BudgetExhausted:
                raise
            except CallError as err:
                # A fresh exception for each sample: one instance would gather every thread's traceback.
                self._failed = (self._clock(), partial(CallError, err.message, err.type_name))
                raise
            except SampleError as err:
                self._failed = (self._clock(), partial(SampleError, err.stage, err.message, err.type_name))
                raise
            self._failed = None

    def check_row(self, row: Mapping[str, Any], scope: EndpointScope) -> None:
        """Check a row's metadata against the server's schema; call it before anything is generated.

        Args:
            row: The row after preprocessing.
            scope: As for `prepare`, which is done first where it was not.

        Raises:
            CallError: The server could not be reached.
            SampleError: The metadata does not fit, or the schema cannot be used.
        """
        self.prepare(scope)
        if self._schema is None:
            raise AssertionError("prepare leaves a schema")
        from pytest_evalgrader.graders.metadata_schema import SchemaUnusable

        try:
            problems = self._schema.problems(metadata_of(row))
        except SchemaUnusable as err:
            raise self._unusable(err) from err
        if problems:
            raise SampleError(
                "grade",
                f"the row's metadata does not fit the schema of the endpoint {self.endpoint.label}: "
                f"{'; '.join(problems)}. "
                "Nothing was generated. Mend the row's `metadata`, or see GET /metadata_schema of the server.",
                "MetadataMisfit",
            )

    def request(self, sample: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body of POST `/score`: turns and metadata, and nothing else.

        Raises:
            SampleError: The row's turns cannot be read.
        """
        conversation = conversation_of(row, prompt=sample.get("prompt"), completion=sample.get("output_text") or "")
        return {"turns": conversation.turns, "metadata": conversation.metadata}

    def grade(
        self, sample: Mapping[str, Any], item: Mapping[str, Any], row: Mapping[str, Any], scope: EndpointScope
    ) -> GradeOutcome:
        """Let the server score one sample.

        Args:
            sample: Has `output_text` and `prompt`.
            item: The row as other graders see it; the server gets turns and metadata of the row.
            row: The row after preprocessing.
            scope: Makes the calls.

        Returns:
            The reward under the key and the server's metadata in `judge`; an invalid result, with the raw reply, where
            the reward is no finite number.

        Raises:
            CallError: The server could not be reached.
            SampleError: The metadata does not fit, or the row's turns cannot be read.
        """
        self.check_row(row, scope)
        reply = self._call(scope, "/score", self.request(sample, row))
        if not isinstance(reply, Mapping):
            return self._invalid("wrong_type", reply, "expected an object with `reward` and `metadata`")
        metadata = reply.get("metadata")
        judge = None if metadata is None else {self.key: plain(metadata)}
        if "reward" not in reply:
            return self._invalid("no_finite_score", reply, "the reply has no `reward`", judge)
        reward = reply["reward"]
        if isinstance(reward, bool):
            return self._invalid("boolean", reply, f"`reward` is {json.dumps(reward)}, expected a number", judge)
        if reward in ("NaN", "Infinity", "-Infinity"):
            return self._invalid("non_finite", reply, f"`reward` is {reward}, expected a finite number", judge)
        if not isinstance(reward, (int, float)):
            return self._invalid("wrong_type", reply, f"`reward` is {_shown(reward)}, expected a number", judge)
        try:
            score = float(reward)
        except OverflowError:
            score = math.inf
        if not math.isfinite(score):
            return self._invalid("non_finite", reply, f"`reward` is {_shown(reward)}, expected a finite number", judge)
        return GradeOutcome(scores={self.key: score}, judge=judge)

    def _ask_server(self, scope: EndpointScope) -> tuple[dict[str, Any], MetadataSchema]:
        from pytest_evalgrader.graders.metadata_schema import MetadataSchema, SchemaUnusable

        info = self._call(scope, "/info", None)
        if not isinstance(info, Mapping):
            raise CallError(
                f"endpoint {self.endpoint.label}: GET /info answered {_shown(info)}, expected an object with `name` "
                "and `version`. Does the url name a reward server?",
                "WrongProtocol",
            )
        try:
            return dict(info), MetadataSchema(self._call(scope, "/metadata_schema", None))
        except SchemaUnusable as err:
            raise self._unusable(err) from err

    def _call(self, scope: EndpointScope, path: str, body: dict[str, Any] | None) -> Any:
        return scope.endpoint(self.endpoint, path, body, timeout_s=self.timeout_s, max_retries=self.max_retries)

    def _unusable(self, err: ValueError) -> SampleError:
        return SampleError(
            "grade",
            f"the metadata schema of the endpoint {self.endpoint.label} cannot be used: {err}. "
            "Mend GET /metadata_schema of the server.",
            "SchemaUnusable",
        )

    def _invalid(self, reason: Reason, raw: Any, message: str, judge: dict[str, Any] | None = None) -> GradeOutcome:
        text = f"The endpoint {self.endpoint.label} gave no reward: {message} ({reason})."
        return GradeOutcome(judge=judge, invalid=Invalid(reason, plain(raw), text))


def _shown(value: Any) -> str:
    text = json.dumps(plain(value), ensure_ascii=False)
    return text if len(text) <= 120 else text[:117] + "..."
