"""Compiles the regular expressions of a suite, which may come from anybody."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import regex

MAX_EXPANSION = 50_000
"""Largest size of a pattern with its counted repeats written out. The library writes them out when it compiles, which
no time limit stops: `a{4000000000}` takes all memory."""

_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\s*([0-9]*)\s*(?:,\s*([0-9]*)\s*)?\}|.", re.S)


def compile_pattern(pattern: str, flags: str = "") -> regex.Pattern[str]:
    """Compile a pattern with the `regex` package.

    Args:
        pattern: The pattern.
        flags: Letters of `imsx`: ignore case, multi-line, dot matches all, verbose.

    Raises:
        ValueError: It is no regular expression, an unknown flag, or too large; the message says which.
    """
    import regex

    bits = int(regex.VERSION0)
    for letter in flags:
        if letter not in "imsx":
            raise ValueError(f'unknown flag "{letter}"; expected letters of "imsx"')
        bits |= int(getattr(regex, letter.upper()))
    if expansion(pattern) > MAX_EXPANSION:
        raise ValueError(
            f"its counted repeats, written out, are over {MAX_EXPANSION:,} steps; use * or +, or smaller counts"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the library's advice on sets; a warning must not break a suite
            return regex.compile(pattern, bits)
    except regex.error as error:
        position = getattr(error, "pos", None)
        at = f" at character {position + 1}" if position is not None else ""
        raise ValueError(f"not a regular expression: {getattr(error, 'msg', error)}{at}") from None
    except (RecursionError, OverflowError, MemoryError):
        raise ValueError("the regular expression is too large to compile") from None


def expansion(pattern: str) -> int:
    """Estimate the size of a pattern with its counted repeats written out."""
    totals, last = [0], 0
    for match in _TOKEN.finditer(pattern):
        token = match.group()
        if token == "(":
            totals.append(0)
            last = 0
        elif token == ")" and len(totals) > 1:
            last = totals.pop() + 1
            totals[-1] += last
        elif token[0] == "{" and len(token) > 1 and (match[1] or match[2]):
            times = max(int(number[:12]) for number in (match[1] or "0", match[2] or "0"))
            totals[-1] += last * max(0, times - 1)
            last *= max(1, times)
        else:
            last = 1
            totals[-1] += 1
        if totals[-1] > MAX_EXPANSION:
            return totals[-1]
    return sum(totals)
