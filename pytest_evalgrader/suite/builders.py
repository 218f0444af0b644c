"""Build suites in Python, and write them as JSON.

    from pytest_evalgrader import Suite, Task, python_grader

    def grade(sample, item):
        return 1.0 if sample["extracted_output"] == item["target"] else 0.0

    Suite(
        [
            Task(
                "capitals",
                dataset="capitals.jsonl",
                prompt_template="The capital of {{country}}?",
                target_template="{{capital}}",
                grader=python_grader(grade),
                metrics=[{"id": "score", "threshold": 0.9}],
            )
        ],
        models=["openai:gpt-4.1-mini"],
    ).to_json("suites/capitals.json")

Everything is checked as it is built, with the messages of `evalgrader validate`.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import json
import os
import re
import symtable
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from pytest_evalgrader.errors import Problem, SuiteError
from pytest_evalgrader.suite.fields import Spec
from pytest_evalgrader.suite.manifest import (
    SCHEMA_VERSION,
    BinaryJudgeSpec,
    CustomSpec,
    DatasetSpec,
    EndpointSpec,
    FewShotSpec,
    GenerationSpec,
    GraderSpec,
    MetricSpec,
    PrebuiltJudgeSpec,
    PreprocessSpec,
    PythonGraderSpec,
    RefSpec,
    SuiteSpec,
    TaskSpec,
    problems_of,
)

TaskType = Literal[
    "classification",
    "multiple_choice",
    "qa",
    "summarization",
    "semantic_similarity",
    "llm_judge",
    "numeric",
    "math",
    "custom",
]
Code = str | os.PathLike[str] | Callable[..., Any]
"""Python code: its text, the path of a file, or a function whose source is taken."""

_SpecType = TypeVar("_SpecType", bound=Spec)
_SURROGATE = re.compile("[\ud800-\udfff]")
_FUNCTIONS = {"grade": "sample", "grade_batch": "batch"}


class Task:
    """One dataset, one prompt, its graders and metrics.

    Args:
        id: Names the task in node ids: letters, digits, `_`, `.` and `-`.
        dataset: A path relative to the suite (or a key of its files), a list of rows, or what the JSON says.
        grader: What `python_grader` and its like return, or the name of a grader of the suite.
        graders: Several of them, whose scores are merged; instead of `grader`.
        type: A label only.
        name: For people.
        prompt_template: Handlebars template of the prompt; without one the rows' `messages` are asked.
        target_template: Handlebars template of the right answer.
        choices: The choices of each row.
        output_extraction: How the answer is found in the output, as in the JSON.
        metrics: Ids, or what the JSON says: `{"id": "score", "threshold": 0.9}`.
        generation: Settings that win over the suite's, key by key.
        preprocess: What changes rows before they are asked, as in the JSON.
        fewshot: Examples before the prompt: their number, or what the JSON says.
        models: Candidates, instead of the suite's.
        epochs: How many times each row is asked, 1 to 100.
        allow_errors: Share of samples that may be errors, 0 to 1.
        tags: Become pytest marks.
        calibration_column: Column of the rows with human verdicts, for judges.
        metadata: Free.

    Raises:
        SuiteError: With all that is wrong.
    """

    def __init__(
        self,
        id: str,
        *,
        dataset: str | os.PathLike[str] | Sequence[Mapping[str, Any]] | Mapping[str, Any] | DatasetSpec,
        grader: GraderSpec | RefSpec | str | None = None,
        graders: Sequence[GraderSpec | RefSpec | str] | None = None,
        type: TaskType | None = None,
        name: str | None = None,
        prompt_template: str | None = None,
        target_template: str | None = None,
        choices: Sequence[str | float] | None = None,
        output_extraction: Mapping[str, Any] | Spec | None = None,
        metrics: Sequence[str | Mapping[str, Any] | MetricSpec] | None = None,
        generation: Mapping[str, Any] | GenerationSpec | None = None,
        preprocess: Mapping[str, Any] | PreprocessSpec | None = None,
        fewshot: int | Mapping[str, Any] | FewShotSpec | None = None,
        models: Sequence[str] | None = None,
        epochs: int | None = None,
        allow_errors: float | None = None,
        tags: Sequence[str] | None = None,
        calibration_column: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self.spec: TaskSpec = _made(
            TaskSpec,
            f"Task({id!r})",
            id=id,
            name=name,
            type=type,
            dataset=_dataset(dataset),
            prompt_template=prompt_template,
            target_template=target_template,
            choices=choices,
            output_extraction=output_extraction,
            metrics=None if metrics is None else [{"id": m} if isinstance(m, str) else m for m in metrics],
            generation=generation,
            grader=_grader(grader),
            graders=None if graders is None else [_grader(one) for one in graders],
            preprocess=preprocess,
            fewshot={"count": fewshot} if isinstance(fewshot, int) else fewshot,
            metadata=metadata,
            models=models,
            epochs=epochs,
            allow_errors=allow_errors,
            tags=tags,
            calibration=None if calibration_column is None else {"column": calibration_column},
        )

    def __repr__(self) -> str:
        return f"Task({self.spec.id!r})"


class Suite:
    """Tasks, the files and graders they use, and defaults for a run.

    Args:
        tasks: The tasks, 1 to 100.
        name: For people.
        description: For people.
        models: The candidates, 1 to 20; the command line wins.
        judge_model: The model that judges.
        embedding_model: The model that embeds.
        generation: How candidates are asked, as in the JSON.
        concurrency: Model calls in flight over the whole run.
        max_samples_per_task: Only the first rows of each task.
        files: File id to path relative to the suite.
        graders: Graders that tasks name.
        metadata: Free.

    Raises:
        SuiteError: With all that is wrong.
    """

    def __init__(
        self,
        tasks: Sequence[Task | TaskSpec],
        *,
        name: str | None = None,
        description: str | None = None,
        models: Sequence[str] | None = None,
        judge_model: str | None = None,
        embedding_model: str | None = None,
        generation: Mapping[str, Any] | GenerationSpec | None = None,
        concurrency: int | None = None,
        max_samples_per_task: int | None = None,
        files: Mapping[str, str | os.PathLike[str]] | None = None,
        graders: Mapping[str, GraderSpec] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        run = _given(
            models=models,
            judge_model=judge_model,
            embedding_model=embedding_model,
            generation=generation,
            concurrency=concurrency,
            max_samples_per_task=max_samples_per_task,
        )
        self.spec: SuiteSpec = _made(
            SuiteSpec,
            "Suite",
            schema_version=SCHEMA_VERSION,
            name=name,
            description=description,
            files=None if files is None else {key: _posix(path) for key, path in files.items()},
            graders=graders,
            run=run or None,
            # Copies, since a suite notes in its tasks how their references are resolved.
            tasks=[(task.spec if isinstance(task, Task) else task).model_copy() for task in tasks],
            metadata=metadata,
        )

    def __eq__(self, other: object) -> bool:
        return self.spec == other.spec if isinstance(other, Suite) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Suite({[task.id for task in self.spec.tasks]})"

    def to_dict(self) -> dict[str, Any]:
        """Give the manifest as builtins, with what was set and nothing else."""
        return self.spec.model_dump(by_alias=True, exclude_unset=True)

    def to_json(self, path: str | os.PathLike[str]) -> Path:
        """Write the manifest, which loads again as an equal suite.

        Args:
            path: Where to. Absolute paths of files in the suite become relative to it.

        Returns:
            The path written.

        Raises:
            SuiteError: A free value is nothing that JSON can hold.
            OSError: The file cannot be written.
        """
        target = Path(path)
        document = self.to_dict()
        _relative_paths(document, Path(os.path.abspath(target)).parent)
        try:
            text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise SuiteError([Problem(target.as_posix(), f"a value cannot be written as JSON: {error}.")]) from None
        # A lone surrogate has no UTF-8 form, but an escape in JSON.
        text = _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
        target.write_text(text + "\n", encoding="utf-8", newline="\n")
        return target


def python_grader(
    code: Code,
    *,
    contract: Literal["sample", "batch", "model_backed"] | None = None,
    execution: Literal["per_sample", "aggregate"] | None = None,
    model_access: Literal["none", "mka1"] | None = None,
    metric_id: str | None = None,
    timeout_seconds: float | None = None,
    max_model_calls: int | None = None,
    memory_mb: int | None = None,
) -> PythonGraderSpec:
    """Make a grader in Python, which runs in the sandbox.

    Args:
        code: The text; the path of a file, relative to the suite (a `Path`, or a text that ends in `.py`); or a
            function, whose source is taken. A function must bring its own imports: only its text goes along.
        contract: `sample` (the default), `batch` (the default for a function called `grade_batch`), `model_backed`.
        execution: When it runs; the default follows from the contract.
        model_access: Whether `ctx` may call models; the default is `mka1` for `model_backed`, else `none`.
        metric_id: Where a single number is stored; `score` by default.
        timeout_seconds: 1 to 600; 120 by default.
        max_model_calls: In one execution, 0 to 500; 64 by default.
        memory_mb: Memory limit in MiB; 512 by default.

    Returns:
        What a task takes as `grader`.

    Raises:
        SuiteError: A value is out of range, or the function cannot be taken along.
    """
    if callable(code) and contract is None and getattr(code, "__name__", "") == "grade_batch":
        contract = "batch"
    batch = execution == "aggregate" or (contract == "batch" and execution is None)
    return _made(
        PythonGraderSpec,
        "python_grader",
        type="python",
        contract=contract,
        execution=execution,
        model_access=model_access,
        metric_id=metric_id,
        **_code(code, "grade_batch" if batch else "grade"),
        timeout_seconds=timeout_seconds,
        max_model_calls=max_model_calls,
        memory_mb=memory_mb,
    )


def binary_judge(
    key: str,
    criteria: str,
    *,
    judge_model: str | None = None,
    feedback_key: str | None = None,
    examples: Sequence[Mapping[str, Any]] | None = None,
    system_template: str | None = None,
    user_template: str | None = None,
    template_variables: Mapping[str, Any] | None = None,
) -> BinaryJudgeSpec:
    """Make a judge that answers PASS (1.0), FAIL (0.0) or NA (no score).

    Args:
        key: The judge's name.
        criteria: What must hold for PASS.
        judge_model: The judging model; the run's by default.
        feedback_key: Where the score is stored; the key by default.
        examples: Worked ones: `{"input": turns, "output": text, "passes": bool, "reasoning": text}`.
        system_template: Handlebars template of the system message, instead of the default one.
        user_template: Handlebars template of the user message, instead of the default one.
        template_variables: Values for the templates.

    Returns:
        What a task takes as `grader`.

    Raises:
        SuiteError: With all that is wrong.
    """
    return _made(
        BinaryJudgeSpec,
        f"binary_judge({key!r})",
        type="binary_judge",
        key=key,
        criteria=criteria,
        judge_model=judge_model,
        feedback_key=feedback_key,
        examples=examples,
        system_template=system_template,
        user_template=user_template,
        template_variables=template_variables,
    )


def prebuilt_judge(
    key: str,
    criterion: Literal["FAITHFULNESS", "CONTEXT_RELEVANCY", "ANSWER_RELEVANCY"],
    *,
    judge_model: str | None = None,
) -> PrebuiltJudgeSpec:
    """Make a built-in judge for retrieval-augmented answers.

    Args:
        key: The judge's name, and where the score is stored.
        criterion: What is judged.
        judge_model: The judging model; the run's by default.

    Returns:
        What a task takes as `grader`.

    Raises:
        SuiteError: With all that is wrong.
    """
    return _made(
        PrebuiltJudgeSpec,
        f"prebuilt_judge({key!r})",
        type="prebuilt_judge",
        key=key,
        criterion=criterion,
        judge_model=judge_model,
    )


def external_endpoint(
    key: str, url: str, *, timeout_seconds: float | None = None, max_retries: int | None = None
) -> EndpointSpec:
    """Make a grader that asks a reward server.

    Args:
        key: Where the reward is stored.
        url: Base address, or the name of an endpoint in pyproject.toml (which may have headers).
        timeout_seconds: Until a request is given up; 60 by default.
        max_retries: Further attempts after a failure; 3 by default.

    Returns:
        What a task takes as `grader`.

    Raises:
        SuiteError: With all that is wrong.
    """
    return _made(
        EndpointSpec,
        f"external_endpoint({key!r})",
        type="external_endpoint",
        key=key,
        url=url,
        timeout_seconds=timeout_seconds,
        max_retries=max_retries,
    )


def custom(key: str, function: str | Callable[..., Any] | None = None, *, metric_id: str | None = None) -> CustomSpec:
    """Make a grader of the project's own trusted Python, which runs outside the sandbox.

    Args:
        key: The grader's name, which a conftest's hook `pytest_evalgrader_grader` may answer to.
        function: `module:function`, or a function of a module; the module must stand in `evals_trusted_modules`.
        metric_id: Where a single number is stored; the key by default.

    Returns:
        What a task takes as `grader`.

    Raises:
        SuiteError: With all that is wrong.
    """
    if callable(function):
        module, name = function.__module__, function.__qualname__
        if module == "__main__" or "<" in name:
            message = f"{name} cannot be imported by its name; define it at the top level of a module."
            raise SuiteError([Problem(f"custom({key!r}): function", message)])
        function = f"{module}:{name}"
    return _made(CustomSpec, f"custom({key!r})", type="custom", key=key, function=function, metric_id=metric_id)


# --- from Python values to JSON values --------------------------------------------------------------------------------


def _given(**fields: Any) -> dict[str, Any]:
    return {key: _plain(value) for key, value in fields.items() if value is not None}


def _plain(value: Any) -> Any:
    """Turn tuples and mappings into the lists and dicts that the models take."""
    if isinstance(value, Spec) or value is None or isinstance(value, (str, bytes, int, float)):
        return value
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, Sequence):
        return [_plain(inner) for inner in value]
    return value


def _made(model: type[_SpecType], where: str, **fields: Any) -> _SpecType:
    given = _given(**fields)
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise SuiteError(problems_of(error, given, where)) from None


def _dataset(dataset: Any) -> Any:
    if isinstance(dataset, (str, os.PathLike)):
        return {"file_id": _posix(dataset)}
    if isinstance(dataset, Sequence):
        return {"rows": dataset}
    return dataset


def _grader(grader: Any) -> Any:
    return {"ref": grader} if isinstance(grader, str) else grader


def _posix(path: str | os.PathLike[str]) -> str:
    return Path(path).as_posix() if isinstance(path, os.PathLike) else path


def _code(code: Code, function: str) -> dict[str, str]:
    if isinstance(code, os.PathLike) or (isinstance(code, str) and "\n" not in code and code.endswith(".py")):
        return {"file_id": _posix(code)}
    if isinstance(code, str):
        return {"source": code}
    return {"source": _source_of(code, function)}


def _source_of(function: Callable[..., Any], needed: str) -> str:
    """Take a function's own text along, under the name that the contract needs."""
    name = getattr(function, "__name__", repr(function))
    where = f"python_grader({name})"

    def refuse(message: str) -> SuiteError:
        return SuiteError([Problem(where, message)])

    if not inspect.isfunction(function) or name == "<lambda>":
        raise refuse("found no plain function; write one with def, or give the source as text.")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise refuse("an async function cannot grade; write a plain one.")
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        raise refuse("its source cannot be found (was it typed into a console?); give the source as text.") from None
    try:
        ast.parse(source)
    except SyntaxError:
        raise refuse("its source cannot be taken out of its file; give the source as text.") from None
    outside = _names_from_outside(source)
    if outside:
        listed = ", ".join(outside)
        raise refuse(f"it uses names from outside itself: {listed}. Only its own text goes along; import inside it.")
    return source if name == needed else f"{source}\n{needed} = {name}\n"


