"""The chat in a real terminal: what a person types, and what is on the screen then, compared with pictures of it."""

import re

import pytest

from tests.cli.chat.conftest import check_screen
from tests.coming_from.shows import shows

pytestmark = [pytest.mark.needs("tmux"), pytest.mark.packages("prompt_toolkit", "rich")]

NOTES = "one\ntwo\nthree\n"
CHOICES = "[y]es, [n]o, [r]un, [s]ession, [f]orever, [?] help:"
EDIT = [
    {"text": "I look first.", "calls": [["read", {"path": "notes.txt"}]]},
    {"calls": [["edit", {"path": "notes.txt", "old_string": "two", "new_string": "TWO"}]]},
    {"text": "Done: **two** is `TWO` now.\n\n- first\n- second\n\n```python\nprint('hi')\n```\n"},
]

USAGE = """\
| input: 2,400 tokens, of which 1,800
|+ from the cache and 0 written to it
| output: 68 tokens, of which 0 for
|+ thinking
| last request: 1,200 tokens
"""
"""Rows of /usage at forty columns."""


def mask(screen: str) -> str:
    """Replace what differs from run to run: ids of sessions, paths with the rows that they take, and the spinner."""
    screen = re.sub(r'\| target: "(?:[^"\n]|\n: )*"', '| target: "PATH"', screen)  # it may take several rows
    screen = re.sub(r"\d+ rows\)", "N rows)", screen)
    screen = re.sub(r"\b[0-9a-f]{12}\b", "SESSION", screen)
    return re.sub(r"(?m)^[-\\|/] waiting for .*$", "WAITING", screen)


def test_a_tool_is_approved_and_its_diff_is_shown(chat):
    (chat.project / "notes.txt").write_text(NOTES)
    chat.script(*EDIT)
    terminal = chat.start("--coding", rows=50, columns=100)
    terminal.await_screen("ready")
    terminal.type("Make two louder.")
    terminal.press("Enter")
    asked = terminal.await_screen(CHOICES, "waiting for your answer")
    assert "old_string" in asked
    terminal.type("y")
    terminal.press("Enter")
    check_screen("diff", mask(terminal.await_screen("print('hi')", "ready |", gone="waiting")))
    assert (chat.project / "notes.txt").read_text() == NOTES.replace("two", "TWO")

    terminal.type("/undo")
    terminal.press("Enter")
    terminal.await_screen("restored  notes.txt")
    assert (chat.project / "notes.txt").read_text() == NOTES
    terminal.type("/redo")
    terminal.press("Enter")
    terminal.await_screen("> /redo\n- restored  notes.txt")
    assert (chat.project / "notes.txt").read_text() == NOTES.replace("two", "TWO")


def test_a_long_result_is_folded_and_shown_on_request(chat):
    (chat.project / "long.txt").write_text("".join([f"line {number}\n" for number in range(100)]))
    chat.script({"calls": [["read_text", {"path": "long.txt"}]]}, {"text": "Read."})
    terminal = chat.start("--no-coding", rows=40)
    terminal.await_screen("ready")
    terminal.type("Read it.")
    terminal.press("Enter")
    check_screen("folded", mask(terminal.await_screen("Read.\n", "ready |")))
    terminal.press("C-o")
    terminal.await_screen("line 75")
    assert terminal.history().count("line 0\n") == 2


def test_typing_while_it_works_steers(chat):
    release = chat.project.parent / "release"
    chat.script({"text": "I begin.\n\n", "until": str(release)}, {"text": "You want: {steered}"})
    terminal = chat.start()
    terminal.await_screen("ready")
    terminal.type("Go.")
    terminal.press("Enter")
    terminal.await_screen("I begin.", "waiting for the model")
    terminal.type("Use blue.")
    terminal.press("Enter")
    terminal.await_screen("the model gets it before its next turn")
    release.touch()
    check_screen("steer", mask(terminal.await_screen("You want: Use blue.", "ready |")))


