"""What the tests of the command line share."""

import asyncio

import click.testing
import pytest

from perdure import Agent, ToolContext, tool
from perdure._cli.main import root_command
from perdure.testing import ScriptedModel, call
from scripts.json_outputs import OUTPUTS, list_problems
from tests.cli.process import Shell
from tests.cli.stand_ins import HOSTILE
from tests.cli.warm_process import WarmServer


@pytest.fixture(scope="session")
def warm_server():
    """The process from which commands are forked."""
    server = WarmServer()
    yield server
    server.close()


@pytest.fixture
def shell(tmp_path, warm_server):
    """Runs the command as a process of its own, forked from one that has everything imported."""
    return Shell(tmp_path, warm_server)


@pytest.fixture
def cold_shell(tmp_path):
    """Runs the command as a process of its own, started as users start it."""
    return Shell(tmp_path)


@pytest.fixture
def person(tmp_path):
    """The home of the user: beside the working folder, because no command runs in a folder that contains it."""
    return tmp_path.with_name(f"{tmp_path.name}-person")


@pytest.fixture
def perdure(tmp_path, person, monkeypatch):
    """Runs the command inside this process: `perdure("run", "…").output`."""
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(person))  # where skills and instructions of one's own are
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("PERDURE_MODEL", "demo")
    monkeypatch.delenv("PERDURE_DEBUG", raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*arguments, stdin=None) -> click.testing.Result:
        result = click.testing.CliRunner().invoke(root_command, arguments, input=stdin)
        if "--json" in arguments:  # whatever a test is about, rows are as they are documented
            words = " ".join(arguments[:2]) if " ".join(arguments[:2]) in OUTPUTS else arguments[0]
            assert [*list_problems(words, result.stdout)] == []
        return result

    return run


@pytest.fixture
def kept(perdure):
    """Three sessions, the last one first in a list."""
    for name in ("alpha", "beta", "album"):
        assert perdure("run", "-q", "--session", name, f"Calculate 6 * 7 for {name}").exit_code == 0


@pytest.fixture
def ordered(perdure, tmp_path):
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
