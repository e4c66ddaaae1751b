"""Recorded requests and answers of this wire, read in the simplest way: what the tests compare the wire with."""

import itertools
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
from perdure._models.wires.anthropic import WIRE
from perdure.events import ModelEvent, ReplyFinished
from perdure.models import EncodingMemo, Profile, Request, ToolSpec, assemble_reply
from tests.wire.recordings import Exchange, Recording

PROFILE = Profile(provider="anthropic", model="a-model", documents=True, cache="none")


def answered(exchange: Exchange) -> bool:
    """Whether there is an answer, and not an error in its place."""
    return exchange.ok and b'"type":"error"' not in exchange.data


def continued(recording: Recording) -> list[tuple[Exchange, Exchange]]:
    """Neighbouring exchanges of which the second goes on from the answer to the first."""
    asked = [each for each in recording.exchanges if answered(each) and each.request is not None]
    pairs = itertools.pairwise(asked)
    return [(one, two) for one, two in pairs if goes_on(one.request["messages"], two.request["messages"])]


def goes_on(before: Sequence[Any], after: Sequence[Any]) -> bool:
    return len(after) > len(before) and meaning(after[: len(before)]) == meaning(before)


def sent(messages: Sequence[Message], recorded: Mapping[str, Any]) -> Any:
    tools: list[Any] = recorded.get("tools", [])
    own = [tool for tool in tools if "input_schema" in tool]
    specs = [ToolSpec(tool["name"], tool.get("description", ""), tool["input_schema"]) for tool in own]
    choice = recorded.get("tool_choice", {}).get("type")
    settings = Settings(
        max_output_tokens=recorded["max_tokens"],
        temperature=recorded.get("temperature"),
        reasoning_tokens=recorded.get("thinking", {}).get("budget_tokens"),
        tool_choice="required" if choice == "any" else None,
        extra_body={} if len(own) == len(tools) else {"tools": tools},
    )
    request = Request(
        messages=messages, instructions=text_of(recorded.get("system")), tools=specs, settings=settings, session_id="s"
    )
    memo = EncodingMemo()
    WIRE.encode(msgspec.structs.replace(request, messages=messages[:1]), PROFILE, memo)
    return msgspec.json.decode(WIRE.encode(request, PROFILE, memo).body)


def text_of(system: Any) -> str:
    return system if isinstance(system, str) else "".join(block["text"] for block in system or ())


def plain(value: Any) -> Any:
    """Without what says nothing about the meaning: marks, defaults, who made a call, how thinking is shown."""
    if isinstance(value, dict):
        left_out = {
            "cache_control",
            "caller",
            "citations",
            "strict",
            "display",
            "eager_input_streaming",
            "defer_loading",
        }
        kept = {name: plain(each) for name, each in value.items() if name not in left_out}
        return {
            name: each for name, each in kept.items() if (name, each) not in [("is_error", False), ("description", "")]
        }
    return [plain(each) for each in value] if isinstance(value, list) else value


def meaning(messages: Sequence[Any]) -> list[Any]:
    normal = []
    for message in messages:
        content: Any = message["content"]
        blocks: Any = [{"type": "text", "text": content}] if isinstance(content, str) else plain(content)
        for block in blocks:
            if isinstance(block.get("content"), str):
                block["content"] = [{"type": "text", "text": block["content"]}]
        # An upload into a container of the provider is not a part that we know.
        normal.append((message["role"], [block for block in blocks if block["type"] != "container_upload"]))
    return normal


# -- recorded messages as ours -----------------------------------------------------------------------------------------


def read_messages(recorded: Sequence[Any]) -> list[Message]:
    return [read_message(role, blocks) for role, blocks in meaning(recorded)]


def read_message(role: str, blocks: Sequence[Any]) -> Message:
    if role == "assistant":
        parts = tuple([read_said(block) for block in blocks])
        return Message("assistant", parts, provider=PROFILE.provider, model=PROFILE.model)
    results = [block for block in blocks if block["type"] == "tool_result"]
    if results:
        return Message("tool", tuple([read_result(block) for block in results]))
    return Message("user", tuple([read_told(block) for block in blocks]))


