"""Bodies of pages as text: character sets, kinds, and what is no text."""

import pytest

from perdure import ToolError
from perdure._tools.web.tools import MOST_CHARACTERS, find_charset, read_page_text

URL = "https://example.org/"


@pytest.mark.parametrize(
    ("body", "content_type", "charset"),
    [
        (b"\xef\xbb\xbfx", "text/plain; charset=latin-1", "utf-8"),
        ("\ufeffx".encode("utf-16-le"), "text/plain", "utf-16-le"),
        (b"\xfe\xff\0x", "", "utf-16-be"),
        (b"x", "text/html; charset=UTF-8", "utf-8"),
        (b"x", 'text/html; Charset="windows-1251"', "cp1251"),
        (b"x", "text/html; charset=ISO-8859-1", "cp1252"),
        (b"x", "text/html; charset=shift_jis", "shift_jis"),
        (b"<meta charset=euc-kr>", "text/html", "euc_kr"),
        (b"<META http-equiv=x content='text/html; charset=koi8-r'>", "text/html", "koi8-r"),
        (b"<?xml version='1.0' encoding='iso-8859-2'?>", "application/xml", "iso8859-2"),
        (b"x" * 2_000 + b"<meta charset=euc-kr>", "text/html", "utf-8"),
        ("grüße".encode(), "text/plain", "utf-8"),
        ("grüße".encode()[:3], "text/plain", "utf-8"),
        ("grüße".encode("latin-1"), "text/plain", "cp1252"),
        (b"x", "text/plain; charset=no-such", "utf-8"),
        *[
            (b"x", f"text/plain; charset={each}", "utf-8")
            for each in ("utf-7", "unicode_escape", "idna", "zlib", "rot13")
        ],
    ],
)
def test_the_character_set_is_found(body, content_type, charset):
    assert find_charset(body, content_type) == charset


def test_text_is_decoded_by_its_character_set():
    assert read_page_text("grüße €".encode("cp1252"), "text/plain; charset=latin1", URL) == "grüße €"
    assert read_page_text("日本".encode("shift_jis"), "text/plain; charset=Shift_JIS", URL) == "日本"
    assert read_page_text("\ufeffx\0y".encode("utf-16-le"), "text/plain", URL) == "xy"


@pytest.mark.parametrize("kind", ["text/html", "application/xhtml+xml; charset=utf-8", ""])
def test_html_becomes_readable_text_below_its_title(kind):
    page = b"<html><title>A page</title><p>Hello <b>there</b></p></html>"
    assert read_page_text(page, kind, URL) == "# A page\n\nHello there"


def test_a_title_that_the_text_begins_with_is_not_repeated():
    assert read_page_text("<title>A page</title><h1>A page</h1><p>x</p>", "text/html", URL) == "# A page\n\nx"


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "application/json",
        "application/ld+json; x=y",
        "application/xml",
        "text/markdown",
        "image/svg+xml",
        "",
    ],
)
def test_other_text_is_returned_as_it_is(kind):
    assert read_page_text(b'{"a": "<p>"}\r\n', kind, URL) == '{"a": "<p>"}\n'


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"%PDF-1.7", "application/pdf"),
        (b"x", "image/png"),
        (b"x", "audio/mpeg"),
        (b"PK\x03\x04", "application/zip"),
        (b"\x7fELF\0\0", "application/octet-stream"),
        (b"\x89PNG\r\n\x1a\n\0\0", "text/html"),
        (b"\0\0\0", ""),
    ],
)
def test_what_is_no_text_is_refused(body, kind):
    with pytest.raises(ToolError, match=r"not text.* bytes\)"):
        read_page_text(body, kind, URL)


def test_a_very_long_page_is_cut_off():
    assert len(read_page_text(b"x" * (MOST_CHARACTERS + 10), "text/plain", URL)) == MOST_CHARACTERS


def test_exactly_these_bytes_are_in_no_text():
    def is_text(code: int) -> bool:
        try:
            read_page_text(bytes([97, code]), "text/plain", URL)
        except ToolError:
            return False
        return True

    assert [code for code in range(256) if not is_text(code)] == [*range(9), *range(14, 27), *range(28, 32)]
    assert read_page_text(b"x" * 1_024 + b"\0", "text/plain", URL) == "x" * 1_024
    with pytest.raises(ToolError):
        read_page_text(b"x" * 1_023 + b"\0", "text/plain", URL)
