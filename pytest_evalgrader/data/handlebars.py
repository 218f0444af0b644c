"""Handlebars, rendered by dotpromptz-handlebars.

The library renders. This module reads the tags, which says what is wrong in which line and what fields a template
reads, and writes each anew in the simplest form that the library knows, so that both mean the same by it: every path
and literal is a number in a table (`{{#if rows.0.v}}` becomes `{{#if (get . 0)}}`), the white space that `~` and the
lines of block tags take away is gone already, and each tag calls a helper of ours, which looks values up, turns them
into text, and counts. Nothing but data is read: object keys, list indices, and the length of lists and texts.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pytest_evalgrader.suite.wording import listing, nearest, quote

if TYPE_CHECKING:
    from dotpromptz_handlebars import Handlebars, HelperFn, HelperOptions

MAX_NESTING = 50
"""Most blocks inside each other, and most parts of a path."""
MAX_CALLS = 16
"""Most parentheses in a tag."""
MAX_STEPS = 100_000
"""Most turns of loops and values read in one rendering; a few seconds."""
MAX_OUTPUT = 16 * 1024 * 1024
"""Longest text of one rendering, in characters."""

_TAG_COST = 8  # of a tag in a loop, in characters: a tag without text takes time too

MISSING = object()
"""What `Path.find` returns where there is nothing; None is a value."""
LITERAL_BRACES = "to write two braces as text, put a backslash before them: \\{{"
_BLOCKS = ("if", "unless", "each", "with")
_INDEX = re.compile("0|[1-9][0-9]{0,8}")


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


def to_text(value: Any) -> str:
    """Render a value: text as it is, null as nothing, everything else as JSON."""
    if type(value) is str:
        return value
    if value is None:
        return ""
    return str(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class Path:
    """The names and indices that lead from a value to one inside it."""

    def __init__(self, parts: tuple[str, ...]) -> None:
        self.parts = parts
        self._heads = [(".".join(parts[:size]), size) for size in range(len(parts), 1, -1)]

    def find(self, value: Any) -> Any:
        """Return what the path leads to, else MISSING. A key that holds the dots wins over the path."""
        parts = self.parts
        if self._heads and isinstance(value, Mapping):
            for head, size in self._heads:
                if head in value:
                    value, parts = value[head], parts[size:]
                    break
        for part in parts:
            if isinstance(value, Mapping):
                if part not in value:
                    return MISSING
                value = value[part]
            elif not isinstance(value, (list, str)):
                return MISSING
            elif part == "length":
                # JavaScript counts UTF-16 units.
                value = len(value if isinstance(value, list) else value.encode("utf-16-le", "surrogatepass")[::2])
            elif _INDEX.fullmatch(part) and int(part) < len(value):
                value = value[int(part)]
            else:
                return MISSING
        return value

    def follow(self, value: Any) -> Any:
        """Return what the path leads to; None where it leads nowhere."""
        found = self.find(value)
        return None if found is MISSING else found


@dataclass(slots=True)
class Read:
    """A field that a template reads from the top level.

    Args:
        name: As it is written, such as `q.text`.
        line: Line of the template, from 1.
        required: False where the template asks whether the field is there: it is only a condition of `#if` or
            `#unless`, stands inside an `#if` on itself, or its block has an `{{else}}`.
    """

    name: str
    path: Path
    line: int
    required: bool

    @property
    def parts(self) -> tuple[str, ...]:
        """The names and indices of the path."""
        return self.path.parts


# --- tags -----------------------------------------------------------------------------------------------------------

_NAME = r"[^\s!\"#%-,./;->@\[-\^`{-~]"
_BRACKET = r"\[(?:\\\]|[^\]])*\]"
_TAG_START = re.compile(r"(?<!\\)(\\*)\{\{")
_COMMENT = re.compile(r"\{\{(~?)!(?:(?=--).*?--|(?!--).*?)(~?)\}\}", re.DOTALL)
_OPEN = re.compile(r"\{\{(~?)(#>|#\*|[#>/^&*{]?)")
_CLOSE = {False: re.compile(r"(~?)\}\}"), True: re.compile(r"\}(~?)\}\}")}
_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<string>\"(?:\\\"|[^\"])*\"|'(?:\\'|[^'])*')"
    rf"|(?P<word>@?(?:{_BRACKET}|[./]|{_NAME})+)|(?P<mark>[()=|])"
)
_NUMBER = re.compile(r"-?[0-9]{1,300}(?:\.[0-9]+)?")
_PART = rf"({_BRACKET}|\.\.?+|{_NAME}++)"
_PARTS = re.compile(rf"{_PART}(?:[./]|\Z)")
_PATH = re.compile(rf"{_PART}(?:[./]{_PART})*")
_WORDS = {"true": True, "false": False, "null": None, "undefined": None}
_Token: TypeAlias = tuple[str, str, int]
_END: _Token = ("end", "", -1)


@dataclass(slots=True)
class _Tag:
    kind: str
    tokens: list[_Token]
    left: bool
    right: bool
    position: int
    end: int


def _scan(source: str) -> tuple[list[str], list[_Tag]]:
    """Return the texts before, between and after the tags, as they are written, and the tags."""
    texts: list[str] = []
    tags: list[_Tag] = []
    position = 0
    while True:
        starts = (match.end() - 2 for match in _TAG_START.finditer(source, position) if len(match[1]) != 1)
        start = next(starts, len(source))
        texts.append(source[position:start])
        if start == len(source):
            return texts, tags
        tags.append(_read_tag(source, start))
        position = tags[-1].end


def _read_tag(source: str, start: int) -> _Tag:
    if source.startswith("{{{{", start):
        raise TemplateSyntaxError(start, "raw blocks ({{{{…}}}}) are not supported; " + LITERAL_BRACES)
    if comment := _COMMENT.match(source, start):
        return _Tag("!", [], bool(comment[1]), bool(comment[2]), start, comment.end())
    if source.startswith(("{{!", "{{~!"), start):
        raise TemplateSyntaxError(start, "a comment that is never closed.")
    opened = _OPEN.match(source, start)
    assert opened is not None
    kind, position = opened[2], opened.end()
    tokens: list[_Token] = []
    while not (end := _CLOSE[kind == "{"].match(source, position)):
        token = _TOKEN.match(source, position)
        if token is None:
            raise TemplateSyntaxError(start, _unreadable(source, start, position, kind))
        if token.lastgroup != "space":
            tokens.append((token.lastgroup or "", token.group(), position))
        position = token.end()
    if kind == "^" and not tokens:
        kind = "else"
    elif kind == "" and tokens and tokens[0][1] == "else":
        kind, tokens = "else", tokens[1:]
    return _Tag(kind, tokens, bool(opened[1]), bool(end[1]), start, end.end())


def _unreadable(source: str, start: int, position: int, kind: str) -> str:
    if position >= len(source):
        return f"the tag {_shown(source, start)} is never closed; {LITERAL_BRACES}"
    if kind == "{" and source.startswith("}}", position):
        return f"the tag {_shown(source, start)} opens with three braces and closes with two."
    return f'"{source[position]}" cannot stand in the tag {_shown(source, start)}; {LITERAL_BRACES}'


def _shown(source: str, start: int) -> str:
    end = source.find("}}", start)
    tag = " ".join(source[start : end + 2 if 0 <= end < start + 60 else start + 40].split())
    return tag if 0 <= end < start + 60 else tag + "…"


def _trim(texts: list[str], tags: list[_Tag]) -> list[str]:
    """Take away the white space that `~` and the lines of block tags ask for, as Handlebars.js does.

    The library looks at the text that `~` left and loses white space that stands between two tags.
    """
    out = list(texts)
    for i, tag in enumerate(tags):
        before, after = texts[i], texts[i + 1]
        starts = "\n" in before[len(before.rstrip()) :] or (i == 0 and not before.strip())
        ends = re.match(r"\s*?\r?\n", after) or (i + 1 == len(tags) and not after.strip())
        alone = starts and ends and tag.kind in ("#", "/", "^", "!", "else")
        if tag.left:
            out[i] = out[i].rstrip()
        elif alone:
            out[i] = out[i].rstrip(" \t")
        if tag.right:
            out[i + 1] = out[i + 1].lstrip()
        elif alone:
            out[i + 1] = re.sub(r"\A[ \t]*\r?\n?", "", out[i + 1])
    return out


# --- translation ----------------------------------------------------------------------------------------------------

# Around a place: the contexts, the innermost first (True is the row itself, False something inside it), the fields that
# an `#if` asked for, and the names that blocks gave (`as |x|`) with what they are called in the translation.
_State: TypeAlias = "tuple[tuple[bool, ...], frozenset[tuple[str, ...]], dict[str, str]]"


@dataclass(slots=True)
class _Block:
    """An open block.

    Args:
        name: As it is written, which the closing tag repeats.
        closing: Its name in the translation.
        kind: `if`, `unless`, `each`, `with` or `section`; after `{{else if}}` what stands there.
        reads: The fields that its opening tag, or the last `{{else if}}`, asks for.
        loop: Number of the innermost loop.
        before: The state before the block, and `outer` before its last `{{else if}}`.
    """

    tag: _Tag
    name: str
    closing: str
    kind: str
    names: dict[str, str]
    reads: list[Read]
    depth: int
    loop: int | None
    before: _State
    outer: _State
    has_else: bool = False


class Translation:
    """A template as the library gets it.

    Args:
        source: The template.

    Attributes:
        text: The template anew.
        table: What the numbers in it stand for: paths and literals.
        loops: Characters of plain text in each loop's body, without those of loops inside it, and some for each tag.
        plain: Text, path, and whether it is raw, in turn, and the text at the end; None where a template has more.
        reads: The fields that the template reads from the top level.
        wrong: Unknown helpers and wrong arguments: position and message.

    Raises:
        TemplateSyntaxError: The template cannot be read.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self.table: list[Any] = []
        self.loops: list[int] = []
        self.plain: tuple[list[tuple[str, Path, bool]], str] | None = None
        self.reads: list[Read] = []
        self.wrong: list[tuple[int, str]] = []
        self._stack: list[_Block] = []
        self._state: _State = ((True,), frozenset(), {})
        self._tokens: list[_Token] = []  # of one tag, the next one last
        self._tag, self._line = _Tag("", [], False, False, 0, 0), 1
        self._names = 0
        texts, tags = _scan(source)
        texts = _trim(texts, tags)
        out: list[str] = []
        pieces: list[tuple[str, Path, bool]] = []
        for text, tag in zip(texts, tags, strict=False):
            if self._stack and self._stack[-1].loop is not None:
                self.loops[self._stack[-1].loop] += len(text) + _TAG_COST
            self._line += source.count("\n", self._tag.position, tag.position)
            self._tag, self._tokens = tag, tag.tokens[::-1]
            if sum(text == "(" for _, text, _ in tag.tokens) > MAX_CALLS:
                raise TemplateSyntaxError(tag.position, f"more than {MAX_CALLS} parentheses in one tag.")
            out += text, self._translate(tag)
            if self._tokens:
                raise self._fail(f'"{self._tokens[-1][1]}" is unexpected')
            if re.fullmatch(r"\{+show \. [0-9]+\}+", out[-1]):
                pieces.append((text, self.table[-1], tag.kind != ""))
        if self._stack:
            raise TemplateSyntaxError(self._stack[-1].tag.position, f"the block {self._opened()} is never closed.")
        self.text = "".join([*out, texts[-1]])
        if len(pieces) == len(tags) and "\\{{" not in source:
            self.plain = (pieces, texts[-1])

    def _translate(self, tag: _Tag) -> str:
        shown = _shown(self._source, tag.position)
        if tag.kind in (">", "#>"):
            message = f"partials are not supported ({shown}); write the text out here."
            raise TemplateSyntaxError(tag.position, message)
        if tag.kind in ("*", "#*"):
            raise TemplateSyntaxError(tag.position, f"decorators are not supported ({shown}).")
        if tag.kind in ("", "{", "&"):
            head, values, pairs = self._parts()
            value = self._helper(head, values, pairs) if values or pairs else self._field(head)
            call = "show " + (value[5:-1] if value.startswith("(get ") else value)
            return "{{" + call + "}}" if tag.kind == "" else "{{{" + call + "}}}"
        # After a comment, the library does not look whether a block tag stands on a line of its own.
        read = {"!": lambda: "!", "else": self._else, "/": self._close}.get(tag.kind, self._open)
        return "{{!}}{{" + read() + "}}"

    # Blocks.

    def _open(self) -> str:
        outer = self._stack[-1] if self._stack else None
        start, name = len(self.reads), _unquoted(self._peek())
        kind, value, names = self._header()
        loop = outer.loop if outer else None
        if kind in ("each", "section"):
            loop = len(self.loops)
            self.loops.append(0)
            value = f"(items {value} {loop})" if kind == "each" else f"{value} {loop}"
        depth = outer.depth + 1 if outer else 1
        block = _Block(self._tag, name, kind, kind, names, self.reads[start:], depth, loop, self._state, self._state)
        self._stack.append(block)
        if self._tag.kind == "^":
            _make_optional(block.reads)
        self._enter(block, yes=self._tag.kind == "#")
        return f"{self._tag.kind}{kind} {value}" + (f" as |{' '.join(names.values())}|" if names else "")

    def _header(self) -> tuple[str, str, dict[str, str]]:
        """Read what opens a block: its kind, the value it is about, and the names it gives."""
        start = len(self.reads)
        head, values, pairs = self._parts()
        name, names = _unquoted(head), self._block_names()
        kind = name if name in _BLOCKS and (values or pairs) else "section"
        if kind != "section":
            if len(values) != 1:
                self._wrong(head, f"#{name} takes one value, found {len(values)}.")
            if kind in ("if", "unless"):
                _make_optional(self.reads[start:])
                values += [f"includeZero=(truth {pairs.pop(key)})" for key in list(pairs) if key == "includeZero"]
            if pairs:
                self._wrong(head, f"#{name} has no {listing(list(pairs))}.")
        elif values or pairs:
            self._wrong(head, self._unknown(name, block=True))
        elif name in (*_BLOCKS, "lookup", "log"):
            what = "needs a value: {{#" + name + " field}}" if name in _BLOCKS else "is no block"
            self._wrong(head, f"{name} {what}.")
        else:
            values = [self._field(head)]
        if names and name not in ("each", "with"):
            self._wrong(head, f"#{name} has no block parameters (as |…|); #each and #with have.")
        return kind, " ".join(values), names

    def _enter(self, block: _Block, *, yes: bool) -> None:
        if block.depth > MAX_NESTING:
            message = f"blocks are nested more than {MAX_NESTING} levels deep."
            raise TemplateSyntaxError(self._tag.position, message)
        contexts, guards, names = block.outer
        asked = guards | {read.parts for read in block.reads}
        if block.kind in ("if", "unless"):
            self._state = (contexts, asked if yes == (block.kind == "if") else guards, names)
        else:
            self._state = ((False, *contexts), asked, {**names, **block.names}) if yes else block.outer

    def _else(self) -> str:
        position = self._tag.position
        if not self._stack:
            raise TemplateSyntaxError(position, "{{else}} outside a block.")
        block = self._stack[-1]
        if block.has_else:
            raise TemplateSyntaxError(position, f"a second {{{{else}}}} in the block {self._opened()}.")
        _make_optional(block.reads)
        self._enter(block, yes=block.tag.kind == "^")
        block.has_else = not self._tokens
        if block.has_else:
            return "else"
        if block.tag.kind == "^":
            raise TemplateSyntaxError(position, "an {{else …}} with arguments cannot follow {{^…}}.")
        start, head = len(self.reads), self._peek()
        kind, value, _ = self._header()
        if kind not in ("if", "unless"):
            self._wrong(head, f"only if and unless can follow else; put {{{{#{head[1]} …}}}} after {{{{else}}}}.")
        block.kind, block.reads, block.outer, block.depth = kind, self.reads[start:], self._state, block.depth + 1
        self._enter(block, yes=True)
        return f"else {kind} {value}"

    def _close(self) -> str:
        shown = _shown(self._source, self._tag.position)
        name = _unquoted(self._head())
        if not self._stack:
            raise TemplateSyntaxError(self._tag.position, f"{shown} closes nothing.")
        block = self._stack[-1]
        if name != block.name:
            message = f"{shown} closes the block {self._opened()}; expected {{{{/{block.name}}}}}."
            raise TemplateSyntaxError(self._tag.position, message)
        self._stack.pop()
        self._state = block.before
        return "/" + block.closing

    def _opened(self) -> str:
        return _shown(self._source, self._stack[-1].tag.position)

    # Values.

    def _fail(self, message: str) -> TemplateSyntaxError:
        position = self._tokens[-1][2] if self._tokens else self._tag.position
        return TemplateSyntaxError(position, f"{message} in the tag {_shown(self._source, self._tag.position)}.")

    def _wrong(self, at: _Token, message: str) -> None:
        self.wrong.append((at[2], message))

    def _peek(self, ahead: int = 1) -> _Token:
        return self._tokens[-ahead] if len(self._tokens) >= ahead else _END

    def _head(self) -> _Token:
        if self._peek()[0] in ("string", "word"):
            return self._tokens.pop()
        raise self._fail(f'"{self._peek()[1]}" is unexpected' if self._tokens else "a name is missing")

    def _parts(self) -> tuple[_Token, list[str], dict[str, str]]:
        """Read a name, its arguments, and its key=value pairs."""
        head = self._head()
        values: list[str] = []
        pairs: dict[str, str] = {}
        while self._tokens and self._peek()[1] != ")" and not self._at_block_names():
            if self._peek(2)[1] == "=":
                key = self._head()[1]
                self._tokens.pop()
                pairs[key] = self._argument()
            elif pairs:
                raise self._fail("an argument follows key=value pairs")
            else:
                values.append(self._argument())
        return head, values, pairs

    def _argument(self) -> str:
        if self._peek()[1] == "(":
            self._tokens.pop()
            value = self._helper(*self._parts())
            if self._peek()[1] != ")":
                raise self._fail("a closing parenthesis is missing")
            self._tokens.pop()
            return value
        kind, text, _ = token = self._head()
        if kind == "string":
            return self._number("lit", _unquoted(token))
        if text in _WORDS:
            return self._number("lit", _WORDS[text])
        if _NUMBER.fullmatch(text):
            return self._number("lit", float(text) if "." in text else int(text))
        return self._field(token)

    def _helper(self, head: _Token, values: list[str], pairs: dict[str, str]) -> str:
        name = _unquoted(head)
        if name in _BLOCKS:
            self._wrong(head, f"{name} needs a block: {{{{#{name} …}}}} … {{{{/{name}}}}}.")
        elif name not in ("lookup", "log"):
            self._wrong(head, self._unknown(name))
        elif name == "lookup" and (len(values) != 2 or pairs):
            self._wrong(head, "lookup takes a list or object, and an index or key: {{lookup list 0}}.")
        return f"({' '.join([name, *values])})"

    def _field(self, token: _Token) -> str:
        kind, text, position = token
        up, parts, scoped = 0, list[str](), False
        bare = text.removeprefix("@")
        if kind == "string" or _NUMBER.fullmatch(text):
            parts = [_unquoted(token)]
        elif not _PATH.fullmatch(bare) or bare.count(".") + bare.count("/") > MAX_NESTING:
            raise TemplateSyntaxError(position, f"{quote(text)} is no field; {LITERAL_BRACES}")
        else:
            for match in _PARTS.finditer(bare):
                if match[1] not in ("..", ".", "this"):
                    parts.append(match[1][1:-1].replace("\\]", "]") if match[1][0] == "[" else match[1])
                elif parts:
                    raise TemplateSyntaxError(position, f'"{match[1]}" cannot stand inside a path ({text}).')
                else:
                    up, scoped = up + (match[1] == ".."), True
        contexts, guards, names = self._state
        base, top = "/".join([".."] * up) or ".", up < len(contexts) and contexts[up]
        if bare != text:
            root = parts.pop(0) if parts else ""
            base, top = "@" + "../" * up + root, root == "root"
            if root not in ("root", "index", "key", "first", "last"):
                return self._number("lit", None)
        elif parts and not scoped and parts[0] in names:
            base, top = names[parts.pop(0)], False
        if not parts:
            return base
        path = Path(tuple(parts))
        if top:
            asked = any(path.parts[: len(guard)] == guard for guard in guards)
            line = self._line + self._source.count("\n", self._tag.position, position)
            self.reads.append(Read(".".join(parts), path, line, not asked))
        return self._number(f"get {base}", path)

    def _number(self, helper: str, entry: Any) -> str:
        self.table.append(entry)
        return f"({helper} {len(self.table) - 1})"

    def _at_block_names(self) -> bool:
        return self._peek()[1] == "as" and self._peek(2)[1] == "|"

    def _block_names(self) -> dict[str, str]:
        names: dict[str, str] = {}
        if self._at_block_names():
            del self._tokens[-2:]
            while self._peek()[0] == "word":
                # The library knows only simple names.
                names[self._tokens.pop()[1]] = f"b{self._names}"
                self._names += 1
            if self._peek()[1] != "|" or not names:
                raise self._fail("block parameters are written as |name index|")
            self._tokens.pop()
        return names

    def _unknown(self, name: str, *, block: bool = False) -> str:
        known = list(_BLOCKS) if block else [*_BLOCKS, "lookup"]
        near = nearest(name, known)
        hint = f" Did you mean {listing(near)}?" if near else ""
        return (
            f"unknown {'block' if block else 'helper'} {quote(name)}.{hint} "
            f"Templates know {listing(known, last='and')}. A name with a space is written [like this]; {LITERAL_BRACES}"
        )


