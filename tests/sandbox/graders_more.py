"""More graders of the kinds that people write, each a file as it would stand in a repository; see `graders`."""
# ruff: noqa: E501 - graders as people write them

from __future__ import annotations

MORE: dict[str, str] = {
    "typed_dataclass_report": r'''
"""Module docstring."""
from __future__ import annotations

import re
import typing as t
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Mapping, NamedTuple, Optional, Protocol, TypedDict, Union, cast

if TYPE_CHECKING:
    from evalgrader_types import Sample, Item
    import numpy as np

__all__ = ["grade"]
__version__ = "1.2.0"
__metric__ = "report"
__credits__ = ["me"]

WEIGHTS: Final[dict[str, float]] = {"exact": 0.5, "contains": 0.5}


class Sample_(TypedDict, total=False):
    output_text: str
    extracted_output: Optional[str]


class Check(NamedTuple):
    name: str
    score: float = 0.0

    @property
    def passed(self) -> bool:
        return self.score >= 0.5


class Scorer(Protocol):
    def __call__(self, text: str, target: str) -> float: ...


@dataclass(frozen=True, order=True)
class Report:
    kind: ClassVar[str] = "report"
    checks: tuple[Check, ...] = ()
    notes: list[str] = field(default_factory=list, compare=False, hash=False)
    _hidden: int = field(default=3, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "notes", [*self.notes, "made"])

    @classmethod
    def of(cls, **scores: float) -> Report:
        return cls(tuple(Check(k, v) for k, v in sorted(scores.items())))

    @property
    def total(self) -> float:
        return sum(WEIGHTS.get(c.name, 0.0) * c.score for c in self.checks)


def exact(text: str, target: str) -> float:
    return float(text.strip() == target)


def contains(text: str, target: str) -> float:
    return float(target.lower() in text.lower())


SCORERS: dict[str, Scorer] = {"exact": exact, "contains": contains}


def grade(sample: Sample_, item: Mapping[str, Any], threshold: float = 0.5) -> dict[str, Any]:
    text = cast(str, sample["output_text"])
    report = Report.of(**{name: fn(text, item["target"]) for name, fn in SCORERS.items()})
    other = replace(report, notes=["x"])
    d = asdict(report)
    return {"scores": {"total": report.total, "n": len(fields(report))}, "judge": {"report": d, "repr": repr(report), "same": other == report, "passed": [c.passed for c in report.checks], "notes": other.notes, "d": [c._asdict() for c in report.checks]}}
''',
    "abc_strategy": r"""
import abc
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence, Callable
from functools import reduce, partial, lru_cache, cached_property, total_ordering, wraps


class Metric(ABC):
    registry: dict = {}

    def __init_subclass__(cls, /, name=None, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.name = name or cls.__name__.lower()
        Metric.registry[cls.name] = cls

    @property
    @abc.abstractmethod
    def weight(self) -> float: ...

    @abstractmethod
    def score(self, a, b):
        raise NotImplementedError

    def __call__(self, a, b):
        return self.weight * self.score(a, b)

    @classmethod
    def register(cls, other):
        Metric.registry["extra"] = other
        return other


class Len(Metric, name="length"):
    weight = 0.25

    def score(self, a, b):
        return min(len(a), len(b)) / max(len(a), len(b), 1)


class Overlap(Metric):
    @cached_property
    def weight(self):
        return 0.75

    @staticmethod
    @lru_cache(maxsize=128)
    def toks(s):
        return frozenset(s.lower().split())

    def score(self, a, b):
        x, y = self.toks(a), self.toks(b)
        return len(x & y) / (len(x | y) or 1)


@Metric.register
class Plain:
    pass


def grade(sample, item):
    try:
        Metric()
        abstract = False
    except TypeError as e:
        abstract = "abstract" in str(e)
    ms = [c() for n, c in sorted(Metric.registry.items()) if n != "extra"]
    total = reduce(lambda acc, m: acc + m(sample["output_text"], item["target"]), ms, 0.0)
    return {"scores": {"total": total}, "judge": {"abstract": abstract, "names": sorted(Metric.registry), "hits": Overlap.toks.cache_info().misses, "doc": Metric.score.__name__}}
""",
    "enum_methods": r"""
import enum
from enum import Enum, IntEnum, Flag, auto, unique, StrEnum


@unique
class Verdict(Enum):
    PASS = "pass"
    FAIL = "fail"
    UNSURE = "unsure"

    @classmethod
    def parse(cls, text):
        for member in cls:
            if member.value in text.lower():
                return member
        if "yes" in cls._value2member_map_:
            return None
        return cls("unsure")

    @property
    def score(self):
        return {Verdict.PASS: 1.0, Verdict.FAIL: 0.0}.get(self, 0.5)

    @classmethod
    def _missing_(cls, value):
        return cls.UNSURE

    def __str__(self):
        return f"<{self.name}>"


class Level(IntEnum):
    LOW = 1
    HIGH = auto()

    def __format__(self, spec):
        return f"L{int(self)}"


class Perm(Flag):
    R = auto()
    W = auto()
    RW = R | W


class Planet(Enum):
    EARTH = (5.97e24, 6.37e6)
    MARS = (6.4e23, 3.4e6)

    def __init__(self, mass, radius):
        self.mass = mass
        self.radius = radius

    @property
    def gravity(self):
        return 6.67e-11 * self.mass / (self.radius * self.radius)


class Mode(StrEnum):
    FAST = auto()


Dyn = Enum("Dyn", "A B C")
Dyn2 = Enum("Dyn2", [("X", 1), ("Y", 2)])
Dyn3 = Enum("Dyn3", {"P": 1})


def grade(sample, item):
    v = Verdict.parse(sample["output_text"])
    return {"scores": {"s": v.score}, "judge": {"v": str(v), "l": f"{Level.HIGH}", "rw": [p.name for p in Perm if p in Perm.RW], "rep": repr(Perm.R | Perm.W), "g": round(Planet.EARTH.gravity, 3), "mode": Mode.FAST, "dyn": [d.name for d in Dyn] + list(Dyn2.__members__) + [m.name for m in Dyn3], "cmp": Level.LOW < Level.HIGH, "bad": Verdict("zzz").name, "len": len(Verdict), "in": Verdict.PASS in Verdict, "by": Verdict["PASS"].value, "map": sorted(Verdict._value2member_map_), "names": Verdict._member_names_}}
""",
    "optional_import": r"""
try:
    import no_such_numpy as np
except ImportError:
    np = None
try:
    from no_such_rapidfuzz.distance import Levenshtein
except (ImportError, AttributeError):
    Levenshtein = None
try:
    import no_such_regex as re
except ModuleNotFoundError:
    import re


def grade(sample, item):
    if np is not None:
        return float(np.array([1]).sum())
    return {"scores": {"s": len(re.findall(r"\w+", sample["output_text"]))}}
""",
    "main_guard_cli": r"""
import json


def grade(sample, item):
    return 1.0 if item["target"] in sample["output_text"] else 0.0


def main():
    print(grade({"output_text": "a"}, {"target": "a"}))


if __name__ == "__main__":
    import argparse
    import sys
    import pathlib

    parser = argparse.ArgumentParser()
    with open(sys.argv[1]) as f:
        data = json.load(f)
    main()
""",
    "regexes": r'''
import re

DATE = re.compile(r"(?P<y>\d{4})-(?P<m>\d{2})-(?P<d>\d{2})")
NUM = re.compile(
    r"""
    (?<![\w.])      # not inside a word
    [-+]?\d+(?:,\d{3})*(?:\.\d+)?
    (?!\w)          # end
    """,
    re.VERBOSE,
)
TAGS = re.compile(r"<(?P<tag>\w+)>(?P<body>.*?)</(?P=tag)>", re.S | re.I)


def _swap(m: re.Match[str]) -> str:
    return f"{m['d']}.{m.group('m')}.{m[1]}"


def grade(sample, item):
    t = sample["output_text"]
    found = DATE.search(t)
    out = DATE.sub(_swap, t)
    nums = [m.group().replace(",", "") for m in NUM.finditer(t)]
    parts = re.split(r"(?<=[.!?])\s+", t)
    n = re.subn(r"(\w)(\w*)", lambda m: m.group(1).upper() + m.group(2), t, count=3)
    return {"scores": {"n": len(nums)}, "judge": {"found": found.groupdict() if found else None, "span": found.span("y") if found else None, "out": out, "parts": parts, "subn": n, "tpl": DATE.sub(r"\g<d>/\2/\g<1>", t), "flags": int(TAGS.flags), "gi": dict(TAGS.groupindex), "esc": re.escape("a.b*"), "exp": found.expand(r"\1") if found else "", "full": bool(re.fullmatch(r"[\s\S]*", t)), "ln": len(re.findall("^.", t, flags=re.M))}}
''',
    "templates_text": r"""
import string
import textwrap
from string import Template


class Percent(Template):
    delimiter = "%"
    idpattern = r"[a-z]+"


class Safe(dict):
    def __missing__(self, key):
        return "{" + key + "}"


def grade(sample, item):
    t = Template("$who said ${what}! $$5 $missing")
    w = textwrap.TextWrapper(width=20, initial_indent="* ", subsequent_indent="  ")
    w.width = 25
    return {"scores": {"s": 1.0}, "judge": {"a": t.safe_substitute(who=item["target"], what=sample["output_text"]), "b": Percent("%x-%%").substitute({"x": 1}), "c": w.wrap(sample["output_text"]), "d": textwrap.shorten(sample["output_text"], 15, placeholder="..."), "e": textwrap.dedent("   a\n    b"), "f": "{a} {b}".format_map(Safe(a=1)), "g": string.capwords(item["target"]), "h": "{:>{w}.{p}f}|{!r:^10}".format(3.14159, "x", w=10, p=2), "i": f"{1234567.891:,.2f} {0.25:%} {255:#x} {'s'!r:>6} {5=}", "j": "%-5s|%05.1f|%(z)s" % {"z": 1} if False else "%-5s|%05.1f" % ("a", 2.25), "k": "{0[a][0]} {0[b]}".format({"a": [1], "b": 2}), "ids": Template("$a $b").template}}
""",
    "difflib_stuff": r"""
from difflib import SequenceMatcher, get_close_matches, ndiff, unified_diff, Differ


def grade(sample, item):
    a, b = sample["output_text"], item["target"]
    m = SequenceMatcher(None, a, b, autojunk=False)
    return {"scores": {"r": m.ratio(), "q": m.quick_ratio()}, "judge": {"ops": [list(o) for o in m.get_opcodes()][:5], "blocks": [tuple(x) for x in m.get_matching_blocks()], "lm": m.find_longest_match(0, len(a), 0, len(b))._asdict(), "close": get_close_matches("appel", ["ape", "apple", "peach"]), "nd": list(ndiff(["a"], ["b"])), "ud": list(unified_diff(["a\n"], ["b\n"], "x", "y")), "D": list(Differ().compare(["one\n"], ["ore\n"]))}}
""",
    "decimals_ctx": r"""
from decimal import Decimal, getcontext, localcontext, ROUND_HALF_UP, ROUND_DOWN, InvalidOperation, Context, DivisionByZero, Inexact
import decimal
from fractions import Fraction

getcontext().prec = 30


def to_decimal(s):
    try:
        return Decimal(s.replace(",", "").strip("$ "))
    except (InvalidOperation, ValueError):
        return None


def grade(sample, item):
    d = to_decimal(item["target"])
    with localcontext() as ctx:
        ctx.prec = 6
        ctx.rounding = ROUND_DOWN
        x = Decimal(1) / Decimal(7)
    with decimal.localcontext(Context(prec=3)):
        y = Decimal(2) / 3
    z = Decimal("2.675").quantize(Decimal("0.01"), rounding=ROUND_HALF_UP)
    try:
        Decimal(1) / 0
    except DivisionByZero as e:
        err = type(e).__name__
    f = Fraction("3/4") + Fraction(1, 4) * Fraction(0.5).limit_denominator(10)
    return {"scores": {"s": float(z)}, "judge": {"d": str(d), "x": str(x), "y": str(y), "one7": str(Decimal(1) / 7), "err": err, "f": str(f), "tup": Decimal("1.5").as_tuple()._asdict(), "fd": [f.numerator, f.denominator], "frac": [str(Fraction(s)) for s in ("0.75", "1e-2")], "norm": str(Decimal("1.500").normalize()), "flag": getcontext().flags[Inexact]}}
""",
    "datetimes": r"""
from datetime import datetime, date, time, timedelta, timezone
import datetime as dt
import calendar
import time as _time

FORMATS = ("%Y-%m-%d", "%d/%m/%Y", "%B %d, %Y", "%b %d %Y %I:%M %p", "%A %d %B %Y")
CET = timezone(timedelta(hours=1), "CET")


class Fixed(dt.tzinfo):
    def utcoffset(self, when):
        return timedelta(hours=-5)

    def dst(self, when):
        return timedelta(0)

    def tzname(self, when):
        return "EST"


def parse(s):
    for f in FORMATS:
        try:
            return datetime.strptime(s, f)
        except ValueError:
            continue


def grade(sample, item):
    ds = [parse(s) for s in ("2024-02-29", "31/12/2023", "March 5, 2024", "Jan 02 2024 03:04 PM", "Friday 01 March 2024", "nope")]
    iso = datetime.fromisoformat("2024-02-29T12:30:00+02:00")
    x = datetime(2024, 3, 1, 12, tzinfo=Fixed())
    return {"scores": {"days": (ds[0] - ds[1]).days}, "judge": {"ds": [d.isoformat() if d else None for d in ds], "utc": iso.astimezone(timezone.utc).isoformat(), "cet": iso.astimezone(CET).strftime("%Y-%m-%d %H:%M %Z %z"), "x": x.astimezone(timezone.utc).isoformat(), "tot": timedelta(days=1, hours=2).total_seconds(), "wk": date(2024, 2, 29).isocalendar()[1], "rep": date(2024, 1, 31).replace(day=1).isoformat(), "mr": calendar.monthrange(2024, 2), "mn": calendar.month_name[2], "td": str(timedelta(minutes=-5)), "c": sorted([date(2024, 1, 2), date(2023, 1, 1)])[0].isoformat(), "ts": datetime.fromtimestamp(0, tz=timezone.utc).year, "st": _time.strftime("%Y", _time.gmtime(0)), "x3": time(1, 2).isoformat(), "tt": x.timetuple()[:3], "off": str(x.utcoffset()), "min": date.min.year}}
""",
    "stats_kinds": r"""
import statistics as st
import math
import random
from collections import Counter, defaultdict, deque, OrderedDict, ChainMap
import itertools as it
import heapq, bisect

random.seed(13)


def grade(sample, item):
    xs = [random.gauss(0, 1) for _ in range(10)]
    r = random.Random(42)
    pick = r.sample(range(100), 5)
    c = Counter(sample["output_text"].lower().split())
    c.update(["a", "a"])
    c.subtract({"a": 1})
    dd = defaultdict(lambda: defaultdict(int))
    for w in c:
        dd[w[:1]][w] += c[w]
    dq = deque(c, maxlen=3)
    dq.rotate(1)
    od = OrderedDict(sorted(c.items()))
    if od:
        od.move_to_end(next(iter(od)))
    cm = ChainMap({"a": 1}, {"b": 2, "a": 3})
    h = []
    for i, w in enumerate(sorted(c)):
        heapq.heappush(h, (-len(w), i, w))
    nd = st.NormalDist(0, 1)
    lr = st.linear_regression([1, 2, 3], [2, 4, 6.5])
    return {"scores": {"m": st.mean([1, 2, 3, 4]), "sd": st.stdev([1, 2, 4]), "med": st.median_low([1, 2, 3, 4]), "q": st.quantiles([1, 2, 3, 4, 5], n=4)[0]}, "judge": {"xs": [round(x, 6) for x in xs], "pick": pick, "c": c.most_common(3), "tot": c.total(), "dd": {k: dict(v) for k, v in dd.items()}, "dq": list(dq), "od": list(od), "cm": dict(cm), "cdf": nd.cdf(1.0), "slope": lr.slope, "corr": st.correlation([1, 2, 3], [1, 2, 4]), "mode": st.multimode("aabb"), "big": heapq.nlargest(2, c.values()), "bis": bisect.bisect_right([1, 2, 2, 3], 2), "acc": list(it.accumulate([1, 2, 3], initial=5)), "grp": [(k, len(list(g))) for k, g in it.groupby("aabbb")], "pw": list(it.pairwise("abc")), "prod": len(list(it.product("ab", repeat=3))), "z": list(it.zip_longest("ab", "c", fillvalue="-")), "perm": ["".join(p) for p in it.permutations("abc", 2)][:3], "sl": list(it.islice(it.cycle("ab"), 5)), "ch": list(it.chain.from_iterable([[1], [2]])), "tw": list(it.takewhile(str.isalpha, "ab1")), "st": list(it.starmap(pow, [(2, 3)])), "math": [math.comb(5, 2), math.isclose(0.1 + 0.2, 0.3), math.log2(8), math.hypot(3, 4), math.dist([0], [1]), math.prod([2, 3]), math.gcd(12, 18), math.fsum([0.1] * 10), math.isqrt(17), math.erf(0.5), math.tau], "shuf": r.choices("abc", k=4, weights=[1, 2, 3])}}
""",
    "json_hooks": r"""
import json
from json import JSONDecodeError, JSONDecoder, JSONEncoder
from decimal import Decimal
from collections import OrderedDict
from datetime import date


class Enc(json.JSONEncoder):
    def default(self, o):
        if isinstance(o, set):
            return sorted(o)
        if isinstance(o, date):
            return o.isoformat()
        return super().default(o)


def no_dups(pairs):
    d = {}
    for k, v in pairs:
        if k in d:
            raise ValueError(f"duplicate {k}")
        d[k] = v
    return d


def extract(text):
    dec = JSONDecoder()
    i = text.find("{")
    while i != -1:
        try:
            obj, end = dec.raw_decode(text, i)
            return obj, end
        except JSONDecodeError:
            i = text.find("{", i + 1)
    return None, -1


def grade(sample, item):
    t = sample["output_text"]
    obj, end = extract(t)
    try:
        json.loads(t)
        err = None
    except json.JSONDecodeError as e:
        err = [e.msg, e.pos, e.lineno, e.colno]
    try:
        json.loads('{"a":1,"a":2}', object_pairs_hook=no_dups)
        dup = None
    except ValueError as e:
        dup = str(e)
    try:
        json.dumps(object())
    except TypeError as e:
        te = str(e)
    return {"scores": {"ok": float(err is None)}, "judge": {"obj": obj, "end": end, "err": err, "dup": dup, "d": str(json.loads("1.10", parse_float=Decimal)), "enc": json.dumps({"s": {2, 1}, "d": date(2024, 1, 1)}, cls=Enc, sort_keys=True, indent=1), "sep": json.dumps([1, 2], separators=(",", ":")), "u": json.dumps("é", ensure_ascii=False), "h": json.loads('{"x":1}', object_hook=lambda d: list(d.items())), "def": json.dumps({1: {3}}, default=list), "nan": json.dumps(float("nan")), "te": te, "it": "".join(JSONEncoder().iterencode([1]))}}
""",
    "csv_io": r"""
import csv
import io
from io import StringIO


def grade(sample, item):
    buf = io.StringIO()
    w = csv.DictWriter(buf, fieldnames=["a", "b"], extrasaction="ignore", lineterminator="\n")
    w.writeheader()
    w.writerow({"a": sample["output_text"], "b": item["target"], "c": 1})
    rows = list(csv.DictReader(StringIO(buf.getvalue())))
    semi = list(csv.reader(["a;b", "c;'d;e'"], delimiter=";", quotechar="'"))
    with StringIO("x\ny") as f:
        lines = [line.rstrip() for line in f]
    out = io.StringIO()
    print("hello", 1, file=out, end="!")
    return {"scores": {"n": len(rows)}, "judge": {"rows": rows, "semi": semi, "lines": lines, "out": out.getvalue(), "bytes": io.BytesIO(b"abc").read(2).hex()}}
""",
    "unicode_norm": r"""
import unicodedata, html, hashlib, base64, binascii, zlib, uuid, hmac, urllib.parse, struct
from urllib.parse import urlparse, parse_qs, quote, unquote


def strip_accents(s):
    return "".join(c for c in unicodedata.normalize("NFKD", s) if not unicodedata.combining(c))


def grade(sample, item):
    t = sample["output_text"]
    u = urlparse("https://user@example.com:80/p/a?q=1&q=2#f")
    return {"scores": {"s": float(strip_accents(t).casefold() == t)}, "judge": {"n": strip_accents(t), "cat": [unicodedata.category(c) for c in t[:5]], "name": unicodedata.name("é", ""), "html": html.unescape("&lt;b&gt; &amp; &eacute; &#39;"), "esc": html.escape(t, quote=False), "sha": hashlib.sha256(t.encode()).hexdigest()[:8], "md5": hashlib.new("md5", t.encode()).hexdigest()[:8], "b64": base64.b64encode(t.encode()).decode(), "url": base64.urlsafe_b64decode("YQ==").decode(), "crc": zlib.crc32(b"x"), "hex": binascii.hexlify(b"ab").decode(), "uuid": str(uuid.uuid5(uuid.NAMESPACE_DNS, "a")), "mac": hmac.new(b"k", b"m", "sha256").hexdigest()[:6], "u": [u.scheme, u.netloc, u.hostname, u.port, u.path, u._replace(query="").geturl()], "qs": parse_qs(u.query), "q": quote("a b/ü"), "uq": unquote("a%20b"), "ue": urllib.parse.urlencode({"a": [1, 2]}, doseq=True), "st": struct.unpack("<I", struct.pack("<I", 7)), "enc": t.encode("ascii", "ignore").decode(), "latin": "é".encode("latin-1").hex(), "tr": t.translate(str.maketrans("", "", "aeiou")), "z": zlib.decompress(zlib.compress(b"abc" * 10)).decode(), "w": unicodedata.east_asian_width("あ"), "dig": unicodedata.numeric("½")}}
""",
    "operators_class": r"""
from functools import total_ordering
import operator
from operator import itemgetter, attrgetter, methodcaller
from copy import copy, deepcopy


@total_ordering
class Vec:
    __slots__ = ("x", "y", "__weakref__")

    def __init__(self, x=0.0, y=0.0):
        self.x, self.y = x, y

    def __add__(self, o): return Vec(self.x + o.x, self.y + o.y)
    def __radd__(self, o): return self if o == 0 else NotImplemented
    def __mul__(self, k): return Vec(self.x * k, self.y * k)
    __rmul__ = __mul__
    def __matmul__(self, o): return self.x * o.x + self.y * o.y
    def __neg__(self): return Vec(-self.x, -self.y)
    def __abs__(self): return (self @ self) ** 0.5
    def __bool__(self): return bool(self.x or self.y)
    def __eq__(self, o): return isinstance(o, Vec) and (self.x, self.y) == (o.x, o.y)
    def __lt__(self, o): return abs(self) < abs(o)
    def __hash__(self): return hash((self.x, self.y))
    def __iter__(self): yield from (self.x, self.y)
    def __getitem__(self, i): return (self.x, self.y)[i]
    def __len__(self): return 2
    def __contains__(self, v): return v in (self.x, self.y)
    def __repr__(self): return f"{type(self).__name__}({self.x!r}, {self.y!r})"
    def __format__(self, spec): return f"<{self.x:{spec}},{self.y:{spec}}>"
    def __iadd__(self, o):
        self.x += o.x
        return self
    def __call__(self, *a, **k): return (a, k)
    def __enter__(self): return self
    def __exit__(self, *exc): return False
    def __index__(self): return int(self.x)
    def __float__(self): return float(abs(self))
    def __round__(self, n=0): return Vec(round(self.x, n), round(self.y, n))
    def __reversed__(self): return iter((self.y, self.x))
    def __copy__(self): return Vec(self.x, self.y)


class Stack(list):
    def push(self, v): self.append(v); return self
    @property
    def top(self): return self[-1] if self else None
    @top.setter
    def top(self, v): self[-1] = v
    @top.deleter
    def top(self): del self[-1]


class Lazy:
    def __init__(self, **kw): self.__dict__.update(kw)
    def __getattr__(self, name):
        if name.startswith("get_"):
            return lambda: self.__dict__[name[4:]]
        raise AttributeError(f"no {name}")
    def __setattr__(self, name, value):
        self.__dict__[name] = value
    def __delattr__(self, name):
        del self.__dict__[name]


class Typed:
    def __init__(self, kind): self.kind = kind
    def __set_name__(self, owner, name): self.name = "_" + name
    def __get__(self, obj, owner=None): return self if obj is None else getattr(obj, self.name, None)
    def __set__(self, obj, v):
        if not isinstance(v, self.kind):
            raise TypeError(f"{self.name}: expected {self.kind.__name__}")
        setattr(obj, self.name, v)


class Person:
    name = Typed(str)
    age = Typed(int)
    def __init__(self, name, age): self.name, self.age = name, age


def grade(sample, item):
    v = Vec(3, 4)
    w = copy(v)
    w += Vec(1, 0)
    s = Stack([1]).push(2)
    s.top = 9
    top = s.top
    del s.top
    lz = Lazy(a=5)
    lz.b = 6
    del lz.b
    try:
        Person("x", "y")
    except TypeError as e:
        err = str(e)
    dp = deepcopy({"v": [v, v], "p": Person("a", 1)})
    try:
        lz.zzz
    except AttributeError as e:
        ae = str(e)
    return {"scores": {"abs": abs(v), "dot": v @ w}, "judge": {"r": repr(w), "f": f"{v:.1f}", "sum": repr(sum([v, w])), "max": repr(max(v, w)), "ge": v >= w, "list": list(v), "idx": [10, 20, 30, 40][v], "call": v(1, a=2), "hash": len({v, Vec(3, 4)}), "rnd": repr(round(Vec(1.26, 2), 1)), "top": top, "left": list(s), "lz": [lz.get_a(), hasattr(lz, "b"), vars(lz)], "err": err, "ae": ae, "same": dp["v"][0] is dp["v"][1], "pn": dp["p"].name, "ig": itemgetter(1, 0)(v), "ag": attrgetter("x", "y")(v), "mc": methodcaller("push", 1)(s) == [1, 1], "rev": list(reversed(v)), "op": operator.matmul(v, w), "sl": Vec.__slots__, "in": 3 in v, "rmul": repr(2 * v)}}
""",
    "contextmanagers": r"""
from contextlib import contextmanager, suppress, ExitStack, nullcontext, closing
import time

LOG = []


@contextmanager
def step(name):
    LOG.append(f"+{name}")
    try:
        yield name.upper()
    except KeyError as e:
        LOG.append(f"!{e!r}")
    finally:
        LOG.append(f"-{name}")


class Timer:
    def __enter__(self):
        self.t0 = time.perf_counter()
        return self

    def __exit__(self, exc_type, exc, tb):
        self.elapsed = time.perf_counter() - self.t0
        self.exc = exc_type.__name__ if exc_type else None
        return exc_type is ZeroDivisionError


def risky(n):
    try:
        return 10 // n
    except ZeroDivisionError as e:
        raise ValueError("bad n") from e
    else:
        return -1
    finally:
        LOG.append("finally")


def grade(sample, item):
    with step("a") as a, step("b"):
        raise KeyError("x")
    with suppress(ValueError):
        risky(0)
    with Timer() as t:
        1 / 0
    with ExitStack() as stack:
        names = [stack.enter_context(step(n)) for n in "cd"]
        stack.callback(LOG.append, "cb")
    try:
        risky(0)
    except ValueError as e:
        cause = repr(e.__cause__)
        ctx = e.__context__ is e.__cause__
    with nullcontext(3) as three:
        pass
    return {"scores": {"n": len(LOG)}, "judge": {"log": LOG, "a": a, "exc": t.exc, "names": names, "cause": cause, "ctx": ctx, "three": three, "pos": t.elapsed >= 0}}
""",
    "generators2": r"""
def chunks(xs, n):
    for i in range(0, len(xs), n):
        yield xs[i : i + n]


def averager():
    total, n = 0.0, 0
    avg = None
    while True:
        try:
            x = yield avg
        except ValueError:
            total = 0.0
            continue
        if x is None:
            return total
        total += x
        n += 1
        avg = total / n


def delegate():
    r = yield from averager()
    yield ("done", r)


def fib():
    a, b = 0, 1
    while True:
        yield a
        a, b = b, a + b


def walk(x, path=()):
    match x:
        case dict():
            for k, v in x.items():
                yield from walk(v, (*path, k))
        case [*items]:
            for i, v in enumerate(items):
                yield from walk(v, (*path, i))
        case _:
            yield ".".join(map(str, path)), x


def grade(sample, item):
    g = delegate()
    next(g)
    vals = [g.send(2), g.send(4)]
    g.throw(ValueError("reset"))
    vals.append(g.send(None))
    g.close()
    f = fib()
    first = [next(f) for _ in range(8)]
    return {"scores": {"n": sum(1 for _ in chunks(sample["output_text"], 3))}, "judge": {"v": vals, "f": first, "w": dict(walk({"a": [1, {"b": 2}]})), "any": any(x > 5 for x in first), "lst": [*chunks("abcdefg", 3)]}}
""",
    "matching": r"""
from dataclasses import dataclass
from typing import NamedTuple


@dataclass
class Num:
    v: float


@dataclass
class Bin:
    op: str
    l: object
    r: object


class Pt(NamedTuple):
    x: int
    y: int


class Old:
    __match_args__ = ("a", "b")

    def __init__(self, a, b):
        self.a, self.b = a, b


def ev(e):
    match e:
        case Num(v):
            return v
        case Bin("+", l, r):
            return ev(l) + ev(r)
        case Bin(op="*", l=l, r=r):
            return ev(l) * ev(r)
        case Bin(op=("/" | "//") as op, l=l, r=r) if ev(r) != 0:
            return ev(l) / ev(r)
        case _:
            raise ValueError(f"cannot evaluate {e!r}")


def kind(x):
    match x:
        case None | True | False:
            return "const"
        case int(n) if n > 100:
            return "big"
        case int() | float():
            return "num"
        case str() as s if s.strip():
            return f"str:{len(s)}"
        case "":
            return "empty"
        case []:
            return "nil"
        case [x]:
            return f"one {x}"
        case [first, *_, last]:
            return f"{first}..{last}"
        case {"type": t, **rest}:
            return f"{t} {sorted(rest)}"
        case Pt(x=0, y=y):
            return f"axis {y}"
        case Old(a, b):
            return f"old {a}{b}"
        case _:
            return "other"


def grade(sample, item):
    e = Bin("+", Num(1), Bin("*", Num(2), Num(3)))
    return {"scores": {"v": ev(e)}, "judge": {"k": [kind(x) for x in (None, 5, 500, 1.5, sample["output_text"], [], [1], [1, 2, 3], {"type": "a", "z": 1}, Old(1, 2), Pt(0, 3), object())]}}
""",
    "async_many": r"""
import asyncio


class Res:
    async def __aenter__(self): return self
    async def __aexit__(self, *a): return False


async def agen(n):
    for i in range(n):
        await asyncio.sleep(0)
        yield i


async def check(name, text):
    await asyncio.sleep(0.001)
    if name == "bad":
        raise ValueError(name)
    return name, len(text)


async def grade(sample, item):
    sem = asyncio.Semaphore(2)

    async def limited(n):
        async with sem:
            return await check(n, sample["output_text"])

    results = await asyncio.gather(*(limited(n) for n in ("a", "b", "bad")), return_exceptions=True)
    task = asyncio.create_task(check("t", "abc"))
    xs = [x async for x in agen(3) if x]
    async with Res() as r:
        pass
    t = await task
    w = await asyncio.wait_for(check("w", "xy"), timeout=5)
    try:
        await asyncio.wait_for(check("bad", ""), 1)
    except asyncio.TimeoutError:
        pass
    except ValueError as e:
        err = repr(e)
    return {"scores": {"n": len(results)}, "judge": {"r": [repr(x) for x in results], "xs": xs, "t": t, "w": w, "err": err}}
""",
    "logging_warnings_traceback": r"""
import logging
import warnings
import traceback
import sys

logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)
warnings.filterwarnings("ignore")


def parse(x):
    return int(x)


def grade(sample, item):
    logger.info("grading %s", item["target"])
    logger.debug("nothing")
    try:
        return float(parse(item["target"]))
    except ValueError as e:
        logger.exception("bad")
        tb = traceback.format_exc()
        warnings.warn("careful")
        print("oops", e, file=sys.stderr, flush=True)
        return {"scores": {"s": 0.0}, "judge": {"has": "ValueError" in tb, "last": tb.strip().splitlines()[-1]}}
""",
    "recursion_limit": r"""
import sys
from functools import cache

sys.setrecursionlimit(10_000)


def grade(sample, item):
    a, b = sample["output_text"] * 20, item["target"] * 5

    @cache
    def d(i, j):
        if i == 0 or j == 0:
            return i + j
        return min(d(i - 1, j) + 1, d(i, j - 1) + 1, d(i - 1, j - 1) + (a[i - 1] != b[j - 1]))

    return {"scores": {"d": d(min(len(a), 600), len(b))}}
""",
    "ast_calc": r"""
import ast
import operator as op

OPS = {ast.Add: op.add, ast.Sub: op.sub, ast.Mult: op.mul, ast.Div: op.truediv, ast.Pow: op.pow, ast.USub: op.neg, ast.FloorDiv: op.floordiv, ast.Mod: op.mod}


def ev(node):
    if isinstance(node, ast.Expression):
        return ev(node.body)
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.BinOp):
        return OPS[type(node.op)](ev(node.left), ev(node.right))
    if isinstance(node, ast.UnaryOp):
        return OPS[type(node.op)](ev(node.operand))
    raise ValueError(f"unsupported: {ast.dump(node)}")


class Names(ast.NodeVisitor):
    def __init__(self):
        self.names = []

    def visit_Name(self, node):
        self.names.append((node.id, node.lineno))
        self.generic_visit(node)

    def visit_FunctionDef(self, node):
        self.names.append(("def " + node.name, len(node.args.args)))
        self.generic_visit(node)


class Fold(ast.NodeTransformer):
    def visit_Name(self, node):
        return ast.copy_location(ast.Constant(value=1), node)


def grade(sample, item):
    code = "def f(a, b):\n    x = a + 1\n    return g(x)\n"
    v = Names()
    v.visit(ast.parse(code))
    try:
        ast.parse(sample["output_text"])
        ok = True
    except SyntaxError as e:
        ok = [e.lineno, e.msg]
    calls = sorted({n.func.id for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)})
    return {"scores": {"v": ev(ast.parse("2 * (3 + 4) ** 2 / 7 - -1", mode="eval"))}, "judge": {"names": v.names, "ok": ok, "calls": calls, "lit": ast.literal_eval("{'a': (1, 2)}"), "up": ast.unparse(Fold().visit(ast.parse("x + y")))}}
""",
    "xmlish": r"""
import xml.etree.ElementTree as ET
from xml.sax.saxutils import escape, unescape
from html.parser import HTMLParser
from html.entities import name2codepoint


class Strip(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.out = []
        self.depth = 0

    def handle_starttag(self, tag, attrs):
        self.depth += 1
        self.out.append(("start", tag, dict(attrs)))

    def handle_data(self, data):
        self.out.append(("data", data))

    def handle_endtag(self, tag):
        self.out.append(("end", tag))


def norm(e):
    return (e.tag, (e.text or "").strip(), sorted(e.attrib.items()), [norm(c) for c in e])


def grade(sample, item):
    root = ET.fromstring("<r a='1'><b>x</b><c y='2'/><b>z</b></r>")
    try:
        ET.fromstring(sample["output_text"])
        err = None
    except ET.ParseError as e:
        err = [str(e), e.position]
    el = ET.Element("t", {"k": "v"})
    ET.SubElement(el, "u").text = "w"
    p = Strip()
    p.feed("<p class=x>Hi &amp; <b>you</b></p>")
    p.close()
    return {"scores": {"n": len(root.findall("b"))}, "judge": {"norm": norm(root), "err": err, "s": ET.tostring(el, encoding="unicode"), "it": [e.tag for e in root.iter()], "x": root.find("c[@y='2']").get("y"), "html": p.out, "esc": escape("a<b&c"), "un": unescape("&lt;"), "cp": name2codepoint["eacute"], "txt": "".join(root.itertext())}}
""",
    "yamlish": r"""
def parse_yaml(text):
    out, stack = {}, [(-1, None)]
    root = {}
    stack = [(-1, root)]
    for raw in text.splitlines():
        if not raw.strip() or raw.lstrip().startswith("#"):
            continue
        indent = len(raw) - len(raw.lstrip(" "))
        while indent <= stack[-1][0]:
            stack.pop()
        key, sep, value = raw.strip().partition(":")
        parent = stack[-1][1]
        if not sep:
            continue
        value = value.strip()
        if value:
            parent[key] = {"true": True, "false": False, "null": None}.get(value.lower(), value)
            try:
                parent[key] = int(value)
            except ValueError:
                try:
                    parent[key] = float(value)
                except ValueError:
                    pass
        else:
            parent[key] = {}
            stack.append((indent, parent[key]))
    return root


def grade(sample, item):
    y = parse_yaml("a: 1\nb:\n  c: true\n  d:\n    e: x y\n# c\nf: 1.5\n" + sample["output_text"])
    return {"scores": {"n": len(y)}, "judge": y}
""",
    "ranking_metrics": r"""
import math
from itertools import combinations
from collections import Counter


def dcg(rels):
    return sum((2**r - 1) / math.log2(i + 2) for i, r in enumerate(rels))


def ndcg(rels, k=None):
    ideal = sorted(rels, reverse=True)[:k]
    return dcg(rels[:k]) / (dcg(ideal) or 1.0)


def mrr(ranks):
    return next((1 / (i + 1) for i, r in enumerate(ranks) if r), 0.0)


def kendall(a, b):
    conc = disc = 0
    for (i, x), (j, y) in combinations(enumerate(a), 2):
        s = (x - y) * (b[i] - b[j])
        conc += s > 0
        disc += s < 0
    n = len(a) * (len(a) - 1) / 2
    return (conc - disc) / n


def ece(probs, labels, bins=5):
    edges = [i / bins for i in range(bins + 1)]
    total = 0.0
    for lo, hi in zip(edges, edges[1:], strict=False):
        idx = [i for i, p in enumerate(probs) if lo < p <= hi or (lo == 0 and p == 0)]
        if idx:
            acc = sum(labels[i] for i in idx) / len(idx)
            conf = sum(probs[i] for i in idx) / len(idx)
            total += abs(acc - conf) * len(idx) / len(probs)
    return total


def meteor_lite(hyp, ref, alpha=0.9, beta=3, gamma=0.5):
    h, r = hyp.lower().split(), ref.lower().split()
    used, matches = set(), []
    for i, w in enumerate(h):
        for j, v in enumerate(r):
            if j not in used and (w == v or w[:4] == v[:4]):
                used.add(j)
                matches.append((i, j))
                break
    m = len(matches)
    if not m:
        return 0.0
    p, q = m / len(h), m / len(r)
    f = p * q / (alpha * p + (1 - alpha) * q)
    ch = 1 + sum(1 for (a, b), (c, d) in zip(matches, matches[1:]) if (c, d) != (a + 1, b + 1))
    return f * (1 - gamma * (ch / m) ** beta)


def rouge_n(h, r, n):
    ng = lambda s: Counter(zip(*(s[i:] for i in range(n))))
    a, b = ng(h.split()), ng(r.split())
    o = sum((a & b).values())
    return o / max(1, sum(b.values()))


def spearman(a, b):
    def rank(xs):
        order = sorted(range(len(xs)), key=xs.__getitem__)
        out = [0] * len(xs)
        for r, i in enumerate(order):
            out[i] = r
        return out
    ra, rb = rank(a), rank(b)
    n = len(a)
    return 1 - 6 * sum((x - y) ** 2 for x, y in zip(ra, rb)) / (n * (n * n - 1))


def grade(sample, item):
    t, g = sample["output_text"], item["target"]
    return {"scores": {"ndcg": ndcg([3, 2, 0, 1], 3), "mrr": mrr([0, 0, 1]), "tau": kendall([1, 2, 3, 4], [1, 3, 2, 4]), "ece": ece([0.1, 0.9, 0.8, 0.3], [0, 1, 0, 1]), "meteor": meteor_lite(t, g), "r2": rouge_n(t, g, 2), "rho": spearman([1, 5, 3], [2, 9, 1])}}
""",
    "asserting": r"""
def check(cond, msg=""):
    assert cond, msg


def grade(sample, item):
    failures = []
    for name, fn in [(k, v) for k, v in globals_like.items()]:
        try:
            fn(sample, item)
        except AssertionError as e:
            failures.append(f"{name}: {e}")
    assert item["target"] != "nothing", f"unexpected {item['target']!r}"
    return {"scores": {"s": 1 - len(failures) / len(globals_like)}, "judge": {"failures": failures}}


def test_nonempty(sample, item):
    check(sample["output_text"], "empty")


def test_contains(sample, item):
    assert item["target"] in sample["output_text"]


globals_like = {f.__name__: f for f in (test_nonempty, test_contains)}
""",
    "closures_state": r'''
import functools

_cache = {}
COUNTER = 0
HISTORY: list = []


def memo(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        global COUNTER
        COUNTER += 1
        wrapper.calls += 1
        key = (args, tuple(sorted(kwargs.items())))
        if key not in _cache:
            _cache[key] = fn(*args, **kwargs)
        return _cache[key]

    wrapper.calls = 0
    return wrapper


def retry(times=3, exceptions=(ValueError,)):
    def deco(fn):
        @functools.wraps(fn)
        def inner(*a, **k):
            for attempt in range(1, times + 1):
                try:
                    return fn(*a, attempt=attempt, **k)
                except exceptions as e:
                    HISTORY.append(f"{fn.__qualname__}:{attempt}:{e}")
            return None
        return inner
    return deco


@memo
def norm(s, *, lower=True):
    """Normalise."""
    return " ".join((s.lower() if lower else s).split())


@retry(times=2)
def flaky(x, attempt=0):
    if attempt < 2:
        raise ValueError(x)
    return x


def make_counter():
    n = 0

    def inc(by=1):
        nonlocal n
        n += by
        return n

    def reset():
        nonlocal n
        n = 0

    inc.reset = reset
    return inc


adders = [lambda x, i=i: x + i for i in range(3)]
compose = lambda *fs: functools.reduce(lambda f, g: lambda x: f(g(x)), fs)


def grade(sample, item):
    c = make_counter()
    c(), c(5)
    before = c()
    c.reset()
    a, b = norm(sample["output_text"]), norm(item["target"])
    norm(item["target"])
    return {"scores": {"eq": float(a == b), "calls": norm.calls}, "judge": {"n": before, "after": c(), "count": COUNTER, "doc": norm.__doc__, "name": norm.__name__, "w": norm.__wrapped__("A  b"), "fl": flaky("z"), "hist": HISTORY, "add": [f(1) for f in adders], "cmp": compose(str.upper, str.strip)(" a ")}}
''',
    "hierarchy": r"""
class Base:
    count = 0
    _registry = []

    def __new__(cls, *args, **kwargs):
        self = super().__new__(cls)
        Base.count += 1
        return self

    def __init__(self, name, **kw):
        self.name = name
        self.__secret = 42
        self._opts = kw

    def describe(self):
        return f"{self.__class__.__name__}:{self.name}:{self.__secret}"

    def __repr__(self):
        attrs = ", ".join(f"{k}={v!r}" for k, v in self.__dict__.items() if not k.startswith("_"))
        return f"{type(self).__qualname__}({attrs})"

    @staticmethod
    def helper(x):
        return x * 2

    @classmethod
    def make(cls, text):
        return cls(*text.split("|"))


class Mixin:
    def describe(self):
        return "mixin+" + super().describe()


class Child(Mixin, Base):
    def __init__(self, name, extra=None):
        Base.__init__(self, name, extra=extra)
        self.extra = extra

    def describe(self):
        return "[" + super().describe() + "]"


class Config:
    lower = True
    strip = True

    class Inner:
        depth = 2

    def __class_getitem__(cls, key):
        return f"{cls.__name__}[{key}]"


class Singleton:
    _instance = None

    def __new__(cls):
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance


class MyErr(Exception):
    def __init__(self, msg, code=1):
        super().__init__(msg)
        self.code = code

    def __str__(self):
        return f"[{self.code}] {super().__str__()}"


class LowerDict(dict):
    def __init__(self, *a, **k):
        dict.__init__(self, *a, **k)

    def __getitem__(self, k):
        return dict.__getitem__(self, k.lower())

    def __setitem__(self, k, v):
        super().__setitem__(k.lower(), v)

    def get(self, k, d=None):
        return super().get(k.lower(), d)


def grade(sample, item):
    c = Child.make("n|e")
    try:
        raise MyErr("boom", code=7)
    except MyErr as e:
        es = (str(e), e.args, e.code)
    d = LowerDict(a=1)
    d["B"] = 2
    opts = {k: v for k, v in vars(Config).items() if not k.startswith("_") and isinstance(v, bool)}
    return {"scores": {"n": Base.count}, "judge": {"d": c.describe(), "r": repr(c), "h": Child.helper(4), "es": es, "isi": [isinstance(c, Base), issubclass(Child, Mixin), type(c) is Child, isinstance(Child, type)], "cg": Config["x"], "in": Config.Inner.depth, "single": Singleton() is Singleton(), "ld": [d["A"], d.get("b"), dict(d)], "opts": opts, "has": hasattr(c, "nope"), "ga": getattr(c, "nope", "dflt"), "call": callable(c.describe), "mangled": c._Base__secret, "bases": Child.__name__, "doc": Child.__doc__, "mod": Child.__module__ == Base.__module__}}
""",
    "latex_norm": r"""
import re
from fractions import Fraction

SUBS = [("\\left", ""), ("\\right", ""), ("\\!", ""), ("\\,", ""), ("^\\circ", ""), ("\\dfrac", "\\frac"), ("\\tfrac", "\\frac"), ("tfrac", "frac"), ("\\%", ""), ("\\$", "")]


def last_boxed(s):
    idx = s.rfind("\\boxed")
    if idx < 0:
        return None
    i, depth, right = idx, 0, None
    while i < len(s):
        if s[i] == "{":
            depth += 1
        elif s[i] == "}":
            depth -= 1
            if depth == 0:
                right = i
                break
        i += 1
    return None if right is None else s[idx + len("\\boxed{") : right]


def fix_fracs(string):
    substrs = string.split("\\frac")
    new_str = substrs[0]
    if len(substrs) > 1:
        for substr in substrs[1:]:
            new_str += "\\frac"
            if substr and substr[0] == "{":
                new_str += substr
            else:
                try:
                    assert len(substr) >= 2
                except AssertionError:
                    return string
                a, b = substr[0], substr[1]
                new_str += "{" + a + "}{" + b + "}" + substr[2:] if b != "{" else "{" + a + "}" + b + substr[2:]
    return new_str


def norm(s):
    s = s.replace("\n", "").strip().rstrip(".")
    for a, b in SUBS:
        s = s.replace(a, b)
    s = fix_fracs(s)
    s = re.sub(r"\\text\{.*?\}", "", s)
    if (m := re.fullmatch(r"\\frac\{(-?\d+)\}\{(\d+)\}", s)) is not None:
        return Fraction(int(m[1]), int(m[2]))
    try:
        return Fraction(s)
    except (ValueError, ZeroDivisionError):
        return s


def grade(sample, item):
    b = last_boxed(sample["output_text"])
    got = norm(b) if b is not None else None
    return {"scores": {"ok": float(got == norm(item["target"]))}, "judge": {"got": str(got), "x": str(norm("\\tfrac12"))}}
""",
    "sql_tokens": r"""
import re
import shlex
from typing import Iterator, NamedTuple


class Token(NamedTuple):
    type: str
    value: str
    pos: int


SPEC = [("NUM", r"\d+(\.\d*)?"), ("STR", r"'[^']*'"), ("ID", r"[A-Za-z_]\w*"), ("OP", r"<=|>=|<>|!=|[-+*/=<>(),.;]"), ("WS", r"\s+"), ("BAD", r".")]
TOK = re.compile("|".join("(?P<%s>%s)" % pair for pair in SPEC))
KEYWORDS = frozenset("select from where and or order by group limit as".split())


def tokenize(s: str) -> Iterator[Token]:
    for mo in TOK.finditer(s):
        k = mo.lastgroup
        v = mo.group()
        if k == "WS":
            continue
        if k == "ID" and v.lower() in KEYWORDS:
            k, v = "KW", v.upper()
        yield Token(k, v, mo.start())


def grade(sample, item):
    a = [t[:2] for t in tokenize(sample["output_text"].rstrip("; \n"))]
    b = [t[:2] for t in tokenize(item["target"])]
    return {"scores": {"eq": float([(k, v.lower()) for k, v in a] == [(k, v.lower()) for k, v in b])}, "judge": {"a": a[:6], "sh": shlex.split("a 'b c' \"d\""), "q": shlex.quote("it's")}}
""",
    "typed_generic": r"""
from typing import Any, Callable, Generic, TypeVar, Iterable, overload, Union, Literal, Annotated, get_args, get_origin, NewType, TypeAlias, ParamSpec, Concatenate, Self
from typing import runtime_checkable, Protocol, Optional, List, Dict, Tuple, Set, Deque, DefaultDict
import typing

T = TypeVar("T")
K = TypeVar("K", bound="Comparable")
P = ParamSpec("P")
Score = NewType("Score", float)
JSON: TypeAlias = Union[Dict[str, "JSON"], List["JSON"], str, float, None]
Mode = Literal["exact", "fuzzy"]


@runtime_checkable
class Comparable(Protocol):
    def __lt__(self, other: Any) -> bool: ...


@runtime_checkable
class HasName(Protocol):
    name: str


class Box(Generic[T]):
    def __init__(self, item: T) -> None:
        self.item = item

    def map(self, f: Callable[[T], Any]) -> "Box[Any]":
        return Box(f(self.item))

    def set(self, item: T) -> Self:
        self.item = item
        return self


class IntBox(Box[int]):
    ...


@overload
def conv(x: int) -> str: ...
@overload
def conv(x: str) -> int: ...
def conv(x):
    return str(x) if isinstance(x, int) else len(x)


def timed(f: Callable[P, T]) -> Callable[P, T]:
    def inner(*args: P.args, **kwargs: P.kwargs) -> T:
        return f(*args, **kwargs)
    return inner


@timed
def first(xs: Iterable[T], default: Optional[T] = None) -> T | None:
    return next(iter(xs), default)


def best(xs: List[Tuple[str, Score]], mode: Mode = "exact") -> Annotated[float, "score"]:
    return max(s for _, s in xs)


class Named:
    name = "n"


def grade(sample: Dict[str, Any], item: Dict[str, Any]) -> Dict[str, Any]:
    b = Box[int](3).map(lambda x: x + 1)
    return {"scores": {"s": best([("a", Score(0.5))])}, "judge": {"b": b.item, "c": [conv(3), conv("abc")], "f": first([]), "args": [repr(a) for a in get_args(Mode)], "o": get_origin(List[int]) is list, "cmp": isinstance(3, Comparable), "named": isinstance(Named(), HasName), "ib": IntBox(2).set(5).item, "t": typing.cast(int, "x"), "opt": repr(Optional[int]), "u": isinstance(3, int | str), "dd": DefaultDict(list)["x"]}}
""",
    "print_debug": r"""
import pprint
import sys
from pprint import pformat


def debug(*args, **kw):
    print("DEBUG:", *args, **kw)


def grade(sample, item):
    debug(sample["output_text"][:10], item, sep=" | ")
    pprint.pprint({"a": list(range(30))}, width=40)
    sys.stdout.write("raw\n")
    sys.stdout.flush()
    print(f"{item=}", file=sys.stderr)
    print(*[], sep="")
    return {"scores": {"s": 1}, "judge": {"p": pformat({"b": 1, "a": [1] * 20}, width=30, sort_dicts=True)}}
""",
    "singledispatching": r"""
from functools import singledispatch


@singledispatch
def norm(x):
    return repr(x)


@norm.register
def _(x: str):
    return x.strip().lower()


@norm.register(int)
@norm.register(float)
def _num(x):
    return f"{x:.2f}"


@norm.register(list)
def _list(x):
    return [norm(i) for i in x]


norm.register(dict, lambda d: {k: norm(v) for k, v in d.items()})


def grade(sample, item):
    return {"scores": {"s": 1.0}, "judge": {"a": norm({"x": [1, " A ", None, 2.5]}), "r": norm(sample["output_text"]), "d": norm.dispatch(bool) is _num}}
""",
    "tomlish": r"""
import tomllib

def grade(sample, item):
    try:
        tomllib.loads(sample["output_text"])
        valid = 1
    except tomllib.TOMLDecodeError:
        valid = 0
    return {"scores": {"valid": valid}, "judge": {"t": tomllib.loads("a = 1\n[b]\nc = 'x'")}}
""",
    "tricky_scope": r"""
x = 10


class A:
    x = 20
    y = [x for _ in range(2)]
    z = [i * x for i in range(2)]

    def get(self):
        return x

    @property
    def both(self):
        return __class__.x, self.x

    def __private(self):
        return "p"

    def call(self):
        return self.__private()


def outer():
    x = 1

    def inner():
        nonlocal x
        x += 1
        global y
        y = x
        return x

    return inner(), x


def grade(sample, item):
    del_me = 1
    del del_me
    try:
        del_me
    except NameError as e:
        ne = e.name
    res = outer()
    total = 0
    for i, ch in enumerate(sample["output_text"]):
        if ch == "z":
            break
        if not ch.isalpha():
            continue
        total += 1
    else:
        total += 100
    a, (b, *c), d = 1, (2, 3, 4), 5
    (e := 5)
    f = g = [0]
    f += [1]
    h = {**{"a": 1}, "b": 2} | {"c": 3}
    k = [*range(3), *"ab"]
    sl = k[::-1], k[1:-1:2]
    k[1:2] = ["x", "y"]
    del k[0]
    ell = ... is Ellipsis
    chain = 1 < 2 < 3 != 4
    cond = "a" if chain else "b"
    s = {i % 3 for i in range(10)}
    lam = (lambda *a, k=1, **kw: (a, k, kw))(1, 2, k=3, z=4)
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2)])
    except* ValueError as eg:
        v = [repr(x) for x in eg.exceptions]
    except* TypeError as eg:
        w = len(eg.exceptions)
    return {"scores": {"t": total}, "judge": {"ne": ne, "res": res, "y": y, "A": [A.y, A.z, A().get(), A().both, A().call()], "c": c, "g": g, "h": h, "k": k, "sl": sl, "ell": ell, "cond": cond, "s": s, "lam": lam, "v": v, "w": w, "big": 10**30, "oct": 0o17 + 0b11 + 0xFF, "cplx": str((1 + 2j) * 1j), "byt": b"a\x00".hex(), "idiv": [-7 // 2, -7 % 3, divmod(7, -2)], "bits": 5 & 3 | 4 ^ 1, "e": e, "und": 1_000}}
""",
    "exceptions_all": r"""
class Err(Exception):
    pass


def grade(sample, item):
    out = []
    try:
        try:
            {}["k"]
        except KeyError as e:
            e.add_note("note")
            out.append((repr(e), e.args, e.__notes__))
            raise Err("wrapped") from None
    except Err as e:
        out.append((e.__cause__, e.__suppress_context__, type(e.__context__).__name__))
    for bad in (lambda: int("x"), lambda: [][0], lambda: None.foo, lambda: 1 + "a", lambda: "a".join([1]), lambda: next(iter([])), lambda: {}[[]], lambda: float("1,0"), lambda: b"\xff".decode(), lambda: sample.nope, lambda: undefined_name, lambda: (lambda a: a)(), lambda: "x".foo(), lambda: 1 / 0, lambda: "%d" % "a", lambda: "{}".format(), lambda: "{0.nope}".format(1), lambda: [].index(3), lambda: max([]), lambda: zip([1], [1, 2], strict=True).__next__() and list(zip([1], [1, 2], strict=True)), lambda: iter(3), lambda: hash([]), lambda: object() < 1, lambda: getattr(1, "x"), lambda: setattr(1, "x", 1), lambda: sorted([1, "a"])):
        try:
            bad()
            out.append(None)
        except Exception as e:
            out.append(f"{type(e).__name__}: {e}")
    return {"scores": {"n": len(out)}, "judge": {"out": out}}
""",
    "word_stats": r"""
from collections import Counter
from math import log, sqrt
import re, string


STOP = set("the a an of to and in is".split())
_PUNCT = re.compile(f"[{re.escape(string.punctuation)}]")


class TfIdf:
    def __init__(self, docs):
        self.docs = [self._tok(d) for d in docs]
        self.df = Counter(w for d in self.docs for w in set(d))

    @staticmethod
    def _tok(s):
        return [w for w in _PUNCT.sub(" ", s.lower()).split() if w not in STOP]

    def vec(self, s):
        tf = Counter(self._tok(s))
        return {w: (1 + log(c)) * log((1 + len(self.docs)) / (1 + self.df[w])) for w, c in tf.items()}

    def sim(self, a, b):
        u, v = self.vec(a), self.vec(b)
        num = sum(u[w] * v.get(w, 0.0) for w in u)
        den = sqrt(sum(x * x for x in u.values())) * sqrt(sum(x * x for x in v.values()))
        return num / den if den else 0.0


def grade(sample, item):
    m = TfIdf([sample["output_text"], item["target"], "something else entirely"])
    return {"scores": {"cos": m.sim(sample["output_text"], item["target"])}, "judge": {"df": sorted(m.df.items()), "v": sorted(m.vec("cat dog dog"))}}
""",
    "copies": r"""
import copy
from collections import Counter, OrderedDict, defaultdict, deque, ChainMap, UserDict, UserList
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from enum import Enum
from types import SimpleNamespace
from functools import partial
import datetime, random, re, array, string, textwrap, itertools, uuid, ast


class E(Enum):
    A = 1


@dataclass(slots=True)
class S:
    a: list
    b: int = 0


@dataclass(frozen=True)
class F:
    a: tuple = (1,)


class Old:
    __slots__ = ("x", "_y", "__z")

    def __init__(self):
        self.x, self._y, self.__z = [1], 2, 3

    def z(self):
        return self.__z


class Sub(list):
    tag = None


class DSub(dict):
    pass


class Ex(Exception):
    def __init__(self, a):
        super().__init__(a)
        self.a = a


class Ud(UserDict):
    pass


class Deep:
    def __deepcopy__(self, memo):
        return "deep"


def grade(sample, item):
    s = Sub([[1]])
    s.tag = ["t"]
    d = DSub(a=[1])
    d.extra = 1
    cyc = [1]
    cyc.append(cyc)
    things = {"c": Counter("aab"), "od": OrderedDict(a=[1]), "dd": defaultdict(list, a=[1]), "dq": deque([[1]], maxlen=2), "cm": ChainMap({"a": 1}), "s": S([1]), "f": F(), "old": Old(), "sub": s, "d": d, "ex": Ex(3), "ud": Ud(a=1), "deep": Deep(), "dec": Decimal("1.5"), "fr": Fraction(1, 3), "e": E.A, "ns": SimpleNamespace(a=[1]), "p": partial(max, [1, 2]), "dt": datetime.datetime(2024, 1, 1), "rx": re.compile("a"), "arr": array.array("d", [1.0]), "t": string.Template("$a"), "fn": len, "lam": grade, "uuid": uuid.UUID(int=5), "ul": UserList([1]), "tw": textwrap.TextWrapper(width=9), "b": bytearray(b"x"), "r": range(3), "node": ast.parse("x+1"), "sl": slice(1, 2), "it": iter([1, 2, 3]), "cnt": itertools.count(5)}
    out = {}
    for k, v in things.items():
        for name, fn in (("s", copy.copy), ("d", copy.deepcopy)):
            try:
                y = fn(v)
                out[k + name] = [type(y).__name__, y is v]
            except Exception as e:
                out[k + name] = f"{type(e).__name__}: {e}"
    ds = copy.deepcopy(s)
    dcyc = copy.deepcopy(cyc)
    rnd = random.Random(3)
    r2 = copy.copy(rnd)
    return {"scores": {"n": len(out)}, "judge": {"out": out, "tag": ds.tag == ["t"] and ds.tag is not s.tag, "cyc": dcyc[1] is dcyc, "oz": copy.copy(things["old"]).z(), "rnd": rnd.random() == r2.random(), "sp": copy.deepcopy(things["s"]) == things["s"], "exa": copy.copy(things["ex"]).a, "ns": copy.deepcopy(things["ns"]).a, "it": list(copy.copy(things["it"]))}}
""",
    "library_attributes": r"""
import collections
import xml.etree.ElementTree as ET
import ast
import itertools

def grade(sample, item):
    d = collections.defaultdict(int)
    d["a"] += 1
    d.default_factory = None
    e = ValueError("x")
    e.code = 5
    el = ET.Element("a")
    el.text = item["target"]
    tree = ast.parse("x + 1")
    tree.body[0].value.left.id = "y"
    chunks = list(itertools.batched("abc", 2)) if hasattr(itertools, "batched") else [("a", "b"), ("c",)]
    return {"scores": {"s": d["a"]}, "judge": {"code": e.code, "el": ET.tostring(el, encoding="unicode"), "t": ast.unparse(tree), "c": chunks}}
""",
}
