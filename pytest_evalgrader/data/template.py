"""Templates: Handlebars over the fields of a row, with what is wrong in one named before anything runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pytest_evalgrader.data import handlebars as hb
from pytest_evalgrader.errors import Problem, SampleError, Stage, SuiteError
from pytest_evalgrader.suite.wording import listing, nearest, quote

_SHOWN_FIELDS = 30
_SHOWN_DEPTH = 3


def to_text(value: Any) -> str:
    """Render a value: text as it is, null as nothing, everything else as JSON."""
    if type(value) is str:
        return value
    if value is None:
        return ""
    if isinstance(value, str):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Read:
    """A field that a template reads from the top level.

    Args:
        name: As it is written, such as `q.text`.
        line: Line of the template, from 1.
        required: False where the template asks whether the field is there: it is only a condition of `#if` or
            `#unless`, stands inside an `#if` on itself, or its block has an `{{else}}`.
    """

    name: str
    parts: tuple[str, ...]
    heads: tuple[tuple[str, int], ...]
    line: int
    required: bool


class Template:
    """A template, read once and rendered for many rows. What a row holds is data: it is never rendered again.

    Args:
        source: Handlebars.
        where: File and place, such as `suites/s.json: tasks[0].prompt_template`.
        escape_html: Whether `{{x}}` is escaped for HTML, as Handlebars.js does; `{{{x}}}` never is.
        stage: The stage of a sample that fails because its text grows beyond all bounds.

    Raises:
        SuiteError: A syntax error, or helpers and blocks that are unknown, each with its line.
    """

    def __init__(self, source: str, *, where: str, escape_html: bool = False, stage: Stage = "generate") -> None:
        self.source = source
        self.where = where
        self.escape_html = escape_html
        self._stage: Stage = stage
        try:
            self._program = hb.parse(source)
        except hb.TemplateSyntaxError as error:
            raise SuiteError([self._problem(error.position, error.message)]) from None
        walk = _Walk(source)
        walk.program(self._program, (True,), frozenset(), frozenset())
        if walk.wrong:
            raise SuiteError([self._problem(position, message) for position, message in walk.wrong])
        self.reads: tuple[Read, ...] = tuple(walk.reads)
        self._pieces, self._tail = _plain_pieces(self._program)

    @property
    def fields(self) -> tuple[str, ...]:
        """The field paths that the template reads from the top level, in order, each once."""
        return tuple(dict.fromkeys(read.name for read in self.reads))

    def render(self, context: Mapping[str, Any]) -> str:
        """Render the template.

        Args:
            context: The row, and what else the template may read.

        Returns:
            The text. A field that is missing or null renders empty.

        Raises:
            SampleError: The text or its loops grow beyond all bounds, or a value is nested too deep to be shown.
        """
        try:
            if self._pieces is None:
                return hb.render(self._program, context, to_text=to_text, escape=self.escape_html)
            out: list[str] = []
            for text, key, path, raw in self._pieces:
                out.append(text)
                value = context.get(key) if path is None else hb.follow(context, path.parts, path.heads)
                if type(value) is not str:
                    value = to_text(value)
                out.append(value if raw or not self.escape_html else hb.escape_html(value))
            out.append(self._tail)
            return "".join(out)
        except hb.TooLarge as error:
            raise SampleError(self._stage, f"{self.where}: {error}.", "TemplateTooLarge") from None
        except RecursionError:
            message = f"{self.where}: a value is nested too deep to be shown as text."
            raise SampleError(self._stage, message, "RecursionError") from None

    def _problem(self, position: int, message: str) -> Problem:
        return Problem(f"{self.where}, line {_line(self.source, position)}", message)

    def __repr__(self) -> str:
        return f"Template({self.source!r:.60}, where={self.where!r})"


def check_fields(
    templates: Iterable[Template], rows: Iterable[Mapping[str, Any]], extra: Mapping[str, Any]
) -> list[Problem]:
    """Find fields that no row has.

    Args:
        templates: Templates over the same rows.
        rows: The rows; read only as far as needed to find every field once. No rows, no problems.
        extra: What the templates can read beside the row, such as the task's `choices`.

    Returns:
        A problem for each field that a template needs and no row has, with the nearest field and the fields there are.
    """
    wanted: dict[tuple[str, ...], list[tuple[Template, Read]]] = {}
    for template in templates:
        for read in template.reads:
            if read.required and not _has(extra, read):
                wanted.setdefault(read.parts, []).append((template, read))
    if not wanted:
        return []
    missing = dict(wanted)
    names: dict[str, None] = {}
    any_row = False
    for row in rows:
        any_row = True
        for parts in [parts for parts, uses in missing.items() if _has({**row, **extra}, uses[0][1])]:
            del missing[parts]
        if not missing:
            return []
        if len(names) < 1000:
            names.update(dict.fromkeys(_names({**row, **extra})))
    if not any_row:
        return []
    columns = [name for name in names if "." not in name] or list(names)
    problems: list[Problem] = []
    for uses in missing.values():
        for template, read in uses:
            near = nearest(read.name, names)
            hint = f" Did you mean {listing(near)}?" if near else ""
            shown = ", ".join(quote(name) for name in sorted(columns)[:_SHOWN_FIELDS])
            more = f" and {len(columns) - _SHOWN_FIELDS} more" if len(columns) > _SHOWN_FIELDS else ""
            problems.append(
                Problem(
                    f"{template.where}, line {read.line}",
                    f"no row has the field {quote(read.name)}.{hint} Fields: {shown}{more}.",
                )
            )
    return problems


def _line(source: str, position: int) -> int:
    return 1 + source.count("\n", 0, position)


def _has(context: Mapping[str, Any], read: Read) -> bool:
    value: Any = context
    at = 0
    for head, size in read.heads:
        if head in context:
            value, at = context[head], size
            break
    for part in read.parts[at:]:
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        else:
            value = hb.step_into(value, part) if not isinstance(value, Mapping) else None
            if value is None:
                return False
    return True


def _names(value: Mapping[str, Any], prefix: str = "", depth: int = 1) -> Iterator[str]:
    for key, inner in value.items():
        yield prefix + key
        if isinstance(inner, Mapping) and depth < _SHOWN_DEPTH:
            yield from _names(inner, f"{prefix}{key}.", depth + 1)


# --- what a template reads, and what is wrong with it ----------------------------------------------------------------

# The contexts around a place, the innermost first: True is the row itself, False something inside it.
_Contexts: TypeAlias = tuple[bool, ...]
_Guards: TypeAlias = frozenset[tuple[str, ...]]


class _Walk:
    def __init__(self, source: str) -> None:
        self._source = source
        self.reads: list[Read] = []
        self.wrong: list[tuple[int, str]] = []

    def program(self, program: hb.Program | None, at: _Contexts, guards: _Guards, named: frozenset[str]) -> None:
        for node in program.body if program is not None else ():
            if isinstance(node, hb.Output):
                self._output(node.call, at, guards, named)
            elif isinstance(node, hb.Block):
                self._block(node, at, guards, named)

    def _output(self, call: hb.Call, at: _Contexts, guards: _Guards, named: frozenset[str]) -> None:
        if call.params or call.hash:
            self._call(call, at, guards, named)
        else:
            self._read(call.name, at, guards, named)

    def _call(
        self, call: hb.Call, at: _Contexts, guards: _Guards, named: frozenset[str], required: bool = True
    ) -> None:
        name = call.name.source
        if not call.name.simple or name not in hb.HELPERS or name in named:
            self.wrong.append((call.position, self._unknown(name)))
        elif name not in ("lookup", "log"):
            self.wrong.append((call.position, f"{name} needs a block: {{{{#{name} …}}}} … {{{{/{name}}}}}."))
        elif name == "lookup" and len(call.params) != 2:
            self.wrong.append((call.position, "lookup takes a list or object, and an index or key: {{lookup list 0}}."))
        else:
            for param in call.params:
                self._argument(param, at, guards, named, required)

    def _argument(
        self, argument: hb.Expression, at: _Contexts, guards: _Guards, named: frozenset[str], required: bool
    ) -> None:
        if isinstance(argument, hb.Path):
            self._read(argument, at, guards, named, required)
        elif isinstance(argument, hb.Call):
            self._call(argument, at, guards, named, required)

    def _block(self, block: hb.Block, at: _Contexts, guards: _Guards, named: frozenset[str]) -> None:
        call, name = block.call, block.call.name.source
        kind = hb.block_kind(block)
        inside = named | set(block.program.params if block.program is not None else ())
        if kind == "section":
            if call.params or call.hash:
                self.wrong.append((call.position, self._unknown(name, block=True)))
            elif call.name.simple and name in hb.HELPERS:
                what = "is no block" if name in ("lookup", "log") else f"needs a value: {{{{#{name} field}}}}"
                self.wrong.append((call.position, f"{name} {what}."))
            else:
                self._read(call.name, at, guards, named, block.program is not None and block.inverse is None)
        elif len(call.params) != 1:
            self.wrong.append((call.position, f"#{name} takes one value, found {len(call.params)}."))
        else:
            condition = kind in ("if", "unless")
            self._argument(call.params[0], at, guards, named, not condition and block.inverse is None)
            for _, value in call.hash:
                self._argument(value, at, guards, named, False)
        if block.program is not None and block.program.params and kind in ("if", "unless"):
            self.wrong.append((call.position, f"#{name} has no block parameters (as |…|)."))
        subject = call.name if kind == "section" else call.params[0]
        guarded = guards
        if isinstance(subject, hb.Path) and self._at_top(subject, at, named):
            guarded = guards | {self._top_parts(subject)}
        if kind in ("if", "unless"):
            yes, no = (block.program, block.inverse) if kind == "if" else (block.inverse, block.program)
            self.program(yes, at, guarded, inside)
            self.program(no, at, guards, inside)
        else:
            self.program(block.program, (False, *at), guarded, inside)
            self.program(block.inverse, at, guards, named)

    @staticmethod
    def _at_top(path: hb.Path, at: _Contexts, named: frozenset[str]) -> bool:
        if path.data:
            return not path.depth and len(path.parts) > 1 and path.parts[0] == "root"
        if not path.parts or path.depth >= len(at) or not at[path.depth]:
            return False
        return path.scoped or path.parts[0] not in named

    @staticmethod
    def _top_parts(path: hb.Path) -> tuple[str, ...]:
        return path.parts[1:] if path.data else path.parts

    def _read(
        self, path: hb.Path, at: _Contexts, guards: _Guards, named: frozenset[str], required: bool = True
    ) -> None:
        if not self._at_top(path, at, named):
            return
        parts = self._top_parts(path)
        heads = tuple((".".join(parts[:size]), size) for size in range(len(parts), 1, -1))
        if any(parts[: len(guard)] == guard for guard in guards):
            required = False
        self.reads.append(Read(".".join(parts), parts, heads, _line(self._source, path.position), required))

    def _unknown(self, name: str, *, block: bool = False) -> str:
        known = [helper for helper in hb.HELPERS if helper != "log" and (not block or helper != "lookup")]
        near = nearest(name, known)
        hint = f" Did you mean {listing(near)}?" if near else ""
        what = "block" if block else "helper"
        return (
            f"unknown {what} {quote(name)}.{hint} Templates know {listing(known, last='and')}. "
            f"A name with a space is written [like this]; {hb.LITERAL_BRACES}"
        )


# --- the fast way ---------------------------------------------------------------------------------------------------

_Piece: TypeAlias = tuple[str, str, hb.Path | None, bool]


def _plain_pieces(program: hb.Program) -> tuple[list[_Piece] | None, str]:
    """Return text and field in turn, and the text at the end; None where a template has more than fields."""
    pieces: list[_Piece] = []
    text = ""
    for node in program.body:
        if isinstance(node, hb.Text):
            text += node.value
        elif isinstance(node, hb.Comment):
            continue
        elif isinstance(node, hb.Output) and not (node.call.params or node.call.hash):
            path = node.call.name
            if path.data or path.depth or not path.parts:
                return None, ""
            pieces.append((text, path.parts[0], path if len(path.parts) > 1 else None, node.raw))
            text = ""
        else:
            return None, ""
    return pieces, text
