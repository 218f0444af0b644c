"""What pytest's own JUnit writer makes of our failures and properties, however hostile the texts are."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from pytest_evalgrader.gates import GateVerdict
from pytest_evalgrader.records import SampleRecord
from pytest_evalgrader.reporting.junit import gate_properties, sample_properties

SCHEMA = Path(__file__).parent / "junit.xsd"
WAYS = ["", "-n 0", "-n 2", "-p no:xdist"]

# Items that report as the plugin's do, without a suite, a model or a grader.
CONFTEST = r"""
import pytest
from pytest_evalgrader.gates import GateVerdict
from pytest_evalgrader.records import SampleRecord
from pytest_evalgrader.reporting import failures, junit

HOSTILE = "\x00 \x1b[31mred\x1b[0m \x07 \x0b \ufffe \uffff ]]> \ud83d <&\"' \u2028\r\n\t"
TEXT = HOSTILE + "x" * SIZE + "é漢<&" * (SIZE // 4)


class Fault(Exception):
    pass


class Sample(pytest.Item):
    def __init__(self, *, index, **more):
        super().__init__(**more)
        self.index = index
        wrong = {"invalid": {"reason": "exception", "raw": TEXT, "message": TEXT}}
        self.record = SampleRecord(
            TEXT if index == 0 else "row", "run", self.nodeid, "s.json", "sums", HOSTILE, index, 1 + index % 2,
            outcome="failed", prompt=TEXT, target=TEXT, output_text=TEXT, extracted_output=HOSTILE,
            scores={TEXT: 0.0, HOSTILE: 1.0, "score": 0.5}, judge=wrong, response_id=TEXT,
            error={"stage": "generate", "type": HOSTILE, "message": TEXT},
        )

    def setup(self):
        self.user_properties += junit.sample_properties(self.record)
        if self.index == 1:
            raise Fault("setup")

    def runtest(self):
        self.add_report_section("call", "stdout", "printed")
        if self.index == 2:
            return
        raise Fault("call")

    def repr_failure(self, excinfo, style=None):
        return failures.error_failure(self.record) if self.index == 1 else failures.invalid_failure(self.record)

    _repr_failure_py = repr_failure


class Gate(pytest.Item):
    verdict = GateVerdict(HOSTILE, "failed", None, {"min": 0.5}, 0, TEXT, ">= 0.50")

    def runtest(self):
        self.user_properties += junit.gate_properties(self.verdict, task_id="sums", model=HOSTILE)
        raise Fault("gate")

    def repr_failure(self, excinfo):
        return failures.gate_failure(self.verdict, suite="s.json", task_id="sums", model=HOSTILE)


class File(pytest.File):
    def collect(self):
        for index in range(COUNT):
            yield Sample.from_parent(self, name=f"sample[m-{index}]", index=index)
        yield Gate.from_parent(self, name="gate[m-score]")


def pytest_collect_file(file_path, parent):
    if file_path.suffix == ".json":
        return File.from_parent(parent, path=file_path)
"""


def write_junit(pytester: pytest.Pytester, way: str, *, size: int, count: int) -> Path:
    pytester.makeconftest(f"SIZE = {size}\nCOUNT = {count}\n{CONFTEST}")
    pytester.makefile(".json", s="{}")
    options = ["--junitxml=junit.xml", "-o", "junit_logging=all", "-q", "-p", "no:cacheprovider", *way.split()]
    result = pytester.runpytest_subprocess(*options) if way == "-n 2" else pytester.runpytest_inprocess(*options)
    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=count - 1, errors=1)
    return pytester.path / "junit.xml"


@pytest.mark.parametrize("way", WAYS)
def test_hostile_texts_make_valid_junit(pytester: pytest.Pytester, way: str) -> None:
    path = write_junit(pytester, way, size=1_000, count=4)
    etree.XMLSchema(etree.parse(SCHEMA)).assertValid(etree.parse(path))
    cases = {case.get("name"): case for case in ET.parse(path).iter("testcase")}
    failed = cases["sample[m-0]"].find("failure")
    assert failed is not None
    assert failed.text is not None
    assert r"\x00 \x1b[31mred\x1b[0m \x07 \x0b \ufffe \uffff ]]> \ud83d" in failed.text
    assert '"reason": "exception"' in failed.text
    error = cases["sample[m-1]"].find("error")
    assert error is not None
    assert (error.get("message") or "").startswith('failed on setup with "generate: ')
    properties = {entry.get("name"): entry.get("value") for entry in cases["sample[m-2]"].iter("property")}
    assert properties["eval.task_id"] == "sums"
    assert properties["eval.sample_index"] == "2"
    assert properties["eval.score.score"] == "0.5"
    gate = {entry.get("name"): entry.get("value") for entry in cases["gate[m-score]"].iter("property")}
    assert (gate["eval.threshold"], gate["eval.n"], gate["eval.value"]) == (">= 0.50", "0", "")


def test_huge_outputs_stay_small_and_are_read_by_default_parsers(pytester: pytest.Pytester) -> None:
    path = write_junit(pytester, "", size=1_000_000, count=40)
    assert path.stat().st_size < 42 * 60_000
    etree.parse(path)
    for case in ET.parse(path).iter("testcase"):
        failure = case.find("failure")
        assert failure is None or len((failure.text or "").encode()) <= 10_240


@settings(max_examples=40)
@given(st.dictionaries(st.text(), st.floats(allow_nan=False)), st.text())
def test_properties_of_any_names_are_xml(scores: dict[str, float], model: str) -> None:
    record = SampleRecord("id", "run", "n", "s.json", "t", model, 0, 1, scores=scores)
    for name, value in sample_properties(record):
        element = ET.Element("property", name=name, value=value)
        assert ET.fromstring(ET.tostring(element)).get("value") is not None


def test_many_scores_are_cut_with_a_word() -> None:
    record = SampleRecord("id", "run", "n", "s.json", "t", "m", 0, 1, scores={f"s{i}": 0.0 for i in range(5_000)})
    found = sample_properties(record)
    assert len(found) < 120
    assert ("eval.scores_cut", "4,900 more scores are in samples.jsonl") in found


def test_a_gates_properties() -> None:
    verdict = GateVerdict("f1", "passed", 0.75, {"min": 0.7}, 4, "f1 >= 0.70 met: 0.750 (n=4).", ">= 0.70")
    assert gate_properties(verdict, task_id="sums", model="recorded:answer") == [
        ("eval.model", "recorded:answer"),
        ("eval.task_id", "sums"),
        ("eval.metric", "f1"),
        ("eval.value", "0.75"),
        ("eval.threshold", ">= 0.70"),
        ("eval.n", "4"),
        ("eval.reason", "f1 >= 0.70 met: 0.750 (n=4)."),
    ]
