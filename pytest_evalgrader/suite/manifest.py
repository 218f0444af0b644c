"""What a suite's JSON says, as strict models.

Every class is one kind of object in the manifest, its fields are the keys. A model that exists is valid; what is wrong
with a document is said by `parse_suite`, all of it at once. Names follow the JSON, with its units.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypeGuard
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Discriminator, Field, PrivateAttr, Tag, ValidationError

from pytest_evalgrader.errors import Problem, SuiteError
from pytest_evalgrader.suite.fields import Either, Notes, Spec, Within, Words, found, read, say
from pytest_evalgrader.suite.patterns import compile_pattern
from pytest_evalgrader.suite.wording import describe, did_you_mean, listing, place, quote

SCHEMA_VERSION = "2026-05-27"
"""The version of the manifest format that is supported."""

REFUSED_TASK_TYPES = ("transcription", "embedding")
"""Task types of the same format whose answers are not text."""

ACTING_MARKS = frozenset(
    {"and", "asyncio", "filterwarnings", "flaky", "not", "or", "order", "parametrize", "run", "serial", "skip"}
    | {"skipif", "timeout", "tryfirst", "trylast", "usefixtures", "xdist_group", "xfail"}
)
"""Names that a tag may not have: as marks they act. A suite is not trusted, and one that marks itself `skip` would
make its gates vanish."""

REFUSED_DATASET_KWARGS = frozenset(
    ["cache_dir", "download_config", "storage_options", "streaming", "token", "use_auth_token"]
)
"""Keyword arguments that reach credentials or write outside the project."""

Name: TypeAlias = Annotated[str, Words()]
Model: TypeAlias = Annotated[
    str,
    Words(
        r"(?!python:(?![^\s:]+:[^\s:]+$))(?=[\s\S]*\S)[\s\S]*[^:]",
        'the name of a model, such as "openai:gpt-4.1-mini", "recorded:COLUMN" or "python:module:function"',
    ),
]
FilePath: TypeAlias = Annotated[str, Words(expected="a path relative to the suite file")]
Share: TypeAlias = Annotated[float, Within(0, 1)]
Template: TypeAlias = str
FreeObject: TypeAlias = dict[str, Any]

TIMEOUT = "Seconds until the sandbox stops it, 1 to 600."
MEMORY = "Memory limit in MiB, 16 to 65,536."


# --- source code ----------------------------------------------------------------------------------------------------


def _one_source(fields: Mapping[str, Any], notes: Notes) -> None:
    given = [key for key in ("source", "file_id") if key in fields]
    if len(given) == 2:
        notes.add('"source" and "file_id" are both given; keep one of them.', "source")
    elif not given:
        notes.add('the code is missing; add "source" (Python text) or "file_id" (a file).')


class PythonGraderSpec(Spec):
    """A grader in Python, run in the sandbox."""

    kind = "a Python grader"
    type: Literal["python"] = Field(description="The kind of grader.")
    contract: Literal["sample", "batch", "model_backed"] = Field(
        default="sample", description="Which function the code holds: grade, grade_batch, or either with model calls."
    )
    execution: Literal["per_sample", "aggregate"] | None = Field(
        default=None, description="When it runs; the default follows from the contract."
    )
    model_access: Literal["none", "mka1"] | None = Field(
        default=None, description="Whether ctx may call models; the default is mka1 for model_backed, else none."
    )
    metric_id: Name = Field(default="score", description="Where a single number is stored.")
    source: Name | None = Field(default=None, description="The code itself.")
    file_id: FilePath | None = Field(default=None, description="A key of files, or a path relative to the suite.")
    timeout_seconds: Annotated[float, Within(1, 600, "seconds")] = Field(default=120, description=TIMEOUT)
    max_model_calls: Annotated[int, Within(0, 500)] = Field(
        default=64, description="Model calls in one execution, 0 to 500."
    )
    memory_mb: Annotated[int, Within(16, 65536, "MiB")] = Field(default=512, description=MEMORY)

    @classmethod
    def prepare(cls, fields: dict[str, Any], notes: Notes) -> None:
        _one_source(fields, notes)

    @property
    def own_key(self) -> str:
        """The score id of a single number, and of this grader's invalid zero."""
        return self.metric_id

    @property
    def access(self) -> Literal["none", "mka1"]:
        """Model access with its default filled in."""
        return self.model_access or ("mka1" if self.contract == "model_backed" else "none")


class TurnSpec(Spec):
    """One turn of a conversation."""

    kind = "a turn"
    role: Literal["system", "document", "user", "assistant"] = Field(description="Who speaks.")
    content: str = Field(description="What is said.")


class JudgeExampleSpec(Spec):
    """A worked example for a judge."""

    kind = "an example for the judge"
    input: list[TurnSpec] = Field(description="The turns before the output.", min_length=1)
    output: str = Field(description="The output that is judged.")
    passes: bool = Field(description="The right verdict: true for PASS, false for FAIL.")
    reasoning: str = Field(default="", description="Why.")


