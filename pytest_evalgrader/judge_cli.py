"""`evalgrader judge`: show exactly what the judges of one sample are sent, and what they answer."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib.metadata
import importlib.util
import io
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_evalgrader.errors import CallError, SuiteError
from pytest_evalgrader.graders.endpoint import ExternalEndpoint
from pytest_evalgrader.graders.judge import BinaryJudge
from pytest_evalgrader.graders.outcome import GradeOutcome
from pytest_evalgrader.graders.rag import PrebuiltJudge
from pytest_evalgrader.plan import Candidate, TaskPlan
from pytest_evalgrader.reporting.safetext import one_line, safe

_Judge = BinaryJudge | PrebuiltJudge | ExternalEndpoint


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `evalgrader judge`."""
    parser.description = (
        "Show exactly what the judges and endpoints of a task are sent for one row and, unless --dry-run, what they"
        " answer. pytest runs the sample with your conftest and settings; nothing else runs."
    )
    parser.add_argument("suite", metavar="SUITE", type=Path, help="the suite's JSON file")
    parser.add_argument("--task", metavar="T", help="id of the task; may be left out where the suite has one")
    parser.add_argument("--row", metavar="I", default="0", help="index of the row, from 0 (default), or a sample id")
    parser.add_argument("--grader", metavar="KEY", help="only the judge of this key")
    parser.add_argument("--model", metavar="M", help="the candidate model; the suite's first by default")
    parser.add_argument("--judge-model", metavar="M", help="for judges that name none")
    parser.add_argument("--answer", metavar="TEXT", help="judge this text in place of an answer of the candidate")
    parser.add_argument(
        "--calls", choices=("live", "replay", "fill"), default="live", help="as --evals-calls (default: live)"
    )
    parser.add_argument("--dry-run", action="store_true", help="call nothing: only show what would be sent")


def run(args: argparse.Namespace) -> int:
    """Show what was asked for.

    Returns:
        0; 1 where the suite has problems, or the sample ended as an error or invalid; 2 for wrong usage.
    """
    if not args.suite.is_file():
        return _usage(f"{args.suite}: there is no such file.")
    shown = _Shown(args)
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        status = pytest.main(_arguments(args), plugins=[shown])
    if shown.usage:
        return _usage(shown.usage)
    for problem in shown.problems:
        print(safe(problem), file=sys.stderr)
    if shown.problems:
        return 1
    if status in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.INTERRUPTED):
        print(safe(output.getvalue().rstrip()), file=sys.stderr)
        return 2
    for line in shown.lines:
        print(safe(line))
    if not shown.ran:
        # Neither problems nor a sample: what pytest said is the only explanation there is.
        print(safe(output.getvalue().rstrip()), file=sys.stderr)
        return 1
    return 1 if shown.failed else 0


def _arguments(args: argparse.Namespace) -> list[str]:
    installed = importlib.metadata.entry_points(group="pytest11", name="evalgrader")
    arguments = [
        "--evals",
        "-q",
        "-p",
        "evalgrader" if installed else "pytest_evalgrader.plugin",
        os.fspath(args.suite),
    ]
    if importlib.util.find_spec("xdist") and not os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        arguments += ["-n", "0"]
    # Without calls no key is needed: that is what replay means at collection.
    arguments.append(f"--evals-calls={'replay' if args.dry_run else args.calls}")
    if args.judge_model:
        arguments.append(f"--evals-judge-model={args.judge_model}")
    if args.model:
        arguments.append(f"--evals-model={args.model}")
    return arguments


