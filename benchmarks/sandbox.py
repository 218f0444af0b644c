"""What the sandbox costs: a warm round trip against a bare pipe echo, layer by layer, and the start of children.

    python benchmarks/sandbox.py [--rounds 3000]

Prints medians. The echo is another interpreter that reads as many bytes as a request has and writes as many as a reply
has, over two pipes: what any scheme with a process per grader pays at least.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from pytest_evalgrader.sandbox import host

PLAIN = """
def grade(sample, item):
    return 1.0 if sample["extracted_output"] == item["target"] else 0.0
"""
TYPICAL = """
import json
import re
from collections import Counter


def _tokens(text):
    return re.findall(r"\\w+", text.lower())


def grade(sample, item):
    got, want = Counter(_tokens(sample["output_text"])), Counter(_tokens(item["target"]))
    common = sum((got & want).values())
    f1 = 2 * common / max(1, sum(got.values()) + sum(want.values()))
    return {"scores": {"f1": f1, "exact": float(got == want)}, "judge": {"common": common}}
"""
PROMPT = "Work out the following sum step by step, then give the answer on a line of its own. " * 6
ARGS = [
    {
        "output_text": "First add the tens, then the ones. The answer is 42.",
        "extracted_output": "42",
        "model": "openai:small",
        "prompt": PROMPT,
        "task_id": "sums",
        "run_id": "run-1",
        "sample_id": "17",
    },
    {
        "question": "19 + 23",
        "prompt": PROMPT,
        "target": "42",
        "reference_answer": "42",
        "task_id": "sums",
        "choices": [],
    },
]
ECHO = """
import os, sys
asks, answers = int(sys.argv[1]), b"x" * int(sys.argv[2])
while True:
    left = asks
    while left:
        part = os.read(0, left)
        if not part:
            sys.exit()
        left -= len(part)
    os.write(1, answers)
"""


class Echo:
    """Another interpreter behind two pipes."""

    def __init__(self, asks: int, answers: int) -> None:
        self._request, self._answers = b"x" * asks, answers
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", ECHO, str(asks), str(answers)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin, self._process.stdout
        self.once()

    def once(self) -> None:
        os.write(self._to.fileno(), self._request)
        left = self._answers
        while left:
            left -= len(os.read(self._from.fileno(), left))

    def close(self) -> None:
        self._to.close()
        self._process.wait()
        self._from.close()


def side_by_side(acts: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median of each call, in microseconds; they take turns, so that all see the same machine."""
    times: dict[str, list[float]] = {name: [] for name in acts}
    for _ in range(max(1, rounds // 50)):
        for name, act in acts.items():
            for _ in range(50):
                start = time.perf_counter()
                act()
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(measured) * 1e6 for name, measured in times.items()}


def runner(sandbox: host.Sandbox, program: host.Program) -> Callable[[], object]:
    def run() -> None:
        result = sandbox.run(program, "grade", ARGS, shape="score", timeout_s=10)
        assert result.status == "returned", result

    run()
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3000)
    rounds = parser.parse_args().rounds

    plain, typical = (
        host.Program(text, f"{name}.py", ("grade",)) for name, text in (("plain", PLAIN), ("typical", TYPICAL))
    )
    start = time.perf_counter()
    with host.Sandbox() as sandbox, host.Sandbox(language=False) as unguarded:
        print(f"layers: {', '.join(sandbox.layers)}")
        print(f"start, with probes: {(time.perf_counter() - start) * 1e3:.0f} ms")
        bare = Echo(1700, 160)
        medians = side_by_side(
            {
                "bare pipe echo": bare.once,
                "warm round trip, plain grader": runner(sandbox, plain),
                "the same without the language layer": runner(unguarded, plain),
                "warm round trip, typical grader": runner(sandbox, typical),
                "the same without the language layer ": runner(unguarded, typical),
            },
            rounds,
        )
        bare.close()
        for name, median in medians.items():
            print(f"{name:40} {median:8.1f} us {median / medians['bare pipe echo']:7.1f} x the echo")

        def fresh() -> None:
            sandbox.retire(plain)
            sandbox.run(plain, "grade", ARGS, shape="score", timeout_s=10)

        print(f"{'in a fresh child, the old one ended':40} {side_by_side({'': fresh}, 150)['']:8.1f} us")


if __name__ == "__main__":
    main()
