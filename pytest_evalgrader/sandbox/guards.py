"""What the guards of the language layer do when a grader runs: attributes, classes, imports and builtins.

A `Namespace` is one run of a grader's module: fresh globals, fresh facades, and the classes that it made. Standard
library only. Guards never ask an object what it is (`__class__` can lie); they ask `type`.
"""

from __future__ import annotations

import _string  # type: ignore[import-not-found]
import abc
import ast
import builtins
import collections
import dataclasses
import decimal
import functools
import html.parser
import random
import string
import sys
import textwrap
import types
import typing
import weakref
import xml.etree.ElementTree
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NoReturn

from . import facades, policy, standins

_FUNCTION: Final = types.FunctionType
_BUILTIN_METHOD: Final = types.BuiltinFunctionType

# Names with one underscore that are documented for the classes that a grader makes from these.
_PUBLIC_UNDERSCORES: Final = frozenset(
    {
        "_replace",
        "_asdict",
        "_fields",
        "_make",
        "_field_defaults",
        "_missing_",
        "_value_",
        "_name_",
        "_generate_next_value_",
    }
)
# Objects of the standard library whose attributes are meant to be set.
_SETTABLE: Final = frozenset(
    {
        collections.ChainMap,
        collections.UserDict,
        collections.UserList,
        collections.defaultdict,
        decimal.Context,
        functools.partial,
        html.parser.HTMLParser,
        standins.Logger,
        textwrap.TextWrapper,
        types.SimpleNamespace,
        xml.etree.ElementTree.Element,
    }
    # Those without fields (`ast.Load`) are one object for all trees.
    | {kind for kind in facades.NODE_TYPES if kind._fields}
)

_slots = {name: vars(super)[name].__get__ for name in ("__self__", "__self_class__", "__thisclass__")}
_mro_of: Final = vars(type)["__mro__"].__get__
_instance_dict_of_class: Final = vars(type)["__dict__"].__get__


class _TypeMeta(type):
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is not Type:
            return type.__call__(cls, *args, **kwargs)
        if len(args) == 1 and not kwargs:
            return type_of(args[0])
        raise TypeError("type() with three arguments is not available to graders; write a class statement")

    def __instancecheck__(cls, instance: object) -> bool:
        return issubclass(type(instance), type)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return subclass is Type or issubclass(subclass, type)

    def __repr__(cls) -> str:
        return "<class 'type'>"

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is type

    def __hash__(cls) -> int:
        return hash(type)


class Type(metaclass=_TypeMeta):
    """`type` as a grader sees it: it tells an object's type and makes none. A real metaclass could make any class."""

    __class_getitem__: Any = classmethod(types.GenericAlias)


Type.__name__ = Type.__qualname__ = "type"


class ABCMetaName(metaclass=_TypeMeta):
    """Stands for abc.ABCMeta in `class C(metaclass=ABCMeta)`."""


def type_of(value: object) -> Any:
    """Return the type of a value; of a class, the stand-in for `type`."""
    kind = type(value)
    return Type if issubclass(kind, type) else kind


# Classes of ours that a grader can reach through `type(x)` and has no business extending.
_INTERNAL: Final = (Type, ABCMetaName, facades.Facade)


def safe_format(template: str, /, *args: Any, **kwargs: Any) -> str:
    """`str.format` with guarded attributes: `{0.__class__}` is refused."""
    template = str.__str__(template)
    if _has_no_attributes(template):
        return str.format(template, *args, **kwargs)
    return _formatter.vformat(template, args, kwargs)


def safe_format_map(template: str, mapping: Any, /) -> str:
    """`str.format_map` with guarded attributes."""
    template = str.__str__(template)
    if _has_no_attributes(template):
        return str.format_map(template, mapping)
    return _formatter.vformat(template, (), mapping)


def _has_no_attributes(template: str) -> bool:
    for _, field, spec, _ in _parse_template(template):
        if (field and "." in field) or (spec and "{" in spec and not _has_no_attributes(spec)):
            return False
    return True


