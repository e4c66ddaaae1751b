"""A model behind HTTP for commands that run as processes: chat completions on the loopback, answered by a function."""

import json
from collections.abc import Callable
from typing import Any

from tests.wire.server import Playback, Received, Reply, sse

Decide = Callable[[dict[str, Any]], "str | tuple[str, dict[str, Any]]"]
"""From the body of a request to a text, or to the name and the arguments of a tool call."""


def serve_model(decide: Decide) -> Playback:
    """Return a server, to be entered with `with`, whose model answers as `decide` says."""

    def answer(request: Received) -> Reply:
        body = request.json()
        decided = decide(body)
        if isinstance(decided, str):
            delta: dict[str, Any] = {"content": decided}
        else:
            name, arguments = decided
            function = {"name": name, "arguments": json.dumps(arguments)}
            call = {"index": 0, "id": f"call-{len(body['messages'])}", "type": "function", "function": function}
            delta = {"tool_calls": [call]}
        head = {"id": "x", "object": "chat.completion.chunk", "model": body["model"]}
        finish = "tool_calls" if "tool_calls" in delta else "stop"
        usage = {"prompt_tokens": 1200, "completion_tokens": 34, "total_tokens": 1234}
        return Reply(
            sse(
                {**head, "choices": [{"index": 0, "delta": {"role": "assistant", **delta}}]},
                {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
                {**head, "choices": [], "usage": usage},
                "[DONE]",
            )
        )

    return Playback(answer)


def address_model(server: Playback) -> dict[str, str]:
    """Return the environment in which the default model of a command is the one of this server."""
    return {
        "PERDURE_MODEL": "openai-chat:scripted",
        "OPENAI_BASE_URL": f"{server.base_url}/v1",
        "OPENAI_API_KEY": "key-of-the-test",
    }


def read_results(body: dict[str, Any]) -> list[str]:
    """Return the texts of all tool results in a request, in their order."""
    return [each["content"] for each in body["messages"] if each["role"] == "tool"]
