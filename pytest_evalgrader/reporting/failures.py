"""What a failing item shows: pytest's own representation of a failure, filled from records and verdicts.

pytest serialises these objects between processes (anything else would arrive as plain text), takes the one-line
message for the short summary and JUnit's `message`, and prints the entries as the report.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from _pytest._code.code import ExceptionChainRepr, ReprEntry, ReprFileLocation, ReprTraceback

from pytest_evalgrader.reporting.safetext import MESSAGE_CHARS, PLACE, one_line, pretty_json, safe

if TYPE_CHECKING:
    from pytest_evalgrader.errors import Problem
    from pytest_evalgrader.gates import GateVerdict
    from pytest_evalgrader.records import SampleRecord

WIDTH = 100
SHOWN_WHOLE = 1_000
"""Failing samples of a run that are shown whole; pytest keeps what is shown of each until the end."""

_TOTAL_BYTES = 10_000
_PROMPT_BYTES = 1_600
_TARGET_BYTES = 600
_OUTPUT_BYTES = 2_000
_EXTRACTED_BYTES = 500
_PAYLOAD_BYTES = 2_600
_MESSAGE_BYTES = 1_200
_SOURCE_BYTES = 2_000
_BLOCK_LINES = 50
_MESSAGE_LINES = 20
_CONTEXT = 4
_FUNCTION_LINES = 12
_FRAMES = 4
_SOURCE_CHARS = 160


def invalid_failure(
    record: SampleRecord,
    *,
    sources: Mapping[str, str] | None = None,
    function: str = "grade",
    where: str = "",
) -> ExceptionChainRepr:
    """Show a sample whose grader gave no score.

    Args:
        record: Its `judge["invalid"]` holds reason, raw, message and error.
        sources: The graders' source text by the file name that their tracebacks show.
        function: The graders' function, shown where there is no traceback.
        where: The file name of the grader that failed, for a result without a traceback; default: the only source.
    """
    sources = sources or {}
    judge = record.judge if isinstance(record.judge, dict) else {}
    invalid = judge.get("invalid") if isinstance(judge.get("invalid"), dict) else {}
    assert isinstance(invalid, dict)
    reason = one_line(str(invalid.get("reason", "invalid")), 80)
    error = invalid.get("error") if isinstance(invalid.get("error"), dict) else None
    message = _message_of(invalid, reason, error)
    entries = _source_entries(error, sources, function, where, reason)
    opening = [f"Invalid result ({reason}): the sample counts as 0.", *_wrapped(message)]
    crash = _crash(record.suite, f"invalid ({reason}): {message}", entries)
    return _failure(crash, [_plain(opening), *entries, _plain(sample_lines(record))])


def sample_threshold_failure(
    record: SampleRecord, misses: Sequence[tuple[str, float | None, float, bool]]
) -> ExceptionChainRepr:
    """Show a sample that is below a metric's `sample_threshold`.

    Args:
        record: The sample.
        misses: Metric id, the sample's score (None: it has none), the threshold, and whether higher is better.
    """
    said = []
    for metric, score, threshold, higher_is_better in misses:
        sign = ">=" if higher_is_better else "<="
        got = "the sample has no such score" if score is None else f"{score:.10g}"
        said.append(f"{metric} {sign} {threshold:.10g} not met: {got}.")
    crash = _crash(record.suite, f"sample_threshold: {' '.join(said)}")
    opening = ["Below the sample_threshold:", *(line for text in said for line in _wrapped(text, indent="  "))]
    return _failure(crash, [_plain(opening), _plain(sample_lines(record))])


def error_failure(record: SampleRecord) -> ExceptionChainRepr:
    """Show a sample that the infrastructure failed: no score, and not the model's fault."""
    error = record.error or {}
    stage, kind = error.get("stage", "?"), error.get("type", "error")
    message = str(error.get("message", ""))
    opening = [one_line(f"Error in {stage} ({kind}): the sample has no score.", 200), *_wrapped(message)]
    crash = _crash(record.suite, f"{stage}: {kind}: {message}")
    return _failure(crash, [_plain(opening), *_source_entries(error, {}, "", "", ""), _plain(sample_lines(record))])


