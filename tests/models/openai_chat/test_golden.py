"""Files that show the wire as it is: answers with what they come to, and one conversation in several dialects.

`PERDURE_GOLDEN=write` writes what is expected anew; look at the difference before you keep it.
"""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure import (
    Image,
    Message,
    Settings,
    Status,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    tool_message,
    user,
)
from perdure.models import Profile, Request, ToolSpec
from tests.models.openai_chat.material import body_of, message_of

GOLDEN = Path(__file__).parent / "golden"
DIALECTS = ("openai", "openrouter", "mistral", "deepseek", "gemini", "plain")
WEATHER = ToolSpec(
    "weather",
    "The weather at a place.",
    {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
)


def expect(name: str, value: Any) -> None:
    """Fail unless the value is what the file of this name says."""
    path = GOLDEN / name
    data = msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"
    if os.environ.get("PERDURE_GOLDEN") == "write":
        path.write_bytes(data)
    assert msgspec.json.decode(path.read_bytes()) == msgspec.json.decode(data)


@pytest.mark.parametrize("answer", ["text.sse", "calls.sse", "blocks.sse", "whole.json"])
def test_an_answer_comes_to_what_is_written_beside_it(answer: str) -> None:
    profile = Profile(provider="openrouter", model="vendor/model", dialect="openrouter")
    expect(f"{answer}.message.json", message_of((GOLDEN / answer).read_bytes(), profile))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_one_conversation_is_told_to_each_in_its_own_way(dialect: str) -> None:
    profile = Profile(provider=dialect, model="gemini-3-flash" if dialect == "gemini" else "gpt-5", dialect=dialect)
    expect(f"request.{dialect}.json", body_of(conversation(profile), profile))


def conversation(profile: Profile) -> Request:
    """Two turns with tools: one of this model, one of another; then a question with a picture."""
    signature = "a-signature" if profile.dialect == "gemini" else ""
    own = Message(
        "assistant",
        (
            Thinking("The user wants the weather."),
            Text("I'll look."),
            ToolCall("call_0001", "weather", '{"place": "Paris"}', signature),
            ToolCall("call_0002", "weather", '{"place": "Lyon'),
        ),
        provider=profile.provider,
        model=profile.model,
    )
    foreign = Message(
        "assistant",
        (Thinking("Once more.", "their-signature"), ToolCall("call_0003", "weather", "{}", "their-signature")),
        provider="somebody",
        model="else",
    )
    return Request(
        messages=[
            user("How is the weather in Paris and Lyon?"),
            own,
            tool_message(
                [
                    ToolResult("call_0001", "weather", (Text("sunny"),), render={"icon": "sun"}),
                    ToolResult("call_0002", "weather", (Text("bad arguments"),), Status.ERROR),
                ]
            ),
            foreign,
            tool_message([ToolResult("call_0003", "weather", (Image(data=b"\x89PNG\r\n\x1a\n", name="map.png"),))]),
            Message("assistant", (Thinking("Done."), Text("Sunny.")), provider=profile.provider, model=profile.model),
            user(["And here?", Image(url="https://example.com/here.jpg")]),
        ],
        instructions="Be brief.",
        tools=(WEATHER,),
        settings=Settings(max_output_tokens=500, seed=1, reasoning_effort="high", tool_choice="required"),
    )
