"""Forms of secrets in a text: which are found, what is held back of a text that goes on, and what replaces them."""

import pytest

from perdure._credentials.forms import (
    SecretFormFinder,
    encode_forms_as_latin1,
    map_forms_to_names,
    replace_spans,
)
from perdure._credentials.secret import MIN_SECRET_LENGTH, build_placeholder

SHORT, LONG = "abcdefgh12", "ijklmnop-34567890"
FINDER = SecretFormFinder({SHORT: "short", LONG: "long"})
A, B = build_placeholder("short"), build_placeholder("long")


def test_a_finder_knows_its_longest_form() -> None:
    assert FINDER.longest == len(LONG)
    assert SecretFormFinder({}).longest == 0


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        ("", ""),
        ("nothing here", "nothing here"),
        (SHORT, A),
        (f"{SHORT}{LONG}", f"{A}{B}"),
        (f"x{LONG}y{SHORT}z", f"x{B}y{A}z"),
        (SHORT[:-1], SHORT[:-1]),
        (f"{LONG[:7]}…", f"{LONG[:7]}…"),
        (f"{LONG[:8]}… more", f"{B}… more"),
        (f"{LONG[:9]}x…", f"{LONG[:9]}x…"),
    ],
)
def test_whole_forms_and_forms_that_were_cut_are_replaced(text: str, replaced: str) -> None:
    assert FINDER.replace_forms(text) == (replaced, "")


@pytest.mark.parametrize("length", range(1, len(LONG)))
def test_every_beginning_of_a_form_is_held_back_while_a_text_goes_on(length: int) -> None:
    assert FINDER.replace_forms(LONG[:length], continues=True) == ("", LONG[:length])
    assert FINDER.replace_forms(f"see {LONG[:length]}", continues=True) == ("see ", LONG[:length])
    assert FINDER.replace_forms(f"{SHORT} {LONG[:length]}", continues=True) == (f"{A} ", LONG[:length])
    assert FINDER.replace_forms(f"{LONG[:length]} ", continues=True) == (f"{LONG[:length]} ", "")


def test_a_form_that_is_the_beginning_of_a_longer_one_waits_for_the_rest() -> None:
    finder = SecretFormFinder({SHORT: "short", f"{SHORT}-and-more": "long"})
    assert finder.replace_forms(f"x {SHORT}", continues=True) == ("x ", SHORT)
    assert finder.replace_forms(f"x {SHORT}", continues=False) == (f"x {A}", "")
    assert finder.replace_forms(f"x {SHORT}-and-more", continues=True) == (f"x {B}", "")
    assert finder.replace_forms(f"x {SHORT}-and-less", continues=True) == (f"x {A}-and-less", "")


def test_a_form_ends_where_a_longer_one_begins_inside_it() -> None:
    inner = f"gh12{LONG}"
    finder = SecretFormFinder({SHORT: "short", inner: "long"})
    assert finder.find_spans(f"{SHORT}{LONG}") == [(0, 6, "short"), (6, 6 + len(inner), "long")]
    assert finder.replace_forms(f"{SHORT}{LONG}") == (f"{A}{B}", "")


def test_a_beginning_of_a_form_that_may_be_cut_is_replaced_from_its_least_length() -> None:
    finder = SecretFormFinder({LONG: "long"}, {LONG: 12})
    assert finder.find_spans(f"x{LONG[:11]}!") == []
    assert finder.find_spans(f"x{LONG[:12]}!") == [(1, 13, "long")]
    assert finder.find_spans(f"x{LONG[:12]}") == [(1, 13, "long")]
    assert finder.find_spans(f"x{LONG}!") == [(1, 1 + len(LONG), "long")]


@pytest.mark.parametrize(
    ("spans", "replaced"),
    [
        ([], "0123456789"),
        ([(2, 4, "short")], f"01{A}456789"),
        ([(0, 4, "short"), (4, 6, "long")], f"{A}{B}6789"),
        ([(4, 6, "long"), (0, 4, "short")], f"{A}{B}6789"),
        ([(0, 5, "short"), (4, 6, "long")], f"{A}6789"),
        ([(0, 5, "short"), (0, 8, "long")], f"{B}89"),
        ([(1, 8, "short"), (2, 4, "long"), (9, 10, "long")], f"0{A}8{B}"),
    ],
)
def test_spans_that_overlap_are_replaced_as_one(spans: list[tuple[int, int, str]], replaced: str) -> None:
    assert replace_spans("0123456789", spans) == replaced


def test_the_shortest_secret_has_a_form() -> None:
    form = "s" * MIN_SECRET_LENGTH
    assert SecretFormFinder({form: "short"}).find_spans(f"-{form}-") == [(1, 1 + MIN_SECRET_LENGTH, "short")]


@pytest.mark.parametrize("length", range(1, 17))
def test_a_beginning_that_repeats_itself_is_held_back_whole(length: int) -> None:
    form = "abcabcabcabcabcab"
    assert SecretFormFinder({form: "long"}).replace_forms(form[:length], continues=True) == ("", form[:length])


@pytest.mark.parametrize("shared", range(1, len(SHORT)))
def test_a_longer_form_may_begin_at_any_place_inside_another(shared: int) -> None:
    outer = f"{'-' * (len(SHORT) - shared)}{LONG[:shared]}"
    finder = SecretFormFinder({outer: "short", LONG: "long"})
    start = len(SHORT) - shared
    assert finder.find_spans(outer) == [(0, len(SHORT), "short")]
    assert finder.find_spans(f"{outer}{LONG[shared:]}") == [(0, start, "short"), (start, start + len(LONG), "long")]


def test_a_beginning_may_begin_inside_another_form_if_more_of_it_is_there_than_of_that() -> None:
    outer = f"abcdef{LONG[:4]}"
    finder = SecretFormFinder({outer: "short", LONG: "long"}, {LONG: 8})
    assert finder.find_spans(f"abcdef{LONG[:10]}!") == [(0, 10, "short")]
    assert finder.find_spans(f"abcdef{LONG[:11]}!") == [(0, 6, "short"), (6, 17, "long")]


def test_a_form_is_found_right_after_what_looks_like_its_beginning() -> None:
    form = f"{'a' * 9}b"
    assert SecretFormFinder({form: "short"}).find_spans(f"a{form}") == [(1, 11, "short")]


def test_a_form_that_several_secrets_have_belongs_to_the_first() -> None:
    assert map_forms_to_names([("a", ["one", "two"]), ("b", ["two", "three"])]) == {
        "one": "a",
        "two": "a",
        "three": "b",
    }


def test_forms_are_searched_in_bytes_by_their_utf_8() -> None:
    assert encode_forms_as_latin1({"schlüssel": "b", "key": "a"}) == {"key": "a", "schlÃ¼ssel": "b"}
