"""What recorded answers say, read as naively as possible: what the decoder is compared with.

It has a whole answer at hand, so it can afford to be simple: it knows nothing of typed chunks or of pieces of bytes.
"""

import json
from collections.abc import Iterator
from typing import Any

from msgspec import Struct


class Told(Struct):
    """What an answer says."""

    text: str = ""
    thinking: str = ""
    calls: list[list[Any]] = []
    """Of each call: its id, its name, its arguments, and the index under which it came."""
    details: list[dict[str, Any]] = []
    finish: str | None = None
    refused: bool = False
    usage: dict[str, Any] = {}

    @property
    def stop(self) -> str | None:
        """The reason to stop that we would give."""
        if self.refused:
            return "content_filter"
        if self.finish in {"stop", "tool_calls", "function_call", "eos"}:
            return "tool_use" if self.calls else "stop"
        return {"length": "length", "content_filter": "content_filter"}.get(self.finish or "")

    @property
    def cached_tokens(self) -> int:
        """Of what was read; some tell more than was read."""
        names = ("prompt_cache_hit_tokens", "cache_read_input_tokens", "num_cached_tokens", "cached_tokens")
        told = [self.usage.get(name) or 0 for name in names]
        told.append((self.usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
        return min(max(told), self.usage["prompt_tokens"])

    @property
    def reasoning_tokens(self) -> int:
        """Of what was written."""
        inside = (self.usage.get("completion_tokens_details") or {}).get("reasoning_tokens")
        return int(inside or self.usage.get("reasoning_tokens") or 0)

    @property
    def signed_calls(self) -> list[tuple[str, str, Any]]:
        """The calls, their arguments parsed where they are JSON."""
        return [(call[0], call[1], meaning(call[2])) for call in self.calls]


def meaning(arguments: str) -> Any:
    """The arguments of a call as a value; as they are when they are no JSON."""
    try:
        return json.loads(arguments or "{}") or {}
    except ValueError:
        return arguments


def told(data: bytes, *, streamed: bool) -> Told:
    """What a recorded answer says."""
    said = Told()
    for chunk in _chunks(data.decode()) if streamed else [json.loads(data)]:
        for choice in chunk.get("choices") or []:
            if choice.get("index") in {0, None}:
                message = choice.get("delta") if streamed else choice.get("message")
                _hear(said, message or {}, streamed=streamed)
                said.finish = choice.get("finish_reason") or said.finish
        usage = chunk.get("usage") or (chunk.get("x_groq") or {}).get("usage")
        if usage:
            said.usage = usage
    return said


def _chunks(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        if line.startswith("data:") and (data := line[5:].strip()) and data != "[DONE]":
            yield json.loads(data)


def _hear(said: Told, message: dict[str, Any], *, streamed: bool) -> None:
    content = message.get("content")
    if isinstance(content, list):
        for item in content:
            if item["type"] == "thinking":
                said.thinking += "".join(each["text"] for each in item["thinking"])
            else:
                said.text += item.get("text", "")
    elif isinstance(content, dict):
        said.text += json.dumps(content, separators=(",", ":"))
    else:
        said.text += content or ""
    if message.get("refusal"):
        said.text += message["refusal"]
        said.refused = True
    if message.get("audio"):
        said.text += f"[audio: {message['audio']['transcript']}]"
    blocks = message.get("reasoning_details") or []
    flat = message.get("reasoning_content") or message.get("reasoning") or message.get("thinking")
    said.thinking += flat or "".join(block.get("text") or block.get("summary") or "" for block in blocks)
    _collect(said, blocks, streamed=streamed)
    pieces = message.get("tool_calls") or []
    if message.get("function_call"):
        pieces = [{"index": 0, "function": message["function_call"]}]
    for piece in pieces:
        _call(said, piece, streamed=streamed)


def _collect(said: Told, blocks: list[dict[str, Any]], *, streamed: bool) -> None:
    for block in blocks:
        known = [each for each in said.details if (each["index"], each["type"]) == (block["index"], block["type"])]
        if not streamed or not known:
            said.details.append(dict(block))
            continue
        for field, value in block.items():
            if field in {"text", "summary", "data"}:
                known[0][field] = known[0].get(field, "") + value
            elif value:
                known[0][field] = value


def _call(said: Told, piece: dict[str, Any], *, streamed: bool) -> None:
    function = piece.get("function") or {}
    arguments = function.get("arguments") or ""
    same = [call for call in said.calls if call[3] == piece.get("index") and "index" in piece]
    is_new = not same or (piece.get("id") and function.get("name") and piece["id"] != same[-1][0])
    if is_new or not streamed:
        said.calls.append([piece.get("id") or "", function.get("name") or "", arguments, piece.get("index")])
    else:
        before = same[-1][2]
        same[-1][2] = arguments if before == "null" else before + arguments
    if said.calls[-1][2] == "null":
        said.calls[-1][2] = "" if function.get("arguments") == "null" else said.calls[-1][2]