@dataclass
class _Shown:
    """The pytest plugin that keeps one sample, and shows what its judges see.

    Args:
        args: The command line.
    """

    args: argparse.Namespace
    lines: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    usage: str = ""
    ran: bool = False
    failed: bool = False

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave all files but JSON alone."""
        return True if collection_path.is_file() and collection_path.suffix != ".json" else None

    def pytest_exception_interact(self, node: Any, call: pytest.CallInfo[Any]) -> None:
        """Keep the problems of the suite; a sample's own fault is in its record."""
        if isinstance(node, pytest.Item) or call.excinfo is None:
            return
        error = call.excinfo.value
        if isinstance(error, SuiteError):
            self.problems += [one_line(str(problem)) for problem in error.problems]
        else:
            self.problems.append(one_line(f"{node.nodeid}: {type(error).__name__}: {error}"))

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the one sample, with its judges alone."""
        from pytest_evalgrader.collection import SampleItem

        samples = [item for item in items if isinstance(item, SampleItem)]
        items.clear()
        if self.problems or not samples:
            return
        try:
            chosen = self._choose(samples)
            task = chosen.parent.task
            judges = self._judges(task)
        except LookupError as err:
            self.usage = str(err.args[0])
            return
        task.graders = tuple((_DryGrader if self.args.dry_run else _ShownGrader)(judge, self.lines) for judge in judges)
        task.batch_graders = ()
        chosen.candidate = self._candidate(chosen.candidate)
        task.candidates = (chosen.candidate,)
        items.append(chosen)
        name = f"{task.suite} · task {task.id} · row {chosen.index} (id {task.ids[chosen.index]})"
        self.lines += [f"{name} · {chosen.candidate.name}"]

    def pytest_evalgrader_sample(self, record: dict[str, Any]) -> None:
        """Add how the sample ended."""
        self.ran = True
        error = record.get("error")
        if error:
            self.failed = True
            self.lines += ["", f"error in {error['stage']}: {error['type']}: {error['message']}"]
        self.failed = self.failed or bool(record.get("invalid"))

    def _choose(self, samples: list[Any]) -> Any:
        """Find the sample.

        Raises:
            LookupError: There is none such; the message says what there is.
        """
        # Plugins may have put the items into another order.
        by_index = {item.parent.task.index: item.parent.task.id for item in samples}
        tasks = [by_index[index] for index in sorted(by_index)]
        task_id = self.args.task
        if task_id is None:
            if len(tasks) > 1:
                raise LookupError(f"name a task with --task: {', '.join(tasks)}.")
            task_id = tasks[0]
        samples = [item for item in samples if item.parent.task.id == task_id]
        if not samples:
            near = difflib.get_close_matches(task_id, tasks, n=1)
            hint = f' Did you mean "{near[0]}"?' if near else ""
            raise LookupError(f'there is no task "{task_id}".{hint} Tasks: {", ".join(tasks)}.')
        task = samples[0].parent.task
        row = self.args.row
        index = task.ids.index(row) if row in task.ids else int(row) if row.isascii() and row.isdigit() else None
        found = [item for item in samples if item.index == index and item.epoch == 1]
        found.sort(key=lambda item: task.candidates.index(item.candidate))
        if not found:
            raise LookupError(f'there is no row "{row}". Give an index from 0 to {task.count - 1}, or a sample id.')
        return found[0]

    def _judges(self, task: TaskPlan) -> list[_Judge]:
        judges = [grader for grader in task.graders if isinstance(grader, _Judge)]
        if not judges:
            raise LookupError(f'task "{task.id}" has no judge and no endpoint.')
        if self.args.grader is None:
            return judges
        chosen = [judge for judge in judges if self.args.grader in (judge.key, *judge.score_ids)]
        if not chosen:
            raise LookupError(f'there is no judge "{self.args.grader}". Judges: {", ".join(j.key for j in judges)}.')
        return chosen

    def _candidate(self, candidate: Candidate) -> Candidate:
        """Put a fixed text in place of the candidate where none is to be called."""
        text = self.args.answer
        if text is None and self.args.dry_run and candidate.kind != "recorded":
            text = f"(the answer of {candidate.name}; give one with --answer)"
        if text is None:
            return candidate
        return Candidate(candidate.name, "python", function=lambda prompt, row: text)


class _DryGrader:
    """Shows what a judge would be sent.

    Args:
        grader: The judge.
        lines: Where it is shown.
    """

    def __init__(self, grader: _Judge, lines: list[str]) -> None:
        self.grader = grader
        self.lines = lines
        self.score_ids = grader.score_ids
        self.timeout_s = getattr(grader, "timeout_s", None)

    def grade(self, sample: dict[str, Any], item: dict[str, Any], row: dict[str, Any], scope: Any) -> GradeOutcome:
        """Show the request and give no score."""
        grader = self.grader
        why = grader.nothing_to_ask(sample, row) if isinstance(grader, PrebuiltJudge) else None
        if why is not None:
            self.lines += ["", f"=== {grader.key}: nothing is asked: {why}"]
        elif isinstance(grader, ExternalEndpoint):
            self.lines += _posted(grader.key, grader.endpoint.label, "/score", grader.request(sample, row))
        else:
            self.lines += _asked(grader.key, grader.model, grader.prompt(sample, row).body)
        return GradeOutcome(not_applicable=self.score_ids)


class _ShownGrader(_DryGrader):
    """Grades, and shows each request and each reply."""

    def grade(self, sample: dict[str, Any], item: dict[str, Any], row: dict[str, Any], scope: Any) -> GradeOutcome:
        """Let the judge grade."""
        outcome = self.grader.grade(sample, item, row, _ShownScope(scope, self.grader.key, self.lines))
        said = [f"{key} = {score:g}" for key, score in outcome.scores.items()]
        said += [f"{key} = no score (not applicable)" for key in outcome.not_applicable]
        if outcome.invalid is not None:
            said.append(f"invalid: {outcome.invalid.message}")
        self.lines += ["", f"=== {self.grader.key}: result", *said]
        if outcome.judge:
            self.lines.append(_json(outcome.judge))
        return outcome


class _ShownScope:
    """Passes calls on and shows them.

    Args:
        scope: The sample's calls.
        key: The judge's key.
        lines: Where they are shown.
    """

    def __init__(self, scope: Any, key: str, lines: list[str]) -> None:
        self._scope = scope
        self._key = key
        self._lines = lines

    def responses(self, model: str, body: dict[str, Any], *, role: str = "judge") -> dict[str, Any]:
        """Show a judge's request and its reply."""
        self._lines += _asked(self._key, model, body)
        reply: dict[str, Any] = self._call(lambda: self._scope.responses(model, body, role=role))
        details = ", ".join(str(reply[name]) for name in ("model", "id", "status") if reply.get(name))
        self._lines += ["", f"=== {self._key}: reply ({details})", str(reply.get("output_text") or "(empty)")]
        if reply.get("status") not in (None, "completed") or not reply.get("output_text"):
            self._lines.append(_json({name: reply.get(name) for name in ("incomplete_details", "output")}))
        return reply

    def endpoint(self, endpoint: Any, path: str, body: Any, *, timeout_s: float, max_retries: int) -> Any:
        """Show an endpoint's request and its reply."""
        self._lines += _posted(self._key, endpoint.label, path, body)
        reply = self._call(
            lambda: self._scope.endpoint(endpoint, path, body, timeout_s=timeout_s, max_retries=max_retries)
        )
        self._lines += ["", f"=== {self._key}: reply", _json(reply)]
        return reply

    def _call(self, call: Any) -> Any:
        try:
            return call()
        except CallError as err:
            self._lines += ["", f"=== {self._key}: no answer", err.message]
            raise


def _asked(key: str, model: str, body: dict[str, Any]) -> list[str]:
    lines = []
    for turn in body["input"]:
        lines += ["", f"=== {key}: {turn['role']} → {model}", turn["content"]]
    rest = {name: value for name, value in body.items() if name != "input"}
    return [*lines, "", f"=== {key}: the rest of the request", _json(rest)]


def _posted(key: str, label: str, path: str, body: Any) -> list[str]:
    method = "GET" if body is None else "POST"
    return ["", f"=== {key}: {method} {path} → {label}", *([] if body is None else [_json(body)])]


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=repr)


def _usage(message: str) -> int:
    print(safe(f"evalgrader judge: {message}"), file=sys.stderr)
    return 2
