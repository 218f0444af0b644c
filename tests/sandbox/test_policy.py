"""The language layer at check time: what is refused names itself, its line and what to write instead, all at once."""
# ruff: noqa: E501 - one line for each case of a table

from __future__ import annotations

import sys

import pytest

from pytest_evalgrader.errors import Problem
from pytest_evalgrader.sandbox import facades, host, policy
from pytest_evalgrader.sandbox.host import Program, Sandbox


def problems(source: str) -> list[tuple[int, str]]:
    try:
        policy.compile_grader(source, "g.py")
    except policy.Refusal as refusal:
        return refusal.problems
    return []


# Source → the line, and words of the message: the construct, and what to write instead.
REFUSED: dict[str, tuple[int, list[str]]] = {
    "import os": (1, ["import os", "no files"]),
    "\nimport numpy as np": (2, ["import numpy", "math"]),
    "import jsn": (1, ["Did you mean `json`"]),
    "import os.path": (1, ["import os.path", "no files"]),
    "from math import srt": (1, ["math", "srt", "Did you mean `sqrt`"]),
    "from json import codecs": (1, ["from json import codecs", "There is"]),
    "from re import *": (1, ["import *", "name what you need"]),
    "from . import x": (1, ["relative imports", "one file"]),
    "import json\njson.codecs.open": (2, ["`json.codecs`", "There is"]),
    "import re as r\n\nr.enum.bltns": (3, ["`re.enum`", "There is"]),
    "import random\nrandom._os": (2, ["`random._os`"]),
    "import csv\ncsv.field_size_limit(1)": (2, ["`csv.field_size_limit`"]),
    "import xml.etree.ElementTree as ET\nET.iterparse(x)": (2, ["`xml.etree.ElementTree.iterparse`", "XMLParser"]),
    "import xml.etree.ElementTree as ET\nET.ElementTree(x)": (2, ["`xml.etree.ElementTree.ElementTree`"]),
    "import html.parser\nhtml.parser.re": (2, ["`html.parser.re`"]),
    "from xml.etree import ElementTree\nElementTree.parse(x)": (2, ["`xml.etree.ElementTree.parse`"]),
    "try:\n    import numpy\nexcept ValueError:\n    pass": (2, ["import numpy"]),
    "try:\n    pass\nexcept ImportError:\n    import numpy": (4, ["import numpy"]),
    "if __name__ != '__main__':\n    import numpy": (2, ["import numpy"]),
    "def f():\n    if __name__ == '__main__':\n        import numpy": (3, ["import numpy"]),
    "if __name__ == '__main__':\n    pass\nelse:\n    import numpy": (4, ["import numpy"]),
    "import yaml": (1, ["import yaml", "json"]),
    "import typing_extensions": (1, ["Use typing"]),
    "x = open('a')": (1, ["`open`", "no files"]),
    "eval('1')": (1, ["`eval`", "ast.literal_eval"]),
    "exec('1')": (1, ["`exec`", "functions of the grader"]),
    "globals()": (1, ["`globals`", "dict of your own"]),
    "breakpoint()": (1, ["`breakpoint`", "--evals-sandbox=off"]),
    "__import__('os')": (1, ["`__import__`", "import statement"]),
    "__builtins__": (1, ["`__builtins__`"]),
    "__loader__ = 1": (1, ["`__loader__`", "name of your own"]),
    "x = ().__class__.__bases__": (1, ["`.__bases__`", "leads out"]),
    "f.__globals__": (1, ["`.__globals__`", "leads out"]),
    "x.__reduce__()": (1, ["`.__reduce__`"]),
    "g.gi_frame": (1, ["`.gi_frame`", "interpreter"]),
    "e.__traceback__.tb_frame": (1, ["`.__traceback__`"]),
    "x.__class__ = y": (1, ["`.__class__`", "cannot be set"]),
    "class C:\n    def __reduce__(self): pass": (2, ["`__reduce__`", "cannot be bound"]),
    "class C:\n    def __del__(self): pass": (2, ["`__del__`"]),
    "class C:\n    __match_args__ = names": (2, ["`__match_args__`", "written out"]),
    "class C:\n    __match_args__ = ('__globals__',)": (2, ["`__match_args__`"]),
    "def __eq__(a, b): pass": (1, ["`__eq__`", "inside"]),
    "def f(__builtins__): pass": (1, ["`__builtins__`"]),
    "lambda __import__: 1": (1, ["`__import__`"]),
    "import json as __builtins__": (1, ["`__builtins__`"]),
    "try:\n    pass\nexcept E as __builtins__:\n    pass": (3, ["`__builtins__`"]),
    "global __builtins__": (1, ["`__builtins__`"]),
    "[(__builtins__ := 1) for _ in x]": (1, ["`__builtins__`"]),
    "match x:\n    case __builtins__: pass": (2, ["`__builtins__`"]),
    "match x:\n    case [*__builtins__]: pass": (2, ["`__builtins__`"]),
    "match x:\n    case {**__builtins__}: pass": (2, ["`__builtins__`"]),
    "match x:\n    case object(__globals__=g): pass": (2, ["`__globals__`", "inside the case"]),
    "match x:\n    case str(format=g): pass": (2, ["`format`", "inside the case"]),
    "match x:\n    case a._b.c: pass": (2, ["`._b`", "before the match"]),
    "s.format += 1": (1, ["`.format`", "assign"]),
    "for __name__ in x: pass": (1, ["`__name__`"]),
    "with x as __file__: pass": (1, ["`__file__`"]),
    "del __builtins__": (1, ["`__builtins__`"]),
    "def f(:": (1, ["SyntaxError"]),
    "x = (1\n": (1, ["SyntaxError", "never closed"]),
    "x = '\0'": (0, ["null"]),
}  # fmt: skip


