"""A key is read when it is needed, sent in the header of its provider, and shown to nobody."""

import pytest

from perdure.core.error import AuthFailed
from perdure.models.api_key import ApiKey


async def headers_of(key):
    return await key.headers("https://host/v1", b"{}")


async def test_the_first_variable_that_holds_a_key_is_used(monkeypatch):
    monkeypatch.setenv("SECOND_KEY", "two")
    monkeypatch.setenv("EMPTY_KEY", "")
    key = ApiKey(("EMPTY_KEY", "FIRST_KEY", "SECOND_KEY"))
    assert key.variable_name == "SECOND_KEY"
    assert await headers_of(key) == {"authorization": "Bearer two"}
    monkeypatch.setenv("FIRST_KEY", " one\n")
    assert await headers_of(key) == {"authorization": "Bearer one"}


async def test_a_key_that_is_given_wins_over_the_environment(monkeypatch):
    monkeypatch.setenv("A_KEY", "environment")
    key = ApiKey(("A_KEY",), header="x-api-key", given="given")
    assert (key.variable_name, await headers_of(key)) == ("", {"x-api-key": "given"})


async def test_without_a_key_nothing_is_sent():
    key = ApiKey(("NO_SUCH_KEY",))
    assert not key
    assert (key.identity, await headers_of(key), await key.renew()) == ("", {}, False)


def test_a_key_is_named_without_being_given_away(monkeypatch):
    monkeypatch.setenv("A_KEY", "secret-value")
    key, same, other = ApiKey(("A_KEY",)), ApiKey(given="secret-value"), ApiKey(given="another-value")
    assert key.identity == same.identity != other.identity
    assert "secret" not in f"{key!r}{same!r}{key.identity}"
    assert (repr(key), repr(same), repr(ApiKey())) == ("Key(A_KEY)", "Key(given)", "Key(none)")


@pytest.mark.parametrize("value", ["schlüssel", "two\nlines", "a\x00b"])
async def test_what_cannot_be_a_key_is_refused_without_being_shown(value):
    with pytest.raises(AuthFailed, match="the key in api_key has invalid characters") as caught:
        await headers_of(ApiKey(given=value))
    assert value not in str(caught.value)
