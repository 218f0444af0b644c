"""`evalgrader show RUN_DIR`: the samples of a run, also of half a run."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from pytest_evalgrader.records import SampleRecord
from pytest_evalgrader.reporting.failures import sample_lines
from pytest_evalgrader.reporting.files import SAMPLES, read_run, read_samples
from pytest_evalgrader.reporting.safetext import one_line, safe

STATUSES = ("passed", "failed", "error")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `evalgrader show`."""
    parser.description = "Show the samples of a run that was written with --evals-output."
    parser.add_argument("run_dir", metavar="RUN_DIR", type=Path, help="the folder that --evals-output named")
    parser.add_argument("--status", choices=STATUSES, help="only samples that passed, failed or are errors")
    parser.add_argument("--task", metavar="T", help="only samples of this task")
    parser.add_argument("--model", metavar="M", help="only samples of this model")
    parser.add_argument("--sample", metavar="ID", help="only the sample of this id")
    parser.add_argument("--limit", metavar="N", type=_count, help="at most N samples")
    parser.add_argument("--full", action="store_true", help="show long texts whole")


def run(args: argparse.Namespace) -> int:
    """Print what was asked for.

    Returns:
        0; 1 where no sample fits; 2 where there is no such run.
    """
    try:
        return _show(args)
    except BrokenPipeError:
        # The reader of a pipe (`| head`) had enough. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, ValueError) as error:
        said = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
        print(f"evalgrader show: {safe(said)}", file=sys.stderr)
        return 2


def _show(args: argparse.Namespace) -> int:
    folder: Path = args.run_dir
    if not folder.exists():
        raise ValueError(f"{folder}: there is no such folder. Name the folder that --evals-output wrote.")
    if folder.is_dir() and not (folder / SAMPLES).is_file():
        raise ValueError(f"{folder}: it holds no {SAMPLES}. Name the folder that --evals-output wrote.")
    summary = read_run(folder) if folder.is_dir() else None
    shown = 0
    for record in islice(_chosen(folder, args), args.limit):
        if shown:
            print()
        for line in record_lines(record, full=args.full):
            print(_printable(line))
        shown += 1
    if folder.is_dir() and summary is None:
        print("evalgrader show: this run has not ended (no run.json); these are the samples so far.", file=sys.stderr)
    if not shown:
        print(f"evalgrader show: no sample of {safe(str(folder))} fits.", file=sys.stderr)
        return 1
    return 0


def record_lines(record: dict[str, Any], *, full: bool = False) -> list[str]:
    """Return one sample as safe lines: what was asked, answered, extracted and scored, the judge and the error.

    Args:
        record: A line of `samples.jsonl`.
        full: Show long texts whole.

    Raises:
        ValueError: A key that every record has is not there.
    """
    try:
        sample = SampleRecord.from_dict(record)
    except TypeError as error:
        raise ValueError(f"a line of {SAMPLES} is no record of evalgrader: {error}") from None
    lines = [f"--- {one_line(str(sample.nodeid), 300)}  {one_line(str(sample.outcome), 60).upper()}"]
    if sample.error is not None:
        stage, kind = sample.error.get("stage", "?"), sample.error.get("type", "error")
        lines.append(safe(f"error:     {stage}: {kind}: {sample.error.get('message', '')}", 2_000))
    invalid = sample.judge.get("invalid") if isinstance(sample.judge, dict) else None
    if isinstance(invalid, dict):
        lines.append(safe(f"invalid:   {invalid.get('reason', '?')}: {invalid.get('message', '')}", 2_000))
    return lines + sample_lines(sample, full=full)


def _chosen(folder: Path, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for record in read_samples(folder):
        if args.status and record.get("outcome") != args.status:
            continue
        if args.task and record.get("task_id") != args.task:
            continue
        if args.model and record.get("model") != args.model:
            continue
        if args.sample and record.get("id") != args.sample:
            continue
        yield record


def _printable(line: str) -> str:
    """Return the line as standard output can hold it, whatever its encoding."""
    encoding = sys.stdout.encoding or "utf-8"
    return line.encode(encoding, "backslashreplace").decode(encoding)


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not valid; give a whole number from 1 up")
    return number
