"""Recorded traffic of the Responses wire, read without the code that is tested: what an answer says, what was sent."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perdure import (
    Document,
    Image,
    Message,
    OutputSpec,
    Settings,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)
from perdure._core.values.message import Part
from perdure._models.wires.openai_responses import WIRE
from perdure._models.wires.openai_responses.item_metadata import build_thinking_part, encode_item_metadata
from perdure.events import ModelEvent, ReplyFinished
from perdure.models import Profile, Request, ToolSpec, assemble_reply
from tests.wire.recordings import Exchange

API = "openai-responses"
DIALECTS = {
    "openai-codex": "codex",
    "deepseek": "deepseek",
    "lmstudio": "lmstudio",
    "bedrock": "bedrock",
    "xai": "xai",
}
CALLS = {"function_call", "custom_tool_call"}


def profile_of(exchange: Exchange) -> Profile:
    """The endpoint that was asked."""
    model = (exchange.request or {}).get("model", "a-model")
    dialect = DIALECTS.get(exchange.provider, "")
    return Profile(provider=exchange.provider, model=model, dialect=dialect, documents=True)


# -- answers -----------------------------------------------------------------------------------------------------------


def told(exchange: Exchange, pieces: Iterable[bytes]) -> list[ModelEvent]:
    """What our decoder says to an answer in these pieces."""
    decoder = WIRE.decoder(profile_of(exchange), exchange.media_type)
    events: list[ModelEvent] = []
    for piece in pieces:
        events += decoder.feed(piece)
    return [*events, *decoder.end()]


def message_of(events: Sequence[ModelEvent]) -> Message:
    """The message that these events amount to."""
    assert isinstance(events[-1], ReplyFinished)
    return assemble_reply(events[:-1], events[-1])


def events_of(exchange: Exchange) -> list[dict[str, Any]]:
    """The events of a stream, read line by line."""
    lines = exchange.data.decode().splitlines()
    data = [line.removeprefix("data:").strip() for line in lines if line.startswith("data:")]
    return [json.loads(each) for each in data if each != "[DONE]"]


class Oracle:
    """What an answer says, found in the most naive way."""

    def __init__(self, exchange: Exchange) -> None:
        self.text = ""
        self.thinking = ""
        if exchange.streamed:
            events = events_of(exchange)
            self.answer = events[-1]["response"]
            done = [each for each in events if each["type"] == "response.output_item.done"]
            self.items = [each["item"] for each in sorted(done, key=lambda each: each["output_index"])]
            self._read_deltas(events)
        else:
            self.answer = exchange.json
            self.items = self.answer["output"]
            for item in self.items:
                for part in item.get("content") or []:
                    if item["type"] == "message":
                        self.text += part.get("text", "") + part.get("refusal", "")
            thoughts = [item for item in self.items if item["type"] == "reasoning"]
            self.thinking = "".join([readable(item) for item in thoughts])

    def _read_deltas(self, events: Sequence[Mapping[str, Any]]) -> None:
        before = None
        for event in events:
            match event["type"]:
                case "response.output_text.delta" | "response.refusal.delta":
                    self.text += event["delta"]
                case "response.reasoning_text.delta" | "response.reasoning_summary_text.delta":
                    here = (event["output_index"], event.get("summary_index"))
                    same_item = before is not None and before[0] == here[0]
                    self.thinking += "\n\n" if same_item and before != here else ""
                    self.thinking += event["delta"]
                    before = here

    @property
    def calls(self) -> list[tuple[str, str, str]]:
        calls = [item for item in self.items if item["type"] in CALLS]
        return [(each["call_id"], each["name"], each.get("arguments", each.get("input"))) for each in calls]

    @property
    def encrypted(self) -> list[str]:
        return [item["encrypted_content"] for item in self.items if item.get("encrypted_content")]

    @property
    def foreign(self) -> list[Mapping[str, Any]]:
        return [item for item in self.items if item["type"] not in {"message", "reasoning", *CALLS}]

    @property
    def stop(self) -> StopReason:
        if self.answer["status"] == "incomplete":
            assert self.answer["incomplete_details"]["reason"] == "max_output_tokens"
            return StopReason.LENGTH
        if any(part["type"] == "refusal" for item in self.items for part in item.get("content") or []):
            return StopReason.CONTENT_FILTER
        return StopReason.TOOL_USE if self.calls else StopReason.STOP

    @property
    def usage(self) -> Usage:
        usage = self.answer["usage"]
        ticks = usage.get("cost_in_usd_ticks")
        return Usage(
            usage["input_tokens"],
            usage["output_tokens"],
            usage["input_tokens_details"]["cached_tokens"],
            usage["input_tokens_details"].get("cache_write_tokens", 0),
            usage["output_tokens_details"]["reasoning_tokens"],
            reported_usd=ticks / 1e10 if ticks else usage.get("cost"),
        )

    @property
    def annotations(self) -> list[Mapping[str, Any]]:
        parts = [part for item in self.items if item["type"] == "message" for part in item["content"]]
        return [each for part in parts for each in part.get("annotations") or []]


def readable(item: Mapping[str, Any]) -> str:
    """The readable part of some reasoning."""
    return "\n\n".join([part["text"] for part in [*(item.get("content") or []), *(item.get("summary") or [])]])


# -- requests ----------------------------------------------------------------------------------------------------------


def items_of(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The input of a request, always as items."""
    given = body["input"]
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def messages_of(items: Sequence[Mapping[str, Any]], profile: Profile) -> list[Message]:
    """Recorded items as our messages: what a model wrote in one go is one message, and so are its results."""
    messages: list[Message] = []
    for item in items:
        role = _role(item)
        parts = _parts(item, profile)
        if messages and messages[-1].role == role and role in {"assistant", "tool"}:
            parts = (*messages[-1].parts, *parts)
            messages.pop()
        own = (profile.provider, profile.model) if role == "assistant" else ("", "")
        messages.append(Message(role, parts, "", *own))
    return messages


