"""The mailbox of a run: posts (stored messages from outside) that have arrived for it, sorted by kind.

Posts are messages, answers, inbox results and more. The functions that build posts are here too.

A post is kept by the store until an entry with its id is in the log. So events are returned together with the ids that
their entries must have: storing them is what consumes the posts.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeAlias

import msgspec

from perdure._core.log.store import Post
from perdure._core.values.clock import new_id
from perdure._core.values.error import ConfigError
from perdure._core.values.event import GrantRevoked, InboxAdded, InboxResolved, MessageAdded
from perdure._core.values.event_class import Event, SlotClosed
from perdure._core.values.jsonable import convert
from perdure._core.values.message import Message

from .inbox import INBOX_POST, RECORD_POST, HostEvent, build_inbox_message, decode_host_event, read_resolution_labels

logger = logging.getLogger("perdure")

DrainMode: TypeAlias = Literal["one", "all"]
"""Delivery of waiting messages: one at a time or all at once."""

STEER_POST = "steer"
FOLLOW_UP_POST = "follow_up"
ANSWER_POST = "answer"
CANCEL_POST = "cancel"
SLOT_POST = "slot"
REVOKE_POST = "revoke"

Delivery: TypeAlias = tuple[list[Event], list[str]]
"""Events to store, and the ids of the first of them."""


def build_message_post(kind: str, message: Message, post_id: str, at: float) -> Post:
    """Build the post (a stored message to a session) that carries a message to the model."""
    return Post(post_id, kind, msgspec.to_builtins(message), at)


def build_slot_closing_post(closed: SlotClosed, at: float) -> Post:
    """Build the post (a stored message to a session) that closes a display slot, perhaps with an answer."""
    body = {"slot_id": closed.slot_id, "reason": closed.reason}
    answer = {"answer": closed.answer, "by": closed.by} if closed.is_answered else {}
    return Post(f"{SLOT_POST}-{closed.slot_id}", SLOT_POST, {**body, **answer}, at)


def build_host_event_post(event: HostEvent, post_id: str, at: float) -> Post:
    """Build the post with which a host program adds an event to the log of a session that another process runs."""
    return Post(post_id, RECORD_POST, msgspec.to_builtins(event), at)


def list_posted_events(posts: Iterable[Post]) -> list[HostEvent]:
    """Return the events that the host program has posted to a session, and that no run has stored yet.

    The next run of the session stores them.
    """
    found = [decode_host_event(post) for post in posts if post.kind == RECORD_POST]
    return [event for event in found if event is not None]


def build_revocation_post(grant_id: str, at: float) -> Post:
    """Build the post (a stored message to a session) that revokes a grant; its id is new each time."""
    return Post(f"{REVOKE_POST}-{grant_id}-{new_id()}", REVOKE_POST, {"grant_id": grant_id}, at)


def get_answer_post_id(ask_id: str) -> str:
    """Return the id of the post that answers a question: always the same, so that only one answer is stored."""
    return f"{ANSWER_POST}-{ask_id}"


class Mailbox:
    """The posts (stored messages from outside) that have arrived for one run, sorted by kind."""

    __slots__ = (
        "_answer_futures",
        "_is_closing",
        "_known_post_ids",
        "_root",
        "answers",
        "follow_up_mode",
        "follow_ups",
        "inbox_results",
        "log_only_events",
        "receives_result",
        "steering",
        "steering_mode",
    )

    def __init__(self, steering_mode: DrainMode = "one", follow_up_mode: DrainMode = "one") -> None:
        self.steering: deque[tuple[str, Message]] = deque()
        """Messages to deliver between turns, with the ids of their posts."""
        self.follow_ups: deque[tuple[str, Message]] = deque()
        """Messages to deliver when the run would end."""
        self.inbox_results: list[tuple[str, InboxResolved]] = []
        """Results of inbox items, of this agent and of its subagents: one list for all runs of a session."""
        self.receives_result: Callable[[str], bool] | None = None
        """Returns True if the result of an inbox item is for this run; `None` if all results are."""
        self.log_only_events: list[tuple[str, Event]] = []
        """Events for the log only, not for the model: slots closed and grants revoked by users."""
        self.answers: dict[str, Post] = {}
        """Posts with an answer, by the id of their question."""
        self.steering_mode: DrainMode = steering_mode
        self.follow_up_mode: DrainMode = follow_up_mode
        self._known_post_ids: set[str] = set()
        self._answer_futures: dict[str, asyncio.Future[None]] = {}
        self._is_closing = False
        self._root: Mailbox | None = None
        """The mailbox of the outermost run; `None` if this is it, since a cycle would outlive its run."""

    def create_child_mailbox(self) -> "Mailbox":
        """Return a mailbox for a subagent's run. Answers to questions and inbox results are shared with this one."""
        child = Mailbox()
        child.inbox_results = self.inbox_results
        child.answers, child._answer_futures, child._root = self.answers, self._answer_futures, self._root or self
        return child

    @property
    def is_closing(self) -> bool:
        """True if the process is about to end and waits for no more answers; the questions stay open."""
        return (self._root or self)._is_closing  # noqa: SLF001 - same class

    @property
    def has_messages_due(self) -> bool:
        """True if messages have arrived that the model gets before its next turn."""
        if self.steering or self.inbox_results:
            return bool(self.steering or self._find_own_results())
        return False

    def accept_post(self, post: Post) -> bool:
        """Sort a post into the mailbox; return False if it is known already, or cannot be understood."""
        if post.id in self._known_post_ids:
            return False
        self._known_post_ids.add(post.id)
        try:
            return self._sort_post(post)
        except (msgspec.ValidationError, KeyError, TypeError, ConfigError) as error:
            logger.warning(
                "post %r of kind %r cannot be decoded, and stays in the store: %s", post.id, post.kind, error
            )
            return False

    def _sort_post(self, post: Post) -> bool:
        if post.kind == STEER_POST:
            self.steering.append((post.id, convert(post.body, Message)))
        elif post.kind == FOLLOW_UP_POST:
            self.follow_ups.append((post.id, convert(post.body, Message)))
        elif post.kind == INBOX_POST:
            item_id, response = str(post.body["item_id"]), post.body["response"]
            resolved = InboxResolved(item_id, response, post.at, read_resolution_labels(post))
            self.inbox_results.append((post.id, resolved))
        elif post.kind == SLOT_POST:
            self.log_only_events.append((post.id, _read_slot_closing(post)))
        elif post.kind == RECORD_POST:
            event = decode_host_event(post)
            if event is None:
                return False
            self.log_only_events.append((post.id, event))
        elif post.kind == REVOKE_POST:
            self.log_only_events.append((post.id, GrantRevoked(str(post.body["grant_id"]))))
        elif post.kind == ANSWER_POST:
            ask_id = str(post.body["ask_id"])
            _ = post.body["answer"]  # raises KeyError if there is none
            self.answers[ask_id] = post
            self._notify_waiter(ask_id)
        else:
            return False
        return True

    def _find_own_results(self) -> list[tuple[str, InboxResolved]]:
        """Return the inbox results for the agent of this run, with the ids of their posts."""
        receives = self.receives_result
        return [each for each in self.inbox_results if receives is None or receives(each[1].item_id)]

    def take_due_messages(self, inbox_items: Mapping[str, InboxAdded], path: str = "") -> Delivery:
        """Remove and return the messages for the model's next turn.

        `inbox_items` are those that the agents of the session wait for, `path` is the position of this agent.
        """
        names, messages = _drain_queue(self.steering, self.steering_mode) if self.steering else ([], [])
        return self._add_results(messages, names, self._find_own_results(), inbox_items, path)

    def _add_results(
        self,
        messages: list[Message],
        names: list[str],
        arrived: list[tuple[str, InboxResolved]],
        inbox_items: Mapping[str, InboxAdded],
        path: str,
    ) -> Delivery:
        """Return the delivery of messages, and of inbox results, which are removed."""
        events: list[Event] = [MessageAdded(each) for each in messages]
        if arrived:
            self.inbox_results[:] = [each for each in self.inbox_results if each not in arrived]
            names += [name for name, _ in arrived]
            events += [resolved for _, resolved in arrived]
            events.append(MessageAdded(build_inbox_message(inbox_items, [resolved for _, resolved in arrived], path)))
        return events, names

    def take_all(self, inbox_items: Mapping[str, InboxAdded]) -> Delivery:
        """Remove and return all that is for the model: steering messages, follow-ups, and results of known items."""
        names, messages = _drain_queue(self.steering, "all")
        later_names, later_messages = _drain_queue(self.follow_ups, "all")
        arrived = [each for each in self._find_own_results() if each[1].item_id in inbox_items]
        return self._add_results(messages + later_messages, names + later_names, arrived, inbox_items, "")

    def drop_post(self, post_id: str) -> None:
        """Remove a post whose content the model gets in another way."""
        self._known_post_ids.add(post_id)
        self.inbox_results[:] = [each for each in self.inbox_results if each[0] != post_id]

    def take_follow_ups(self) -> Delivery:
        """Remove and return the follow-ups: messages that the model gets instead of ending the run."""
        names, messages = _drain_queue(self.follow_ups, self.follow_up_mode)
        return [MessageAdded(each) for each in messages], names

    def take_log_only_events(self) -> Delivery:
        """Remove and return the events that are stored but not sent to the model, such as revoked grants."""
        notes, self.log_only_events = self.log_only_events, []
        return [event for _, event in notes], [name for name, _ in notes]

    def wait_for_answer(self, ask_id: str) -> "asyncio.Future[None]":
        """Return a future that is done when the answer to a question has arrived."""
        future = self._answer_futures.setdefault(ask_id, asyncio.get_running_loop().create_future())
        if ask_id in self.answers:
            self._notify_waiter(ask_id)
        return future

    def stop_waiting(self) -> None:
        """Stop waiting for answers from people. Waits in progress end, and their run ends as `waiting`."""
        (self._root or self)._is_closing = True  # noqa: SLF001 - same class
        for ask_id in list(self._answer_futures):
            self._notify_waiter(ask_id)

    def _notify_waiter(self, ask_id: str) -> None:
        future = self._answer_futures.pop(ask_id, None)
        if future is not None and not future.done():
            future.set_result(None)


def _read_slot_closing(post: Post) -> SlotClosed:
    slot_id, body = str(post.body["slot_id"]), post.body
    return SlotClosed(slot_id, post.text_field("reason"), "answer" in body, body.get("answer"), post.text_field("by"))


def _drain_queue(queue: deque[tuple[str, Message]], mode: DrainMode) -> tuple[list[str], list[Message]]:
    taken = [queue.popleft() for _ in range(len(queue) if mode == "all" else 1)]
    return [name for name, _ in taken], [message for _, message in taken]
