"""What an agent waits for from outside: jobs, mails, people, other agents. Above: mailbox, sessions. Below: events.

An item is *pending* when the agent has asked for it, *resolved* when the answer has been posted, and *consumed* when
the model has been told: the entry that tells it is the one that takes the post, so no answer is told twice or lost.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from .event import Entry, InboxAdded, InboxResolved
from .message import Message, user
from .plain import to_text
from .store import Post

InboxStatus: TypeAlias = Literal["pending", "resolved", "consumed"]

INBOX = "inbox"
"""The kind of post that answers an item."""


class InboxItem(Struct, frozen=True):
    """Something that an agent waits for, or has waited for."""

    item_id: str
    """What an answer has to name."""
    tag: str
    """What kind of thing it is, for whoever answers."""
    request: str
    """What was asked for."""
    status: InboxStatus
    """Where it stands."""
    blocking: bool = False
    """Whether the model is reminded that it cannot go on without it."""
    wake: bool = False
    """Whether the answer begins a run when none is going."""
    response: Any = None
    """The answer, when there is one."""
    created_at: float = 0.0
    resolved_at: float = 0.0
    """When the answer came; 0 when it has not."""


def resolution(item_id: str, response: Any, at: float) -> Post:
    """The answer to an item, as a post. An item can be answered once."""
    return Post(f"{INBOX}-{item_id}", INBOX, {"item_id": item_id, "response": response}, at)


def items_of(entries: Iterable[Entry], posts: Iterable[Post]) -> list[InboxItem]:
    """Every item of a session, in the order in which they were asked for."""
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
            added[event.item_id] = _answered(added[event.item_id], "consumed", event.response, event.resolved_at)
    for post in posts:
        if post.kind == INBOX and (item := added.get(post.named("item_id"))) is not None:
            added[item.item_id] = _answered(item, "resolved", post.body.get("response"), post.at)
    return list(added.values())


def _answered(item: InboxItem, status: InboxStatus, response: Any, at: float) -> InboxItem:
    return InboxItem(
        item.item_id, item.tag, item.request, status, item.blocking, item.wake, response, item.created_at, at
    )


def told(items: Mapping[str, InboxAdded], resolved: Sequence[InboxResolved]) -> Message:
    """The one message that tells the model what has come."""
    lines = [_line(items.get(each.item_id), each) for each in resolved]
    return user("\n".join([f"[Inbox: {len(lines)} resolved]", *lines]), origin=INBOX)


def _line(item: InboxAdded | None, resolved: InboxResolved) -> str:
    tag, request = (item.tag, item.request) if item else (resolved.item_id, "")
    return f"- [{tag}] Request: {request} -> Response: {to_text(resolved.response)}"


def reminder(items: Iterable[InboxAdded]) -> Message | None:
    """What is added to a request, and never kept, while something is missing that the work cannot go on without."""
    lines = [f"- [{item.tag}] {item.request}" for item in items if item.blocking]
    if not lines:
        return None
    first = "[Inbox: still waiting for these. Whatever depends on them cannot be done yet.]"
    return user("\n".join([first, *lines]), origin="reminder")
