"""Cache of encoded requests, so that each message of a conversation is encoded and checked only once.

A transcript only grows. The encoded pieces are kept beside their messages, for as many conversations as fit. A message
that is not the same object as before is encoded again, and so are all messages after it.
"""

import operator
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from perdure._core.model.transcript import MessagesSnapshot
from perdure._core.values.error import BadRequest
from perdure._core.values.jsonable import to_jsonable
from perdure._core.values.message import Message, StopReason

from .think_tags import remove_think_tags

Item: TypeAlias = Mapping[str, Any]
"""Element of the wire's list of messages."""

MAX_MEMO_BYTES = 64 * 1024 * 1024
"""Maximum size of the cache, over all conversations of an endpoint."""

_MESSAGE_BYTES = 256
"""Approximate overhead of caching one message."""

_encode = msgspec.json.Encoder().encode


class EncodedMessageOrderRules(Protocol):
    """Protocol for a provider's rules about the order of encoded messages (items), checked one item at a time."""

    def begin(self) -> Any:
        """Return the state before the first item."""
        ...

    def step(self, state: Any, item: Item) -> Any:
        """Return the state after one more item. Raises `ProviderRuleError` if the item is not allowed there."""
        ...

    def end(self, state: Any) -> None:
        """Raise `ProviderRuleError` if the conversation must not end in this state."""
        ...


class ProviderRuleError(BadRequest):
    """Raised before a request is sent, if the request would break a rule of the provider."""


class _EncodedConversation:
    """The encoded messages of one conversation, each with the state of the order rules after it."""

    __slots__ = ("messages", "pieces", "separators", "size", "states", "view")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.pieces: list[bytes] = []
        """For each message: its items, encoded and joined by commas; empty if it has none."""
        self.separators: dict[int, bytes] = {}
        """Encoded items that are sent before a message, by the index of the message."""
        self.states: list[Any] = []
        """For each message: the state of the rules after it."""
        self.size = 0
        self.view: MessagesSnapshot | None = None
        """Transcript that the messages are from, if they are from a `MessagesSnapshot`: it only grows."""


class EncodingMemo:
    """Cache of encoded messages, by conversation, so that a message is encoded only once; limited in size."""

    def __init__(self, most_bytes: int = MAX_MEMO_BYTES) -> None:
        self._max_bytes = most_bytes
        self._size = 0
        self._kept: OrderedDict[Hashable, _EncodedConversation] = OrderedDict()
        self._fields: tuple[Sequence[object], bytes] = ((), b"")
        """The other fields of the latest request: the objects that they were made from, and their encoding."""
        self._lock = threading.Lock()
        """An endpoint may be used from several threads. An entry in use is taken out of the cache, and put back
        afterwards.
        """

    def encode_messages(
        self,
        name: Hashable | None,
        messages: Sequence[Message],
        items_of: Callable[[Message], Sequence[Item]],
        rules: EncodedMessageOrderRules,
        separator: Message | None = None,
    ) -> list[bytes]:
        """Encode the messages, reusing those cached under `name`, and check them against the rules.

        Returns the encoded items of each message that has any. `name` is the conversation, with all else that the
        encoding depends on; `None` caches nothing. `items_of` must depend on nothing but the message and `name`.
        `separator` is sent between two assistant messages that follow each other.
        """
        kept = self._take_out(name)
        view = messages if isinstance(messages, MessagesSnapshot) else None
        if view is not None and kept.view is not None and view.is_extension_of(kept.view):
            shared = kept.view.shared_length  # messages of the request before alone are at its end
        else:
            shared = _count_shared_messages(kept.messages, messages)
        if shared < len(kept.messages):
            _truncate_conversation(kept, shared)
        kept.view = view
        state = kept.states[-1] if kept.states else rules.begin()
        for message in messages[shared:]:
            items = items_of(remove_think_tags(message))
            if separator is not None and items and message.role == "assistant" and _ends_with_reply(kept):
                (between,) = items_of(separator)
                state = rules.step(state, between)
                kept.separators[len(kept.messages)] = encode_lossy_json(between)
                items = items_of(remove_think_tags(message))  # once more: encoders are given the messages in order
            for item in items:
                state = rules.step(state, item)
            piece = b",".join([encode_lossy_json(item) for item in items])
            kept.messages.append(message)
            kept.pieces.append(piece)
            kept.states.append(state)
            kept.size += len(piece) + _MESSAGE_BYTES
        rules.end(state)
        pieces = _list_pieces(kept)  # before it is put back: then another thread may change it
        if name is not None:
            self._put_back(name, kept)
        return pieces

    def find_fields(self, sources: Sequence[object]) -> bytes | None:
        """Return the encoding that was kept for exactly these objects; `None` if there is none."""
        known, encoded = self._fields
        return encoded if len(known) == len(sources) and all(map(operator.is_, known, sources)) else None

    def keep_fields(self, sources: Sequence[object], encoded: bytes) -> None:
        """Keep the encoding of what was made from these objects, which must not change.

        Only the latest is kept: the sessions of an agent have the same objects.
        """
        self._fields = sources, encoded

    def _take_out(self, name: Hashable | None) -> _EncodedConversation:
        with self._lock:
            kept = self._kept.pop(name, None)
            if kept is None:
                return _EncodedConversation()
            self._size -= kept.size
            return kept

    def _put_back(self, name: Hashable, kept: _EncodedConversation) -> None:
        with self._lock:
            before = self._kept.pop(name, None)  # put back by another thread with the same conversation
            self._size += kept.size - (before.size if before is not None else 0)
            self._kept[name] = kept
            while self._size > self._max_bytes:
                _, oldest = self._kept.popitem(last=False)
                self._size -= oldest.size


def encode_lossy_json(item: Any) -> bytes:
    """Encode a value as JSON, replacing parts that JSON cannot represent."""
    try:
        return _encode(item)
    except (UnicodeEncodeError, ValueError, TypeError, RecursionError):
        return _encode(to_jsonable(item))


def _count_shared_messages(known: Sequence[Message], messages: Sequence[Message]) -> int:
    """Return how many messages at the beginning of both lists are the same objects."""
    for place, (one, other) in enumerate(zip(known, messages, strict=False)):
        if one is not other:
            return place
    return min(len(known), len(messages))


def _ends_with_reply(kept: _EncodedConversation) -> bool:
    """Return True if the last message that is sent is a reply, unless the next one is the rest of it."""
    for message, piece in zip(reversed(kept.messages), reversed(kept.pieces), strict=True):
        if piece:
            return message.role == "assistant" and message.stop is not StopReason.PAUSE
    return False


def _list_pieces(kept: _EncodedConversation) -> list[bytes]:
    """Return what is sent, in order."""
    if not kept.separators:
        return [piece for piece in kept.pieces if piece]
    pairs = [(kept.separators.get(place), piece) for place, piece in enumerate(kept.pieces)]
    return [each for pair in pairs for each in pair if each]


def _truncate_conversation(kept: _EncodedConversation, length: int) -> None:
    kept.size -= sum([len(piece) + _MESSAGE_BYTES for piece in kept.pieces[length:]])
    del kept.messages[length:], kept.pieces[length:], kept.states[length:]
    for place in [each for each in kept.separators if each >= length]:
        del kept.separators[place]
