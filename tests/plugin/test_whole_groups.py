"""Batch graders, preprocessors, few-shot and epochs: the same in every way of distributing."""

from __future__ import annotations

from typing import Any

import pytest
from evalkit import FOUR, MODEL, Bench, gate, python, rows, suite, task

UPDATES = """
def grade_batch(samples):
    updates = []
    for s in samples:
        ok = s["extracted_output"] == s["target"]
        updates.append({"sample_id": s["sample_id"], "scores": {"right": 1.0 if ok else 0.0},
                        "judge": {"seen": len(samples)}, "extracted_output": "<" + s["extracted_output"] + ">"})
    return {"metrics": {"accuracy": sum(u["scores"]["right"] for u in updates) / len(updates)}, "samples": updates}
"""
DROPPING = """
def transform_batch(rows):
    kept = [r for r in rows if r["question"] != "q1"]
    return kept + [dict(kept[0], question="once more")]
"""


def whole_suite() -> dict[str, Any]:
    """Two tasks, two models, a batch grader with updates, a preprocessor that drops rows, few-shot, epochs."""
    data = [{**row, "other": row["gold"]} for row in FOUR]
    one = task(
        graders=[python(metric_id="exact"), python(UPDATES, contract="batch")],
        grader=None,
        dataset={"rows": data},
        preprocess={"type": "python", "contract": "batch", "source": DROPPING},
        num_fewshot=2,
        fewshot={"count": 2, "strategy": "random", "seed": 3},
        epochs=2,
        metrics=[*gate(0.7, "accuracy"), {"id": "right"}, {"id": "exact", "threshold": 0.8}],
    )
    del one["num_fewshot"]
    two = task(
        id="plain", dataset={"rows": [*data, {"question": "lost", "gold": "1"}]}, metrics=gate(0.9), allow_errors=0.5
    )
    return suite(one, two, run={"models": ["recorded:answer", "recorded:other"]})


MODES = [
    "-n 0",
    "-n 1",
    "-n 2",
    "-n 2 --dist loadscope",
    "-n 2 --dist loadfile",
    "-n 2 --dist loadgroup",
    "-n 3 --dist worksteal",
    "-p no:xdist",
    "-p no:cacheprovider",
    "--import-mode=importlib",
    "-p randomly",
    "--reruns 1",
    # Workers in another directory, with copies of the files: a record needs no shared disk.
    "--dist load --tx popen//chdir=elsewhere --tx popen//chdir=elsewhere --rsyncdir={root}/suites --rsyncdir=tox.ini",
]


def test_the_same_in_every_mode(bench: Bench) -> None:
    bench.write("suites/s.json", whole_suite())
    (bench.pytester.path / "elsewhere").mkdir()
    serial = bench.run()
    assert serial.code == 1
    assert serial.state("sums", "gate[", "answer-exact") == "failure"
    assert serial.state("sums", "gate[", "other-exact") == "passed"
    assert serial.state("sums", "gate[", "answer-accuracy") == "passed"
    for mode in MODES:
        bench.mode = mode.format(root=bench.pytester.path)
        # xdist maps only absolute paths to the copies.
        ran = bench.run(str(bench.pytester.path / "suites"), subprocess=mode.startswith("-p randomly"))
        assert ran.code == serial.code, (mode, ran.text)
        assert ran.facts() == serial.facts(), mode


def test_batch_updates(each_mode: Bench) -> None:
    ran = each_mode.run(doc=suite(task(grader=python(UPDATES, contract="batch"))))
    assert ran.code == 0
    assert ran.samples[3]["scores"] == {"right": 0.0}
    assert ran.samples[3]["judge"] == {"seen": 4}
    assert ran.samples[3]["extracted_output"] == "<9>"
    assert ran.group["metrics"]["right"]["value"] == 0.75


def test_batch_metric_that_is_not_declared_is_said(bench: Bench) -> None:
    source = "def grade_batch(samples):\n    return {'metrics': {'kept': 1.0, 'stray': 2.0}}\n"
    ran = bench.run(doc=suite(task(grader=python(source, contract="batch"), metrics=gate(1.0, "kept"))))
    assert ran.code == 0
    assert ran.group["dropped_metrics"] == ["stray"]
    assert "stray" in ran.text


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return [1.0, 0.0]", "list"),
        ("return (1.0,)", "tuple"),
        ("return 'x'", "str"),
        ("return (x for x in [1])", "generator"),
        ("return {'metrics': {'score': True}}", "score"),
        ("return {'samples': [{'sample_id': '0', 'scores': {'score': 1}}] * 2}", "twice"),
        ("return {'samples': [{'sample_id': 'nobody', 'scores': {'score': 1}}]}", "nobody"),
        ("return {}", "neither"),
        ("raise SystemExit(0)", "SystemExit"),
    ],
)
def test_batch_of_the_wrong_shape_fails_its_gate(bench: Bench, body: str, words: str) -> None:
    source = f"def grade_batch(samples):\n    {body}\n"
    ran = bench.run(doc=suite(task(grader=python(source, contract="batch"), metrics=gate(0.0))))
    assert ran.code == 1
    assert ran.state("gate[") == "failure"
    assert words in ran.flat


