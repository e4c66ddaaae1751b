"""Events of a session in the chat: every row that is printed, what still streams, and what the run waits for."""

import sys
from collections.abc import Sequence

import pytest

from perdure import Message, Status, Text, ToolCall, ToolResult, assistant, user
from perdure._cli.chat.view import WindowScreen
from perdure._cli.terminal.screen import CUT_OFF, MAX_CALLS
from perdure.events import (
    ErrorRaised,
    Event,
    MessageAdded,
    ModelRequested,
    QuestionAsked,
    ReplyDiscarded,
    RetryScheduled,
    RunEnded,
    RunWaiting,
    SlotOpened,
    SlotUpdated,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEnded,
)

pytestmark = pytest.mark.packages("rich")


class Rows:
    """The place above the input: it keeps what is printed and what is live, in order."""

    columns = 30

    def __init__(self) -> None:
        self.printed: list[str] = []
        self.live: list[list[str]] = []
        self.redrawn = 0

    def print_rows(self, rows: Sequence[str]) -> None:
        self.printed += rows

    def show_live(self, rows: Sequence[str]) -> None:
        self.live.append(list(rows))

    def redraw(self) -> None:
        self.redrawn += 1

    def take(self) -> list[str]:
        taken, self.printed = self.printed, []
        return taken


@pytest.fixture
def window():
    return Rows()


@pytest.fixture
def notes():
    return []


@pytest.fixture
def view(window, notes):
    return WindowScreen(window, notes.append)


def show(view: WindowScreen, *events: Event, diff: str = "") -> None:
    for event in events:
        view.show(event, diff)


def finished(call_id: str, text: str, *, status: Status = Status.OK, name: str = "bash", seconds: float = 0.0):
    result = ToolResult(call_id, name, (Text(text),), status)
    return ToolFinished(call_id=call_id, name=name, result=result, duration_seconds=seconds)


def started(call_id: str, name: str = "bash") -> ToolStarted:
    return ToolStarted(call_id=call_id, name=name, effect="read", idempotency_key="k")


def test_a_reply_is_live_until_a_block_is_complete_and_then_printed_once(view, window, notes):
    show(view, ModelRequested(turn=1, model="acme:\nsmall"))
    assert view.waiting_for == "the model acme:␊small"
    show(view, ThinkingDelta(text="hm"))
    assert view.waiting_for == "the model, which thinks"
    show(view, TextDelta("One "), TextDelta("two.\n\n"), TextDelta("- three"))
    assert view.waiting_for == "the model, which answers"
    assert window.take() == ["", "  One two."]
    assert window.live == [["  One"], [], ["   • three"]]
    assert view.last_answer == ""
    show(view, MessageAdded(assistant("One two.\n\n- three")))
    assert window.take() == ["", "   • three"]
    assert window.live[3:] == [[]]
    assert view.last_answer == "One two.\n\n- three"
    show(view, MessageAdded(assistant("Whole.")), MessageAdded(assistant("")))
    assert window.take() == ["", "  Whole."]
    assert view.last_answer == "Whole."
    show(view, TurnEnded(turn=1))
    assert view.waiting_for == "the next turn"
    assert notes == []


def test_without_a_name_the_model_is_the_model(view):
    show(view, ModelRequested(turn=1))
    assert view.waiting_for == "the model"


def test_the_reply_of_a_subagent_is_not_shown_but_what_it_displays_is(view, window, notes):
    below, rows = "child", {"text": "shown to the user, in rows\nof 29 columns"}
    show(
        view,
        TextDelta("secret", path=below),
        RunEnded(status="failed", error="Boom", path=below),
        SlotOpened(slot_id="s", renderer="text", input=rows, path=below),
        SlotUpdated(slot_id="s", input={"text": "again"}, path=below),
    )
    assert window.take() == [
        "  > shown to the user, in row",
        "  s",
        "  > of 29 columns",
        "  > again",
    ]
    assert (window.live, notes, view.waiting_for) == ([], [], "")


