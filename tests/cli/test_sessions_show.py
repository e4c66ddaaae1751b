"""`perdure sessions show`: a conversation as text, and what it waits for."""

import asyncio
import json

import pytest

from perdure import Agent, Permissions, later, tool
from perdure.testing import FakeClock, ScriptedModel, call

WRITE = 'Write "hello" to the text file hello.txt'


@pytest.mark.usefixtures("kept")
def test_a_session_is_shown_as_it_was(perdure):
    assert perdure("sessions", "show", "beta").stdout == (
        "user:\n"
        "  Calculate 6 * 7 for beta\n"
        "assistant (words):\n"
        '  call calculate {"expression":"6 * 7"}\n'
        "  calculate ok: 42\n"
        "assistant (words):\n"
        "  The tool calculate says: 42 (Told by the offline demonstration model.)\n"
    )


@pytest.mark.usefixtures("kept")
def test_a_log_is_written_for_programs(perdure):
    entries = [json.loads(line) for line in perdure("sessions", "show", "beta", "--json").stdout.splitlines()]
    assert [entry["seq"] for entry in entries] == list(range(1, len(entries) + 1))
    assert entries[-1]["event"]["status"] == "done"


def test_an_open_question_is_shown_with_how_to_answer_it(perdure):
    assert perdure("run", "-q", "--later", "--session", "s", WRITE).exit_code == 3
    result = perdure("sessions", "show", "s")
    ask_id = result.stdout.partition("question ")[2].split()[0]
    assert f"question {ask_id} (open): \"May 'write_text' be called on " in result.stdout
    assert result.stderr == f"perdure questions s shows all of it; answer it with: perdure answer s {ask_id} yes|no\n"
    perdure("answer", "s", "yes")
    result = perdure("sessions", "show", "s")
    assert f"question {ask_id} (answered, not resumed yet): " in result.stdout
    assert result.stderr == "the last run can continue; finish it with: perdure resume s\n"


def test_a_question_that_has_expired_is_shown_as_such(perdure, tmp_path):
    async def ask() -> None:
        gate = Permissions(handler=later, expires_seconds=10)
        model, past = ScriptedModel(call("pay")), FakeClock(start=1.0)
        async with Agent(model, tools=[pay], permission=gate, clock=past, store=f"sqlite:{tmp_path}/x.db") as agent:
            await agent.session("s").run("Go")

    asyncio.run(ask())
    result = perdure("sessions", "show", "s", "--store", f"sqlite:{tmp_path}/x.db")
    assert "(expired, not resumed yet): " in result.stdout
    assert result.stderr.startswith("the last run can continue; continue it in the program that began it, with ")


@tool(permission=True)
async def pay() -> str:
    """Pay."""
    return "paid"


@pytest.mark.usefixtures("ordered")
def test_what_is_waited_for_is_shown_and_cannot_act_on_the_terminal(perdure):
    line = perdure("sessions", "show", "bakery").stdout.splitlines()[-1]
    assert line.startswith("inbox ")
    assert line.endswith(" (pending) [delivery] ␛]0;owned␇a␛[2J\\u202eb␍c\\x9b1md␊")
    item_id = line.split()[1]
    perdure("resolve", "bakery", item_id, "two loaves")
    assert "(resolved)" in perdure("sessions", "show", "bakery").stdout
    assert perdure("sessions", "show", "bakery").stdout.endswith(" -> two loaves\n")
    perdure("run", "-q", "-s", "bakery", "Has it come?")
    assert "inbox " + item_id not in perdure("sessions", "show", "bakery").stdout
