"""Ways out of the language layer: each works in plain Python, and neither with all layers nor without the language.

Every probe ends in reading a file whose path it is told. The kernel probes are in `test_kernel.py`.
"""
# ruff: noqa: E501 - one line for each probe

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import pytest

from pytest_evalgrader.sandbox import facades, guards, policy
from pytest_evalgrader.sandbox.host import Program, Sandbox

# Some controls leave a file or a coroutine to the garbage collector, as such code does.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
SECRET = "the-secret-of-the-host"

FRAME = (
    "from abc import ABC\nfrom dataclasses import dataclass\nimport types\nFIELD\n@dataclass\nclass B(ABC):\n    f_builtins: int = 0\n"
    "C.register(types.GeneratorType)\nmatch (x for x in ()):\n    case C(frame):\n        B.register(type(frame))\n"
    "        match frame:\n            case B(b):\n                READ(b['open'])"
)
# Name → a body of `grade(sample, item)`; `READ(opener)` stands for reading the secret with it.
ESCAPES: dict[str, str] = {
    "open": "READ(open)",
    "import_os": "import os\nreturn os.fdopen(os.open(sample['path'], 0)).read()",
    "import_io": "import io\nREAD(io.open)",
    "import_builtins": "import builtins\nREAD(builtins.open)",
    "import_importlib": "import importlib\nREAD(importlib.import_module('io').open)",
    "dunder_import": "READ(__import__('io').open)",
    "builtins_name": "b = __builtins__\nREAD(b['open'] if isinstance(b, dict) else b.open)",
    "subclasses": (
        "kinds = ().__class__.__base__.__subclasses__()\n"
        "found = [k for k in kinds if k.__name__ == '_wrap_close'][0]\n"
        "READ(found.__init__.__globals__['__builtins__']['open'])"
    ),
    "mro": "READ([k for k in type(()).__mro__[-1].__subclasses__() if k.__name__ == '_wrap_close'][0].__init__.__builtins__['open'])",
    "function_globals": "def f(): pass\nb = f.__globals__['__builtins__']\nREAD(b['open'] if isinstance(b, dict) else b.open)",
    "function_builtins": "READ((lambda: 0).__builtins__['open'])",
    "library_globals": "import json\nREAD(json.dumps.__globals__['__builtins__']['open'])",
    "method_globals": "import json\nREAD(json.JSONEncoder.default.__builtins__['open'])",
    "builtin_self": "READ(print.__self__.open)",
    "generator_frame": "g = (x for x in ())\nREAD(g.gi_frame.f_builtins['open'])",
    "generator_frame_by_name": "g = (x for x in ())\nREAD(getattr(getattr(g, 'gi_frame'), 'f_builtins')['open'])",
    "generator_f_back": "def gen():\n    yield g.gi_frame.f_back.f_builtins['open']\ng = gen()\nREAD(next(g))",
    "coroutine_frame": "async def c(): pass\nco = c()\nopener = co.cr_frame.f_builtins['open']\nco.close()\nREAD(opener)",
    "async_generator_frame": "async def c():\n    yield 1\nREAD(c().ag_frame.f_builtins['open'])",
    "traceback_frame": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    READ(e.__traceback__.tb_frame.f_builtins['open'])",
    "exit_traceback": (
        "class C:\n    def __enter__(self): return self\n    def __exit__(self, kind, error, trace):\n"
        "        self.opener = trace.tb_frame.f_builtins['open']\n        return True\n"
        "with C() as c:\n    1 / 0\nREAD(c.opener)"
    ),
    "except_star": "try:\n    raise ExceptionGroup('x', [ValueError()])\nexcept* ValueError as e:\n    opener = e.__traceback__.tb_frame.f_builtins['open']\nREAD(opener)",
    "code_replace": "def f(): return 1\nREAD(type(f)(f.__code__.replace(), {}).__builtins__['open'])",
    "default_argument": "def f(b=(lambda: 0).__builtins__['open']): return b\nREAD(f())",
    "annotation": "def f(x: (lambda: 0).__builtins__['open']): pass\nREAD(f.__annotations__['x'])",
    "walrus": "[y := (lambda: 0).__builtins__['open'] for _ in [0]]\nREAD(y)",
    "decorator": "@lambda f: f.__builtins__['open']\ndef opener(): pass\nREAD(opener)",
    "match_keyword": "match (lambda: 0):\n    case object(__builtins__=b):\n        READ(b['open'])",
    "match_args": (
        "from abc import ABC\nimport types\nclass C(ABC):\n    __match_args__ = ('__builtins__',)\n"
        "C.register(types.FunctionType)\nmatch (lambda: 0):\n    case C(b):\n        READ(b['open'])"
    ),
    "match_args_computed": (
        "from abc import ABC\nimport types\nclass C(ABC):\n    for __match_args__ in [('__builtins__',)]: pass\n"
        "C.register(types.FunctionType)\nmatch (lambda: 0):\n    case C(b):\n        READ(b['open'])"
    ),
    "match_args_setattr": (
        "from abc import ABC\nimport types\nclass C(ABC): pass\nsetattr(C, '__match_args__', ('__builtins__',))\n"
        "C.register(types.FunctionType)\nmatch (lambda: 0):\n    case C(b):\n        READ(b['open'])"
    ),
    "match_args_dataclass": (
        "from abc import ABC\nfrom dataclasses import dataclass\nimport types\n@dataclass\nclass C(ABC):\n    __builtins__: int = 0\n"
        "C.register(types.FunctionType)\nmatch (lambda: 0):\n    case C(b):\n        READ(b['open'])"
    ),
    "match_args_enum": (
        "from enum import Enum\nfrom abc import ABC\nimport types\nC = Enum('C', {'__match_args__': ('__builtins__',)})\n"
        "class D(ABC):\n    pass\nD.__match_args__ = C.__match_args__\nD.register(types.FunctionType)\n"
        "match (lambda: 0):\n    case D(b):\n        READ(b['open'])"
    ),
    "text_subclass_name": (
        "class S(str):\n    def startswith(self, *a): return False\n    def endswith(self, *a): return False\n"
        "READ(getattr((lambda: 0), S('__builtins__'))['open'])"
    ),
    "object_getattribute": "READ(object.__getattribute__((lambda: 0), '__builtins__')['open'])",
    "own_getattribute": "class C: pass\nREAD(C.__getattribute__((lambda: 0), '__builtins__')['open'])",
    "super_getattribute": (
        "class C:\n    def f(self): pass\n    def get(self, name): return super().__getattribute__(name)\n"
        "READ(C().get('__init__') and C().get('f').__func__.__builtins__['open'])"
    ),
    "super_class": "class C:\n    def f(self): return super().__thisclass__\nREAD(C().f().f.__builtins__['open'])",
    "type_getattribute": "READ(type.__getattribute__(type('X', (), {'f': lambda s: 0}), 'f').__builtins__['open'])",
    "attrgetter": "from operator import attrgetter\nREAD(attrgetter('__builtins__')(lambda: 0)['open'])",
    "attrgetter_dotted": "from operator import attrgetter\nREAD(attrgetter('__class__.__init__')(lambda: 0) and attrgetter('__builtins__')(lambda: 0)['open'])",
    "reduce_getattr": "from functools import reduce\nREAD(reduce(getattr, ['__builtins__'], (lambda: 0))['open'])",
    "map_getattr": "READ(list(map(getattr, [lambda: 0], ['__builtins__']))[0]['open'])",
    "partial_getattr": "from functools import partial\nREAD(partial(getattr, lambda: 0)('__builtins__')['open'])",
    "update_wrapper": (
        "from functools import update_wrapper\nclass C:\n    def __setattr__(self, name, value): kept.append(value)\n"
        "kept = []\nupdate_wrapper(C(), lambda: 0, assigned=['__builtins__'], updated=[])\nREAD(kept[0]['open'])"
    ),
    "wraps": (
        "from functools import wraps\nclass C:\n    def __setattr__(self, name, value): kept.append(value)\nkept = []\n"
        "wraps(lambda: 0, assigned=['__builtins__'], updated=[])(C())\nREAD(kept[0]['open'])"
    ),
    "singledispatch": (
        "from functools import singledispatch\n@singledispatch\ndef f(x): pass\nkept = []\n"
        "def g(x: 'kept.append(open) or int'): pass\ng.__globals__['kept'] = kept\nf.register(g)\nREAD(kept[0])"
    ),
    "get_type_hints": "from typing import get_type_hints\ndef f(x: 'open'): pass\nREAD(get_type_hints(f, {'open': open})['x'])",
    "forward_ref": "from typing import ForwardRef\nREAD(eval(ForwardRef('open').__forward_code__))",
    "ast_iter_fields": "import ast\ndef f(): pass\nf._fields = ('__builtins__',)\nREAD(dict(ast.iter_fields(f))['__builtins__']['open'])",
    "copy_reduce": (
        "import copy, types\nfrom abc import ABC\nclass T(ABC): pass\nclass C:\n    def __reduce_ex__(self, p):\n"
        "        return (lambda: T, (), (None, {'__match_args__': ('__builtins__',)}))\ncopy.copy(C())\n"
        "T.register(types.FunctionType)\nmatch (lambda: 0):\n    case T(b):\n        READ(b['open'])"
    ),
    "copy_reduce_alias": (
        "import copy, types\nfrom abc import ABC\nclass T(ABC): pass\n"
        "def reduce(self, p): return (lambda: T, (), (None, {'__match_args__': ('__builtins__',)}))\n"
        "C = type('C', (), {'__reduce_ex__': reduce})\ncopy.copy(C())\n"
        "T.register(types.FunctionType)\nmatch (lambda: 0):\n    case T(b):\n        READ(b['open'])"
    ),
    "copy_getstate": (
        "import copy\nclass C:\n    def __getstate__(self): return (None, {'x': (lambda: 0).__builtins__})\nREAD(copy.copy(C()).x['open'])"
    ),
    "namedtuple_names": (
        "from collections import namedtuple\nkept = []\nclass S(str):\n    def isidentifier(self): return True\n    def __str__(self): return self\n"
        "try:\n    namedtuple('X', [S('a, _=open: 0, b')])\nexcept TypeError:\n    pass\nREAD((lambda: 0).__builtins__['open'])"
    ),
    "dataclass_names": (
        "from dataclasses import make_dataclass\nC = make_dataclass('C', ['x'], namespace={'opener': (lambda: 0).__builtins__['open']})\nREAD(C.opener)"
    ),
    "dataclass_annotations": (
        "from dataclasses import dataclass\nclass C: pass\nC.__annotations__ = {'x': 'open'}\nREAD(dataclass(C) and C.__init__.__builtins__['open'])"
    ),
    "metaclass": "class M(type):\n    def __getattribute__(cls, name): return type.__getattribute__(cls, name)\nclass C(metaclass=M):\n    def f(self): pass\nREAD(C.f.__builtins__['open'])",
    "metaclass_of_class": "class C: pass\nREAD(type(type(C))('D', (), {'f': lambda s: 0}).f.__builtins__['open'])",
    "three_argument_type": "READ(type('C', (), {'o': (lambda: 0).__builtins__['open']}).o)",
    "new_class": "import types\nREAD(types.new_class('C', (), {}, lambda ns: ns.update(o=(lambda: 0).__builtins__['open'])).o)",
    "class_getitem": "class C:\n    def __class_getitem__(cls, key): return cls.__class_getitem__.__func__.__builtins__[key]\nREAD(C['open'])",
    "init_subclass": "kept = []\nclass C:\n    def __init_subclass__(cls): kept.append(cls.__mro__[-1].__subclasses__)\nclass D(C): pass\nREAD(kept[0] and (lambda: 0).__builtins__['open'])",
    "attribute_error_obj": "import re\ntry:\n    re.no_such_name\nexcept AttributeError as e:\n    READ(e.obj._compiler.__builtins__['open'])",
    "attribute_error_obj_by_name": "import re\ntry:\n    re.no_such_name\nexcept AttributeError as e:\n    READ(getattr(e, 'obj')._compiler.__builtins__['open'])",
    "re_enum": "import re\nREAD(re.enum.bltns.open)",
    "json_codecs": "import json\nREAD(json.codecs.open)",
    "from_json_codecs": "from json import codecs\nREAD(codecs.open)",
    "from_json_scanner": "from json import scanner\nREAD(scanner.re.enum.bltns.open)",
    "import_json_scanner": "import json.scanner as s\nREAD(s.re.enum.bltns.open)",
    "json_decoder_sys": "import json.decoder\nREAD(json.decoder.scanner.re.enum.bltns.open)",
    "statistics_sys": "import statistics\nREAD(statistics.sys.modules['io'].open)",
    "datetime_sys": "import datetime\nREAD((datetime.sys if hasattr(datetime, 'sys') else __import__('sys')).modules['io'].open)",
    "random_os": "import random\nREAD(random._os.fdopen and random._os.open and (lambda p: random._os.fdopen(random._os.open(p, 0))))",
    "sys_modules": "import sys\nREAD(sys.modules['io'].open)",
    "sys_getframe": "import sys\nREAD(sys._getframe().f_builtins['open'])",
    "stdout_class": "import sys\nREAD(type(sys.stdout).__init__ and (lambda: 0).__builtins__['open'])",
    "collections_sys": "import collections\nREAD(collections._sys.modules['io'].open)",
    "user_string": "from collections import UserString\nREAD(UserString.__init__.__builtins__['open'])",
    "string_formatter": "import string\nfield, _ = string.Formatter().get_field('0.__builtins__', [lambda: 0], {})\nREAD(field['open'])",
    "formatter_vformat": (
        "import string\nkept = []\nclass F(string.Formatter):\n    def format_field(self, value, spec):\n"
        "        kept.append(value)\n        return ''\nF().vformat('{0.__builtins__}', [lambda: 0], {})\nREAD(kept[0]['open'])"
    ),
    "eval": "READ(eval('open'))",
    "exec": "n = {}\nexec('o = open', n)\nREAD(n['o'])",
    "compile": "n = {}\nexec(compile('o = open', 'x', 'exec'), n)\nREAD(n['o'])",
    "globals": "READ(globals()['__builtins__']['open'] if isinstance(globals()['__builtins__'], dict) else globals()['__builtins__'].open)",
    "alias_of_eval": "e = [eval][0]\nREAD(e('open'))",
    "deepcopy_memo": "import copy\nmemo = {}\ncopy.deepcopy(getattr, memo)\nREAD([v for v in [*memo.values(), (lambda: 0)] if hasattr(v, '__builtins__')][0].__builtins__['open'])",
    "pickle": "import pickle\nREAD(pickle.loads(b'cio\\nopen\\n.'))",
    "exception_group_split": (
        "class G(BaseExceptionGroup):\n    def split(self, condition): return ((lambda: 0), None)\n"
        "    def derive(self, all): return self\ntry:\n    try:\n        raise G('x', [ValueError()])\n    except* ValueError as e:\n        pass\n"
        "except BaseException:\n    pass\nREAD((lambda: 0).__builtins__['open'])"
    ),
    "guard_by_parameter": "def f(_getattr_, /): return _getattr_\nREAD(f((lambda: 0).__builtins__['open']))",
    "guard_rebound": "global _getattr_, _write_\n_getattr_ = _write_ = lambda *a: a\nREAD((lambda: 0).__builtins__['open'])",
    "guard_deleted": "_getattr_ = 1\ndel _getattr_\nREAD((lambda: 0).__builtins__['open'])",
    "after_return": (
        "class D(dict):\n    def items(self):\n        kept.append(open(sample['path']).read())\n        return super().items()\nkept = []\n"
        "d = D()\nlist(d.items())\nreturn kept[0]"
    ),
    "repr_after_return": "class R:\n    def __repr__(self): return open(sample['path']).read()\nreturn repr(R())",
    "site_builtins": "READ(license._Printer__setup.__globals__['__builtins__']['open'])",
    "ctx_globals": "READ((ctx.responses_create if ctx else (lambda: 0)).__builtins__['open'])",
    "contextmanager_gen": (
        "from contextlib import contextmanager\n@contextmanager\ndef c():\n    yield\nREAD(c().gen.gi_frame.f_builtins['open'])"
    ),
    "partial_func": "from functools import partial\nREAD(partial(lambda: 0).func.__builtins__['open'])",
    "property_fget": "class C:\n    @property\n    def p(self): pass\nREAD(C.p.fget.__builtins__['open'])",
    "type_parameter": "class C[T: (lambda: 0).__builtins__['open']]: pass\nREAD(C.__type_params__[0].__bound__)",
    "unicode_name": "READ((lambda: 0).__ｂuiltins__['open'])",
    "ast_parse_filename": "import ast\ntry:\n    ast.parse('x x', sample['path'])\nexcept SyntaxError as e:\n    return e.text",
    "copy_instance_reduce": (
        "import copy, json, types\nfrom abc import ABC\nclass T(ABC): pass\nclass C: pass\nclass S(tuple): pass\nc = C()\n"
        "c.__dict__['__reduce_ex__'] = lambda p: (lambda: T, (), S((None, {'__match_args__': ('__builtins__',)})))\ncopy.copy(c)\n"
        "T.register(types.FunctionType)\nmatch json.dumps:\n    case T(b):\n        READ(b['open'])"
    ),
    "copy_answered_reduce": (
        "import copy, json, types\nfrom abc import ABC\nclass T(ABC): pass\nclass C(Exception):\n    def __getattribute__(self, name):\n"
        "        if name == '__reduce_ex__': return lambda p: (lambda: T, (), (None, {'__match_args__': ('__builtins__',)}))\n"
        "        return super().__getattribute__(name)\ncopy.copy(C())\n"
        "T.register(types.FunctionType)\nmatch json.dumps:\n    case T(b):\n        READ(b['open'])"
    ),
    "copy_state_from_memo": (
        "import copy, json, types\nfrom abc import ABC\nclass T(ABC): pass\nclass C: pass\nclass M(dict):\n    def get(self, key, default=None):\n"
        "        found = dict.get(self, key, default)\n        return (None, {'__match_args__': ('__builtins__',)}) if found == {'state': 1} else found\n"
        "c = C()\nc.__dict__['__reduce_ex__'] = lambda p: (lambda: T, (), (None, {'__match_args__': ('__builtins__',)}))\ncopy.deepcopy(c, M())\n"
        "T.register(types.FunctionType)\nmatch json.dumps:\n    case T(b):\n        READ(b['open'])"
    ),
    "dataclass_frame": FRAME.replace("FIELD", "@dataclass\nclass C(ABC):\n    gi_frame: int = 0"),
    "namedtuple_frame": FRAME.replace("FIELD", "from collections import namedtuple\nclass C(namedtuple('X', 'gi_frame'), ABC): pass"),
    "typing_namedtuple_frame": FRAME.replace(
        "FIELD", "from typing import NamedTuple\nclass X(NamedTuple):\n    gi_frame: int\nclass C(X, ABC): pass"
    ),
    "enum_names_that_change": (
        "from enum import Enum\nclass P(tuple):\n    def __getitem__(self, i): return 'harmless'\n"
        "C = Enum('C', [P(('__match_args__', ('__class__',))), ('a', 1)])\nmatch C.a:\n    case C(k):\n"
        "        READ(k.__contains__.__func__.__builtins__['open'])"
    ),
}  # fmt: skip


