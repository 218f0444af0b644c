"""The suites under example_suites/: they pass offline from their committed recordings, as the README says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "example_suites"
SUITES = sorted(path for path in EXAMPLES.rglob("*.json") if '"tasks"' in path.read_text("utf-8"))
RECORDINGS = sorted(EXAMPLES.rglob("recordings/*.jsonl"))


def run(tmp_path: Path, *args: str) -> tuple[str, list[dict[str, Any]], dict[str, Any]]:
    """Run the example suites in a process of their own, without keys and without this run's own settings."""
    out = tmp_path / "out"
    unset = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--evals", f"--evals-output={out}", *args]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    text = ran.stdout + ran.stderr
    assert ran.returncode == 0, text
    samples = [json.loads(line) for line in (out / "samples.jsonl").read_text("utf-8").splitlines()]
    return text, samples, json.loads((out / "run.json").read_text("utf-8"))


@pytest.mark.parametrize("mode", [(), ("-n", "2")], ids=["plain", "n2"])
def test_every_example_passes_offline(tmp_path: Path, mode: tuple[str, ...]) -> None:
    text, samples, summary = run(tmp_path, *mode, "example_suites")
    assert "calls replay" in text
    assert {group["suite"] for group in summary["groups"]} == {path.relative_to(ROOT).as_posix() for path in SUITES}
    assert {sample["outcome"] for sample in samples} == {"passed"}
    assert [gate for group in summary["groups"] for gate in group["gates"] if gate["outcome"] != "passed"] == []


@pytest.mark.parametrize("mode", [(), ("-n", "2")], ids=["plain", "n2"])
def test_servers_that_a_conftest_starts_answer_live(tmp_path: Path, mode: tuple[str, ...]) -> None:
    folders = ("example_suites/grounded", "example_suites/reward_server")
    _, samples, _ = run(tmp_path, *mode, "--evals-calls=live", *folders)
    scores = {sample["id"]: sample["scores"] for sample in samples}
    assert {name: score["reward"] for name, score in scores.items() if "reward" in score} == {
        "late-order": 1.0,
        "refund": 1.0,
        "warranty": 0.5,
        "opening-hours": 0.5,
    }
    assert scores["puffins"] == {"faithful": 0.5, "relevant_context": 1.0}
    (warranty,) = (sample for sample in samples if sample["id"] == "warranty")
    assert warranty["judge"] == {"reward": {"missing": ["we pay"], "words": 6}}


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_recording_holds_what_everybody_may_see(path: Path) -> None:
    text = path.read_text("utf-8")
    assert text.isascii()
    assert len(text) < 200_000
    assert not re.search(r"(?i)\"(?:[^\"]*/(?:home|root|tmp|usr|work)/|[a-z]:\\\\)|bearer |api.key|\.gguf", text)
    for line in text.splitlines():
        assert json.loads(line)["format"] == 1


def test_there_is_a_recording_wherever_a_model_is_asked() -> None:
    names = {path.parent.parent / path.stem for path in RECORDINGS}
    assert {path.with_suffix("") for path in SUITES if path.parent != EXAMPLES} == names