def test_escape_cancels_and_keeps_the_partial_turn(chat):
    chat.script({"text": "The first half, and", "until": "/never"}, {"text": "On with it."})
    terminal = chat.start()
    terminal.await_screen("ready")
    terminal.type("Tell me.")
    terminal.press("Enter")
    terminal.await_screen("The first half, and")
    terminal.press("Escape")
    check_screen("cancel", mask(terminal.await_screen("cancelled", "ready")))
    terminal.type("Go on.")
    terminal.press("Enter")
    seen = terminal.await_screen("On with it.", "ready |")
    assert "The first half, and" in seen


def test_what_was_typed_before_escape_comes_before_the_next_prompt(chat):
    chat.script({"text": "I begin.", "until": "/never"}, {"text": "You said: {said}"})
    terminal = chat.start()
    terminal.await_screen("ready")
    terminal.type("Go.")
    terminal.press("Enter")
    terminal.await_screen("I begin.", "waiting for the model")
    terminal.type("Use blue.")
    terminal.press("Enter")
    terminal.await_screen("the model gets it before its next turn")
    terminal.press("Escape")
    terminal.await_screen("cancelled", "ready |")
    terminal.type("What now?")
    terminal.press("Enter")
    terminal.await_screen("You said: Go. / Use blue. / What now?", "ready |")


@pytest.mark.packages("mcp")
def test_what_cannot_be_used_is_said_before_the_first_prompt(chat):
    chat.script({"text": "Hello."})
    chat.home.mkdir()
    (chat.home / "mcp.json").write_text('{"mcpServers": {"ghost": {"command": "no-such-program"}}}')
    terminal = chat.start("--context", "--allow", "wirte_text", columns=200)
    terminal.await_screen("ready")
    said = terminal.history()
    assert "warning: the tools of an MCP server cannot be used: MCP server 'ghost'" in said
    assert "warning: the rule allow('wirte_text') matches no tool of this agent: did you mean 'write_text'?" in said
    assert said.index("warning: the rule") < said.index("type a prompt")


@shows("glue", "package cmd/glue/tui")
def test_a_killed_chat_goes_on_with_its_run_and_its_question(chat):
    chat.script({"calls": [["write_text", {"path": "new.txt", "text": "hello\n"}]]}, {"text": "Written."})
    first = chat.start("--no-coding")
    first.await_screen("ready")
    first.type("Write it.")
    first.press("Enter")
    first.await_screen(CHOICES)
    first.kill_program()

    again = chat.start("--continue")
    again.await_screen(CHOICES, "it goes on now")
    assert not (chat.project / "new.txt").exists()
    again.type("y")
    again.press("Enter")
    check_screen("resumed", mask(again.await_screen("Written.", "ready |")))
    assert (chat.project / "new.txt").read_text() == "hello\n"


def test_leaving_while_a_question_is_open_leaves_it_open(chat):
    chat.script({"calls": [["write_text", {"path": "new.txt", "text": "hello\n"}]]}, {"text": "Written."})
    first = chat.start("--no-coding", "--session", "plan")
    first.await_screen("ready")
    first.type("Write it.")
    first.press("Enter")
    first.await_screen(CHOICES)
    first.press("C-c")
    first.await_screen("press Ctrl-C once more to leave")
    first.press("C-c")
    assert first.await_end() == 0
    assert "its run is not finished; go on with: perdure --session plan" in first.screen()

    again = chat.start()
    again.await_screen("ready")
    again.type("/resume plan")
    again.press("Enter")
    again.await_screen(CHOICES)
    again.type("n")
    again.press("Enter")
    again.await_screen("* write_text new.txt (denied)", "Written.")


