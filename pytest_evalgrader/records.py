"""The record of one sample: what was asked, answered and scored. Only builtins, one ASCII line of JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

Outcome = Literal["passed", "failed", "error"]


def _no_usage() -> dict[str, int]:
    return {"input_tokens": 0, "output_tokens": 0, "model_calls": 0}


@dataclass(slots=True)
class SampleRecord:
    """One line of `samples.jsonl`.

    Args:
        id: The sample id; unique within its group.
        sample_index: Index of the row after preprocessing, from 0.
        epoch: From 1.
        outcome: passed, failed (invalid, or below a sample threshold) or error (the infrastructure).
        error: None, or `{"stage", "type", "message"}`.
        not_applicable: Score ids that a judge answered NA for.
        printed: What the sample's graders printed, capped.
        invalid: Whether a grader's result was invalid.
        invalid_scores: Score ids that are zero because of that.
        notes: What a reader should know, such as a reasoning block that never closed.
    """

    id: str
    run_id: str
    nodeid: str
    suite: str
    task_id: str
    model: str
    sample_index: int
    epoch: int
    outcome: Outcome = "error"
    dataset_row: dict[str, Any] | None = None
    prompt: Any = None
    target: str | None = None
    response_id: str | None = None
    output_text: str | None = None
    extracted_output: str | None = None
    scores: dict[str, float] = field(default_factory=dict)
    judge: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    usage: dict[str, int] = field(default_factory=_no_usage)
    calls: list[dict[str, Any]] = field(default_factory=list)
    started_at: float | None = None
    completed_at: float | None = None
    not_applicable: list[str] = field(default_factory=list)
    invalid: bool = False
    invalid_scores: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    printed: str = ""

    @property
    def status(self) -> Literal["completed", "failed"]:
        """`failed` where the infrastructure broke, else `completed`."""
        return "failed" if self.outcome == "error" else "completed"

    def to_dict(self) -> dict[str, Any]:
        """Return the record as builtins, keys in the documented order."""
        return {
            "object": "eval.sample",
            "id": self.id,
            "run_id": self.run_id,
            "nodeid": self.nodeid,
            "suite": self.suite,
            "task_id": self.task_id,
            "model": self.model,
            "sample_index": self.sample_index,
            "epoch": self.epoch,
            "status": self.status,
            "outcome": self.outcome,
            "dataset_row": self.dataset_row,
            "prompt": self.prompt,
            "target": self.target,
            "response_id": self.response_id,
            "output_text": self.output_text,
            "extracted_output": self.extracted_output,
            "scores": self.scores,
            "judge": self.judge,
            "error": self.error,
            "usage": self.usage,
            "calls": self.calls,
            "started_at": self.started_at,
            "completed_at": self.completed_at,
            "not_applicable": self.not_applicable,
            "invalid": self.invalid,
            "invalid_scores": self.invalid_scores,
            "notes": self.notes,
            "printed": self.printed,
        }

    def to_json(self) -> str:
        """Return one line of ASCII JSON; lone surrogates travel as escapes.

        Raises:
            ValueError: A value is not finite.
        """
        return _ENCODE(self.to_dict())

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SampleRecord:
        """Make a record from what `to_dict` returned; keys that are not fields are left out."""
        return cls(**{key: value for key, value in data.items() if key in _FIELDS})

    @classmethod
    def from_json(cls, text: str) -> SampleRecord:
        """Make a record from a line of `samples.jsonl`."""
        return cls.from_dict(json.loads(text))


_ENCODE = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode
_FIELDS = frozenset(SampleRecord.__dataclass_fields__)
