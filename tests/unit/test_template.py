"""Templates: what they render, and what is said of a broken one."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_evalgrader.data import handlebars
from pytest_evalgrader.data.template import Template, check_fields, to_text
from pytest_evalgrader.errors import SampleError, SuiteError

CASES = json.loads((Path(__file__).parent / "handlebars" / "cases.json").read_text("utf-8"))["cases"]


def render(source: str, context: dict[str, Any] | None = None, *, escape: bool = False) -> str:
    return Template(source, where="t", escape_html=escape).render(context or {})


def problems(source: str) -> list[str]:
    with pytest.raises(SuiteError) as caught:
        Template(source, where="s.json: tasks[0].prompt_template")
    return [str(problem) for problem in caught.value.problems]


# Where we differ from Handlebars.js: what we give instead (None: a SuiteError), and why. docs/templates.md says it.
SAME_CONTEXT = "the library's `../` goes up at each #with and #each, also into the context that is there already"
KNOWN_DIFFERENCES: dict[str, tuple[str | None, str]] = {
    "{{#each rows}}{{#with this}}{{v}}{{../p}}{{/with}}{{/each}}": ("12", SAME_CONTEXT),
    "{{#each l}}{{#each ../l}}{{#each ../../l}}{{this}}{{/each}}{{/each}}{{/each}}": ("12121212", SAME_CONTEXT),
    "{{#each rows}}{{#in}}{{@../index}}{{/in}}{{/each}}": ("", "a section has no frame for `@../`; #each has"),
    "{{#if f}}a{{else with o}}{{x}}{{/if}}": (None, "the library chains only if and unless, and drops the rest"),
    "{{#l as |x|}}{{x}}{{/l}}": (None, "the library gives names in #each and #with only"),
    " {{^f}} \n{{else}}x\n{{/f}} y": (" y", "Handlebars.js reads the lines of {{^x}} … {{else}} the wrong way round"),
    "  {{#if f}}{{else if f}}\n{{else}}\n{{b}} {{/if}} \nx": (
        "  B  \nx",
        "Handlebars.js looks at the first {{else}} to see whether {{/if}} stands on a line of its own",
    ),
    "{{lookup f 0}}{{lookup l 'length'}}{{lookup rows.[0] 'v'}}": ("false21", "Handlebars.js adds the numbers up"),
    "{{#each l}}{{b}}{{/each}}{{lookup l 0 hash=1}}": (None, "Handlebars.js ignores names that a helper does not know"),
    "{{#each l hash=1}}x{{/each}}": (None, "Handlebars.js ignores names that a helper does not know"),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["template"].encode("unicode_escape").decode()[:50])
def test_as_handlebars_js(case: dict[str, Any]) -> None:
    escape = case.get("escape", False)
    text: str | None = None if case.get("error") else case["text"]
    if case["template"] in KNOWN_DIFFERENCES:
        ours, _why = KNOWN_DIFFERENCES[case["template"]]
        assert ours != text
        text = ours
    if text is None:
        with pytest.raises(SuiteError):
            Template(case["template"], where="t", escape_html=escape)
    else:
        assert render(case["template"], case["data"], escape=escape) == text


def test_known_differences_stand_in_the_table() -> None:
    assert set(KNOWN_DIFFERENCES) <= {case["template"] for case in CASES}


# What the table cannot hold, since we differ from Handlebars.js on purpose.
@pytest.mark.parametrize(
    ("source", "context", "text"),
    [
        (
            "{{o}}|{{l}}|{{n}}",
            {"o": {"a": [1, None]}, "l": ["x", {"y": "é"}], "n": 1.0},
            '{"a": [1, null]}|["x", {"y": "é"}]|1.0',
        ),
        ("{{#each l}}{{this}};{{/each}}", {"l": [{"a": 1}, [2]]}, '{"a": 1};[2];'),
        ("{{messages.0}} {{messages.1.content}}", {"messages": ["m", {"content": "c"}]}, "m c"),
        ('{"a": {{q}}}', {"q": 1}, '{"a": 1}'),
        ("{{a.b}} {{a.b.c}} {{a.x}}", {"a.b": {"c": 1}, "a": {"b": 2, "x": 3}}, '{"c": 1} 1 3'),
        ("{{#with o}}{{../a.b}}{{@root.a.b}}{{/with}}", {"a.b": 1, "o": {"x": 1}}, "11"),
        ("{{#each l as |t th|}}{{t.v}}{{this.t}}{{./t}}{{th}}{{/each}}", {"l": [{"t": "x", "v": "y"}]}, "yxx0"),
        ("{{log}} {{with}} {{if}}", {"log": 1, "with": 2, "if": 3}, "1 2 3"),
        ("{{q}}", {"q": "\ud800"}, "\ud800"),
        ("{{q}}", {"q": 10**40}, "1" + "0" * 40),
        (
            "{{#l}}[{{this}}{{#if this}}y{{/if}}{{#this}}z{{/this}}]{{/l}}",
            {"l": [None, 1, [None]]},
            "[][1yz][[null]yz]",
        ),
        (
            "{{show}}{{get}}{{#items}}{{this}}{{/items}}{{#section}}s{{/section}}{{@run}}",
            {"show": 1, "get": 2, "items": [3], "section": 4},
            "123s",
        ),
        ("{{#each l}}[{{#if this}}y{{else}}{{this}}n{{/if}}]{{/each}}", {"l": [None, 0, 1]}, "[n][0n][y]"),
    ],
)
def test_own_rules(source: str, context: dict[str, Any], text: str) -> None:
    assert render(source, context) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [("x", "x"), (None, ""), (True, "true"), (0, "0"), (1.5, "1.5"), ([], "[]"), ({"ü": "é"}, '{"ü": "é"}')],
)
def test_to_text(value: Any, text: str) -> None:
    assert to_text(value) == text


def test_html_is_escaped_only_where_it_is_asked_for() -> None:
    hard = "He said \"x<y\" & 'ok' = `t`"
    assert render("{{q}}", {"q": hard}) == hard
    escaped = "He said &quot;x&lt;y&quot; &amp; &#x27;ok&#x27; &#x3D; &#x60;t&#x60;"
    assert render("{{q}}|{{{q}}}|{{&q}} <", {"q": hard}, escape=True) == f"{escaped}|{hard}|{hard} <"
    assert render("{{#if q}}{{q}}{{/if}}", {"q": hard}, escape=True) == escaped


@given(st.text(), st.booleans())
def test_row_text_is_never_rendered_again(text: str, escape: bool) -> None:
    assert render("<{{{q}}}>", {"q": text}, escape=escape) == f"<{text}>"
    assert render("{{#each l}}{{{this}}}{{/each}}", {"l": [text]}, escape=escape) == text


@given(st.text(alphabet="{}#/~!ab .\n\\|@[]()=\"'>&^els"))
def test_any_text_is_a_template_or_a_suite_error(source: str) -> None:
    try:
        template = Template(source, where="t")
    except SuiteError:
        return
    template.render({"a": ["b", {"a": 1}], "b": {"a": None}})


@given(st.text().filter(lambda text: "{{" not in text))
def test_text_without_tags_stays(text: str) -> None:
    assert render(text) == text


@pytest.mark.parametrize(
    "path",
    ["a.__class__", "a.__class__.__mro__", "__proto__", "constructor", "a.constructor", "l.append", "s.upper", "o.x"],
)
def test_only_data_is_read(path: str) -> None:
    context = {"a": {"b": 1}, "l": [1], "s": "text", "o": {"x": None}}
    assert render("{{" + path + "}}{{#if " + path + "}}y{{/if}}", context) == ""


@pytest.mark.parametrize(
    ("source", "line", "words"),
    [
        ("{{upper q}}", 1, ['unknown helper "upper"', '"lookup"']),
        ("a\nb {{#repeat 3}}x{{/repeat}}", 2, ['unknown block "repeat"']),
        ("{{#fi x}}y{{/fi}}", 1, ['unknown block "fi"', 'Did you mean "if"']),
        ("\n\n{{> missing}}", 3, ["partials are not supported", "{{> missing}}"]),
        ("{{#> layout}}x{{/layout}}", 1, ["partials"]),
        ("{{#*inline 'x'}}x{{/inline}}", 1, ["decorators"]),
        ("{{* deco}}", 1, ["decorators"]),
        ("a\n{{#if a}}\nb", 2, ["{{#if a}}", "never closed"]),
        ("{{#if a}}\n{{/each}}", 2, ["{{/each}}", "{{#if a}}", "expected {{/if}}"]),
        ("x\n{{/if}}", 2, ["closes nothing"]),
        ("{{else}}", 1, ["outside a block"]),
        ("{{#if a}}b{{else}}c\n{{else}}d{{/if}}", 2, ["second {{else}}"]),
        ("a\n{{b", 2, ["never closed"]),
        ("{{a b!}}", 1, ['"!"', "backslash"]),
        ("{{{a}}", 1, ["three braces"]),
        ("{{}}", 1, ["a name is missing"]),
        ('Reply as {{"a": 1}}', 1, ['unknown helper "a"', "\\{{"]),
        ("{{show q}}", 1, ['unknown helper "show"']),
        ("{{#section q 1}}x{{/section}}", 1, ['unknown block "section"']),
        ("{{#if a}}x{{else with b}}y{{/if}}", 1, ["only if and unless can follow else", "{{#with …}}"]),
        ("{{#l as |x|}}{{x}}{{/l}}", 1, ["#l has no block parameters"]),
        ("{{#if a x=1}}y{{/if}}", 1, ['#if has no "x"']),
        ("{{" + "a." * 60 + "b}}", 1, ["is no field"]),
        ("{{question text}}", 1, ['unknown helper "question"', "[like this]"]),
        ("{{{{raw}}}}x{{{{/raw}}}}", 1, ["raw blocks"]),
        ("{{#each}}x{{/each}}", 1, ["each needs a value"]),
        ("{{#if a b}}x{{/if}}", 1, ["takes one value, found 2"]),
        ("{{if a}}", 1, ["needs a block"]),
        ("{{lookup a}}", 1, ["lookup takes"]),
        ("{{#lookup a 1}}x{{/lookup}}", 1, ['unknown block "lookup"']),
        ("{{#if (upper a)}}x{{/if}}", 1, ['unknown helper "upper"']),
        ("{{#if a as |x|}}x{{/if}}", 1, ["no block parameters"]),
        ("{{!-- open", 1, ["comment"]),
        ("{{#if a}}" * 5000 + "{{/if}}" * 5000, 1, ["nested more than 50"]),
        ("{{#if a}}x" + "{{else if b}}y" * 5000 + "{{/if}}", 1, ["nested more than 50"]),
        ("{{#if " + "(lookup " * 5000 + "a}}", 1, ["more than 16 parentheses"]),
    ],
)
def test_what_is_wrong_is_said_with_the_line(source: str, line: int, words: list[str]) -> None:
    (problem,) = problems(source)
    assert problem.startswith(f"s.json: tasks[0].prompt_template, line {line}: ")
    for word in words:
        assert word in problem


def test_all_unknown_helpers_are_named_together() -> None:
    found = problems("{{upper q}}\n{{#if (lower q)}}{{#repeat 3}}x{{/repeat}}{{/if}}")
    assert [text.partition("line ")[2][:1] for text in found] == ["1", "2", "2"]


@pytest.mark.parametrize(
    ("source", "fields", "required"),
    [
        ("{{a}} {{b.c}} {{a}}", ["a", "b.c"], ["a", "b.c"]),
        ("{{#if a}}{{b}}{{else}}{{c}}{{/if}}", ["a", "b", "c"], ["b", "c"]),
        ("{{#if a}}{{a}}{{a.x}}{{/if}}", ["a", "a.x"], []),
        ("{{#if a.length}}{{#each a}}{{x}}{{/each}}{{/if}}", ["a.length", "a"], ["a"]),
        ("{{#unless a}}{{b}}{{else}}{{a}}{{/unless}}", ["a", "b"], ["b"]),
        (
            "{{#each a}}{{x}}{{this.y}}{{../b}}{{@root.c}}{{@index}}{{../../z}}{{/each}}",
            ["a", "b", "c"],
            ["a", "b", "c"],
        ),
        ("{{#each a}}{{x}}{{else}}none {{b}}{{/each}}", ["a", "b"], ["b"]),
        ("{{#each a as |x i|}}{{x.y}}{{i}}{{../b}}{{/each}}", ["a", "b"], ["a", "b"]),
        ("{{#with a}}{{x}}{{/with}}{{#s}}{{x}}{{../b}}{{/s}}{{^t}}{{b}}{{/t}}", ["a", "s", "b", "t"], ["a", "s", "b"]),
        ("{{lookup a b}}{{#if (lookup c 0)}}x{{/if}}{{#if d includeZero=e}}x{{/if}}", list("abcde"), ["a", "b"]),
        ("{{this}} {{.}} {{./a}} {{this.b}} {{[a b]}} {{../up}}", ["a", "b", "a b"], ["a", "b", "a b"]),
        ("{{#if a}}x{{else if b}}{{b}}{{else}}{{c}}{{/if}}", ["a", "b", "c"], ["c"]),
    ],
)
def test_fields(source: str, fields: list[str], required: list[str]) -> None:
    template = Template(source, where="t")
    assert list(template.fields) == fields
    assert list(dict.fromkeys(read.name for read in template.reads if read.required)) == required


ROWS: list[dict[str, Any]] = [{"question": "1+1?", "gold": "2", "q": {"text": "t"}}, {"question": "x", "hint": "h"}]


@pytest.mark.parametrize(
    "source",
    [
        "{{question}}{{hint}}",
        "{{q.text}}",
        "{{choices}}",
        "{{#if opt}}{{opt}}{{/if}}",
        "{{question.length}}",
        "{{this}}",
    ],
)
def test_fields_that_some_row_has(source: str) -> None:
    assert check_fields([Template(source, where="t")], ROWS, {"choices": []}) == []


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("Work out\n{{qestion}}", 't, line 2: no row has the field "qestion". Did you mean "question"? Fields: '),
        ("{{q.txet}}", 't, line 1: no row has the field "q.txet". Did you mean "q.text"? Fields: '),
        ("{{#each xyz}}{{y}}{{/each}}", 't, line 1: no row has the field "xyz". Fields: '),
    ],
)
def test_a_field_that_no_row_has(source: str, message: str) -> None:
    (problem,) = check_fields([Template(source, where="t")], ROWS, {"choices": []})
    assert str(problem) == message + '"choices", "gold", "hint", "q", "question".'


def test_many_fields_are_cut() -> None:
    row = {f"column_{i:03}": i for i in range(100)}
    (problem,) = check_fields([Template("{{nope}}", where="t")], [row], {})
    assert problem.message.endswith('"column_029" and 70 more.')


def test_no_rows_are_no_problem() -> None:
    assert check_fields([Template("{{a}}", where="t")], [], {}) == []


def test_rows_are_read_only_as_far_as_needed() -> None:
    def rows() -> Any:
        yield {"a": 1}
        yield {"b": 1}
        raise AssertionError("read too far")

    assert check_fields([Template("{{a}}{{b}}", where="t")], rows(), {}) == []


@pytest.mark.parametrize("source", ["{{q}} {{g.h}}", "{{q}} {{g.h}}{{#if q}}{{/if}}"])
@given(
    st.dictionaries(
        st.sampled_from(["q", "g", "g.h"]), st.text() | st.none() | st.dictionaries(st.just("h"), st.text())
    )
)
def test_the_fast_way_renders_the_same(source: str, row: dict[str, Any]) -> None:
    expected = render("{{#if true}}{{q}} {{g.h}}{{/if}}", row)
    assert render(source, row) == expected


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{#each a}}{{#each ../a}}{{#each ../../a}}{{/each}}{{/each}}{{/each}}", "10,000 steps"),
        ("{{#a}}{{#../a}}{{#../../a}}{{/../../a}}{{/../a}}{{/a}}", "10,000 steps"),
        ("{{#each a}}{{#each ../a}}{{this}}{{/each}}{{/each}}", "10,000 steps"),
        ("{{#each a}}{{#with ..}}{{x}}{{/with}}{{/each}}", "10,000 steps"),
        ("{{#each a}}{{@root.long}}{{/each}}", "20,000 characters"),
        ("{{#each a}}" + "text " * 10 + "{{/each}}", "20,000 characters"),
        ("{{#each a}}{{#if @first}}" + "{{!}}x" * 10 + "{{/if}}{{/each}}", "20,000 characters"),
    ],
)
def test_templates_that_multiply_are_stopped(source: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = 10_000 if "steps" in words else 20_000
    monkeypatch.setattr(handlebars, "MAX_STEPS" if "steps" in words else "MAX_OUTPUT", limit)
    context = {"a": list(range(1000)), "long": "x" * 1000, **{f"column_{i}": i for i in range(5000)}}
    with pytest.raises(SampleError, match=words) as caught:
        Template(source, where="t", stage="grade").render(context)
    assert caught.value.stage == "grade"


@pytest.mark.parametrize(
    "source",
    [
        "\\" * 200_000 + "{{a}}",
        "{{" + "a" * 200_000 + "!}}",
        "{{#if " + "[" * 200_000,
        "{{" + "." * 49 + "!}}",
        "{{!--" + "-" * 200_000,
        "{{a}}" + "\n " * 100_000 + "{{a}}",
    ],
)
def test_reading_a_hostile_template_is_quick(source: str) -> None:
    start = time.perf_counter()
    with contextlib.suppress(SuiteError):
        Template(source, where="t")
    assert time.perf_counter() - start < 60


def test_a_value_that_is_too_deep_is_an_error_of_the_sample() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for source in ("{{a}}", "{{#if a}}{{a}}{{/if}}"):
        with pytest.raises(SampleError, match="too deep"):
            render(source, {"a": deep})
