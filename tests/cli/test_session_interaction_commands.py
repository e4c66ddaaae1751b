"""`perdure answer`, `inbox`, `resolve`, `steer` and `cancel`: what reaches a session wherever it is driven."""

import asyncio
import json
from typing import Any

import pytest

from perdure import Agent, Permissions, ToolContext, tool
from perdure.people import Choice, Confirm
from perdure.permissions import later
from perdure.testing import ScriptedModel, call, calls
from tests.cli.process import PATIENCE, STAND_INS, await_text

WRITE = 'Write "hello" to the text file hello.txt'


@pytest.fixture
def asked(perdure) -> str:
    """The question that a session called `s` has left open."""
    result = perdure("run", "-q", "--later", "--session", "s", WRITE)
    assert result.exit_code == 3
    assert result.stderr.startswith("error: a question is open: \"May 'write_text' be called on ")
    return perdure("sessions", "show", "s").stdout.partition("question ")[2].split()[0]


def test_a_question_is_answered_and_the_run_goes_on(perdure, asked, tmp_path):
    result = perdure("answer", "s", "yes")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"question {asked} is answered; if no process runs it, finish it with: perdure resume s\n"
    assert not (tmp_path / "hello.txt").exists()
    assert perdure("resume", "s").exit_code == 0
    assert (tmp_path / "hello.txt").read_text(encoding="utf-8") == "hello"


def test_a_no_is_an_answer_too(perdure, asked, tmp_path):
    assert perdure("answer", "s", asked, "NO").exit_code == 0
    assert "tool write_text denied" in perdure("resume", "s").stderr
    assert not (tmp_path / "hello.txt").exists()


def test_a_question_that_nobody_has_answered_stays_open(perdure, asked):
    result = perdure("resume", "s")
    assert result.exit_code == 3
    assert f"answer it with: perdure answer s {asked} yes|no\n" in result.stderr


