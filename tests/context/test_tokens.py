"""How large a conversation is."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import (
    Citation,
    Document,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    user,
)
from perdure._context.history import tokens
from perdure._context.history.search_tools import search_history
from perdure._context.history.tokens import (
    cut_middle_to_tokens,
    estimate_message_tokens,
    estimate_messages_tokens,
    estimate_text_tokens,
)
from perdure.context import Compaction, count_context_tokens
from perdure.events import MessageAdded, ModelRequested, RunEnded, RunStarted, ViewChanged
from tests.context.conversation import Conversation, long_talk
from tests.core.material import messages as any_messages


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("The quick brown fox jumps over the lazy dog. " * 20, 200, 300),
        ("def moor(boat: Boat) -> None:\n    boat.rope.tie(self.berth)\n" * 20, 280, 500),
        ("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" * 4, 100, 180),
        ("Швартовка лодки возле причала. " * 20, 200, 500),
        ("船を桟橋に係留してください。" * 20, 280, 400),
        ("⚓🛥️" * 20, 60, 140),
    ],
)
def test_an_estimate_is_about_right_and_rather_too_high(text, least, most):
    assert least <= estimate_text_tokens(text) <= most


def test_torn_text_is_counted_too():
    assert estimate_text_tokens("\ud800 torn") > 0


def test_each_kind_of_part_counts():
    big = b"x" * 64_000
    parts = (
        Text("word " * 50),
        Thinking("thought " * 50, data="e" * 50),
        Image(data=big),
        Document(data=big),
        ToolCall("c", "look", '{"at": "the boat"}'),
        ToolResult("c", "look", (Text("seen " * 50),)),
    )
    sizes = [estimate_message_tokens(Message("user", (part,))) for part in parts]
    assert all(size > tokens.MESSAGE_TOKENS for size in sizes)
    assert sizes[3] > sizes[2]
    assert estimate_messages_tokens([Message("user", parts)]) == sum(sizes) - 5 * tokens.MESSAGE_TOKENS


@given(st.lists(st.text(max_size=200), max_size=6))
def test_texts_together_are_never_estimated_higher_than_one_by_one(texts):
    assert estimate_text_tokens("".join(texts)) <= sum(map(estimate_text_tokens, texts)) + 1


@given(st.text(max_size=2000), st.integers(-1, 500))
def test_a_text_is_cut_to_what_there_is_room_for(text, room):
    cut = cut_middle_to_tokens(text, room)
    assert cut == text or not cut or estimate_text_tokens(cut) <= room


def test_what_is_cut_keeps_its_beginning_and_its_end():
    cut = cut_middle_to_tokens("begin " + "middle " * 500 + "end", 60)
    assert cut.startswith("begin")
    assert cut.endswith("end")
    assert "characters left out" in cut


@pytest.mark.parametrize("text", ["word " * 2000, "x" * 8000, "b" + "船" * 3000, "word " * 1000 + "船" * 1000])
@pytest.mark.parametrize("room", [40, 100, 1000])
def test_most_of_the_room_is_used_by_what_is_left_of_a_text(text, room):
    cut = cut_middle_to_tokens(text, room)
    assert room * 0.6 <= estimate_text_tokens(cut) <= room
    assert (cut[:1], cut[-1]) == (text[:1], text[-1])


def test_a_text_that_just_fits_is_not_cut_and_without_room_nothing_is_left():
    text = "some words " * 20
    size = estimate_text_tokens(text)
    assert cut_middle_to_tokens(text, size) == text
    assert len(cut_middle_to_tokens(text, size - 1)) < len(text)
    assert [cut_middle_to_tokens(text, room) for room in (1, 0, -5)] == ["", "", ""]


def test_each_kind_of_part_has_its_own_estimate():
    def estimate(part) -> int:
        return estimate_message_tokens(Message("user", (part,))) - tokens.MESSAGE_TOKENS

    assert estimate_text_tokens("") == 1
    assert estimate_text_tokens("x" * 10) == 5
    assert estimate_text_tokens("xxxx xxxx\n") == 3
    assert estimate_text_tokens("x " * 10) == 5
    assert estimate_text_tokens("ä" * 10) == 9
    assert estimate(Text("x" * 10)) == 5
    assert estimate(Thinking("x" * 10, data="y" * 20)) == 5 + 9
    assert estimate(ToolCall("c", "look", "x" * 10)) == tokens.MESSAGE_TOKENS + estimate_text_tokens("look") + 5
    assert estimate(ToolResult("c", "look", (Text("x" * 10), Image()))) == tokens.MESSAGE_TOKENS + 5 + 2000
    assert estimate(Image(data=b"x" * 6400)) == 2000
    assert estimate(Document(data=b"x" * 6400)) == 2200
    assert estimate(Citation("source", quote="x" * 10)) == 5
    assert estimate_messages_tokens([]) == 0


@settings(max_examples=30)
@given(st.lists(any_messages, max_size=4))
def test_whatever_a_message_holds_it_can_be_counted(messages):
    assert estimate_messages_tokens(messages) >= len(messages)


async def test_what_the_provider_has_counted_is_believed_and_the_rest_is_estimated():
    talk = Conversation()
    run = await talk.begin()
    await talk.answers("Where?", usage=Usage(1000, 50))
    assert count_context_tokens(run) == 1050
    await talk.says("At the pier, on the left side.")
    assert 1055 <= count_context_tokens(run) <= 1080


async def test_without_a_count_everything_is_estimated_with_instructions_and_tools():
    talk = Conversation()
    run = await talk.begin("moor " * 100)
    bare = count_context_tokens(run)
    run.instructions = "Be careful with the paint. " * 50
    assert count_context_tokens(run) > bare + 200


async def test_the_definitions_of_tools_count_as_they_are_sent():
    plain, equipped = Conversation(), Conversation(tools=[search_history])
    bare = count_context_tokens(await plain.begin())
    run = await equipped.begin()
    told = msgspec.json.encode(run.offered_tools.specs).decode()
    assert count_context_tokens(run) == bare + estimate_text_tokens(run.instructions) + estimate_text_tokens(told)


async def test_a_count_that_cannot_be_true_is_not_believed():
    talk = Conversation()
    run = await talk.begin("moor the boat " * 200)
    await talk.answers("Aye.", usage=Usage(10, 5))
    assert count_context_tokens(run) > 500


@pytest.mark.parametrize("usage", [None, Usage(9000, 5, precision="estimated"), Usage(0, 5)])
async def test_a_count_that_nobody_is_sure_of_is_not_used(usage):
    talk = Conversation()
    run = await talk.begin()
    await talk.answers("Aye.", usage=usage)
    assert count_context_tokens(run) < 100


async def test_a_reply_whose_calls_are_open_counts_and_so_do_the_results_that_there_are():
    talk = Conversation()
    run = await talk.begin()
    await talk.calls(("look", "{}", ""), ("look", "{}", ""), usage=Usage(2000, 20), settle=False)
    assert count_context_tokens(run) == 2020
    await talk.finishes(ToolResult("c0", "look", (Text("seen " * 100),)))
    assert count_context_tokens(run) > 2120
    other = Conversation()
    run = await other.begin()
    before = count_context_tokens(run)
    await other.calls(("look", "{}", ""), settle=False)
    assert count_context_tokens(run) > before


async def test_of_a_result_with_a_preview_only_that_counts():
    talk = Conversation()
    run = await talk.begin()
    await talk.calls(("look", "{}", ""), ("look", "{}", ""), settle=False)
    await talk.finishes(ToolResult("c0", "look", (Text("seen " * 10_000),), preview="seen"))
    assert count_context_tokens(run) < 200
    await talk.finishes(ToolResult("c1", "look", (Text("x"),)))
    assert count_context_tokens(run) < 200


async def test_what_was_counted_before_a_summary_does_not_count_any_more():
    talk = Conversation()
    run = await long_talk(talk, 20)
    await talk.calls(("look", "{}", ""), usage=Usage(9_000, 10), settle=False)
    assert count_context_tokens(run) == 9_010
    assert await Compaction(keep_recent_messages=2).compact(run)
    assert count_context_tokens(run) < 1_000
    await talk.finishes(ToolResult("c20", "look", (Text("seen"),)))
    assert count_context_tokens(run) < 1_000
    await talk.answers("Done.", usage=Usage(700, 5))
    assert count_context_tokens(run) == 705


async def test_a_request_that_failed_makes_no_older_count_true():
    talk = Conversation()
    run = await long_talk(talk, 20)
    await talk.answers("Aye.", usage=Usage(9_000, 10))
    assert await Compaction(keep_recent_messages=2).compact(run)
    await run.emit(ModelRequested(30, run_id="r1"), RunEnded("failed", run_id="r1"), RunStarted(run_id="r2"))
    assert count_context_tokens(run) < 1_000


async def test_no_message_is_looked_at_twice(monkeypatch):
    looked: list[Message] = []
    real = tokens.estimate_message_tokens

    def counting(message: Message) -> int:
        looked.append(message)
        return real(message)

    monkeypatch.setattr(tokens, "estimate_message_tokens", counting)
    talk = Conversation()
    run = await long_talk(talk, 50)
    count_context_tokens(run)
    first = len(looked)
    for number in range(20):
        await talk.says(f"And {number}?")
        count_context_tokens(run)
    assert first == 101
    assert len(looked) - first == 20


async def test_a_view_that_begins_anew_is_counted_anew():
    talk = Conversation()
    run = await talk.begin()
    await talk.calls(("look", "{}", ""), settle=False)
    await talk.finishes(ToolResult("c0", "look", (Text("seen " * 500),), summary="seen"))
    before = count_context_tokens(run)
    await run.emit(ViewChanged("summaries", 3, run_id="r1"), MessageAdded(user("x"), run_id="r1"))
    assert count_context_tokens(run) < before - 300


async def test_a_request_is_estimated_as_its_messages_instructions_and_tools_together():
    talk = Conversation()
    run = await talk.begin("x" * 100)
    messages = estimate_messages_tokens(run.state.view[:])
    gauge = tokens.get_token_counter(run)
    fixed = gauge.estimate_fixed_tokens(run)
    assert gauge.estimate_request_tokens(run) == count_context_tokens(run) == fixed + messages
    await talk.calls(("look", "{}", ""), settle=False)
    asked = estimate_message_tokens(Message("assistant", (ToolCall("c0", "look", "{}"),)))
    assert gauge.estimate_request_tokens(run) == fixed + messages + asked
