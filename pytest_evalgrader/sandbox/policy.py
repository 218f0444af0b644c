"""The language layer: which Python a grader may use, and how risky operations are guarded.

The transformer is RestrictedPython's, opened up to ordinary code. Guards are called under names that no source can
spell (`evalgrader:getattr`), so nothing can shadow, rebind or delete them. Standard library and RestrictedPython only.
"""

from __future__ import annotations

import ast
import builtins
import difflib
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from RestrictedPython.transformer import RestrictingNodeTransformer

from . import facades

GETATTR: Final = "evalgrader:getattr"
WRITABLE: Final = "evalgrader:writable"

GUARDED_NAMES: Final = frozenset({"format", "format_map", "obj", "register"}) | (
    {"evaluate"} if sys.version_info >= (3, 14) else set()
)
"""Attributes without a leading underscore whose loads are guarded: what they give depends on the object."""

_OPERATORS: Final = frozenset(
    f"__{name}__"
    for name in [
        "lt",
        "le",
        "eq",
        "ne",
        "gt",
        "ge",
        "hash",
        "bool",
        "repr",
        "str",
        "bytes",
        "format",
        "len",
        "length_hint",
        "getitem",
        "setitem",
        "delitem",
        "missing",
        "iter",
        "next",
        "reversed",
        "contains",
        "add",
        "sub",
        "mul",
        "matmul",
        "truediv",
        "floordiv",
        "mod",
        "divmod",
        "pow",
        "lshift",
        "rshift",
        "and",
        "xor",
        "or",
        "radd",
        "rsub",
        "rmul",
        "rmatmul",
        "rtruediv",
        "rfloordiv",
        "rmod",
        "rdivmod",
        "rpow",
        "rlshift",
        "rrshift",
        "rand",
        "rxor",
        "ror",
        "iadd",
        "isub",
        "imul",
        "imatmul",
        "itruediv",
        "ifloordiv",
        "imod",
        "ipow",
        "ilshift",
        "irshift",
        "iand",
        "ixor",
        "ior",
        "neg",
        "pos",
        "abs",
        "invert",
        "complex",
        "int",
        "float",
        "index",
        "round",
        "trunc",
        "floor",
        "ceil",
        "call",
        "enter",
        "exit",
        "aenter",
        "aexit",
        "await",
        "aiter",
        "anext",
        "copy",
        "deepcopy",
        "replace",
        "fspath",
    ]
)
DEFINABLE: Final = _OPERATORS | {
    "__init__",
    "__new__",
    "__post_init__",
    "__init_subclass__",
    "__class_getitem__",
    "__set_name__",
    "__get__",
    "__set__",
    "__delete__",
    "__getattr__",
    "__getattribute__",
    "__setattr__",
    "__delattr__",
    "__dir__",
}
"""Special methods that a grader's class may define."""

# Reading these gives what an operator would give.
READABLE: Final = _OPERATORS - {"__await__"}

GUARDED_DUNDERS: Final = frozenset(
    {
        "__annotations__",
        "__cause__",
        "__class__",
        "__context__",
        "__dataclass_fields__",
        "__delattr__",
        "__dict__",
        "__doc__",
        "__getattr__",
        "__getattribute__",
        "__init__",
        "__init_subclass__",
        "__members__",
        "__module__",
        "__name__",
        "__new__",
        "__notes__",
        "__post_init__",
        "__qualname__",
        "__set_name__",
        "__setattr__",
        "__slots__",
        "__suppress_context__",
        "__wrapped__",
    }
)
"""Special attributes that the guard gives under conditions."""

# What modules say about themselves.
_MODULE_NAMES: Final = frozenset(
    f"__{name}__"
    for name in (
        "all",
        "author",
        "authors",
        "contact",
        "copyright",
        "created",
        "credits",
        "date",
        "description",
        "email",
        "license",
        "maintainer",
        "metric",
        "revision",
        "status",
        "summary",
        "title",
        "updated",
        "url",
        "version",
    )
)
_LOADABLE_NAMES: Final = _MODULE_NAMES | {"__name__", "__doc__", "__debug__", "__class__"}
_STORABLE_NAMES: Final = _MODULE_NAMES | {"__doc__", "__slots__"}