def _make_optional(reads: list[Read]) -> None:
    for read in reads:
        read.required = False


def _unquoted(token: _Token) -> str:
    kind, text, _ = token
    return text[1:-1].replace("\\" + text[0], text[0]) if kind == "string" else text


# --- rendering ------------------------------------------------------------------------------------------------------


class _Run:
    """One rendering: what the numbers of the template stand for, and how much it did."""

    def __init__(self, template: Translation) -> None:
        self.table = template.table
        self.loops = template.loops
        self._steps = 0
        self._size = 0

    def step(self, count: int) -> None:
        self._steps += count
        if self._steps > MAX_STEPS:
            raise TooLarge(f"it takes more than {MAX_STEPS:,} steps")

    def grow(self, characters: int) -> None:
        self._size += characters
        if self._size > MAX_OUTPUT:
            raise TooLarge(f"its text is longer than {MAX_OUTPUT:,} characters")

    def loop(self, number: int, turns: int) -> None:
        self.step(turns)
        self.grow(turns * self.loops[number])

    def get(self, base: Any, number: int) -> Any:
        path: Path = self.table[number]
        value = path.follow(base)
        if path.parts[-1] == "length" and type(value) is int:
            self.step(value >> 12)
        return value


def _show(run: _Run, args: list[Any], options: HelperOptions) -> str:
    value = run.get(*args) if len(args) == 2 else args[0]
    text = "" if value is _NULL else to_text(value)
    run.grow(len(text))
    return text


