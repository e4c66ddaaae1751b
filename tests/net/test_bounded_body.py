"""Bodies up to a limit, plain and compressed."""

import gzip
import zlib

import pytest

from perdure._io.http.body import BoundedBody
from perdure._io.http.transport import InvalidResponse, ResponseCutOff

TEXT = b"hello " * 1_000


def collect(pieces: list[bytes], encoding: str = "", most: int = 100_000) -> tuple[bytes, bool]:
    body = BoundedBody(most, encoding)
    for piece in pieces:
        body.feed(piece)
    return body.finish(), body.is_full


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[place : place + size] for place in range(0, len(data), size)]


def deflate_raw(data: bytes) -> bytes:
    deflater = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return deflater.compress(data) + deflater.flush()


COMPRESSED = {
    "": TEXT,
    "identity": TEXT,
    "gzip": gzip.compress(TEXT),
    "X-GZIP": gzip.compress(TEXT),
    "deflate": zlib.compress(TEXT),
}


@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize("encoding", COMPRESSED)
def test_a_body_is_decompressed_however_it_is_cut(encoding, size):
    assert collect(cut(COMPRESSED[encoding], size), encoding) == (TEXT, False)


def test_deflate_without_its_header_is_read():
    assert collect(cut(deflate_raw(TEXT), 9), "deflate") == (TEXT, False)


@pytest.mark.parametrize("size", [1, 3, 5, 1000])
def test_a_body_of_several_gzip_members_is_read(size):
    assert collect(cut(gzip.compress(b"a") + gzip.compress(b"b") + gzip.compress(b""), size), "gzip") == (b"ab", False)


@pytest.mark.parametrize("encoding", ["", "gzip", "deflate"])
def test_a_body_ends_at_the_limit(encoding):
    assert collect(cut(COMPRESSED[encoding], 50), encoding, most=500) == (TEXT[:500], True)
    assert collect(cut(COMPRESSED[encoding], 50), encoding, most=len(TEXT)) == (TEXT, False)


def test_a_bomb_is_inflated_no_further_than_the_limit():
    inside = gzip.compress(b"\0" * 50_000_000, 9)
    data, is_full = collect([inside], "gzip", most=60_000)
    assert (len(data), is_full) == (60_000, True)


def test_members_that_become_nothing_count_too():
    _, is_full = collect([gzip.compress(b"")] * 100, "gzip", most=1_000)
    assert is_full


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "compress", "x" * 500])
def test_other_encodings_are_refused(encoding):
    with pytest.raises(InvalidResponse, match="not asked for"):
        BoundedBody(10, encoding)


def test_what_is_not_compressed_as_it_says_is_refused():
    with pytest.raises(InvalidResponse, match="not compressed"):
        collect([b"hello, I am no gzip"], "gzip")


def test_compressed_data_without_its_end_is_refused():
    with pytest.raises(ResponseCutOff, match="broke off"):
        collect([gzip.compress(TEXT)[:-10]], "gzip")


def test_an_empty_body_is_empty_whatever_its_header_says():
    assert collect([], "gzip") == (b"", False)
