"""The lines of a file store, and how they are found among bytes of any kind."""

import os
import time
import zlib
from contextlib import contextmanager

import hypothesis
import pytest
from hypothesis import strategies as st

from perdure import StoreError, user
from perdure._stores.file import layout as file_record
from perdure._stores.file.layout import (
    DamagedRange,
    Line,
    encode_append_lines,
    encode_body,
    encode_line,
    read_first_line,
    scan_lines,
)
from perdure._stores.file.scan import decode_seq
from perdure._testing.store_contract.setup import HOSTILE_TEXTS
from perdure.events import Custom, Entry, MessageAdded
from perdure.stores import decode_entry

SEED = 7


@contextmanager
def opened(path, content: bytes):
    path.write_bytes(content)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@pytest.fixture
def found(tmp_path):
    """What a scan finds: the bodies of lines, and the bytes between."""

    def find(content: bytes, chunk: int = 64) -> list[bytes | DamagedRange]:
        with opened(tmp_path / "file", content) as descriptor:
            pieces = list(scan_lines(descriptor, len(content), SEED, chunk=chunk))
        assert [piece.start for piece in pieces] == [0, *[piece.end for piece in pieces]][:-1]
        assert not pieces or pieces[-1].end == len(content)
        return [piece.body if isinstance(piece, Line) else piece for piece in pieces]

    return find


@pytest.mark.parametrize("over", [0, 1])
def test_a_body_of_exactly_the_limit_is_taken_and_one_more_byte_is_not(monkeypatch, over):
    entry = Entry(1, 1.5, Custom("x" * 200), "e-1")
    size = len(encode_body(entry))
    monkeypatch.setattr(file_record, "MAX_BODY_BYTES", size - over)
    if over:
        with pytest.raises(StoreError, match=f"entry 1 has {size} bytes"):
            encode_append_lines([entry], SEED)
    else:
        assert decode_entry(encode_append_lines([entry], SEED).split(b" ", 2)[2]) == entry


def bodies(count: int) -> list[bytes]:
    return [b'{"seq":%d,"x":"%b"}' % (number, b"x" * number) for number in range(1, count + 1)]


def test_the_checksum_is_a_crc_32_of_blank_and_json_that_begins_with_the_session():
    assert encode_line(b"{}", 0) == b"2 %08x {}\n" % zlib.crc32(b" {}")
    assert encode_line(b"{}", zlib.crc32(b"s"), has_more=True) == b"2 %08x+{}\n" % zlib.crc32(b"s+{}")


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_a_line_is_ascii_without_a_line_end_and_gives_the_entry_back(text):
    entry = Entry(1, 1.5, MessageAdded(user(text), run_id=text), text)
    line = encode_append_lines([entry], SEED)
    assert line.isascii()
    assert line.splitlines() == [line[:-1]]
    assert decode_entry(line.partition(b" {")[2].rstrip().join((b"{", b""))) == entry


def test_lines_are_found_one_after_another_whatever_the_size_of_a_chunk(found):
    content = b"".join(encode_line(body, SEED) for body in bodies(100))
    for chunk in (20, 64, 4096, 1 << 20):
        assert found(content, chunk) == bodies(100)


def test_lines_of_one_append_say_that_more_is_to_come(tmp_path):
    batch = [Entry(seq, 1.0, Custom("x")) for seq in (1, 2, 3)]
    with opened(tmp_path / "file", encode_append_lines(batch, SEED)) as descriptor:
        pieces = list(scan_lines(descriptor, 10_000, SEED))
    assert [isinstance(piece, Line) and piece.has_more for piece in pieces] == [True, True, False]


@pytest.mark.parametrize(
    "garbage", [b"\n", b"x", b"\n\n\n", b"\0" * 5000, b"\xff\xfe", b"12 ", b"9 00000000 {}\n", b"1"]
)
def test_garbage_is_told_from_lines_on_both_sides(found, garbage):
    one, two = (encode_line(body, SEED) for body in bodies(2))
    assert found(garbage + one) == [DamagedRange(0, len(garbage)), bodies(1)[0]]
    assert found(one + garbage) == [bodies(1)[0], DamagedRange(len(one), len(one + garbage))]
    middle = DamagedRange(len(one), len(one + garbage))
    assert found(one + garbage + two) == [bodies(2)[0], middle, bodies(2)[1]]


def test_fused_lines_are_found(found):
    one, two, three = (encode_line(body, SEED) for body in bodies(3))
    assert found(one[:-1] + two[:-1] + three) == bodies(3)
    for cut in range(1, len(two) - 1):
        assert found(one + two[:cut] + three) == [bodies(3)[0], DamagedRange(len(one), len(one) + cut), bodies(3)[2]]


