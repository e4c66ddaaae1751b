"""`VectorMemory`: a history processor that sends the earlier messages which are relevant to the current turn."""

from array import array
from collections.abc import Sequence
from typing import Final

from perdure.core import argument_checks
from perdure.core.message import Message

from .embedder import Embedder, check_embedder, compute_similarity, embed_texts
from .history_cut_index import HistoryCutIndex, HistoryCutIndexCache, find_call_and_results, list_turn_opening
from .history_processors import complete_selection

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
        argument_checks.require_int("VectorMemory", "max_messages", max_messages, 1)
        argument_checks.require_number("VectorMemory", "min_similarity", min_similarity, 1)
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
