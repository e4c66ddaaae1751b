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

from .event import Event, InboxAdded, InboxResolved, MessageAdded
from .inbox import INBOX, told
from .message import Message
from .store import Post

logger = logging.getLogger("windlass")

DrainMode: TypeAlias = Literal["one", "all"]
"""Whether messages that wait are handed over one at a time or all at once."""

STEER = "steer"
FOLLOW_UP = "follow_up"
ANSWER = "answer"
CANCEL = "cancel"

Delivery: TypeAlias = tuple[list[Event], list[str]]
"""Events to be stored, and the ids of the first of them."""


def letter(kind: str, message: Message, post_id: str, at: float) -> Post:
    """A message to the model, as a post."""
    return Post(post_id, kind, msgspec.to_builtins(message), at)


def answer_name(ask_id: str) -> str:
    """The id of the post that answers a question, and of any entry that does: a question is answered once."""
    return f"{ANSWER}-{ask_id}"


class Mailbox:
    """The posts that have come for one run."""

    __slots__ = (
        "_known",
        "_waiting",
        "answers",
        "follow_up_mode",
        "follow_ups",
        "inbox",
        "is_left",
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
        self.answers: dict[str, Post] = {}
        """Posts with an answer, by the id of their question."""
        self.steering_mode: DrainMode = steering_mode
        self.follow_up_mode: DrainMode = follow_up_mode
        self._known: set[str] = set()
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self.is_left = False
        """Whether nobody waits here for an answer any more: the process is about to end; the question stays open."""

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

    def take_follow_ups(self) -> Delivery:
        """What the model is to be told instead of ending."""
        names, messages = _drained(self.follow_ups, self.follow_up_mode)
        return [MessageAdded(each) for each in messages], names

    def answered(self, ask_id: str) -> "asyncio.Future[None]":
        """Done when the answer to that question is here."""
        future = self._waiting.setdefault(ask_id, asyncio.get_running_loop().create_future())
        if ask_id in self.answers:
            self._ring(ask_id)
        return future

    def leave(self) -> None:
        """Wait for no answer any more. Whoever does is told, and suspends the run."""
        self.is_left = True
        for ask_id in list(self._waiting):
            self._ring(ask_id)

    def _ring(self, ask_id: str) -> None:
        future = self._waiting.pop(ask_id, None)
        if future is not None and not future.done():
            future.set_result(None)


def _drained(queue: deque[tuple[str, Message]], mode: DrainMode) -> tuple[list[str], list[Message]]:
    taken = [queue.popleft() for _ in range(len(queue) if mode == "all" else 1)]
    return [name for name, _ in taken], [message for _, message in taken]
