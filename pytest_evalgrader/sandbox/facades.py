"""What a grader may import: facades with listed functions, never module objects.

A module object is an open door (`re.enum`, `json.codecs`, `statistics.sys` lead to `open` and `sys`), so a grader gets
an object that holds the listed names and nothing else. Functions that would run text as code, or set attributes on
what is not the grader's, are replaced by ones that do the same for ordinary uses. Standard library only.
"""

from __future__ import annotations

import abc
import array
import ast
import base64
import binascii
import bisect
import calendar
import cmath
import collections
import collections.abc
import colorsys
import contextlib
import copy
import copyreg
import csv
import dataclasses
import datetime
import decimal
import difflib
import enum
import fnmatch
import fractions
import functools
import hashlib
import heapq
import hmac
import html
import html.entities
import html.parser
import importlib
import io
import itertools
import json
import keyword
import math
import numbers
import operator
import pprint
import random
import re
import shlex
import statistics
import string
import struct
import sys
import textwrap
import time
import tokenize
import tomllib
import types
import typing
import unicodedata
import urllib.parse
import uuid
import xml.etree.ElementPath
import xml.etree.ElementTree
import xml.sax.saxutils
import zlib
from collections.abc import Callable, Iterable, Mapping
from keyword import iskeyword
from typing import Any, Final, NoReturn

from . import standins
from .standins import GRADER_MODULE as GRADER_MODULE

INSPECTED: Final = frozenset(
    name
    for kind in (
        types.GeneratorType,
        types.CoroutineType,
        types.AsyncGeneratorType,
        types.FrameType,
        types.TracebackType,
        types.CodeType,
    )
    for name in dir(kind)
    if name.startswith(("gi_", "cr_", "ag_", "f_", "tb_", "co_"))
) | {"gi_frame", "gi_code", "gi_yieldfrom", "cr_frame", "cr_code", "cr_await", "cr_origin", "ag_frame", "ag_code",
     "ag_await", "f_back", "f_builtins", "f_code", "f_generator", "f_globals", "f_locals", "f_trace", "tb_frame",
     "tb_next", "func_globals", "func_code"}  # fmt: skip
"""Attributes of generators, coroutines, frames, tracebacks and code objects: each leads to globals."""


class Facade:
    """A module as a grader sees it: the listed names, read-only."""

    _module: str
    # No `__name__`: `from json import scanner` falls back on sys.modules[f"{module.__name__}.scanner"], a real module.
    __slots__ = ("__dict__", "_module")

    def __init__(self, module: str, names: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_module", module)
        self.__dict__.update(names)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{self._module} is read-only for graders")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{self._module} is read-only for graders")

    def __getattr__(self, name: str) -> NoReturn:
        there_is = ", ".join(sorted(exported(self._module)))
        raise AttributeError(f"graders have no {self._module}.{name}; there is: {there_is}")

    def __repr__(self) -> str:
        return f"<module {self._module!r} as graders see it>"


def _all(module: types.ModuleType, *, without: Iterable[str] = ()) -> tuple[str, ...]:
    names: Iterable[str] = getattr(module, "__all__", None) or [
        name for name in vars(module) if not name.startswith("_")
    ]
    skipped = set(without)
    return tuple(
        name
        for name in names
        if name not in skipped
        and not name.startswith("_")
        and hasattr(module, name)
        and not isinstance(getattr(module, name), types.ModuleType)
    )


def _pick(module: types.ModuleType, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(module, name) for name in names if hasattr(module, name)}


def _exact(value: Any) -> Any:
    """Return a text as a str, bytes as bytes; anything else as it is."""
    kind = type(value)
    if kind is str or kind is bytes:
        return value
    if issubclass(kind, str):
        return str.__str__(value)
    return bytes(memoryview(value)) if issubclass(kind, bytes) else value


def _exact_flags(flags: Any) -> Any:
    return flags if type(flags) is int or type(flags) is re.RegexFlag else operator.index(flags)


def _with_exact_format(function: Any) -> Any:
    @functools.wraps(function)
    def call(format: Any, *args: Any, **kwargs: Any) -> Any:
        return function(_exact(format), *args, **kwargs)

    return call


