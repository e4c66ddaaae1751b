"""Models of every wire, for tests that move conversations between them: how each is asked, and how its provider writes.

A reply is written as its provider would write it, and read by the decoder of its wire, so that its reasoning has the
shape that it has in life. Everything that belongs to the author of a reply alone holds a token with the number of the
turn: `SECRET000301` in signatures, encrypted blocks and ids of items, `THOUGHT0003` in readable thoughts.
"""

import json
from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import Struct

from perdure import Message
from perdure._models.wires.anthropic import WIRE as ANTHROPIC
from perdure._models.wires.bedrock import WIRE as BEDROCK
from perdure._models.wires.gemini import WIRE as GEMINI
from perdure._models.wires.ollama import WIRE as OLLAMA
from perdure._models.wires.openai_chat import WIRE as CHAT
from perdure._models.wires.openai_responses import WIRE as RESPONSES
from perdure._models.wires.vertex import WIRE as VERTEX
from perdure.events import ReplyFinished
from perdure.models import Profile, Wire, assemble_reply

Json: TypeAlias = dict[str, Any]


class Reply(Struct, frozen=True):
    """What a model is to say, before it is written in the way of its provider."""

    turn: int
    thoughts: int = 0
    """How many blocks of thinking come first."""
    text: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    """The id, the name and the arguments of each; the id may be empty or used before."""
    is_cut: bool = False
    """Whether it got too long."""

    def secret(self, number: int) -> str:
        """A token of twelve characters, which is also base64 of something."""
        return f"SECRET{self.turn:04d}{number:02d}"

    def thought(self, number: int) -> str:
        return f'THOUGHT{self.turn:04d} no. {number}: é \\ " \n'

    @property
    def all_thoughts(self) -> str:
        """For those who write them as one."""
        return "".join([self.thought(number) for number in range(self.thoughts)])


class Author(Struct, frozen=True, repr_omit_defaults=True):
    """A model at an endpoint: how it is asked, and how it answers."""

    label: str
    wire: Wire
    profile: Profile
    write: Callable[[Reply], Json]
    """The body of a whole answer."""
    dropped: frozenset[str] = frozenset()
    """Fields of an answer that hold tokens and are not sent back."""

    def read(self, body: Json) -> Message:
        """An answer as the decoder of its wire reads it."""
        decoder = self.wire.decoder(self.profile, "application/json")
        events = [*decoder.feed(json.dumps(body).encode()), *decoder.end()]
        finished = events.pop()
        assert isinstance(finished, ReplyFinished)
        return assemble_reply(events, finished)

    def __repr__(self) -> str:
        return self.label


# -- how each provider writes ------------------------------------------------------------------------------------------


def _object(arguments: str) -> Any:
    """Arguments for wires that have no text for them."""
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return {"no": "JSON"}
    return value if isinstance(value, dict) else {"no": "object"}


def _chat_body(reply: Reply, **message: Any) -> Json:
    calls = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for call_id, name, arguments in reply.calls
    ]
    said = {"role": "assistant", "content": reply.text or None, **message}
    if calls:
        said.setdefault("tool_calls", calls)
    finish = "length" if reply.is_cut else "tool_calls" if calls else "stop"
    choice = {"index": 0, "message": said, "finish_reason": finish}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return {"id": "chatcmpl-1", "object": "chat.completion", "choices": [choice], "usage": usage}


def _with_field(field: str) -> Callable[[Reply], Json]:
    def write(reply: Reply) -> Json:
        return _chat_body(reply, **({field: reply.all_thoughts} if reply.thoughts else {}))

    return write


def _with_details(reply: Reply) -> Json:
    details = [
        {
            "type": "reasoning.text",
            "text": reply.thought(number),
            "signature": reply.secret(number),
            "format": "anthropic-claude-v1",
            "index": number,
        }
        for number in range(reply.thoughts)
    ]
    if details:
        details.append(
            {"type": "reasoning.encrypted", "data": reply.secret(90), "id": reply.secret(91), "index": len(details)}
        )
    return _chat_body(reply, **({"reasoning_details": details, "reasoning": reply.thought(0)} if details else {}))


def _with_content(reply: Reply) -> Json:
    """As Mistral writes."""
    if not reply.thoughts:
        return _chat_body(reply)
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": reply.all_thoughts}]}
    return _chat_body(reply, content=[thinking, *([{"type": "text", "text": reply.text}] if reply.text else [])])


