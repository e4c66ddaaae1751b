"""Rows of an SQLite file, each with several entries: encoded, cut, merged and decoded again."""

import zlib
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from perdure import StoreError, user
from perdure._core.log.codec import VERSION, encode_events
from perdure._stores.sqlite.format.rows import (
    LONG_TEXT_BYTES,
    PackRow,
    ReadText,
    decode_entry_metadata,
    decode_long_text_references,
    decode_row_entries,
    decode_row_events,
    encode_row,
    merge_rows,
    slice_row,
)
from perdure.events import Custom, Entry, MessageAdded, RunStarted

LONG = "long text " * 2_000
ENTRIES = [
    Entry(4, 1.5, RunStarted("a", run_id="r"), "w-4"),
    Entry(5, 2.5, MessageAdded(user(LONG)), "w-5"),
    Entry(6, 3.5, Custom("x", [LONG, "short", LONG + "!"]), "other"),
    Entry(7, 4.5, Custom("y"), ""),
]


def encoded(entries: list[Entry]) -> tuple[PackRow, dict[bytes, bytes]]:
    return encode_row(entries, [entry.id for entry in entries])


def reading(texts: dict[bytes, bytes]) -> ReadText:
    def text_of(digest: bytes) -> bytes:
        if digest not in texts:
            raise ValueError("a long text is missing")
        return texts[digest]

    return text_of


@pytest.mark.parametrize("entries", [ENTRIES, [ENTRIES[0], *[Entry(seq, 1.0, Custom("y"), "") for seq in (5, 6, 7)]]])
def test_any_part_of_a_row_is_decoded_and_cut_out(entries: list[Entry]) -> None:
    row, texts = encoded(entries)
    for first in range(2, 8):
        for last in range(max(first, 4), 10):
            wanted = [entry for entry in entries if first <= entry.seq <= last]
            events = [entry.event for entry in wanted]
            assert decode_row_entries(row, first, last, reading(texts), "s") == wanted
            assert decode_row_events(row, first, last, reading(texts), "s") == events
            if wanted:
                part, its_texts = slice_row(row, wanted[0].seq, wanted[-1].seq, reading(texts))
                assert (part.first, part.last, part.version) == (wanted[0].seq, wanted[-1].seq, row.version)
                assert decode_row_entries(part, 1, 9, reading(its_texts), "s") == wanted


def test_a_row_has_its_numbers_and_what_every_reader_must_know() -> None:
    row, texts = encoded(ENTRIES)
    assert (row.first, row.last, row.version) == (4, 7, VERSION)
    heads = decode_entry_metadata(row)
    critical = [str(each.__struct_config__.tag) for each in (RunStarted, MessageAdded, Custom) if each.critical]
    assert (heads.ats, heads.ids, heads.critical) == ([1.5, 2.5, 3.5, 4.5], ["w-4", "w-5", "other", ""], critical)
    assert len(texts) == 2
    small, nothing = encoded([ENTRIES[3]])
    assert (small.body, small.holes, nothing) == (encode_events([ENTRIES[3].event]), None, {})


def test_long_texts_are_kept_once_and_a_row_has_the_places_where_they_were() -> None:
    row, texts = encoded(ENTRIES)
    one, other = LONG.encode(), (LONG + "!").encode()
    assert {digest: zlib.decompress(text) for digest, text in texts.items()} == {
        sha256(one).digest(): one,
        sha256(other).digest(): other,
    }
    holes = decode_long_text_references(row)
    assert [hole.digest for hole in holes] == [sha256(each).digest() for each in (one, one, other)]
    whole = encode_events([entry.event for entry in ENTRIES])
    assert len(row.body) == len(whole) - 2 * len(one) - len(other)
    assert [row.body[hole.place - 1 : hole.place + 1] for hole in holes] == [b'""'] * 3
    assert decode_long_text_references(row._replace(holes=None)) == []


@pytest.mark.parametrize("over", [-1, 0])
def test_a_text_of_exactly_the_limit_is_long(over: int) -> None:
    text = "x" * (LONG_TEXT_BYTES + over)
    row, texts = encoded([Entry(1, 1.0, Custom("name", text), "w-1")])
    assert (row.holes is not None) is (over == 0)
    assert len(texts) == over + 1
    assert decode_row_entries(row, 1, 1, reading(texts), "s") == [Entry(1, 1.0, Custom("name", text), "w-1")]


@pytest.mark.parametrize(
    ("ids", "stem", "rest"),
    [
        (["w-1"], "w-1", [""]),
        (["w-1", "w-2"], "w-", ["1", "2"]),
        (["w-9", "w-10"], "w-", ["9", "10"]),
        (["a", "b"], "", ["a", "b"]),
        (["", "b"], "", ["", "b"]),
        (["same", "same"], "same", ["", ""]),
        (["w-12", "w-1", "w-13"], "w-1", ["2", "", "3"]),
    ],
)
def test_the_beginning_that_all_ids_have_is_stored_once(ids: list[str], stem: str, rest: list[str]) -> None:
    entries = [Entry(seq, 1.0, Custom("x"), each) for seq, each in enumerate(ids, 1)]
    row, _ = encoded(entries)
    assert msgspec.msgpack.decode(row.heads)[1:3] == [stem, rest]
    assert decode_entry_metadata(row).ids == ids


def test_merged_rows_have_all_entries_and_each_critical_kind_once() -> None:
    log = [Entry(seq, float(seq), RunStarted("a", run_id="r"), f"w-{seq}") for seq in range(1, 5)]
    log.append(Entry(5, 5.0, Custom("x", {"deep": [1, None, "é"]}), "w-5"))
    rows = [encoded(part)[0] for part in (log[:1], log[1:3], log[3:])]
    whole = merge_rows(rows)
    assert (whole.first, whole.last, whole.version, whole.holes) == (1, 5, VERSION, None)
    assert decode_row_entries(whole, 1, 5, reading({}), "s") == log
    assert decode_row_entries(whole, 2, 4, reading({}), "s") == log[1:4]
    assert decode_row_events(whole, 1, 5, reading({}), "s") == [entry.event for entry in log]
    critical = [str(each.__struct_config__.tag) for each in (RunStarted, Custom) if each.critical]
    assert decode_entry_metadata(whole).critical == critical
    part, _ = slice_row(whole, 2, 3, reading({}))
    assert decode_row_entries(part, 1, 9, reading({}), "s") == log[1:3]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"body": b"[]"}, "something is missing"),
        ({"body": b"["}, "Input data was truncated"),
        ({"heads": encoded(ENTRIES[3:])[0].heads}, "something is missing"),
        ({"heads": b"\x90"}, ""),
    ],
)
def test_a_damaged_row_is_told_by_its_entries(change: dict[str, Any], reason: str) -> None:
    log = [Entry(seq, 1.0, Custom("x"), f"w-{seq}") for seq in (4, 5)]
    row = encoded(log)[0]._replace(**change)
    with pytest.raises(StoreError) as damaged:
        decode_row_entries(row, 1, 9, reading({}), "s")
    text = str(damaged.value)
    assert text.startswith(f"one of the entries 4 to 5 of session 's' is damaged ({reason}")
    assert text.endswith("): restore a backup, or delete the session")


def test_a_long_text_that_is_missing_or_garbled_is_damage() -> None:
    row, texts = encoded([ENTRIES[1]])
    for found in ({}, dict.fromkeys(texts, b"garbled")):
        for decode in (decode_row_entries, decode_row_events):
            with pytest.raises(StoreError, match=r"^entry 5 of session 's' is damaged \(.*\): restore a backup, or"):
                decode(row, 1, 9, reading(found), "s")
