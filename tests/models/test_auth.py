"""Who is asking is said in headers, and nowhere else."""

import hashlib

import pytest

from perdure import AuthFailed
from perdure._models.endpoint.auth import fetch_token
from perdure.models import FixedHeaders


async def test_the_same_headers_are_sent_every_time():
    auth = FixedHeaders({"authorization": "Bearer secret"})
    assert await auth.headers("https://host.example", b"") == {"authorization": "Bearer secret"}
    assert not await auth.renew()


def test_a_key_is_named_without_giving_it_away():
    one, other = FixedHeaders({"authorization": "Bearer secret"}), FixedHeaders({"authorization": "Bearer other"})
    assert one.identity == FixedHeaders({"authorization": "Bearer secret"}).identity != other.identity
    assert "secret" not in one.identity + repr(one)
    assert FixedHeaders({}).identity == ""
    assert FixedHeaders({"a": "b"}, "mine").identity == "mine"


@pytest.mark.parametrize("token", ["", " \n", None, 7])
async def test_a_function_that_returns_no_token_is_told_as_such(token):
    with pytest.raises(AuthFailed) as caught:
        await fetch_token(lambda: token)
    assert str(caught.value) == "the function that was given as api_key returned no token: it has to return a str"


async def test_a_token_may_be_returned_at_once_or_awaited_and_has_no_blanks_around_it():
    async def later():
        return " two\n"

    assert await fetch_token(lambda: " one ") == "one"
    assert await fetch_token(later) == "two"


def test_headers_are_identified_by_a_part_of_a_hash_whatever_their_order():
    one, other = FixedHeaders({"a": "1", "b": "2"}), FixedHeaders({"b": "2", "a": "1"})
    assert one.identity == other.identity == hashlib.sha256(b"[('a', '1'), ('b', '2')]").hexdigest()[:16]
    assert repr(other) == "FixedHeaders(['a', 'b'])"


async def test_headers_that_are_changed_later_are_sent_as_they_were():
    headers = {"a": "1"}
    auth = FixedHeaders(headers)
    headers["b"] = "2"
    assert await auth.headers("", b"") == {"a": "1"}