PROVIDED_BUILTINS: Final = frozenset(
    [
        "abs",
        "aiter",
        "all",
        "anext",
        "any",
        "ascii",
        "bin",
        "bool",
        "bytearray",
        "bytes",
        "callable",
        "chr",
        "classmethod",
        "complex",
        "delattr",
        "dict",
        "divmod",
        "enumerate",
        "filter",
        "float",
        "format",
        "frozenset",
        "getattr",
        "hasattr",
        "hash",
        "hex",
        "id",
        "int",
        "isinstance",
        "issubclass",
        "iter",
        "len",
        "list",
        "map",
        "max",
        "memoryview",
        "min",
        "next",
        "object",
        "oct",
        "ord",
        "pow",
        "print",
        "property",
        "range",
        "repr",
        "reversed",
        "round",
        "set",
        "setattr",
        "slice",
        "sorted",
        "staticmethod",
        "str",
        "sum",
        "super",
        "tuple",
        "type",
        "vars",
        "zip",
        "Ellipsis",
        "False",
        "None",
        "NotImplemented",
        "True",
        "__debug__",
    ]
) | {name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)}
"""Names of the builtins that a grader has."""

_INSTEAD: Final = {
    "open": "Everything that a grader needs is in `sample` and `item`; it has no files.",
    "exec": "Write the code as functions of the grader.",
    "eval": "Use ast.literal_eval for literals, or parse the text with re.",
    "compile": "Use ast.parse to see whether code parses, or re.compile for patterns.",
    "__import__": "Write an import statement.",
    "input": "Everything that a grader needs is in `sample` and `item`.",
    "globals": "Use a dict of your own.",
    "locals": "Use a dict of your own.",
    "dir": "Use vars(x) on your own objects, or hasattr(x, name).",
    "breakpoint": "Run with --evals-sandbox=off --pdb to debug a grader.",
    "help": "Leave it out.",
    "exit": "Return a result, or raise an exception.",
    "quit": "Return a result, or raise an exception.",
}
_REFUSED_BUILTINS: Final = frozenset(
    name for name in vars(builtins) if name not in PROVIDED_BUILTINS and not name.startswith("_")
) | frozenset(_INSTEAD)

_MODULE_INSTEAD: Final = {
    "os": "A grader has no files, processes or environment.",
    "pathlib": "A grader has no files; split paths as texts.",
    "subprocess": "A grader starts no processes.",
    "socket": "A grader has no network; models are reached through ctx.",
    "requests": "A grader has no network; models are reached through ctx.",
    "httpx": "A grader has no network; models are reached through ctx.",
    "urllib.request": "A grader has no network; models are reached through ctx.",
    "openai": 'Use ctx.responses_create, with "contract": "model_backed".',
    "numpy": "Use math, statistics and lists.",
    "pandas": "Use lists and dicts.",
    "threading": "Write it one step after the other.",
    "multiprocessing": "Write it one step after the other.",
    "concurrent.futures": "Write it one step after the other.",
    "inspect": "Write the values out.",
    "pickle": "Use json.",
    "argparse": "A grader is not called from a command line; write the options as constants.",
    "glob": "A grader has no files.",
    "ipaddress": "Split the address as text.",
    "locale": "Remove the separators with str.replace, then call float.",
    "nltk": "Split words with re.findall, and write the metric out.",
    "pydantic": "Use dataclasses and isinstance, or checks of your own.",
    "jsonschema": "Check types with isinstance, and keys with sets.",
    "regex": "Use re.",
    "rapidfuzz": "Use difflib.SequenceMatcher, or an edit distance of your own.",
    "Levenshtein": "Use difflib.SequenceMatcher, or an edit distance of your own.",
    "secrets": "Use random.",
    "scipy": "Use math and statistics.",
    "shutil": "A grader has no files.",
    "sklearn": "Use math, statistics and lists.",
    "sqlite3": "Compare the normalised text of the queries.",
    "sympy": "Use fractions.Fraction, or compare normalised text.",
    "tempfile": "A grader has no files; use io.StringIO.",
    "torch": "Use math and lists.",
    "typing_extensions": "Use typing.",
    "weakref": "Keep the objects themselves.",
    "yaml": "Use json, or split the lines.",
    "zoneinfo": "Use datetime.timezone(datetime.timedelta(hours=…)).",
}


