"""Pages of text files: which lines are shown, what is said about the others, and what is no text."""

import pytest

from perdure import ToolError
from perdure._tools.files.tools import decode_text, detect_image_type
from perdure.tools import format_page


def show(
    data: str | bytes, offset: int = 1, limit: int = 2_000, max_bytes: int = 1_000, *, numbers: bool = False
) -> str:
    given = data.encode() if isinstance(data, str) else data
    return format_page(given, "a.txt", offset, limit, max_bytes, line_numbers=numbers)


@pytest.mark.parametrize(
    ("max_bytes", "shown"),
    [
        (6, "aa\nbb\n[Showing lines 1-2 of 3. Use offset=3 to continue.]"),
        (5, "aa\n[Showing lines 1-1 of 3. Use offset=2 to continue.]"),
        (3, "aa\n[Showing lines 1-1 of 3. Use offset=2 to continue.]"),
        (2, "aa\n[Showing lines 1-1 of 3. Use offset=2 to continue.]"),
        (1, "a\n[Line 1 is cut off: it has 2 characters.]\n[Showing lines 1-1 of 3. Use offset=2 to continue.]"),
        (9, "aa\nbb\ncc"),
        (8, "aa\nbb\n[Showing lines 1-2 of 3. Use offset=3 to continue.]"),
    ],
)
def test_a_page_has_as_many_whole_lines_as_fit(max_bytes: int, shown: str) -> None:
    assert show("aa\nbb\ncc\n", max_bytes=max_bytes) == shown


@pytest.mark.parametrize(
    ("offset", "limit", "shown"),
    [
        (1, 1, "1: a\n[Showing lines 1-1 of 3. Use offset=2 to continue.]"),
        (2, 1, "2: b\n[Showing lines 2-2 of 3. Use offset=3 to continue.]"),
        (3, 1, "3: c\n[Showing lines 3-3 of 3.]"),
        (1, 3, "1: a\n2: b\n3: c"),
        (4, 1, "[The file has 3 lines; there is none at offset 4.]"),
    ],
)
def test_a_page_begins_at_its_offset_and_has_up_to_its_limit(offset: int, limit: int, shown: str) -> None:
    assert show("a\nb\nc", offset, limit, numbers=True) == shown


@pytest.mark.parametrize(("offset", "limit"), [(0, 1), (1, 0), (-1, 5)])
def test_lines_are_counted_from_one(offset: int, limit: int) -> None:
    with pytest.raises(ToolError) as raised:
        show("a", offset, limit)
    text = f"offset={offset}, limit={limit}: lines are counted from 1, and a page has at least one"
    assert str(raised.value) == text


def test_a_page_has_at_most_two_thousand_lines() -> None:
    lines = show("x\n" * 2_001, limit=5_000, max_bytes=100_000).split("\n")
    assert lines[1_999:] == ["x", "[Showing lines 1-2000 of 2001. Use offset=2001 to continue.]"]


def test_an_empty_file_has_a_first_page_alone() -> None:
    assert show("") == "(empty file)"
    assert show("", 2) == "[The file has 0 lines; there is none at offset 2.]"
    assert show("\n") == "(empty file)"


def test_bytes_that_are_no_text_are_told_unless_the_file_has_the_sign_for_them() -> None:
    note = "[The file is not UTF-8: \ufffd stands for bytes that are no text.]"
    assert show(b"caf\xe9") == f"caf\ufffd\n{note}"
    assert show("caf\ufffd") == "caf\ufffd"


def test_what_has_a_nul_is_no_text() -> None:
    for read in (lambda: show(b"a\0b"), lambda: decode_text(b"a\0b", "a.txt")):
        with pytest.raises(ToolError, match=r"^'a.txt' is not a text file$"):
            read()
    with pytest.raises(ToolError) as raised:
        decode_text(b"caf\xe9", "a.txt")
    assert str(raised.value) == "'a.txt' is not UTF-8 text (byte 3), and is not edited"
    assert decode_text("café".encode(), "a.txt") == "café"


@pytest.mark.parametrize(
    ("data", "kind"),
    [(b"RIFF____WEBP", "image/webp"), (b"RIFF____WAVE", ""), (b"XXXX____WEBP", ""), (b"\x89PNG", ""), (b"", "")],
)
def test_an_image_is_known_by_its_first_bytes(data: bytes, kind: str) -> None:
    assert detect_image_type(data) == kind