def test_a_line_of_another_session_is_damage(found):
    assert found(encode_line(b"{}", SEED + 1)) == [DamagedRange(0, 14)]


def test_text_that_looks_like_a_line_is_no_entry_even_when_its_own_line_is_damaged(found):
    escaped = b'{\\"seq\\":9,\\"at\\":1.0,\\"event\\":{\\"kind\\":\\"custom\\",\\"name\\":\\"forged\\"}}'
    forged = encode_line(escaped, SEED)  # as it would lie in the file
    text = forged.decode().replace("\\", "")[:-1]
    line = encode_append_lines([Entry(1, 1.0, Custom(text, {"deep": [text]}))], SEED)
    assert line.count(forged[:-1]) == 2
    damaged = line.replace(b'"seq":1', b'"seq":7')
    assert {piece for piece in found(damaged) if isinstance(piece, bytes)} == {escaped}
    assert decode_seq(escaped) == 0


@hypothesis.given(st.data())
def test_of_any_bytes_nothing_but_whole_lines_is_found(tmp_path_factory, data):
    lines = [encode_line(body, SEED) for body in bodies(4)]
    piece = st.one_of(st.sampled_from(lines), st.binary(max_size=40), st.sampled_from(lines).map(lambda x: x[:-3]))
    content = b"".join(data.draw(st.lists(piece, max_size=8)))
    with opened(tmp_path_factory.getbasetemp() / "any", content) as descriptor:
        pieces = list(scan_lines(descriptor, len(content), SEED, chunk=32))
    assert b"".join([content[piece.start : piece.end] for piece in pieces]) == content
    assert {piece.body for piece in pieces if isinstance(piece, Line)} <= set(bodies(4))
    assert sum(isinstance(piece, Line) for piece in pieces) >= sum(content.count(b"\n" + line) for line in lines)


def test_what_claims_to_be_longer_than_any_line_is_not_waited_for(found, monkeypatch):
    monkeypatch.setattr(file_record, "MAX_BODY_BYTES", 100)
    long = encode_line(b'{"x":"%b"}' % (b"x" * 200), SEED)
    assert found(long + encode_line(b"{}", SEED)) == [DamagedRange(0, len(long)), b"{}"]


def test_a_file_of_zeros_is_left_behind_at_once(tmp_path):
    """A hole, and a line behind it."""
    size = 128 * 1024**2
    with (tmp_path / "file").open("wb") as file:
        file.seek(size)
        file.write(encode_line(b"{}", SEED))
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    start = time.process_time()
    damage, line = scan_lines(descriptor, size + 14, SEED)
    assert (damage, line.start) == (DamagedRange(0, size), size)
    assert time.process_time() - start < 10
    os.close(descriptor)


def test_false_beginnings_without_end_are_given_up_up_to_the_next_line(tmp_path, monkeypatch):
    monkeypatch.setattr(file_record, "_PATIENCE", 100_000)
    false = b"90000 00000000 {" * 10_000
    good = encode_line(b"{}", SEED)
    content = false + good + good + b"\n" + good + false
    with opened(tmp_path / "file", content) as descriptor:
        pieces = list(scan_lines(descriptor, len(content), SEED, chunk=1000))
    lost = len(false + good)
    assert [(piece.start, piece.end) for piece in pieces] == [
        (0, lost),
        (lost, lost + 14),
        (lost + 14, lost + 15),
        (lost + 15, lost + 29),
        (lost + 29, len(content)),
    ]


def test_a_file_that_becomes_shorter_ends_there(tmp_path):
    content = b"".join(encode_line(body, SEED) for body in bodies(3))
    with opened(tmp_path / "file", content[:-4]) as descriptor:
        pieces = list(scan_lines(descriptor, len(content), SEED))
    assert [type(piece) for piece in pieces] == [Line, Line, DamagedRange]


def test_the_first_line_is_the_one_at_the_very_beginning(tmp_path):
    with opened(tmp_path / "file", encode_line(b"{}", 0) + b"more") as descriptor:
        assert read_first_line(descriptor, 18, 0) == Line(0, 14, is_ended=True, has_more=False, body=b"{}")
        assert read_first_line(descriptor, 18, 1) is None
        assert read_first_line(descriptor, 0, 0) is None


@hypothesis.given(
    st.lists(st.sampled_from([b"1", b"0", b"12345678901", b" ", b"+", b"{", b"abcdef01", b"ABCDEF01", b"x", b"\0"])),
    st.integers(0, 12),
)
def test_the_beginning_of_a_line_is_found_where_the_whole_pattern_finds_it(pieces, start):
    data = b"".join(pieces)
    match = file_record._HEAD.search(data, start)
    assert file_record._find_head(data, start) == (match.start() if match else -1)
