"""Graders of the kinds that people write: each is run in the sandbox and in plain Python, with equal results.

A grader sees the texts of `TEXTS` as `output_text`, with the target beside them; what it needs more it makes itself.
"""
# ruff: noqa: E501 - graders as people write them

from __future__ import annotations

from .graders_more import MORE

TEXTS = [
    ("The answer is 42.", "42"),
    ("Paris is the capital of France.", "paris"),
    ('{"name": "Ada", "age": 36, "tags": ["x", "y"]}', '{"name": "Ada", "age": 36, "tags": ["x"]}'),
    ("", "nothing"),
    ("the cat sat on the mat and the dog sat on the log", "the cat sat on the mat"),
    ("\\boxed{\\frac{3}{4}} = 0.75", "3/4"),
    ("SELECT a, b FROM t WHERE a > 1;", "select a,b from t where a>1"),
    ("Naïve café — ﬁnal “quote” №1", "naive cafe"),
    ("On 2024-02-29 at 12:30 we met; see 03/01/2024.", "2024-02-29"),
    ("yes\nno\nyes\nmaybe", "yes"),
]

GRADERS: dict[str, str] = {name: source.lstrip("\n") for name, source in MORE.items()}


def _add(name: str, source: str) -> None:
    assert name not in GRADERS, name
    GRADERS[name] = source.lstrip("\n")