class Refusal(ValueError):
    """A grader's source cannot be used.

    Args:
        problems: Line (0 where there is none) and text of each.
    """

    def __init__(self, problems: list[tuple[int, str]]) -> None:
        super().__init__("; ".join(text for _, text in problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Compiled:
    """A grader that passed the policy.

    Args:
        code: The code of the module.
        names: What the module binds at its top level → how many positional arguments it is to be given at most, where
            that is written in a `def` (`MANY` for `*args`); None where it is not.
    """

    code: types.CodeType
    names: dict[str, int | None]


MANY: Final = 1_000
"""The number of positional arguments of a function with `*args`."""


def compile_grader(source: str, filename: str, *, guarded: bool = True) -> Compiled:
    """Compile a grader under the policy.

    Args:
        source: The text of the file.
        filename: The name that tracebacks show.
        guarded: Whether the policy applies; without it, this is plain Python.

    Raises:
        Refusal: The source does not parse, or holds what the policy refuses: all of it at once.
    """
    # A deep tree is walked by a deep recursion; in a child, so that it can cost no more than the child.
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 20_000))
    try:
        tree = ast.parse(source, filename)
        if guarded:
            _leave_out_main(tree)
        names = {name: _positional(node) for name, node in _top_level(tree).items()}
        if guarded:
            policy = GraderPolicy(tree)
            tree = policy.guarded()
            if policy.problems:
                raise Refusal(sorted(set(policy.problems)))
        return Compiled(compile(tree, filename, "exec", dont_inherit=True), names)
    except SyntaxError as error:
        raise Refusal([_syntax_problem(error)]) from None
    except (RecursionError, MemoryError):
        message = "the source is nested too deep for Python's compiler; split the expression, or use a table"
        raise Refusal([(0, message)]) from None
    except Refusal:
        raise
    except ValueError as error:
        raise Refusal([(0, f"the source cannot be read: {error}")]) from None
    finally:
        sys.setrecursionlimit(limit)


def _leave_out_main(tree: ast.Module) -> None:
    """Empty `if __name__ == "__main__":`: it never runs, and `__name__` cannot be bound to make it."""
    for node in tree.body:
        if isinstance(node, ast.If) and _is_main_test(node.test):
            node.body = [ast.copy_location(ast.Pass(), node.body[0])]


def _is_main_test(test: ast.expr) -> bool:
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq)):
        return False
    sides = {ast.dump(side) for side in (test.left, test.comparators[0])}
    return sides == {ast.dump(ast.Name("__name__", ast.Load())), ast.dump(ast.Constant("__main__"))}


def _top_level(tree: ast.Module) -> dict[str, ast.AST]:
    """Return every name that the module binds at its top level, with the last node that binds it."""
    names: dict[str, ast.AST] = {}
    pending: list[ast.AST] = list(reversed(tree.body))
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names[node.name] = node
            continue
        if isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            continue
        for name in _bound_names(node):
            names[name] = node
        pending.extend(reversed(list(ast.iter_child_nodes(node))))
    return names


def _bound_names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Store):
            yield node.id
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.alias):
        yield node.asname or node.name.partition(".")[0]
    elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
        if node.name is not None:
            yield node.name
    elif isinstance(node, ast.MatchMapping):
        if node.rest is not None:
            yield node.rest
    elif type(node).__name__ in ("TypeVar", "ParamSpec", "TypeVarTuple"):
        yield node.name  # type: ignore[attr-defined]


