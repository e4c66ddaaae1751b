"""Runs that a Python program began: the command line does not continue them with an agent of its own."""

import asyncio

import pytest

from perdure import Agent, Permissions, tool, user
from perdure._core.values import faults
from perdure.events import (
    Event,
    MessageAdded,
    ModelRequested,
    RunEnded,
    RunStarted,
    SessionConfigured,
    ToolFinished,
    ToolStarted,
)
from perdure.permissions import later
from perdure.stores import open_store
from perdure.testing import ScriptedModel, call
from perdure.tools import basic_tools
from tests.doubles import crashed

paid: list[str] = []


@tool(permission=True)
async def refund(order: str) -> str:
    """Refund an order."""
    paid.append(order)
    return "refunded"


@tool(effect="read")
async def look() -> str:
    """Look around."""
    return "a harbour"


def build_agent(store: str, name: str = "agent", **options) -> Agent[None]:
    model = ScriptedModel(
        lambda request: "It is done." if request.messages[-1].tool_results else call("refund", order="o7"),
        repeat_last=True,
    )
    return Agent(model, name=name, tools=[refund], permission=Permissions(handler=later), store=store, **options)


def cut_off(tmp_path, last: type[Event], *more: Event) -> None:
    """Store a run of a program in session `c`, as if its process had died after an event."""

    async def store_events() -> None:
        outcome = await Agent(ScriptedModel(call("look"), "Looked."), tools=[look]).session().run("Look.")
        events = [each.event for each in outcome.entries]
        end = next(index for index, event in enumerate(events) if isinstance(event, last)) + 1
        store = open_store(f"sqlite:{tmp_path}/shop.db")
        await crashed(store, "c", *events[:end], *more)
        await store.aclose()

    asyncio.run(store_events())


@pytest.fixture
def program(tmp_path):
    """Runs a step of a program: `program("ask")` asks for permission, `program("resume")` continues the run."""
    paid.clear()

    async def run(step: str, name: str) -> str:
        async with build_agent(f"sqlite:{tmp_path}/shop.db", name) as agent:
            session = agent.session("c")
            outcome = await (session.run("Refund o7.") if step == "ask" else session.resume())
            return outcome.status

    return lambda step, name="agent": asyncio.run(run(step, name))


@pytest.fixture
def shop(perdure, tmp_path):
    """Runs a command with the store of the program."""
    return lambda *arguments: perdure(*arguments, "--store", f"sqlite:{tmp_path}/shop.db")


def test_the_approved_call_of_a_program_is_left_to_the_program(shop, program):
    assert program("ask") == "waiting"
    assert shop("answer", "c", "yes").exit_code == 0
    result = shop("resume", "c")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "error: session 'c': its run was begun by another program than perdure run; continue it in the program that "
        "began it, with session.resume() or agent.attend_all()\n"
    )
    assert program("resume") == "done"
    assert paid == ["o7"]


def test_a_run_of_an_agent_of_another_name_is_left_to_it(shop, program):
    assert program("ask", "support") == "waiting"
    shop("answer", "c", "yes")
    for arguments in (("resume", "c"), ("run", "--session", "c", "--resume", "And now?")):
        result = shop(*arguments)
        assert result.exit_code == 2
        assert "its run belongs to agent 'support', and this is agent 'agent'; continue it in the" in result.stderr
    assert program("resume", "support") == "done"
    assert paid == ["o7"]


