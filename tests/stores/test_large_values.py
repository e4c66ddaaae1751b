"""Very large results are encoded off the event loop, whichever store keeps them."""

import threading
from typing import Any

import pytest

from perdure import Agent, tool
from perdure.core.event import Custom, Entry, MessageAdded, ToolFinished
from perdure.core.message import Image, Text, ToolCall, ToolResult, assistant
from perdure.stores.entry_text import LARGE_TEXT, has_large_content
from perdure.testing import ScriptedModel, call


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
    small, large = await threads_of_encoding(store, monkeypatch, "perdure.stores.sqlite.store.encode_append_row")
    assert threading.get_ident() in small
    assert large
    assert threading.get_ident() not in large


async def test_a_large_result_is_encoded_off_the_loop_by_files(tmp_path, monkeypatch):
    store = f"file:{tmp_path}/sessions"
    _, large = await threads_of_encoding(store, monkeypatch, "perdure.stores.file.log_file.encode_append_lines")
    assert large
    assert threading.get_ident() not in large


@pytest.mark.needs("postgres")
async def test_a_large_result_is_encoded_off_the_loop_by_postgres(store_of, monkeypatch):
    small, large = await threads_of_encoding(store_of(), monkeypatch, "perdure.stores.postgres.store.encode_row")
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