def read_said(block: Any) -> Part:
    match block["type"]:
        case "text":
            return Text(block["text"])
        case "tool_use":
            return ToolCall(block["id"], block["name"], msgspec.json.encode(block["input"]).decode())
        case "thinking":
            return Thinking(block["thinking"], block["signature"])
        case "redacted_thinking":
            return Thinking(data=block["data"])
        case _:
            return Thinking(details=block)


def read_result(block: Any) -> ToolResult:
    status = Status.ERROR if block.get("is_error") else Status.OK
    content: Any = tuple([read_told(each) for each in block["content"]])
    return ToolResult(block["tool_use_id"], "", content, status)


def read_told(block: Any) -> Part:
    if block["type"] == "text":
        return Text(block["text"])
    source, kind = block["source"], {"image": Image, "document": Document}[block["type"]]
    if source["type"] == "url":
        return kind(url=source["url"])
    return kind(data=msgspec.convert(source["data"], bytes), media_type=source["media_type"])


# -- what an answer says, read in the simplest way ---------------------------------------------------------------------


class Oracle:
    """The whole answer, from all of its lines at once."""

    def __init__(self, exchange: Exchange) -> None:
        message = joined(exchange.data) if exchange.streamed else exchange.json
        self.shapes = merged([shape_of(block) for block in message["content"]])
        stops = {"end_turn": "stop", "max_tokens": "length", "refusal": "content_filter"}
        self.stop = StopReason(stops.get(message["stop_reason"], message["stop_reason"]))
        usage = message["usage"]
        taken, output = 0, 0
        read, written = usage.get("cache_read_input_tokens") or 0, usage.get("cache_creation_input_tokens") or 0
        for each in [usage, *[one for one in usage.get("iterations") or () if one["type"] == "compaction"]]:
            taken += each["input_tokens"] + (each.get("cache_read_input_tokens") or 0)
            taken += each.get("cache_creation_input_tokens") or 0
            output += each["output_tokens"]
            if each is not usage:
                written += each["cache_creation_input_tokens"]
        thought = (usage.get("output_tokens_details") or {}).get("thinking_tokens") or 0
        self.usage = Usage(taken, output, read, written, thought)


def joined(stream: bytes) -> Any:
    message: Any = {}
    blocks: dict[int, Any] = {}
    texts: dict[int, str] = {}
    for line in stream.decode().splitlines():
        if not line.startswith("data: {"):
            continue
        event = msgspec.json.decode(line[6:])
        match event["type"]:
            case "message_start":
                message = event["message"]
            case "content_block_start":
                blocks[event["index"]] = event["content_block"]
            case "content_block_delta":
                block, delta = blocks[event["index"]], event["delta"]
                for name in ("text", "thinking", "signature"):
                    if name in delta:
                        block[name] = block.get(name, "") + delta[name]
                texts[event["index"]] = texts.get(event["index"], "") + delta.get("partial_json", "")
            case "message_delta":
                message["usage"] |= event["usage"]
                message["stop_reason"] = event["delta"]["stop_reason"]
            case _:
                pass
    for index, text in texts.items():
        if text:
            blocks[index]["input"] = msgspec.json.decode(text)
    message["content"] = [blocks[index] for index in sorted(blocks)]
    return message


def shape_of(block: Any) -> tuple[Any, ...]:
    match block["type"]:
        case "text":
            return ("text", block["text"])
        case "thinking":
            return ("thinking", block["thinking"], block["signature"])
        case "redacted_thinking":
            return ("redacted", block["data"])
        case "tool_use":
            return ("call", block["id"], block["name"], block["input"])
        case _:
            return ("other", block)


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
            case Thinking(data=data) if data:
                result.append(("redacted", data))
            case Thinking():
                result.append(("thinking", part.text, part.signature))
            case Citation():
                pass  # test_citations.py
            case _:
                result.append((part,))
    return result


def decoded(pieces: Sequence[bytes]) -> Message:
    decoder = WIRE.decoder(PROFILE, "text/event-stream")
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return finished([*events, *decoder.end()])


def finished(events: Sequence[ModelEvent]) -> Message:
    last = events[-1]
    assert isinstance(last, ReplyFinished)
    return assemble_reply(events[:-1], last)
