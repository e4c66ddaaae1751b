"""What has been encoded of each conversation, so that nothing is encoded or linted twice. Above: wires. Below: `core`.

A transcript only grows. The pieces of the wire are kept beside the messages that they were made of, for as many
conversations as fit; a message that is not the very same one is encoded again, and so is everything after it.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from perdure.core.error import BadRequest
from perdure.core.message import Message
from perdure.core.plain import to_jsonable
from perdure.core.view import View

from .think_tags import untagged

Item: TypeAlias = Mapping[str, Any]
"""One element of the wire's list of messages."""

MOST_BYTES = 64 * 1024 * 1024
"""How much is kept, over all conversations of an endpoint."""

_MESSAGE_BYTES = 256
"""What it costs to keep anything at all of a message, about."""

_encode = msgspec.json.Encoder().encode


class Rules(Protocol):
    """The rules of a provider about the order of items, as steps of a state that never changes in place."""

    def begin(self) -> Any:
        """Before the first item."""
        ...

    def step(self, state: Any, item: Item) -> Any:
        """After one more item. Raises `BrokenRule` when it must not stand there."""
        ...

    def end(self, state: Any) -> None:
        """Raises `BrokenRule` when the list must not end here."""
        ...


class BrokenRule(BadRequest):
    """What was about to be sent breaks a rule of the provider, and was not sent."""


class _Kept:
    """What one conversation looks like on the wire."""

    __slots__ = ("messages", "pieces", "size", "states", "view")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.pieces: list[bytes] = []
        """Of each message: its items, encoded and joined by commas; empty when it has none."""
        self.states: list[Any] = []
        """Of each message: where the rules stand after it."""
        self.size = 0
        self.view: View | None = None
        """The transcript that they are from, if it was one: it only grows."""


class Memo:
    """The encoded conversations of one endpoint."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._size = 0
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._lock = threading.Lock()
        """An endpoint may be asked from several threads. What is being worked on is in none of their ways: it is taken
        out, and put back when it is done."""

    def pieces(
        self,
        name: Hashable | None,
        messages: Sequence[Message],
        items_of: Callable[[Message], Sequence[Item]],
        rules: Rules,
    ) -> list[bytes]:
        """The encoded items of each message that has any, checked against the rules.

        `name` is the conversation, together with whatever else the encoding depends on; nothing is kept for
        `None`. `items_of` must depend on nothing but the message and what is in `name`.
        """
        kept = self._take(name)
        view = messages if isinstance(messages, View) else None
        if view is not None and kept.view is not None and view.continues(kept.view):
            shared = len(kept.messages)
        else:
            shared = _shared(kept.messages, messages)
            _cut(kept, shared)
        kept.view = view
        state = kept.states[-1] if kept.states else rules.begin()
        for message in messages[shared:]:
            items = items_of(untagged(message))
            for item in items:
                state = rules.step(state, item)
            piece = b",".join([encoded(item) for item in items])
            kept.messages.append(message)
            kept.pieces.append(piece)
            kept.states.append(state)
            kept.size += len(piece) + _MESSAGE_BYTES
        rules.end(state)
        if name is not None:
            self._keep(name, kept)
        return [piece for piece in kept.pieces if piece]

    def _take(self, name: Hashable | None) -> _Kept:
        with self._lock:
            kept = self._kept.pop(name, None)
            if kept is None:
                return _Kept()
            self._size -= kept.size
            return kept

    def _keep(self, name: Hashable, kept: _Kept) -> None:
        with self._lock:
            before = self._kept.pop(name, None)  # of another thread, in the same conversation at the same time
            self._size += kept.size - (before.size if before is not None else 0)
            self._kept[name] = kept
            while self._size > self._most:
                _, oldest = self._kept.popitem(last=False)
                self._size -= oldest.size


def encoded(item: Any) -> bytes:
    """JSON of what goes on the wire, whatever is in it."""
    try:
        return _encode(item)
    except (UnicodeEncodeError, ValueError, TypeError, RecursionError):
        return _encode(to_jsonable(item))


def _shared(known: Sequence[Message], messages: Sequence[Message]) -> int:
    """How many messages at the beginning are the very same."""
    for place, (one, other) in enumerate(zip(known, messages, strict=False)):
        if one is not other:
            return place
    return min(len(known), len(messages))


def _cut(kept: _Kept, length: int) -> None:
    kept.size -= sum([len(piece) + _MESSAGE_BYTES for piece in kept.pieces[length:]])
    del kept.messages[length:], kept.pieces[length:], kept.states[length:]