def source_of(body: str) -> str:
    def read(line: str) -> str:
        indent = line[: len(line) - len(line.lstrip())]
        opener = line.strip()[len("READ(") : -1]
        return f"{indent}with ({opener})(sample['path']) as file:\n    {indent}    return file.read()"

    lines = [read(line) if line.strip().startswith("READ(") else line for line in body.splitlines()]
    return "def grade(sample, item, ctx=None):\n" + "\n".join(f"    {line}" for line in lines) + "\n"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret.txt"
    path.write_text(SECRET)
    return path


def everything_said(sandbox: Sandbox, program: Program, sample: dict[str, Any]) -> str:
    result = sandbox.run(program, "grade", [sample, {}], shape="score", timeout_s=5)
    assert result.status in ("returned", "raised"), result
    return repr(result)


@pytest.mark.parametrize("name", ESCAPES)
def test_escape(sandbox: Sandbox, unguarded: Sandbox, secret: Path, name: str) -> None:
    source = source_of(ESCAPES[name])
    sample = {"path": str(secret)}
    try:
        code = compile(source, "g.py", "exec", dont_inherit=True)
    except SyntaxError:
        pytest.skip("this Python does not know the syntax")
    namespace: dict[str, Any] = {"__name__": __name__}
    exec(code, namespace)
    control = namespace["grade"](sample, {})
    assert control == SECRET, "the control: in plain Python this reads the file"

    program = Program(source, "g.py", ("grade",))
    problems = sandbox.check(program)
    for problem in problems:
        assert problem.where.startswith("g.py:"), problem
    # What the check refuses never runs; it must not run either when somebody runs it all the same.
    assert SECRET not in everything_said(sandbox, program, sample)
    sandbox.retire(program)

    # Plain Python in the child: the same code runs to its end, and the kernel refuses the file.
    alone = everything_said(unguarded, program, sample)
    assert SECRET not in alone
    unguarded.retire(program)


