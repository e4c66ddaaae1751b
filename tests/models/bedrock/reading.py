"""Recorded requests and answers of this wire, read in the simplest way: what the tests compare the wire with."""

import base64
import copy
import itertools
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from perdure import (
    Citation,
    Document,
    Image,
    Message,
    Settings,
    Status,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)
from perdure._core.values.message import Part
from perdure._models.wires.bedrock import WIRE
from perdure.events import ModelEvent, ReplyFinished
from perdure.models import EncodingMemo, Profile, Request, ToolSpec, assemble_reply
from tests.wire.recordings import Exchange, Recording

PROFILE = Profile(provider="bedrock", model="us.anthropic.claude-sonnet-4-5", documents=True, cache="none")


def frame(name: str, payload: Any, kind: str = "event") -> bytes:
    """One message of an event stream, with its checksums."""
    named = {":message-type": kind, f":{'exception' if kind == 'exception' else kind}-type": name}
    if kind == "error":
        named = {":message-type": kind, ":error-code": name, ":error-message": str(payload)}
    headers = b"".join([_header(key, value) for key, value in named.items()])
    data = b"" if kind == "error" else payload if isinstance(payload, bytes) else msgspec.json.encode(payload)
    prelude = struct.pack(">II", 16 + len(headers) + len(data), len(headers))
    checked = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + data
    return checked + struct.pack(">I", zlib.crc32(checked))


def _header(name: str, value: str) -> bytes:
    return bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()


def frames(stream: bytes) -> list[tuple[str, Any]]:
    """The messages of a recorded stream, with no look at its checksums."""
    found: list[tuple[str, Any]] = []
    while stream:
        length, headers = struct.unpack(">II", stream[:8])
        head, data = stream[12 : 12 + headers], stream[12 + headers : length - 4]
        start = head.index(b":event-type") + len(b":event-type") + 1
        (size,) = struct.unpack(">H", head[start : start + 2])
        found.append((head[start + 2 : start + 2 + size].decode(), msgspec.json.decode(data)))
        stream = stream[length:]
    return found


def edges(exchange: Exchange) -> list[int]:
    """Where the messages of a recorded stream end, and one byte either side."""
    if not exchange.streamed:
        return []
    places, place = [], 0
    while place < len(exchange.data):
        place += struct.unpack(">I", exchange.data[place : place + 4])[0]
        places += [place - 1, place, place + 1]
    return [each for each in places if each < len(exchange.data)]


def continued(recording: Recording) -> list[tuple[Exchange, Exchange]]:
    """Neighbouring exchanges of which the second goes on from the answer to the first."""
    asked = [each for each in recording.exchanges if each.ok]
    pairs = itertools.pairwise(asked)
    return [(one, two) for one, two in pairs if goes_on(one.request["messages"], two.request["messages"])]


def goes_on(before: Sequence[Any], after: Sequence[Any]) -> bool:
    return len(after) > len(before) and meaning(after[: len(before)]) == meaning(before)


def profile_of(exchange: Exchange) -> Profile:
    model = exchange.path.split("/")[2].replace("%3A", ":")
    return msgspec.structs.replace(PROFILE, model=model, streams=exchange.streamed)


def sent(messages: Sequence[Message], recorded: Mapping[str, Any], profile: Profile) -> Any:
    config: Any = recorded.get("toolConfig", {})
    tools = [each["toolSpec"] for each in config.get("tools", []) if "toolSpec" in each]
    specs = [ToolSpec(tool["name"], tool.get("description", ""), tool["inputSchema"]["json"]) for tool in tools]
    fields: Any = recorded.get("additionalModelRequestFields", {})
    thinking = fields.get("thinking") or fields.get("reasoning_config") or {}
    settings = Settings(
        max_output_tokens=recorded.get("inferenceConfig", {}).get("maxTokens"),
        temperature=recorded.get("inferenceConfig", {}).get("temperature"),
        reasoning_tokens=thinking.get("budget_tokens"),
        thinking="on" if thinking.get("type") == "adaptive" else None,
    )
    system = "".join(each.get("text", "") for each in recorded.get("system", []))
    request = Request(messages=messages, instructions=system, tools=specs, settings=settings, session_id="s")
    memo = EncodingMemo()
    WIRE.encode(msgspec.structs.replace(request, messages=messages[:1]), profile, memo)
    return msgspec.json.decode(WIRE.encode(request, profile, memo).body)


def meaning(messages: Sequence[Any]) -> list[Any]:
    """Neighbours of one role joined; without marks, and without defaults."""
    normal: list[tuple[str, list[Any]]] = []
    for message in messages:
        blocks = [normal_block(block) for block in message["content"] if "cachePoint" not in block]
        if normal and normal[-1][0] == message["role"]:
            normal[-1] = (message["role"], [*normal[-1][1], *blocks])
        else:
            normal.append((message["role"], blocks))
    return normal


def normal_block(block: Any) -> Any:
    if "toolResult" not in block:
        return block
    result = {name: value for name, value in block["toolResult"].items() if (name, value) != ("status", "success")}
    content = [{"text": compact(each["json"])} if "json" in each else each for each in result["content"]]
    return {"toolResult": {**result, "content": content}}


def compact(value: Any) -> str:
    return msgspec.json.encode(value).decode()


# -- recorded messages as ours -----------------------------------------------------------------------------------------