class _Formatter(string.Formatter):
    # The same fields, numbering and nesting as str.format; attributes go through the guard.

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[Any, Any]:
        first, rest = _split_field(field_name)
        value = self.get_value(first, args, kwargs)
        for is_attribute, name in rest:
            value = namespace_getattr(value, name) if is_attribute else value[name]
        return value, first

    def format_field(self, value: Any, format_spec: str) -> str:
        return format(value, format_spec)

    def vformat(self, format_string: str, args: Any, kwargs: Any) -> str:
        result, _ = self._vformat(format_string, args, kwargs, set(), 2)
        return result


_formatter = _Formatter()
_parse_template: Final[Callable[[str], Iterable[tuple[str, str | None, str | None, str | None]]]] = (
    _string.formatter_parser
)
_split_field: Final[Callable[[str], tuple[Any, Iterable[tuple[bool, Any]]]]] = _string.formatter_field_name_split


def namespace_getattr(value: Any, name: str) -> Any:
    """The guard of attributes, for names that come as texts."""
    if type(name) is not str:
        raise TypeError("an attribute name must be a str")
    if not policy.is_readable(name):
        raise AttributeError(f"`.{name}` is not available to graders")
    namespace = Namespace.current
    if namespace is None:
        raise AttributeError("the grader has ended")
    return namespace.getattr(value, name)


