"""Tools that let a model search and read messages that are no longer sent to it.

The transcript keeps every message, including those replaced by a summary and results that are sent shortened. Message
numbers are those of the transcript, from 1, and never change.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

from perdure._core.tools.context import ToolContext
from perdure._core.tools.tool import Tool, tool
from perdure._core.values.message import Message

from .message_lines import format_message_line, get_searchable_text

MAX_HITS = 20
"""Maximum number of messages that a search returns."""
MAX_SEARCH_TERMS = 32
"""Maximum number of search terms."""
SNIPPET_CHARACTERS = 300
"""Maximum length of the snippet of each message."""
MAX_MESSAGES = 20
"""Maximum number of messages that can be read at once."""
MAX_CHARACTERS = 20_000
"""Maximum number of characters that can be read at once."""

_split_words = re.compile(r"\w+").findall


def history_tools() -> tuple[Tool[..., Any], ...]:
    """Return the tools with which a model searches and reads the whole conversation, also what it is no longer sent."""
    return search_history, read_history


@tool(effect="read", credentials=False)
def search_history(context: ToolContext[Any], query: str, limit: int = 10) -> str:
    """Search this whole conversation, including messages that were summarized or left out; return excerpts.

    Args:
        context: of the call.
        query: Words to look for; messages with more of them, and with rarer ones, come first.
        limit: How many messages to show, at most 20.
    """
    messages = context.run.state.messages
    found = rank_messages(messages, query)
    if not found:
        return f"Nothing in the {len(messages)} messages of this conversation has any of these words."
    shown = found[: max(1, min(limit, MAX_HITS))]
    lines = [build_snippet(messages[place], place + 1, query) for place in shown]
    more = len(found) - len(shown)
    rest = f"\n({more} more; use rarer words, or a larger limit)" if more else ""
    return "\n".join(lines) + rest + "\nread_history(start, count) shows messages by number."


@tool(effect="read", credentials=False)
def read_history(context: ToolContext[Any], start: int, count: int = 5) -> str:
    """Read messages of this conversation by number, including those that were summarized or left out.

    Args:
        context: of the call.
        start: The number of the first message, from 1.
        count: How many messages, at most 20.
    """
    messages = context.run.state.messages
    first = max(start, 1)
    if first > len(messages):
        return f"There is no message {first}: this conversation has {len(messages)}."
    lines: list[str] = []
    room = MAX_CHARACTERS
    for number in range(first, min(first + max(1, min(count, MAX_MESSAGES)), len(messages) + 1)):
        line = format_message_line(messages[number - 1], number)
        if lines and len(line) > room:
            return "\n".join([*lines, f"(more from message {number} on)"])
        lines.append(line[:MAX_CHARACTERS])
        room -= len(line)
    return "\n".join(lines)


def rank_messages(messages: Sequence[Message], query: str) -> list[int]:
    """Return the indexes of the messages that match a search query, best match first.

    They are ranked by number, rarity and frequency of the terms, then the latest first.
    """
    words = set(_split_words(query.casefold())[:MAX_SEARCH_TERMS])
    counts: dict[int, dict[str, int]] = {}
    having = dict.fromkeys(words, 0)
    for place, message in enumerate(messages):
        text = get_searchable_text(message).casefold()
        here = {word: count for word in words if (count := text.count(word))}
        if here:
            counts[place] = here
            for word in here:
                having[word] += 1

    def score_message(place: int) -> tuple[float, int]:
        rarity = [
            (1 + math.log(count)) * math.log(1 + len(messages) / having[word]) for word, count in counts[place].items()
        ]
        return sum(rarity), place

    return sorted(counts, key=score_message, reverse=True)


def build_snippet(message: Message, number: int, query: str) -> str:
    """Return a short excerpt of a message around the first match, with the message's number."""
    text = " ".join(get_searchable_text(message).split())
    lowered = text.lower()  # and not casefold(), which may change the length
    places = [place for word in _split_words(query.lower()) if (place := lowered.find(word)) >= 0]
    begin = max(min(places, default=0) - SNIPPET_CHARACTERS // 3, 0)
    piece = text[begin : begin + SNIPPET_CHARACTERS]
    before, after = "…" if begin else "", "…" if begin + SNIPPET_CHARACTERS < len(text) else ""
    return f"[{number}] {message.role}: {before}{piece}{after}"
