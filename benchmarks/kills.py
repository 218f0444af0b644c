"""Kill runs with SIGKILL at random moments: what was finished stays readable, and the next run is unharmed.

    python benchmarks/kills.py [--kills 50] [--seed 1]

Each killed run has 2 tasks, 80 samples, a batch grader and 2 gates, without workers or with `-n 2`, in turn. It is
killed, by a seeded choice, when it has just begun, when it has written some number of records, or when its gates run;
a few milliseconds later or at once. A conftest hook of the run notes each finished sample in a file of its own, which
tells what has to be in `samples.jsonl`; no process may live on. Then the same folder is run again, to the end.

Linux alone: processes are followed through /proc. Exit status 1 where anything was harmed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pytest_evalgrader.reporting.files import read_run, read_samples

ROWS = 20
SAMPLES = 4 * ROWS
GRADER = """
def grade(sample, item):
    total = sum(n * n for n in range(20000))
    return 1.0 if sample["extracted_output"] == item["target"] and total else 0.0
"""
BATCH = """
def grade_batch(samples):
    for _ in range(20):
        sum(n * n for n in range(20000))
    right = sum(s["scores"]["score"] for s in samples)
    return {"metrics": {"accuracy": right / len(samples)},
            "samples": [{"sample_id": s["sample_id"], "judge": {"of": len(samples)}} for s in samples]}
