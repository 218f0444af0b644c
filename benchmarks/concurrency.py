"""How near whole eval runs come to N·L/C: N samples, L seconds a call, C calls in flight.

    python benchmarks/concurrency.py [--samples 200] [--latency 0.2] [--concurrency 20] [--only judge] [--runs 1]

A local server answers each call after L seconds and counts the calls in flight. Each line is a whole `pytest --evals`
process: candidates alone, then candidates with one judge call each; serial, `-n 2`, `-n 4`. Printed are the wall time;
the plugin's start (the same command with two samples for each process, so that every one starts its client and its
sandbox, less the time of one round of calls); their difference as a ratio to N·L/C;
the time between the first and the last call at the server, as a ratio, too; and the most calls that were in flight.
The exit status is 1 where a ratio is above 1.3, a call is missing or too many were in flight.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

LIMIT = 1.3
JUDGE = """
def grade(sample, item, ctx):
    reply = ctx.responses_create(model="auto", input="Is this right? " + sample["output_text"] + item["question"])
    return 1.0 if reply["output_text"] == "yes" else 0.0
"""
EXACT = "def grade(sample, item):\n    return 1.0 if sample['output_text'] == 'yes' else 0.0\n"


class Server:
    """Answers POST with `yes` after the latency, GET with its counts, which it then forgets."""

    def __init__(self, latency_s: float) -> None:
        self._latency_s = latency_s
        self._in_flight = 0
        self._forget()

    def _forget(self) -> None:
        self._counts: dict[str, Any] = {"calls": 0, "most_in_flight": 0, "first": None, "last": None}

    async def serve(self) -> None:
        """Print the port, then serve until killed."""
        server = await asyncio.start_server(self._talk, "127.0.0.1", 0, backlog=1000)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                if head.startswith(b"get"):
                    self._answer(writer, self._counts)
                    self._forget()
                    continue
                length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length))
                await self._call(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _call(self, writer: asyncio.StreamWriter) -> None:
        counts = self._counts
        now = time.monotonic()
        counts["first"] = counts["first"] or now
        counts["calls"] += 1
        self._in_flight += 1
        counts["most_in_flight"] = max(counts["most_in_flight"], self._in_flight)
        await asyncio.sleep(self._latency_s)
        self._in_flight -= 1
        counts["last"] = time.monotonic()
        content = [{"type": "output_text", "text": "yes", "annotations": []}]
        self._answer(
            writer,
            {
                "id": f"resp_{counts['calls']}",
                "object": "response",
                "status": "completed",
                "model": "m",
                "output": [{"type": "message", "role": "assistant", "content": content}],
                "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
            },
        )

    @staticmethod
    def _answer(writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)


def lay(root: Path, samples: int, *, judged: bool) -> None:
    """Write a suite of as many samples."""
    grader = {"type": "python", "source": JUDGE, "contract": "model_backed"} if judged else None
    suite = {
        "schema_version": "2026-05-27",
        "run": {"models": ["openai:candidate"], "judge_model": "openai:judge"},
        "tasks": [
            {
                "id": "sums",
                "dataset": {"rows": [{"question": f"{n} + 1?"} for n in range(samples)]},
                "prompt_template": "What is {{question}}",
                "grader": grader or {"type": "python", "source": EXACT},
                "metrics": [{"id": "score", "threshold": 1.0}],
            }
        ],
    }
    root.mkdir()
    (root / "sums.json").write_text(json.dumps(suite))
    (root / "pytest.ini").write_text("[pytest]\n")


def run(root: Path, url: str, args: list[str]) -> tuple[float, dict[str, Any]]:
    """Run pytest once.

    Returns:
        Wall time in seconds, and the server's counts.
    """
    command = [sys.executable, "-m", "pytest", "--evals", "sums.json", "-q", "-p", "no:cacheprovider"]
    env = {**os.environ, "OPENAI_API_KEY": "not-a-real-key", "OPENAI_BASE_URL": f"{url}/v1"}
    began = time.perf_counter()
    done = subprocess.run(
        [*command, "-p", "no:randomly", *args], cwd=root, env=env, capture_output=True, text=True, check=False
    )
    took = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"pytest ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    with urllib.request.urlopen(f"{url}/counts") as reply:
        counts: dict[str, Any] = json.load(reply)
    return took, counts


def measure(url: str, options: argparse.Namespace) -> bool:
    """Run and print every combination; tell whether all are within bounds."""
    within = True
    print("| calls | workers | N·L/C | wall | start | (wall - start) / N·L/C | at the server | most in flight |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as temporary:
        for judged in (False, True):
            name = "candidate + judge" if judged else "candidate"
            if options.only and options.only not in name:
                continue
            root = Path(temporary) / name.replace(" ", "")
            lay(root, options.samples, judged=judged)
            calls = options.samples * (1 + judged)
            ideal_s = calls * options.latency / options.concurrency
            for workers in ([], ["-n", "2"], ["-n", "4"]):
                args = [f"--evals-concurrency={options.concurrency}", *workers]
                few = [*args, f"--evals-limit={2 * int(workers[-1]) if workers else 2}"]
                small = [run(root, url, few)[0] for _ in range(options.runs)]
                start_s = statistics.median(small) - (1 + judged) * options.latency
                whole = [run(root, url, args) for _ in range(options.runs)]
                wall_s = statistics.median(took for took, _ in whole)
                ratio = (wall_s - start_s) / ideal_s
                served = statistics.median(counts["last"] - counts["first"] for _, counts in whole) / ideal_s
                most = max(counts["most_in_flight"] for _, counts in whole)
                print(
                    f"| {name} | {' '.join(workers) or 'serial'} | {ideal_s:.2f} s | {wall_s:.2f} s | {start_s:.2f} s "
                    f"| {ratio:.2f} | {served:.2f} | {most} of {options.concurrency} |",
                    flush=True,
                )
                complete = all(counts["calls"] == calls for _, counts in whole)
                within = within and complete and ratio <= LIMIT and most <= options.concurrency
    return within


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--latency", type=float, default=0.2, help="seconds a call takes")
    parser.add_argument("--concurrency", type=int, default=20)
    parser.add_argument("--runs", type=int, default=1, help="runs of each command; the median counts")
    parser.add_argument("--only", default="", help="only lines whose calls hold this word")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(Server(options.latency).serve())
        return 0
    command = [sys.executable, __file__, "--serve", "--latency", str(options.latency)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        return 0 if measure(f"http://127.0.0.1:{server.stdout.readline().strip()}", options) else 1
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    sys.exit(main())
