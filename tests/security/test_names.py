"""Names that others chose, wherever the command line prints them: one line each, and nothing that a terminal obeys."""

import json
import unicodedata

import pytest

from tests.security.emulator import draw_rows

OBEYED = {"Cc", "Cf", "Cs", "Zl", "Zp"}
FAKE = "error: this file is harmless"
NAMES = {
    "many line breaks": "a" + "\n" * 300 + FAKE,
    "carriage return": f"a\r{FAKE}",
    "padding": f"a{' ' * 400}{FAKE}",
    "padding with dots": f"a{'.' * 400}{FAKE}",
    "clear the screen": f"\x1b[2J\x1b[H{FAKE}",
    "bidi": f"a\u202e{FAKE[::-1]}",
    "zero width": "a\u200b\u2060\ufeff",
    "wide": "日" * 200,
    "marks": "a" + "\u0301" * 300,
    "next line": f"a\x85{FAKE}",
    "line separator": f"a\u2028{FAKE}",
    "fake row": '| 2 of 2, "harmless": "reads nothing"',
    "fake row after a break": '\n| 2 of 2, "harmless": "reads nothing"\n| sha256 0000',
    "quotes": '": "reads nothing"',
}


def check_written(text: str) -> None:
    assert {character for character in text if unicodedata.category(character) in OBEYED} <= {"\n"}
    assert not [line for line in text.splitlines() if line.startswith(FAKE)]


def write_servers(folder, *names) -> None:
    servers = {name: {"command": "evil", "args": [name]} for name in names}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("command", ["check", "show", "trust"])
def test_the_name_of_a_server_is_one_line(perdure, tmp_path, name, command):
    write_servers(tmp_path, NAMES[name])
    words = ["trust", "--yes"] if command == "trust" else ["config", command]
    result = perdure(*words, ".mcp.json")
    check_written(result.stdout + result.stderr)
    if command == "trust" and result.exit_code == 0:
        rows = result.stdout.splitlines()
        assert all(row.startswith(("| ", ": ", "|+")) for row in rows)
        ours = [row.split(",")[0] for row in rows if row.startswith("| ")]
        assert ours == ["| 1 of 1", ours[1], ours[2]]
        assert ours[1].startswith("| covers: ")


def test_what_is_trusted_cannot_be_scrolled_away(shell):
    write_servers(shell.folder, *[f"server-{number}" for number in range(40)], NAMES["many line breaks"])
    count = len(shell.run("trust", "--yes", ".mcp.json").stdout.splitlines())
    shell.run("trust", "--revoke", ".mcp.json")
    with shell.terminal("trust", ".mcp.json", size=(80, 24)) as terminal:
        for _ in range((count - 1) // 19):  # pages of 19 rows
            terminal.await_text("n: do not trust it: ")
            assert len(draw_rows(terminal.seen, 80)) <= 24
            assert "above?" not in terminal.seen
            terminal.seen = ""
            terminal.type("\n")
        terminal.await_text("with the 41 settings above? [y/N]")
        assert len(draw_rows(terminal.seen, 80)) <= 24
        terminal.type("n\n")
        assert terminal.end() == 1


def test_what_is_trusted_can_be_refused_before_the_end(shell):
    write_servers(shell.folder, *[f"server-{number}" for number in range(40)])
    with shell.terminal("trust", ".mcp.json", size=(80, 24)) as terminal:
        terminal.await_text("n: do not trust it: ")
        terminal.type("n\n")
        assert terminal.end() == 1
    assert "needs to be trusted" in shell.run("config", "check", ".mcp.json").stderr
