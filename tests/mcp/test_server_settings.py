"""A server of the Model Context Protocol, and what it cannot be."""

import pytest

from perdure.core.error import ConfigError
from perdure.mcp.server_settings import McpServer


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
