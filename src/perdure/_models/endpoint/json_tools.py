"""JSON tool mode: wrap a model without tool support; tools are described in the prompt and called by JSON."""

from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar, cast

import msgspec
from msgspec.structs import replace

from perdure._core.model.protocol import Model, OutputSpec, Request, ToolSpec, assemble_reply, model_info
from perdure._core.model.wrappers import WrappedModel, open_stream
from perdure._core.values.error import ConfigError
from perdure._core.values.event import (
    CitationAdded,
    FailedOver,
    ModelEvent,
    ReplyFinished,
    RetryScheduled,
    TextDelta,
    ToolCallDelta,
)
from perdure._core.values.jsonable import to_text
from perdure._core.values.message import Citation, Media, Message, Part, StopReason, Text, Thinking, ToolResult

from .json_reply import JsonReplyParser

AnswerForm: TypeAlias = Literal["bare", "text", "value"]
"""How an earlier answer is rewritten: not at all; as the text of a `final`; as the JSON value of one."""

MAX_CACHED = 4096
"""Maximum number of rewritten messages that are cached."""


class MessageRewriter:
    """Rewrites the tool calls and results of messages as JSON text; the same message always gives the same object."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, AnswerForm], tuple[Message, Message]] = OrderedDict()
        """Rewritten messages by the id of the original, which is kept too, so that no other message can have its id."""

    def __call__(self, message: Message, form: AnswerForm) -> Message:
        """Return the message with its tool calls and results rewritten as JSON text of this form."""
        if message.role not in {"assistant", "tool"}:
            return message
        name = (id(message), form)
        kept = self._kept.pop(name, None) or (message, _rewrite_message(message, form))
        if not any(isinstance(part, Media) for part in kept[1].parts):  # media may be large
            self._kept[name] = kept
        if len(self._kept) > MAX_CACHED:
            self._kept.popitem(last=False)
        return kept[1]


def _rewrite_message(message: Message, form: AnswerForm) -> Message:
    if message.role == "tool":
        return Message("user", _rewrite_result_parts(message.tool_results))
    if form == "bare" and not message.tool_calls:
        return message
    return replace(message, parts=_rewrite_assistant_parts(message, form))


def _rewrite_assistant_parts(message: Message, form: AnswerForm) -> tuple[Part, ...]:
    """Return a line of JSON for each tool call, or the answer. Text before a call is kept."""
    text = message.text
    calls = [
        encode_spaced_json({"tool": call.name, "args": _embed_json(call.arguments)}) for call in message.tool_calls
    ]
    if text and not calls:
        text = encode_spaced_json({"final": _embed_json(text) if form == "value" else text})
    lines = "\n".join([text, *calls] if text else calls)
    thoughts = [part for part in message.parts if isinstance(part, Thinking)]
    return (*thoughts, Text(lines)) if lines else tuple(thoughts)


def _rewrite_result_parts(results: Sequence[ToolResult]) -> tuple[Part, ...]:
    """Return a line of JSON for each tool result, followed by images and other media."""
    lines = [
        encode_spaced_json({"tool": each.name, "error" if each.is_error else "result": each.text}) for each in results
    ]
    media = [part for each in results for part in each.content if not isinstance(part, Text)]
    return (Text("\n".join(lines)), *media)


def _embed_json(text: str) -> Any:
    """Return JSON text as a raw JSON value; any other text as a string."""
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text
    return msgspec.Raw(text.encode())


def encode_spaced_json(value: Any) -> str:
    """Encode a value as JSON on one line, with a space after each comma and colon, as models usually write it."""
    try:
        return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()
    except (TypeError, ValueError, RecursionError):  # values that JSON cannot represent are converted to text
        return to_text(value)


def build_toolless_request(request: Request, rewrite_message: MessageRewriter, *, enforced: bool) -> Request:
    """Return a request without tools, whose instructions describe the tools and how to call them by writing JSON.

    If `enforced`, the request also has an output schema that the reply must match.
    """
    form: AnswerForm = "bare" if not request.tools else ("text" if request.output is None else "value")
    messages = [rewrite_message(message, form) for message in request.messages]
    if not request.tools:
        return replace(request, messages=messages)
    return replace(
        request,
        messages=messages,
        instructions=add_tools_to_instructions(request.instructions, request.tools, request.output),
        tools=(),
        settings=replace(request.settings, tool_choice=None, parallel_tool_calls=None),
        output=build_reply_schema(request) if enforced else None,
    )


def add_tools_to_instructions(instructions: str, tools: Sequence[ToolSpec], output: OutputSpec | None) -> str:
    """Append descriptions of the tools to the instructions. Equal tools give equal text, for the prompt cache."""
    listed = "\n".join(
        [f"{tool.name}: {tool.description} args: {encode_spaced_json(tool.parameters)}" for tool in tools]
    )
    form = (
        'Reply with one JSON object and nothing else. To use a tool: {"tool": NAME, "args": {...}}. To answer, when no '
        'tool is needed or when its result is known: {"final": '
    )
    form += (
        "TEXT}."
        if output is None
        else f"VALUE}}, where VALUE is JSON of this schema: {encode_spaced_json(output.schema)}"
    )
    return "\n\n".join([part for part in (instructions, f"Tools:\n{listed}", form) if part])


def build_reply_schema(request: Request) -> OutputSpec:
    """Build the JSON Schema of a reply in JSON tool mode: a call of one of the allowed tools, or the answer."""
    choice = request.settings.tool_choice or "auto"
    definitions: dict[str, Any] = {}
    forms = [
        _build_call_schema(tool, definitions) for tool in request.tools if choice in {"auto", "required", tool.name}
    ]
    if choice in {"auto", "none"} or not forms:
        answer = (
            {"type": "string"} if request.output is None else _embed_schema(request.output.schema, "final", definitions)
        )
        forms.append(_build_object_schema({"final": answer}))
    schema: dict[str, Any] = {"anyOf": forms} if len(forms) > 1 else forms[0]
    if definitions:
        schema["$defs"] = definitions
    return OutputSpec("reply", schema, "A call of a tool, or the answer.")


def _build_call_schema(tool: ToolSpec, definitions: dict[str, Any]) -> dict[str, Any]:
    args = _embed_schema(tool.parameters, f"args_of_{tool.name}", definitions)
    return _build_object_schema({"tool": {"const": tool.name}, "args": args})


def _build_object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _embed_schema(schema: Mapping[str, Any], name: str, definitions: dict[str, Any]) -> Mapping[str, Any]:
    """Embed a schema in another one. A schema with internal references is moved to `$defs`, and referenced."""
    root = f"#/$defs/{name}"
    moved: Mapping[str, Any] = _rebase_references(schema, root)
    if moved is schema:
        return schema
    definitions[name] = moved
    return {"$ref": root}


def _rebase_references(schema: Any, root: str) -> Any:
    """Rewrite the references of a schema to another root; return the same object if it has none."""
    if isinstance(schema, (list, tuple)):
        items = cast("Sequence[Any]", schema)
        moved = [_rebase_references(item, root) for item in items]
        return moved if any(new is not old for new, old in zip(moved, items, strict=True)) else items
    if not isinstance(schema, Mapping):
        return schema
    fields = cast("Mapping[str, Any]", schema)
    changed = {key: new for key, old in fields.items() if (new := _rebase_references(old, root)) is not old}
    reference = fields.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        changed["$ref"] = root + reference[1:]
    return {**fields, **changed} if changed else fields


MAX_CALLS = 64
"""Maximum number of tool calls in one reply; later ones are ignored."""


def json_tools(model: Model) -> Model:
    """Wrap a model without tool support so that it calls tools by writing JSON, which is parsed from its replies.

    The form of the reply is enforced through `Request.output` if the model supports that (its `ModelInfo` says
    `native`); otherwise it is only asked for, and parsed leniently.
    """
    given: Any = model
    if isinstance(given, type) or not callable(getattr(given, "stream", None)):
        raise ConfigError(
            f"json_tools({given!r}): give a model object; perdure.models.open_model(…) opens one by its name"
        )
    enforced = model_info(model).output == "native"
    retold = MessageRewriter()

    async def stream(request: Request) -> AsyncIterator[ModelEvent]:
        hearing = _ReplyTranslator(request) if request.tools else None
        async with open_stream(model, build_toolless_request(request, retold, enforced=enforced)) as events:
            async for event in events:
                for told in (event,) if hearing is None else hearing.translate_event(event):
                    yield told

    return WrappedModel(model, stream)


_PartType = TypeVar("_PartType", bound=Part)


def _without_span(part: _PartType) -> _PartType:
    """Return a part; a citation loses its position, which refers to the JSON and not to the text in it."""
    return replace(part, start=None, end=None) if isinstance(part, Citation) else part


class _ReplyTranslator:
    """Translator of the events of one JSON reply into those of a reply with tool calls."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._start_reply()

    def _start_reply(self) -> None:
        settings = self._request.settings
        most_calls = 1 if settings.parallel_tool_calls is False else MAX_CALLS
        self._reply = JsonReplyParser(
            f"json_{len(self._request.messages)}_",
            most_calls=0 if settings.tool_choice == "none" else most_calls,
            structured=self._request.output is not None,
        )
        self._has_deltas = False
        self._emitted: list[ModelEvent] = []

    def translate_event(self, event: ModelEvent) -> Sequence[ModelEvent]:
        """Return the events to emit in place of one event of the wrapped model."""
        if type(event) is TextDelta:
            self._has_deltas = True
            return self._record_events(self._reply.feed(event.text))
        if type(event) is ReplyFinished:
            return self._translate_finish(event)
        if type(event) is CitationAdded:
            return (CitationAdded(_without_span(event.citation)),)
        if isinstance(event, (RetryScheduled, FailedOver)):  # earlier output is void
            self._start_reply()
        return (event,)

    def _record_events(self, events: Sequence[ModelEvent]) -> Sequence[ModelEvent]:
        self._emitted += events
        return events

    def _translate_finish(self, event: ReplyFinished) -> Sequence[ModelEvent]:
        whole = event.message
        untold: list[ModelEvent] = []
        if whole is not None and not self._has_deltas:
            untold += self._record_events(self._reply.feed(whole.text))
        untold += self._record_events(self._reply.end())
        if whole is None:
            return [*untold, replace(event, stop=self._get_stop_reason(event.stop))]
        others = [_without_span(part) for part in whole.parts if not isinstance(part, Text)]
        parts = (*others, *assemble_reply(self._emitted, ReplyFinished()).parts)
        stop = self._get_stop_reason(whole.stop or event.stop)
        return [*untold, replace(event, stop=stop, message=replace(whole, parts=parts, stop=stop))]

    def _get_stop_reason(self, stop: StopReason | None) -> StopReason | None:
        """Return the stop reason. Emitted tool calls are complete, even if the text after them was cut off."""
        called = any(type(event) is ToolCallDelta for event in self._emitted)
        return StopReason.TOOL_USE if called else stop


__all__ = ["json_tools"]
