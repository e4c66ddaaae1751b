"""Encode a model request as the body of a Responses API call (OpenAI). No I/O.

Messages are encoded one by one and cached in the memo; the other fields are encoded for each request. This API has no
field for stop sequences, seeds or thinking budgets.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from perdure.core.error import ConfigError
from perdure.core.model import OutputSpec, Request, Settings
from perdure.models.encoding_memo import EncodingMemo, encode_lossy_json
from perdure.models.extra_body_tool_merging import merge_tool_definitions
from perdure.models.openai_model_features import get_openai_model_features
from perdure.models.profile import Profile
from perdure.models.schemas import can_be_strict, compile_schema, get_lenient_dialect
from perdure.models.wire_format import EncodedRequest

from .dialect import MAX_CACHE_KEY_LENGTH, ResponsesDialect, get_dialect
from .message_encoding import ResponsesMessageEncoder
from .message_rule_checks import ResponsesMessageRules
from .tools import STRICT_SCHEMA_RULES, build_tool_list, encode_tools

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
