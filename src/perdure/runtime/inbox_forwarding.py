"""Results for inbox items of background agents whose task is over: posted to the session that gave the task.

A background agent works in a session of its own, which no run continues once the task is over. A result that arrives
there later would never reach a model, so it becomes a message to the session that gave the task.
"""

from perdure.core.clock import Clock
from perdure.core.event import InboxResolved
from perdure.core.fold import State, fold_events
from perdure.core.inbox import INBOX_POST, build_inbox_message
from perdure.core.mailbox import FOLLOW_UP_POST, STEER_POST, build_message_post
from perdure.core.store import Post, Store, read_events

from .driver import notify_driver

GIVEN_BY_SETTING = "given_by"
"""The setting in which the session of a background agent names the session that gave the task."""


async def forward_inbox_results(store: Store, session_id: str, clock: Clock) -> None:
    """Post the results that no run of a background agent's session will consume to the session that gave the task.

    Does nothing for other sessions, and while the task is not over. A result that was forwarded before is not posted
    again.
    """
    events, _ = await read_events(store, session_id)
    state = fold_events(events)
    above = state.settings.get(GIVEN_BY_SETTING)
    if not isinstance(above, str) or not above or state.run is None or state.is_interrupted:
        return
    for post in await store.posts(session_id):
        message = _build_forwarded_post(state, post, session_id, clock.now())
        if message is not None and await store.post(above, message):
            notify_driver((id(store), above), message)


def _build_forwarded_post(state: State, post: Post, session_id: str, at: float) -> Post | None:
    """Return the post with a result for the session above; `None` if the post is not a result that is waited for."""
    item = state.session_inbox.get(post.text_field("item_id"))
    if post.kind != INBOX_POST or item is None:
        return None
    named = type(item)(item.item_id, item.tag, item.request, path=session_id.rpartition("/")[2])
    message = build_inbox_message(
        {item.item_id: named},
        [InboxResolved(item.item_id, post.body.get("response"), post.at, tuple(post.body.get("labels", ())))],
    )
    kind = FOLLOW_UP_POST if item.wake else STEER_POST  # `attend` wakes a session for a follow-up
    return build_message_post(kind, message, post.id, at)
