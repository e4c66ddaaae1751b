"""What comes for a running session from outside: sorted, handed over with the ids of the posts, and never twice."""

import gc

import pytest

from perdure import user
from perdure._core.people.inbox import build_resolution_post, list_inbox_items
from perdure._core.people.mailbox import (
    build_host_event_post,
    build_message_post,
    build_revocation_post,
    build_slot_closing_post,
    list_posted_events,
)
from perdure.engines import Mailbox
from perdure.events import GrantRevoked, InboxAdded, InboxResolved, MessageAdded, SlotClosed, ValueKept
from perdure.stores import Post


def texts(events):
    return [event.message.text for event in events if isinstance(event, MessageAdded)]


@pytest.mark.parametrize(("mode", "first", "second"), [("one", ["a"], ["b"]), ("all", ["a", "b"], [])])
def test_a_mailbox_hands_over_one_message_or_all(mode, first, second):
    mailbox = Mailbox(mode, mode)
    for kind in ("steer", "follow_up"):
        for name in "ab":
            assert mailbox.accept_post(build_message_post(kind, user(name), f"{kind}-{name}", 0.0))
    events, names = mailbox.take_due_messages({})
    assert (texts(events), names) == (first, [f"steer-{name}" for name in first])
    assert mailbox.has_messages_due == bool(second)
    assert texts(mailbox.take_due_messages({})[0]) == second
    events, names = mailbox.take_follow_ups()
    assert (texts(events), names) == (first, [f"follow_up-{name}" for name in first])


def test_a_post_that_is_known_is_not_taken_in_again():
    mailbox = Mailbox()
    assert mailbox.accept_post(build_message_post("steer", user("a"), "p1", 0.0))
    assert not mailbox.accept_post(build_message_post("steer", user("a"), "p1", 0.0))
    assert len(mailbox.steering) == 1


@pytest.mark.parametrize(
    "post",
    [
        Post("p", "steer", {"role": 5}),
        Post("p", "answer", {}),
        Post("p", "inbox"),
        Post("p", "inbox", {"item_id": "i", "response": 1, "labels": [5]}),
        Post("p", "of a later version"),
    ],
)
def test_a_post_that_nobody_understands_stays_where_it_is(post):
    mailbox = Mailbox()
    assert not mailbox.accept_post(post)
    assert not mailbox.has_messages_due


def test_resolved_items_are_told_in_one_message_and_their_entries_take_the_posts():
    mailbox = Mailbox()
    items = {"i1": InboxAdded("i1", "job", "Build it"), "i2": InboxAdded("i2", "mail", "Ask Ann")}
    mailbox.accept_post(Post("inbox-i1", "inbox", {"item_id": "i1", "response": "built", "labels": []}, 7.0))
    mailbox.accept_post(Post("inbox-i2", "inbox", {"item_id": "i2", "response": {"ok": True}}, 8.0))
    mailbox.accept_post(build_message_post("steer", user("Quick!"), "s1", 0.0))
    events, names = mailbox.take_due_messages(items)
    assert names == ["s1", "inbox-i1", "inbox-i2"]
    assert events[1:3] == [InboxResolved("i1", "built", 7.0), InboxResolved("i2", {"ok": True}, 8.0, ("untrusted",))]
    lines = ["- [job] Request: Build it -> Response: built", '- [mail] Request: Ask Ann -> Response: {"ok":true}']
    assert texts(events) == ["Quick!", "\n".join(["[Inbox: 2 resolved]", *lines])]
    assert not mailbox.has_messages_due


def test_the_answer_to_an_item_that_nobody_remembers_is_told_all_the_same():
    mailbox = Mailbox()
    mailbox.accept_post(Post("inbox-i1", "inbox", {"item_id": "i1", "response": "built"}))
    assert texts(mailbox.take_due_messages({})[0]) == ["[Inbox: 1 resolved]\n- [i1] Request:  -> Response: built"]


async def test_whoever_waits_for_an_answer_is_told_when_it_comes_also_if_it_has_come_before():
    mailbox = Mailbox()
    early = mailbox.wait_for_answer("a1")
    assert early is mailbox.wait_for_answer("a1")
    mailbox.accept_post(Post("answer-a1", "answer", {"ask_id": "a1", "answer": True}))
    await early
    await mailbox.wait_for_answer("a1")
    assert mailbox.answers["a1"].body["answer"] is True


def test_what_people_have_closed_or_taken_back_is_stored_and_told_to_nobody():
    mailbox = Mailbox()
    revoked = build_revocation_post("grant_1", 8.0)
    assert mailbox.accept_post(build_slot_closing_post(SlotClosed("slot", "seen"), 7.0))
    assert mailbox.accept_post(revoked)
    assert not mailbox.has_messages_due
    assert mailbox.take_log_only_events() == (
        [SlotClosed("slot", "seen"), GrantRevoked("grant_1")],
        ["slot-slot", revoked.id],
    )
    assert mailbox.take_log_only_events() == ([], [])


