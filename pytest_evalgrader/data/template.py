"""Templates: Handlebars over the fields of a row, with what is wrong in one named before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pytest_evalgrader.data import handlebars as hb
from pytest_evalgrader.data.handlebars import to_text as to_text
from pytest_evalgrader.errors import Problem, SampleError, Stage, SuiteError
from pytest_evalgrader.suite.wording import listing, nearest, quote

_SHOWN_FIELDS = 30
_SHOWN_DEPTH = 3


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
            translation = hb.Translation(source)
        except hb.TemplateSyntaxError as error:
            raise SuiteError([self._problem(error.position, error.message)]) from None
        if translation.wrong:
            raise SuiteError([self._problem(position, message) for position, message in translation.wrong])
        self.reads: tuple[hb.Read, ...] = tuple(translation.reads)
        self._pieces, self._tail = translation.plain or ([], "")
        self._compiled: Callable[[Mapping[str, Any]], str] | None = None
        if translation.plain is None or (escape_html and any(not raw for _, _, raw in self._pieces)):
            self._compiled = hb.compile_template(translation, escape=escape_html)

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
            if self._compiled is not None:
                return self._compiled(context)
            # The library takes twenty times as long for templates of plain fields.
            out: list[str] = []
            for text, path, _ in self._pieces:
                value = context.get(path.parts[0]) if len(path.parts) == 1 else path.follow(context)
                out += text, value if type(value) is str else hb.to_text(value)
            out.append(self._tail)
            return "".join(out)
        except hb.TooLarge as error:
            raise SampleError(self._stage, f"{self.where}: {error}.", "TemplateTooLarge") from None
        except RecursionError:
            message = f"{self.where}: a value is nested too deep to be shown as text."
            raise SampleError(self._stage, message, "RecursionError") from None

    def _problem(self, position: int, message: str) -> Problem:
        line = 1 + self.source.count("\n", 0, position)
        return Problem(f"{self.where}, line {line}", message)

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
    wanted: dict[tuple[str, ...], list[tuple[Template, hb.Read]]] = {}
    for template in templates:
        for read in template.reads:
            if read.required and read.path.find(extra) is hb.MISSING:
                wanted.setdefault(read.parts, []).append((template, read))
    if not wanted:
        return []
    missing = dict(wanted)
    names: dict[str, None] = {}
    any_row = False
    for row in rows:
        any_row = True
        fields = {**row, **extra}
        missing = {parts: uses for parts, uses in missing.items() if uses[0][1].path.find(fields) is hb.MISSING}
        if not missing:
            return []
        if len(names) < 1000:
            names.update(dict.fromkeys(_names(fields)))
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


def _names(value: Mapping[str, Any], prefix: str = "", depth: int = 1) -> Iterator[str]:
    for key, inner in value.items():
        yield prefix + key
        if isinstance(inner, Mapping) and depth < _SHOWN_DEPTH:
            yield from _names(inner, f"{prefix}{key}.", depth + 1)