LEAKS: dict[str, str] = {
    "format": "return '{0.__class__.__mro__}'.format(1)",
    "format_nested": "class K:\n    def __format__(self, spec): return spec\nreturn '{0:{1.__class__.__mro__}}'.format(K(), 1)",
    "format_bound": "f = '{0.__class__.__mro__}'.format\nreturn f(1)",
    "format_unbound": "return str.format('{0.__class__.__mro__}', 1)",
    "format_map": "return '{x.__class__.__mro__}'.format_map({'x': 1})",
    "format_by_name": "return getattr('{0.__class__.__mro__}', 'format')(1)",
    "format_subclass": "class S(str): pass\nreturn S('{0.__class__.__mro__}').format(1)",
    "format_super": "class S(str):\n    def go(self, x): return super().format(x)\nreturn S('{0.__class__.__mro__}').go(1)",
    "format_methodcaller": "from operator import methodcaller\nreturn methodcaller('format', 1)('{0.__class__.__mro__}')",
    "format_attrgetter": "from operator import attrgetter\nreturn attrgetter('format')('{0.__class__.__mro__}')(1)",
    "format_generic_alias": "import types\nreturn types.GenericAlias('{0.__class__.__mro__}', ()).format(1)",
    "format_match": "match '{0.__class__.__mro__}':\n    case str(format=f):\n        return f(1)",
    "format_getattribute": "return object.__getattribute__('{0.__class__.__mro__}', 'format')(1)",
    "format_map_function": "return next(map(str.format, ['{0.__class__.__mro__}'], [1]))",
    "user_string": "from collections import UserString\nreturn UserString('{0.__class__.__mro__}').format(1)",
    "user_string_data": "from collections import UserString\nreturn UserString('{0.__class__.__mro__}').data.format(1)",
    "augmented_format": "class S(str): pass\nclass R:\n    def __radd__(self, other): return other(1)\ns = S('{0.__class__.__mro__}')\ns.format += R()\nreturn s.format",
    "formatter": "import string\nreturn string.Formatter().format('{0.__class__.__mro__}', 1)",
    "mro": "return repr((1).__class__.__mro__)",
    "format_dataclass_match": "from dataclasses import dataclass\n@dataclass(init=False)\nclass S(str):\n    format: int\nmatch S('{0.__class__.__mro__}'):\n    case S(f):\n        return f(1)",
    "format_inherited_match": "from dataclasses import dataclass\n@dataclass(init=False)\nclass F:\n    format: int\nclass S(F, str): pass\nmatch S('{0.__class__.__mro__}'):\n    case S(f):\n        return f(1)",
    "format_registered_match": "from abc import ABC\nfrom dataclasses import dataclass\n@dataclass\nclass C(ABC):\n    format: int\nC.register(str)\nmatch '{0.__class__.__mro__}':\n    case C(f):\n        return f(1)",
    "bases": "return repr(bool.__bases__) + '<class \\'object\\'>'",
    "hint": "return '' if sample else ''",
}  # fmt: skip
del LEAKS["hint"]


