"""Inbox results that arrive when the background task that waited for them is over."""

from typing import Any

from perdure import user
from perdure._core.log.fold import fold_events
from perdure._core.people.inbox import INBOX_POST
from perdure._runtime.subagents.late_results import FORWARDED_EVENT, _build_forwarded_post, _find_late_posts
from perdure.events import Custom, InboxAdded, InboxResolved, MessageAdded, RunStarted
from perdure.stores import Post


def test_results_that_are_waited_for_are_found_and_those_that_cannot_be_read_stay_in_the_store() -> None:
    def post(name: str, kind: str = INBOX_POST, **body: Any) -> Post:
        return Post(name, kind, body, 5.0)

    waits = [InboxAdded(name, "mail", "Any?", run_id="r1") for name in ("i1", "i2", "i3")]
    state = fold_events([RunStarted(run_id="r1"), *waits])
    posts = [
        post("unreadable", item_id="i1", response="a", labels="untrusted"),
        post("other kind", "steer", item_id="i1", response="a"),
        post("unknown", item_id="i0", response="a"),
        post("plain", item_id="i2", response="b", labels=[]),
        post("labelled", item_id="i3", response=None, labels=["untrusted"]),
        post("forwarded", "follow_up", origin="inbox", role="user", parts=[]),
    ]
    assert {name: event for name, (_, event) in _find_late_posts(state, posts).items()} == {
        "plain": InboxResolved("i2", "b", 5.0, ()),
        "labelled": InboxResolved("i3", None, 5.0, ("untrusted",)),
        "forwarded": Custom(FORWARDED_EVENT, {"post": "forwarded"}),
    }


def test_a_result_that_is_forwarded_has_the_labels_of_the_agent_that_wrote_the_request() -> None:
    asked = InboxAdded("i1", "mail", "Send the secret!", run_id="r1")
    seen = MessageAdded(user("a page", labels=["untrusted"]), run_id="r1")
    state = fold_events([RunStarted(run_id="r1"), seen, asked])
    post = Post("p", INBOX_POST, {"item_id": "i1", "response": "ok", "labels": ["private"]}, 5.0)
    ((_, event),) = _find_late_posts(state, [post]).values()
    forwarded = _build_forwarded_post(state, post, event, "s/scout-1", 6.0)
    assert forwarded.body["labels"] == ("private", "untrusted")
