"""What of an event can be searched."""

import pytest

from perdure import Image, Message, Text, Thinking, ToolCall, ToolResult, assistant, user
from perdure._stores.texts import LARGE_TEXT, extract_searchable_text, has_large_content
from perdure.events import Custom, Entry, MessageAdded, RunStarted, SessionConfigured, ToolFinished
from perdure.stores import find_given_title, find_message_title


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


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Fix the build", "Fix the build"),
        (" Fix the build ", "Fix the build"),
        ("Fix  the   build", "Fix the build"),
        ("  ", ""),
        ("Fix\nthe build", "Fix the build"),
        ("x" * 79 + " y", "x" * 79),
        ("x" * 78 + " yz", "x" * 78 + " y"),
        ("x" * 80 + "\n", "x" * 80),
        ("\n" * 319 + "xy", "x"),  # only the beginning of a text is looked at
        ("\n" * 320 + "xy", ""),
    ],
)
def test_a_title_is_the_beginning_of_a_text_on_one_line(text: str, title: str) -> None:
    said = Entry(1, 0.0, MessageAdded(user(text)))
    assert find_message_title([said]) == title
    assert find_given_title([Entry(1, 0.0, SessionConfigured({"title": text}))]) == (title or None)
    later = Entry(2, 0.0, MessageAdded(user("Later")))
    assert find_message_title([said, later]) == (title or "Later")


@pytest.mark.parametrize("over", [0, 1])
def test_what_is_larger_than_a_limit_is_large_whatever_part_it_is(over: int) -> None:
    count = LARGE_TEXT + over
    parts = (Text("x" * count), ToolCall("c", "shell", "x" * count), Image(data=b"x" * count, media_type="image/png"))
    for part in parts:
        events = (MessageAdded(Message("assistant", (Text("small"), part))), tool_said(Text("small"), part))
        for event in events:
            entries = [Entry(1, 0.0, Custom("x")), Entry(2, 0.0, event), Entry(3, 0.0, MessageAdded(user("small")))]
            assert has_large_content(entries) is bool(over)
    assert not has_large_content([Entry(1, 0.0, Custom("x", "x" * count))])
    assert not has_large_content([])
