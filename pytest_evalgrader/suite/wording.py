"""How suites and values are named in messages: places, found values, nearest names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

_PLAIN_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*")
_SHOWN_TEXT = 60


def place(parts: Iterable[str | int]) -> str:
    """Spell a place inside a JSON document, such as `tasks[2].grader.contrat`.

    Args:
        parts: Object keys and list indices from the top down.

    Returns:
        The place; empty for the document itself. A key that is no plain word is quoted: `files["a b"]`.
    """
    out = ""
    for part in parts:
        if isinstance(part, int):
            out += f"[{part}]"
        elif _PLAIN_KEY.fullmatch(part):
            out += f".{part}" if out else part
        else:
            out += f"[{quote(part)}]"
    return out


def quote(text: str) -> str:
    """Show text in double quotes on one line, cut after 60 characters, control characters escaped."""
    cut = text if len(text) <= _SHOWN_TEXT else text[: _SHOWN_TEXT - 1] + "…"
    shown = json.dumps(cut, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in shown)


def describe(value: object) -> str:
    """Say in a few words what a JSON value is; never longer than a line."""
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, str):
        return f"the text {quote(value)}" if value else "an empty text"
    if isinstance(value, int):
        if abs(value) >= 10**30:
            return "a very large number"
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Sequence):
        return "an empty list" if not value else "a list"
    if isinstance(value, dict):
        return "an empty object" if not value else "an object"
    return f"a Python {type(value).__name__}"


def listing(names: Iterable[str], *, last: str = "or") -> str:
    """Join quoted names: `"a", "b" or "c"`."""
    quoted = [quote(name) for name in names]
    if len(quoted) < 2:
        return "".join(quoted)
    return f"{', '.join(quoted[:-1])} {last} {quoted[-1]}"


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Find the known names that a misspelt one most likely meant.

    Args:
        name: What was written.
        known: The names there are.

    Returns:
        The nearest names, all of equal distance, at most three; empty where none is near.
    """
    pool = list(dict.fromkeys(known))
    folded = _fold(name)
    if not folded:
        return []
    same = [k for k in pool if _fold(k) == folded]
    if same:
        return same[:3]
    ranked = sorted((_distance(folded, _fold(k)), i) for i, k in enumerate(pool))
    if ranked and ranked[0][0] <= max(1, min(len(folded), len(_fold(pool[ranked[0][1]]))) // 3):
        best = ranked[0][0]
        return [pool[i] for d, i in ranked if d == best][:3]
    alike = [k for k in pool if _starts_alike(folded, _fold(k))]
    return (alike or [k for k in pool if len(_words(name) & _words(k)) > 1])[:3]


def _words(name: str) -> set[str]:
    return set(re.split(r"[\s_.-]+", name[:100].casefold())) - {""}


def _starts_alike(a: str, b: str) -> bool:
    return min(len(a), len(b)) >= 3 and (a.startswith(b) or b.startswith(a))


def did_you_mean(name: str, known: Iterable[str], *, what: str = "Known") -> str:
    """Suggest the nearest known names, or list what there is.

    Args:
        name: What was written.
        known: The names there are.
        what: Heads the list where nothing is near, such as `Known keys`.

    Returns:
        A sentence such as `Did you mean "contract"?`; empty where nothing is known.
    """
    pool = list(dict.fromkeys(known))
    near = nearest(name, pool)
    if near:
        return f"Did you mean {listing(near)}?"
    if not pool:
        return ""
    shown = pool[:40]
    more = f" and {len(pool) - len(shown)} more" if len(pool) > len(shown) else ""
    return f"{what}: {', '.join(quote(k) for k in shown)}{more}."


def _fold(name: str) -> str:
    """Ignore case, separators and camelCase: `promptTemplate` and `prompt-template` are `prompttemplate`."""
    return re.sub(r"[\s_.-]", "", name[:100]).casefold()


def _distance(a: str, b: str) -> int:
    """Count the edits (insert, delete, replace, swap neighbours) between two short texts."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, last, row = row, before, [i] + [0] * len(b)
        for j, y in enumerate(b, 1):
            row[j] = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                row[j] = min(row[j], last[j - 2] + 1)
    return row[-1]
