"""Encode a model request as the body of a Responses API call (OpenAI). No I/O."""

import hashlib
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from perdure._core.model.protocol import OutputSpec, Request, Settings, ToolSpec
from perdure._core.values.error import ConfigError
from perdure._models.endpoint.memo import EncodingMemo, encode_lossy_json
from perdure._models.endpoint.profile import Profile
from perdure._models.endpoint.wire import EncodedRequest
from perdure._models.schemas.compile import can_be_strict, compile_schema, get_lenient_dialect
from perdure._models.wires.openai_features import get_openai_model_features
from perdure._models.wires.tools import merge_tool_definitions

from .dialect import MAX_CACHE_KEY_LENGTH, ResponsesDialect, get_dialect
from .lint import ResponsesMessageRules
from .messages import ResponsesMessageEncoder

STRICT_SCHEMA_RULES = "openai_strict"
"""Name of the schema rules that the provider enforces strictly."""
MAX_CACHED_TOOL_LISTS = 256
"""Maximum number of cached tool lists."""

_encoded_tools_cache: OrderedDict[tuple[int, str, bool], tuple[Sequence[ToolSpec], msgspec.Raw]] = OrderedDict()
"""Cache by identity; it keeps each list itself, so that its id is not reused."""


def encode_tools(tools: Sequence[ToolSpec], profile: Profile) -> msgspec.Raw:
    """Encode tool definitions as the `tools` list of a Responses request, in JSON.

    The result is cached if the definitions are a tuple.
    """
    key = (id(tools), profile.schema, profile.strict_tools)
    kept = _encoded_tools_cache.get(key)
    if kept is not None and kept[0] is tools:
        return kept[1]
    raw = msgspec.Raw(encode_lossy_json(build_tool_list(tools, profile)))
    if isinstance(tools, tuple):  # any other list may change
        _encoded_tools_cache[key] = (tools, raw)
        if len(_encoded_tools_cache) > MAX_CACHED_TOOL_LISTS:
            _encoded_tools_cache.popitem(last=False)
    return raw


def build_tool_list(tools: Sequence[ToolSpec], profile: Profile) -> list[dict[str, Any]]:
    """Return the tool definitions of a Responses API request as JSON objects."""
    return [_encode_tool(tool, profile) for tool in tools]


def _encode_tool(tool: ToolSpec, profile: Profile) -> dict[str, Any]:
    is_strict = profile.strict_tools and can_be_strict(tool.parameters)
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": compile_schema(
            tool.parameters, STRICT_SCHEMA_RULES if is_strict else get_lenient_dialect(profile.schema)
        ),
        "strict": is_strict,  # some providers assume True if it is missing
    }


PATH = "/responses"
MAX_SCHEMA_NAME_LENGTH = 64
"""Maximum length of a schema name."""

_CHOICES = frozenset({"auto", "none", "required"})
_RESERVED_FIELDS = frozenset({"input"})
"""Fields that `extra_body` cannot set: the conversation is made from the messages."""


def encode(request: Request, profile: Profile, memo: EncodingMemo) -> EncodedRequest:
    """Encode a model request as the path and body of a Responses API call.

    Raises `ProviderRuleError` if the provider would refuse the conversation.
    """
    settings = request.settings
    dialect = get_dialect(profile)
    stored = settings.extra_body.get("store") is True
    writer = ResponsesMessageEncoder(request.messages, profile, dialect, echo=settings.echo_reasoning, stored=stored)
    kind = (settings.echo_reasoning, stored, profile.needs_reasoning)
    name = (request.session_id, *kind) if request.session_id else None
    pieces = memo.encode_messages(name, request.messages, writer.encode_message, ResponsesMessageRules(dialect))
    head = encode_lossy_json(_build_body_fields(request, profile, dialect))
    return EncodedRequest(PATH, b'%b,"input":[%b]}' % (head[:-1], b",".join(pieces)))


