"""The experiments of a probe, each of which finds out one thing. Above: the probe. Below: `ask.py`, `draft.py`.

An experiment believes what it sees, not what it is told: that a request with a schema was accepted does not mean that
the answer was held to it.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from perdure.core.error import BadRequest
from perdure.core.message import Image, Text, ToolCall, user
from perdure.core.model import OutputSpec, ToolSpec
from perdure.models.profile import Profile

from .ask import Asker, Heard
from .draft import Draft

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

_THINKING = re.compile(rb'"(reasoning_content|reasoning_details|reasoning|thinking)"\s*:\s*(?:"[^"]|\[\s*\{)')


class _Arguments(Struct):
    """Of a call that is as it should be."""

    word: str


class _Answer(Struct):
    colour: str = ""


# -- whether it answers at all -----------------------------------------------------------------------------------------


async def greet(asker: Asker, draft: Draft) -> Heard:
    """The first question, in the forms that endpoints take, until one is accepted. Returns the last answer."""
    heard = Heard()
    for fields in _forms(draft.profile, asker.wire.name):
        tried = replace(draft.profile, **fields)
        heard = await asker.ask("whether it answers", tried, user("Reply with the one word: ready"))
        if heard.answered:
            _note_greeting(draft, fields, heard)
            return heard
        if not isinstance(heard.error, BadRequest) or heard.status in {404, 405}:
            return heard
    return heard


def _forms(profile: Profile, wire: str) -> list[dict[str, Any]]:
    """From the richest to the plainest. The `openai` dialect has another name for the limit of the answer."""
    dialects = [profile.dialect, "openai"] if wire == "openai_chat" else [profile.dialect]
    streams = [(True, True), (True, False), (False, False)] if wire == "openai_chat" else [(True, True), (False, False)]
    return [
        {"streams": stream, "usage_in_stream": usage, "dialect": dialect}
        for stream, usage in streams
        for dialect in dialects
    ]


def _note_greeting(draft: Draft, fields: Mapping[str, Any], heard: Heard) -> None:
    draft.learn(dialect=fields["dialect"])
    streams = fields["streams"] and heard.streamed
    draft.note("streaming", "yes" if streams else "no: it answers at once", streams=streams)
    told = heard.usage is not None
    if streams:
        asked = fields["usage_in_stream"]
        found = "yes" if told and asked else ("told unasked" if told else "not told")
        draft.note("usage in streams", found, usage_in_stream=told and asked)
    else:
        draft.note("usage", "told" if told else "not told", usage_in_stream=False)
    note_thinking(draft, heard)


def note_thinking(draft: Draft, heard: Heard) -> None:
    """Remember where thinking was shown."""
    draft.thinking_fields |= {name.decode() for name in _THINKING.findall(heard.body)}
    if "<think>" in heard.message.text:
        draft.thinking_fields.add("<think> in the text")


# -- tools -------------------------------------------------------------------------------------------------------------


async def tools(asker: Asker, draft: Draft) -> None:
    """Whether it calls a tool: by itself, or when it is made to. One that never does gets JSON tool mode."""
    native = replace(draft.profile, tools="native")
    heard = await asker.ask("whether it calls tools", native, user(_CALL), tools=(LOOKUP,))
    note_thinking(draft, heard)
    if not heard.answered:
        draft.note("tools", f"refused ({heard.reason}); JSON tool mode is used", tools="json")
        return
    if _calls(heard):
        draft.note("tools", "native calls", tools="native")
    forced = await asker.ask(
        "whether it can be made to", native, user(_CALL), tools=(LOOKUP,), settings={"tool_choice": "required"}
    )
    obeys = bool(_calls(forced))
    draft.note("forced calls", "yes" if obeys else (f"refused ({forced.reason})" if forced.error else "ignored"))
    if not _calls(heard):
        why = "only when it is made to" if obeys else "it answers itself"
        draft.note("tools", f"no calls of its own accord ({why}); JSON tool mode is used", tools="json")


async def parallel_calls(asker: Asker, draft: Draft) -> None:
    """Whether it makes several calls in a reply, and whether it can be told not to."""
    heard = await asker.ask("parallel calls", draft.profile, user(_TWO_CALLS), tools=(LOOKUP,))
    several = len(_calls(heard)) > 1
    told = replace(draft.profile, parallel_tool_calls=True)
    single = await asker.ask(
        "one call at a time", told, user(_TWO_CALLS), tools=(LOOKUP,), settings={"parallel_tool_calls": False}
    )
    listens = single.answered and len(_calls(single)) <= 1
    found = "yes" if several else "one at a time"
    how = "and it can be told to make one" if listens else "and it cannot be told to make one"
    draft.note("parallel calls", f"{found}, {how}" if several else found, parallel_tool_calls=listens)


async def strict(asker: Asker, draft: Draft) -> None:
    """Whether it can be held to the schemas of tools. Who refuses words of JSON Schema has rules of its own."""
    if draft.profile.schema != "plain":
        draft.note("strict tools", "not looked at, as some schemas are refused", strict_tools=False)
        return
    held = replace(draft.profile, strict_tools=True, schema="openai_strict")
    heard = await asker.ask("strict tools", held, user(_CALL), tools=(LOOKUP,))
    if heard.answered and _calls(heard):
        draft.note("strict tools", "accepted", strict_tools=True, schema="openai_strict")
    else:
        draft.note("strict tools", f"no ({heard.reason or 'no call was made'})", strict_tools=False)


def _calls(heard: Heard) -> list[ToolCall]:
    """The calls that are as they should be."""
    return [call for call in heard.message.tool_calls if _is_called(call)]


def _is_called(call: ToolCall) -> bool:
    try:
        msgspec.json.decode(call.arguments, type=_Arguments)
    except msgspec.MsgspecError:
        return False
    return call.name == LOOKUP.name


# -- structured output -------------------------------------------------------------------------------------------------


async def output(asker: Asker, draft: Draft) -> None:
    """What its replies can be held to. It is asked for a sentence: only who is held to a schema answers with JSON."""
    held = replace(draft.profile, output="schema")
    heard = await asker.ask("output held to a schema", held, user(_PROSE), output=COLOUR)
    if heard.answered and _colour_of(heard) in {"red", "green", "blue"}:
        draft.note("structured output", "held to a JSON Schema", output="schema")
        return
    why = f"a schema is refused ({heard.reason})" if heard.error else "a schema is ignored"
    loosely = replace(draft.profile, output="object")
    loose = await asker.ask("output held to JSON", loosely, user(_OBJECT), output=COLOUR)
    if loose.answered and _colour_of(loose) is not None:
        draft.note("structured output", f"any JSON object; {why}", output="object")
    else:
        draft.note("structured output", f"no; {why}", output="none")


def _colour_of(heard: Heard) -> str | None:
    """What the answer says, if it is an object and nothing else."""
    try:
        return msgspec.json.decode(heard.message.text, type=_Answer).colour
    except msgspec.MsgspecError:
        return None


# -- the rest ----------------------------------------------------------------------------------------------------------


async def images(asker: Asker, draft: Draft) -> None:
    """Whether it takes pictures."""
    seeing = replace(draft.profile, images=True)
    picture = user([Text("Which colour is this? One word."), Image(data=red_square(), media_type="image/png")])
    heard = await asker.ask("images", seeing, picture)
    draft.note("images", "accepted" if heard.answered else f"refused ({heard.reason})", images=heard.answered)


async def developer_role(asker: Asker, draft: Draft) -> None:
    """Whether instructions may come from a `developer`. It is told, and not used: `system` is understood by all."""

    def change(body: dict[str, Any]) -> None:
        body["messages"][0]["role"] = "developer"

    heard = await asker.ask("the developer role", draft.profile, user("Reply with the one word: ready"), change=change)
    draft.note("developer role", "accepted" if heard.answered else f"refused ({heard.reason})")


def red_square(size: int = 16) -> bytes:
    """A small red picture, as PNG."""
    import struct
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    rows = (b"\0" + b"\xff\0\0" * size) * size
    pieces = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(pieces)
