"""Who answers: the seam to a model. Above: the loop and every wrapper. Below: `event.py`, `message.py`.

A model is anything with `stream(request)`. Streaming is the only path: an endpoint that cannot stream says the same
events at once. Whatever differs between providers stays behind this seam.
"""

import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from itertools import count
from typing import Any, Literal, Protocol, TypeAlias, cast, get_args, runtime_checkable

import msgspec
from msgspec import Struct

from . import check
from .error import ConfigError, ContextOverflow, ModelError
from .event import ModelEvent, ReplyFinished, TextDelta, ThinkingDelta, ToolCallDelta, UsageReported
from .message import Message, Part, StopReason, Text, Thinking, ToolCall, Usage
from .plain import clean, excerpt


class ToolSpec(Struct, frozen=True):
    """What a model is told about a tool."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """A JSON Schema."""


Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high"]
"""How hard to think."""
ThinkingMode: TypeAlias = Literal["on", "off", "auto"]
"""Whether a model that can do either is to think; `auto` is what the model does by default."""
CacheLife: TypeAlias = Literal["off", "5m", "1h"]
"""How long a provider that has to be asked keeps the prompt in its cache."""


class Settings(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How to answer. `None` leaves it to the provider."""

    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    stop_sequences: tuple[str, ...] = ()
    seed: int | None = None
    reasoning_effort: Effort | None = None
    reasoning_tokens: int | None = None
    """A budget for thinking, where a provider takes one."""
    thinking: ThinkingMode | None = None
    """For open models that are told by their chat template whether to think."""
    chat_template_kwargs: Mapping[str, Any] = {}
    """Handed to the chat template of an open model as they are; they win over what `thinking` would set."""
    reasoning_in_text: bool | None = None
    """Show the thinking in front of the text as well, between `<think>` and `</think>`."""
    echo_reasoning: bool | None = None
    """Whether a model gets its own thinking back in later requests. `None`: as its provider wants it."""
    cache: CacheLife | None = None
    """How long the prompt is kept, where a provider has to be asked for it. `None`: five minutes."""
    tool_choice: str | None = None
    """`auto`, `none`, `required`, or the name of a tool."""
    parallel_tool_calls: bool | None = None
    extra_body: Mapping[str, Any] = {}
    """Sent to the provider as it is."""

    def __post_init__(self) -> None:
        for name, allows in _SETTINGS.items():
            value = getattr(self, name)
            if value is not None:
                allows("Settings", name, value)


def _check_sequences(call: str, name: str, value: Any) -> None:
    if not isinstance(value, (tuple, list)) or not all(isinstance(each, str) for each in cast("list[Any]", value)):
        check.refuse(call, name, cast("Any", value), "give a list of texts, such as ('END',)")


def _check_choice(call: str, name: str, value: object) -> None:
    if not isinstance(value, str):
        check.refuse(call, name, value, "say 'auto', 'none', 'required', or the name of a tool")


def _check_body(call: str, name: str, value: object) -> None:
    try:
        msgspec.json.decode(msgspec.json.encode(value), type=dict[str, Any])
    except (TypeError, ValueError, RecursionError):
        check.refuse(call, name, value, "give a dict of what JSON can hold")


_SETTINGS: Mapping[str, Callable[[str, str, object], None]] = {
    "temperature": check.number,
    "top_p": lambda call, name, value: check.number(call, name, value, 1),
    "max_output_tokens": lambda call, name, value: check.whole_number(call, name, value, 1),
    "stop_sequences": _check_sequences,
    "seed": lambda call, name, value: check.whole_number(call, name, value, -(2**63)),
    "reasoning_effort": lambda call, name, value: check.one_of(call, name, value, get_args(Effort)),
    "reasoning_tokens": check.whole_number,
    "thinking": lambda call, name, value: check.one_of(call, name, value, get_args(ThinkingMode)),
    "chat_template_kwargs": _check_body,
    "reasoning_in_text": check.flag,
    "echo_reasoning": check.flag,
    "cache": lambda call, name, value: check.one_of(call, name, value, get_args(CacheLife)),
    "tool_choice": _check_choice,
    "parallel_tool_calls": check.flag,
    "extra_body": _check_body,
}
"""What each setting may be."""


OutputMode: TypeAlias = Literal["native", "tool", "prompted"]
"""How a model is held to a schema: by its provider; by a tool that takes the answer; or by asking, and checking."""


class OutputSpec(Struct, frozen=True):
    """What the text of a reply has to be: JSON of this schema. Asked only of models whose `ModelInfo` says `native`."""

    name: str
    schema: Mapping[str, Any]
    """A JSON Schema."""
    description: str = ""


