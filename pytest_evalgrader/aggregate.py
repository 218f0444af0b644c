"""All records of a group: batch graders, metrics, verdicts. Lives on the controller."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_evalgrader.errors import CallError
from pytest_evalgrader.gates import GateVerdict, GroupCounts, evaluate, sample_reaches, worst
from pytest_evalgrader.graders.calibration import Calibration, calibrate, pair_of
from pytest_evalgrader.graders.outcome import Invalid, outside_of
from pytest_evalgrader.graders.python import BatchOutcome
from pytest_evalgrader.metrics import MetricValue, Observation, State, summarise
from pytest_evalgrader.pipeline import batch_sample, ctx_of, scope_of
from pytest_evalgrader.plan import Candidate, TaskPlan
from pytest_evalgrader.records import SampleRecord
from pytest_evalgrader.sandbox.host import Sandbox
from pytest_evalgrader.suite.manifest import MetricSpec

Key = tuple[int, int]  # row index, epoch
GroupKey = tuple[str, str, str]  # suite, task, model


@dataclass(slots=True)
class Brief:
    """What the controller keeps of a record in memory; the rest is in the spool at `offset`."""

    outcome: str
    scores: dict[str, float]
    invalid: bool
    invalid_scores: tuple[str, ...]
    na: tuple[str, ...]
    offset: int
    size: int
    input_tokens: int
    output_tokens: int
    model_calls: int
    seconds: float
    human: Any = None

    @classmethod
    def of(cls, record: SampleRecord, offset: int, size: int, human_column: str | None = None) -> Brief:
        """Take what the metrics need; from the row, only the human verdict that a judge is measured against."""
        started, completed = record.started_at or 0.0, record.completed_at or 0.0
        return cls(
            outcome=record.outcome,
            scores=record.scores,
            invalid=record.invalid,
            invalid_scores=tuple(record.invalid_scores),
            na=tuple(record.not_applicable),
            offset=offset,
            size=size,
            input_tokens=record.usage.get("input_tokens", 0),
            output_tokens=record.usage.get("output_tokens", 0),
            model_calls=record.usage.get("model_calls", 0),
            seconds=max(0.0, completed - started),
            human=None if human_column is None else (record.dataset_row or {}).get(human_column),
        )


@dataclass(slots=True)
class BatchState:
    """The batch graders of a group: their merged outcome, once they ran."""

    thread: threading.Thread | None = None
    ran: bool = False
    outcome: BatchOutcome = field(default_factory=BatchOutcome)
    given: int = 0
    unreached: str = ""
    usage: dict[str, int] = field(default_factory=dict)
    calls: list[dict[str, Any]] = field(default_factory=list)
    crash: BaseException | None = None


class Group:
    """Suite × task × model: the plan, the records that arrived, the metrics.

    Args:
        selected: The samples that this run was asked for; None for all.
    """

    def __init__(self, task: TaskPlan, candidate: Candidate, selected: frozenset[Key] | None = None) -> None:
        self.task = task
        self.candidate = candidate
        self.selected = selected
        self.briefs: dict[Key, Brief] = {}
        # Samples without a record, and those whose record another attempt will replace: disjoint from the others.
        self.lost: set[Key] = set()
        self.pending: set[Key] = set()
        self.batch = BatchState()
        self._values: dict[str, MetricValue] | None = None

    @property
    def key(self) -> GroupKey:
        """Suite, task, model."""
        return (self.task.suite, self.task.id, self.candidate.name)

    @property
    def planned(self) -> int:
        """Samples of the whole group."""
        return self.task.count * self.task.epochs

    @property
    def complete(self) -> bool:
        """Whether the whole group was selected and each sample has the record of its last attempt or is lost."""
        # Asked at every record: counted, not compared.
        return self.selected is None and len(self.briefs) - len(self.pending) + len(self.lost) >= self.planned

    def add(self, record: SampleRecord, offset: int, size: int, *, last: bool = True) -> None:
        """Take a record; a later attempt of the same sample replaces an earlier one.

        Args:
            offset: Where the spool holds the record.
            size: Its length there, in bytes.
            last: False where the sample will be run again.
        """
        key = (record.sample_index, record.epoch)
        calibration = self.task.spec.calibration
        self.briefs[key] = Brief.of(record, offset, size, None if calibration is None else calibration.column)
        self.lost.discard(key)
        (self.pending.discard if last else self.pending.add)(key)

    def lose(self, key: Key) -> None:
        """Note that the worker died that ran a sample's last attempt.

        A record that had arrived from this attempt stays; one of an earlier attempt does not count.
        """
        if key in self.pending:
            self.pending.discard(key)
            del self.briefs[key]
        if key not in self.briefs:
            self.lost.add(key)

    def ordered(self) -> Iterator[tuple[Key, Brief]]:
        """Return what arrived, in the plan's order."""
        for key in self.task.sample_keys():
            if key in self.briefs:
                yield key, self.briefs[key]

    # -- batch graders ------------------------------------------------------------------------------------------

    @property
    def wants_batch(self) -> bool:
        """Whether batch graders are to run now: all is there, and not all of it errors."""
        return (
            bool(self.task.batch_graders)
            and self.complete
            and any(brief.outcome != "error" for brief in self.briefs.values())
        )

    @property
    def unbatched(self) -> bool:
        """Whether batch graders were to run and have not ended."""
        return self.wants_batch and not self.batch.ran

    def run_batch(self, sandbox: Sandbox, gateway: Callable[[], Any], read: Callable[[int, int], str]) -> None:
        """Run the batch graders over the group; several of them one after the other, each on the same samples."""
        state = self.batch
        task = self.task
        samples = []
        size = 0
        for _, brief in self.ordered():
            if brief.outcome == "error":
                continue
            size += brief.size
            samples.append(batch_sample(SampleRecord.from_json(read(brief.offset, brief.size))))
        state.given = len(samples)
        scope: Any = None
        merged = BatchOutcome()
        for grader in task.batch_graders:
            calls = None
            if grader.model_access:
                if scope is None:
                    scope = scope_of(gateway(), task, self.candidate.name, "batch", 1)
                calls = ctx_of(scope, task, grader)
            try:
                seed = f"{task.id}/{self.candidate.name}"
                outcome = grader.grade_batch(sandbox, samples, seed, calls, size)
                if scope is not None and scope.exhausted is not None:
                    raise scope.exhausted
            except CallError as error:
                state.unreached = error.message
                break
            merged.printed += outcome.printed
            if outcome.invalid is None:
                outcome.invalid = self._unfit(outcome, merged)
            if outcome.invalid is not None:
                merged.invalid = merged.invalid or outcome.invalid
                continue
            merged.metrics.update(outcome.metrics)
            for sample_id, update in outcome.updates.items():
                own = merged.updates.setdefault(sample_id, {})
                scores = {**own.get("scores", {}), **update.get("scores", {})}
                own.update(update)
                if scores:
                    own["scores"] = scores
        if merged.invalid is not None or state.unreached:
            merged.metrics, merged.updates = {}, {}
        if scope is not None:
            state.usage, state.calls = dict(scope.usage), list(scope.calls)
        for grader in task.batch_graders:
            sandbox.retire(grader.program)
        state.outcome = merged
        state.ran = True
        self._apply()

    def _unfit(self, outcome: BatchOutcome, merged: BatchOutcome) -> Invalid | None:
        """Say what of a batch grader's result the task does not allow, next to those of the batch graders before."""
        ranges = self.task.ranges
        singles = {key: pair for key, pair in ranges.items() if self.task.metrics[key].aggregation != "sum"}
        outside = outside_of(outcome.metrics, singles)
        if ranges:
            for sample_id, update in outcome.updates.items():
                outside += [f"sample {sample_id}: {text}" for text in outside_of(update.get("scores", {}), ranges)]
        if outside:
            more = f" and {len(outside) - 5:,} more" if len(outside) > 5 else ""
            message = f"grade_batch: {'; '.join(outside[:5])}{more} (out_of_range)."
            return Invalid("out_of_range", {"metrics": outcome.metrics}, message)
        twice = [key for key in outcome.metrics if key in merged.metrics]
        if twice:
            listed = ", ".join(repr(key) for key in twice[:5])
            message = f"grade_batch: another batch grader of the task returned {listed} already (wrong_type)."
            return Invalid("wrong_type", {"metrics": outcome.metrics}, message)
        return None

    def _apply(self) -> None:
        updates = self.batch.outcome.updates
        if not updates:
            return
        for key, brief in self.briefs.items():
            update = updates.get(self.task.sample_id(*key))
            if update and update.get("scores"):
                brief.scores = {**brief.scores, **update["scores"]}

    def updates(self) -> dict[int, dict[str, Any]]:
        """Return the batch updates by the offset of the record that they change."""
        found = self.batch.outcome.updates
        if not found:
            return {}
        return {
            brief.offset: update
            for key, brief in self.briefs.items()
            if (update := found.get(self.task.sample_id(*key))) is not None
        }

    @property
    def batch_invalid(self) -> Invalid | None:
        """The invalid result of a batch grader, or None."""
        return self.batch.outcome.invalid

    @property
    def batch_problem(self) -> str:
        """Why the group has no batch result although its batch grader ran; empty where it has one."""
        if self.batch.unreached:
            return f"the batch grader's model call got no answer: {self.batch.unreached}"
        if self.batch.crash is not None:
            return f"the batch grader could not be run: {type(self.batch.crash).__name__}: {self.batch.crash}"
        return self.batch_invalid.message if self.batch_invalid is not None else ""

    @property
    def dropped(self) -> list[str]:
        """Metric ids of batch graders that the task does not declare."""
        if not self.task.metrics:
            return []
        known = self.task.metrics.keys() | self.task.calibrated.keys()
        return [key for key in self.batch.outcome.metrics if key not in known]

    # -- metrics ------------------------------------------------------------------------------------------------

    @property
    def errors(self) -> int:
        """Records whose outcome is error."""
        return sum(brief.outcome == "error" for brief in self.briefs.values())

    @property
    def invalid(self) -> int:
        """Records with an invalid result."""
        return sum(brief.invalid for brief in self.briefs.values())

    def counts(self, stopped: str = "") -> GroupCounts:
        """Say what became of the samples."""
        task = self.task
        missing = [task.sample_id(*key) for key in task.sample_keys() if key not in self.briefs] if not stopped else []
        return GroupCounts(
            planned=self.planned,
            selected=self.planned if self.selected is None else len(self.selected),
            recorded=len(self.briefs),
            errors=self.errors,
            invalid=self.invalid,
            rows=task.count,
            rows_total=task.loaded,
            allow_errors=float(task.spec.allow_errors),
            lost=tuple(missing[:20]),
            stopped=stopped,
            batch_problem=self.batch_problem,
            unbatched=self.unbatched,
        )

    def calibrations(self) -> dict[str, Calibration]:
        """Measure each judge of the task against people's verdicts."""
        return {key: self._calibration(key) for key in dict.fromkeys(self.task.calibrated.values())}

    def _calibration(self, key: str) -> Calibration:
        return calibrate(pair_of(brief.human, *_state(brief, key)) for _, brief in self.ordered())

    def metrics(self) -> dict[str, MetricValue]:
        """Aggregate: the declared metrics, or all that the graders gave where none are declared."""
        if self._values is None or len(self.briefs) < self.planned:
            specs = self._specs()
            self._values = {key: self._value(key, spec) for key, spec in specs.items()}
        return self._values

    def _specs(self) -> dict[str, MetricSpec]:
        calibrated = {key: MetricSpec(id=key, aggregation="none") for key in self.task.calibrated}
        if self.task.metrics:
            return {**calibrated, **self.task.metrics}
        ids: dict[str, None] = {}
        for _, brief in self.ordered():
            ids.update(dict.fromkeys(brief.scores))
            ids.update(dict.fromkeys(brief.na))
        ids.update(dict.fromkeys(self.batch.outcome.metrics))
        return {**{key: MetricSpec(id=key) for key in ids}, **calibrated}

    def _value(self, key: str, spec: MetricSpec) -> MetricValue:
        task = self.task
        batch: Mapping[str, float | None] = self.batch.outcome.metrics
        given = self.batch.given
        if key in task.calibrated:
            judge = task.calibrated[key]
            calibration = self._calibration(judge)
            batch, given = calibration.metrics(judge), calibration.n
        if key in batch:
            value = MetricValue.from_batch(
                batch[key],
                aggregation=spec.aggregation,
                higher_is_better=spec.higher_is_better,
                n=given,
                invalid=self.invalid,
                errors=self.errors,
                total=self.planned,
            )
            return replace(value, batch=key not in task.calibrated)
        observations = [Observation(at[0], at[1], *_state(brief, key)) for at, brief in self.ordered()]
        value = summarise(
            observations,
            aggregation=spec.aggregation,
            higher_is_better=spec.higher_is_better,
            epochs=task.epochs,
        )
        if value.ci95 is not None and spec.range is not None:
            # The normal interval does not know that scores have bounds.
            low, high = spec.range
            value.ci95 = (max(value.ci95[0], low), min(value.ci95[1], high))
        return value

    def verdict(self, spec: MetricSpec, stopped: str = "") -> GateVerdict:
        """Judge one gate."""
        values = self.metrics()
        value = values.get(spec.id)
        if value is None:
            value = self._value(spec.id, spec)
        judge = self.task.calibrated.get(spec.id)
        return evaluate(
            spec,
            value,
            self.counts(stopped),
            lowest=self.lowest(spec),
            misses=self.misses(spec),
            known=self.known_ids(),
            why_none="" if judge is None or value.value is not None else self._calibration(judge).note,
        )

    def known_ids(self) -> list[str]:
        """Score and metric ids that the group does have."""
        ids: dict[str, None] = {}
        for brief in self.briefs.values():
            ids.update(dict.fromkeys(brief.scores))
        ids.update(dict.fromkeys(self.batch.outcome.metrics))
        return list(ids)

    def lowest(self, spec: MetricSpec) -> list[str]:
        """Name the samples with the worst scores."""
        pairs = (
            (self.task.sample_id(*key), brief.scores[spec.id])
            for key, brief in self.ordered()
            if spec.id in brief.scores
        )
        return worst(pairs, higher_is_better=spec.higher_is_better)

    def misses(self, spec: MetricSpec) -> list[str]:
        """Name the samples that miss the metric's sample threshold; only where a batch grader may have set scores."""
        limit = spec.sample_threshold
        if limit is None or not self.task.batch_graders:
            return []
        out = []
        for key, brief in self.ordered():
            if brief.outcome == "error" or spec.id in brief.na:
                continue
            score = brief.scores.get(spec.id)
            if score is None or not sample_reaches(score, limit, higher_is_better=spec.higher_is_better):
                out.append(self.task.sample_id(*key))
        return out

    # -- what is written ----------------------------------------------------------------------------------------

    def usage(self) -> dict[str, int]:
        """Add up tokens and calls of the group."""
        total = {
            "input_tokens": sum(brief.input_tokens for brief in self.briefs.values()),
            "output_tokens": sum(brief.output_tokens for brief in self.briefs.values()),
            "model_calls": sum(brief.model_calls for brief in self.briefs.values()),
        }
        for key, count in self.batch.usage.items():
            total[key] = total.get(key, 0) + count
        return total

    def to_dict(self, verdicts: Iterable[GateVerdict]) -> dict[str, Any]:
        """Return the group as it stands in `run.json`."""
        counts = self.counts()
        return {
            "suite": self.task.suite,
            "task_id": self.task.id,
            "model": self.candidate.name,
            "request_counts": {
                "total": self.planned,
                "selected": counts.selected,
                "completed": counts.recorded - counts.errors,
                "failed": counts.errors,
                "invalid": counts.invalid,
            },
            "partial": self.selected is not None or counts.recorded < self.planned,
            "rows": {"asked": self.task.count, "total": self.task.loaded},
            "epochs": self.task.epochs,
            "metrics": {key: value.to_dict() for key, value in self.metrics().items()},
            "dropped_metrics": self.dropped,
            "calibration": {key: found.to_dict() for key, found in self.calibrations().items()},
            "batch": {"problem": self.batch_problem} if self.task.batch_graders else None,
            "gates": [verdict.to_dict() for verdict in verdicts],
            "usage": self.usage(),
            "seconds": sum(brief.seconds for brief in self.briefs.values()),
        }


def _state(brief: Brief, key: str) -> tuple[State, float | None]:
    if brief.outcome == "error":
        return "error", None
    if key in brief.invalid_scores:
        return "invalid", 0.0
    if key in brief.scores:
        return "scored", brief.scores[key]
    return ("na" if key in brief.na else "missing"), None
