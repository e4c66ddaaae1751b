"""Recorded requests read back into our own values, and bodies reduced to what they mean, so as to be compared."""

import base64
import json
from collections.abc import Sequence
from typing import Any

from perdure import Audio, Document, Image, Message, Settings, Text, Thinking, ToolCall, ToolResult, Video
from perdure._core.values.message import Part
from perdure.models import Profile, ToolSpec
from tests.models.openai_chat.oracle import meaning


def profile_of(exchange: Any) -> Profile:
    """The profile for a recorded provider: its name is that of its dialect."""
    request = exchange.request or {}
    return Profile(
        provider=exchange.provider,
        model=request.get("model") or "unnamed",
        dialect=exchange.provider,
        documents=True,
        audio=True,
        video=True,
        streams=bool(request.get("stream")),
        usage_in_stream="stream_options" in request,
    )


def instructions_of(body: dict[str, Any]) -> str:
    """What the first messages of the system say."""
    first = body["messages"][0]
    return _text(first.get("content")) if first["role"] in {"system", "developer"} else ""


def messages_of(items: Sequence[dict[str, Any]], profile: Profile) -> list[Message]:
    """Messages of the wire as ours. What a model said is taken for something that this one said."""
    messages: list[Message] = []
    names: dict[str, str] = {}
    for item in items:
        match item["role"]:
            case "assistant":
                message = _assistant(item, profile)
                names |= {call.call_id: call.name for call in message.tool_calls}
                messages.append(message)
            case "tool":
                content = tuple(part for part in _parts(item["content"]) if not isinstance(part, Thinking))
                result = ToolResult(item["tool_call_id"], names.get(item["tool_call_id"], "tool"), content)  # type: ignore[arg-type]
                if messages and messages[-1].role == "tool":
                    messages[-1] = Message("tool", (*messages[-1].parts, result))
                else:
                    messages.append(Message("tool", (result,)))
            case role:
                messages.append(Message("user" if role == "user" else "system", _parts(item["content"])))
    return messages


def _assistant(item: dict[str, Any], profile: Profile) -> Message:
    parts: list[Part] = []
    details = item.get("reasoning_details")
    flat = item.get("reasoning_content") or item.get("reasoning") or ""
    if details or flat:
        parts.append(Thinking(flat, details={"reasoning_details": details} if details else {}))
    parts += _parts(item.get("content"))
    for call in item.get("tool_calls") or []:
        parts.append(ToolCall(call["id"], call["function"]["name"], call["function"].get("arguments") or ""))
    return Message("assistant", tuple(parts), provider=profile.provider, model=profile.model)


def _parts(content: Any) -> tuple[Part, ...]:
    if content is None or isinstance(content, str):
        return (Text(content),) if content else ()
    return tuple(_part(item) for item in content)


def _part(item: dict[str, Any]) -> Part:
    match item["type"]:
        case "text":
            return Text(item["text"])
        case "thinking":
            return Thinking("".join(each["text"] for each in item["thinking"]))
        case "image_url":
            given = item["image_url"]
            given = {"url": given} if isinstance(given, str) else given
            return Image(url=given["url"], detail=given.get("detail", ""))
        case "input_audio":
            kind = {"wav": "audio/wav", "mp3": "audio/mpeg"}[item["input_audio"]["format"]]
            return Audio(data=base64.b64decode(item["input_audio"]["data"]), media_type=kind)
        case "video_url":
            return Video(url=item["video_url"]["url"])
        case "document_url":
            return Document(url=item["document_url"], media_type="application/pdf")
        case _:
            given = item["file"]
            url = given.get("file_data", "")
            return Document(url=url, file_id=given.get("file_id", ""), name=given.get("filename", ""))


def tools_of(body: dict[str, Any]) -> tuple[ToolSpec, ...]:
    """The tools of a recorded request; what is no function is not ours to describe."""
    functions = [tool["function"] for tool in body.get("tools") or [] if tool.get("type", "function") == "function"]
    return tuple(
        ToolSpec(each["name"], each.get("description") or "", each.get("parameters") or {"type": "object"})
        for each in functions
    )


def settings_of(body: dict[str, Any]) -> Settings:
    """The settings that a recorded request was made with."""
    reasoning, thinking = body.get("reasoning") or {}, body.get("thinking") or {}
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        choice = (choice.get("function") or choice)["name"]
    enabled = thinking["type"] == "enabled" if thinking else reasoning.get("enabled")
    return Settings(
        temperature=body.get("temperature"),
        top_p=body.get("top_p"),
        max_output_tokens=limit_of(body),
        stop_sequences=tuple(body.get("stop") or ()),
        seed=body.get("seed", body.get("random_seed")),
        tool_choice="required" if choice == "any" else choice,
        parallel_tool_calls=body.get("parallel_tool_calls"),
        reasoning_effort=body.get("reasoning_effort", reasoning.get("effort")),
        reasoning_tokens=reasoning.get("max_tokens", thinking.get("budget_tokens")),
        thinking=None if enabled is None else ("on" if enabled else "off"),
    )


def limit_of(body: dict[str, Any]) -> int | None:
    """How long the answer may be, under either name."""
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    return limit if isinstance(limit, int) else None


def meant(items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages of the wire without what makes no difference: ids, kinds of emptiness, lists of one text.

    Thinking counts on turns with calls alone: on others it is ignored.
    """
    told: list[dict[str, Any]] = []
    places: dict[str, int] = {}
    for item in items:
        calls = item.get("tool_calls") or []
        places |= {call["id"]: place for place, call in enumerate(calls)}
        content = item.get("content")
        entry: dict[str, Any] = {
            "role": {"developer": "system"}.get(item["role"], item["role"]),
            "text": _text(content).strip(),
            "media": [_media(each) for each in content if each["type"] not in {"text", "thinking"}]
            if isinstance(content, list)
            else [],
            "calls": [(call["function"]["name"], meaning(call["function"].get("arguments") or "")) for call in calls],
        }
        if item["role"] == "tool":
            entry["answers"] = places[item["tool_call_id"]]
        if calls:
            entry["details"] = item.get("reasoning_details") or []
            entry["thinking"] = "".join(each.get("text", "") for each in entry["details"]) or _thinking(item)
        if entry["role"] != "assistant" or entry["text"] or calls:
            told.append(entry)
    return told


def _thinking(item: dict[str, Any]) -> str:
    content = item.get("content")
    flat = item.get("reasoning_content") or item.get("reasoning") or ""
    if isinstance(content, list):
        flat += "".join(text["text"] for each in content if each["type"] == "thinking" for text in each["thinking"])
    return str(flat)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(item["text"] for item in content if item["type"] == "text")
    return content or ""


def _media(item: dict[str, Any]) -> Any:
    value = item.get(item["type"])
    if isinstance(value, dict):
        value = {name: each for name, each in value.items() if name not in {"filename", "detail"}}
        value = value.get("url", value)
    return item["type"], json.dumps(value, sort_keys=True)