RANGED = [
    {"id": "metric", "range": [0, 1], "threshold": 0},
    {"id": "score", "range": [0, 1], "threshold": 0, "allow_missing": 1},
]


@pytest.mark.parametrize(
    ("bodies", "words"),
    [
        (["{'metrics': {'metric': 5.0}}"], "metric is 5, outside [0, 1]"),
        (
            ["{'metrics': {'metric': 1.0}, 'samples': [{'sample_id': '2', 'scores': {'score': -1}}]}"],
            "sample 2: score is -1",
        ),
        (["{'metrics': {'metric': 1.0}}", "{'metrics': {'metric': 0.5}}"], "another batch grader"),
    ],
)
def test_batch_result_that_the_task_does_not_allow(bench: Bench, bodies: list[str], words: str) -> None:
    graders = [python(f"def grade_batch(samples):\n    return {body}\n", contract="batch") for body in bodies]
    ran = bench.run(doc=suite(task(grader=None, graders=graders, metrics=RANGED)))
    assert ran.code == 1
    assert ran.state("gate[", "metric") == "failure"
    assert ran.state("gate[", "score") == "failure"
    assert words in ran.flat


def test_a_score_that_two_graders_give_is_invalid(bench: Bench) -> None:
    one = python("def grade(sample, item):\n    return {'scores': {'a': 0.0}}\n", metric_id="one")
    two = python("def grade(sample, item):\n    return {'scores': {'a': 1.0}}\n", metric_id="two")
    ran = bench.run(doc=suite(task(grader=None, graders=[one, two])))
    assert ran.code == 1
    assert ran.samples[0]["scores"] == {"a": 0.0, "two": 0.0}
    assert ran.samples[0]["judge"]["invalid"]["reason"] == "wrong_type"


def test_batch_that_never_ends(bench: Bench) -> None:
    source = "def grade_batch(samples):\n    while True:\n        pass\n"
    grader = python(source, contract="batch", timeout_seconds=1)
    ran = bench.run(doc=suite(task(grader=grader, metrics=gate(0.0))))
    assert ran.state("gate[") == "failure"
    assert "timeout_seconds=1" in ran.text


def test_batch_with_many_metrics(bench: Bench) -> None:
    source = "def grade_batch(samples):\n    return {'metrics': {f'm{n}': 1.0 for n in range(100000)}}\n"
    ran = bench.run(doc=suite(task(grader=python(source, contract="batch"), metrics=gate(1.0, "m7"))))
    assert ran.code == 0
    assert list(ran.group["metrics"]) == ["m7"]
    assert len(ran.group["dropped_metrics"]) == 99_999


def test_a_group_of_errors_alone_is_not_batched(bench: Bench) -> None:
    source = "def grade_batch(samples):\n    return {'metrics': {'score': 1.0}}\n"
    data = [{"question": "q", "gold": "1"}, {"question": "q", "gold": "1", "answer": None}]
    grader = python(source, contract="batch")
    ran = bench.run(doc=suite(task(grader=grader, metrics=gate(0.0), dataset={"rows": data}, allow_errors=1.0)))
    assert ran.code != 0


def test_sample_threshold_on_what_a_batch_grader_sets(each_mode: Bench) -> None:
    metrics = [{"id": "right", "sample_threshold": 1.0}]
    ran = each_mode.run(doc=suite(task(grader=python(UPDATES, contract="batch"), metrics=metrics)))
    assert ran.state("gate[", "right") == "failure"
    assert "3" in next(case.find("failure").get("message") for name, case in ran.cases.items() if "gate[" in name)  # type: ignore[union-attr]


@pytest.mark.parametrize("model", [MODEL, "recorded:reply"])
def test_a_column_that_the_row_preprocessor_drops_is_missing(bench: Bench, model: str) -> None:
    source = "def transform(row):\n    return {'q': row['question'], 'answer': row['answer'], 'reply2': row['reply']}\n"
    data = [{**row, "reply": "1"} for row in FOUR]
    template = "{{q}}" if model != MODEL else "{{question}}"
    asked = task(
        preprocess={"type": "python", "source": source},
        dataset={"rows": data},
        prompt_template=template,
        target_template="",
        models=[model],
    )
    ran = bench.run(doc=suite(asked))
    assert ran.code == 2
    assert ('"question"' if model == MODEL else 'Did you mean "reply2"?') in ran.text


def test_a_row_preprocessor_that_fails_everywhere_errs_sample_by_sample(bench: Bench) -> None:
    ran = bench.run(
        doc=suite(task(preprocess={"type": "python", "source": "def transform(row):\n    return row['nothing']\n"}))
    )
    assert {sample["error"]["stage"] for sample in ran.samples} == {"preprocess"}


