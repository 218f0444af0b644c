from __future__ import annotations

import json
import math
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from pytest_evalgrader.records import SampleRecord
from pytest_evalgrader.reporting.files import RunWriter, read_run, read_samples


def line(index: int, **more: Any) -> str:
    return SampleRecord(f"row{index}", "run", "n", "s.json", "t", "m", index, 1, outcome="passed", **more).to_json()


def ids(path: Path) -> list[str]:
    return [record["id"] for record in read_samples(path)]


def test_records_are_there_as_soon_as_they_arrive(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "made" / "here")
    for index in (2, 0):
        writer.append(line(index))
        assert ids(tmp_path / "made" / "here")[-1] == f"row{index}"
    writer.close()


def test_the_end_of_a_run_puts_samples_in_order_one_line_for_each(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path)
    first_try = writer.append(line(0, scores={"score": 0.0}))
    offsets = {index: writer.append(line(index, scores={"score": 1.0})) for index in (2, 1, 0)}
    assert writer.read(first_try) == line(0, scores={"score": 0.0})
    updates = {offsets[1]: {"scores": {"right": 1.0}, "judge": {"seen": 3}, "extracted_output": "<9>"}}
    writer.finish([offsets[index] for index in (0, 1, 2)], updates)
    writer.close()
    records = list(read_samples(tmp_path))
    assert [record["id"] for record in records] == ["row0", "row1", "row2"]
    assert records[0]["scores"] == {"score": 1.0}
    assert records[1]["scores"] == {"score": 1.0, "right": 1.0}
    assert (records[1]["judge"], records[1]["extracted_output"]) == ({"seen": 3}, "<9>")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["samples.jsonl"]


def test_a_null_judge_of_an_update_clears_it(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path)
    offset = writer.append(line(0, judge={"why": "x"}))
    writer.finish([offset], {offset: {"judge": None}})
    writer.close()
    assert next(read_samples(tmp_path))["judge"] is None


def test_without_a_folder_nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    writer = RunWriter(None)
    offset = writer.append(line(0))
    assert writer.read(offset) == writer.read(offset, len(line(0))) == line(0)
    writer.finish([offset], {offset: {"scores": {"x": 1.0}}})
    writer.write_run({"object": "eval.run"})
    writer.close()
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_runs_summary_never_stands_beside_new_samples(tmp_path: Path) -> None:
    earlier = RunWriter(tmp_path)
    earlier.finish([earlier.append(line(0))])
    earlier.write_run({"object": "eval.run", "id": "earlier"})
    earlier.close()
    (tmp_path / "notes.txt").write_text("mine")
    later = RunWriter(tmp_path)
    assert read_run(tmp_path) is None
    assert ids(tmp_path) == []
    assert (tmp_path / "notes.txt").read_text() == "mine"
    later.close()


def test_run_json_is_strict_json(tmp_path: Path) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    writer = RunWriter(tmp_path)
    writer.write_run({"value": math.nan, "ci95": (-math.inf, 1.0), "name": "half \ud83d", 3: [True, None]})
    writer.close()
    text = (tmp_path / "run.json").read_bytes().decode("utf-8")
    assert json.loads(text, parse_constant=refuse) == {
        "value": None,
        "ci95": [None, 1.0],
        "name": "half \ud83d",
        "3": [True, None],
    }


def test_a_run_that_cannot_be_written_leaves_the_samples(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path)
    writer.append(line(0))
    with pytest.raises(TypeError):
        writer.write_run({"bad": object()})
    assert ids(tmp_path) == ["row0"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["samples.jsonl"]
    writer.close()


@pytest.mark.parametrize("text", ["two\nlines", '{"q": "é"}'])
def test_what_is_no_line_of_ascii_is_refused(tmp_path: Path, text: str) -> None:
    writer = RunWriter(tmp_path)
    with pytest.raises(ValueError, match="one line of ASCII"):
        writer.append(text)
    writer.close()


def test_several_threads_may_append_and_read(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path)
    found: dict[int, int] = {}

    def work(start: int) -> None:
        for index in range(start, start + 200):
            found[index] = writer.append(line(index))
            assert json.loads(writer.read(found[index]))["sample_index"] == index

    threads = [threading.Thread(target=work, args=(start,)) for start in (0, 1000, 2000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.finish([found[index] for index in sorted(found)])
    writer.close()
    assert ids(tmp_path) == [f"row{index}" for index in sorted(found)]


@pytest.mark.parametrize("cut", [1, 10, 200])
def test_half_a_run_shows_every_finished_sample(tmp_path: Path, cut: int) -> None:
    whole = f"{line(0)}\n{line(1)}\n"
    (tmp_path / "samples.jsonl").write_text(whole + line(2)[:-cut])
    assert ids(tmp_path) == ["row0", "row1"]
    assert read_run(tmp_path) is None


def test_a_killed_process_leaves_all_that_was_finished(tmp_path: Path) -> None:
    program = f"""
        import os, signal
        from pathlib import Path
        from pytest_evalgrader.reporting.files import RunWriter
        writer = RunWriter(Path({str(tmp_path)!r}))
        for _ in range(50):
            writer.append({line(0)!r})
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == -9
    assert len(ids(tmp_path)) == 50


@pytest.mark.parametrize("broken", ["not json", "[1]", '{"object": "other"}'])
def test_a_file_that_is_no_run_is_named(tmp_path: Path, broken: str) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text(f"{line(0)}\n{broken}\n{line(1)}\n")
    with pytest.raises(ValueError, match=r"samples\.jsonl:2"):
        ids(path)


@pytest.mark.parametrize("broken", ["{", "[1]"])
def test_a_run_json_that_is_broken_is_named(tmp_path: Path, broken: str) -> None:
    (tmp_path / "run.json").write_text(broken)
    with pytest.raises(ValueError, match=r"run\.json"):
        read_run(tmp_path)