@pytest.mark.parametrize("source", REFUSED)
def test_refused(source: str) -> None:
    line, words = REFUSED[source]
    if "\0" in source and sys.version_info >= (3, 12):
        line = 1
    found = problems(source)
    assert len(found) >= 1, "it was accepted"
    assert found[0][0] in (line, 0) if "\0" in source else found[0][0] == line, found
    for word in words:
        assert word in found[0][1], found


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    import numpy as np\nexcept ImportError:\n    np = None",
        "try:\n    from a.b import c\n    import d\nexcept (AttributeError, ModuleNotFoundError):\n    pass",
        "try:\n    from itertools import batched\nexcept ImportError:\n    batched = None",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import numpy",
        "import typing as t\nif t.TYPE_CHECKING:\n    from types_of_ours import Sample",
        "if __name__ == '__main__':\n    import sys, argparse\n    print(open(sys.argv[1]).read())",
        "if '__main__' == __name__:\n    eval('1')",
        "import itertools\nf = itertools.no_such_name if hasattr(itertools, 'no_such_name') else None",
        "import json\ndef f(json):\n    return json.codecs",
    ],
)
def test_what_never_runs_or_may_fail_is_not_refused(source: str) -> None:
    assert problems(source) == []


def test_an_import_that_may_fail_does(sandbox: Sandbox) -> None:
    for name in ("os", "no_such_module", "json.scanner"):
        source = f"try:\n    import {name}\nexcept ImportError as error:\n    kind = type(error).__name__\ndef grade(s, i):\n    return kind\n"
        own = Program(source, "g.py", ("grade",))
        assert sandbox.check(own) == []
        assert sandbox.run(own, "grade", [{}, {}], shape="score", timeout_s=5).value["raw"] == "ModuleNotFoundError"
        sandbox.retire(own)
    # A name that the module really has, and graders have not.
    source = "try:\n    from json import codecs\nexcept ImportError:\n    codecs = None\ndef grade(s, i):\n    return codecs is None and 1\n"
    own = Program(source, "g.py", ("grade",))
    assert sandbox.check(own) == []
    assert sandbox.run(own, "grade", [{}, {}], shape="score", timeout_s=5).value["number"] == 1.0


def test_all_problems_of_a_file_at_once(sandbox: Sandbox) -> None:
    source = "import os\n\ndef score(a, b):\n    x = open('y')\n    return x.__globals__\n"
    found = sandbox.check(Program(source, "suites/g.py", ("grade",)))
    assert [problem.where for problem in found] == ["suites/g.py:1", "suites/g.py:4", "suites/g.py:5"]


def test_a_missing_function(sandbox: Sandbox) -> None:
    found = sandbox.check(Program("def score(a, b):\n    return 1\n", "g.py", ("grade",)))
    assert found == [Problem("g.py", "no function grade: define `def grade(…)` at the top level of the file")]
    (twin,) = sandbox.check(Program("def grade_batch(samples):\n    return {}\n", "g.py", ("grade",)))
    assert twin.message.endswith('There is grade_batch, which goes with "contract": "batch".')
    either = sandbox.check(Program("x = 1", "g.py", ("grade", "grade_batch")))
    assert "grade or grade_batch" in either[0].message


@pytest.mark.parametrize(
    "source",
    [
        "grade = lambda s, i: 1",
        "class grade: pass",
        "from math import sqrt as grade",
        "import math as grade",
        "grade: object = print",
        "for grade in [print]: pass",
        "with x as grade: pass",
        "if (grade := 1): pass",
        "(a, [grade, *b]) = 1, (2, 3)",
        "try:\n    pass\nexcept E:\n    def grade(): pass",
        "async def grade(s, i): pass",
        "match 1:\n    case grade: pass",
        "if x:\n    while y:\n        def grade(): pass",
    ],
)
def test_any_binding_at_the_top_level_will_do(source: str) -> None:
    assert "grade" in policy.compile_grader(source, "g.py").names