def shortened(shown: Any) -> Any:
    """Leave the message of a sample's failure, for those after the first `SHOWN_WHOLE` of a run."""
    crash = shown.reprcrash if isinstance(shown, ExceptionChainRepr) else None
    if crash is None:
        return shown
    rest = f"Only the first {SHOWN_WHOLE:,} failures are shown whole; the rest is in {PLACE} (--evals-output)."
    return _failure(crash, [_plain([*_wrapped(crash.message), rest])])


def gate_failure(verdict: GateVerdict, *, suite: str, task_id: str, model: str) -> ExceptionChainRepr:
    """Show a gate that failed.

    Args:
        verdict: With its reason in words.
        suite: Path of the suite, relative to the rootdir.
        task_id: The gate's task.
        model: The gate's model.
    """
    opening = [*_wrapped(verdict.reason), "", one_line(f"Task {task_id}, model {model}, suite {suite}", WIDTH)]
    return _failure(_crash(suite, verdict.reason), [_plain(opening)])


def batch_failure(
    invalid: Mapping[str, Any],
    *,
    suite: str,
    task_id: str,
    model: str,
    sources: Mapping[str, str] | None = None,
    where: str = "",
    gate: GateVerdict | None = None,
) -> ExceptionChainRepr:
    """Show an invalid result of a batch grader, at the group's own item or at one of its gates.

    Args:
        invalid: reason, raw, message and error, as for a sample.
        suite: Path of the suite, relative to the rootdir.
        task_id: The group's task.
        model: The group's model.
        sources: As in `invalid_failure`.
        where: As in `invalid_failure`.
        gate: The verdict of the gate that fails on it.
    """
    reason = one_line(str(invalid.get("reason", "invalid")), 80)
    error = invalid.get("error") if isinstance(invalid.get("error"), dict) else None
    message = _message_of(invalid, reason, error)
    entries = _source_entries(error, sources or {}, "grade_batch", where, reason)
    opening = [f"Invalid batch result ({reason}): it gives no metric.", *_wrapped(message)]
    if gate is not None:
        opening = [*_wrapped(gate.reason), "", *opening]
    closing = ["payload:", *_block(pretty_json(invalid.get("raw"), _PAYLOAD_BYTES))]
    closing += ["", one_line(f"Task {task_id}, model {model}, suite {suite}", WIDTH)]
    said = gate.reason if gate is not None else f"invalid batch result ({reason}): {message}"
    return _failure(_crash(suite, said, entries), [_plain(opening), *entries, _plain(closing)])


def collection_failure(problems: Iterable[Problem], *, limit: int = 50) -> str:
    """Return all problems of a suite as text, a line for each.

    Args:
        problems: What was found, in the order of the file.
        limit: How many are shown at most; the rest is counted.
    """
    listed = list(problems)
    lines = [_tidy(str(problem)) for problem in listed[:limit]]
    if len(listed) > limit:
        lines.append(f"… and {len(listed) - limit:,} more problems.")
    return "\n".join(lines)


def sample_lines(record: SampleRecord, *, full: bool = False) -> list[str]:
    """Return prompt, target, output, scores and payload of a sample as safe lines.

    Args:
        record: The sample.
        full: Show every part whole, instead of cut where it is huge.
    """
    lines: list[str] = []

    def part(title: str, text: str | None, limit: int) -> None:
        if text is None:
            return
        shown = safe(text, None if full else limit)
        if "\n" not in shown and len(shown) + len(title) + 2 <= WIDTH:
            lines.append(f"{title + ':':<11}{shown or '(empty)'}")
        else:
            lines.append(f"{title}:")
            lines.extend(_block(shown, None if full else _BLOCK_LINES))

    part("prompt", prompt_text(record.prompt), _PROMPT_BYTES)
    part("target", record.target, _TARGET_BYTES)
    part("output", record.output_text, _OUTPUT_BYTES)
    if record.extracted_output != record.output_text:
        extracted = record.extracted_output
        none = "(nothing was extracted)" if record.output_text is not None else None
        part("extracted", extracted if extracted is not None else none, _EXTRACTED_BYTES)
    for note in record.notes[:3]:
        part("note", note, _EXTRACTED_BYTES)
    if record.scores:
        scores = ", ".join(f"{key} {score:.6g}" for key, score in list(record.scores.items())[:20])
        part("scores", scores, _EXTRACTED_BYTES)
    if record.judge is not None:
        limit = sys.maxsize if full else _PAYLOAD_BYTES
        part("judge", pretty_json(_without_traceback(record.judge), limit), limit)
    return lines


