"""The eval session: collection's plans, records over reports, the controller's state, running the gates."""

from __future__ import annotations

import gc
import json
import os
import platform
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from _pytest.outcomes import Exit
from _pytest.runner import runtestprotocol

import pytest_evalgrader
from pytest_evalgrader.aggregate import Group, GroupKey
from pytest_evalgrader.collection import SESSION_KEY, GateItem, SampleItem, SuiteFile, TaskNode, encode, sample_names
from pytest_evalgrader.errors import SuiteError
from pytest_evalgrader.gates import GateVerdict
from pytest_evalgrader.gateway.providers import load_providers
from pytest_evalgrader.options import DEFAULT_CONCURRENCY, Settings
from pytest_evalgrader.pipeline import NOT_AT_ONCE, Attempt, Lookahead, Pipeline
from pytest_evalgrader.plan import Candidate, PlanOptions, SuitePlan, TaskPlan, load_plan
from pytest_evalgrader.records import SampleRecord
from pytest_evalgrader.reporting import failures, junit, terminal
from pytest_evalgrader.reporting.files import RunWriter
from pytest_evalgrader.reporting.safetext import VALUE_BYTES, one_line, safe
from pytest_evalgrader.sandbox.host import Sandbox
from pytest_evalgrader.suite.loading import read_suite_text, shown_path

RECORD_ATTRIBUTE = "evalgrader_record"


def start(config: pytest.Config, settings: Settings, sandbox: Sandbox) -> None:
    """Register the eval session of this process.

    Raises:
        pytest.UsageError: Options do not go together.
        SandboxError: The sandbox cannot be had as they say.
    """
    distributed = config.getoption("dist", "no") != "no" and (
        bool(config.getoption("tx", None)) or bool(config.getoption("numprocesses", None))
    )
    worker = hasattr(config, "workerinput")
    if config.getoption("dist", "no") == "each":
        raise pytest.UsageError(
            "--dist each runs every sample once for each worker, and would pay for each: choose load, worksteal, "
            "loadscope, loadfile or loadgroup."
        )
    if settings.sandbox == "off" and (distributed or worker):
        raise pytest.UsageError(
            "--evals-sandbox=off runs graders in the pytest process itself, for --pdb; use it without -n."
        )
    session = EvalSession(config, settings, sandbox, worker=worker)
    config.stash[SESSION_KEY] = session
    config.pluginmanager.register(session, "evalgrader-session")