_add(
    "exact_match",
    """
def grade(sample, item):
    return 1.0 if sample["output_text"].strip().lower() == item["target"].strip().lower() else 0.0
""",
)
_add(
    "contains",
    '''
def grade(sample, item):
    """Docstring."""
    return float(item["target"].casefold() in sample["output_text"].casefold())
''',
)
_add(
    "token_f1",
    """
from collections import Counter
import re, string

_ARTICLES = re.compile(r"\\b(a|an|the)\\b")

def _normalise(text):
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(_ARTICLES.sub(" ", text).split())

def grade(sample, item):
    got, want = _normalise(sample["output_text"]).split(), _normalise(item["target"]).split()
    common = Counter(got) & Counter(want)
    same = sum(common.values())
    if not same:
        return {"scores": {"f1": 0.0}}
    precision, recall = same / len(got), same / len(want)
    return {"scores": {"f1": 2 * precision * recall / (precision + recall), "precision": precision, "recall": recall}}
""",
)
_add(
    "bleu",
    """
import math
from collections import Counter

def ngrams(tokens, n):
    return Counter(tuple(tokens[i:i + n]) for i in range(len(tokens) - n + 1))

def grade(sample, item, max_n=4):
    hyp, ref = sample["output_text"].split(), item["target"].split()
    logs = []
    for n in range(1, max_n + 1):
        h, r = ngrams(hyp, n), ngrams(ref, n)
        clipped = sum(min(count, r[gram]) for gram, count in h.items())
        logs.append(math.log((clipped + 1) / (max(sum(h.values()), 0) + 1)))
    brevity = 1.0 if len(hyp) > len(ref) else math.exp(1 - len(ref) / max(len(hyp), 1))
    return brevity * math.exp(math.fsum(logs) / max_n)
""",
)
_add(
    "rouge_l",
    """
def lcs(a, b):
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a, 1):
        for j, y in enumerate(b, 1):
            table[i][j] = table[i - 1][j - 1] + 1 if x == y else max(table[i - 1][j], table[i][j - 1])
    return table[-1][-1]

def grade(sample, item):
    a, b = sample["output_text"].split(), item["target"].split()
    if not a or not b:
        return 0.0
    length = lcs(a, b)
    p, r = length / len(a), length / len(b)
    return 0.0 if not length else (1 + 1.2 ** 2) * p * r / (r + 1.2 ** 2 * p)
""",
)
_add(
    "edit_distance",
    """
from functools import lru_cache

def grade(sample, item):
    a, b = sample["output_text"][:30], item["target"][:30]

    @lru_cache(maxsize=None)
    def distance(i, j):
        if not i or not j:
            return i + j
        return min(distance(i - 1, j) + 1, distance(i, j - 1) + 1, distance(i - 1, j - 1) + (a[i - 1] != b[j - 1]))

    return 1 - distance(len(a), len(b)) / max(len(a), len(b), 1)
""",
)
_add(
    "json_valid",
    """
import json

def grade(sample, item):
    try:
        json.loads(sample["output_text"])
    except json.JSONDecodeError as error:
        return {"scores": {"valid": 0.0}, "judge": {"message": error.msg, "at": error.pos, "line": error.lineno}}
    except (TypeError, ValueError):
        return {"scores": {"valid": 0.0}}
    else:
        return {"scores": {"valid": 1.0}}
    finally:
        pass
""",
)
_add(
    "json_fields",
    """
import json
from typing import Any

def _flatten(value: Any, path: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    if isinstance(value, dict):
        for key, inner in value.items():
            flat |= _flatten(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            flat.update(_flatten(inner, f"{path}[{i}]"))
    else:
        flat[path] = value
    return flat

def grade(sample: dict[str, Any], item: dict[str, Any]) -> dict[str, Any]:
    try:
        got, want = _flatten(json.loads(sample["output_text"])), _flatten(json.loads(item["target"]))
    except ValueError:
        return {"scores": {"match": 0.0}}
    hits: int = sum(got.get(k) == v for k, v in want.items())
    missing, *rest = sorted(set(got) ^ set(want)) or [None]
    return {"scores": {"match": hits / max(len(want), 1)}, "judge": {"missing": missing, "rest": rest}}
""",
)
_add(
    "regex_rubric",
    """
import re

RUBRIC = {
    "has_number": re.compile(r"-?\\d+(?:\\.\\d+)?"),
    "has_sentence": re.compile(r"[A-Z][^.!?]*[.!?]"),
    "no_apology": re.compile(r"^(?!.*\\b(sorry|apolog)).*$", re.I | re.S),
}

def grade(sample, item):
    text = sample["output_text"]
    hits = {name: bool(pattern.search(text)) for name, pattern in RUBRIC.items()}
    return {"scores": {"rubric": sum(hits.values()) / len(hits)}, "judge": hits}
""",
)
_add(
    "latex_answer",
    """
import re
from fractions import Fraction

def _boxed(text):
    start = text.rfind("\\\\boxed{")
    if start < 0:
        return None
    depth, out = 0, []
    for char in text[start + len("\\\\boxed"):]:
        if char == "{":
            depth += 1
            if depth == 1:
                continue
        elif char == "}":
            depth -= 1
            if not depth:
                break
        out.append(char)
    return "".join(out)

def _value(text):
    if text is None:
        return None
    text = re.sub(r"\\\\[dt]?frac\\{(.+?)\\}\\{(.+?)\\}", r"\\1/\\2", text).replace("$", "").replace(",", "")
    try:
        return Fraction(text.strip())
    except (ValueError, ZeroDivisionError):
        return text.strip()

def grade(sample, item):
    got = _value(_boxed(sample["output_text"]))
    return {"scores": {"score": 1.0 if got == _value(item["target"]) else 0.0}, "judge": {"got": str(got)}}
""",
)
_add(
    "sql_normalise",
    """
import re

KEYWORDS = frozenset("select from where and or group by order having join on as".split())

def _norm(sql):
    sql = re.sub(r"--.*?$", "", sql, flags=re.MULTILINE).rstrip().rstrip(";")
    tokens = re.findall(r"\\w+|[^\\s\\w]", sql)
    return [token.upper() if token.lower() in KEYWORDS else token for token in tokens]

def grade(sample, item):
    return float(_norm(sample["output_text"]) == _norm(item["target"]))
""",
)
_add(
    "dates",
    """
from datetime import date, datetime, timedelta
import re

FORMATS = ("%Y-%m-%d", "%m/%d/%Y", "%d.%m.%Y")

def _dates(text):
    for word in re.findall(r"[\\d./-]{8,10}", text):
        for fmt in FORMATS:
            try:
                yield datetime.strptime(word.rstrip("."), fmt).date()
                break
            except ValueError:
                continue

def grade(sample, item):
    found = list(_dates(sample["output_text"]))
    want = next(_dates(item["target"]), None)
    late = max(((d - date(2024, 1, 1)) // timedelta(days=1) for d in found), default=-1)
    return {"scores": {"found": float(want in found), "late": late}, "judge": {"days": [d.isoformat() for d in found], "week": [f"{d:%A %d %B}" for d in found]}}
""",
)
_add(
    "confusion_matrix",
    """
from collections import defaultdict

def grade_all(pairs):
    matrix = defaultdict(lambda: defaultdict(int))
    for got, want in pairs:
        matrix[want][got] += 1
    return {want: dict(row) for want, row in matrix.items()}

def grade(sample, item):
    pairs = [(line, item["target"]) for line in sample["output_text"].splitlines()]
    matrix = grade_all(pairs)
    right = sum(row.get(want, 0) for want, row in matrix.items())
    return {"scores": {"accuracy": right / (len(pairs) or 1)}, "judge": matrix}
""",
)
_add(
    "cohens_kappa",
    """
from collections import Counter

def kappa(a, b):
    n = len(a)
    if not n:
        return 0.0
    observed = sum(x == y for x, y in zip(a, b)) / n
    ca, cb = Counter(a), Counter(b)
    expected = sum(ca[label] * cb[label] for label in ca | cb) / n ** 2
    return 1.0 if expected == 1 else (observed - expected) / (1 - expected)

def grade(sample, item):
    words = sample["output_text"].split()
    return kappa(words, list(reversed(words)))
""",
)
_add(
    "pass_at_k",
    """
from math import comb, prod

def pass_at_k(n: int, c: int, k: int) -> float:
    if n - c < k:
        return 1.0
    return 1.0 - prod(1.0 - k / i for i in range(n - c + 1, n + 1))

def grade(sample, item):
    n, c = 10, sum(map(str.isdigit, sample["output_text"])) % 10
    scores = {f"pass@{k}": pass_at_k(n, c, k) for k in (1, 5, 10)}
    assert abs(scores["pass@5"] - (1 - comb(n - c, 5) / comb(n, 5))) < 1e-9, scores
    return {"scores": scores}
""",
)
_add(
    "calibration_error",
    """
from statistics import fmean
from bisect import bisect_right

EDGES = [i / 10 for i in range(1, 10)]

def grade(sample, item):
    confidences = [(ord(c) % 100) / 100 for c in sample["output_text"]]
    right = [ord(c) % 2 == 0 for c in sample["output_text"]]
    bins = [[] for _ in range(len(EDGES) + 1)]
    for confidence, ok in zip(confidences, right, strict=True):
        bins[bisect_right(EDGES, confidence)].append((confidence, ok))
    total = max(len(right), 1)
    ece = sum(len(b) / total * abs(fmean(c for c, _ in b) - fmean(o for _, o in b)) for b in bins if b)
    return {"scores": {"ece": ece, "accuracy": fmean(right) if right else 0}}
""",
)
_add(
    "numeric_tolerance",
    """
import math, re

def grade(sample, item):
    numbers = [float(x.replace(",", "")) for x in re.findall(r"-?\\d[\\d,]*\\.?\\d*", sample["output_text"])]
    try:
        want = float(item["target"])
    except ValueError:
        want = 42
    return {"scores": {"close": float(any(math.isclose(x, want, rel_tol=1e-3) for x in numbers)), "n": len(numbers)}}
""",
)
_add(
    "unicode_fold",
    """
import unicodedata

def fold(text):
    text = unicodedata.normalize("NFKD", text.casefold())
    return "".join(c for c in text if not unicodedata.combining(c))

def grade(sample, item):
    folded = fold(sample["output_text"])
    kinds = sorted({unicodedata.category(c) for c in folded})
    return {"scores": {"in": float(item["target"] in folded)}, "judge": {"folded": folded, "kinds": kinds}}
""",
)
_add(
    "similarity",
    """
import difflib

def grade(sample, item):
    matcher = difflib.SequenceMatcher(None, sample["output_text"], item["target"])
    return {"scores": {"ratio": matcher.ratio()}, "judge": {"ops": [op for op, *_ in matcher.get_opcodes()],
            "near": difflib.get_close_matches("cat", sample["output_text"].split()),
            "diff": list(difflib.unified_diff(sample["output_text"].split(), item["target"].split(), lineterm=""))}}
""",
)
_add(
    "dataclasses",
    """
from __future__ import annotations
from dataclasses import dataclass, field, asdict, astuple, replace, fields
from typing import ClassVar

@dataclass(order=True)
class Part:
    score: float
    name: str = field(compare=False)
    notes: list[str] = field(default_factory=list, compare=False, repr=False)
    MAX: ClassVar[int] = 3

    def __post_init__(self):
        self.score = round(self.score, 3)

@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    value: float = 0.0

    def plus(self, other: float) -> Total:
        return replace(self, value=self.value + other)

def grade(sample, item):
    parts = sorted(Part(len(word) / 7, word) for word in sample["output_text"].split())
    total = Total()
    for part in parts:
        total = total.plus(part.score)
        part.notes.append("seen")
    try:
        total.value = 3
    except AttributeError as error:
        frozen = type(error).__name__
    return {"scores": {"total": total.value}, "judge": {"best": repr(parts[-1]) if parts else None, "frozen": frozen,
            "dict": [asdict(p) for p in parts[:2]], "tuple": astuple(total), "fields": [f.name for f in fields(Part)]}}
""",
)
_add(
    "enums",
    """
from enum import Enum, IntEnum, auto, unique, Flag

@unique
class Verdict(Enum):
    YES = "yes"
    NO = "no"
    OTHER = auto() if False else "other"

    @classmethod
    def _missing_(cls, value):
        return cls.OTHER

    @property
    def weight(self):
        return {Verdict.YES: 1.0, Verdict.NO: 0.0}.get(self, 0.5)

class Level(IntEnum):
    LOW = 1
    HIGH = 2

class Trait(Flag):
    A = auto()
    B = auto()

Colour = Enum("Colour", "RED GREEN")

def grade(sample, item):
    verdicts = [Verdict(line) for line in sample["output_text"].split("\\n")]
    return {"scores": {"mean": sum(v.weight for v in verdicts) / len(verdicts), "level": Level.HIGH},
            "judge": {"names": [v.name for v in verdicts], "all": [v.value for v in Verdict], "flag": (Trait.A | Trait.B).value,
                      "colour": Colour.GREEN.value, "same": Verdict("yes") is Verdict.YES}}
""",
)
_add(
    "namedtuples",
    """
from collections import namedtuple
from typing import NamedTuple

Point = namedtuple("Point", "x y", defaults=[0])

class Span(NamedTuple):
    start: int
    end: int = 0

    @property
    def size(self) -> int:
        return self.end - self.start

def grade(sample, item):
    start = sample["output_text"].find(item["target"][:3])
    span = Span(start, end=start + 3)
    p = Point(1)._replace(y=span.size)
    x, y = p
    return {"scores": {"x": x, "y": y}, "judge": {"span": span._asdict(), "fields": Point._fields, "repr": repr(p), "made": Point._make([5, 6])}}
""",
)
_add(
    "classes",
    """
class Metric:
    registry = []

    def __init__(self, name, weight=1.0):
        self._name = name
        self.__weight = weight
        self.calls = 0
        Metric.registry.append(self)

    @property
    def name(self):
        return self._name

    @name.setter
    def name(self, value):
        self._name = value.upper()

    @staticmethod
    def clean(text):
        return text.strip()

    @classmethod
    def default(cls):
        return cls("default")

    def __call__(self, sample):
        self.calls += 1
        return self.__weight * self.measure(self.clean(sample["output_text"]))

    def measure(self, text):
        raise NotImplementedError(f"{type(self).__name__}.measure")

    def __repr__(self):
        return f"<{self.__class__.__name__} {self.name!r}>"

    def __eq__(self, other):
        return isinstance(other, Metric) and self.name == other.name

    def __hash__(self):
        return hash(self.name)

    def __lt__(self, other):
        return self.name < other.name

class Length(Metric):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.name = self.name + "!"

    def measure(self, text):
        return len(text)

class Words(Metric):
    def measure(self, text):
        return len(text.split())

def grade(sample, item):
    metrics = [Words("words", 2.0), Length(name="length")]
    scores = {m.name: m(sample) for m in sorted(metrics)}
    try:
        Metric.default()(sample)
    except NotImplementedError as error:
        scores["default"] = len(str(error))
    return {"scores": scores, "judge": {"all": repr(Metric.registry), "eq": metrics[0] == Words("words"), "n": len({*metrics, Words("words")}),
            "vars": sorted(vars(metrics[0])), "private": metrics[0]._Metric__weight}}
""",
)
_add(
    "containers",
    """
class Bag:
    def __init__(self, items=()):
        self._items = {}
        for item in items:
            self[item] += 1

    def __getitem__(self, key):
        return self._items.get(key, 0)

    def __setitem__(self, key, value):
        self._items[key] = value

    def __delitem__(self, key):
        del self._items[key]

    def __contains__(self, key):
        return key in self._items

    def __iter__(self):
        yield from sorted(self._items)

    def __len__(self):
        return sum(self._items.values())

    def __bool__(self):
        return bool(self._items)

    def __add__(self, other):
        both = Bag()
        for bag in (self, other):
            for key in bag:
                both[key] += bag[key]
        return both

    __radd__ = __add__

    def __and__(self, other):
        return sum(min(self[key], other[key]) for key in self)

def grade(sample, item):
    a, b = Bag(sample["output_text"].split()), Bag(item["target"].split())
    both = a + b
    if "the" in both:
        del both["the"]
    return {"scores": {"overlap": (a & b) / max(len(b), 1)}, "judge": {"both": list(both), "empty": not a, "rev": list(reversed(list(both)))}}
""",
)
_add(
    "context_managers",
    """
from contextlib import contextmanager, suppress, ExitStack

log = []

class Timer:
    def __enter__(self):
        log.append("in")
        return self

    def __exit__(self, kind, error, trace):
        log.append(kind.__name__ if kind else "out")
        return kind is KeyError

@contextmanager
def section(name):
    log.append(f"<{name}>")
    try:
        yield name.upper()
    finally:
        log.append(f"</{name}>")

def grade(sample, item):
    with Timer() as timer, section("a") as a:
        log.append(a)
    with Timer():
        {}["missing"]
    with suppress(ValueError):
        int(sample["output_text"])
    with ExitStack() as stack:
        stack.enter_context(section("b"))
        (x, y), z = stack.enter_context(section("c")), 3
        log.append((x, y, z)[2]) if False else None
    return {"scores": {"n": len(log)}, "judge": {"log": log}}
""".replace(
        """        (x, y), z = stack.enter_context(section("c")), 3
        log.append((x, y, z)[2]) if False else None
""",
        """        log.append(stack.enter_context(section("c")))
""",
    ),
)
_add(
    "generators",
    """
import itertools

def _windows(tokens, n):
    it = iter(tokens)
    window = list(itertools.islice(it, n))
    while len(window) == n:
        yield tuple(window)
        try:
            window = window[1:] + [next(it)]
        except StopIteration:
            return

def averager():
    total, count, value = 0, 0, None
    while True:
        value = yield (total / count if count else None)
        if value is None:
            break
        total += value
        count += 1
    return total

def grade(sample, item):
    tokens = sample["output_text"].split()
    gen = averager()
    next(gen)
    for token in tokens:
        mean = gen.send(len(token))
    try:
        gen.send(None)
    except StopIteration as stop:
        total = stop.value
    pairs = sum(1 for a, b in itertools.pairwise(tokens) if a < b)
    groups = {k: len(list(g)) for k, g in itertools.groupby(sorted(tokens, key=len), key=len)}
    return {"scores": {"total": total, "pairs": pairs}, "judge": {"w": list(_windows(tokens, 3)), "groups": groups, "chain": [*itertools.chain("ab", "c")]}}
""",
)
_add(
    "match_statement",
    """
import json

def kind(value):
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case int() | float() as number if number > 40:
            return f"big {number}"
        case int() | float():
            return "number"
        case str(text):
            return f"text {len(text)}"
        case []:
            return "empty list"
        case [first, *rest]:
            return [kind(first), len(rest)]
        case {"name": str(name), "age": age, **more}:
            return {"name": name, "age": kind(age), "more": sorted(more)}
        case dict():
            return "dict"
        case _:
            return "other"

class Pair:
    __match_args__ = ("left", "right")
    def __init__(self, left, right):
        self.left, self.right = left, right

def grade(sample, item):
    try:
        value = json.loads(sample["output_text"])
    except ValueError:
        value = sample["output_text"].split() or [42, 1.5, None, True, {}]
    match Pair(1, value):
        case Pair(1, [*_]):
            shape = "pair of list"
        case Pair(left=1, right={}):
            shape = "pair of dict"
    return {"scores": {"ok": 1}, "judge": {"kind": kind(value), "all": [kind(v) for v in value], "shape": shape}}
""",
)
_add(
    "walrus_and_stars",
    """
import re

def grade(sample, item):
    if (match := re.search(r"(\\w+) is (\\w+)", sample["output_text"])) is not None and (n := len(match[0])) > 3:
        first, *middle, last = *match.groups(), n
    else:
        first, middle, last = None, [], 0
    def joined(*parts, sep="-", **options):
        return sep.join(map(str, parts)) + "".join(f"{k}={v}" for k, v in sorted(options.items()))
    options = {"sep": "+", **{"z": 1, "a": 2}}
    (a, (b, c)), d = (1, [2, 3]), [x for x in range(10) if (y := x * 2) > 6]
    return {"scores": {"n": last}, "judge": {"first": first, "middle": middle, "j": joined(*"abc", *middle, **options), "abc": [a, b, c], "d": d, "y": y}}
""",
)
_add(
    "closures",
    """
def counter(step=1):
    count = 0
    def bump(by=None):
        nonlocal count
        count += step if by is None else by
        return count
    return bump

total = 0

def add(n):
    global total
    total += n

def grade(sample, item):
    bump = counter(2)
    for word in sample["output_text"].split():
        bump()
        add(bump(len(word)))
    fns = [lambda x, k=k: x * k for k in range(3)]
    return {"scores": {"bump": bump(0), "total": total}, "judge": {"fns": [f(7) for f in fns]}}
""",
)
_add(
    "decorators",
    """
from functools import wraps, partial, reduce, cache, total_ordering, cached_property

def clamp(low=0.0, high=1.0):
    def decorate(function):
        @wraps(function)
        def wrapper(*args, **kwargs):
            wrapper.calls += 1
            return min(max(function(*args, **kwargs), low), high)
        wrapper.calls = 0
        return wrapper
    return decorate

@clamp(high=10.0)
def score(text):
    "Length."
    return len(text)

@cache
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)

@total_ordering
class Grade:
    def __init__(self, letter):
        self.letter = letter
    def __eq__(self, other):
        return self.letter == other.letter
    def __lt__(self, other):
        return self.letter > other.letter
    @cached_property
    def points(self):
        return "FDCBA".index(self.letter)

def grade(sample, item):
    power = partial(pow, 2)
    return {"scores": {"score": score(sample["output_text"]), "fib": fib(30), "power": power(5)},
            "judge": {"name": score.__name__, "doc": score.__doc__, "calls": score.calls, "product": reduce(lambda a, b: a * b, range(1, 6)),
                      "best": max(map(Grade, "BAD")).letter, "ge": Grade("A") >= Grade("B"), "points": Grade("C").points}}
""",
)
_add(
    "exceptions",
    """
class GradeError(Exception):
    def __init__(self, message, *, code=1):
        super().__init__(message)
        self.code = code

class Empty(GradeError, ValueError):
    pass

def parse(text):
    if not text:
        raise Empty("empty", code=7)
    try:
        return int(text.split()[-1].strip("."))
    except ValueError as error:
        raise GradeError(f"no number in {text[:10]!r}") from error

def grade(sample, item):
    log = []
    try:
        value = parse(sample["output_text"])
    except Empty as error:
        value, log = error.code, [str(error), repr(error), error.args]
    except GradeError as error:
        value, log = -1, [str(error), str(error.__cause__), type(error.__cause__).__name__]
    else:
        log.append("fine")
    finally:
        log.append("done")
    try:
        try:
            [][1]
        except LookupError:
            raise
    except IndexError as error:
        log.append(error.__class__.__name__)
    return {"scores": {"value": value}, "judge": {"log": log}}
""",
)
_add(
    "exception_groups",
    """
def grade(sample, item):
    log = []
    try:
        errors = [ValueError(sample["output_text"][:5]), TypeError("t"), ExceptionGroup("inner", [KeyError("k")])]
        raise ExceptionGroup("several", errors)
    except* ValueError as group:
        log.append(("value", [str(e) for e in group.exceptions]))
    except* (TypeError, KeyError) as group:
        log.append(("other", group.message, len(group.exceptions)))
    return {"scores": {"n": len(log)}, "judge": {"log": log}}
""",
)
_add(
    "async_grade",
    """
import asyncio

class Gate:
    async def __aenter__(self):
        return "open"
    async def __aexit__(self, *exc):
        return False

async def numbers(n):
    for i in range(n):
        await asyncio.sleep(0)
        yield i

async def measure(text):
    await asyncio.sleep(0)
    return len(text)

async def grade(sample, item):
    sizes = await asyncio.gather(measure(sample["output_text"]), measure(item["target"]))
    async with Gate() as gate:
        squares = [x * x async for x in numbers(4)]
    return {"scores": {"a": sizes[0], "b": sizes[1]}, "judge": {"gate": gate, "squares": squares}}
""",
)
_add(
    "formatting",
    """
def grade(sample, item):
    text, n = sample["output_text"][:12], len(sample["output_text"])
    width = 8
    class Obj:
        name = "obj"
        items = {"k": [1, 2]}
        def __format__(self, spec):
            return f"<{spec or 'none'}>"
    o = Obj()
    return {"scores": {"n": n}, "judge": {"out": [
        f"{n:>{width}}|{n / 3:.2f}|{text!r:^20}|{n:,}|{n:x}|{n:%}", "{} {} {}".format(1, "a", None), "{1}-{0}".format("a", "b"),
        "{name:*^10}".format(name="x"), "{0.name} {0.items[k][1]} {0:spec}".format(o), "{a[b]}".format(a={"b": 2}), "%s %5.1f%% %r %(x)s" .split()[0],
        "%s|%5.2f|%r|%03d" % ("s", 1.234, "r", 7), "%(a)s" % {"a": 1}, "{:{}}".format("w", 4), "{x}".format_map({"x": 3}), format(n, "08.3f"),
        f"{o}", f"{o:z}", "{{}}".format(), "{!r:>6}".format("q"), str.format("{:+d}", 5), [*map("{:02d}".format, range(3))]]}}
""",
)
_add(
    "slices_and_numbers",
    """
def grade(sample, item):
    s = sample["output_text"]
    xs = list(range(10))
    xs[2:4] = ["a", "b", "c"]
    del xs[::3]
    xs[-1] *= 2
    m = [[0] * 3 for _ in range(2)]
    m[1][2] += 5
    m[0][::2] = [1, 1]
    return {"scores": {"a": len(s[::-2]), "b": divmod(17, 5)[0], "c": pow(3, 4, 5), "d": round(2.567, 1), "e": abs(-3 + 0j), "f": 7 // -2, "g": -7 % 3},
            "judge": {"xs": xs, "m": m, "s": [s[2:5], s[-3:], s[::-1][:5], s[slice(1, 4)]], "x": [hex(255), bin(5), oct(8), ord("a"), chr(98), int("ff", 16), int("１２")],
                      "b": [bytes([65, 66]).decode(), bytearray(b"ab").hex(), list(b"xy"), b"a" + b"b" == b"ab", bool(memoryview(b"")), complex(1, 2).imag]}}
""",
)
_add(
    "builtins",
    """
def grade(sample, item):
    words = sample["output_text"].split()
    pairs = list(zip(words, words[1:]))
    it = iter(words)
    head = next(it, "none")
    return {"scores": {"any": int(any(w.isupper() for w in words)), "all": int(all(words)), "sum": sum(map(len, words)), "min": min(map(len, words), default=0),
                       "max": max(words, key=len, default="").__len__(), "big": sum(1 for _ in range(5000)), "hash": int(hash("a") == hash("a"))},
            "judge": {"pairs": pairs, "head": head, "rest": list(it)[:2], "sorted": sorted(words, key=lambda w: (-len(w), w)), "filter": list(filter(None, [0, 1, "", "a"])),
                      "enum": list(enumerate("ab", 1)), "rev": list(reversed(words)), "set": sorted(set(words)), "fs": len(frozenset(words)), "types": [type(x).__name__ for x in (1, "", [], {}, None, print, grade)],
                      "callable": [callable(len), callable(3)], "issub": issubclass(bool, int), "isinst": isinstance(words, (list, tuple)), "ascii": ascii("é"), "dict": dict(a=1, **{"b": 2}), "is": [type(1) is int, isinstance(int, type), type(3) == int]}}
""",
)
_add(
    "attributes",
    """
class Box:
    kind = "box"
    def __init__(self):
        self.value = 1
        self._hidden = 2
    def double(self):
        return self.value * 2

def grade(sample, item):
    box = Box()
    setattr(box, "extra", len(sample["output_text"]))
    box.value += 4
    had = hasattr(box, "nothing"), hasattr(box, "extra"), hasattr([], "append"), hasattr(3, "__iter__"), hasattr([], "__len__")
    delattr(box, "_hidden") if hasattr(box, "_hidden") else None
    del box.extra
    try:
        box.missing
    except AttributeError as error:
        missing = str(error)
    grade.cache = {"a": 1}
    return {"scores": {"v": getattr(box, "value"), "d": getattr(box, "double")(), "x": getattr(box, "nope", -1)},
            "judge": {"had": had, "missing": missing, "vars": vars(box), "kind": Box.kind, "cache": grade.cache, "dict": box.__dict__, "name": Box.__name__, "q": Box.double.__qualname__}}
""",
)
_add(
    "main_guard",
    '''
"""A grader with a module docstring."""

__all__ = ["grade"]
__version__ = "1.0"

import sys

DEBUG = False

def grade(sample, item):
    if DEBUG:
        print("debug", file=sys.stderr)
    return len(__all__) + (0.5 if __doc__.startswith("A grader") else 0)

if __name__ == "__main__":
    print(grade({}, {}))
    sys.exit(1)
''',
)
_add(
    "assignment_styles",
    """
grade = lambda sample, item: float(len(sample["output_text"]) > len(item["target"]))
""",
)
_add(
    "callable_object",
    """
class Grader:
    def __init__(self, weight):
        self.weight = weight
    def __call__(self, sample, item):
        return self.weight * len(item["target"])

grade = Grader(0.5)
""",
)
_add(
    "partial_grader",
    """
from functools import partial

def _grade(weight, sample, item):
    return weight * len(item["target"])

grade = partial(_grade, 2)
""",
)
_add(
    "decimals",
    """
from decimal import Decimal, getcontext, localcontext, ROUND_HALF_UP, InvalidOperation

getcontext().prec = 10

def grade(sample, item):
    try:
        value = Decimal(item["target"])
    except InvalidOperation:
        value = Decimal("2.675")
    with localcontext() as context:
        context.prec = 4
        third = value / 3
    return {"scores": {"value": value.quantize(Decimal("0.01"), rounding=ROUND_HALF_UP), "seventh": value / 7}, "judge": {"third": str(third), "sqrt": str(value.sqrt())}}
""",
)
_add(
    "fractions_and_stats",
    """
from fractions import Fraction
import statistics as st

def grade(sample, item):
    sizes = [len(w) for w in sample["output_text"].split()] or [0, 1]
    if len(sizes) < 2:
        sizes = [*sizes, 3]
    return {"scores": {"f": Fraction(sum(sizes), len(sizes)), "mean": st.mean(sizes), "median": st.median(sizes), "stdev": st.stdev(sizes), "mode": st.mode(sizes)},
            "judge": {"q": st.quantiles(sizes, n=4), "nd": st.NormalDist(1, 2).cdf(0)}}
""",
)
_add(
    "random_seeded",
    """
import random

def grade(sample, item):
    rng = random.Random(7)
    words = sample["output_text"].split()
    rng.shuffle(words)
    boot = [rng.choice([0, 1]) for _ in range(20)]
    return {"scores": {"boot": sum(boot) / 20, "u": rng.random()}, "judge": {"words": words, "sample": rng.sample(range(100), 5)}}
""",
)
_add(
    "hashing",
    """
import base64, hashlib, zlib, binascii, uuid, hmac

def grade(sample, item):
    data = sample["output_text"].encode("utf-8")
    return {"scores": {"bucket": int(hashlib.sha256(data).hexdigest(), 16) % 100, "crc": zlib.crc32(data)},
            "judge": {"b64": base64.b64encode(data).decode(), "back": base64.b64decode(base64.b64encode(data)) == data, "hex": binascii.hexlify(data[:4]).decode(),
                      "uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, item["target"])), "mac": hmac.new(b"k", data, "sha1").hexdigest(), "z": len(zlib.compress(data))}}
""",
)
_add(
    "html_and_text",
    """
import html, string, textwrap
from html.parser import HTMLParser

class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags = []
        self._text = []
    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
    def handle_data(self, data):
        self._text.append(data)

def grade(sample, item):
    tags = Tags()
    tags.feed(f"<p class='x'>{html.escape(sample['output_text'])}</p>")
    return {"scores": {"n": len(tags.tags)}, "judge": {"tags": tags.tags, "text": "".join(tags._text), "wrap": textwrap.wrap(sample["output_text"], 20),
            "dedent": textwrap.dedent("  a\\n  b"), "caps": string.capwords(item["target"]), "template": string.Template("$x costs $$1").substitute(x="tea"), "un": html.unescape("&lt;&eacute;")}}
""",
)
_add(
    "csv_and_io",
    """
import csv, io

def grade(sample, item):
    rows = list(csv.DictReader(io.StringIO("a,b\\n1,\\"x, y\\"\\n" + sample["output_text"].replace("\\n", ";") + ",z\\n")))
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL)
    writer.writerow([sample["output_text"], 1])
    print("to a buffer", 3, sep="/", end="!", file=out)
    return {"scores": {"rows": len(rows)}, "judge": {"rows": rows, "out": out.getvalue()}}
""",
)
_add(
    "heaps_and_deques",
    """
import heapq
from collections import deque, OrderedDict, ChainMap, defaultdict

def grade(sample, item):
    words = sample["output_text"].split()
    window, best = deque(maxlen=3), []
    for i, word in enumerate(words):
        window.append(word)
        heapq.heappush(best, (-len(word), i, word))
    window.rotate(1)
    index = defaultdict(list)
    for i, word in enumerate(words):
        index[word].append(i)
    od = OrderedDict(sorted(index.items()))
    if od:
        od.move_to_end(next(iter(od)))
    return {"scores": {"n": len(best)}, "judge": {"top": [heapq.heappop(best)[2] for _ in range(min(2, len(best)))], "window": list(window), "od": od,
            "chain": dict(ChainMap({"a": 1}, {"a": 2, "b": 3})), "large": heapq.nlargest(2, words, key=len)}}
""",
)
_add(
    "operators",
    """
import operator
from operator import itemgetter, attrgetter, methodcaller

class P:
    def __init__(self, n, tag):
        self.n, self.tag = n, tag
        self.inner = self

def grade(sample, item):
    words = sample["output_text"].split()
    ps = [P(len(w), w) for w in words]
    return {"scores": {"sum": operator.add(1, 2), "n": len(ps)},
            "judge": {"s": [p.tag for p in sorted(ps, key=attrgetter("n", "inner.tag"))], "i": sorted(enumerate(words), key=itemgetter(1)), "u": list(map(methodcaller("upper"), words)), "truth": operator.truth([])}}
""",
)
_add(
    "abstract_classes",
    """
from abc import ABC, ABCMeta, abstractmethod
from typing import Protocol, Generic, TypeVar, runtime_checkable
from collections.abc import Mapping, Iterable

T = TypeVar("T")

class Scorer(ABC):
    @abstractmethod
    def score(self, text: str) -> float: ...
    @property
    @abstractmethod
    def name(self): ...

class Other(metaclass=ABCMeta):
    pass

@runtime_checkable
class Named(Protocol):
    name: str

class Stack(Generic[T]):
    def __init__(self) -> None:
        self._all: list[T] = []
    def push(self, x: T) -> "Stack[T]":
        self._all.append(x)
        return self

class Len(Scorer):
    name = "len"
    def score(self, text):
        return len(text)

class Lazy(Mapping):
    def __init__(self, data): self._data = data
    def __getitem__(self, key): return self._data[key]
    def __iter__(self): return iter(self._data)
    def __len__(self): return len(self._data)

def grade(sample, item):
    try:
        Scorer()
    except TypeError as error:
        abstract = "abstract" in str(error)
    return {"scores": {"s": Len().score(sample["output_text"]), "stack": len(Stack[int]().push(1).push(2)._all)},
            "judge": {"abstract": abstract, "named": isinstance(Len(), Named), "lazy": dict(Lazy({"a": 1})), "m": isinstance(Lazy({}), Mapping), "it": isinstance("", Iterable), "get": Lazy({"a": 1}).get("b", 9)}}
""",
)
_add(
    "inheritance",
    """
class Base:
    def __new__(cls, *args):
        self = super().__new__(cls)
        self.made = cls.__name__
        return self
    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__()
        cls.flag = kwargs.get("flag", "none")
    def who(self):
        return ["Base"]

class Left(Base, flag="left"):
    def who(self):
        return ["Left", *super().who()]

class Right(Base):
    def who(self):
        return ["Right", *super().who()]

class Both(Left, Right):
    def who(self):
        return ["Both", *super().who()]

class Upper(str):
    def __new__(cls, value):
        return str.__new__(cls, value.upper())
    def shout(self):
        return self + "!"

class Attr(dict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None
    def __setattr__(self, name, value):
        self[name] = value

class Typed:
    def __set_name__(self, owner, name):
        self.name = "_" + name
    def __get__(self, obj, owner=None):
        return self if obj is None else getattr(obj, self.name, None)
    def __set__(self, obj, value):
        setattr(obj, self.name, int(value))

class Holder:
    x = Typed()

def grade(sample, item):
    attr = Attr(a=1)
    attr.b = 2
    holder = Holder()
    holder.x = "7"
    return {"scores": {"x": holder.x, "b": attr.b}, "judge": {"who": Both().who(), "made": Both().made, "flag": [Left.flag, Right.flag], "shout": Upper(item["target"]).shout(),
            "attr": attr, "has": hasattr(attr, "zzz"), "isinst": isinstance(Both(), Right)}}
""",
)
_add(
    "copying",
    """
import copy

class Node:
    def __init__(self, value, children=()):
        self.value, self.children = value, list(children)
    def __copy__(self):
        return Node(self.value + 1, self.children)

class Plain:
    def __init__(self):
        self.data = {"k": [1]}

def grade(sample, item):
    tree = Node(1, [Node(2)])
    deep, shallow, plain = copy.deepcopy(tree), copy.copy(tree), copy.deepcopy(Plain())
    deep.children[0].value = 9
    plain.data["k"].append(2)
    row = copy.deepcopy(item)
    row["target"] = None
    return {"scores": {"v": tree.children[0].value, "c": shallow.value}, "judge": {"target": item["target"], "plain": plain.data, "same": shallow.children[0] is tree.children[0]}}
""",
)
_add(
    "ast_checks",
    """
import ast, keyword

def grade(sample, item):
    code = "def f(x):\\n    'Doc.'\\n    return [x for x in range(3)]\\n"
    tree = ast.parse(code)
    calls = [node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call)]
    try:
        ast.parse(sample["output_text"])
        parses = 1.0
    except SyntaxError:
        parses = 0.0
    return {"scores": {"parses": parses}, "judge": {"calls": calls, "doc": ast.get_docstring(tree.body[0]), "lit": ast.literal_eval("{'a': [1, (2, 3)]}"), "un": ast.unparse(tree.body[0].body[1]), "kw": keyword.iskeyword("def"), "names": sorted({n.id for n in ast.walk(tree) if isinstance(n, ast.Name)})}}
""",
)
_add(
    "urls_and_xml",
    """
from urllib.parse import urlparse, parse_qs, quote
import xml.etree.ElementTree as ET
import shlex, fnmatch, struct, pprint

def grade(sample, item):
    url = urlparse("https://example.org/a/b?x=1&y=2&x=3#frag")
    root = ET.fromstring("<r><a n='1'>t</a><a n='2'/></r>")
    return {"scores": {"n": len(root.findall("a"))}, "judge": {"host": url.netloc, "q": parse_qs(url.query), "quote": quote(item["target"]), "attrs": [e.get("n") for e in root.iter("a")],
            "split": shlex.split("a 'b c' d"), "fn": fnmatch.fnmatch("a.py", "*.py"), "st": struct.unpack("<hh", struct.pack("<hh", 1, 2)), "pp": pprint.pformat({"b": 1, "a": [1, 2]})}}
""",
)
_add(
    "bootstrap_ci",
    """
import random
from statistics import mean

def grade(sample, item):
    rng = random.Random(sample["output_text"])
    data = [rng.gauss(0, 1) for _ in range(50)]
    means = sorted(mean(rng.choices(data, k=len(data))) for _ in range(50))
    return {"scores": {"low": means[2], "high": means[-3]}}
""",
)
_add(
    "levenshtein_words",
    """
def grade(sample, item):
    a, b = sample["output_text"].split(), item["target"].split()
    previous = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        current = [i]
        for j, y in enumerate(b, start=1):
            current.append(min(previous[j] + 1, current[-1] + 1, previous[j - 1] + (x != y)))
        previous = current
    return {"scores": {"wer": previous[-1] / max(len(b), 1)}}
""",
)
_add(
    "chrf",
    """
from collections import Counter

def chars(text, n):
    text = text.replace(" ", "")
    return Counter(text[i : i + n] for i in range(len(text) - n + 1))

def grade(sample, item, beta=2.0, order=3):
    scores = []
    for n in range(1, order + 1):
        hyp, ref = chars(sample["output_text"], n), chars(item["target"], n)
        common = (hyp & ref).total()
        if not hyp or not ref:
            continue
        p, r = common / hyp.total(), common / ref.total()
        scores.append((1 + beta**2) * p * r / (beta**2 * p + r) if p + r else 0.0)
    return sum(scores) / len(scores) if scores else 0.0
""",
)
_add(
    "multiple_choice",
    """
import re

LETTER = re.compile(r"\\b([A-D])\\b(?!.*\\b[A-D]\\b)", re.DOTALL)

def grade(sample, item):
    found = LETTER.search(sample["output_text"])
    letter = found.group(1) if found else None
    expected = "ABCD"[len(item["target"]) % 4]
    return {"scores": {"score": 1.0 if letter == expected else 0.0}, "judge": {"letter": letter, "expected": expected, "span": found.span() if found else None}}
""",
)
_add(
    "readability",
    """
import re

def syllables(word):
    word = word.lower().removesuffix("e")
    return max(1, len(re.findall(r"[aeiouy]+", word)))

def grade(sample, item):
    sentences = max(1, len(re.split(r"[.!?]+\\s*", sample["output_text"].strip(".!? "))))
    words = re.findall(r"[A-Za-z']+", sample["output_text"]) or ["a"]
    flesch = 206.835 - 1.015 * len(words) / sentences - 84.6 * sum(map(syllables, words)) / len(words)
    return {"scores": {"flesch": flesch}}
""",
)
_add(
    "ranking",
    """
import math

def dcg(gains):
    return sum(gain / math.log2(rank + 2) for rank, gain in enumerate(gains))

def grade(sample, item):
    ranked = sample["output_text"].split()
    gains = [len(set(word) & set(item["target"])) for word in ranked]
    best = dcg(sorted(gains, reverse=True))
    first = next((rank for rank, gain in enumerate(gains, 1) if gain), None)
    return {"scores": {"ndcg": dcg(gains) / best if best else 0.0, "mrr": 1 / first if first else 0.0}}
""",
)
_add(
    "auc",
    """
def auc(scores, labels):
    positive = [s for s, y in zip(scores, labels) if y]
    negative = [s for s, y in zip(scores, labels) if not y]
    if not positive or not negative:
        return 0.5
    wins = sum((p > n) + 0.5 * (p == n) for p in positive for n in negative)
    return wins / (len(positive) * len(negative))

def grade(sample, item):
    text = sample["output_text"]
    return auc([ord(c) for c in text], [c.islower() for c in text])
""",
)
_add(
    "cosine",
    """
import math
from collections import Counter

def vector(text):
    return Counter(text.lower().split())

def grade(sample, item):
    a, b = vector(sample["output_text"]), vector(item["target"])
    dot = sum(a[w] * b[w] for w in a.keys() & b.keys())
    norm = math.hypot(*a.values()) * math.hypot(*b.values())
    return dot / norm if norm else 0.0
""",
)
_add(
    "tfidf",
    """
import math
from collections import Counter

def grade(sample, item):
    documents = [line.split() for line in (sample["output_text"] + "\\n" + item["target"]).splitlines()]
    df = Counter(word for document in documents for word in set(document))
    weights = [{word: count / len(document) * math.log((1 + len(documents)) / (1 + df[word])) for word, count in Counter(document).items()} for document in documents if document]
    return {"scores": {"sum": math.fsum(v for d in weights for v in d.values())}, "judge": {"top": [max(d, key=d.get) for d in weights]}}
""",
)
_add(
    "code_fence",
    """
import re, ast

FENCE = re.compile(r"```(?P<lang>\\w*)\\n(?P<code>.*?)```", re.S)

def grade(sample, item):
    text = "Before\\n```python\\nx = 1\\nprint(x)\\n```\\nafter" if not sample["output_text"] else sample["output_text"]
    blocks = [m.groupdict() for m in FENCE.finditer(text)]
    names = [t.id for b in blocks for n in ast.parse(b["code"]).body if isinstance(n, ast.Assign) for t in n.targets]
    return {"scores": {"blocks": len(blocks)}, "judge": {"names": names, "langs": [b["lang"] for b in blocks]}}
""",
)
_add(
    "state_machine",
    """
from enum import Enum, auto

class State(Enum):
    OUT = auto()
    IN = auto()

TRANSITIONS = {(State.OUT, '"'): State.IN, (State.IN, '"'): State.OUT}

def grade(sample, item):
    state, quoted = State.OUT, []
    for char in sample["output_text"]:
        new = TRANSITIONS.get((state, char), state)
        if state is State.IN and new is State.IN:
            quoted[-1] += char
        elif new is State.IN:
            quoted.append("")
        state = new
    return {"scores": {"closed": float(state is State.OUT)}, "judge": {"quoted": quoted}}
""",
)
_add(
    "tokenizer",
    """
from typing import NamedTuple, Iterator
import re

class Token(NamedTuple):
    kind: str
    value: str

SPEC = [("NUMBER", r"\\d+(?:\\.\\d*)?"), ("WORD", r"[^\\W\\d_]+"), ("SPACE", r"\\s+"), ("OTHER", r".")]
MASTER = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in SPEC), re.S)

def tokens(text: str) -> Iterator[Token]:
    for match in MASTER.finditer(text):
        if match.lastgroup != "SPACE":
            yield Token(match.lastgroup, match.group())

class Parser:
    def __init__(self, text):
        self._tokens = list(tokens(text))
        self._at = 0
    def __iter__(self):
        return self
    def __next__(self):
        if self._at >= len(self._tokens):
            raise StopIteration
        self._at += 1
        return self._tokens[self._at - 1]

def grade(sample, item):
    found = list(Parser(sample["output_text"]))
    return {"scores": {kind.lower(): sum(t.kind == kind for t in found) for kind, _ in SPEC}, "judge": {"first": found[:3], "is": [t for t in found[:1]] == found[:1]}}
""",
)
_add(
    "weighted_rubric",
    """
from dataclasses import dataclass
from typing import Callable

@dataclass
class Criterion:
    name: str
    weight: float
    test: Callable[[str], bool]

    def __call__(self, text: str) -> float:
        return self.weight if self.test(text) else 0.0

CRITERIA = [
    Criterion("short", 1, lambda t: len(t) < 40),
    Criterion("ends", 2, lambda t: t.endswith((".", "!"))),
    Criterion("number", 0.5, lambda t: any(c.isdigit() for c in t)),
]

def grade(sample, item):
    parts = {c.name: c(sample["output_text"]) for c in CRITERIA}
    return {"scores": {"score": sum(parts.values()) / sum(c.weight for c in CRITERIA)}, "judge": parts}
""",
)
_add(
    "deep_elif",
    "def grade(sample, item):\n    n = len(sample['output_text'])\n    if n == -1:\n        return -1\n"
    + "".join(f"    elif n == {i}:\n        return {i} / 2\n" for i in range(250))
    + "    else:\n        return 0.25\n",
)
_add(
    "big_table",
    "TABLE = {\n"
    + "".join(f'    "key{i}": ({i}, "v{i}"),\n' for i in range(5000))
    + "}\n\ndef grade(sample, item):\n    return TABLE[f\"key{len(sample['output_text'])}\"][0]\n",
)
_add(
    "time_and_calendar",
    """
import calendar, time
from datetime import datetime, timezone, timedelta

def grade(sample, item):
    moment = datetime(2024, 2, 29, 12, tzinfo=timezone.utc)
    start = time.perf_counter()
    return {"scores": {"leap": calendar.isleap(2024), "n": calendar.monthrange(2024, 2)[1], "ts": moment.timestamp()} , "judge": {"iso": (moment + timedelta(days=1)).isoformat(),
            "parsed": datetime.fromisoformat("2024-05-01T10:00:00+02:00").astimezone(timezone.utc).isoformat(), "ran": time.perf_counter() >= start, "g": time.strftime("%Y", time.gmtime(0)), "day": calendar.day_name[0]}}
""",
)
_add(
    "invalid_bool",
    """
def grade(sample, item):
    return sample["output_text"] == item["target"]
""",
)
_add(
    "invalid_none",
    """
def grade(sample, item):
    if item["target"] in sample["output_text"]:
        return 1.0
""",
)
_add(
    "raises",
    """
def helper(value):
    return value["missing"]

def grade(sample, item):
    return helper(
        sample
    )
""",
)
_add(
    "awkward_payload",
    """
from datetime import datetime
from decimal import Decimal

def grade(sample, item):
    loop = []
    loop.append(loop)
    return {"scores": {"score": 1.0, "nan": float("nan"), "text": "1"}, "judge": {"when": datetime(2024, 1, 2), "tags": {"b", "a"}, "error": ValueError("x"), 3: "int", "3": "text", (1, 2): "tuple",
            "loop": loop, "inf": float("inf"), "d": Decimal("1.5"), "b": b"raw", "none": {None: 1}, "half": "bad \\ud83d half"}}
""",
)
