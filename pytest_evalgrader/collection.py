"""The pytest nodes: a suite file, its tasks, the sample items and the gate items."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.fixtures import TopRequest

from pytest_evalgrader.errors import SuiteError
from pytest_evalgrader.gates import GateVerdict
from pytest_evalgrader.graders.python import PythonGrader
from pytest_evalgrader.plan import Candidate, SuitePlan, TaskPlan
from pytest_evalgrader.reporting.failures import collection_failure
from pytest_evalgrader.suite.loading import shown_path
from pytest_evalgrader.suite.manifest import MetricSpec

if TYPE_CHECKING:
    from pytest_evalgrader.pipeline import Attempt
    from pytest_evalgrader.session import EvalSession

SESSION_KEY: pytest.StashKey[EvalSession] = pytest.StashKey()

_UNSAFE = re.compile(r"[^A-Za-z0-9_.~+=,/:-]")
_LONGEST = 120


def encode(text: str) -> str:
    """Write a model, metric or sample id in ASCII that a shell and a node id leave alone.

    Other characters, and a colon that follows another, become `%XX` of their UTF-8 form; an empty text becomes `_`; a
    long one is cut and ends in a digest.
    """
    out = _UNSAFE.sub(lambda m: "".join(f"%{byte:02X}" for byte in m[0].encode("utf-8", "surrogatepass")), text)
    out = out.replace("::", ":%3A") or "_"
    if len(out) > _LONGEST:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        out = f"{out[: _LONGEST - 20]}~{digest}"
    return out


def sample_names(task: TaskPlan) -> dict[str, list[str]]:
    """Return the item names of each candidate's samples, in the order of the plan; unique within the task."""
    names: dict[str, list[str]] = {}
    seen: set[str] = set()
    ids = [encode(task.ids[index]) for index in range(task.count)]
    for candidate in task.candidates:
        model = encode(candidate.name)
        own = []
        for index, epoch in task.sample_keys():
            suffix = f"-e{epoch}" if task.epochs > 1 else ""
            name = f"sample[{model}-{ids[index]}{suffix}]"
            if name in seen:
                name = f"sample[{model}-{ids[index]}-i{index}{suffix}]"
            while name in seen:
                name = f"{name[:-1]}_]"
            seen.add(name)
            own.append(name)
        names[candidate.name] = own
    return names


def gate_names(task: TaskPlan) -> list[tuple[Candidate, MetricSpec, str]]:
    """Return the gates of a task with their item names; unique within the task."""
    out = []
    seen: set[str] = set()
    for candidate in task.candidates:
        for metric in task.gate_metrics:
            name = f"gate[{encode(candidate.name)}-{encode(metric.id)}]"
            while name in seen:
                name = f"{name[:-1]}_]"
            seen.add(name)
            out.append((candidate, metric, name))
    return out


class SuiteFile(pytest.File):
    """A suite JSON file. To fixtures of the scope `module` it is the module, as a text file with doctests is."""

    obj = None  # what `request.module` shows

    @classmethod
    def at(cls, parent: pytest.Collector | pytest.Session, path: Path) -> SuiteFile:
        """Make the node of a suite; outside of the rootdir, too, its id is the way there from the rootdir.

        pytest names such a file relative to the argument it was found under: two would be called the same, and the
        controller of a distributed run could not find them again.
        """
        root = parent.config.rootpath
        if path.is_relative_to(root):
            return cls.from_parent(parent, path=path)
        return cls.from_parent(parent, path=path, nodeid=shown_path(path, root))

    def collect(self) -> Iterator[TaskNode]:
        """Load the suite with all it names.

        Raises:
            SuiteError: Shown as the collection error of this file.
        """
        session = self.config.stash[SESSION_KEY]
        plan = session.plan(self.path)
        for text in plan.warnings:
            self.warn(pytest.PytestWarning(text))
        self.add_tags(plan)
        for task in plan.tasks:
            yield self.task_node(task)

    def task_node(self, task: TaskPlan) -> TaskNode:
        """Make the node of one of its tasks."""
        return TaskNode.from_parent(self, name=task.id, nodeid=f"{self.nodeid}::{encode(task.id)}", task=task)

    def add_tags(self, plan: SuitePlan) -> None:
        """Register the tags as markers, so that `--strict-markers` accepts them."""
        for task in plan.tasks:
            for tag in task.spec.tags:
                self.config.addinivalue_line("markers", f"{tag}: tag of an eval task")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show the suite's problems, not our traceback."""
        if isinstance(excinfo.value, SuiteError):
            return collection_failure(excinfo.value.problems)
        if isinstance(excinfo.value, pytest.PytestWarning):  # with -W error
            return str(excinfo.value)
        return super().repr_failure(excinfo)


