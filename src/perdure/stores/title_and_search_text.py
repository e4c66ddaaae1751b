"""Extract text from log entries: titles of sessions, and the text that can be searched."""

from collections.abc import Sequence
from typing import Final

from perdure.core.event import Entry, Event, MessageAdded, SessionConfigured, ToolFinished
from perdure.core.jsonable import replace_surrogates
from perdure.core.message import Part, Text, ToolCall

TITLE_LENGTH: Final = 80
"""The maximum length of a title in characters."""


def find_message_title(entries: Sequence[Entry]) -> str:
    """Return a title for a session: the beginning of its first user message, on one line; empty if there is none."""
    for entry in entries:
        event = entry.event
        if type(event) is not MessageAdded or event.message.role != "user":
            continue
        if title := _clean_title(event.message.text):
            return title
    return ""


def find_given_title(entries: Sequence[Entry]) -> str | None:
    """Return the title that was explicitly set for a session, the last one in these entries; `None` if none was set.

    It is the text `title` in the changes of a `SessionConfigured` event, and takes precedence over
    `find_message_title`. A title without any printable character is ignored.
    """
    for entry in reversed(entries):
        event = entry.event
        if type(event) is SessionConfigured:
            title = event.changes.get("title")
            if isinstance(title, str) and (shown := _clean_title(title)):
                return shown
    return None


def extract_searchable_text(event: Event) -> tuple[str, str] | None:
    """Return the role (`user`, `assistant` or `tool`) and the searchable text of an event; `None` if it has none.

    Thinking and the arguments of tool calls are not searchable. A lone surrogate and a NUL become U+FFFD, so that any
    database can store the text.
    """
    found = event.search_text()
    if found is None or not found[1]:
        return None
    role, text = found
    return role, replace_surrogates(text).replace("\0", "\ufffd")


def _clean_title(text: str) -> str:
    """Return the beginning of a text, at most `TITLE_LENGTH` printable characters on one line."""
    title = text[:TITLE_LENGTH]
    if title.isprintable() and "  " not in title and title[:1] != " ":  # the rule below would change nothing
        return title.rstrip()
    beginning = text[: TITLE_LENGTH * 4]
    if not beginning.isprintable():
        beginning = "".join([character if character.isprintable() else " " for character in beginning])
    return " ".join(beginning.split())[:TITLE_LENGTH].rstrip()


LARGE_TEXT = 1_000_000
"""Characters or bytes in one part of a message from which on it is not encoded on the event loop."""


def has_large_content(entries: Sequence[Entry]) -> bool:
    """Return True if a message or result in these entries is so large that encoding it would delay the event loop."""
    for entry in entries:
        event = entry.event
        if type(event) is ToolFinished:
            parts: Sequence[Part] = event.result.content
        elif type(event) is MessageAdded:
            parts = event.message.parts
        else:
            continue
        for part in parts:
            if _part_length(part) > LARGE_TEXT:
                return True
    return False


def _part_length(part: Part) -> int:
    if type(part) is Text:
        return len(part.text)
    if type(part) is ToolCall:
        return len(part.arguments)
    return len(getattr(part, "data", ""))
