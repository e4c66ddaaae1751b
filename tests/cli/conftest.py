"""What the tests of the command line share."""

import asyncio

import click.testing
import pytest

from tests.cli.process import Shell
from tests.cli.stand_ins import HOSTILE
from windlass import Agent, ToolContext, tool
from windlass.cli.main import program
from windlass.testing import ScriptedModel, call


@pytest.fixture
def shell(tmp_path):
    """Runs the command as a process of its own."""
    return Shell(tmp_path)


@pytest.fixture
def windlass(tmp_path, monkeypatch):
    """Runs the command inside this process: `windlass("run", "…").output`."""
    monkeypatch.setenv("WINDLASS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path / "person"))  # where skills and instructions of one's own are
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("WINDLASS_MODEL", "demo")
    monkeypatch.delenv("WINDLASS_DEBUG", raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*arguments, stdin=None) -> click.testing.Result:
        return click.testing.CliRunner().invoke(program, arguments, input=stdin)

    return run


@pytest.fixture
def kept(windlass):
    """Three sessions, the last one first in a list."""
    for name in ("alpha", "beta", "album"):
        assert windlass("run", "-q", "--session", name, f"Calculate 6 * 7 for {name}").exit_code == 0


@pytest.fixture
def ordered(windlass, tmp_path):
    """A session called `bakery`, whose agent waits for something from outside."""

    @tool
    async def order(context: ToolContext[None]) -> str:
        """Order something."""
        return await context.add_to_inbox("delivery", HOSTILE)

    async def run() -> None:
        model = ScriptedModel(call("order"), "Ordered.")
        async with Agent(model, tools=[order], store=f"sqlite:{tmp_path}/home/sessions.db") as agent:
            await agent.session("bakery").run("Order bread.")

    asyncio.run(run())