class EvalSession:
    """Everything an eval run holds in one process; its pytest hooks delegate to the modules below."""

    def __init__(self, config: pytest.Config, settings: Settings, sandbox: Sandbox, *, worker: bool) -> None:
        self.config = config
        self.settings = settings
        self.worker = worker
        given: dict[str, Any] = getattr(config, "workerinput", {}).get("evalgrader", {})
        self.run_id: str = given.get("run_id") or f"run_{uuid.uuid4().hex[:16]}"
        self.created_at = time.time()
        self._link: dict[str, Any] = given.get("link", {})
        self.sandbox = sandbox
        # Probes what holds on this machine; strict refuses here, before anything was collected.
        self.layers, self.missing = sandbox.layers, sandbox.missing
        try:
            self.providers = load_providers(self._pyproject(), os.environ)
        except SuiteError as error:
            raise pytest.UsageError(str(error)) from None
        self._gateway: Any = None
        self._permit_server: Any = None
        self._store: Any = None
        self._recording_notes: list[str] = []
        self._gateway_lock = threading.Lock()
        self.pipeline = Pipeline(
            self.sandbox, self.gateway, self.run_id, self._ask_generate_hook, self.providers.secrets
        )
        self.lookahead: Lookahead | None = None
        self._queue: _ItemQueue | None = None
        self._fixtures_seen: set[object] = set()
        self._group_now: tuple[TaskPlan, str] | None = None
        self._next_item: pytest.Item | None = None
        self._properties: dict[tuple[str, Any], junit.Properties] = {}  # of samples whose teardown is to come
        self._started: tuple[Any, Attempt] | None = None  # the next item's key, and what the sandbox runs for it
        self._plans: dict[Path, SuitePlan | SuiteError] = {}
        self._skips: dict[GroupKey, bool] = {}
        self._suite_dir: Path = config.rootpath
        # The controller's side.
        self.groups: dict[GroupKey, Group] = {}
        self._usage: dict[str, dict[str, int]] = {}
        self.writer: RunWriter | None = None
        self._selected: list[str] | None = None
        self._gate_items: list[GateItem] = []
        self._marked = False  # whether a worker said how hooks marked the gates
        self._stopped = ""
        self._failures = 0
        self._anything_ran = False
        self.run: dict[str, Any] | None = None
        self._session: pytest.Session | None = None

    # -- set-up -------------------------------------------------------------------------------------------------

    def _pyproject(self) -> Path | None:
        path = self.config.rootpath / "pyproject.toml"
        return path if path.is_file() else None

    @property
    def concurrency(self) -> int:
        """Model calls in flight over the whole run: as the options say, else what the suites ask for, at least 10."""
        if self.settings.concurrency is not None:
            return self.settings.concurrency
        plans = [plan for plan in self._plans.values() if isinstance(plan, SuitePlan)]
        return max([DEFAULT_CONCURRENCY, *(plan.loaded.spec.run.concurrency or 0 for plan in plans)])

    def plan(self, path: Path) -> SuitePlan:
        """Load a suite once in this process.

        Raises:
            SuiteError: With all its problems.
        """
        found = self._plans.get(path)
        if found is None:
            try:
                found = load_plan(path, self._plan_options(path), self.sandbox)
            except SuiteError as error:
                found = error
            self._plans[path] = found
        if isinstance(found, SuiteError):
            raise found
        return found

    def _plan_options(self, path: Path) -> PlanOptions:
        settings = self.settings
        hooks = self._hooks(path.parent)
        rootdir = self.config.rootpath
        return PlanOptions(
            rootdir=rootdir if path.is_relative_to(rootdir) else path.parent,
            shown_from=rootdir,
            models=settings.models,
            judge_model=settings.judge_model,
            embedding_model=settings.embedding_model,
            limit=settings.limit,
            trusted_modules=settings.trusted_modules,
            may_call=settings.calls != "replay",
            providers=self.providers,
            find_grader=lambda key: hooks.pytest_evalgrader_grader(key=key),
            answered_by_hook=bool(hooks.pytest_evalgrader_generate.get_hookimpls()),
            build_graders=not self._distributed,
            uses_recordings=settings.calls != "live",
        )

    def _hooks(self, folder: Path) -> Any:
        """Return the hooks as a suite in this folder sees them, with the conftests of its folders."""
        return self._session.gethookproxy(folder) if self._session is not None else self.config.hook

    def _ask_generate_hook(self, model: str, request: dict[str, Any]) -> Any:
        return self._hooks(self._suite_dir).pytest_evalgrader_generate(model=model, request=request)

    @property
    def _distributed(self) -> bool:
        """Whether this process is the controller of xdist workers."""
        return not self.worker and self.config.pluginmanager.hasplugin("dsession")

    def gateway(self) -> Any:
        """Return the process's gateway; made at the first call."""
        with self._gateway_lock:
            if self._gateway is None:
                from pytest_evalgrader.gateway.client import Gateway

                self._gateway = Gateway(
                    providers=self.providers,
                    permits=self._make_permits(),
                    calls=self.settings.calls,
                    run_id=self.run_id,
                )
            return self._gateway

    # -- hooks: session -----------------------------------------------------------------------------------------

    def pytest_report_header(self) -> list[str]:
        """Name the sandbox's layers and the calls mode."""
        return terminal.header_lines(
            layers=self.layers,
            missing=self.missing,
            sandbox=self.settings.sandbox,
            calls=self.settings.calls,
            verbosity=self.config.get_verbosity(),
        )

    @property
    def _dry(self) -> bool:
        """Whether no sample is run: `--collect-only`, `--setup-only`, `--setup-plan`."""
        return bool(self.config.option.collectonly or self.config.getoption("setuponly", False))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Open the run's files before the first record."""
        self._session = session
        if not self.worker and not self._dry:
            try:
                self.writer = RunWriter(self.settings.output)
            except (FileExistsError, NotADirectoryError):
                raise pytest.UsageError(
                    f"--evals-output: {self.settings.output} is a file, or below one; name a folder."
                ) from None
            except OSError as error:
                raise pytest.UsageError(
                    f"--evals-output: {self.settings.output} cannot be written: {error.strerror or error}."
                ) from None

    # Innermost of the wrappers: the terminal's summary, a wrapper too, tells what became of the recordings.
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self) -> Generator[None, object, object]:
        """End the children and the calls of this process, after the fixtures."""
        if not self.worker:
            junit.add_left(self.config, self._properties)
            junit.keep_last_attempts(self.config)
        try:
            return (yield)
        finally:
            self.close()

    @pytest.hookimpl(tryfirst=True)
    def pytest_unconfigure(self) -> None:
        """End what a session that never started left."""
        self.close()
        if self.worker:
            # pytest collects garbage ten times now, which takes most of a second with a model client loaded. Once will
            # do, and what is alive then lives until the process ends.
            gc.collect()
            gc.freeze()

    def close(self) -> None:
        """End threads, children and calls; safe to call twice."""
        self._drop_started()
        if self.lookahead is not None:
            self.lookahead.close()
        if self._gateway is not None:
            self._gateway.close()
            self._gateway = None
        if self._permit_server is not None:
            self._permit_server.close()
            self._permit_server = None
        if self._store is not None:
            self._recording_notes += self._store.finish()
            self._store = None
        self.pipeline.close()
        self.sandbox.close()
        if self.writer is not None:
            self.writer.close()

    # -- hooks: collection --------------------------------------------------------------------------------------

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> SuiteFile | None:
        """Collect the JSON files that are suites."""
        if file_path.suffix != ".json":
            return None
        self._session = parent.session
        named = parent.session.isinitpath(file_path)
        try:
            kind = read_suite_text(file_path, named=named, where=shown_path(file_path, self.config.rootpath))
        except SuiteError as error:
            self._plans[file_path] = error  # shown when the node is collected
            kind = "suite"
        return SuiteFile.at(parent, file_path) if kind == "suite" else None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
    ) -> Generator[None, object, object]:
        """Bring the samples that a selected gate needs, and put the gates last; outside of all other plugins."""
        result = yield
        self._select(items)
        return result

    def _select(self, items: list[pytest.Item]) -> None:
        gates = list(dict.fromkeys(item for item in items if isinstance(item, GateItem)))
        samples = [item for item in items if isinstance(item, SampleItem)]
        present: dict[tuple[int, str], set[SampleItem]] = {}
        nodes: dict[int, TaskNode] = {}
        for sample in samples:
            present.setdefault((id(sample.parent), sample.candidate.name), set()).add(sample)
            nodes[id(sample.parent)] = sample.parent
        last_failed = bool(self.config.getoption("lf", False))
        brought: list[SampleItem] = []
        wanted = {(id(gate.parent), gate.candidate.name): gate.parent for gate in gates}
        nodes.update({id(gate.parent): gate.parent for gate in gates})
        if last_failed:
            wanted.update(self._failed_batches())
        for (node_id, model), node in wanted.items():
            chosen = present.get((node_id, model), set())
            if not chosen or last_failed:
                brought += [s for s in node.samples if s.candidate.name == model and s not in chosen]
        if brought:
            self._forget_deselected(brought)
        others = [item for item in items if not isinstance(item, GateItem)]
        items[:] = [*others, *brought, *gates]
        gated = {(id(gate.parent), gate.candidate.name) for gate in gates}
        for node_id, node in nodes.items():
            for candidate in node.task.candidates:
                skips = float(node.task.spec.allow_errors) > 0 and (node_id, candidate.name) in gated
                self._skips[(node.task.suite, node.task.id, candidate.name)] = skips
        if not self.worker and not self._distributed:
            self._gate_items = gates
            self._plan_groups([*samples, *brought], gates)
        if self.worker:
            self._send_marks(gates)
        self._warm([*samples, *brought])

    def _send_marks(self, gates: list[GateItem]) -> None:
        """Hand the controller, which runs the gates, what hooks of a conftest marked them with in this worker."""
        marks = {gate.nodeid: found for gate in gates if (found := _acting_marks(gate))}
        if marks:
            self.config.workeroutput["evalgrader_marks"] = json.dumps(marks)  # type: ignore[attr-defined]

    def _warm(self, samples: list[SampleItem]) -> None:
        """Load the client in the background where a sample will need it; no call is made yet."""
        if self._dry or self.settings.calls == "replay":
            return
        tasks = {(id(item.parent), item.candidate.name): item for item in samples}
        if any(self.pipeline.runs_ahead(item.parent.task, item.candidate) for item in tasks.values()):
            self.gateway().warm()

    def _failed_batches(self) -> dict[tuple[int, str], TaskNode]:
        """Find the groups whose own batch item failed last time: it is made during a run, so `--lf` cannot see it."""
        plugin = self.config.pluginmanager.get_plugin("lfplugin")
        failed = {str(node_id) for node_id in getattr(plugin, "lastfailed", ())}
        batches = [node_id for node_id in failed if "::batch[" in node_id]
        if not batches or self._session is None:
            return {}
        out: dict[tuple[int, str], TaskNode] = {}
        for node in _task_nodes(self._session):
            for candidate in node.task.candidates:
                if f"{node.nodeid}::batch[{encode(candidate.name)}]" in batches:
                    out[(id(node), candidate.name)] = node
        return out

    def _forget_deselected(self, brought: Iterable[SampleItem]) -> None:
        """Take the items that came back out of the terminal's count of deselected ones."""
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        deselected = getattr(reporter, "stats", {}).get("deselected") if reporter is not None else None
        if deselected:
            back = set(brought)
            deselected[:] = [item for item in deselected if item not in back]

    def _plan_groups(self, samples: list[SampleItem], gates: list[GateItem]) -> None:
        chosen: dict[int, dict[str, set[tuple[int, int]]]] = {}
        nodes: dict[int, TaskNode] = {}
        for item in samples:
            nodes[id(item.parent)] = item.parent
            chosen.setdefault(id(item.parent), {}).setdefault(item.candidate.name, set()).add((item.index, item.epoch))
        for gate in gates:
            nodes[id(gate.parent)] = gate.parent
        for node_id, node in nodes.items():
            for candidate in node.task.candidates:
                keys = chosen.get(node_id, {}).get(candidate.name, set())
                self._add_group(node.task, candidate, keys, [gate for gate in gates if gate.parent is node])

    def _add_group(
        self, task: TaskPlan, candidate: Candidate, keys: Collection[tuple[int, int]], gates: list[GateItem]
    ) -> None:
        """Keep a group of which a sample or a gate was selected.

        Args:
            keys: Its selected samples.
            gates: The task's selected gates.
        """
        if keys or any(gate.candidate.name == candidate.name for gate in gates):
            whole = len(keys) == task.count * task.epochs
            group = Group(task, candidate, None if whole else frozenset(keys))
            self.groups[group.key] = group

    @pytest.hookimpl(trylast=True)
    def pytest_report_collectionfinish(self) -> list[str]:
        """Say what will run."""
        if self.worker or self._distributed or self.config.get_verbosity() < 0:
            return []
        if not self._plans:
            return ['evals: no suite found; a suite is a .json file with a list "tasks"']
        return self._planned_lines()

    def _planned_lines(self) -> list[str]:
        groups = list(self.groups.values())
        if not groups:
            return []
        line = terminal.collection_line(
            suites=len({group.key[0] for group in groups}),
            tasks=len({group.key[:2] for group in groups}),
            samples=sum(group.planned if group.selected is None else len(group.selected) for group in groups),
            models=len({group.key[2] for group in groups}),
            gates=len(self._gate_items),
        )
        return [line]

    # -- hooks: xdist -------------------------------------------------------------------------------------------

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Hand a worker the run's id and the way to the controller."""
        node.workerinput["evalgrader"] = {"run_id": self.run_id, "link": self._controller_link()}

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        """Learn from the first worker what was selected; suites are loaded here again for the plan alone."""
        if self._selected is not None:
            return
        self._selected = [_without_group(node_id) for node_id in ids]
        assert self._session is not None
        try:
            self._plan_from_ids(self._selected)
        except SuiteError as error:
            raise self._session.Interrupted(f"the controller cannot load what the workers collected: {error}") from None
        if self._permit_server is not None:
            self._permit_server.book.concurrency = self.concurrency
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and self.config.get_verbosity() >= 0:
            for line in self._planned_lines():
                reporter.write_line(line)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Mark the gates as the first worker that ends did."""
        text = getattr(node, "workeroutput", {}).get("evalgrader_marks")
        if text is None or self._marked:
            return
        self._marked = True
        marks: dict[str, list[tuple[str, list[Any], dict[str, Any]]]] = json.loads(text)
        for gate in self._gate_items:
            for name, args, kwargs in marks.get(gate.nodeid, ()):
                gate.add_marker(getattr(pytest.mark, name)(*args, **kwargs))

    def _plan_from_ids(self, ids: list[str]) -> None:
        assert self._session is not None
        by_file: dict[str, set[str]] = {}
        for node_id in ids:
            path, _, rest = node_id.partition("::")
            if path.endswith(".json") and rest:
                by_file.setdefault(path, set()).add(rest)
        for relpath, names in by_file.items():
            suite = self._path_of(relpath)
            plan = self.plan(suite)
            file = SuiteFile.at(self._session, suite)
            file.add_tags(plan)
            for task in plan.tasks:
                head = f"{encode(task.id)}::"
                node = file.task_node(task)
                node.make_gates()
                gates = [gate for gate in node.gates if head + gate.name in names]
                named = sample_names(task)
                for candidate in task.candidates:
                    own = zip(task.sample_keys(), named[candidate.name], strict=True)
                    self._add_group(task, candidate, [key for key, name in own if head + name in names], gates)
                self._gate_items += gates

    def _path_of(self, relpath: str) -> Path:
        """Return the suite file that a node id names; one outside of the rootdir starts with `../`."""
        return Path(os.path.normpath(self.config.rootpath / relpath))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Hand out deeper queues where the user left the distribution to us, so that calls can run ahead."""
        if config.getoption("dist") != "load" or config.getoption("maxschedchunk", None) is not None:
            return None
        from pytest_evalgrader.scheduling import AheadScheduling

        return AheadScheduling(config, log, depth=2 * self.concurrency, wanted=self._any_runs_ahead)

    def _any_runs_ahead(self) -> bool:
        return any(self.pipeline.runs_ahead(group.task, group.candidate) for group in self.groups.values())

    # -- hooks: running samples ---------------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Leave gates out of the loop (they run after it), so that the last sample tears everything down."""
        if isinstance(item, GateItem):
            return True
        self._drop_started(unless=item)
        self._next_item = nextitem
        if isinstance(nextitem, GateItem):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            return True
        return None

    def run_sample(self, item: SampleItem) -> None:
        """Run a sample, or take it where it ran ahead.

        Raises:
            SampleFault: The infrastructure failed; the item is an error.
            pytest.skip.Exception: It failed, and a gate decides about errors.
        """
        if self._dry:
            return
        task = item.parent.task
        self._suite_dir = item.path.parent
        self._fixtures_seen |= item.parent.fixtures
        self._retire_before(item)
        attempt = item.attempt = self._take(item)
        self.pipeline.advance(attempt)
        self._start_next()
        record = attempt.record
        item.record_text = record.to_json()
        if record.printed:
            item.add_report_section("setup" if attempt.error else "call", "stdout", safe(record.printed, VALUE_BYTES))
        if attempt.stop:
            assert self._session is not None
            self._session.shouldstop = attempt.stop
        if attempt.error is not None:
            if self._skips.get((task.suite, task.id, item.candidate.name)):
                reason = f"{attempt.error.stage} error, counted by allow_errors: {one_line(attempt.error.message, 300)}"
                raise pytest.skip.Exception(reason, _use_item_location=True)
            raise SampleFault(attempt.error.message)

    def _retire_before(self, item: SampleItem) -> None:
        """End the idle children of the group that came before this item's; its grader may come again, in new ones."""
        now = (item.parent.task, item.candidate.name)
        if self._group_now is not None and self._group_now != now:
            for program in self._group_now[0].programs:
                self.sandbox.retire(program)
        self._group_now = now

    def _start_next(self) -> None:
        """Have the sandbox grade the next sample while pytest reports this one."""
        item = self._next_item
        if not isinstance(item, SampleItem) or self.pipeline.runs_ahead(item.parent.task, item.candidate):
            return
        if self.config.getoption("usepdb", False):
            # People may sit at the prompt for long, and nobody would end a grader that hangs.
            return
        if self._started is not None:
            return
        self._retire_before(item)
        attempt = self._begin(item)
        self._started = (item.key, attempt)
        with suppress(Exception):  # the item tries again, and says so: no fault of this one
            self.pipeline.advance(attempt, stop_before=NOT_AT_ONCE)

    def _drop_started(self, unless: pytest.Item | None = None) -> None:
        """End what was started for an item that does not take it: a fixture skipped it, or it was left out."""
        started = self._started
        if started is not None and not (isinstance(unless, SampleItem) and unless.key == started[0]):
            self._started = None
            started[1].drop()

    def _take(self, item: SampleItem) -> Attempt:
        if self._started is not None and self._started[0] == item.key:
            attempt, self._started = self._started[1], None
            if attempt.record.completed_at is None:
                # What the sandbox did meanwhile cost the run nothing, and the fixtures in between are not its time.
                attempt.record.started_at = time.time()
            return attempt
        if self.pipeline.runs_ahead(item.parent.task, item.candidate):
            if self.lookahead is None:
                self.lookahead = Lookahead(self.pipeline, self.concurrency, depth=2 * self.concurrency + 16)
                self._queue = _ItemQueue(self.config, item.session)
            assert self._queue is not None
            self.lookahead.offer(self._upcoming(item))
            ahead = self.lookahead.take(item.key)
            if ahead is not None:
                return ahead
        return self._begin(item)

    def _begin(self, item: SampleItem) -> Attempt:
        return self.pipeline.begin(item.parent.task, item.candidate, item.index, item.epoch, item.nodeid)

    def _upcoming(self, item: SampleItem) -> Iterator[tuple[Any, Callable[[], Attempt]]]:
        assert self._queue is not None
        for coming in self._queue.upcoming(item):
            if (
                isinstance(coming, SampleItem)
                # A conftest of another folder may yet have to start what the samples there ask.
                and coming.parent.fixtures <= self._fixtures_seen
                and self.pipeline.runs_ahead(coming.parent.task, coming.candidate)
            ):
                yield coming.key, partial(self._begin, coming)

    def check_sample(self, item: SampleItem) -> None:
        """Fail an invalid or low sample.

        Raises:
            SampleFault: With the reason.
        """
        attempt = item.attempt
        assert attempt is not None
        if attempt.record.outcome == "failed":
            fault = SampleFault("the sample is invalid or below a threshold")
            if attempt.exception is not None:
                raise fault.with_traceback(attempt.exception.__traceback__) from attempt.exception
            raise fault

    def explain_sample(self, item: SampleItem, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:
        """Return what a failing sample shows; None where the fault is not ours to explain."""
        attempt = item.attempt
        if attempt is None or not isinstance(excinfo.value, SampleFault):
            return None
        record = attempt.record
        if attempt.error is not None:
            return failures.error_failure(record)
        if record.invalid:
            return failures.invalid_failure(record, sources=item.parent.task.sources)
        return failures.sample_threshold_failure(record, attempt.misses)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Put the record on the sample's report, as one string that every worker channel carries."""
        report = yield
        if isinstance(item, SampleItem) and report.when != "teardown":
            if report.when == "setup" and report.passed:
                return report
            # pytest asks an item for its own words only about its call phase.
            if report.when == "setup" and report.failed and call.excinfo is not None:
                shown = self.explain_sample(item, call.excinfo)
                if shown is not None:
                    report.longrepr = shown
            if item.record_text is None:
                item.record_text = self._faulted_record(item, call)
            setattr(report, RECORD_ATTRIBUTE, item.record_text)
            item.record_text = None
            if item.attempt is not None and not self.config.getoption("usepdb", False):
                item.attempt.let_go()
            item.attempt = None
        return report

    def _faulted_record(self, item: SampleItem, call: pytest.CallInfo[None]) -> str:
        """Make the record of a sample whose item broke outside of the pipeline (a fixture, the outer time-out)."""
        attempt = item.attempt
        if attempt is None:
            attempt = self._begin(item)
        record = attempt.record
        value = call.excinfo.value if call.excinfo is not None else None
        record.started_at, record.completed_at = call.start, call.stop
        record.outcome, record.scores = "error", {}
        record.error = {
            "stage": attempt.stage,
            "type": type(value).__name__,
            "message": one_line(str(value), 2000),
        }
        return record.to_json()

    # -- hooks: the controller's side ---------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the record off its report at once; a report stays with the terminal until the end."""
        if self.worker:
            return
        self._anything_ran = True
        text = report.__dict__.pop(RECORD_ATTRIBUTE, None)
        origin = (report.nodeid, getattr(report, "node", None))
        if text is not None:
            record = SampleRecord.from_json(text)
            # Made here and not where the sample ran: three reports of each item would carry them between processes.
            properties = self._properties[origin] = junit.sample_properties(record)
            report.user_properties = [*report.user_properties, *properties]
            self._arrived(record, text, last=str(report.outcome) != "rerun")
            self._failures += report.failed
            if report.failed and self._failures > failures.SHOWN_WHOLE:
                report.longrepr = failures.shortened(report.longrepr)
        elif report.when == "teardown":
            report.user_properties = [*report.user_properties, *self._properties.pop(origin, ())]
        elif report.when not in ("setup", "call") and str(report.outcome) != "rerun":
            self._crashed(report.nodeid, origin)

    def _arrived(self, record: SampleRecord, text: str, *, last: bool) -> None:
        group = self.groups.get((record.suite, record.task_id, record.model))
        if group is None or self.writer is None:
            return
        try:
            offset = self.writer.append(text)
        except OSError as error:
            raise self._unwritable(error) from error
        group.add(record, offset, len(text), last=last)
        self._count_calls(record.calls)
        hook = self.config.hook.pytest_evalgrader_sample
        if hook.get_hookimpls():
            hook(record=record.to_dict())
        if last:
            self._maybe_batch(group)

    def _count_calls(self, calls: Iterable[dict[str, Any]]) -> None:
        """Add up tokens by the model that was asked, earlier attempts included: they cost the same."""
        for call in calls:
            own = self._usage.setdefault(call["model"], {"input_tokens": 0, "output_tokens": 0, "model_calls": 0})
            own["input_tokens"] += call["input_tokens"]
            own["output_tokens"] += call["output_tokens"]
            own["model_calls"] += 1

    def _crashed(self, nodeid: str, origin: tuple[str, Any]) -> None:
        """Note a sample whose worker died and that is not run again."""
        nodeid = _without_group(nodeid)
        for group in self.groups.values():
            head = f"{group.key[0]}::{encode(group.task.id)}::"
            if not nodeid.startswith(head):
                continue
            own = sample_names(group.task)[group.candidate.name]
            for key, name in zip(group.task.sample_keys(), own, strict=True):
                if head + name == nodeid:
                    group.lose(key)
                    if key in group.lost:
                        lost = self.pipeline.begin(group.task, group.candidate, *key, nodeid).record
                        lost.outcome = "error"
                        self._properties[origin] = junit.sample_properties(lost)
                    self._maybe_batch(group)
                    return

    def _maybe_batch(self, group: Group) -> None:
        if not group.wants_batch or group.batch.thread is not None:
            return

        def work() -> None:
            assert self.writer is not None
            try:
                group.run_batch(self.sandbox, self.gateway, self.writer.read)
            except BaseException as error:  # noqa: BLE001 - shown at the group's gates
                group.batch.crash = error
                group.batch.ran = True

        group.batch.thread = threading.Thread(target=work, name="evalgrader-batch", daemon=True)
        group.batch.thread.start()

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Leave the place that a Ctrl-C came in.

        Without `--full-trace` pytest shows nothing else, yet it first reads and parses the source of every frame. That
        takes a second, in each process.
        """
        if self.config.getoption("fulltrace", False):
            return
        entries = excinfo.traceback
        for n in range(len(entries) - 1, -1, -1):
            # pytest needs one that is not hidden: pluggy and pytest hide frames of their own.
            if not entries[n].ishidden(excinfo):
                excinfo.traceback = entries[n : n + 1]
                return

    # Innermost of the wrappers: the terminal ends its progress line after the gates.
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Run the gates after the loop, on the controller, in every mode alike."""
        # What was loaded and collected lives until the end; the garbage collector need not look at it again and again.
        gc.freeze()
        try:
            return (yield from self._loop(session))
        finally:
            gc.unfreeze()

    def _loop(self, session: pytest.Session) -> Generator[None, object, object]:
        if self.worker or self._dry:
            return (yield)
        try:
            result = yield
        except BaseException as error:
            stopped, interrupted = _why_stopped(session, error), _by_hand(error)
            if not interrupted:
                interrupted = self._await_batches()
            if isinstance(error, session.Interrupted) and not self._anything_ran:
                # Collection failed and pytest ran nothing: no gate speaks either, but no older results stay.
                self._stopped = f"nothing was run ({error})"
                self._write(interrupted=True)
            else:
                self._finish(session, stopped, interrupted=interrupted)
            raise
        early = session.shouldstop or session.shouldfail
        stopped = f"the run stopped early: {str(early).rstrip('.')}" if early else ""
        if self._await_batches():
            self._finish(session, stopped or "the run was interrupted", interrupted=True)
            raise KeyboardInterrupt
        self._finish(session, stopped, interrupted=False)
        return result

    def _await_batches(self) -> bool:
        """Wait for the batch graders; return whether a Ctrl-C ended that."""
        try:
            for group in self.groups.values():
                thread = group.batch.thread
                while thread is not None and thread.is_alive():
                    thread.join(0.2)
        except KeyboardInterrupt:
            return True
        return False

    def _finish(self, session: pytest.Session, stopped: str, *, interrupted: bool) -> None:
        self._stopped = stopped
        if interrupted and self._gateway is not None:
            self._gateway.abort()
        self._tear_down(session)
        kept = self._last_failed_gates()
        for gate in self._gate_items:
            self._run_gate(gate, session)
        for group in self.groups.values():
            if group.batch_problem and not any(gate.group == group.key for gate in self._gate_items):
                self._run_batch_item(group, session)
        self._restore_last_failed(kept)
        self._write(interrupted=bool(stopped))

    def _tear_down(self, session: pytest.Session) -> None:
        """End the fixtures that a stopped loop left set up, or pytest sets no gate up; after a whole loop none are."""
        try:
            session._setupstate.teardown_exact(None)
        except Exception as error:  # noqa: BLE001 - of a fixture; the run has stopped for another reason
            text = f"a fixture failed as the stopped run ended: {type(error).__name__}: {error}"
            self.config.issue_config_time_warning(pytest.PytestWarning(text), stacklevel=2)

    def _run_gate(self, gate: GateItem, session: pytest.Session) -> None:
        hook = gate.config.hook
        hook.pytest_runtest_logstart(nodeid=gate.nodeid, location=gate.location)
        runtestprotocol(gate, nextitem=None, log=True)
        hook.pytest_runtest_logfinish(nodeid=gate.nodeid, location=gate.location)

    def _run_batch_item(self, group: Group, session: pytest.Session) -> None:
        node = SuiteFile.at(session, self._path_of(group.task.suite)).task_node(group.task)
        name = f"batch[{encode(group.candidate.name)}]"
        item = GateItem.from_parent(
            node, name=name, nodeid=f"{node.nodeid}::{name}", candidate=group.candidate, metric=None
        )
        session.testscollected += 1
        self._run_gate(item, session)

    def check_gate(self, gate: GateItem) -> None:
        """Judge a gate.

        Raises:
            GateFault: It failed.
            pytest.skip.Exception: It could not be evaluated.
        """
        group = self.groups[gate.group]
        if group.batch.outcome.printed:
            gate.add_report_section("call", "stdout", safe(group.batch.outcome.printed, VALUE_BYTES))
        if gate.metric is None:
            raise GateFault(group.batch_problem)
        verdict = gate.verdict = group.verdict(gate.metric, self._stopped)
        gate.user_properties += junit.gate_properties(verdict, task_id=group.task.id, model=group.candidate.name)
        if verdict.outcome == "skipped":
            raise pytest.skip.Exception(one_line(verdict.reason, 500), _use_item_location=True)
        if verdict.outcome == "failed":
            raise GateFault(verdict.reason)

    def explain_gate(self, gate: GateItem, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:
        """Return what a failing gate shows; None where the fault is not ours to explain."""
        if not isinstance(excinfo.value, GateFault):
            return None
        group = self.groups[gate.group]
        suite, task_id, model = group.key
        verdict = gate.verdict
        if group.batch_problem and (group.batch_invalid is not None or verdict is None):
            invalid = group.batch_invalid
            shown = (
                invalid.to_dict()
                if invalid is not None
                else {"reason": "error", "raw": None, "message": group.batch_problem}
            )
            return failures.batch_failure(
                shown,
                suite=suite,
                task_id=task_id,
                model=model,
                sources=group.task.sources,
                gate=verdict,
            )
        assert verdict is not None
        return failures.gate_failure(verdict, suite=suite, task_id=task_id, model=model)

    def _last_failed_gates(self) -> dict[Any, bool]:
        plugin = self.config.pluginmanager.get_plugin("lfplugin")
        return dict(getattr(plugin, "lastfailed", {}))

    def _restore_last_failed(self, before: dict[Any, bool]) -> None:
        """Keep a gate that was only not evaluated in the last-failed list; pytest takes every skipped test out."""
        plugin = self.config.pluginmanager.get_plugin("lfplugin")
        if plugin is None or not hasattr(plugin, "lastfailed"):
            return
        skipped = {gate.nodeid for gate in self._gate_items if gate.verdict and gate.verdict.outcome == "skipped"}
        for node_id, value in before.items():
            if str(node_id) in skipped:
                plugin.lastfailed[node_id] = value

    # -- what is written ----------------------------------------------------------------------------------------

    def _write(self, *, interrupted: bool) -> None:
        assert self.writer is not None
        groups = list(self.groups.values())
        order = [brief.offset for group in groups for _, brief in group.ordered()]
        updates: dict[int, dict[str, Any]] = {}
        for group in groups:
            updates.update(group.updates())
        self.run = self._run_dict(groups, interrupted=interrupted)
        unwritable: Exit | None = None
        try:
            self.writer.finish(order, updates)
            self.writer.write_run(self.run)
        except OSError as error:
            unwritable = self._unwritable(error)
        self.config.hook.pytest_evalgrader_run(run=self.run)
        if unwritable is not None:
            raise unwritable

    def _unwritable(self, error: OSError) -> Exit:
        """Return what ends the run where its records cannot be written: the disk is full or gone."""
        folder = self.settings.output
        place = f"--evals-output: {folder}" if folder is not None else f"the run's records in {tempfile.gettempdir()}"
        return Exit(f"{place} cannot be written: {error.strerror or error}")

    def _run_dict(self, groups: list[Group], *, interrupted: bool) -> dict[str, Any]:
        suites: dict[str, Any] = {}
        for plan in self._plans.values():
            if isinstance(plan, SuitePlan) and any(group.key[0] == plan.relpath for group in groups):
                suites[plan.relpath] = {
                    "digest": plan.loaded.digest,
                    "tasks": {task.id: task.digests for task in plan.tasks},
                }
        verdicts: dict[GroupKey, list[GateVerdict]] = {}
        for gate in self._gate_items:
            if gate.verdict is not None:
                verdicts.setdefault(gate.group, []).append(gate.verdict)
        for group in groups:
            self._count_calls(group.batch.calls)
        return {
            "object": "eval.run",
            "id": self.run_id,
            "status": "interrupted" if interrupted else "completed",
            "reason": self._stopped or None,
            "created_at": self.created_at,
            "completed_at": time.time(),
            "limited": any(group.task.count < group.task.loaded for group in groups),
            "versions": {
                "pytest-evalgrader": pytest_evalgrader.__version__,
                "pytest": pytest.__version__,
                "python": platform.python_version(),
            },
            "calls": self.settings.calls,
            "attempts": self._attempts(),
            "sandbox": {"mode": self.settings.sandbox, "layers": list(self.layers)},
            "suites": suites,
            "usage": self._usage,
            "groups": [group.to_dict(verdicts.get(group.key, [])) for group in groups],
        }

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the table of the run, and what went wrong with its recordings."""
        self._show_table(terminalreporter)
        for text in self._recording_notes:
            terminalreporter.write_line(one_line(f"recording: {text}", 500), yellow=True)

    def _show_table(self, terminalreporter: Any) -> None:
        if self.worker or self.run is None or not self.run["groups"] or not self._anything_ran:
            return
        folder = self.settings.output
        lines = terminal.summary_lines(
            self.run,
            verbosity=self.config.get_verbosity(),
            width=terminalreporter._tw.fullwidth,
            folder="" if folder is None else os.path.relpath(folder, self.config.invocation_params.dir),
        )
        if lines:
            terminalreporter.write_sep("=", terminal.TITLE)
            for text, markup in lines:
                terminalreporter.write_line(text, **markup)

    # -- calls --------------------------------------------------------------------------------------------------

    def _recorder(self) -> Any:
        """Return the writer of recordings where this run records; there is one in the whole run."""
        if self.settings.calls not in ("fill", "refresh"):
            return None
        from pytest_evalgrader.gateway.recording import RecordingStore

        self._store = RecordingStore(self.settings.calls, self.run_id)
        return self._store

    def _make_permits(self) -> Any:
        from pytest_evalgrader.gateway.permits import LocalPermits, RemotePermits

        if self.worker:
            return RemotePermits(self._link)
        if self._distributed:
            return RemotePermits(self._controller_link())
        return LocalPermits(self.concurrency, self.settings.max_calls, self._recorder())

    def _attempts(self) -> int:
        """Count the calls that went out, repeated attempts and those of samples without a record included."""
        if self._permit_server is not None:
            return int(self._permit_server.book.granted)
        return 0 if self._gateway is None else int(self._gateway.permits.book.granted)

    def _controller_link(self) -> dict[str, Any]:
        """Start the server that workers ask for permits, once; return its address."""
        if self._permit_server is None:
            from pytest_evalgrader.gateway.permits import PermitServer

            self._permit_server = PermitServer(self.concurrency, self.settings.max_calls, self._recorder())
            self._permit_server.start()
        address: dict[str, Any] = self._permit_server.address
        return address


class SampleFault(Exception):
    """Raised by a sample item; what it shows comes from the record."""


class GateFault(Exception):
    """Raised by a gate item; what it shows comes from the verdict."""


class _ItemQueue:
    """Knows which items come next in this process."""

    def __init__(self, config: pytest.Config, session: pytest.Session) -> None:
        self._session = session
        self._positions = {id(item): n for n, item in enumerate(session.items)}
        self._interactor: Any = None
        if hasattr(config, "workerinput"):
            for plugin in config.pluginmanager.get_plugins():
                # A private part of xdist, from 3.7 on; where it should ever be missing, nothing runs ahead.
                if hasattr(getattr(plugin, "torun", None), "lock") and hasattr(plugin, "nextitem_index"):
                    self._interactor = plugin

    def upcoming(self, item: pytest.Item) -> Iterator[pytest.Item]:
        """Return this item and those that will run after it, as far as this process knows."""
        items = self._session.items
        if self._interactor is None:
            position = self._positions.get(id(item), len(items))
            yield item
            if not hasattr(item.config, "workerinput"):
                for n in range(position + 1, len(items)):
                    yield items[n]
            return
        yield item
        # xdist's own queue; its items are indices, or a marker for the end.
        coming = [self._interactor.nextitem_index]
        with self._interactor.torun.lock() as queued:
            coming += list(queued)
        for index in coming:
            if isinstance(index, int):
                yield items[index]


def _acting_marks(gate: GateItem) -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Return a gate's own marks that change its outcome, as far as JSON holds them."""
    out = []
    for mark in gate.own_markers:
        if mark.name in ("skip", "skipif", "xfail"):
            with suppress(TypeError, ValueError):  # `raises=…`: the gate then fails, instead of passing by mistake
                json.dumps([mark.args, mark.kwargs])
                out.append((mark.name, mark.args, dict(mark.kwargs)))
    return out


def _task_nodes(session: pytest.Session) -> Iterator[TaskNode]:
    for report in session._collection_cache.values():
        for node in report.result:
            if isinstance(node, TaskNode):
                yield node


def _without_group(node_id: str) -> str:
    """Take off the `@group` that `--dist loadgroup` adds to a node id; an id of ours holds no `@`."""
    head, at, _ = node_id.rpartition("@")
    return head if at and head.endswith("]") else node_id


def _by_hand(error: BaseException) -> bool:
    """Tell a Ctrl-C from what pytest and xdist raise to stop a run, which derives from it."""
    return type(error) is KeyboardInterrupt


def _why_stopped(session: pytest.Session, error: BaseException) -> str:
    if _by_hand(error):
        return "the run was interrupted"
    said = session.shouldstop or session.shouldfail or str(error) or type(error).__name__
    return f"the run stopped early: {str(said).rstrip('.')}"