def _with_signed_calls(reply: Reply) -> Json:
    """As Gemini writes at its OpenAI-compatible address."""
    body = _chat_body(reply)
    for number, call in enumerate(body["choices"][0]["message"].get("tool_calls", [])[:1]):
        call["extra_content"] = {"google": {"thought_signature": reply.secret(number)}}
    return body


def _responses_body(reply: Reply) -> Json:
    output: list[Json] = [
        {
            "type": "reasoning",
            "id": f"rs_{reply.secret(number)}",
            "summary": [{"type": "summary_text", "text": reply.thought(number)}],
            "encrypted_content": reply.secret(number + 20),
        }
        for number in range(reply.thoughts)
    ]
    if reply.text:
        content = [{"type": "output_text", "text": reply.text, "annotations": []}]
        said = {"type": "message", "id": f"msg_{reply.secret(40)}", "role": "assistant", "status": "completed"}
        output.append({**said, "content": content})
    for number, (call_id, name, arguments) in enumerate(reply.calls):
        call = {"type": "function_call", "id": f"fc_{reply.secret(50 + number)}", "status": "completed"}
        output.append({**call, "call_id": call_id or "call_0", "name": name, "arguments": arguments})
    cut: Json = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    body = {"id": f"resp_{reply.secret(99)}", "object": "response", "status": "completed", "output": output}
    return {**body, "usage": usage, **(cut if reply.is_cut else {})}


def _anthropic_body(reply: Reply) -> Json:
    content: list[Json] = [
        {"type": "thinking", "thinking": reply.thought(number), "signature": reply.secret(number)}
        for number in range(reply.thoughts)
    ]
    if reply.thoughts > 1:
        content.append({"type": "redacted_thinking", "data": reply.secret(30)})
    if reply.text:
        content.append({"type": "text", "text": reply.text})
    for call_id, name, arguments in reply.calls:
        content.append({"type": "tool_use", "id": call_id, "name": name, "input": _object(arguments)})
    stop = "max_tokens" if reply.is_cut else "tool_use" if reply.calls else "end_turn"
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": stop}
    return {**head, "content": content, "usage": {"input_tokens": 10, "output_tokens": 5}}


def _gemini_body(reply: Reply) -> Json:
    parts: list[Json] = [{"text": reply.all_thoughts, "thought": True}] if reply.thoughts else []
    if reply.text:
        parts += [
            {"text": reply.text, "thoughtSignature": reply.secret(40)},
            {"text": "", "thoughtSignature": reply.secret(41)},
        ]
    for number, (call_id, name, arguments) in enumerate(reply.calls):
        call = {"name": name, "args": _object(arguments), **({"id": call_id} if call_id else {})}
        signed = {"thoughtSignature": reply.secret(50)} if number == 0 and reply.thoughts else {}
        parts.append({"functionCall": call, **signed})
    if reply.thoughts > 1:
        parts.append({"executableCode": {"language": "PYTHON", "code": reply.secret(60)}})
    candidate = {"content": {"parts": parts, "role": "model"}, "finishReason": "MAX_TOKENS" if reply.is_cut else "STOP"}
    return {"candidates": [candidate], "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5}}


def _bedrock_body(reply: Reply) -> Json:
    content: list[Json] = [
        {"reasoningContent": {"reasoningText": {"text": reply.thought(number), "signature": reply.secret(number)}}}
        for number in range(reply.thoughts)
    ]
    if reply.thoughts > 1:
        content.append({"reasoningContent": {"redactedContent": reply.secret(30)}})
    if reply.text:
        content.append({"text": reply.text})
    for call_id, name, arguments in reply.calls:
        content.append({"toolUse": {"toolUseId": call_id, "name": name, "input": _object(arguments)}})
    stop = "max_tokens" if reply.is_cut else "tool_use" if reply.calls else "end_turn"
    usage = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}
    return {"output": {"message": {"role": "assistant", "content": content}}, "stopReason": stop, "usage": usage}


def _ollama_body(reply: Reply) -> Json:
    message: Json = {"role": "assistant", "content": reply.text}
    if reply.thoughts:
        message["thinking"] = reply.all_thoughts
    if reply.calls:
        message["tool_calls"] = [
            {"id": call_id, "function": {"name": name, "arguments": _object(arguments)}}
            for call_id, name, arguments in reply.calls
        ]
    reason = "length" if reply.is_cut else "stop"
    return {"message": message, "done": True, "done_reason": reason, "prompt_eval_count": 10, "eval_count": 5}