_AST_NODES: Final = tuple(
    name
    for name, value in vars(ast).items()
    if isinstance(value, type) and issubclass(value, ast.AST) and not name.startswith("_")
)

# Left out on purpose are names that reach files, processes, the interpreter or state that outlives a sample:
# json.codecs, random.SystemRandom, csv.register_dialect; names that run text as code: typing.get_type_hints,
# the ElementTree class (it opens files), string.Formatter, collections.UserString (its format reaches
# attributes); and names whose attributes are modules (pathlib's classes). Functions that get or set attributes under
# names they are told (operator.attrgetter, functools.wraps, ast.iter_fields) are replaced.
_MODULES: Final[dict[str, dict[str, Any]]] = {
    "__future__": dict.fromkeys(
        (
            "annotations",
            "division",
            "print_function",
            "unicode_literals",
            "absolute_import",
            "generators",
            "nested_scopes",
            "with_statement",
            "generator_stop",
        )
    ),
    "abc": _pick(abc, ["ABC"]),
    "array": _pick(array, ["array"]),
    "ast": _pick(
        ast,
        ["literal_eval", "NodeVisitor", "NodeTransformer", *_AST_NODES],
    ),
    "asyncio": {
        "BoundedSemaphore": standins.Semaphore,
        "Lock": standins.Semaphore,
        "Semaphore": standins.Semaphore,
        "Task": standins.Task,
        "TimeoutError": TimeoutError,
        "create_task": standins.create_task,
        "ensure_future": standins.create_task,
        "gather": standins.gather,
        "iscoroutinefunction": lambda function: (
            type(function) is types.FunctionType and bool(function.__code__.co_flags & 0x80)
        ),
        "run": standins.run,
        "sleep": standins.sleep,
        "to_thread": standins.to_thread,
        "wait_for": standins.wait_for,
    },
    "base64": _pick(base64, _all(base64, without=["encode", "decode", "main"])),
    "binascii": _pick(binascii, _all(binascii)),
    "bisect": _pick(bisect, ["bisect", "bisect_left", "bisect_right", "insort", "insort_left", "insort_right"]),
    "calendar": _pick(
        calendar,
        [
            "isleap",
            "leapdays",
            "weekday",
            "monthrange",
            "timegm",
            "MONDAY",
            "TUESDAY",
            "WEDNESDAY",
            "THURSDAY",
            "FRIDAY",
            "SATURDAY",
            "SUNDAY",
        ],
    )
    | {name: tuple(getattr(calendar, name)) for name in ("day_name", "day_abbr", "month_name", "month_abbr")},
    "cmath": _pick(cmath, _all(cmath)),
    "collections": _pick(
        collections, ["Counter", "OrderedDict", "defaultdict", "deque", "ChainMap", "UserDict", "UserList"]
    ),
    "collections.abc": _pick(collections.abc, _all(collections.abc)),
    "colorsys": _pick(colorsys, _all(colorsys)),
    "contextlib": _pick(
        contextlib,
        [
            "contextmanager",
            "asynccontextmanager",
            "aclosing",
            "AsyncExitStack",
            "AbstractAsyncContextManager",
            "suppress",
            "nullcontext",
            "closing",
            "ExitStack",
            "ContextDecorator",
            "AbstractContextManager",
        ],
    ),
    "copy": _pick(copy, ["copy", "deepcopy", "replace", "Error", "error"]),
    "csv": _pick(
        csv,
        [
            "reader",
            "writer",
            "DictReader",
            "DictWriter",
            "Error",
            "QUOTE_ALL",
            "QUOTE_MINIMAL",
            "QUOTE_NONNUMERIC",
            "QUOTE_NONE",
            "QUOTE_STRINGS",
            "QUOTE_NOTNULL",
            "excel",
            "excel_tab",
            "unix_dialect",
            "Dialect",
        ],
    ),
    "dataclasses": _pick(
        dataclasses,
        [
            "field",
            "fields",
            "asdict",
            "astuple",
            "replace",
            "is_dataclass",
            "FrozenInstanceError",
            "InitVar",
            "KW_ONLY",
            "MISSING",
        ],
    ),
    "datetime": _pick(
        datetime, ["date", "datetime", "time", "timedelta", "timezone", "tzinfo", "MINYEAR", "MAXYEAR", "UTC"]
    ),
    "decimal": _pick(decimal, _all(decimal, without=["DefaultContext", "BasicContext", "ExtendedContext"])),
    "difflib": _pick(
        difflib,
        [
            "SequenceMatcher",
            "Differ",
            "get_close_matches",
            "ndiff",
            "unified_diff",
            "context_diff",
            "restore",
            "IS_LINE_JUNK",
            "IS_CHARACTER_JUNK",
        ],
    ),
    "enum": _pick(
        enum,
        [
            "Enum",
            "IntEnum",
            "StrEnum",
            "Flag",
            "IntFlag",
            "ReprEnum",
            "auto",
            "unique",
            "member",
            "nonmember",
            "property",
            "STRICT",
            "CONFORM",
            "EJECT",
            "KEEP",
        ],
    ),
    "fnmatch": _pick(fnmatch, ["fnmatch", "fnmatchcase", "filter", "translate"]),
    "fractions": _pick(fractions, ["Fraction"]),
    "functools": _pick(
        functools, ["reduce", "partial", "partialmethod", "lru_cache", "cache", "cmp_to_key", "cached_property"]
    ),
    "hashlib": _pick(
        hashlib,
        [
            "md5",
            "sha1",
            "sha224",
            "sha256",
            "sha384",
            "sha512",
            "sha3_224",
            "sha3_256",
            "sha3_384",
            "sha3_512",
            "blake2b",
            "blake2s",
            "shake_128",
            "shake_256",
            "new",
            "pbkdf2_hmac",
            "scrypt",
        ],
    ),
    "heapq": _pick(
        heapq, ["heappush", "heappop", "heapify", "heapreplace", "heappushpop", "merge", "nlargest", "nsmallest"]
    ),
    "hmac": _pick(hmac, ["new", "digest", "compare_digest"]),
    "html": _pick(html, ["escape", "unescape"]),
    "html.entities": {
        name: types.MappingProxyType(getattr(html.entities, name))
        for name in ("name2codepoint", "codepoint2name", "entitydefs", "html5")
    },
    "html.parser": _pick(html.parser, ["HTMLParser"]),
    "io": _pick(io, ["StringIO", "BytesIO"]),
    "itertools": _pick(itertools, _all(itertools)),
    "json": _pick(json, ["dumps", "loads", "dump", "load", "JSONDecodeError", "JSONEncoder", "JSONDecoder"]),
    "json.decoder": _pick(json, ["JSONDecodeError", "JSONDecoder"]),
    "json.encoder": _pick(json, ["JSONEncoder"]),
    "keyword": _pick(keyword, ["iskeyword", "issoftkeyword"])
    | {"kwlist": tuple(keyword.kwlist), "softkwlist": tuple(keyword.softkwlist)},
    "math": _pick(math, _all(math)),
    "numbers": _pick(numbers, _all(numbers)),
    "operator": _pick(operator, _all(operator, without=["attrgetter", "methodcaller"])),
    "pprint": _pick(pprint, ["pformat", "pprint", "pp", "saferepr", "isreadable", "isrecursive"]),
    "random": _pick(random, ["Random"]),
    "re": _pick(
        re,
        [
            "compile",
            "match",
            "fullmatch",
            "search",
            "split",
            "findall",
            "finditer",
            "sub",
            "subn",
            "escape",
            "error",
            "PatternError",
            "Match",
            "Pattern",
            "RegexFlag",
            "A",
            "ASCII",
            "I",
            "IGNORECASE",
            "L",
            "LOCALE",
            "M",
            "MULTILINE",
            "S",
            "DOTALL",
            "X",
            "VERBOSE",
            "U",
            "UNICODE",
            "NOFLAG",
        ],
    ),
    "shlex": _pick(shlex, ["split", "quote", "join"]),
    "statistics": _pick(statistics, _all(statistics)),
    "string": _pick(
        string,
        [
            "ascii_letters",
            "ascii_lowercase",
            "ascii_uppercase",
            "digits",
            "hexdigits",
            "octdigits",
            "printable",
            "punctuation",
            "whitespace",
            "capwords",
            "Template",
        ],
    ),
    "struct": {"error": struct.error}
    | {
        name: _with_exact_format(getattr(struct, name))
        for name in ("pack", "unpack", "calcsize", "unpack_from", "iter_unpack")
    },
    "sys": _pick(
        sys,
        [
            "maxsize",
            "float_info",
            "int_info",
            "version_info",
            "version",
            "maxunicode",
            "byteorder",
            "getrecursionlimit",
        ],
    ),
    "textwrap": _pick(textwrap, ["dedent", "indent", "fill", "wrap", "shorten", "TextWrapper"]),
    "time": _pick(
        time,
        [
            "time",
            "time_ns",
            "perf_counter",
            "perf_counter_ns",
            "monotonic",
            "monotonic_ns",
            "process_time",
            "sleep",
            "gmtime",
            "localtime",
            "strftime",
            "strptime",
            "mktime",
            "asctime",
            "ctime",
            "struct_time",
        ],
    ),
    "tokenize": _pick(
        tokenize,
        [
            "generate_tokens",
            "TokenInfo",
            "TokenError",
            "NAME",
            "NUMBER",
            "STRING",
            "OP",
            "COMMENT",
            "NEWLINE",
            "NL",
            "INDENT",
            "DEDENT",
            "ENDMARKER",
            "tok_name",
        ],
    )
    | {"tok_name": types.MappingProxyType(tokenize.tok_name)},
    "types": _pick(
        types,
        [
            "SimpleNamespace",
            "MappingProxyType",
            "NoneType",
            "FunctionType",
            "LambdaType",
            "GeneratorType",
            "MethodType",
            "BuiltinFunctionType",
            "EllipsisType",
            "NotImplementedType",
            "UnionType",
            "GenericAlias",
        ],
    ),
    "tomllib": _pick(tomllib, ["loads", "TOMLDecodeError"]),
    "traceback": _pick(standins, ["format_exc", "format_exception", "format_exception_only"]),
    "typing": _pick(
        typing,
        _all(
            typing,
            without=[
                "get_type_hints",
                "ForwardRef",
                "overload",
                "get_overloads",
                "clear_overloads",
                "final",
                "no_type_check",
                "no_type_check_decorator",
                "runtime_checkable",
                "dataclass_transform",
                "evaluate_forward_ref",
                "override",
            ],
        ),
    ),
    "unicodedata": _pick(unicodedata, _all(unicodedata, without=["ucnhash_CAPI"])),
    "urllib": {},
    "urllib.parse": _pick(
        urllib.parse,
        [
            "urlparse",
            "urlsplit",
            "urlunparse",
            "urlunsplit",
            "urljoin",
            "urldefrag",
            "urlencode",
            "parse_qs",
            "parse_qsl",
            "quote",
            "quote_plus",
            "unquote",
            "unquote_plus",
            "quote_from_bytes",
            "unquote_to_bytes",
            "ParseResult",
            "SplitResult",
        ],
    ),
    "uuid": _pick(
        uuid, ["UUID", "uuid3", "uuid4", "uuid5", "NAMESPACE_DNS", "NAMESPACE_OID", "NAMESPACE_URL", "NAMESPACE_X500"]
    ),
    "warnings": {
        "catch_warnings": standins.CatchWarnings,
        "filterwarnings": standins.ignore,
        "resetwarnings": standins.ignore,
        "simplefilter": standins.ignore,
    },
    "xml": {},
    "xml.etree": {},
    "xml.etree.ElementTree": _pick(
        xml.etree.ElementTree,
        [
            "fromstring",
            "XML",
            "fromstringlist",
            "tostring",
            "tostringlist",
            "Element",
            "SubElement",
            "Comment",
            "ParseError",
            "XMLParser",
            "indent",
            "iselement",
        ],
    ),
    "xml.sax": {},
    "xml.sax.saxutils": _pick(xml.sax.saxutils, ["escape", "unescape", "quoteattr"]),
    "zlib": _pick(zlib, ["compress", "decompress", "crc32", "adler32", "error"]),
}

