"""A request as the Responses wire says it. Pure. Above: the wire. Below: `items.py`, `schemas.py`, `memo.py`.

The conversation is encoded message by message and kept by the memo; what stands around it is encoded anew each time.
Stop sequences, seeds and budgets for thinking have no field on this wire.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from perdure.core.error import ConfigError
from perdure.core.model import OutputSpec, Request, Settings
from perdure.models.memo import Memo, encoded
from perdure.models.profile import Profile
from perdure.models.schemas import can_be_strict, compiled, lenient
from perdure.models.wire import Sending

from .dialect import LONGEST_CACHE_KEY, Dialect, dialect_of
from .items import Writer
from .rules import Rules
from .tools import STRICT, encoded_tools, listed_tools

PATH = "/responses"
LONGEST_NAME = 64
"""How long the name of a schema may be."""

_CHOICES = frozenset({"auto", "none", "required"})
_OURS = frozenset({"input"})
"""Fields that `extra_body` cannot have: the conversation comes from the messages."""


def encode(request: Request, profile: Profile, memo: Memo) -> Sending:
    """The bytes to be posted. Raises `BrokenRule` when the conversation would be refused."""
    settings = request.settings
    dialect = dialect_of(profile)
    stored = settings.extra_body.get("store") is True
    writer = Writer(request.messages, profile, dialect, echo=settings.echo_reasoning, stored=stored)
    name = (request.session_id, settings.echo_reasoning, stored) if request.session_id else None
    pieces = memo.pieces(name, request.messages, writer.items, Rules(dialect))
    head = encoded(_head(request, profile, dialect))
    return Sending(PATH, b'%b,"input":[%b]}' % (head[:-1], b",".join(pieces)))


def _head(request: Request, profile: Profile, dialect: Dialect) -> dict[str, Any]:
    settings = request.settings
    head: dict[str, Any] = {"model": profile.model, "stream": profile.streams or dialect.always_streams, "store": False}
    if instructions := request.instructions or dialect.default_instructions:
        head["instructions"] = instructions
    if dialect.encrypted:
        head["include"] = ["reasoning.encrypted_content"]
    if request.tools and profile.tools == "native":
        head.update(_tools(request, profile))
    if request.output is not None and profile.output != "none":
        head["text"] = {"format": _format(request.output, profile)}
    if dialect.cache_key and request.session_id and settings.cache != "off":
        head["prompt_cache_key"] = cache_key(request.session_id)
    head.update(_sampling(settings, dialect))
    return _extended(head, settings.extra_body)


def _sampling(settings: Settings, dialect: Dialect) -> dict[str, Any]:
    asked: dict[str, Any] = {}
    if dialect.reasoning and (reasoning := _reasoning(settings)):
        asked["reasoning"] = reasoning
    if dialect.output_limit:
        asked["max_output_tokens"] = settings.max_output_tokens
    if dialect.sampling:
        asked.update(temperature=settings.temperature, top_p=settings.top_p)
    return {name: value for name, value in asked.items() if value is not None}


def _reasoning(settings: Settings) -> dict[str, Any]:
    """How hard to think. Whoever says that also wants to see it, in the short form that there is."""
    if settings.reasoning_effort is not None:
        return {"effort": settings.reasoning_effort, "summary": "auto"}
    match settings.thinking:
        case "on":
            return {"summary": "auto"}
        case "off":
            return {"effort": "none"}
        case _:
            return {}


def _tools(request: Request, profile: Profile) -> dict[str, Any]:
    settings, tools = request.settings, request.tools
    has_others = "tools" in settings.extra_body  # and these are added to ours
    asked: dict[str, Any] = {"tools": listed_tools(tools, profile) if has_others else encoded_tools(tools, profile)}
    choice = settings.tool_choice
    if choice is not None:
        asked["tool_choice"] = choice if choice in _CHOICES else {"type": "function", "name": choice}
    if settings.parallel_tool_calls is not None and profile.parallel_tool_calls:
        asked["parallel_tool_calls"] = settings.parallel_tool_calls
    return asked


def _format(output: OutputSpec, profile: Profile) -> dict[str, Any]:
    if profile.output == "object":
        return {"type": "json_object"}
    is_strict = profile.schema == STRICT and can_be_strict(output.schema)
    described = {"description": output.description} if output.description else {}
    return {
        "type": "json_schema",
        "name": re.sub(r"[^A-Za-z0-9_-]", "_", output.name)[:LONGEST_NAME] or "output",
        **described,
        "schema": compiled(output.schema, STRICT if is_strict else lenient(profile.schema)),
        "strict": is_strict,
    }


def cache_key(session_id: str) -> str:
    """The name of a session, as a provider takes it in a body or a header."""
    if len(session_id) <= LONGEST_CACHE_KEY and session_id.isascii() and session_id.isprintable():
        return session_id
    return hashlib.sha256(session_id.encode("utf-8", "replace")).hexdigest()


def _extended(head: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The head with what the caller adds to it: mappings are merged, lists made longer, anything else is replaced."""
    if taken := _OURS & extra.keys():
        raise ConfigError(
            f"extra_body={dict(extra)!r}: {', '.join(sorted(taken))} is made from the messages; leave it out here"
        )
    return _merged(head, extra)


def _merged(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    both = dict(ours)
    for name, value in theirs.items():
        had = both.get(name)
        if isinstance(had, dict) and isinstance(value, Mapping):
            both[name] = _merged(cast("dict[str, Any]", had), cast("Mapping[str, Any]", value))
        elif isinstance(had, list) and isinstance(value, list):
            both[name] = [*cast("Sequence[Any]", had), *cast("Sequence[Any]", value)]
        else:
            both[name] = value
    return both
