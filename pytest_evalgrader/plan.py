"""From a suite file to what will run: rows, templates, graders, groups. Everything that can be wrong is found here."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from pytest_evalgrader.data.dataset import Rows, load_rows, lookup, sample_ids
from pytest_evalgrader.data.extraction import build_extractor
from pytest_evalgrader.data.fewshot import FewShot
from pytest_evalgrader.data.template import Template, check_fields
from pytest_evalgrader.errors import EvalgraderError, Problem, SampleError, SuiteError
from pytest_evalgrader.gateway.bodies import check_generation
from pytest_evalgrader.gateway.providers import Providers
from pytest_evalgrader.gateway.recording import recording_path
from pytest_evalgrader.graders.calibration import calibrated_keys, calibration_problems, metric_ids
from pytest_evalgrader.graders.custom import CustomGrader, import_trusted
from pytest_evalgrader.graders.python import MIB, PythonBatchGrader, PythonGrader
from pytest_evalgrader.sandbox.host import Program, Sandbox
from pytest_evalgrader.suite.loading import LoadedSuite, load_suite
from pytest_evalgrader.suite.manifest import (
    BinaryJudgeSpec,
    CustomSpec,
    DatasetSpec,
    EndpointSpec,
    FewShotSpec,
    MetricSpec,
    PrebuiltJudgeSpec,
    PreprocessSpec,
    PythonGraderSpec,
    TaskSpec,
)
from pytest_evalgrader.suite.wording import did_you_mean


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What the session decides about every suite.

    Args:
        rootdir: Paths of suites may not leave it.
        shown_from: What suites are named relative to, where that is another folder.
        models: Candidates that override the suites' own.
        limit: Rows of each task.
        trusted_modules: Modules that suites may run.
        may_call: Whether model calls may be made (not in replay).
        providers: The configured providers and endpoints.
        find_grader: Asks the conftest hooks for a custom grader.
        answered_by_hook: Whether a conftest hook answers for models of its own.
        build_graders: False on the controller, where samples are not graded.
        uses_recordings: Whether recordings are read or written (not in live).
    """

    rootdir: Path
    providers: Providers
    models: tuple[str, ...] = ()
    judge_model: str | None = None
    embedding_model: str | None = None
    limit: int | None = None
    trusted_modules: tuple[str, ...] = ()
    may_call: bool = True
    find_grader: Callable[[str], Callable[..., Any] | None] = lambda key: None
    answered_by_hook: bool = False
    build_graders: bool = True
    shown_from: Path | None = None
    uses_recordings: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that answers.

    Args:
        name: As the suite or the command line gives it.
        kind: recorded | python | provider | hook.
        column: For `recorded:COLUMN`.
        function: For `python:module:function`.
    """

    name: str
    kind: str
    column: str = ""
    function: Callable[..., Any] | None = None
    is_async: bool = False


Grader = Any  # PythonGrader | CustomGrader | BinaryJudge | PrebuiltJudge | ExternalEndpoint


@dataclass(slots=True, eq=False)
class TaskPlan:
    """One task, ready to run.

    Args:
        suite: The suite's path relative to the rootdir.
        index: Position of the task in its suite.
        rows: All rows, after a batch preprocessor.
        count: How many of the rows run.
        loaded: Rows of the dataset before `limit` (after a batch preprocessor).
        ids: A sample id for each row.
        longest_call_s: A bound on the seconds that one call of a model of it may take; 0 where no model is asked.
    """

    suite: str
    index: int
    spec: TaskSpec
    candidates: tuple[Candidate, ...]
    rows: Rows
    count: int
    ids: list[str]
    metrics: dict[str, MetricSpec]
    generation: dict[str, Any]
    judge_model: str | None
    embedding_model: str | None
    concurrency: int | None
    recording: Path
    graders: tuple[Grader, ...] = ()
    batch_graders: tuple[PythonBatchGrader, ...] = ()
    preprocessor: Preprocessor | None = None
    prompt: Template | None = None
    target: Template | None = None
    fewshot: FewShot | None = None
    extract: Callable[[str], str | None] = lambda text: text
    sources: dict[str, str] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    longest_call_s: float = 0.0

    @property
    def id(self) -> str:
        """The task's id."""
        return str(self.spec.id)

    @property
    def epochs(self) -> int:
        """How many times each row is asked."""
        return int(self.spec.epochs)

    @property
    def programs(self) -> list[Program]:
        """The programs that samples of the task run."""
        own = [grader.program for grader in self.graders if isinstance(grader, PythonGrader)]
        return own if self.preprocessor is None else [self.preprocessor.program, *own]

    @property
    def loaded(self) -> int:
        """Rows of the task before any limit."""
        return len(self.rows)

    @property
    def declared(self) -> tuple[str, ...]:
        """Metric ids that an invalid result makes zero: all declared ones whose value comes from samples."""
        own = self.calibrated
        return tuple(key for key, metric in self.metrics.items() if metric.aggregation != "none" and key not in own)

    @property
    def calibrated(self) -> dict[str, str]:
        """Metric ids that come from people's verdicts, each with the judge's score id."""
        if self.spec.calibration is None:
            return {}
        return {name: key for key in calibrated_keys(self.spec.grader_list) for name in metric_ids(key)}

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """Declared score ranges by metric id."""
        return {key: (m.range[0], m.range[1]) for key, m in self.metrics.items() if m.range is not None}

    @property
    def gate_metrics(self) -> list[MetricSpec]:
        """The metrics that have a gate item."""
        return [
            metric
            for metric in self.metrics.values()
            if metric.threshold is not None or (metric.sample_threshold is not None and self.batch_graders)
        ]

    def sample_id(self, index: int, epoch: int) -> str:
        """Name a sample within its group."""
        return self.ids[index] if self.epochs == 1 else f"{self.ids[index]}-e{epoch}"

    def sample_keys(self) -> Iterator[tuple[int, int]]:
        """All samples of a group in the plan's order, as (row index, epoch)."""
        for index in range(self.count):
            for epoch in range(1, self.epochs + 1):
                yield index, epoch

    @property
    def choices(self) -> list[Any] | None:
        """The task's choices, or None."""
        return self.spec.choices


