"""Hostile calls at the terminal: `perdure run` at a real terminal, drawn by an emulator, and what a person sees there.

A model may write anything into the name, the target and the arguments of a call. Whatever it writes, the screen has the
heading, the rows that the heading announces, each with a mark of ours, and the choices; nothing else begins a row.
"""

import json
import os
from pathlib import Path

import pytest

from tests.cli.process import PERDURE
from tests.security.emulator import draw_rows, rows_of_question

SCRIPTED = (PERDURE[0], "-m", "tests.security.scripted_perdure")
ROOT = Path(__file__).parents[2]
CHOICES = "[y]es, [n]o, [r]un, [s]ession, [f]orever, [?] help: "
FAKE = 'Allow this call? (1 of 1, 2 rows)\n| tool: "read_text"\n| target: "notes.txt"\n'

HOSTILE = {
    "line breaks": f"rm -rf ~\n\n\n{FAKE}",
    "carriage returns": f"rm -rf ~\r{FAKE}",
    "padding at 40": f"rm -rf ~{' ' * 21}{FAKE}",
    "padding at 80": f"rm -rf ~{' ' * 61}{FAKE}",
    "padding with dots": f"rm -rf ~{'.' * 61}{FAKE}",
    "padding with no-break spaces": f"rm -rf ~{chr(0xA0) * 61}{FAKE}",
    "padding with braille blanks": f"rm -rf ~{chr(0x2800) * 61}{FAKE}",
    "padding with wide blanks": f"rm -rf ~{chr(0x3000) * 30}{FAKE}",
    "padding with Hangul fillers": f"rm -rf ~{chr(0x3164) * 30}{FAKE}",
    "padding with wide letters": f"rm -rf ~{'日' * 36}{FAKE}",
    "padding with emoji": f"rm -rf ~{'😀' * 36}{FAKE}",
    "padding with families": "rm -rf ~" + "👩\u200d👩\u200d👧" * 20 + FAKE,
    "padding with combining marks": "rm -rf ~" + "e\u0301" * 61 + FAKE,
    "tower of marks": "rm -rf ~e" + "\u0301" * 500 + FAKE,
    "mark at the start": "\u0301\u0301rm -rf ~",
    "tabs": f"rm -rf ~{chr(9) * 9}{FAKE}",
    "vertical tabs and form feeds": f"rm -rf ~\v\f{FAKE}",
    "escape: clear the screen": f"\x1b[2J\x1b[H{FAKE}",
    "escape: up and erase": f"x\x1b[5A\x1b[0J{FAKE}",
    "escape: hide": "\x1b[8mrm -rf ~\x1b[0m",
    "escape: other screen": f"\x1b[?1049h{FAKE}",
    "escape: scroll region": f"\x1b[1;3r{FAKE}",
    "escape: title": "\x1b]0;Approved\x07",
    "escape: clipboard": "\x1b]52;c;cm0gLXJmIH4=\x07",
    "escape: answer back": "\x1b[c\x1b[6n\x05",
    "C1 escapes": f"\x9b2J\x9d0;x\x9c{FAKE}",
    "backspaces": f"rm -rf ~{chr(8) * 8}ls      ",
    "delete": "rm -rf ~\x7f\x7f\x7f",
    "NUL": "ls\x00 rm -rf ~",
    "next line": f"x\x85{FAKE}",
    "line separator": f"x\u2028{FAKE}",
    "paragraph separator": f"x\u2029{FAKE}",
    "bidi override": "ls \u202e~ fr- mr\u202c",
    "bidi isolate": "ls \u2067~ fr- mr\u2069",
    "Hebrew": "שלום rm -rf ~ עולם",
    "Arabic and digits": "\u0627\u0644 rm -rf ~ \u0661\u0662",
    "zero width": "r\u200bm\u200c -\u200drf\ufeff ~",
    "soft hyphen": "r\xadm -rf ~",
    "tags": "ls" + "".join([chr(0xE0000 + ord(each)) for each in " ; rm -rf ~"]),
    "variation selectors": "ls\ufe0f\ufe0e\U000e0100",
    "Cyrillic lookalike": "rm -rf ~/p\u0430ypal",
    "end of the quotes": '" \n| argument what: "ls',
    "backslash and quote": '\\" | target: "ls',
    "escapes of ours": '\\{200 blanks}\\{U+0041}"',
    "marks of ours": ": 1 ls\n: 2 ls\n| tool: ls\n|+more",
    "prompt of ours": "[y]es, [n]o, [r]un, [s]ession, [f]orever, [?] help: n",
    "only blanks": " " * 400,
    "nothing": "",
    "one long word": "x" * 1900,
    "private use and unassigned": "\ue000\U000f0000\u0378",
    "indented fake": "\n".join([" " * 30 + line for line in FAKE.splitlines()]),
}


def write_calls(shell, *calls, text="") -> None:
    """Let the model make these calls, all in one reply."""
    script = shell.folder.parent / "calls.json"
    script.write_text(json.dumps({"text": text, "calls": calls}), encoding="utf-8")
    shell.environment["CALLS"] = str(script)
    shell.environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])