@pytest.mark.parametrize("last", [MessageAdded, ModelRequested, ToolStarted, ToolFinished])
def test_a_run_of_a_program_is_left_to_it_wherever_it_was_cut_off(shop, tmp_path, last):
    cut_off(tmp_path, last)
    log = shop("sessions", "show", "c", "--json").stdout
    for arguments in (("resume", "c"), ("resume", "c", "--unpark"), ("run", "-s", "c", "--resume", "And now?")):
        result = shop(*arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "its run was begun by another program than perdure run; continue it in the program " in result.stderr
    assert shop("attend", "--once").stderr == ""
    assert shop("sessions", "show", "c", "--json").stdout == log


def test_a_parked_run_of_a_program_is_unparked_there(shop, tmp_path):
    cut_off(tmp_path, ToolFinished, RunEnded("parked", "crash_loop"))
    told = "continue it in the program that began it, with session.resume(unpark=True)\n"
    assert shop("sessions", "show", "c").stderr == f"the last run was parked; {told}"
    for arguments in (("resume", "c"), ("resume", "c", "--unpark")):
        result = shop(*arguments)
        assert result.exit_code == 2
        assert result.stderr.endswith(f"its run was begun by another program than perdure run; {told}")


def test_a_parked_run_of_the_command_line_is_unparked_with_an_option(perdure, tmp_path):
    perdure("run", "-q", "--later", "-s", "s", 'Write "hello" to the text file hello.txt')

    async def park() -> None:
        store = open_store(f"sqlite:{tmp_path}/home/sessions.db")
        await crashed(store, "s", RunEnded("parked", "crash_loop"))
        await store.aclose()

    asyncio.run(park())
    assert perdure("sessions", "show", "s").stderr == (
        "the last run was parked; finish it with: perdure resume s --unpark\n"
    )
    result = perdure("resume", "s")
    told = "error: session 's': its last run was parked; continue it with: perdure resume s --unpark\n"
    assert (result.exit_code, result.stderr) == (2, told)
    assert perdure("resume", "s", "--unpark").exit_code == 0


def test_a_message_to_a_session_of_a_program_is_left_to_the_program(shop, tmp_path):
    async def run_and_post() -> None:
        async with Agent(ScriptedModel("Hello."), store=f"sqlite:{tmp_path}/shop.db") as agent:
            await agent.session("c").run("Hi.")
            await agent.session("c").follow_up("Are you there?")
            await agent.session("new").follow_up("Is this new?")

    asyncio.run(run_and_post())
    assert shop("attend", "--once").stderr == ""


def test_a_message_to_a_session_of_the_command_line_is_answered_also_after_a_crash(shell, tmp_path):
    shell.run("run", "-q", "-s", "s", "Calculate 6 * 7")

    async def post() -> None:
        async with Agent("demo", store=f"sqlite:{shell.home}/sessions.db") as agent:
            await agent.session("s").follow_up("Calculate 2 ** 10")

    asyncio.run(post())
    shell.run("attend", "--once", environment={faults.FAULTS_VARIABLE: "loop.intent_stored=kill"})
    assert "finish it with: perdure resume s\n" in shell.run("sessions", "show", "s").stderr
    assert shell.run("attend", "--once").stderr == "session s: done\n"
    assert "says: 1024" in shell.run("sessions", "show", "s").stdout


def test_a_background_agent_of_the_command_line_is_continued_by_a_worker(shop, tmp_path):
    shop("run", "-q", "-s", "s", "Calculate 6 * 7")

    async def leave_task() -> None:
        store = open_store(f"sqlite:{tmp_path}/shop.db")
        await crashed(store, "s/a-1", SessionConfigured({"given_by": "s"}), RunStarted("a"), MessageAdded(user("Go.")))
        await crashed(store, "s/a-1/b-1", SessionConfigured({"given_by": "s/a-1"}), RunStarted("b"))
        await store.aclose()

    asyncio.run(leave_task())
    for name in ("s/a-1", "s/a-1/b-1"):
        assert shop("sessions", "show", name).stderr == (
            "the last run was cut off; continue session 's', which continues its background agents, with: perdure "
            f"attend --once --prefix s --store sqlite:{tmp_path}/shop.db\n"
        )


def test_a_run_that_was_begun_with_another_configuration_needs_it_again(perdure, tmp_path):
    (tmp_path / "perdure.toml").write_text('name = "clerk"\n', encoding="utf-8")
    perdure("run", "-q", "--later", "-s", "s", 'Write "hello" to the text file hello.txt')
    result = perdure("resume", "s", "--no-config")
    assert result.exit_code == 2
    assert "its run belongs to agent 'clerk', and this is agent 'agent'; continue it with the options " in result.stderr


def test_a_worker_of_the_command_line_leaves_the_calls_of_a_program_alone(shop, program):
    program("ask")
    shop("answer", "c", "yes")
    result = shop("attend", "--once")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert program("resume") == "done"
    assert paid == ["o7"]


@pytest.mark.parametrize("name", ["agent", "support"])
def test_the_hint_after_an_answer_names_the_program_that_can_continue(shop, program, name):
    program("ask", name)
    told = "continue it in the program that began it, with session.resume() or agent.attend_all()\n"
    assert shop("answer", "c", "yes").stderr.endswith(f" is answered; if no process runs it, {told}")
    assert shop("sessions", "show", "c").stderr == f"the last run can continue; {told}"


def test_the_hint_after_an_answer_names_the_store_that_was_named(shop, tmp_path):
    asked = shop("run", "-q", "--later", "--session", "s", 'Write "hello" to the text file hello.txt')
    assert asked.stderr.endswith(f" --store sqlite:{tmp_path}/shop.db yes|no\n")
    command = f"finish it with: perdure resume s --store sqlite:{tmp_path}/shop.db\n"
    assert shop("answer", "s", "yes").stderr.endswith(f"if no process runs it, {command}")
    assert shop("sessions", "show", "s").stderr == f"the last run can continue; {command}"
    assert shop("resume", "s").exit_code == 0


def test_a_run_whose_approved_call_is_of_a_tool_that_is_gone_is_not_continued(perdure, monkeypatch):
    perdure("run", "-q", "--later", "-s", "s", 'Write "hello" to the text file hello.txt')
    kept = [each for each in basic_tools() if each.name == "now"]
    monkeypatch.setattr("perdure._cli.run.assembly.basic_tools", lambda *_, **__: kept)
    result = perdure("resume", "s")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "error: session 's': its run calls 'write_text', which this agent does not have; continue it with the options "
        "and the configuration that it was begun with\n"
    )
