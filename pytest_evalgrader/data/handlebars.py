"""Handlebars: the language of Handlebars.js 4.7 without partials, decorators and helpers of one's own.

The Python ports differ from Handlebars.js in what our templates need (`items.length`, `messages.1.content`, white space
of block lines, errors with a line), so the grammar and the white space rules are written here after Handlebars.js
itself, and held to it by a table of templates that it rendered (tests/unit/handlebars).

Nothing but data is read: object keys, list indices, and the length of lists and texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

MAX_NESTING = 100
MAX_ITERATIONS = 500_000
"""Most turns of all loops of one rendering; about two seconds."""
MAX_OUTPUT = 64 * 1024 * 1024
"""Longest text of one rendering, in characters."""

HELPERS = ("if", "unless", "each", "with", "lookup", "log")

_WHITE = "\t\n\x0b\x0c\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"  # what JavaScript calls \s
_WHITE_RUN = re.compile(f"[{_WHITE}]*")
_WHITE_TAIL = (
    "\t\n\x0b\x0c\r \xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
_ESCAPES = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;", "`": "&#x60;", "=": "&#x3D;"}
)


class TemplateSyntaxError(Exception):
    """A template that cannot be read.

    Args:
        position: Where in the source, in characters from 0.
        message: What is wrong.
    """

    def __init__(self, position: int, message: str) -> None:
        super().__init__(message)
        self.position = position
        self.message = message


class TooLarge(Exception):
    """A rendering that grows beyond all bounds."""


# --- the tree -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Strip:
    """Whether a tag takes away the white space before and after it."""

    open: bool = False
    close: bool = False


@dataclass(frozen=True, slots=True)
class Path:
    """A path such as `../a.b` or `@root.x`.

    Args:
        source: As it is written.
        depth: Number of leading `..`.
        parts: The names and indices.
        data: Whether it starts with `@`.
        scoped: Whether it starts with `.`, `..` or `this`.
        heads: Joined names of two parts and more, the longest first: a key that holds the dots wins.
    """

    source: str
    depth: int
    parts: tuple[str, ...]
    data: bool
    scoped: bool
    position: int
    heads: tuple[tuple[str, int], ...]

    @property
    def simple(self) -> bool:
        return len(self.parts) == 1 and not self.scoped and not self.depth and not self.data


@dataclass(frozen=True, slots=True)
class Literal:
    value: str | int | float | bool | None
    source: str
    position: int


@dataclass(frozen=True, slots=True)
class Call:
    """A name with arguments."""

    name: Path
    params: tuple[Expression, ...]
    hash: tuple[tuple[str, Expression], ...]
    position: int


Expression: TypeAlias = "Path | Literal | Call"


@dataclass(slots=True)
class Text:
    value: str
    original: str
    left_stripped: bool = False
    right_stripped: bool = False


@dataclass(slots=True)
class Output:
    """`{{x}}`, or raw `{{{x}}}` and `{{&x}}`."""

    call: Call
    raw: bool
    strip: Strip


@dataclass(slots=True)
class Comment:
    strip: Strip


@dataclass(slots=True)
class Program:
    body: list[Node] = field(default_factory=list)
    params: tuple[str, ...] = ()
    chained: bool = False


@dataclass(slots=True)
class Block:
    call: Call
    program: Program | None
    inverse: Program | None
    open_strip: Strip
    inverse_strip: Strip
    close_strip: Strip


Node: TypeAlias = "Text | Output | Comment | Block"

# --- reading tags ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Tag:
    kind: str
    tokens: list[_Token]
    strip: Strip
    position: int


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int


_COMMENT = re.compile(r"\{\{~?!")
_LONG_COMMENT = re.compile(r"\{\{~?!--")
_LONG_COMMENT_END = re.compile(r"--~?\}\}")
_INVERSE = re.compile(rf"\{{\{{(~)?(?:[{_WHITE}]*else[{_WHITE}]*|\^[{_WHITE}]*)(~)?\}}\}}")
_OPEN = re.compile(rf"\{{\{{(~)?(?:(#>|>|#\*|#|/|\^|\{{|&|\*)|[{_WHITE}]*(else)\b)?")
_CLOSE = re.compile(r"(~)?\}\}")
_CLOSE_RAW = re.compile(r"\}(~)?\}\}")
_KINDS = {
    "#": "block",
    "^": "inverse_block",
    "/": "close",
    "{": "raw",
    "&": "ampersand",
    ">": "partial",
    "#>": "partial",
    "#*": "decorator",
    "*": "decorator",
    None: "output",
}
_NAME = rf"[^{_WHITE}!\"#%-,./;->@\[-\^`{{-~]"
_NAME_RUN = re.compile(f"{_NAME}*")
_AHEAD = rf"(?=[=~}}{_WHITE}/.)|\]])"
_LITERAL_AHEAD = rf"(?=[~}}{_WHITE})\]])"
_TOKENS = re.compile(
    "|".join(
        [
            rf"(?P<space>[{_WHITE}]+)",
            r"(?P<open>\()",
            r"(?P<shut>\))",
            r"(?P<equals>=)",
            rf"(?P<up>\.\.|\.{_AHEAD})",
            r"(?P<sep>[/.])",
            r"(?P<string>\"(?:\\\"|[^\"])*\"|'(?:\\'|[^'])*')",
            r"(?P<data>@)",
            rf"(?P<word>(?:true|false|undefined|null){_LITERAL_AHEAD})",
            rf"(?P<number>-?[0-9]+(?:\.[0-9]+)?{_LITERAL_AHEAD})",
            rf"(?P<as>as[{_WHITE}]+\|)",
            r"(?P<bar>\|)",
            rf"(?P<id>{_NAME}+{_AHEAD})",
            r"(?P<bracket>\[(?:\\\]|[^\]])*\])",
        ]
    )
)


def _scan(source: str) -> Iterator[Text | _Tag]:
    position = 0
    while position < len(source):
        start = source.find("{{", position)
        if start < 0:
            yield _text(source[position:])
            return
        text = source[position:start]
        escaped = text.endswith("\\") and not text.endswith("\\\\")
        if text.endswith("\\"):
            text = text[:-1]
        if text:
            yield _text(text)
        if escaped:
            position = _escaped_end(source, start)
            yield _text(source[start:position])
        else:
            tag, position = _tag(source, start)
            yield tag


def _text(value: str) -> Text:
    return Text(value, value)


def _escaped_end(source: str, start: int) -> int:
    end = source.find("{{", start + 2)
    if end < 0:
        return len(source)
    for _ in range(2):
        if end > start + 2 and source[end - 1] == "\\":
            end -= 1
    return end


def _tag(source: str, start: int) -> tuple[_Tag, int]:
    if source.startswith("{{{{", start):
        raise TemplateSyntaxError(start, "raw blocks ({{{{…}}}}) are not supported; " + LITERAL_BRACES)
    if _COMMENT.match(source, start):
        long = _LONG_COMMENT.match(source, start)
        end = _LONG_COMMENT_END.search(source, start) if long else _CLOSE.search(source, start)
        if end is None:
            raise TemplateSyntaxError(start, "a comment that is never closed.")
        strip = Strip(source[start + 2] == "~", source[end.end() - 3] == "~")
        return _Tag("comment", [], strip, start), end.end()
    inverse = _INVERSE.match(source, start)
    if inverse is not None:
        return _Tag("inverse", [], Strip(bool(inverse[1]), bool(inverse[2])), start), inverse.end()
    opened = _OPEN.match(source, start)
    assert opened is not None
    kind = "chain" if opened[3] else _KINDS[opened[2]]
    close = _CLOSE_RAW if kind == "raw" else _CLOSE
    position = opened.end()
    tokens: list[_Token] = []
    while True:
        end = close.match(source, position)
        if end is not None:
            return _Tag(kind, tokens, Strip(bool(opened[1]), bool(end[1])), start), end.end()
        token = _TOKENS.match(source, position)
        if token is None:
            raise TemplateSyntaxError(start, _unreadable(source, start, position, kind))
        if token.lastgroup != "space":
            tokens.append(_Token(token.lastgroup or "", token.group(), position))
        position = token.end()


LITERAL_BRACES = "to write two braces as text, put a backslash before them: \\{{"


def _unreadable(source: str, start: int, position: int, kind: str) -> str:
    name_run = _NAME_RUN.match(source, position)  # a name is only unreadable for what follows it
    position = name_run.end() if name_run is not None else position
    if position >= len(source):
        return f"the tag {_shown(source, start)} is never closed; {LITERAL_BRACES}"
    if kind == "raw" and source.startswith("}}", position):
        return f"the tag {_shown(source, start)} opens with three braces and closes with two."
    found = source[position]
    name = "a line end" if found == "\n" else f'"{found}"'
    return f"{name} cannot stand in the tag {_shown(source, start)}; {LITERAL_BRACES}"


def _shown(source: str, start: int) -> str:
    end = source.find("}}", start)
    tag = " ".join(source[start : end + 2 if 0 <= end < start + 60 else start + 40].split())
    return tag if 0 <= end < start + 60 else tag + "…"


# --- reading expressions --------------------------------------------------------------------------------------------


class _Expressions:
    """Reads what stands in one tag."""

    def __init__(self, tag: _Tag, source: str) -> None:
        self._tokens = tag.tokens
        self._at = 0
        self._tag = tag
        self._source = source

    def fail(self, message: str) -> TemplateSyntaxError:
        where = self._tokens[self._at].position if self._at < len(self._tokens) else self._tag.position
        return TemplateSyntaxError(where, f"{message} in the tag {_shown(self._source, self._tag.position)}.")

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at].kind if at < len(self._tokens) else "end"

    def _next(self) -> _Token:
        if self._at >= len(self._tokens):
            raise self.fail("something is missing at the end")
        self._at += 1
        return self._tokens[self._at - 1]

    def call(self, nesting: int = 0) -> Call:
        """Read a name and its arguments."""
        if nesting > MAX_NESTING:
            raise self.fail("parentheses are nested too deep")
        if self._peek() == "end":
            raise self.fail("a name is missing")
        position = self._tokens[self._at].position
        if self._peek() in ("string", "number", "word"):
            literal = self._literal()
            name = _path(literal.source, [literal.source], False, position)
        else:
            name = self.path()
        params: list[Expression] = []
        pairs: list[tuple[str, Expression]] = []
        while self._peek() not in ("end", "shut", "as"):
            if self._peek(1) == "equals" and self._peek() in ("id", "bracket"):
                key = _segment(self._next().text)
                self._next()
                pairs.append((key, self._param(nesting)))
            elif pairs:
                raise self.fail("an argument follows key=value pairs")
            else:
                params.append(self._param(nesting))
        return Call(name, tuple(params), tuple(pairs), position)

    def _param(self, nesting: int) -> Expression:
        if self._peek() == "open":
            self._next()
            call = self.call(nesting + 1)
            if self._peek() != "shut":
                raise self.fail("a closing parenthesis is missing")
            self._next()
            return call
        if self._peek() in ("string", "number", "word"):
            return self._literal()
        return self.path()

    def _literal(self) -> Literal:
        token = self._next()
        if token.kind == "string":
            quote = token.text[0]
            text = token.text[1:-1].replace("\\" + quote, quote)
            return Literal(text, text, token.position)
        if token.kind == "number":
            value = float(token.text) if "." in token.text else int(token.text[:400])
            return Literal(value, token.text, token.position)
        words = {"true": True, "false": False, "null": None, "undefined": None}
        return Literal(words[token.text], token.text, token.position)

    def path(self) -> Path:
        position = self._tokens[self._at].position if self._at < len(self._tokens) else self._tag.position
        data = self._peek() == "data"
        if data:
            self._next()
        if self._peek() not in ("id", "bracket", "up"):
            raise self.fail("a name is missing" if self._peek() == "end" else f'"{self._next().text}" is unexpected')
        token = self._next()
        source, segments = token.text, [token.text]
        while self._peek() == "sep":
            source += self._next().text
            token = self._next()
            if token.kind not in ("id", "bracket", "up", "number", "word"):
                raise self.fail(f'"{token.text}" is unexpected')
            source += token.text
            # A trailing index (`items.0`) is a syntax error in Handlebars.js, which wants `items.[0]`.
            segments += token.text.split(".") if token.kind == "number" else [token.text]
        try:
            return _path(("@" if data else "") + source, segments, data, position)
        except ValueError as error:
            raise self.fail(str(error)) from None

    def block_params(self) -> tuple[str, ...]:
        if self._peek() != "as":
            return ()
        self._next()
        names: list[str] = []
        while self._peek() in ("id", "bracket"):
            names.append(_segment(self._next().text))
        if self._peek() != "bar" or not names:
            raise self.fail("block parameters are written as |name index|")
        self._next()
        return tuple(names)

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise self.fail(f'"{self._tokens[self._at].text}" is unexpected')


def _segment(text: str) -> str:
    return text[1:-1].replace("\\]", "]").replace("\\\\", "\\") if text.startswith("[") else text


def _path(source: str, segments: list[str], data: bool, position: int) -> Path:
    depth, parts = 0, list[str]()
    for segment in segments:
        if segment in ("..", ".", "this"):
            if parts:
                raise ValueError(f'"{segment}" cannot stand inside a path ({source})')
            depth += segment == ".."
        else:
            parts.append(_segment(segment))
    heads = tuple((".".join(parts[:size]), size) for size in range(len(parts), 1, -1))
    scoped = segments[0] in ("..", ".", "this")
    return Path(source, depth, tuple(parts), data, scoped, position, heads)


# --- reading templates ----------------------------------------------------------------------------------------------


class _Parser:
    def __init__(self, source: str) -> None:
        self._source = source
        self._items = list(_scan(source))
        self._at = 0

    def parse(self) -> Program:
        program = self._program((), 0)
        if self._at < len(self._items):
            tag = self._items[self._at]
            assert isinstance(tag, _Tag)
            if tag.kind == "close":
                raise TemplateSyntaxError(tag.position, f"{_shown(self._source, tag.position)} closes nothing.")
            raise TemplateSyntaxError(tag.position, "{{else}} outside a block.")
        return program

    def _program(self, params: tuple[str, ...], nesting: int) -> Program:
        """Read until a tag that ends a program: a closing tag or an else."""
        program = Program(params=params)
        while self._at < len(self._items):
            item = self._items[self._at]
            if isinstance(item, Text):
                program.body.append(item)
            elif item.kind in ("close", "inverse", "chain"):
                break
            elif item.kind == "comment":
                program.body.append(Comment(item.strip))
            elif item.kind in ("output", "raw", "ampersand"):
                inside = _Expressions(item, self._source)
                program.body.append(Output(inside.call(), item.kind != "output", item.strip))
                inside.end()
            elif item.kind in ("block", "inverse_block"):
                program.body.append(self._block(item, nesting + 1))
                continue
            elif item.kind == "partial":
                raise TemplateSyntaxError(
                    item.position,
                    f"partials are not supported ({_shown(self._source, item.position)}); write the text out here.",
                )
            else:
                raise TemplateSyntaxError(
                    item.position, f"decorators are not supported ({_shown(self._source, item.position)})."
                )
            self._at += 1
        return program

    def _opening(self, tag: _Tag) -> tuple[Call, tuple[str, ...]]:
        inside = _Expressions(tag, self._source)
        call = inside.call()
        params = inside.block_params()
        inside.end()
        self._at += 1
        return call, params

    def _block(self, tag: _Tag, nesting: int) -> Block:
        if nesting > MAX_NESTING:
            raise TemplateSyntaxError(tag.position, f"blocks are nested more than {MAX_NESTING} levels deep.")
        call, params = self._opening(tag)
        program = self._program(params, nesting)
        inverse, inverse_strip = self._inverse(nesting, chains=tag.kind == "block")
        closing = self._closing(tag, call)
        block = Block(call, program, inverse, tag.strip, inverse_strip, closing)
        if inverse is not None and inverse.chained:
            inner = inverse.body[0]
            assert isinstance(inner, Block)
            inner.close_strip = closing
        if tag.kind == "inverse_block":
            block.program, block.inverse = inverse, program
        return block

    def _inverse(self, nesting: int, *, chains: bool) -> tuple[Program | None, Strip]:
        tag = self._items[self._at] if self._at < len(self._items) else None
        if not isinstance(tag, _Tag) or tag.kind not in ("inverse", "chain"):
            return None, Strip()
        if nesting > MAX_NESTING:
            raise TemplateSyntaxError(tag.position, f"blocks are nested more than {MAX_NESTING} levels deep.")
        if tag.kind == "inverse":
            self._at += 1
            return self._program((), nesting), tag.strip
        if not chains:
            raise TemplateSyntaxError(tag.position, "an {{else …}} with arguments cannot follow {{^…}}.")
        call, params = self._opening(tag)
        program = self._program(params, nesting)
        inverse, strip = self._inverse(nesting + 1, chains=True)
        block = Block(call, program, inverse, tag.strip, strip, strip)
        if inverse is not None and inverse.chained:
            inner = inverse.body[0]
            assert isinstance(inner, Block)
            inner.close_strip = strip
        return Program([block], chained=True), tag.strip

    def _closing(self, tag: _Tag, call: Call) -> Strip:
        opened = _shown(self._source, tag.position)
        item = self._items[self._at] if self._at < len(self._items) else None
        if not isinstance(item, _Tag):
            raise TemplateSyntaxError(tag.position, f"the block {opened} is never closed.")
        if item.kind != "close":
            raise TemplateSyntaxError(item.position, f"a second {{{{else}}}} in the block {opened}.")
        inside = _Expressions(item, self._source)
        name = inside.call().name
        inside.end()
        if name.source != call.name.source:
            raise TemplateSyntaxError(
                item.position,
                f"{_shown(self._source, item.position)} closes the block {opened}; "
                f"expected {{{{/{call.name.source}}}}}.",
            )
        self._at += 1
        return item.strip


# --- white space ----------------------------------------------------------------------------------------------------


def _trim(program: Program, root: bool) -> None:
    """Take away the white space that `~` and the lines of block tags ask for, as Handlebars.js does."""
    body = program.body
    for i, node in enumerate(body):
        if isinstance(node, Text):
            continue
        opens = closes = inline = False
        if isinstance(node, Block):
            strip, opens, closes = _trim_block(node)
        else:
            strip, inline = node.strip, isinstance(node, Comment)
        before, after = _line_starts(body, i, root), _line_ends(body, i, root)
        if strip.close:
            _omit_right(body, i + 1, every=True)
        if strip.open:
            _omit_left(body, i - 1, every=True)
        if inline and before and after:
            _omit_right(body, i + 1)
            _omit_left(body, i - 1)
        if isinstance(node, Block):
            first, last = node.program or node.inverse, node.inverse or node.program
            assert first is not None
            assert last is not None
            if opens and before:
                _omit_right(first.body, 0)
                _omit_left(body, i - 1)
            if closes and after:
                _omit_right(body, i + 1)
                _omit_left(last.body, len(last.body) - 1)


def _trim_block(block: Block) -> tuple[Strip, bool, bool]:
    for part in (block.program, block.inverse):
        if part is not None:
            _trim(part, False)
    program = block.program or block.inverse
    assert program is not None
    inverse = block.inverse if block.program is not None else None
    first = last = inverse
    if inverse is not None and inverse.chained:
        first = _only_block(inverse).program
        while last is not None and last.chained:
            last = _only_block(last).program
    opens = _line_ends(program.body, -1, False)
    closing = first if first is not None else program
    closes = _line_starts(closing.body, len(closing.body), False)
    if block.open_strip.close:
        _omit_right(program.body, 0, every=True)
    if inverse is not None:
        assert first is not None
        assert last is not None
        if block.inverse_strip.open:
            _omit_left(program.body, len(program.body) - 1, every=True)
        if block.inverse_strip.close:
            _omit_right(first.body, 0, every=True)
        if block.close_strip.open:
            _omit_left(last.body, len(last.body) - 1, every=True)
        if _line_starts(program.body, len(program.body), False) and _line_ends(first.body, -1, False):
            _omit_left(program.body, len(program.body) - 1)
            _omit_right(first.body, 0)
    elif block.close_strip.open:
        _omit_left(program.body, len(program.body) - 1, every=True)
    return Strip(block.open_strip.open, block.close_strip.close), opens, closes


def _only_block(program: Program) -> Block:
    block = program.body[-1]
    assert isinstance(block, Block)
    return block


def _at(body: list[Node], i: int) -> Node | None:
    return body[i] if 0 <= i < len(body) else None


def _line_starts(body: list[Node], i: int, root: bool) -> bool:
    """Say whether only white space stands between the start of the line and node `i`."""
    before = _at(body, i - 1)
    if before is None:
        return root
    if not isinstance(before, Text):
        return False
    kept = before.original.rstrip(_WHITE_TAIL)
    if "\n" in before.original[len(kept) :]:
        return True
    return root and _at(body, i - 2) is None and not kept


def _line_ends(body: list[Node], i: int, root: bool) -> bool:
    after = _at(body, i + 1)
    if after is None:
        return root
    if not isinstance(after, Text):
        return False
    white = _leading_white(after.original)
    if "\n" in white:
        return True
    return root and _at(body, i + 2) is None and white == after.original


def _leading_white(text: str) -> str:
    match = _WHITE_RUN.match(text)
    return match.group() if match is not None else ""


def _omit_right(body: list[Node], i: int, *, every: bool = False) -> None:
    text = _at(body, i)
    if not isinstance(text, Text) or (not every and text.right_stripped):
        return
    before = text.value
    if every:
        text.value = before[len(_leading_white(before)) :]
    else:
        rest = before.lstrip(" \t")
        if rest.startswith("\r"):
            rest = rest[1:]
        text.value = rest.removeprefix("\n")
    text.right_stripped = text.value != before


def _omit_left(body: list[Node], i: int, *, every: bool = False) -> None:
    text = _at(body, i)
    if not isinstance(text, Text) or (not every and text.left_stripped):
        return
    before = text.value
    text.value = before.rstrip(_WHITE_TAIL if every else " \t")
    text.left_stripped = text.value != before


def parse(source: str) -> Program:
    """Read a template.

    Raises:
        TemplateSyntaxError: It is no template of this language.
    """
    program = _Parser(source).parse()
    _trim(program, True)
    return program


# --- rendering ------------------------------------------------------------------------------------------------------

ToText: TypeAlias = Callable[[Any], str]


class _Sink:
    __slots__ = ("escape", "iterations", "parts", "size", "to_text")

    def __init__(self, to_text: ToText, escape: bool) -> None:
        self.parts: list[str] = []
        self.size = 0
        self.iterations = 0
        self.to_text = to_text
        self.escape = escape

    def write(self, text: str) -> None:
        self.size += len(text)
        if self.size > MAX_OUTPUT:
            raise TooLarge(f"the text is longer than {MAX_OUTPUT:,} characters")
        self.parts.append(text)

    def step(self) -> None:
        self.iterations += 1
        if self.iterations > MAX_ITERATIONS:
            raise TooLarge(f"its loops take more than {MAX_ITERATIONS:,} turns")


@dataclass(frozen=True, slots=True)
class _Frame:
    """What `@index`, `@key`, `@first` and `@last` are in one turn of a loop."""

    values: Mapping[str, Any]
    parent: _Frame | None


@dataclass(frozen=True, slots=True)
class _Scope:
    this: Any
    outer: _Scope | None
    root: Any
    frame: _Frame | None
    named: Mapping[str, Any]

    def enter(self, this: Any, frame: _Frame | None, named: Mapping[str, Any]) -> _Scope:
        # As in Handlebars.js, `../` goes up only where the context changed.
        outer = self.outer if _same(this, self.this) else self
        return _Scope(this, outer, self.root, frame, named)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, (dict, list)) or isinstance(b, (dict, list)):
        return a is b
    return type(a) is type(b) and bool(a == b)


def render(program: Program, context: Any, *, to_text: ToText, escape: bool) -> str:
    """Render a template that `check` found sound.

    Args:
        program: The template.
        context: Its data.
        to_text: Turns a value into text.
        escape: Whether `{{x}}` is escaped for HTML.

    Raises:
        TooLarge: The text or its loops grow beyond all bounds.
    """
    sink = _Sink(to_text, escape)
    _render(program, _Scope(context, None, context, None, {}), sink)
    return "".join(sink.parts)


def escape_html(text: str) -> str:
    """Escape a text as Handlebars.js does: `&`, `<`, `>`, both quotes, the backtick and `=`."""
    return text.translate(_ESCAPES)


def step_into(value: Any, part: str) -> Any:
    """Read one name or index of a value; None where there is none."""
    if isinstance(value, Mapping):
        return value.get(part)
    if isinstance(value, (list, str)):
        if part == "length":
            # JavaScript counts UTF-16 units.
            return len(value) + (sum(c > "\uffff" for c in value) if isinstance(value, str) else 0)
        if part.isascii() and part.isdigit() and len(part) < 10 and (part == "0" or part[0] != "0"):
            index = int(part)
            return value[index] if index < len(value) else None
    return None


def follow(value: Any, parts: tuple[str, ...], heads: tuple[tuple[str, int], ...]) -> Any:
    """Read a path from a value; None where it leads nowhere. A key that holds the dots wins over the path."""
    at = 0
    if heads and isinstance(value, Mapping):
        for head, size in heads:
            if head in value:
                value, at = value[head], size
                break
    for part in parts[at:]:
        value = step_into(value, part)
        if value is None:
            return None
    return value


def _resolve(path: Path, scope: _Scope) -> Any:
    parts = path.parts
    if path.data:
        if parts and parts[0] == "root" and not path.depth:
            rest = parts[1:]
            heads = tuple((head.removeprefix("root."), size - 1) for head, size in path.heads if size > 2)
            return follow(scope.root, rest, heads)
        frame = scope.frame
        for _ in range(path.depth):
            frame = frame.parent if frame is not None else None
        return follow(frame.values, parts, ()) if frame is not None and parts else None
    if parts and not path.scoped and not path.depth and parts[0] in scope.named:
        return follow(scope.named[parts[0]], parts[1:], ())
    at: _Scope | None = scope
    for _ in range(path.depth):
        at = at.outer if at is not None else None
    if at is None:
        return None
    return follow(at.this, parts, path.heads)


def _value(expression: Expression, scope: _Scope) -> Any:
    if isinstance(expression, Path):
        return _resolve(expression, scope)
    if isinstance(expression, Literal):
        return expression.value
    return _lookup(expression, scope)


def _lookup(call: Call, scope: _Scope) -> Any:
    """The helpers that are no blocks: lookup, and log, which says nothing here."""
    if call.name.parts[0] == "log":
        return None
    value, key = (_value(param, scope) for param in call.params)
    if value is None or value is False or value == "" or (isinstance(value, (int, float)) and not value):
        return value
    if key is True or key is False:
        key = "true" if key else "false"
    elif isinstance(key, float) and key.is_integer():
        key = int(key)
    return step_into(value, str(key)) if isinstance(key, (str, int, float)) else None


def _truthy(value: Any, *, include_zero: bool = False) -> bool:
    if include_zero and not isinstance(value, bool) and isinstance(value, (int, float)) and value == 0:
        return True
    return bool(value) or isinstance(value, Mapping)


def _empty(value: Any) -> bool:
    """What `{{#with}}` takes for nothing; unlike for `{{#if}}`, 0 is something."""
    return value is None or value is False or value == "" or (isinstance(value, list) and not value)


def _render(program: Program | None, scope: _Scope, sink: _Sink) -> None:
    if program is None:
        return
    for node in program.body:
        if isinstance(node, Text):
            sink.write(node.value)
        elif isinstance(node, Output):
            call = node.call
            helper = bool(call.params or call.hash)
            value = _lookup(call, scope) if helper else _resolve(call.name, scope)
            if value is None:
                continue
            text = sink.to_text(value)
            sink.write(text if node.raw or not sink.escape else escape_html(text))
        elif isinstance(node, Block):
            _render_block(node, scope, sink)


def _render_block(block: Block, scope: _Scope, sink: _Sink) -> None:
    name = block_kind(block)
    sink.step()
    if name == "section":
        value = _resolve(block.call.name, scope)
        if isinstance(value, list) and value:
            _each(block, value, scope, sink)
        elif value is True:
            _render(block.program, scope, sink)
        elif value is None or value is False or isinstance(value, list):
            _render(block.inverse, scope, sink)
        else:
            _render(block.program, scope.enter(value, scope.frame, scope.named), sink)
        return
    value = _value(block.call.params[0], scope)
    if name in ("if", "unless"):
        zero = any(key == "includeZero" and _truthy(_value(e, scope)) for key, e in block.call.hash)
        yes = _truthy(value, include_zero=zero) == (name == "if")
        _render(block.program if yes else block.inverse, scope, sink)
    elif name == "with":
        if _empty(value):
            _render(block.inverse, scope, sink)
        else:
            named = _named(block, scope, (value,))
            _render(block.program, scope.enter(value, scope.frame, named), sink)
    elif isinstance(value, (list, Mapping)) and value:
        _each(block, value, scope, sink)
    else:
        _render(block.inverse, scope, sink)


def _named(block: Block, scope: _Scope, values: tuple[Any, ...]) -> Mapping[str, Any]:
    params = block.program.params if block.program is not None else ()
    return {**scope.named, **dict(zip(params, values, strict=False))} if params else scope.named


def _each(block: Block, value: list[Any] | Mapping[str, Any], scope: _Scope, sink: _Sink) -> None:
    last = len(value) - 1
    pairs = enumerate(value) if isinstance(value, list) else _in_order(value)
    parent = scope.frame
    inherited = parent.values if parent is not None else {}
    for index, (key, item) in enumerate(pairs):
        sink.step()
        values = {**inherited, "key": key, "index": index, "first": index == 0, "last": index == last}
        frame = _Frame(values, parent if parent is not None else _Frame({}, None))
        _render(block.program, scope.enter(item, frame, _named(block, scope, (item, key))), sink)


def _in_order(value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Objects in JavaScript's order: keys that are whole numbers come first, in order."""
    numbers = [key for key in value if key.isascii() and key.isdigit() and len(key) < 10 and str(int(key)) == key]
    for key in sorted(numbers, key=int):
        yield key, value[key]
    chosen = set(numbers)
    for key, item in value.items():
        if key not in chosen:
            yield key, item


def block_kind(block: Block) -> str:
    """Return `if`, `unless`, `each`, `with`, or `section` for a block that is named after a field."""
    call = block.call
    if call.name.simple and call.name.parts[0] in ("if", "unless", "each", "with") and call.params:
        return call.name.parts[0]
    return "section"
