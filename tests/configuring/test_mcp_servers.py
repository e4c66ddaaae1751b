"""Servers out of `.mcp.json`."""

import json

import pytest

from perdure import BadConfig, load_mcp_servers
from perdure._config.mcp_servers import MAX_SERVERS, read_unexpanded_servers
from perdure.mcp import McpServer


@pytest.fixture
def write(tmp_path):
    def written(**servers):
        path = tmp_path / ".mcp.json"
        path.write_text(json.dumps({"mcpServers": servers, "inputs": [1]}), encoding="utf-8")
        return path

    return written


def test_both_kinds_of_server_are_read_with_their_variables_expanded(write):
    path = write(
        files={"command": "npx", "args": ["-y", "files-mcp", "${FOLDER:-.}"], "env": {"TOKEN": "${TOKEN}"}, "cwd": "x"},
        weather={"type": "http", "url": "https://${HOST}/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
    )
    assert load_mcp_servers(path, environment={"TOKEN": "s3cret", "HOST": "example.org"}) == [
        McpServer(name="files", command="npx", args=("-y", "files-mcp", "."), env={"TOKEN": "s3cret"}, cwd="x"),
        McpServer(
            name="weather",
            transport="http",
            url="https://example.org/mcp",
            headers={"Authorization": "Bearer s3cret"},
        ),
    ]


@pytest.mark.parametrize(
    ("server", "transport"),
    [
        ({"command": "x"}, "stdio"),
        ({"command": "x", "type": "stdio"}, "stdio"),
        ({"url": "https://x"}, "http"),
        ({"url": "https://x", "type": "streamable-http"}, "http"),
        ({"url": "https://x", "type": "sse"}, "sse"),
    ],
)
def test_how_one_speaks_with_a_server_is_said_or_seen(write, server, transport):
    (found,) = load_mcp_servers(write(a=server))
    assert found.transport == transport


def test_keys_of_other_programs_are_passed_over_and_what_is_disabled_is_left_out(write):
    path = write(a={"command": "x", "autoApprove": ["*"], "timeout": 5}, b={"command": "y", "disabled": True})
    assert load_mcp_servers(path) == [McpServer(name="a", command="x")]


def test_there_may_be_exactly_so_many_servers_and_not_one_more(write):
    servers = {f"s{number}": {"command": "x"} for number in range(MAX_SERVERS + 1)}
    with pytest.raises(BadConfig, match=f"there are {MAX_SERVERS + 1} servers, and {MAX_SERVERS} are the most"):
        load_mcp_servers(write(**servers))
    del servers["s0"]
    assert len(load_mcp_servers(write(**servers))) == MAX_SERVERS


def test_the_environment_of_the_process_is_used_by_default(write, monkeypatch):
    monkeypatch.setenv("PERDURE_TEST_TOKEN", "here")
    (server,) = load_mcp_servers(write(a={"command": "x", "env": {"TOKEN": "${PERDURE_TEST_TOKEN}"}}))
    assert server.env == {"TOKEN": "here"}


def test_a_file_that_is_not_trusted_is_refused_and_says_how_to_trust_it(write):
    path = write(a={"command": "x"})
    with pytest.raises(BadConfig) as caught:
        load_mcp_servers(path, trusted=False)
    assert f"perdure trust {path}" in str(caught.value)
    digest = read_unexpanded_servers(path).source.digest
    assert load_mcp_servers(path, trusted=lambda given: given == digest)


def test_what_is_not_expanded_yet_holds_no_secret(write, monkeypatch):
    monkeypatch.setenv("PERDURE_TEST_TOKEN", "s3cret")
    found = read_unexpanded_servers(write(a={"command": "x", "env": {"TOKEN": "${PERDURE_TEST_TOKEN}"}}))
    assert "s3cret" not in repr(found)


def test_no_error_shows_what_a_variable_says(write):
    path = write(
        a={"url": "${SECRET}"},
        b={"url": "https://x", "headers": {"A": "${SECRET}"}},
        c={"command": "${SECRET}"},
        d={"command": "x", "args": ["${SECRET}"], "cwd": "${SECRET}", "url": ""},
        e={"command": "x", "env": {"A": "${SECRET}"}},
    )
    with pytest.raises(BadConfig) as caught:
        load_mcp_servers(path, environment={"SECRET": "hush\r\n\0"})
    assert len(caught.value.faults) == 5
    assert "hush" not in str(caught.value)


def test_every_setting_of_a_server_is_read(write):
    settings = {
        "permission": True, "trust_hints": True, "effects": {"look": "read"}, "include": ["l*"], "exclude": ["x"],
        "resources": True, "start_timeout_seconds": 2.5, "call_timeout_seconds": 3.5, "idle_seconds": 4.5,
    }  # fmt: skip
    (server,) = load_mcp_servers(write(a={"command": "${NAME}", **settings}), environment={"NAME": "x"})
    assert server == McpServer(
        name="a", command="x", permission=True, trust_hints=True, effects={"look": "read"}, include=("l*",),
        exclude=("x",), resources=True, start_timeout_seconds=2.5, call_timeout_seconds=3.5, idle_seconds=4.5,
    )  # fmt: skip


def test_faults_of_several_servers_are_told_with_their_lines(tmp_path):
    path = tmp_path / ".mcp.json"
    path.write_text(
        '{"mcpServers": {\n"a": {"command": "x",\n"args": ["ok", 1]},\n"b": [],\n"c": {\n"env": {"K": 2}}}}\n',
        encoding="utf-8",
    )
    with pytest.raises(BadConfig) as caught:
        load_mcp_servers(path)
    assert [(each.line, each.message) for each in caught.value.faults] == [
        (3, "server 'a': args[1]: expected a string, got an integer"),
        (4, "server 'b' is no object: write { … }"),
        (6, "server 'c': env[...]: expected a string, got an integer"),
    ]


def test_variables_that_are_not_set_are_told_with_their_lines(tmp_path):
    path = tmp_path / ".mcp.json"
    path.write_text(
        '{"mcpServers": {\n"a": {"command": "x",\n"args": ["ok",\n"${ONE}"]},\n"b": {"url":\n"https://x",\n'
        '"headers": {"H":\n"${TWO}"}},\n"c": {}}}\n',
        encoding="utf-8",
    )
    with pytest.raises(BadConfig) as caught:
        load_mcp_servers(path, environment={})
    assert [(each.line, each.message) for each in caught.value.faults] == [
        (4, "server 'a': the variable ONE is not set: set it, or write ${ONE:-default}"),
        (7, "server 'b': the variable TWO is not set: set it, or write ${TWO:-default}"),
        (9, "server 'c': it has neither a 'command' nor a 'url': add one"),
    ]
