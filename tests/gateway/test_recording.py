"""Recordings: keys, order, modes, cut files, locks, journals, the nearest request."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_evalgrader.errors import CallError
from pytest_evalgrader.gateway.recording import (
    Caller,
    Entry,
    Recording,
    RecordingStore,
    journal_of,
    load_recording,
    recording_path,
    request_digest,
)

from .conftest import KEY, Bench
from .server import FakeServer, Reply, responses

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
BODIES = st.dictionaries(st.text(max_size=5), JSON, max_size=4)
CALLER = Caller("t", "row1", "openai:m", 1)


def request(**body: Any) -> dict[str, Any]:
    return {"api": "responses", "model": "openai:m", "body": body}


def entry(text: str = "4", caller: Caller = CALLER, nth: int = 1, **body: Any) -> Entry:
    return Entry(request(**(body or {"input": "p"})), {"said": text}, caller, nth)


def shuffled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(value)}
    return [shuffled(inner) for inner in value] if isinstance(value, list) else value


@given(BODIES, BODIES)
def test_a_key_changes_exactly_when_the_request_does(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert request_digest(shuffled(request(**one))) == request_digest(request(**one))
    # Python's equality calls True and 1 equal; JSON does not.
    same = json.dumps(_whole(one), sort_keys=True) == json.dumps(_whole(other), sort_keys=True)
    assert (request_digest(request(**one)) == request_digest(request(**other))) is same


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _whole(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_whole(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@given(BODIES, JSON, st.text(max_size=8), st.integers(1, 100), st.integers(1, 5))
def test_an_entry_survives_a_round_trip(body: dict[str, Any], response: Any, sample: str, epoch: int, nth: int) -> None:
    before = Entry(request(**body), response, Caller("t", sample, "m", epoch), nth, ["note"])
    line = json.dumps(before.to_dict())
    assert Entry.from_dict(json.loads(line)) == before
    assert before.order() <= Entry.from_dict(json.loads(line)).order()


@given(st.lists(st.text(max_size=6), min_size=2, max_size=8))
def test_any_sample_ids_can_be_put_in_order(ids: list[str]) -> None:
    entries = [entry(caller=Caller("t", sample, "m", 1)) for sample in ids]
    backwards = entries[::-1]
    assert sorted(entries, key=Entry.order) == sorted(backwards, key=Entry.order)


def test_a_recording_beside_its_suite() -> None:
    assert recording_path(Path("suites/qa.json")) == Path("suites/recordings/qa.jsonl")


def test_the_callers_own_answer_wins_and_any_will_do() -> None:
    other = Caller("t", "row2", "openai:m", 1)
    recording = Recording(Path("r.jsonl"), [entry("own"), entry("other", other)])
    digest = request_digest(request(input="p"))
    found = [recording.find(digest, caller, 1) for caller in (CALLER, other, Caller("t", "new", "openai:m", 1))]
    assert [hit and hit.response["said"] for hit in found] == ["own", "other", "own"]
    assert recording.find(digest, CALLER, 2) is None
    assert recording.find(digest, CALLER._replace(epoch=2), 1) is None


def write(path: Path, *entries: Entry, mode: Any = "fill", run: str = "r") -> list[str]:
    store = RecordingStore(mode, run)
    for one in entries:
        store.append(str(path), one.to_dict())
    return store.finish()


def test_lines_are_stable_in_order_and_keys(tmp_path: Path) -> None:
    path = tmp_path / "recordings" / "s.jsonl"
    entries = [entry(caller=Caller("t", f"row{n}", "m", 1), input=f"p{n}") for n in (10, 2, 1)]
    assert write(path, *entries) == []
    first = path.read_bytes()
    assert [json.loads(line)["sample_id"] for line in first.splitlines()] == ["row1", "row2", "row10"]
    assert all(list(json.loads(line)) == sorted(json.loads(line)) for line in first.splitlines())
    assert not journal_of(path).exists()
    write(path, *reversed(entries))
    assert path.read_bytes() == first
    assert [file.name for file in path.parent.iterdir()] == ["s.jsonl"]


def test_fill_keeps_and_refresh_replaces_what_it_touched(tmp_path: Path) -> None:
    path = tmp_path / "recordings" / "s.jsonl"
    old = Caller("t", "old", "m", 1)
    write(path, entry("1"), entry("1", old), entry("1", input="untouched"))
    write(path, entry("2"))
    assert {e.response["said"] for e in load_recording(path) if e.caller == old} == {"1"}
    write(path, entry("3"), mode="refresh")
    recording = load_recording(path)
    assert sorted((e.request["body"]["input"], e.response["said"]) for e in recording) == [
        ("p", "3"),
        ("untouched", "1"),
    ]


def test_a_recording_that_is_cut_anywhere_keeps_its_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "recordings" / "s.jsonl"
    write(path, *[entry(caller=Caller("t", f"row{n}", "m", 1), input=f"p{n}") for n in range(3)])
    whole = path.read_bytes()
    ends = [at for at, byte in enumerate(whole) if byte == 10]
    for cut in range(0, len(whole), 7):
        path.write_bytes(whole[:cut])
        recording = load_recording(path)
        assert len(recording) == sum(end <= cut for end in ends)
        if recording.warnings:
            assert recording.warnings[0] in recording.explain_missing(request(input="x"), CALLER, 1)
        assert bool(recording.warnings) is (cut > 0 and cut - 1 not in ends and cut not in ends)


def test_other_broken_lines_are_told_with_their_number(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    good = json.dumps(entry().to_dict())
    path.write_text(f'{good}\n\n<<<<<<< HEAD\n{{"format": 1, "request": 3}}\n\xff\n', "latin-1")
    recording = load_recording(path)
    assert len(recording) == 1
    assert [warning.split(" (")[0] for warning in recording.warnings] == [
        "s.jsonl:3: a git conflict marker",
        "s.jsonl:4: a field is missing or of the wrong type; the line is left out",
        "s.jsonl:5: not JSON",
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            '{"format": 0, "x": 1}',
            r"s\.jsonl:1: .*format 0; this version reads format 1\. Move the file away and record",
        ),
        ('{"key": "abc", "response": {}}', "no format.*Move the file away"),
        ("[1]", "no format"),
        ('{"format": 99}', "newer than the 1.*Update pytest-evalgrader"),
    ],
)
def test_other_formats_say_what_to_do(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(CallError, match=words):
        load_recording(path)
    with pytest.raises(CallError, match=words):
        RecordingStore("fill", "r").claim(str(path))
    assert path.read_text() == line + "\n"


@pytest.mark.parametrize("what", ["NaN", "[" * 100_000 + "]" * 100_000])
def test_a_line_that_json_does_not_read_is_left_out(tmp_path: Path, what: str) -> None:
    path = tmp_path / "s.jsonl"
    good = json.dumps(entry().to_dict())
    path.write_text(f"{good.replace('{', '{' + f'{chr(34)}x{chr(34)}: {what}, ', 1)}\n{good}\n")
    recording = load_recording(path)
    assert len(recording) == 1
    assert recording.warnings == ["s.jsonl:1: not JSON (cut off or edited); the line is left out"]


def test_a_line_that_cannot_be_written_again_costs_no_other(tmp_path: Path) -> None:
    path = tmp_path / "recordings" / "s.jsonl"
    write(path, entry("12345"), entry(input="kept"))
    path.write_text(path.read_text().replace('"12345"', "1e999"))
    assert "sample row1: Out of range float values" in write(path, entry(input="new"))[0]
    assert sorted(e.request["body"]["input"] for e in load_recording(path)) == ["kept", "new"]


@pytest.mark.parametrize("response", [None, "x", [1], {}, 5, {"output": [None]}, {"choices": 5}, {"data": [5]}])
@pytest.mark.parametrize("mode", ["replay", "fill"])
def test_an_answer_edited_beyond_use_is_told(bench: Bench, server: FakeServer, mode: Any, response: Any) -> None:
    def asks(scope: Any) -> list[Any]:
        return [
            lambda: scope.generate("cand", prompt="p"),
            lambda: scope.responses("openai:j", {"input": "same"}),
            lambda: scope.embeddings("openai:e", {"input": "same"}),
        ]

    vectors = {"data": [{"index": 0, "embedding": [1.0]}]}
    server.answer = lambda request: Reply(vectors if request.path.endswith("embeddings") else responses("4"))
    for ask in asks(bench.scope(bench.gateway("fill", run_id="a"))):
        ask()
    bench.finish()
    lines = [json.loads(line) | {"response": response} for line in bench.recording.read_text().splitlines()]
    bench.recording.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for ask in asks(bench.scope(bench.gateway(mode, run_id="b"))):
        with pytest.raises(CallError, match=r"s\.jsonl: the recorded answer .*task sums, sample row0, is unusable"):
            ask()
    assert len(server.requests) == 3


@pytest.mark.parametrize("name", ["s.jsonl.journal", ".s.jsonl.tmp"])
def test_nothing_is_written_through_a_link(tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    outside.write_text("precious\n")
    path = tmp_path / "recordings" / "s.jsonl"
    path.parent.mkdir()
    (path.parent / name).symlink_to(outside)
    if name.endswith("journal"):
        with pytest.raises(CallError, match="cannot be written"):
            write(path, entry())
    else:
        write(path, entry())
        assert len(load_recording(path)) == 1
    assert outside.read_text() == "precious\n"


def test_two_runs_do_not_write_one_recording(tmp_path: Path) -> None:
    path = tmp_path / "recordings" / "s.jsonl"
    one, other = RecordingStore("fill", "a"), RecordingStore("fill", "b")
    one.append(str(path), entry().to_dict())
    with pytest.raises(CallError, match=r"another pytest run is writing the recording s\.jsonl"):
        other.claim(str(path))
    assert one.finish() == []
    other.append(str(path), entry("5", input="q").to_dict())
    other.finish()
    assert len(load_recording(path)) == 2


def test_the_journal_of_a_killed_run_counts(tmp_path: Path) -> None:
    path = tmp_path / "recordings" / "s.jsonl"
    killed = RecordingStore("fill", "killed")
    killed.append(str(path), entry("1").to_dict())
    # The process ends here: the lock goes, the file stays, perhaps with half a line.
    killed._journals.pop(str(path)).close()
    with open(journal_of(path), "a") as file:
        file.write('{"format": 1, "half')
    assert len(load_recording(path)) == 1
    assert len(load_recording(path, without_run="killed")) == 0
    warnings = write(path, entry("2", input="q"), run="next")
    assert len(warnings) == 1
    assert "s.jsonl.journal:2: not JSON" in warnings[0]
    assert sorted(e.response["said"] for e in load_recording(path)) == ["1", "2"]
    assert '"run"' not in path.read_text()


def test_a_run_that_records_nothing_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "recordings" / "s.jsonl"
    store = RecordingStore("fill", "r")
    store.claim(str(path))
    assert store.finish() == []
    assert not path.parent.exists()


def test_a_recording_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "recordings").write_text("a file")
    with pytest.raises(CallError, match=r"s\.jsonl cannot be (read|written)"):
        RecordingStore("fill", "r").claim(str(tmp_path / "recordings" / "s.jsonl"))


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"temperature": 0.7}, "differs in temperature (recorded 0.0, asked 0.7)."),
        ({"model": "openai:newer"}, 'differs in model (recorded "openai:m", asked "openai:newer").'),
        ({"top_p": 1}, "differs in top_p (recorded nothing, asked 1)."),
        ({"input": "What is the capital of Spain?"}, 'of France?", asked …"t is the capital of Spain?")'),
        ({"epoch": 3}, "recorded for epoch 1, not for epoch 3"),
        ({"nth": 2}, "recorded once in a sample, and this one asks it twice"),
    ],
)
def test_the_nearest_request_is_shown(asked: dict[str, Any], told: str) -> None:
    base = request(input="What is the capital of France?", temperature=0.0, text={"format": {"type": "text"}})
    far = request(input="Something else", temperature=0.7)
    recording = Recording(Path("s.jsonl"), [Entry(far, {}, CALLER, 1), Entry(copy.deepcopy(base), {}, CALLER, 1)])
    caller = CALLER._replace(epoch=asked.pop("epoch", 1))
    nth = asked.pop("nth", 1)
    model = asked.pop("model", base["model"])
    message = recording.explain_missing({**base, "model": model, "body": {**base["body"], **asked}}, caller, nth)
    assert message.startswith("no recorded response for this request")
    assert told in message
    assert message.endswith("Replay never calls a model; record with --evals-calls=fill.")


def test_without_anything_to_compare(tmp_path: Path) -> None:
    empty = Recording(tmp_path / "s.jsonl")
    assert "s.jsonl does not exist" in empty.explain_missing(request(input="p"), CALLER, 1)
    texts = Recording(tmp_path / "s.jsonl", [entry()])
    embedding = {"api": "embeddings", "model": "openai:e", "body": {"input": "p"}}
    assert "nor for any of its kind" in texts.explain_missing(embedding, CALLER, 1)


def test_fill_then_replay(bench: Bench, server: FakeServer) -> None:
    server.answer = lambda request: Reply(responses(f"{len(server.requests)}"))

    def ask(mode: Any, run_id: str) -> tuple[list[str], list[dict[str, Any]]]:
        gateway = bench.gateway(mode, run_id=run_id)
        scope = bench.scope(gateway)
        texts = [scope.generate("cand", prompt="p").output_text]
        texts += [scope.responses("openai:j", {"input": "same"})["output_text"] for _ in range(3)]
        bench.finish()
        return texts, scope.calls

    first = ask("fill", "a")
    assert first[0] == ["1", "2", "3", "4"]
    assert ask("fill", "b") == first
    assert ask("replay", "c") == first
    assert len(server.requests) == 4
    assert ask("refresh", "d")[0] == ["5", "6", "7", "8"]
    assert ask("replay", "e")[0] == ["5", "6", "7", "8"]
    assert ask("live", "f")[0] == ["9", "10", "11", "12"]
    assert ask("replay", "g")[0] == ["5", "6", "7", "8"]
    text = bench.recording.read_text()
    assert KEY not in text
    assert "127.0.0.1" not in text
    assert len(text.splitlines()) == 4


def test_equal_requests_of_two_samples_are_two_calls(bench: Bench, server: FakeServer) -> None:
    server.answer = lambda request: Reply(responses(f"{len(server.requests)}"))
    gateway = bench.gateway("fill")
    assert [bench.scope(gateway, s).generate("cand", prompt="p").output_text for s in "ab"] == ["1", "2"]
    bench.finish()
    gateway = bench.gateway("replay")
    assert [bench.scope(gateway, s).generate("cand", prompt="p").output_text for s in "abc"] == ["1", "2", "1"]


def test_a_number_too_large_for_a_float_can_be_recorded(bench: Bench, server: FakeServer) -> None:
    body = json.dumps(responses("4", score=12345)).replace("12345", "1e999").encode()
    server.answer = lambda request: Reply(body)
    assert bench.scope(bench.gateway("fill")).generate("cand", prompt="p").output_text == "4"
    assert bench.finish() == []
    assert bench.scope(bench.gateway("replay")).generate("cand", prompt="p").raw["score"] == "Infinity"


def test_what_json_cannot_hold_is_not_recorded(tmp_path: Path) -> None:
    store = RecordingStore("fill", "r")
    with pytest.raises(CallError, match="cannot be recorded"):
        store.append(str(tmp_path / "s.jsonl"), {"response": float("inf")})
    store.finish()


def test_errors_are_not_recorded(bench: Bench, server: FakeServer) -> None:
    server.answer = lambda request: Reply({}, 400)
    with pytest.raises(CallError):
        bench.scope(bench.gateway("fill")).generate("cand", prompt="p")
    bench.finish()
    assert not bench.recording.exists()


def test_a_missing_recording_is_an_error_that_names_both_models(bench: Bench, server: FakeServer) -> None:
    bench.scope(bench.gateway("fill")).generate("cand", prompt="p")
    bench.finish()
    with pytest.raises(CallError, match=r"openai:cand.*openai:newer") as caught:
        bench.scope(bench.gateway("replay")).generate("openai:newer", prompt="p")
    assert caught.value.type_name == "MissingRecording"
    assert len(server.requests) == 1


def test_endpoints_are_recorded_without_headers(bench: Bench, server: FakeServer) -> None:
    server.answer = lambda request: Reply({"reward": 0.5})
    scope = bench.scope(bench.gateway("fill"))
    scope.endpoint(server.url + "/?token=hidden-token", "score", {"turns": []})
    bench.finish()
    assert "hidden-token" not in bench.recording.read_text()
    scope = bench.scope(bench.gateway("replay"))
    assert scope.endpoint(server.url + "/?token=other", "score", {"turns": []}) == {"reward": 0.5}
    assert len(server.requests) == 1


def test_empty_answers_are_replayed_as_they_came(bench: Bench, server: FakeServer) -> None:
    server.answer = lambda request: Reply(responses("" if request.nth == 1 else "4"))
    settings = {"max_empty_retries": 2}
    bench.scope(bench.gateway("fill")).generate("cand", prompt="p", generation=settings)
    bench.finish()
    scope = bench.scope(bench.gateway("replay"))
    assert scope.generate("cand", prompt="p", generation=settings).output_text == "4"
    assert scope.usage["model_calls"] == 2


def test_use_cache_false_asks_anew_in_fill(bench: Bench, server: FakeServer) -> None:
    for run in "ab":
        bench.scope(bench.gateway("fill", run_id=run)).generate("cand", prompt="p", generation={"use_cache": False})
        bench.finish()
    assert len(server.requests) == 2
    scope = bench.scope(bench.gateway("replay"))
    assert scope.generate("cand", prompt="p", generation={"use_cache": False}).output_text == "4"


def test_what_was_adapted_is_told_again_in_replay(bench: Bench, server: FakeServer) -> None:
    error = {"error": {"message": "'temperature' is not supported", "param": "temperature"}}
    server.answer = lambda request: Reply(error, 400) if "temperature" in request.body else Reply(responses("4"))
    notes = []
    for mode in ("fill", "replay"):
        scope = bench.scope(bench.gateway(mode))
        notes.append(scope.generate("cand", prompt="p", generation={"temperature": 0}).notes)
        bench.finish()
    assert notes == [["openai:cand does not take temperature; it was not sent"]] * 2
