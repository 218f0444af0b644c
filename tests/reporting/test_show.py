from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import Any

import pytest

from pytest_evalgrader.records import SampleRecord
from pytest_evalgrader.reporting import show
from pytest_evalgrader.reporting.files import RunWriter


def record(index: int, **more: Any) -> SampleRecord:
    given: dict[str, Any] = {
        "outcome": "passed",
        "prompt": f"Work out {index}+{index}?",
        "target": str(2 * index),
        "output_text": f"It is {2 * index}",
        "extracted_output": str(2 * index),
        "scores": {"score": 1.0},
        **more,
    }
    nodeid = f"suites/s.json::sums::sample[m-{index}]"
    return SampleRecord(
        f"row{index}", "run", nodeid, "suites/s.json", given.pop("task_id", "sums"), "m", index, 1, **given
    )


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    wrong = {"invalid": {"reason": "boolean", "raw": True, "message": "The grader returned bool: True (boolean)."}}
    error = {"stage": "generate", "type": "MissingRecording", "message": "no recorded response \x1b[31m"}
    writer = RunWriter(tmp_path / "out")
    for sample in (
        record(0),
        record(1, outcome="failed", judge=wrong, scores={"score": 0.0}),
        record(2, outcome="error", error=error, output_text=None, extracted_output=None, scores={}),
        record(3, task_id="other"),
    ):
        writer.append(sample.to_json())
    writer.write_run({"object": "eval.run"})
    writer.close()
    return tmp_path / "out"


def shown(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    parser = argparse.ArgumentParser()
    show.add_arguments(parser)
    status = show.run(parser.parse_args([str(arg) for arg in args]))
    out, err = capsys.readouterr()
    return status, out, err


def test_a_sample_shows_all_that_happened_to_it(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = shown(capsys, run_dir, "--status", "failed")
    assert (status, err) == (0, "")
    assert (
        out
        == """\
--- suites/s.json::sums::sample[m-1]  FAILED
invalid:   boolean: The grader returned bool: True (boolean).
prompt:    Work out 1+1?
target:    2
output:    It is 2
extracted: 2
scores:    score 0
judge:
    {
      "invalid": {
        "reason": "boolean",
        "raw": true
      }
    }
"""
    )


def test_an_error_is_shown_with_its_stage(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = shown(capsys, run_dir, "--status", "error")
    assert status == 0
    assert out == (
        "--- suites/s.json::sums::sample[m-2]  ERROR\n"
        "error:     generate: MissingRecording: no recorded response \\x1b[31m\n"
        "prompt:    Work out 2+2?\n"
        "target:    4\n"
    )


@pytest.mark.parametrize(
    ("args", "found"),
    [
        ([], [0, 1, 2, 3]),
        (["--limit", "2"], [0, 1]),
        (["--task", "other"], [3]),
        (["--sample", "row2"], [2]),
        (["--model", "m", "--status", "passed"], [0, 3]),
    ],
)
def test_samples_are_chosen(
    run_dir: Path, capsys: pytest.CaptureFixture[str], args: list[str], found: list[int]
) -> None:
    status, out, _ = shown(capsys, run_dir, *args)
    assert status == 0
    assert [line.split("-")[-1][0] for line in out.splitlines() if line.startswith("---")] == [str(i) for i in found]


def test_no_sample_that_fits_is_said(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = shown(capsys, run_dir, "--task", "nothing")
    assert (status, out) == (1, "")
    assert "no sample" in err


def test_half_a_run_is_shown_and_said_to_be_half(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "samples.jsonl").write_text(record(0).to_json() + "\n" + record(1).to_json()[:50])
    status, out, err = shown(capsys, tmp_path)
    assert status == 0
    assert out.count("---") == 1
    assert "has not ended" in err


def test_long_texts_are_cut_unless_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "\n".join(f"line {i}" for i in range(2_000))
    (tmp_path / "samples.jsonl").write_text(record(0, output_text=text).to_json() + "\n")
    assert len(shown(capsys, tmp_path)[1].splitlines()) < 100
    assert "    line 1500\n" in shown(capsys, tmp_path, "--full")[1]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no samples.jsonl"),
        ("not json\n", "samples.jsonl:1"),
        ('{"object": "eval.sample"}\n', "no record of evalgrader"),
    ],
)
def test_a_folder_that_is_no_run_is_a_clean_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, words: str
) -> None:
    if content is not None:
        (tmp_path / "samples.jsonl").write_text(content)
    status, _, err = shown(capsys, tmp_path)
    assert status == 2
    assert words in err
    assert "Traceback" not in err


def test_a_folder_that_is_not_there_is_a_clean_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = shown(capsys, tmp_path / "nowhere")
    assert status == 2
    assert "nowhere" in err


@pytest.mark.parametrize("limit", ["0", "-1", "x"])
def test_a_bad_limit_is_a_usage_error(run_dir: Path, capsys: pytest.CaptureFixture[str], limit: str) -> None:
    with pytest.raises(SystemExit):
        shown(capsys, run_dir, f"--limit={limit}")
    assert "--limit" in capsys.readouterr().err


def test_a_terminal_without_unicode_is_no_trouble(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", out)
    (run_dir / "samples.jsonl").write_text(record(0, output_text="漢 …").to_json() + "\n")
    assert (
        show.run(
            argparse.Namespace(run_dir=run_dir, status=None, task=None, model=None, sample=None, limit=None, full=False)
        )
        == 0
    )
    out.flush()
    assert rb"\u6f22" in out.buffer.getvalue()  # type: ignore[attr-defined]
