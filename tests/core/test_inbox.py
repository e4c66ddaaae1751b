"""The inbox of a session: what is waited for, what was answered, and what the model is told of it."""

import pytest

from perdure import InboxItem, user
from perdure._core.people.inbox import (
    build_inbox_message,
    build_inbox_reminder,
    build_resolution_post,
    decode_host_event,
    list_inbox_items,
)
from perdure.events import Custom, Entry, InboxAdded, InboxResolved, ValueKept
from perdure.stores import Post

BUILD = InboxAdded("i1", "build", "Build it.", blocking=True)
MAIL = InboxAdded("i2", "mail", "Ask Ann.", wake=True)


def test_the_post_that_answers_an_item_has_an_id_of_its_own() -> None:
    assert build_resolution_post("i1", {"ok": True}, 5.0) == Post(
        "inbox-i1", "inbox", {"item_id": "i1", "response": {"ok": True}, "labels": ["untrusted"]}, 5.0
    )
    labelled = build_resolution_post("i1", "x", 5.0, ("legal",))
    assert labelled.body == {"item_id": "i1", "response": "x", "labels": ["legal"]}


def test_an_item_is_pending_until_it_is_answered_and_consumed_when_the_model_was_told() -> None:
    entries = [Entry(1, 10.0, BUILD), Entry(2, 20.0, Custom("other")), Entry(3, 30.0, MAIL)]
    pending = [
        InboxItem("i1", "build", "Build it.", "pending", True, False, None, 10.0),
        InboxItem("i2", "mail", "Ask Ann.", "pending", False, True, None, 30.0),
    ]
    assert list_inbox_items(entries, []) == pending
    answer = build_resolution_post("i1", "built", 40.0)
    resolved = InboxItem("i1", "build", "Build it.", "resolved", True, False, "built", 10.0, 40.0)
    assert list_inbox_items(entries, [answer]) == [resolved, pending[1]]
    told = Entry(4, 50.0, InboxResolved("i1", "built", 40.0))
    consumed = InboxItem("i1", "build", "Build it.", "consumed", True, False, "built", 10.0, 40.0)
    assert list_inbox_items([*entries, told], []) == [consumed, pending[1]]


def test_answers_to_items_that_nobody_added_are_passed_over() -> None:
    entries = [Entry(1, 10.0, InboxResolved("i9", "late", 5.0))]
    other = Post("steer-1", "steering", {"item_id": "i1", "text": "Go on"}, 1.0)
    assert list_inbox_items(entries, [build_resolution_post("i8", "x", 5.0), other]) == []


def test_an_item_that_a_host_has_posted_is_pending_too() -> None:
    body = {"kind": "inbox_added", "item_id": "i3", "tag": "job", "request": "Wait.", "blocking": True, "wake": True}
    posted = Post("record-1", "record", body, 7.0)
    answer = build_resolution_post("i3", 1, 9.0)
    item = InboxItem("i3", "job", "Wait.", "pending", True, True, None, 7.0)
    assert list_inbox_items([], [posted]) == [item]
    for posts in ([posted, answer], [answer, posted]):
        assert list_inbox_items([], posts) == [InboxItem("i3", "job", "Wait.", "resolved", True, True, 1, 7.0, 9.0)]


@pytest.mark.parametrize("body", [{}, {"kind": "run_started"}, {"kind": "inbox_added", "item_id": 5}])
def test_what_no_host_may_add_is_no_event(body: dict[str, object]) -> None:
    assert decode_host_event(Post("record-1", "record", body, 7.0)) is None


def test_a_host_may_add_a_value() -> None:
    post = Post("record-1", "record", {"kind": "value_kept", "name": "n", "value": [1]}, 7.0)
    assert decode_host_event(post) == ValueKept("n", [1])
    assert list_inbox_items([], [post]) == []


def test_the_model_is_told_each_answer_with_its_request() -> None:
    items = {"i1": BUILD, "i2": InboxAdded("i2", "mail", "Ask Ann.", path="scout")}
    resolved = [
        InboxResolved("i1", {"ok": True}, labels=("untrusted",)),
        InboxResolved("i2", "She says yes.", labels=("private", "untrusted")),
        InboxResolved("i9", None),
    ]
    assert build_inbox_message(items, resolved) == user(
        "[Inbox: 3 resolved]\n"
        '- [build] Request: Build it. -> Response: {"ok":true}\n'
        "- [mail] (of subagent 'scout') Request: Ask Ann. -> Response: She says yes.\n"
        "- [i9] Request:  -> Response: null",
        origin="inbox",
        labels=("untrusted", "private"),
    )
    own = build_inbox_message(items, resolved[1:2], "scout")
    assert own.text == "[Inbox: 1 resolved]\n- [mail] Request: Ask Ann. -> Response: She says yes."


def test_the_model_is_reminded_of_what_it_cannot_go_on_without() -> None:
    also = InboxAdded("i4", "sign", "Sign it.", blocking=True)
    assert build_inbox_reminder([BUILD, MAIL, also]) == user(
        "[Inbox: still waiting for these. Whatever depends on them cannot be done yet.]\n"
        "- [build] Build it.\n"
        "- [sign] Sign it.",
        origin="reminder",
    )
    assert build_inbox_reminder([MAIL]) is None
    assert build_inbox_reminder([]) is None
