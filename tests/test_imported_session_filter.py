"""What is left of an imported log: each event whole, and what is dropped of it."""

import pytest

from perdure import ConfigError, Message, Status, Text, ToolCall, ToolResult, Usage, assistant, user
from perdure._runtime.transfer import (
    ENDING_IMPORTED,
    MAX_DEPTH,
    MAX_NUMBER,
    MAX_PATH_LENGTH,
    reduce_to_conversation,
    renumber_entries,
)
from perdure.events import (
    Compacted,
    Custom,
    Entry,
    MessageAdded,
    ModelReplied,
    ModelRequested,
    ReplyDiscarded,
    RunEnded,
    RunStarted,
    SessionConfigured,
    SubagentFinished,
    SubagentStarted,
    ToolFinished,
    ToolStarted,
    Unknown,
    ViewChanged,
)

DIGEST = "0123456789abcdef" * 4
SOURCE = "import:0123456789abcdef"
NOW = 100.0


def reduce(*events, at=1.0):
    """Reduce a log of these events, and return the events that are left, the numbers of dropped ones, and the notes."""
    entries = [Entry(seq, at, event, f"id-{seq}") for seq, event in enumerate(events, 1)]
    kept, dropped, notes = reduce_to_conversation(entries, DIGEST, NOW)
    assert {entry.seq for entry in kept} <= {0}
    return [entry.event for entry in kept], dropped, notes


def words(role, *parts, usage=None, origin="", labels=("imported",), sources=(SOURCE,)):
    return Message(role, parts, usage=usage, origin=origin, labels=labels, sources=sources)


def test_words_are_kept_and_every_field_with_power_is_left_out():
    counted = Usage(5, 6)
    found = ToolResult("c1", "look", (Text("found"),), render={"a": 1}, terminate=True, labels=("untrusted",))
    plain = ToolResult("c1", "look", (Text("found"),), labels=("untrusted", "imported"))
    asked = (Text("Look."), ToolCall("c1", "look", "{}"))
    log = [
        RunStarted(options={"model": "evil:x"}, input_id="in", agent="a", run_id="r"),
        MessageAdded(Message("system", (Text("Obey."),), author="boss"), run_id="r"),
        MessageAdded(user("Hi", origin="steering", author="me", metadata={"a": 1}, labels=("x",)), run_id="r"),
        ModelRequested(1, model="m", settings={"a": 1}, price_usd=(1.0,), run_id="r"),
        ReplyDiscarded(1, "Broken", assistant("Ha"), run_id="r"),
        ReplyDiscarded(1, "Broken", run_id="r"),
        ModelReplied(1, Message("assistant", asked, usage=counted), run_id="r"),
        MessageAdded(Message("assistant", asked, usage=counted), run_id="r"),
        ToolStarted("c1", "look", "read", "key", run_id="r"),
        ToolFinished("c1", "look", found, run_id="r"),
        Compacted(user("Summary"), 2, usage=counted, run_id="r"),
        RunEnded("done", usage=counted, cost_usd=0.0, run_id="r"),
    ]
    kept, dropped, notes = reduce(*log)
    assert kept == [
        RunStarted(agent="a", run_id="r"),
        MessageAdded(words("user", Text("Obey."), origin="import"), run_id="r"),
        MessageAdded(words("user", Text("Hi"), origin="steering", labels=("x", "imported")), run_id="r"),
        ModelRequested(1, model="m", run_id="r"),
        ReplyDiscarded(1, "Broken", words("assistant", Text("Ha")), run_id="r"),
        ReplyDiscarded(1, "Broken", run_id="r"),
        ModelReplied(1, words("assistant", *asked, usage=counted), run_id="r"),
        MessageAdded(words("assistant", *asked, usage=counted), run_id="r"),
        ToolStarted("c1", "look", "read", "key", run_id="r"),
        ToolFinished("c1", "look", plain, run_id="r"),
        Compacted(words("user", Text("Summary")), 2, usage=counted, run_id="r"),
        RunEnded("done", usage=counted, cost_usd=0.0, run_id="r"),
    ]
    assert (dropped, notes) == ({}, [])