class Request(Struct, frozen=True, kw_only=True):
    """One question to a model."""

    messages: Sequence[Message]
    """The conversation. It never changes afterwards, however long the session gets."""
    instructions: str = ""
    """What used to be called the system prompt."""
    tools: Sequence[ToolSpec] = ()
    settings: Settings = Settings()
    output: OutputSpec | None = None
    """What the text of the reply has to be, if it is not free."""
    session_id: str = ""
    """For providers that cache by it."""


Compact: TypeAlias = Callable[[Request, ContextOverflow], Awaitable[Request | None]]
"""Makes a request shorter that was too long for its model, as the error tells; `None` when it cannot be."""


class Price(Struct, frozen=True, kw_only=True):
    """What a model costs, in US dollars for a million tokens."""

    input_usd: float
    output_usd: float
    cache_read_usd: float | None = None
    """`None`: the same as input."""
    cache_write_usd: float | None = None
    """`None`: the same as input."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and not (isinstance(value, (int, float)) and 0 <= value < math.inf):
                message = f"Price({name}={value!r}): a price is a number of dollars for a million tokens, from 0 on"
                raise ConfigError(message)

    @property
    def read_usd(self) -> float:
        """For what is read from the provider's cache."""
        return self.input_usd if self.cache_read_usd is None else self.cache_read_usd

    @property
    def write_usd(self) -> float:
        """For what is written to the provider's cache."""
        return self.input_usd if self.cache_write_usd is None else self.cache_write_usd

    def cost_usd(self, usage: Usage) -> float:
        """The price of `usage`."""
        fresh = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
        return (
            fresh * self.input_usd
            + usage.cache_read_tokens * self.read_usd
            + usage.cache_write_tokens * self.write_usd
            + usage.output_tokens * self.output_usd
        ) / 1_000_000


class ModelInfo(Struct, frozen=True):
    """Facts about a model."""

    name: str
    provider: str = ""
    price: Price | None = None
    """`None` when unknown; a limit in money then refuses to start."""
    context_tokens: int | None = None
    """How much it can read at once."""
    max_output_tokens: int | None = None
    """How much it can write at once."""
    output: OutputMode = "tool"
    """The best way to hold it to a schema."""

    def __post_init__(self) -> None:
        check.text("ModelInfo", "name", self.name)
        check.text("ModelInfo", "provider", self.provider)
        if self.price is not None and not isinstance(self.price, Price):
            check.refuse("ModelInfo", "price", self.price, "give a Price(…), or None when it is not known")
        for name in ("context_tokens", "max_output_tokens"):
            if getattr(self, name) is not None:
                check.whole_number("ModelInfo", name, getattr(self, name), 1)
        check.one_of("ModelInfo", "output", self.output, get_args(OutputMode))


