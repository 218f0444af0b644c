"""Short ways to lay out a suite, to run it, and to read what came out."""

from __future__ import annotations

import json
import textwrap
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

MODEL = "recorded:answer"
EXACT = """
def grade(sample, item):
    return 1.0 if sample["extracted_output"] == item["target"] else 0.0
"""
MODES = ["", "-n 0", "-n 2"]


def python(source: str = EXACT, **more: Any) -> dict[str, Any]:
    """A Python grader."""
    return {"type": "python", "source": textwrap.dedent(source).lstrip("\n"), **more}


def rows(*answers: tuple[str, str]) -> list[dict[str, Any]]:
    """Rows from (right answer, recorded answer)."""
    return [{"question": f"q{n}", "gold": gold, "answer": answer} for n, (gold, answer) in enumerate(answers)]


FOUR = rows(("2", "2"), ("4", "4"), ("6", "6"), ("8", "9"))


def task(**more: Any) -> dict[str, Any]:
    """A task over four recorded answers, three of them right; a key that is None is left out."""
    base = {
        "id": "sums",
        "dataset": {"rows": FOUR},
        "prompt_template": "Work out {{question}}",
        "target_template": "{{gold}}",
        "grader": python(),
    }
    return {key: value for key, value in {**base, **more}.items() if value is not None}


def suite(*tasks: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A suite over recorded answers."""
    return {"schema_version": "2026-05-27", "run": {"models": [MODEL]}, "tasks": list(tasks), **more}


def gate(threshold: Any, metric: str = "score", **more: Any) -> list[dict[str, Any]]:
    """One gated metric."""
    return [{"id": metric, "threshold": threshold, **more}]


@dataclass
class Ran:
    """What a run left."""

    code: int
    text: str
    states: dict[str, str]
    cases: dict[str, ET.Element]
    samples: list[dict[str, Any]]
    run: dict[str, Any]

    def state(self, *words: str) -> str:
        """The state of the one test case whose name holds all words."""
        found = [name for name in self.states if all(word in name for word in words)]
        assert len(found) == 1, (words, sorted(self.states))
        return self.states[found[0]]

    @property
    def group(self) -> dict[str, Any]:
        """The one group."""
        (only,) = self.run["groups"]
        return only

    @property
    def flat(self) -> str:
        """What the terminal showed, as one line: sentences are wrapped there."""
        return " ".join(self.text.split())

    def facts(self) -> Any:
        """What must not depend on how the items were distributed."""
        volatile = {"run_id", "started_at", "completed_at"}
        groups = [{k: v for k, v in group.items() if k != "seconds"} for group in self.run["groups"]]
        return (
            self.states,
            [{k: v for k, v in sample.items() if k not in volatile} for sample in self.samples],
            groups,
        )


@dataclass
class Bench:
    """A folder with suites in which pytest is run."""

    pytester: pytest.Pytester
    mode: str = ""
    files: dict[str, Any] = field(default_factory=dict)

    def write(self, name: str, body: Any) -> Path:
        """Lay a file."""
        path = self.pytester.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(body, bytes):
            path.write_bytes(body)
        else:
            text = textwrap.dedent(body).lstrip("\n") if isinstance(body, str) else json.dumps(body)
            path.write_text(text, encoding="utf-8")
        return path

    def run(self, *args: str, doc: Any = None, evals: bool = True, subprocess: bool = False) -> Ran:
        """Run pytest in this folder, in the bench's mode."""
        if doc is not None:
            self.write("suites/s.json", doc)
        out = self.pytester.path / "out"
        given = [*(["--evals"] if evals else []), *(args or ("suites",)), *self.mode.split()]
        given += ["-p", "no:randomly", "--junitxml=junit.xml", "--evals-output=out"]
        runner = self.pytester.runpytest_subprocess if subprocess else self.pytester.runpytest_inprocess
        result = runner(*given)
        states, cases = {}, {}
        xml = self.pytester.path / "junit.xml"
        if xml.exists():
            for case in ET.parse(xml).getroot().iter("testcase"):
                name = f"{case.get('classname')}::{case.get('name')}"
                assert name not in states, f"two test cases are called {name}"
                tags = {child.tag for child in case}
                states[name] = next((tag for tag in ("failure", "error", "skipped") if tag in tags), "passed")
                cases[name] = case
        samples = []
        if (out / "samples.jsonl").exists():
            samples = [json.loads(line) for line in (out / "samples.jsonl").read_text("utf-8").splitlines()]
        run = json.loads((out / "run.json").read_text("utf-8")) if (out / "run.json").exists() else {}
        text = result.stdout.str() + result.stderr.str()
        return Ran(int(result.ret), text, states, cases, samples, run)