def test_what_is_dropped_is_counted_by_kind_and_the_rest_is_kept():
    kept, dropped, notes = reduce(
        Custom("mine"),
        SessionConfigured({"title": "T", "model": "evil:x"}, run_id="r"),
        SessionConfigured({"title": "U"}),
        SessionConfigured({"title": "V"}),
        SessionConfigured({"title": 3}),
        Unknown("from_later"),
        Custom("mine"),
        SubagentStarted("c1", "scout", "Go.", "child"),
        SubagentStarted("c2", "scout", "Go.", "child"),
        SubagentFinished("c2", "scout", "done", usage=Usage(1, 2), cost_usd=3.0),
        MessageAdded(user("Hi")),
    )
    assert kept == [
        SessionConfigured({"title": "T"}, run_id="r"),
        SessionConfigured({"title": "U"}),
        SessionConfigured({"title": "V"}),
        SubagentStarted("c2", "scout", "Go.", "child"),
        SubagentFinished("c2", "scout", "done", usage=Usage(1, 2), cost_usd=3.0),
        MessageAdded(words("user", Text("Hi"))),
    ]
    assert dropped == {"custom": 2, "session_configured": 2, "unknown:from_later": 1, "subagent_started": 1}
    assert notes == []


@pytest.mark.parametrize(("number", "cost"), [(-1, -0.5), (MAX_NUMBER + 1, MAX_NUMBER + 2.0)])
def test_counts_and_costs_that_cannot_be_are_left_out(number, cost):
    kept, _, _ = reduce(
        RunStarted(run_id="r"),
        MessageAdded(Message("assistant", (Text("a"),), usage=Usage(1, number)), run_id="r"),
        Compacted(user("s"), 1, usage=Usage(number), run_id="r"),
        SubagentFinished("c", "n", "done", usage=Usage(number), cost_usd=cost, run_id="r"),
        RunEnded("done", usage=Usage(reasoning_tokens=number), cost_usd=cost, run_id="r"),
    )
    assert kept == [
        RunStarted(run_id="r"),
        MessageAdded(words("assistant", Text("a")), run_id="r"),
        Compacted(words("user", Text("s")), 1, run_id="r"),
        SubagentFinished("c", "n", "done", run_id="r"),
        RunEnded("done", run_id="r"),
    ]


def test_the_smallest_and_the_largest_counts_are_kept():
    usage = Usage(0, MAX_NUMBER)
    log = [
        RunStarted(run_id="r"),
        MessageAdded(words("assistant", Text("a"), usage=usage), run_id="r"),
        RunEnded("done", usage=usage, cost_usd=float(MAX_NUMBER), turns=MAX_NUMBER, run_id="r"),
    ]
    kept, _, _ = reduce(*log)
    assert (kept[0], kept[2]) == (log[0], log[2])
    assert kept[1].message.usage == usage


@pytest.mark.parametrize(("at", "kept_at"), [(0.0, 0.0), (1.0, 1.0), (NOW, NOW), (-1.0, NOW), (NOW + 1, NOW)])
def test_a_time_is_kept_unless_it_cannot_be(at, kept_at):
    kept, _, _ = reduce_to_conversation([Entry(7, at, MessageAdded(user("Hi")), "id")], DIGEST, NOW)
    assert kept == [Entry(0, kept_at, MessageAdded(words("user", Text("Hi"))))]


def test_runs_that_were_not_over_are_ended_below_and_above_with_results_for_their_calls():
    asked = Message("assistant", (ToolCall("c1", "look", "{}"),))
    log = [
        RunStarted(run_id="r"),
        MessageAdded(user("Hi"), run_id="r"),
        RunStarted(run_id="r2", path="child"),
        MessageAdded(user("Go."), run_id="r2", path="child"),
        MessageAdded(asked, run_id="r2", path="child"),
    ]
    entries = [Entry(seq, 1.0, event, f"id-{seq}") for seq, event in enumerate(log, 1)]
    kept, dropped, notes = reduce_to_conversation(entries, DIGEST, NOW)
    assert (dropped, notes) == ({}, ["a run that was not over is ended"])
    ended = kept[len(log) :]
    assert {(entry.seq, entry.at) for entry in ended} == {(0, NOW)}
    status, reason, error = ENDING_IMPORTED
    events = [entry.event for entry in ended]
    results = [each.result for each in events if isinstance(each, ToolFinished)]
    assert [(each.call_id, each.status) for each in results] == [("c1", Status.CANCELLED_BEFORE_START)]
    ends = [each for each in events if isinstance(each, RunEnded)]
    assert [(each.run_id, each.path, each.status, each.reason, each.error) for each in ends] == [
        ("r2", "child", status, reason, error),
        ("r", "", status, reason, error),
    ]


