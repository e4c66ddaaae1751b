"""Text of models, servers, files and projects, wherever the command shows it: nothing of it acts on the terminal."""

import json
import sys
import unicodedata
from pathlib import Path

import pytest

from perdure._models import registry
from perdure.testing import ScriptedModel, call

OBEYED = {"Cc", "Cf", "Cs", "Zl", "Zp"}
HOSTILE = (
    "\x1b]0;owned\x07\x1b]52;c;cm0gLXJm\x07\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\"
    "\u202etxt.exe\u2066\u200b\x9b2J\x85\u2028[bold]x[/bold]" + "a" + "\u0301" * 400
)
"""Title, clipboard, link, reading direction, cursor, line ends, markup, and a pile of accents."""


def assert_harmless(text: str) -> None:
    assert {each for each in text if unicodedata.category(each) in OBEYED} <= {"\n", "\t", "\u200d", "\u200c"}
    assert "\u0301" * 10 not in text


@pytest.fixture
def run(perdure, tmp_path, monkeypatch):
    """Runs a command with a model that says and does what it is told."""

    def start(*arguments, script=(), **options):
        model = ScriptedModel(*script, "Done.", repeat_last=True)
        monkeypatch.setitem(registry._factories, "scripted", lambda _: model)
        monkeypatch.setenv("PERDURE_MODEL", "scripted:one")
        return perdure(*arguments, **options)

    return start


CALLS = [
    call("calculate", expression=HOSTILE),
    call(f"no{HOSTILE}", more=HOSTILE),
    call("read", path=HOSTILE),
]


@pytest.mark.parametrize("options", [[], ["--coding"], ["--json"], ["-q"]])
def test_what_a_model_says_and_calls(run, options):
    result = run("run", *options, "Go.", script=[*CALLS, HOSTILE])
    assert result.exit_code == 0, result.output
    assert_harmless(result.stdout + result.stderr)


@pytest.mark.parametrize(
    "command",
    [
        ["sessions", "list"],
        ["sessions", "show", "s"],
        ["sessions", "tree"],
        ["search", "owned"],
        ["trace", "s"],
        ["trace", "s", "--html", "page.html"],
        ["replay", "s"],
        ["permissions", "explain", "read", json.dumps({"path": HOSTILE})],
        ["files", "show", "s"],
        ["questions", "s"],
        ["resume", "s"],
    ],
)
def test_what_is_in_a_session(run, command):
    assert run("run", "-q", "--session", "s", f"Go. {HOSTILE}", script=[*CALLS, HOSTILE]).exit_code == 0
    result = run(*command)
    assert_harmless(result.stdout + result.stderr)


def test_what_is_remembered(run):
    run("memory", "add", HOSTILE)
    for command in (["memory", "list"], ["memory", "search", "owned"], ["memory", "export"]):
        result = run(*command)
        assert_harmless(result.stdout + result.stderr)


PROJECT = {
    ".mcp.json": json.dumps({"mcpServers": {"a": {"command": HOSTILE, "args": [HOSTILE]}, HOSTILE: {"command": "x"}}}),
    "perdure.toml": f"model = {json.dumps(HOSTILE)}\n[{json.dumps(HOSTILE)}]\nx = 1\n",
    "AGENTS.md": HOSTILE,
    "roles/a.md": f"---\ndescription: {json.dumps(HOSTILE)}\nmodel: {json.dumps(HOSTILE)}\n---\nx\n",
    ".agents/skills/tides/SKILL.md": f"---\nname: tides\ndescription: {json.dumps(HOSTILE)}\n---\nx\n",
    ".agents/skills/bad/SKILL.md": f"---\nname: {json.dumps(HOSTILE)}\ndescription: x\n---\nx\n",
    "data.jsonl": json.dumps({"id": HOSTILE, "prompt": HOSTILE, "expected": HOSTILE}) + "\n",
    "case.jsonl": json.dumps({"id": "a", "prompt": HOSTILE, "expected": HOSTILE}) + "\n",
    f"name{HOSTILE[:30].replace('/', '')}.py": "x",
}


