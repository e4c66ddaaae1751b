"""The interpreter of model-written programs: pydantic-monty, in separate processes without files or network.

A program is run in steps. A step goes on until every task of the program waits for calls of tools, and returns these:
they are carried out together, and their results begin the next step. So the order in which a program is given results
does not depend on time, and a program that is run again makes the same calls: the clock and the random numbers are
fixed too.
"""

import contextlib
import datetime as dt
import importlib.util
import os
import re
import signal
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct

from perdure._core.values.error import ConfigError, ToolError
from perdure._core.values.jsonable import replace_surrogates, to_jsonable

if TYPE_CHECKING:
    import pydantic_monty

MAX_PROCESSES: Final = 128
"""Number of programs that are under way at the same time; more of them wait."""
QUICK_STEP_SECONDS: Final = 0.005
"""Time that a step may take on the event loop; a program with a longer one is run on a thread."""
_QUICK_STEP_GRACE_SECONDS: Final = 0.05
"""Time after which a process that has not noticed that its step is too long is killed."""
_STEP_TOO_LONG: Final = "turn time limit exceeded"
_CHECKOUT_SECONDS: Final = 60.0
_PLACE: Final = re.compile(r'File "<python-input-\d+>", ')
_CLOCKS: Final = frozenset({"time.time", "datetime.now", "date.today"})
_SLEEPS: Final = frozenset({"time.sleep", "asyncio.sleep", "system.sleep", "system.async_sleep"})
_SCALARS: Final = frozenset({str, int, bool, type(None)})
_NO_SLEEP: Final = "a program cannot sleep: time does not pass in it. Call a tool that waits, or end the program"


class ProgramLimits(Struct, frozen=True):
    """Limits of one model-written program: time, memory, tool calls, printed text, depth of function calls."""

    max_seconds: float
    """Time that the program itself may run; the time of its calls does not count."""
    max_memory_bytes: int
    max_calls: int
    max_print_characters: int
    max_depth: int = 500
    """Depth of function calls."""


class ProgramError(ToolError):
    """Raised when a model-written program cannot be parsed, raises an error, or exceeds a limit; names the line."""


class StepNeedsThread(Exception):
    """Raised when a step of a model-written program takes too long for the event loop: it has to run on a thread."""


class FunctionCall(Struct, frozen=True):
    """A tool call that a model-written program makes: its number, the name of the function, and the arguments."""

    number: int
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class CallsAwaited(Struct, frozen=True):
    """Result of an interpreter step: the model-written program is paused until these tool calls have results."""

    calls: Sequence[FunctionCall]


class CurrentTimeAwaited(Struct, frozen=True):
    """Result of an interpreter step: the model-written program is paused until it is given the current time."""


class ProgramFinished(Struct, frozen=True):
    """Result of the last interpreter step: the model-written program has ended with this value."""

    value: Any


class CallReturned(Struct, frozen=True):
    """Answer to a tool call of a model-written program: the value that the call returns."""

    value: Any


class CallRaised(Struct, frozen=True):
    """Answer to a tool call of a model-written program: the exception that the call raises."""

    kind: str
    """Name of a built-in exception, such as `PermissionError`."""
    message: str


CallAnswer: TypeAlias = CallReturned | CallRaised
StepAnswers: TypeAlias = Mapping[int, CallAnswer] | float | None
"""Answers to the calls of a step by number, or the time in seconds since 1970; `None` before the first step."""
ProgramStep: TypeAlias = CallsAwaited | CurrentTimeAwaited | ProgramFinished


def require_monty(owner: str) -> None:
    """Raise `ConfigError` unless pydantic-monty is installed. It is not imported."""
    if importlib.util.find_spec("pydantic_monty") is None:
        raise ConfigError(f"{owner} needs the package pydantic-monty: pip install 'perdure[code]'")


