"""History processors, which choose the messages sent to the model: newest messages, newest turns, combinations.

A history processor (`Agent(history_processor=…)`) gets the whole conversation and returns what is sent of it. The log
is not changed. None of these sends a tool result without its call or the other way round, changes the order, or repeats
a message; system text and summaries are always sent, first. Summarising is `Compaction`, which stores its summary in
the log.
"""

from bisect import bisect_left
from collections.abc import Sequence
from inspect import isawaitable
from typing import Final, Literal

from perdure.core import argument_checks
from perdure.core.message import Message
from perdure.core.run_function_types import HistoryProcessor

from .history_cut_index import (
    HistoryCutIndex,
    HistoryCutIndexCache,
    cut_history,
    find_call_and_results,
    list_turn_opening,
)

BUFFER_MESSAGES: Final = 20
WINDOW_TURNS: Final = 50
WINDOW_TOKENS: Final = 4_000


class BufferMemory:
    """History processor that sends only the newest messages: at most `max_messages`, and about `max_tokens` if given.

    System text and summaries do not count. If the cut is within a turn, the user's message that opened the turn is one
    of those sent; a tool result is never sent without its call, so one pair is always sent. With `step`, messages are
    left out in groups of that many, so that the provider's prompt cache is missed only once per group.
    """

    def __init__(self, max_messages: int = BUFFER_MESSAGES, *, max_tokens: int | None = None, step: int = 1) -> None:
        argument_checks.require_int("BufferMemory", "max_messages", max_messages, 1)
        argument_checks.require_int("BufferMemory", "step", step, 1)
        if max_tokens is not None:
            argument_checks.require_int("BufferMemory", "max_tokens", max_tokens, 1)
        self.max_messages = max_messages
        self.max_tokens = max_tokens
        self.step = step
        self._indexes = HistoryCutIndexCache(counts_tokens=max_tokens is not None)

    def __call__(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the newest messages of a conversation."""
        index = self._indexes.get(messages)
        first = _round_up(max(len(messages) - self.max_messages, 0), self.step)
        if self.max_tokens is not None:
            first = max(first, index.find_first_within_tokens(self.max_tokens))
        if first == 0:
            return messages
        opening = list_turn_opening(messages, index, first)  # counts too
        return cut_history(messages, index, first + len(opening))


class WindowMemory:
    """History processor that sends only the newest turns: at most `max_turns`, and at most `max_tokens` tokens.

    A turn is a message of the user with everything up to the next one. Turns are sent whole; only if the last one alone
    has more than `max_tokens`, the newest of its messages are sent after the user's. With `step`, turns are left out in
    groups of that many, so that the provider's prompt cache is missed only once per group.
    """

    def __init__(self, max_turns: int = WINDOW_TURNS, *, max_tokens: int | None = WINDOW_TOKENS, step: int = 1) -> None:
        argument_checks.require_int("WindowMemory", "max_turns", max_turns, 1)
        argument_checks.require_int("WindowMemory", "step", step, 1)
        if max_tokens is not None:
            argument_checks.require_int("WindowMemory", "max_tokens", max_tokens, 1)
        self.max_turns = max_turns
        self.max_tokens = max_tokens
        self.step = step
        self._indexes = HistoryCutIndexCache(counts_tokens=max_tokens is not None)

    def __call__(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the newest turns of a conversation."""
        index = self._indexes.get(messages)
        if not index.turns:
            return messages
        skipped = min(_round_up(max(len(index.turns) - self.max_turns, 0), self.step), len(index.turns) - 1)
        first = index.turns[skipped] if skipped else 0
        if self.max_tokens is not None and (fitting := index.find_first_within_tokens(self.max_tokens)) > first:
            at = _round_up(bisect_left(index.turns, fitting), self.step)
            first = index.turns[at] if at < len(index.turns) else max(fitting, index.turns[-1])
        return messages if first == 0 else cut_history(messages, index, first)


class CompositeMemory:
    """History processor that combines others: the first that finds earlier messages (`first`), or all (`merge`).

    With `first`, a processor is passed over if it sends nothing from before the current turn. With `merge`, each
    message is sent once, in the order of the conversation; messages that a processor has made itself are first.
    """

    def __init__(self, *shapes: HistoryProcessor, strategy: Literal["first", "merge"] = "first") -> None:
        argument_checks.require_callables("CompositeMemory", "shapes", shapes)
        argument_checks.require_one_of("CompositeMemory", "strategy", strategy, ("first", "merge"))
        if not shapes:
            argument_checks.raise_config_error(
                "CompositeMemory", "shapes", shapes, "give at least one shape, such as WindowMemory()"
            )
        self.shapes = shapes
        self.strategy = strategy
        self._indexes = HistoryCutIndexCache(counts_tokens=False)

    async def __call__(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages of a conversation that the combined processors send."""
        index = self._indexes.get(messages)
        places = {id(message): place for place, message in enumerate(messages)}
        chosen: set[int] = set()
        made: list[Message] = []
        for shape in self.shapes:
            answer = shape(messages)
            sent = await answer if isawaitable(answer) else answer
            found = {places[id(each)] for each in sent if id(each) in places}
            own = [each for each in sent if id(each) not in places]
            if self.strategy == "first" and not own and not _has_earlier(found, index):
                chosen = chosen or found
                continue
            chosen = found if self.strategy == "first" else chosen | found
            made = own if self.strategy == "first" else made + [each for each in own if each not in made]
            if self.strategy == "first":
                break
        return complete_selection(messages, index, chosen, made)


def complete_selection(
    messages: Sequence[Message], index: HistoryCutIndex, chosen: set[int], made: Sequence[Message] = ()
) -> list[Message]:
    """Return the chosen messages in order, with system text, summaries, whole call/result pairs and the last one."""
    if messages:
        chosen = {*chosen, len(messages) - 1}
    whole = set(index.fixed)
    for place in chosen:
        whole.update(range(*find_call_and_results(messages, place)))
    fixed = [place for place in sorted(whole) if place in set(index.fixed)]
    others = sorted(whole - set(index.fixed))
    if not made:
        return [messages[place] for place in sorted(whole)]
    return [*[messages[place] for place in fixed], *made, *[messages[place] for place in others]]


def _has_earlier(found: set[int], index: HistoryCutIndex) -> bool:
    """Return True if messages are chosen from before the current turn, besides those that are always sent."""
    begin = index.turns[-1] if index.turns else 0
    fixed = set(index.fixed)
    return any(place < begin and place not in fixed for place in found)


def _round_up(number: int, step: int) -> int:
    return -(-number // step) * step