_REPLACED: Final[dict[str, tuple[str, ...]]] = {
    "abc": ("ABCMeta", "abstractmethod"),
    "ast": (
        "parse", "walk", "dump", "unparse", "iter_child_nodes", "iter_fields", "get_docstring", "get_source_segment",
        "copy_location", "fix_missing_locations",
    ),
    "collections": ("namedtuple",),
    "dataclasses": ("dataclass",),
    "functools": ("singledispatch", "total_ordering", "update_wrapper", "wraps"),
    "logging": (*standins.logging_names(print),),
    "operator": ("attrgetter", "methodcaller"),
    "random": (
        "betavariate", "binomialvariate", "choice", "choices", "expovariate", "gammavariate", "gauss", "getrandbits",
        "getstate", "lognormvariate", "normalvariate", "paretovariate", "randbytes", "randint", "random", "randrange",
        "sample", "seed", "setstate", "shuffle", "triangular", "uniform", "vonmisesvariate", "weibullvariate",
    ),
    "sys": ("exc_info", "exit", "setrecursionlimit", "stderr", "stdout"),
    "traceback": ("print_exc",),
    "typing": ("final", "no_type_check", "overload", "override", "runtime_checkable"),
    "warnings": ("warn",),
}  # fmt: skip
"""Names that a run provides itself (`guards.Namespace`): they depend on it, or need a check of their arguments."""