def test_row_preprocessor(each_mode: Bench) -> None:
    pre = {"type": "python", "source": "def transform(row):\n    row['n'] = 1 // len(row['hint'])\n    return row\n"}
    data = [{**FOUR[0], "hint": "x"}, {**FOUR[1], "hint": ""}]
    ran = each_mode.run(doc=suite(task(preprocess=pre, dataset={"rows": data}, prompt_template="{{n}} {{question}}")))
    assert ran.code == 1
    assert ran.state("answer-0]") == "passed"
    assert ran.state("answer-1]") == "error"
    assert ran.samples[1]["error"]["stage"] == "preprocess"
    assert ran.samples[0]["prompt"] == "1 q0"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return None", "None"),
        ("return [1, 2]", "row"),
        ("return []", "dropped all"),
        ("return [{'a': float('nan')}]", "transform_batch"),
        ("return [{'a': {1, 2}}]", "transform_batch"),
        ("return rows[0]", "list"),
        ("raise ValueError('no')", "ValueError: no"),
        ("while True: pass", "timeout_seconds"),
        ("return [dict(rows[0]) for i in range(10**7)]", "transform_batch"),
    ],
)
def test_batch_preprocessor_that_fails_is_a_collection_error(bench: Bench, body: str, words: str) -> None:
    pre = {
        "type": "python",
        "contract": "batch",
        "timeout_seconds": 2,
        "memory_mb": 128,
        "source": f"def transform_batch(rows):\n    {body}\n",
    }
    ran = bench.run(doc=suite(task(preprocess=pre, metrics=gate(0.0))))
    assert ran.code == 2
    assert words in ran.text


def test_fewshot_from_too_few_rows(bench: Bench) -> None:
    ran = bench.run(doc=suite(task(num_fewshot=4)))
    assert ran.code == 2
    assert "4" in ran.text


def test_epochs_are_means_of_rows(each_mode: Bench) -> None:
    ran = each_mode.run(doc=suite(task(epochs=3, metrics=gate(0.75))))
    assert ran.code == 0
    assert len(ran.states) == 13
    assert ran.group["metrics"]["score"]["n"] == 12
    assert ran.group["metrics"]["score"]["by_epoch"] == [0.75, 0.75, 0.75]
    assert [sample["id"] for sample in ran.samples[:3]] == ["0-e1", "0-e2", "0-e3"]


def test_autouse_fixtures_run_before_anything(each_mode: Bench) -> None:
    each_mode.write(
        "suites/conftest.py",
        """
        import pytest
        STARTED = []
        @pytest.fixture(scope="session", autouse=True)
        def application():
            STARTED.append(1)
            yield
        def pytest_evalgrader_generate(model, request):
            return str(len(STARTED))
        """,
    )
    doc = suite(task(dataset={"rows": rows(("1", ""), ("1", ""))}), run={"models": ["house:m"]})
    ran = each_mode.run(doc=doc)
    assert ran.code == 0, ran.text
    assert {sample["output_text"] for sample in ran.samples} == {"1"}


def test_a_fixture_that_fails_is_an_error_with_a_record(bench: Bench) -> None:
    bench.write(
        "suites/conftest.py",
        "import pytest\n@pytest.fixture(autouse=True)\ndef application():\n    raise RuntimeError('did not start')\n",
    )
    ran = bench.run(doc=suite(task(metrics=gate(0.1))))
    assert ran.code == 1
    assert ran.state("answer-0]") == "error"
    assert ran.state("gate[") == "failure"
    assert ran.samples[0]["outcome"] == "error"


def test_a_worker_that_dies_loses_one_sample(bench: Bench) -> None:
    bench.mode = "-n 2"
    bench.write(
        "conftest.py",
        """
        import os
        def pytest_evalgrader_grader(key):
            def grade(sample, item):
                if item["question"] == "q5":
                    os._exit(3)
                return 1.0
            return grade
        """,
    )
    doc = suite(
        task(
            grader={"type": "custom", "key": "deadly"},
            dataset={"rows": rows(*[("a", "a")] * 8)},
            metrics=gate(0.1, "deadly"),
        )
    )
    ran = bench.run(doc=doc, subprocess=True)
    assert ran.code == 1
    assert ran.state("gate[") == "failure"
    assert ran.state("answer-5]") == "error"
    assert ran.state("answer-7]") == "passed"
    assert len(ran.samples) == 7


def test_the_last_attempt_of_a_rerun_counts(each_mode: Bench) -> None:
    each_mode.write(
        "conftest.py",
        """
        SEEN = {}
        def pytest_evalgrader_grader(key):
            def grade(sample, item):
                SEEN[sample["sample_id"]] = SEEN.get(sample["sample_id"], 0) + 1
                return 1.0 if SEEN[sample["sample_id"]] == 2 else "flaky"
            return grade
        """,
    )
    ran = each_mode.run(
        "suites", "--reruns", "2", doc=suite(task(grader={"type": "custom", "key": "k"}, metrics=gate(1.0, "k")))
    )
    assert ran.code == 0, ran.text
    assert len(ran.samples) == 4
    assert ran.group["request_counts"]["invalid"] == 0


def test_a_rootdir_elsewhere(bench: Bench) -> None:
    bench.write("project/suites/s.json", suite(task(metrics=gate(0.7))))
    bench.write("root/pytest.ini", "[pytest]\n")
    ran = bench.run("project/suites", "--rootdir=root")
    assert ran.code == 0, ran.text
    assert len(ran.states) == 5