@pytest.mark.parametrize("name", LEAKS)
def test_attributes_do_not_leak_through_formatting(sandbox: Sandbox, name: str) -> None:
    source = source_of(LEAKS[name])
    namespace: dict[str, Any] = {"__name__": __name__}
    exec(compile(source, "g.py", "exec", dont_inherit=True), namespace)
    mark = "<class 'object'>"
    try:
        assert mark in namespace["grade"]({}, {})
    except AttributeError as error:
        # `s.format += …` needs a class whose attributes can be set, which plain Python gives: nothing else may fail.
        pytest.fail(f"the control does not work: {error}")
    program = Program(source, "g.py", ("grade",))
    sandbox.check(program)
    assert mark not in everything_said(sandbox, program, {})


STATE: dict[str, str] = {
    "global": "seen.append(1)\nreturn len(seen)",
    "function_attribute": "grade.n = getattr(grade, 'n', 0) + 1\nreturn grade.n",
    "class_attribute": "Box.n += 1\nreturn Box.n",
    "default_argument": "return add()",
    "facade": "import json\ntry:\n    json.n = getattr(json, 'n', 0) + 1\nexcept AttributeError:\n    return 1\nreturn json.n",
    "facade_function": "import json\ntry:\n    json.dumps.n = getattr(json.dumps, 'n', 0) + 1\nexcept AttributeError:\n    return 1\nreturn json.dumps.n",
    "library_class": "from collections import Counter\ntry:\n    Counter.n = getattr(Counter, 'n', 0) + 1\nexcept AttributeError:\n    return 1\nreturn Counter.n",
    "library_class_setattr": "from fractions import Fraction\ntry:\n    setattr(Fraction, 'n', getattr(Fraction, 'n', 0) + 1)\nexcept AttributeError:\n    return 1\nreturn Fraction.n",
    "abstract_register": "from collections.abc import Sized\nwas = isinstance(3, Sized)\ntry:\n    Sized.register(int)\nexcept AttributeError:\n    pass\nreturn 2 if was else 1",
    "decimal_context": "from decimal import getcontext\ngetcontext().prec += 1\nreturn getcontext().prec - 28",
    "random_state": "import random\nreturn random.randint(1, 10**9) * 0 + len({random.random() for _ in range(2)}) - 1",
    "typing_cache": "from typing import Literal, get_args\nclass K:\n    n = 0\n    def __hash__(self): return 1\n    def __eq__(self, other): return True\nk = get_args(Literal[K()])[0]\nk.n += 1\nreturn k.n",
    "abstractmethod": "from abc import abstractmethod\nimport json\ntry:\n    abstractmethod(json.dumps)\nexcept TypeError:\n    return 1\nreturn 2",
    "lru_cache": "from functools import cache\n@cache\ndef f(): return []\nf().append(1)\nreturn len(f())",
    "arguments": "item['rows'].append(1)\nreturn len(item['rows'])",
}  # fmt: skip
POISON = "class K(KIND):\n    def __hash__(self): return hash(PLAIN)\n    def __eq__(self, other): return self.n()\n    def n(self): return True\n"
# A library's import, the kind and the text of a key that equals another one, what puts it into a cache of the library in
# the first sample, and what a later sample must still get.
POISONED: dict[str, tuple[str, str, str, str, str]] = {
    "re_flags": ("import re", "int", "0", "re.compile('abc', K(2))", "not re.match('abc', 'ABC')"),
    "re_template": ("import re", "str", r"'<\\1>'", r"re.compile('(b)').sub(K('[\\1]'), 'abc')", r"re.compile('(b)').sub('<\\1>', 'abc') == 'a<b>c'"),
    "strptime": ("from datetime import datetime", "str", "'%d %m'", "datetime.strptime('01 02', K('%m %d'))", "datetime.strptime('01 02', '%d %m').month == 2"),
    "struct": ("import struct", "str", "'<I'", "struct.pack(K('>I'), 1)", "struct.pack('<I', 1)[0] == 1"),
    "element_path": ("import xml.etree.ElementTree as ET\ne = ET.fromstring('<r><a><b/></a><c><d/></c></r>')", "str", "'a/b'", "e.find(K('c/d'))", "e.find('a/b').tag == 'b'"),
    "special_form": ("from typing import Optional", "int", "0", "Optional.__init__(lambda form, key: 7)", "Optional[int] != 7"),
    "special_form_by_class": ("from typing import Optional", "int", "0", "type(Optional).__init__(Optional, lambda form, key: 7)", "Optional[int] != 7"),
    "special_form_by_super": ("from typing import Optional\nclass X(type(Optional), _root=True): pass", "int", "0", "super(X, X).__init__(Optional, lambda form, key: 7)", "Optional[int] != 7"),
    "protocol": ("from typing import Protocol", "int", "0", "Protocol.__init_subclass__()", "True"),
    "copy_library": ("import copy, json", "int", "0", "c = K(1)\n    c.__dict__['__reduce_ex__'] = lambda p: (lambda: json.JSONEncoder, (), (None, {'n': 1}))\n    copy.copy(c)", "not hasattr(json.JSONEncoder, 'n')"),
    "text_wrapper": ("import textwrap", "int", "0", "textwrap.TextWrapper.unicode_whitespace_trans[97] = 98", "textwrap.fill('aaa') == 'aaa'"),
}  # fmt: skip


