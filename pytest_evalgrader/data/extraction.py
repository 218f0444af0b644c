"""Finds the answer in an output: `extracted_output`."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias
from unicodedata import category, normalize, numeric

from pytest_evalgrader.errors import Problem, SampleError, SuiteError
from pytest_evalgrader.suite.patterns import compile_pattern
from pytest_evalgrader.suite.wording import listing, quote

if TYPE_CHECKING:
    from pytest_evalgrader.suite.manifest import ExtractionSpec

Extractor: TypeAlias = Callable[[str], str | None]

REGEX_TIMEOUT_S = 2.0
"""Longest time that a pattern may take over one output, in seconds."""


def build_extractor(spec: ExtractionSpec | None, *, where: str = "output_extraction") -> Extractor:
    """Make the function that finds the answer in an output.

    Args:
        spec: What the suite says; None takes the output as it is.
        where: The place in the suite, for messages.

    Returns:
        A function from the output to the answer, or to None where there is none. It raises SampleError (stage
        `extract`) where a pattern takes longer than two seconds, and nothing else.

    Raises:
        SuiteError: The pattern does not compile, or has no such group; labels that are empty or the same.
    """
    kind = "none" if spec is None else spec.type
    if spec is None or kind == "none":
        return _as_it_is
    made: Any = spec
    if kind == "take_first":
        count: int = made.lines
        return lambda text: take_first(text, count)
    if kind in ("regex", "regex_last"):
        return _regex(made.pattern, made.group, made.flags or "", last=kind == "regex_last", where=where)
    if kind == "label_set":
        return _Labels(made.labels, case_sensitive=bool(made.case_sensitive), where=where)
    if kind == "number":
        return last_number
    raise SuiteError([Problem(where, f"unknown extraction {quote(str(kind))}.")])


def _as_it_is(text: str) -> str | None:
    return text


# --- lines ----------------------------------------------------------------------------------------------------------


def take_first(text: str, lines: int) -> str | None:
    """Return the first lines that say something, each without the white space around it; None where none does."""
    found: list[str] = []
    for match in re.finditer(r"[^\r\n]+", text):
        line = match.group().strip()
        if line:
            found.append(line)
            if len(found) == lines:
                break
    return "\n".join(found) if found else None


# --- patterns -------------------------------------------------------------------------------------------------------


def _regex(pattern: str, group: int | str | None, flags: str, *, last: bool, where: str) -> Extractor:
    try:
        compiled = compile_pattern(pattern, flags)
    except ValueError as error:
        raise SuiteError([Problem(f"{where}.pattern", f"{error}.")]) from None
    if group is None:
        group = 1 if compiled.groups else 0
    elif isinstance(group, str):
        if group not in compiled.groupindex:
            have = f"It has {listing(compiled.groupindex, last='and')}." if compiled.groupindex else "It names none."
            raise SuiteError([Problem(f"{where}.group", f"the pattern has no group named {quote(group)}. {have}")])
    elif not 0 <= group <= compiled.groups:
        message = f"the pattern has no group {group}; it has {compiled.groups}, and 0 is the whole match."
        raise SuiteError([Problem(f"{where}.group", message)])
    wanted = group

    def extract(text: str) -> str | None:
        # concurrent=True lets other threads of the worker go on while a pattern runs.
        deadline = time.monotonic() + REGEX_TIMEOUT_S
        found = None
        try:
            if not last:
                found = compiled.search(text, concurrent=True, timeout=REGEX_TIMEOUT_S)
            else:
                for match in compiled.finditer(text, concurrent=True, timeout=REGEX_TIMEOUT_S):
                    if time.monotonic() > deadline:
                        raise TimeoutError
                    found = match
        except (TimeoutError, MemoryError, RecursionError) as error:
            stopped = (
                f"took more than {REGEX_TIMEOUT_S:g} s" if isinstance(error, TimeoutError) else "ran out of memory"
            )
            raise SampleError(
                "extract",
                f"the pattern {quote(pattern)} {stopped} on this output ({len(text):,} characters) and was stopped. "
                "Nested repeats such as (a|aa)+ are the usual cause.",
                type(error).__name__,
            ) from None
        answer: str | None = None if found is None else found.group(wanted)
        return answer

    return extract


# --- labels ---------------------------------------------------------------------------------------------------------


class _Labels:
    """Finds the label that is mentioned last. Compared in NFC; runs of white space are the same as one space."""

    def __init__(self, labels: Sequence[str], *, case_sensitive: bool, where: str) -> None:
        import regex

        self._case_sensitive = case_sensitive
        self._labels: dict[str, str] = {}
        for index, label in enumerate(labels):
            form = self._form(label).strip()
            if not form:
                raise SuiteError([Problem(f"{where}.labels[{index}]", "a label must not be empty.")])
            if form in self._labels:
                message = f"{quote(label)} and {quote(self._labels[form])} are the same label; keep one of them."
                raise SuiteError([Problem(f"{where}.labels[{index}]", message)])
            self._labels[form] = label
        # Up to three underscores that only emphasise (`_yes_`) are no part of a word. (?r) searches from the end.
        self._patterns = {
            form: regex.compile(rf"(?r)(?<![^\W_]_{{0,3}}|____){regex.escape(form)}(?!_{{0,3}}[^\W_]|____)")
            for form in self._labels
        }

    def __call__(self, text: str) -> str | None:
        text = self._form(text)
        best: tuple[int, int, str] | None = None  # end, length, label
        for form in self._labels:
            if form in text and (match := self._patterns[form].search(text)) is not None:
                found = (match.end(), len(form), form)
                best = found if best is None else max(best, found)
        if best is None:
            return None
        while (longer := self._longer(text, *best)) is not None:
            best = longer
        return self._labels[best[2]]

    def _longer(self, text: str, end: int, length: int, form: str) -> tuple[int, int, str] | None:
        """Find a longer label that overlaps the one that was found."""
        for other in self._labels:
            if len(other) <= length:
                continue
            # A few more characters on both sides, so that the pattern sees whether a word goes on there.
            low, high = max(0, end - length - len(other) + 1), end + len(other) - 1
            start = max(0, low - 5)
            for match in self._patterns[other].finditer(text[start : high + 5], overlapped=True):
                if start + match.start() >= low and start + match.end() <= high:
                    return start + match.end(), len(other), other
        return None

    def _form(self, text: str) -> str:
        text = normalize("NFC", text)
        if not self._case_sensitive:
            text = normalize("NFC", text.casefold())
        return _SPACES.sub(" ", text)


_SPACES = re.compile(r"\s+")


# --- numbers --------------------------------------------------------------------------------------------------------

_MINUS = "-\u2212\u2013\u2010\u2011\ufe63\uff0d"
_SIGN = rf"[+{re.escape(_MINUS)}]"
_CURRENCY = "$€£¥₹₽₩"
_SPACE_IN_NUMBER = " \u00a0\u2009\u202f"
_MAX_EXPONENT = 400
_MAX_FRACTION_DIGITS = 100

# A run of digits with what may join them, and an exponent. Every repeat is possessive or starts with a character of
# its own, so time is linear in the text.
_NUMBER = re.compile(
    rf"\.?[0-9]++(?:(?:\.|,|\{{,\}}|\\,|,\\!|['’_])[0-9]++)*+"
    rf"(?:[eE](?P<sign>{_SIGN})?(?P<exponent>[0-9]+)(?!\w))?"
)
_NUMBER_CHARACTERS = frozenset("0123456789.,{}\\!'’_eE+" + _MINUS)
_JOINER = re.compile(r"\{,\}|\\,|,\\!")
_GROUPED = re.compile(r"[1-9][0-9]{0,2}(?:,[0-9]{3})++(?:\.[0-9]++)?")
_WHOLE = r"[1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]+"
_SLASH_FRACTION = re.compile(rf"\s*(?P<sign>{_SIGN})?(?P<a>{_WHOLE})\s*[/⁄∕]\s*(?P<b>{_WHOLE})\s*\.?\s*")
_LATEX_FRACTION = re.compile(
    rf"\s*\$*\s*(?P<sign>{_SIGN})?\s*\\[dt]?frac\s*\{{(?P<a>[0-9]+)\}}\s*\{{(?P<b>[0-9]+)\}}\s*\$*\s*\.?\s*"
)
_VULGAR = frozenset("¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞↉")


def last_number(text: str) -> str | None:
    """Return the last number of a text as plain decimal text, such as `1234.5`.

    A text that is one fraction gives its value. A form that means different numbers in different countries
    (`1.234,56`, `1 234`, `1'234`, `3,14`) gives None.

    Args:
        text: Any text.

    Returns:
        Decimal text without separators, exponent, or zeros that say nothing; None where there is no number, or no
        certain one.
    """
    whole = _whole_fraction(text)
    if whole is not None:
        return whole[0]
    end = len(text)
    while end and not "0" <= text[end - 1] <= "9":
        end -= 1
    if not end:
        return None
    start = end
    while start and text[start - 1] in _NUMBER_CHARACTERS:
        start -= 1
    found = deque(_NUMBER.finditer(text, start, end), maxlen=1)[0]
    # The exponent's look-ahead must see what follows the stretch.
    if found.group("exponent") is not None and end < len(text) and _in_word(text[end]):
        run, exponent, begin = found.group("exponent"), 0, found.start("exponent")
    elif found.group("exponent") is None:
        run, exponent, begin = found.group(), 0, found.start()
    else:
        digits = found.group("exponent").lstrip("0") or "0"
        if len(digits) > 4 or int(digits) > _MAX_EXPONENT:
            return None
        sign = found.group("sign")
        exponent = -int(digits) if sign is not None and sign in _MINUS else int(digits)
        run, begin = found.group()[: found.start("sign" if sign else "exponent") - found.start() - 1], found.start()
    if end < len(text) and text[end] in _VULGAR:
        return None
    return _decimal(text, run, begin, exponent)


def _decimal(text: str, run: str, begin: int, exponent: int) -> str | None:
    before = text[begin - 1] if begin else ""
    if run.startswith("."):
        if before == "." or _in_word(before or " "):
            run, begin, before = run[1:], begin + 1, "."
        else:
            run = "0" + run
    joined = _JOINER.sub(",", run)
    if joined != run and not _GROUPED.fullmatch(joined):
        return None
    if "," not in joined and any(c in "'’_" for c in joined):
        # Feet and inches (5'10) are two numbers; three digits after the mark may be thousands.
        parts = re.split("['’_]", joined)
        if "_" in joined or any(len(re.match("[0-9]*", part)[0]) == 3 for part in parts[1:]):  # type: ignore[index]
            return None
        joined, before = parts[-1], "'"
    elif any(c in "'’_" for c in joined):
        return None
    if "," in joined:
        if _GROUPED.fullmatch(joined):
            joined = joined.replace(",", "")
        else:
            parts = joined.split(",")
            thousands = any(len(part.partition(".")[0]) == 3 for part in parts[1:])
            if len(parts) == 2:
                if not all("." in part for part in parts):
                    return None
            elif thousands and len({len(part) for part in parts}) > 1:
                return None
            joined, before = parts[-1], ","
    if joined.count(".") > 1:
        return None
    whole, _, rest = joined.partition(".")
    if before and before in _SPACE_IN_NUMBER and len(whole) == 3 and _group_before(text, begin - 1):
        return None
    negative = _is_negative(text, begin) if before and before not in ",.'" else False
    return _plain_text(whole, rest, exponent, negative)


def _group_before(text: str, space: int) -> bool:
    """Say whether one to three digits of a number of their own stand before a space: `1 234`."""
    start = space
    while start and space - start < 4 and "0" <= text[start - 1] <= "9":
        start -= 1
    before = text[start - 1] if start else ""
    return 1 <= space - start <= 3 and not (before and before in ".,:/")


def _is_negative(text: str, begin: int) -> bool:
    at = begin - 1
    if text[at] in _CURRENCY:
        at -= 1
    if at < 0 or text[at] not in _MINUS:
        return False
    before = text[at - 1] if at else ""
    # A hyphen after a number, a word or another hyphen joins or separates; it is no minus.
    return not before or not (_in_word(before) or before in ")]}%" or before in _MINUS or before in _VULGAR)


def _in_word(char: str) -> bool:
    return char.isalnum() or category(char)[0] == "M"


def _plain_text(whole: str, rest: str, exponent: int, negative: bool) -> str:
    digits, point = whole + rest, len(whole) + exponent
    if point <= 0:
        digits, point = "0" * (1 - point) + digits, 1
    elif point > len(digits):
        digits += "0" * (point - len(digits))
    head = digits[:point].lstrip("0") or "0"
    tail = digits[point:].rstrip("0")
    number = f"{head}.{tail}" if tail else head
    return f"-{number}" if negative and number != "0" else number


def _whole_fraction(text: str) -> tuple[str | None] | None:
    """Return the value of a text that is one fraction, in a tuple; None where it is not one."""
    short = text.strip()
    if len(short) > 4 * _MAX_FRACTION_DIGITS:
        return None
    if len(short) == 1 and short in _VULGAR:
        value = Fraction(numeric(short)).limit_denominator(10)
    else:
        match = _SLASH_FRACTION.fullmatch(short) or _LATEX_FRACTION.fullmatch(short)
        if match is None:
            return None
        top, bottom = match["a"].replace(",", ""), match["b"].replace(",", "")
        if max(len(top), len(bottom)) > _MAX_FRACTION_DIGITS or not int(bottom):
            return (None,)
        value = Fraction(int(top), int(bottom))
        if match["sign"] is not None and match["sign"] in _MINUS:
            value = -value
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    if rest == 1:
        places = value.denominator.bit_length()
        scaled = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
        return (_plain_text(scaled[:-places], scaled[-places:], 0, value < 0),)
    try:
        nearest = repr(float(value))
    except OverflowError:
        return (None,)
    return (last_number(nearest),)
