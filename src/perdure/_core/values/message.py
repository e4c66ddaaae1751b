"""Messages and their parts: text, thinking, media, citations, tool calls and results; token usage.

Pure values that survive a round trip through JSON unchanged; ids and order belong to the log.

A transcript is a list of messages. A `user` message contains text and media, an `assistant` message text, citations,
thinking and tool calls, and each assistant message with calls is followed by one `tool` message that contains exactly
one result for each call, in the order of the calls.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict, replace

from .error import ConfigError
from .jsonable import replace_surrogates, to_jsonable


# `gc=False`, here and for events: none of these can be part of a cycle, so the garbage collector can skip them, and a
# long conversation costs it nothing.
class Text(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="text"):
    """A part of a message that is text."""

    text: str
    """The text itself."""
    signature: str = ""
    """Opaque token of the provider that wrote it; sent back to that provider only."""


class Thinking(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="thinking"):
    """Reasoning of a model before its reply. Sent back, byte for byte, to the model that wrote it, and to no other."""

    text: str = ""
    """Readable part; empty when the provider shows none."""
    signature: str = ""
    """The provider's proof that it wrote this."""
    data: str = ""
    """Encrypted part, as the provider sent it."""
    provider: str = ""
    """Provider of the model."""
    model: str = ""
    """Model that wrote it."""
    details: dict[str, Any] = {}
    """Everything else that has to be sent back unchanged: ids, formats, positions."""
    is_item: bool = False
    """True if it is no thinking, but an item that the provider made itself, such as a search; `details` has it all."""


class Media(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="media"):
    """A part of a message that is not text, as bytes or a URL. Use `Image`, `Audio`, `Video` or `Document`."""

    data: bytes = b""
    """The content itself (base64 in JSON); empty when `url` or `file_id` locates it."""
    url: str = ""
    """Address from which it can be fetched."""
    file_id: str = ""
    """Id under which a provider stores it."""
    media_type: str = ""
    """For instance `image/png`."""
    name: str = ""
    """File name to display."""


class Image(Media, frozen=True, tag="image"):
    """A picture in a message."""

    detail: str = ""
    """Resolution that the model should use: `low`, `high` or `auto`."""


class Audio(Media, frozen=True, tag="audio"):
    """An audio recording in a message."""


class Video(Media, frozen=True, tag="video"):
    """A video in a message."""


class Document(Media, frozen=True, tag="document"):
    """A file in a message: PDF, text, any format that a provider accepts."""


class Citation(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="citation"):
    """A reference from a reply to one of its sources. It follows the text that it belongs to."""

    source: str = ""
    """URL, id or name of the source."""
    title: str = ""
    """Title of the source, for display."""
    quote: str = ""
    """Passage of the source that is cited, when the provider quotes it."""
    start: int | None = None
    """Start of the citing passage in `Message.text`; `None` when the provider does not locate it."""
    end: int | None = None
    """End of that passage: it is `message.text[start:end]`."""
    details: dict[str, Any] = {}
    """The citation as the provider sent it; sent back to that provider only."""


class ToolCall(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="tool_call"):
    """A model's request to call a tool."""

    call_id: str
    """Id of the call, repeated by its result. Unique in its session."""
    name: str
    """Name of the tool."""
    arguments: str = "{}"
    """Arguments as the model wrote them: raw JSON text, possibly invalid."""
    signature: str = ""
    """Opaque token of the provider that wrote it."""
    provider_call_id: str = ""
    """The provider's own id, when it could not serve as `call_id` (empty, malformed, or used before)."""
    run_by_provider: bool = False
    """True if the provider makes the call itself and asks whether it may; no tool of the agent is called."""


class Status(StrEnum):
    """Status of a finished tool call; if `timed_out`, `cancelled` or `unknown`, it may have had an effect."""

    OK = "ok"
    ERROR = "error"
    DENIED = "denied"
    CANCELLED_BEFORE_START = "cancelled_before_start"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


_OK = Status.OK
"""A member of an enum is slow to look up, and this one is asked for with every result."""

UNCERTAIN_STATUSES = frozenset({Status.TIMED_OUT, Status.CANCELLED, Status.UNKNOWN})
"""Statuses of calls that may have taken effect."""