def _positional(node: ast.AST) -> int | None:
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
    return positional(names, len(node.args.defaults), node.args.vararg is not None)


def positional(names: Sequence[str], defaults: int, many: bool) -> int:
    """Return how many positional arguments a function is to be given at most.

    Args:
        names: Its positional parameters.
        defaults: How many of them have a default: those are options of its own, unless one is called `ctx`.
        many: Whether it has `*args`.
    """
    if many:
        return MANY
    wanted = len(names) - defaults
    return max(wanted, names.index("ctx") + 1) if "ctx" in names else wanted


def _syntax_problem(error: SyntaxError) -> tuple[int, str]:
    text = (error.text or "").strip()
    return error.lineno or 0, f"{type(error).__name__}: {error.msg}" + (f": {text[:100]}" if text else "")


class GraderPolicy(RestrictingNodeTransformer):
    """RestrictedPython's transformer with the policy for graders.

    What a node needs beyond being visited is written out below; a kind of node that neither this class nor its parent
    knows is refused.
    """

    def __init__(self, tree: ast.Module) -> None:
        super().__init__()
        self.problems: list[tuple[int, str]] = []
        self._tree = tree
        self._bound = {name for node in ast.walk(tree) for name in _bound_names(node)}
        self._modules = _imported_modules(tree)
        self._class_names: list[str] = []
        self._in_class_body = False
        self._imports_may_fail = False

    def guarded(self) -> ast.Module:
        """Return the tree with its guards, changed in place; what is refused is in `problems`."""
        tree: ast.Module = self.visit(self._tree)
        return ast.fix_missing_locations(tree)

    # ------------------------------------------------------------------------------------------------------- errors

    def error(self, node: ast.AST, info: str) -> None:
        self.problems.append((getattr(node, "lineno", 0), info))

    def not_allowed(self, node: ast.AST) -> None:
        self.error(node, f"{type(node).__name__} is not known to the sandbox; write it with older syntax")

    # -------------------------------------------------------------------------------------------------------- names

    def check_name(self, node: ast.AST, name: str | None, allow_magic_methods: bool = False) -> None:
        """Refuse to bind special names, except those that a class or a module may define."""
        if name is None or not _is_dunder(name):
            return
        if self._in_class_body and (name in DEFINABLE or name in _STORABLE_NAMES):
            return
        if name in _STORABLE_NAMES:
            return
        if name in DEFINABLE:
            self.error(node, f"`{name}` is defined outside a class; define it inside one")
        else:
            self.error(node, f"`{name}` cannot be bound: special names are Python's; use a name of your own")

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if not isinstance(node.ctx, ast.Load):
            self.check_name(node, node.id)
        elif node.id in _REFUSED_BUILTINS:
            if node.id not in self._bound:
                self.error(node, f"`{node.id}` is not available to graders. {_INSTEAD.get(node.id, '')}".rstrip())
        elif _is_dunder(node.id) and node.id not in _LOADABLE_NAMES and node.id not in DEFINABLE:
            self.error(node, f"`{node.id}` is not available to graders. {_INSTEAD.get(node.id, '')}".rstrip())
        return node

    def visit_Global(self, node: ast.Global) -> ast.AST:
        for name in node.names:
            self.check_name(node, name)
        return node

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.AST:
        for name in node.names:
            self.check_name(node, name)
        return node

    # --------------------------------------------------------------------------------------------------- attributes

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        name = node.attr
        if isinstance(node.ctx, ast.Load):
            self._check_module_attribute(node)
        node.value = self.visit(node.value)
        if name in facades.INSPECTED:
            self.error(node, f"`.{name}` leads into the interpreter and is not available to graders; leave it out")
            return node
        if isinstance(node.ctx, ast.Load):
            if _is_dunder(name):
                if name not in READABLE and name not in GUARDED_DUNDERS:
                    self.error(node, f"`.{name}` is not available to graders. {_instead_of_dunder(name)}")
                if name not in GUARDED_DUNDERS:
                    return node
            elif not name.startswith("_") and name not in GUARDED_NAMES:
                return node
            return _call(GETATTR, node, node.value, ast.Constant(self._mangled(name)))
        if _is_dunder(name) and name not in WRITABLE_DUNDERS:
            self.error(node, f"`.{name}` cannot be set: special attributes are Python's; use a name of your own")
        node.value = _call(WRITABLE, node, node.value)
        return node

    def _check_module_attribute(self, node: ast.Attribute) -> None:
        module = self._module_of(node.value)
        if module is None or _is_dunder(node.attr):
            return
        there_is = (*facades.exported(module), *facades.submodules(module))
        real = sys.modules.get(module)
        # What Python does not have either is left to run: code asks with hasattr for what newer versions have.
        if node.attr not in there_is and (real is None or hasattr(real, node.attr)):
            self.error(
                node,
                f"`{module}.{node.attr}` is not available to graders.{_did_you_mean(node.attr, there_is)} "
                f"There is: {', '.join(sorted(there_is))}",
            )

    def _module_of(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Name):
            return self._modules.get(node.id)
        if isinstance(node, ast.Attribute):
            outer = self._module_of(node.value)
            name = f"{outer}.{node.attr}"
            return name if outer is not None and name in facades.MODULES else None
        return None

    def _mangled(self, name: str) -> str:
        # Python mangles `__name` inside classes; the guard is told the name as a text, which it would not.
        if name.startswith("__") and not name.endswith("__") and self._class_names:
            stripped = self._class_names[-1].lstrip("_")
            return f"_{stripped}{name}" if stripped else name
        return name

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        if isinstance(node.target, ast.Attribute) and node.target.attr in GUARDED_NAMES:
            self.error(node, f"`.{node.target.attr}` cannot be changed in place; assign to it")
        return self.node_contents_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        return self.node_contents_visit(node)

    # ---------------------------------------------------------------------------- operations that need no guard here
    # RestrictedPython guards iteration, unpacking and calls, for policies that hide elements or methods. This one does
    # not: what an object gives to a loop or an operator is the grader's to have.

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__match_args__":
            # `case C(x)` gets attributes under these names, unguarded.
            names = node.value.elts if isinstance(node.value, ast.Tuple) else [None]
            for name in names:
                text = name.value if isinstance(name, ast.Constant) else None
                if not isinstance(text, str) or _is_guarded(text):
                    self.error(node, "`__match_args__` must be a tuple of plain names, written out")
                    break
            if not self._in_class_body:
                self.error(node, "`__match_args__` is defined outside a class; define it inside one")
            node.value = self.visit(node.value)
            return node
        return self.node_contents_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        return self.node_contents_visit(node)

    def visit_For(self, node: ast.For) -> ast.AST:
        return self.node_contents_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        return self.node_contents_visit(node)

    def visit_With(self, node: ast.With) -> ast.AST:
        return self.node_contents_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        return self.node_contents_visit(node)

    def visit_Module(self, node: ast.Module) -> ast.AST:
        return self.node_contents_visit(node)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        return self.node_contents_visit(node)

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AST:
        return self.node_contents_visit(node)

    def visit_Await(self, node: ast.Await) -> ast.AST:
        return self.node_contents_visit(node)

    def visit_TryStar(self, node: ast.AST) -> ast.AST:
        # The type confusion behind CVE-2025-22153 needs a subclass of BaseExceptionGroup: the class guard refuses it.
        return self.node_contents_visit(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.AST:
        return self.node_contents_visit(node)

    def visit_TemplateStr(self, node: ast.AST) -> None:
        self.not_allowed(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        self.check_name(node, node.name)
        return self.node_contents_visit(node)

    # ------------------------------------------------------------------------------------------------------ scopes

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> ast.AST:
        if not isinstance(node, ast.Lambda):
            self.check_name(node, node.name)
        outer, self._in_class_body = self._in_class_body, False
        arguments = node.args
        for argument in (
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
            arguments.vararg,
            arguments.kwarg,
        ):
            if argument is not None:
                self.check_name(argument, argument.arg)
        node = self.node_contents_visit(node)
        self._in_class_body = outer
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self.check_name(node, node.name)
        for name in ("decorator_list", "bases", "keywords", "type_params"):
            children = getattr(node, name, None)
            if children:
                children[:] = [self.visit(child) for child in children]
        outer, self._in_class_body = self._in_class_body, True
        self._class_names.append(node.name)
        node.body = [self.visit(statement) for statement in node.body]
        self._class_names.pop()
        self._in_class_body = outer
        return node

    def visit_TypeAlias(self, node: ast.AST) -> ast.AST:
        return self.node_contents_visit(node)

    def visit_TypeVar(self, node: ast.AST) -> ast.AST:
        return self._type_parameter(node)

    def visit_ParamSpec(self, node: ast.AST) -> ast.AST:
        return self._type_parameter(node)

    def visit_TypeVarTuple(self, node: ast.AST) -> ast.AST:
        return self._type_parameter(node)

    def _type_parameter(self, node: ast.AST) -> ast.AST:
        for name in _bound_names(node):
            self.check_name(node, name)
        return self.node_contents_visit(node)

    # ------------------------------------------------------------------------------------------------------- match

    def visit_Match(self, node: ast.Match) -> ast.AST:
        return self.node_contents_visit(node)

    def visit_match_case(self, node: ast.match_case) -> ast.AST:
        return self.node_contents_visit(node)

    def visit_MatchValue(self, node: ast.MatchValue) -> ast.AST:
        self._check_pattern_path(node.value)
        return node

    def visit_MatchSingleton(self, node: ast.MatchSingleton) -> ast.AST:
        return node

    def visit_MatchSequence(self, node: ast.MatchSequence) -> ast.AST:
        return self.node_contents_visit(node)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> ast.AST:
        self.check_name(node, node.rest)
        for key in node.keys:
            self._check_pattern_path(key)
        node.patterns = [self.visit(pattern) for pattern in node.patterns]
        return node

    def visit_MatchClass(self, node: ast.MatchClass) -> ast.AST:
        self._check_pattern_path(node.cls)
        for name in node.kwd_attrs:
            if _is_guarded(name):
                self.error(node, f"`{name}` cannot be matched as an attribute; read it inside the case")
        node.patterns = [self.visit(pattern) for pattern in node.patterns]
        node.kwd_patterns = [self.visit(pattern) for pattern in node.kwd_patterns]
        return node

    def visit_MatchStar(self, node: ast.MatchStar) -> ast.AST:
        self.check_name(node, node.name)
        return node

    def visit_MatchAs(self, node: ast.MatchAs) -> ast.AST:
        self.check_name(node, node.name)
        return self.node_contents_visit(node)

    def visit_MatchOr(self, node: ast.MatchOr) -> ast.AST:
        return self.node_contents_visit(node)

    def _check_pattern_path(self, node: ast.expr) -> None:
        # In a pattern, a path must stay a path: it cannot be guarded, so it must not need it.
        for inner in ast.walk(node):
            if isinstance(inner, ast.Attribute) and _is_guarded(inner.attr):
                self.error(inner, f"`.{inner.attr}` cannot stand in a pattern; give it a name before the match")
            elif isinstance(inner, ast.Name):
                self.visit_Name(inner)

    # ------------------------------------------------------------------------------------------------------ imports

    def visit_Import(self, node: ast.Import) -> ast.AST:
        for alias in node.names:
            self._check_module(node, alias.name)
            self.check_name(node, alias.asname or alias.name.partition(".")[0])
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        module = node.module or ""
        if node.level:
            self.error(node, "relative imports are not available: a grader is one file; put the code into it")
            return node
        if not self._check_module(node, module):
            for alias in node.names:
                self.check_name(node, alias.asname or alias.name)
            return node
        there_is = (*facades.exported(module), *facades.submodules(module))
        for alias in node.names:
            self.check_name(node, alias.asname or alias.name)
            if alias.name == "*":
                self.error(node, f"`from {module} import *` is not available; name what you need")
            elif alias.name not in there_is and not self._imports_may_fail:
                self.error(
                    node,
                    f"`from {module} import {alias.name}` is not available to graders."
                    f"{_did_you_mean(alias.name, there_is)} There is: {', '.join(sorted(there_is))}",
                )
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        node.test = self.visit(node.test)
        name = getattr(node.test, "id", getattr(node.test, "attr", None))
        node.body = self._visited(node.body, name == "TYPE_CHECKING")
        node.orelse = self._visited(node.orelse, False)
        return node

    def visit_Try(self, node: ast.Try) -> ast.AST:
        node.body = self._visited(node.body, any(map(_catches_import_errors, node.handlers)))
        node.handlers = [self.visit(handler) for handler in node.handlers]
        node.orelse = self._visited(node.orelse, False)
        node.finalbody = self._visited(node.finalbody, False)
        return node

    def _visited(self, body: list[ast.stmt], imports_may_fail: bool) -> list[ast.stmt]:
        # Such an import is an ImportError when it runs, as it is where the module is not installed.
        outer, self._imports_may_fail = self._imports_may_fail, self._imports_may_fail or imports_may_fail
        visited = [self.visit(statement) for statement in body]
        self._imports_may_fail = outer
        return visited

    def _check_module(self, node: ast.AST, module: str) -> bool:
        if module in facades.MODULES:
            return True
        if self._imports_may_fail:
            return False
        top = module.partition(".")[0]
        instead = _MODULE_INSTEAD.get(module) or _MODULE_INSTEAD.get(top) or ""
        nearest = "" if instead else _did_you_mean(module, facades.MODULES).strip()
        parts = [f"`import {module}` is not available to graders.", instead, nearest]
        self.error(node, " ".join(part for part in parts if part) + f" There is: {', '.join(facades.MODULES)}")
        return False


WRITABLE_DUNDERS: Final = frozenset({"__name__", "__qualname__", "__doc__", "__wrapped__"})
"""Special attributes that a grader may set on its own functions and classes."""


def is_readable(name: str) -> bool:
    """Whether `getattr` may be asked for this name at all."""
    if name in facades.INSPECTED:
        return False
    return not _is_dunder(name) or name in READABLE or name in GUARDED_DUNDERS


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and len(name) > 4


def _is_guarded(name: str) -> bool:
    return name.startswith("_") or name in GUARDED_NAMES or name in facades.INSPECTED


def _instead_of_dunder(name: str) -> str:
    if name in (
        "__traceback__",
        "__globals__",
        "__code__",
        "__builtins__",
        "__subclasses__",
        "__mro__",
        "__bases__",
        "__base__",
    ):
        return "It leads out of the grader; leave it out."
    return "Use the operator or the builtin that it stands for."


def _catches_import_errors(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
    return any(kind is None or (isinstance(kind, ast.Name) and kind.id in names) for kind in kinds)


def _imported_modules(tree: ast.Module) -> dict[str, str]:
    """Return the names that stand for one module, whatever the scope, with that module."""
    modules: dict[str, str] = {}
    others: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            package = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                module = f"{package}{alias.name if alias.asname or package else name}"
                if module not in facades.MODULES or modules.setdefault(name, module) != module:
                    others.add(name)
        elif not isinstance(node, ast.alias):
            others.update(_bound_names(node))
    return {name: module for name, module in modules.items() if name not in others}


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.75)
    return f" Did you mean `{near[0]}`?" if near else ""


def _call(function: str, place: ast.expr, *arguments: ast.expr) -> ast.Call:
    call = ast.Call(func=ast.Name(function, ast.Load()), args=list(arguments), keywords=[])
    ast.copy_location(call, place)
    for node in (call.func, *arguments):
        if not hasattr(node, "lineno"):
            ast.copy_location(node, place)
    return call