class BinaryJudgeSpec(Spec):
    """A model that judges PASS, FAIL or NA by a criterion."""

    kind = "a binary judge"
    type: Literal["binary_judge"] = Field(description="The kind of grader.")
    key: Name = Field(description="The judge's name.")
    criteria: Name = Field(description="What must hold for PASS.")
    judge_model: Model | None = Field(default=None, description="The judging model; the run's by default.")
    feedback_key: Name | None = Field(default=None, description="Where the score is stored; the key by default.")
    examples: list[JudgeExampleSpec] = Field(default_factory=list, description="Worked examples with verdicts.")
    system_template: Template | None = Field(default=None, description="Handlebars template of the system message.")
    user_template: Template | None = Field(default=None, description="Handlebars template of the user message.")
    template_variables: FreeObject = Field(default_factory=dict, description="Values for the templates.")

    @property
    def own_key(self) -> str:
        """The score id."""
        return self.feedback_key or self.key


class PrebuiltJudgeSpec(Spec):
    """A built-in judge for retrieval-augmented answers."""

    kind = "a prebuilt judge"
    type: Literal["prebuilt_judge"] = Field(description="The kind of grader.")
    key: Name = Field(description="The judge's name, and where the score is stored.")
    criterion: Literal["FAITHFULNESS", "CONTEXT_RELEVANCY", "ANSWER_RELEVANCY"] = Field(description="What is judged.")
    judge_model: Model | None = Field(default=None, description="The judging model; the run's by default.")

    @property
    def own_key(self) -> str:
        """The score id."""
        return self.key


class EndpointSpec(Spec):
    """A reward server that scores turns and metadata."""

    kind = "an external endpoint"
    type: Literal["external_endpoint"] = Field(description="The kind of grader.")
    key: Name = Field(description="Where the reward is stored.")
    url: Name = Field(description="Base address (http or https), or the name of an endpoint in pyproject.toml.")
    timeout_seconds: Annotated[float, Within(0.1, 600, "seconds")] = Field(
        default=60, description="Seconds until a request is given up, 0.1 to 600."
    )
    max_retries: Annotated[int, Within(0, 100)] = Field(
        default=3, description="Further attempts after a failure, 0 to 100."
    )

    @classmethod
    def prepare(cls, fields: dict[str, Any], notes: Notes) -> None:
        url = fields.get("url")
        if isinstance(url, str) and url.strip() and (problem := _url_problem(url)):
            notes.add(problem, "url", value=url)

    @property
    def own_key(self) -> str:
        """The score id."""
        return self.key

    @property
    def endpoint_name(self) -> str | None:
        """The name of a configured endpoint; None where `url` is an address."""
        return None if "://" in self.url else self.url


def _url_problem(url: str) -> str | None:
    if re.fullmatch(r"[A-Za-z0-9_-]+", url):
        return None
    if "://" not in url:
        return (
            f"found {describe(url)}, which has no scheme. Write {quote('http://' + url.lstrip('/'))}, or the name of an"
            " endpoint in pyproject.toml ([tool.evalgrader.endpoints.NAME])."
        )
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return f"not an address: {error}."
    if parts.scheme.lower() not in ("http", "https"):
        return f"found the scheme {quote(parts.scheme)}, expected http or https."
    if not host:
        return f"found {describe(url)}, which names no host."
    if "@" in parts.netloc:
        return "the address holds credentials; keys belong in the environment, named by headers_env in pyproject.toml."
    if parts.query or parts.fragment:
        return "found an address with a query or fragment, expected the base address: /score is added to it."
    return None


class CustomSpec(Spec):
    """A trusted Python function of the project."""

    kind = "a custom grader"
    type: Literal["custom"] = Field(description="The kind of grader.")
    key: Name = Field(description="The grader's name, which a conftest's hook may answer to.")
    function: (
        Annotated[
            str,
            Words(r"[A-Za-z0-9_.]+:[A-Za-z0-9_.]+", 'a text like "module:function"'),
        ]
        | None
    ) = Field(default=None, description='"module:function", of a module in the ini option evals_trusted_modules.')
    metric_id: Name | None = Field(default=None, description="Where a single number is stored; the key by default.")

    @property
    def own_key(self) -> str:
        """The score id of a single number, and of this grader's invalid zero."""
        return self.metric_id or self.key


class RefSpec(Spec):
    """A grader that the suite names in `graders`."""

    kind = 'a reference {"ref": name}'
    ref: Name = Field(description="A key of the suite's graders.")


GRADER_TYPES = ("python", "binary_judge", "prebuilt_judge", "external_endpoint", "custom")
EXTRACTION_TYPES = ("none", "take_first", "regex", "regex_last", "label_set", "number")


class _ByType:
    """Picks the model by `type`, so that only the errors of the chosen one are shown."""

    def __init__(self, types: Sequence[str], what: str, *, refs: bool = False) -> None:
        self.types, self.what, self.refs = types, what, refs

    def before(self, value: Any) -> Any:
        """Refuse what no model can be picked for, in words."""
        if isinstance(value, Spec):
            return value
        if not isinstance(value, dict):
            raise say(found(value, f"an object ({self.what})"))
        if "type" not in value:
            if "ref" in value:
                if self.refs:
                    return value
                raise say("a grader of the suite cannot be a reference itself; write the grader here.")
            raise say(f'the key "type" is missing; it is one of {listing(self.types)}.')
        kind = value["type"]
        if not isinstance(kind, str) or kind not in self.types:
            near = did_you_mean(kind, self.types) if isinstance(kind, str) else ""
            near = f" {near}" if "Did you" in near else ""
            raise say(f"type: found {describe(kind)}, expected {listing(self.types)}.{near}")
        return value

    def tag(self, value: Any) -> str:
        """Name the model's tag; angle brackets keep it apart from a key in an error's place."""
        kind = read(value, "type")
        if kind in ("regex", "regex_last"):
            kind = "regex"
        return f"<{kind}>" if kind is not None else "<ref>"