def test_the_first_answer_counts(perdure, asked):
    done = perdure("answer", "s", asked, "yes", "--json")
    assert json.loads(done.stdout) == {"session_id": "s", "ask_id": asked, "answer": "yes"}
    result = perdure("answer", "s", "no")
    assert result.exit_code == 2
    assert result.stderr == f"error: question '{asked}' was already answered, and the first answer counts\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["maybe"], "'maybe' is neither yes nor no: answer yes to allow the calls, no to deny them"),
        (["17"], "17 does not answer whether calls may be made (Expected `object`, got `int`): give True, "),
        (['{"allow": "x"}'], "{'allow': 'x'} does not answer whether calls may be made (Expected `bool`, got `str` "),
        (['{"allow": true, "scope": "week"}'], "{'allow': True, 'scope': 'week'} does not answer whether calls may "),
        (['{"call_9": true}'], "{'call_9': True} does not answer whether calls may be made ('call_9' is none of the "),
        (["other", "yes"], "session 's' has no open question 'other': open are "),
        (["one", "two", "three"], "an answer is one argument; put it in quotes"),
        ([], "missing argument"),
    ],
)
def test_what_is_no_answer_says_why(perdure, asked, words, message):
    result = perdure("answer", "s", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {message}")


def test_what_is_no_answer_says_how_one_is_written(perdure, asked):
    (call,) = json.loads(perdure("questions", "s", "--json").stdout)["input"]["calls"]
    for wrong in ("maybe", '{"allow": "x"}'):
        told = f"""such as '{{"allow": true, "scope": "session"}}' or '{{"{call["call_id"]}": true}}'\n"""
        assert perdure("answer", "s", wrong).stderr.endswith(told)


@pytest.mark.parametrize(
    ("verdict", "is_allowed", "told"),
    [
        ("true", True, ""),
        ('{"allow": true, "scope": "session"}', True, ""),
        ('{"CALL": {"allow": true, "scope": "session", "covers": "tool"}}', True, ""),
        ('{"CALL": {"allow": false, "reason": "not today"}}', False, "not today"),
        ('{"CALL": false}', False, ""),
    ],
)
@pytest.mark.usefixtures("asked")
def test_every_verdict_that_a_question_offers_is_an_answer(perdure, tmp_path, verdict, is_allowed, told):
    (call,) = json.loads(perdure("questions", "s", "--json").stdout)["input"]["calls"]
    result = perdure("answer", "s", verdict.replace("CALL", call["call_id"]))
    assert (result.exit_code, result.stdout) == (0, "")
    assert perdure("resume", "s").exit_code == 0
    assert (tmp_path / "hello.txt").exists() == is_allowed
    shown = perdure("sessions", "show", "s").stdout
    assert told in shown
    assert ("grant grant_" in shown) == ("scope" in verdict)


@pytest.mark.usefixtures("kept")
def test_without_a_question_there_is_nothing_to_answer(perdure):
    result = perdure("answer", "alpha", "yes")
    assert result.exit_code == 2
    assert "session 'alpha' has no open question" in result.stderr


@pytest.mark.usefixtures("ordered")
def test_an_inbox_is_shown_and_its_item_resolved_once(perdure):
    (item,) = [json.loads(line) for line in perdure("inbox", "bakery", "--json").stdout.splitlines()]
    assert (item["status"], item["tag"]) == ("pending", "delivery")
    result = perdure("resolve", "bakery", item["item_id"], "two loaves")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"item {item['item_id']} is resolved; the model receives it in its next turn\n"
    again = perdure("resolve", "bakery", item["item_id"], "three loaves")
    assert (again.exit_code, "was already resolved" in again.stderr) == (2, True)
    perdure("run", "-q", "-s", "bakery", "Has it come?")
    assert "-> Response: two loaves" in perdure("sessions", "show", "bakery").stdout
    shown = perdure("inbox", "bakery").stdout
    assert shown.startswith(f"inbox {item['item_id']} (consumed) [delivery] ␛]0;owned␇")
    assert shown.endswith(" -> two loaves\n")


@pytest.mark.usefixtures("kept")
def test_what_a_session_is_told_reaches_its_next_run(perdure):
    result = perdure("steer", "alpha", "Be brief.")
    assert result.stderr == "session alpha receives it between two turns, or in its next run\n"
    assert json.loads(perdure("steer", "alpha", "Be kind.", "--json").stdout)["text"] == "Be kind."
    perdure("run", "-q", "-s", "alpha", "Calculate 1 + 1")
    assert "user (steering):\n  Be brief.\n" in perdure("sessions", "show", "alpha").stdout


@pytest.mark.usefixtures("kept")
def test_an_empty_inbox_says_so(perdure):
    assert perdure("inbox", "alpha").stderr == "the inbox of session alpha is empty\n"
    assert perdure("inbox", "alpha", "--json").stderr == ""
    result = perdure("resolve", "alpha", "nothing", "x")
    assert (result.exit_code, "has no item 'nothing' in its inbox" in result.stderr) == (2, True)


@pytest.mark.usefixtures("kept")
def test_without_a_run_there_is_nothing_to_cancel(perdure):
    result = perdure("cancel", "alpha")
    assert (result.exit_code, result.stderr) == (1, "session alpha has no active run\n")
    assert json.loads(perdure("cancel", "alpha", "--json").stdout)["cancelled"] is False


@pytest.mark.parametrize(
    "arguments",
    [["answer", "nobody", "yes"], ["inbox", "nobody"], ["resolve", "nobody", "i", "x"], ["steer", "nobody", "x"]],
)
def test_a_session_that_is_not_there_is_not_made(perdure, arguments):
    assert perdure(*arguments).exit_code == 66
    assert perdure("sessions", "list").stdout == ""


def test_a_run_in_another_process_is_reached(shell):
    with shell.started("run", "--model", "odd:wait", "-s", "s", "go", program=STAND_INS) as process:
        await_text(process.stderr.fileno(), "tool wait {}")
        result = shell.run("cancel", "s")
        assert (result.returncode, result.stderr) == (0, "session s is being cancelled\n")
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert "the run was cancelled; finished work is kept" in errors.decode()
    assert '"status":"cancelled"' in shell.run("sessions", "show", "s", "--json").stdout


def test_all_of_a_call_is_shown_with_the_rules_that_a_yes_would_make(perdure, asked, tmp_path):
    result = perdure("questions", "s")
    assert (result.exit_code, result.stderr) == (0, "")
    head, call, *rows = result.stdout.splitlines()
    assert head == f"{asked}  permission, about 1 call:"
    assert call.startswith("call 1 of 1 (")
    assert f"({len(rows)} rows)" in call
    rule = f"allow('write_text', action='write', target='{tmp_path}/hello.txt')"
    folder = f"allow('write_text', action='write', target=path('{tmp_path}/**'))"
    joined = "".join([row[2:] if row.startswith(": ") else f"\n{row}" for row in rows])
    assert joined.split("\n")[1:] == [
        "| agent: the agent of the session",
        '| tool: "write_text"',
        '| action: "write"',
        f'| target: "{tmp_path}/hello.txt"',
        '| argument path: "hello.txt"',
        '| argument text: "hello"',
        f'| approval that covers arguments: "{rule} with exactly these arguments"',
        f'| approval that covers target: "{rule}"',
        f'| approval that covers "{tmp_path}/**": "{folder}"',
        "| approval that covers tool: \"allow('write_text', action='write')\"",
    ]
    assert json.loads(perdure("questions", "s", "--json").stdout)["slot_id"] == asked


def test_each_call_can_be_answered_by_its_id(perdure, asked, tmp_path):
    call_id = json.loads(perdure("questions", "s", "--json").stdout)["call_id"]
    assert perdure("answer", "s", '{"other": true}').exit_code == 2
    assert perdure("answer", "s", json.dumps({call_id: True})).exit_code == 0
    assert perdure("resume", "s").exit_code == 0
    assert (tmp_path / "hello.txt").exists()


def test_a_question_can_be_declined_with_a_reason(perdure, asked, tmp_path):
    done = perdure("answer", "s", "--reject", "not today", "--json")
    assert json.loads(done.stdout) == {"session_id": "s", "ask_id": asked, "rejected": "not today"}
    assert perdure("questions", "s").stderr == "session s has no open question\n"
    assert "tool write_text denied: not today" in perdure("resume", "s").stderr
    assert not (tmp_path / "hello.txt").exists()


NORTH = '{"value":"north","label":"north","description":""}'
SOUTH = NORTH.replace("north", "south")


def leave_open(tmp_path, *tools) -> None:
    """Leave a session called `t`, in which a program has called these tools and nobody has answered them."""

    async def run() -> None:
        model = ScriptedModel(calls(*[call(each.name) for each in tools]), "Done.")
        store = f"sqlite:{tmp_path}/home/sessions.db"
        gate = Permissions(handler=later)
        async with Agent(model, tools=tools, store=store, permission=gate, answer_timeout_seconds=0.0) as agent:
            await agent.session("t").run("Go.")

    asyncio.run(run())


@tool(asks_first=True)
async def berth(context: ToolContext[Any]) -> str:
    """Ask which berth."""
    return str(await context.ask(Choice("Which berth?", ["north", "south"])))


@tool(asks_first=True)
async def really(context: ToolContext[Any]) -> str:
    """Ask whether it is meant."""
    return str(await context.ask(Confirm("Really?")))


@tool(asks_first=True)
async def name(context: ToolContext[Any]) -> str:
    """Ask for a name."""
    return await context.ask("Your name?")


@pytest.mark.parametrize(
    ("asking", "rows"),
    [
        (name, ['line: "Your name?"', '| answer: {"type":"string"}']),
        (really, ['confirm: "Really?"', '| answer: {"type":"boolean"}']),
        (
            berth,
            [
                'choice: "Which berth?"',
                f'> choice: {{"question":"Which berth?","options":[{NORTH},{SOUTH}],"other":false}}',
                '| answer: {"type":"string","enum":["north","south"]}',
            ],
        ),
    ],
)
def test_a_question_of_a_tool_is_shown_with_what_can_be_answered(perdure, tmp_path, asking, rows):
    leave_open(tmp_path, asking)
    shown = perdure("questions", "t")
    assert shown.exit_code == 0
    assert shown.stdout.partition("  ")[2].splitlines() == rows


def test_of_several_questions_one_has_to_be_named(perdure, tmp_path):
    leave_open(tmp_path, name, really)
    ids = [json.loads(line)["slot_id"] for line in perdure("questions", "t", "--json").stdout.splitlines()]
    assert len(ids) == 2
    result = perdure("answer", "t", "yes")
    assert (result.exit_code, result.stderr) == (
        2, f"error: session 't' has several open questions: name one of {', '.join(ids)}\n",
    )  # fmt: skip
    wrong = perdure("answer", "t", ids[1], "maybe")
    assert wrong.exit_code == 2
    assert wrong.stderr.startswith("error: 'maybe' does not answer 'Really?': ")
    assert perdure("answer", "t", ids[1], "yes").exit_code == 0