def prompt_text(prompt: Any) -> str | None:
    """Return a prompt as text: as it is, or its messages one after the other with their roles."""
    if prompt is None or isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list) and all(isinstance(turn, dict) and "content" in turn for turn in prompt):
        said = []
        for turn in prompt:
            content = turn["content"]
            said.append(f"[{turn.get('role', '?')}] {content if isinstance(content, str) else _inline(content)}")
        return "\n".join(said)
    return pretty_json(prompt, _PROMPT_BYTES)


def _inline(value: Any) -> str:
    return " ".join(pretty_json(value, _PROMPT_BYTES).split())


def _message_of(invalid: Mapping[str, Any], reason: str, error: Mapping[str, Any] | None) -> str:
    message = invalid.get("message")
    if isinstance(message, str) and message:
        return message
    if error is not None:
        return f"{error.get('type', 'Exception')}: {error.get('message', '')}"
    return f"the grader's result is invalid ({reason})"


def _without_traceback(judge: Mapping[str, Any]) -> dict[str, Any]:
    """Return the payload without what the report shows above it, in a form that is easier to read."""
    invalid = judge.get("invalid")
    if not isinstance(invalid, dict):
        return dict(judge)
    shown = {key: part for key, part in invalid.items() if key != "message"}
    if isinstance(invalid.get("error"), dict):
        shown["error"] = {key: part for key, part in invalid["error"].items() if key != "traceback"}
    return {**judge, "invalid": shown}