@pytest.mark.parametrize(("arguments", "prompts"), [((), ()), (("--store", "memory:"), ("Hi.",))])
def test_leaving_a_session_that_is_not_stored_names_none_to_go_on_with(chat, arguments, prompts):
    chat.script({"text": "Hello."})
    terminal = chat.start("--session", "plan", *arguments)
    terminal.await_screen("ready")
    for prompt in prompts:
        terminal.type(prompt)
        terminal.press("Enter")
        terminal.await_screen("Hello.", "ready |")
    terminal.type("/quit ")
    terminal.press("Enter")
    assert terminal.await_end() == 0
    assert "go on with" not in terminal.screen()


def test_files_and_commands_are_completed(chat):
    (chat.project / "src").mkdir()
    (chat.project / "src" / "harbour.py").write_text("BERTHS = 12\n")
    (chat.project / "readme.md").write_text("# Readme\n")
    chat.script({"text": "Twelve."})
    terminal = chat.start()
    terminal.await_screen("ready")
    terminal.type("How many in @harb")
    check_screen("completion", mask(terminal.await_screen("  src/harbour.py")))
    terminal.press("Tab")
    terminal.await_screen("> How many in @src/harbour.py", "* src/harbour.py")
    terminal.press("Enter")
    terminal.await_screen("> How many in @src/harbour.py", gone="* src/harbour.py")
    terminal.press("Enter")
    terminal.await_screen("Twelve.", "ready |")
    terminal.type("/us")
    terminal.await_screen("/usage  show tokens")
    terminal.press("Tab", "Enter", "Enter")
    terminal.await_screen("| input: 1,200 tokens, of which 900 from the cache", "| cost: $0.00")


def test_pasted_lines_are_one_prompt_and_history_is_private(chat):
    chat.script({"text": "Two lines."})
    terminal = chat.start()
    terminal.await_screen("ready")
    terminal.paste("first line\nsecond line")
    terminal.await_screen("> first line\n  second line")
    terminal.press("Enter")
    terminal.await_screen("Two lines.", "ready |")
    terminal.press("Up")
    terminal.await_screen("Two lines.\n> first line\n  second line")
    terminal.press("C-c")
    terminal.await_screen("Ctrl-C once more")
    terminal.press("C-c")
    assert terminal.await_end() == 0
    kept = chat.home / "chat_history"
    assert "+second line" in kept.read_text()
    assert kept.stat().st_mode & 0o777 == 0o600


def test_it_fits_on_forty_columns(chat):
    chat.script(
        {"text": "A paragraph that is longer than the terminal is wide.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n",
         "calls": [["write_text", {"path": "new.txt", "text": "a line that is longer than forty columns are\n"}]]},
        {"text": "Written."},
    )  # fmt: skip
    terminal = chat.start("--no-coding", columns=40, rows=50)
    terminal.await_screen("ready")
    terminal.type("A prompt that is itself longer than forty columns.")
    terminal.press("Enter")
    terminal.await_screen("y, n, r, s, f or ?:")
    terminal.type("y")
    terminal.press("Enter")
    check_screen("narrow", mask(terminal.await_screen("Written.", "ready |")))
    terminal.type("/usage")
    terminal.press("Enter")
    terminal.await_screen(USAGE)
    terminal.press("C-c")
    terminal.await_screen("- press Ctrl-C once more to leave; Esc\n  cancels the run\n>")


def test_without_colour_no_style_is_sent(chat):
    chat.script({"text": "**bold** and `code`\n\n```python\nprint('hi')\n```\n"})
    terminal = chat.start(NO_COLOR="1")
    terminal.await_screen("ready")
    terminal.type("Go.")
    terminal.press("Enter")
    check_screen("no-colour", mask(terminal.await_screen("print('hi')", "ready |")))
    assert "\x1b[" not in terminal.screen("-e")


