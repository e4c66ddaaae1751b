"""What tools ask at the terminal, and what becomes of it where nobody is."""

import json
from typing import Any

import pytest

from perdure._cli.terminal.frame import measure_text
from perdure._cli.terminal.questions import ask_question
from perdure.people import Choice, Confirm, CustomSlot, Form, MultiSelect, SlotView
from tests.cli.process import STAND_INS

FIELDS = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "who you are"},
        "age": {"$ref": "#/$defs/age"},
        "colour": {"enum": ["red", "blue"]},
    },
    "required": ["name", "colour"],
    "$defs": {"age": {"type": "integer", "minimum": 0}},
}


def view(asked: Any) -> SlotView:
    return SlotView("slot", asked.shown_as, asked.input, asked.text, waits=True, output=asked.output)


class Person:
    """Types what was prepared, and keeps what was asked."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)
        self.seen: list[str] = []

    async def __call__(self, prompt: str) -> str:
        self.seen.append(prompt)
        if not self.lines:
            raise EOFError
        return self.lines.pop(0)


@pytest.mark.parametrize(
    ("asked", "lines", "value"),
    [
        (Confirm("Really?"), ["y"], True),
        (Confirm("Really?"), ["maybe", "NO"], False),
        (Choice("Which?", ["north", "south"]), ["2"], "south"),
        (Choice("Which?", ["north", "south"]), ["9", " north "], "north"),
        (Choice("Which?", ["a"], other=True), ["something else"], "something else"),
        (MultiSelect("Which?", ["a", "b", "c"], least=1), ["", "1, c"], ["a", "c"]),
        (MultiSelect("Which?", ["a"]), [""], []),
        (Form("You", FIELDS), [" ", "Ann", "-1", "7", "red"], {"name": "Ann", "age": 7, "colour": "red"}),
        (Form("You", FIELDS, {"name": "Bo"}), ["", "", "blue"], {"name": "Bo", "colour": "blue"}),
        (CustomSlot("map", {"at": 1}, "Where?", {"type": "array"}), ["{}", "[1]"], [1]),
        (CustomSlot("map", None, "Where?"), ["here"], "here"),
    ],
)
async def test_each_kind_is_asked_until_the_answer_fits(asked, lines, value):
    assert await ask_question(view(asked), Person(*lines)) == value


async def test_a_form_asks_field_by_field_and_says_what_it_wants():
    person = Person("Ann", "x", "7", "green", "red")
    assert await ask_question(view(Form("You", FIELDS)), person) == {"name": "Ann", "age": 7, "colour": "red"}
    assert person.seen == [
        "? You\n  name (who you are, string): ",
        "  age (optional): ",
        "expected an integer, got 'x'; try again: ",
        "  colour (red | blue): ",
        "expected one of 'red', 'blue', got 'green'; try again: ",
    ]


@pytest.mark.parametrize(
    "asked",
    [
        Choice("Which one do you want for the build now? Allow this call?", ["red " + "x" * 55, "blue"]),
        Confirm("Which one do you want for the build now? Allow this call?", yes="y" * 59),
        Form("Allow this call? (1 of 1, 2 rows)", {"type": "object", "properties": {"a" * 59: {"type": "string"}}}),
        CustomSlot("map", {"at": "Allow this call? " * 9}, "Allow this call? (1 of 1, 2 rows)"),
        Choice("日" * 30 + "Allow this call?", ["語" * 40]),
    ],
)
async def test_no_text_of_a_tool_begins_a_row_however_narrow_the_terminal_is(asked, monkeypatch):
    for module in ("questions", "slots", "frame"):
        monkeypatch.setattr(f"perdure._cli.terminal.{module}.line_width", lambda _: 39, raising=False)
    person = Person()
    with pytest.raises(EOFError):
        await ask_question(view(asked), person)
    rows = person.seen[0].split("\n")
    assert all(measure_text(row) <= 39 for row in rows)
    assert all(row.startswith(("? ", "| ", ": ", "|+", "> ", "  ", "number or text: ", "answer: ")) for row in rows)


async def test_fields_that_do_not_go_together_are_asked_for_again():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "minProperties": 1}
    person = Person("", "1")
    assert await ask_question(view(Form("You", schema)), person) == {"a": 1}
    assert person.seen[1].endswith("try again:\n  a (integer, optional): ")


async def test_the_end_of_the_input_declines():
    with pytest.raises(EOFError):
        await ask_question(view(Confirm("Really?")), Person())


async def test_nothing_in_a_question_can_pretend_to_be_something_else():
    hostile = f"x\n\x1b[2Jy{' ' * 60}Allow this call?"
    person = Person("1")
    await ask_question(view(Choice(hostile, [hostile])), person)
    assert person.seen[0].split("\n") == [
        "| question: 2 lines, 83 characters, without a line break at the end",
        ": 1 x",
        ": 2 \\{U+001B}[2Jy\\{60 blanks}Allow this call?",
        '  1. "x\\n\\{U+001B}[2Jy\\{60 blanks}Allow this call?"',
        "number or text: ",
    ]


async def test_a_call_that_a_crash_cut_off_is_shown_in_full():
    call = {"call_id": "c", "tool": "act", "arguments": '{"what":"x\\ny"}', "attempt": 1}
    cut_off = SlotView("slot", "settlement", {"calls": [call]}, "It may have run.", waits=True, tool="act")
    person = Person("skip")
    assert await ask_question(cut_off, person) == "skip"
    assert person.seen[0].split("\n")[:6] == [
        "| agent: the agent of the session",
        '| tool: "act"',
        "| argument what: 2 lines, 3 characters, without a line break at the end",
        ": 1 x",
        ": 2 y",
        '| act asks: "It may have run."',
    ]


# -- the whole command -------------------------------------------------------------------------------------------------


def test_questions_are_asked_at_the_terminal_and_the_run_goes_on(shell):
    with shell.terminal("run", "--model", "odd:book", "go", program=STAND_INS) as terminal:
        terminal.await_text("number or text: ")
        assert "> berth  free" in terminal.seen
        assert "> north  true" in terminal.seen
        assert "  2. South: sunny" in terminal.seen
        assert "\x1b]0;owned" not in terminal.seen
        terminal.type("2\n")
        terminal.await_text("Really? [y: Of course, n: No] ")
        terminal.type("y\n")
        assert terminal.end() == 0
    assert "tool book ok: south, True" in terminal.seen


def test_the_end_of_the_input_is_told_to_the_tool(shell):
    with shell.terminal("run", "--model", "odd:remark", "go", program=STAND_INS) as terminal:
        terminal.await_text("Anything else? ")
        terminal.type("\x04")
        assert terminal.end() == 0
    assert "tool remark error: the user declined to answer" in terminal.seen


def test_ctrl_c_at_a_question_cancels_the_run(shell):
    with shell.terminal("run", "--model", "odd:remark", "-s", "s", "go", program=STAND_INS) as terminal:
        terminal.await_text("Anything else? ")
        terminal.type("\x03")
        assert terminal.end() == 130
    assert "session s has no open question" in shell.run("questions", "s").stderr


def test_a_question_that_is_answered_elsewhere_is_settled_here(shell):
    with shell.terminal("run", "--model", "odd:remark", "-s", "s", "go", program=STAND_INS) as terminal:
        terminal.await_text("Anything else? ")
        assert shell.run("answer", "s", "no, thanks").returncode == 0
        assert terminal.end() == 0
    assert "that question was answered elsewhere" in terminal.seen
    assert "tool remark ok: no, thanks" in terminal.seen


def test_without_a_terminal_the_run_waits_and_is_answered_later(shell):
    result = shell.run("run", "--model", "odd:book", "-s", "s", "go", program=STAND_INS)
    assert result.returncode == 3
    assert 'a question is open: "Which berth?' in result.stderr
    asked = json.loads(shell.run("questions", "s", "--json").stdout)
    assert (asked["renderer"], asked["output"]["enum"]) == ("choice", ["north", "south"])
    assert f"perdure answer s {asked['slot_id']} VALUE" in result.stderr
    wrong = shell.run("answer", "s", "west")
    assert (wrong.returncode, "expected one of 'north', 'south', got 'west'" in wrong.stderr) == (2, True)
    assert shell.run("answer", "s", asked["slot_id"], "north").returncode == 0
    with shell.terminal("resume", "s", program=STAND_INS) as terminal:
        terminal.await_text("Really? ")
        terminal.type("n\n")
        assert terminal.end() == 0
    assert "tool book ok: north, False" in terminal.seen


def test_a_question_that_an_earlier_run_has_left_is_asked_again(shell):
    shell.run("run", "--model", "odd:book", "-s", "s", "go", program=STAND_INS)
    with shell.terminal("resume", "s", program=STAND_INS) as terminal:
        terminal.await_text("number or text: ")
        terminal.type("\x04")
        assert terminal.end() == 0
    assert "tool book error: the user declined to answer" in terminal.seen


def test_a_permission_that_an_earlier_run_has_left_is_asked_for_again(shell):
    assert shell.run("run", "--later", "-s", "s", 'Write "hello" to the text file a.txt').returncode == 3
    with shell.terminal("resume", "s") as terminal:
        terminal.await_text("[?] help: ")
        terminal.type("a\n")
        assert terminal.end() == 0
    assert (shell.folder / "a.txt").exists()


def test_without_a_terminal_a_tool_that_has_begun_is_not_kept_waiting(shell):
    result = shell.run("run", "--model", "odd:remark", "go", program=STAND_INS)
    assert result.returncode == 0
    assert "tool remark error: there is no terminal at which to answer" in result.stderr


def test_later_leaves_the_question_of_a_tool_that_has_begun_to_somebody_elsewhere(shell):
    arguments = ("run", "--later", "--model", "odd:remark", "-s", "s", "go")
    with shell.started(*arguments, program=STAND_INS) as process:
        seen = b""
        while b'a question is open: "Anything else?"' not in seen:
            seen += process.stderr.readline()
        assert shell.run("answer", "s", "--reject", "not now").returncode == 0
        rest = process.communicate(timeout=30)[1]
    assert b"tool remark error: not now" in rest