def _source_entries(
    error: Mapping[str, Any] | None, sources: Mapping[str, str], function: str, where: str, reason: str
) -> list[ReprEntry]:
    frames = [frame for frame in (error or {}).get("traceback") or [] if isinstance(frame, dict)]
    if frames and error is not None:
        said = _tidy(f"{error.get('type', 'Exception')}: {error.get('message', '')}", _MESSAGE_BYTES // 2).split("\n")
        shown = frames if len(frames) <= _FRAMES else [frames[0], *frames[-(_FRAMES - 1) :]]
        for chosen, context in ((shown, _CONTEXT), (shown, 0), (shown[-1:], 0)):
            entries = [
                _frame_entry(frame, sources, said if number == len(chosen) else [], context)
                for number, frame in enumerate(chosen, 1)
            ]
            if _size(entries) <= _SOURCE_BYTES:
                break
        return entries
    filename = where or (next(iter(sources)) if len(sources) == 1 else "")
    text = sources.get(filename)
    if text is None or not function:
        return []
    return _function_entry(text, filename, function, reason)


def _frame_entry(frame: Mapping[str, Any], sources: Mapping[str, str], said: Sequence[str], context: int) -> ReprEntry:
    filename, function = str(frame.get("file", "?")), str(frame.get("function", "?"))
    number = frame.get("line")
    line = number if isinstance(number, int) and not isinstance(number, bool) and number > 0 else 1
    text = sources.get(filename)
    source = text.splitlines() if text is not None else []
    if line > len(source):
        marked = [f">   {_source_line(str(frame.get('text') or '?').strip())}"]
    else:
        start = max(_function_start(source, line - 1), line - 1 - context)
        marked = [f"    {_source_line(each)}" for each in source[start : line - 1]]
        marked.append(f">   {_source_line(source[line - 1])}")
    lines = marked + [f"E   {text}" for text in said]
    return _entry(lines, filename, line, f"in {function}")


def _function_entry(text: str, filename: str, function: str, reason: str) -> list[ReprEntry]:
    """Show the function itself, its only `return` marked where the result was of the wrong kind."""
    source = text.splitlines()
    pattern = re.compile(rf"(?:async\s+)?def\s+{re.escape(function)}\b")
    start = next((index for index, line in enumerate(source) if pattern.match(line)), None)
    if start is None:
        return []
    end = start + 1
    while end < len(source) and (not source[end].strip() or source[end][:1] in " \t)"):
        end += 1
    while end > start + 1 and not source[end - 1].strip():
        end -= 1
    returns = [index for index in range(start, end) if re.match(r"\s+return\b", source[index])]
    blame = reason in ("boolean", "wrong_type", "non_finite", "no_finite_score", "out_of_range")
    failing = returns[0] if blame and len(returns) == 1 else None
    last = min(end, start + _FUNCTION_LINES)
    if failing is not None and failing >= last:
        start, last = failing - _FUNCTION_LINES + 1, failing + 1
    lines = [f"{'>' if index == failing else ' '}   {_source_line(source[index])}" for index in range(start, last)]
    if last < end:
        lines.append("    ...")
    return [_entry(lines, filename, (start if failing is None else failing) + 1, f"in {function}")]


def _function_start(source: Sequence[str], index: int) -> int:
    """Return the line of the nearest `def` above that is indented less; the line itself where there is none."""
    indent = len(source[index]) - len(source[index].lstrip())
    for above in range(index, max(-1, index - _CONTEXT - 1), -1):
        line = source[above]
        if re.match(r"\s*(?:async\s+)?def\b", line) and len(line) - len(line.lstrip()) < indent:
            return above
    return max(0, index - _CONTEXT)


def _source_line(text: str) -> str:
    shown = safe(text.expandtabs(4)).replace("\n", "\\n")
    return shown if len(shown) <= _SOURCE_CHARS else f"{shown[:_SOURCE_CHARS]}..."


def _entry(lines: list[str], filename: str, line: int, said: str) -> ReprEntry:
    location = ReprFileLocation(one_line(filename, 200), line, one_line(said, 100))
    return ReprEntry(lines, None, None, location, "short")


def _plain(lines: Sequence[str]) -> ReprEntry:
    return ReprEntry(list(lines), None, None, None, "value")


def _crash(suite: str, message: str, entries: Sequence[ReprEntry] = ()) -> ReprFileLocation:
    said = one_line(message, MESSAGE_CHARS)
    at = entries[-1].reprfileloc if entries else None
    if at is not None:
        return ReprFileLocation(at.path, at.lineno, said)
    return ReprFileLocation(one_line(suite, 200), 1, said)


def _failure(crash: ReprFileLocation, entries: Sequence[ReprEntry]) -> ExceptionChainRepr:
    style: Literal["value"] = "value"
    shown = [entry for entry in entries if entry.lines]
    over = _size(shown) - _TOTAL_BYTES
    if over > 0:
        last = shown[-1]
        kept = list(last.lines)
        while len(kept) > 1 and over > -200:
            over -= len(kept.pop().encode()) + 1
        last.lines = [*kept, f"[… cut; the rest is in {PLACE} …]"]
    # A blank line at the end of a source entry would be lost to pytest's highlighter, so it opens what follows.
    for before, entry in pairwise(shown):
        if entry.style == "value":
            entry.lines = ["", *entry.lines]
        elif before.style == "value":
            before.lines = [*before.lines, ""]
    return ExceptionChainRepr([(ReprTraceback(shown, None, style), crash, None)])


def _size(entries: Sequence[ReprEntry]) -> int:
    """Return the bytes that entries take up."""
    lines = [line for entry in entries for line in entry.lines]
    places = [f"{at.path}:{at.lineno}: {at.message}" for entry in entries if (at := entry.reprfileloc) is not None]
    return sum(len(line.encode()) + 1 for line in lines + places)


def _wrapped(text: str, indent: str = "") -> list[str]:
    lines: list[str] = []
    for line in _tidy(text, _MESSAGE_BYTES).split("\n"):
        lines.extend(_wrap(line, indent) or [""])
    return _few(lines, _MESSAGE_LINES, indent)


def _block(text: str, limit: int | None = _BLOCK_LINES) -> list[str]:
    lines = [wrapped for line in text.split("\n") for wrapped in (_wrap(line, "    ") or ["    "])]
    return lines if limit is None else _few(lines, limit, "    ")


def _few(lines: list[str], limit: int, indent: str) -> list[str]:
    """Take lines out of the middle where there are too many."""
    if len(lines) <= limit:
        return lines
    tail = limit // 3
    left_out = f"{indent}[… {len(lines) - limit:,} lines more, the whole text is in {PLACE} …]"
    return [*lines[: limit - tail], left_out, *lines[-tail:]]


def _wrap(line: str, indent: str) -> list[str]:
    if len(line) + len(indent) <= WIDTH:
        return [f"{indent}{line}"]
    own = indent + line[: len(line) - len(line.lstrip())]
    if len(own) > WIDTH // 2:
        own = indent
    return textwrap.wrap(
        line.expandtabs(4),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=own,
        drop_whitespace=True,
        replace_whitespace=False,
        break_on_hyphens=False,
    )


def _tidy(text: str, limit: int = _MESSAGE_BYTES) -> str:
    return safe(text.strip("\n"), limit)
