"""Broken and hostile configuration files: each is refused with a typed error, which names the line if there is one."""

import contextlib
import copy
import json
import os
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import BadConfig, ConfigError, load_config, load_mcp_servers
from perdure._config.error import ConfigFault
from perdure._config.file import MAX_BYTES, read_json, read_toml

BROKEN = {
    # what is no TOML
    "no value": (b"model = \n", 1, "no TOML"),
    "no equals sign": (b"model = 'demo'\nname\n", 2, "no TOML"),
    "open string": (b"\nmodel = 'demo\nname = 'x'\n", 2, "no TOML"),
    "open multi-line string": (b"instructions = '''\nmore\n", 2, "no TOML"),
    "open table": (b"[limits\nmax_turns = 1\n", 1, "no TOML"),
    "open array": (b"tools = ['a:b',\n", 1, "no TOML"),
    "two on a line": (b"name = 'a' model = 'b'\n", 1, "no TOML"),
    "bad escape": (b"model = 'x'\nname = \"\\q\"\n", 2, "no TOML"),
    "bad escape in a key": (b'"\\q" = 1\n', 1, "no TOML"),
    "lone surrogate": (b'name = "\\ud800"\n', 1, "no TOML"),
    "key twice": (b"model = 'a'\nname = 'b'\nmodel = 'c'\n", 3, "overwrite"),
    "table twice": (b"[limits]\n[settings]\n[limits]\n", 3, "declare"),
    "table over a value": (b"limits = 1\n[limits]\n", 2, "overwrite"),
    "yaml": (b"model: demo\n", 1, "no TOML"),
    "json": (b'{"model": "demo"}\n', 1, "no TOML"),
    "octal": (b"limits.max_turns = 0o8\n", 1, "no TOML"),
    "impossible date": (b"\nwhen = 2020-13-45\n", 2, ""),
    "carriage return alone": (b"model = 'demo'\rname = 'x'\n", 1, "no TOML"),
    "control character": (b"model = 'demo'\nname = 'x\x07'\n", 2, "no TOML"),
    # bytes
    "NUL": (b"model = 'demo'\nname = 'a\0b'\n", 2, "no TOML"),
    "escaped NUL": (b'model = "demo"\nname = "a\\u0000b"\n', 2, "cannot be stored"),
    "NUL in a key": (b'settings.extra_body = {"a\\u0000" = 1}\n', 1, "cannot be stored"),
    "invalid UTF-8": (b"model = 'demo'\n\nname = 'caf\xe9'\n", 3, "UTF-8"),
    "UTF-16": ("model = 'demo'".encode("utf-16"), 1, "UTF-8"),
    "two byte order marks": (b"\xef\xbb\xbf\xef\xbb\xbfmodel = 'demo'\n", 1, "no TOML"),
    "CRLF before a fault": (b"model = 'demo'\r\n\r\nnmae = 'x'\r\n", 3, "did you mean 'name'"),
    # too much
    "deep array": (b"model = 'x'\ntools = " + b"[" * 50_000, 0, "nested too deep"),
    "deep inline tables": (b"tools = " + b"{a=" * 50_000, 0, "nested too deep"),
    "deep dotted key": (b"\n\n" + b"a." * 100_000 + b"b = 1", 3, "nested deeper"),
    "deep header": (b"[" + b"a." * 100_000 + b"b]", 1, "nested deeper"),
    "many keys": (b"".join(b"k%d=1\n" % number for number in range(20_000)), 0, "more than 10,000 values"),
    "number of many digits": (b"model = 'x'\nlimits.max_turns = " + b"9" * 200_000, 2, "too large"),
    "number of 300 digits": (b"limits.max_turns = " + b"9" * 300, 1, "too large"),
    "number of 65 bits": (b"limits.max_turns = 18446744073709551616", 1, "too large"),
    "not a number": (b"\n[settings]\ntemperature = nan\n", 3, "finite"),
    "endless number": (b"limits.timeout_seconds = inf", 1, "finite"),
    "date": (b"\nname = 2020-01-01\n", 2, "put it in quotes"),
    "25 levels": (b"tools = " + b"[" * 24 + b"]" * 24, 0, "nested deeper than 24 levels"),
    "quoted keys that are deep": (b"x = 1\n" + b'"\\"." . ' * 100_000 + b"b = 1", 2, "nested deeper than 24 levels"),
    # what does not fit
    "unknown key": (b"model = 'demo'\nmodle = 'x'\n", 2, "did you mean 'model'"),
    "unknown table": (b"model = 'demo'\n\n[limit]\nmax_turns = 1\n", 3, "did you mean 'limits'"),
    "unknown key in a table": (
        b"[limits]\n\nmax_truns = 5\n",
        3,
        "limits: unexpected 'max_truns'; did you mean 'max_turns'",
    ),
    "unknown key in a rule": (b"[permissions]\nallow = [\n  'a',\n  { tol = 'b' },\n]\n", 4, "did you mean 'tool'"),
    "unknown key of a server": (b"[mcp.servers.a]\ncommand = 'x'\nomand = 'y'\n", 3, "did you mean 'command'"),
    "unknown key of code": (b'"__class__" = "x"\n', 1, "unexpected '__class__'"),
    "text for a number": (b"[limits]\nmax_turns = '5'\n", 2, "limits.max_turns: expected an integer, got '5'"),
    "number for text": (b"\nmodel = 5\n", 2, "model: expected a string, got 5"),
    "table for text": (b"[model]\nname = 'x'\n", 1, "model: expected a string"),
    "text for a table": (b"limits = 'none'\n", 1, "limits: expected an object"),
    "array of tables for a table": (b"[[limits]]\nmax_turns = 1\n", 1, "limits: expected an object"),
    "text for a list": (b"tools = 'a:b'\n", 1, "tools: expected an array"),
    "number in a list": (b"tools = [\n 'a:b',\n 7,\n]\n", 3, "tools[1]: expected a string"),
    "true for a number": (b"limits.max_turns = true\n", 1, "expected an integer"),
    "none of the words": (b"[permissions]\notherwise = 'ask'\n", 2, "expected one of 'deny', 'later'"),
    "skills by name": (b"skills = 'review'\n", 1, "skills: expected a boolean or an array"),
    "prompts without default": (b"\n[prompts]\ndirectory = '.'\n", 2, "prompts.default: missing"),
    # what cannot work
    "zero turns": (b"model = 'demo'\n[limits]\nmax_turns = 0\n", 3, "above zero"),
    "negative temperature": (b"[settings]\n\ntemperature = -1\n", 3, "from 0"),
    "unknown effort": (b"[settings]\nreasoning_effort = 'most'\n", 2, "expected one of"),
    "empty name": (b"\nname = ' '\n", 2, "needs a name"),
    "two instructions": (b"instructions = 'a'\ninstructions_file = 'b'\n", 2, "keep one"),
    "no colon in a tool": (b"tools = [\n'package.module',\n]\n", 2, "'package.module' is no place"),
    "tool from a path": (b'tools = ["../x.sh:tool"]\n', 1, "is no place to import from"),
    "tool with a call": (b"tools = ['os:system(\"x\")']\n", 1, "package.module:name"),
    "rule of another form": (b"[permissions]\ndeny = ['Bash(git:*)']\n", 2, "target ="),
    "rule with a blank": (b"[permissions]\ndeny = ['rm -rf']\n", 2, "can match no name"),
    "empty rule": (b"[permissions]\nask = ['']\n", 2, "1 to 1000"),
    "open bracket in a rule": (
        b"[permissions]\ndeny = [\n{ target = 'x[a' }]\n",
        3,
        "the pattern 'x[a' has a '[' that is not closed",
    ),
    "bracket that closes nothing": (b"[permissions]\ndeny = [{ target = 'x[]' }]\n", 2, "not closed"),
    "no bracket after not": (b"[permissions]\ndeny = [{ target = 'x[!]' }]\n", 2, "not closed"),
    "long rule": (b"[permissions]\ndeny = [{ target = '" + b"*" * 2000 + b"' }]\n", 2, "1 to 1000"),
    "question that never opens": (b"[permissions]\nexpires_seconds = 0\n", 2, "above zero"),
    "address without a scheme": (b"model = 'demo'\nbase_url = 'host/v1'\n", 2, "is no address"),
    "address with a password": (b"model = 'demo'\nbase_url = 'https://a:b@host'\n", 2, "is no address"),
    "address without a model": (b"base_url = 'https://host'\n", 1, "no 'model'"),
    "compaction above the window": (
        b"model = 'demo'\n[compaction]\nat_fraction = 2.0\n",
        2,
        "Compaction(at_fraction=2.0)",
    ),
    # what names something that is not there
    "missing instructions": (b"\ninstructions_file = 'missing.md'\n", 2, "cannot be read"),
    "instructions that are a folder": (b"instructions_file = '.'\n", 1, "is a folder"),
    "missing prompts": (b"[prompts]\ndirectory = 'missing'\ndefault = 'v1'\n", 1, "cannot be read"),
    "missing folder": (b"\nworkdir = 'missing'\n", 2, "there is no folder"),
    "unknown role": (b"\nrole = 'reviewer'\n", 2, "there is no role 'reviewer'"),
    "missing servers": (b"[mcp]\nfiles = ['missing.json']\n", 0, "cannot be read"),
    "server without a command": (b"\n[mcp.servers.a]\nargs = ['x']\n", 2, "neither a 'command' nor a 'url'"),
    "server with both": (b"[mcp.servers.a]\ncommand = 'x'\nurl = 'https://x'\n", 1, "both"),
    "server with a shell's name": (b"[mcp.servers.'a b']\ncommand = 'x'\n", 1, "letters, digits"),
    "server over a file": (b"[mcp.servers.a]\nurl = 'file:///etc/passwd'\n", 1, "https://"),
    "server with a missing variable": (
        b"[mcp.servers.a]\ncommand = 'x'\n\nenv = { TOKEN = '${NO_SUCH_TOKEN}' }\n",
        4,
        "the variable NO_SUCH_TOKEN is not set",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_refused_with_its_line(case, tmp_path):
    data, line, words = BROKEN[case]
    (tmp_path / "perdure.toml").write_bytes(data)
    with pytest.raises(BadConfig) as caught:
        load_config(tmp_path / "perdure.toml", trusted=True).mcp_servers({})
    fault = caught.value.faults[0]
    assert (fault.line, words in fault.message) == (line, True), str(caught.value)
    assert "perdure.toml" in str(caught.value) or "missing.json" in str(caught.value)
    assert f":{line}: " in str(caught.value) or line == 0


@pytest.mark.parametrize("trusted", [True, False])
def test_instructions_may_be_as_long_as_the_limit_and_no_longer(tmp_path, trusted):
    config, instructions = tmp_path / "perdure.toml", tmp_path / "long.md"
    config.write_bytes(b"instructions_file = 'long.md'\n")
    instructions.write_bytes(b"x" * MAX_BYTES)
    assert len(load_config(config, trusted=trusted).instructions) == MAX_BYTES
    instructions.write_bytes(b"x" * (MAX_BYTES + 1))
    with pytest.raises(BadConfig, match=r"long\.md' has 1,048,577 bytes, and the limit is 1,048,576: make it shorter"):
        load_config(config, trusted=trusted)


def test_the_corpus_is_large_enough():
    assert len(BROKEN) + len(BROKEN_SERVERS) >= 60


def test_everything_that_is_wrong_is_told_at_once(tmp_path):
    (tmp_path / "perdure.toml").write_bytes(b"modle = 'x'\n\ntools = 7\n[limits]\nmax_turns = 'x'\n")
    with pytest.raises(BadConfig) as caught:
        load_config(tmp_path / "perdure.toml")
    assert [fault.line for fault in caught.value.faults] == [1, 3, 5]
    assert len(str(caught.value).splitlines()) == 3


def test_of_very_many_faults_some_are_told(tmp_path):
    (tmp_path / "perdure.toml").write_bytes(b"".join(b"k%d = 1\n" % number for number in range(9_000)))
    with pytest.raises(BadConfig) as caught:
        load_config(tmp_path / "perdure.toml")
    assert len(caught.value.faults) == 50


@pytest.mark.parametrize("read", [load_config, load_mcp_servers])
def test_what_is_no_file_of_text_is_refused_without_waiting(read, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "nowhere").symlink_to("missing")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(50 * 1024 * 1024)
    for name in ("pipe", "folder", "endless", "nowhere", "large", "missing", "x" * 300, "a\0b"):
        with pytest.raises(BadConfig):
            read(tmp_path / name)


@pytest.mark.parametrize("path", [7, None, "", b"perdure.toml"])
def test_what_is_no_path_is_refused(path):
    for read in (load_config, load_mcp_servers):
        with pytest.raises(ConfigError, match="is no path of a file"):
            read(path)


def test_a_file_with_a_byte_order_mark_and_windows_line_ends_is_read(tmp_path):
    (tmp_path / "perdure.toml").write_bytes(b"\xef\xbb\xbfname = 'demo'\r\ninstructions = '''\r\none\r\n'''\r\n")
    assert load_config(tmp_path / "perdure.toml").instructions == "one\n"


def test_the_error_can_be_copied_and_sent_to_another_process(tmp_path):
    (tmp_path / "perdure.toml").write_bytes(b"modle = 'x'\n")
    with pytest.raises(BadConfig) as caught:
        load_config(tmp_path / "perdure.toml")
    for again in (copy.copy(caught.value), pickle.loads(pickle.dumps(caught.value))):
        assert (again.path, again.faults, str(again)) == (caught.value.path, caught.value.faults, str(caught.value))


# -- .mcp.json ---------------------------------------------------------------------------------------------------------


def servers(**each) -> bytes:
    return json.dumps({"mcpServers": each}, indent=1).encode()


BROKEN_SERVERS = {
    "empty": (b"", 1, "no JSON"),
    "cut off": (b'{\n"mcpServers": {', 2, "no JSON"),
    "comment": (b'{\n// servers\n"mcpServers": {}}', 2, "no JSON"),
    "trailing comma": (b'{\n"mcpServers": {},}', 2, "no JSON"),
    "array": (b"[]", 1, "one JSON object"),
    "text": (b'"x"', 1, "one JSON object"),
    "another key": (b'{\n"servers": {}}', 1, "mcpServers"),
    "a list of servers": (b'{\n"mcpServers": []}', 2, "by name"),
    "key twice": (b'{"mcpServers": {"a": {"command": "ls"},\n"a": {"command": "rm"}}}', 2, "twice"),
    "command twice": (b'{"mcpServers": {"a": {"command": "ls",\n"command": "rm"}}}', 2, "twice"),
    "deep": (b'{"mcpServers": ' + b'{"a":' * 50_000, 0, "nested too deep"),
    "deep array": (b"[" * 50_000, 0, "nested too deep"),
    "NaN": (b'{"mcpServers": {},\n"x": NaN}', 2, "NaN"),
    "many digits": (b'{"mcpServers": {},\n"x": ' + b"9" * 10_000 + b"}", 2, "too large"),
    "lone surrogate": (b'{"mcpServers": {"a": {"command":\n"\\ud800"}}}', 1, "cannot be stored"),
    "NUL": (servers(a={"command": "a\0b"}), 4, "cannot be stored"),
    "invalid UTF-8": (b'{\n"\xff": 1}', 2, "UTF-8"),
    "server that is text": (servers(a="npx"), 3, "is no object"),
    "arguments that are text": (servers(a={"command": "x", "args": "y"}), 5, "expected an array"),
    "a number in the arguments": (servers(a={"command": "x", "args": ["y", 1]}), 5, "expected a string"),
    "environment that is a list": (servers(a={"command": "x", "env": []}), 5, "expected an object"),
    "unknown type": (servers(a={"type": "carrier-pigeon", "url": "https://x"}), 4, "invalid enum value"),
    "nothing to start": (servers(a={}), 3, "neither"),
    "both": (servers(a={"command": "x", "url": "https://x"}), 3, "both"),
    "empty command": (servers(a={"command": " "}), 3, "give non-empty text"),
    "empty name": (servers(**{"": {"command": "x"}}), 3, "letters, digits"),
    "name with a path": (servers(**{"../a": {"command": "x"}}), 3, "letters, digits"),
    "http with arguments": (servers(a={"url": "https://x", "args": ["y"]}), 3, "leave it out"),
    "stdio with headers": (servers(a={"command": "x", "headers": {"A": "b"}}), 3, "leave it out"),
    "stdio with an address": (servers(a={"type": "stdio", "url": "https://x"}), 3, "give non-empty text"),
    "javascript": (servers(a={"url": "javascript:alert(1)"}), 3, "https://"),
    "password in the address": (servers(a={"url": "https://me:secret@host/"}), 3, "into a header"),
    "header with a line break": (servers(a={"url": "https://x", "headers": {"A": "b\r\nC: d"}}), 3, "one line"),
    "header with a bad name": (servers(a={"url": "https://x", "headers": {"A B": "c"}}), 3, "cannot be used"),
    "variable with a bad name": (servers(a={"command": "x", "env": {"A=B": "c"}}), 3, "cannot be used"),
    "missing variable": (
        servers(a={"command": "x", "args": ["y", "${NO_SUCH}"]}),
        7,
        "server 'a': the variable NO_SUCH is not set",
    ),
    "missing variable in a header": (servers(a={"url": "https://x", "headers": {"A": "${NO}"}}), 6, "NO is not set"),
    "too many servers": (servers(**{f"s{n}": {"command": "x"} for n in range(200)}), 2, "100 are the most"),
    "expanding for ever": (
        servers(**{f"s{n}": {"command": "x", "args": ["${BIG}" * 100]} for n in range(20)}),
        6,
        "more than 1,048,576 characters",
    ),
}


@pytest.mark.parametrize("case", BROKEN_SERVERS)
def test_a_broken_file_of_servers_is_refused_with_its_line(case, tmp_path):
    data, line, words = BROKEN_SERVERS[case]
    (tmp_path / ".mcp.json").write_bytes(data)
    with pytest.raises(BadConfig) as caught:
        load_mcp_servers(tmp_path / ".mcp.json", environment={"BIG": "x" * 60_000})
    fault = caught.value.faults[0]
    assert words in fault.message, str(caught.value)
    assert case == "expanding for ever" or fault.line == line, str(caught.value)
    assert "secret" not in str(caught.value)


# -- anything at all ---------------------------------------------------------------------------------------------------


@given(st.binary(max_size=80) | st.text(max_size=80).map(lambda text: text.encode("utf-8", "replace")))
def test_no_bytes_cause_any_other_error(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(data)
    for read in (load_config, load_mcp_servers):
        with contextlib.suppress(BadConfig):
            read(path)


WHOLE = b"""\
model = "demo"
tools = ["a.b:c"]
[limits]
max_turns = 5
[permissions]
allow = ["x", { tool = "y" }]
[mcp.servers.s]
command = "x"
"""


def test_a_file_that_is_cut_off_or_changed_at_any_byte_causes_no_other_error(tmp_path):
    path = tmp_path / "perdure.toml"
    for place in range(len(WHOLE)):
        for data in (WHOLE[:place], WHOLE[:place] + b"]" + WHOLE[place + 1 :], WHOLE[:place] + b"\xff" + WHOLE[place:]):
            path.write_bytes(data)
            with contextlib.suppress(BadConfig):
                load_config(path, trusted=True)


@pytest.mark.parametrize("pattern", ["x[a]", "[!a]", "[]]", "[!]]", "[[]", "[ab][c]*"])
def test_a_rule_may_have_sets_of_characters(tmp_path, pattern):
    path = tmp_path / "perdure.toml"
    path.write_text(f"model = 'demo'\n[permissions]\ndeny = [{{ target = '{pattern}' }}]\n")
    load_config(path, trusted=True)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("too many digits"), "a value cannot be read: too many digits"),
        (RecursionError("too deep"), "values are nested too deep to be read here: make it flatter"),
    ],
)
@pytest.mark.parametrize("name", ["perdure.toml", ".mcp.json"])
def test_what_the_parser_itself_cannot_read_is_a_fault_without_a_line(tmp_path, monkeypatch, name, error, message):
    def fail(*_: object, **__: object) -> None:
        raise error

    path = tmp_path / name
    path.write_text('model = "demo"' if name == "perdure.toml" else "{}")
    monkeypatch.setattr("tomllib.loads", fail)
    monkeypatch.setattr("json.loads", fail)
    with pytest.raises(BadConfig) as caught:
        (read_toml if name == "perdure.toml" else read_json)(path)
    assert caught.value.faults == (ConfigFault(0, message),)


@pytest.mark.parametrize("path", ["", 3, None])
def test_a_path_has_to_be_one(path):
    with pytest.raises(ConfigError) as raised:
        read_toml(path)
    assert str(raised.value) == f"{path!r} is no path of a file: name the file to be read"
