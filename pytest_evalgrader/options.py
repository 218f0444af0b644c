"""Every command line option and ini key, read once into one frozen object."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import pytest

CallsMode = Literal["live", "replay", "fill", "refresh"]
SandboxMode = Literal["auto", "strict", "off"]

DEFAULT_CONCURRENCY = 10


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line and the ini file say.

    Args:
        rootdir: pytest's rootdir.
        models: Candidates that override those of the suites; empty where none were given.
        limit: Rows of each task, or None for all.
        concurrency: Model calls in flight over the whole run, or None where nobody said (then 10).
        max_calls: Budget of model calls of the run, or None.
        output: Folder for `samples.jsonl` and `run.json`, or None.
        trusted_modules: Modules that suites may name.
    """

    rootdir: Path
    models: tuple[str, ...]
    judge_model: str | None
    embedding_model: str | None
    limit: int | None
    concurrency: int | None
    calls: CallsMode
    max_calls: int | None
    output: Path | None
    sandbox: SandboxMode
    trusted_modules: tuple[str, ...]


def add_options(parser: pytest.Parser) -> None:
    """Register the options and their ini twins; costs no import."""
    group = parser.getgroup("evals", "LLM evals (pytest-evalgrader)")
    group.addoption("--evals", action="store_true", default=None, help="collect suite JSON files and run them as tests")
    group.addoption(
        "--evals-model", action="append", metavar="M", help="candidate model, repeatable; overrides the suites' models"
    )
    group.addoption("--evals-judge-model", metavar="M", help="model for judges that name none")
    group.addoption("--evals-embedding-model", metavar="M", help="model for embeddings that name none")
    group.addoption("--evals-limit", metavar="N", help="only the first N rows of each task")
    group.addoption("--evals-concurrency", metavar="N", help="model calls in flight over the whole run (default 10)")
    group.addoption(
        "--evals-calls",
        metavar="MODE",
        help="live (default), replay (never call), fill (call what is missing), refresh",
    )
    group.addoption("--evals-max-calls", metavar="N", help="budget of model calls; past it the run stops")
    group.addoption("--evals-output", metavar="DIR", help="write samples.jsonl and run.json there")
    group.addoption("--evals-sandbox", metavar="MODE", help="auto (default), strict (all layers or none), off (--pdb)")
    parser.addini("evals", "collect suite JSON files as with --evals", type="bool", default=False)
    parser.addini("evals_model", "as --evals-model, one a line", type="linelist", default=[])
    for name in ("judge_model", "embedding_model", "limit", "concurrency", "calls", "max_calls", "output", "sandbox"):
        parser.addini(f"evals_{name}", f"as --evals-{name.replace('_', '-')}", default=None)
    parser.addini("evals_trusted_modules", "modules that suites may run, one a line", type="linelist", default=[])


def evals_enabled(config: pytest.Config) -> bool:
    """Say whether this session runs evals."""
    return bool(config.getoption("--evals") or config.getini("evals"))


def read_settings(config: pytest.Config) -> Settings:
    """Read all options.

    Raises:
        pytest.UsageError: A value is not one of the valid ones.
    """

    def value(name: str) -> str | None:
        given = config.getoption(f"--evals-{name.replace('_', '-')}")
        if given is None:
            given = config.getini(f"evals_{name}")
        return None if given in (None, "") else str(given)

    def count(name: str, lowest: int) -> int | None:
        text = value(name)
        if text is None:
            return None
        if not text.strip().isascii() or not text.strip().isdigit() or int(text) < lowest:
            raise pytest.UsageError(
                f"--evals-{name.replace('_', '-')}: {text!r} is not valid. Give a whole number from {lowest} up."
            )
        return int(text)

    def choice(name: str, valid: tuple[str, ...]) -> str:
        text = value(name) or valid[0]
        if text not in valid:
            raise pytest.UsageError(f"--evals-{name}: {text!r} is not valid. Choose one of: {', '.join(valid)}.")
        return text

    output = value("output")
    return Settings(
        rootdir=config.rootpath,
        models=tuple(config.getoption("--evals-model") or config.getini("evals_model")),
        judge_model=value("judge_model"),
        embedding_model=value("embedding_model"),
        limit=count("limit", 1),
        concurrency=count("concurrency", 1),
        calls=choice("calls", get_args(CallsMode)),  # type: ignore[arg-type]
        max_calls=count("max_calls", 0),
        output=None
        if output is None
        else Path(os.path.abspath(config.invocation_params.dir / os.path.expanduser(output))),
        sandbox=choice("sandbox", get_args(SandboxMode)),  # type: ignore[arg-type]
        trusted_modules=tuple(name for line in config.getini("evals_trusted_modules") for name in line.split()),
    )