def test_a_slot_of_which_nothing_is_known_is_shown_as_it_is(view, window):
    show(view, SlotUpdated(slot_id="s", input={"a": 1}))
    assert window.take() == ['  > : {"a":1}']


def test_a_prompt_is_wrapped_under_its_mark(view, window):
    view.show_prompt("x" * 27 + "y\nsecond\tline", "sent before the next turn of it")
    assert window.take() == [
        "",
        "> " + "x" * 27,
        "  y",
        "  second␉line",
        "- sent before the next turn",
        "  of it",
    ]
    view.show_prompt("plain")
    assert window.take() == ["", "> plain"]


def test_messages_from_elsewhere_are_shown_and_those_typed_here_are_not_shown_again(view, window):
    view.typed += ["typed", "other"]
    show(
        view,
        MessageAdded(user("typed", origin="steering")),
        MessageAdded(user("typed", origin="steering")),
        MessageAdded(user("posted", origin="inbox")),
        MessageAdded(user("later", origin="follow_up")),
        MessageAdded(user("a prompt, which was shown when it was typed")),
    )
    assert view.typed == ["other"]
    assert window.take() == [
        *["", "> typed", "- sent from elsewhere"],
        *["", "> posted", "- sent from elsewhere"],
        *["", "> later", "- sent from elsewhere"],
    ]


def test_a_stored_conversation_is_shown_as_it_looked(view, window):
    call = ToolCall("c1", "bash", '{"command": "ls"}')
    view.show_stored(
        [
            user("list the files"),
            Message("assistant", (Text("Yes."), call)),
            Message("tool", (ToolResult("c1", "bash", (Text("a\nb\n"),)),)),
            user("and then", origin="steering"),
            assistant(f"Begun\n\n{CUT_OFF}"),
        ]
    )
    assert window.take() == [
        *["", "> list the files"],
        *["", "  Yes."],
        *["", "* bash ls", "    a", "    b"],
        *["", "> and then", "- sent from elsewhere"],
        *["", "  Begun"],
        *["", "  (The user cancelled the", "  reply here.)"],
    ]
    assert view.last_answer == f"Begun\n\n{CUT_OFF}"
    assert [(call.number, call.arguments) for call in view.calls] == [(1, '{"command": "ls"}')]


def test_a_reply_that_was_cancelled_is_not_printed_a_second_time(view, window, notes):
    show(view, TextDelta("Half of"), ReplyDiscarded(turn=1, reason="CancelledError"))
    show(view, MessageAdded(assistant(f"Half of\n\n{CUT_OFF}")), RunEnded(status="cancelled"))
    assert window.take() == ["", "  Half of"]
    assert view.last_answer == ""
    assert notes == ["cancelled; what was written so far is kept, and the next prompt goes on from there"]


def test_a_model_that_repeats_the_words_about_a_cancelled_reply_is_shown(view, window):
    words = f"You saw: {CUT_OFF}"
    show(view, TextDelta(words), MessageAdded(assistant(words), run_id="r"), MessageAdded(assistant(words), run_id="r"))
    assert window.take() == ["", "  You saw: (The user", "  cancelled the reply here.)"] * 2
    assert view.last_answer == words


def test_a_reply_that_broke_off_is_printed_with_the_reason_unless_it_was_an_aside(view, window, notes):
    show(view, TextDelta("Half"), ReplyDiscarded(turn=1, reason="aside", aside=True))
    assert (window.take(), notes) == ([], [])
    show(view, ReplyDiscarded(turn=1, reason="Broken\nConnection"))
    assert (window.take(), notes) == (["", "  Half"], ["the reply broke off (Broken␊Connection)"])
    show(view, MessageAdded(assistant("Whole.")))
    assert window.take() == ["", "  Whole."]