@dataclass(slots=True)
class SuitePlan:
    """One suite, ready to run."""

    loaded: LoadedSuite
    tasks: tuple[TaskPlan, ...]
    warnings: list[str]

    @property
    def relpath(self) -> str:
        """Path of the suite relative to the rootdir, with forward slashes."""
        return str(self.loaded.relpath)


def load_plan(path: Path, options: PlanOptions, sandbox: Sandbox) -> SuitePlan:
    """Load a suite and everything it names.

    Raises:
        SuiteError: With all problems of the suite, its datasets, templates and graders.
    """
    loaded = load_suite(path, rootdir=options.rootdir, shown_from=options.shown_from)
    problems: list[Problem] = []
    recording = recording_path(loaded.path)
    if options.uses_recordings and not recording.resolve().is_relative_to(options.rootdir.resolve()):
        told = f"its recording {recording.parent.name}/{recording.name} is a link that leaves pytest's rootdir."
        problems.append(Problem(loaded.relpath, f"{told} Put the recording itself there."))
    warnings: list[str] = []
    tasks = []
    for index in range(len(loaded.spec.tasks)):
        builder = _TaskBuilder(loaded, index, options, sandbox)
        task = builder.build()
        problems += builder.problems
        warnings += builder.warnings
        if task is not None:
            tasks.append(task)
    if problems:
        raise SuiteError(list(dict.fromkeys(problems)))
    return SuitePlan(loaded, tuple(tasks), warnings)


