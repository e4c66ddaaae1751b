"""Code mode: the model writes programs that call tools (`run_program`); the called tools may be hidden from it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any, Final, cast

from msgspec.structs import replace

from perdure._core.run.calling_run import get_run_of_call
from perdure._core.run.tool_calls.direct import ProgramCallExecutor
from perdure._core.tools.context import ToolContext
from perdure._core.tools.tool import Tool, ToolOutput, tool
from perdure._core.tools.toolbox import Toolbox
from perdure._core.tools.worker.threads import THREAD_POOL
from perdure._core.values import checks
from perdure._core.values.error import ToolError
from perdure._core.values.event import RESERVED_PREFIX, ValueKept
from perdure._core.values.jsonable import to_text
from perdure._core.values.message import Status, ToolResult, merge_labels

from .interpreter import (
    CallAnswer,
    CallRaised,
    CallReturned,
    CallsAwaited,
    FunctionCall,
    InterpreterPool,
    ProgramFinished,
    ProgramLimits,
    ProgramStep,
    RunningProgram,
    StepAnswers,
    StepNeedsThread,
    require_monty,
)
from .stubs import build_stubs, name_program_functions, to_program_value

PROGRAM_TOOL: Final = "run_program"
PROGRAM_TIME_NAME: Final = f"{RESERVED_PREFIX}program_time"
"""The name of the stored value with the time that the last program was given."""
_STEPS_BETWEEN_YIELDS: Final = 8
"""Steps after which a program whose calls never wait yields to other tasks."""
MAX_ARGUMENT_CHARACTERS: Final = 1_000_000
"""Length of the arguments of one call: a program can make texts that no model could write, and each call is stored."""
_HANDOFF_PREFIX: Final = "hand_over_to_"
_UNCALLABLE_NAMES: Final = frozenset({PROGRAM_TOOL, "load_tools"})
"""Tools about what the model is sent, which a program does not see."""
_DESCRIPTION: Final = """\
Run a Python program that calls tools. Use it for several calls, for loops and conditions, and to look through large \
results: only what the program returns (its last expression) and prints is sent to you.
- The tools below are async functions: `x = await name(…)`. Calls that do not depend on one another are made at the \
same time with `await asyncio.gather(a(…), b(…))`.
- A call that fails raises an exception: PermissionError if it was not allowed, ValueError for arguments that are not \
valid, TimeoutError, else RuntimeError.
- It is a subset of Python with asyncio, datetime, json, math, re and a few other modules of the standard library. \
There are no files, no network and no other packages: use tools. The clock stands still, and sleeping is an error.
- Variables are gone when the program ends."""
_KINDS: Final[Mapping[Status, str]] = {Status.DENIED: "PermissionError", Status.TIMED_OUT: "TimeoutError"}
_INVALID: Final = "invalid arguments for "


def build_program_tool(
    interpreter: InterpreterPool, is_callable: Callable[[Tool[..., Any]], bool], max_output_characters: int
) -> Tool[..., Any]:
    """Return the tool `run_program`, whose programs can call those tools of the run that `is_callable` accepts."""

    async def run_program(
        code: Annotated[str, "The Python program. Its last expression is what it returns."], context: ToolContext[Any]
    ) -> ToolOutput:
        functions = name_program_functions([each for each in get_run_of_call(context).toolbox if is_callable(each)])
        driver = _ProgramDriver(context, interpreter, code, functions)
        try:
            value = await driver.run()
        except ToolError as error:
            text = _describe_end(driver.program, f"The program failed.\n{error}", max_output_characters)
            return ToolOutput(text, is_error=True, labels=driver.labels)
        finally:
            driver.program.stop()
        describe = partial(_describe_value, driver.program, value, max_output_characters)
        text = describe() if driver.program.is_quick else await THREAD_POOL.run(describe, (), {})
        return ToolOutput(text, labels=driver.labels)

    return tool(
        run_program,
        name=PROGRAM_TOOL,
        description=_DESCRIPTION,
        effect="idempotent",  # run again, it makes no finished call a second time
        parallel=False,  # its calls count towards the limits one batch after another
        credentials=False,
    )


def can_be_called(tool: Tool[..., Any], excluded: Collection[str]) -> bool:
    """Return True if programs may call a tool: it neither ends nor hands over the conversation, and is not excluded."""
    ends = tool.terminate or tool.name.startswith(_HANDOFF_PREFIX)
    return not ends and tool.name not in _UNCALLABLE_NAMES and tool.name not in excluded


def add_stubs_to_program_tool(
    tools: Toolbox, is_callable: Callable[[Tool[..., Any]], bool], *, with_prompts: bool
) -> Toolbox:
    """Return the toolbox with the stubs of all tools that programs can call added to the description of `run_program`.

    With `with_prompts` it also has their lines for the instructions, where those of hidden tools are not.
    """
    functions = name_program_functions([each for each in tools if is_callable(each)])
    prompts = [each.prompt for each in functions.values() if each.prompt and with_prompts]
    parts = [_DESCRIPTION, *([f"```python\n{build_stubs(functions)}\n```"] if functions else []), *prompts]
    text = "\n\n".join(parts)
    return Toolbox([replace(each, description=text) if each.name == PROGRAM_TOOL else each for each in tools])


class _ProgramDriver:
    """Runs a program step by step, and makes its calls."""

    def __init__(
        self,
        context: ToolContext[Any],
        interpreter: InterpreterPool,
        code: str,
        functions: Mapping[str, Tool[..., Any]],
    ) -> None:
        self._context = context
        self._build_program = partial(RunningProgram, interpreter, code, functions.keys(), seed=context.idempotency_key)
        self._interpreter = interpreter
        self._functions = functions
        self._given: list[StepAnswers] = []
        """The answers that the program was given so far, one for each step."""
        self.program = self._build_program(is_quick=True)
        self._calls = ProgramCallExecutor(context)
        self.labels: tuple[str, ...] = ()
        """The labels of all results that the program has got: what it returns may follow from any of them."""

    async def run(self) -> Any:
        """Run the program to its end, and return its value. Raises `ToolError` if it fails."""
        answers: StepAnswers = None
        while True:
            step = await self._advance(answers)
            if isinstance(step, ProgramFinished):
                return step.value
            answers = await (self._make_calls(step.calls) if isinstance(step, CallsAwaited) else self._find_time())

    async def _advance(self, answers: StepAnswers) -> ProgramStep:
        """Run the next step: on the event loop while steps are short, which is quicker, else on a thread.

        Once a step has taken too long, the program is run again on a thread, with the same answers.
        """
        self._given.append(answers)
        number = len(self._given)
        if not self.program.is_quick:
            return await self._call_on_thread(self.program.advance, answers)
        try:
            if number == 1 and not self._interpreter.has_idle_process:
                return await self._call_on_thread(self.program.advance, answers)
            if not number % _STEPS_BETWEEN_YIELDS:
                await asyncio.sleep(0)
            return self.program.advance(answers)
        except StepNeedsThread:
            self.program.stop()
            self.program = self._build_program(is_quick=False)
            return await self._call_on_thread(self.program.advance_through, tuple(self._given))

    async def _call_on_thread(self, function: Callable[[Any], ProgramStep], answers: Any) -> ProgramStep:
        session_id = self._context.full_session_id
        step: ProgramStep = await THREAD_POOL.run(function, (answers,), {}, session_id=session_id)
        return step

    async def _make_calls(self, wanted: Sequence[FunctionCall]) -> dict[int, CallAnswer]:
        answers: dict[int, CallAnswer] = {}
        made: list[tuple[FunctionCall, str]] = []
        for each in wanted:
            try:
                text = to_text(self._bind_arguments(each))
            except TypeError as error:
                answers[each.number] = CallRaised("TypeError", str(error))
                continue
            if len(text) <= MAX_ARGUMENT_CHARACTERS:
                made.append((each, text))
            else:
                most = f"{len(text):,} characters of arguments: a call may have {MAX_ARGUMENT_CHARACTERS:,}"
                answers[each.number] = CallRaised("ValueError", f"{each.name}: {most}")
        results = await self._calls.make([(self._functions[each.name].name, text) for each, text in made])
        for (each, _), result in zip(made, results, strict=True):
            if result.labels:
                self.labels = merge_labels(self.labels, result.labels)
            answers[each.number] = _build_answer(self._functions[each.name], result)
        return answers

    def _bind_arguments(self, call: FunctionCall) -> dict[str, Any]:
        """Return the arguments of a call by name: those without a name are given to the parameters in order."""
        if not call.args:
            return call.kwargs
        given = self._functions[call.name].parameters.json_schema
        required = set(given.get("required", ()))
        names = sorted(given.get("properties", {}), key=lambda each: each not in required)  # as in the stubs
        if len(call.args) > len(names):
            raise TypeError(f"{call.name}() takes {len(names)} arguments, and {len(call.args)} were given")
        placed = dict(zip(names, call.args, strict=False))
        if twice := [name for name in placed if name in call.kwargs]:
            raise TypeError(f"{call.name}() got two values for {twice[0]!r}")
        return {**placed, **call.kwargs}

    async def _find_time(self) -> float:
        """Return the time of the program: stored when it is first asked for, so that another attempt has the same."""
        run, call_id = get_run_of_call(self._context), self._context.call_id
        kept: Any = run.state.kept_values.get(PROGRAM_TIME_NAME)
        stored = cast("dict[str, Any]", kept if isinstance(kept, dict) else {})
        if stored.get("call_id") == call_id:
            return float(stored["seconds"])
        now = run.clock.now()
        value = {"call_id": call_id, "seconds": now}
        await run.emit(ValueKept(PROGRAM_TIME_NAME, value, run_id=run.run_id, path=run.path))
        return now


def _build_answer(tool: Tool[..., Any], result: ToolResult) -> CallAnswer:
    if not result.is_error:
        return CallReturned(to_program_value(tool, result))
    kind = "ValueError" if result.text.startswith(_INVALID) else _KINDS.get(result.status, "RuntimeError")
    note = "" if result.status in {Status.ERROR, Status.DENIED} else f"{result.status}: "
    return CallRaised(kind, f"{tool.name}: {note}{result.text}")


# -- the result --------------------------------------------------------------------------------------------------------


def _describe_value(program: RunningProgram, value: Any, most: int) -> str:
    if value is None and not program.printed:
        return "The program returned nothing. End it with an expression, or print what you want to see."
    text = "" if value is None else to_text(value)
    if not program.printed:
        return _shorten(text, most)
    return _describe_end(program, text and f"Returned:\n{text}", most)


def _describe_end(program: RunningProgram, end: str, most: int) -> str:
    """Return what a program has printed, then how it ended; each within its limit."""
    printed = program.printed.rstrip("\n")
    if program.left_out:
        printed = f"{printed}\n[{program.left_out} more characters were printed, and are left out]"
    parts = [f"Printed:\n{printed}" if printed else "", _shorten(end, most)]
    return "\n\n".join([each for each in parts if each])


def _shorten(text: str, most: int) -> str:
    """Return a text of at most about `most` characters: its beginning and its end."""
    if len(text) <= most:
        return text
    half = most // 2
    note = f"[{len(text) - 2 * half} characters are left out: let the program return less]"
    return f"{text[:half]}\n{note}\n{text[len(text) - half :]}"


_OWNER = "code_mode"
_LEAST_MEMORY_BYTES = 1_000_000


class CodeMode:
    """Code mode of one or several agents: the tool `run_program`, its interpreter, and the choice of visible tools."""

    def __init__(
        self,
        *,
        exclude: Sequence[str],
        hide_tools: bool,
        max_seconds: float,
        max_memory_bytes: int,
        max_calls: int,
        max_output_characters: int,
    ) -> None:
        if isinstance(exclude, str) or not all(isinstance(each, str) for each in exclude):
            checks.raise_config_error(_OWNER, "exclude", exclude, "give a list of names of tools")
        checks.require_bool(_OWNER, "hide_tools", hide_tools)
        checks.require_number(_OWNER, "max_seconds", max_seconds)
        if not max_seconds:
            checks.raise_config_error(_OWNER, "max_seconds", max_seconds, "give a number above zero")
        checks.require_int(_OWNER, "max_memory_bytes", max_memory_bytes, _LEAST_MEMORY_BYTES)
        checks.require_int(_OWNER, "max_calls", max_calls, 1)
        checks.require_int(_OWNER, "max_output_characters", max_output_characters, 1)
        require_monty(_OWNER)
        self._excluded = frozenset(exclude)
        self._hides_tools = hide_tools
        self._interpreter = InterpreterPool(
            ProgramLimits(max_seconds, max_memory_bytes, max_calls, max_output_characters)
        )
        self._users = 0
        self.tool = build_program_tool(self._interpreter, self._is_callable, max_output_characters)

    def _is_callable(self, each: Tool[..., Any]) -> bool:
        return can_be_called(each, self._excluded)

    def select_tools(self, tools: Toolbox, _loaded: Sequence[str]) -> Toolbox:
        """Return the tools that the model is sent; `run_program` is described with the signatures of the others."""
        described = add_stubs_to_program_tool(tools, self._is_callable, with_prompts=self._hides_tools)
        if not self._hides_tools:
            return described
        return Toolbox([each for each in described if not self._is_callable(each)])

    @asynccontextmanager
    async def keep_open(self, _agent: object) -> AsyncGenerator[None]:
        """Keep the processes of the interpreter until the last agent or run that uses them ends."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                await THREAD_POOL.run(self._interpreter.close, (), {})
