"""SIGKILL at seeded moments; `benchmarks/kills.py` does it fifty times."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks/kills.py"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are followed through /proc")
def test_a_killed_controller_loses_nothing_and_leaves_nothing() -> None:
    run = subprocess.run(
        [sys.executable, SCRIPT, "--kills", "3", "--seed", "11"], capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("unharmed") == 3
    assert run.stdout.endswith("3 runs killed, 0 harmed\n")
