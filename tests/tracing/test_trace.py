import msgspec
import pytest

from perdure import ConfigError, SessionNotFound
from perdure.core.event import Custom, Entry, RunStarted, ToolProgress, Unknown
from perdure.stores.memory import MemoryStore
from perdure.tracing.trace import Trace, build_trace_entries, read_trace, trace_session
from perdure.tracing.trace_entry import RequestSnapshot, TraceMeta, encode_data
from tests.tracing.sample_traces import START, coding_session

TRACE = coding_session().live()


def test_a_document_and_its_lines_say_the_same():
    document = TRACE.to_json()
    assert (document["format"], document["started_at"], document["missing"]) == ("perdure-trace", START, 0)
    assert document["meta"]["session_id"] == "0197d2c4ab12"
    lines = [msgspec.json.decode(line) for line in TRACE.to_jsonl().splitlines()]
    assert lines[1:] == document["entries"]
    assert lines[1] == {
        "seq": 0,
        "dt": 0.0,
        "source": "agent",
        "data": {"kind": "session_opened", "session_id": "0197d2c4ab12", "entries": 0, "run_id": "r1"},
    }


@pytest.mark.parametrize("text", [TRACE.to_jsonl(), msgspec.json.encode(TRACE.to_json())])
def test_a_trace_can_be_read_back(text):
    read = read_trace(text)
    assert read.to_jsonl() == TRACE.to_jsonl()
    assert read.format_tree() == TRACE.format_tree()


def test_a_file_that_was_cut_off_has_all_but_its_last_line():
    assert len(read_trace(TRACE.to_jsonl()[:-20]).entries) == len(TRACE.entries) - 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "this is no trace"),
        ("[]", "this is no trace"),
        ('{"format": "other"}\n{}\n', "format 'other'"),
        ('{"format": "perdure-trace", "version": 9}\n{}\n', "version 9"),
        ('{"format": "perdure-trace", "version": 1, "started_at": 0}\nnonsense\n', "this is no trace"),
        ('{"format": "perdure-trace", "version": 1}\n', "this is no trace"),
    ],
)
def test_anything_else_is_refused(text, told):
    with pytest.raises(ConfigError, match=told):
        read_trace(text)


async def test_a_session_that_does_not_exist_cannot_be_traced():
    with pytest.raises(SessionNotFound, match="'nope'"):
        await trace_session(MemoryStore(), "nope")


def test_the_timeline_has_a_line_for_each_entry_and_can_be_filtered():
    lines = TRACE.format(max_value_length=20).splitlines()
    assert len(lines) == len(TRACE.entries)
    assert lines[0].split() == ["0.000", "agent", "session_opened", "session_id=0197d2c4ab12", "entries=0", "run_id=r1"]
    assert {line.split()[1] for line in TRACE.format(sources=["model"]).splitlines()} == {"model"}
    assert all(len(part) < 60 for part in lines[2].split("=")[1:])


def test_what_json_lacks_is_still_written():
    odd = [
        ToolProgress("c", "t", {"value": object(), "number": float("nan")}, run_id="r"),
        Custom("x", {1, 2}),
        Unknown("newer_kind", {"kind": "newer_kind", "a": 1}),
    ]
    for event in odd:
        assert b"kind" in encode_data(event)
    assert b"temperature" in encode_data(RequestSnapshot(system="temperature", tools=({"bad": object()},)))  # type: ignore[arg-type]
    trace = Trace(build_trace_entries([(1.0, each, 0) for each in odd]))
    assert read_trace(trace.to_jsonl()).entries[2].data == odd[2]


def test_an_empty_trace_has_all_views():
    trace = Trace([], TraceMeta(session_id="empty"))
    assert (trace.started_at, trace.duration_seconds, trace.runs, trace.trajectory(), trace.disclosure()) == (
        *(0.0, 0.0),
        *([], [], []),
    )
    assert (trace.format(), trace.format_trajectory(), trace.format_disclosure()) == ("", "", "")
    assert "empty" in trace.format_tree() + trace.to_html()


def test_the_trace_of_a_log_knows_the_numbers_of_its_entries():
    trace = Trace.from_log([Entry(7, 3.0, RunStarted("a", run_id="r"))], "s")
    assert [(each.log_seq, each.t, each.dt, each.label) for each in trace.entries] == [(7, 3.0, 0.0, "run_started")]
    assert (trace.meta.session_id, trace.meta.agent) == ("s", "a")
