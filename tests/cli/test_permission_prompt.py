"""The question at the terminal."""

import asyncio
import json

import pytest

from perdure._cli.terminal.output import TerminalOutput
from perdure._cli.terminal.permission import TerminalPermissionPrompt
from perdure.events import QuestionAsked, RunResumed
from perdure.permissions import PermissionRequest
from tests.security.emulator import draw_rows

WRITE = 'Write "hello" to the text file {}'
CHOICES = "[y]es, [n]o, [r]un, [s]ession, [f]orever, [?] help: "


def asked(terminal) -> None:
    terminal.await_text(CHOICES)
    terminal.seen_before, terminal.seen = terminal.seen, ""


def choose(terminal, wanted: str) -> None:
    """Choose the first of the rules that are offered whose description has this."""
    terminal.await_text("or [n]one of them: ")
    rows = "".join([row[2:] if row.startswith(": ") else f"\n{row}" for row in draw_rows(terminal.seen, 120)])
    number = next(row[2:].partition(":")[0] for row in rows.splitlines() if row[2:3].isdecimal() and wanted in row)
    terminal.type(f"{number}\n")


@pytest.mark.parametrize("answer", ["y\n", "YES\n", "a\n", "allow\n"])
def test_a_call_is_shown_and_made_when_it_is_allowed(shell, answer):
    with shell.terminal("run", WRITE.format("a.txt")) as terminal:
        asked(terminal)
        rows = draw_rows(terminal.seen_before, 120)
        place = rows.index("Allow this call? (1 of 1, 6 rows)")
        assert rows[place + 1 : place + 7] == [
            "| agent: the agent of the session",
            '| tool: "write_text"',
            '| action: "write"',
            f'| target: "{shell.folder.resolve()}/a.txt"',
            '| argument path: "a.txt"',
            '| argument text: "hello"',
        ]
        assert not (shell.folder / "a.txt").exists()
        terminal.type(answer)
        assert terminal.end() == 0
    assert (shell.folder / "a.txt").read_text(encoding="utf-8") == "hello"


@pytest.mark.parametrize("answer", ["n\n", "No\n", "d\n", "Deny\n", "deny all\n", "\x04"])
def test_a_no_and_the_end_of_the_input_deny(shell, answer):
    with shell.terminal("run", WRITE.format("a.txt")) as terminal:
        asked(terminal)
        terminal.type(answer)
        assert terminal.end() == 0
    assert "tool write_text denied: permission denied" in terminal.seen
    assert not (shell.folder / "a.txt").exists()


def test_an_answer_that_is_none_is_asked_for_again_and_a_question_mark_helps(shell):
    with shell.terminal("run", WRITE.format("a.txt")) as terminal:
        asked(terminal)
        for nonsense in ("", "forget it", "yn", "yes please"):
            terminal.type(f"{nonsense}\n")
            asked(terminal)
        terminal.type("?\n")
        asked(terminal)
        assert "| y, yes: allow this call, once" in terminal.seen_before
        assert "| f, forever: " in terminal.seen_before
        terminal.type("Y\n")
        assert terminal.end() == 0
    assert (shell.folder / "a.txt").exists()


def test_ctrl_c_at_the_question_cancels_the_run(shell):
    with shell.terminal("run", "--session", "s", WRITE.format("a.txt")) as terminal:
        asked(terminal)
        terminal.type("\x03")
        assert terminal.end() == 130
    assert not (shell.folder / "a.txt").exists()
    assert "write_text cancelled_before_start" in shell.run("sessions", "show", "s").stdout


TOOL, TARGET, ARGUMENTS = "every call of", "on exactly", "with exactly these arguments"