MODULES: Final[tuple[str, ...]] = tuple(sorted({*_MODULES, *_REPLACED}))
"""Every module name that a grader may import."""

_SUBMODULES: Final[dict[str, tuple[str, ...]]] = {
    name: tuple(other for other in MODULES if other.startswith(f"{name}.") and "." not in other[len(name) + 1 :])
    for name in MODULES
}


_REPLACED["random"] = tuple(name for name in _REPLACED["random"] if hasattr(random.Random, name))
_exported: Final = {module: (*_MODULES.get(module, ()), *_REPLACED.get(module, ())) for module in MODULES}


def exported(module: str) -> tuple[str, ...]:
    """Return the names that a grader may take from a module, without its submodules; empty for an unknown module."""
    return _exported.get(module, ())


def submodules(module: str) -> tuple[str, ...]:
    """Return the last parts of the names of a module's submodules."""
    return tuple(name.rpartition(".")[2] for name in _SUBMODULES.get(module, ()))


def build(module: str, replaced: Callable[[str, str], Any]) -> Facade:
    """Return the facade of a module: a fresh one where it has names of the run, else one for all runs.

    Args:
        module: One of `MODULES`.
        replaced: Gives the value of a name that depends on the run, by module and name.
    """
    shared = _shared.get(module)
    if shared is not None:
        return shared
    names = dict(_MODULES.get(module, ()))
    for name in exported(module)[len(names) :]:
        names[name] = replaced(module, name)
    for submodule in _SUBMODULES[module]:
        names[submodule.rpartition(".")[2]] = build(submodule, replaced)
    facade = Facade(module, names)
    if module not in _REPLACED and all(name in _shared for name in _SUBMODULES[module]):
        _shared[module] = facade
    return facade


