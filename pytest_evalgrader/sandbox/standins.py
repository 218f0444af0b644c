"""Small stand-ins for modules that do too much: logging, warnings, traceback, and the parts of asyncio that only wait.

A real logger opens files, a real task needs an event loop with sockets. These do what graders use such modules for,
inside one run, and hold nothing but what that run gave them. Standard library only.
"""

from __future__ import annotations

import functools
import sys
import time
import types
import typing
from collections.abc import Callable, Coroutine
from typing import Any, Final, NoReturn

GRADER_MODULE: Final = "grader"
"""What `__name__` is inside a grader."""

# ------------------------------------------------------------------------------------------------------------ logging

LEVELS: Final = {"CRITICAL": 50, "ERROR": 40, "WARNING": 30, "INFO": 20, "DEBUG": 10, "NOTSET": 0}
_NAMES: Final = {number: name for name, number in LEVELS.items()}
_METHODS: Final = ("debug", "info", "warning", "error", "critical", "exception", "log")


class Logger:
    """A logger that prints; as in Python, warnings and worse unless told otherwise."""

    def __init__(self, name: str, parent: Logger | None, print_line: Callable[[str], object]) -> None:
        self.name = name
        self.parent = parent
        self.level = 0
        self.propagate = True
        self.disabled = False
        self.handlers: list[Any] = []
        self._print_line = print_line

    def setLevel(self, level: int | str) -> None:
        self.level = level_of(level)

    def getEffectiveLevel(self) -> int:
        logger: Logger | None = self
        while logger is not None:
            if logger.level:
                return logger.level
            logger = logger.parent
        return 0

    def isEnabledFor(self, level: int) -> bool:
        return not self.disabled and level >= self.getEffectiveLevel()

    def hasHandlers(self) -> bool:
        return bool(self.handlers)

    def addHandler(self, handler: Any) -> None:
        self.handlers.append(handler)

    def removeHandler(self, handler: Any) -> None:
        if handler in self.handlers:
            self.handlers.remove(handler)

    def log(self, level: int, message: object, *args: Any, exc_info: Any = None, **ignored: Any) -> None:
        if self.isEnabledFor(level):
            text = str(message)
            if args:
                text = text % (args[0] if len(args) == 1 and isinstance(args[0], dict) and args[0] else args)
            self._print_line(f"{_NAMES.get(level, f'Level {level}')}:{self.name}:{text}")
            if exc_info:
                self._print_line(format_exc().rstrip("\n"))

    def debug(self, message: object, *args: Any, **options: Any) -> None:
        self.log(10, message, *args, **options)

    def info(self, message: object, *args: Any, **options: Any) -> None:
        self.log(20, message, *args, **options)

    def warning(self, message: object, *args: Any, **options: Any) -> None:
        self.log(30, message, *args, **options)

    def error(self, message: object, *args: Any, **options: Any) -> None:
        self.log(40, message, *args, **options)

    def critical(self, message: object, *args: Any, **options: Any) -> None:
        self.log(50, message, *args, **options)

    def exception(self, message: object, *args: Any, exc_info: Any = True, **options: Any) -> None:
        self.log(40, message, *args, exc_info=exc_info, **options)

    warn = warning
    fatal = critical


class NullHandler:
    """A handler that is there so that a logger has one."""

    def __init__(self, *args: Any, **options: Any) -> None:
        pass

    def setLevel(self, level: int | str) -> None:
        level_of(level)


def level_of(level: int | str) -> int:
    """Return a level as a number, as `Logger.setLevel` takes it."""
    if isinstance(level, str):
        if level not in LEVELS:
            raise ValueError(f"Unknown level: {level!r}")
        return LEVELS[level]
    return int(level)


def logging_names(print_line: Callable[[str], object]) -> dict[str, Any]:
    """Return what `logging` offers to one run: loggers that print."""
    root = Logger("root", None, print_line)
    root.level = LEVELS["WARNING"]
    loggers: dict[str, Logger] = {}

    def get_logger(name: str | None = None) -> Logger:
        if not name or name == "root":
            return root
        found = loggers.get(name)
        if found is None:
            above = name.rpartition(".")[0]
            found = loggers[name] = Logger(name, get_logger(above) if above else root, print_line)
        return found

    def basic_config(*, level: int | str | None = None, **ignored: Any) -> None:
        if level is not None:
            root.setLevel(level)

    return {
        **LEVELS,
        "Logger": Logger,
        "NullHandler": NullHandler,
        "basicConfig": basic_config,
        "getLogger": get_logger,
        **{name: _unbound(getattr(root, name)) for name in _METHODS},
    }


# ----------------------------------------------------------------------------------------------- warnings and traceback


class CatchWarnings:
    """`warnings.catch_warnings`; with `record=True`, a list that stays empty."""

    def __init__(self, *, record: bool = False, **ignored: Any) -> None:
        self._record = record

    def __enter__(self) -> list[Any] | None:
        return [] if self._record else None

    def __exit__(self, *exception: object) -> None:
        pass


def ignore(*args: Any, **options: Any) -> None:
    """Do nothing: what a filter of warnings does where none is shown."""


def format_exc(limit: int | None = None, chain: bool = True) -> str:
    """`traceback.format_exc`: the exception that is being handled, with the lines of the grader."""
    error = sys.exc_info()[1]
    return "NoneType: None\n" if error is None else "".join(format_exception(error))


