"""Experiments of a model probe: each tests one capability of an endpoint, and fills in the draft of its profile."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from perdure._core.model.protocol import OutputSpec, ToolSpec
from perdure._core.values.error import BadRequest, ContextOverflow
from perdure._core.values.message import Image, Text, ToolCall, user
from perdure._models.endpoint.model_list import SupportsGet, fetch_context_window
from perdure._models.endpoint.profile import Profile
from perdure._models.schemas.compile import compile_schema

from .client import ProbeClient, ProbeReply


class ProbeFinding(Struct, frozen=True):
    """Result of one experiment of a model probe (a test of one capability), as text for people."""

    about: str
    found: str
    """Result, for people to read."""


class ProfileDraft:
    """Profile (capabilities and limits) that a model probe fills in, and the findings of its experiments."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.findings: list[ProbeFinding] = []
        self.fields: dict[str, Any] = {}
        """Fields of the profile that were found out."""
        self.thinking_fields: set[str] = set()
        """Fields of responses in which thinking was seen."""
        self.rejects_schemas = False
        """True if the endpoint rejects some JSON Schema keywords."""

    def record_finding(self, about: str, found: str, **fields: Any) -> None:
        """Record a finding, and set the fields of the profile that follow from it."""
        self.findings.append(ProbeFinding(about, found))
        self.set_fields(**fields)

    def set_fields(self, **fields: Any) -> None:
        """Set fields of the profile, and remember that the probe determined them."""
        self.fields |= fields
        self.profile = replace(self.profile, **fields)