_shared: dict[str, Facade] = {}


def is_safe_name(name: object) -> bool:
    """Whether a name may become the name of a field.

    An exact str, an identifier, no keyword, not `__dunder__`; and since `case C(x)` reads the attributes that fields
    name from whatever passes for a C, none that leads into the interpreter.
    """
    return (
        type(name) is str
        and name.isidentifier()
        and not iskeyword(name)
        and not name.startswith("__")
        and name not in INSPECTED
    )


def harden() -> None:
    """Close the doors of the standard library that facades cannot; in this process, for children only."""
    enum_type: Any = enum.EnumType
    enum_type._create_ = _checked_create(enum_type._create_)
    copy._reconstruct = _reconstruct  # type: ignore[attr-defined]
    # `typing.NamedTuple` makes its classes with it, too.
    collections.namedtuple = _checked_namedtuple(collections.namedtuple)
    # Caches of the library are dicts, and a dict asks its keys: only exact texts and numbers may become such keys.
    regex: Any = re
    compile_pattern = regex._compile
    regex._compile = lambda pattern, flags: compile_pattern(_exact(pattern), _exact_flags(flags))
    strptime: Any = importlib.import_module("_strptime")
    parse_time = strptime._strptime
    strptime._strptime = lambda data_string, format="%a %b %d %H:%M:%S %Y": parse_time(data_string, _exact(format))
    paths: Any = xml.etree.ElementPath
    iterate = paths.iterfind
    paths.iterfind = lambda elem, path, namespaces=None: iterate(
        elem, _exact(path), {_exact(key): _exact(name) for key, name in dict.items(namespaces or {})} or None
    )
    # The visitors set and read what the fields of a node name.
    fields_of = ast.iter_fields
    ast.iter_fields = lambda node: fields_of(node if type(node) in NODE_TYPES else _no_node(node))
    # The one container among all that a grader reaches which it could change for good.
    wrapper: Any = textwrap.TextWrapper
    wrapper.unicode_whitespace_trans = types.MappingProxyType(wrapper.unicode_whitespace_trans)