def test_the_same_thing_is_closed_once_and_may_be_taken_back_again():
    assert (
        build_slot_closing_post(SlotClosed("slot", "seen"), 7.0).id
        == build_slot_closing_post(SlotClosed("slot", "again"), 8.0).id
    )
    assert build_revocation_post("grant_1", 7.0).id != build_revocation_post("grant_1", 7.0).id


@pytest.mark.parametrize("post", [Post("p", "slot", {"reason": "x"}), Post("p", "revoke", {})])
def test_a_note_that_names_nothing_stays_where_it_is(post):
    mailbox = Mailbox()
    assert not mailbox.accept_post(post)
    assert mailbox.log_only_events == []


def test_subagents_share_the_results_and_each_takes_its_own():
    mailbox = Mailbox()
    child = mailbox.create_child_mailbox()
    mailbox.receives_result, child.receives_result = "i1".__eq__, "i2".__eq__
    items = {"i1": InboxAdded("i1", "job", "Build it"), "i2": InboxAdded("i2", "mail", "Ask Ann", path="scout")}
    mailbox.accept_post(Post("inbox-i2", "inbox", {"item_id": "i2", "response": "yes"}, 7.0))
    assert (mailbox.has_messages_due, child.has_messages_due) == (False, True)
    mailbox.accept_post(Post("inbox-i1", "inbox", {"item_id": "i1", "response": "built"}, 7.0))
    assert texts(child.take_due_messages(items, "scout")[0]) == [
        "[Inbox: 1 resolved]\n- [mail] Request: Ask Ann -> Response: yes"
    ]
    assert (mailbox.has_messages_due, child.has_messages_due) == (True, False)
    mailbox.drop_post("inbox-i1")
    assert not mailbox.has_messages_due


def test_a_result_for_a_subagent_that_has_ended_is_marked_with_its_path():
    mailbox = Mailbox()
    mailbox.accept_post(Post("inbox-i2", "inbox", {"item_id": "i2", "response": "yes"}, 7.0))
    events, _ = mailbox.take_due_messages({"i2": InboxAdded("i2", "mail", "Ask Ann", path="scout")})
    assert texts(events) == ["[Inbox: 1 resolved]\n- [mail] (of subagent 'scout') Request: Ask Ann -> Response: yes"]


# -- what a host program adds ------------------------------------------------------------------------------------------


def test_events_of_a_host_are_for_the_log_alone():
    mailbox = Mailbox()
    added = InboxAdded("i", "job", "wait")
    assert mailbox.accept_post(build_host_event_post(added, "p1", 7.0))
    assert mailbox.accept_post(build_host_event_post(ValueKept("name", 5), "p2", 7.0))
    assert not mailbox.has_messages_due
    assert mailbox.take_log_only_events() == ([added, ValueKept("name", 5)], ["p1", "p2"])


@pytest.mark.parametrize(
    "body", [None, {}, {"kind": "grant_revoked", "grant_id": "g"}, {"kind": "value_kept"}, {"kind": "no_such"}]
)
def test_a_post_that_is_no_event_of_a_host_is_left_alone(body):
    post = Post("p", "record", body)
    assert not Mailbox().accept_post(post)
    assert list_posted_events([post, Post("q", "steer", {})]) == []
    assert list_inbox_items([], [post]) == []


def test_a_slot_is_closed_with_an_answer():
    mailbox = Mailbox()
    closed = SlotClosed("slot", is_answered=True, answer=None, by="ada")
    assert mailbox.accept_post(build_slot_closing_post(closed, 7.0))
    assert mailbox.take_log_only_events()[0] == [closed]


def test_an_inbox_item_that_is_still_a_post_is_listed_and_resolved():
    posts = [
        build_resolution_post("i", "done", 8.0),
        build_host_event_post(InboxAdded("i", "job", "wait", wake=True), "p", 7.0),
    ]
    (item,) = list_inbox_items([], posts)
    assert (item.status, item.response, item.created_at, item.wake) == ("resolved", "done", 7.0, True)


def test_a_mailbox_does_not_refer_to_itself_and_its_children_close_with_it():
    mailbox = Mailbox()
    child = mailbox.create_child_mailbox()
    assert not [each for each in gc.get_referents(mailbox) if each is mailbox]  # only the collector could free it
    grandchild = child.create_child_mailbox()
    grandchild.stop_waiting()
    assert mailbox.is_closing
    assert child.is_closing
