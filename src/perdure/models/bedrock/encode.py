"""A request, as this wire says it. Pure. Above: the wire. Below: `block.py`, `lint.py`, and what Claude takes.

The messages come out of the memo as bytes, one item for each. Roles have to take turns here, so that neighbours of one
role are joined: by their bytes, since whether a message has such a neighbour is not for the memo to know.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from perdure.core.error import ConfigError
from perdure.core.message import Message, ToolCall
from perdure.core.model import OutputSpec, Request, Settings
from perdure.models.anthropic import dialect as claude
from perdure.models.anthropic.block import tool_name
from perdure.models.anthropic.thinking import Plan, plan
from perdure.models.memo import Memo, encoded
from perdure.models.profile import Profile
from perdure.models.schemas import compiled
from perdure.models.wire import Sending

from .block import items_of
from .dialect import Dialect, dialect_of
from .lint import FROM_THE_MIDDLE, RULES

OUTPUT_RULES = "anthropic_output"
"""Which schemas models can be held to here: the strictest of their makers."""

_HEADERS: Mapping[str, str] = {"content-type": "application/json"}
_OPENING = encoded({"role": "user", "content": [{"text": "(the conversation begins)"}]})
"""Stands in front of a conversation that the model began, which would be refused."""
_USER, _ASSISTANT = b'{"role":"user","content":[', b'{"role":"assistant","content":['
_DOCUMENT = b'{"document":{"format":"'
_TITLE = re.compile(rb'(\{"document":\{"format":"[a-z]+","name":")([^"]*)')
_MARKS: Mapping[str, Mapping[str, Any]] = {
    "5m": {"cachePoint": {"type": "default"}},
    "1h": {"cachePoint": {"type": "default", "ttl": "1h"}},
}
_NOVA_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high"}


def encode(request: Request, profile: Profile, memo: Memo) -> Sending:
    """What to post for this request. Raises `BadRequest` when it breaks a rule of the provider."""
    settings = request.settings
    if "messages" in settings.extra_body:
        raise ConfigError("extra_body={'messages': …}: the conversation is sent as it is; change it in the session")
    dialect = dialect_of(profile.dialect, profile.model)
    mark = _MARKS.get(settings.cache or "5m") if profile.cache == "marked" else None
    messages = _messages(request, profile, memo, dialect, mark)
    head = _head(request, profile, dialect, mark) | dict(settings.extra_body)
    start = encoded(head)[:-1] + b"," if head else b"{"
    how = "converse-stream" if profile.streams else "converse"
    return Sending(f"/model/{quote(profile.model, safe='')}/{how}", b'%b"messages":[%b]}' % (start, messages), _HEADERS)


# -- the conversation --------------------------------------------------------------------------------------------------


def _messages(
    request: Request, profile: Profile, memo: Memo, dialect: Dialect, mark: Mapping[str, Any] | None
) -> bytes:
    echo = request.settings.echo_reasoning is not False
    name = (request.session_id, echo) if request.session_id else None
    begun = bool(request.messages) and request.messages[0].role == "assistant"
    items = items_of(profile, dialect, echo=echo)
    pieces = memo.pieces(name, request.messages, items, FROM_THE_MIDDLE if begun else RULES)
    if begun:
        pieces.insert(0, _OPENING)
    if pieces[-1].startswith(_ASSISTANT):
        pieces[-1] = _without_blanks_at_its_end(pieces[-1])
    elif mark is not None and not _ends_in_a_document(pieces[-1]):
        pieces[-1] = b"%b,%b]}" % (pieces[-1][:-2], encoded(mark))
    return _with_titles_apart(_joined(pieces))


def _joined(pieces: Sequence[bytes]) -> bytes:
    """The items, neighbours of one role as one: the end of the first and the beginning of the next are left out."""
    parts: list[bytes] = []
    last = b""
    for piece in pieces:
        role = _USER if piece.startswith(_USER) else _ASSISTANT
        if role is last:
            parts[-1] = parts[-1][:-2]
            parts.append(b"," + piece[len(role) :])
        else:
            parts.append(b"," + piece if parts else piece)
        last = role
    return b"".join(parts)


def _with_titles_apart(messages: bytes) -> bytes:
    """Two documents of one name are refused, wherever they stand: later ones are numbered.

    By their bytes, for the same reason. No words can look like this, since their quotation marks are escaped.
    """
    if messages.count(_DOCUMENT) < 2:  # noqa: PLR2004 - two of one name
        return messages
    taken: set[bytes] = set()

    def apart(found: re.Match[bytes]) -> bytes:
        title, number = found[2], 1
        while title.lower() in taken:
            number += 1
            title = b"%b %d" % (found[2], number)
        taken.add(title.lower())
        return found[1] + title

    return _TITLE.sub(apart, messages)


def _without_blanks_at_its_end(piece: bytes) -> bytes:
    """What the model is to go on from."""
    item: dict[str, Any] = msgspec.json.decode(piece)
    last = item["content"][-1]
    if "text" in last:
        last["text"] = last["text"].rstrip()
    return encoded(item)


def _ends_in_a_document(piece: bytes) -> bool:
    """Behind a document, no mark may stand."""
    return b'"document":' in piece and "document" in msgspec.json.decode(piece)["content"][-1]


# -- what goes before it -----------------------------------------------------------------------------------------------


def _head(request: Request, profile: Profile, dialect: Dialect, mark: Mapping[str, Any] | None) -> dict[str, Any]:
    head: dict[str, Any] = {}
    marks = [] if mark is None else [mark]
    if request.instructions.strip():
        head["system"] = [{"text": request.instructions}, *marks]
    tools = _tools(request, profile)
    if tools:
        config: dict[str, Any] = {"tools": [*tools, *marks] if dialect.marks_tools else tools}
        head["toolConfig"] = config | _tool_choice(request.settings, is_open=bool(request.tools))
    thinking = _plan(request, profile, dialect)
    inference = _inference(request.settings, profile, dialect, thinking)
    if inference:
        head["inferenceConfig"] = inference
    more = _more(request, profile, dialect, thinking)
    if more:
        head["additionalModelRequestFields"] = more
    if request.output is not None and profile.output == "schema":
        head["outputConfig"] = {"textFormat": _text_format(request.output)}
    return head


def _plan(request: Request, profile: Profile, dialect: Dialect) -> Plan | None:
    if dialect.thinking != "claude":
        return None
    return plan(request, profile, claude.dialect_of("", profile.model))


def _inference(settings: Settings, profile: Profile, dialect: Dialect, thinking: Plan | None) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if thinking is not None:
        config["maxTokens"] = thinking.max_tokens
    elif settings.max_output_tokens is not None:
        config["maxTokens"] = min(settings.max_output_tokens, profile.max_output_tokens or settings.max_output_tokens)
    stops = [each for each in settings.stop_sequences if each.strip()]
    if stops:
        config["stopSequences"] = stops
    if thinking is not None and (thinking.thinks or not claude.dialect_of("", profile.model).sampling):
        return config
    if settings.temperature is not None:
        config["temperature"] = min(settings.temperature, 1.0)
    if settings.top_p is not None and ("temperature" not in config or dialect.thinking != "claude"):
        config["topP"] = settings.top_p  # newer Claudes take one of the two
    return config


def _more(request: Request, profile: Profile, dialect: Dialect, thinking: Plan | None) -> dict[str, Any]:
    """What only some makers take."""
    settings = request.settings
    more: dict[str, Any] = {}
    if thinking is not None and thinking.thinking is not None:
        more["thinking"] = thinking.thinking
    if thinking is not None and thinking.effort:
        more["output_config"] = {"effort": thinking.effort}
    effort = settings.reasoning_effort
    if effort is not None and effort != "none":
        if dialect.thinking == "nova":
            more["reasoningConfig"] = {"type": "enabled", "maxReasoningEffort": _NOVA_EFFORTS[effort]}
        elif dialect.thinking == "effort":
            more["reasoning_effort"] = _NOVA_EFFORTS[effort]
    is_free = settings.tool_choice in {None, "auto"} and bool(request.tools)
    if settings.parallel_tool_calls is False and profile.parallel_tool_calls and dialect.one_call_at_a_time and is_free:
        more["tool_choice"] = {"type": "auto", "disable_parallel_tool_use": True}
    return more


def _text_format(output: OutputSpec) -> dict[str, Any]:
    schema = encoded(compiled(output.schema, OUTPUT_RULES)).decode()  # as a text, oddly
    described = {"description": output.description} if output.description.strip() else {}
    return {
        "type": "json_schema",
        "structure": {"jsonSchema": {"name": tool_name(output.name), "schema": schema, **described}},
    }


# -- tools -------------------------------------------------------------------------------------------------------------


def _tools(request: Request, profile: Profile) -> list[dict[str, Any]]:
    """Calls in the conversation need tools beside it, also when there are none any more, or none may be used."""
    called = _called(request.messages) if not request.tools or request.settings.tool_choice == "none" else []
    if not request.tools:
        return [_tool(name, "No longer available.", {"type": "object", "properties": {}}) for name in called]
    if request.settings.tool_choice == "none" and not called:
        return []  # there is no other way to say that none may be used
    return [_tool(spec.name, spec.description, compiled(spec.parameters, profile.schema)) for spec in request.tools]


def _tool(name: str, description: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    described = {"description": description} if description.strip() else {}
    return {"toolSpec": {"name": name, **described, "inputSchema": {"json": schema}}}


def _called(messages: Sequence[Message]) -> list[str]:
    names = [tool_name(part.name) for each in messages for part in each.parts if type(part) is ToolCall]
    return list(dict.fromkeys(names))


def _tool_choice(settings: Settings, *, is_open: bool) -> dict[str, Any]:
    if not is_open:
        return {}
    match settings.tool_choice:
        case None | "auto" | "none":
            return {}
        case "required":
            return {"toolChoice": {"any": {}}}
        case name:
            return {"toolChoice": {"tool": {"name": name}}}