class InterpreterPool:
    """Pool of processes that run model-written programs; the first program starts it, and `close` ends it."""

    def __init__(self, limits: ProgramLimits) -> None:
        self.limits = limits
        self._pool: pydantic_monty.Monty | None = None
        self._lock = threading.Lock()
        self._idle_count = 0
        """Number of processes that have run a program to its end, and wait for another."""

    @property
    def has_idle_process(self) -> bool:
        """True if a program can start at once: a process is there and has nothing to do."""
        return self._idle_count > 0

    def open_session(self, seed: str, *, is_quick: bool) -> "pydantic_monty.MontySession":
        """Return a process for one program, whose random numbers follow from the seed. Called on a thread."""
        import pydantic_monty  # at first use: it is optional

        limits = self.limits
        try:
            with self._lock:
                if self._pool is None:
                    pool = pydantic_monty.Monty(
                        max_processes=MAX_PROCESSES,
                        checkout_timeout=_CHECKOUT_SECONDS,
                        turn_duration_limit_grace=_QUICK_STEP_GRACE_SECONDS,
                    )
                    self._pool = pool.__enter__()
                pool = self._pool
                self._idle_count = max(0, self._idle_count - 1)
            return pool.checkout(
                script_name="program",
                limits={
                    "max_feed_duration_secs": limits.max_seconds,
                    "max_turn_duration_secs": QUICK_STEP_SECONDS if is_quick else None,
                    "max_memory": limits.max_memory_bytes,
                    "max_recursion_depth": limits.max_depth,
                    "max_suspensions": 10_000 + 4 * limits.max_calls,  # `max_calls` is checked here
                },
                os_policy={"datetime": "call_host", "sleep": "call_host", "random_start": {"seed": seed}},
            ).__enter__()
        except (OSError, RuntimeError, pydantic_monty.MontyError) as error:
            raise ToolError(f"the interpreter of programs could not be started: {error}") from error

    def close_session(self, session: "pydantic_monty.MontySession", *, is_killed: bool) -> None:
        """Return the process of a program that has ended or was stopped."""
        session.__exit__(None, None, None)
        with self._lock:
            self._idle_count += not is_killed

    def close(self) -> None:
        """End the processes. The next program starts others."""
        with self._lock:
            pool, self._pool, self._idle_count = self._pool, None, 0
        if pool is not None:
            pool.__exit__(None, None, None)


