"""What of an event can be searched."""

import pytest

from perdure.core.event import Custom, MessageAdded, RunStarted, ToolFinished
from perdure.core.message import Image, Message, Text, Thinking, ToolCall, ToolResult, assistant, user
from perdure.stores.title_and_search_text import extract_searchable_text


def tool_said(*content) -> ToolFinished:
    return ToolFinished(call_id="c", name="shell", result=ToolResult("c", "shell", content))


def test_people_and_models_speak_in_messages():
    assert extract_searchable_text(MessageAdded(message=user("Where is it?"))) == ("user", "Where is it?")
    assert extract_searchable_text(MessageAdded(message=assistant(["Over ", "there."]))) == ("assistant", "Over there.")


def test_tools_speak_by_their_results():
    assert extract_searchable_text(tool_said(Text("exit code 1"), Image(name="plot.png"))) == (
        "tool",
        "exit code 1\n[image: plot.png]",
    )


def test_thinking_and_calls_are_not_spoken():
    message = assistant([Thinking("hm"), Text("Well."), ToolCall("c", "shell", '{"command": "ls"}')])
    assert extract_searchable_text(MessageAdded(message=message)) == ("assistant", "Well.")


@pytest.mark.parametrize(
    "event",
    [
        RunStarted(),
        Custom(name="note", data="words"),
        MessageAdded(message=Message("system", (Text("Be brief."),))),
        MessageAdded(message=assistant([ToolCall("c", "shell")])),
        MessageAdded(message=user("")),
        tool_said(),
    ],
)
def test_everything_else_says_nothing(event):
    assert extract_searchable_text(event) is None


def test_what_is_said_fits_every_database():
    found = extract_searchable_text(MessageAdded(message=user("a\0b\ud800c \U0001f600")))
    assert found is not None
    role, text = found
    assert (role, text) == ("user", "a\ufffdb\ufffdc \U0001f600")
    assert text.encode()
