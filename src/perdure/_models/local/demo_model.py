"""Offline demonstration model, which needs no key and no network.

It matches words. If a tool shares words with the user's message, it calls that tool once and repeats the result;
otherwise it replies that it is a demonstration. The same request always gets the same reply.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence

import msgspec

from perdure._core.model.protocol import ModelInfo, Price, Request, ToolSpec
from perdure._core.values.error import ConfigError
from perdure._core.values.event import ModelEvent, ReplyFinished, TextDelta, ToolCallDelta
from perdure._core.values.jsonable import replace_surrogates, to_text
from perdure._core.values.message import Message, StopReason, ToolCall, ToolResult, Usage, parts_to_text

from .tool_choice import choose_tool, guess_arguments

_WHAT_I_AM = "I am the offline demonstration model of Perdure: I match words, and understand nothing."
_HOW_TO_CHOOSE = (
    'For real answers give the agent a real model: by name, as in Agent("provider:model"), or as any object that has '
    "stream(request)."
)

_MAX_RESULT_CHARACTERS = 400
"""Maximum number of characters of a tool result that are repeated."""
_CHARACTERS_PER_TOKEN = 4
"""Rule of thumb, for usage that is marked as estimated."""


class DemoModel:
    """Model for trying an agent without a provider. Its replies say that it is a demonstration."""

    def __init__(self, name: str = "words") -> None:
        if name != "words":
            raise ConfigError(f"there is no demonstration model {name!r}; use 'demo' or 'demo:words'")
        self.info = ModelInfo(name, "demo", Price(input_usd=0.0, output_usd=0.0))
        """Model info for `model_info`: the price is 0."""

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Stream a tool call, or a few sentences in small pieces."""
        said = build_demo_reply(request)
        if isinstance(said, ToolCall):
            yield ToolCallDelta(said.call_id, said.name, said.arguments)
            yield self._build_reply_finished(StopReason.TOOL_USE, request, said.arguments)
            return
        for word in re.findall(r"\S+\s*", said):
            yield TextDelta(word)
            await asyncio.sleep(0)  # as in a real stream: other tasks run, and it can be cancelled
        yield self._build_reply_finished(StopReason.STOP, request, said)

    def _build_reply_finished(self, stop: StopReason, request: Request, said: str) -> ReplyFinished:
        return ReplyFinished(stop, _estimate_usage(request, said), self.info.name, self.info.provider)


def build_demo_reply(request: Request) -> str | ToolCall:
    """Return the demonstration model's reply to a request: a tool call, or a few sentences."""
    prompt, results = _get_latest_prompt_and_results(request.messages)
    if results:
        return (
            f"{' '.join([_describe_result(result) for result in results])} (Told by the offline demonstration model.)"
        )
    tools, must = _get_callable_tools(request)
    tool = choose_tool(prompt, tools, required=must)
    if tool is None:
        unused = "None of my tools shares enough words with your message. " if tools else ""
        return f"{_WHAT_I_AM} {unused}{_HOW_TO_CHOOSE}"
    arguments, missing = guess_arguments(tool, prompt)
    if missing:
        wanted = ", ".join(missing)
        return (
            f"{_WHAT_I_AM} The tool {tool.name} seems to fit, but I found nothing in your message to use as {wanted}."
        )
    return ToolCall(f"demo_{len(request.messages)}", tool.name, msgspec.json.encode(arguments).decode())


def _get_latest_prompt_and_results(messages: Sequence[Message]) -> tuple[str, list[ToolResult]]:
    """Return the last user message, and the tool results after it."""
    results: list[ToolResult] = []
    for message in reversed(messages):
        if message.role == "user":
            return replace_surrogates(message.text), results
        results[:0] = message.tool_results
    return "", results


def _get_callable_tools(request: Request) -> tuple[Sequence[ToolSpec], bool]:
    """Return the tools that may be called, and True if one of them must be."""
    choice = request.settings.tool_choice
    if choice == "none":
        return (), False
    if choice in (None, "auto", "required"):
        return request.tools, choice == "required"
    return [tool for tool in request.tools if tool.name == choice], True


def _describe_result(result: ToolResult) -> str:
    text = result.text.strip()
    text = text if len(text) <= _MAX_RESULT_CHARACTERS else f"{text[:_MAX_RESULT_CHARACTERS]}…"
    if result.is_error:
        return f"The tool {result.name} did not succeed ({result.status}): {text}"
    return f"The tool {result.name} says: {text}" if text else f"The tool {result.name} is done and says nothing."


def _estimate_usage(request: Request, said: str) -> Usage:
    read = len(request.instructions) + len(to_text(request.tools))
    read += sum([len(parts_to_text(message.parts)) for message in request.messages])
    return Usage(-(-read // _CHARACTERS_PER_TOKEN), -(-len(said) // _CHARACTERS_PER_TOKEN), precision="estimated")