def read_messages(recorded: Sequence[Any], profile: Profile) -> list[Message]:
    messages: list[Message] = []
    for role, blocks in meaning(recorded):
        if role == "assistant":
            parts = tuple([read_said(block) for block in blocks])
            messages.append(Message("assistant", parts, provider=profile.provider, model=profile.model))
            continue
        results = tuple([read_result(block["toolResult"]) for block in blocks if "toolResult" in block])
        told = tuple([read_told(block) for block in blocks if "toolResult" not in block])
        messages += [Message("tool", results)] * bool(results) + [Message("user", told)] * bool(told)
    return messages


def read_said(block: Any) -> Part:
    match block:
        case {"text": text}:
            return Text(text)
        case {"toolUse": call}:
            return ToolCall(call["toolUseId"], call["name"], compact(call["input"]))
        case {"reasoningContent": {"reasoningText": thought}}:
            return Thinking(thought["text"], thought["signature"])
        case {"reasoningContent": {"redactedContent": data}}:
            return Thinking(data=data)
        case _:
            return Thinking(details=block)


def read_result(result: Any) -> ToolResult:
    status = Status.ERROR if result.get("status") == "error" else Status.OK
    content: Any = tuple([read_told(each) for each in result["content"]])
    return ToolResult(result["toolUseId"], "", content, status)


def read_told(block: Any) -> Part:
    if "text" in block:
        return Text(block["text"])
    kind = Image if "image" in block else Document
    media = block.get("image") or block["document"]
    form = {"pdf": "application/pdf", "txt": "text/plain", "png": "image/png"}[media["format"]]
    return kind(base64.b64decode(media["source"]["bytes"]), media_type=form)


# -- what an answer says, read in the simplest way ---------------------------------------------------------------------


class Oracle:
    """The whole answer, from all of its messages at once."""

    def __init__(self, exchange: Exchange) -> None:
        if exchange.streamed:
            content, reason, usage = joined(exchange.data)
        else:
            told = exchange.json
            content, reason, usage = told["output"]["message"]["content"], told["stopReason"], told["usage"]
        self.shapes = merged([shape for block in content for shape in shapes_of(block)])
        stops = {"end_turn": "stop", "max_tokens": "length", "guardrail_intervened": "content_filter"}
        self.stop = StopReason(stops.get(reason, reason))
        read, written = usage.get("cacheReadInputTokens", 0), usage.get("cacheWriteInputTokens", 0)
        self.usage = Usage(usage["totalTokens"] - usage["outputTokens"], usage["outputTokens"], read, written)


def joined(stream: bytes) -> tuple[list[Any], str, Any]:
    blocks: dict[int, Any] = {}
    reason, usage = "", {}
    for name, event in frames(stream):
        index = event.get("contentBlockIndex", -1)
        if name == "contentBlockStart":
            blocks[index] = event["start"]
        elif name == "contentBlockDelta":
            grow(blocks.setdefault(index, {}), event["delta"])
        elif name == "messageStop":
            reason = event["stopReason"]
        elif name == "metadata":
            usage = event["usage"]
    for block in blocks.values():
        if "toolUse" in block:
            block["toolUse"]["input"] = msgspec.json.decode(block["toolUse"].get("input") or "{}")
    return [blocks[index] for index in sorted(blocks)], reason, usage


def grow(block: Any, delta: Any) -> None:
    for name, value in delta.items():
        if isinstance(value, dict):
            grow(block.setdefault(name, {}), value)
        elif name == "toolResult":
            block[name]["content"] = [*block[name].get("content", []), *value]
        else:
            block[name] = block.get(name, "") + value


def shapes_of(block: Any) -> list[tuple[Any, ...]]:
    match block:
        case {"text": text}:
            return [("text", text)]
        case {"reasoningContent": thought}:
            told = thought.get("reasoningText", thought)
            return [("thinking", told.get("text", ""), told.get("signature", ""), told.get("redactedContent", ""))]
        case {"toolUse": call} if call.get("type", "tool_use") == "tool_use":
            return [("call", call["toolUseId"], call["name"], call["input"])]
        case {"citationsContent": cited}:
            return [("text", each["text"]) for each in cited["content"]]
        case _:
            return [("other", block)] if block else []


def merged(all_shapes: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Neighbouring texts are one; empty ones are nothing."""
    result: list[tuple[Any, ...]] = []
    for shape in all_shapes:
        if shape[0] == "text" and result and result[-1][0] == "text":
            result[-1] = ("text", result[-1][1] + shape[1])
        elif shape != ("text", ""):
            result.append(shape)
    return result


def shapes(parts: Sequence[Part]) -> list[tuple[Any, ...]]:
    result: list[tuple[Any, ...]] = []
    for part in parts:
        match part:
            case Text(text=text):
                result.append(("text", text))
            case ToolCall():
                result.append(("call", part.call_id, part.name, msgspec.json.decode(part.arguments)))
            case Thinking(details=details) if details:
                result.append(("other", details))
            case Thinking():
                result.append(("thinking", part.text, part.signature, part.data))
            case Citation():
                pass  # test_citations.py
            case _:
                result.append((part,))
    return result


def decoded(pieces: Sequence[bytes], profile: Profile = PROFILE) -> Message:
    decoder = WIRE.decoder(profile, "")
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return finished([*events, *decoder.end()])


def ended_here(decoder: Any) -> list[ModelEvent]:
    """What it would say if the bytes were over; it itself goes on. What is left in its reader is never looked at."""
    shared = {id(each): each for each in (decoder._profile, decoder._reader)}
    return list(copy.deepcopy(decoder, shared).end())


def finished(events: Sequence[ModelEvent]) -> Message:
    last = events[-1]
    assert isinstance(last, ReplyFinished)
    return assemble_reply(events[:-1], last)