@pytest.mark.parametrize(
    ("answer", "width", "session", "name", "again"),
    [
        ("s", TOOL, "one", "b.txt", False),
        ("s", TOOL, "two", "b.txt", True),
        ("s", TARGET, "one", "b.txt", True),
        ("s", TARGET, "one", "a.txt", False),
        ("s", ARGUMENTS, "one", "a.txt", False),
        ("r", TOOL, "one", "a.txt", True),
        ("f", TARGET, "two", "a.txt", False),
        ("f", TARGET, "two", "b.txt", True),
        ("y", "", "one", "a.txt", True),
    ],
)
def test_a_verdict_reaches_as_far_as_it_was_given(shell, answer, width, session, name, again):  # noqa: PLR0917
    with shell.terminal("run", "--session", "one", WRITE.format("a.txt")) as terminal:
        asked(terminal)
        terminal.type(f"{answer}\n")
        if width:
            choose(terminal, width)
        assert terminal.end() == 0
    (shell.folder / "a.txt").unlink()
    result = shell.run("run", "--session", session, WRITE.format(name))  # nobody can be asked here
    assert ("tool write_text denied" in result.stderr) is again
    assert (shell.folder / name).exists() is not again


def test_for_an_answer_that_lasts_the_user_chooses_the_calls(shell):
    with shell.terminal("run", WRITE.format("a.txt")) as terminal:
        asked(terminal)
        terminal.type("s\n")
        terminal.await_text("or [n]one of them: ")
        assert "| in this session, allow without asking:" in terminal.seen
        terminal.await_text("or [n]one of them: ")
        shown = "".join([row[2:] if row.startswith(": ") else f"\n{row}" for row in draw_rows(terminal.seen, 120)])
        assert "  rule: \"allow('write_text', action='write'" in shown
        assert '  so far: "it would have matched no earlier call of this session"' in shown
        assert "with exactly these arguments" in terminal.seen
        for nonsense in ("0", "99", "y", "1x", ""):
            terminal.seen = ""
            terminal.type(f"{nonsense}\n")
            terminal.await_text("or [n]one of them: ")
        terminal.type("n\n")
        asked(terminal)
        terminal.type("n\n")
        assert terminal.end() == 0
    assert not (shell.folder / "a.txt").exists()


def test_what_is_allowed_for_ever_can_be_found_and_taken_back(shell):
    with shell.terminal("run", WRITE.format("a.txt")) as terminal:
        asked(terminal)
        terminal.type("f\n")
        choose(terminal, TARGET)
        assert terminal.end() == 0
    kept = shell.home / "grants.jsonl"
    grant = json.loads(kept.read_text(encoding="utf-8"))
    assert (grant["target"], grant["by"]) == (str(shell.folder.resolve() / "a.txt"), "the user at the terminal")
    assert kept.stat().st_mode & 0o077 == 0
    kept.write_text("", encoding="utf-8")
    (shell.folder / "a.txt").unlink()
    assert "tool write_text denied" in shell.run("run", WRITE.format("a.txt")).stderr
    kept.write_text("not json\n", encoding="utf-8")
    result = shell.run("run", WRITE.format("a.txt"))
    assert (result.returncode, result.stdout) == (74, "")
    assert "error: the grant file " in result.stderr
    assert "cannot be parsed (line 1: " in result.stderr
    assert kept.read_text(encoding="utf-8") == "not json\n"


def test_what_was_typed_before_the_question_is_no_answer(shell):
    with shell.terminal("run", WRITE.format("a.txt")) as terminal:
        terminal.type("y\n")
        asked(terminal)
        terminal.type("n\n")
        assert terminal.end() == 0
    assert "tool write_text denied" in terminal.seen
    assert not (shell.folder / "a.txt").exists()


