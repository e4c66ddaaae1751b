"""The input of a chat: what each key does, and the rows that are printed above it."""

import asyncio
import contextlib
import io
from contextlib import asynccontextmanager, redirect_stdout

import pytest

from tests.doubles import SECONDS, until
from tests.security.emulator import draw_rows

pytestmark = pytest.mark.packages("prompt_toolkit")

PATIENCE = 20
"""Seconds after which a test that waits for the screen gives up."""


class Terminal(io.StringIO):
    """A terminal of 40 columns, which keeps all that is written."""

    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "24")
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


class Input:
    """An input area with a keyboard, and the calls of its handlers."""

    def __init__(self, keyboard):
        from prompt_toolkit.completion import WordCompleter
        from prompt_toolkit.history import InMemoryHistory

        from perdure._cli.chat.input import ChatInputArea

        self.keyboard = keyboard
        self.history = InMemoryHistory()
        completer = WordCompleter(["/help", "/model"], sentence=True)
        self.area = ChatInputArea(completer, self.history, lambda: "the status line")
        self.events: asyncio.Queue[object] = asyncio.Queue()
        self.area.on_submit = self.events.put_nowait
        self.area.on_escape = lambda: self.events.put_nowait("(escape)")
        self.area.on_unfold = lambda: self.events.put_nowait("(unfold)")
        self.running = asyncio.ensure_future(self.area.run())

    async def press(self, keys, count=1):
        """Press keys, and return the next calls of the handlers."""
        self.keyboard.send_text(keys)
        return [await self.events.get() for _ in range(count)]


@asynccontextmanager
async def opened(terminal):
    from prompt_toolkit.application import create_app_session
    from prompt_toolkit.input import create_pipe_input

    with redirect_stdout(terminal), create_pipe_input() as keyboard, create_app_session(input=keyboard):
        shown = Input(keyboard)
        async with asyncio.timeout(SECONDS):
            await until(lambda: "the status line" in terminal.getvalue())
            yield shown
            shown.area.close()
            await shown.running


async def test_enter_sends_what_is_typed_and_keeps_it_unless_it_is_blank(terminal):
    async with opened(terminal) as shown:
        assert shown.area.columns == 40
        assert await shown.press("hello\r") == ["hello"]
        assert await shown.press("one\ntwo\r") == ["one\ntwo"]
        assert await shown.press("a\x1b\rb\r") == ["a\nb"]
        assert await shown.press(" \r") == [" "]
        assert shown.history.get_strings() == ["hello", "one\ntwo", "a\nb"]


async def test_a_prompt_that_is_offered_can_be_changed_and_sent(terminal):
    async with opened(terminal) as shown:
        shown.area.set_input("again")
        assert await shown.press("!\r") == ["again!"]


async def test_escape_and_ctrl_o_are_handled(terminal):
    async with opened(terminal) as shown:
        assert await shown.press("\x0f") == ["(unfold)"]
        shown.area.is_busy = lambda: True
        assert await shown.press("x\x1b") == ["(escape)"]
        assert await shown.press("y\r") == ["xy"]


async def test_ctrl_d_leaves_when_nothing_is_typed(terminal):
    async with opened(terminal) as shown:
        assert await shown.press("x\x04\r") == ["x"]
        shown.keyboard.send_text("\x04")
        await shown.running


async def test_the_second_ctrl_c_leaves_unless_something_was_typed_between(terminal):
    async with opened(terminal) as shown:
        shown.keyboard.send_text("typed\x03")
        assert await shown.press("x\r") == ["x"]
        assert terminal.getvalue().count("- press Ctrl-C once more to leave; Esc") == 1
        shown.keyboard.send_text("\x03y\x03")
        assert await shown.press("z\r") == ["z"]
        assert not shown.running.done()
        shown.keyboard.send_text("\x03\x03")
        await shown.running


async def test_an_answer_is_typed_in_a_row_of_its_own_and_the_prompt_stays(terminal):
    async with opened(terminal) as shown:
        shown.keyboard.send_text("draft")
        assert await shown.press("\x0f") == ["(unfold)"]  # by then the text has arrived
        for keys, answer in (("yes\r", "yes"), ("no\x04", None)):
            terminal.truncate(0)
            asked = asyncio.ensure_future(shown.area.read_answer("Sure? [y] "))
            await until(lambda: "Sure? [y]" in terminal.getvalue())
            shown.keyboard.send_text(keys)
            assert await asked == answer
        assert await shown.press("!\r") == ["draft!"]


async def test_tab_completes_and_enter_takes_the_completion_before_it_sends(terminal):
    async with opened(terminal) as shown:
        shown.keyboard.send_text("/m")
        await until(lambda: "  /model" in terminal.getvalue())
        assert "/help" not in terminal.getvalue().partition("  /model")[2]
        shown.keyboard.send_text("\t")
        await until(lambda: "* /model" in terminal.getvalue())
        shown.keyboard.send_text("\r")
        assert await shown.press(" x\r") == ["/model x"]