@pytest.mark.parametrize("name", POISONED)
def test_no_cache_of_the_library_carries_objects_into_the_next_sample(sandbox: Sandbox, name: str) -> None:
    imports, kind, plain, poison, check = POISONED[name]
    body = f"if sample == 0:\n    {poison}\n    return 1\nreturn 1 if {check} else 2"
    source = f"{imports}\n{POISON.replace('KIND', kind).replace('PLAIN', plain)}{source_of(body)}"
    program = Program(source, "g.py", ("grade",))
    assert sandbox.check(program) == []
    sandbox.run(program, "grade", [0, {}], shape="score", timeout_s=5)
    for i in (1, 2):
        assert sandbox.run(program, "grade", [i, {}], shape="score", timeout_s=5).value.get("number") == 1.0
    sandbox.retire(program)


def test_a_child_that_keeps_an_object_of_a_sample_is_not_used_again(sandbox: Sandbox) -> None:
    keeps = Program(
        "from fnmatch import fnmatchcase\nclass S(str): pass\ndef grade(s, i):\n    fnmatchcase('ab', S('a*') if s else 'a*')\n    return 1.0\n",
        "g.py",
        ("grade",),
    )
    for kept in (True, False):
        assert sandbox.run(keeps, "grade", [kept, {}], shape="score", timeout_s=5).value["number"] == 1.0
        assert any(process.program == keeps for process in sandbox._idle) is not kept
    sandbox.retire(keeps)