def _role(item: Mapping[str, Any]) -> Any:
    if "role" in item:
        return "system" if item["role"] == "developer" else item["role"]
    return "tool" if item["type"].endswith("call_output") else "assistant"


def _parts(item: Mapping[str, Any], profile: Profile) -> tuple[Part, ...]:
    match item.get("type", "message"):
        case "message":
            content = item["content"]
            if isinstance(content, str):
                return (Text(content),)
            return tuple(
                [_content(each, encode_item_metadata(item) if item["role"] == "assistant" else "") for each in content]
            )
        case "function_call":
            return (ToolCall(item["call_id"], item["name"], item["arguments"], encode_item_metadata(item)),)
        case "custom_tool_call":
            return (ToolCall(item["call_id"], item["name"], item["input"], encode_item_metadata(item)),)
        case "function_call_output" | "custom_tool_call_output":
            return (ToolResult(item["call_id"], "", (Text(item["output"]),)),)
        case _:
            return (build_thinking_part(item, readable(item), profile.provider, profile.model),)


def _content(part: Mapping[str, Any], signature: str) -> Part:
    match part["type"]:
        case "input_text" | "output_text":
            return Text(part["text"], signature)
        case "input_image":
            return Image(url=part["image_url"], detail=part.get("detail", ""))
        case "input_file":
            data = part.get("file_data", "")
            bare = f"data:{part['mime_type']};base64,{data}" if "mime_type" in part else data
            return Document(url=bare or part["file_url"], name=part.get("filename", ""))
        case kind:
            raise AssertionError(kind)


def request_of(body: Mapping[str, Any], messages: Sequence[Message], echo: bool | None) -> Request:
    """What we would have been asked to send."""
    functions = [tool for tool in body.get("tools", []) if tool["type"] == "function" and "function" not in tool]
    others = [tool for tool in body.get("tools", []) if tool not in functions]
    choice = body.get("tool_choice")
    extra: dict[str, Any] = {"store": body.get("store") is not False}
    if others:
        extra["tools"] = others
    if choice and not functions:
        extra["tool_choice"], choice = choice, None
    return Request(
        messages=messages,
        instructions=body.get("instructions") or "",
        tools=[ToolSpec(each["name"], each.get("description") or "", each["parameters"]) for each in functions],
        output=_output(body),
        settings=Settings(
            tool_choice=choice["name"] if isinstance(choice, dict) else choice,
            parallel_tool_calls=body.get("parallel_tool_calls"),
            max_output_tokens=body.get("max_output_tokens"),
            temperature=body.get("temperature"),
            reasoning_effort=(body.get("reasoning") or {}).get("effort"),
            echo_reasoning=echo,
            extra_body=extra,
        ),
    )


def _output(body: Mapping[str, Any]) -> OutputSpec | None:
    form = (body.get("text") or {}).get("format") or {}
    if form.get("type") != "json_schema":
        return None
    return OutputSpec(form["name"], form["schema"], form.get("description", ""))


# -- what is compared --------------------------------------------------------------------------------------------------


def meaning(items: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Items without what may well differ: ids, order of keys, names of calls, what stands for the same thing."""
    names: dict[str, int] = {}
    return [_meaning(item, names) for item in items]


def _meaning(item: Mapping[str, Any], names: dict[str, int]) -> Any:
    kind = item.get("type", "message")
    if kind == "message":
        content = item["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        return _role(item), [_content_meaning(part) for part in parts]
    if "call_id" in item and item["call_id"] is not None:
        number = names.setdefault(item["call_id"], len(names))
        given = item.get("arguments", item.get("input"))
        arguments = json.loads(given) if kind == "function_call" else given
        return kind, number, item.get("name"), arguments, item.get("output"), item.get("namespace")
    if kind == "reasoning":
        return kind, readable(item), item.get("encrypted_content") or ""
    return kind, item["id"]


def _content_meaning(part: Mapping[str, Any]) -> Any:
    if "text" in part:
        return part["text"]
    ignored = {"filename"} if part.get("filename") == "document.pdf" else set[str]()
    return sorted([(name, value) for name, value in part.items() if name not in ignored])


HEAD = ("model", "instructions", "tool_choice", "max_output_tokens", "temperature", "stream", "parallel_tool_calls")


def head_meaning(body: Mapping[str, Any]) -> dict[str, Any]:
    """What stands around the items, as far as both sides can say it."""
    tools = body.get("tools") or []
    form = (body.get("text") or {}).get("format") or {}
    return {
        **{name: body.get(name) for name in HEAD if name != "stream"},
        "tools": [(tool["type"], tool.get("name"), tool.get("description") or "") for tool in tools],
        "parameters": [_plain_schema(tool["parameters"]) for tool in tools if "parameters" in tool],
        "output": (form.get("name"), form.get("description"), _plain_schema(form.get("schema") or {})),
        "effort": (body.get("reasoning") or {}).get("effort"),
    }


def _plain_schema(schema: Mapping[str, Any]) -> Any:
    return {name: value for name, value in schema.items() if name not in {"$schema", "strict"}}


def thoughts_in(message: Message) -> list[Thinking]:
    return [part for part in message.parts if isinstance(part, Thinking)]
