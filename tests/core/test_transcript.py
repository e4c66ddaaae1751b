"""A transcript, and what of it the model is sent."""

from collections.abc import Iterable

import pytest

from perdure.core.message import Message, Text, ToolCall, ToolResult, assistant, tool_message, user
from perdure.core.transcript import MessagesSnapshot, Transcript, shorten_message_for_model


def words(messages: Iterable[Message]) -> list[str]:
    return [message.text for message in messages]


def results(text: str, *, summary: str = "", preview: str = "") -> Message:
    return tool_message([ToolResult("a", "look", (Text(text),), summary=summary, preview=preview)])


CALL = assistant([ToolCall("a", "look")])


def sent(transcript: Transcript) -> list[str]:
    return [message.text or "".join(each.text for each in message.tool_results) for message in transcript.sent_messages]


# -- views -------------------------------------------------------------------------------------------------------------


def test_a_view_does_not_change_when_the_transcript_grows():
    messages = [user("one"), user("two")]
    view = MessagesSnapshot(messages)
    messages.append(user("three"))
    assert (words(view), len(view), words(MessagesSnapshot(messages))) == (["one", "two"], 2, ["one", "two", "three"])


def test_a_view_continues_another_of_the_same_list_that_is_no_longer():
    messages = [user("one")]
    before = MessagesSnapshot(messages)
    messages.append(user("two"))
    after = MessagesSnapshot(messages)
    assert (
        after.is_extension_of(before),
        before.is_extension_of(after),
        MessagesSnapshot(list(messages)).is_extension_of(before),
    ) == (
        True,
        False,
        False,
    )


def test_a_view_is_read_like_a_list():
    messages = [user(word) for word in ("one", "two", "three")]
    view = MessagesSnapshot(messages)
    messages.append(user("four"))
    assert (view[0].text, view[-1].text) == ("one", "three")
    assert (words(view[1:]), words(view[:-1]), words(view[::-1])) == (
        ["two", "three"],
        ["one", "two"],
        ["three", "two", "one"],
    )
    assert (user("two") in view, user("four") in view, view.index(user("three"))) == (True, False, 2)
    assert words(reversed(view)) == ["three", "two", "one"]
    with pytest.raises(IndexError):
        view[3]


@pytest.mark.parametrize("start", [None, -5, -3, -1, 0, 1, 2, 3, 4])
def test_every_slice_of_a_view_is_that_of_a_list(start):
    messages = [user(word) for word in ("one", "two", "three")]
    view, plain = MessagesSnapshot(messages), [*messages]
    messages.append(user("four"))
    for stop in (None, -1, 0, 1, 2, 3, 9):
        for step in (None, 1, 2, -1):
            assert view[start:stop:step] == plain[start:stop:step]


def test_every_index_of_a_view_is_that_of_a_list():
    messages = [user(word) for word in ("one", "two", "three")]
    view = MessagesSnapshot(messages)
    messages.append(user("four"))
    assert [view[place].text for place in (0, 2, -1, -3)] == ["one", "three", "three", "one"]
    for place in (3, -4):
        with pytest.raises(IndexError):
            view[place]


def test_a_view_is_equal_to_what_holds_the_same_messages():
    messages = [user("one"), user("two")]
    view = MessagesSnapshot(messages)
    assert view == messages
    assert view == tuple(messages)
    assert view == MessagesSnapshot([*messages])
    assert view != messages[:1]
    assert view != "one two"
    assert repr(view) == f"View({messages!r})"
    with pytest.raises(TypeError, match="unhashable"):
        hash(view)


# -- what is sent ------------------------------------------------------------------------------------------------------


def test_all_of_a_transcript_is_sent_without_a_copy():
    transcript = Transcript()
    transcript.add(user("one"))
    transcript.add_reply_with_results(CALL, results("whole", summary="short"))
    assert transcript.sent_messages is transcript.messages


def test_a_result_that_is_too_long_is_sent_in_its_preview_from_the_beginning_on():
    transcript = Transcript()
    transcript.add(user("one"))
    transcript.add_reply_with_results(CALL, results("whole", preview="head … tail"))
    transcript.add(user("two"))
    transcript.add_reply_with_results(CALL, results("more", preview="m…"))
    transcript.add_reply_with_results(CALL, results("all"))
    assert sent(transcript) == ["one", "", "head … tail", "two", "", "m…", "", "all"]
    assert transcript.messages[2].tool_results[0].text == "whole"


def test_a_summary_stands_for_the_first_messages_and_a_second_one_for_more_of_them():
    transcript = Transcript()
    for word in ("one", "two", "three"):
        transcript.add(user(word))
    transcript.compact(user("first"), 1)
    transcript.add(user("four"))
    assert sent(transcript) == ["first", "two", "three", "four"]
    transcript.compact(user("second"), 3)
    assert sent(transcript) == ["second", "four"]
    assert words(transcript.messages) == ["one", "two", "three", "four"]


def test_older_results_are_sent_in_their_short_form_where_they_have_one():
    transcript = Transcript()
    transcript.add(user("one"))
    transcript.add_reply_with_results(CALL, results("whole", summary="short", preview="head"))
    transcript.add_reply_with_results(CALL, results("no short form"))
    transcript.add_reply_with_results(CALL, results("recent", summary="rec"))
    transcript.shorten(5)
    assert sent(transcript) == ["one", "", "short", "", "no short form", "", "recent"]


def test_what_needs_no_change_is_the_same_message():
    for message in (user("one"), CALL, results("whole", summary="short"), Message("tool", (Text("odd"),))):
        assert shorten_message_for_model(message) is message
    assert shorten_message_for_model(results("whole", summary="short"), short=True).tool_results[0].text == "short"
