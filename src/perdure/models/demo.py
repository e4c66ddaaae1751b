"""The demonstration model: no key, no network, no wits. Above: `open_model("demo")`. Below: `guess.py`.

It matches words. When a tool shares words with the person's message it calls that tool, once, and tells what came
back; otherwise it says what it is. The same request always gets the same reply.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence

import msgspec

from perdure.core.error import ConfigError
from perdure.core.event import ModelEvent, ReplyFinished, TextDelta, ToolCallDelta
from perdure.core.message import Message, StopReason, ToolCall, ToolResult, Usage, flatten
from perdure.core.model import ModelInfo, Price, Request, ToolSpec
from perdure.core.plain import clean, to_text

from .guess import choose, fill

_WHAT_I_AM = "I am the offline demonstration model of Perdure: I match words, and understand nothing."
_HOW_TO_CHOOSE = (
    'For real answers give the agent a real model: by name, as in Agent("provider:model"), or as any object that has '
    "stream(request)."
)

_SHOWN = 400
"""Characters of a result that are told."""
_CHARACTERS_PER_TOKEN = 4
"""A rule of thumb, for usage that is marked as estimated."""


class DemoModel:
    """Shows what an agent does when no real model is at hand. It says that it is a demonstration."""

    def __init__(self, name: str = "words") -> None:
        if name != "words":
            raise ConfigError(f"there is no demonstration model {name!r}; use 'demo' or 'demo:words'")
        self.info = ModelInfo(name, "demo", Price(input_usd=0.0, output_usd=0.0))
        """What `info_of` tells about it: it costs nothing."""

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """A call, or a few sentences word by word."""
        said = reply_to(request)
        if isinstance(said, ToolCall):
            yield ToolCallDelta(said.call_id, said.name, said.arguments)
            yield self._finished(StopReason.TOOL_USE, request, said.arguments)
            return
        for word in re.findall(r"\S+\s*", said):
            yield TextDelta(word)
            await asyncio.sleep(0)  # as a real stream would: others run, and it can be cancelled
        yield self._finished(StopReason.STOP, request, said)

    def _finished(self, stop: StopReason, request: Request, said: str) -> ReplyFinished:
        return ReplyFinished(stop, _estimated(request, said), self.info.name, self.info.provider)


def reply_to(request: Request) -> str | ToolCall:
    """What the demonstration model says to a request."""
    prompt, results = _latest(request.messages)
    if results:
        return f"{' '.join([_told(result) for result in results])} (Told by the offline demonstration model.)"
    tools, must = _offered(request)
    tool = choose(prompt, tools, must=must)
    if tool is None:
        unused = "None of my tools shares enough words with your message. " if tools else ""
        return f"{_WHAT_I_AM} {unused}{_HOW_TO_CHOOSE}"
    arguments, missing = fill(tool, prompt)
    if missing:
        wanted = ", ".join(missing)
        return (
            f"{_WHAT_I_AM} The tool {tool.name} seems to fit, but I found nothing in your message to use as {wanted}."
        )
    return ToolCall(f"demo_{len(request.messages)}", tool.name, msgspec.json.encode(arguments).decode())


def _latest(messages: Sequence[Message]) -> tuple[str, list[ToolResult]]:
    """What a person said last, and the results that have come since."""
    results: list[ToolResult] = []
    for message in reversed(messages):
        if message.role == "user":
            return clean(message.text), results
        results[:0] = message.tool_results
    return "", results


def _offered(request: Request) -> tuple[Sequence[ToolSpec], bool]:
    """The tools that may be called, and whether one of them must be."""
    choice = request.settings.tool_choice
    if choice == "none":
        return (), False
    if choice in (None, "auto", "required"):
        return request.tools, choice == "required"
    return [tool for tool in request.tools if tool.name == choice], True


def _told(result: ToolResult) -> str:
    text = result.text.strip()
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    if result.is_error:
        return f"The tool {result.name} did not succeed ({result.status}): {text}"
    return f"The tool {result.name} says: {text}" if text else f"The tool {result.name} is done and says nothing."


def _estimated(request: Request, said: str) -> Usage:
    read = len(request.instructions) + len(to_text(request.tools))
    read += sum([len(flatten(message.parts)) for message in request.messages])
    return Usage(-(-read // _CHARACTERS_PER_TOKEN), -(-len(said) // _CHARACTERS_PER_TOKEN), precision="estimated")
