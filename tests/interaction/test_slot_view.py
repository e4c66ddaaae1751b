"""Slots as a screen sees them."""

import pytest

from perdure import Invalid
from perdure._core.log.fold import fold_events
from perdure._core.people.mailbox import build_host_event_post, build_slot_closing_post
from perdure._people.view import VERDICT_SCHEMA, build_slot_views, slot_view_of_question
from perdure.events import QuestionAnswered, QuestionAsked, RunStarted, RunWaiting, SlotClosed, SlotOpened, SlotUpdated
from perdure.people import SlotView
from perdure.stores import Post
from perdure.tools import check_value

SHOWN = SlotOpened("slot", "text", {"text": "x"}, "call")
ASKED = QuestionAsked("ask", "slot", "Who?", ({"call_id": "call", "tool": "t"},), 10.0, "line", {"question": "Who?"})


def test_what_is_shown_comes_before_what_is_asked():
    state = fold_events([ASKED, SHOWN])
    assert [each.slot_id for each in build_slot_views(state, [], 0.0)] == ["slot", "ask"]


def test_what_was_settled_is_left_out():
    assert build_slot_views(fold_events([ASKED, QuestionAnswered("ask", "me")]), [], 0.0) == []
    state = fold_events([ASKED, SHOWN])
    answer = Post("answer-ask", "answer", {"ask_id": "ask", "answer": "me"})
    other = Post("p", "steer", {"slot_id": "slot", "ask_id": "ask"})
    assert build_slot_views(state, [answer, build_slot_closing_post(SlotClosed("slot"), 0.0)], 0.0) == []
    assert len(build_slot_views(state, [other], 0.0)) == 2
    assert [each.slot_id for each in build_slot_views(state, [], 10.0)] == ["slot"]


def test_a_question_about_several_calls_names_none_of_them():
    calls = ({"call_id": "a", "tool": "t"}, {"call_id": "b", "tool": "u"})
    question = QuestionAsked("ask", "permission", "May they?", calls, path="child")
    assert slot_view_of_question(question) == SlotView(
        "ask", "permission", {"calls": list(calls)}, "May they?", waits=True, output=VERDICT_SCHEMA, path="child"
    )


@pytest.mark.parametrize(
    "answer", [True, {"allow": False, "reason": "no", "scope": "session"}, {"call_1": True, "call_2": {"allow": True}}]
)
def test_the_schema_of_verdicts_takes_what_may_be_answered(answer):
    check_value(answer, dict(VERDICT_SCHEMA))


@pytest.mark.parametrize("answer", ["yes", None, {"allow": "yes"}, {"call_1": "yes"}])
def test_the_schema_of_verdicts_takes_nothing_else(answer):
    with pytest.raises(Invalid):
        check_value(answer, dict(VERDICT_SCHEMA))


def test_a_slot_is_seen_whole():
    shown = SlotOpened(
        "slot", "form", {"a": 1}, "call", text="Fill in", waits=True, output={"type": "object"}, path="child",
        expires_at=10.0,
    )  # fmt: skip
    view = SlotView(
        "slot", "form", {"a": 1}, "Fill in", waits=True, output={"type": "object"}, call_id="call", path="child",
        expires_at=10.0,
    )  # fmt: skip
    state = fold_events([shown])
    assert build_slot_views(state, [], 9.9) == [view]
    assert build_slot_views(state, [], 10.0) == []


def test_a_question_of_a_tool_is_seen_whole():
    asked = QuestionAsked(
        "ask", "slot", "Who?", ({"call_id": "call", "tool": "t"},), 10.0, "line", {"question": "Who?"},
        {"type": "string"}, path="child",
    )  # fmt: skip
    view = SlotView(
        "ask", "line", {"question": "Who?"}, "Who?", waits=True, output={"type": "string"}, tool="t", call_id="call",
        path="child", expires_at=10.0,
    )  # fmt: skip
    assert build_slot_views(fold_events([asked]), [], 9.9) == [view]
    assert build_slot_views(fold_events([asked]), [], 9.9, lost_questions=["ask"]) == []


def test_a_question_about_a_call_that_was_cut_off_has_its_own_schema_and_shows_the_call():
    calls = ({"call_id": "call", "tool": "t"},)
    question = QuestionAsked("ask", "settlement", "What now?", calls, output={"type": "string"})
    assert slot_view_of_question(question) == SlotView(
        "ask", "settlement", {"calls": list(calls)}, "What now?", waits=True, output={"type": "string"}, tool="t",
        call_id="call",
    )  # fmt: skip


def test_a_slot_that_the_program_has_posted_is_seen_and_one_that_it_changes_too():
    opened, other = SlotOpened("new", "text", {"text": "new"}), SlotOpened("slot", "text", {"text": "again"})
    posts = [
        build_host_event_post(opened, "p", 0.0),
        build_host_event_post(other, "p", 0.0),
        build_host_event_post(SlotUpdated("new", {"text": "newer"}), "p", 0.0),
        build_host_event_post(SlotUpdated("missing", {"text": "x"}), "p", 0.0),
    ]
    views = build_slot_views(fold_events([SHOWN]), posts, 0.0)
    assert [(each.slot_id, each.input) for each in views] == [("slot", {"text": "x"}), ("new", {"text": "newer"})]


def test_a_question_of_a_run_that_is_to_be_cancelled_is_left_out():
    state = fold_events([RunStarted(run_id="run-1"), ASKED, RunWaiting(("ask",), run_id="run-1")])
    assert [each.slot_id for each in build_slot_views(state, [], 0.0)] == ["ask"]
    assert build_slot_views(state, [Post("p", "cancel", {"run_id": "run-1"})], 0.0) == []
    running = fold_events([RunStarted(run_id="run-1"), ASKED])
    assert len(build_slot_views(running, [Post("p", "cancel", {"run_id": "run-1"})], 0.0)) == 1
    for other in (Post("p", "cancel", {"run_id": "run-2"}), Post("p", "steer", {"run_id": "run-1"})):
        assert len(build_slot_views(state, [other], 0.0)) == 1
