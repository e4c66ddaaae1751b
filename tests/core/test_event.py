"""Events: their wire names, what lasts of them, and that JSON keeps them."""

from typing import get_args

import msgspec
import pytest
from hypothesis import given

from perdure import Message, Text, ToolResult, assistant, user
from perdure._core.log.redaction import erase_event_content
from perdure._core.values.event_class import check_event_class
from perdure.events import (
    EVENTS,
    Custom,
    Entry,
    Event,
    MessageAdded,
    ModelEvent,
    ReplyFinished,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolFinished,
)
from tests.core.material import events

DURABLE_AND_CRITICAL = {
    "run_started",
    "run_ended",
    "message_added",
    "tool_started",
    "tool_finished",
    "compacted",
    "session_configured",
}
DURABLE = DURABLE_AND_CRITICAL | {
    "run_resumed",
    "run_waiting",
    "question_asked",
    "question_answered",
    "question_withdrawn",
    "slot_opened",
    "slot_updated",
    "slot_closed",
    "value_kept",
    "grant_revoked",
    "post_taken",
    "inbox_added",
    "inbox_resolved",
    "model_requested",
    "model_replied",
    "reply_discarded",
    "permission_decided",
    "tools_changed",
    "guardrail_tripped",
    "limit_reached",
    "auto_continued",
    "plan_made",
    "answer_reviewed",
    "skill_loaded",
    "subagent_started",
    "subagent_finished",
    "compaction_started",
    "view_changed",
    "session_imported",
    "custom",
    "unknown",
}
PASSING = {
    "session_opened",
    "turn_started",
    "turn_ended",
    "cancel_requested",
    "error_raised",
    "text_delta",
    "thinking_delta",
    "tool_call_delta",
    "citation_added",
    "usage_reported",
    "reply_finished",
    "retry_scheduled",
    "failed_over",
    "tool_progress",
    "hook_invoked",
    "entries_lost",
    "lagged",
    "watcher_dropped",
}


def test_the_wire_names_are_those_that_logs_and_clients_know():
    assert set(EVENTS) == DURABLE | PASSING


@pytest.mark.parametrize("name", sorted(EVENTS))
def test_a_wire_name_is_the_snake_case_of_its_class(name):
    assert EVENTS[name].__name__ == "".join(word.capitalize() for word in name.split("_"))


def test_what_lasts_is_durable_and_what_must_be_understood_is_critical():
    assert {name for name, kind in EVENTS.items() if kind.durable} == DURABLE
    assert {name for name, kind in EVENTS.items() if kind.critical} == DURABLE_AND_CRITICAL


@given(events)
def test_every_event_survives_json_unchanged(event):
    written = msgspec.json.encode(event)
    assert msgspec.json.decode(written)["kind"] in EVENTS
    assert msgspec.json.decode(written, type=type(event)) == event


@pytest.mark.parametrize("kind", EVENTS.values(), ids=EVENTS)
def test_every_event_says_in_which_run_and_where_in_the_tree_it_happened(kind):
    assert {"run_id", "path"} <= set(kind.__struct_fields__)


@pytest.mark.parametrize("field", ["text", "run_id"])
def test_an_event_cannot_be_changed(field):
    with pytest.raises(AttributeError):
        setattr(TextDelta("a"), field, "b")


def test_deltas_carry_their_own_text_and_no_message():
    for kind in (TextDelta, ThinkingDelta, ToolCallDelta):
        assert "message" not in kind.__struct_fields__


@pytest.mark.parametrize(
    "names",
    [
        ("permission_decided", "tool_started", "tool_progress", "tool_finished"),
        ("subagent_started", "subagent_finished"),
    ],
)
def test_events_about_the_same_call_name_it_by_the_same_field(names):
    assert all("call_id" in EVENTS[name].__struct_fields__ for name in names)


def test_the_stream_of_a_model_is_made_of_events():
    kinds = get_args(ModelEvent)
    assert ReplyFinished in kinds
    assert all(issubclass(kind, Event) and not kind.durable for kind in kinds)


def test_an_entry_is_an_event_with_its_place():
    entry = Entry(41, 1.5, MessageAdded(user("hi"), run_id="r1"), "e-41")
    assert (entry.seq, entry.at, entry.id) == (41, 1.5, "e-41")
    assert entry == Entry(41, 1.5, MessageAdded(user("hi"), run_id="r1"), "e-41")


def test_kinds_of_others_do_not_become_kinds_of_ours():
    class Mine(Event, frozen=True):
        pass

    assert Mine.__struct_config__.tag == "mine"
    assert "mine" not in EVENTS


def test_what_an_extension_keeps_may_be_anything():
    assert Custom("budget", {"left": 3}).data == {"left": 3}


def test_only_few_events_carry_whole_messages():
    carrying = {
        name
        for name, kind in EVENTS.items()
        for field in msgspec.structs.fields(kind)
        if field.type in (Message, Message | None)
    }
    assert carrying == {"message_added", "compacted", "model_replied", "reply_discarded", "reply_finished"}
    assert "message" not in ToolFinished.__struct_fields__


# -- what an event class says of itself --------------------------------------------------------------------------------


def test_a_durable_event_has_to_say_how_a_replay_treats_it():
    class Kept(Event, frozen=True):
        durable = True

    with pytest.raises(TypeError, match="Kept is durable: set `replay`"):
        check_event_class(Kept)


@pytest.mark.parametrize("declared", ["structural", "compared_fields"])
def test_an_event_cannot_declare_a_field_that_it_does_not_have(declared):
    class Odd(Event, frozen=True):
        text: str = ""

    setattr(Odd, declared, frozenset({"run_id", "txet"}))
    with pytest.raises(TypeError, match=r"Odd declares fields that it does not have: \['txet'\]"):
        check_event_class(Odd)


def test_a_field_is_text_unless_its_class_says_otherwise():
    class Mine(Event, frozen=True):
        structural = frozenset({"key"})
        key: str = ""
        text: str = ""

    assert Mine.structural == {"run_id", "path", "key"}
    assert erase_event_content(Mine("k", "said", run_id="r")) == Mine("k", "[redacted]", run_id="r")


def test_every_durable_event_is_compared_copied_or_skipped_by_a_replay():
    assert {kind.replay for kind in EVENTS.values() if kind.durable} == {"compared", "copied", "skipped"}
    assert {kind.replay for kind in EVENTS.values() if not kind.durable} == {"skipped"}


@pytest.mark.parametrize(
    ("event", "found"),
    [
        (MessageAdded(user("Where is the lamp?")), ("user", "Where is the lamp?")),
        (MessageAdded(assistant("There.")), ("assistant", "There.")),
        (MessageAdded(Message("tool", (Text("nothing"),))), None),
        (ToolFinished("c1", "look", ToolResult("c1", "look", (Text("a lamp"),))), ("tool", "a lamp")),
        (TextDelta("Hel"), None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Event) else "",
)
def test_a_search_looks_at_what_users_models_and_tools_have_written(event, found):
    assert event.search_text() == found