class Namespace:
    """One run of a grader's module.

    Args:
        printed: Takes what the grader prints.
        seed: Seeds `random`.
        guarded: Whether the language layer is on; without it, this is plain Python.
    """

    current: Namespace | None = None

    def __init__(self, printed: Any, seed: str, *, guarded: bool) -> None:
        self._printed = printed
        self._seed = seed
        self._guarded = guarded
        self._facades: dict[str, facades.Facade] = {}
        self._own: set[type] = set()
        self._random: random.Random | None = None
        self._logging: dict[str, Any] | None = None
        self.globals: dict[str, Any] = {"__name__": facades.GRADER_MODULE, "__doc__": None}
        if guarded:
            provided = _BUILTINS.copy()
            provided["__build_class__"] = _plain(self._build_class)
            provided["__import__"] = _plain(self._import)
            provided["getattr"] = _plain(self._getattr)
            provided["hasattr"] = _plain(self._hasattr)
            provided["setattr"] = _plain(self._setattr)
            provided["delattr"] = _plain(self._delattr)
            provided["vars"] = _plain(self._vars)
            provided[policy.GETATTR] = self.getattr
            provided[policy.WRITABLE] = self.writable
            self.globals["__builtins__"] = provided
        else:
            random.seed(seed)
            decimal.setcontext(decimal.Context(**_DECIMAL))
            sys.setrecursionlimit(_RECURSION_LIMIT)
            self.globals["__builtins__"] = builtins
        Namespace.current = self

    def close(self) -> Callable[[], bool]:
        """Let go of everything that the grader made.

        Returns:
            Tells, once garbage is collected, whether something of it is still there: in a cache of the library, say,
            where its methods would run, and answer, in a later sample.
        """
        Namespace.current = None
        if "sys" in self._facades:
            sys.setrecursionlimit(_RECURSION_LIMIT)
        # Every function of the grader holds the builtins that it was made with.
        made: list[Any] = [*self._own, self.globals["__builtins__"]["__import__"]] if self._guarded else []
        traces = [weakref.ref(thing) for thing in made]
        made.clear()
        if "typing" in self._facades:
            # Its caches compare keys with the grader's own methods, and so could carry objects into the next sample.
            for clear in _TYPING_CACHES:
                clear()
        self.globals.clear()
        self._own.clear()
        self._facades.clear()
        return lambda: any(trace() is not None for trace in traces)

    # ---------------------------------------------------------------------------------------------------- ownership

    def owns(self, value: Any) -> bool:
        """Whether an object is the grader's: its class or function, or an object of its class."""
        kind = type(value)
        if kind in self._own or kind in _SETTABLE:
            return True
        if kind is _FUNCTION:
            return value.__globals__ is self.globals
        if issubclass(kind, Exception):
            # Python keeps some of the latter for the day when there is no memory to make one.
            return not issubclass(kind, MemoryError)
        return self.made(kind) or (issubclass(kind, type) and self.made(value))

    def made(self, kind: type) -> bool:
        """Whether a class is the grader's."""
        if kind in self._own:
            return True
        # A class that is just being made (`__init_subclass__`), or that the library made for the grader. Its module is
        # the name of the frame that made it; no grader can set either name.
        if _instance_dict_of_class(kind).get("__module__") == facades.GRADER_MODULE:
            self._own.add(kind)
            return True
        return False

    def writable(self, value: Any) -> Any:
        """The guard of attribute writes: give the object back if its attributes may be set."""
        if self.owns(value):
            return value
        if type(value) in _PLAIN or issubclass(type(value), type):
            # Python's own error, with its own words, for what Python does not allow either.
            return value if type(value) in _PLAIN else _refuse_write(value)
        return _refuse_write(value)

    # --------------------------------------------------------------------------------------------------- attributes

    def getattr(self, value: Any, name: str) -> Any:
        """The guard of attribute loads, for the names that need one."""
        if name in _SPECIAL:
            return _SPECIAL[name](self, value, name)
        if name in policy.GUARDED_NAMES:
            return self._guarded_name(value, name)
        if name[:1] == "_" and name not in policy.READABLE and not self._may_read_private(value, name):
            raise AttributeError(f"`.{name}` is private to {name_of(value)} and not available to graders")
        return getattr(value, name)

    def _guarded_name(self, value: Any, name: str) -> Any:
        if name == "obj" and issubclass(type(value), AttributeError):
            raise AttributeError("`.obj` of an AttributeError is not available to graders")
        if name == "evaluate" and type(value) is typing.ForwardRef:
            raise AttributeError("`.evaluate` would run a text as code and is not available to graders")
        if name == "register" and issubclass(type(value), type) and not self.owns(value):
            raise AttributeError(
                f"{value.__name__}.register would change what every grader sees; register on a class of your own"
            )
        found = getattr(value, name)
        if type(found) is types.MethodType and found.__func__ is abc.ABCMeta.register:
            return lambda subclass: self._register(found, subclass)
        # What was found is judged, not where it was looked for: other objects forward attributes to a str.
        if type(found) is _BUILTIN_METHOD and issubclass(type(found.__self__), str):
            template = str.__str__(found.__self__)
            if name == "format":
                return lambda *args, **kwargs: safe_format(template, *args, **kwargs)
            return lambda mapping: safe_format_map(template, mapping)
        if found is str.format or found is str.format_map:
            return safe_format if name == "format" else safe_format_map
        return found

    def _register(self, real: Callable[[type], type], subclass: type) -> type:
        # `case C(x)` would take attributes from the objects of whatever class is registered.
        if not issubclass(type(subclass), type) or not self.made(subclass):
            raise TypeError(f"{name_of(subclass)} cannot be registered: only classes of the grader can")
        return real(subclass)

    def _may_read_private(self, value: Any, name: str) -> bool:
        kind = type(value)
        if kind is _FUNCTION:
            return value.__globals__ is self.globals
        after: Any = None
        if kind is super:
            owner, after = _slots["__self_class__"](value), _slots["__thisclass__"](value)
            if not self.made(owner):
                return False
        elif self.made(kind):
            owner = kind
            own_dict = _own_dict(value)
            if own_dict is not None and name in own_dict:
                return True
        elif issubclass(kind, type) and self.made(value):
            owner = value
        else:
            return name in _PUBLIC_UNDERSCORES and issubclass(kind, tuple)
        order = _mro_of(owner)
        for base in order[order.index(after) + 1 :] if after is not None else order:
            if name in _instance_dict_of_class(base):
                return self.made(base) or name in _PUBLIC_UNDERSCORES
        # Nobody has it: Python says so, or the grader's own __getattr__ does.
        return True

    def _special_class(self, value: Any, name: str) -> Any:
        return type_of(value)

    def _special_dict(self, value: Any, name: str) -> Any:
        if issubclass(type(value), type) and self.made(value):
            names = _instance_dict_of_class(value).items()
            return types.MappingProxyType(
                {key: entry for key, entry in names if not _is_dunder(key) or key in ("__doc__", "__module__")}
            )
        own_dict = _own_dict(value) if self.made(type(value)) else None
        if own_dict is None:
            raise AttributeError("`.__dict__` is available for objects of the grader's own classes only")
        return own_dict

    def _special_annotations(self, value: Any, name: str) -> Any:
        if not self.owns(value):
            raise AttributeError("`.__annotations__` is available for the grader's own classes and functions only")
        return dict(value.__annotations__)

    def _special_own(self, value: Any, name: str) -> Any:
        if not self.made(type(value)) and not (issubclass(type(value), type) and self.made(value)):
            raise AttributeError(f"`.{name}` is available for the grader's own classes only")
        found = getattr(value, name)
        return dict(found) if type(found) is dict else found

    def _special_text(self, value: Any, name: str) -> Any:
        found = getattr(value, name)
        if found is None or issubclass(type(found), (str, bool, list)) or issubclass(type(found), BaseException):
            return found
        if type(found) is types.MappingProxyType:
            return found
        raise AttributeError(f"`.{name}` is not available to graders")

    def _special_wrapped(self, value: Any, name: str) -> Any:
        found = getattr(value, name)
        if type(found) is _FUNCTION and self.owns(found):
            return found
        raise AttributeError("`.__wrapped__` is not available to graders")

    def _special_setter(self, value: Any, name: str) -> Any:
        # object.__setattr__(self, name, x), super().__setattr__(name, x), and their deletions.
        if value is object or (issubclass(type(value), type) and self.made(value)):
            real = getattr(value, name)

            def unbound(target: Any, attribute: str, *values: Any) -> None:
                _check_written(attribute)
                real(self.writable(target), attribute, *values)

            return unbound
        if self.made(type(value)) or self._is_own_super(value):
            real = getattr(value, name)

            def bound(attribute: str, *values: Any) -> None:
                _check_written(attribute)
                real(attribute, *values)

            return bound
        raise AttributeError(f"`.{name}` is available on object, super() and the grader's own classes only")

    def _special_getter(self, value: Any, name: str) -> Any:
        # The real object.__getattribute__ reads any attribute of any object, so graders get a guarded one.
        if value is object or (issubclass(type(value), type) and self.made(value)):
            found = getattr(value, name)
            return found if self._is_own_function(found) else self._read
        if self.made(type(value)):
            found = getattr(value, name)
            if type(found) is types.MethodType and self._is_own_function(found.__func__):
                return found
            return lambda attribute: self._read(value, attribute)
        if self._is_own_super(value):
            found = getattr(value, name)
            if type(found) is types.MethodType and self._is_own_function(found.__func__):
                return found
            target = _slots["__self__"](value)
            return lambda attribute: self._read(target, attribute)
        raise AttributeError(f"`.{name}` is available on object, super() and the grader's own classes only")

    def _read(self, target: Any, attribute: str) -> Any:
        """object.__getattribute__ for graders: past an own `__getattribute__`, never past the guard."""
        _check_read(attribute)
        if attribute in _SPECIAL:
            return _SPECIAL[attribute](self, target, attribute)
        if attribute in policy.GUARDED_NAMES:
            return self._guarded_name(target, attribute)
        if attribute[:1] == "_" and attribute not in policy.READABLE and not self._may_read_private(target, attribute):
            raise AttributeError(f"`.{attribute}` is private to {name_of(target)} and not available to graders")
        return object.__getattribute__(target, attribute)

    def _is_own_function(self, value: Any) -> bool:
        return type(value) is _FUNCTION and value.__globals__ is self.globals

    def _is_own_super(self, value: Any) -> bool:
        return type(value) is super and self.made(_slots["__self_class__"](value))

    def _special_maker(self, value: Any, name: str) -> Any:
        # `super().__init__()` and its like. On what is not the grader's, they would make a shared object anew.
        kind = type(value)
        if self._is_own_super(value):
            unbound = issubclass(type(_slots["__self__"](value)), type)
        elif self.made(kind):
            unbound = False
        elif issubclass(kind, type) and (name == "__init__" or self.made(value)):
            unbound = True
        else:
            raise AttributeError(f"`.{name}` is available on super() and the grader's own classes only")
        real = getattr(value, name)
        if not unbound or name == "__init_subclass__" or self._is_own_function(real):
            return real

        def call(target: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.made(type(target)):
                raise TypeError(f"`.{name}` of {name_of(value)} is available for objects of the grader's own classes")
            return real(target, *args, **kwargs)

        return call

    def _special_new(self, value: Any, name: str) -> Any:
        if self._is_own_super(value) or (
            issubclass(type(value), type) and (self.made(value) or value in _PLAIN_CLASSES)
        ):
            return getattr(value, name)
        raise AttributeError("`.__new__` is available on super() and the grader's own classes only")

    # ----------------------------------------------------------------------------------------------------- builtins

    def _getattr(self, value: Any, name: str, /, *default: Any) -> Any:
        if type(name) is not str:
            raise TypeError("attribute name must be string")
        if not policy.is_readable(name):
            raise AttributeError(f"`.{name}` is not available to graders")
        if len(default) > 1:
            raise TypeError(f"getattr expected at most 3 arguments, got {len(default) + 2}")
        try:
            return self.getattr(value, name)
        except AttributeError:
            if default:
                return default[0]
            raise

    def _hasattr(self, value: Any, name: str, /) -> bool:
        if type(name) is not str:
            raise TypeError("attribute name must be string")
        try:
            if not policy.is_readable(name):
                return False
            self.getattr(value, name)
        except AttributeError:
            return False
        return True

    def _setattr(self, value: Any, name: str, new: Any, /) -> None:
        _check_written(name)
        setattr(self.writable(value), name, new)

    def _delattr(self, value: Any, name: str, /) -> None:
        _check_written(name)
        delattr(self.writable(value), name)

    def _vars(self, value: Any = None, /) -> Any:
        if value is None:
            raise TypeError("vars() without an object is not available to graders; use a dict of your own")
        if type(value) is types.SimpleNamespace:
            return vars(value)
        return self._special_dict(value, "__dict__")

    def _build_class(self, body: Any, name: str, /, *bases: Any, metaclass: Any = None, **keywords: Any) -> Any:
        # What an object puts in place of itself (`__mro_entries__`) can be relied on where the library made it.
        for base in bases:
            kind = type(base)
            named: Any = (typing.NamedTuple, typing.TypedDict)
            if issubclass(kind, type) or kind is types.GenericAlias or base is named[0] or base is named[1]:
                continue
            if self.made(kind) or kind.__module__ != "typing":
                raise TypeError(f"class {name}: its base {name_of(base)}(…) is no class")
        classes = [base for base in types.resolve_bases(bases) if issubclass(type(base), type)]
        for base in classes:
            if issubclass(base, _UNEXTENDABLE):
                raise TypeError(f"class {name}: {name_of(base)} cannot be subclassed by graders")
            for field in getattr(base, "__match_args__", ()):
                if field in policy.GUARDED_NAMES and any(issubclass(other, _GUARDED_KINDS) for other in classes):
                    raise TypeError(f"class {name}: a field cannot be named {field!r} here")
        if metaclass is ABCMetaName:
            keywords["metaclass"] = abc.ABCMeta
        elif metaclass is not None and metaclass is not Type:
            raise TypeError(f"class {name}: graders cannot define metaclasses; use a class decorator")
        made = builtins.__build_class__(body, name, *bases, **keywords)
        if issubclass(type(made), type):
            self._own.add(made)
        return made

    def _import(self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if name not in facades.MODULES or level:
            if name in sys.modules and not level and type(fromlist) is list:
                # No import statement, which gives None or a tuple: C code (datetime.strptime) asks here for what it
                # then takes from sys.modules itself.
                return None
            raise ModuleNotFoundError(f"graders cannot import {name}", name=name)
        wanted = name if fromlist else name.partition(".")[0]
        facade = self._facades.get(wanted)
        if facade is None:
            if wanted == "decimal":
                decimal.setcontext(decimal.Context(**_DECIMAL))
            facade = self._facades[wanted] = facades.build(wanted, self._replaced)
        return facade

    # ---------------------------------------------------------------------------- names of modules that a run provides

    def _replaced(self, module: str, name: str) -> Any:
        if module == "random":
            if self._random is None:
                self._random = random.Random(self._seed)
            return getattr(self._random, name)
        if module == "sys" and name in ("stdout", "stderr"):
            return self._printed
        if module == "logging":
            if self._logging is None:
                self._logging = standins.logging_names(self._print_line)
            return self._logging[name]
        shared = _SHARED.get((module, name))
        if shared is not None:
            return shared
        return _plain(getattr(self, f"_{module}_{name}"))

    def _print_line(self, text: str) -> None:
        self._printed.write(f"{text}\n")

    def _traceback_print_exc(self, *ignored: Any, **options: Any) -> None:
        self._printed.write(standins.format_exc())

    def _warnings_warn(self, message: Any, category: Any = UserWarning, *ignored: Any, **options: Any) -> None:
        kind = type(message) if issubclass(type(message), Warning) else category
        self._print_line(f"{name_of(kind)}: {message}")

    def _functools_singledispatch(self, function: Any) -> Any:
        return self._functools_update_wrapper(standins.singledispatch(function, self._class_named), function)

    def _class_named(self, function: Any, name: str) -> Any:
        # A name and no more: an annotation that is a text is never evaluated.
        if not name.isidentifier() or _is_dunder(name):
            raise TypeError(f"register() finds no class named {name!r}")
        return self.globals.get(name, self.globals["__builtins__"].get(name))

    def _abc_abstractmethod(self, function: Any) -> Any:
        if type(function) is _FUNCTION and not self.owns(function):
            raise TypeError("abstractmethod takes a function of the grader")
        return abc.abstractmethod(function)

    def _dataclasses_dataclass(self, cls: Any = None, /, **options: Any) -> Any:
        def decorate(decorated: Any) -> Any:
            if not issubclass(type(decorated), type) or not self.made(decorated):
                raise TypeError("dataclass takes a class of the grader")
            # The names become the text of generated methods, and what `case C(x)` reads.
            guarded = issubclass(decorated, _GUARDED_KINDS) or "_is_protocol" in _instance_dict_of_class(decorated)
            for field in _own_annotations(decorated):
                if not facades.is_safe_name(field) or (guarded and field in policy.GUARDED_NAMES):
                    raise TypeError(f"a field cannot be named {field!r}")
            made: Any = dataclasses.dataclass(**options)(decorated)
            self._own.add(made)
            return made

        return decorate if cls is None else decorate(cls)

    def _functools_total_ordering(self, cls: Any) -> Any:
        if not self.owns(cls):
            raise TypeError("total_ordering takes a class of the grader")
        return functools.total_ordering(cls)

    def _functools_update_wrapper(self, wrapper: Any, wrapped: Any, *ignored: Any, **options: Any) -> Any:
        if ignored or options:
            raise TypeError("update_wrapper takes two arguments in graders")
        if self.owns(wrapper):
            for name in ("__name__", "__qualname__", "__doc__", "__module__"):
                text = getattr(wrapped, name, None)
                if type(text) is str:
                    object.__setattr__(wrapper, name, text) if type(wrapper) is not _FUNCTION else setattr(
                        wrapper, name, text
                    )
            if type(wrapper) is _FUNCTION:
                if type(wrapped) is _FUNCTION and self.owns(wrapped):
                    wrapper.__dict__.update(wrapped.__dict__)
                wrapper.__wrapped__ = wrapped  # type: ignore[attr-defined]
        return wrapper

    def _functools_wraps(self, wrapped: Any, *ignored: Any, **options: Any) -> Any:
        if ignored or options:
            raise TypeError("wraps takes one argument in graders")
        return lambda wrapper: self._functools_update_wrapper(wrapper, wrapped)

    def _typing_runtime_checkable(self, cls: Any) -> Any:
        if not self.owns(cls):
            raise TypeError("runtime_checkable takes a class of the grader")
        return typing.runtime_checkable(cls)

    def _operator_attrgetter(self, *names: str) -> Any:
        if not names:
            raise TypeError("attrgetter expected 1 argument, got 0")
        paths = []
        for name in names:
            if type(name) is not str:
                raise TypeError("attribute name must be a string")
            paths.append(name.split("."))

        def get(value: Any) -> Any:
            found = []
            for path in paths:
                inner = value
                for part in path:
                    inner = self._getattr(inner, part)
                found.append(inner)
            return found[0] if len(found) == 1 else tuple(found)

        return get

    def _operator_methodcaller(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        if type(name) is not str:
            raise TypeError("method name must be a string")
        return lambda value: self._getattr(value, name)(*args, **kwargs)

    def _collections_namedtuple(
        self, typename: str, field_names: Any, *, rename: bool = False, defaults: Any = None, module: Any = None
    ) -> Any:
        if type(field_names) is str:
            field_names = field_names.replace(",", " ").split()
        field_names = list(field_names)
        # The names become the text of a generated function.
        for name in (typename, *field_names):
            if type(name) is not str:
                raise TypeError("Type names and field names must be strings")
        make: Any = collections.namedtuple
        made = make(typename, field_names, rename=rename, defaults=defaults, module=facades.GRADER_MODULE)
        self._own.add(made)
        return made


def _plain(method: Callable[..., Any]) -> Callable[..., Any]:
    # Never a bound method: copy.deepcopy copies what one is bound to, and shows the copies to `__deepcopy__`.
    def call(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs)

    return call


def name_of(value: Any) -> str:
    """Return how an object is called in a message; runs no code of it."""
    named = value if issubclass(type(value), type) else type(value)
    return str.__str__(named.__name__)


def _refuse_write(value: Any) -> NoReturn:
    raise AttributeError(
        f"attributes of {name_of(value)} cannot be set: a grader sets those of its own classes and functions only"
    )


def _own_dict(value: Any) -> dict[str, Any] | None:
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return found if type(found) is dict else None


def _own_annotations(cls: type) -> Iterable[Any]:
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(cls, format=annotationlib.Format.FORWARDREF)
    found: Iterable[Any] = _instance_dict_of_class(cls).get("__annotations__", ())
    return found


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _check_written(name: str) -> None:
    if type(name) is not str:
        raise TypeError("attribute name must be string")
    if _is_dunder(name) and name not in policy.WRITABLE_DUNDERS:
        raise AttributeError(f"`.{name}` cannot be set by graders")


def _check_read(name: str) -> None:
    if type(name) is not str:
        raise TypeError("attribute name must be string")
    if not policy.is_readable(name):
        raise AttributeError(f"`.{name}` is not available to graders")


def _exit(code: Any = None) -> NoReturn:
    raise SystemExit(code)


def _set_recursion_limit(limit: int) -> None:
    # Only pure Python goes that deep without the C stack, and that ends with the child.
    sys.setrecursionlimit(min(limit, _DEEPEST))


def _identity(value: Any) -> Any:
    return value


def _node(value: Any) -> ast.AST:
    if type(value) not in facades.NODE_TYPES:
        raise TypeError(f"expected AST, got {name_of(value)!r}")
    node: ast.AST = value
    return node


def _ast_iter_fields(node: Any) -> Iterator[tuple[str, Any]]:
    return ast.iter_fields(_node(node))


def _ast_iter_child_nodes(node: Any) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(_node(node)):
        yield _node(child)


def _ast_walk(node: Any) -> Iterator[ast.AST]:
    pending = collections.deque([_node(node)])
    while pending:
        current = pending.popleft()
        pending.extend(_ast_iter_child_nodes(current))
        yield current


def _checked_tree(node: Any) -> ast.AST:
    for _ in _ast_walk(node):
        pass
    return _node(node)


def _ast_parse(source: Any, filename: Any = "<unknown>", mode: str = "exec", **options: Any) -> Any:
    # For the text of a SyntaxError, Python opens the file that it is told.
    return ast.parse(source, "<unknown>", mode, **options)


def _ast_dump(node: Any, annotate_fields: bool = True, include_attributes: bool = False, *, indent: Any = None) -> str:
    return ast.dump(_checked_tree(node), annotate_fields, include_attributes, indent=indent)


def _ast_unparse(node: Any) -> str:
    return ast.unparse(_checked_tree(node))


def _ast_get_docstring(node: Any, clean: bool = True) -> str | None:
    return ast.get_docstring(_node(node), clean)  # type: ignore[arg-type]


def _ast_get_source_segment(source: str, node: Any, *, padded: bool = False) -> str | None:
    return ast.get_source_segment(source, _node(node), padded=padded)


def _ast_copy_location(new_node: Any, old_node: Any) -> ast.AST:
    return ast.copy_location(_node(new_node), _node(old_node))


def _ast_fix_missing_locations(node: Any) -> ast.AST:
    return ast.fix_missing_locations(_checked_tree(node))


_SHARED: Final[dict[tuple[str, str], Any]] = {
    ("abc", "ABCMeta"): ABCMetaName,
    ("ast", "parse"): _ast_parse,
    ("ast", "walk"): _ast_walk,
    ("ast", "dump"): _ast_dump,
    ("ast", "unparse"): _ast_unparse,
    ("ast", "iter_child_nodes"): _ast_iter_child_nodes,
    ("ast", "iter_fields"): _ast_iter_fields,
    ("ast", "get_docstring"): _ast_get_docstring,
    ("ast", "get_source_segment"): _ast_get_source_segment,
    ("ast", "copy_location"): _ast_copy_location,
    ("ast", "fix_missing_locations"): _ast_fix_missing_locations,
    ("sys", "exc_info"): sys.exc_info,
    ("sys", "exit"): _exit,
    ("sys", "setrecursionlimit"): _set_recursion_limit,
    ("typing", "final"): _identity,
    ("typing", "no_type_check"): _identity,
    ("typing", "overload"): standins.overload,
    ("typing", "override"): _identity,
}

_SPECIAL: Final[dict[str, Callable[[Namespace, Any, str], Any]]] = {
    "__annotations__": Namespace._special_annotations,
    "__cause__": Namespace._special_text,
    "__class__": Namespace._special_class,
    "__context__": Namespace._special_text,
    "__dataclass_fields__": Namespace._special_own,
    "__delattr__": Namespace._special_setter,
    "__dict__": Namespace._special_dict,
    "__doc__": Namespace._special_text,
    "__getattr__": Namespace._special_getter,
    "__getattribute__": Namespace._special_getter,
    "__init__": Namespace._special_maker,
    "__init_subclass__": Namespace._special_maker,
    "__members__": Namespace._special_text,
    "__module__": Namespace._special_text,
    "__name__": Namespace._special_text,
    "__new__": Namespace._special_new,
    "__notes__": Namespace._special_text,
    "__post_init__": Namespace._special_maker,
    "__qualname__": Namespace._special_text,
    "__set_name__": Namespace._special_maker,
    "__setattr__": Namespace._special_setter,
    "__slots__": Namespace._special_own,
    "__suppress_context__": Namespace._special_text,
    "__wrapped__": Namespace._special_wrapped,
}

_PLAIN_CLASSES: Final = frozenset(
    {object, str, int, float, complex, tuple, list, dict, set, frozenset, bytes, bytearray, bool}
)
_PLAIN: Final = _PLAIN_CLASSES | {type(None)}
# Whose attributes of `policy.GUARDED_NAMES` are guarded for what they do, not for whose they are.
_GUARDED_KINDS: Final = (str, AttributeError)
_UNEXTENDABLE: Final = (type, super, BaseExceptionGroup, *_INTERNAL)
_DECIMAL: Final[dict[str, Any]] = {
    "prec": decimal.DefaultContext.prec,
    "rounding": decimal.DefaultContext.rounding,
    "Emin": decimal.DefaultContext.Emin,
    "Emax": decimal.DefaultContext.Emax,
    "capitals": decimal.DefaultContext.capitals,
    "clamp": decimal.DefaultContext.clamp,
    "flags": [],
    "traps": [signal for signal, trapped in decimal.DefaultContext.traps.items() if trapped],
}
_TYPING_CACHES: Final[tuple[Callable[[], None], ...]] = tuple(getattr(typing, "_cleanups", ()))

_DEEPEST: Final = 100_000
_RECURSION_LIMIT: Final = sys.getrecursionlimit()

_BUILTINS: Final[dict[str, Any]] = {
    **{name: vars(builtins)[name] for name in policy.PROVIDED_BUILTINS if name in vars(builtins)},
    "type": Type,
}


def prepare_process() -> None:
    """Make this process ready to run graders; for children only."""
    facades.harden()
    # Where dataclasses looks for the module of a class when annotations are texts.
    module = types.ModuleType(facades.GRADER_MODULE)
    module.__dict__.clear()
    module.__dict__.update({name: getattr(typing, name) for name in ("ClassVar", "Final", "Any", "Optional")})
    module.__dict__.update({name: getattr(dataclasses, name) for name in ("InitVar", "KW_ONLY")})
    sys.modules[facades.GRADER_MODULE] = module
