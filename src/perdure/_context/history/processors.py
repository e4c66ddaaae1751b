"""History processors, which choose the messages that are sent: the newest messages or turns, or the relevant ones."""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from inspect import isawaitable
from itertools import islice
from typing import Final, Literal

from perdure._core.model.transcript import MessagesSnapshot
from perdure._core.run.spec import HistoryProcessor
from perdure._core.values import checks
from perdure._core.values.message import Message
from perdure._work.memory.embedder import Embedder, check_embedder, compute_similarity, embed_texts

from .summary import is_summary
from .tokens import estimate_message_tokens

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
        checks.require_int("BufferMemory", "max_messages", max_messages, 1)
        checks.require_int("BufferMemory", "step", step, 1)
        if max_tokens is not None:
            checks.require_int("BufferMemory", "max_tokens", max_tokens, 1)
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
        checks.require_int("WindowMemory", "max_turns", max_turns, 1)
        checks.require_int("WindowMemory", "step", step, 1)
        if max_tokens is not None:
            checks.require_int("WindowMemory", "max_tokens", max_tokens, 1)
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
        checks.require_callables("CompositeMemory", "shapes", shapes)
        checks.require_one_of("CompositeMemory", "strategy", strategy, ("first", "merge"))
        if not shapes:
            checks.raise_config_error(
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


RELEVANT_MESSAGES: Final = 8
MAX_CACHED_VECTORS: Final = 20_000
"""Texts whose vectors a `VectorMemory` keeps."""
MAX_EMBEDDED_CHARACTERS: Final = 4_000
"""Characters of a message that are embedded: models read no more than a page."""


class VectorMemory:
    """History processor that sends the current turn, and the earlier messages most similar to it, found by embedding.

    Relevant are the `max_messages` messages whose vectors are most similar to the user's text, if they are at least
    `min_similarity`. A message is sent with the question that it answers, and a tool result with its call.
    """

    def __init__(
        self, embedder: Embedder, max_messages: int = RELEVANT_MESSAGES, *, min_similarity: float = 0.0
    ) -> None:
        check_embedder("VectorMemory", embedder)
        checks.require_int("VectorMemory", "max_messages", max_messages, 1)
        checks.require_number("VectorMemory", "min_similarity", min_similarity, 1)
        self.embedder = embedder
        self.max_messages = max_messages
        self.min_similarity = min_similarity
        self._indexes = HistoryCutIndexCache(counts_tokens=False)
        self._vectors: dict[str, array[float]] = {}

    async def __call__(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the relevant messages of a conversation, and its current turn."""
        index = self._indexes.get(messages)
        if len(index.turns) < 2:  # noqa: PLR2004 - there is nothing before the current turn
            return messages
        begin = index.turns[-1]
        query = "\n".join([each.text for each in messages[begin:] if each.role == "user"])[:MAX_EMBEDDED_CHARACTERS]
        chosen = set(range(begin, len(messages)))
        if query.strip():
            for place in await self._find_relevant(messages, index, begin, query):
                pair = range(*find_call_and_results(messages, place))
                chosen.update(pair, list_turn_opening(messages, index, pair[0]))
        return complete_selection(messages, index, chosen)

    async def _find_relevant(
        self, messages: Sequence[Message], index: HistoryCutIndex, begin: int, query: str
    ) -> list[int]:
        fixed = set(index.fixed)
        texts = {
            place: text
            for place, each in enumerate(messages[:begin])
            if place not in fixed and (text := _get_text(each)).strip()
        }
        vectors = await self._embed([query, *texts.values()])
        asked = vectors[query]
        scores = {place: compute_similarity(asked, vectors[text]) for place, text in texts.items()}
        found = [place for place, score in scores.items() if score >= self.min_similarity]
        return sorted(found, key=lambda place: (scores[place], place), reverse=True)[: self.max_messages]

    async def _embed(self, texts: Sequence[str]) -> dict[str, "array[float]"]:
        """Return the vectors of texts; each text is embedded once and then remembered."""
        known = self._vectors
        vectors = {each: known[each] for each in texts if each in known}
        missing = list(dict.fromkeys([each for each in texts if each not in vectors]))
        found = dict(zip(missing, await embed_texts(self.embedder, missing), strict=True))
        known |= found
        while len(known) > MAX_CACHED_VECTORS:
            del known[next(iter(known))]
        return vectors | found


def _get_text(message: Message) -> str:
    text = message.text or "\n".join([result.text for result in message.tool_results])
    return text[:MAX_EMBEDDED_CHARACTERS]