def _names_from_outside(source: str) -> list[str]:
    table = symtable.symtable(source, "<function>", "exec")
    own = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_namespace()}
    used: set[str] = set()
    pending = [table]
    while pending:
        scope = pending.pop()
        for symbol in scope.get_symbols():
            at_top = scope is table and not symbol.is_assigned() and not symbol.is_namespace()
            if symbol.is_referenced() and (at_top or (scope is not table and symbol.is_global())):
                used.add(symbol.get_name())
        pending += scope.get_children()
    return sorted(used - own - set(dir(builtins)))


def _relative_paths(document: Any, folder: Path) -> None:
    """Make absolute paths of files relative to the folder that the suite is written into."""

    def relative(path: Any) -> Any:
        if isinstance(path, str) and os.path.isabs(path):
            return Path(os.path.relpath(path, folder)).as_posix()
        return path

    files = document.get("files", {})
    files.update({key: relative(path) for key, path in files.items()})
    holders = list(document.get("graders", {}).values())
    for task in document["tasks"]:
        fewshot = task.get("fewshot") or {}
        holders += [task["dataset"], fewshot.get("dataset"), task.get("preprocess"), task.get("grader")]
        holders += task.get("graders") or []
    for holder in holders:
        if holder and "file_id" in holder:
            holder["file_id"] = relative(holder["file_id"])