"""
CONFTEST = """
import os
NOTES = os.open(os.path.join(os.path.dirname(__file__), "finished.txt"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def pytest_evalgrader_sample(record):
    os.write(NOTES, (record["nodeid"] + "\\n").encode())
"""
LONGEST_S = 120.0


def lay(root: Path) -> None:
    """Write the suite: two tasks of 20 rows, asked twice; one with a batch grader."""
    rows = [{"question": f"{n} + 1?", "gold": str(n + 1), "answer": str(n + 1)} for n in range(ROWS)]
    base = {
        "dataset": {"rows": rows},
        "prompt_template": "What is {{question}}",
        "target_template": "{{gold}}",
        "epochs": 2,
    }
    own = {"type": "python", "source": GRADER}
    batch = {"type": "python", "contract": "batch", "source": BATCH}
    tasks = [
        {**base, "id": "plain", "grader": own, "metrics": [{"id": "score", "threshold": 1.0}]},
        {**base, "id": "batched", "graders": [own, batch], "metrics": [{"id": "accuracy", "threshold": 1.0}]},
    ]
    (root / "suites").mkdir()
    suite = {"schema_version": "2026-05-27", "run": {"models": ["recorded:answer"]}, "tasks": tasks}
    (root / "suites/s.json").write_text(json.dumps(suite))
    (root / "conftest.py").write_text(CONFTEST)
    (root / "pytest.ini").write_text("[pytest]\n")


def start(root: Path, workers: str) -> subprocess.Popen[bytes]:
    """Start a run in a session of its own."""
    (root / "finished.txt").unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "--evals", "suites", "-q", "-p", "no:randomly", *workers.split()]
    with open(root / "terminal.txt", "wb") as shown:
        return subprocess.Popen(
            [*command, "--evals-output=out"], cwd=root, stdout=shown, stderr=subprocess.STDOUT, start_new_session=True
        )


def lines_in(path: Path) -> int:
    """Count the whole lines of a file that may not be there."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def family(pid: int) -> dict[int, str]:
    """Find a process and all its descendants, and what shares its session; each with its start time."""
    stats: dict[int, list[str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it ended meanwhile
                stats[int(entry.name)] = (entry / "stat").read_text().rpartition(")")[2].split()
    members = {pid}
    while True:
        found = {own for own, stat in stats.items() if int(stat[1]) in members or int(stat[3]) == pid}
        if found <= members:
            return {own: stats[own][19] for own in members if own in stats and stats[own][0] != "Z"}
        members |= found


def alive(processes: dict[int, str]) -> list[int]:
    """Say which of the processes still run."""
    out = []
    for pid, began in processes.items():
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            if stat[19] == began and stat[0] != "Z":
                out.append(pid)
    return out


def kill_one(root: Path, workers: str, rng: random.Random) -> tuple[str, list[str]]:
    """Start a run, kill its controller, and look at what it left.

    Returns:
        The moment in words, and what was harmed.
    """
    out = root / "out"
    run = start(root, workers)
    moment = rng.choice(["start", "samples", "samples", "samples", "end"])
    goal = 0 if moment == "start" else SAMPLES if moment == "end" else rng.randrange(1, SAMPLES)
    deadline = time.monotonic() + LONGEST_S
    if moment == "start":
        time.sleep(rng.uniform(0.0, 1.5))
    while run.poll() is None and lines_in(root / "finished.txt") < goal and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(rng.choice([0.0, rng.uniform(0.0, 0.03)]))
    others = family(run.pid)
    run.send_signal(signal.SIGKILL)
    run.wait()
    others |= family(run.pid)  # what was started meanwhile shares the session
    others.pop(run.pid, None)

    harmed = []
    waited = time.monotonic() + 10
    while (left := alive(others)) and time.monotonic() < waited:
        time.sleep(0.02)
    if left:
        harmed.append(f"{len(left)} processes live on")
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    noted = (root / "finished.txt").read_text().splitlines() if (root / "finished.txt").exists() else []
    try:
        found = [record["nodeid"] for record in read_samples(out)] if (out / "samples.jsonl").exists() else []
    except ValueError as error:
        return moment, [*harmed, str(error)]
    if lost := set(noted) - set(found):
        harmed.append(f"{len(lost)} finished samples are not in samples.jsonl")
    if len(found) != len(set(found)):
        harmed.append("samples stand in samples.jsonl twice")
    summary = read_run(out)
    if summary is not None and len(found) < SAMPLES:
        harmed.append("a run.json stands beside half a run")
    return f"{moment}, {len(found)} of {SAMPLES} samples", harmed


def run_whole(root: Path, workers: str) -> list[str]:
    """Run to the end in the same folder; return what was harmed."""
    run = start(root, workers)
    try:
        code = run.wait(LONGEST_S)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        return [f"the next run did not end in {LONGEST_S:.0f} s"]
    harmed = [] if code == 0 else [f"the next run ended in {code}"]
    records: list[dict[str, Any]] = list(read_samples(root / "out"))
    if len(records) != SAMPLES or {record["outcome"] for record in records} != {"passed"}:
        harmed.append(f"the next run left {len(records)} samples")
    if {record["judge"]["of"] for record in records if record["task_id"] == "batched"} != {2 * ROWS}:
        harmed.append("the next run lost its batch updates")
    gates = [
        gate["outcome"] for group in (read_run(root / "out") or {"groups": []})["groups"] for gate in group["gates"]
    ]
    if gates != ["passed", "passed"]:
        harmed.append(f"the next run's gates: {gates}")
    return harmed


def main() -> int:
    """Kill, look, run again; print a line for each kill and a last one for all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="how many runs to kill (50)")
    parser.add_argument("--seed", type=int, default=1, help="chooses the moments (1)")
    given = parser.parse_args()
    rng = random.Random(given.seed)
    bad = 0
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        root = Path(folder)
        lay(root)
        for n in range(1, given.kills + 1):
            workers = "" if n % 2 else "-n 2"
            moment, harmed = kill_one(root, workers, rng)
            harmed += run_whole(root, workers)
            bad += bool(harmed)
            print(f"{n:3} {workers or 'serial':6} killed at {moment}: {'; '.join(harmed) or 'unharmed'}", flush=True)
            if harmed:
                print((root / "terminal.txt").read_text(errors="replace")[-2000:])
    print(f"{given.kills} runs killed, {bad} harmed")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
