"""One sample: preprocess, render, generate, extract, grade. Also what runs ahead of the pytest items."""

from __future__ import annotations

import asyncio
import inspect
import os
import sysconfig
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from pytest_evalgrader.data.dataset import lookup
from pytest_evalgrader.data.template import to_text
from pytest_evalgrader.errors import BudgetExhausted, CallError, SampleError, Stage
from pytest_evalgrader.gates import sample_reaches
from pytest_evalgrader.gateway.providers import scrub, scrub_json
from pytest_evalgrader.gateway.reasoning import cut_at_stop, split_reasoning
from pytest_evalgrader.graders.custom import CustomGrader
from pytest_evalgrader.graders.outcome import GradeOutcome, check_ranges, check_repeats, zeros
from pytest_evalgrader.graders.python import PythonBatchGrader, PythonGrader
from pytest_evalgrader.plan import Candidate, TaskPlan
from pytest_evalgrader.records import SampleRecord
from pytest_evalgrader.sandbox.host import Sandbox, SandboxError, StartedRun

Kind = Literal["computes", "waits", "local"]
"""What a step does: computes at once, waits for another process, or has to run in the worker's main thread."""
NOT_IN_A_THREAD: tuple[Kind, ...] = ("local",)
NOT_AT_ONCE: tuple[Kind, ...] = ("local", "waits")