def test_no_function_of_a_facade_opens_a_file(tmp_path: Path) -> None:
    """Where no kernel layer holds, the facades must: nothing that they offer opens what it is told the name of."""
    script = """
import io, sys
from pytest_evalgrader.sandbox import facades, guards
guards.prepare_process()
path, opened, now = sys.argv[1], [], [None]
sys.addaudithook(lambda event, args: opened.append(now[0]) if event == "open" and args[0] in (path, path.encode()) else None)
namespace = guards.Namespace(io.StringIO(), "s", guarded=True)

def attempt(name, function, depth):
    for args in ((path,), (path, path), ("x x", path), (io.StringIO("x"), path), (b"x", path)):
        now[0] = name
        try:
            made = function(*args)
        except BaseException:
            continue
        if depth < 1 and type(made).__module__ != "builtins":
            for other in dir(made):
                if not other.startswith("_") and callable(getattr(made, other, None)):
                    attempt(f"{name}().{other}", getattr(made, other), depth + 1)

for module in facades.MODULES:
    facade = facades.build(module, namespace._replaced)
    for name in facades.exported(module):
        if callable(getattr(facade, name)):
            attempt(f"{module}.{name}", getattr(facade, name), 0)
print(sorted(set(opened)))
"""
    import subprocess
    import sys

    path = tmp_path / "file.txt"
    path.write_text("x")
    root = str(Path(guards.__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(path)],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": root},
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stdout + done.stderr[-2000:]


def test_exception_groups_cannot_be_subclassed_by_a_detour(sandbox: Sandbox) -> None:
    changing = "SimpleNamespace(__mro_entries__=lambda bases: answers.pop())"
    for base in ("ExceptionGroup[ValueError]", "P()", changing):
        source = (
            "from types import SimpleNamespace\nanswers = [(ExceptionGroup,), ()]\nclass P:\n    def __getattr__(self, name):\n        if name == '__mro_entries__': return lambda bases: (ExceptionGroup,)\n"
            f"        raise AttributeError(name)\ndef grade(s, i):\n    class G({base}): pass\n    return 1.0\n"
        )
        result = sandbox.run(Program(source, "g.py"), "grade", [{}, {}], shape="score", timeout_s=5)
        assert result.error is not None
        assert result.error["type"] == "TypeError"


MODULE = "seen = []\nclass Box:\n    n = 0\ndef add(to=[]):\n    to.append(1)\n    return len(to)\n"


@pytest.mark.parametrize("name", STATE)
def test_no_state_passes_between_samples(sandbox: Sandbox, name: str) -> None:
    program = Program(MODULE + source_of(STATE[name]), "g.py", ("grade",))
    assert sandbox.check(program) == []
    for _ in range(3):
        result = sandbox.run(program, "grade", [{}, {"rows": []}], shape="score", timeout_s=5, seed="s")
        assert result.value.get("number") == 1.0, result


def test_random_depends_on_the_seed_alone(sandbox: Sandbox) -> None:
    program = Program("import random\ndef grade(s, i):\n    return random.random()\n", "g.py", ("grade",))
    first, again, other = (
        sandbox.run(program, "grade", [{}, {}], shape="score", timeout_s=5, seed=seed).value["number"] for seed in "aab"
    )
    assert first == again != other


def test_hints_are_never_evaluated(sandbox: Sandbox) -> None:
    source = "def grade(sample: \"(_ for _ in ()).throw(RuntimeError('evaluated'))\", item) -> '1/0':\n    return 1.0\n"
    program = Program(source, "g.py", ("grade",))
    assert sandbox.check(program) == []
    assert sandbox.run(program, "grade", [{}, {}], shape="score", timeout_s=5).value["number"] == 1.0


def test_nothing_reachable_by_attributes_is_a_module_or_a_frame() -> None:
    """Walk all that a grader can reach by attributes it may read: no module, frame, code, metaclass, open or exec."""
    import builtins
    import io
    import os
    from collections import deque

    namespace = guards.Namespace(io.StringIO(), "s", guarded=True)
    forbidden_kinds = (types.ModuleType, types.FrameType, types.CodeType, types.TracebackType)
    forbidden = {
        id(getattr(builtins, name)) for name in ("open", "exec", "eval", "compile", "__import__", "input", "globals")
    } | {id(os.open), id(os.system), id(io.open_code), id(io.FileIO)}
    same_kind = {"method-wrapper", "builtin_function_or_method", "wrapper_descriptor", "method_descriptor"}
    queue: deque[tuple[str, Any, int]] = deque(
        (module, facades.build(module, namespace._replaced), 0) for module in facades.MODULES
    )
    queue.extend((name, value, 0) for name, value in namespace.globals["__builtins__"].items() if name.isidentifier())
    seen: dict[int, Any] = {}
    kinds: set[Any] = set()
    internal = {"__build_class__", "__import__"}
    while queue:
        path, value, depth = queue.popleft()
        if id(value) in seen or path in internal:
            continue
        seen[id(value)] = value
        assert not isinstance(value, forbidden_kinds), path
        assert not (isinstance(value, type) and issubclass(value, type)), path
        assert id(value) not in forbidden, path
        kind = (type(value), getattr(value, "__name__", None)) if type(value).__name__ in same_kind else None
        if type(value) in (str, int, float, bytes, bool, complex):
            kind = type(value)
        if depth >= 5 or kind in kinds:
            continue
        if kind is not None:
            kinds.add(kind)
        for name in dir(value):
            if policy.is_readable(name) and (name in policy.READABLE or not name.startswith("_")):
                try:
                    queue.append((f"{path}.{name}", namespace.getattr(value, name), depth + 1))
                except Exception:  # noqa: BLE001 - properties may raise anything
                    continue
        if isinstance(value, type):
            for arguments in ((), ("a",), ([1],)):
                try:
                    queue.append((f"{path}()", value(*arguments), depth + 1))
                except Exception:  # noqa: BLE001 - constructors may raise anything
                    continue
        queue.append((f"type({path})", guards.type_of(value), depth + 1))
        if type(value) in (list, tuple, set, frozenset):
            queue.extend((f"{path}[]", inner, depth + 1) for inner in list(value)[:20])
    namespace.close()
    assert len(seen) > 2000
