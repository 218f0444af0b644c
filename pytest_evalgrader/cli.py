"""The command `evalgrader`: validate suites, print their JSON Schema, show a run, show what a judge is asked."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.metadata
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_evalgrader import __version__

if TYPE_CHECKING:
    import pytest

_DESCRIPTION = "Work with the suites and runs of pytest-evalgrader. To run suites: pytest --evals PATH"

# Command → (help, where `add_arguments(parser)` and `run(args) -> int` are). Only the command that is used is imported.
_COMMANDS = {
    "validate": ("find every problem of suites, without running them", "pytest_evalgrader.cli"),
    "schema": ("print the JSON Schema of a suite, for editors", "pytest_evalgrader.cli"),
    "show": ("show the samples of a run", "pytest_evalgrader.reporting.show"),
    "judge": ("show what the judges of one sample are sent and answer", "pytest_evalgrader.judge_cli"),
}

_LONGEST = 4_000  # characters of a problem's line


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: The arguments; those of the process by default.

    Returns:
        The exit status: 0, 1 where something was found wrong, 2 for wrong usage.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    chosen = next((word for word in given if not word.startswith("-")), None)
    parser = argparse.ArgumentParser(prog="evalgrader", description=_DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"pytest-evalgrader {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (said, module) in _COMMANDS.items():
        command = commands.add_parser(name, help=said, description=said[0].upper() + said[1:] + ".", allow_abbrev=False)
        if name == chosen:
            command.set_defaults(run=_prepare(name, module, command))
    args = parser.parse_args(given)
    run: Callable[[argparse.Namespace], int] = args.run
    try:
        status = run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of a pipe (`| head`) had enough; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


def _prepare(name: str, module: str, parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    if name == "validate":
        parser.description = (
            "Find every problem of suites, of their datasets, templates and graders, as pytest would when it collects"
            " them. No model is called. The exit status is 1 where there are problems, 2 for wrong usage."
        )
        parser.add_argument(
            "paths", nargs="+", metavar="PATH", type=Path, help="a suite, or a folder with suites in it"
        )
        return _validate
    if name == "schema":
        return _print_schema
    found = importlib.import_module(module)
    found.add_arguments(parser)
    run: Callable[[argparse.Namespace], int] = found.run
    return run


# --- schema ---------------------------------------------------------------------------------------------------------


def _print_schema(args: argparse.Namespace) -> int:
    from pytest_evalgrader.suite.schema import suite_schema

    print(json.dumps(suite_schema(), indent=2, ensure_ascii=True))
    return 0


# --- validate -------------------------------------------------------------------------------------------------------


def _validate(args: argparse.Namespace) -> int:
    import pytest

    for path in args.paths:
        if not path.exists():
            return _usage(f"{path}: there is no such file or folder.")
        if path.is_file() and path.suffix != ".json":
            return _usage(f"{path}: not a suite. Name a .json file, or a folder.")
    watch = _Watch()
    # pytest itself collects, so that rootdir, ini options, conftest hooks and providers are those of a real run.
    arguments = ["--evals", "--collect-only", "-q", "--maxfail=0", "--evals-calls=replay", "-p", _plugin()]
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        status = pytest.main([*arguments, *map(os.fspath, args.paths)], plugins=[watch])
    if status in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR):
        print(shown.getvalue().rstrip(), file=sys.stderr)
        return 2
    if not watch.suites:
        return _usage(f"no suite found in {', '.join(map(os.fspath, args.paths))}.")
    for line in watch.problems:
        print(line)
    print(f"{_count(len(watch.suites), 'suite')}, {_count(len(watch.problems), 'problem')}")
    return 1 if watch.problems else 0


class _Watch:
    """Keeps what pytest finds wrong while it collects, and keeps it from importing test modules."""

    def __init__(self) -> None:
        self.suites: list[str] = []
        self.problems: list[str] = []

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave all files but JSON alone."""
        return True if collection_path.is_file() and collection_path.suffix != ".json" else None

    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        """Count the suites."""
        from pytest_evalgrader.collection import SuiteFile

        if isinstance(collector, SuiteFile):
            self.suites.append(collector.nodeid)

    def pytest_exception_interact(self, node: Any, call: pytest.CallInfo[Any], report: Any) -> None:
        """Keep the problems of a suite, a line for each."""
        from pytest_evalgrader.errors import SuiteError
        from pytest_evalgrader.reporting.safetext import one_line

        assert call.excinfo is not None
        error = call.excinfo.value
        if isinstance(error, SuiteError):
            self.problems += [one_line(str(problem), _LONGEST) for problem in error.problems]
        else:
            self.problems.append(one_line(f"{node.nodeid}: {type(error).__name__}: {error}", _LONGEST))


def _plugin() -> str:
    """Name the plugin in the way that pytest does not load it a second time."""
    installed = importlib.metadata.entry_points(group="pytest11", name="evalgrader")
    return "evalgrader" if installed else "pytest_evalgrader.plugin"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _usage(message: str) -> int:
    print(f"evalgrader validate: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
