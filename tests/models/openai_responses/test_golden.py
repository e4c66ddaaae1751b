"""A conversation of our own over the Responses wire: two answers, and what is sent after them."""

import json

from perdure import (
    Citation,
    Status,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    tool_message,
    user,
)
from perdure._models.wires.openai_responses import WIRE
from perdure.events import ReplyFinished
from perdure.models import EncodingMemo
from tests.models.openai_responses.speaking import GOLDEN, PROFILE, WEATHER, body, heard, reply
from tests.seeds import chance
from tests.wire.recordings import chunked

TOOL_TURN = (GOLDEN / "tool_turn.sse").read_bytes()
SEARCH_TURN = (GOLDEN / "search_turn.json").read_bytes()
NEXT = json.loads((GOLDEN / "next_request.json").read_text())


def test_a_turn_with_calls_is_understood_part_by_part() -> None:
    message = reply(TOOL_TURN)
    thought, words, first, second = message.parts
    assert isinstance(thought, Thinking)
    assert thought.text == "**Looking**\n\nTwo cities, so two calls.\n\n**Calling**\n\nOne after the other."
    assert (thought.data, thought.details["id"]) == ("gAAAAABsecret==", "rs_1")
    assert words == Text("Let me look…  both at once.", '{"id":"msg_1","phase":"commentary"}')
    assert first == ToolCall("call_a", "weather", '{"city": "Oslo"}', '{"id":"fc_0"}')
    assert second == ToolCall("call_b", "weather", '{"city": "Rome"}', '{"id":"fc_1"}')
    assert message.stop is StopReason.TOOL_USE
    assert message.usage == Usage(120, 90, 64, 8, 40)
    assert (message.provider, message.model) == ("openai", "gpt-9")


def test_a_stream_says_the_same_in_whatever_pieces_it_comes() -> None:
    whole = heard(TOOL_TURN)
    for seed in range(20):
        assert heard(chunked(TOOL_TURN, chance(seed), mean=20)) == whole


def test_line_ends_of_another_kind_make_no_difference() -> None:
    assert heard(TOOL_TURN.replace(b"\n", b"\r\n")) == heard(TOOL_TURN)


def test_an_answer_that_came_whole_is_read_as_the_same_items() -> None:
    message = reply(SEARCH_TURN)
    thought, search, words, cited = message.parts
    assert isinstance(thought, Thinking)
    assert isinstance(search, Thinking)
    assert search.text == ""
    assert search.details == json.loads(SEARCH_TURN)["output"][1]
    assert words == Text("Rain in Oslo, sun in Rome.", '{"id":"msg_2","phase":"final_answer"}')
    assert cited == Citation(
        "https://example.com", "Weather", "", 0, 4, json.loads(SEARCH_TURN)["output"][2]["content"][0]["annotations"][0]
    )
    assert (message.stop, message.usage) == (StopReason.STOP, Usage(300, 30, 256, 0, 12))


def test_what_follows_two_turns_is_what_the_provider_wants() -> None:
    results = [
        ToolResult("call_a", "weather", (Text("rain"),), render={"not": "sent"}, summary="nor this"),
        ToolResult("call_b", "weather", (Text("no such city"),), Status.ERROR),
    ]
    messages = [
        user("How is the weather in Oslo and Rome?", metadata={"not": "sent"}),
        reply(TOOL_TURN),
        tool_message(results),
        reply(SEARCH_TURN),
        user("And tomorrow?"),
    ]
    sent = body(messages, tools=[WEATHER], instructions="Be brief.", session_id="session-1", reasoning_effort="low")
    assert sent == NEXT
    assert WIRE.lint(sent, PROFILE) == []


def test_the_conversation_is_encoded_once_and_stays_the_same() -> None:
    memo = EncodingMemo()
    messages = [user("How is the weather?"), reply(TOOL_TURN)]
    messages.append(tool_message([ToolResult(call.call_id, call.name) for call in messages[1].tool_calls]))
    before = body(messages, memo=memo, session_id="s")
    after = body([*messages, reply(SEARCH_TURN), user("And?")], memo=memo, session_id="s")
    assert after["input"][: len(before["input"])] == before["input"]
    assert after["input"] == body([*messages, reply(SEARCH_TURN), user("And?")])["input"]


def test_the_deltas_and_the_message_agree() -> None:
    for data in (TOOL_TURN, SEARCH_TURN):
        *_, finished = heard(data)
        assert isinstance(finished, ReplyFinished)
        assert finished.message is not None
