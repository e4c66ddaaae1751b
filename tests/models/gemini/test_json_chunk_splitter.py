"""Where one chunk ends and the next begins."""

import json

import pytest

from perdure._models.wires.gemini.chunks import ResponseSplitter

CHUNKS = [{"text": 'a } " { b'}, {"text": "é\u2028 [,]"}, {"deep": [{"er": {}}]}]
EVENTS = "".join([f"data: {json.dumps(chunk)}\r\n\r\n" for chunk in CHUNKS]).encode()
ARRAY = ("[" + "\n,\r\n".join([json.dumps(chunk, indent=2, ensure_ascii=False) for chunk in CHUNKS]) + "\n]\n").encode()


def chunks(data: bytes, size: int) -> list:
    frames = ResponseSplitter()
    found = []
    for place in range(0, len(data), size):
        found += frames.feed(data[place : place + size])
    return [json.loads(each) for each in [*found, *frames.flush()]]


@pytest.mark.parametrize("size", [1, 2, 7, 10_000])
@pytest.mark.parametrize("data", [EVENTS, ARRAY, b"\r\n " + ARRAY, b"\xef\xbb\xbf" + EVENTS])
def test_events_and_arrays_hold_the_same_chunks(data, size):
    assert chunks(data, size) == CHUNKS


@pytest.mark.parametrize("size", [1, 10_000])
def test_a_single_object_is_one_chunk(size):
    assert chunks(json.dumps(CHUNKS[0]).encode(), size) == [CHUNKS[0]]


def test_elements_of_an_array_are_given_as_soon_as_they_are_whole():
    frames = ResponseSplitter()
    assert frames.feed(b'[{"a":1}') == [b'{"a":1}']
    assert frames.feed(b',\n{"b"') == []
    assert frames.feed(b":2}]") == [b'{"b":2}']
    assert frames.flush() == []
    assert not frames.is_single_object


def test_what_is_torn_is_given_at_the_end():
    frames = ResponseSplitter()
    assert frames.feed(b'[{"a":1},{"b":') == [b'{"a":1}']
    assert frames.flush() == [b'{"b":']


def test_only_a_single_object_is_whole():
    frames = ResponseSplitter()
    assert not frames.is_single_object
    frames.feed(b"  ")
    assert frames.flush() == []
    frames.feed(b"{")
    assert frames.is_single_object


def test_a_large_element_is_not_read_again_at_every_byte(monkeypatch):
    from perdure._models.wires.gemini import chunks as framing

    looks = []
    scan = framing._scan_json

    def counted(text):
        looks.append(1)
        return scan(text)

    monkeypatch.setattr(framing, "_scan_json", counted)
    data = b"[" + json.dumps({"text": "}" * 400_000}).encode() + b"]"
    assert len(chunks(data, 1_000)) == 1
    assert len(looks) < 100