@pytest.mark.parametrize(
    "source",
    ["def f():\n    def grade(): pass", "class C:\n    def grade(self): pass", "[grade for grade in x]", "grade"],
)
def test_a_binding_inside_is_none(source: str) -> None:
    assert "grade" not in policy.compile_grader(source, "g.py").names


@pytest.mark.parametrize("name", ["input", "open", "dir", "help", "exit", "compile", "eval"])
def test_a_refused_builtin_may_be_a_name_of_ones_own(name: str) -> None:
    assert problems(f"def f({name}):\n    return {name}") == []
    assert problems(f"{name} = 1\nprint({name})") == []


DEEP = {
    "brackets": "x = " + "[" * 150 + "]" * 150,
    "elif": "if x:\n    pass\n" + "elif x:\n    pass\n" * 400,
    "sum": "x = " + " + ".join(["y"] * 1_000),
    "chain": "x = y" + ".a()" * 500,
    "nested_functions": "".join(f"{' ' * i}def f{i}():\n" for i in range(18)) + " " * 18 + "pass\n",
    "table": "x = {" + ", ".join(f"'{i}': [{i}, ({i},)]" for i in range(5_000)) + "}",
}


@pytest.mark.parametrize("name", DEEP)
def test_merely_deep_code_compiles(sandbox: Sandbox, name: str) -> None:
    assert sandbox.check(Program(DEEP[name], "g.py")) == []


@pytest.mark.parametrize(
    "source",
    [
        "x = " + "(" * 5_000 + ")" * 5_000,
        "x = " + "-" * 200_000 + "1",
        "x = " + " + ".join(["y"] * 200_000),
        "x = y" + ".a" * 200_000,
    ],
)
def test_what_is_too_deep_for_a_compiler_costs_its_child_only(sandbox: Sandbox, source: str) -> None:
    found = sandbox.check(Program(source, "g.py"))
    if found:
        assert len(found) == 1
        assert found[0].where.startswith("g.py")
        assert len(found[0].message) < 1_500
    assert sandbox.check(Program("x = 1", "g.py")) == []


def test_restricted_python_is_new_enough() -> None:
    host.require_restricted_python("9.0")
    host.require_restricted_python("10.1")
    for old in ("8.0", "7.3", "8.9.9"):
        with pytest.raises(host.SandboxError, match=r"RestrictedPython.*9\.0.*pip install"):
            host.require_restricted_python(old)


def test_every_facade_can_be_built_and_holds_no_module() -> None:
    import types

    for module in facades.MODULES:
        facade = facades.build(module, lambda module, name: None)
        for name in facades.exported(module):
            assert not isinstance(getattr(facade, name), types.ModuleType), (module, name)


def test_a_name_that_a_facade_lacks(sandbox: Sandbox) -> None:
    program = Program("import re\ndef grade(s, i):\n    return re.nope('x')\n", "g.py")
    result = sandbox.run(program, "grade", [{}, {}], shape="score", timeout_s=5)
    assert result.error is not None
    assert result.error["type"] == "AttributeError"
    assert "re.nope" in result.error["message"]
    assert "fullmatch" in result.error["message"]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("return sample['output_text'].strp()", "AttributeError"),
        ("return len(item.gold or '')", "AttributeError"),
        ("import json\njson.dumps = None", "AttributeError"),
        ("from collections import Counter\nCounter.update = None", "AttributeError"),
        ("class E(ExceptionGroup): pass", "TypeError"),
        ("class M(type): pass", "TypeError"),
        ("type('C', (), {})", "TypeError"),
        ("x = 5\nx.y = 1", "AttributeError"),
        ("object().x = 1", "AttributeError"),
        ("getattr(sample, '__class__').__name__.nope", "AttributeError"),
        ("setattr(grade, '__globals__', {})", "AttributeError"),
        ("vars()", "TypeError"),
    ],
)
def test_refused_while_running(sandbox: Sandbox, body: str, kind: str) -> None:
    indented = "\n".join(f"    {line}" for line in body.splitlines())
    program = Program(f"def grade(sample, item):\n{indented}\n", "g.py", ("grade",))
    assert sandbox.check(program) == []
    result = sandbox.run(program, "grade", [{"output_text": "x"}, {}], shape="score", timeout_s=5)
    assert result.error is not None, result
    assert result.error["type"] == kind, result
    assert result.error["traceback"][-1]["file"] == "g.py"
    sandbox.retire(program)


def test_a_traceback_shows_the_graders_own_frames(sandbox: Sandbox) -> None:
    source = "import json\n\ndef helper(text):\n    return json.loads(text)\n\ndef grade(sample, item):\n    return helper(\n        '{')\n"
    result = sandbox.run(Program(source, "suites/g.py"), "grade", [{}, {}], shape="score", timeout_s=5)
    assert result.error is not None
    assert result.error["type"] == "JSONDecodeError"
    assert [(step["line"], step["function"], step["text"]) for step in result.error["traceback"]] == [
        (7, "grade", "return helper("),
        (4, "helper", "return json.loads(text)"),
    ]
