"""A file of memories that can only be read: its memories are recalled and sent, and writing says why it fails."""

import pytest

from perdure import Agent, StoreError
from perdure.context import LongTermMemory
from perdure.testing import ScriptedModel, call
from perdure.tools import memory as memory_extension
from tests.memory.embedders import WordEmbedder
from tests.small_disk import mounted, remount

READ_ONLY = "can only be read here: to write to it, check the permissions of the file and its folder"


@pytest.fixture
def disk(tmp_path):
    """A disk of its own, which can be made read-only also for root."""
    with mounted(tmp_path, "2m") as place:
        yield place
        remount(place, "rw")


async def test_an_agent_reads_a_memory_that_it_cannot_write(disk):
    path = disk / "memory.db"
    async with LongTermMemory(path, user="ann", embedder=WordEmbedder()) as memory:
        pinned = await memory.pin((await memory.remember("Ann is allergic to nuts.")).id)
        assert pinned is not None
        await memory.remember("Ann drinks her coffee black.")
    remount(disk, "ro")
    async with LongTermMemory(path, user="ann", embedder=WordEmbedder()) as memory:
        model = ScriptedModel(call("recall", query="coffee"), call("remember", content="She has a cat."), "Black.")
        outcome = await Agent(model, extensions=[memory_extension(memory)]).run("How does Ann take her coffee?")
        assert (outcome.status, outcome.text) == ("done", "Black.")
        assert "Ann is allergic to nuts." in model.requests[0].messages[-1].text
        found, refused = [each for message in outcome.new_messages for each in message.tool_results]
        assert "Ann drinks her coffee black." in found.text
        assert (refused.status, refused.text) == ("error", "this memory can only be read: nothing was changed")

        for write in (memory.remember("x"), memory.pin(pinned.id, pinned=False), memory.forget(pinned.id)):
            with pytest.raises(StoreError, match=READ_ONLY):
                await write
        assert await memory.list_pinned() == [pinned]

        remount(disk, "rw")
        await memory.remember("She has a cat.")  # the same object writes as soon as the file can be written
        assert len(await memory.list_memories()) == 3


async def test_a_change_by_another_process_is_seen(disk):
    path = disk / "memory.db"
    async with LongTermMemory(path) as memory:
        await memory.remember("One.")
    async with LongTermMemory(path) as reader:
        remount(disk, "ro")
        assert [each.text for each in await reader.list_memories()] == ["One."]
        remount(disk, "rw")
        async with LongTermMemory(path) as memory:
            await memory.remember("Two.")
        remount(disk, "ro")
        assert {each.text for each in await reader.list_memories()} == {"One.", "Two."}


async def test_a_write_ahead_log_is_read_too_or_the_error_says_what_to_do(disk):
    path = disk / "memory.db"
    async with LongTermMemory(path) as memory:
        await memory.remember("One.")
        left = {place.name: place.read_bytes() for place in disk.iterdir()}  # as after kill -9
    assert left["memory.db-wal"]
    for name, content in left.items():
        (disk / name).write_bytes(content)
    remount(disk, "ro")
    async with LongTermMemory(path) as memory:
        assert [each.text for each in await memory.list_memories()] == ["One."]
    remount(disk, "rw")
    (disk / "memory.db-shm").unlink()
    remount(disk, "ro")
    async with LongTermMemory(path) as memory:
        with pytest.raises(StoreError, match="was not closed in good order or is in use: copy it to where it can be"):
            await memory.list_memories()


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", READ_ONLY), (b"hello", "is no SQLite database"), (b"no database at all " * 100, "is no SQLite database")],
)
async def test_what_is_no_memory_is_refused(disk, content, said):
    (disk / "memory.db").write_bytes(content)
    remount(disk, "ro")
    async with LongTermMemory(disk / "memory.db") as memory:
        with pytest.raises(StoreError, match=said):
            await memory.list_memories()


async def test_a_memory_that_is_not_there_and_cannot_be_made_says_so(disk):
    remount(disk, "ro")
    async with LongTermMemory(disk / "memory.db") as memory:
        with pytest.raises(StoreError, match="cannot be made: Read-only file system; choose another path"):
            await memory.list_memories()
