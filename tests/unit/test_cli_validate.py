"""The command `evalgrader`: validate finds what pytest would when it collects, schema prints what editors need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from suite_cases import GRADER, suite, task

from pytest_evalgrader.cli import main

PACKAGE_ROOT = Path(__file__).parents[2]
RUN = {"models": ["recorded:a"]}
ROWS = {"rows": [{"q": "1", "a": "1"}]}


def lay(root: Path, files: dict[str, Any]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")


def validate(root: Path, *arguments: str) -> tuple[int, list[str], str]:
    """Run the command in a process of its own; returns exit status, lines of output, and the error text."""
    path = os.pathsep.join(filter(None, [str(PACKAGE_ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    run = subprocess.run(
        [sys.executable, "-m", "pytest_evalgrader.cli", "validate", *arguments],
        cwd=root,
        env={**environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return run.returncode, run.stdout.splitlines(), run.stderr


def test_good_suites(tmp_path: Path) -> None:
    lay(
        tmp_path,
        {
            "suites/a.json": suite(task(dataset=ROWS), run=RUN),
            "suites/deep/b.json": suite(task(dataset=ROWS, grader={"type": "custom", "key": "by_hook"}), run=RUN),
            "suites/package.json": {"name": "x"},
            "suites/conftest.py": "def pytest_evalgrader_grader(key):\n    return lambda sample, item: 1.0\n",
            "suites/test_x.py": "raise SystemExit('test modules are not imported')\n",
        },
    )
    assert validate(tmp_path, "suites") == (0, ["2 suites, 0 problems"], "")
    assert validate(tmp_path, "suites/a.json") == (0, ["1 suite, 0 problems"], "")


def test_every_problem_of_every_file(tmp_path: Path) -> None:
    lay(
        tmp_path,
        {
            "pytest.ini": "[pytest]\naddopts = -x -q -p no:cacheprovider\n",
            "suites/broken.json": '{"tasks": [',
            "suites/keys.json": suite(task(grader={"type": "python", "contrat": 1}), nme="x", run=RUN),
            "suites/parts.json": suite(
                task(
                    dataset={"file_id": "d.jsonl"},
                    prompt_template="{{qestion}}",
                    grader={"type": "python", "file_id": "g.py"},
                ),
                run=RUN,
            ),
            "suites/d.jsonl": '{"question": "1", "a": "1"}\n',
            "suites/g.py": "def grade(sample, item):\n    return (1.0\n",
        },
    )
    status, lines, said = validate(tmp_path, "suites")
    assert (status, said) == (1, "")
    assert lines[-1] == f"3 suites, {len(lines) - 1} problems"
    shown = "\n".join(lines)
    for words in (
        "suites/broken.json:1:12: not valid JSON",
        's/keys.json: tasks[0].grader.contrat: unknown key. Did you mean "contract"?',
        's/keys.json: nme: unknown key. Did you mean "name"?',
        "qestion",
        "g.py:2",
    ):
        assert words in shown


def test_a_broken_named_file_is_a_problem(tmp_path: Path) -> None:
    lay(tmp_path, {"a.json": {"name": "x"}})
    status, lines, _ = validate(tmp_path, "a.json")
    assert status == 1
    assert 'no list "tasks"' in lines[0]
    assert lines[-1] == "1 suite, 1 problem"


def test_a_wrong_configuration_is_wrong_usage(tmp_path: Path) -> None:
    lay(
        tmp_path,
        {
            "s.json": suite(task(dataset=ROWS), run=RUN),
            "pyproject.toml": '[tool.evalgrader.providers.local]\nbase_ur = "http://127.0.0.1:9"\n',
        },
    )
    status, lines, said = validate(tmp_path, "s.json")
    assert (status, lines) == (2, [])
    assert "base_url" in said


def test_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lay(tmp_path, {"a.txt": "", "folder/x.txt": ""})
    for arguments, words in [
        (["validate", "no.json"], "no.json: there is no such file or folder"),
        (["validate", "a.txt"], "a.txt: not a suite"),
    ]:
        assert main(arguments) == 2
        assert words in capsys.readouterr().err
    for arguments, words in [
        ([], "COMMAND"),
        (["validate"], "PATH"),
        (["valdate", "x"], "invalid choice: 'valdate'"),
        (["validate", "--al", "x"], "--al"),
    ]:
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
        assert words in capsys.readouterr().err


def test_a_folder_without_suites_is_wrong_usage(tmp_path: Path) -> None:
    lay(tmp_path, {"folder/package.json": {}})
    status, lines, said = validate(tmp_path, "folder")
    assert (status, lines) == (2, [])
    assert "no suite found in folder" in said


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    for command in ("validate", "schema", "show", "judge"):
        assert f"    {command} " in shown
    with pytest.raises(SystemExit):
        main(["validate", "--help"])
    assert "exit status" in " ".join(capsys.readouterr().out.split())


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    printed = json.loads(capsys.readouterr().out)
    jsonschema.validate(suite(task(grader=GRADER)), printed)


def test_a_closed_pipe_is_no_traceback() -> None:
    path = os.pathsep.join([str(PACKAGE_ROOT), os.environ.get("PYTHONPATH", "")])
    run = subprocess.run(
        f"{sys.executable} -m pytest_evalgrader.cli schema | head -c 10",
        shell=True,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        timeout=60,
    )
    assert run.stderr == b""