class ToolResult(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="tool_result"):
    """Result of a tool call. Every call gets exactly one."""

    call_id: str
    """The call that this answers."""
    name: str
    """The tool that was called."""
    content: tuple[Text | Image | Audio | Video | Document, ...] = ()
    """Content for the model."""
    status: Status = Status.OK
    """Status with which the call ended."""
    render: Any = None
    """Data for a user interface; never sent to the model."""
    summary: str = ""
    """Short form that may replace the content in later turns."""
    terminate: bool = False
    """True if the tool asks to end the run here."""
    preview: str = ""
    """Text sent to the model instead of a content that is too long; the log keeps the content."""
    labels: tuple[str, ...] = ()
    """Labels of the content, such as `untrusted`: gates see them with every later call."""

    @property
    def is_error(self) -> bool:
        """True if the status is anything but success."""
        return self.status is not _OK

    @property
    def text(self) -> str:
        """Content of the result as plain text."""
        content = self.content
        if len(content) == 1 and type(content[0]) is Text:
            return content[0].text  # nearly always
        return parts_to_text(content)


Part: TypeAlias = Text | Thinking | Image | Audio | Video | Document | Citation | ToolCall | ToolResult
ResultPart: TypeAlias = Text | Image | Audio | Video | Document
Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


class StopReason(StrEnum):
    """Reason why the model ended its reply."""

    STOP = "stop"
    TOOL_USE = "tool_use"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    STOP_SEQUENCE = "stop_sequence"
    """It wrote one of the request's stop sequences, and the provider said so. Others report `stop`."""
    PAUSE = "pause"
    """The provider interrupted the turn, because its own tools take long: the run sends the reply back and goes on."""
    CANCELLED = "cancelled"
    ERROR = "error"


Precision: TypeAlias = Literal["exact", "estimated", "partial"]


class Usage(Struct, frozen=True, gc=False, omit_defaults=True):
    """Token counts of requests to a model: reported by the provider, or estimated, as `precision` says."""

    input_tokens: int = 0
    """All input tokens, cached or not."""
    output_tokens: int = 0
    """All output tokens, thinking included."""
    cache_read_tokens: int = 0
    """Input tokens read from the provider's cache."""
    cache_write_tokens: int = 0
    """Input tokens written to the provider's cache."""
    reasoning_tokens: int = 0
    """Output tokens spent on thinking."""
    precision: Precision = "exact"
    """`partial` when a stream was cut off before its final counts, `estimated` when the counts are our own."""
    reported_usd: float | None = None
    """Cost in US dollars as the provider reports it; `None` when it does not, for any of these tokens."""

    @property
    def total_tokens(self) -> int:
        """Sum of input and output tokens."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        precision = self.precision
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            precision if precision == other.precision else _coarser_precision(precision, other.precision),
            None if self.reported_usd is None and other.reported_usd is None else _add_reported_costs(self, other),
        )

    def minus(self, part: "Usage") -> "Usage":
        """Return the token counts without those of a part of them, and without a reported cost."""
        return Usage(
            self.input_tokens - part.input_tokens,
            self.output_tokens - part.output_tokens,
            self.cache_read_tokens - part.cache_read_tokens,
            self.cache_write_tokens - part.cache_write_tokens,
            self.reasoning_tokens - part.reasoning_tokens,
            self.precision,
        )


def merge_exact_usages(usages: "Sequence[Usage]") -> "Sequence[Usage]":
    """Merge exact token counts into one with the same sum; return them unchanged if one is inexact or has a cost."""
    if len(usages) == 1:
        return usages
    sent = generated = cache_read = cache_written = reasoned = 0
    for each in usages:
        if each.precision != "exact" or each.reported_usd is not None:
            return usages
        sent += each.input_tokens
        generated += each.output_tokens
        cache_read += each.cache_read_tokens
        cache_written += each.cache_write_tokens
        reasoned += each.reasoning_tokens
    return (Usage(sent, generated, cache_read, cache_written, reasoned),) if usages else ()


MAX_TOKENS = 10**12
"""The largest token count that is believed; a provider that reports more is wrong."""


def clamp_usage(usage: Usage) -> Usage:
    """Return token counts that can be stored and added up: whole numbers from 0 to `MAX_TOKENS`."""
    one, two, three = usage.input_tokens, usage.output_tokens, usage.cache_read_tokens
    four, five = usage.cache_write_tokens, usage.reasoning_tokens
    is_known = usage.precision in _COARSENESS
    if (
        is_known
        and type(one) is int
        and type(two) is int
        and type(three) is int
        and type(four) is int
        and type(five) is int
        and 0 <= one | two | three | four | five <= MAX_TOKENS  # negative if any is, and at least the largest
        and (usage.reported_usd is None or is_cost(usage.reported_usd))
    ):
        return usage  # nearly always
    one, two, three, four, five = map(_clamp_count, (one, two, three, four, five))
    cost = usage.reported_usd if is_cost(usage.reported_usd) else None
    return Usage(one, two, three, four, five, usage.precision if is_known else "estimated", cost)


def is_cost(value: object) -> bool:
    """Return True if a value is a valid cost in dollars: a number from 0 to `MAX_TOKENS`."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS


def _clamp_count(count: object) -> int:
    if not isinstance(count, (int, float)) or count != count:  # noqa: PLR0124 - NaN
        return 0
    return int(min(max(count, 0), MAX_TOKENS))


def _add_reported_costs(one: Usage, other: Usage) -> float | None:
    """Return the sum of two reported costs; `None` if one of them is not reported. No tokens cost nothing."""
    if one.reported_usd is None:
        return None if one.total_tokens else other.reported_usd
    if other.reported_usd is None:
        return None if other.total_tokens else one.reported_usd
    return one.reported_usd + other.reported_usd


_COARSENESS: dict[Precision, int] = {"exact": 0, "estimated": 1, "partial": 2}


def _coarser_precision(one: Precision, other: Precision) -> Precision:
    return one if _COARSENESS[one] >= _COARSENESS[other] else other


NO_USAGE = Usage()


class Message(Struct, frozen=True, gc=False, omit_defaults=True):
    """A message of a conversation."""

    role: Role
    """Author of the message. Instructions are passed beside the messages; `system` is accepted in imported ones."""
    parts: tuple[Part, ...] = ()
    """Parts of the message, in order."""
    origin: str = ""
    """Origin when neither a person nor a model wrote it: `steering`, `follow_up`, `guardrail`, `auto_continue`, …"""
    provider: str = ""
    """Provider of the model that wrote it."""
    model: str = ""
    """Model that wrote it."""
    stop: StopReason | None = None
    """Stop reason of the model; `None` on messages that no model wrote."""
    usage: Usage | None = None
    """Token counts of the request; `None` when none were reported."""
    original_text: str = ""
    """Text as the user typed it, when a directive rewrote it."""
    metadata: dict[str, Any] = {}
    """Any data that a caller, or a provider, keeps with the message. Never sent to a model."""
    author: str = ""
    """Person who wrote it, as the program knows them; empty if it does not, or if no person did. Never sent."""
    labels: tuple[str, ...] = ()
    """Labels of the content, such as `untrusted`: gates see them with every later call. Never sent to a model."""
    sources: tuple[str, ...] = ()
    """Where parts of it come from, besides its author: `file:PATH`, `agent:NAME`, `import:DIGEST`. Never sent."""

    @property
    def text(self) -> str:
        """Text of the message, without thinking, calls or results."""
        parts = self.parts
        if len(parts) == 1 and type(parts[0]) is Text:
            return parts[0].text
        return "".join(part.text for part in parts if type(part) is Text)

    @property
    def thinking(self) -> str:
        """The model's thinking, as far as it is readable text."""
        return "".join(part.text for part in self.parts if type(part) is Thinking)

    @property
    def provider_items(self) -> tuple[dict[str, Any], ...]:
        """Items that the provider made itself (a search, an image, code that it ran), as it sent them, in order."""
        return tuple([part.details for part in self.parts if type(part) is Thinking and part.is_item])

    @property
    def citations(self) -> tuple[Citation, ...]:
        """Citations in the message, in order."""
        return tuple([part for part in self.parts if type(part) is Citation])

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """Tool calls in the message, in order."""
        parts = self.parts
        if len(parts) == 1 and type(only := parts[0]) is ToolCall:
            return (only,)
        return tuple([part for part in parts if type(part) is ToolCall])

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        """Tool results in the message, in order."""
        return tuple([part for part in self.parts if type(part) is ToolResult])


PASSING_ORIGINS = frozenset({"reminder", "budget"})
"""Origins of messages that are added to the end of one request and never stored."""

SENT_ORIGINS = frozenset({"steering", "follow_up"})
"""Origins of messages that were sent to a session while it ran, or between runs. A host may send words of the
assistant, too: no model wrote them, and they are no answer.
"""

Content: TypeAlias = str | Part | Iterable[str | Part]
"""Content accepted by the message constructors: text, a part, or several of either."""


def user(
    content: Content,
    *,
    origin: str = "",
    metadata: dict[str, Any] | None = None,
    author: str = "",
    labels: Sequence[str] = (),
) -> Message:
    """Build a user message: written by a person, or on a person's behalf by the sender that `origin` names.

    `author` is the person, as the program knows them. `labels` say what has to be known of the text, such as
    `untrusted` for a mail that somebody else wrote: gates see them with every later call.
    """
    return Message(
        "user", to_parts(content), origin=origin, metadata=metadata or {}, author=author, labels=check_labels(labels)
    )


