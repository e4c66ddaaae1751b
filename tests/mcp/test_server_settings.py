"""A server of the Model Context Protocol, and what it cannot be."""

from typing import Any

import pytest

from perdure import ConfigError
from perdure._mcp.settings import hide_secrets
from perdure.mcp import McpServer


def test_a_server_shows_how_it_is_reached_and_no_secret():
    started = McpServer(name="a", command="npx", args=("s3cret",), env={"TOKEN": "s3cret"})
    reached = McpServer(name="b", transport="http", url="https://host/mcp?key=s3cret", headers={"A": "s3cret"})
    assert repr(started) == "McpServer('a', stdio 'npx')"
    assert repr(reached) == "McpServer('b', http 'https://host/mcp')"


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"name": ""}, "1 to 64 letters"),
        ({"name": 7}, "1 to 64 letters"),
        ({"transport": "pigeon"}, "use 'stdio', 'http', 'sse'"),
        ({"command": ""}, "give non-empty text"),
        ({"command": 7}, "give text"),
        ({"args": "x"}, "a list of texts"),
        ({"args": ("a\0b",)}, "NUL"),
        ({"env": ["A"]}, "by their names"),
        ({"env": {"A": 7}}, "give text"),
        ({"env": {7: "A"}}, "cannot be used"),
        ({"url": "https://x"}, "leave it out"),
    ],
)
def test_what_is_no_server_is_refused(fields, complaint):
    with pytest.raises(ConfigError) as caught:
        McpServer(**{"name": "a", "command": "x", **fields})
    assert complaint in str(caught.value)


HTTP: dict[str, Any] = {"name": "a", "transport": "http", "url": "https://host.example/mcp"}


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"url": ""}, "url='…'): give an address that begins with https:// or http://"),
        ({"url": "ftp://host/x"}, "give an address that begins with https:// or http://"),
        ({"url": "https://"}, "give an address that begins with https:// or http://"),
        ({"url": "https://me:s3cret@host/x"}, "put a password into a header, not into the address"),
        ({"url": 7}, "give text"),
        ({"command": "s3cret"}, "a server with transport 'http' has none: leave it out"),
        ({"args": ("s3cret",)}, "a server with transport 'http' has none: leave it out"),
        ({"env": {"A": "s3cret"}}, "a server with transport 'http' has none: leave it out"),
        ({"cwd": "/s3cret"}, "a server with transport 'http' has none: leave it out"),
        ({"headers": {"A": "s3cret\nB: c"}}, "give text on one line, without NUL"),
        ({"headers": {"A": "s3cret\r"}}, "give text on one line, without NUL"),
        ({"headers": {"A": "s3cret\0"}}, "give text on one line, without NUL"),
        ({"headers": {"A b": "s3cret"}}, "this name cannot be used"),
        ({"headers": "A: s3cret"}, "give texts by their names"),
        ({"permission": "s3cret"}, "permission"),
        ({"trust_hints": 1}, "trust_hints"),
        ({"resources": None}, "resources"),
        ({"include": "get_*"}, "give a list of patterns"),
        ({"exclude": (7,)}, "give a list of patterns"),
        ({"effects": ["read"]}, "give effects by the names of tools"),
        ({"effects": {"t": "maybe"}}, "effects['t']"),
        ({"start_timeout_seconds": "1"}, "start_timeout_seconds"),
        ({"call_timeout_seconds": -1}, "call_timeout_seconds"),
        ({"idle_seconds": None}, "idle_seconds"),
    ],
)
def test_a_server_with_an_address_has_an_address_and_no_secret_is_shown(fields, complaint):
    with pytest.raises(ConfigError) as caught:
        McpServer(**{**HTTP, **fields})
    assert complaint in str(caught.value)
    assert fields.get("permission") == "s3cret" or "s3cret" not in str(caught.value)


def test_a_server_may_be_anything_else():
    far = McpServer(**HTTP, headers={"Authorization": "Bearer x\ty"}, include=("get_*",), effects={"t": "read"})
    assert (far.url, far.headers) == ("https://host.example/mcp", {"Authorization": "Bearer x\ty"})
    assert McpServer(name="a" * 64, transport="sse", url="http://[::1]:80/a?b=c@d").transport == "sse"
    near = McpServer(name="a.b_c-9", command="x", args=("", "two\nlines"), env={"A_B": "two\nlines"}, cwd="/w")
    assert (near.args, near.env) == (("", "two\nlines"), {"A_B": "two\nlines"})
    with pytest.raises(ConfigError, match="1 to 64 letters"):
        McpServer(name="a" * 65, command="x")
    unused: list[dict[str, Any]] = [{"url": "https://x"}, {"headers": {"A": "b"}}]
    for each in unused:
        with pytest.raises(ConfigError, match="a server with transport 'stdio' has none: leave it out"):
            McpServer(name="a", command="x", **each)


def test_secrets_are_hidden_the_longest_first_and_also_without_their_scheme():
    text = "Bearer hunter2hunter2 hunter2hunter2 hunter2h short"
    values = ["hunter2h", "Bearer hunter2hunter2", "short"]
    assert hide_secrets(text, values) == "[hidden] [hidden] [hidden] short"
    assert hide_secrets("1234567 12345678", ["1234567"]) == "1234567 12345678"
    assert hide_secrets("1234567 12345678", ["12345678"]) == "1234567 [hidden]"