class TaskNode(pytest.Collector):
    """A task of a suite; holds its samples and gates, selected or not."""

    def __init__(self, *, task: TaskPlan, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.task = task
        self.samples: list[SampleItem] = []
        self.gates: list[GateItem] = []
        self.fixture_info: Any = None
        self.fixtures: frozenset[object] = frozenset()
        self.outer_timeout_s = outer_timeout(task)
        for tag in task.spec.tags:
            self.add_marker(tag)
        if self.config.pluginmanager.hasplugin("timeout"):
            # A guard against faults of our own: beyond all time-outs that the sample has by itself.
            self.add_marker(pytest.mark.timeout(self.outer_timeout_s, method="signal"))

    def collect(self) -> Iterable[pytest.Item]:
        """Make the items: all samples, then all gates."""
        manager = self.session._fixturemanager
        self.fixture_info = manager.getfixtureinfo(node=self, func=None, cls=None)  # type: ignore[arg-type]
        self.fixtures = frozenset(
            definitions[-1] for definitions in self.fixture_info.name2fixturedefs.values() if definitions
        )
        names = sample_names(self.task)
        self.samples = [
            SampleItem.from_parent(
                self, name=name, nodeid=f"{self.nodeid}::{name}", candidate=candidate, index=index, epoch=epoch
            )
            for candidate in self.task.candidates
            for (index, epoch), name in zip(self.task.sample_keys(), names[candidate.name], strict=True)
        ]
        self.make_gates()
        return [*self.samples, *self.gates]

    def make_gates(self) -> None:
        """Make the gate items alone, as the controller of a distributed run needs them."""
        self.gates = [
            GateItem.from_parent(self, name=name, nodeid=f"{self.nodeid}::{name}", candidate=candidate, metric=metric)
            for candidate, metric, name in gate_names(self.task)
        ]


class SampleItem(pytest.Item):
    """A row × model × epoch."""

    candidate: Candidate
    index: int
    epoch: int
    parent: TaskNode

    def __init__(self, *, candidate: Candidate, index: int, epoch: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.candidate = candidate
        self.index = index
        self.epoch = epoch
        self.attempt: Attempt | None = None
        self.record_text: str | None = None
        self._fixtureinfo = self.parent.fixture_info
        self.fixturenames = self._fixtureinfo.names_closure
        self.funcargs: dict[str, object] = {}
        self._request: Any = None

    def _initrequest(self) -> None:
        self.funcargs = {}
        self._request = TopRequest(self, _ispytest=True) if self.fixturenames else None  # type: ignore[arg-type]

    def getparent(self, cls: type[Any]) -> Any:
        """Return the nearest node of a class; pytest looks for the module of a module-scoped fixture so."""
        return super().getparent(SuiteFile if cls is pytest.Module else cls)

    @property
    def key(self) -> tuple[str, str, str, int, int]:
        """Suite, task, model, row index, epoch: names the sample in this run."""
        task = self.parent.task
        return (task.suite, task.id, self.candidate.name, self.index, self.epoch)

    def setup(self) -> None:
        """Set up autouse fixtures, then run the sample; infrastructure faults are errors of this phase."""
        if self.fixturenames:
            if self._request is None:
                self._initrequest()
            self._request._fillfixtures()
        self.config.stash[SESSION_KEY].run_sample(self)

    def runtest(self) -> None:
        """Fail on an invalid result or a missed sample threshold."""
        self.config.stash[SESSION_KEY].check_sample(self)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show what happened to the sample, not our traceback."""
        shown = self.config.stash[SESSION_KEY].explain_sample(self, excinfo)
        return shown if shown is not None else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Name the suite file and the item."""
        return self.path, 0, f"{self.parent.name}::{self.name}"


class GateItem(pytest.Item):
    """A threshold on a metric of a group; runs after all samples, on the controller."""

    candidate: Candidate
    parent: TaskNode

    def __init__(self, *, candidate: Candidate, metric: MetricSpec | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.candidate = candidate
        self.metric = metric
        self.verdict: GateVerdict | None = None  # once it was judged

    @property
    def group(self) -> tuple[str, str, str]:
        """Suite, task, model."""
        return (self.parent.task.suite, self.parent.task.id, self.candidate.name)

    def runtest(self) -> None:
        """Fail or skip as the group's verdict says."""
        self.config.stash[SESSION_KEY].check_gate(self)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show the verdict in words, not our traceback."""
        shown = self.config.stash[SESSION_KEY].explain_gate(self, excinfo)
        return shown if shown is not None else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Name the suite file and the item."""
        return self.path, 0, f"{self.parent.name}::{self.name}"


_PATIENCE_S = 3600.0
"""Seconds for what has no bound of its own: an application, a custom grader, waiting for a place in the queue."""
_CALLS_OF_A_JUDGE = 3


def outer_timeout(task: TaskPlan) -> float:
    """Bound an item of a task, in seconds, above everything that it may wait for by itself."""
    total = 60.0
    if task.preprocessor is not None:
        total += task.preprocessor.timeout_s * (1 + (task.spec.fewshot.count if task.spec.fewshot else 0))
    if any(candidate.kind != "recorded" for candidate in task.candidates):
        total += _PATIENCE_S + task.longest_call_s
    for grader in task.graders:
        if isinstance(grader, PythonGrader):
            total += grader.timeout_s + (_PATIENCE_S + task.longest_call_s if grader.model_access else 0.0)
        else:
            total += _PATIENCE_S + getattr(grader, "longest_call_s", _CALLS_OF_A_JUDGE * task.longest_call_s)
    return total
