"""Sources of what a session contains: who wrote an entry, and what brought a label into the conversation.

Most of it follows from the kind of an entry: a reply is a model's, a result is its tool's. Only what does not is
stored, where text enters: `author`, `labels` and `sources` of a message, `labels` of a result. A source is a short
text: `person`, `person:NAME`, `model:NAME`, `tool:NAME`, `agent:NAME`, `skill:NAME`, `file:PATH`,
`import:DIGEST`, `inbox`, `program` or `program:PART`.
"""

from .event import (
    Compacted,
    Custom,
    Event,
    InboxResolved,
    MessageAdded,
    ModelReplied,
    QuestionAnswered,
    ReplyDiscarded,
    SessionConfigured,
    SessionImported,
    SkillLoaded,
    ToolFinished,
)
from .message import SENT_ORIGINS, Message

IMPORTED_LABEL = "imported"
"""Label of all that came with an imported session."""
FILE_LABEL = "file"
"""Label of messages that contain files which a user mentioned."""
PERSONAL_ORIGINS = frozenset({"", "steering", "follow_up"})
"""Origins of messages that a person wrote."""


def list_message_sources(message: Message) -> tuple[str, ...]:
    """Return who wrote a message, and where other parts of it come from."""
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
    """Return who wrote an entry of the log: a person, a model, a tool, an import, or the program itself."""
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
