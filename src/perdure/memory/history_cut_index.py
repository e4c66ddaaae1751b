"""Index of a conversation by tokens and turns, with which history processors cut it to the messages that are sent.

A history processor is called before every request, with a conversation that is a little longer than the last time. So
the index of a conversation is kept and extended: each message is looked at once.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice
from typing import Final

from perdure.context.summary_message import is_summary
from perdure.context.tokens import estimate_message_tokens
from perdure.core.message import Message
from perdure.core.transcript import MessagesSnapshot

MAX_INDEXED_CONVERSATIONS: Final = 64
"""Conversations whose index a history processor keeps: one agent may have many sessions at a time."""


class HistoryCutIndex:
    """Index of a conversation: positions of turns and of messages that are always sent, and token counts."""

    __slots__ = ("counts_tokens", "fixed", "length", "tokens", "turns")

    def __init__(self, *, counts_tokens: bool) -> None:
        self.counts_tokens = counts_tokens
        """True if the tokens of messages are estimated."""
        self.length = 0
        """Number of messages in the index."""
        self.fixed: list[int] = []
        """Positions of messages that are always sent: system text and summaries."""
        self.turns: list[int] = []
        """Positions at which turns begin: user messages that follow another role."""
        self.tokens: list[int] = [0]
        """Tokens of all messages before each position."""

    def extend(self, messages: Sequence[Message]) -> None:
        """Add the messages that are not in the index yet."""
        first = self.length
        role = messages[first - 1].role if first and not is_summary(messages[first - 1]) else ""
        for place, message in enumerate(messages[first:], first):
            if _is_fixed(message):
                self.fixed.append(place)
            elif message.role == "user" and role != "user":
                self.turns.append(place)
            role = "" if is_summary(message) else message.role
            if self.counts_tokens:
                self.tokens.append(self.tokens[-1] + estimate_message_tokens(message))
        self.length = len(messages)

    def find_first_within_tokens(self, max_tokens: int) -> int:
        """Return the first position from which all later messages have at most `max_tokens` tokens."""
        return bisect_left(self.tokens, self.tokens[-1] - max_tokens)

    def find_turn_of(self, place: int) -> int | None:
        """Return the position at which the turn of a message begins; None if it belongs to no turn."""
        at = bisect_left(self.turns, place + 1)
        return self.turns[at - 1] if at else None


class HistoryCutIndexCache:
    """Cache of the `HistoryCutIndex` of each recent conversation, so that a new message only extends the index."""

    __slots__ = ("_counts_tokens", "_known")

    def __init__(self, *, counts_tokens: bool) -> None:
        self._counts_tokens = counts_tokens
        self._known: list[tuple[MessagesSnapshot, HistoryCutIndex]] = []

    def get(self, messages: Sequence[Message]) -> HistoryCutIndex:
        """Return the index of these messages, extended from that of the same conversation when it was shorter."""
        if isinstance(messages, MessagesSnapshot):
            for place, (seen, index) in enumerate(self._known):
                if messages.is_extension_of(seen):
                    if len(messages) > index.length:
                        index.extend(messages)
                        self._known[place] = (messages, index)
                    return index
        index = HistoryCutIndex(counts_tokens=self._counts_tokens)
        index.extend(messages)
        if isinstance(messages, MessagesSnapshot):
            self._known.insert(0, (messages, index))
            del self._known[MAX_INDEXED_CONVERSATIONS:]
        return index


def cut_history(messages: Sequence[Message], index: HistoryCutIndex, first: int) -> list[Message]:
    """Return the messages from about position `first` on, preceded by the earlier ones that are always sent.

    A result is never sent without its call, so the cut may be a little later. If it is within a turn, the user messages
    with which the turn began are sent too. At least the last message is kept, with the call if it is a result.
    """
    first = _move_to_pair_boundary(messages, first)
    fixed = islice(index.fixed, bisect_left(index.fixed, first))
    before = sorted({*fixed, *list_turn_opening(messages, index, first)})
    return [*[messages[place] for place in before], *messages[first:]]


def list_turn_opening(messages: Sequence[Message], index: HistoryCutIndex, place: int) -> list[int]:
    """Return the positions of the user messages that open the turn at `place`; empty if a user message is next."""
    following = place
    while following < len(messages) and _is_fixed(messages[following]):
        following += 1
    if place >= len(messages) or (following < len(messages) and messages[following].role == "user"):
        return []
    begin = index.find_turn_of(place)
    if begin is None:
        return []
    end = begin
    while end < place and messages[end].role == "user" and not is_summary(messages[end]):
        end += 1
    return list(range(begin, end))


def find_call_and_results(messages: Sequence[Message], place: int) -> tuple[int, int]:
    """Return the range of messages that must stay together with the one at `place`: a reply and its tool results."""
    begin = place
    while begin and messages[begin].role == "tool":
        begin -= 1
    end = begin + 1
    if messages[begin].role == "assistant":
        while end < len(messages) and messages[end].role == "tool":
            end += 1
    return begin, max(end, place + 1)


def _is_fixed(message: Message) -> bool:
    """Return True for a message that is always sent: system text or a summary."""
    return message.role == "system" or is_summary(message)


def _move_to_pair_boundary(messages: Sequence[Message], first: int) -> int:
    """Return the first position at or after `first` that is no result; that of the last pair if there is none."""
    last = len(messages) - 1
    while first <= last and messages[first].role == "tool":
        first += 1
    return first if first <= last or last < 0 else find_call_and_results(messages, last)[0]
