"""Whatever is kept in a session, no command lets it act on the terminal."""

import asyncio
import json
import unicodedata

import pytest

from perdure import Agent, ToolContext, tool
from perdure.testing import ScriptedModel, call
from tests.cli.stand_ins import HOSTILE

NAME = f"id{HOSTILE.strip()}\n\x1b[2Kfake"
OBEYED = {"Cc", "Cf", "Cs", "Zl", "Zp"}
COMMANDS = [
    ["sessions", "list"],
    ["sessions", "show", NAME],
    ["sessions", "tree"],
    ["sessions", "tree", NAME],
    ["sessions", "du"],
    ["sessions", "fork", NAME, NAME + "2"],
    ["sessions", "rename", NAME, HOSTILE],
    ["sessions", "export", NAME],
    ["sessions", "export", NAME, "-o", "a\x1b[2Jb"],
    ["sessions", "prune", "--keep", "0", "--waiting-too", "--dry-run"],
    ["sessions", "prune", "--keep", "0", "--waiting-too", "--yes"],
    ["sessions", "rm", NAME, "--yes"],
    ["inbox", NAME],
    ["steer", NAME, HOSTILE],
    ["cancel", NAME],
    ["answer", NAME, HOSTILE],
    ["resolve", NAME, HOSTILE, HOSTILE],
    ["backup", "a\x1b[2Jb"],
    ["restore", "a\x1b[2Jb"],
]


@pytest.fixture
def hostile(perdure, tmp_path):
    """A session in which everything is hostile: its name, what is said in it, and what it waits for."""

    @tool
    async def order(what: str, context: ToolContext[None]) -> str:
        """Order something."""
        await context.add_to_inbox(f"tag{HOSTILE}", what)
        return HOSTILE

    async def run() -> None:
        model = ScriptedModel(call("order", what=HOSTILE), HOSTILE)
        async with Agent(model, tools=[order], store=f"sqlite:{tmp_path}/home/sessions.db") as agent:
            await agent.session("plain").run(HOSTILE)
            log = await agent.store.read("plain")  # such a name is refused, and may be in a file of somebody else
            lease = await agent.store.acquire(NAME)
            await agent.store.append(lease, log, sync=True)
            await agent.store.release(lease)
            await agent.store.delete("plain")

    asyncio.run(run())


@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]).encode("unicode_escape"))
def test_nothing_that_a_terminal_obeys_is_written(perdure, command):
    result = perdure(*command)
    assert result.exit_code in {0, 1, 2, 74}
    written = result.stdout + result.stderr
    assert written
    assert {character for character in written if unicodedata.category(character) in OBEYED} <= {"\n"}
    assert not [line for line in written.splitlines() if line.startswith("fake")]


@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize(
    "command",
    [
        *[["sessions", name, "--json"] for name in ("list", "tree", "du")],
        *[["sessions", name, NAME, "--json"] for name in ("show", "fork", "tree")],
        ["sessions", "rename", NAME, HOSTILE, "--json"],
        ["sessions", "rm", NAME, "--yes", "--json"],
        ["sessions", "prune", "--keep", "0", "--waiting-too", "--yes", "--json"],
        ["inbox", NAME, "--json"],
        ["steer", NAME, HOSTILE, "--json"],
        ["cancel", NAME, "--json"],
        ["backup", "a\x1b[2Jb", "--json"],
    ],
    ids=lambda command: " ".join(command[:2]).encode("unicode_escape"),
)
def test_every_line_for_programs_is_json_in_ascii(perdure, command):
    lines = perdure(*command).stdout.splitlines()
    assert lines
    for line in lines:
        assert line.isascii()
        assert line.isprintable()
        json.loads(line)
