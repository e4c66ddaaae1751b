"""What a person types."""

import asyncio
import os
import pty
import sys

import pytest

from perdure._cli.terminal.input import LineReader


@pytest.fixture
def typed(monkeypatch):
    """A terminal as standard input; what is written to it is typed."""
    ours, theirs = pty.openpty()
    with open(theirs, closefd=False, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield lambda text: os.write(ours, text.encode())
    os.close(ours)
    os.close(theirs)


async def test_lines_come_one_by_one_and_the_end_is_told(typed):
    keyboard = LineReader()
    typed("one\n")
    assert await asyncio.wait_for(keyboard.read_line(), 30) == "one"
    typed("two\n\x04")
    assert await asyncio.wait_for(keyboard.read_line(), 30) == "two"
    assert await asyncio.wait_for(keyboard.read_line(), 30) is None


async def test_a_question_that_was_given_up_does_not_swallow_the_answer_to_the_next(typed):
    keyboard = LineReader()
    given_up = asyncio.ensure_future(keyboard.read_line())
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait((given_up,))
    typed("two\n")
    assert await asyncio.wait_for(keyboard.read_line(), 30) == "two"


async def test_what_was_typed_before_a_question_is_forgotten(typed):
    keyboard = LineReader()
    typed("early\n")
    keyboard.discard_typed()
    typed("late\n")
    assert await asyncio.wait_for(keyboard.read_line(), 30) == "late"


def test_where_there_are_no_terminals_nothing_is_forgotten(monkeypatch):
    monkeypatch.setitem(sys.modules, "termios", None)
    monkeypatch.setattr(sys, "stdin", None)
    LineReader().discard_typed()
