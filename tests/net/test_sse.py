"""Server-sent events are read alike, however the bytes are cut."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure._io.http.sse import SseParser
from perdure._io.http.transport import ResponseTooLarge

WORDS = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


@st.composite
def lines_of_an_event(draw) -> list[str]:
    """Lines that make up one block: data, a name, comments and fields that nobody asked for, in any order."""
    lines = [f"data: {text}" for text in draw(st.lists(WORDS, max_size=3))]
    lines += draw(st.sampled_from([[], ["event: delta"], ["event:delta"]]))
    lines += draw(st.sampled_from([[], [": a comment"], [":"], ["id: 7"], ["retry: 10"], ["data"], ["data:x"], ["?"]]))
    return draw(st.permutations(lines)) or [": ping"]


@st.composite
def streams(draw) -> bytes:
    """A stream with line ends of one kind or of all kinds, and with more empty lines than it needs."""
    end = draw(st.sampled_from(["\n", "\r\n", "\r", None]))

    def one() -> str:
        return end or draw(ENDS)

    blocks = draw(st.lists(lines_of_an_event(), max_size=5))
    text = ""
    for lines in blocks:
        text += "".join(line + one() for line in lines) + one() * draw(st.integers(1, 3))
    return text.encode()


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:stop] for start, stop in pairwise(edges)]


def read(pieces: list[bytes]) -> list[tuple[str, bytes]]:
    reader = SseParser()
    return [event for piece in pieces for event in reader.feed(piece)] + reader.flush()


def expected(stream: bytes) -> list[tuple[str, bytes]]:
    """By the letter of the specification, line by line."""
    events: list[tuple[str, bytes]] = []
    name, data = "", list[bytes]()
    for line in [*stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"), b""]:
        if not line:
            if data:
                events.append((name, b"\n".join(data)))
            name, data = "", []
            continue
        field, colon, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if field == b"data":
            data.append(value)
        elif field == b"event" and colon:
            name = value.decode()
    return events


@given(streams(), st.lists(st.integers(0, 10_000), max_size=12))
def test_events_do_not_depend_on_where_the_bytes_are_cut(stream, places):
    assert read(cut(stream, places)) == expected(stream)


@given(streams())
def test_events_are_the_same_byte_by_byte(stream):
    assert read([stream[place : place + 1] for place in range(len(stream))]) == expected(stream)


@given(st.binary(max_size=60), st.lists(st.integers(0, 100), max_size=5))
def test_no_bytes_break_it(noise, places):
    assert read(cut(noise, places)) == read([noise])


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_an_event_is_given_with_the_last_byte_of_its_empty_line(end):
    reader = SseParser()
    assert reader.feed(b"data: one" + end) == []
    assert reader.feed(end) == [("", b"one")]


def test_a_line_feed_after_a_carriage_return_is_no_second_line_end():
    reader = SseParser()
    assert reader.feed(b"data: a\r") == []
    assert reader.feed(b"\ndata: b\r") == []
    assert reader.feed(b"\n\r") == [("", b"a\nb")]
    assert reader.feed(b"\ndata: c\n\n") == [("", b"c")]


def test_named_events_keep_their_names():
    stream = b'event: start\ndata: {"a":1}\n\ndata: plain\nevent: late\n\nevent: two\ndata: x\ndata: y\n\n'
    assert read([stream]) == [("start", b'{"a":1}'), ("late", b"plain"), ("two", b"x\ny")]


def test_comments_and_events_without_data_are_left_out():
    assert read([b": OPENROUTER PROCESSING\n\nevent: ping\n\nid: 1\n\ndata: x\n\n"]) == [("", b"x")]


def test_empty_data_is_data():
    assert read([b"data:\n\ndata: \n\ndata\n\nevent: e\ndata:\n\n"]) == [("", b""), ("", b""), ("", b""), ("e", b"")]


def test_a_mark_of_byte_order_at_the_beginning_is_no_part_of_it():
    assert read([b"\xef\xbb\xbfdata: x\n\n"]) == [("", b"x")]


def test_the_rest_is_an_event_that_nothing_has_closed():
    reader = SseParser()
    assert reader.feed(b"data: a\n\ndata: b\n") == [("", b"a")]
    assert reader.flush() == [("", b"b")]
    assert reader.flush() == []


def test_an_event_that_does_not_end_is_refused_once_it_is_too_large():
    reader = SseParser(max_bytes=100)
    assert reader.feed(b"data: " + b"x" * 90) == []
    with pytest.raises(ResponseTooLarge, match="larger than 100 bytes"):
        reader.feed(b"x" * 10)


def test_many_events_may_be_larger_together_than_one_may_be():
    assert len(SseParser(max_bytes=100).feed(b"data: 0123456789\n\n" * 50)) == 50


def test_a_large_event_in_small_pieces_costs_no_more_than_its_length():
    reader = SseParser()
    started = time.process_time()
    for _ in range(8_000):
        reader.feed(b"x" * 1_000)
    assert time.process_time() - started < 1.0  # joined at every piece, it would be 32 GB of copies


def test_an_empty_line_may_come_apart_from_the_event_that_it_ends() -> None:
    parser = SseParser()
    assert [parser.feed(piece) for piece in (b"data: a", b"\n\n", b"data: b\n", b"\ndata: c\n\n")] == [
        [],
        [("", b"a")],
        [],
        [("", b"b"), ("", b"c")],
    ]
    assert parser.flush() == []


def test_an_event_with_an_empty_name_has_none() -> None:
    assert SseParser().feed(b"event: \nid: 1\ndata: x\n\n") == [("", b"x")]


def test_every_event_may_be_as_large_as_the_first() -> None:
    parser = SseParser(max_bytes=10)
    largest = b"data: 1234"
    for _ in range(2):
        assert parser.feed(largest) == []
        assert parser.feed(b"\n\n") == [("", b"1234")]
    for _ in range(2):
        assert parser.feed(largest) == []
        assert parser.flush() == [("", b"1234")]
    with pytest.raises(ResponseTooLarge) as caught:
        parser.feed(largest + b"5")
    assert str(caught.value) == "one event of a stream is larger than 10 bytes"