PRINTED_LIMIT = 64 * 1024
# Folders whose frames are not the project's own.
_FOREIGN = (os.path.dirname(__file__), *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")))
UNCLOSED = "the reasoning never closed, so the output is empty"


@dataclass(slots=True)
class Attempt:
    """One run of one sample, from the row to its scores.

    Args:
        error: Set where the infrastructure failed; the sample then has no scores.
        misses: Sample thresholds that were not reached: metric id, score or None, threshold, whether higher is better.
        stop: Set where the whole run has to stop, with the reason.
        exception: What a grader raised in this process, for a debugger.
    """

    task: TaskPlan
    candidate: Candidate
    record: SampleRecord
    row: dict[str, Any] = field(default_factory=dict)
    messages: list[Any] | None = None
    sample: dict[str, Any] = field(default_factory=dict)
    item: dict[str, Any] = field(default_factory=dict)
    outcomes: list[tuple[Any, GradeOutcome]] = field(default_factory=list)
    error: SampleError | None = None
    misses: list[tuple[str, float | None, float, bool]] = field(default_factory=list)
    stop: str | None = None
    exception: BaseException | None = None
    scope: Any = None
    next_step: int = 0
    stage: Stage = "preprocess"
    run: StartedRun | None = None

    def drop(self) -> None:
        """End what was started for it: its item will not come."""
        run, self.run = self.run, None
        if run is not None:
            run.cancel()

    def let_go(self) -> None:
        """Drop the texts: who keeps the exception of an item (pytest-rerunfailures does) keeps its frames, and this."""
        self.row, self.sample, self.item, self.messages = {}, {}, {}, None
        self.outcomes, self.scope = [], None
        record = self.record
        record.dataset_row = record.prompt = record.target = record.output_text = record.extracted_output = None
        record.judge, record.calls, record.printed = None, [], ""


Step = tuple[Stage, Kind, Callable[[Attempt], None]]


class Pipeline:
    """Runs samples in this process.

    Args:
        sandbox: Where graders and preprocessors run.
        gateway: Returns the process's gateway; only called when a call is made.
        run_id: The run's id, the same in all processes.
        generate_hook: Asks the conftest hooks for an answer.
        secrets: Returns the keys that the project's own code, which can read them, must not carry into records.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        gateway: Callable[[], Any],
        run_id: str,
        generate_hook: Callable[[str, dict[str, Any]], Any] = lambda model, request: None,
        secrets: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        self.sandbox = sandbox
        self.gateway = gateway
        self.run_id = run_id
        self.generate_hook = generate_hook
        self._secrets = secrets
        self._applications = _ApplicationLoop()
        self._steps: dict[tuple[TaskPlan, str], list[Step]] = {}

    def close(self) -> None:
        """Stop what runs in this process."""
        self._applications.close()

    def begin(self, task: TaskPlan, candidate: Candidate, index: int, epoch: int, nodeid: str) -> Attempt:
        """Make the empty attempt of a sample."""
        record = SampleRecord(
            id=task.sample_id(index, epoch),
            run_id=self.run_id,
            nodeid=nodeid,
            suite=task.suite,
            task_id=task.id,
            model=candidate.name,
            sample_index=index,
            epoch=epoch,
        )
        return Attempt(task, candidate, record)

    def runs_ahead(self, task: TaskPlan, candidate: Candidate) -> bool:
        """Say whether a sample waits for calls that may be made before its item runs."""
        if candidate.kind == "provider" or (candidate.kind == "python" and candidate.is_async):
            return True
        if candidate.kind != "recorded":
            return False
        return any(
            grader.model_access if isinstance(grader, PythonGrader) else not isinstance(grader, CustomGrader)
            for grader in task.graders
        )

    def advance(self, attempt: Attempt, *, stop_before: Collection[Kind] = ()) -> None:
        """Run the steps of a sample in order, from the first that did not run; nothing where the sample is complete.

        Args:
            stop_before: Leave the first step of such a kind, and all after it, to a later call.
        """
        record = attempt.record
        if record.completed_at is not None:
            return
        if record.started_at is None:
            record.started_at = time.time()
        steps = self._steps_of(attempt.task, attempt.candidate)
        try:
            while attempt.error is None and attempt.next_step < len(steps):
                attempt.stage, kind, step = steps[attempt.next_step]
                if kind in stop_before:
                    return
                step(attempt)
                attempt.next_step += 1
        except SampleError as error:
            attempt.error = error
        except BudgetExhausted as error:
            attempt.error = SampleError(attempt.stage, error.message, error.type_name)
            attempt.stop = error.message
        except CallError as error:
            attempt.error = SampleError(attempt.stage, error.message, error.type_name)
        except SandboxError as error:
            attempt.error = SampleError(attempt.stage, str(error), "SandboxError")
        self._complete(attempt)

    def _steps_of(self, task: TaskPlan, candidate: Candidate) -> list[Step]:
        found = self._steps.get((task, candidate.name))
        if found is None:
            found = self._steps[task, candidate.name] = self._make_steps(task, candidate)
        return found

    def _make_steps(self, task: TaskPlan, candidate: Candidate) -> list[Step]:
        transformed = task.preprocessor is not None
        steps: list[Step] = [("preprocess", "waits" if transformed else "computes", self._prepare)]
        for grader in task.graders:
            if hasattr(grader, "check_row"):
                steps.append(("preprocess", "waits", partial(self._check_row, grader=grader)))
        answers: Kind = "computes" if candidate.kind == "recorded" else "waits"
        if candidate.kind == "hook" or (candidate.kind == "python" and not candidate.is_async):
            answers = "local"
        steps += [("generate", answers, self._generate), ("extract", "computes", self._extract)]
        for grader in task.graders:
            if isinstance(grader, PythonGrader):
                # One that calls waits for us as much as we for it.
                starts: Kind = "waits" if grader.model_access else "computes"
                steps.append(("grade", starts, partial(self._start, grader=grader)))
            kind: Kind = "local" if isinstance(grader, CustomGrader) else "waits"
            steps.append(("grade", kind, partial(self._grade, grader=grader)))
        return steps

    # -- steps --------------------------------------------------------------------------------------------------

    def _prepare(self, attempt: Attempt) -> None:
        task, record = attempt.task, attempt.record
        row = task.rows[record.sample_index]
        record.dataset_row = row
        attempt.row = row = self.row_of(task, record.sample_index, row)
        record.dataset_row = row
        context = row if task.choices is None else {**row, "choices": task.choices}
        if task.target is not None:
            record.target = task.target.render(context)
        if task.prompt is not None:
            prompt = task.prompt.render(context)
            if task.fewshot is not None:
                own = task.preprocessor is not None and task.fewshot.own_dataset
                fetch = (lambda i: self.row_of(task, i, task.rows[i])) if own else None
                prompt = task.fewshot.prefix(record.sample_index, fetch) + prompt
            record.prompt = prompt
        else:
            messages = row.get("messages")
            if not isinstance(messages, list) or not messages:
                raise SampleError("preprocess", "the row has no `messages` and the task has no prompt_template.")
            attempt.messages = messages
            record.prompt = prompt_of(messages)

    def row_of(self, task: TaskPlan, index: int, row: dict[str, Any]) -> dict[str, Any]:
        """Return the row after a row preprocessor; without one, the row itself."""
        if task.preprocessor is None:
            return row
        return task.preprocessor.row(self.sandbox, row, task.ids[index])

    def _check_row(self, attempt: Attempt, grader: Any) -> None:
        # What the server says of itself belongs to no sample: a scope of its own, so that recordings agree.
        grader.prepare(scope_of(self.gateway(), attempt.task, "", grader.key, 1))
        grader.check_row(attempt.row, self._scope(attempt))

    def _generate(self, attempt: Attempt) -> None:
        task, candidate, record = attempt.task, attempt.candidate, attempt.record
        text: Any
        if candidate.kind == "recorded":
            text = self._recorded(attempt)
        elif candidate.kind == "provider":
            prompt = None if attempt.messages is not None else record.prompt
            generation = self._scope(attempt).generate(
                candidate.name, prompt=prompt, messages=attempt.messages, generation=task.generation
            )
            record.output_text = generation.output_text
            record.response_id = generation.response_id
            record.notes += list(generation.notes)
            return
        else:
            text = self._application(attempt)
        split = split_reasoning(text, prefilled=bool(task.generation.get("prefill_think")))
        if split.unclosed:
            record.notes.append(UNCLOSED)
        record.output_text = cut_at_stop(split.answer, task.generation.get("stop"))

    def _recorded(self, attempt: Attempt) -> str:
        column = attempt.candidate.column
        try:
            value = lookup(attempt.row, column)
        except KeyError:
            value = None
        if value is None:
            raise SampleError(
                "generate", f'the row has no recorded answer: column "{column}" is missing or null.', "MissingAnswer"
            )
        return value if isinstance(value, str) else to_text(value)

    def _application(self, attempt: Attempt) -> str:
        candidate, record = attempt.candidate, attempt.record
        try:
            if candidate.kind == "hook":
                request = {
                    "prompt": record.prompt,
                    "messages": attempt.messages,
                    "generation": attempt.task.generation,
                    "row": attempt.row,
                    "task_id": record.task_id,
                    "sample_id": record.id,
                    "epoch": record.epoch,
                }
                said = self.generate_hook(candidate.name, request)
                if said is None:
                    raise SampleError(
                        "generate",
                        f"no provider is called {candidate.name.partition(':')[0]!r}, and no "
                        f"pytest_evalgrader_generate hook answered for {candidate.name!r}.",
                        "UnknownModel",
                    )
            else:
                assert candidate.function is not None
                given = attempt.messages if record.prompt is None else record.prompt
                said = candidate.function(given, attempt.row)
            if inspect.isawaitable(said):
                said = self._applications.run(said, attempt.task.generation.get("timeout_seconds"))
        except _NoAnswer:
            bound = f"timeout_seconds={attempt.task.generation['timeout_seconds']:g} of generation"
            raise SampleError("generate", f"{candidate.name} gave no answer within {bound}.", "CallTimeout") from None
        except (SampleError, CallError):
            raise
        except (Exception, SystemExit, GeneratorExit, asyncio.CancelledError) as error:
            raise SampleError(
                "generate",
                scrub(f"{candidate.name} raised {type(error).__name__}: {error}{_raised_at(error)}", self._secrets()),
                type(error).__name__,
            ) from error
        returned = type(said).__name__
        if isinstance(said, dict):
            record.response_id = said.get("response_id") if isinstance(said.get("response_id"), str) else None
            found = type(said["output_text"]).__name__ if "output_text" in said else "nothing"
            said, returned = said.get("output_text"), f"a dict with {found} under output_text"
        if not isinstance(said, str):
            raise SampleError(
                "generate",
                f'{candidate.name} returned {returned}; expected text or {{"output_text": text}}.',
                "WrongType",
            )
        return scrub(said, self._secrets())

    def _extract(self, attempt: Attempt) -> None:
        task, record = attempt.task, attempt.record
        assert record.output_text is not None
        record.extracted_output = task.extract(record.output_text)
        attempt.sample = {
            "output_text": record.output_text,
            "extracted_output": record.extracted_output,
            "model": record.model,
            "prompt": record.prompt,
            "task_id": record.task_id,
            "run_id": record.run_id,
            "sample_id": record.id,
        }
        choices = task.choices if task.choices is not None else attempt.row.get("choices")
        attempt.item = {
            **attempt.row,
            "prompt": record.prompt,
            "target": record.target,
            "reference_answer": record.target,
            "task_id": record.task_id,
            "choices": [] if choices is None else choices,
        }

    def _start(self, attempt: Attempt, grader: PythonGrader) -> None:
        calls = ctx_of(self._scope(attempt), attempt.task, grader) if grader.model_access else None
        attempt.run = grader.start(self.sandbox, attempt.sample, attempt.item, calls)

    def _grade(self, attempt: Attempt, grader: Any) -> None:
        if isinstance(grader, PythonGrader):
            run, attempt.run = attempt.run, None
            assert run is not None
            outcome = grader.outcome(run)
            if grader.model_access and attempt.scope is not None and attempt.scope.exhausted is not None:
                raise attempt.scope.exhausted
        elif isinstance(grader, CustomGrader):
            outcome = grader.grade(dict(attempt.sample), dict(attempt.item))
            secrets = self._secrets()
            outcome.judge = scrub_json(outcome.judge, secrets)
            if outcome.invalid is not None:
                outcome.invalid = replace(
                    outcome.invalid,
                    raw=scrub_json(outcome.invalid.raw, secrets),
                    message=scrub(outcome.invalid.message, secrets),
                    error=scrub_json(outcome.invalid.error, secrets),
                )
        else:
            outcome = grader.grade(attempt.sample, attempt.item, attempt.row, self._scope(attempt))
        if outcome.invalid is None:
            check_ranges(outcome, attempt.task.ranges)
        if outcome.invalid is None:
            check_repeats(outcome, {key for _, other in attempt.outcomes if not other.invalid for key in other.scores})
        attempt.exception = attempt.exception or outcome.exception
        attempt.outcomes.append((grader, outcome))

    def _scope(self, attempt: Attempt) -> Any:
        if attempt.scope is None:
            attempt.scope = scope_of(
                self.gateway(), attempt.task, attempt.record.model, attempt.record.id, attempt.record.epoch
            )
        return attempt.scope

    # -- the end ------------------------------------------------------------------------------------------------

    def _complete(self, attempt: Attempt) -> None:
        task, record = attempt.task, attempt.record
        record.completed_at = time.time()
        if attempt.scope is not None:
            record.usage = dict(attempt.scope.usage)
            record.calls = list(attempt.scope.calls)
            record.notes += [note for note in attempt.scope.notes if note not in record.notes]
        for _, outcome in attempt.outcomes:
            record.printed = (record.printed + outcome.printed)[:PRINTED_LIMIT]
        if attempt.error is not None:
            record.outcome = "error"
            record.scores = {}
            record.error = {
                "stage": attempt.error.stage,
                "type": attempt.error.type_name,
                "message": attempt.error.message,
            }
            return
        several = len(task.graders) + len(task.batch_graders) > 1
        judge: dict[str, Any] = {}
        for grader, outcome in attempt.outcomes:
            for key, value in (outcome.judge or {}).items():
                judge[key if key not in judge else f"{grader.score_ids[0]}.{key}"] = value
            if outcome.invalid is None:
                record.scores.update(outcome.scores)
                record.not_applicable += outcome.not_applicable
                continue
            record.invalid = True
            zeroed = zeros(grader.score_ids if several else task.declared, grader.score_ids[0])
            record.scores.update(zeroed)
            record.invalid_scores += list(zeroed)
            key = "invalid" if "invalid" not in judge else f"{grader.score_ids[0]}.invalid"
            judge[key] = outcome.invalid.to_dict()
        record.judge = judge or None
        attempt.misses = self._misses(attempt)
        record.outcome = "failed" if record.invalid or attempt.misses else "passed"

    def _misses(self, attempt: Attempt) -> list[tuple[str, float | None, float, bool]]:
        task, record = attempt.task, attempt.record
        out: list[tuple[str, float | None, float, bool]] = []
        for metric in task.metrics.values():
            limit = metric.sample_threshold
            if limit is None:
                continue
            score = record.scores.get(metric.id)
            if score is None:
                missed = metric.id not in record.not_applicable and not task.batch_graders
            else:
                missed = not sample_reaches(score, limit, higher_is_better=metric.higher_is_better)
            if missed:
                out.append((metric.id, score, limit, metric.higher_is_better))
        return out


def scope_of(gateway: Any, task: TaskPlan, model: str, sample_id: str, epoch: int) -> Any:
    """Open the call scope of one sample attempt."""
    return gateway.scope(
        suite=task.suite,
        recording=task.recording,
        task_id=task.id,
        sample_id=sample_id,
        model=model,
        epoch=epoch,
        suite_limit=task.concurrency,
    )


def ctx_of(scope: Any, task: TaskPlan, grader: PythonGrader | PythonBatchGrader) -> Any:
    """Return what answers the `ctx` helpers of one run of a grader with model access."""
    return scope.ctx(
        judge_model=task.judge_model, embedding_model=task.embedding_model, max_calls=grader.max_model_calls
    )


def prompt_of(messages: list[Any]) -> str:
    """Show a conversation as text: a single user turn as it is, else each turn behind its role."""

    def content(message: Any) -> str:
        value = message.get("content") if isinstance(message, dict) else message
        if isinstance(value, list):
            return "".join(str(part.get("text", "")) if isinstance(part, dict) else str(part) for part in value)
        return value if isinstance(value, str) else to_text(value)

    if len(messages) == 1:
        return content(messages[0])
    return "\n\n".join(
        f"{message.get('role', 'user') if isinstance(message, dict) else 'user'}: {content(message)}"
        for message in messages
    )


def batch_sample(record: SampleRecord) -> dict[str, Any]:
    """Return what a batch grader sees of a sample."""
    return {
        "sample_id": record.id,
        "task_id": record.task_id,
        "model": record.model,
        "prompt": record.prompt,
        "target": record.target,
        "output_text": record.output_text,
        "extracted_output": record.extracted_output,
        "dataset_row": record.dataset_row,
        "response_id": record.response_id,
        "scores": record.scores,
        "judge": record.judge,
    }


class _NoAnswer(Exception):
    """An application did not end in time."""


class _ApplicationLoop:
    """An asyncio loop in a thread of its own, for async applications under test."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closed = False

    def run(self, awaitable: Any, timeout_s: float | None = None) -> Any:
        """Wait for what an application returned.

        Raises:
            _NoAnswer: It did not end in time; it is cancelled.
        """
        coroutine = _guarded(awaitable)
        with self._lock:
            if self._closed:
                coroutine.close()
                if inspect.iscoroutine(awaitable):
                    awaitable.close()
                raise RuntimeError("the run has ended")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_serve, args=(self._loop,), name="evalgrader-applications", daemon=True
                )
                self._thread.start()
            loop = self._loop
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            value, left = future.result(timeout_s)
        except TimeoutError:
            if future.done():  # the application's own
                raise
            future.cancel()
            raise _NoAnswer from None
        if left is not None:
            raise left
        return value

    def close(self) -> None:
        with self._lock:
            self._closed = True
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(2)  # an application that does not let itself be cancelled ends with the process


