"""Memories and sessions that are erased at random: no byte of them is left in any file."""

import asyncio
import random
from pathlib import Path

import pytest

from perdure._stores.sqlite.format.pages import PageGap, contains_texts, read_gaps
from perdure.context import LongTermMemory
from perdure.events import Custom, Entry
from perdure.stores import open_store
from tests.seeds import chance


def secret(dice: random.Random) -> str:
    """A text that is nowhere else."""
    return f"secret{dice.getrandbits(64):016x}z"


def padding(dice: random.Random) -> str:
    """Words that make rows of several sizes."""
    return " ".join(f"w{dice.getrandbits(40):x}" for _ in range(dice.choice([2, 10, 40, 150])))


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def find_left(folder: Path, erased: list[str]) -> list[str]:
    """The erased texts that are still in a file, with the file."""
    files = read_files(folder)
    return [f"{text} in {path}" for text in erased for path, data in files.items() if text.encode() in data]


async def remember(memory: LongTermMemory, dice: random.Random, count: int) -> dict[str, str]:
    """Remember some texts; return them by the ids of their memories."""
    texts: dict[str, str] = {}
    for number in range(count):
        text = secret(dice)
        record = await memory.remember(f"{text} {padding(dice)}", tags=[f"tag{number % 7}"])
        texts[record.id] = text
    return texts


@pytest.mark.faults
@pytest.mark.timeout(3600)
def test_memories_that_were_forgotten_are_in_no_file_any_more(tmp_path, long, report):
    dice, count = chance("forget"), 6_000 if long else 120

    async def forget_half() -> tuple[list[str], int]:
        memory = LongTermMemory(tmp_path / "memory.db")
        texts = await remember(memory, dice, count)
        gone = [memory_id for memory_id in texts if dice.random() < 0.5]
        for memory_id in gone:
            assert await memory.forget(memory_id)
        left = find_left(tmp_path, [*gone, *[texts[each] for each in gone]])  # while the file is open
        await memory.aclose()
        return [*left, *find_left(tmp_path, [*gone, *[texts[each] for each in gone]])], len(gone)

    left, gone = asyncio.run(forget_half())
    assert left == []
    report.append(f"memories: {gone} of {count} forgotten, no byte of them left")


async def test_of_the_key_that_a_forgotten_memory_was_stored_with_no_byte_is_left_and_it_still_counts(tmp_path):
    dice, memory = chance("keys"), LongTermMemory(tmp_path / "memory.db")
    key, kept_key, text = secret(dice), secret(dice), secret(dice)
    kept = await memory.remember("Kept.", key=kept_key)
    record = await memory.remember(text, key=key)
    assert await memory.remember(text, key=key) == record
    assert await memory.forget(record.id)
    assert find_left(tmp_path, [record.id, key, text]) == []
    assert (await memory.remember("Again.", key=key)).id == record.id
    assert await memory.remember("Again.", key=kept_key) == kept
    assert [each.id for each in await memory.list_memories()] == [kept.id]
    await memory.aclose()
    assert find_left(tmp_path, [record.id, key, text]) == []


async def test_no_copy_of_a_memory_is_left_between_the_rows_of_the_file(tmp_path):
    memory = LongTermMemory(path := tmp_path / "memory.db")
    texts = await remember(memory, chance("gaps"), 150)
    assert await memory.forget(next(iter(texts)))
    assert read_gaps(str(path), None) == []
    assert len(await memory.list_memories(limit=200)) == 149
    await memory.aclose()


async def begin_sessions(store, dice: random.Random, count: int) -> dict[str, list[str]]:
    """Begin sessions with some entries each; return their texts."""
    texts: dict[str, list[str]] = {}
    for _ in range(count):
        session_id = f"session{dice.getrandbits(64):016x}"
        lease = await store.acquire(session_id)
        texts[session_id] = [secret(dice) for _ in range(dice.choice([1, 2, 5]))]
        for seq, text in enumerate(texts[session_id], 1):
            event = Custom("data", f"{text} {padding(dice)}")
            await store.append(lease, [Entry(seq, 1.0, event, f"{session_id}-{seq}")], sync=False)
        await store.release(lease)
    return texts


@pytest.mark.faults
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_sessions_that_were_deleted_and_entries_that_were_redacted_are_in_no_file_any_more(
    kind, tmp_path, long, report
):
    dice, count = chance("delete", kind), 2_000 if long else 60

    async def delete_half() -> tuple[list[str], int]:
        store = open_store(f"{kind}:{tmp_path / 'sessions'}")
        texts = await begin_sessions(store, dice, count)
        erased: list[str] = []
        for session_id in [each for each in texts if dice.random() < 0.5]:
            if dice.random() < 0.3:
                lease = await store.acquire(session_id)
                await store.redact(lease, Entry(1, 1.0, Custom("data", "redacted"), f"{session_id}-1"))
                await store.release(lease)
                erased.append(texts[session_id][0])
            else:
                await store.delete(session_id)
                # The lock of a file store stays: its name tells the id, and it has the last fence.
                erased += [*texts[session_id], *([session_id] if kind == "sqlite" else [])]
        left = find_left(tmp_path, erased)
        await store.aclose()
        return [*left, *find_left(tmp_path, erased)], len(erased)

    left, erased = asyncio.run(delete_half())
    assert left == []
    report.append(f"sessions, {kind}: {erased} texts erased, no byte of them left")


def test_texts_are_found_in_gaps_also_in_part_and_if_they_are_short():
    gaps = [PageGap(0, b"..... half of a secret ..pass1.")]
    assert contains_texts(gaps, ["this is half of a secret that was long"])
    assert contains_texts(gaps, ["pass1"])
    assert not contains_texts(gaps, ["pass2", "another half that is not there at all", ""])
    assert not contains_texts([], ["pass1"])
