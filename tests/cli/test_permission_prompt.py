"""The question at the terminal."""

import json

import pytest

from perdure.cli.permission_prompt import MAX_SHOWN, _describe_call
from perdure.core.permission import PermissionRequest

WRITE = 'Write "hello" to the text file {}'


def asked(terminal) -> None:
    terminal.await_text("[a]llow once, [s]ession, [t]arget, [f]orever, [d]eny: ")


def test_a_call_is_shown_and_made_when_it_is_allowed(shell):
    with shell.terminal("run", WRITE.format("a.txt")) as terminal:
        asked(terminal)
        assert "Allow this?" in terminal.seen
        assert "  write_text" in terminal.seen
        assert "    action: write" in terminal.seen
        assert f"    target: {shell.folder.resolve()}/a.txt" in terminal.seen
        assert '    arguments: {"path":"a.txt","text":"hello"}' in terminal.seen
        assert "    session: allow('write_text', action='write')" in terminal.seen
        target = f"target='{shell.folder.resolve()}/a.txt'"
        rule = f"allow('write_text', action='write', {target})"
        assert f"    target, forever: {rule}" in terminal.seen.replace("\r\n", "")
        assert not (shell.folder / "a.txt").exists()
        terminal.type("a\n")
        assert terminal.end() == 0
    assert (shell.folder / "a.txt").read_text(encoding="utf-8") == "hello"


@pytest.mark.parametrize("answer", ["d\n", "Deny\n", "\x04"])
def test_a_no_and_the_end_of_the_input_deny(shell, answer):
    with shell.terminal("run", WRITE.format("a.txt")) as terminal:
        asked(terminal)
        terminal.type(answer)
        assert terminal.end() == 0
    assert "tool write_text denied: permission denied" in terminal.seen
    assert not (shell.folder / "a.txt").exists()


def test_an_answer_that_is_none_is_asked_for_again(shell):
    with shell.terminal("run", WRITE.format("a.txt")) as terminal:
        asked(terminal)
        terminal.seen = ""
        terminal.type("\n")
        asked(terminal)
        terminal.seen = ""
        terminal.type("forget it\n")
        asked(terminal)
        terminal.type("ALLOW\n")
        assert terminal.end() == 0
    assert (shell.folder / "a.txt").exists()


def test_ctrl_c_at_the_question_cancels_the_run(shell):
    with shell.terminal("run", "--session", "s", WRITE.format("a.txt")) as terminal:
        asked(terminal)
        terminal.type("\x03")
        assert terminal.end() == 130
    assert not (shell.folder / "a.txt").exists()
    assert "write_text cancelled_before_start" in shell.run("sessions", "show", "s").stdout


@pytest.mark.parametrize(
    ("answer", "session", "name", "again"),
    [
        ("s", "one", "b.txt", False),
        ("s", "two", "b.txt", True),
        ("t", "one", "b.txt", True),
        ("t", "one", "a.txt", False),
        ("f", "two", "a.txt", False),
        ("f", "two", "b.txt", True),
        ("a", "one", "a.txt", True),
    ],
)
def test_a_verdict_reaches_as_far_as_it_was_given(shell, answer, session, name, again):
    with shell.terminal("run", "--session", "one", WRITE.format("a.txt")) as terminal:
        asked(terminal)
        terminal.type(f"{answer}\n")
        assert terminal.end() == 0
    (shell.folder / "a.txt").unlink()
    result = shell.run("run", "--session", session, WRITE.format(name))  # nobody can be asked here
    assert ("tool write_text denied" in result.stderr) is again
    assert (shell.folder / name).exists() is not again


def test_what_is_allowed_for_ever_can_be_found_and_taken_back(shell):
    with shell.terminal("run", WRITE.format("a.txt")) as terminal:
        asked(terminal)
        terminal.type("f\n")
        assert terminal.end() == 0
    kept = shell.home / "grants.jsonl"
    assert "grants.jsonl; delete its line there to revoke it" in terminal.seen.replace("\r\n", "")
    assert json.loads(kept.read_text(encoding="utf-8"))["target"] == str(shell.folder.resolve() / "a.txt")
    assert kept.stat().st_mode & 0o077 == 0
    kept.write_text("", encoding="utf-8")
    (shell.folder / "a.txt").unlink()
    assert "tool write_text denied" in shell.run("run", WRITE.format("a.txt")).stderr
    kept.write_text("not json\n", encoding="utf-8")
    result = shell.run("run", WRITE.format("a.txt"))
    assert (result.returncode, result.stdout) == (74, "")
    assert "error: line 1 of the grants in " in result.stderr
    assert kept.read_text(encoding="utf-8") == "not json\n"


def test_nothing_in_a_call_can_pretend_to_be_something_else():
    text = "x\nAllow this?\n  read_text\u202e\x1b[2K\u200b"
    request = PermissionRequest("c", f"tool{text}", f"action{text}", text, {"path": text}, "hash", required=True)
    described = _describe_call(request)
    assert described.count("\n") == 6
    assert not [character for character in described.replace("\n", "") if not character.isprintable()]


def test_a_call_that_is_too_long_to_show_says_how_much_is_missing():
    request = PermissionRequest("c", "tool", "action", "t" * (MAX_SHOWN + 1234), {}, "hash", required=True)
    assert f"{'t' * MAX_SHOWN} … and 1,234 characters more\n" in _describe_call(request)


def test_what_was_typed_before_the_question_is_no_answer(shell):
    with shell.terminal("run", WRITE.format("a.txt")) as terminal:
        terminal.type("a\n")
        asked(terminal)
        terminal.type("d\n")
        assert terminal.end() == 0
    assert "tool write_text denied" in terminal.seen
    assert not (shell.folder / "a.txt").exists()
