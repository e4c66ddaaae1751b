"""Memories at the limits of their parts: what fits is stored, and one more is refused."""

from typing import Any

import pytest

from perdure import ConfigError
from perdure._work.memory import record as limits
from perdure._work.memory.record import build_entity_key, build_indexed_text, build_record, merge_entity, normalize_tags
from perdure.context import LongTermMemory, MemoryRecord, MemoryScope


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


def test_a_record_has_clean_text_names_tags_and_sources() -> None:
    built = build_record(
        {
            "id": "mem_1",
            "text": "  \ud800two\0 lines\nof text ",
            "kind": "entity",
            "created_at": 5,
            "name": " Ann\n\0Lee ",
            "type": "per\tson",
            "tags": ["Red  Wine", "red wine", "b"],
            "labels": ["untrusted"],
            "sources": ["session:\n1", "session: 1", "run:2"],
            "participants": ["", " ", "Bob", "Bob ", "Eve"],
            "properties": {"a": (1, 2)},
        }
    )
    assert built == MemoryRecord(
        id="mem_1",
        text="\ufffdtwo lines\nof text",
        kind="entity",
        created_at=5,
        name="Ann Lee",
        type="per son",
        tags=("red wine", "b"),
        labels=("untrusted",),
        sources=("session: 1", "run:2"),
        participants=("Bob", "Eve"),
        properties={"a": [1, 2]},
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"text": " \0"}, "remember(text=''): give the text to remember"),
        ({"text": "x" * 8_001}, "remember(text=…) has 8,001 characters, and 8,000 are the most: shorten it"),
        ({"id": "x" * 129}, "remember(id=…) has 129 characters, and 128 are the most: shorten it"),
        ({"labels": ["x"] * 65}, "remember(labels=…) has 65 labels: give at most 64"),
        (
            {"created_at": 253_402_300_800},
            "remember(created_at=253402300800.0): give a time in seconds since 1970, up to the year 9999",
        ),
        (
            {"occurred_at": -62_135_596_801},
            "remember(occurred_at=-62135596801.0): give a time in seconds since 1970, up to the year 9999",
        ),
        ({"tags": [""]}, "tags=('',): give at most 16 tags of 1 to 64 characters"),
        ({"kind": "song"}, "this is no memory: Invalid enum value 'song' - at `$.kind`"),
        ({"participants": ["y" * 201]}, f"participants={('y' * 201,)!r}: give at most 32 names of 200 characters"),
    ],
)
def test_fields_that_make_no_record_are_refused_with_advice(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        build_record({"id": "m", "text": "x", "created_at": 1, **fields})
    assert str(raised.value) == message


def test_an_id_may_have_128_characters() -> None:
    assert build_record({"id": "x" * 128, "text": "x", "created_at": 1}).id == "x" * 128


@pytest.mark.parametrize("tags", ["coffee", [1], {"a": 1}, None])
def test_tags_are_a_list_of_words(tags: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        normalize_tags(tags)
    assert str(raised.value) == f"tags={tags!r}: give a list of words, such as ['coffee']"


def test_news_of_an_entity_are_merged_into_what_is_known() -> None:
    known = MemoryRecord(
        id="old",
        text="Ann is tall.",
        kind="entity",
        created_at=1,
        name="ann",
        properties={"a": 1, "b": 2, "c": 3},
        tags=("x", "y"),
        labels=("private",),
        sources=("run:1", "run:2"),
        pinned=True,
    )
    new = MemoryRecord(
        id="new",
        text="Ann",
        kind="entity",
        created_at=2,
        name="Ann",
        properties={"b": None, "c": 4, "d": 5},
        tags=("y", "z"),
        sources=("run:2", "run:3"),
    )
    merged = MemoryRecord(
        id="old",
        text="Ann is tall.",
        kind="entity",
        created_at=2,
        name="Ann",
        properties={"a": 1, "c": 4, "d": 5},
        tags=("x", "y", "z"),
        labels=("private",),
        sources=("run:1", "run:2", "run:3"),
        pinned=True,
    )
    assert merge_entity(known, new, has_text=False) == merged
    assert merge_entity(known, new, has_text=True).text == "Ann"
    assert merge_entity(None, new, has_text=True).properties == {"c": 4, "d": 5}


def test_an_entity_is_known_by_its_type_and_name_and_searched_by_all_its_words() -> None:
    fields = {"id": "m", "text": "Tall.", "created_at": 1, "name": "Ann", "type": "Person", "properties": {"n": 4}}
    entity = build_record({**fields, "kind": "entity", "participants": ["Bob"]})
    assert build_entity_key(entity) == "person\nann"
    assert build_entity_key(build_record(fields)) is None
    assert build_indexed_text(entity) == "Tall.\nAnn\nPerson\nBob\n4"
    assert build_indexed_text(build_record({"id": "m", "text": "Tall.", "created_at": 1})) == "Tall."


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"user": "a\ud800"}, "MemoryScope(user='a\\ud800'): give text without lone surrogates"),
        ({"project": "\ud800"}, "MemoryScope(project='\\ud800'): give text without lone surrogates"),
    ],
)
def test_a_scope_is_text_that_can_be_stored(fields: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        MemoryScope(**fields)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("was_pinned", "labels", "is_pinned"),
    [(True, (), True), (False, (), False), (True, ("untrusted",), False), (True, ("private",), True)],
)
def test_an_entity_stays_pinned_only_if_it_was_and_its_news_can_be_trusted(
    was_pinned: bool, labels: tuple[str, ...], is_pinned: bool
) -> None:
    known = MemoryRecord(id="m", text="Ann", kind="entity", created_at=1, pinned=was_pinned)
    new = MemoryRecord(id="n", text="Ann", kind="entity", created_at=2, labels=labels)
    assert merge_entity(known, new, has_text=True).pinned is is_pinned


@pytest.mark.parametrize(
    ("labels", "is_untrusted"), [((), False), (("private",), False), (("imported",), True), (("a", "untrusted"), True)]
)
def test_what_others_may_have_written_is_untrusted(labels: tuple[str, ...], is_untrusted: bool) -> None:
    assert MemoryRecord(id="m", text="x", created_at=1, labels=labels).is_untrusted is is_untrusted
