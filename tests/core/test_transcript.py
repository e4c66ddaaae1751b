"""A transcript, and what of it the model is sent."""

from collections.abc import Iterable

import pytest

from perdure import Message, Text, ToolCall, ToolResult, Usage, assistant, tool_message, user
from perdure._core.model.transcript import (
    InputTokenEstimate,
    MessagesSnapshot,
    Transcript,
    add_passing_messages,
    shorten_message_for_model,
)


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


# -- messages of one request alone, and the estimate of its tokens -----------------------------------------------------


def test_messages_of_one_request_follow_the_shared_list_without_a_copy_of_it():
    shared = [user("one"), user("two")]
    view = MessagesSnapshot(shared)
    more = view.with_passing(user("now")).with_passing(user("here"))
    everything = [*shared, user("now"), user("here")]
    shared.append(user("later"))
    assert list(more) == everything
    assert list(reversed(more)) == everything[::-1]
    assert (len(more), more.shared_length) == (4, 2)
    assert [more[place] for place in range(4)] == [more[place - 4] for place in range(4)] == everything
    assert (more[1:3], more[::-1], more[:1]) == (everything[1:3], everything[::-1], everything[:1])
    with pytest.raises(IndexError):
        more[4]
    assert view.with_passing() is view


def test_the_next_request_extends_one_with_messages_of_its_own():
    shared = [user("one")]
    before = MessagesSnapshot(shared).with_passing(user("now"))
    shared.append(user("two"))
    assert MessagesSnapshot(shared).with_passing(user("then")).is_extension_of(before)
    assert not before.is_extension_of(MessagesSnapshot(shared))


def test_messages_of_one_request_after_a_list_make_another_list():
    assert add_passing_messages([user("one")], user("now")) == [user("one"), user("now")]


@pytest.mark.parametrize(
    "steps",
    [
        [(4, None, ""), (9, None, "abcdef"), (3, None, "")],
        [(4, None, "a"), (0, Usage(7, 2), "a"), (9, None, "abcdef"), (8, None, "")],
        [(0, Usage(7, 2), ""), (0, Usage(), "a"), (0, Usage(9, 9), "a")],
    ],
    ids=["never reported", "reported once", "reported always"],
)
def test_an_estimate_that_grows_with_the_transcript_is_that_of_the_whole(steps):
    shared, growing = [], InputTokenEstimate()
    for size, usage, passing in steps:
        shared.append(Message("user", (Text("x" * size),)) if usage is None else Message("assistant", (), usage=usage))
        view = add_passing_messages(MessagesSnapshot(shared), *[user(each) for each in [passing] if each])
        assert growing.estimate(view, 3) == InputTokenEstimate().estimate(list(view), 3)


def test_an_estimate_begins_again_with_another_list():
    growing, long, short = InputTokenEstimate(), [user("x" * 400)], [user("y" * 40)]
    assert [growing.estimate(MessagesSnapshot(each), 1) for each in (long, short, long)] == [101, 11, 101]


def test_a_turn_looks_at_the_new_messages_alone_when_the_model_reports_no_tokens():
    looked_at: list[Message] = []

    class Watched(list[Message]):
        def __getitem__(self, index):
            found = super().__getitem__(index)
            looked_at.extend(found if isinstance(index, slice) else [found])
            return found

    shared, growing = Watched(), InputTokenEstimate()
    for turn in range(50):
        shared += [user(f"{turn}"), Message("assistant", (Text("ok"),))]
        looked_at.clear()
        growing.estimate(MessagesSnapshot(shared), 0)
        assert [each.text for each in looked_at] == [f"{turn}", "ok"]