_NAMED = _ByType(GRADER_TYPES, "a grader")
_GRADER = _ByType(GRADER_TYPES, "a grader", refs=True)
_EXTRACTION = _ByType(EXTRACTION_TYPES, "an extraction")

GraderSpec: TypeAlias = PythonGraderSpec | BinaryJudgeSpec | PrebuiltJudgeSpec | EndpointSpec | CustomSpec
"""A grader whose references are resolved."""

NamedGrader: TypeAlias = Annotated[
    Annotated[PythonGraderSpec, Tag("<python>")]
    | Annotated[BinaryJudgeSpec, Tag("<binary_judge>")]
    | Annotated[PrebuiltJudgeSpec, Tag("<prebuilt_judge>")]
    | Annotated[EndpointSpec, Tag("<external_endpoint>")]
    | Annotated[CustomSpec, Tag("<custom>")],
    Discriminator(_NAMED.tag),
    BeforeValidator(_NAMED.before),
]
AnyGrader: TypeAlias = Annotated[
    Annotated[PythonGraderSpec, Tag("<python>")]
    | Annotated[BinaryJudgeSpec, Tag("<binary_judge>")]
    | Annotated[PrebuiltJudgeSpec, Tag("<prebuilt_judge>")]
    | Annotated[EndpointSpec, Tag("<external_endpoint>")]
    | Annotated[CustomSpec, Tag("<custom>")]
    | Annotated[RefSpec, Tag("<ref>")],
    Discriminator(_GRADER.tag),
    BeforeValidator(_GRADER.before),
]


# --- data -----------------------------------------------------------------------------------------------------------


class DatasetSpec(Spec):
    """Where rows come from: a file, rows in the suite itself, or Hugging Face."""

    kind = "a dataset"
    hub_keys: ClassVar[tuple[str, ...]] = (
        "path", "name", "split", "revision", "data_files", "dataset_kwargs", "max_rows",
    )  # fmt: skip

    file_id: FilePath | None = Field(default=None, description="A key of files, or a path relative to the suite.")
    format: Literal["jsonl", "csv"] | None = Field(
        default=None, description="Format of the file; by its ending otherwise."
    )
    source: Literal["huggingface"] | None = Field(default=None, description="Where else the rows come from.")
    path: Name | None = Field(
        default=None, description="Name of the Hugging Face dataset, or of a builder such as json."
    )
    name: Name | None = Field(default=None, description="Configuration of the Hugging Face dataset.")
    split: Name | None = Field(default=None, description="Split of the Hugging Face dataset.")
    revision: Name | None = Field(default=None, description="Revision of the Hugging Face dataset.")
    data_files: (
        Annotated[Any, Either(("string", "array", "object"), "a path, a list of paths, or an object of paths by split")]
        | None
    ) = Field(default=None, description="Files inside the project, relative to the suite.")
    dataset_kwargs: FreeObject = Field(default_factory=dict, description="Further arguments of the dataset's builder.")
    max_rows: Annotated[int, Within(1, 1_000_000, "rows")] | None = Field(
        default=None, description="Only the first rows."
    )
    rows: list[dict[str, Any]] | None = Field(default=None, description="The rows themselves.", min_length=1)
    id_column: Name | None = Field(
        default=None, description="Column that names the samples; id where every row has one."
    )

    @classmethod
    def prepare(cls, fields: dict[str, Any], notes: Notes) -> None:
        kinds = [key for key in ("file_id", "rows", "source") if key in fields]
        if len(kinds) > 1:
            notes.add(f"{listing(kinds, last='and')} are given together; a dataset has one of them.")
        hub = [
            key
            for key in ("path", "name", "split", "revision", "data_files", "dataset_kwargs", "max_rows")
            if key in fields
        ]
        if not kinds:
            if hub:
                notes.add(f'{listing(hub[:1])} needs "source": "huggingface".', "source")
            else:
                notes.add('no rows; add "file_id" (a file), "rows" (a list), or "source": "huggingface" with "path".')
        elif kinds == ["source"]:
            if "path" not in fields and fields["source"] == "huggingface":
                notes.add("required, but missing. Add it: the name of the Hugging Face dataset.", "path")
        else:
            for key in hub:
                more = " To run only some rows, use --evals-limit." if key == "max_rows" else ""
                notes.add(f'only for "source": "huggingface", but this dataset has {quote(kinds[0])}.{more}', key)
        if "format" in fields and "file_id" not in fields:
            notes.add('only for a dataset with "file_id".', "format")
        _check_data_files(fields.get("data_files"), notes)
        kwargs = fields.get("dataset_kwargs")
        if isinstance(kwargs, dict):
            if kwargs.get("trust_remote_code") is False:
                fields["dataset_kwargs"] = kwargs = {k: v for k, v in kwargs.items() if k != "trust_remote_code"}
            for key in kwargs:
                if key == "trust_remote_code":
                    notes.add("a dataset's own code is never run; remove the key.", "dataset_kwargs", key)
                elif key in REFUSED_DATASET_KWARGS:
                    notes.add("not allowed in a suite; set it outside, where it can be trusted.", "dataset_kwargs", key)
                elif key in cls.model_fields:
                    notes.add(f"write it as {quote(key)} of the dataset itself.", "dataset_kwargs", key)


