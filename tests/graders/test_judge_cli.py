"""`evalgrader judge`, each run in a process of its own, as pytest inside pytest would share plugins."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_evalgrader.judge_cli import _Shown, add_arguments

from .test_endpoint_http import RewardServer, running_server

SUITE: dict[str, Any] = {
    "schema_version": "2026-05-27",
    "run": {"models": ["house:m"], "judge_model": "local:judge-1"},
    "tasks": [
        {
            "id": "tone",
            "dataset": {"rows": [{"id": "a", "q": "Q1"}, {"id": "b", "q": "Q2 \u001b[31m"}]},
            "prompt_template": "{{q}}",
            "grader": {"type": "binary_judge", "key": "kind", "criteria": "Kind?"},
        },
        {
            "id": "rag",
            "models": ["recorded:answer"],
            "dataset": {
                "rows": [
                    {
                        "messages": [{"role": "document", "content": "D"}, {"role": "user", "content": "Q"}],
                        "metadata": {"limit": 1},
                        "answer": "A1",
                    }
                ]
            },
            "graders": [
                {"type": "prebuilt_judge", "key": "faithful", "criterion": "FAITHFULNESS"},
                {"type": "external_endpoint", "key": "reward", "url": "URL"},
            ],
        },
    ],
}
CONFTEST = """
def pytest_evalgrader_generate(model, request):
    return {"output_text": "from the hook"}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[RewardServer]:
    with running_server() as server:
        yield server


@pytest.fixture
def project(tmp_path: Path, server: RewardServer) -> Path:
    text = json.dumps(SUITE).replace('"URL"', json.dumps(server.url))
    (tmp_path / "s.json").write_text(text)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.evalgrader.providers.local]\nbase_url = "{server.url}/v1"\napi_key_env = "JUDGE_KEY_OF_THE_TESTS"\n'
        "[tool.pytest.ini_options]\n"
    )
    server.seen.clear()
    return tmp_path


def judge(project: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest_evalgrader.cli", "judge", "s.json", *args]
    # The import of hypothesis alone would take most of the time.
    env = {**os.environ, "PYTEST_ADDOPTS": "-p no:hypothesispytest", **env}
    return subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_a_dry_run_calls_nothing_and_needs_no_key(project: Path, server: RewardServer) -> None:
    done = judge(project, "--task", "tone", "--row", "b", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "s.json · task tone · row 1 (id b) · house:m" in done.stdout
    assert "=== kind: system → local:judge-1" in done.stdout
    assert "Kind?" in done.stdout
    assert "Q2 \\x1b[31m" in done.stdout
    assert "(the answer of house:m; give one with --answer)" in done.stdout
    assert '"type": "json_schema"' in done.stdout
    done = judge(project, "--task", "rag", "--dry-run")
    assert "\nA1\n" in done.stdout
    assert "=== reward: POST /score" in done.stdout
    assert server.seen == []


def test_what_a_judge_answers(project: Path, server: RewardServer) -> None:
    server.say(
        "/v1/responses",
        {"id": "r1", "object": "response", "status": "completed", "model": "judge-1", "output": []},
        {
            "id": "r2",
            "object": "response",
            "status": "completed",
            "model": "judge-1",
            "output": [
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": '{"reasoning": "warm", "score": "PASS"}'}],
                }
            ],
        },
    )
    done = judge(project, "--task", "tone", JUDGE_KEY_OF_THE_TESTS="sk-of-the-tests")
    assert done.returncode == 0, done.stderr
    assert "from the hook" in done.stdout
    assert "(empty)" in done.stdout
    assert "Your earlier reply could not be used: it was empty or cut off." in done.stdout
    assert '{"reasoning": "warm", "score": "PASS"}' in done.stdout
    assert "kind = 1" in done.stdout
    assert "sk-of-the-tests" not in done.stdout + done.stderr
    assert [path for path, _, _ in server.seen] == ["/v1/responses"] * 2


def test_what_an_endpoint_answers(project: Path) -> None:
    done = judge(project, "--task", "rag", "--grader", "reward", "--answer", "mine", JUDGE_KEY_OF_THE_TESTS="x")
    assert done.returncode == 0, done.stderr
    assert '"content": "mine"' in done.stdout
    assert "reward = 0.5" in done.stdout


def test_wrong_usage(project: Path) -> None:
    done = judge(project, "--task", "tones", "--dry-run")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        'evalgrader judge: there is no task "tones". Did you mean "tone"? Tasks: tone, rag.'
    ]


def items(*tasks: str) -> list[Any]:
    made = []
    for index, task_id in enumerate(tasks):
        plan = SimpleNamespace(id=task_id, index=index, ids=["a", "b"], count=2, candidates=["m"])
        for row in (1, 0):
            for epoch in (2, 1):
                parent = SimpleNamespace(task=plan)
                made.append(SimpleNamespace(parent=parent, index=row, epoch=epoch, candidate="m"))
    return made


@pytest.mark.parametrize(
    ("given", "want"), [(["--row", "1"], 1), (["--row", "a"], 0), ([], 0), (["--row", "b", "--task", "t"], 1)]
)
def test_the_sample_is_chosen_by_index_or_id(given: list[str], want: int) -> None:
    chosen = plugin(*given)._choose(items("t"))
    assert (chosen.index, chosen.epoch) == (want, 1)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ([], "name a task with --task: tone, rag."),
        (["--task", "tone", "--row", "2"], "Give an index from 0 to 1, or a sample id."),
        (["--task", "tone", "--row", "\u0664"], "there is no row"),
    ],
)
def test_what_cannot_be_chosen_is_named(given: list[str], found: str) -> None:
    with pytest.raises(LookupError, match=found):
        plugin(*given)._choose(items("tone", "rag"))


def plugin(*given: str) -> _Shown:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return _Shown(parser.parse_args(["s.json", *given]))


def test_problems_of_the_suite(project: Path) -> None:
    suite = json.loads((project / "s.json").read_text())
    suite["tasks"][0]["grader"]["user_template"] = "{{completon}}"
    (project / "s.json").write_text(json.dumps(suite))
    done = judge(project, "--task", "tone", "--dry-run")
    assert done.returncode == 1
    assert 'unknown variable {{completon}}. Did you mean "completion"?' in done.stderr
