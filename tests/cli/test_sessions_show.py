"""`perdure sessions show`: a conversation as text, and what it waits for."""

import asyncio
import json

import pytest

from perdure import Agent, Limits, Permissions, tool, user
from perdure.events import MessageAdded, QuestionAsked, RunStarted
from perdure.permissions import later
from perdure.stores import open_store
from perdure.testing import FakeClock, ScriptedModel, call
from perdure.tools import delegation
from tests.doubles import SECONDS, crashed

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


@pytest.fixture
def delegated(tmp_path):
    """Options of a store in which a background agent of session `c` has asked for permission; its chief is done."""
    store = f"sqlite:{tmp_path}/tasks.db"

    async def delegate() -> None:
        async with build_chief(store) as chief:
            session = chief.session("c")
            await session.run("Have it paid.")
            async with asyncio.timeout(SECONDS):
                while not await session.questions():  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0)

    asyncio.run(delegate())
    return ("--store", store)


def build_chief(store: str) -> Agent[None]:
    """Build an agent whose background agent asks whether it may pay."""
    clerk = Agent(
        ScriptedModel(lambda request: "Paid." if request.messages[-1].tool_results else call("pay"), repeat_last=True),
        name="clerk",
        description="Pays.",
        tools=[pay],
        permission=Permissions(handler=later),
    )
    model = ScriptedModel(call("delegate", agent="clerk", task="Pay.", background=True), "It is on its way.", "Thanks.")
    return Agent(model, extensions=[delegation([clerk])], store=store)


def test_an_open_question_of_a_background_agent_is_shown(perdure, delegated):
    result = perdure("sessions", "show", "c", *delegated)
    ask_id = json.loads(perdure("questions", "c", "--json", *delegated).stdout)["slot_id"]
    assert f"question {ask_id} (open, of clerk-" in result.stdout
    assert f"answer it with: perdure answer c {ask_id} {delegated[0]}" in result.stderr
    answered = perdure("answer", "c", "yes", *delegated)
    assert answered.stderr.endswith(
        "if no process runs it, continue session 'c', which continues its background agents, in the program that began "
        "it, with session.wake() or agent.attend_all()\n"
    )
    assert ask_id not in perdure("sessions", "show", "c", *delegated).stdout


def test_the_session_of_a_background_agent_is_continued_by_the_session_above(perdure, delegated):
    child = json.loads(perdure("sessions", "list", "--all", "--json", *delegated).stdout.splitlines()[0])["session_id"]
    assert child.startswith("c/clerk-")
    perdure("answer", child, "yes", *delegated)
    told = "continue session 'c', which continues its background agents, in the program that began it, with session."
    assert perdure("sessions", "show", child, *delegated).stderr.startswith(f"the last run can continue; {told}wake()")
    assert told in perdure("resume", child, *delegated).stderr
    assert perdure("attend", "--once", *delegated).stderr == ""

    async def wake() -> None:
        async with build_chief(delegated[1]) as chief:
            await chief.session("c").wake()
            await chief.session("c").wait_for_agents()

    asyncio.run(wake())
    assert "  pay ok: paid\n" in perdure("sessions", "show", child, *delegated).stdout


def test_the_end_of_a_run_is_shown_unless_it_is_simply_done(perdure, tmp_path):
    store = f"sqlite:{tmp_path}/ends.db"

    async def end_early() -> None:
        model = ScriptedModel(call("look"), call("pay"), "Done.", ValueError("no \x1b[31mluck"))
        async with Agent(model, tools=[look, pay], permission=Permissions(handler=later), store=store) as agent:
            session = agent.session("s")
            await session.run("Limit.", limits=Limits(max_turns=1))
            await session.run("Cancel.")
            await session.cancel()
            await session.resume()
            await session.run("Answer.")
            await session.run("Fail.")

    asyncio.run(end_early())
    lines = perdure("sessions", "show", "s", "--store", store).stdout.splitlines()
    ends = {
        lines[index - 1].partition(":")[0]: line for index, line in enumerate(lines) if line.startswith("run ended")
    }
    assert ends == {
        "  look ok": "run ended: limit (max_turns)",
        "  pay cancelled_before_start": "run ended: cancelled",
        "  Fail.": "run ended: failed (ValueError): no ␛[31mluck",
    }


@tool(effect="read")
async def look() -> str:
    """Look."""
    return "a harbour"


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


def test_a_run_that_was_cut_off_while_it_asked_is_told_with_its_question(perdure, tmp_path):
    async def cut_off() -> None:
        store = open_store(f"sqlite:{tmp_path}/x.db")
        started = RunStarted(agent="agent", run_id="r")
        await crashed(
            store, "s", started, MessageAdded(user("Hi"), run_id="r"), QuestionAsked("q", "permission", run_id="r")
        )
        await store.aclose()

    asyncio.run(cut_off())
    result = perdure("sessions", "show", "s", "--store", f"sqlite:{tmp_path}/x.db")
    assert "question q (open)" in result.stdout
    assert result.stderr.splitlines()[-1].startswith("the last run was cut off; ")