def _check_data_files(value: Any, notes: Notes) -> None:
    def check(path: Any, *loc: str | int) -> None:
        if not isinstance(path, str) or not path.strip():
            notes.add(found(path, "a path relative to the suite file"), "data_files", *loc)

    if isinstance(value, str):
        check(value)
    elif isinstance(value, list):
        for index, path in enumerate(value):
            check(path, index)
    elif isinstance(value, dict):
        for split, paths in value.items():
            if isinstance(paths, list):
                for index, path in enumerate(paths):
                    check(path, split, index)
            else:
                check(paths, split)


class PreprocessSpec(Spec):
    """Python that changes rows before they are asked, run in the sandbox."""

    kind = "a preprocessor"
    type: Literal["python"] = Field(description="The kind of preprocessor.")
    contract: Literal["row", "batch"] = Field(
        default="row", description="Which function it holds: transform or transform_batch."
    )
    source: Name | None = Field(default=None, description="The code itself.")
    file_id: FilePath | None = Field(default=None, description="A key of files, or a path relative to the suite.")
    timeout_seconds: Annotated[float, Within(1, 600, "seconds")] = Field(default=120, description=TIMEOUT)
    memory_mb: Annotated[int, Within(16, 65536, "MiB")] = Field(default=512, description=MEMORY)

    @classmethod
    def prepare(cls, fields: dict[str, Any], notes: Notes) -> None:
        _one_source(fields, notes)


class FewShotSpec(Spec):
    """Examples that go before the prompt."""

    kind = "few-shot settings"
    count: Annotated[int, Within(0, 100)] = Field(description="Number of examples, 0 to 100.")
    dataset: DatasetSpec | None = Field(
        default=None, description="Where examples come from; the task's dataset by default."
    )
    prompt_template: Template | None = Field(default=None, description="Prompt of an example; the task's by default.")
    target_template: Template | None = Field(default=None, description="Target of an example; the task's by default.")
    example_template: Template = Field(
        default="{{prompt}}\n{{target}}", description="How prompt and target make an example."
    )
    separator: str = Field(default="\n\n", description="Between the examples, and before the prompt.")
    strategy: Literal["first", "random"] = Field(default="first", description="Which rows are taken.")
    seed: Annotated[int, Within()] = Field(default=0, description="For the strategy random.")


# --- extraction -----------------------------------------------------------------------------------------------------


class NoneExtraction(Spec):
    """The output as it is."""

    kind = "an extraction"
    type: Literal["none"] = Field(description="The kind of extraction.")


class TakeFirstExtraction(Spec):
    """The first lines that say something."""

    kind = "an extraction"
    type: Literal["take_first"] = Field(description="The kind of extraction.")
    lines: Annotated[int, Within(1, 1_000_000)] = Field(default=1, description="How many lines.")


class RegexExtraction(Spec):
    """A match of a regular expression: the first, or the last."""

    kind = "an extraction"
    type: Literal["regex", "regex_last"] = Field(description="The first match, or the last.")
    pattern: Annotated[str, Words(expected="a regular expression")] = Field(description="A regular expression.")
    group: Annotated[Any, Either(("number", "string"), "the number or the name of a group")] | None = Field(
        default=None, description="The first group by default, or the whole match where there is none."
    )
    flags: Annotated[str, Words(r"(?!.*(.).*\1)[imsx]*", 'letters of "imsx", each once at most')] = Field(
        default="", description="Letters of imsx: ignore case, multi-line, dot matches all, verbose."
    )

    @classmethod
    def prepare(cls, fields: dict[str, Any], notes: Notes) -> None:
        group = fields.get("group")
        if isinstance(group, float) and group.is_integer():
            group = fields["group"] = int(group)
        pattern, flags = fields.get("pattern"), fields.get("flags", "")
        if isinstance(pattern, str) and pattern.strip():
            _check_pattern(pattern, flags if isinstance(flags, str) else "", group, notes)


def _check_pattern(pattern: str, flags: str, group: Any, notes: Notes) -> None:
    known = "".join(letter for letter in "imsx" if letter in flags)  # wrong ones are a problem of their own
    try:
        compiled = compile_pattern(pattern, known)
    except ValueError as error:
        notes.add(f"{error}. In JSON a backslash is written twice.", "pattern")
        return
    if isinstance(group, bool) or group is None:
        return
    if isinstance(group, float) or (isinstance(group, int) and not 0 <= group <= compiled.groups):
        have = f"has groups 1 to {compiled.groups}" if compiled.groups else "has no groups"
        notes.add(f"found {describe(group)}, but the pattern {have}; 0 is the whole match.", "group")
    elif isinstance(group, str) and group not in compiled.groupindex:
        have = did_you_mean(group, compiled.groupindex, what="Named groups") or "It names none: write (?P<name>…)."
        notes.add(f"the pattern has no group named {quote(group)}. {have}", "group")


