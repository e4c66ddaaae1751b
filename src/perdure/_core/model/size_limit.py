"""Size limit of messages, replies and tool results, checked before they are stored, so that any store accepts them.

A result above it is replaced by an error result that says so, a reply is cut as if the model had reached its own limit,
and a message that a caller gives is refused.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from perdure._core.values.error import ConfigError
from perdure._core.values.message import (
    Citation,
    Message,
    Part,
    Status,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

MAX_CONTENT_CHARACTERS = 80_000_000
"""The most characters, or bytes of media, of one message or result. A character takes at most twelve bytes in a log:
an entry stays below the gigabyte that files, SQLite and PostgreSQL hold in one piece."""


def count_part_characters(part: Part) -> int:
    """Return the size of a message part: its characters of text, plus its bytes of media."""
    if type(part) is Text:
        return len(part.text) + len(part.signature)
    if type(part) is ToolCall:
        return len(part.arguments) + len(part.signature)
    if type(part) is Thinking:
        return _count_data((part.text, part.data, part.signature, part.details))
    if type(part) is Citation:
        return _count_data((part.quote, part.details))
    if type(part) is ToolResult:
        return _count_result(part)
    return _count_data((getattr(part, "data", None), getattr(part, "url", None)))


def replace_oversized_result(result: ToolResult) -> ToolResult:
    """Return a tool result unchanged if it is short enough to be stored, else a result that says it was too long."""
    size = _count_result(result)
    if size <= MAX_CONTENT_CHARACTERS:
        return result
    ended = "ran to its end" if result.status is Status.OK else f"ended as {result.status}"
    text = (
        f"The call {ended}, and whatever it does has happened. Its result had {size:,} characters, and at most "
        f"{MAX_CONTENT_CHARACTERS:,} can be stored, so nothing of it was kept: have the data written to a file, or ask "
        "for a part of it."
    )
    status = Status.ERROR if result.status is Status.OK else result.status
    return ToolResult(result.call_id, result.name, (Text(text),), status, labels=result.labels)


def truncate_oversized_reply(reply: Message) -> Message:
    """Return a model's reply unchanged if it can be stored, else its beginning, with stop reason `length`."""
    size = _count_data(reply.metadata) if reply.metadata else 0
    for part in reply.parts:
        size += count_part_characters(part)
    return reply if size <= MAX_CONTENT_CHARACTERS else _cut_reply(reply)


def _cut_reply(reply: Message) -> Message:
    """Return the beginning of a reply that is too long, up to the limit, with the stop reason `length`."""
    room = MAX_CONTENT_CHARACTERS - _count_data(reply.metadata)
    kept: list[Part] = []
    for part in reply.parts:
        room -= count_part_characters(part)
        if room < 0:
            break
        kept.append(part)
    following = reply.parts[len(kept) : len(kept) + 1]
    kept += [Text(part.text[:room]) for part in following if isinstance(part, Text) and len(part.text) > -room]
    return replace(reply, parts=tuple(kept), stop=StopReason.LENGTH, metadata={})


def check_content_size(parts: Iterable[Part], what: str) -> None:
    """Raise `ConfigError` if the parts of a message from a caller are too long to be stored."""
    size = sum(map(count_part_characters, parts))
    if size > MAX_CONTENT_CHARACTERS:
        raise ConfigError(
            f"{what} has {size:,} characters, and at most {MAX_CONTENT_CHARACTERS:,} can be stored: give the name of a "
            "file, or a part of the text"
        )


def _count_result(result: ToolResult) -> int:
    content = result.content
    size = len(result.summary) + len(result.preview)
    if len(content) == 1 and type(only := content[0]) is Text:
        size += len(only.text)  # nearly always
    else:
        size += sum(map(count_part_characters, content))
    return size if result.render is None else size + _count_data(result.render)


def _count_data(value: Any) -> int:
    """Return how many characters some data have in JSON, roughly; what is inside of other objects is not counted."""
    size, waiting = 0, [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, (str, bytes)):
            size += len(each)
        elif isinstance(each, Mapping):
            waiting += each.keys()
            waiting += each.values()
        elif isinstance(each, (list, tuple)):
            waiting += each
        else:
            size += 8
    return size