def test_with_colour_the_question_has_a_style_that_text_cannot_have(chat):
    fake = 'Allow this call? (1 of 1, 2 rows)\n| tool: "read_text"\n\n\x1b[7mAllow this call?\x1b[0m\n\n&#8238;x'
    chat.script({"text": fake, "calls": [["write_text", {"path": "a", "text": "b"}]]}, {"text": "Done."})
    terminal = chat.start("--no-coding")
    terminal.await_screen("ready")
    terminal.type("Go.")
    terminal.press("Enter")
    plain = terminal.await_screen(CHOICES)
    check_screen("spoofed", mask(plain))
    styled = terminal.screen("-e")
    assert styled.count("\x1b[7mAllow this call?") == 1
    assert plain.count("\nAllow this call?") == 1  # only the real one begins a row
    assert "\u202e" not in plain


def test_escape_sequences_change_nothing_outside_their_region(chat):
    hostile = "\x1b[2J\x1b[H\x1b]0;owned\x07\x1b[1;1Hgone\r\x9b2J\x1b[?1049h" + "\b" * 90 + "\x1b[5A" + "日" * 60
    (chat.project / "hostile.txt").write_text(hostile)
    chat.script({"calls": [["read_text", {"path": "hostile.txt"}]]}, {"text": f"It says: {hostile}"})
    terminal = chat.start("--no-coding", rows=40)
    terminal.await_screen("ready")
    terminal.type("Read it.")
    terminal.press("Enter")
    seen = mask(terminal.await_screen("It says", "ready |"))
    check_screen("hostile", seen)
    before, prompt, after = seen.partition("> Read it.")
    assert prompt
    assert "type a prompt" in before
    rows = [row for row in after.split("\n") if row]
    assert all(row.startswith(("  ", "* ", ">", "ready")) for row in rows)


def test_a_terminal_without_a_cursor_gets_plain_lines_and_the_commands(chat):
    (chat.project / "notes.txt").write_text(NOTES)
    chat.script(
        {"text": "Hello **there**.", "calls": [["read", {"path": "notes.txt"}]]},
        {"calls": [["edit", {"path": "notes.txt", "old_string": "two", "new_string": "TWO"}]]},
        {"text": "Done."},
    )
    terminal = chat.start("--coding", "--session", "plan", rows=70, TERM="dumb")
    terminal.await_screen("type a prompt")
    terminal.type("Go.")
    terminal.press("Enter")
    terminal.await_screen("Hello **there**.", CHOICES)
    terminal.type("y")
    terminal.press("Enter")
    terminal.await_screen("tool edit ok", "Done.\n>")
    for command, answer in {
        "/help": "| Ctrl-D: leave",
        "/copy": "error: there is no command or skill /copy",
        "/model": "the model is scripted:x",
        "/model demo": "the next model is demo",
        "/role cook": "error: ",
        "/session": "session plan, ",
        "/usage": "| input: 3,600 tokens, of which 2,700 from the cache",
        "/tools": "| edit: ",
        "/skills": "there are no skills",
        "/permissions": "| none: there are no rules and no grants",
        "/compact": "the model is sent a summary from now on",
        "/show 1": "tool read ok:\n    one\n    two",
        "/show 9": "error: there is no such tool result",
        "/undo": "restored  notes.txt",
        "/resume": "there is no other session of this project yet",
        "/fork 1": "the prompt that was left out: Go.",
        "/redo": "there is nothing to redo",
        "/resume plan": "session plan, 6 messages; the last of them:\n> Go.\nDone.\n>",
        "/redo ": "> /redo\nrestored  notes.txt\n>",
    }.items():
        terminal.type(command)
        terminal.press("Enter")
        terminal.await_screen(answer)
    assert (chat.project / "notes.txt").read_text() == NOTES.replace("two", "TWO")
    terminal.type("/quit")
    terminal.press("Enter")
    assert terminal.await_end() == 0
    assert "go on with: perdure --session plan" in terminal.screen()