class LabelSetExtraction(Spec):
    """The last of the labels that the output mentions."""

    kind = "an extraction"
    type: Literal["label_set"] = Field(description="The kind of extraction.")
    labels: list[Name] = Field(description="The labels.", min_length=1)
    case_sensitive: bool = Field(default=False, description="Whether case counts.")

    @classmethod
    def prepare(cls, fields: dict[str, Any], notes: Notes) -> None:
        from unicodedata import normalize

        labels = fields.get("labels")
        if not isinstance(labels, list):
            return
        seen: dict[str, int] = {}
        for index, label in enumerate(labels):
            if isinstance(label, str) and label.strip():
                folded = normalize("NFC", label.strip())
                if fields.get("case_sensitive") is not True:
                    folded = normalize("NFC", folded.casefold())
                first = seen.setdefault(folded, index)
                if first != index:
                    notes.add(f"{quote(label)} is the same label as labels[{first}].", "labels", index)


class NumberExtraction(Spec):
    """The last number in the output, as plain decimal text."""

    kind = "an extraction"
    type: Literal["number"] = Field(description="The kind of extraction.")


ExtractionSpec: TypeAlias = (
    NoneExtraction | TakeFirstExtraction | RegexExtraction | LabelSetExtraction | NumberExtraction
)

AnyExtraction: TypeAlias = Annotated[
    Annotated[NoneExtraction, Tag("<none>")]
    | Annotated[TakeFirstExtraction, Tag("<take_first>")]
    | Annotated[RegexExtraction, Tag("<regex>")]
    | Annotated[LabelSetExtraction, Tag("<label_set>")]
    | Annotated[NumberExtraction, Tag("<number>")],
    Discriminator(_EXTRACTION.tag),
    BeforeValidator(_EXTRACTION.before),
]


# --- metrics --------------------------------------------------------------------------------------------------------


class ThresholdSpec(Spec):
    """What a metric must reach: at least `min`, at most `max`, or both."""

    kind = 'a threshold with "min", "max" or both'
    min: Annotated[float, Within()] | None = Field(default=None, description="The least value that passes.")
    max: Annotated[float, Within()] | None = Field(default=None, description="The greatest value that passes.")

    @classmethod
    def prepare(cls, fields: dict[str, Any], notes: Notes) -> None:
        low, high = fields.get("min"), fields.get("max")
        if not fields:
            notes.add('found an empty object, expected "min", "max" or both.')
        elif _is_number(low) and _is_number(high) and low > high:
            notes.add(f"min {low:g} is above max {high:g}; no value can pass.")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _threshold(value: Any) -> Any:
    if isinstance(value, (dict, ThresholdSpec)):
        return value
    raise say(found(value, 'a number, or an object with "min", "max" or both'))


class MetricSpec(Spec):
    """A number over the samples of a group, and what it must reach."""

    kind = "a metric"
    id: Name = Field(description="The score's id, or the key of a batch metric.")
    aggregation: Literal["mean", "none", "median", "min", "max", "sum"] = Field(
        default="mean", description="How scores become one number; none takes only what grade_batch returned."
    )
    higher_is_better: bool = Field(default=True, description="Whether a higher value is better.")
    description: str = Field(default="", description="For people.")
    threshold: Annotated[ThresholdSpec, BeforeValidator(_threshold)] | None = Field(
        default=None,
        description="A number (at least; at most where higher is not better), or an object with min, max or both.",
    )
    range: Annotated[list[Annotated[float, Within()]], Field(min_length=2, max_length=2)] | None = Field(
        default=None, description="Low and high; a score outside is invalid."
    )
    allow_missing: Share = Field(default=0.0, description="Share of samples that may lack the score, 0 to 1.")
    sample_threshold: Annotated[float, Within()] | None = Field(
        default=None, description="What each sample must reach, else its item fails."
    )

    @classmethod
    def prepare(cls, fields: dict[str, Any], notes: Notes) -> None:
        bound = fields.get("threshold")
        if _is_number(bound):
            fields["threshold"] = {"max" if fields.get("higher_is_better") is False else "min": bound}
        span = fields.get("range")
        if isinstance(span, list):
            if len(span) != 2:
                notes.add(f"found {len(span)} entries, expected two: [low, high].", "range")
                del fields["range"]
            elif all(map(_is_number, span)) and not span[0] < span[1]:
                notes.add(f"low {span[0]:g} is not below high {span[1]:g}.", "range")


class CalibrationSpec(Spec):
    """Human verdicts that a judge is measured against."""

    kind = "calibration settings"
    column: Name = Field(description="Column of the rows that holds the human verdict.")


# --- generation, run, task, suite -----------------------------------------------------------------------------------


