"""Suites that are right and suites that are wrong, for the tests of the models, the JSON Schema and the loader."""

from __future__ import annotations

import copy
from typing import Any

GRADER = {"type": "python", "source": "def grade(sample, item):\n    return 1.0\n"}

JUDGE = {"type": "binary_judge", "key": "k", "criteria": "c"}


def task(**more: Any) -> dict[str, Any]:
    """A small task; None takes a key away."""
    base = {"id": "t", "type": "qa", "dataset": {"rows": [{"q": "1"}]}, "prompt_template": "{{q}}", "grader": GRADER}
    return {key: value for key, value in {**base, **more}.items() if value is not None}


def suite(*tasks: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A small suite of the given tasks."""
    return copy.deepcopy({"schema_version": "2026-05-27", "tasks": list(tasks) or [task()], **more})


def graded(kind: str, **more: Any) -> dict[str, Any]:
    """A suite with one grader of a kind."""
    needed: dict[str, dict[str, Any]] = {
        "python": {"source": "x"},
        "binary_judge": {"key": "k", "criteria": "c"},
        "prebuilt_judge": {"key": "k", "criterion": "FAITHFULNESS"},
        "external_endpoint": {"key": "k", "url": "http://127.0.0.1:9"},
        "custom": {"key": "k"},
    }
    fields = {"type": kind, **needed[kind], **more}
    return suite(task(grader={key: value for key, value in fields.items() if value is not None}))


def extracted(**how: Any) -> dict[str, Any]:
    """A suite with one extraction."""
    return suite(task(output_extraction=how))


def metric(**more: Any) -> dict[str, Any]:
    """A suite with one metric."""
    return suite(task(metrics=[{"id": "score", **more}]))


def dataset(**fields: Any) -> dict[str, Any]:
    """A suite with one dataset."""
    return suite(task(dataset=fields))


# As in the public documentation of the format, before `files` is added; schema_version may be left out there.
MKA1 = {
    "schema_version": "2026-05-27",
    "tasks": [
        {
            "id": "qa_exact_match",
            "name": "QA exact match",
            "type": "qa",
            "dataset": {"file_id": "file_dataset123", "format": "jsonl"},
            "prompt_template": "Answer.\n\nQuestion: {{question}}",
            "target_template": "{{answer}}",
            "output_extraction": {"type": "take_first", "lines": 1},
            "metrics": [{"id": "exact_match", "aggregation": "mean", "higher_is_better": True}],
            "grader": {"type": "python", "contract": "sample", "file_id": "file_grader123", "timeout_seconds": 120},
            "metadata": {"source": "qa-regression"},
        },
        {
            "id": "spanish_qa",
            "type": "custom",
            "dataset": {"source": "huggingface", "path": "someone/qa", "split": "test", "max_rows": 1000000},
            "prompt_template": "Contexto: {{context}}",
            "target_template": "{{answer}}",
            "grader": {
                "type": "python",
                "contract": "model_backed",
                "model_access": "mka1",
                "file_id": "file_grader123",
            },
            "preprocess": {"type": "python", "source": "def transform(row):\n    return row\n"},
            "num_fewshot": 1,
        },
    ],
    "metadata": {"project": "model-quality"},
}

FULL = {
    "$schema": "./suite.schema.json",
    "schema_version": "2026-05-27",
    "name": "everything",
    "description": "Every key once.",
    "metadata": {"owner": ["a", {"b": None}]},
    "files": {"file_1": "data/d.jsonl"},
    "graders": {"exact": GRADER, "by hand": {"type": "custom", "key": "mine"}},
    "run": {
        "models": ["recorded:answer", "python:app.models:answer", "openai:gpt-4.1-mini", "auto"],
        "judge_model": "openai:judge",
        "embedding_model": "auto",
        "generation": {
            "instructions": "",
            "temperature": 0,
            "top_p": 1,
            "max_gen_toks": 512,
            "until": ["\n\n"],
            "reasoning": {"effort": "low"},
            "text": {},
            "tools": [{"type": "function"}],
            "tool_choice": "auto",
            "parallel_tool_calls": False,
            "max_tool_calls": 0,
            "truncation": "auto",
            "service_tier": "default",
            "presence_penalty": -2,
            "frequency_penalty": 2,
            "top_k": -1,
            "min_p": 0.1,
            "repetition_penalty": 1.1,
            "do_sample": False,
            "extra_body": {"a": None},
            "chat_template_kwargs": {"enable_thinking": False},
            "prefill_think": True,
            "use_cache": True,
            "timeout_seconds": 0.5,
            "max_retries": 0,
            "max_empty_retries": 1,
        },
        "concurrency": 25,
        "max_samples_per_task": 10,
    },
    "tasks": [
        {
            "id": "a.b-C_1",
            "name": "",
            "type": "multiple_choice",
            "dataset": {"file_id": "file_1", "format": "csv", "id_column": "key"},
            "prompt_template": "{{q}}",
            "target_template": "{{a}}",
            "choices": ["a", 1, 2.5],
            "output_extraction": {"type": "regex_last", "pattern": "(?P<x>a+)", "group": "x", "flags": "im"},
            "metrics": [
                {
                    "id": "k",
                    "aggregation": "median",
                    "higher_is_better": False,
                    "description": "",
                    "threshold": {"min": 0, "max": 1},
                    "range": [0, 1],
                    "allow_missing": 0.5,
                    "sample_threshold": 0,
                },
                {"id": "n", "aggregation": "none", "threshold": 0},
            ],
            "generation": {"stop": "x", "max_output_tokens": 5},
            "graders": [
                {"ref": "exact"},
                {"type": "binary_judge", "key": "k", "criteria": "c", "judge_model": "m", "feedback_key": "f",
                 "examples": [{"input": [{"role": "user", "content": ""}], "output": "", "passes": False,
                               "reasoning": "r"}],
                 "system_template": "", "user_template": "{{{completion}}}", "template_variables": {"a": [1]}},
                {"type": "prebuilt_judge", "key": "p", "criterion": "ANSWER_RELEVANCY", "judge_model": "m"},
                {"type": "external_endpoint", "key": "e", "url": "my-server", "timeout_seconds": 5, "max_retries": 0},
                {"type": "custom", "key": "c", "function": "pkg.mod:grade", "metric_id": "m"},
                {"type": "python", "contract": "batch", "execution": "aggregate", "model_access": "none", "source": "x",
                 "metric_id": "score", "max_model_calls": 0, "memory_mb": 256, "timeout_seconds": 1.5},
            ],
            "preprocess": {"type": "python", "contract": "batch", "file_id": "p.py", "timeout_seconds": 600,
                           "memory_mb": 64},
            "fewshot": {"count": 2.0, "dataset": {"rows": [{"a": 1}]}, "prompt_template": "", "target_template": "",
                        "example_template": "{{prompt}}", "separator": "", "strategy": "random", "seed": -7},
            "num_fewshot": 2,
            "metadata": {},
            "models": ["recorded:x.y"],
            "epochs": 100,
            "allow_errors": 1,
            "tags": ["slow", "area.maths"],
            "calibration": {"column": "human"},
        }
    ],
}  # fmt: skip

GOOD: dict[str, dict[str, Any]] = {
    "small": suite(),
    "mka1": MKA1,
    "full": FULL,
    "no schema_version": {"tasks": [task()]},
    "any $schema": suite(**{"$schema": {"free": 1}}),
    "whole number with a point": graded("python", timeout_seconds=30.0, memory_mb=128.0),
    "threshold 0": metric(threshold=0),
    "threshold 1": metric(threshold=1),
    "threshold max 0": metric(threshold={"max": 0}),
    "negative threshold": metric(threshold=-1.5),
    "regex whole match": extracted(type="regex", pattern="a", group=0),
    "extraction none": extracted(type="none"),
    "numbers": extracted(type="number"),
    "labels by case": extracted(type="label_set", labels=["C", "c", "C++", "N/A"], case_sensitive=True),
    "stop as text": suite(task(generation={"stop": "\n"})),
    "no stops": suite(task(generation={"stop": []})),
    "fewshot without count": suite(task(fewshot={"seed": 1}, num_fewshot=0)),
    "files of a builder": dataset(
        source="huggingface", path="json", data_files={"test": ["a.jsonl"], "dev": "b.jsonl"}
    ),
    "remote code off": dataset(
        source="huggingface", path="a/b", dataset_kwargs={"trust_remote_code": False, "field": "x"}
    ),
    "endpoint with path": graded("external_endpoint", url="https://h.example:8443/v1/reward/"),
    "metrics empty": suite(task(metrics=[])),
}

# Name → suite, place and words of the message, and whether a JSON Schema can know it.
BAD: dict[str, tuple[Any, str, list[str], bool]] = {
    "misspelt key": (
        graded("python", contrat="sample"),
        "tasks[0].grader.contrat",
        ["unknown key", '"contract"'],
        True,
    ),
    "key of the suite": (suite(task(), Tasks=[]), "Tasks", ["unknown key", '"tasks"'], True),
    "key in camel case": (suite(task(promptTemplate="x")), "tasks[0].promptTemplate", ['"prompt_template"'], True),
    "unlike any key": (suite(task(zzzz=1)), "tasks[0].zzzz", ["Known keys", '"dataset"'], True),
    "key of a fewshot": (suite(task(fewshot={"count": 1, "sed": 1})), "tasks[0].fewshot.sed", ['"seed"'], True),
    "key of a generation": (
        suite(run={"generation": {"max_tokens": 1}}),
        "run.generation.max_tokens",
        ["unknown"],
        True,
    ),
    "key with a space": (suite(task(**{"a b": 1})), 'tasks[0]["a b"]', ["unknown key"], True),
    "version": (suite(schema_version="2025-01-01"), "schema_version", ['"2025-01-01"', '"2026-05-27"'], True),
    "version as number": (suite(schema_version=2), "schema_version", ["found 2", "a text"], True),
    "no tasks": ({"schema_version": "2026-05-27"}, "tasks", ["missing"], True),
    "tasks as object": ({"tasks": {}}, "tasks", ["found an empty object", "a list"], True),
    "empty tasks": ({"tasks": []}, "tasks", ["found an empty list", "at least one"], True),
    "too many tasks": (suite(*[task(id=f"t{i}") for i in range(101)]), "tasks", ["101", "at most 100"], True),
    "top is a list": ([], "", ["found an empty list", "a suite"], True),
    "task is text": ({"tasks": ["x"]}, "tasks[0]", ['found the text "x"', "a task"], True),
    "task id": (suite(task(id="a b")), "tasks[0].id", ['"a b"', "letters, digits"], True),
    "task id with a line end": (suite(task(id="a\n")), "tasks[0].id", ['"a\\n"'], True),
    "task id empty": (suite(task(id="")), "tasks[0].id", ["empty text"], True),
    "task id twice": (suite(task(), task()), "tasks[1].id", ['"t"', "tasks[0]"], False),
    "no id": (suite(task(id=None)), "tasks[0].id", ["missing"], True),
    "no dataset": (suite(task(dataset=None)), "tasks[0].dataset", ["missing", "rows"], True),
    "no grader": (suite(task(grader=None)), "tasks[0].grader", ["missing", '"graders"'], True),
    "grader and graders": (suite(task(graders=[GRADER])), "tasks[0].grader", ['"grader" and "graders"'], True),
    "empty graders": (suite(task(grader=None, graders=[])), "tasks[0].graders", ["empty list"], True),
    "task type": (suite(task(type="clasification")), "tasks[0].type", ['"classification"', "Did you mean"], True),
    "transcription": (suite(task(type="transcription")), "tasks[0].type", ['"transcription"', "not supported"], True),
    "embedding": (suite(task(type="embedding")), "tasks[0].type", ['"embedding"', "not supported"], True),
    "null": (suite(task() | {"fewshot": None}), "tasks[0].fewshot", ["null", "leave the key out"], True),
    "null that is needed": (suite(task() | {"id": None}), "tasks[0].id", ["null"], True),
    "metadata": (suite(metadata="x"), "metadata", ["an object"], True),
    "no grader type": (suite(task(grader={"source": "x"})), "tasks[0].grader", ['"type" is missing', '"python"'], True),
    "grader type": (
        suite(task(grader={"type": "pyton"})),
        "tasks[0].grader",
        ['"pyton"', 'Did you mean "python"'],
        True,
    ),
    "grader type as list": (suite(task(grader={"type": ["python"]})), "tasks[0].grader", ["a list"], True),
    "grader as text": (suite(task(grader="x.py")), "tasks[0].grader", ['"x.py"', "an object"], True),
    "contract": (graded("python", contract="btach"), "tasks[0].grader.contract", ['"batch"', "Did you mean"], True),
    "both sources": (graded("python", file_id="g.py"), "tasks[0].grader.source", ['"source" and "file_id"'], True),
    "no source": (graded("python", source=None), "tasks[0].grader", ['"source"', '"file_id"'], True),
    "empty source": (graded("python", source=""), "tasks[0].grader.source", ["empty text"], True),
    "timeout high": (
        graded("python", timeout_seconds=601),
        "tasks[0].grader.timeout_seconds",
        ["601", "1 to 600"],
        True,
    ),
    "timeout low": (
        graded("python", timeout_seconds=0.5),
        "tasks[0].grader.timeout_seconds",
        ["0.5", "1 to 600"],
        True,
    ),
    "timeout as text": (
        graded("python", timeout_seconds="3"),
        "tasks[0].grader.timeout_seconds",
        ['the text "3"'],
        True,
    ),
    "timeout as boolean": (
        graded("python", timeout_seconds=True),
        "tasks[0].grader.timeout_seconds",
        ["found true"],
        True,
    ),
    "timeout huge": (
        graded("python", timeout_seconds=10**400),
        "tasks[0].grader.timeout_seconds",
        ["very large"],
        True,
    ),
    "calls": (graded("python", max_model_calls=501), "tasks[0].grader.max_model_calls", ["501", "0 to 500"], True),
    "calls in parts": (
        graded("python", max_model_calls=1.5),
        "tasks[0].grader.max_model_calls",
        ["whole number"],
        True,
    ),
    "memory": (graded("python", memory_mb=-1), "tasks[0].grader.memory_mb", ["-1", "MiB"], True),
    "metric_id": (graded("python", metric_id=" "), "tasks[0].grader.metric_id", ["white space"], True),
    "judge without criteria": (graded("binary_judge", criteria=None), "tasks[0].grader.criteria", ["missing"], True),
    "judge key": (graded("binary_judge", key=""), "tasks[0].grader.key", ["empty text"], True),
    "example without verdict": (
        graded("binary_judge", examples=[{"input": [{"role": "user", "content": "x"}], "output": "o"}]),
        "tasks[0].grader.examples[0].passes",
        ["missing", "verdict"],
        True,
    ),
    "example without turns": (
        graded("binary_judge", examples=[{"input": [], "output": "o", "passes": True}]),
        "tasks[0].grader.examples[0].input",
        ["empty list"],
        True,
    ),
    "example's role": (
        graded("binary_judge", examples=[{"input": [{"role": "usr", "content": ""}], "output": "o", "passes": True}]),
        "tasks[0].grader.examples[0].input[0].role",
        ['"user"'],
        True,
    ),
    "criterion": (
        graded("prebuilt_judge", criterion="faithfulness"),
        "tasks[0].grader.criterion",
        ["FAITHFULNESS"],
        True,
    ),
    "url without scheme": (
        graded("external_endpoint", url="localhost:8000"),
        "tasks[0].grader.url",
        ["no scheme", '"http://localhost:8000"'],
        True,
    ),
    "url of a file": (
        graded("external_endpoint", url="file:///etc/x"),
        "tasks[0].grader.url",
        ['"file"', "https"],
        True,
    ),
    "url without host": (graded("external_endpoint", url="http:///x"), "tasks[0].grader.url", ["no host"], True),
    "url with a query": (graded("external_endpoint", url="http://h/?a=1"), "tasks[0].grader.url", ["query"], True),
    "function": (graded("custom", function="grade"), "tasks[0].grader.function", ['"module:function"'], True),
    "ref": (suite(task(grader={"ref": "exat"}), graders={"exact": GRADER}), "tasks[0].grader.ref", ['"exact"'], False),
    "ref without graders": (suite(task(grader={"ref": "x"})), "tasks[0].grader.ref", ['"x"', "graders"], False),
    "ref with more": (
        suite(task(grader={"ref": "exact", "metric_id": "x"}), graders={"exact": GRADER}),
        "tasks[0].grader.metric_id",
        ["unknown key"],
        True,
    ),
    "ref in graders": (suite(graders={"a": {"ref": "b"}}), "graders.a", ["cannot be a reference"], True),
    "unused grader": (suite(graders={"a": {"type": "custom"}}), "graders.a.key", ["missing"], True),
    "one key of two graders": (
        suite(task(grader=None, graders=[GRADER, GRADER])),
        "tasks[0].graders[1]",
        ['"score"', '"metric_id"', "tasks[0].graders[0]"],
        False,
    ),
    "one key of judge and custom": (
        suite(
            task(
                grader=None,
                graders=[
                    {"type": "binary_judge", "key": "a", "criteria": "c", "feedback_key": "ok"},
                    {"type": "custom", "key": "ok"},
                ],
            )
        ),
        "tasks[0].graders[1]",
        ['"ok"'],
        False,
    ),
    "no rows": (dataset(), "tasks[0].dataset", ["no rows", '"file_id"'], True),
    "empty rows": (dataset(rows=[]), "tasks[0].dataset.rows", ["empty list"], True),
    "rows of text": (dataset(rows=["x"]), "tasks[0].dataset.rows[0]", ['the text "x"', "an object"], True),
    "two datasets": (dataset(rows=[{}], file_id="a"), "tasks[0].dataset", ['"file_id" and "rows"'], True),
    "format": (dataset(file_id="a", format="json"), "tasks[0].dataset.format", ['"jsonl"', "Did you mean"], True),
    "format of rows": (dataset(rows=[{}], format="csv"), "tasks[0].dataset.format", ["file_id"], True),
    "hub without source": (dataset(path="a/b"), "tasks[0].dataset.source", ["huggingface"], True),
    "hub without path": (dataset(source="huggingface"), "tasks[0].dataset.path", ["missing"], True),
    "source": (dataset(source="hugingface", path="x"), "tasks[0].dataset.source", ['"huggingface"'], True),
    "max_rows of a file": (dataset(file_id="a", max_rows=3), "tasks[0].dataset.max_rows", ["--evals-limit"], True),
    "max_rows": (
        dataset(source="huggingface", path="x", max_rows=1_000_001),
        "tasks[0].dataset.max_rows",
        ["1000001", "1,000,000"],
        True,
    ),
    "remote code": (
        dataset(source="huggingface", path="x", dataset_kwargs={"trust_remote_code": True}),
        "tasks[0].dataset.dataset_kwargs.trust_remote_code",
        ["never"],
        True,
    ),
    "token": (
        dataset(source="huggingface", path="x", dataset_kwargs={"token": "t"}),
        "tasks[0].dataset.dataset_kwargs.token",
        ["not allowed"],
        True,
    ),
    "split among the arguments": (
        dataset(source="huggingface", path="x", dataset_kwargs={"split": "t"}),
        "tasks[0].dataset.dataset_kwargs.split",
        ['"split"'],
        True,
    ),
    "data_files": (
        dataset(source="huggingface", path="x", data_files=["a", 1]),
        "tasks[0].dataset.data_files[1]",
        ["found 1", "a path"],
        True,
    ),
    "preprocess": (suite(task(preprocess={"type": "python"})), "tasks[0].preprocess", ['"source"'], True),
    "preprocess contract": (
        suite(task(preprocess={"type": "python", "source": "x", "contract": "rows"})),
        "tasks[0].preprocess.contract",
        ['"row"'],
        True,
    ),
    "extraction type": (extracted(type="regexp"), "tasks[0].output_extraction", ['"regex"'], True),
    "pattern": (
        extracted(type="regex", pattern="("),
        "tasks[0].output_extraction.pattern",
        ["not a regular expr"],
        False,
    ),
    "pattern too large": (
        extracted(type="regex", pattern="a{4000000000}"),
        "tasks[0].output_extraction.pattern",
        ["repeats"],
        False,
    ),
    "flags": (extracted(type="regex", pattern="a", flags="ig"), "tasks[0].output_extraction.flags", ['"imsx"'], True),
    "flags twice": (
        extracted(type="regex", pattern="a", flags="ii"),
        "tasks[0].output_extraction.flags",
        ["once"],
        True,
    ),
    "group number": (
        extracted(type="regex", pattern="(a)", group=2),
        "tasks[0].output_extraction.group",
        ["1 to 1"],
        False,
    ),
    "group name": (
        extracted(type="regex", pattern="(?P<answer>a)", group="anser"),
        "tasks[0].output_extraction.group",
        ['"answer"'],
        False,
    ),
    "group without names": (
        extracted(type="regex", pattern="a", group="x"),
        "tasks[0].output_extraction.group",
        ["?P<"],
        False,
    ),
    "group as boolean": (
        extracted(type="regex", pattern="a", group=True),
        "tasks[0].output_extraction.group",
        ["true"],
        True,
    ),
    "lines": (extracted(type="take_first", lines=0), "tasks[0].output_extraction.lines", ["found 0"], True),
    "labels empty": (extracted(type="label_set", labels=[]), "tasks[0].output_extraction.labels", ["empty list"], True),
    "label blank": (
        extracted(type="label_set", labels=["a", " "]),
        "tasks[0].output_extraction.labels[1]",
        ["white"],
        True,
    ),
    "label twice": (
        extracted(type="label_set", labels=["Yes", "yes"]),
        "tasks[0].output_extraction.labels[1]",
        ["labels[0]"],
        False,
    ),
    "key of another extraction": (
        extracted(type="number", pattern="x"),
        "tasks[0].output_extraction.pattern",
        ["unknown key"],
        True,
    ),
    "metric id twice": (
        suite(task(metrics=[{"id": "a"}, {"id": "a"}])),
        "tasks[0].metrics[1].id",
        ['"a"', "metrics[0]"],
        False,
    ),
    "metric as text": (suite(task(metrics=["score"])), "tasks[0].metrics[0]", ["an object"], True),
    "aggregation": (metric(aggregation="avg"), "tasks[0].metrics[0].aggregation", ['"mean"'], True),
    "threshold as text": (metric(threshold="0.9"), "tasks[0].metrics[0].threshold", ['the text "0.9"'], True),
    "threshold as boolean": (metric(threshold=True), "tasks[0].metrics[0].threshold", ["found true", "a number"], True),
    "threshold as list": (metric(threshold=[1]), "tasks[0].metrics[0].threshold", ["a list"], True),
    "threshold empty": (metric(threshold={}), "tasks[0].metrics[0].threshold", ['"min", "max" or both'], True),
    "threshold key": (metric(threshold={"mn": 1}), "tasks[0].metrics[0].threshold.mn", ['"min"'], True),
    "threshold crossed": (
        metric(threshold={"min": 1, "max": 0}),
        "tasks[0].metrics[0].threshold",
        ["above max"],
        False,
    ),
    "threshold min as text": (
        metric(threshold={"min": "1"}),
        "tasks[0].metrics[0].threshold.min",
        ['the text "1"'],
        True,
    ),
    "range order": (metric(range=[1, 1]), "tasks[0].metrics[0].range", ["low 1 is not below high 1"], False),
    "range of one": (metric(range=[1]), "tasks[0].metrics[0].range", ["1 entries", "two"], True),
    "range of text": (metric(range=[0, "1"]), "tasks[0].metrics[0].range[1]", ['the text "1"'], True),
    "allow_missing": (metric(allow_missing=10), "tasks[0].metrics[0].allow_missing", ["0 to 1"], True),
    "sample_threshold": (metric(sample_threshold=False), "tasks[0].metrics[0].sample_threshold", ["found false"], True),
    "higher_is_better": (
        metric(higher_is_better="no"),
        "tasks[0].metrics[0].higher_is_better",
        ["true or false"],
        True,
    ),
    "epochs": (suite(task(epochs=101)), "tasks[0].epochs", ["101", "1 to 100"], True),
    "epochs as boolean": (suite(task(epochs=True)), "tasks[0].epochs", ["found true"], True),
    "allow_errors": (suite(task(allow_errors=1.1)), "tasks[0].allow_errors", ["0 to 1"], True),
    "models empty": (suite(run={"models": []}), "run.models", ["empty list"], True),
    "models many": (suite(run={"models": [f"m{i}" for i in range(21)]}), "run.models", ["21", "20"], True),
    "model blank": (suite(run={"models": [" "]}), "run.models[0]", ["white space"], True),
    "model twice": (suite(task(models=["a", "a"])), "tasks[0].models[1]", ["twice"], True),
    "recorded nothing": (suite(run={"models": ["recorded:"]}), "run.models[0]", ["recorded:COLUMN"], True),
    "python without function": (
        suite(run={"models": ["python:app"]}),
        "run.models[0]",
        ["python:module:function"],
        True,
    ),
    "models as text": (suite(run={"models": "m"}), "run.models", ["a list"], True),
    "concurrency": (suite(run={"concurrency": 0}), "run.concurrency", ["found 0"], True),
    "temperature": (suite(run={"generation": {"temperature": -1}}), "run.generation.temperature", ["-1"], True),
    "stop empty": (suite(task(generation={"stop": [""]})), "tasks[0].generation.stop[0]", ["empty text"], True),
    "alias out of range": (
        suite(task(generation={"max_gen_toks": 0})),
        "tasks[0].generation.max_gen_toks",
        ["found 0"],
        True,
    ),
    "alias that differs": (
        suite(task(generation={"max_gen_toks": 1, "max_output_tokens": 2})),
        "tasks[0].generation.max_gen_toks",
        ["another name", '"max_output_tokens"'],
        False,
    ),
    "fewshot count": (suite(task(fewshot={"count": 101})), "tasks[0].fewshot.count", ["0 to 100"], True),
    "fewshot no count": (suite(task(fewshot={"seed": 1})), "tasks[0].fewshot.count", ["missing"], True),
    "num_fewshot": (suite(task(num_fewshot=101)), "tasks[0].num_fewshot", ["101", "0 to 100"], True),
    "num_fewshot that differs": (
        suite(task(num_fewshot=1, fewshot={"count": 2})),
        "tasks[0].num_fewshot",
        ["differ"],
        False,
    ),
    "tag that acts": (suite(task(tags=["skip"])), "tasks[0].tags[0]", ["acts"], True),
    "tag with a space": (suite(task(tags=["a b"])), "tasks[0].tags[0]", ["a letter"], True),
    "calibration": (
        suite(task(grader=JUDGE, calibration={"column": "x", "kappa": 1})),
        "tasks[0].calibration.kappa",
        ["unknown key"],
        True,
    ),
    "calibration without judge": (suite(task(calibration={"column": "x"})), "tasks[0].calibration", ["a judge"], False),
    "choices": (suite(task(choices=["a", ["b"]])), "tasks[0].choices[1]", ["a text or a number"], True),
    "file path": (suite(files={"a": 1}), "files.a", ["a path"], True),
}
