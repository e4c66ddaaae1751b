"""What has come for a running session from outside. Above: the loop, which tells it to the model. Below: posts.

A post is kept by the store until an entry of the same id is in the log. So everything here is handed over together
with the ids that its entries must have: storing them is what takes the posts.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from .clock import new_id
from .event import Event, GrantRevoked, InboxAdded, InboxResolved, MessageAdded, SlotClosed
from .inbox import INBOX, told
from .message import Message
from .store import Post

logger = logging.getLogger("perdure")

DrainMode: TypeAlias = Literal["one", "all"]
"""Whether messages that wait are handed over one at a time or all at once."""

STEER = "steer"
FOLLOW_UP = "follow_up"
ANSWER = "answer"
CANCEL = "cancel"
SLOT = "slot"
REVOKE = "revoke"

Delivery: TypeAlias = tuple[list[Event], list[str]]
"""Events to be stored, and the ids of the first of them."""


def letter(kind: str, message: Message, post_id: str, at: float) -> Post:
    """A message to the model, as a post."""
    return Post(post_id, kind, msgspec.to_builtins(message), at)


def closing(slot_id: str, reason: str, at: float) -> Post:
    """The wish to show something no more, as a post."""
    return Post(f"{SLOT}-{slot_id}", SLOT, {"slot_id": slot_id, "reason": reason}, at)


def revocation(grant_id: str, at: float) -> Post:
    """The wish to hold no more to what was decided before, as a post. It may be decided, and taken back, again."""
    return Post(f"{REVOKE}-{grant_id}-{new_id()}", REVOKE, {"grant_id": grant_id}, at)


def answer_name(ask_id: str) -> str:
    """The id of the post that answers a question, and of any entry that does: a question is answered once."""
    return f"{ANSWER}-{ask_id}"


class Mailbox:
    """The posts that have come for one run."""

    __slots__ = (
        "_known",
        "_left",
        "_root",
        "_waiting",
        "answers",
        "follow_up_mode",
        "follow_ups",
        "inbox",
        "notes",
        "steering",
        "steering_mode",
    )

    def __init__(self, steering_mode: DrainMode = "one", follow_up_mode: DrainMode = "one") -> None:
        self.steering: deque[tuple[str, Message]] = deque()
        """Messages that come between the turns, with the ids of their posts."""
        self.follow_ups: deque[tuple[str, Message]] = deque()
        """Messages that come when the run would end."""
        self.inbox: list[tuple[str, InboxResolved]] = []
        """What the agent has been waiting for."""
        self.notes: list[tuple[str, Event]] = []
        """What belongs into the log, and is not for the model: what people have closed, or taken back."""
        self.answers: dict[str, Post] = {}
        """Posts with an answer, by the id of their question."""
        self.steering_mode: DrainMode = steering_mode
        self.follow_up_mode: DrainMode = follow_up_mode
        self._known: set[str] = set()
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._left = False
        self._root: Mailbox = self

    def branch(self) -> "Mailbox":
        """The mailbox of a child's run: answers come to it by the same way, and nothing else does."""
        child = Mailbox()
        child.answers, child._waiting, child._root = self.answers, self._waiting, self._root
        return child

    @property
    def is_left(self) -> bool:
        """Whether nobody waits here for an answer any more: the process is about to end; the question stays open."""
        return self._root._left  # noqa: SLF001 - of its own kind

    @property
    def due(self) -> bool:
        """Whether the model has to be told something before its next turn."""
        return bool(self.steering or self.inbox)

    def put(self, post: Post) -> bool:
        """Take a post in; `False` when it is known already, or says nothing that we understand."""
        if post.id in self._known:
            return False
        self._known.add(post.id)
        try:
            return self._sort(post)
        except (msgspec.ValidationError, KeyError, TypeError) as error:
            logger.warning(
                "post %r of kind %r cannot be understood, and stays where it is: %s", post.id, post.kind, error
            )
            return False

    def _sort(self, post: Post) -> bool:
        if post.kind == STEER:
            self.steering.append((post.id, msgspec.convert(post.body, Message)))
        elif post.kind == FOLLOW_UP:
            self.follow_ups.append((post.id, msgspec.convert(post.body, Message)))
        elif post.kind == INBOX:
            resolved = InboxResolved(str(post.body["item_id"]), post.body["response"], post.at)
            self.inbox.append((post.id, resolved))
        elif post.kind == SLOT:
            self.notes.append((post.id, SlotClosed(str(post.body["slot_id"]), post.named("reason"))))
        elif post.kind == REVOKE:
            self.notes.append((post.id, GrantRevoked(str(post.body["grant_id"]))))
        elif post.kind == ANSWER:
            ask_id = str(post.body["ask_id"])
            _ = post.body["answer"]  # without one, it cannot be understood
            self.answers[ask_id] = post
            self._ring(ask_id)
        else:
            return False
        return True

    def take_due(self, items: Mapping[str, InboxAdded]) -> Delivery:
        """What the model is to be told now. `items` are those that it waits for."""
        names, messages = _drained(self.steering, self.steering_mode) if self.steering else ([], [])
        events: list[Event] = [MessageAdded(each) for each in messages]
        if self.inbox:
            arrived, self.inbox = self.inbox, []
            names += [name for name, _ in arrived]
            events += [resolved for _, resolved in arrived]
            events.append(MessageAdded(told(items, [resolved for _, resolved in arrived])))
        return events, names

    def forget(self, post_id: str) -> None:
        """Hand a post to nobody: what is in it is told in another way."""
        self._known.add(post_id)
        self.inbox = [each for each in self.inbox if each[0] != post_id]

    def take_follow_ups(self) -> Delivery:
        """What the model is to be told instead of ending."""
        names, messages = _drained(self.follow_ups, self.follow_up_mode)
        return [MessageAdded(each) for each in messages], names

    def take_notes(self) -> Delivery:
        """What is stored now, and told to nobody."""
        notes, self.notes = self.notes, []
        return [event for _, event in notes], [name for name, _ in notes]

    def answered(self, ask_id: str) -> "asyncio.Future[None]":
        """Done when the answer to that question is here."""
        future = self._waiting.setdefault(ask_id, asyncio.get_running_loop().create_future())
        if ask_id in self.answers:
            self._ring(ask_id)
        return future

    def leave(self) -> None:
        """Wait for no answer any more. Whoever does is told, and suspends the run."""
        self._root._left = True  # noqa: SLF001 - of its own kind
        for ask_id in list(self._waiting):
            self._ring(ask_id)

    def _ring(self, ask_id: str) -> None:
        future = self._waiting.pop(ask_id, None)
        if future is not None and not future.done():
            future.set_result(None)


def _drained(queue: deque[tuple[str, Message]], mode: DrainMode) -> tuple[list[str], list[Message]]:
    taken = [queue.popleft() for _ in range(len(queue) if mode == "all" else 1)]
    return [name for name, _ in taken], [message for _, message in taken]