async def test_rows_are_printed_above_and_control_sequences_as_they_are(terminal):
    async with opened(terminal) as shown:
        before = len(terminal.getvalue())
        shown.area.print_rows(["one", "two"])
        assert terminal.getvalue()[before:].endswith("one\r\ntwo\r\n")
        shown.area.write_raw("\x1b]52;c;QQ==\x07")
        assert terminal.getvalue().endswith("\x1b]52;c;QQ==\x07")


async def test_the_first_ctrl_c_does_not_leave(terminal):
    async with opened(terminal) as shown:
        shown.keyboard.send_text("\x03")
        assert await shown.press("x\r") == ["x"]
        assert not shown.running.done()


async def test_the_screen_has_live_rows_the_input_wrapped_under_its_mark_and_the_status(terminal):
    async with opened(terminal) as shown:
        shown.area.print_rows(["printed"])
        shown.area.show_live(["  live one", "  live two"])
        shown.keyboard.send_text(f"{'x' * 79}\nsecond line")
        await until(lambda: "second line" in terminal.getvalue())
        assert draw_rows(terminal.getvalue(), 80) == [
            "printed",
            "  live one",
            "  live two",
            "> " + "x" * 78,
            "  x",
            "  second line",
            "the status line",
        ]


async def await_rows(terminal: Terminal, rows: list[str]) -> None:
    """Wait until these are the rows on the screen."""
    seen: list[str] = []

    def is_shown() -> bool:
        seen[:] = draw_rows(terminal.getvalue(), 80)
        return seen == rows

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            await until(is_shown, pause=0.01)
    assert seen == rows


async def test_of_many_completions_those_around_the_chosen_one_are_shown_with_what_they_do(terminal):
    from prompt_toolkit.completion import WordCompleter

    async with opened(terminal) as shown:
        words = [f"w{number}" for number in range(9)]
        shown.area._input.completer = WordCompleter(words, meta_dict={"w1": "the second,\nwhich is long" + "g" * 40})
        shown.keyboard.send_text("w")
        await until(lambda: "the second" in terminal.getvalue())
        first = ["  w0", f"  w1  the second,␊which is long{'g' * 5}…", "  w2", "  w3", "  w4", "  w5"]
        await await_rows(terminal, ["> w", *first, "the status line"])
        shown.keyboard.send_text("\t")
        first[0] = "* w0"
        await await_rows(terminal, ["> w0", *first, "the status line"])
        shown.keyboard.send_text("\t" * 6)
        rows = [first[1], "  w2", "  w3", "  w4", "  w5", "* w6"]
        await await_rows(terminal, ["> w6", *rows, "the status line"])
        shown.keyboard.send_text("\t" * 2)
        rows = ["  w3", "  w4", "  w5", "  w6", "  w7", "* w8"]
        await await_rows(terminal, ["> w8", *rows, "the status line"])


async def test_tab_completes_at_once_what_was_not_offered_yet(terminal):
    async with opened(terminal) as shown:
        shown.area.set_input("/he")
        shown.keyboard.send_text("\t")
        await until(lambda: "* /help" in terminal.getvalue())
        shown.keyboard.send_text("\r")
        assert await shown.press("\r") == ["/help"]


async def test_of_live_rows_the_last_ones_are_shown(terminal, monkeypatch):
    async with opened(terminal) as shown:
        shown.area.show_live([f"row {number}" for number in range(20)])
        rows = [f"row {number}" for number in range(7, 20)]
        await await_rows(terminal, [*rows, ">", "the status line"])
        monkeypatch.setenv("LINES", "5")
        shown.area.show_live([f"row {number}" for number in range(20)])
        await await_rows(terminal, ["row 17", "row 18", "row 19", ">", "the status line"])
        shown.area.show_live([])
        await await_rows(terminal, [">", "the status line"])


async def test_a_redrawn_status_is_the_present_one(terminal):
    async with opened(terminal) as shown:
        statuses = ["another status line which is longer than the terminal"]
        shown.area._get_status = lambda: statuses[-1]
        shown.area.redraw()
        await await_rows(terminal, [">", "another status line which is longer t…"])


async def test_after_the_end_only_what_was_printed_is_on_the_screen(terminal):
    async with opened(terminal) as shown:
        shown.area.print_rows(["for good"])
        shown.area.show_live(["not yet"])
        shown.keyboard.send_text("typed")
        await until(lambda: "> typed" in draw_rows(terminal.getvalue(), 40))
        assert draw_rows(terminal.getvalue(), 40) == ["for good", "not yet", "> typed", "the status line"]
    assert draw_rows(terminal.getvalue(), 40) == ["for good"]
