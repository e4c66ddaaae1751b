"""Runs that a Python program began: the command line does not continue them with an agent of its own."""

import asyncio

import pytest

from perdure import Agent, Permissions, later, tool
from perdure.testing import ScriptedModel, call

paid: list[str] = []


@tool(permission=True)
async def refund(order: str) -> str:
    """Refund an order."""
    paid.append(order)
    return "refunded"


def build_agent(store: str, name: str = "agent", **options) -> Agent[None]:
    model = ScriptedModel(
        lambda request: "It is done." if request.messages[-1].tool_results else call("refund", order="o7"),
        repeat_last=True,
    )
    return Agent(model, name=name, tools=[refund], permission=Permissions(handler=later), store=store, **options)


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
        "error: session 'c': its run calls 'refund', which this agent does not have; continue it in the program that "
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