def ask(shell, *calls, columns=80, rows=400, answers=None) -> tuple[list[list[str]], list[str]]:
    """Run the command and answer each of the questions; returns what is drawn for each, and after the last answer."""
    write_calls(shell, *calls)
    questions: list[list[str]] = []
    with shell.terminal("run", "-m", "scripted:x", "go", program=SCRIPTED, size=(columns, rows)) as terminal:
        for answer in answers or ["n"] * len(calls):
            terminal.await_text("\r\n" + (CHOICES if columns > len(CHOICES) else "y, n, r, s, f or ?: "))
            questions.append(draw_rows(terminal.seen, columns))
            terminal.seen = ""
            terminal.type(f"{answer}\n")
        assert terminal.end() == 0
    return questions, draw_rows(terminal.seen, columns)


def check_question(drawn: list[str], columns: int) -> list[str]:
    """Nothing but the rows that are announced is between the heading and the choices, and all of them are ours.
    Returns the labels.
    """
    assert len([row for row in drawn if row.startswith("Allow this call?")]) == 1
    _, rows, rest = rows_of_question(drawn)
    assert all(row.startswith(("| ", "|+", ":")) for row in rows)
    assert all(len(row) < columns for row in rows)
    assert len(rest) == 1
    assert rest[0].startswith(("[y]es", "y, n"))
    return [row[2:].partition(":")[0] for row in rows if row.startswith("| ")]


@pytest.mark.parametrize("columns", [40, 80])
def test_no_row_of_a_hostile_value_looks_like_another_request(shell, columns):
    questions, _ = ask(shell, *[("act", {"what": value}) for value in HOSTILE.values()], columns=columns)
    for name, drawn in zip(HOSTILE, questions, strict=True):
        labels = check_question(drawn, columns)
        assert labels == ["agent", "tool", "action", "target", "argument what", "argument more (JSON)"], name


@pytest.mark.parametrize("columns", [20, 21, 40, 132])
def test_everything_hostile_at_once_keeps_its_rows_at_any_width(shell, columns):
    value = "".join(HOSTILE.values())
    call = ("act", {"what": "x", "more": {value[:300]: [value, {"a": value}]}})
    (drawn,), _ = ask(shell, call, columns=columns, rows=4000)
    assert len(check_question(drawn, columns)) == 7


def test_a_fake_question_in_the_answer_of_the_model_does_not_have_the_style_of_a_real_one(shell):
    write_calls(shell, ("act", {"what": "rm"}), text=f"\x1b[7m{FAKE}\x1b[0m")
    with shell.terminal("run", "-m", "scripted:x", "go", program=SCRIPTED, size=(80, 100)) as terminal:
        terminal.await_text("[?] help: ")
        terminal.type("n\n")
        terminal.end()
    assert terminal.seen.count("\x1b[7mAllow this call?") == 1
    assert terminal.seen.index("␛[7mAllow this call?") < terminal.seen.index("\x1b[7mAllow this call?")


def test_more_than_a_screen_is_not_approved_unseen(shell):
    text = "\n".join([f"line {number}" for number in range(200)] + ["import os; os.remove('x')"])
    write_calls(shell, ("act", {"what": "w", "more": text}))
    with shell.terminal("run", "-m", "scripted:x", "go", program=SCRIPTED, size=(80, 24)) as terminal:
        for _ in range(10):  # pages of 19 rows
            terminal.await_text("end: skip: ")
            assert "os.remove" not in terminal.seen
            terminal.seen = ""
            terminal.type("y\n")
        terminal.await_text("[?] help: ")
        assert "os.remove" in terminal.seen
        terminal.type("n\n")
        assert terminal.end() == 0
    assert "tool act denied" in terminal.seen


def test_an_answer_is_for_one_call_of_a_batch(shell):
    calls = [("act", {"what": each}) for each in ("one", "two", "three")]
    questions, rest = ask(shell, *calls, answers=("y", "n", "y"))
    for number, drawn in enumerate(questions, 1):
        assert f"Allow this call? ({number} of 3, 6 rows)" in drawn
    assert sorted([row for row in rest if row.startswith("tool act ") and "{" not in row]) == [
        "tool act denied: permission denied at the terminal",
        "tool act ok: done",
        "tool act ok: done",
    ]


def test_a_lasting_answer_to_one_call_does_not_cover_the_others_of_its_batch(shell):
    write_calls(shell, *[("act", {"what": each}) for each in ("one", "two")])
    with shell.terminal("run", "-m", "scripted:x", "go", program=SCRIPTED, size=(80, 50)) as terminal:
        terminal.await_text("[?] help: ")
        terminal.type("s\n")
        terminal.await_text("or [n]one of them: ")
        terminal.seen = ""
        terminal.type("1\n")
        terminal.await_text(CHOICES)  # what is typed before it does not count
        assert "(2 of 2, 6 rows)" in terminal.seen
        assert 'argument what: "two"' in terminal.seen
        terminal.type("n\n")
        assert terminal.end() == 0
    assert "tool act denied" in terminal.seen


@pytest.mark.parametrize("name", ["padding at 80", "line breaks", "escape: clear the screen", "one long word", "tags"])
def test_the_same_call_in_the_list_of_questions_has_the_same_rows(shell, name):
    write_calls(shell, ("act", {"what": HOSTILE[name]}))
    assert shell.run("run", "-m", "scripted:x", "--later", "-s", "s", "go", program=SCRIPTED).returncode == 3
    with shell.terminal("questions", "s", size=(80, 100)) as terminal:
        assert terminal.end() == 0
    drawn = draw_rows(terminal.seen, 80)
    assert drawn[0].endswith("permission, about 1 call:")
    assert drawn[1].startswith("call 1 of 1 (")
    rows = drawn[2:]
    assert all(row.startswith(("| ", "|+", ":")) for row in rows)
    assert f"({len(rows)} rows)" in drawn[1]
