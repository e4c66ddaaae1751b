"""A small server of chat completions that has exactly the quirks it is given, and no wits: it obeys what it is told."""

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from perdure._models.probe.experiments import find_used_keywords
from tests.wire.server import Received, Reply, json_reply, sse


@dataclass(frozen=True)
class Quirks:
    """What the server can do. By default, everything."""

    model: str = "quirky"
    key: str = ""
    streams: bool = True
    stream_options: bool = True
    usage: bool = True
    limit_name: str = "max_tokens"
    tools: Literal["native", "forced", "ignored", "refused"] = "native"
    forced: bool = True
    parallel: bool = True
    parallel_switch: Literal["obeyed", "ignored", "refused"] = "obeyed"
    refused_keywords: frozenset[str] = frozenset()
    strict: bool = True
    output: Literal["schema", "object", "none"] = "schema"
    ignores_output: bool = False
    """What it cannot be held to it ignores, rather than refuse it."""
    images: bool = True
    developer: bool = True
    thinking: str = ""
    """The field in which it shows its thinking."""
    window: Literal["list", "props", "overflow", "nowhere"] = "nowhere"
    window_tokens: int = 4096
    busy: int = 0
    """How many requests are answered with: slow down."""


class QuirkyServer:
    """Answers requests as its quirks demand."""

    def __init__(self, quirks: Quirks) -> None:
        self.quirks = quirks
        self.answered = 0

    def __call__(self, request: Received) -> Reply:
        quirks = self.quirks
        if quirks.key and request.headers.get("authorization") != f"Bearer {quirks.key}":
            return refusal("Incorrect API key provided", 401)
        if request.method == "GET":
            return self._told(request.path)
        if request.path != "/v1/chat/completions":
            return Reply(b"404 page not found", 404, media_type="text/plain", framing="length")
        self.answered += 1
        if self.answered <= quirks.busy:
            return json_reply({"error": {"message": "slow down"}}, 429, retry_after="3")
        body = request.json()
        complaint = self._complaint(body)
        return refusal(complaint) if complaint else self._reply(body)

    def _told(self, path: str) -> Reply:
        if path == "/v1/models":
            listed: dict[str, Any] = {"id": self.quirks.model, "object": "model"}
            if self.quirks.window == "list":
                listed["max_model_len"] = self.quirks.window_tokens
            return json_reply({"object": "list", "data": [{"id": "other", "max_model_len": 512}, listed]})
        if path == "/props" and self.quirks.window == "props":
            return json_reply({"default_generation_settings": {"n_ctx": self.quirks.window_tokens}})
        return Reply(b"404 page not found", 404, media_type="text/plain", framing="length")

    def _complaint(self, body: dict[str, Any]) -> str:
        """What is wrong with a request, in the words of those who say such things."""
        quirks = self.quirks
        wrong = {"max_tokens", "max_completion_tokens"} - {quirks.limit_name}
        messages = json.dumps(body["messages"])
        complaints = {
            f"The model `{body['model']}` does not exist": body["model"] != quirks.model,
            f"Unsupported parameter: '{min(wrong)}' is not supported": bool(wrong & set(body)),
            "stream_options is not supported": "stream_options" in body and not quirks.stream_options,
            "stream must be false": bool(body.get("stream"))
            and quirks.streams is False
            and quirks.stream_options is False,
            "tools are not supported by this model": "tools" in body and quirks.tools == "refused",
            "tool_choice 'required' is not supported": body.get("tool_choice") == "required" and not quirks.forced,
            "Extra inputs are not permitted: parallel_tool_calls": (
                "parallel_tool_calls" in body and quirks.parallel_switch == "refused"
            ),
            'Unknown name "strict"': any(each["function"].get("strict") for each in tools_of(body))
            and not quirks.strict,
            "This model does not support image input": "image_url" in messages and not quirks.images,
            "Unexpected role 'developer'": '"developer"' in messages and not quirks.developer,
            f"This model's maximum context length is {quirks.window_tokens} tokens. Please reduce the length": (
                len(messages) > 1_000_000
            ),
        }
        for word in sorted(quirks.refused_keywords):
            used = any(word in find_used_keywords(each["function"]["parameters"]) for each in tools_of(body))
            complaints[f"Invalid schema for function: {word} is not permitted"] = used
        complaints["response_format is not supported"] = self._cannot_format(body)
        return next((text for text, holds in complaints.items() if holds), "")

    def _cannot_format(self, body: dict[str, Any]) -> bool:
        wanted = body.get("response_format", {}).get("type")
        can = {"schema": {"json_schema", "json_object"}, "object": {"json_object"}, "none": set()}[self.quirks.output]
        return wanted is not None and wanted not in can and not self.quirks.ignores_output

    # -- answers

    def _reply(self, body: dict[str, Any]) -> Reply:
        message: dict[str, Any] = {"role": "assistant", "content": self._text(body)}
        if self.quirks.thinking:
            message[self.quirks.thinking] = "Let me see."
        calls = self._calls(body)
        if calls:
            message |= {"content": None, "tool_calls": calls}
        finish = "tool_calls" if calls else "stop"
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        if not (body.get("stream") and self.quirks.streams):
            whole = {
                "id": "x",
                "object": "chat.completion",
                "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            }
            return json_reply({**whole, "model": self.quirks.model, **({"usage": usage} if self.quirks.usage else {})})
        told = self.quirks.usage and "stream_options" in body
        return Reply(sse(*chunks_of(message, finish, usage if told else None)))

    def _text(self, body: dict[str, Any]) -> str:
        wanted = body.get("response_format", {}).get("type")
        held = self.quirks.output == "schema" or (self.quirks.output == "object" and wanted == "json_object")
        return '{"colour": "green"}' if wanted and held else "Grass is green."

    def _calls(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        said = body["messages"][-1]["content"]
        asked = "Call the tool lookup" in said if isinstance(said, str) else False
        willing = self.quirks.tools == "native" or (
            self.quirks.tools == "forced" and body.get("tool_choice") == "required"
        )
        if not (asked and willing and tools_of(body)):
            return []
        words = re.findall(r"'(\w+)'", said)
        one = not self.quirks.parallel or (
            body.get("parallel_tool_calls") is False and self.quirks.parallel_switch == "obeyed"
        )
        return [call(place, word) for place, word in enumerate(words[:1] if one else words)]


def tools_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    return body.get("tools", [])


def call(place: int, word: str) -> dict[str, Any]:
    arguments = json.dumps({"word": word})
    return {
        "index": place,
        "id": f"call_{place}",
        "type": "function",
        "function": {"name": "lookup", "arguments": arguments},
    }


def chunks_of(message: dict[str, Any], finish: str, usage: dict[str, int] | None) -> list[Any]:
    head = {"id": "x", "object": "chat.completion.chunk", "model": "quirky"}
    told = [
        {**head, "choices": [{"index": 0, "delta": {"role": "assistant", name: value}}]}
        for name, value in message.items()
    ]
    end = {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    counted = [{**head, "choices": [], "usage": usage}] if usage else []
    return [*told, end, *counted, "[DONE]"]


def refusal(message: str, status: int = 400) -> Reply:
    return json_reply({"error": {"message": message, "type": "invalid_request_error"}}, status)