def _stops(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class GenerationSpec(Spec):
    """How a candidate model is asked."""

    kind = "generation settings"
    other_names: ClassVar[Mapping[str, str]] = {"max_gen_toks": "max_output_tokens", "until": "stop"}

    instructions: str | None = Field(default=None, description="The system message.")
    temperature: Annotated[float, Within(0, 100)] | None = Field(default=None, description="Sampling temperature.")
    top_p: Share | None = Field(default=None, description="Nucleus sampling, 0 to 1.")
    max_output_tokens: Annotated[int, Within(1)] | None = Field(default=None, description="Longest answer, in tokens.")
    stop: list[Annotated[str, Words(r"[\s\S]+", "a text that is not empty")]] | None = Field(
        default=None, description="A text or list of texts that end the answer; it is cut before them."
    )
    reasoning: FreeObject | None = Field(default=None, description="Reasoning settings of the Responses API.")
    text: FreeObject | None = Field(default=None, description="Text settings of the Responses API.")
    tools: list[dict[str, Any]] | None = Field(default=None, description="Tools of the Responses API.")
    tool_choice: Annotated[Any, Either(("string", "object"), "a text or an object")] | None = Field(
        default=None, description="Which tool is used."
    )
    parallel_tool_calls: bool | None = Field(default=None, description="Whether tools may be called in parallel.")
    max_tool_calls: Annotated[int, Within(0)] | None = Field(default=None, description="Most tool calls in an answer.")
    truncation: Name | None = Field(default=None, description="Truncation of the Responses API.")
    service_tier: Name | None = Field(default=None, description="Service tier of the Responses API.")
    presence_penalty: Annotated[float, Within(-2, 2)] | None = Field(default=None, description="-2 to 2.")
    frequency_penalty: Annotated[float, Within(-2, 2)] | None = Field(default=None, description="-2 to 2.")
    top_k: Annotated[int, Within(-1)] | None = Field(
        default=None, description="Most likely tokens that are considered."
    )
    min_p: Share | None = Field(default=None, description="Least share of the likeliest token, 0 to 1.")
    repetition_penalty: Annotated[float, Within(0, above=True)] | None = Field(default=None, description="1 for none.")
    do_sample: bool | None = Field(default=None, description="False for greedy decoding.")
    extra_body: FreeObject | None = Field(default=None, description="Further fields of the request's body.")
    chat_template_kwargs: FreeObject | None = Field(
        default=None, description="Arguments of a local server's chat template."
    )
    prefill_think: bool | None = Field(
        default=None, description="Whether the chat template opens the reasoning block itself."
    )
    use_cache: bool | None = Field(default=None, description="False asks anew in the mode fill.")
    timeout_seconds: Annotated[float, Within(0.1, 86400, "seconds")] | None = Field(
        default=None, description="Seconds until a request is given up."
    )
    max_retries: Annotated[int, Within(0, 100)] | None = Field(default=None, description="Attempts after a failed one.")
    max_empty_retries: Annotated[int, Within(0, 100)] | None = Field(
        default=None, description="Attempts after an empty one."
    )

    @classmethod
    def prepare(cls, fields: dict[str, Any], notes: Notes) -> None:
        if isinstance(fields.get("stop"), str):
            fields["stop"] = [fields["stop"]]

    def settings(self) -> dict[str, Any]:
        """Give the settings that are set, by their own names."""
        return {name: getattr(self, name) for name in type(self).model_fields if getattr(self, name) is not None}

    def merged(self, over: GenerationSpec | None) -> GenerationSpec:
        """Lay other settings over these, key by key.

        Args:
            over: The settings that win where both are set.

        Returns:
            The merged settings.
        """
        if over is None:
            return self
        return GenerationSpec(**{**self.settings(), **over.settings()})


Models: TypeAlias = Annotated[list[Model], Field(min_length=1, max_length=20)]


def _check_models(models: Any, notes: Notes) -> None:
    if not isinstance(models, list):
        return
    for index, model in enumerate(models):
        if not isinstance(model, str):
            continue
        if model in models[:index]:
            notes.add(f"the model {quote(model)} is listed twice.", "models", index)


class RunSpec(Spec):
    """Defaults for a run of the suite; the command line wins."""

    kind = "run settings"
    models: Models | None = Field(default=None, description="The candidate models, 1 to 20.")
    judge_model: Model | None = Field(default=None, description="The model that judges.")
    embedding_model: Model | None = Field(default=None, description="The model that embeds.")
    generation: GenerationSpec = Field(default_factory=GenerationSpec, description="How candidates are asked.")
    concurrency: Annotated[int, Within(1, 10_000)] | None = Field(
        default=None, description="Model calls in flight at once."
    )
    max_samples_per_task: Annotated[int, Within(1)] | None = Field(
        default=None, description="Rows of each task, from the first."
    )

    @classmethod
    def prepare(cls, fields: dict[str, Any], notes: Notes) -> None:
        _check_models(fields.get("models"), notes)


Tagged: TypeAlias = Annotated[
    str, Words(r"[A-Za-z_][A-Za-z0-9_.\-]*", 'a letter, then letters, digits, "_", "." and "-"')
]


class TaskSpec(Spec):
    """One dataset, one prompt, its graders and metrics."""

    kind = "a task"
    id: Annotated[str, Words(r"[A-Za-z0-9_.\-]+", 'letters, digits, "_", "." and "-"')] = Field(
        description='The task\'s name in node ids; letters, digits, "_", "." and "-".'
    )
    name: str | None = Field(default=None, description="For people.")
    type: Literal[
        "classification", "multiple_choice", "qa", "summarization", "semantic_similarity", "llm_judge", "numeric",
        "math", "custom",
    ] = Field(default="custom", description="A label only.")  # fmt: skip
    dataset: DatasetSpec = Field(description="Where the rows come from.")
    prompt_template: Template | None = Field(default=None, description="Handlebars template; else the row's messages.")
    target_template: Template | None = Field(default=None, description="Handlebars template of the right answer.")
    choices: list[Annotated[Any, Either(("string", "number"), "a text or a number")]] | None = Field(
        default=None, description="The choices of each row."
    )
    output_extraction: AnyExtraction = Field(
        default_factory=lambda: NoneExtraction(type="none"), description="How the answer is found in the output."
    )
    metrics: list[MetricSpec] = Field(default_factory=list, description="What is aggregated, and its thresholds.")
    generation: GenerationSpec = Field(default_factory=GenerationSpec, description="Wins over the run's, key by key.")
    grader: AnyGrader | None = Field(default=None, description="What scores a sample or a group.")
    graders: Annotated[list[AnyGrader], Field(min_length=1)] | None = Field(
        default=None, description="Several graders, whose scores are merged."
    )
    preprocess: PreprocessSpec | None = Field(default=None, description="Changes rows before they are asked.")
    fewshot: FewShotSpec | None = Field(default=None, description="Examples before the prompt.")
    num_fewshot: Annotated[int, Within(0, 100)] | None = Field(
        default=None, description="Another name of fewshot.count."
    )
    metadata: FreeObject = Field(default_factory=dict, description="Free.")
    models: Models | None = Field(default=None, description="Overrides the run's models.")
    epochs: Annotated[int, Within(1, 100)] = Field(default=1, description="How many times each row is asked, 1 to 100.")
    allow_errors: Share = Field(default=0.0, description="Share of samples that may be errors, 0 to 1.")
    tags: list[Tagged] = Field(default_factory=list, description="Become pytest marks.")
    calibration: CalibrationSpec | None = Field(default=None, description="Human verdicts, for judges.")

    _grader_list: list[GraderSpec] = PrivateAttr(default_factory=list)
    _grader_places: list[str] = PrivateAttr(default_factory=list)

    @property
    def grader_list(self) -> list[GraderSpec]:
        """The task's graders in order, references resolved."""
        return self._grader_list

    @property
    def grader_places(self) -> list[str]:
        """Where each grader of `grader_list` is written, such as `tasks[0].grader` or `graders.exact`."""
        return self._grader_places

    @classmethod
    def prepare(cls, fields: dict[str, Any], notes: Notes) -> None:
        if "grader" in fields and "graders" in fields:
            notes.add('"grader" and "graders" are both given; keep one of them.', "grader")
        elif "grader" not in fields and "graders" not in fields:
            notes.add(
                'required, but missing. Add "grader" (one) or "graders" (a list): without one nothing is scored.',
                "grader",
            )
        if fields.get("type") in REFUSED_TASK_TYPES:
            notes.add(
                f"{quote(fields.pop('type'))} tasks are not supported: only answers in text can be graded.", "type"
            )
        cls._merge_fewshot(fields, notes)
        _check_models(fields.get("models"), notes)
        _unique(fields.get("metrics"), "id", "metrics", "metric", notes)
        tags = fields.get("tags")
        for index, tag in enumerate(tags if isinstance(tags, list) else []):
            if tag in ACTING_MARKS:
                notes.add(
                    f"{quote(tag)} is a mark that acts on the tests that have it; choose another tag.", "tags", index
                )

    @staticmethod
    def _merge_fewshot(fields: dict[str, Any], notes: Notes) -> None:
        count, fewshot = fields.get("num_fewshot"), fields.get("fewshot")
        if not isinstance(count, (int, float)) or isinstance(count, bool) or not 0 <= count <= 100:
            return
        if fewshot is None:
            fields["fewshot"] = {"count": count}
        elif isinstance(fewshot, dict):
            if "count" not in fewshot:
                fields["fewshot"] = {**fewshot, "count": count}
            elif fewshot["count"] != count:
                notes.add(
                    "num_fewshot is another name of fewshot.count, and they differ; keep one of them.", "num_fewshot"
                )


def _unique(entries: Any, key: str, where: str, what: str, notes: Notes) -> None:
    seen: dict[str, int] = {}
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        name = read(entry, key)
        if isinstance(name, str) and seen.setdefault(name, index) != index:
            notes.add(
                f"{quote(name)} is also the {key} of {where}[{seen[name]}]; each {what} needs its own.",
                where,
                index,
                key,
            )


class SuiteSpec(Spec):
    """One suite: tasks, the files and graders they use, and defaults for a run."""

    kind = "a suite"
    schema_uri: Any = Field(default=None, alias="$schema", description="Address of the JSON Schema, for editors.")
    schema_version: str = Field(default=SCHEMA_VERSION, description="Version of the format.")
    metadata: FreeObject = Field(default_factory=dict, description="Free.")
    tasks: list[TaskSpec] = Field(description="The tasks, 1 to 100.", min_length=1, max_length=100)
    name: str | None = Field(default=None, description="For people.")
    description: str | None = Field(default=None, description="For people.")
    files: dict[str, FilePath] = Field(default_factory=dict, description="File id to path relative to the suite.")
    graders: dict[str, NamedGrader] = Field(default_factory=dict, description="Graders that tasks refer to by name.")
    run: RunSpec = Field(default_factory=RunSpec, description="Defaults for a run.")

    @classmethod
    def prepare(cls, fields: dict[str, Any], notes: Notes) -> None:
        version = fields.get("schema_version", SCHEMA_VERSION)
        if isinstance(version, str) and version != SCHEMA_VERSION:
            notes.add(f"found {describe(version)}, but only {quote(SCHEMA_VERSION)} is supported.", "schema_version")
        tasks, named = fields.get("tasks"), fields.get("graders", {})
        _unique(tasks, "id", "tasks", "task", notes)
        if not isinstance(named, dict):
            return
        for index, task in enumerate(tasks if isinstance(tasks, list) else []):
            _check_graders(index, task, named, notes)

    def model_post_init(self, context: Any, /) -> None:
        for index, task in enumerate(self.tasks):
            several = task.graders is not None
            task._grader_list.clear()
            task._grader_places.clear()
            for number, grader in enumerate(task.graders or [task.grader]):
                if isinstance(grader, RefSpec):
                    if grader.ref not in self.graders:
                        continue  # noted by prepare; the suite is about to be refused
                    task._grader_list.append(self.graders[grader.ref])
                    task._grader_places.append(place(["graders", grader.ref]))
                elif grader is not None:
                    task._grader_list.append(grader)
                    within = f"graders[{number}]" if several else "grader"
                    task._grader_places.append(f"tasks[{index}].{within}")


_KEY_FIELDS = {"python": "metric_id", "custom": "metric_id", "binary_judge": "feedback_key"}


def _check_graders(index: int, task: Any, named: Mapping[str, Any], notes: Notes) -> None:
    """Resolve references, and note score ids that two graders of a task would both write."""
    several = read(task, "graders")
    single = read(task, "grader")
    entries: list[tuple[tuple[str | int, ...], Any]] = []
    if isinstance(several, list):
        entries = [(("graders", number), grader) for number, grader in enumerate(several)]
    elif single is not None:
        entries = [(("grader",), single)]
    owners: dict[str, str] = {}
    judges = False
    for loc, written in entries:
        grader, ref = written, read(written, "ref")
        if isinstance(ref, str) and read(written, "type") is None:
            if ref not in named:
                near = did_you_mean(ref, named, what="Graders of this suite")
                near = near or 'The suite has no "graders"; add it, or write the grader here.'
                notes.add(f"no grader of this suite is named {quote(ref)}. {near}", "tasks", index, *loc, "ref")
                judges = True
                continue
            grader = named[ref]
        judges = judges or read(grader, "type") in ("binary_judge", "prebuilt_judge")
        key = _written_key(grader)
        if key is None:
            continue
        at = place(["tasks", index, *loc])
        if key in owners:
            fix = quote(_KEY_FIELDS.get(read(grader, "type"), "key"))
            message = (
                f"this grader and {owners[key]} both store the score {quote(key)}; give one of them another {fix}."
            )
            notes.add(message, "tasks", index, *loc)
        owners.setdefault(key, at)
    if read(task, "calibration") is not None and entries and not judges:
        notes.add(
            "calibration measures a judge, but none of the task's graders is a binary_judge or prebuilt_judge.",
            "tasks", index, "calibration",
        )  # fmt: skip


def _written_key(grader: Any) -> str | None:
    """The score id that a grader certainly owns per sample; None where that is not known from the JSON."""
    kind = read(grader, "type")
    if kind == "python":
        contract, execution = read(grader, "contract") or "sample", read(grader, "execution")
        metric_id = read(grader, "metric_id")
        if execution == "aggregate" or (contract == "batch" and execution is None):
            return None
        if contract == "model_backed" and execution is None and metric_id is None:
            return None
        key = metric_id if metric_id is not None else "score"
    elif kind == "binary_judge":
        key = read(grader, "feedback_key") or read(grader, "key")
    elif kind == "custom":
        key = read(grader, "metric_id") or read(grader, "key")
    else:
        key = read(grader, "key")
    return key if isinstance(key, str) else None


def parse_suite(document: Any, where: str) -> SuiteSpec:
    """Read a manifest that is already parsed JSON.

    Args:
        document: The document as builtins.
        where: The file as shown in messages.

    Returns:
        The suite, with the references of its tasks resolved.

    Raises:
        SuiteError: All problems of the manifest, in the order of the document.
    """
    try:
        return SuiteSpec.model_validate(document)
    except ValidationError as error:
        raise SuiteError(problems_of(error, document, where)) from None


def problems_of(error: ValidationError, document: Any, where: str) -> list[Problem]:
    """Turn a validation error into problems, in the order of the document."""
    found_there: list[tuple[list[int], Problem]] = []
    for detail in error.errors(include_url=False):
        loc = [
            part
            for part in detail["loc"]
            if not (isinstance(part, str) and part.startswith("<") and part.endswith(">"))
        ]
        at = place(loc)
        problem = Problem(": ".join(part for part in (where, at) if part), detail["msg"])
        found_there.append((_position(document, loc), problem))
    ordered = [problem for _, problem in sorted(found_there, key=lambda pair: pair[0])]
    return list(dict.fromkeys(ordered))


def _is_tag(part: str | int) -> bool:
    return isinstance(part, str) and part.startswith("<") and part.endswith(">")


def _position(document: Any, loc: Sequence[str | int]) -> list[int]:
    """Where a place stands among its siblings, level by level; a missing key comes last."""
    out = []
    for part in loc:
        if isinstance(document, dict):
            keys = list(document)
            out.append(keys.index(part) if part in document else len(keys))
            document = document.get(part)
        elif isinstance(document, list) and isinstance(part, int) and part < len(document):
            out.append(part)
            document = document[part]
        else:
            out.append(0)
            document = None
    return out