# -- who writes --------------------------------------------------------------------------------------------------------


def _author(label: str, wire: Wire, write: Callable[[Reply], Json], *dropped: str, **fields: Any) -> Author:
    profile = Profile(**{"provider": label, "model": f"{label}-model", "documents": True, **fields})
    return Author(label, wire, profile, write, frozenset(dropped))


_SEES_ALL = {"documents": True, "audio": True, "video": True}
_SEES_NOTHING = {"images": False, "documents": False}

AUTHORS: tuple[Author, ...] = (
    _author("chat", CHAT, _with_field("reasoning_content"), **_SEES_ALL),
    _author("chat_openai", CHAT, _chat_body, dialect="openai", provider="openai", model="gpt-5"),
    _author("chat_openrouter", CHAT, _with_details, "reasoning", dialect="openrouter", cache="marked"),
    _author("chat_mistral", CHAT, _with_content, dialect="mistral", schema="mistral"),
    _author("chat_kimi", CHAT, _with_field("reasoning_content"), dialect="kimi", model="kimi-k3", schema="kimi"),
    _author("chat_deepseek", CHAT, _with_field("reasoning_content"), dialect="deepseek", model="deepseek-v4-pro"),
    _author("chat_mimo", CHAT, _with_field("reasoning_content"), dialect="mimo", model="mimo-v2.5"),
    _author("chat_gemini", CHAT, _with_signed_calls, dialect="gemini", provider="google", model="gemini-3-flash"),
    _author(
        "chat_minimax", CHAT, _with_details, "reasoning", dialect="minimax", provider="minimax", model="minimax-m2"
    ),
    _author("chat_blind", CHAT, _with_field("reasoning"), dialect="vllm", tools="none", output="none", **_SEES_NOTHING),
    _author("responses", RESPONSES, _responses_body, "id", provider="openai", model="gpt-5", **_SEES_ALL),
    _author("responses_xai", RESPONSES, _responses_body, "id", dialect="xai"),
    _author("responses_deepseek", RESPONSES, _responses_body, "id", dialect="deepseek", model="deepseek-v4-pro"),
    _author("responses_blind", RESPONSES, _responses_body, "id", dialect="open", **_SEES_NOTHING),
    _author("anthropic", ANTHROPIC, _anthropic_body, model="claude-sonnet-4-5", schema="anthropic", cache="marked"),
    _author("anthropic_minimax", ANTHROPIC, _anthropic_body, provider="minimax", model="minimax-m2", **_SEES_NOTHING),
    _author("anthropic_deepseek", ANTHROPIC, _anthropic_body, provider="deepseek", model="deepseek-v4-pro"),
    _author("gemini", GEMINI, _gemini_body, model="gemini-2.5-pro", schema="gemini", **_SEES_ALL),
    _author("gemini_new", GEMINI, _gemini_body, provider="google", model="gemini-3-flash", schema="gemini"),
    _author("gemini_blind", GEMINI, _gemini_body, model="gemma-3", schema="gemini", tools="none", **_SEES_NOTHING),
    _author("bedrock", BEDROCK, _bedrock_body, model="anthropic.claude-sonnet-4-5", schema="bedrock", cache="marked"),
    _author("bedrock_nova", BEDROCK, _bedrock_body, model="amazon.nova-pro", schema="bedrock", video=True),
    _author("ollama", OLLAMA, _ollama_body, schema="llamacpp"),
    _author("ollama_blind", OLLAMA, _ollama_body, tools="none", output="none", **_SEES_NOTHING),
    _author("vertex", VERTEX, _gemini_body, model="gemini-2.5-pro", schema="gemini", dialect="vertex", **_SEES_ALL),
    _author("vertex_claude", VERTEX, _anthropic_body, model="claude-sonnet-4-5", schema="anthropic", cache="marked"),
    _author("bedrock_blind", BEDROCK, _bedrock_body, model="meta.llama", schema="bedrock", **_SEES_NOTHING),
)
"""Two of a provider and a model on different wires are the same author, to whom its thoughts may go back."""

WIRES: tuple[Wire, ...] = (CHAT, RESPONSES, ANTHROPIC, GEMINI, BEDROCK, OLLAMA, VERTEX)