def _build_body_fields(request: Request, profile: Profile, dialect: ResponsesDialect) -> dict[str, Any]:
    settings = request.settings
    head: dict[str, Any] = {"model": profile.model, "stream": profile.streams or dialect.always_streams, "store": False}
    if instructions := request.instructions or dialect.default_instructions:
        head["instructions"] = instructions
    if dialect.encrypted:
        head["include"] = ["reasoning.encrypted_content"]
    if request.tools and profile.tools == "native":
        head.update(_encode_tool_fields(request, profile))
    if request.output is not None and profile.output != "none":
        head["text"] = {"format": _encode_response_format(request.output, profile)}
    if dialect.cache_key and request.session_id and settings.cache != "off":
        head["prompt_cache_key"] = build_cache_key(request.session_id)
    head.update(_encode_settings(settings, profile, dialect))
    return _merge_extra_body(head, settings.extra_body)


def _encode_settings(settings: Settings, profile: Profile, dialect: ResponsesDialect) -> dict[str, Any]:
    asked: dict[str, Any] = {}
    if dialect.reasoning and (reasoning := _encode_reasoning(settings)):
        asked["reasoning"] = reasoning
    if dialect.output_limit:
        asked["max_output_tokens"] = settings.max_output_tokens
    features = get_openai_model_features(profile.model)
    if dialect.sampling and profile.sampling and features.accepts_sampling(settings):
        asked.update(temperature=settings.temperature, top_p=settings.top_p)
    return {name: value for name, value in asked.items() if value is not None}


def _encode_reasoning(settings: Settings) -> dict[str, Any]:
    """Return the `reasoning` field. It asks for a summary too, if an effort is set or thinking is on."""
    if settings.reasoning_effort is not None:
        return {"effort": settings.reasoning_effort, "summary": "auto"}
    match settings.thinking:
        case "on":
            return {"summary": "auto"}
        case "off":
            return {"effort": "none"}
        case _:
            return {}


def _encode_tool_fields(request: Request, profile: Profile) -> dict[str, Any]:
    settings, tools = request.settings, request.tools
    has_others = "tools" in settings.extra_body  # and these are added to ours
    asked: dict[str, Any] = {"tools": build_tool_list(tools, profile) if has_others else encode_tools(tools, profile)}
    choice = settings.tool_choice
    if choice is not None:
        asked["tool_choice"] = choice if choice in _CHOICES else {"type": "function", "name": choice}
    if settings.parallel_tool_calls is not None and profile.parallel_tool_calls:
        asked["parallel_tool_calls"] = settings.parallel_tool_calls
    return asked


def _encode_response_format(output: OutputSpec, profile: Profile) -> dict[str, Any]:
    if profile.output == "object":
        return {"type": "json_object"}
    is_strict = profile.schema == STRICT_SCHEMA_RULES and can_be_strict(output.schema)
    described = {"description": output.description} if output.description else {}
    return {
        "type": "json_schema",
        "name": re.sub(r"[^A-Za-z0-9_-]", "_", output.name)[:MAX_SCHEMA_NAME_LENGTH] or "output",
        **described,
        "schema": compile_schema(
            output.schema, STRICT_SCHEMA_RULES if is_strict else get_lenient_dialect(profile.schema)
        ),
        "strict": is_strict,
    }


def build_cache_key(session_id: str) -> str:
    """Return the prompt-cache key for a session id: valid in a body and in a header, hashed if it is too long."""
    if len(session_id) <= MAX_CACHE_KEY_LENGTH and session_id.isascii() and session_id.isprintable():
        return session_id
    return hashlib.sha256(session_id.encode("utf-8", "replace")).hexdigest()


def _merge_extra_body(head: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Merge `extra_body` into the fields: mappings are merged, lists are extended, other values are replaced."""
    if taken := _RESERVED_FIELDS & extra.keys():
        raise ConfigError(
            f"extra_body={dict(extra)!r}: {', '.join(sorted(taken))} is made from the messages; leave it out here"
        )
    merged = _merge_mappings(head, extra)
    if "tools" in head and "tools" in extra:
        merged["tools"] = merge_tool_definitions(head["tools"], extra["tools"])
    return merged


def _merge_mappings(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    both = dict(ours)
    for name, value in theirs.items():
        had = both.get(name)
        if isinstance(had, dict) and isinstance(value, Mapping):
            both[name] = _merge_mappings(cast("dict[str, Any]", had), cast("Mapping[str, Any]", value))
        elif isinstance(had, list) and isinstance(value, list):
            both[name] = [*cast("Sequence[Any]", had), *cast("Sequence[Any]", value)]
        else:
            both[name] = value
    return both