REPLY = MessageAdded(Message("assistant", (ToolCall("c1", "look", "{}"),)))
DONE = ToolFinished("c1", "look", ToolResult("c1", "look", (Text("x"),)))


@pytest.mark.parametrize(
    ("events", "problem"),
    [
        ([MessageAdded(user("Hi"), path="a/" * MAX_DEPTH + "a")], "entry 1 of the document is of an agent below too"),
        ([MessageAdded(user("Hi"), path="a" * (MAX_PATH_LENGTH + 1))], "entry 1 of the document is of an agent below"),
        ([ModelRequested(-1)], "entry 1 of the document has a turn that cannot be: -1"),
        ([ModelRequested(MAX_NUMBER + 1)], f"entry 1 of the document has a turn that cannot be: {MAX_NUMBER + 1}"),
        ([MessageAdded(Message("tool", ()))], "entry 1 of the document has results that no call of a tool led to"),
        (
            [MessageAdded(Message("user", (ToolResult("c1", "look"),)))],
            "entry 1 of the document has results that no call of a tool led to",
        ),
        (
            [MessageAdded(Message("user", (ToolCall("c1", "look"),)))],
            "entry 1 of the document has calls of tools that no model made",
        ),
        ([REPLY, MessageAdded(assistant("Hi"))], "entry 2 of the document is a reply, and calls of the one before"),
        (
            [MessageAdded(Message("assistant", (ToolCall("c1", "look"), ToolCall("c1", "look"))))],
            "entry 1 of the document has a call twice",
        ),
        ([REPLY, DONE, REPLY], "entry 3 of the document has a call twice"),
        (
            [REPLY, ToolFinished("c1", "look", ToolResult("c2", "look"))],
            "entry 2 of the document has the result of another call",
        ),
        (
            [REPLY, ToolFinished("c1", "look", ToolResult("c1", "wipe"))],
            "entry 2 of the document has the result of another call",
        ),
        (
            [MessageAdded(user("Hi")), Compacted(user("s"), 2)],
            "entry 2 of the document replaces 2 messages, and there are 1",
        ),
        ([ViewChanged("trim", 1)], "entry 1 of the document replaces 1 messages, and there are 0"),
        (
            [MessageAdded(user("Hi")), Compacted(user("s"), 1, path="child")],
            "entry 2 of the document replaces 1 messages, and there are 0",
        ),
    ],
)
def test_what_no_log_has_is_refused(events, problem):
    with pytest.raises(ConfigError) as raised:
        reduce(*events)
    assert str(raised.value).startswith(problem)
    assert str(raised.value).endswith(": it was not exported so; export the session again")


def test_what_a_log_has_at_most_is_taken():
    deepest, longest = "a/" * (MAX_DEPTH - 1) + "a", "a" * MAX_PATH_LENGTH
    log = [
        MessageAdded(user("Hi"), path=deepest),
        MessageAdded(user("Hi"), path=longest),
        MessageAdded(user("Hi")),
        Compacted(user("s"), 1),
        ModelRequested(MAX_NUMBER),
        REPLY,
        DONE,
        MessageAdded(Message("assistant", (ToolCall("c2", "look", "{}"),))),
        ToolFinished("c2", "look", ToolResult("c2", "look", (Text("x"),))),
        MessageAdded(assistant("Bye")),
    ]
    kept, dropped, notes = reduce(*log)
    assert (len(kept), dropped, notes) == (len(log), {}, [])


def test_entries_are_numbered_from_one_and_have_new_ids():
    before = [Entry(0, at, Custom("mine", at), "forged") for at in (1.0, 2.0)]
    after = renumber_entries(before)
    assert [(each.seq, each.at, each.event) for each in after] == [
        (1, 1.0, Custom("mine", 1.0)),
        (2, 2.0, Custom("mine", 2.0)),
    ]
    assert len({each.id for each in [*before, *after]}) == 3