def format_exception(error: Any, value: Any = None, tb: Any = None, **ignored: Any) -> list[str]:
    """`traceback.format_exception`, without the text of the source lines."""
    raised: BaseException = error if value is None else value
    lines = ["Traceback (most recent call last):\n"]
    step = raised.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        # The frames of the guards, and of the library, are not the grader's.
        if step.tb_frame.f_globals.get("__name__") == GRADER_MODULE:
            lines.append(f'  File "{code.co_filename}", line {step.tb_lineno}, in {code.co_name}\n')
        step = step.tb_next
    return [*lines, *format_exception_only(raised)]


def format_exception_only(error: Any, value: Any = None, **ignored: Any) -> list[str]:
    """`traceback.format_exception_only`."""
    raised: BaseException = error if value is None else value
    kind = type(raised)
    name = (
        kind.__qualname__
        if kind.__module__ in ("builtins", GRADER_MODULE)
        else f"{kind.__module__}.{kind.__qualname__}"
    )
    text = str(raised)
    return [f"{name}: {text}\n" if text else f"{name}\n"]


# ------------------------------------------------------------------------------------------------------------- asyncio


def drive(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end. Nothing that a grader can await ever waits for the outside."""
    while True:
        try:
            coroutine.send(None)
        except StopIteration as stop:
            return stop.value


class Task:
    """A coroutine that has run: what `asyncio.create_task` gives where one thing runs after the other."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._result: Any = None
        self._error: BaseException | None = None
        try:
            self._result = drive(coroutine)
        except Exception as error:  # noqa: BLE001 - it is raised where the task is awaited
            self._error = error

    def __await__(self) -> Any:
        return self.result()
        yield

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result

    def exception(self) -> BaseException | None:
        return self._error

    def done(self) -> bool:
        return True

    def cancelled(self) -> bool:
        return False

    def cancel(self, msg: object = None) -> bool:
        return False


class Semaphore:
    """`asyncio.Semaphore` and `asyncio.Lock` where nothing runs at the same time: never taken."""

    def __init__(self, value: int = 1) -> None:
        if value < 0:
            raise ValueError("Semaphore initial value must be >= 0")

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *exception: object) -> None:
        pass

    async def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass

    def locked(self) -> bool:
        return False


async def sleep(delay: float, result: Any = None) -> Any:
    """`asyncio.sleep`."""
    time.sleep(max(delay, 0))
    return result


async def gather(*awaitables: Any, return_exceptions: bool = False) -> list[Any]:
    """`asyncio.gather`, one after the other."""
    results: list[Any] = []
    for awaitable in awaitables:
        try:
            results.append(await awaitable)
        except Exception as error:
            if not return_exceptions:
                raise
            results.append(error)
    return results


async def wait_for(awaitable: Any, timeout: float | None) -> Any:
    """`asyncio.wait_for`: the time-out is that of the grader."""
    return await awaitable


async def to_thread(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """`asyncio.to_thread`, without the thread."""
    return function(*args, **kwargs)


def create_task(coroutine: Any, *, name: object = None, context: object = None) -> Task:
    """`asyncio.create_task`."""
    if type(coroutine) is not types.CoroutineType:
        raise TypeError(f"a coroutine was expected, got {type(coroutine).__name__!r}")
    return Task(coroutine)


def run(main: Any, *, debug: Any = None) -> Any:
    """`asyncio.run`."""
    if type(main) is not types.CoroutineType:
        raise ValueError(f"a coroutine was expected, got {type(main).__name__!r}")
    return drive(main)


# ------------------------------------------------------------------------------------------------------ singledispatch


def singledispatch(function: Any, resolve: Callable[[Any, str], Any]) -> Any:
    """`functools.singledispatch`, which evaluates no annotation that is a text, but looks its name up.

    Args:
        function: What is called for a type that nothing is registered for.
        resolve: Gives the class that a name means in a function of the grader.
    """
    inner = functools.singledispatch(lambda *args, **kwargs: None)
    inner.register(object, function)

    def register(kind: Any, implementation: Any = None) -> Any:
        if implementation is None and isinstance(kind, types.FunctionType):
            implementation = kind
            hints = list(implementation.__annotations__.items())
            if not hints:
                raise TypeError("register() takes a class, or a function whose first parameter is annotated")
            kind = resolve(implementation, hints[0][1]) if isinstance(hints[0][1], str) else hints[0][1]
        kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
        if not all(isinstance(each, type) for each in kinds):
            raise TypeError(f"register() takes a class, not {kind!r}")
        if implementation is None:
            return lambda function: register(kind, function)
        for each in kinds:
            inner.register(each, implementation)
        return implementation

    def dispatcher(*args: Any, **kwargs: Any) -> Any:
        if not args:
            raise TypeError(f"{getattr(function, '__name__', 'it')} requires at least 1 positional argument")
        return inner.dispatch(type(args[0]))(*args, **kwargs)

    dispatcher.register = register  # type: ignore[attr-defined]
    dispatcher.dispatch = lambda kind: inner.dispatch(kind)  # type: ignore[attr-defined]
    dispatcher.registry = inner.registry  # type: ignore[attr-defined]
    return dispatcher


def overload(function: Any) -> Any:
    """`typing.overload`."""

    def only_for_type_checkers(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError("an overloaded function needs an implementation")

    return only_for_type_checkers


def _unbound(method: Callable[..., Any]) -> Callable[..., Any]:
    # Never a bound method: copy.deepcopy copies what one is bound to, and shows the copies to `__deepcopy__`.
    return lambda *args, **kwargs: method(*args, **kwargs)