def _lookup(run: _Run, args: list[Any], options: HelperOptions) -> Any:
    value, key = args
    if isinstance(key, bool):
        key = "true" if key else "false"
    elif isinstance(key, float) and key.is_integer():
        key = int(key)
    if not value and not isinstance(value, (list, Mapping)):
        return value
    return Path((str(key),)).follow(value) if isinstance(key, (str, int, float)) else None


def _items(run: _Run, args: list[Any], options: HelperOptions) -> Any:
    value, number = args
    if isinstance(value, Mapping):
        # JavaScript's order: keys that are whole numbers come first.
        first = sorted(filter(_INDEX.fullmatch, value), key=int)
        value = {key: value[key] for key in [*first, *value]} if first else value
    if isinstance(value, (list, Mapping)):
        run.loop(number, len(value))
    return value


def _section(run: _Run, args: list[Any], options: HelperOptions) -> str:
    from dotpromptz_handlebars import SafeString

    value, number = args
    if value is None or value is False or value == [] or value is _NULL:
        return options.inverse()
    if not isinstance(value, list):
        return options.fn(None if value is True else value)
    run.loop(number, len(value))
    frame, last = dict(options.data), len(value) - 1
    out: list[str] = []
    for index, item in enumerate(value):
        options.data.update(index=index, key=index, first=index == 0, last=index == last)
        # The library takes None for the context that is there.
        out.append(options.fn(_NULL if item is None else item))
    options.data.clear()
    options.data.update(frame)
    return SafeString("".join(out))


