"""A few words of a text around what was found in it."""

import re

import pytest

from perdure._stores import texts
from perdure._stores.texts import SNIPPET_TOKENS, SearchTerms, make_snippet


def tokens(data: bytes) -> list[tuple[int, int, str]]:
    """Words in small letters, as the index has them."""
    return [(*found.span(), found[0].decode().lower()) for found in re.finditer(rb"[\w\x80-\xff]+", data)]


def shown(text: str, *words: str, beginnings=()) -> str:
    return make_snippet(text, SearchTerms(frozenset(words), tuple(beginnings)), tokens)


def numbered(first: int, last: int) -> str:
    return " ".join(f"w{number}" for number in range(first, last + 1))


def test_a_short_text_is_shown_whole():
    assert shown("It rains, in Oslo!", "oslo", "rains") == "It «rains», in «Oslo»!"


def test_of_a_long_text_the_words_around_are_shown():
    found = shown(f"{numbered(1, 50)} here {numbered(51, 99)}", "here")
    assert found == f"…{numbered(44, 50)} «here» {numbered(51, 58)}…"
    assert len(found.split()) == SNIPPET_TOKENS


def test_the_place_is_shown_where_most_stands_together():
    text = f"one {numbered(1, 30)} two one {numbered(31, 60)} two {numbered(61, 90)}"
    assert shown(text, "one", "two") == f"…{numbered(24, 30)} «two» «one» {numbered(31, 37)}…"


def test_words_may_be_wanted_by_their_beginning():
    assert shown("timeouts and time", beginnings=["timeo"]) == "«timeouts» and time"


def test_at_the_ends_of_a_text_as_many_words_are_shown():
    assert shown(numbered(1, 99), "w2") == f"w1 «w2» {numbered(3, 16)}…"
    assert shown(numbered(1, 99), "w98") == f"…{numbered(84, 97)} «w98» w99"
    assert shown(numbered(1, 16), "w16") == f"{numbered(1, 15)} «w16»"
    assert shown(numbered(1, 17), "absent") == f"{numbered(1, 16)}…"


def test_it_is_one_line_that_no_terminal_obeys():
    assert shown("one\r\n\ttwo\x1b[31m \u202ethree\x07", "two") == "one «two» [31m three"


def test_what_is_marked_is_cut_out_of_bytes_and_not_of_characters():
    assert shown("Grüße aus Zürich", "zürich", "aus") == "Grüße «aus» «Zürich»"


def test_words_and_gaps_without_end_are_cut():
    found = shown("-" * 5000 + "x" * 5000 + " found " + "é" * 5000, "found")
    assert found == f"{'-' * 80}…{'x' * 80}… «found» {'é' * 40}…"
    edge = f"{'-' * 80}{'x' * 80} found {'y' * 240}"
    assert shown(edge, "found") == f"{'-' * 80}{'x' * 80} «found» {'y' * 80}…"
    assert shown(edge[7:], "found") == f"{'-' * 73}{'x' * 80} «found» {'y' * 240}"


def test_in_a_very_long_text_the_first_good_place_is_found():
    text = numbered(1, 20_000)
    around = f"…{numbered(14_993, 14_999)} «w15000» {numbered(15_001, 15_008)}…"
    assert shown(text, "w15000") == around
    assert shown(text.replace(" ", "\n"), "w15000") == around


def test_a_text_without_any_gap_is_still_read_to_its_end():
    assert shown("ab" * 20_000 + " needle", "needle").endswith("«needle»")


@pytest.mark.parametrize(("text", "expected"), [("", ""), ("nothing of it", "nothing of it"), ("…!", "…!")])
def test_where_nothing_is_found_the_beginning_is_shown(text, expected):
    assert shown(text, "absent") == expected


def test_only_so_many_places_are_compared():
    assert shown("a " * 5000, "a").count("«a»") == SNIPPET_TOKENS


@pytest.mark.parametrize("gap", [" ", "\n"])
def test_no_word_is_cut_where_a_long_text_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch, gap: str) -> None:
    monkeypatch.setattr(texts, "_STRIDE", 10)
    for text in ("abcd efgh needle x", "abcdefghi needle", "a needle needles", "x" * 10 + " needle", "abcdefgh needle"):
        assert "«needle»" in shown(text.replace(" ", gap), "needle")
    pieces = list(texts._split_text(f"ab{gap}cdefghijk{gap}lmnopqrstuvwxyz"))
    assert pieces == [f"ab{gap}", f"cdefghijk{gap}", "lmnopqrstu", "vwxyz"]
    assert list(texts._split_text(f"{gap}bcdefghijklm")) == [f"{gap}bcdefghij", "klm"]
    assert list(texts._split_text(f"a{gap}cdefghijklm")) == [f"a{gap}", "cdefghijkl", "m"]
    assert list(texts._split_text("0123456789")) == ["0123456789"]
    assert list(texts._split_text(f"012345678{gap}0")) == [f"012345678{gap}", "0"]


def test_where_a_long_text_has_nothing_its_first_piece_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "_STRIDE", 10)
    assert shown("abcd efgh ijkl mnop", "absent") == "abcd efgh"


def test_of_places_with_as_many_different_words_the_first_is_shown_and_repeated_words_count_once() -> None:
    text = f"one one one {numbered(1, 30)} one {numbered(31, 33)} two {numbered(34, 60)} two one {numbered(61, 90)}"
    assert shown(text, "one", "two") == f"…{numbered(26, 30)} «one» {numbered(31, 33)} «two» {numbered(34, 39)}…"


@pytest.mark.parametrize(("gap", "is_near"), [(14, True), (15, False)])
def test_words_are_together_when_one_snippet_has_them_both(gap: int, is_near: bool) -> None:
    found = shown(f"{numbered(1, 30)} one {numbered(101, 100 + gap)} two {numbered(201, 230)}", "one", "two")
    assert ("«two»" in found) is is_near
    assert "«one»" in found
