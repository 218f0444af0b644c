"""What the plugin costs: recorded samples against empty parametrized tests, and pytest's start with and without it.

    python benchmarks/overhead.py [--samples 10000] [--runs 5] [--many]

Every figure is a whole process. The two commands of a ratio run in turn (A B A B …) after one run of each that is not
counted, and the ratio is that of the medians, so that a machine whose speed drifts does not decide. `--many` adds
100,000 samples: how the cost grows, and the peak memory beside that of 100,000 empty tests.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GRADER = "def grade(sample, item):\n    return 1.0 if sample['extracted_output'] == item['target'] else 0.0\n"
EMPTY = "import pytest\n@pytest.mark.parametrize('n', range({count}))\ndef test_empty(n):\n    pass\n"


def lay(root: Path, count: int) -> None:
    """Write a suite of recorded exact-match samples, and as many empty tests."""
    for name in ("suites", "empty"):
        (root / name).mkdir(parents=True)
    rows = [{"question": f"{n} + 1?", "gold": str(n + 1), "answer": str(n + 1)} for n in range(count)]
    (root / "suites/rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    suite = {
        "schema_version": "2026-05-27",
        "run": {"models": ["recorded:answer"]},
        "tasks": [
            {
                "id": "sums",
                "dataset": {"file_id": "rows.jsonl"},
                "prompt_template": "What is {{question}}",
                "target_template": "{{gold}}",
                "grader": {"type": "python", "source": GRADER},
                "metrics": [{"id": "score", "threshold": 1.0}],
            }
        ],
    }
    (root / "suites/sums.json").write_text(json.dumps(suite))
    (root / "empty/test_empty.py").write_text(EMPTY.format(count=count))
    (root / "pytest.ini").write_text("[pytest]\n")


def timed(root: Path, args: list[str]) -> tuple[float, int]:
    """Run pytest once.

    Returns:
        Wall time in seconds, and the largest resident size of one of its processes, in KiB.
    """
    before = time.perf_counter()
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *args],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    text = run.stdout.read() if run.stdout else b""
    _, status, usage = os.wait4(run.pid, 0)
    run.returncode = os.waitstatus_to_exitcode(status)
    took = time.perf_counter() - before
    if run.returncode not in (0, 5):
        sys.exit(f"pytest {' '.join(args)} ended with {run.returncode}:\n{text.decode()[-2000:]}")
    return took, usage.ru_maxrss


def compare(title: str, root: Path, one: list[str], other: list[str], runs: int, *, bound: float | None = None) -> None:
    """Run two commands in turn and print their medians and the ratio."""
    times: dict[int, list[float]] = {0: [], 1: []}
    peaks = {0: 0, 1: 0}
    for n in range(runs + 1):
        for which, args in enumerate((one, other)):
            took, peak = timed(root, args)
            if n:
                times[which].append(took)
                peaks[which] = max(peaks[which], peak)
    a, b = statistics.median(times[0]), statistics.median(times[1])
    against = "" if bound is None else f"   (at most {bound:g})"
    print(
        f"{title:<58} {a:8.2f} s {b:8.2f} s   ratio {a / b:5.2f}{against}   memory ratio {peaks[0] / peaks[1]:.2f}",
        flush=True,
    )


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--many", action="store_true", help="also ten times as many, with peak memory")
    args = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with tempfile.TemporaryDirectory(prefix="evalgrader-bench-") as tmp:
        root = Path(tmp) / "some"
        lay(root, args.samples)
        evals, empty = ["--evals", "suites"], ["empty"]
        print(f"{args.samples:,} recorded exact-match samples against as many empty parametrized tests")
        compare("serial", root, evals, empty, args.runs, bound=1.5)
        compare("-n 2", root, [*evals, "-n", "2"], [*empty, "-n", "2"], args.runs, bound=1.3)
        none = Path(tmp) / "none"
        lay(none, 1)
        start = ["--collect-only", "empty"]
        compare(
            "pytest's start, plugin installed and blocked", none, start, [*start, "-p", "no:evalgrader"], 4 * args.runs
        )
        if args.many:
            many = Path(tmp) / "many"
            lay(many, 10 * args.samples)
            compare(
                f"{10 * args.samples:,} samples against {args.samples:,} (time), serial",
                many,
                evals,
                ["../some/suites", "--evals", "--rootdir=../some"],
                1,
                bound=11,
            )
            compare(f"{10 * args.samples:,} samples against as many empty tests", many, evals, empty, 1)


if __name__ == "__main__":
    main()
