"""A request, as this wire says it. Pure. Above: the wire. Below: `block.py`, `thinking.py`, `lint.py`.

The head (model, instructions, tools, settings) is encoded anew each time; the messages come out of the memo as bytes
and are put behind it. A mark for the provider's cache goes into the bytes of the last message, so that the memo never
sees it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from perdure.core.cache import kept_messages
from perdure.core.error import ConfigError
from perdure.core.message import Message, ToolCall
from perdure.core.model import Request, Settings
from perdure.models.memo import Memo, encoded
from perdure.models.profile import Profile
from perdure.models.schemas import can_be_strict, compiled
from perdure.models.wire import Sending

from .block import items_of, tool_name
from .dialect import Dialect, dialect_of
from .lint import FROM_THE_MIDDLE, RULES
from .thinking import Plan, plan

PATH = "/v1/messages"
VERSION = "2023-06-01"
FILES_BETA = "files-api-2025-04-14"

_HEADERS: Mapping[str, str] = {"anthropic-version": VERSION, "content-type": "application/json"}
_OPENING = encoded({"role": "user", "content": [{"type": "text", "text": "(the conversation begins)"}]})
"""Stands in front of a conversation that the model began, which would be refused."""
_MARKS: Mapping[str, Mapping[str, str]] = {"5m": {"type": "ephemeral"}, "1h": {"type": "ephemeral", "ttl": "1h"}}
_BLOCK_END = b"}]}"
_UNMARKABLE = frozenset({"thinking", "redacted_thinking"})
OUTPUT_RULES = "anthropic_output"
"""Which schemas a model can be held to."""
_LEAST_TOP_P = 0.95
"""Of a model that thinks."""


def encode(request: Request, profile: Profile, memo: Memo) -> Sending:
    """What to post for this request. Raises `BadRequest` when it breaks a rule of the provider."""
    settings = request.settings
    if "messages" in settings.extra_body:
        raise ConfigError("extra_body={'messages': …}: the conversation is sent as it is; change it in the session")
    dialect = dialect_of(profile.dialect, profile.model)
    mark = _mark(settings, profile)
    messages = _messages(request, profile, memo, dialect, mark)
    head = _head(request, profile, dialect, mark) | dict(settings.extra_body)
    body = b'%b,"messages":[%b]}' % (encoded(head)[:-1], messages)
    headers = {**_HEADERS, "anthropic-beta": FILES_BETA} if b'"file_id":' in messages else _HEADERS
    return Sending(PATH, body, headers)


def _mark(settings: Settings, profile: Profile) -> Mapping[str, str] | None:
    """What is put where the cache is to reach, if it has to be put there."""
    return _MARKS.get(settings.cache or "5m") if profile.cache == "marked" else None


# -- the conversation --------------------------------------------------------------------------------------------------


def _messages(
    request: Request, profile: Profile, memo: Memo, dialect: Dialect, mark: Mapping[str, str] | None
) -> bytes:
    echo = request.settings.echo_reasoning is not False
    name = (request.session_id, echo) if request.session_id else None
    begun = bool(request.messages) and request.messages[0].role == "assistant"
    items = items_of(profile, echo=echo, signed=dialect.signed)
    pieces = memo.pieces(name, request.messages, items, FROM_THE_MIDDLE if begun else RULES)
    if begun:
        pieces.insert(0, _OPENING)
    if request.messages[-1].role == "assistant":
        pieces[-1] = _to_be_continued(pieces[-1], mark)
    elif mark is not None:
        kept = kept_messages(request.messages)  # words that only this request has would spoil the cache of the next
        place = kept - len(request.messages) - 1
        if kept and request.messages[place].role != "assistant" and pieces[place].endswith(_BLOCK_END):
            pieces[place] = _marked(pieces[place], mark)
    return b",".join(pieces)


def _marked(piece: bytes, mark: Mapping[str, str]) -> bytes:
    """The mark inside the last block of an item, whose bytes end with the block, the list and the item: `}]}`."""
    return b'%b,"cache_control":%b}]}' % (piece[:-3], encoded(mark))


def _to_be_continued(piece: bytes, mark: Mapping[str, str] | None) -> bytes:
    """What the model is to go on from must not end in blanks, and a thought cannot be marked."""
    item: dict[str, Any] = msgspec.json.decode(piece)
    last = item["content"][-1]
    if item["role"] == "assistant" and last["type"] == "text":
        last["text"] = last["text"].rstrip()
    whole = encoded(item)
    return whole if mark is None or last["type"] in _UNMARKABLE else _marked(whole, mark)


# -- what goes before it -----------------------------------------------------------------------------------------------


def _head(request: Request, profile: Profile, dialect: Dialect, mark: Mapping[str, str] | None) -> dict[str, Any]:
    settings = request.settings
    thinking = plan(request, profile, dialect)
    head: dict[str, Any] = {"model": profile.model, "max_tokens": thinking.max_tokens}
    tools = _tools(request, profile)
    if request.instructions.strip():
        head["system"] = [_with_mark({"type": "text", "text": request.instructions}, mark)]
    elif tools:
        tools[-1] = _with_mark(tools[-1], mark)
    if tools:
        head["tools"] = tools
        head |= _tool_choice(request, profile)
    if thinking.thinking is not None:
        head["thinking"] = thinking.thinking
    head |= _output(request, profile, thinking) | _sampling(settings, dialect, thinking)
    stops = [each for each in settings.stop_sequences if each.strip()]  # blank ones are refused
    if stops:
        head["stop_sequences"] = stops
    if profile.streams:
        head["stream"] = True
    return head


def _with_mark(block: dict[str, Any], mark: Mapping[str, str] | None) -> dict[str, Any]:
    return block if mark is None else {**block, "cache_control": mark}


def _output(request: Request, profile: Profile, thinking: Plan) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if thinking.effort:
        config["effort"] = thinking.effort
    if request.output is not None and profile.output == "schema":
        config["format"] = {"type": "json_schema", "schema": compiled(request.output.schema, OUTPUT_RULES)}
    return {"output_config": config} if config else {}


def _sampling(settings: Settings, dialect: Dialect, thinking: Plan) -> dict[str, Any]:
    """One of the two at most, which is what newer models take. One that thinks has its temperature fixed."""
    if not dialect.sampling:
        return {}
    if settings.temperature is not None and not thinking.thinks:
        return {"temperature": min(settings.temperature, 1.0)}
    if settings.top_p is not None and not (thinking.thinks and settings.top_p < _LEAST_TOP_P):
        return {"top_p": settings.top_p}
    return {}


# -- tools -------------------------------------------------------------------------------------------------------------


def _tools(request: Request, profile: Profile) -> list[dict[str, Any]]:
    if not request.tools:
        return [_gone(name) for name in _called(request.messages)]
    tools: list[dict[str, Any]] = []
    for spec in request.tools:
        tool: dict[str, Any] = {"name": spec.name}
        if spec.description.strip():
            tool["description"] = spec.description
        strict = profile.strict_tools and can_be_strict(spec.parameters, OUTPUT_RULES)
        tool["input_schema"] = compiled(spec.parameters, OUTPUT_RULES if strict else profile.schema)
        if strict:
            tool["strict"] = True
        tools.append(tool)
    return tools


def _gone(name: str) -> dict[str, Any]:
    """Calls in the conversation need tools beside it, also when there are none any more."""
    return {"name": name, "description": "No longer available.", "input_schema": {"type": "object", "properties": {}}}


def _called(messages: Sequence[Message]) -> list[str]:
    names = [tool_name(part.name) for each in messages for part in each.parts if type(part) is ToolCall]
    return list(dict.fromkeys(names))


def _tool_choice(request: Request, profile: Profile) -> dict[str, Any]:
    wanted = request.settings.tool_choice if request.tools else "none"
    choice: dict[str, Any]
    match wanted:
        case "none":
            return {"tool_choice": {"type": "none"}}
        case None | "auto":
            choice = {"type": "auto"}
        case "required":
            choice = {"type": "any"}
        case name:
            choice = {"type": "tool", "name": name}
    if request.settings.parallel_tool_calls is False and profile.parallel_tool_calls:
        choice["disable_parallel_tool_use"] = True
    return {} if choice == {"type": "auto"} else {"tool_choice": choice}