class Model(Protocol):
    """Answers a request with a stream of events."""

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Deltas, then one `ReplyFinished`.

        Raises a `ModelError`, classified, when the model cannot answer. Ends promptly when cancelled or closed.
        Must not keep or change the request.
        """
        ...


@runtime_checkable
class Described(Protocol):
    """A model that can say what it is."""

    @property
    def info(self) -> ModelInfo: ...


def info_of(model: Model) -> ModelInfo:
    """What is known about a model."""
    info: object = getattr(model, "info", None)  # and not isinstance(model, Described), which takes microseconds
    if isinstance(info, ModelInfo):
        return info
    if info is not None:
        check.refuse(type(model).__name__, "info", info, "what a model says about itself is a ModelInfo(…)")
    return ModelInfo(type(model).__name__)


def assemble(events: Sequence[ModelEvent], finished: ReplyFinished | None = None) -> Message:
    """The message that a stream has told, or what there is of it when it was cut off."""
    if finished is None:
        return Message("assistant", _parts(events, ReplyFinished()), stop=StopReason.CANCELLED, usage=_told(events))
    if finished.usage is not None:
        _check_usage(finished.usage)
    if finished.message is not None:
        return _completed(finished.message, finished)
    parts = _parts(events, finished)
    stop = finished.stop or _suggested_stop(parts)
    return Message("assistant", parts, "", finished.provider, finished.model, stop, finished.usage)


def _told(events: Sequence[ModelEvent]) -> Usage | None:
    """What a stream had told of its usage when it was cut off."""
    for event in reversed(events):
        if isinstance(event, UsageReported):
            return msgspec.structs.replace(event.usage, precision="partial")
    return None


def _check_usage(usage: Usage) -> None:
    """Refuse counts that cannot be added up. (Whatever else a model may get wrong is refused when it is stored.)"""
    if type(usage) is not Usage or {type(usage.input_tokens), type(usage.output_tokens)} != {int}:
        message = f"the model says that it has used {excerpt(usage)}: it has to tell whole numbers, as a Usage(…)"
        raise ModelError(message)


def _completed(message: Message, finished: ReplyFinished) -> Message:
    """A message that was told whole, with what only the end of the stream says."""
    return msgspec.structs.replace(
        message,
        provider=message.provider or finished.provider,
        model=message.model or finished.model,
        stop=message.stop or finished.stop or _suggested_stop(message.parts),
        usage=message.usage or finished.usage,
    )


def _suggested_stop(parts: Sequence[Part]) -> StopReason:
    return StopReason.TOOL_USE if any(type(each) is ToolCall for each in parts) else StopReason.STOP


def _parts(events: Sequence[ModelEvent], finished: ReplyFinished) -> tuple[Part, ...]:
    """Neighbouring deltas of a kind become one part. The pieces of a call may lie apart: its index tells them."""
    if len(events) == 1:
        return _only_part(events[0], finished)
    blocks: list[list[Any]] = []
    calls: dict[int, list[Any]] = {}
    last: tuple[type, int] | None = None
    for event in events:
        if type(event) is ToolCallDelta:
            last = None
            block = calls.get(event.index)
            if block is None or not _goes_on(block[0], event):
                block = calls[event.index] = []
                blocks.append(block)
            block.append(event)
        elif type(event) is TextDelta or type(event) is ThinkingDelta:
            key = (type(event), event.index if type(event) is ThinkingDelta else 0)
            if key != last:
                blocks.append([])
                last = key
            blocks[-1].append(event)
    return tuple([_part(block, finished) for block in blocks])


def _goes_on(first: ToolCallDelta, delta: ToolCallDelta) -> bool:
    """Whether a delta belongs to the same call; there are providers that give every call the same index."""
    return not first.call_id or delta.call_id in {"", first.call_id}


def _only_part(event: ModelEvent, finished: ReplyFinished) -> tuple[Part, ...]:
    if type(event) is ToolCallDelta:
        return (ToolCall(event.call_id, event.name, event.arguments, event.signature),)
    if type(event) is TextDelta or type(event) is ThinkingDelta:
        return (_part([event], finished),)
    return ()


def _part(block: list[Any], finished: ReplyFinished) -> Part:
    match block[0]:
        case TextDelta():
            return Text("".join([delta.text for delta in block]))
        case ToolCallDelta():
            return ToolCall(
                _first(block, "call_id"),
                _first(block, "name"),
                "".join([delta.arguments for delta in block]),
                _first(block, "signature"),
            )
        case _:
            details: dict[str, Any] = {}
            for delta in block:
                details.update(delta.details)
            return Thinking(
                "".join([delta.text for delta in block]),
                "".join([delta.signature for delta in block]),
                "".join([delta.data for delta in block]),
                finished.provider,
                finished.model,
                details,
            )


def _first(block: list[Any], field: str) -> str:
    for delta in block:
        if value := getattr(delta, field):
            return str(value)
    return ""


_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch


def sound(reply: Message, taken: set[str]) -> Message:
    """The reply as it may be kept: text that can be encoded, and calls whose ids are well formed and used once."""
    seen: set[str] = set()
    for part in reply.parts:
        if not _is_sound(part, taken, seen):
            break
    else:
        return reply  # nearly always
    seen.clear()
    return msgspec.structs.replace(reply, parts=tuple([_sound_part(part, taken, seen) for part in reply.parts]))


def _is_sound(part: Part, taken: set[str], seen: set[str]) -> bool:
    if type(part) is ToolCall:
        if part.call_id in taken or part.call_id in seen or not _CALL_ID(part.call_id):
            return False
        seen.add(part.call_id)
        return clean(part.name) is part.name and clean(part.arguments) is part.arguments
    return not isinstance(part, (Text, Thinking)) or clean(part.text) is part.text


def _sound_part(part: Part, taken: set[str], seen: set[str]) -> Part:
    if isinstance(part, (Text, Thinking)):
        return msgspec.structs.replace(part, text=clean(part.text))
    if not isinstance(part, ToolCall):
        return part
    call_id, provider_call_id = part.call_id, part.provider_call_id
    if call_id in taken or call_id in seen or not _CALL_ID(call_id):
        numbers = count(len(taken) + len(seen) + 1)
        call_id = next(name for number in numbers if (name := f"call_{number}") not in taken and name not in seen)
        provider_call_id = provider_call_id or clean(part.call_id)
    seen.add(call_id)
    return ToolCall(call_id, clean(part.name), clean(part.arguments), part.signature, provider_call_id)


def is_empty(reply: Message) -> bool:
    """Whether a reply has nothing in it but thoughts and blanks."""
    for part in reply.parts:
        if type(part) is Text:
            if part.text.strip():
                return False
        elif type(part) is not Thinking:
            return False
    return True