LOOKUP = ToolSpec(
    "lookup",
    "Look up what a word means.",
    {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
)
COLOUR = OutputSpec(
    "colour",
    {
        "type": "object",
        "properties": {"colour": {"type": "string", "enum": ["red", "green", "blue"]}},
        "required": ["colour"],
    },
)
_CALL = "Call the tool lookup with the word 'pawl'. Do not answer yourself."
_TWO_CALLS = "Call the tool lookup twice in this one reply: once with 'pawl' and once with 'perdure'."
_PROSE = "Which colour has grass? Write one plain sentence in English."
_OBJECT = "Which colour has grass? Reply with a JSON object that has one key, colour."

_LONG_WORDS = 1_500_000
"""Number of words in a request that exceeds almost any context window."""
_THINKING = re.compile(rb'"(reasoning_content|reasoning_details|reasoning|thinking)"\s*:\s*(?:"[^"]|\[\s*\{)')


class _LookupArguments(Struct):
    """Arguments that the test tool expects."""

    word: str


class _ColourAnswer(Struct):
    colour: str = ""


# -- first request -----------------------------------------------------------------------------------------------------


async def send_until_accepted(client: ProbeClient, draft: ProfileDraft) -> ProbeReply:
    """Send a test request in simpler and simpler forms until the endpoint accepts one. Return the last reply.

    The forms differ in streaming, reported usage and dialect. An error other than a refused request ends the search.
    """
    reply = ProbeReply()
    for fields in _list_request_forms(draft.profile, client.wire.name):
        tried = replace(draft.profile, **fields)
        reply = await client.send_request("first request", tried, user("Reply with the one word: ready"))
        if reply.is_accepted:
            _record_first_reply(draft, fields, reply)
            return reply
        if not isinstance(reply.error, BadRequest) or reply.status in {404, 405}:
            return reply
    return reply


def _list_request_forms(profile: Profile, wire: str) -> list[dict[str, Any]]:
    """Return the forms of the first request, from the richest to the plainest. The `openai` dialect names the output
    limit differently.
    """
    dialects = [profile.dialect, "openai"] if wire == "openai_chat" else [profile.dialect]
    streams = [(True, True), (True, False), (False, False)] if wire == "openai_chat" else [(True, True), (False, False)]
    return [
        {"streams": stream, "usage_in_stream": usage, "dialect": dialect}
        for stream, usage in streams
        for dialect in dialects
    ]


def _record_first_reply(draft: ProfileDraft, fields: Mapping[str, Any], reply: ProbeReply) -> None:
    draft.set_fields(dialect=fields["dialect"])
    streams = fields["streams"] and reply.is_streamed
    draft.record_finding("streaming", "yes" if streams else "no: it replies at once", streams=streams)
    told = reply.usage is not None
    if streams:
        asked = fields["usage_in_stream"]
        found = "yes" if told and asked else ("reported without being requested" if told else "not reported")
        draft.record_finding("usage in streams", found, usage_in_stream=told and asked)
    else:
        draft.record_finding("usage", "reported" if told else "not reported", usage_in_stream=False)
    record_thinking_fields(draft, reply)


def record_thinking_fields(draft: ProfileDraft, reply: ProbeReply) -> None:
    """Record in the draft in which response fields this reply contained thinking."""
    draft.thinking_fields |= {name.decode() for name in _THINKING.findall(reply.body)}
    if "<think>" in reply.message.text:
        draft.thinking_fields.add("<think> in the text")


# -- tools -------------------------------------------------------------------------------------------------------------


async def probe_tools(client: ProbeClient, draft: ProfileDraft) -> None:
    """Test if the model calls tools, by itself and when forced; if never by itself, JSON tool mode is recorded."""
    native = replace(draft.profile, tools="native")
    reply = await client.send_request("tool calls", native, user(_CALL), tools=(LOOKUP,))
    record_thinking_fields(draft, reply)
    if not reply.is_accepted:
        draft.record_finding("tools", f"refused ({reply.reason}); JSON tool mode is used", tools="json")
        return
    if _find_valid_calls(reply):
        draft.record_finding("tools", "native calls", tools="native")
    forced = await client.send_request(
        "forced tool calls", native, user(_CALL), tools=(LOOKUP,), settings={"tool_choice": "required"}
    )
    obeys = bool(_find_valid_calls(forced))
    draft.record_finding(
        "forced calls", "yes" if obeys else (f"refused ({forced.reason})" if forced.error else "ignored")
    )
    if not _find_valid_calls(reply):
        why = "only forced ones" if obeys else "it answers itself"
        draft.record_finding("tools", f"no voluntary calls ({why}); JSON tool mode is used", tools="json")


async def probe_parallel_calls(client: ProbeClient, draft: ProfileDraft) -> None:
    """Test if the model calls several tools at once, and if that can be disabled."""
    reply = await client.send_request("parallel calls", draft.profile, user(_TWO_CALLS), tools=(LOOKUP,))
    several = len(_find_valid_calls(reply)) > 1
    told = replace(draft.profile, parallel_tool_calls=True)
    single = await client.send_request(
        "one call at a time", told, user(_TWO_CALLS), tools=(LOOKUP,), settings={"parallel_tool_calls": False}
    )
    listens = single.is_accepted and len(_find_valid_calls(single)) <= 1
    found = "yes" if several else "one at a time"
    how = "and they can be disabled" if listens else "and they cannot be disabled"
    draft.record_finding("parallel calls", f"{found}, {how}" if several else found, parallel_tool_calls=listens)


async def probe_strict_tools(client: ProbeClient, draft: ProfileDraft) -> None:
    """Test if the endpoint accepts strict tool schemas; skipped if it rejects JSON Schema keywords."""
    if draft.rejects_schemas:
        draft.record_finding("strict tools", "not tested, as some schemas are rejected", strict_tools=False)
        return
    held = replace(draft.profile, strict_tools=True, schema="openai_strict")
    reply = await client.send_request("strict tools", held, user(_CALL), tools=(LOOKUP,))
    if reply.is_accepted and _find_valid_calls(reply):
        draft.record_finding("strict tools", "accepted", strict_tools=True, schema="openai_strict")
    else:
        draft.record_finding("strict tools", f"no ({reply.reason or 'no call was made'})", strict_tools=False)


def _find_valid_calls(reply: ProbeReply) -> list[ToolCall]:
    """Return the tool calls of a reply that are valid."""
    return [call for call in reply.message.tool_calls if _is_valid_call(call)]


def _is_valid_call(call: ToolCall) -> bool:
    try:
        msgspec.json.decode(call.arguments, type=_LookupArguments)
    except msgspec.MsgspecError:
        return False
    return call.name == LOOKUP.name


# -- structured output -------------------------------------------------------------------------------------------------


async def probe_structured_output(client: ProbeClient, draft: ProfileDraft) -> None:
    """Test if an output schema is enforced: the prompt asks for a sentence, so a JSON reply proves it."""
    held = replace(draft.profile, output="schema")
    reply = await client.send_request("output with a schema", held, user(_PROSE), output=COLOUR)
    if reply.is_accepted and _parse_colour(reply) in {"red", "green", "blue"}:
        draft.record_finding("structured output", "JSON Schema enforced", output="schema")
        return
    why = f"a schema is refused ({reply.reason})" if reply.error else "a schema is ignored"
    loosely = replace(draft.profile, output="object")
    loose = await client.send_request("output as a JSON object", loosely, user(_OBJECT), output=COLOUR)
    if loose.is_accepted and _parse_colour(loose) is not None:
        draft.record_finding("structured output", f"any JSON object; {why}", output="object")
    else:
        draft.record_finding("structured output", f"no; {why}", output="none")


def _parse_colour(reply: ProbeReply) -> str | None:
    """Return the colour in a reply that is a JSON object; `None` for any other reply."""
    try:
        return msgspec.json.decode(reply.message.text, type=_ColourAnswer).colour
    except msgspec.MsgspecError:
        return None


# -- context window ----------------------------------------------------------------------------------------------------


async def look_up_published_context_window(client: ProbeClient, draft: ProfileDraft) -> None:
    """Look up the context window of the model that the endpoint publishes, and record it in the draft."""
    tokens = None
    if isinstance(client.transport, SupportsGet):
        tokens = await fetch_context_window(client.base_url, draft.profile.model, client.auth, client.transport)
    if tokens is not None:
        draft.record_finding("context", f"{tokens} tokens", context_tokens=tokens)


async def probe_context_window_by_overflow(client: ProbeClient, draft: ProfileDraft) -> None:
    """Find out the model's context window by a request that is much too long. Costly if the request is accepted."""
    if draft.profile.context_tokens is not None:
        return
    reply = await client.send_request("a request that is too long", draft.profile, user("hi " * _LONG_WORDS))
    if isinstance(reply.error, ContextOverflow) and reply.error.window_tokens is not None:
        tokens = reply.error.window_tokens
        draft.record_finding("context", f"{tokens} tokens, from its error message", context_tokens=tokens)


# -- images and roles --------------------------------------------------------------------------------------------------


async def probe_images(client: ProbeClient, draft: ProfileDraft) -> None:
    """Test if the endpoint accepts an image."""
    seeing = replace(draft.profile, images=True)
    picture = user([Text("Which colour is this? One word."), Image(data=build_red_png(), media_type="image/png")])
    reply = await client.send_request("images", seeing, picture)
    draft.record_finding(
        "images", "accepted" if reply.is_accepted else f"refused ({reply.reason})", images=reply.is_accepted
    )


async def probe_developer_role(client: ProbeClient, draft: ProfileDraft) -> None:
    """Test if the endpoint accepts the `developer` role; only reported, because requests use `system`."""

    def change(body: dict[str, Any]) -> None:
        body["messages"][0]["role"] = "developer"

    reply = await client.send_request(
        "the developer role", draft.profile, user("Reply with the one word: ready"), change=change
    )
    draft.record_finding("developer role", "accepted" if reply.is_accepted else f"refused ({reply.reason})")


def build_red_png(size: int = 16) -> bytes:
    """Return a small red image, as PNG."""
    import struct
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    rows = (b"\0" + b"\xff\0\0" * size) * size
    pieces = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(pieces)


_PROMPT = "Call the tool note with whatever fits."

KEYWORDS: Mapping[str, Mapping[str, Any]] = {
    "$ref": {"$ref": "#/$defs/size"},
    "anyOf": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    "type as a list": {"type": ["string", "null"]},
    "const": {"const": "fixed"},
    "format": {"type": "string", "format": "date-time"},
    "pattern": {"type": "string", "pattern": "^[a-z]+$"},
    "minimum": {"type": "integer", "minimum": 1},
    "additionalProperties": {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False},
}
"""Each keyword in a schema that needs no other of them."""

_DEFINITIONS = {"size": {"type": "string", "enum": ["small", "large"]}}
_RULES = ("plain", "bedrock", "llamacpp", "gemini_json", "kimi", "gemini")
"""Dialects that a schema can be compiled to, the richest first."""


def build_tool_with_keywords(*keywords: str) -> ToolSpec:
    """Build a tool definition whose parameter schema uses the given JSON Schema keywords, to test an endpoint with."""
    properties = {f"p{place}": KEYWORDS[each] for place, each in enumerate(keywords)}
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": sorted(properties)}
    if "$ref" in keywords:
        schema["$defs"] = _DEFINITIONS
    return ToolSpec("note", "Note something down.", schema)


async def probe_schema_keywords(client: ProbeClient, draft: ProfileDraft) -> None:
    """Test which JSON Schema keywords the endpoint rejects, and record a schema dialect without them."""
    plain = replace(draft.profile, schema="plain")
    reply = await client.send_request(
        "schema keywords", plain, user(_PROMPT), tools=(build_tool_with_keywords(*KEYWORDS),)
    )
    if reply.is_accepted:
        draft.record_finding("schema keywords", f"all accepted: {', '.join(KEYWORDS)}", schema="plain")
        return
    refused = [word for word in KEYWORDS if not await _is_accepted(client, draft, build_tool_with_keywords(word), word)]
    draft.rejects_schemas = bool(refused)
    rules = choose_schema_dialect(refused)
    if not refused:
        draft.record_finding(
            "schema keywords", f"each accepted, all at once refused ({reply.reason})", schema=rules or "plain"
        )
    elif rules:
        draft.record_finding(
            "schema keywords", f"refused: {', '.join(refused)}; the rules {rules!r} do without", schema=rules
        )
    else:
        draft.record_finding("schema keywords", f"refused: {', '.join(refused)}; no rules do without all of them")


async def _is_accepted(client: ProbeClient, draft: ProfileDraft, tool: ToolSpec, word: str) -> bool:
    plain = replace(draft.profile, schema="plain")
    return (await client.send_request(f"the keyword {word}", plain, user(_PROMPT), tools=(tool,))).is_accepted


def choose_schema_dialect(refused: list[str]) -> str:
    """Return the richest JSON Schema dialect that uses none of these keywords; empty if there is none."""
    whole = build_tool_with_keywords(*KEYWORDS).parameters
    return next((rules for rules in _RULES if not find_used_keywords(compile_schema(whole, rules)) & set(refused)), "")


def find_used_keywords(schema: Any) -> set[str]:
    """Return which of the JSON Schema keywords that a probe tests are used in a schema."""
    if isinstance(schema, (list, tuple)):
        return _find_used_keywords_in(cast("Sequence[Any]", schema))
    if not isinstance(schema, Mapping):
        return set()
    node = cast("Mapping[str, Any]", schema)
    found = {word for word in KEYWORDS if word in node}
    if isinstance(node.get("type"), (list, tuple)):
        found.add("type as a list")
    inner = [value for key, value in node.items() if key not in {"properties", "$defs", "enum", "const", "default"}]
    named = [each for key in ("properties", "$defs") for each in cast("Mapping[str, Any]", node.get(key, {})).values()]
    return found | _find_used_keywords_in(inner) | _find_used_keywords_in(named)


def _find_used_keywords_in(schemas: Sequence[Any]) -> set[str]:
    found: set[str] = set()
    return found.union(*map(find_used_keywords, schemas))
