"""Ids, titles and pages, as every store has them."""

from typing import Any

import pytest

from perdure import ConfigError, Image, assistant, user
from perdure._stores.texts import TITLE_LENGTH
from perdure.events import Custom, Entry, MessageAdded, SessionConfigured
from perdure.stores import (
    Post,
    check_count,
    check_fork,
    check_page,
    check_post,
    check_session_id,
    find_given_title,
    find_message_title,
)


def title(*events) -> str:
    return find_message_title([Entry(seq, 0.0, event) for seq, event in enumerate(events, 1)])


def test_a_title_is_the_first_message_of_a_person_on_one_line():
    events = Custom("x"), MessageAdded(assistant("Hi")), MessageAdded(user(" Fix\r\n the\tbuild "))
    assert title(*events) == "Fix the build"


def test_without_words_of_a_person_there_is_no_title():
    assert title() == ""
    assert title(MessageAdded(assistant("Hi")), MessageAdded(user(Image(url="x"))), MessageAdded(user(" \n"))) == ""


def test_a_title_has_nothing_that_a_screen_or_a_file_would_choke_on():
    assert title(MessageAdded(user("\x1b[2J\0a\x07\u202eb\ud800\u2028c"))) == "[2J a b c"


def test_a_title_is_cut():
    assert title(MessageAdded(user("word " * 1000))) == ("word " * 1000)[:TITLE_LENGTH].rstrip()
    assert len(title(MessageAdded(user("x" * 10_000_000)))) == TITLE_LENGTH


def renamed(*changes) -> str | None:
    return find_given_title([Entry(seq, 0.0, SessionConfigured(change)) for seq, change in enumerate(changes, 1)])


def test_a_session_is_called_what_the_last_change_of_its_title_says():
    assert renamed({"title": "First"}, {"title": " The\nsecond\t"}, {"model": "m"}) == "The second"
    assert find_given_title([Entry(1, 0.0, MessageAdded(user("title")))]) is None


def test_what_cannot_be_seen_or_is_no_text_is_no_title():
    assert renamed({"title": ""}, {"title": "\0 \n"}, {"title": 7}, {"title": None}) is None
    assert renamed({"title": "Seen"}, {"title": " "}) == "Seen"


@pytest.mark.parametrize("session_id", ["a", "é/…", "x" * 10_000, " ", "%_*", "\U0001f600"])
def test_almost_any_text_can_be_a_session_id(session_id):
    check_session_id(session_id)


@pytest.mark.parametrize("session_id", ["", "a\0b", "\ud800", None, 1, b"x"])
def test_some_ids_could_not_be_kept_everywhere(session_id):
    with pytest.raises(ConfigError, match="a session id must"):
        check_session_id(session_id)


@pytest.mark.parametrize("number", [-1, 2**63, True, 1.0, "1", None])
def test_a_count_is_a_whole_number_from_zero(number):
    with pytest.raises(ConfigError, match=r"after=.* is not possible: pass a whole number from 0"):
        check_count("after", number)


def test_a_page_may_have_an_empty_prefix_and_be_empty():
    check_page("", 0, 0)
    with pytest.raises(ConfigError, match="a prefix must"):
        check_page("\0", 1, 0)


@pytest.mark.parametrize("at", [None, 1, 2, 3])
def test_a_session_is_forked_after_any_of_its_entries(at: int | None) -> None:
    check_fork("s", at, 3)


@pytest.mark.parametrize("at", [0, 4, -1, True, 1.0, "1"])
def test_a_session_is_not_forked_anywhere_else(at: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        check_fork("s", at, 3)
    text = f"session 's' cannot be forked at={at!r}: pass a number from 1 to 3, or leave it out"
    assert str(refused.value) == text


@pytest.mark.parametrize(
    ("session_id", "what", "problem"),
    [
        (7, "a session id", "a session id must be a string, and 7 is not"),
        (None, "a prefix", "a prefix must be a string, and None is not"),
        (
            "",
            "a session id",
            "a session id must not be empty: leave it out to get a new one, or pass a name",
        ),
        ("a\0", "a tenant", "a tenant must be text that UTF-8 can encode, without NUL, and 'a\\x00' is not"),
    ],
)
def test_a_name_that_cannot_be_kept_is_told_with_what_it_is(session_id: Any, what: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_session_id(session_id, what=what)
    assert str(refused.value) == problem


@pytest.mark.parametrize(("sign", "fits"), [(0xD7FF, True), (0xD800, False), (0xDFFF, False), (0xE000, True)])
def test_a_lone_surrogate_is_no_part_of_a_name(sign: int, fits: bool) -> None:
    if fits:
        check_session_id(f"a{chr(sign)}")
    else:
        with pytest.raises(ConfigError, match="a session id must be text that UTF-8 can encode"):
            check_session_id(f"a{chr(sign)}")


def test_an_empty_prefix_or_kind_is_one_and_the_largest_count_is_taken() -> None:
    check_session_id("", what="a prefix")
    check_count("after", 0)
    check_count("after", 2**63 - 1)
    check_page("p", 2**63 - 1, 2**63 - 1)
    check_post(Post("p", ""))


@pytest.mark.parametrize(
    ("limit", "offset", "named"), [(-1, 0, "limit=-1"), (0, -1, "offset=-1"), (True, 0, "limit=True")]
)
def test_a_page_that_cannot_be_is_told_by_the_argument(limit: int, offset: int, named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_page("", limit, offset)
    assert str(refused.value) == f"{named} is not possible: pass a whole number from 0"


@pytest.mark.parametrize(
    ("post", "problem"),
    [
        (Post("", "steer"), "a post must have an id, so that it counts once: pass one, such as new_id()"),
        (Post("a\0", "steer"), "the id of a post must be text that UTF-8 can encode, without NUL, and 'a\\x00' is not"),
        (Post("p", "a\0"), "the kind of a post must be text that UTF-8 can encode, without NUL, and 'a\\x00' is not"),
    ],
)
def test_a_post_that_some_store_could_not_keep_is_refused(post: Post, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_post(post)
    assert str(refused.value) == problem
