import msgspec
import pytest

from perdure import ConfigError, SessionNotFound
from perdure._tracing.collect.entry import NonEventTraceData, encode_data
from perdure._tracing.view.trace import build_trace_entries, merge_trace_meta
from perdure.events import Custom, Entry, Event, ModelRequested, RunStarted, SessionOpened, ToolProgress, Unknown
from perdure.models import ToolSpec
from perdure.stores import MemoryStore
from perdure.tracing import (
    EntriesMissing,
    FirstDelta,
    RawRequest,
    RequestSnapshot,
    Trace,
    TraceMeta,
    read_trace,
    trace_session,
)
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


def test_the_facts_about_a_session_are_the_last_that_its_own_agent_told():
    add = ToolSpec("add", "Add.", {})
    entries = build_trace_entries(
        [
            (0.0, SessionOpened("s", 0), 0),
            (0.0, RunStarted("a", run_id="r"), 1),
            (0.0, RunStarted("child", run_id="r/c", path="child"), 2),
            (0.0, ModelRequested(1, model="old", provider="p", settings={"seed": 1}, run_id="r"), 3),
            (0.0, ModelRequested(2, model="new", provider="q", settings={"seed": 2}, run_id="r"), 4),
            (0.0, ModelRequested(2, model="side", aside=True, run_id="r"), 5),
            (0.0, ModelRequested(1, model="small", run_id="r/c", path="child"), 6),
            (0.0, RequestSnapshot(system="Be brief.", tools=(add,)), 0),
            (0.0, RequestSnapshot(is_repeated=True), 0),
            (0.0, RawRequest(1, "POST", "http://127.0.0.1/v1"), 0),
        ]
    )
    expected = TraceMeta(
        session_id="s",
        agent="a",
        model="new",
        provider="q",
        base_url="http://127.0.0.1/v1",
        params={"seed": 2},
        system="Be brief.",
        tools=(add,),
    )
    assert merge_trace_meta(entries, TraceMeta(agent="known", system="known")) == expected
    assert merge_trace_meta([], TraceMeta(agent="known")) == TraceMeta(agent="known")
    assert Trace(entries).meta == expected


def test_entries_are_numbered_and_no_time_is_before_the_beginning():
    events: list[tuple[float, Event | NonEventTraceData, int]] = [
        (5.0, RunStarted("a", run_id="r"), 3),
        (6.5, FirstDelta("r"), 0),
        (4.0, Custom("x"), 4),
    ]
    entries = build_trace_entries(events, 7)
    assert [(each.seq, each.t, each.dt, each.source, each.log_seq) for each in entries] == [
        (7, 5.0, 0.0, "agent", 3),
        (8, 6.5, 1.5, "model", 0),
        (9, 4.0, 0.0, "agent", 4),
    ]
    trace = Trace(entries[:2])
    assert (trace.started_at, trace.duration_seconds, trace.to_json()["duration_seconds"]) == (5.0, 1.5, 1.5)


def test_what_is_missing_is_added_up():
    trace = Trace(build_trace_entries([(0.0, EntriesMissing(2), 0), (0.0, EntriesMissing(3), 0)]))
    assert (trace.missing, trace.to_json()["missing"]) == (5, 5)


def test_blank_lines_do_not_matter_and_a_trace_may_have_no_entries():
    header, *lines = TRACE.to_jsonl().splitlines()
    assert read_trace("\n\n".join([header, *lines]) + "\n\n").to_jsonl() == TRACE.to_jsonl()
    assert read_trace(msgspec.json.encode(Trace([]).to_json())).entries == []


def test_a_line_that_cannot_be_read_is_left_out_only_at_the_end_of_a_file_that_was_cut_off():
    header, first, *_ = TRACE.to_jsonl().splitlines()
    assert len(read_trace(f'{header}\n{first}\n{{"seq": 1').entries) == 1
    for text in (f'{header}\n{first}\n{{"seq": 1\n', f'{header}\n{{"seq": 1\n{first}\n'):
        with pytest.raises(ConfigError, match=r"^this is no trace \(.*\): give a file that perdure run --trace wrote$"):
            read_trace(text)


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ({"format": "other"}, "a file of format 'other' is no trace: give one of perdure run --trace"),
        ({"format": "perdure-trace"}, "this trace is of version None, and this is 1: upgrade perdure"),
        ({"format": "perdure-trace", "version": 2}, "this trace is of version 2, and this is 1: upgrade perdure"),
    ],
)
def test_a_file_of_another_kind_or_version_is_told_in_full(header, told):
    with pytest.raises(ConfigError) as refused:
        read_trace(msgspec.json.encode(header))
    assert str(refused.value) == told
