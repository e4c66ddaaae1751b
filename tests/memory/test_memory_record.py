"""Memories at the limits of their parts: what fits is stored, and one more is refused."""

import pytest

from perdure import ConfigError, LongTermMemory
from perdure.memory import memory_record as limits


@pytest.fixture
async def memory(tmp_path):
    async with LongTermMemory(tmp_path / "memory.db") as opened:
        yield opened


def names(count, size=1):
    return [f"{number}".rjust(size, "x") for number in range(count)]


@pytest.mark.parametrize(
    ("most", "remember"),
    [
        (limits.MAX_TEXT_CHARACTERS, lambda memory, size: memory.remember("x" * size)),
        (limits.MAX_TAGS, lambda memory, size: memory.remember("x", tags=names(size))),
        (limits.MAX_TAG_CHARACTERS, lambda memory, size: memory.remember("x", tags=["y" * size])),
        (limits.MAX_LABELS, lambda memory, size: memory.remember("x", labels=names(size))),
        (limits.MAX_NAME_CHARACTERS, lambda memory, size: memory.remember_entity("x" * size)),
        (limits.MAX_NAME_CHARACTERS, lambda memory, size: memory.remember_entity("x", type="y" * size)),
        (limits.MAX_PARTICIPANTS, lambda memory, size: memory.remember_episode("x", participants=names(size))),
        (limits.MAX_NAME_CHARACTERS, lambda memory, size: memory.remember_episode("x", participants=["y" * size])),
        (limits.LAST_SECOND, lambda memory, at: memory.remember_episode("x", occurred_at=float(at))),
    ],
    ids=["text", "tags", "tag", "labels", "name", "type", "participants", "participant", "time"],
)
async def test_a_part_may_be_as_large_as_its_limit(memory, most, remember):
    stored = await remember(memory, most)
    with pytest.raises(ConfigError):
        await remember(memory, most + 1)
    assert await memory.list_memories() == [stored]


async def test_the_first_second_is_a_time_and_none_before_it(memory):
    await memory.remember_episode("x", occurred_at=limits.FIRST_SECOND)
    with pytest.raises(ConfigError, match="since 1970"):
        await memory.remember_episode("x", occurred_at=limits.FIRST_SECOND - 1)


async def test_sources_that_are_too_many_or_too_long_are_cut(memory):
    stored = await memory.remember("x", sources=[*names(limits.MAX_SOURCES - 1), "y" * 501, "one more"])
    assert len(stored.sources) == limits.MAX_SOURCES
    assert stored.sources[-1] == "y" * limits.MAX_SOURCE_CHARACTERS


async def test_properties_of_an_entity_are_limited_together_with_those_that_are_known(memory):
    await memory.remember_entity("Ann", properties={"a": "x" * 5_000})
    with pytest.raises(ConfigError, match="properties"):
        await memory.remember_entity("Ann", properties={"b": "x" * 5_000})
    merged = await memory.remember_entity("Ann", properties={"a": None, "b": "x" * 5_000})
    assert list(merged.properties) == ["b"]


async def test_tags_are_narrowed_to_one_line_in_lower_case_and_each_is_there_once(memory):
    stored = await memory.remember("x", tags=["Red\nWine", "red  wine"])
    assert stored.tags == ("red wine",)
