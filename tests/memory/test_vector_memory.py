"""`VectorMemory`: the earlier messages that are relevant to the current turn."""

from collections.abc import Callable
from typing import Any

import pytest

from perdure import ConfigError, ModelError, assistant, user
from perdure._context.history import processors
from perdure.context import VectorMemory
from tests.memory.embedders import WordEmbedder
from tests.memory.transcripts import build


def texts(messages):
    return [each.text or f"<{each.role}>" for each in messages]


TALK = [
    user("red apples are sweet"),
    assistant("they are red"),
    user("the sky is blue"),
    assistant("it is"),
    user("which apples?"),
]


async def test_relevant_messages_are_sent_with_the_current_turn():
    sent = await VectorMemory(WordEmbedder(), 1)(TALK)
    assert texts(sent) == ["red apples are sweet", "which apples?"]


async def test_an_answer_comes_with_its_question():
    talk = [user("tell me"), assistant("red apples"), user("no"), assistant("well"), user("apples")]
    assert texts(await VectorMemory(WordEmbedder(), 1)(talk)) == ["tell me", "red apples", "apples"]


async def test_a_result_comes_with_its_call_and_its_question():
    talk = [*build(["user", "calls"]), assistant("well"), user("hm"), assistant("so"), user("result call_1_1")]
    sent = await VectorMemory(WordEmbedder(), 1)(talk)
    assert texts(sent) == ["question 0", "<assistant>", "<tool>", "result call_1_1"]


async def test_a_result_whose_call_is_not_in_the_conversation_is_sent_when_it_is_relevant():
    lost = build(["calls"])[1:]
    talk = [user("look"), *lost, assistant("well"), user("hm"), assistant("so"), user("result call_0_1")]
    sent = await VectorMemory(WordEmbedder(), 1)(talk)
    assert sent == [talk[0], talk[1], talk[-1]]
    assert await VectorMemory(WordEmbedder(), 1)(talk[1:]) == [talk[1], talk[-1]]


async def test_messages_below_the_least_similarity_are_left_out():
    assert texts(await VectorMemory(WordEmbedder(), 8, min_similarity=0.9)(TALK)) == ["which apples?"]


async def test_each_text_is_embedded_once():
    embedder = WordEmbedder()
    shape = VectorMemory(embedder)
    await shape(TALK)
    await shape([*TALK, assistant("all"), user("and pears?")])
    assert sorted(embedder.texts) == sorted({*[each.text for each in TALK], "all", "and pears?"})


async def test_few_vectors_are_kept(monkeypatch):
    monkeypatch.setattr(processors, "MAX_CACHED_VECTORS", 2)
    embedder = WordEmbedder()
    shape = VectorMemory(embedder, 1)
    for _ in range(2):
        assert texts(await shape(TALK)) == ["red apples are sweet", "which apples?"]
    assert len(embedder.texts) > len(TALK)


async def test_without_earlier_turns_or_words_nothing_is_embedded():
    embedder = WordEmbedder()
    assert await VectorMemory(embedder)(TALK[:2]) == TALK[:2]
    assert texts(await VectorMemory(embedder)([*TALK[:2], user(" ")])) == [" "]
    assert embedder.texts == []


@pytest.mark.parametrize(
    ("vectors", "said"),
    [
        ([], "0 vectors for 5 texts"),
        ([[1.0]] * 4 + [[1.0, 2.0]], "vectors of [1, 2] numbers"),
        ([[]] * 5, "vectors of [0] numbers"),
        ([[float("nan")]] * 5, "not finite"),
    ],
)
async def test_an_embedder_that_returns_nonsense_is_named(vectors, said):
    class Broken:
        async def embed(self, texts):
            return vectors

    with pytest.raises(ModelError) as error:
        await VectorMemory(Broken())(TALK)
    assert said in str(error.value)


async def test_messages_that_are_as_similar_as_is_asked_for_are_sent() -> None:
    assert await VectorMemory(WordEmbedder(), 8)(TALK) == TALK  # the least similarity is 0
    talk = [user("red apples"), assistant("well"), user("red apples")]
    assert await VectorMemory(WordEmbedder(), 8, min_similarity=0.99)(talk) == [talk[0], talk[2]]


async def test_vectors_are_kept_up_to_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "MAX_CACHED_VECTORS", len(TALK))
    embedder = WordEmbedder()
    shape = VectorMemory(embedder)
    await shape(TALK)
    await shape(TALK)
    assert len(embedder.texts) == len(TALK)


NO_EMBEDDER: Any = "words"


@pytest.mark.parametrize(
    ("build_memory", "message"),
    [
        (lambda: VectorMemory(NO_EMBEDDER), r"VectorMemory\(embedder='words'\)"),
        (lambda: VectorMemory(WordEmbedder(), 0), r"VectorMemory\(max_messages=0\)"),
        (lambda: VectorMemory(WordEmbedder(), min_similarity=1.01), r"VectorMemory\(min_similarity=1.01\)"),
        (lambda: VectorMemory(WordEmbedder(), min_similarity=-0.1), r"VectorMemory\(min_similarity=-0.1\)"),
    ],
)
def test_options_that_cannot_be_used_are_refused(build_memory: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_memory()