def test_in_plain_lines_an_interrupted_reply_is_kept_too(chat):
    chat.script({"text": "The first half, and", "until": "/never"}, {"text": "On with it."})
    terminal = chat.start("--plain")
    terminal.await_screen("type a prompt", "\n>")
    terminal.type("Tell me.")
    terminal.press("Enter")
    terminal.await_screen("The first half, and")
    terminal.press("C-c")
    seen = terminal.await_screen("cancelled; what was written so far is kept", "\n>")
    assert "CancelledError" not in seen
    terminal.type("Go on.")
    terminal.press("Enter")
    terminal.await_screen("On with it.\n>")
    terminal.press("C-d")
    assert terminal.await_end() == 0


def test_every_command_says_what_it_does(chat):
    skill = chat.project / ".agents" / "skills" / "knots"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: knots\ndescription: How to tie.\n---\nTie a bowline.\n")
    (chat.project / "roles").mkdir()
    (chat.project / "roles" / "mate.md").write_text("---\nname: mate\ndescription: Knows the ship.\n---\nBe brief.\n")
    chat.script({"text": "First."}, {"text": "Second."})
    terminal = chat.start("--session", "plan", rows=60)
    terminal.await_screen("Do you trust the files in this folder?")
    terminal.type("y")
    terminal.press("Enter")
    terminal.await_screen("ready")
    terminal.type("Begin.")
    terminal.press("Enter")
    terminal.await_screen("First.", "ready |")
    for command, answer in {
        "/help": "| /model: show or change the model",
        "/tools": "| calculate: ",
        "/skills": "- there are no skills",
        "/role": "| mate: Knows the ship.",
        "/role mate": "- the next run has the role mate",
        "/role cook": "error: ",
        "/model demo": "- the next model is demo",
        "/model nobody:x": "error: unknown model provider 'nobody'",
        "/model scripted:y": "- the next model is scripted:y",
        "/permissions": "| none: there are no rules and no grants",
        "/permissions revoke g": "error: there is no grant 'g'",
        "/compact": "too short to compact",
        "/undo": "- there is nothing to undo",
        "/show": "error: there is no such tool result",
        "/copy": "- 6 characters were sent to the clipboard",
        "/walk": "error: there is no command or skill /walk",
        "/session": "- session plan, ",
        "/fork 1": "- this is a fork, ",
    }.items():
        terminal.type(f"{command} " if " " not in command else command)
        terminal.press("Enter")
        terminal.await_screen(answer)
    terminal.await_screen("> Begin.\nready")  # the prompt that was left out can be changed and sent
    terminal.press("Enter")
    terminal.await_screen("First.\n>", "ready |")
    assert terminal.clipboard() == "First."  # of /copy
    choose_earlier_session(terminal)
    terminal.type("/quit ")
    terminal.press("Enter")
    assert terminal.await_end() == 0
    assert "go on with: perdure --session" in terminal.screen()


def choose_earlier_session(terminal):
    """Choose a session from the list of /resume: no session, a wrong number, and the one that the chat began with."""
    for answer, said in (
        ("", "Enter for none:\n>"),
        ("7", "error: '7' is none of the numbers"),
        ("1", "- session plan, "),
    ):
        terminal.type("/resume ")
        terminal.press("Enter")
        terminal.await_screen("| 1 plan: Begin.\nWhich? 1 to 1, or Enter for none:\nwaiting for your answer")
        terminal.type(answer)
        terminal.press("Enter")
        terminal.await_screen(said, "ready |")


def test_with_yolo_nothing_is_asked(chat):
    chat.script({"calls": [["write_text", {"path": "new.txt", "text": "hello"}]]}, {"text": "Written."})
    terminal = chat.start("--no-coding", "--yolo")
    terminal.await_screen("every tool call is made without asking", "ready")
    terminal.type("Write it.")
    terminal.press("Enter")
    assert "Allow this call?" not in terminal.await_screen("Written.", "ready |")
    assert (chat.project / "new.txt").read_text() == "hello"
