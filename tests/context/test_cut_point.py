"""Where a conversation may be cut."""

from hypothesis import given
from hypothesis import strategies as st

from perdure import Message, Text, ToolCall, ToolResult, assistant, user
from perdure._context.history.compaction import find_cut_point, find_first_message_without_reply
from perdure._context.history.tokens import estimate_messages_tokens

ASKS = [user("word " * 20)]
ANSWERS = [assistant("word " * 20)]


def works(number: int, size: int = 20) -> list[Message]:
    call = ToolCall(f"c{number}", "look", "{}")
    return [Message("assistant", (call,)), Message("tool", (ToolResult(f"c{number}", "look", (Text("w " * size),)),))]


SUMMARY = [user("before", origin="compaction")]
conversations = st.lists(st.sampled_from([ASKS, ANSWERS, works(1), works(2, 200)]), max_size=12).map(
    lambda pieces: [message for piece in pieces for message in piece]
)


@given(st.booleans(), conversations, st.integers(0, 500), st.none() | st.integers(0, 10))
def test_a_cut_keeps_what_is_unanswered_and_never_parts_a_call_from_its_result(summed, rest, tokens, most):
    view = [*(SUMMARY if summed else []), *rest]
    cut = find_cut_point(view, tokens, most)
    unanswered = find_first_message_without_reply(view)
    assert cut <= unanswered
    assert all(message.role == "user" for message in view[unanswered:])
    assert cut == len(view) or view[cut].role != "tool"
    assert estimate_messages_tokens(view[cut:unanswered]) <= tokens
    assert most is None or unanswered - cut <= most + (view[cut + 1 : cut + 2] != [] and view[cut + 1].role == "tool")
    assert not summed or cut >= 1 or not rest


def test_as_much_stays_as_there_is_room_for():
    view = [*ASKS, *works(1), *works(2), *works(3), *ASKS]
    one = estimate_messages_tokens(works(1))
    assert [find_cut_point(view, one * count, None) for count in (0, 1, 2, 3)] == [7, 5, 3, 1]
    assert find_cut_point(view, one - 1, None) == 7
    assert [find_cut_point(view, one * 3, most) for most in (0, 1, 2, 3, 4)] == [7, 5, 5, 3, 3]
    assert find_cut_point(view, 10_000, None) == 0


def test_what_has_no_reply_begins_after_the_last_reply_or_summary():
    assert find_first_message_without_reply([]) == 0
    assert find_first_message_without_reply([*ASKS, *ASKS]) == 0
    assert find_first_message_without_reply([*SUMMARY, *ASKS, *ASKS]) == 1
    assert find_first_message_without_reply([*ASKS, *ANSWERS, *ASKS]) == 2
    assert find_first_message_without_reply([*ASKS, *works(1)]) == 3
    assert find_first_message_without_reply([*ANSWERS, *SUMMARY, *ASKS]) == 2


def test_a_summary_is_never_among_what_is_kept():
    view = [*ASKS, *SUMMARY, *ASKS, *ANSWERS]
    assert find_cut_point(view, 10_000, None) == 2
    assert find_cut_point(view, 10_000, 10) == 2
    assert find_cut_point([*SUMMARY, *ANSWERS], 10_000, None) == 1