class Typist:
    """A keyboard on which these lines are typed, and then nothing more."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)
        self.lock = asyncio.Lock()

    def discard_typed(self) -> None:
        """Nothing is typed too early."""

    async def read_line(self) -> str | None:
        return self.lines.pop(0) if self.lines else None


def request(call_id="c", what="x") -> PermissionRequest:
    return PermissionRequest(call_id, "act", "act", what, {"what": what}, "hash", required=True)


def question(*calls, path="") -> QuestionAsked:
    return QuestionAsked("ask", "permission", "?", tuple([{"call_id": each} for each in calls]), path=path)


async def test_nothing_is_asked_before_the_events_up_to_the_question_have_been_printed(capsys):
    prompt = TerminalPermissionPrompt(TerminalOutput(), Typist("y"))  # type: ignore[arg-type]
    asking = asyncio.ensure_future(prompt([request("a")]))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not asking.done()
    assert capsys.readouterr().err == ""
    prompt.allow_asking(question("a"))
    assert [each.allow for each in await asyncio.wait_for(asking, 10)] == [True]


async def test_two_questions_that_were_shown_before_either_was_asked_are_both_asked(capsys):
    prompt = TerminalPermissionPrompt(TerminalOutput(), Typist("y", "n"))  # type: ignore[arg-type]
    prompt.allow_asking(question("a", path="agent/child"))
    prompt.allow_asking(RunResumed())
    first = await asyncio.wait_for(prompt([request("a")]), 10)
    second = await asyncio.wait_for(prompt([request("b")]), 10)
    assert [each.allow for each in (*first, *second)] == [True, False]
    written = capsys.readouterr().err
    assert '| agent: "agent/child"' in written
    assert "| agent: the agent of the session" in written


@pytest.mark.parametrize(
    ("typed", "verdicts"),
    [
        (("y", "n", "y"), [("once", True), ("once", False), ("once", True)]),
        (("s", "1", "n", "y"), [("session", True), ("once", False), ("once", True)]),
        (("y", "deny all"), [("once", True), ("once", False), ("once", False)]),
        (("y", "f", "none", "n"), [("once", True), ("once", False), ("once", False)]),
        (("y",), [("once", True), ("once", False), ("once", False)]),
        ((), [("once", False)] * 3),
    ],
)
async def test_each_call_of_a_reply_has_an_answer_of_its_own(typed, verdicts):
    prompt = TerminalPermissionPrompt(TerminalOutput(), Typist(*typed))  # type: ignore[arg-type]
    prompt.allow_asking(question("a", "b", "c"))
    answers = await prompt([request("a"), request("b"), request("c")])
    assert [(each.scope, each.allow) for each in answers] == verdicts


@pytest.mark.parametrize(
    ("typed", "allowed"),
    [
        (("", "", "", "", "", "y"), True),
        (("", "y", "", "", "", "y"), True),  # a yes before the end only shows more
        (("y", "y"), False),
        (("", "", "n"), False),
        (("end", "y"), True),
        (("", "deny"), False),
    ],
)
async def test_a_long_call_is_answered_after_its_last_page(typed, allowed, monkeypatch, capsys):
    monkeypatch.setenv("LINES", "25")
    prompt = TerminalPermissionPrompt(TerminalOutput(), Typist(*typed))  # type: ignore[arg-type]
    prompt.allow_asking(question("c"))
    text = "\n".join([f"line {number}" for number in range(1, 101)])
    (verdict,) = await prompt([request(what=text)])
    written = capsys.readouterr().err
    assert verdict.allow is allowed
    if allowed:
        assert ": 100 line 10" in written
        assert written.index(": 100 line 10") < written.rindex("[y]es")
        assert ("rows are skipped, and not seen" in written) is ("end" in typed)


async def test_a_terminal_that_is_too_narrow_denies(monkeypatch):
    monkeypatch.setenv("COLUMNS", "19")
    prompt = TerminalPermissionPrompt(TerminalOutput(), Typist("y"))  # type: ignore[arg-type]
    prompt.allow_asking(question("c"))
    (verdict,) = await prompt([request()])
    assert not verdict.allow
    assert "too narrow" in verdict.reason


def test_a_rule_is_shown_with_the_earlier_calls_that_it_would_have_matched():
    from perdure._cli.terminal.permission import _describe_earlier
    from perdure.permissions import Offer

    assert _describe_earlier(Offer("tool", "r", "m", 1, ("a",))) == "it would have matched 1 earlier call, such as a"
    assert _describe_earlier(Offer("tool", "r", "m", 9, ("a", "b"))).endswith("9 earlier calls, such as a; b")
