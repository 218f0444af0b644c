"""What the terminal shows of a run: header, the line after collection, and the summary table.

Pure functions over plain data; the session prints the lines. A run is the dict that `run.json` holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any, NamedTuple

from pytest_evalgrader.gates import shown_value
from pytest_evalgrader.reporting.safetext import one_line

WIDTH = 100
TITLE = "evals"
_GAP = "  "
_NARROWEST = 12


class Line(NamedTuple):
    """A line of the terminal.

    Args:
        text: Safe text.
        markup: Keyword arguments of pytest's `write_line`, such as `{"red": True}`.
    """

    text: str
    markup: Mapping[str, bool] = MappingProxyType({})


class _Row(NamedTuple):
    """A line of the table: a name, and cells by column title; the name of a group may run over empty cells."""

    name: str
    cells: Mapping[str, str]
    markup: Mapping[str, bool] = MappingProxyType({})
    indent: int = 0


_NAMES = "metric"
_COLUMNS = ("value", "95% interval", "n", "gate", "invalid", "errors", "tokens", "time")
_LEFT = ("gate",)
_COUNTS = ("invalid", "errors")
_COSTS = ("tokens", "time")
# Where the name of a task and model stands, these are empty.
_OVERRUN = ("value", "95% interval", "n", "gate")


def header_lines(
    *,
    layers: Sequence[str],
    missing: Iterable[tuple[str, str]] = (),
    sandbox: str = "auto",
    calls: str = "live",
    verbosity: int = 0,
) -> list[str]:
    """Return the lines of pytest's header.

    Args:
        layers: Layers of the sandbox that are on.
        missing: Layers that could not be set up, each with the reason.
        sandbox: Value of `--evals-sandbox`.
        calls: Value of `--evals-calls`.
        verbosity: pytest's; below 0 there is no header.
    """
    if verbosity < 0:
        return []
    on = ", ".join(layers) if layers else "none"
    mode = "off, graders run in the worker process" if sandbox == "off" else on
    lines = [one_line(f"evals: sandbox {mode}; calls {calls}", 300)]
    if sandbox != "off":
        lines += [one_line(f"evals: no sandbox layer {layer}: {why}", 300) for layer, why in missing]
    return lines


def collection_line(*, suites: int, tasks: int, samples: int, models: int, gates: int, deselected: int = 0) -> str:
    """Return the line after collection, which says what will run.

    Args:
        suites: Suite files with something to run; tasks, samples, models and gates likewise.
        deselected: Samples and gates that are left out.
    """
    counts = (("suite", suites), ("task", tasks), ("sample", samples), ("model", models), ("gate", gates))
    said = ", ".join(_count(number, noun) for noun, number in counts)
    return f"evals: {said}" + (f" ({deselected:,} deselected)" if deselected else "")


def summary_lines(run: Mapping[str, Any], *, verbosity: int = 0, width: int = WIDTH, folder: str = "") -> list[Line]:
    """Return the summary: a table of task × model → metrics, and what a reader must know beside it.

    Args:
        run: As `run.json` holds it; each group may have `rows` (`asked`, `total`), `epochs`, `partial`, `usage`,
            `seconds` and `batch` (`problem`) beside the documented keys.
        verbosity: pytest's; -1 leaves tokens, time and totals out, -2 everything.
        width: Columns of the terminal, from 60.
        folder: Where the files were written, as a reader may type it.
    """
    groups: list[Mapping[str, Any]] = [group for group in run.get("groups") or [] if isinstance(group, dict)]
    if verbosity < -1 or not groups:
        return []
    brief = verbosity < 0
    blocks = [
        (suite, [row for group in members for row in _rows(group, costs=not brief)])
        for suite, members in groupby(groups, key=lambda group: str(group.get("suite", "?")))
    ]
    table = _Table([row for _, rows in blocks for row in rows], max(60, width))
    lines = [Line(table.head())]
    for suite, rows in blocks:
        lines.append(Line(one_line(suite, width), {"bold": True}))
        lines += [Line(table.line(row), row.markup) for row in rows]
    lines += [note for group in groups for note in _notes(group, brief)]
    if not brief:
        lines.append(Line(_totals(run, groups)))
        if folder:
            lines.append(Line(one_line(f"Written: {folder}/samples.jsonl and run.json", 300)))
    return lines


class _Table:
    """Lays rows out in columns; a column without any cell is left out.

    Where the names do not fit, counts that are 0 throughout go first (the line of totals has no such part either), and
    the costs where the rest is too wide without any name.
    """

    def __init__(self, rows: Sequence[_Row], width: int) -> None:
        self.columns = [title for title in _COLUMNS if any(row.cells.get(title) for row in rows)]
        self.widths = {
            title: max(len(title), *(len(row.cells.get(title, "")) for row in rows)) for title in self.columns
        }
        own = [len(row.name) + row.indent for row in rows if row.indent]
        beside = self._taken(_OVERRUN)
        spanning = [len(row.name) - beside for row in rows if not row.indent]
        wanted = max(len(_NAMES), *own, *spanning)
        zero = [title for title in _COUNTS if {row.cells.get(title) or "0" for row in rows} == {"0"}]
        for titles, needed in ((zero, wanted), (_COSTS, _NARROWEST)):
            for title in titles:
                if title in self.columns and width - self._taken(self.columns) < needed:
                    self.columns.remove(title)
        self.room = max(_NARROWEST, min(width - self._taken(self.columns), wanted))

    def _taken(self, titles: Iterable[str]) -> int:
        """Return the characters that these columns take, of those that there are."""
        return sum(len(_GAP) + self.widths[title] for title in titles if title in self.columns)

    def head(self) -> str:
        """Return the line of titles."""
        return self.line(_Row(_NAMES, {title: title for title in self.columns}))

    def line(self, row: _Row) -> str:
        """Return a row as text."""
        name, end = row.name, self.room
        columns = list(self.columns)
        while columns and columns[0] in _OVERRUN and not row.cells.get(columns[0]):
            end += len(_GAP) + self.widths[columns.pop(0)]
        out = [" " * row.indent + _squeezed(name, end - row.indent).ljust(end - row.indent)]
        for title in columns:
            cell = row.cells.get(title, "")
            out.append(cell.ljust(self.widths[title]) if title in _LEFT else cell.rjust(self.widths[title]))
        return _GAP.join(out).rstrip()


def _rows(group: Mapping[str, Any], *, costs: bool) -> list[_Row]:
    """Return a row for the group, with its counts and costs, and one for each metric and gate."""
    counts = group.get("request_counts") or {}
    cells = {"invalid": _whole(counts.get("invalid")), "errors": _whole(counts.get("failed"))}
    if costs:
        cells["tokens"] = _tokens(group)
        cells["time"] = _seconds(group.get("seconds"))
    rows = [_Row(f"{_name(group.get('task_id'))}  {_name(group.get('model'))}", cells)]
    gates = {gate["metric"]: gate for gate in group.get("gates") or []}
    metrics: Mapping[str, Mapping[str, Any]] = group.get("metrics") or {}
    for key in dict.fromkeys([*metrics, *gates]):
        metric, gate = metrics.get(key, {}), gates.get(key)
        cells = {
            "value": _value(metric.get("value"), (gate or {}).get("threshold")),
            "95% interval": _interval(metric.get("ci95")),
            "n": _whole(metric.get("n")),
            "gate": _gate(gate),
        }
        rows.append(_Row(_name(key), cells, _markup(gate), indent=2))
    return rows


def _notes(group: Mapping[str, Any], brief: bool) -> list[Line]:
    """Return what the table cannot hold: half groups, dropped metrics, gates that were not evaluated."""
    place = _squeezed(f"{_name(group.get('task_id'))} {_name(group.get('model'))}", 60)
    counts = group.get("request_counts") or {}
    notes: list[Line] = []
    warn = {"yellow": True}
    dropped = [one_line(str(key), 60) for key in group.get("dropped_metrics") or []]
    if dropped:
        shown = ", ".join(dropped[:10]) + (f" and {len(dropped) - 10} more" if len(dropped) > 10 else "")
        notes.append(Line(f"{place}: dropped, since the task does not declare it: {shown}", warn))
    problem = (group.get("batch") or {}).get("problem")
    if problem:
        notes.append(Line(f"{place}: invalid batch result: {one_line(str(problem), 300)}", {"red": True}))
    skipped = [gate for gate in group.get("gates") or [] if gate.get("outcome") == "skipped"]
    if group.get("partial") and not skipped:
        done = int(counts.get("completed") or 0) + int(counts.get("failed") or 0)
        notes.append(Line(f"{place}: partial, {done:,} of {int(counts.get('total') or 0):,} samples", warn))
    for gate in skipped:
        notes.append(Line(f"{place}: {one_line(str(gate.get('reason') or 'gate not evaluated'), 300)}", warn))
    rows = group.get("rows") or {}
    asked, total = rows.get("asked"), rows.get("total")
    if not brief and isinstance(asked, int) and isinstance(total, int) and asked < total:
        notes.append(Line(f"{place}: {asked:,} of {total:,} rows", {}))
    return notes


def _totals(run: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]) -> str:
    counts = [group.get("request_counts") or {} for group in groups]
    done = sum(int(count.get("completed") or 0) + int(count.get("failed") or 0) for count in counts)
    said = [_count(done, "sample")]
    for key, one, many in (("invalid", "invalid", "invalid"), ("failed", "error", "errors")):
        number = sum(int(count.get(key) or 0) for count in counts)
        if number:
            said.append(f"{number:,} {one if number == 1 else many}")
    outcomes = [gate.get("outcome") for group in groups for gate in group.get("gates") or []]
    for outcome in ("passed", "failed", "skipped"):
        if outcome in outcomes:
            said.append(f"{_count(outcomes.count(outcome), 'gate')} {outcome}")
    calls = sum(int((group.get("usage") or {}).get("model_calls") or 0) for group in groups)
    said += _calls(calls, run)
    ended = "" if run.get("status") != "interrupted" else " (interrupted)"
    return ", ".join(said) + ended


def _calls(calls: int, run: Mapping[str, Any]) -> list[str]:
    """Say how many calls the samples hold, and how many attempts went out where that is another number.

    The bill counts the latter: repeated ones, and those of samples that did not end; what is recorded costs nothing.
    """
    attempts = run.get("attempts")
    if calls and (run.get("calls") == "replay" or attempts == 0):
        return [_count(calls, "recorded model call")]
    if attempts and attempts != calls:
        return [f"{_count(calls, 'model call')} ({_count(attempts, 'attempt')} made)"]
    return [_count(calls, "model call")] if calls else []


def _gate(gate: Mapping[str, Any] | None) -> str:
    if gate is None:
        return ""
    outcome = str(gate.get("outcome"))
    word = "FAILED" if outcome == "failed" else outcome
    threshold = gate.get("threshold")
    if not isinstance(threshold, dict):
        return word
    signs = (("min", ">="), ("max", "<="))
    bounds = " ".join(
        f"{sign} {threshold[key]:g}" for key, sign in signs if isinstance(threshold.get(key), (int, float))
    )
    return f"{word} {bounds}" if bounds else word


def _markup(gate: Mapping[str, Any] | None) -> dict[str, bool]:
    colours = {"passed": "green", "failed": "red", "skipped": "yellow"}
    colour = colours.get(str(gate.get("outcome"))) if gate is not None else None
    return {colour: True} if colour else {}


def _squeezed(text: str, width: int) -> str:
    """Cut the middle out of a name: both its ends tell it from its neighbours."""
    if len(text) <= width:
        return text
    tail = (width - 2) // 2
    return f"{text[: width - 2 - tail]}..{text[len(text) - tail :]}"


def _name(text: Any) -> str:
    return one_line(str(text), 200)


def _value(value: Any, threshold: Mapping[str, Any] | None = None) -> str:
    if not isinstance(value, (int, float)):
        return "-"
    bounds = threshold or {}
    return shown_value(value, bounds.get("min"), bounds.get("max"))


def _interval(bounds: Any) -> str:
    return f"{_value(bounds[0])} to {_value(bounds[1])}" if isinstance(bounds, (list, tuple)) else ""


def _whole(number: Any) -> str:
    return f"{number:,}" if isinstance(number, int) else ""


def _tokens(group: Mapping[str, Any]) -> str:
    usage = group.get("usage") or {}
    number = int(usage.get("input_tokens") or 0) + int(usage.get("output_tokens") or 0)
    if number < 10_000:
        return f"{number:,}" if number else ""
    return f"{number / 1_000:.1f}k" if number < 1_000_000 else f"{number / 1_000_000:.1f}M"


def _seconds(seconds: Any) -> str:
    if not isinstance(seconds, (int, float)):
        return ""
    if seconds < 100:
        return f"{seconds:.1f}s"
    minutes = round(seconds / 60)
    return f"{minutes}m" if minutes < 100 else f"{minutes / 60:.1f}h"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