def test_what_delays_or_ends_a_run_is_told(view, window, notes):
    show(view, RetryScheduled(attempt=1, max_attempts=3, delay_seconds=2.0, error="Busy\n", message="later"))
    assert view.waiting_for == "the next attempt, after Busy␊"
    show(view, started("c1"), RunWaiting(asks=("q",)))
    assert view.waiting_for == ""
    show(view, TextDelta("end"), started("c2"))
    show(view, ErrorRaised(error="E", message="m", where="here"), RunEnded(status="failed", error="Boom"))
    assert view.waiting_for == ""
    assert window.take() == ["", "  end"]
    show(view, started("c3"))
    assert view.waiting_for == "bash"
    show(view, RunEnded(status="done"))
    assert notes == ["Busy␊: later; trying again in 2.0 s", "here: E: m", "the run ended early (failed: Boom)"]


def test_the_calls_in_progress_are_told_with_the_last_line_of_their_text(view, window):
    calls = (ToolCall("c1", "bash", '{"command": "make"}'), ToolCall("c2", "read", '{"path": "a\\tb"}'))
    show(view, MessageAdded(Message("assistant", calls)), started("c1"), started("c2", "read"))
    assert view.waiting_for == "bash make; read a␉b"
    show(view, ToolProgress(call_id="c1", name="bash", data="one\ntwo\n"))
    assert view.waiting_for == "bash make: two; read a␉b"
    show(view, ToolProgress(call_id="c1", name="bash", data={"done": 1}))
    assert view.waiting_for == "bash make; read a␉b"
    assert window.redrawn == 4
    show(view, finished("c1", ""))
    assert view.waiting_for == "read a␉b"
    show(view, finished("c2", "", name="read"), finished("c2", "", name="read"))
    assert view.waiting_for == "the next turn"
    assert window.take() == ["", "* bash make", "* read a␉b", "* read a␉b"]


def test_cards_stand_together_until_something_else_is_printed(view, window):
    show(view, finished("c1", "one"), finished("c2", "two", status=Status.ERROR, seconds=1.0))
    assert window.take() == ["", "* bash", "    one", "* bash (error) (1 s)", "    two"]
    view.show_prompt("hello")
    show(view, finished("c3", "three"))
    assert window.take() == ["", "> hello", "", "* bash", "    three"]
    show(view, QuestionAsked(ask_id="q", about="permission", text="?"), finished("c4", "four"))
    assert window.take() == ["", "* bash", "    four"]


def test_a_long_result_is_folded_and_unfolded_by_its_number(view, window):
    lines = [str(number) for number in range(10)]
    show(view, finished("c1", "\n".join(lines)), finished("c2", "short"))
    assert window.take() == [
        *["", "* bash", "    0", "    1", "    2", "    3"],
        "    … 2 more lines; /show 1 shows all",
        *["    6", "    7", "    8", "    9"],
        *["* bash", "    short"],
    ]
    assert view.unfold_card(1) is True
    assert window.take() == ["", "* bash", *[f"    {line}" for line in lines]]
    assert view.unfold_card() is True
    assert window.take() == ["", "* bash", "    short"]
    assert view.unfold_card(3) is False
    show(view, finished("c3", "x"))
    assert window.take() == ["", "* bash", "    x"]


def test_without_a_card_there_is_nothing_to_unfold(view, window):
    assert view.unfold_card() is False
    assert window.take() == []


def test_a_change_of_a_file_is_shown_as_a_diff_in_its_colours(view, window, monkeypatch):
    diff = "-old\n+new and so long that it wraps\n"
    show(view, finished("c1", "edited", name="edit"), diff=diff)
    assert window.take() == ["", "* edit", "    -old", "    +new and so long that it ", "    wraps"]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    show(view, finished("c1", "edited", name="edit"), diff=diff)
    show(view, finished("c2", "-as it is"))
    assert window.take() == [
        *[
            "* edit",
            "    \x1b[31m-old\x1b[0m",
            "    \x1b[32m+new and so long that it \x1b[0m",
            "    \x1b[32mwraps\x1b[0m",
        ],
        *["* bash", "    -as it is"],
    ]


def test_only_the_last_cards_can_be_unfolded(view):
    for number in range(MAX_CALLS + 2):
        show(view, finished(f"c{number}", "x"))
    assert [call.number for call in view.calls] == list(range(3, MAX_CALLS + 3))
    assert view.call_count == MAX_CALLS + 2