_NULL: tuple[()] = ()
_HELPERS: dict[str, Callable[[_Run, list[Any], HelperOptions], Any]] = {
    "show": _show,
    "get": lambda run, args, options: run.get(*args),
    "lit": lambda run, args, options: run.table[args[0]],
    "truth": lambda run, args, options: bool(args[0]) or isinstance(args[0], Mapping),
    "lookup": _lookup,
    "log": lambda run, args, options: None,
    "items": _items,
    "section": _section,
}


@functools.cache
def _library(escape: bool) -> Handlebars:
    from dotpromptz_handlebars import Handlebars

    def helper(inner: Callable[[_Run, list[Any], HelperOptions], Any]) -> HelperFn:
        def call(args: list[Any], options: HelperOptions) -> Any:
            run: _Run = options.data["run"]
            # The library copies the context for each call.
            run.step(1 + (len(options.context) >> 7 if isinstance(options.context, Mapping) else 0))
            return inner(run, args, options)

        return call

    library = Handlebars(escape_html=escape, max_depth=3 * MAX_NESTING)
    for name, inner in _HELPERS.items():
        library.register_helper(name, helper(inner))
    return library


def compile_template(template: Translation, *, escape: bool) -> Callable[[Mapping[str, Any]], str]:
    """Hand a template to the library.

    Args:
        template: A template with nothing wrong.
        escape: Whether `{{x}}` is escaped for HTML.

    Returns:
        Renders the template over a context. Raises TooLarge where the text or the work grows beyond all bounds.
    """
    render = _library(escape).compile(template.text)
    return lambda context: render(context, data={"run": _Run(template)})
