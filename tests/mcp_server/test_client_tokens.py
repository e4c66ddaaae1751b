"""Tokens of clients: which may be used, whose they are, and what happens when one is revoked."""

import pytest

from perdure import ConfigError
from perdure.mcp import ClientTokens

ANN, BOB = "a" * 32, "b" * 32


def test_a_token_says_who_its_client_is_until_it_is_revoked():
    tokens = ClientTokens({"ann": ANN, "bob": BOB})
    assert list(tokens.names) == ["ann", "bob"]
    assert [tokens.find_client(each) for each in (ANN, BOB, ANN + "a", "a" * 31, "", "\ud800")] == [
        "ann",
        "bob",
        None,
        None,
        None,
        None,
    ]
    told: list[str] = []
    tokens.on_revoked(told.append)
    tokens.on_revoked(told.append)
    assert not tokens.revoke("eve")
    assert told == []
    assert tokens.revoke("ann")
    assert not tokens.revoke("ann")
    assert told == ["ann", "ann"]
    assert list(tokens.names) == ["bob"]
    assert [tokens.find_client(each) for each in (ANN, BOB)] == [None, "bob"]
    tokens.add("ann", ANN)
    assert tokens.find_client(ANN) == "ann"


@pytest.mark.parametrize("name", ["", "-a", ".a", "a b", "a\n", "ä", "a" * 65, 3, None])
def test_a_name_that_cannot_be_used_is_refused(name):
    with pytest.raises(ConfigError, match=r"use 1 to 64 letters, digits, '\.', '_' and '-'"):
        ClientTokens({name: ANN})


def test_names_and_tokens_may_have_the_usual_signs():
    names = ["a", "0", "A.b_c-9", "a" * 64]
    tokens = ClientTokens({name: f"{number}._~+/=-" + "x" * 24 for number, name in enumerate(names)})
    assert tokens.names == tuple(names)


@pytest.mark.parametrize("token", ["", "a" * 31, "a" * 32 + " ", "ä" * 40, "a" * 32 + "\n", 3, None])
def test_a_token_that_cannot_be_used_is_refused_and_not_shown(token):
    with pytest.raises(ConfigError) as caught:
        ClientTokens({"ann": token})
    assert str(caught.value) == (
        "the token of 'ann' cannot be used: give 32 or more letters and digits that cannot be guessed, such as "
        "secrets.token_urlsafe(32)"
    )


def test_each_client_has_a_name_and_a_token_of_its_own():
    tokens = ClientTokens({"ann": ANN})
    for name, token in (("ann", BOB), ("bob", ANN)):
        with pytest.raises(ConfigError) as caught:
            tokens.add(name, token)
        assert str(caught.value) == f"the name or the token of {name!r} is there already: each client has its own"
    assert tokens.names == ("ann",)


@pytest.mark.parametrize("tokens", [{}, None, "a" * 32, [("ann", ANN)]])
def test_a_server_needs_tokens(tokens):
    with pytest.raises(ConfigError, match="needs a token for each client, also on this machine"):
        ClientTokens(tokens)
