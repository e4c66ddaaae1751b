"""Very large results: encoded off the event loop, and kept, whichever store keeps them."""

import asyncio
import threading
from typing import Any

import pytest

from perdure import Agent, Image, Text, ToolCall, ToolResult, assistant, tool
from perdure._stores.texts import LARGE_TEXT, has_large_content
from perdure.events import Custom, Entry, MessageAdded, ToolFinished
from perdure.testing import ScriptedModel, call
from tests.doubles import SECONDS


@tool(effect="read")
async def size(characters: int) -> str:
    """Returns a text of this size."""
    return "é" * characters


async def threads_of_encoding(store: Any, monkeypatch: pytest.MonkeyPatch, place: str) -> tuple[set[int], set[int]]:
    """The threads that encode small entries, and those that encode the large result."""
    module, _, name = place.rpartition(".")
    original = getattr(__import__(module, fromlist=[name]), name)
    threads: dict[bool, set[int]] = {False: set(), True: set()}

    def noting(*given: Any, **options: Any) -> Any:
        entries = [each for each in given if isinstance(each, Entry)]
        entries += [entry for each in given if isinstance(each, list) for entry in each]
        threads[has_large_content(entries)].add(threading.get_ident())
        return original(*given, **options)

    monkeypatch.setattr(place, noting)
    model = ScriptedModel(call("size", characters=10), call("size", characters=LARGE_TEXT + 1), "Done.")
    outcome = await Agent(model, tools=[size], store=store).session("s").run("Go")
    assert outcome.status == "done", outcome
    assert [len(message.tool_results[0].text) for message in outcome.messages if message.tool_results] == [
        10,
        LARGE_TEXT + 1,
    ]
    return threads[False], threads[True]


async def test_a_large_result_is_encoded_off_the_loop_by_sqlite(tmp_path, monkeypatch):
    store = f"sqlite:{tmp_path}/sessions.db"
    small, large = await threads_of_encoding(store, monkeypatch, "perdure._stores.sqlite.store.encode_append_row")
    assert threading.get_ident() in small
    assert large
    assert threading.get_ident() not in large


async def test_a_large_result_is_encoded_off_the_loop_by_files(tmp_path, monkeypatch):
    store = f"file:{tmp_path}/sessions"
    _, large = await threads_of_encoding(store, monkeypatch, "perdure._stores.file.log_file.encode_append_lines")
    assert large
    assert threading.get_ident() not in large


@pytest.mark.needs("postgres")
async def test_a_large_result_is_encoded_off_the_loop_by_postgres(store_of, monkeypatch):
    small, large = await threads_of_encoding(store_of(), monkeypatch, "perdure._stores.postgres.store.encode_row")
    assert threading.get_ident() in small
    assert large
    assert threading.get_ident() not in large


def test_the_size_of_entries_is_that_of_their_largest_part():
    def is_large(event: Any) -> bool:
        return has_large_content([Entry(1, 0.0, Custom("small", {})), Entry(2, 0.0, event)])

    long = "x" * (LARGE_TEXT + 1)
    assert is_large(MessageAdded(assistant(long)))
    assert is_large(MessageAdded(assistant([ToolCall("c", "f", long)])))
    assert is_large(MessageAdded(assistant([Image(data=long.encode())])))
    assert is_large(ToolFinished("c", "f", ToolResult("c", "f", (Text("a"), Text(long)))))
    assert not is_large(ToolFinished("c", "f", ToolResult("c", "f", (Text("a"),))))
    assert not is_large(MessageAdded(assistant("a")))


# -- above 64 MiB ------------------------------------------------------------------------------------------------------

HUGE = 68_000_000
"""Characters that were once too many for a line of the file store."""


@tool(effect="read")
async def fill() -> str:
    """Returns a text of this size."""
    return "x" * HUGE


async def keep_a_huge_result(store: Any, prompt: str = "Go", answer: str = "Done.") -> None:
    """A result of this size: the run goes on, and the next one finds it."""
    agent = Agent(ScriptedModel(call("fill"), answer, "Again."), tools=[fill], store=store)
    outcome = await agent.session("s").run(prompt)
    assert (outcome.status, outcome.turns, len(outcome.text)) == ("done", 2, len(answer))
    assert (await agent.session("s").run("And?")).text == "Again."
    kept = await agent.session("s").messages()
    assert [len(message.text) for message in kept if message.role != "tool"] == [len(prompt), 0, len(answer), 4, 6]
    assert len(kept[2].tool_results[0].text) == HUGE


async def test_a_huge_prompt_result_and_reply_are_kept_in_files(tmp_path):
    await keep_a_huge_result(f"file:{tmp_path}/sessions", "y" * HUGE, "z" * HUGE)


async def test_a_huge_result_is_kept_in_sqlite(tmp_path):
    await keep_a_huge_result(f"sqlite:{tmp_path}/sessions.db")


@pytest.mark.needs("postgres")
async def test_a_huge_result_is_kept_in_postgres(store_of):
    await keep_a_huge_result(store_of())


@pytest.mark.needs("postgres")
async def test_a_text_of_many_words_takes_no_longer_to_index_than_a_moment_of_its_lease(store_of):
    """The server would go through all of them again and again, to find that they are too many."""
    store = store_of()
    text = " ".join([f"{number:x}" for number in range(3_000_000)]) + " last"
    agent = Agent(ScriptedModel("Fine."), store=store)
    async with asyncio.timeout(SECONDS):
        assert (await agent.session("s").run(f"first {text}")).text == "Fine."
        assert await store.search("first")
        assert len((await agent.session("s").messages())[0].text) == len(text) + 6
