"""What large groups cost: a batch grader over one, and many samples with long texts. Time and peak memory.

    python benchmarks/groups.py [--batch 50000] [--samples 100000] [--kb 5] [--only batch|texts]

Every figure is a whole process: wall and CPU time of pytest with its children, and the largest resident size (VmHWM)
that the process had. On a machine that does other things, too, compare the CPU times.
`batch` runs short samples with and without a batch grader that updates each of them; what it costs is the difference.
`texts` runs samples whose rows hold a long text (it is in the row and in the prompt, so a record holds it twice) and as
many with none, without workers and with `-n 2`; the ratio of the controller's peaks says what the texts cost: records
go to a file as they arrive, and large datasets are read from one. Linux alone: sizes are read from /proc.

Measured on two shared, busy cores (CPython 3.11, pytest 9.2): 50,000 samples, controller 465 MiB, about 8 KiB a sample,
which is pytest's items and reports; with a batch grader that updates all of them 591 MiB, and 135 MiB in its child.
100,000 samples with 5 KiB of text (a dataset of 494 MiB): controller 873 MiB; with `-n 2` 1,238 MiB, and 1,043 MiB in a
worker. With 4,000 samples the texts cost the controller 1.00 times what none do, and 1.01 times with `-n 2`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GRADER = "def grade(sample, item):\n    return 1.0 if sample['extracted_output'] == item['target'] else 0.0\n"
BATCH = """
def grade_batch(samples):
    right = sum(s["scores"]["score"] for s in samples)
    updates = [{"sample_id": s["sample_id"], "scores": {"again": s["scores"]["score"]}} for s in samples]
    return {"metrics": {"accuracy": right / len(samples)}, "samples": updates}
"""
MIB = 1024.0


@dataclass
class Cost:
    """What a run took.

    Args:
        seconds: Wall time.
        cpu_s: CPU time of the run's processes, in seconds.
        peaks: Largest resident size in MiB by kind of process: controller, worker, child.
    """

    seconds: float = 0.0
    cpu_s: float = 0.0
    peaks: dict[str, float] = field(default_factory=dict)


def lay(root: Path, count: int, kb: int, *, batch: bool) -> int:
    """Write a suite; return the size of its dataset in bytes."""
    (root / "suites").mkdir(parents=True)
    text = "All work and no play. " * (kb * 1024 // 22)
    with open(root / "suites/rows.jsonl", "w", encoding="ascii") as rows:
        for n in range(count):
            gold = str(n + 1)
            rows.write(json.dumps({"question": f"{n} + 1?", "gold": gold, "answer": gold, "text": text}) + "\n")
    metrics: list[dict[str, Any]] = [{"id": "score", "threshold": 1.0}]
    graders: list[dict[str, Any]] = [{"type": "python", "source": GRADER}]
    if batch:
        metrics += [{"id": "accuracy", "threshold": 1.0}, {"id": "again", "threshold": 1.0}]
        graders.append({"type": "python", "contract": "batch", "source": BATCH, "timeout_seconds": 600})
    task = {
        "id": "sums",
        "dataset": {"file_id": "rows.jsonl"},
        "prompt_template": "{{text}} What is {{question}}",
        "target_template": "{{gold}}",
        "graders": graders,
        "metrics": metrics,
    }
    suite = {"schema_version": "2026-05-27", "run": {"models": ["recorded:answer"]}, "tasks": [task]}
    (root / "suites/s.json").write_text(json.dumps(suite))
    (root / "pytest.ini").write_text("[pytest]\n")
    return (root / "suites/rows.jsonl").stat().st_size


def tree(pid: int) -> Iterator[int]:
    """Yield a process and its descendants."""
    yield pid
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{thread}/children").read_text().split():
                yield from tree(int(child))


def peak_of(pid: int) -> float:
    """Return the largest resident size that a process has had, in MiB; 0 where it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / MIB
    return 0.0


def kind_of(pid: int, controller: int) -> str:
    """Tell controller, worker and the sandbox's processes apart."""
    if pid == controller:
        return "controller"
    with contextlib.suppress(OSError):
        return "child" if b"guarded" in Path(f"/proc/{pid}/cmdline").read_bytes() else "worker"
    return "worker"


def cpu_of_children() -> float:
    """Return the CPU time of all processes that were started here and have ended, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(root: Path, *args: str) -> Cost:
    """Run pytest once.

    Raises:
        RuntimeError: The run did not pass.
    """
    command = [sys.executable, "-m", "pytest", "-q", "--evals", "suites", "-p", "no:randomly", "-p", "no:cacheprovider"]
    out = Cost()
    began, spent = time.monotonic(), cpu_of_children()
    with tempfile.TemporaryFile() as shown:
        process = subprocess.Popen([*command, *args, "--evals-output=out"], cwd=root, stdout=shown, stderr=shown)
        kinds: dict[int, str] = {}
        while process.poll() is None:
            for pid in tree(process.pid):
                if pid not in kinds:
                    kinds[pid] = kind_of(pid, process.pid)
                kind = kinds[pid]
                out.peaks[kind] = max(out.peaks.get(kind, 0.0), peak_of(pid))
            time.sleep(0.1)
        out.seconds, out.cpu_s = time.monotonic() - began, cpu_of_children() - spent
        if process.returncode:
            shown.seek(0)
            raise RuntimeError(shown.read().decode(errors="replace")[-2000:])
    return out


def measure(count: int, kb: int, *args: str, batch: bool = False) -> tuple[Cost, float]:
    """Lay a suite and run it; return its cost, and the size of its dataset in MiB."""
    with tempfile.TemporaryDirectory(prefix="groups-") as folder:
        size = lay(Path(folder), count, kb, batch=batch)
        return run(Path(folder), *args), size / MIB / MIB


def show(what: str, cost: Cost) -> None:
    """Print one run."""
    peaks = ", ".join(f"{kind} {peak:,.0f} MiB" for kind, peak in sorted(cost.peaks.items()))
    print(f"{what:44} {cost.seconds:7.1f} s, CPU {cost.cpu_s:7.1f} s   {peaks}", flush=True)


def main() -> int:
    """Measure, and print a line for each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=50_000, help="samples of the batch (50000)")
    parser.add_argument("--samples", type=int, default=100_000, help="samples with long texts (100000)")
    parser.add_argument("--kb", type=int, default=5, help="KiB of text in each row (5)")
    parser.add_argument("--only", choices=["batch", "texts"])
    given = parser.parse_args()
    if given.only != "texts":
        plain, _ = measure(given.batch, 0)
        show(f"{given.batch:,} samples", plain)
        batched, _ = measure(given.batch, 0, batch=True)
        show("and a batch grader over all of them", batched)
        more = batched.peaks["controller"] - plain.peaks["controller"]
        print(
            f"  the batch grader: CPU {batched.cpu_s - plain.cpu_s:.1f} s, {more:,.0f} MiB in the controller "
            f"({1024 * more / given.batch:.1f} KiB a sample), {batched.peaks['child']:,.0f} MiB in its child"
        )
    if given.only != "batch":
        for mode in ("", "-n 2"):
            short, _ = measure(given.samples, 0, *mode.split())
            show(f"{given.samples:,} samples, no text {mode}", short)
            long, size = measure(given.samples, given.kb, *mode.split())
            show(f"{given.samples:,} samples, {given.kb} KiB of text {mode}", long)
            ratio = long.peaks["controller"] / short.peaks["controller"]
            print(f"  controller: {ratio:.2f} times as much, for a dataset of {size:,.0f} MiB", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
