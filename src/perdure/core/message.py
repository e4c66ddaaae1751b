"""What is said: parts, messages, usage. Pure values; identity and order belong to the log.

Above: everything. Below: `error.py`. Everything here survives a round trip through JSON unchanged.

A transcript is a list of messages. A `user` message holds text and media, an `assistant` message text, thinking
and tool calls, and each assistant message with calls is followed by one `tool` message that holds exactly one
result for each call, in the order of the calls.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict, replace

from .error import ConfigError
from .plain import clean


# `gc=False`, here and for events: none of these can lie in a cycle, so the garbage collector need not look at them;
# a long conversation costs it nothing.
class Text(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="text"):
    """Words."""

    text: str
    """What is said."""
    signature: str = ""
    """An opaque token of the provider that wrote it; sent back to that provider alone."""


class Thinking(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="thinking"):
    """What a model thought before it spoke. Sent back, byte for byte, only to the model that wrote it."""

    text: str = ""
    """The readable part; empty when the provider shows none."""
    signature: str = ""
    """The provider's proof that it wrote this."""
    data: str = ""
    """The encrypted part, as the provider sent it."""
    provider: str = ""
    """Who served the model."""
    model: str = ""
    """Which model wrote it."""
    details: dict[str, Any] = {}
    """Whatever else has to come back exactly: ids, formats, positions."""


class Media(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="media"):
    """Bytes or an address of something that is not text. Use `Image`, `Audio`, `Video` or `Document`."""

    data: bytes = b""
    """The content itself (base64 in JSON); or empty, and then `url` or `file_id` says where it is."""
    url: str = ""
    """Where it can be fetched."""
    file_id: str = ""
    """The name under which a provider keeps it."""
    media_type: str = ""
    """For instance `image/png`."""
    name: str = ""
    """A file name to show."""


class Image(Media, frozen=True, tag="image"):
    """A picture."""

    detail: str = ""
    """How closely the model should look: `low`, `high` or `auto`."""


class Audio(Media, frozen=True, tag="audio"):
    """A recording."""


class Video(Media, frozen=True, tag="video"):
    """A film."""


class Document(Media, frozen=True, tag="document"):
    """A file: PDF, text, anything that a provider takes."""


class ToolCall(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="tool_call"):
    """The model asks for a tool."""

    call_id: str
    """Names this call; the result carries the same name. Unique in its session."""
    name: str
    """Which tool."""
    arguments: str = "{}"
    """The arguments as the model wrote them: raw JSON text, perhaps not even valid."""
    signature: str = ""
    """An opaque token of the provider that wrote it."""
    provider_call_id: str = ""
    """What the provider called it, when that could not serve as `call_id` (empty, malformed, or used before)."""


class Status(StrEnum):
    """How a call ended. The last three may have had an effect; nobody knows."""

    OK = "ok"
    ERROR = "error"
    DENIED = "denied"
    CANCELLED_BEFORE_START = "cancelled_before_start"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


UNCERTAIN = frozenset({Status.TIMED_OUT, Status.CANCELLED, Status.UNKNOWN})
"""The statuses of calls that may have taken effect."""


class ToolResult(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="tool_result"):
    """What became of a call. Every call gets exactly one."""

    call_id: str
    """The call that this answers."""
    name: str
    """The tool that was called."""
    content: tuple[Text | Image | Audio | Video | Document, ...] = ()
    """What the model is shown."""
    status: Status = Status.OK
    """How it ended."""
    render: Any = None
    """Data for a screen, which the model never sees."""
    summary: str = ""
    """A short form that may stand for the content in later turns."""
    terminate: bool = False
    """The tool asks that the run end here."""
    preview: str = ""
    """What the model is sent instead of a content that is too long for it; the log keeps the content."""

    @property
    def is_error(self) -> bool:
        """Whether anything but success is to be told to the model."""
        return self.status is not Status.OK

    @property
    def text(self) -> str:
        """The content as plain text."""
        return flatten(self.content)


Part: TypeAlias = Text | Thinking | Image | Audio | Video | Document | ToolCall | ToolResult
ResultPart: TypeAlias = Text | Image | Audio | Video | Document
Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


class StopReason(StrEnum):
    """Why the model stopped talking."""

    STOP = "stop"
    TOOL_USE = "tool_use"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    CANCELLED = "cancelled"
    ERROR = "error"


Precision: TypeAlias = Literal["exact", "estimated", "partial"]


