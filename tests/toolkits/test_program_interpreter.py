"""The interpreter of model-written programs: steps, calls, limits, printed text and processes."""

import datetime as dt
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from perdure import ToolError
from perdure._tools.code.interpreter import (
    CallRaised,
    CallReturned,
    CallsAwaited,
    CurrentTimeAwaited,
    FunctionCall,
    InterpreterPool,
    ProgramError,
    ProgramFinished,
    ProgramLimits,
    RunningProgram,
    clean_program_traceback,
)

pytestmark = pytest.mark.packages("pydantic_monty")
LIMITS = ProgramLimits(max_seconds=50, max_memory_bytes=20_000_000, max_calls=3, max_print_characters=10)


@pytest.fixture
def pool() -> Iterator[InterpreterPool]:
    pool = InterpreterPool(LIMITS)
    yield pool
    pool.close()


@pytest.fixture
def begin(pool: InterpreterPool) -> Iterator[Callable[[str], RunningProgram]]:
    begun: list[RunningProgram] = []

    def begin_program(code: str) -> RunningProgram:
        begun.append(RunningProgram(pool, code, ["look", "send"], seed="s", is_quick=False))
        return begun[-1]

    yield begin_program
    for each in begun:
        each.stop()


def test_a_program_pauses_for_its_calls_and_goes_on_with_their_answers(begin):
    program = begin(
        "import asyncio\n"
        "first = await look('a', b=[1])\n"
        "both = await asyncio.gather(send(c=None), look())\n"
        "[first, both]"
    )
    first = program.advance(None)
    assert first == CallsAwaited([FunctionCall(first.calls[0].number, "look", ("a",), {"b": [1]})])
    second = program.advance({first.calls[0].number: CallReturned("x")})
    assert [(each.name, each.args, each.kwargs) for each in second.calls] == [
        ("send", (), {"c": None}),
        ("look", (), {}),
    ]
    numbers = [each.number for each in second.calls]
    assert numbers == sorted(set(numbers))
    answers = {numbers[1]: CallReturned(True), numbers[0]: CallReturned({"y": 2.5})}
    assert program.advance(answers) == ProgramFinished(["x", [{"y": 2.5}, True]])


def test_a_program_gets_values_as_json_has_them(begin):
    program = begin("x = await look()\n[x, type(x['pair']).__name__]")
    call = program.advance(None).calls[0]
    value = {"pair": (1, 2), "day": dt.date(2026, 1, 2)}
    assert program.advance({call.number: CallReturned(value)}) == ProgramFinished(
        [{"pair": [1, 2], "day": "2026-01-02"}, "list"]
    )


def test_an_answer_can_raise_in_the_program(begin):
    program = begin("try:\n  await look()\nexcept PermissionError as error:\n  text = str(error)\ntext")
    call = program.advance(None).calls[0]
    assert program.advance({call.number: CallRaised("PermissionError", "not allowed")}) == ProgramFinished(
        "not allowed"
    )


def test_a_program_is_given_the_time_once_and_it_stands_still(begin):
    program = begin("import time\na = time.time()\nb = time.time()\n[a, b]")
    assert program.advance(None) == CurrentTimeAwaited()
    assert program.advance(1_700_000_000.0) == ProgramFinished([1_700_000_000.0, 1_700_000_000.0])


def test_a_program_cannot_sleep_whether_it_knows_the_time_or_not(begin):
    for code in ("import time\ntime.sleep(1)", "import time\ntime.time()\ntime.sleep(1)"):
        program = begin(code)
        answers = [None, 1_700_000_000.0] if "time.time" in code else [None]
        with pytest.raises(ProgramError, match="RuntimeError: a program cannot sleep: time does not pass in it"):
            program.advance_through(answers)


def test_a_program_can_make_as_many_calls_as_it_may_and_no_more(begin):
    program = begin("for i in range(4): await look()")
    step = program.advance(None)
    for _ in range(2):
        step = program.advance({step.calls[0].number: CallReturned(None)})
    with pytest.raises(ProgramError) as raised:
        program.advance({step.calls[0].number: CallReturned(None)})
    assert str(raised.value) == "a program may make 3 calls, and has made them"


def test_a_call_that_is_never_awaited_is_an_error(begin):
    with pytest.raises(ProgramError) as raised:
        begin("look()\n1").advance(None)
    assert str(raised.value) == "a call of 'look' was never awaited, and not made: write `await look(…)`"


def test_a_name_that_is_no_tool_is_not_defined(begin):
    with pytest.raises(ProgramError, match=r"line 2, in <module>\n(.*\n)*NameError: name 'other' is not defined"):
        begin("x = 1\nother()").advance(None)