def assistant(content: Content, *, stop: StopReason | None = None, usage: Usage | None = None) -> Message:
    """Build a message from a model."""
    return Message("assistant", to_parts(content), stop=stop, usage=usage)


def tool_message(results: Sequence[ToolResult]) -> Message:
    """Build the message with the results of all tool calls of the message before it."""
    if isinstance(results, (tuple, list)) and all(isinstance(result, ToolResult) for result in results):
        return Message("tool", tuple(results))
    message = f"{results!r} cannot be put into a message of results: give a list of ToolResult(…)"
    raise ConfigError(message)


def to_parts(content: Content) -> tuple[Part, ...]:
    """Convert text, a part, or a mixed list of both to a tuple of parts. Raises `ConfigError` for anything else."""
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


MAX_LABEL_LENGTH = 64
"""Maximum length of a label."""


def check_labels(labels: Sequence[str]) -> tuple[str, ...]:
    """Return labels as a tuple without duplicates. Raises `ConfigError` unless each is short and on one line."""
    if isinstance(labels, (tuple, list)) and all(map(_is_label, labels)):
        return tuple(dict.fromkeys(labels))
    message = f"labels={labels!r}: give a list of short words, such as ['untrusted']"
    raise ConfigError(message)


def _is_label(label: object) -> bool:
    return isinstance(label, str) and 0 < len(label) <= MAX_LABEL_LENGTH and label.isprintable()


def merge_labels(*groups: Iterable[str]) -> tuple[str, ...]:
    """Join several groups of labels to one, each label once, in the order of their first occurrence."""
    return tuple(dict.fromkeys([label for group in groups for label in group]))


PART_TYPES = (Text, Thinking, Image, Audio, Video, Document, Citation, ToolCall, ToolResult)
RESULT_TYPES = (Text, Image, Audio, Video, Document)


def sanitize_part(part: ResultPart) -> ResultPart | None:
    """Return a message part whose text can be encoded; `None` when a field has a value of the wrong type.

    Parts are not validated when they are made: that would cost too much where thousands are made.
    """
    fields = asdict(part)
    if type(fields.pop("data", b"")) is not bytes or {*map(type, fields.values())} != {str}:
        return None
    return replace(part, **{name: replace_surrogates(text) for name, text in fields.items()})


def is_empty(reply: Message) -> bool:
    """Return True if a model's reply contains nothing but thinking, citations and whitespace."""
    for part in reply.parts:
        if type(part) is ToolCall:
            return False
        if type(part) is Text:
            if part.text.strip():
                return False
        elif type(part) is Thinking:
            if part.is_item:
                return False
        elif type(part) is not Citation:
            return False
    return True


def is_cut_short(reply: Message) -> bool:
    """Return True if a model's reply ended too early: at a limit, by a content filter, or before any text."""
    stop = reply.stop
    if stop is StopReason.STOP_SEQUENCE:
        return is_empty(reply)
    return stop is StopReason.LENGTH or stop is StopReason.CONTENT_FILTER


def sanitize_citation(citation: Citation) -> Citation:
    """Return a citation that can be stored: encodable text, JSON values, and a span of whole numbers."""
    texts = {name: _clean_text(getattr(citation, name)) for name in ("source", "title", "quote")}
    start, end = citation.start, citation.end
    has_span = type(start) is int and type(end) is int and 0 <= start <= end
    details: Any = citation.details
    clean = Citation(
        **texts,
        start=start if has_span else None,
        end=end if has_span else None,
        details=to_jsonable(details) if isinstance(details, dict) else {},
    )
    return citation if clean == citation else clean


def _clean_text(text: object) -> str:
    return replace_surrogates(text) if isinstance(text, str) else ""


def parts_to_text(parts: Iterable[Part]) -> str:
    """Convert parts to plain text, with a bracketed note for anything that is not text."""
    return "\n".join([line for line in map(_part_to_text, parts) if line])


def _part_to_text(part: Part) -> str:
    match part:
        case Text(text=text):
            return text
        case Thinking():
            return ""
        case Citation(source=source, title=title):
            return f"[source: {' '.join(filter(None, (title, source)))}]"
        case ToolCall(name=name, arguments=arguments):
            return f"[call {name} {arguments}]"
        case ToolResult():
            return part.text
        case _:
            label = type(part).__name__.lower()
            return f"[{label}: {part.name or part.url}]" if part.name or part.url else f"[{label}]"