NODE_TYPES: Final = frozenset(
    value for value in vars(ast).values() if isinstance(value, type) and issubclass(value, ast.AST)
)
"""The classes of `ast`: only of their objects is it known that `_fields` names fields."""


def _no_node(value: Any) -> NoReturn:
    raise TypeError(f"expected AST, got {type(value).__name__!r}")


def _checked_create(create: Any) -> Any:
    # A functional Enum takes any name, `__reduce_ex__` and `__match_args__` too, which no class statement may bind.
    def checked_create(cls: Any, class_name: Any, names: Any, *args: Any, **kwargs: Any) -> Any:
        if type(names) is str:
            names = names.replace(",", " ").split()
        if names is not None:
            names = list(names.items()) if isinstance(names, dict) else list(names)
            # Taken apart here and only once: an entry may answer differently when it is asked again.
            names = [entry if isinstance(entry, str) else tuple(entry) for entry in names]
        for entry in names or ():
            name = entry if isinstance(entry, str) else entry[0]
            if not is_safe_name(name):
                raise ValueError(f"an Enum member cannot be named {name!r}")
        if type(class_name) is not str:
            raise TypeError("the name of an Enum must be a str")
        return create(cls, class_name, names, *args, **kwargs)

    return checked_create


def _checked_namedtuple(make: Any) -> Any:
    def namedtuple(typename: Any, field_names: Any, **options: Any) -> Any:
        if isinstance(field_names, str):
            field_names = field_names.replace(",", " ").split()
        field_names = list(map(str, field_names))
        for name in field_names:
            if type(name) is not str or name in INSPECTED:
                raise ValueError(f"a field cannot be named {name!r}")
        return make(typename, field_names, **options)

    return namedtuple


def _reconstruct(
    x: Any, memo: Any, func: Any, args: Any, state: Any = None, items: Any = None, pairs: Any = None, **ignored: Any
) -> Any:
    """`copy._reconstruct`, which sets attributes on an object of the copied one's own type only.

    What is to be made, and with which state, may come from the grader: `__reduce_ex__` is an attribute like any other.
    """
    deep = memo is not None
    if deep and args:
        args = tuple(copy.deepcopy(argument, memo) for argument in args)
    y = func(*args)
    if deep:
        memo[id(x)] = y
    if state is not None:
        if type(y) is not type(x) or (func not in _MAKERS and func is not type(x)):
            raise TypeError(f"cannot copy {type(x).__name__}: its state would be set on something else")
        if deep:
            state = copy.deepcopy(state, memo)
        if hasattr(y, "__setstate__"):
            y.__setstate__(state)
        else:
            slots = None
            if type(state) is tuple and len(state) == 2:
                state, slots = state
            if state is not None:
                y.__dict__.update(state)
            if slots is not None:
                if type(slots) is not dict or any(type(name) is not str or name.startswith("__") for name in slots):
                    raise TypeError(f"cannot copy {type(x).__name__}: its state holds special names")
                for name, value in slots.items():
                    setattr(y, name, value)
    for item in items or ():
        y.append(copy.deepcopy(item, memo) if deep else item)
    for key, value in pairs or ():
        if deep:
            key, value = copy.deepcopy(key, memo), copy.deepcopy(value, memo)
        y[key] = value
    return y


_newobj: Any = copyreg
_MAKERS: Final = (_newobj.__newobj__, _newobj.__newobj_ex__, _newobj._reconstructor, iter, reversed)
