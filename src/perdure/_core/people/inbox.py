"""The inbox of a session: results from outside (jobs, people, other agents) that its agent waits for.

An item is *pending* when the agent has asked for it, *resolved* when the answer has been posted, and *consumed* when it
was passed to the model: the entry that does so is the one that consumes the post, so no answer is delivered twice or
lost.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from perdure._core.log.store import Post
from perdure._core.values.event import Entry, InboxAdded, InboxResolved, ValueKept
from perdure._core.values.event_class import SlotOpened, SlotUpdated
from perdure._core.values.jsonable import convert, to_text
from perdure._core.values.message import Message, check_labels, merge_labels, user
from perdure._core.values.provenance import UNTRUSTED_LABEL

InboxStatus: TypeAlias = Literal["pending", "resolved", "consumed"]

INBOX_POST = "inbox"
"""Kind of the post that answers an item."""
RECORD_POST = "record"
"""Kind of the post with which a host program adds an event to the log of a session that is being driven."""

HostEvent: TypeAlias = InboxAdded | ValueKept | SlotOpened | SlotUpdated
"""The events that a host program can add to a session."""


def decode_host_event(post: Post) -> HostEvent | None:
    """Decode the event in a post from the host program; `None` if it cannot be decoded."""
    try:
        return cast("HostEvent", convert(post.body, HostEvent))
    except (msgspec.ValidationError, TypeError):
        return None


class InboxItem(Struct, frozen=True):
    """An item of a session's inbox: a result from outside that an agent waits for, or has received."""

    item_id: str
    """Id that an answer has to name."""
    tag: str
    """Kind of item, for the party that answers it."""
    request: str
    """Text of the request."""
    status: InboxStatus
    """Current status."""
    blocking: bool = False
    """True if the model is reminded that it cannot continue without the answer."""
    wake: bool = False
    """True if the answer starts a run when none is active."""
    response: Any = None
    """The answer, when there is one."""
    created_at: float = 0.0
    resolved_at: float = 0.0
    """Time of the answer; 0 when there is none yet."""


def build_resolution_post(item_id: str, response: Any, at: float, labels: Sequence[str] | None = None) -> Post:
    """Build the post (a stored message to a session) that resolves an inbox item.

    Its id is fixed, so that a second one has no effect. Without `labels` the response is untrusted.
    """
    known = (UNTRUSTED_LABEL,) if labels is None else check_labels(labels)
    body = {"item_id": item_id, "response": response, "labels": list(known)}
    return Post(f"{INBOX_POST}-{item_id}", INBOX_POST, body, at)


def read_resolution_labels(post: Post) -> tuple[str, ...]:
    """Return the labels of the result in a post. Without any it is untrusted: another program may have written it.

    Raises `ConfigError` for labels that are none.
    """
    return check_labels(post.body.get("labels", (UNTRUSTED_LABEL,)))


def list_inbox_items(entries: Iterable[Entry], posts: Iterable[Post]) -> list[InboxItem]:
    """Return every inbox item of a session, in the order in which they were requested."""
    added: dict[str, InboxItem] = {}
    for entry in entries:
        event = entry.event
        if isinstance(event, InboxAdded):
            added[event.item_id] = InboxItem(
                event.item_id,
                event.tag,
                event.request,
                "pending",
                event.blocking,
                event.wake,
                created_at=entry.at,
            )
        elif isinstance(event, InboxResolved) and event.item_id in added:
            added[event.item_id] = _with_answer(added[event.item_id], "consumed", event.response, event.resolved_at)
    arrived = list(posts)
    for post in arrived:
        if post.kind == RECORD_POST and isinstance(item := decode_host_event(post), InboxAdded):
            added[item.item_id] = InboxItem(
                item.item_id, item.tag, item.request, "pending", item.blocking, item.wake, created_at=post.at
            )
    for post in arrived:
        if post.kind == INBOX_POST and (asked := added.get(post.text_field("item_id"))) is not None:
            added[asked.item_id] = _with_answer(asked, "resolved", post.body.get("response"), post.at)
    return list(added.values())


def _with_answer(item: InboxItem, status: InboxStatus, response: Any, at: float) -> InboxItem:
    return InboxItem(
        item.item_id, item.tag, item.request, status, item.blocking, item.wake, response, item.created_at, at
    )


def build_inbox_message(items: Mapping[str, InboxAdded], resolved: Sequence[InboxResolved], path: str = "") -> Message:
    """Build the message that gives the model the inbox results (from outside) that it waited for.

    A result for a subagent that has ended is passed to the agent above it, and is marked with the subagent's path.
    """
    lines = [_inbox_line(items.get(each.item_id), each, path) for each in resolved]
    labels = merge_labels(*[each.labels for each in resolved])
    return user("\n".join([f"[Inbox: {len(lines)} resolved]", *lines]), origin=INBOX_POST, labels=labels)


def _inbox_line(item: InboxAdded | None, resolved: InboxResolved, path: str) -> str:
    tag, request = (item.tag, item.request) if item else (resolved.item_id, "")
    owner = f" (of subagent {item.path!r})" if item is not None and item.path != path else ""
    return f"- [{tag}]{owner} Request: {request} -> Response: {to_text(resolved.response)}"


def build_inbox_reminder(items: Iterable[InboxAdded]) -> Message | None:
    """Build the reminder (a message that is never stored) of the results for which the model has to wait."""
    lines = [f"- [{item.tag}] {item.request}" for item in items if item.blocking]
    if not lines:
        return None
    first = "[Inbox: still waiting for these. Whatever depends on them cannot be done yet.]"
    return user("\n".join([first, *lines]), origin="reminder")