class RunningProgram:
    """A model-written program that is being run: call `advance` for each of its steps, and `stop` at the end.

    Steps are for a thread, unless the program `is_quick`: then a step that would take long raises `StepNeedsThread`.
    The first step may have to start a process.
    """

    def __init__(
        self, interpreter: InterpreterPool, code: str, functions: Collection[str], *, seed: str, is_quick: bool
    ) -> None:
        self.is_quick = is_quick
        """True if no step takes longer than the event loop can wait."""
        self._interpreter = interpreter
        self._code = replace_surrogates(code)
        self._functions = functions
        self._seed = seed
        self._session: pydantic_monty.MontySession | None = None
        self._snapshot: Any = None
        self._process_id: int | None = None
        self._waiting: dict[int, FunctionCall] = {}
        self._is_finished = False
        self._is_stopped = False
        self._is_advancing = False
        self._lock = threading.Lock()
        self._time: dt.datetime | None = None
        self._call_count = 0
        self._printed: list[str] = []
        self._printed_length = 0
        self.left_out = 0
        """Number of printed characters that were more than the limit."""

    @property
    def printed(self) -> str:
        """The text that the program has printed, up to the limit."""
        return "".join(self._printed)

    def advance(self, answers: StepAnswers) -> ProgramStep:
        """Run the program until it waits for calls or ends; blocks. Raises `ProgramError`.

        `answers` are those to the calls of the last step by number, or the time in seconds since 1970 if the program
        asked for it; `None` for the first step.
        """
        import pydantic_monty

        try:
            with self._lock:
                if self._is_stopped:
                    raise ToolError("the program was stopped")
                self._is_advancing = True
            return self._advance(answers)
        except pydantic_monty.MontyCrashedError as error:
            if self.is_quick and error.timed_out:
                raise StepNeedsThread from None
            raise ProgramError(f"the interpreter ended unexpectedly: {error}") from None
        except (pydantic_monty.MontySyntaxError, pydantic_monty.MontyRuntimeError) as error:
            if self.is_quick and _STEP_TOO_LONG in str(error):
                raise StepNeedsThread from None
            raise ProgramError(clean_program_traceback(error.display())) from None
        except pydantic_monty.MontyError as error:
            raise ProgramError(clean_program_traceback(str(error))) from None
        finally:
            with self._lock:
                self._is_advancing = False
                if self._is_stopped:
                    self._close_session()

    def advance_through(self, answers: Sequence[StepAnswers]) -> ProgramStep:
        """Run a new program with the answers that another one was given, to the same place; return the last step."""
        for each in answers[:-1]:
            self.advance(each)
        return self.advance(answers[-1])

    def _advance(self, answers: StepAnswers) -> ProgramStep:
        began = time.monotonic()
        snapshot = self._start() if answers is None else self._answer(answers)
        while (step := self._find_step(snapshot)) is None:
            if self.is_quick and time.monotonic() - began > QUICK_STEP_SECONDS:
                raise StepNeedsThread  # each part of it is short, as when the clock is read in a loop
            snapshot = self._resume(snapshot)
        self._snapshot = snapshot
        return step

    def _start(self) -> Any:
        session = self._interpreter.open_session(self._seed, is_quick=self.is_quick)
        with self._lock:
            self._session, self._process_id = session, session.worker_pid
            if self._is_stopped:
                raise ToolError("the program was stopped")
        return session.feed_start(self._code, print_callback=self._print)

    def _answer(self, answers: Mapping[int, CallAnswer] | float) -> Any:
        if isinstance(answers, Mapping):
            return self._snapshot.resume({number: _to_monty(answers[number]) for number in sorted(answers)})
        self._time = dt.datetime.fromtimestamp(answers, dt.UTC)
        return self._snapshot.resume({"return_value": _read_clock(self._snapshot, self._time)})

    def _find_step(self, snapshot: Any) -> ProgramStep | None:
        """Return the step that ends with this snapshot; `None` if the program can go on at once."""
        match type(snapshot).__name__:
            case "MontyComplete":
                if self._waiting:
                    name = next(iter(self._waiting.values())).name
                    raise ProgramError(f"a call of {name!r} was never awaited, and not made: write `await {name}(…)`")
                self._is_finished = True
                return ProgramFinished(snapshot.output)
            case "FutureSnapshot":
                return CallsAwaited([self._waiting.pop(each) for each in sorted(snapshot.pending_call_ids)])
            case _:
                is_clock = self._time is None and getattr(snapshot, "function_name", "") in _CLOCKS
                return CurrentTimeAwaited() if is_clock and snapshot.is_os_function else None

    def _resume(self, snapshot: Any) -> Any:
        """Answer what needs no tool: names, calls whose results come later, the clock, files and the like."""
        if type(snapshot).__name__ == "NameLookupSnapshot":
            if snapshot.object_id is None and snapshot.variable_name in self._functions:
                return snapshot.resume(value=_make_function(snapshot.variable_name))
            return snapshot.resume()
        name = snapshot.function_name
        if snapshot.is_os_function:
            if name in _CLOCKS and self._time is not None:
                return snapshot.resume({"return_value": _read_clock(snapshot, self._time)})
            if name in _SLEEPS:
                return snapshot.resume({"exc_type": "RuntimeError", "message": _NO_SLEEP})
            return snapshot.resume_not_handled()
        if name not in self._functions or snapshot.object_id is not None:
            return snapshot.resume({"exc_type": "NameError", "message": f"name {name!r} is not defined"})
        self._call_count += 1
        if self._call_count > self._interpreter.limits.max_calls:
            raise ProgramError(f"a program may make {self._interpreter.limits.max_calls} calls, and has made them")
        self._waiting[snapshot.call_id] = FunctionCall(snapshot.call_id, name, snapshot.args, snapshot.kwargs)
        return snapshot.resume({"future": ...})

    def _print(self, _stream: str, text: str) -> None:
        room = self._interpreter.limits.max_print_characters - self._printed_length
        if room > 0:
            self._printed.append(text[:room])
        self._printed_length += min(len(text), max(0, room))
        self.left_out += max(0, len(text) - max(0, room))

    def stop(self) -> None:
        """End the program, wherever it is: a step in progress is killed with its process."""
        with self._lock:
            self._is_stopped = True
            if not self._is_advancing:
                self._close_session()
            elif self._process_id is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._process_id, signal.SIGKILL)

    def _close_session(self) -> None:
        session, self._session, self._snapshot = self._session, None, None
        if session is not None:
            self._interpreter.close_session(session, is_killed=not self._is_finished)


def clean_program_traceback(text: str) -> str:
    """Return a program's traceback without the interpreter's file names, and with a hint if an `await` is missing."""
    text = _PLACE.sub("", text)
    if "'coroutine' object" in text:
        text = f"{text}\nTools are async functions: write `await` before each call."
    return text


def _read_clock(snapshot: Any, moment: dt.datetime) -> Any:
    """Return the time of a program, which stays the same, in the form that the call needs."""
    match snapshot.function_name:
        case "datetime.now":
            zone = snapshot.args[0] if snapshot.args else None
            return moment.replace(tzinfo=None) if zone is None else moment.astimezone(zone)
        case "date.today":
            return moment.date()
        case _:
            return moment.timestamp()


def _to_monty(answer: CallAnswer) -> dict[str, Any]:
    if isinstance(answer, CallRaised):
        return {"exc_type": answer.kind, "message": replace_surrogates(answer.message)}
    value = answer.value
    return {"return_value": value if type(value) in _SCALARS else to_jsonable(value)}


def _make_function(name: str) -> Any:
    def function() -> None: ...

    function.__name__ = function.__qualname__ = name
    return function