class _TaskBuilder:
    """Builds one task and collects its problems instead of stopping at the first."""

    def __init__(self, loaded: LoadedSuite, index: int, options: PlanOptions, sandbox: Sandbox) -> None:
        self.loaded = loaded
        self.index = index
        self.options = options
        self.sandbox = sandbox
        self.spec: TaskSpec = loaded.spec.tasks[index]
        self.problems: list[Problem] = []
        self.warnings: list[str] = []
        self.place = f"tasks[{index}]"
        self.row_preprocessor: Preprocessor | None = None
        self.made: list[dict[str, Any]] = []  # by the row preprocessor, from the rows before `looked_at`
        self.looked_at = 0
        self.longest_call_s = 0.0

    def where(self, below: str = "") -> str:
        return f"{self.loaded.relpath}: {self.place}{below}"

    def attempt(self, build: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Run a step; its problems are kept and None is returned."""
        try:
            return build(*args, **named)
        except SuiteError as error:
            self.problems += error.problems
        except EvalgraderError as error:
            self.problems.append(Problem(self.where(), str(error)))
        return None

    def build(self) -> TaskPlan | None:
        spec, options = self.spec, self.options
        run = self.loaded.spec.run
        if spec.preprocess is not None and spec.preprocess.contract == "row":
            self.row_preprocessor = self.attempt(self.preprocessor, spec.preprocess, "transform")
        rows = self.attempt(self.load_rows)
        ids: list[str] = []
        if rows is not None:
            found = self.attempt(sample_ids, rows, spec.dataset.id_column)
            if found is not None:
                ids, warned = found
                inline = f"{self.where()}."
                self.warnings += [text if text.startswith(inline) else f"{self.where()}: {text}" for text in warned]
        candidates = self.candidates(rows)
        generation = run.generation.merged(spec.generation)
        limit = options.limit if options.limit is not None else run.max_samples_per_task
        task = TaskPlan(
            suite=str(self.loaded.relpath),
            index=self.index,
            spec=spec,
            candidates=tuple(candidates),
            rows=rows if rows is not None else Rows.from_list([], where=self.where()),
            count=0 if rows is None else len(rows) if limit is None else min(limit, len(rows)),
            ids=ids,
            metrics={metric.id: metric for metric in spec.metrics},
            generation=generation.settings(),
            judge_model=self.judge_model,
            embedding_model=options.embedding_model or run.embedding_model,
            concurrency=run.concurrency,
            recording=recording_path(self.loaded.path),
        )
        self.templates(task, rows)
        task.extract = self.attempt(
            build_extractor, spec.output_extraction, where=self.where(".output_extraction")
        ) or (lambda text: text)
        self.graders(task, rows)
        task.longest_call_s = self.longest_call_s
        if spec.calibration is not None and rows is not None:
            self.problems += calibration_problems(
                self.processed(rows), spec.calibration.column, where=self.where(".calibration")
            )
        if rows is not None:
            task.digests["dataset"] = rows.digest
        return None if self.problems else task

    # -- rows ---------------------------------------------------------------------------------------------------

    def dataset(self, spec: DatasetSpec, below: str) -> Rows:
        """Load the rows of the task's or of few-shot's dataset."""
        return load_rows(
            spec,
            resolve=self.loaded.resolve,
            rootdir=self.options.rootdir,
            where=self.where(below),
            base=self.loaded.path.parent,
        )

    def load_rows(self) -> Rows:
        rows = self.dataset(self.spec.dataset, ".dataset")
        if not len(rows):
            raise SuiteError(
                [Problem(self.where(".dataset"), "the dataset has no rows; an eval over nothing cannot pass.")]
            )
        pre = self.spec.preprocess
        if pre is not None and pre.contract == "batch":
            rows = self.preprocess_batch(rows, pre)
        return rows

    def program(self, spec: Any, place: str, functions: tuple[str, ...]) -> Program:
        source = self.loaded.source_of(spec, place)
        return Program(source=source.text, filename=source.filename, functions=functions)

    def preprocessor(self, spec: PreprocessSpec, function: str) -> Preprocessor:
        """Load a preprocessor.

        Raises:
            SuiteError: It does not compile, or lacks the function.
        """
        program = self.program(spec, f"{self.place}.preprocess", (function,))
        problems = self.sandbox.check(program)
        if problems:
            raise SuiteError(problems)
        return Preprocessor(program, spec.timeout_seconds, spec.memory_mb)

    def preprocess_batch(self, rows: Rows, spec: PreprocessSpec) -> Rows:
        where = self.where(".preprocess")

        def problem(message: str) -> SuiteError:
            return SuiteError([Problem(where, message)])

        preprocessor = self.preprocessor(spec, "transform_batch")
        given = list(rows)
        try:
            made = preprocessor.rows(self.sandbox, given, self.spec.id)
        except SuiteError as error:
            raise problem(error.problems[0].message) from None
        finally:
            self.sandbox.retire(preprocessor.program)
        if not made:
            raise problem(f"transform_batch dropped all {len(given)} rows; nothing is left to ask.")
        for n, row in enumerate(made):
            if not isinstance(row, dict):
                kind = type(row).__name__
                raise problem(f"transform_batch returned {kind} as row {n}; every row must be an object.")
        return Rows.from_list(made, where=f"{where} row")

    # -- candidates ---------------------------------------------------------------------------------------------

    def candidates(self, rows: Rows | None) -> list[Candidate]:
        from_command_line = bool(self.options.models)
        names = self.options.models or self.spec.models or self.loaded.spec.run.models or ()
        if not names:
            self.problems.append(
                Problem(
                    self.where(),
                    "no model is named. Set run.models in the suite (or models on the task), or give --evals-model.",
                )
            )
        place = ".models" if self.spec.models and not from_command_line else ""
        out = []
        for name in dict.fromkeys(names):
            candidate = self.attempt(self.candidate, name, rows, place, from_command_line)
            if candidate is not None:
                out.append(candidate)
        return out

    def candidate(self, name: str, rows: Rows | None, place: str, from_command_line: bool) -> Candidate:
        provider, _, rest = name.partition(":")
        where = self.where(place)
        if provider == "recorded" and rest:
            if rows is not None:
                self.check_column(rest, rows, where)
            return Candidate(name, "recorded", column=rest)
        if not self.options.build_graders:
            # The workers checked it, with the conftests of the suite's folder, which this process may not have.
            return Candidate(name, "provider")
        if provider == "python" and rest:
            function = import_trusted(
                rest,
                self.options.trusted_modules,
                where=where,
                takes=("prompt", "row"),
                check_trust=not from_command_line,
            )
            return Candidate(name, "python", function=function, is_async=_is_async(function))
        if self.options.answered_by_hook and rest and provider not in self.options.providers.names:
            return Candidate(name, "hook")
        self.check_model(name, where)
        resolved, _ = self.options.providers.resolve(name)
        settings = self.loaded.spec.run.generation.merged(self.spec.generation).settings()
        found = check_generation(resolved, settings)
        if found:
            raise SuiteError([Problem(self.where(f".generation.{p.where}"), p.message) for p in found])
        return Candidate(name, "provider")

    def check_column(self, column: str, rows: Rows, where: str) -> None:
        """A recorded column that no row has is an error; row preprocessors may add or drop it, so ask them."""
        columns: dict[str, None] = {}
        for row in self.rows_to_look_at(rows):
            try:
                lookup(row, column)
            except KeyError:
                columns.update(dict.fromkeys(row))
                continue
            return
        raise SuiteError(
            [
                Problem(
                    where,
                    f'no row has the column "{column}" that recorded:{column} reads. '
                    + did_you_mean(column, columns, what="Columns"),
                )
            ]
        )

    def rows_to_look_at(self, rows: Rows) -> Iterator[dict[str, Any]]:
        """Rows as the row preprocessor, if any, returns them; lazily: whoever looks stops at the first that fits.

        Where it fails on some, the rows as loaded follow: nobody knows what those would have had.
        """
        if self.row_preprocessor is not None:
            yield from self.preprocessed(rows)
            if len(self.made) == len(rows):
                return
        yield from rows

    def preprocessed(self, rows: Rows) -> Iterator[dict[str, Any]]:
        """Rows as the row preprocessor returns them, each made once; those that it fails on are left out."""
        if self.row_preprocessor is None:
            return
        for n in count():
            while n == len(self.made) and self.looked_at < len(rows):
                index = self.looked_at
                self.looked_at += 1
                with suppress(SampleError):  # an error of that sample, when it runs
                    self.made.append(self.row_preprocessor.row(self.sandbox, rows[index], str(index)))
            if n == len(self.made):
                return
            yield self.made[n]

    def processed(self, rows: Rows) -> Any:
        """Return the rows as a grader will see them: after a row preprocessor, where there is one."""
        pre = self.spec.preprocess
        if pre is None or pre.contract != "row":
            return rows
        return _Processed(self.preprocessed(rows))

    # -- templates ----------------------------------------------------------------------------------------------

    def templates(self, task: TaskPlan, rows: Rows | None) -> None:
        spec = self.spec
        task.preprocessor = self.row_preprocessor
        extra = {} if spec.choices is None else {"choices": spec.choices}
        templates = []
        for name in ("prompt_template", "target_template"):
            text = getattr(spec, name)
            if text is None:
                continue
            template = self.attempt(Template, text, where=self.where(f".{name}"))
            if template is not None:
                templates.append(template)
                setattr(task, "prompt" if name == "prompt_template" else "target", template)
        if rows is not None and templates:
            self.problems += check_fields(templates, _Lazy(lambda: self.rows_to_look_at(rows)), extra)
        if (
            spec.prompt_template is None
            and rows is not None
            and not any("messages" in row for row in self.rows_to_look_at(rows))
        ):
            self.problems.append(
                Problem(
                    self.where(),
                    "there is no prompt: set prompt_template, or give the rows a `messages` column. "
                    f"Columns: {', '.join(list(rows.columns)[:20])}.",
                )
            )
        if spec.fewshot is not None and rows is not None:
            task.fewshot = self.attempt(self.few_shot, spec.fewshot, rows)

    def few_shot(self, spec: FewShotSpec, rows: Rows) -> FewShot:
        own = None if spec.dataset is None else self.dataset(spec.dataset, ".fewshot.dataset")
        return FewShot(
            spec,
            rows=own if own is not None else rows,
            own_dataset=own is None,
            prompt_template=self.spec.prompt_template,
            target_template=self.spec.target_template,
            where=self.where(".fewshot"),
            check=own is not None or self.spec.preprocess is None or self.spec.preprocess.contract == "batch",
            extra={} if self.spec.choices is None else {"choices": self.spec.choices},
        )

    # -- graders ------------------------------------------------------------------------------------------------

    def graders(self, task: TaskPlan, rows: Rows | None) -> None:
        graders: list[Grader] = []
        batch: list[PythonBatchGrader] = []
        for spec, place in zip(self.spec.grader_list, self.spec.grader_places, strict=True):
            if isinstance(spec, PythonGraderSpec):
                self.python_grader(spec, place, task, graders, batch)
            elif self.options.build_graders:
                grader = self.attempt(self.other_grader, spec, place)
                if grader is not None:
                    if hasattr(grader, "check_rows") and rows is not None:
                        view = self.processed(rows)
                        self.problems += self.attempt(grader.check_rows, view) or []
                    graders.append(grader)
        task.graders = tuple(graders)
        task.batch_graders = tuple(batch)

    def python_grader(
        self,
        spec: PythonGraderSpec,
        place: str,
        task: TaskPlan,
        graders: list[Grader],
        batch: list[PythonBatchGrader],
    ) -> None:
        execution = spec.execution or {"sample": "per_sample", "batch": "aggregate"}.get(spec.contract)
        program = self.attempt(self.program, spec, place, ("grade",))
        if program is None:
            return
        if execution is None:
            # model_backed: whichever function is there, `grade` if both. A file that is broken is reported below.
            batched = Program(program.source, program.filename, ("grade_batch",))
            only_batch = bool(self.sandbox.check(program)) and not self.sandbox.check(batched)
            execution = "aggregate" if only_batch else "per_sample"
        name = "grade_batch" if execution == "aggregate" else "grade"
        program = Program(source=program.source, filename=program.filename, functions=(name,))
        task.sources[program.filename] = program.source
        digest = hashlib.sha256(program.source.encode("utf-8", "surrogatepass")).hexdigest()
        task.digests[place] = f"sha256:{digest}"
        if self.options.build_graders:
            self.problems += self.sandbox.check(program)
        kind: Any = PythonGrader if name == "grade" else PythonBatchGrader
        made: list[Any] = graders if name == "grade" else batch
        made.append(
            kind(
                program=program,
                place=place,
                metric_id=spec.metric_id,
                timeout_s=float(spec.timeout_seconds),
                memory_mb=spec.memory_mb,
                model_access=spec.access == "mka1",
                max_model_calls=spec.max_model_calls,
            )
        )

    def other_grader(self, spec: Any, place: str) -> Grader:
        where = f"{self.loaded.relpath}: {place}"
        options = self.options
        if isinstance(spec, CustomSpec):
            if spec.function is not None:
                function = import_trusted(
                    spec.function, options.trusted_modules, where=f"{where}.function", takes=("sample", "item")
                )
            else:
                by_hook = options.find_grader(spec.key)
                if by_hook is None:
                    raise SuiteError(
                        [
                            Problem(
                                where,
                                f'no grader is registered under the key "{spec.key}". Name a "function", or return one '
                                "from the hook pytest_evalgrader_grader(key) in conftest.py.",
                            )
                        ]
                    )
                if not callable(by_hook):
                    raise SuiteError(
                        [
                            Problem(
                                where,
                                f"the hook pytest_evalgrader_grader returned {type(by_hook).__name__} for the key "
                                f'"{spec.key}"; expected a function of sample and item.',
                            )
                        ]
                    )
                function = by_hook
            return CustomGrader(function, place, spec.own_key)
        if isinstance(spec, BinaryJudgeSpec):
            from pytest_evalgrader.graders.judge import BinaryJudge

            self.check_judge(spec.judge_model, where)
            return BinaryJudge(spec, where=where, judge_model=self.judge_model)
        if isinstance(spec, PrebuiltJudgeSpec):
            from pytest_evalgrader.graders.rag import PrebuiltJudge

            self.check_judge(spec.judge_model, where)
            return PrebuiltJudge(spec, where=where, judge_model=self.judge_model)
        if isinstance(spec, EndpointSpec):
            from pytest_evalgrader.graders.endpoint import ExternalEndpoint

            found = options.providers.check_endpoint(spec.url, may_call=options.may_call)
            if found:
                raise SuiteError([Problem(f"{where}.url", problem.message) for problem in found])
            return ExternalEndpoint(spec, where=where, providers=options.providers)
        raise SuiteError([Problem(where, f"graders of type {spec.type!r} are not known.")])

    @property
    def judge_model(self) -> str | None:
        """The run's judge model."""
        return self.options.judge_model or self.loaded.spec.run.judge_model

    def check_judge(self, own: str | None, where: str) -> None:
        """A judge needs a model that the configuration knows."""
        name = own or self.judge_model
        if name is None:
            raise SuiteError(
                [
                    Problem(
                        where,
                        "the judge has no model. Set judge_model on the grader or in run, or give --evals-judge-model.",
                    )
                ]
            )
        self.check_model(name, where)

    def check_model(self, name: str, where: str) -> None:
        """Refuse a model that the configuration cannot reach."""
        found = self.options.providers.check(name, may_call=self.options.may_call)
        if found:
            raise SuiteError([Problem(where, problem.message) for problem in found])
        provider, _ = self.options.providers.resolve(name)
        generation = self.loaded.spec.run.generation.merged(self.spec.generation).settings()
        # A judge has the provider's settings, a candidate those of the suite.
        bounds = (provider.longest_call_s({}), provider.longest_call_s(generation))
        self.longest_call_s = max(self.longest_call_s, *bounds)


class _Processed(list[dict[str, Any]]):
    """Preprocessed rows with their columns."""

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(key for row in self for key in row))


