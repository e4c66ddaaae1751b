"""The index of a conversation: where turns begin, what is always sent, and the question of a turn that is cut."""

import pytest

from perdure import Message, Text, assistant, user
from perdure._context.history.processors import HistoryCutIndex, list_turn_opening
from perdure._context.history.tokens import SUMMARY_ORIGIN, estimate_message_tokens
from tests.memory.transcripts import build

RULE = Message("system", (Text("a rule"),))
SUMMARY = user("Earlier: a summary.", origin=SUMMARY_ORIGIN)
TALK = [SUMMARY, user("a"), user("b"), assistant("c"), RULE, user("d"), assistant("e"), SUMMARY, user("f")]


def index_of(messages: list[Message]) -> HistoryCutIndex:
    index = HistoryCutIndex(counts_tokens=True)
    index.extend(messages)
    return index


def fields_of(index: HistoryCutIndex) -> tuple[int, list[int], list[int], list[int]]:
    return index.length, index.fixed, index.turns, index.tokens


def test_an_index_has_the_beginnings_of_turns_and_what_is_always_sent() -> None:
    tokens = [0]
    for each in TALK:
        tokens.append(tokens[-1] + estimate_message_tokens(each))
    assert fields_of(index_of(TALK)) == (9, [0, 4, 7], [1, 5, 8], tokens)


@pytest.mark.parametrize("first", range(len(TALK)))
def test_an_index_that_is_extended_is_that_of_the_whole_conversation(first: int) -> None:
    index = index_of(TALK[:first])
    index.extend(TALK)
    assert fields_of(index) == fields_of(index_of(TALK))


def test_the_turn_of_a_message_begins_at_its_question() -> None:
    index = index_of(TALK)
    assert [index.find_turn_of(place) for place in range(9)] == [None, 1, 1, 1, 1, 5, 5, 5, 8]


def test_an_answer_is_opened_by_the_questions_of_its_turn_and_a_question_by_none() -> None:
    talk = [*TALK, RULE, SUMMARY, assistant("g"), RULE, SUMMARY, user("h"), assistant("i")]
    index = index_of(talk)
    found = [list_turn_opening(talk, index, place) for place in range(len(talk) + 1)]
    assert found[:9] == [[], [], [], [1, 2], [], [], [5], [], []]
    assert found[9:] == [[8], [8], [8], [], [], [], [14], []]


def test_answers_before_the_first_question_have_no_opening() -> None:
    talk = build(["answer", "call", "user", "answer"])
    index = index_of(talk)
    assert [list_turn_opening(talk, index, place) for place in range(5)] == [[], [], [], [], [3]]
