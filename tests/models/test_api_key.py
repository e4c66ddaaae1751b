"""A key is read when it is needed, sent in the header of its provider, and shown to nobody."""

import hashlib

import pytest

from perdure import AuthFailed
from perdure._models.endpoint.auth import ApiKey, key_header_for


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


async def test_a_key_may_be_a_function_that_is_asked_each_time():
    tokens = iter(["one", "two"])
    key = ApiKey(("A_KEY",), header="x-api-key", given=lambda: next(tokens))
    assert key
    assert key.identity.startswith("function ")
    assert await key.renew()
    assert [await headers_of(key) for _ in range(2)] == [{"x-api-key": "one"}, {"x-api-key": "two"}]


def test_a_key_is_identified_by_a_part_of_a_hash():
    assert ApiKey(given=" secret ").identity == hashlib.sha256(b"secret").hexdigest()[:16]


async def test_a_key_in_a_variable_that_is_no_key_is_told_with_the_variable(monkeypatch):
    monkeypatch.setenv("A_KEY", "schlüssel")
    with pytest.raises(AuthFailed) as caught:
        await headers_of(ApiKey(("A_KEY",)))
    assert str(caught.value) == "the key in A_KEY has invalid characters: copy it again"


@pytest.mark.parametrize(
    ("wire", "header"),
    [("anthropic", "x-api-key"), ("gemini", "x-goog-api-key"), ("openai_chat", "authorization"), ("", "authorization")],
)
def test_each_wire_has_a_header_for_the_key(wire, header):
    assert key_header_for(wire) == header