def test_text_is_printed_up_to_the_limit_and_the_rest_is_counted(begin):
    program = begin("print('abcdef')\nprint('gh')\nprint('ijk')\nprint('lm')")
    assert program.advance(None) == ProgramFinished(None)
    assert (program.printed, program.left_out) == ("abcdef\ngh\n", 7)


def test_text_is_cut_in_the_middle_of_a_line(begin):
    program = begin("print('abcdefghijklmn')")
    program.advance(None)
    assert (program.printed, program.left_out) == ("abcdefghij", 5)


def test_text_that_just_fits_is_printed_whole(begin):
    program = begin("print('abcdefghi')")
    program.advance(None)
    assert (program.printed, program.left_out) == ("abcdefghi\n", 0)


def test_processes_that_have_nothing_to_do_are_counted(pool, begin):
    assert not pool.has_idle_process
    programs = [begin("1"), begin("2")]
    for each in programs:
        each.advance(None)
    assert not pool.has_idle_process
    for each in programs:
        each.stop()
        each.stop()  # has no effect
    assert pool.has_idle_process
    third, fourth = begin("await look()"), begin("4")
    third.advance(None)
    assert pool.has_idle_process
    fourth.advance(None)
    assert not pool.has_idle_process
    third.stop()  # it was not at its end, so its process is not used again
    assert not pool.has_idle_process
    fourth.stop()
    assert pool.has_idle_process
    pool.close()
    assert not pool.has_idle_process
    fifth = begin("5")  # starts another process
    assert fifth.advance(None) == ProgramFinished(5)


class NotedSession:
    """A session that notes when its program begins."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.begun = threading.Event()

    def feed_start(self, *args: Any, **options: Any) -> Any:
        self.begun.set()
        return self._session.feed_start(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


def test_a_stop_kills_a_step_that_computes(pool, begin, monkeypatch):
    program = begin("while True: pass")
    session = NotedSession(pool.open_session("s", is_quick=False))
    monkeypatch.setattr(pool, "open_session", lambda *_, **__: session)
    raised: list[str] = []

    def advance() -> None:
        try:
            program.advance(None)
        except ProgramError as error:
            raised.append(str(error).partition(":")[0])

    thread = threading.Thread(target=advance, daemon=True)
    thread.start()
    assert session.begun.wait(10)
    program.stop()
    thread.join(10)
    assert not thread.is_alive()
    assert raised == ["the interpreter ended unexpectedly"]
    assert not pool.has_idle_process
    with pytest.raises(ToolError, match=r"^the program was stopped$"):
        program.advance(None)


def test_an_interpreter_that_cannot_be_started_is_an_error_for_the_model(begin, monkeypatch):
    def fail(**options: Any) -> Any:
        raise OSError("no such program")

    monkeypatch.setattr("pydantic_monty.Monty", fail)
    with pytest.raises(ToolError) as raised:
        begin("1").advance(None)
    assert str(raised.value) == "the interpreter of programs could not be started: no such program"


def test_a_killed_process_ends_its_program_with_an_error(begin):
    program = begin("await look()")
    step = program.advance(None)
    os.kill(program._process_id, 9)
    with pytest.raises(ProgramError, match=r"^the interpreter ended unexpectedly: "):
        program.advance({step.calls[0].number: CallReturned(1)})


def test_the_same_seed_gives_the_same_random_numbers(pool):
    def draw(seed: str) -> Any:
        program = RunningProgram(pool, "import random\nrandom.random()", [], seed=seed, is_quick=False)
        value = program.advance(None)
        program.stop()
        return value

    assert draw("a") == draw("a")
    assert draw("a") != draw("b")


def test_a_program_is_run_again_with_the_answers_that_another_one_was_given(begin):
    code = "x = await look()\nawait send(x)"
    first = begin(code)
    answers = {first.advance(None).calls[0].number: CallReturned("a")}
    expected = first.advance(answers)
    assert [(each.name, each.args) for each in expected.calls] == [("send", ("a",))]
    assert begin(code).advance_through([None, answers]) == expected


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ('File "<python-input-12>", line 3', "line 3"),
        (
            "TypeError: 'coroutine' object is not iterable",
            "TypeError: 'coroutine' object is not iterable\nTools are async functions: write `await` before each call.",
        ),
        ("ValueError: x", "ValueError: x"),
    ],
)
def test_a_traceback_is_shown_without_the_names_of_files(text, clean):
    assert clean_program_traceback(text) == clean
