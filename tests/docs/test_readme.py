"""What the README shows is what comes out."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


def test_the_shown_suite_is_the_showcase() -> None:
    shown = json.loads(blocks("json")[0])
    kept = json.loads((ROOT / "docs/showcase/failing.json").read_text("utf-8"))
    kept.pop("description")
    assert shown == kept


def test_the_shown_output_comes_out(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs/showcase", tmp_path / "docs/showcase")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    args = [sys.executable, "-m", "pytest", "--evals", "docs/showcase", "-p", "no:randomly", "-p", "no:cacheprovider"]
    ran = subprocess.run(args, cwd=tmp_path, capture_output=True, text=True, env={"COLUMNS": "100", "NO_COLOR": "1"})
    assert ran.returncode == 1, ran.stdout + ran.stderr
    (shown,) = (block for block in blocks("text") if "docs/showcase" in block)

    def lines(text: str) -> list[str]:
        # Times differ from run to run, and the layers that are on from machine to machine.
        kept = [re.sub(r"\d+\.\d+s", "0.0s", line.rstrip()) for line in text.splitlines()]
        return [line for line in kept if line and not line.startswith(("evals: sandbox", "$ "))]

    came = lines(ran.stdout)
    start = next(n for n, line in enumerate(came) if line.startswith("collected"))
    assert came[start:] != []
    assert [line.replace("in 0.0s", "") for line in lines(shown)][:-1] == came[start:][: len(lines(shown)) - 1]


def test_the_builder_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = (block for block in blocks("python") if "import Suite" in block)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build.py").write_text(code, "utf-8")
    subprocess.run([sys.executable, "build.py"], check=True)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "--evals", "sums.json", "-p", "no:randomly"], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