async def _guarded(awaitable: Any) -> tuple[Any, BaseException | None]:
    """Await; a SystemExit is handed over as a value, since it would end the event loop that all applications share."""
    try:
        return await awaitable, None
    except SystemExit as error:
        return None, error


def _raised_at(error: BaseException) -> str:
    """Return the innermost place of the project's own code, such as ` (app.py:12)`; a path would differ by machine."""
    foreign = ("<", *(f"{folder}{os.sep}" for folder in _FOREIGN))
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(foreign)]
    return f" ({os.path.basename(own[-1].filename)}:{own[-1].lineno})" if own else ""


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for running in tasks:
            running.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


class _Ahead:
    """An attempt that runs, or waits to run, ahead of its item."""

    __slots__ = ("attempt", "done", "error", "taken")

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.done = threading.Event()
        self.error: BaseException | None = None
        self.taken = False


class Lookahead:
    """Runs the samples that come next in threads, so that their model calls overlap.

    Args:
        pipeline: Runs the samples.
        concurrency: Model calls that may be in flight; the threads are a few more, since a thread that grades holds
            no permit.
        depth: Samples that may be started and not yet taken by their item.
    """

    def __init__(self, pipeline: Pipeline, concurrency: int, depth: int) -> None:
        self._pipeline = pipeline
        self._most_threads = min(concurrency + 8, 256)
        self._depth = depth
        self._ahead: dict[Any, _Ahead] = {}
        self._queue: deque[_Ahead] = deque()
        self._condition = threading.Condition()
        self._threads = 0
        self._idle = 0
        self._closed = False

    def offer(self, upcoming: Iterable[tuple[Any, Callable[[], Attempt]]]) -> None:
        """Start what comes next, as far as `depth` allows.

        Args:
            upcoming: Keys in the order in which the items will run, each with what makes its attempt.
        """
        with self._condition:
            room = self._depth - len(self._ahead)
            if room <= 0 or self._closed:
                return
            for key, make in upcoming:
                if room <= 0:
                    break
                if key in self._ahead:
                    continue
                entry = _Ahead(make())
                self._ahead[key] = entry
                self._queue.append(entry)
                room -= 1
                if self._idle < len(self._queue) and self._threads < self._most_threads:
                    self._threads += 1
                    threading.Thread(target=self._work, name="evalgrader-ahead", daemon=True).start()
            self._condition.notify_all()

    def started(self, key: Any) -> bool:
        """Say whether a sample was started ahead and not yet taken."""
        return key in self._ahead

    def take(self, key: Any) -> Attempt | None:
        """Wait for a sample that was started ahead; None where it was not."""
        with self._condition:
            entry = self._ahead.pop(key, None)
            if entry is None:
                return None
            entry.taken = True
        # In slices, so that a Ctrl-C is seen at once on every platform.
        while not entry.done.wait(0.5):
            pass
        if entry.error is not None:
            raise entry.error
        return entry.attempt

    def close(self) -> None:
        """Start nothing more. Threads that wait for a call are daemons and end with the gateway."""
        with self._condition:
            self._closed = True
            self._queue.clear()
            self._condition.notify_all()

    def _work(self) -> None:
        while True:
            with self._condition:
                self._idle += 1
                while not self._queue and not self._closed:
                    self._condition.wait()
                self._idle -= 1
                if self._closed:
                    return
                entry = self._queue.popleft()
            try:
                self._pipeline.advance(entry.attempt, stop_before=NOT_IN_A_THREAD)
            except BaseException as error:  # noqa: BLE001 - handed to the item that waits for this sample
                entry.error = error
            finally:
                entry.done.set()
