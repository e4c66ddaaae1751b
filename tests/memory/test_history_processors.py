"""Shapes: the newest messages, windows of turns, and combinations."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import Agent, ConfigError, Message, Text, assistant, user
from perdure._context.history import processors
from perdure._context.history.tokens import SUMMARY_ORIGIN, estimate_message_tokens, estimate_messages_tokens
from perdure._core.model.transcript import MessagesSnapshot
from perdure.context import BufferMemory, CompositeMemory, VectorMemory, WindowMemory
from perdure.testing import ScriptedModel
from tests.memory.embedders import WordEmbedder
from tests.memory.transcripts import build, conversations, find_places, has_whole_pairs


def texts(messages):
    return [each.text or f"<{each.role}>" for each in messages]


TALK = build(["user", "answer"] * 4)
ANYTHING: Any = 5


def test_a_buffer_sends_the_newest_messages():
    assert texts(BufferMemory(4)(TALK)) == ["question 4", "answer 5", "question 6", "answer 7"]


def test_a_conversation_that_fits_is_sent_as_it_is():
    assert BufferMemory(8)(TALK) is TALK
    assert WindowMemory(4)(TALK) is TALK
    assert WindowMemory(4)([]) == []


def test_a_buffer_that_cuts_a_turn_sends_the_question_of_that_turn():
    talk = build(["user", "call", "call", "call", "answer"])
    assert texts(BufferMemory(4)(talk)) == ["question 0", "<assistant>", "<tool>", "answer 4"]
    assert texts(BufferMemory(3)(talk)) == ["question 0", "answer 4"]


def test_a_buffer_of_one_sends_the_last_pair_whole():
    talk = build(["user", "call"])
    assert texts(BufferMemory(1)(talk)) == ["question 0", "<assistant>", "<tool>"]


def test_a_buffer_limits_tokens_too():
    sent = BufferMemory(100, max_tokens=40)(TALK)
    assert texts(sent)[-1] == "answer 7"
    assert len(sent) < len(TALK)
    assert estimate_messages_tokens(sent) <= 40


def test_a_window_sends_whole_turns():
    talk = build(["user", "call", "answer", "user", "call", "answer", "user"])
    assert texts(WindowMemory(2)(talk)) == ["question 3", "<assistant>", "<tool>", "answer 5", "question 6"]


def test_a_window_leaves_out_turns_that_do_not_fit_its_tokens():
    room = estimate_messages_tokens(TALK[4:]) + 3
    assert texts(WindowMemory(50, max_tokens=room)(TALK)) == texts(TALK[4:])


def test_a_turn_that_is_longer_than_the_window_keeps_its_question_and_its_newest_pairs():
    talk = build(["user", *["call"] * 20])
    sent = WindowMemory(5, max_tokens=estimate_messages_tokens(talk[-6:]))(talk)
    assert find_places(talk, sent) == [0, *range(len(talk) - 6, len(talk))]


def test_system_text_and_summaries_are_always_sent_and_first():
    talk = [
        Message("system", (Text("rule"),)),
        user("a summary", origin=SUMMARY_ORIGIN),
        *build(["user", "answer"] * 5),
    ]
    assert texts(BufferMemory(2)(talk)) == ["rule", "a summary", "question 8", "answer 9"]
    assert texts(WindowMemory(1)(talk)) == ["rule", "a summary", "question 8", "answer 9"]


@pytest.mark.parametrize("shape", [BufferMemory(1), BufferMemory(2), WindowMemory(1, max_tokens=1)])
def test_system_text_within_a_turn_does_not_replace_the_question(shape):
    talk = build(["user", "answer", "user", "system"])
    assert texts(shape(talk)) == ["question 2", "rule 3"]
    talk = build(["user", "answer", "user", "answer", "system", "call"])
    assert texts(shape(talk))[0] == "question 2"
    assert has_whole_pairs(shape(talk))


def test_messages_are_left_out_in_steps_so_that_the_prompt_cache_stays_warm():
    talk = build(["user", "answer"] * 40)
    begins = {len(talk[:end]): texts(WindowMemory(10, step=5)(talk[:end]))[0] for end in range(20, 80, 2)}
    assert len(set(begins.values())) == 7
    assert all(len(BufferMemory(10, step=4)(talk[:end])) in range(6, 11) for end in range(12, 80))


@given(conversations, st.integers(1, 30), st.integers(1, 300), st.integers(1, 5))
def test_no_shape_splits_a_pair_reorders_repeats_or_loses_the_last_message(talk, count, tokens, step):
    for shape in (
        BufferMemory(count, step=step),
        BufferMemory(count, max_tokens=tokens, step=step),
        WindowMemory(count, max_tokens=None, step=step),
        WindowMemory(count, max_tokens=tokens, step=step),
    ):
        sent = shape(talk)
        places = find_places(talk, sent)
        assert places == sorted(set(places))
        assert has_whole_pairs(sent)
        fixed = [place for place, each in enumerate(talk) if each.role == "system" or each.origin == SUMMARY_ORIGIN]
        assert set(fixed) <= set(places)
        assert not talk or places[-1] == len(talk) - 1
        others = [each.role for place, each in enumerate(talk) if place not in fixed]
        sent_others = [talk[place].role for place in places if place not in fixed]
        assert others[:1] != ["user"] or sent_others[:1] == ["user"]


@given(conversations, st.integers(1, 20))
async def test_no_combination_splits_a_pair_reorders_or_repeats(talk, count):
    embedder = WordEmbedder()
    for shape in (
        VectorMemory(embedder, count),
        CompositeMemory(BufferMemory(count), VectorMemory(embedder, 2), strategy="merge"),
        CompositeMemory(VectorMemory(embedder, 2, min_similarity=1.0), WindowMemory(count)),
        CompositeMemory(lambda messages: messages[1::2], strategy="merge"),
    ):
        sent = await shape(talk)
        places = find_places(talk, sent)
        assert places == sorted(set(places))
        assert has_whole_pairs(sent)
        assert not talk or places[-1] == len(talk) - 1


def test_an_index_is_extended_and_not_made_anew(monkeypatch):
    seen = []

    def count(message):
        seen.append(message)
        return estimate_message_tokens(message)

    monkeypatch.setattr(processors, "estimate_message_tokens", count)
    messages, window = build(["user", "answer"] * 100), WindowMemory(5)
    window(MessagesSnapshot(messages))
    messages += build(["user", "answer"])
    sent = window(MessagesSnapshot(messages))
    assert len(seen) == len(messages)
    assert sent == WindowMemory(5)(list(messages))


def test_conversations_are_told_apart_and_the_oldest_index_is_dropped(monkeypatch):
    monkeypatch.setattr(processors, "MAX_INDEXED_CONVERSATIONS", 2)
    buffer = BufferMemory(2)
    talks = [build(["user", "answer"] * size) for size in (2, 3, 4)]
    for _ in range(2):
        for talk in talks:
            assert buffer(MessagesSnapshot(talk)) == talk[-2:]


async def test_the_first_shape_that_finds_earlier_messages_wins():
    talk = [user("red apples"), assistant("yes"), user("blue sky"), assistant("no"), user("red wine?")]
    shape = CompositeMemory(VectorMemory(WordEmbedder(), 1, min_similarity=0.4), WindowMemory(1))
    assert texts(await shape(talk)) == ["red apples", "red wine?"]
    other = [*talk[:-1], user("green tea?")]
    assert texts(await shape(other)) == ["green tea?"]
    both = CompositeMemory(VectorMemory(WordEmbedder(), 1, min_similarity=0.4), WindowMemory(2))
    assert texts(await both(other)) == ["blue sky", "no", "green tea?"]


async def test_merged_shapes_send_each_message_once_and_made_messages_first():
    def add_note(messages):
        return [user("a note"), *messages[-1:]]

    talk = [Message("system", (Text("rule"),)), *build(["user", "answer"] * 3)]
    shape = CompositeMemory(BufferMemory(2), add_note, add_note, strategy="merge")
    assert texts(await shape(talk)) == ["rule", "a note", "question 4", "answer 5"]


async def test_an_agent_sends_the_shape_and_stores_everything():
    model = ScriptedModel("one", "two", "three")
    agent = Agent(model, history_processor=BufferMemory(3))
    session = agent.session("talk")
    for text in ("a", "b", "c"):
        await session.run(text)
    assert texts(model.requests[-1].messages) == ["b", "two", "c"]
    assert len(await session.messages()) == 6


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: BufferMemory(0), "max_messages=0"),
        (lambda: BufferMemory(2, max_tokens=0), "max_tokens=0"),
        (lambda: BufferMemory(2, step=0), "step=0"),
        (lambda: WindowMemory(0), "max_turns=0"),
        (lambda: WindowMemory(2, max_tokens=-1), "max_tokens=-1"),
        (lambda: WindowMemory(2, step=True), "step=True"),
        (CompositeMemory, "at least one shape"),
        (lambda: CompositeMemory(ANYTHING), "shapes"),
        (lambda: CompositeMemory(BufferMemory(), strategy=ANYTHING), "strategy=5"),
        (lambda: VectorMemory(ANYTHING), "async def embed"),
        (lambda: VectorMemory(WordEmbedder(), 0), "max_messages=0"),
        (lambda: VectorMemory(WordEmbedder(), min_similarity=2), "min_similarity=2"),
    ],
)
def test_bad_options_are_refused_with_advice(make, said):
    with pytest.raises(ConfigError) as error:
        make()
    assert said in str(error.value)


async def test_after_the_first_shape_that_finds_earlier_messages_no_other_is_asked() -> None:
    asked: list[str] = []
    talk = [user("a"), assistant("b"), user("c"), assistant("d"), user("e")]

    def choose(name: str, *places: int) -> Any:
        def shape(messages: Sequence[Message]) -> list[Message]:
            asked.append(name)
            return [messages[place] for place in places]

        return shape

    found = await CompositeMemory(choose("none", 4), choose("one", 0, 1, 4), choose("other", 2, 3, 4))(talk)
    assert ([each.text for each in found], asked) == (["a", "b", "e"], ["none", "one"])
    asked.clear()
    merged = CompositeMemory(choose("one", 0, 1, 4), choose("other", 2, 3, 4), strategy="merge")
    assert ([each.text for each in await merged(talk)], asked) == (["a", "b", "c", "d", "e"], ["one", "other"])
