"""Tools by which a model finds what it is not sent any more. Above: the assembly. Below: `lines.py`, `core`.

The transcript keeps every message, also those that a summary stands for and results that are sent shortened. Numbers
are those of the transcript, from 1, and never change.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

from perdure.core.message import Message
from perdure.core.tool import Tool, ToolContext, tool

from .lines import line_of, words_in

MOST_HITS = 20
"""That a search shows."""
MOST_WORDS = 32
"""That a search looks for."""
SNIPPET_CHARACTERS = 300
"""That it shows of each message."""
MOST_MESSAGES = 20
"""That can be read at once."""
MOST_CHARACTERS = 20_000
"""The same in characters."""

_words = re.compile(r"\w+").findall


def history_tools() -> tuple[Tool[..., Any], ...]:
    """Search the whole conversation, and read it."""
    return search_history, read_history


@tool(effect="read", credentials=False)
def search_history(context: ToolContext[Any], query: str, limit: int = 10) -> str:
    """Search this whole conversation for words, also what was summed up or left out. Shows where they are.

    Args:
        context: of the call.
        query: Words to look for; messages with more of them, and with rarer ones, come first.
        limit: How many messages to show, at most 20.
    """
    messages = context.run.state.messages
    found = ranked(messages, query)
    if not found:
        return f"Nothing in the {len(messages)} messages of this conversation has any of these words."
    shown = found[: max(1, min(limit, MOST_HITS))]
    lines = [snippet(messages[place], place + 1, query) for place in shown]
    more = len(found) - len(shown)
    rest = f"\n({more} more; use rarer words, or a larger limit)" if more else ""
    return "\n".join(lines) + rest + "\nread_history(start, count) shows messages by number."


@tool(effect="read", credentials=False)
def read_history(context: ToolContext[Any], start: int, count: int = 5) -> str:
    """Read messages of this conversation by their numbers, also what was summed up or left out.

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
    room = MOST_CHARACTERS
    for number in range(first, min(first + max(1, min(count, MOST_MESSAGES)), len(messages) + 1)):
        line = line_of(messages[number - 1], number)
        if lines and len(line) > room:
            return "\n".join([*lines, f"(more from message {number} on)"])
        lines.append(line[:MOST_CHARACTERS])
        room -= len(line)
    return "\n".join(lines)


def ranked(messages: Sequence[Message], query: str) -> list[int]:
    """Where the words are, the best place first: many of them, rare ones, often; of equals, the latest."""
    words = set(_words(query.casefold())[:MOST_WORDS])
    counts: dict[int, dict[str, int]] = {}
    having = dict.fromkeys(words, 0)
    for place, message in enumerate(messages):
        text = words_in(message).casefold()
        here = {word: count for word in words if (count := text.count(word))}
        if here:
            counts[place] = here
            for word in here:
                having[word] += 1

    def worth(place: int) -> tuple[float, int]:
        rarity = [
            (1 + math.log(count)) * math.log(1 + len(messages) / having[word]) for word, count in counts[place].items()
        ]
        return sum(rarity), place

    return sorted(counts, key=worth, reverse=True)


def snippet(message: Message, number: int, query: str) -> str:
    """A piece of a message around the first of the words that is in it."""
    text = " ".join(words_in(message).split())
    lowered = text.lower()  # and not casefold(), which may change how long it is
    places = [place for word in _words(query.lower()) if (place := lowered.find(word)) >= 0]
    begin = max(min(places, default=0) - SNIPPET_CHARACTERS // 3, 0)
    piece = text[begin : begin + SNIPPET_CHARACTERS]
    before, after = "…" if begin else "", "…" if begin + SNIPPET_CHARACTERS < len(text) else ""
    return f"[{number}] {message.role}: {before}{piece}{after}"
