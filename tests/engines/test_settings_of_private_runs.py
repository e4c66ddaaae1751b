"""What a private run is sent of the conversation: without tools, calls and results are text."""

from collections.abc import Sequence

import pytest

from perdure import Message, Status, Text, ToolCall, ToolResult, assistant, tool_message, user
from perdure._engines.private_settings import ParentHistoryPrepender, describe_tool_calls

CALLS = Message("assistant", (Text("I look."), ToolCall("c1", "look", '{"at":1}'), ToolCall("c2", "wait", "")))
RESULTS = tool_message(
    [
        ToolResult("c1", "look", (Text("a ship"),), labels=("untrusted", "private")),
        ToolResult("c2", "wait", (Text("too long"),), Status.ERROR, labels=("private", "b")),
    ]
)


def test_calls_and_results_become_text_and_keep_their_labels() -> None:
    plain = [user("Look."), assistant("Aye.")]
    bare = Message("assistant", (ToolCall("c3", "look", "{}"),))
    assert describe_tool_calls([plain[0], CALLS, RESULTS, bare, plain[1]]) == [
        plain[0],
        Message("assistant", (Text('I look.\n[called look with {"at":1}]\n[called wait with {}]'),)),
        Message(
            "user",
            (Text("[look returned (ok): a ship]\n[wait returned (error): too long]"),),
            origin="reminder",
            labels=("untrusted", "private", "b"),
        ),
        Message("assistant", (Text("[called look with {}]"),)),
        plain[1],
    ]


@pytest.mark.parametrize("keeps_tools", [True, False])
@pytest.mark.parametrize("has_processor", [True, False])
async def test_the_conversation_comes_before_the_messages_of_the_private_run(
    keeps_tools: bool, has_processor: bool
) -> None:
    def drop_first(messages: Sequence[Message]) -> Sequence[Message]:
        return messages[1:]

    prepend = ParentHistoryPrepender(
        [user("Hello."), user("Look."), CALLS, RESULTS],
        drop_first if has_processor else None,
        keeps_tools=keeps_tools,
    )
    whole = [user("Hello."), user("Look."), CALLS, RESULTS, user("Think.")]
    kept = whole[1:] if has_processor else whole
    assert await prepend([user("Think.")]) == (kept if keeps_tools else describe_tool_calls(kept))