class _Lazy:
    """An iterable that starts anew each time."""

    def __init__(self, make: Callable[[], Iterator[dict[str, Any]]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self._make()


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


@dataclass(frozen=True, slots=True)
class Preprocessor:
    """A preprocessor's program and its limits.

    Args:
        timeout_s: Wall time of one run.
        memory_mb: Address space beyond the interpreter's own; what the input needs comes on top.
    """

    program: Program
    timeout_s: float
    memory_mb: int

    def row(self, sandbox: Sandbox, row: dict[str, Any], seed: str) -> dict[str, Any]:
        """Run `transform` on one row.

        Raises:
            SampleError: At stage preprocess.
        """
        try:
            value: dict[str, Any] = self._run(sandbox, "transform", row, "row", seed, len(json.dumps(row)), dict)
        except _PreprocessFault as fault:
            raise SampleError("preprocess", str(fault), fault.type_name) from None
        return value

    def rows(self, sandbox: Sandbox, rows: list[dict[str, Any]], seed: str) -> list[Any]:
        """Run `transform_batch` on all rows.

        Raises:
            SuiteError: It failed, or returned no list; the place is left to the caller.
        """
        size = sum(len(json.dumps(row)) for row in rows)
        try:
            value: list[Any] = self._run(sandbox, "transform_batch", rows, "rows", seed, size, list)
        except _PreprocessFault as fault:
            raise SuiteError([Problem("", str(fault))]) from None
        return value

    def _run(self, sandbox: Sandbox, name: str, given: Any, shape: Any, seed: str, size: int, kind: type) -> Any:
        result = sandbox.run(
            self.program,
            name,
            [given],
            shape=shape,
            timeout_s=self.timeout_s,
            memory_mb=self.memory_mb + 24 * size // MIB,
            seed=seed,
            calls=None,
            max_result_bytes=16 * MIB + 8 * size,
        )
        if result.status == "interrupted":
            raise KeyboardInterrupt
        if result.status == "returned":
            reduced = result.value or {}
            value, problem = reduced.get("value"), reduced.get("problem")
            if problem is None and isinstance(value, kind):
                return value
            expected = "an object (the row)" if kind is dict else "a list of objects (the rows)"
            got = problem or f"it returned {reduced.get('type', type(value).__name__)}"
            raise _PreprocessFault(f"{name}: {got}; expected {expected}.")
        if result.status == "raised":
            error: Mapping[str, Any] = result.error or {}
            frames: Sequence[Mapping[str, Any]] = error.get("traceback") or ()
            at = f" at {frames[-1]['file']}:{frames[-1]['line']}" if frames else ""
            said = f"{name} raised {error.get('type')}: {error.get('message')}{at}"
            raise _PreprocessFault(said, str(error.get("type", "PreprocessError")))
        words = {
            "timeout": f"reached timeout_seconds={self.timeout_s:g} and was stopped",
            "memory": f"needed more than memory_mb={self.memory_mb} and was stopped",
            "too_large": "returned more than fits (its result is bounded by 8 times its input plus 16 MiB)",
        }
        raise _PreprocessFault(f"{name} {words.get(result.status, 'ended its process without a result')}.")


class _PreprocessFault(Exception):
    """What a preprocessor did wrong, in words."""

    def __init__(self, message: str, type_name: str = "PreprocessError") -> None:
        super().__init__(message)
        self.type_name = type_name
