"""Provenance: where each entry and text of a session came from, such as a person, a model, a tool or a file.

Most of it follows from the kind of an entry: a reply is a model's, a result is its tool's. Only what does not is
stored, where text enters: `author`, `labels` and `sources` of a message, `labels` of a result. A source is a short
text: `person`, `person:NAME`, `model:NAME`, `tool:NAME`, `agent:NAME`, `skill:NAME`, `file:PATH`,
`import:DIGEST`, `inbox`, `program` or `program:PART`.
"""

from collections.abc import Collection
from typing import cast

from .event import (
    RESERVED_PREFIX,
    Compacted,
    Custom,
    InboxResolved,
    MessageAdded,
    ModelReplied,
    ReplyDiscarded,
    SessionConfigured,
    SessionImported,
    SkillLoaded,
    ToolFinished,
    ValueKept,
)
from .event_class import Event, QuestionAnswered
from .message import SENT_ORIGINS, Message, merge_labels

IMPORTED_LABEL = "imported"
"""Label of all that came with an imported session."""
FILE_LABEL = "file"
"""Label of messages that contain files which a user mentioned."""
PRIVATE_LABEL = "private"
"""Label of results that contain data of the user: files, command output, mail."""
UNTRUSTED_LABEL = "untrusted"
"""Label of results that anybody may have written: web pages, messages of others."""
_PRIVATE_LABELS = frozenset({PRIVATE_LABEL, FILE_LABEL})
_UNTRUSTED_LABELS = frozenset({UNTRUSTED_LABEL, IMPORTED_LABEL})
KEPT_LABELS = f"{RESERVED_PREFIX}labels"
"""Name of the stored value with labels of text that a run has, and no message or result of it."""
TRIGGER_ORIGIN = "trigger"
"""Origin of messages with the input of a trigger."""
PERSONAL_ORIGINS = frozenset({"", "steering", "follow_up"})
"""Origins of messages that a person wrote."""


def has_private_and_untrusted_labels(labels: Collection[str]) -> bool:
    """Return True if the labels show that the model has seen private data, and untrusted text that may leak it.

    Such text can make the model give the data away, with the next call that sends something out.
    """
    return not _PRIVATE_LABELS.isdisjoint(labels) and is_untrusted(labels)


def is_untrusted(labels: Collection[str]) -> bool:
    """Return True if labels say that others may have written the text."""
    return not _UNTRUSTED_LABELS.isdisjoint(labels)


def list_message_sources(message: Message) -> tuple[str, ...]:
    """Return the sources of a message: who wrote it, and where its other parts came from."""
    return (*_list_authors(message), *message.sources)


def _list_authors(message: Message) -> tuple[str, ...]:
    if message.role == "assistant":
        if message.origin in SENT_ORIGINS:
            return ("program:host",)
        return (f"model:{message.model}" if message.model else "model",)
    if message.role == "tool":
        return tuple(dict.fromkeys([f"tool:{result.name}" for result in message.tool_results]))
    if message.role == "system" or message.origin not in PERSONAL_ORIGINS:
        return (_describe_origin(message),)
    if not message.author and message.sources and message.sources[0].startswith("agent:"):
        return ()  # a task that another agent gave
    return (f"person:{message.author}" if message.author else "person",)


def _describe_origin(message: Message) -> str:
    if message.origin == "skill" and isinstance(name := message.metadata.get("skill"), str):
        return f"skill:{name}"
    if message.origin == "inbox":
        return "inbox"
    return f"program:{message.origin}" if message.origin else "program"


def list_event_sources(event: Event) -> tuple[str, ...]:
    """Return the sources of a log entry: a person, a model, a tool, an import, or the program itself."""
    if isinstance(event, (MessageAdded, ModelReplied)):
        return list_message_sources(event.message)
    if isinstance(event, Compacted):
        return list_message_sources(event.summary)
    return (_get_source(event),)


def _get_source(event: Event) -> str:
    name = getattr(event, "name", "")
    if isinstance(event, SessionImported):
        return f"import:{event.digest}"
    if isinstance(event, QuestionAnswered):
        return "program" if event.source == "expired" else "person"
    return _SOURCES.get(type(event), "program").format(name)


_SOURCES: dict[type[Event], str] = {
    ToolFinished: "tool:{}",
    SkillLoaded: "skill:{}",
    Custom: "program:{}",
    ReplyDiscarded: "model",
    InboxResolved: "inbox",
    SessionConfigured: "program:host",
}


def list_message_labels(message: Message) -> tuple[str, ...]:
    """Return the labels of a message and of the results in it."""
    return merge_labels(message.labels, *[result.labels for result in message.tool_results])


def list_kept_labels(event: ValueKept) -> tuple[list[str], list[str]]:
    """Return the labels of a stored value that consists of labels, and their sources; of any other, none."""
    if event.name != KEPT_LABELS or not isinstance(event.value, dict):
        return [], []
    kept = cast("dict[object, object]", event.value)
    return [str(each) for each in kept], [str(each) for each in kept.values()]
