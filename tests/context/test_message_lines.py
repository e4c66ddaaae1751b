"""Messages as text."""

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import Image, Message, Status, Text, Thinking, ToolCall, ToolResult, user
from perdure._context.history.message_lines import (
    MAX_RESULT_CHARACTERS,
    format_message_line,
    get_searchable_text,
    pack_lines_into_texts,
)
from perdure._context.history.tokens import estimate_text_tokens
from perdure._core.tools.wrappers import shorten_text
from tests.core.material import messages as any_messages


def test_a_line_says_which_message_it_is_who_speaks_and_why():
    assert format_message_line(user("Moor!", origin="steering"), 7) == "[7] user (steering): Moor!"


def test_calls_results_and_media_are_shown_and_thinking_is_not():
    reply = Message(
        "assistant", (Thinking("hm"), Text("Look:"), ToolCall("c", "look", '{"at":1}'), Image(name="a.png"))
    )
    assert format_message_line(reply, 1) == '[1] assistant: Look:\n[call look {"at":1}]\n[image: a.png]'
    result = ToolResult("c", "look", (Text("x" * 9000),), Status.ERROR)
    line = format_message_line(Message("tool", (result,)), 2)
    assert line.startswith("[2] tool: [result of look (error): xxx")
    assert len(line) < MAX_RESULT_CHARACTERS + 200
    assert len(get_searchable_text(Message("tool", (result,)))) == 9000


@given(st.lists(st.text(max_size=300), max_size=20), st.integers(40, 400))
def test_chunks_hold_every_line_in_order_and_none_is_too_large(lines, room):
    pieces = pack_lines_into_texts(lines, room)
    assert all(estimate_text_tokens(piece) <= room for piece in pieces)
    if all(estimate_text_tokens(line) < room for line in lines):
        assert "\n".join(pieces) == "\n".join(lines)


def test_lines_are_packed_until_a_text_is_full():
    line = "word " * 5
    size = estimate_text_tokens(line) + 1
    assert pack_lines_into_texts([], 3 * size) == []
    assert pack_lines_into_texts([line] * 5, 2 * size) == [f"{line}\n{line}", f"{line}\n{line}", line]
    assert pack_lines_into_texts([line] * 3, 2 * size - 1) == [line, line, line]
    assert pack_lines_into_texts([line] * 3, 3 * size) == [f"{line}\n{line}\n{line}"]


def test_the_text_to_search_has_all_parts_of_a_message():
    reply = Message("assistant", (Text("Look:"), Text(""), Image(name="a.png"), Text("there")))
    assert get_searchable_text(reply) == "Look:\n[image: a.png]\nthere"


def test_a_long_part_of_a_line_is_shortened():
    long = "x" * 9000
    reply = Message("assistant", (Text(long), ToolCall("c", "look", long)))
    text, call = format_message_line(reply, 1).split("\n[call look ")
    assert text.removeprefix("[1] assistant: ") == shorten_text(long, 6000)
    assert call == f"{shorten_text(long, 1000)}]"
    result = ToolResult("c", "look", (Text(long),))
    assert format_message_line(Message("tool", (result,)), 2) == (
        f"[2] tool: [result of look: {shorten_text(long, 2000)}]"
    )


@settings(max_examples=30)
@given(any_messages)
def test_any_message_has_a_line(message):
    assert format_message_line(message, 1).startswith(f"[1] {message.role}")
    assert isinstance(get_searchable_text(message), str)
