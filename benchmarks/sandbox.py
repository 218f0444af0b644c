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
    {"question": "19 + 23", "prompt": PROMPT, "target": "42", "reference_answer": "42", "task_id": "sums", "choices": []},
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


def median_us(act: Callable[[], object], rounds: int) -> float:
    """Return the median time of a call, in microseconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        act()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def echo(asks: int, answers: int, rounds: int) -> float:
    """Return the median round trip of a bare pipe echo, in microseconds."""
    with subprocess.Popen(
        [sys.executable, "-S", "-c", ECHO, str(asks), str(answers)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        to, back, request = process.stdin.fileno(), process.stdout.fileno(), b"x" * asks

        def once() -> None:
            os.write(to, request)
            left = answers
            while left:
                left -= len(os.read(back, left))

        once()
        median = median_us(once, rounds)
        process.stdin.close()
    return median


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3000)
    rounds = parser.parse_args().rounds

    start = time.perf_counter()
    with host.Sandbox() as sandbox:
        print(f"layers: {', '.join(sandbox.layers)}")
        print(f"start with probes:          {(time.perf_counter() - start) * 1e3:8.1f} ms")
        print(f"bare pipe echo:             {echo(1700, 160, rounds):8.1f} us")
        for name, source in (("plain", PLAIN), ("typical", TYPICAL)):
            program = host.Program(source, f"{name}.py", ("grade",))

            def run(program: host.Program = program) -> None:
                result = sandbox.run(program, "grade", ARGS, shape="score", timeout_s=10)
                assert result.status == "returned", result

            run()
            warm = median_us(run, rounds)
            bare = echo(1700, 160, rounds)
            print(f"warm round trip, {name + ':':10} {warm:8.1f} us   {warm / bare:5.1f} x the echo")

            def fresh(program: host.Program = program, run: Callable[[], None] = run) -> None:
                sandbox.retire(program)
                run()

            print(f"in a fresh child, {name + ':':9} {median_us(fresh, 100):8.1f} us")
    with host.Sandbox(language=False) as sandbox:
        program = host.Program(PLAIN, "plain.py", ("grade",))

        def unguarded() -> None:
            sandbox.run(program, "grade", ARGS, shape="score", timeout_s=10)

        unguarded()
        print(f"without the language layer: {median_us(unguarded, rounds):8.1f} us")


if __name__ == "__main__":
    main()