@pytest.mark.parametrize(
    "command",
    [
        ["mcp", "list"],
        ["mcp", "tools", "a"],
        ["config", "check"],
        ["config", "show"],
        ["trust", "--yes", ".mcp.json"],
        ["run", "-q", "Go."],
        ["run", "--no-config", "--role", "a", "Go."],
        ["skills", "list"],
        ["skills", "show", "tides"],
        ["skills", "trust", "tides"],
        ["doctor"],
        ["schedule", "list"],
        ["eval", "data.jsonl"],
        ["eval", "case.jsonl"],
        ["memory", "import", "data.jsonl"],
        ["sessions", "import", "data.jsonl"],
        ["restore", "data.jsonl"],
        ["trace", "data.jsonl"],
        ["models", HOSTILE],
        ["probe", HOSTILE, HOSTILE],
    ],
)
@pytest.mark.parametrize("is_configured", [True, False])
def test_what_is_in_a_project(run, tmp_path, command, is_configured):
    for name, text in PROJECT.items():
        if name == "perdure.toml" and not is_configured:
            continue
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    result = run(*command)
    assert result.stdout + result.stderr
    assert_harmless(result.stdout + result.stderr)


SERVER = """
import asyncio, json, sys
HOSTILE = json.loads(sys.argv[1])
for line in sys.stdin:
    asked = json.loads(line)
    method, answer = asked.get("method"), None
    if method == "initialize":
        about = {"name": HOSTILE, "version": HOSTILE}
        answer = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": about, "instructions": HOSTILE}
    elif method == "tools/list":
        schema = {"type": "object", "properties": {HOSTILE: {"type": "string", "description": HOSTILE}}}
        tools = [{"name": "tide", "title": HOSTILE, "description": HOSTILE, "inputSchema": schema},
                 {"name": HOSTILE, "description": "x", "inputSchema": schema}]
        answer = {"tools": tools}
    elif method == "tools/call":
        answer = {"content": [{"type": "text", "text": HOSTILE}], "isError": True}
    elif "id" in asked:
        error = {"code": -32601, "message": HOSTILE}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}), flush=True)
        continue
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer}), flush=True)
print(HOSTILE, file=sys.stderr)
"""


@pytest.mark.packages("mcp")
def test_what_a_server_says(run, tmp_path):
    program = tmp_path / "server.py"
    program.write_text(SERVER)
    (tmp_path / "home").mkdir(exist_ok=True)
    server = {"command": sys.executable, "args": [str(program), json.dumps(HOSTILE)]}
    Path(tmp_path / "home" / "mcp.json").write_text(json.dumps({"mcpServers": {"tides": server}}))
    for command in (
        ["mcp", "tools", "tides"],
        ["mcp", "call", "tides", "tide"],
        ["mcp", "call", "tides", "none"],
        ["mcp", "approve", "tides", "--yes"],
        ["mcp", "list"],
        ["doctor"],
        ["run", "--coding", "Go."],
    ):
        result = run(*command, script=[call("tides__tide", x=HOSTILE)])
        assert_harmless(result.stdout + result.stderr)


@pytest.mark.packages("prompt_toolkit")
def test_what_can_be_completed(tmp_path):
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    from perdure._cli.chat.completion import ChatCompleter

    (tmp_path / "a\u0301\u202eb.py").write_text("x")
    completer = ChatCompleter(
        {"role": "change the role"}, lambda: {f"s{HOSTILE}": HOSTILE}, lambda _: [f"r{HOSTILE}"], str(tmp_path)
    )
    for typed in ("/", "/role r", "@a"):
        for each in completer.get_completions(Document(typed), CompleteEvent()):
            assert_harmless(each.display_text + each.display_meta_text)
