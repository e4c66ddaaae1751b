"""What a model finds that it is not sent any more."""

from typing import Any

from perdure import ToolContext, user
from perdure._context.history.search_tools import (
    MAX_CHARACTERS,
    MAX_HITS,
    build_snippet,
    rank_messages,
    read_history,
    search_history,
)
from perdure.context import Compaction, history_tools
from perdure.engines import Run
from tests.context.conversation import Conversation, long_talk


def context(run: Run) -> ToolContext[Any]:
    return ToolContext(run, "c", "search_history")


async def test_what_was_summed_up_is_still_found():
    talk = Conversation()
    run = await talk.begin()
    await talk.calls(("read_file", '{"path": "/boat/secret.txt"}', "The Anchor is under the STAIRS. " + "rope " * 300))
    for _ in range(20):
        await talk.calls(("look", "{}", "seen " * 50))
    assert await Compaction(keep_recent_messages=2).compact(run)
    found = search_history(context(run), "anchor stairs")
    assert found.startswith("[3] tool: The Anchor is under the STAIRS. rope")
    assert "read_history" in found
    assert "secret.txt" in search_history(context(run), "SECRET")


async def test_rare_words_and_many_words_come_first_and_of_equals_the_latest():
    messages = [user("boat boat boat"), user("boat"), user("a boat with an anchor"), user("boat"), user("nothing")]
    assert rank_messages(messages, "boat ANCHOR") == [2, 0, 3, 1]
    assert rank_messages(messages, "whale") == []
    assert rank_messages(messages, "  ") == []


async def test_a_search_is_bounded_and_says_how_much_more_there_is():
    talk = Conversation()
    run = await talk.begin()
    for number in range(50):
        await talk.says(f"rope {number} " * 400)
    lines = search_history(context(run), "rope", limit=1000).splitlines()
    assert len(lines) == MAX_HITS + 2
    assert max(map(len, lines)) < 400
    assert lines[-2] == "(30 more; use rarer words, or a larger limit)"
    assert len(search_history(context(run), "rope", limit=-3).splitlines()) == 3
    assert (
        search_history(context(run), "whale")
        == "Nothing in the 51 messages of this conversation has any of these words."
    )


async def test_messages_are_read_by_their_numbers():
    talk = Conversation()
    run = await long_talk(talk, 3)
    assert read_history(context(run), 1, 1) == "[1] user: Please moor the boat."
    assert read_history(context(run), -5, 2).splitlines() == [
        "[1] user: Please moor the boat.",
        '[2] assistant: [call read_file {"path": "/boat/0.txt"}]',
    ]
    assert len(read_history(context(run), 1, 100).splitlines()) == 7
    assert read_history(context(run), 7).startswith("[7] ")
    assert read_history(context(run), 8) == "There is no message 8: this conversation has 7."


async def test_reading_is_bounded_and_says_where_to_go_on():
    talk = Conversation()
    run = await talk.begin("x " * 500_000)
    for _ in range(10):
        await talk.says("word " * 5000)
    text = read_history(context(run), 1, 20)
    assert len(text) <= MAX_CHARACTERS + 100
    assert text.splitlines()[-1].startswith("(more from message ")


def test_both_tools_only_read():
    assert [(each.name, each.effect) for each in history_tools()] == [
        ("search_history", "read"),
        ("read_history", "read"),
    ]


def test_a_snippet_begins_a_little_before_the_first_of_the_words():
    text = "a" * 150 + " rope " + "b" * 200 + " anchor " + "c" * 100
    begin = 151 - 100
    assert build_snippet(user(text), 4, "anchor Rope whale") == f"[4] user: …{text[begin : begin + 300]}…"
    assert build_snippet(user(text), 4, "whale") == f"[4] user: {text[:300]}…"
    assert build_snippet(user(text), 4, "c" * 100) == f"[4] user: …{text[364 - 100 :]}"
    assert build_snippet(user(f"rope  {text}"), 4, "rope anchor") == f"[4] user: rope {text[:295]}…"
    assert build_snippet(user("x" * 300), 1, "x") == f"[1] user: {'x' * 300}"
    assert build_snippet(user("x" * 301), 1, "x") == f"[1] user: {'x' * 300}…"


def test_a_word_that_few_messages_have_counts_for_more_than_one_that_comes_often():
    common = [user("rope rope"), *[user("rope")] * 6]
    assert rank_messages([*common, user("anchor")], "rope anchor")[:2] == [7, 0]
    assert rank_messages([user("rope rope"), user("rope anchor"), user("anchor")], "rope anchor") == [1, 0, 2]
    assert rank_messages([user("Straße")], "STRASSE") == [0]
    words = [f"w{number}x" for number in range(33)]
    assert rank_messages([user(words[31]), user(words[32])], " ".join(words)) == [0]


async def test_as_many_messages_are_read_as_there_is_room_for_exactly():
    talk = Conversation()
    run = await talk.begin("x" * 5_000)
    for _ in range(5):
        await talk.says("y" * 5_000)
    first = "[1] user: " + "x" * 5_000
    second = "[2] user: " + "y" * 5_000
    room = MAX_CHARACTERS - len(first)
    lines = read_history(context(run), 1, 20).splitlines()
    assert lines[:2] == [first, second]
    assert lines[-1] == f"(more from message {2 + room // len(second)} on)"
    assert read_history(context(run), 2, 1) == second
    assert read_history(context(run), 2, 0) == second
    assert read_history(context(run), 6, 5).startswith("[6] ")
    assert "(more" not in read_history(context(run), 1, 3)


async def test_without_a_number_five_messages_are_read_and_ten_are_found():
    talk = Conversation()
    run = await talk.begin("rope")
    for _ in range(12):
        await talk.says("rope")
    assert read_history(context(run), 2).splitlines() == [f"[{number}] user: rope" for number in range(2, 7)]
    found = search_history(context(run), "rope").splitlines()
    assert found[:10] == [f"[{number}] user: rope" for number in range(13, 3, -1)]
    assert found[10:] == [
        "(3 more; use rarer words, or a larger limit)",
        "read_history(start, count) shows messages by number.",
    ]