class Usage(Struct, frozen=True, gc=False, omit_defaults=True):
    """Tokens, counted by the provider (or estimated, and then it says so)."""

    input_tokens: int = 0
    """Everything that was read, cached or not."""
    output_tokens: int = 0
    """Everything that was written, thinking included."""
    cache_read_tokens: int = 0
    """Of the input: read from the provider's cache."""
    cache_write_tokens: int = 0
    """Of the input: written to the provider's cache."""
    reasoning_tokens: int = 0
    """Of the output: spent on thinking."""
    precision: Precision = "exact"
    """`partial` when a stream was cut off before it told, `estimated` when we counted ourselves."""

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            _coarser(self.precision, other.precision),
        )


_COARSENESS: dict[Precision, int] = {"exact": 0, "estimated": 1, "partial": 2}


def _coarser(one: Precision, other: Precision) -> Precision:
    return one if _COARSENESS[one] >= _COARSENESS[other] else other


NO_USAGE = Usage()


class Message(Struct, frozen=True, gc=False, omit_defaults=True):
    """One thing that was said."""

    role: Role
    """Who said it. Instructions travel beside the messages; `system` is accepted from elsewhere."""
    parts: tuple[Part, ...] = ()
    """What was said, in order."""
    origin: str = ""
    """Where it came from when not from a person or a model: `steering`, `follow_up`, `guardrail`, `auto_continue`, …"""
    provider: str = ""
    """Who served the model that wrote it."""
    model: str = ""
    """Which model wrote it."""
    stop: StopReason | None = None
    """Why the model stopped; `None` on messages that no model wrote."""
    usage: Usage | None = None
    """What it cost in tokens; `None` when nobody told."""
    original_text: str = ""
    """What the person typed, when a directive rewrote it."""
    metadata: dict[str, Any] = {}
    """Anything a caller wants to keep beside it. Never sent to a model."""

    @property
    def text(self) -> str:
        """The words of it, without thinking, calls or results."""
        parts = self.parts
        if len(parts) == 1 and type(parts[0]) is Text:
            return parts[0].text
        return "".join(part.text for part in parts if type(part) is Text)

    @property
    def thinking(self) -> str:
        """The readable part of the thinking."""
        return "".join(part.text for part in self.parts if type(part) is Thinking)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls in it, in order."""
        return tuple([part for part in self.parts if type(part) is ToolCall])

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        """The results in it, in order."""
        return tuple([part for part in self.parts if type(part) is ToolResult])


PASSING = frozenset({"reminder", "budget"})
"""Origins of messages that are added to the end of one request and never kept."""

Content: TypeAlias = str | Part | Iterable[str | Part]
"""What the constructors take: words, a part, or several of either."""


def user(content: Content, *, origin: str = "", metadata: dict[str, Any] | None = None) -> Message:
    """A message from a person (or on behalf of one: then `origin` says from where)."""
    return Message("user", parts_of(content), origin=origin, metadata=metadata or {})


def assistant(content: Content, *, stop: StopReason | None = None, usage: Usage | None = None) -> Message:
    """A message from a model."""
    return Message("assistant", parts_of(content), stop=stop, usage=usage)


def tool_message(results: Sequence[ToolResult]) -> Message:
    """The one message that answers all the calls of the message before it."""
    return Message("tool", tuple(results))


def parts_of(content: Content) -> tuple[Part, ...]:
    """Words and parts, mixed as people write them, as a tuple of parts."""
    if isinstance(content, str):
        return (Text(content),)
    if isinstance(content, PART_TYPES):
        return (content,)
    if isinstance(content, Iterable) and not isinstance(content, Mapping):
        parts = tuple([Text(item) if isinstance(item, str) else item for item in content])
        if all(isinstance(part, PART_TYPES) for part in parts):
            return parts
    message = f"{content!r} cannot be put into a message: give text, a part such as Image(…), or a list of them"
    raise ConfigError(message)


PART_TYPES = (Text, Thinking, Image, Audio, Video, Document, ToolCall, ToolResult)
RESULT_TYPES = (Text, Image, Audio, Video, Document)


def storable(part: ResultPart) -> ResultPart | None:
    """The part, with text that can be encoded; nothing when a field holds what it should not.

    Nobody looks at what is in a part when it is made: that would cost too much where parts are made by the thousand.
    """
    fields = asdict(part)
    if type(fields.pop("data", b"")) is not bytes or {*map(type, fields.values())} != {str}:
        return None
    return replace(part, **{name: clean(text) for name, text in fields.items()})


def flatten(parts: Iterable[Part]) -> str:
    """Parts as plain text, with a bracketed note for whatever is not text."""
    return "\n".join([line for line in map(_as_text, parts) if line])


def _as_text(part: Part) -> str:
    match part:
        case Text(text=text):
            return text
        case Thinking():
            return ""
        case ToolCall(name=name, arguments=arguments):
            return f"[call {name} {arguments}]"
        case ToolResult():
            return part.text
        case _:
            label = type(part).__name__.lower()
            return f"[{label}: {part.name or part.url}]" if part.name or part.url else f"[{label}]"
