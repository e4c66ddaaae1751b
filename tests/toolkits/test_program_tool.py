"""Code mode: programs that a model writes, and that call the tools of its agent."""

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import Any, Literal, TypedDict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure import Agent, ConfigError, Permissions, Status, ToolContext, ToolOutput, ask, deny, tool
from perdure._tools.code.interpreter import InterpreterPool, ProgramLimits, RunningProgram, StepNeedsThread
from perdure._tools.code.mode import build_program_tool
from perdure._tools.code.stubs import build_stubs, name_program_functions
from perdure.events import ToolFinished, ToolStarted, ValueKept
from perdure.permissions import MemoryVault, later
from perdure.stores import open_store
from perdure.testing import FakeClock, ScriptedModel, call
from perdure.tools import code_mode, tool_from_schema
from tests.doubles import Held, log_of, of, until

pytestmark = pytest.mark.packages("pydantic_monty")


class Weather(TypedDict):
    """The weather of a place."""

    place: str
    degrees: float


@tool(effect="read")
async def weather(place: str, unit: Literal["C", "F"] = "C") -> Weather:
    """Return the weather.

    Args:
        place: Where.
    """
    return {"place": place, "degrees": 20.0 if unit == "C" else 68.0}


@tool(effect="read")
async def echo(text: str) -> str:
    """Return the text."""
    return text


def agent_of(*codes: str, tools: Any = (weather, echo), extension: Any = None, **options: Any) -> Agent[Any]:
    model = ScriptedModel(*[call("run_program", code=code) for code in codes], "Done.")
    return Agent(model, tools=tools, extensions=[extension or code_mode()], store="memory:", **options)


async def run_code(code: str, **options: Any) -> Any:
    """The result of a program."""
    outcome = await agent_of(code, **options).session("s").run("Go")
    return next(result for message in outcome.messages for result in message.tool_results)


async def test_a_program_calls_tools_and_returns_a_value():
    result = await run_code(
        "a = await weather('Kiel')\nb = await weather(place='Rome', unit='F')\na['degrees'] + b['degrees']"
    )
    assert (result.status, result.text) == (Status.OK, "88.0")


async def test_only_what_a_program_returns_and_prints_enters_the_conversation():
    agent = agent_of("long = await echo('x' * 5000)\nprint(len(long))\n'end'")
    outcome = await agent.session("s").run("Go")
    texts = [result.text for message in outcome.messages for result in message.tool_results]
    assert texts == ["Printed:\n5000\n\nReturned:\nend"]


async def test_calls_that_a_program_gathers_are_made_at_the_same_time():
    meeting = asyncio.Barrier(3)

    @tool(effect="read")
    async def meet(n: int) -> int:
        """Wait for the others."""
        async with asyncio.timeout(20):
            await meeting.wait()
        return n

    result = await run_code("import asyncio\nawait asyncio.gather(meet(1), meet(2), meet(n=3))", tools=[meet])
    assert result.text == "[1,2,3]"


async def test_a_program_that_fails_says_in_which_line():
    result = await run_code("a = 1\n\nb = await echo(text=a)")
    assert result.status is Status.ERROR
    assert "line 3" in result.text
    assert "ValueError: echo: invalid arguments" in result.text
    assert "line 1" in (await run_code("def f(:\n  pass")).text


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("echo('a')", "never awaited"),
        ("x = echo('a')\nx['b']", "write `await` before each call"),
        ("await echo('a', 'b')", "TypeError: echo() takes 1 arguments"),
        ("await echo('a', text='b')", "two values for 'text'"),
        ("await echo('a' * 1_000_001)", "ValueError: echo: 1,000,012 characters of arguments"),
        ("await steal()", "name 'steal' is not defined"),
        ("f = steal", "name 'steal' is not defined"),
        ("import time\ntime.sleep(1)", "a program cannot sleep"),
        ("pass", "returned nothing"),
    ],
)
async def test_mistakes_are_explained(code, text):
    assert text in (await run_code(code)).text


async def test_a_tool_can_be_passed_around_in_a_program():
    assert (await run_code("f = echo\nawait f('a')")).text == "a"


async def test_a_failed_call_raises_in_the_program_and_can_be_caught():
    @tool
    async def fail() -> str:
        """Fail."""
        raise OSError("no paper")

    code = "try:\n  await fail()\nexcept RuntimeError as error:\n  seen = str(error)\nseen"
    assert "no paper" in (await run_code(code, tools=[fail])).text


async def test_a_denied_call_raises_a_permission_error():
    code = "try:\n  await echo('a')\nexcept PermissionError as error:\n  seen = 'denied'\nseen"
    assert (await run_code(code, permission=Permissions(deny("echo")))).text == "denied"


async def test_the_result_has_the_labels_of_what_the_program_has_read():
    @tool(effect="read", labels=["untrusted"])
    async def fetch() -> str:
        """Fetch."""
        return "text"

    assert (await run_code("await fetch()\n1", tools=[fetch])).labels == ("untrusted",)
    assert (await run_code("await fetch()\n1/0", tools=[fetch])).labels == ("untrusted",)


@pytest.mark.parametrize(
    "reads", ["await mail()\nawait fetch()", "import asyncio\nawait asyncio.gather(mail(), fetch())"]
)
async def test_a_program_that_has_read_private_and_untrusted_text_cannot_send_unasked(reads):
    sent: list[str] = []

    @tool(effect="read", labels=["untrusted"])
    async def fetch() -> str:
        """Fetch."""
        return "text"

    @tool(effect="read", labels=["private"])
    async def mail() -> str:
        """Read mail."""
        return "text"

    @tool(sends=True)
    async def send(text: str) -> str:
        """Send."""
        sent.append(text)
        return "sent"

    tools = [fetch, mail, send]
    assert (await run_code("await mail()\nawait send('1')", tools=tools)).text == "sent"
    assert "PermissionError: send" in (await run_code(f"{reads}\nawait send('2')", tools=tools)).text
    assert sent == ["1"]


async def test_secrets_are_redacted_before_a_program_sees_them():
    @tool(effect="read")
    async def show(key: str) -> str:
        """Show."""
        return f"the key is {key}"

    vault = MemoryVault({"key": "sk-very-secret-1234567890"})
    result = await run_code("await show('{{key}}')", tools=[show], vault=vault)
    assert "sk-very-secret" not in result.text


async def test_the_clock_stands_still_and_is_stored():
    clock = FakeClock(start=1_700_000_000.0)
    code = (
        "import datetime as dt, time\n[str(dt.datetime.now()), str(dt.date.today()), time.time(), "
        "str(dt.datetime.now(dt.timezone.utc))]"
    )
    agent = agent_of(code, clock=clock)
    outcome = await agent.session("s").run("Go")
    text = next(result.text for message in outcome.messages for result in message.tool_results)
    assert text == '["2023-11-14 22:13:20","2023-11-14",1700000000.0,"2023-11-14 22:13:20+00:00"]'
    kept = [each for each in of(await log_of(agent.store, "s"), ValueKept) if each.name == "perdure:program_time"]
    assert len(kept) == 1


async def test_a_program_with_a_long_step_is_run_again_on_a_thread_and_makes_each_call_once():
    made: list[str] = []

    @tool
    async def note(text: str) -> str:
        """Note."""
        made.append(text)
        return text

    code = "print('a')\nx = await note('1')\nfor i in range(1_000_000): pass\nprint('b')\ny = await note('2')\nx + y"
    result = await run_code(code, tools=[note])
    assert (result.text, made) == ("Printed:\na\nb\n\nReturned:\n12", ["1", "2"])


# -- hostile programs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("while True: pass", "TimeoutError"),
        ("try:\n  while True: pass\nexcept BaseException: pass", "TimeoutError"),
        ("x = 'a' * 10**9", "MemoryError"),
        ("x = []\nwhile True: x.append('a' * 1000)", "MemoryError"),
        ("def f(): return f()\nf()", "RecursionError"),
        ("open('/etc/passwd').read()", "PermissionError"),
        ("import os\nos.environ['HOME']", "not supported"),
        ("import os\nos.system('true')", "AttributeError"),
        ("import subprocess", "ModuleNotFoundError"),
        ("import socket", "ModuleNotFoundError"),
        ("from pathlib import Path\nPath('/etc/passwd').read_text()", "Error"),
        ("().__class__.__bases__", "AttributeError"),
        ("echo.__globals__", "AttributeError"),
        ("__import__('os').environ", "Error"),
        ("for i in range(1000): await echo('a')", "a program may make 50 calls"),
        ("def g():\n  try:\n    g()\n  finally:\n    g()\ng()", "Error"),
    ],
)
async def test_a_hostile_program_only_fails(code, text):
    is_endless = text in {"TimeoutError", "Error"}  # the others end long before, however busy the machine is
    limits = code_mode(max_seconds=0.5 if is_endless else 50, max_memory_bytes=20_000_000, max_calls=50)
    result = await run_code(code, extension=limits)
    assert result.status is Status.ERROR
    assert text in result.text


async def test_huge_output_is_cut():
    extension = code_mode(max_output_characters=1000)
    printed = await run_code("for i in range(1000): print('x' * 100)", extension=extension)
    assert len(printed.text) < 1200
    assert "more characters were printed" in printed.text
    returned = await run_code("'a' * 100000", extension=extension)
    assert len(returned.text) < 1200
    assert "99000 characters are left out" in returned.text


async def test_a_cancel_stops_a_program_that_computes():
    started = Held("started")
    started.released.set()
    agent = agent_of("await started()\nwhile True: pass", tools=[started.tool], extension=code_mode(max_seconds=600))
    session = agent.session("s")
    run = asyncio.ensure_future(session.run("Go"))
    await started.started.wait()
    await session.cancel()
    async with asyncio.timeout(30):
        assert (await run).status == "cancelled"


async def test_the_processes_of_programs_end_with_the_agent():
    if not sys.platform.startswith("linux"):
        pytest.skip("needs /proc")
    extension = code_mode()
    before = _list_children()
    async with agent_of("await echo('a')", extension=extension) as agent:
        await agent.session("s").run("Go")
        assert _list_children() - before
    await until(lambda: not _list_children() - before, pause=0.02)


def _list_children() -> set[str]:
    children: set[str] = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                children.add(path.parent.name)
    return children


def test_a_program_that_was_stopped_does_not_begin():
    interpreter = InterpreterPool(ProgramLimits(1, 20_000_000, 10, 100))
    program = RunningProgram(interpreter, "1", [], seed="s", is_quick=False)
    program.stop()
    with pytest.raises(Exception, match="was stopped"):
        program.advance(None)
    interpreter.close()


def test_a_long_step_is_too_long_for_a_quick_program():
    interpreter = InterpreterPool(ProgramLimits(5, 20_000_000, 10, 100))
    program = RunningProgram(interpreter, "while True: pass", [], seed="s", is_quick=True)
    with pytest.raises(StepNeedsThread):
        program.advance(None)
    program.stop()
    interpreter.close()


@pytest.mark.parametrize("line", ["datetime.datetime.now()", "f = nothing"])
def test_a_step_of_many_short_parts_is_too_long_for_a_quick_program(line):
    interpreter = InterpreterPool(ProgramLimits(50, 20_000_000, 10, 100))
    code = f"import datetime\nfor i in range(9000):\n  try:\n    {line}\n  except NameError:\n    pass"
    program = RunningProgram(interpreter, code, [], seed="s", is_quick=True)
    with pytest.raises(StepNeedsThread):
        program.advance_through([None, 1.7e9] if "now" in line else [None])
    program.stop()
    interpreter.close()


# -- programs and plain calls ------------------------------------------------------------------------------------------

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@tool(effect="read")
async def same(value: Any) -> Any:
    """Return the value."""
    return [value]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(given_values=st.lists(values, min_size=1, max_size=4), at_once=st.booleans())
def test_a_program_gets_what_plain_calls_get(given_values, at_once):
    async def compare() -> None:
        calls = [f"same(value={each!r})" for each in given_values]
        row = f"[{', '.join([f'await {each}' for each in calls])}]"
        code = f"import asyncio\nawait asyncio.gather({', '.join(calls)})" if at_once else row
        agent = agent_of(code, tools=[same])
        outcome = await agent.session("s").run("Go")
        assert outcome.status == "done"
        events = await log_of(agent.store, "s")
        made = [each.result.text for each in of(events, ToolFinished) if each.name == "same"]
        plain = [(await agent.session("t").call("same", {"value": each})).text for each in given_values]
        assert made == plain

    asyncio.run(compare())


# -- what the model is sent --------------------------------------------------------------------------------------------


async def described(extension: Any, tools: Any = (weather, echo)) -> tuple[list[str], str]:
    agent = agent_of("1", tools=tools, extension=extension)
    await agent.session("s").run("Go")
    model: Any = agent.model
    request = model.requests[0]
    return [each.name for each in request.tools], next(e.description for e in request.tools if e.name == "run_program")


async def test_the_model_is_sent_the_signatures_of_its_tools():
    names, text = await described(code_mode(exclude=["echo"]))
    assert names == ["weather", "echo", "run_program"]
    assert "class Weather(TypedDict):\n    degrees: float\n    place: str" in text
    assert "async def weather(place: str, unit: Literal['C', 'F'] = 'C') -> Weather:" in text
    assert "place: Where." in text
    assert "def echo" not in text


async def test_tools_that_programs_can_call_may_be_hidden():
    @tool(prompt="Say please.")
    async def polite() -> str:
        """Be polite."""
        return ""

    names, text = await described(code_mode(hide_tools=True, exclude=["echo"]), tools=[weather, echo, polite])
    assert names == ["echo", "run_program"]
    assert text.endswith("```\n\nSay please.")  # no longer a line of the instructions
    assert "Say please." not in (await described(code_mode(), tools=[polite]))[1]
    result = await run_code("await echo('a')", extension=code_mode(exclude=["echo"]))
    assert "name 'echo' is not defined" in result.text


async def test_a_program_can_call_tools_that_were_added_during_the_run():
    @tool(effect="read")
    async def server__ping(n: int) -> int:
        """Ping."""
        return n

    @tool
    def connect(context: ToolContext[Any]) -> str:
        """Connect."""
        context.add_tools(server__ping, scope="process")
        return "connected"

    model = ScriptedModel(call("connect"), call("run_program", code="await server__ping(3)"), "Done.")
    agent = Agent(model, tools=[connect], extensions=[code_mode()], store="memory:")
    outcome = await agent.session("s").run("Go")
    assert [result.text for message in outcome.messages for result in message.tool_results][-1] == "3"
    assert "server__ping" not in model.requests[0].tools[-1].description
    described = {each.name: each.description for each in model.requests[1].tools}
    assert "async def server__ping(n: int) -> int:" in described["run_program"]


def test_names_and_types_that_python_does_not_have_get_others():
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": ["string", "null"]}, "b": {"oneOf": [{"const": 1}, {"type": "array"}]}, "c": True,
            "d": {"type": "object", "additionalProperties": {"type": "integer"}}, "e": {"$ref": "#/$defs/E"},
            "f": {"$ref": "#/$defs/F"}, "g": {"enum": list(range(30))},
        },
        "required": ["e"],
        "$defs": {
            "E": {
                "type": "object", "required": ["x"],
                "properties": {"x": {"type": "number"}, "next": {"$ref": "#/$defs/E"}},
            },
            "F": {"type": "string"},
        },
    }  # fmt: skip
    tools = [tool_from_schema(name, "It does.", schema, lambda _: "") for name in ("list", "a-b", "a_b", "2x")]
    named = name_program_functions(tools)
    assert list(named) == ["list_tool", "a_b", "a_b_tool", "_2x"]
    assert build_stubs({"f": tools[0]}) == (
        "class E(TypedDict):\n    x: float\n    next: NotRequired[E]\n\n"
        "async def f(e: E, a: str | None = ..., b: Literal[1] | list[Any] = ..., c: Any = ..., "
        'd: dict[str, int] = ..., f: str = ..., g: Any = ...) -> Any:\n    """It does."""'
    )


@pytest.mark.parametrize(
    ("returned", "value"),
    [('{"a": 1}', "1"), ("[1", "'[1'"), ("12", "'12'")],
)
async def test_json_of_a_tool_without_a_return_type_becomes_a_value(returned, value):
    plain = tool_from_schema("get", "Get.", {"type": "object", "properties": {}}, lambda _: returned, effect="read")
    result = await run_code("x = await get()\nx['a'] if isinstance(x, dict) else repr(x)", tools=[plain])
    assert result.text == value


async def test_a_tool_that_ends_the_run_cannot_be_called_by_a_program():
    @tool(terminate=True)
    async def stop() -> ToolOutput:
        """Stop."""
        return ToolOutput("stopped")

    assert "name 'stop' is not defined" in (await run_code("await stop()", tools=[stop])).text


@pytest.mark.parametrize(
    "options",
    [
        {"exclude": "echo"},
        {"exclude": [1]},
        {"hide_tools": 1},
        {"max_seconds": 0},
        {"max_seconds": "1"},
        {"max_memory_bytes": 1},
        {"max_calls": 0},
        {"max_output_characters": -1},
    ],
)
def test_options_that_cannot_be_are_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        code_mode(**options)


async def test_a_session_in_a_file_shows_the_calls_of_a_program(tmp_path):
    store = open_store(f"sqlite:{tmp_path / 'sessions.db'}")
    model = ScriptedModel(call("run_program", code="await echo('hello')"), "Done.")
    agent = Agent(model, tools=[echo], extensions=[code_mode()], store=store)
    await agent.session("s").run("Go")
    assert [each.arguments for each in of(await log_of(store, "s"), ToolStarted)] == ["", '{"text":"hello"}']


async def test_a_program_is_not_given_secrets_in_its_text():
    vault = MemoryVault({"key": "sk-very-secret-1234567890"})
    assert (await run_code("len('{{key}}')", vault=vault)).text == "7"


class CountingPool(InterpreterPool):
    """Notes which processes are opened and closed."""

    def __init__(self) -> None:
        super().__init__(ProgramLimits(50, 20_000_000, 10, 100))
        self.noted: list[str] = []

    def open_session(self, seed: str, *, is_quick: bool) -> Any:
        self.noted.append(f"opened {'quick' if is_quick else 'slow'}")
        return super().open_session(seed, is_quick=is_quick)

    def close_session(self, session: Any, *, is_killed: bool) -> None:
        self.noted.append("killed" if is_killed else "closed")
        super().close_session(session, is_killed=is_killed)


async def run_in(pool: CountingPool, code: str) -> Any:
    """The result of a program in a pool."""
    program_tool = build_program_tool(pool, lambda each: each.name == "echo", 1_000)
    model = ScriptedModel(call("run_program", code=code), "Done.")
    outcome = await Agent(model, tools=[echo, program_tool], store="memory:").session("s").run("Go")
    return next(result for message in outcome.messages for result in message.tool_results)


@pytest.mark.parametrize(
    ("code", "text", "end"),
    [
        ("for i in range(1_000_000): pass\n'end'", "end", "closed"),
        ("x", "NameError: name 'x' is not defined", "killed"),
        ("1", "1", "closed"),
    ],
)
async def test_the_processes_of_a_program_are_given_back(code, text, end):
    pool = CountingPool()
    result = await run_in(pool, code)
    pool.close()
    assert result.text.endswith(text)
    attempts = [["opened quick", end], ["opened quick", "killed", "opened slow", end]]  # the last of a long step
    assert pool.noted in attempts[code.startswith("for") :]


async def test_the_time_of_a_program_is_the_same_after_a_question():
    clock = FakeClock(start=1_700_000_000.0)
    code = "import time\nbefore = time.time()\ntext = await echo('a')\n[before, text]"
    agent = agent_of(code, clock=clock, permission=Permissions(ask("echo"), handler=later))
    session = agent.session("s")
    outcome = await session.run("Go")
    await clock.advance(3_600.0)
    assert await session.answer(outcome.questions[0].ask_id, True)
    outcome = await session.resume()
    text = next(result.text for message in outcome.messages for result in message.tool_results)
    assert text == '[1700000000.0,"a"]'


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("await weather('Kiel', 'C', 'x')", "TypeError: weather() takes 2 arguments, and 3 were given"),
        ("await weather('Kiel', place='Rome')", "TypeError: weather() got two values for 'place'"),
        (
            "await echo('x' * 999_990)",
            "ValueError: echo: 1,000,001 characters of arguments: a call may have 1,000,000",
        ),
        ("len(await echo('x' * 999_989))", "999989"),
        ("None", "The program returned nothing. End it with an expression, or print what you want to see."),
        ("print('a\\n')", "Printed:\na"),
        ("print('a')\n1 / 0", "Printed:\na\n\nThe program failed.\nTraceback"),
    ],
)
async def test_what_a_program_is_told_about_its_calls_and_its_end(code, text):
    shown = (await run_code(code)).text
    assert text in shown if "Error: " in text or "failed" in text else text == shown


@pytest.mark.parametrize(("length", "text"), [(10, "a" * 10), (11, "[1 characters")])
async def test_a_returned_text_is_cut_in_its_middle(length, text):
    result = await run_code(f"'{'a' * length}'", extension=code_mode(max_output_characters=10))
    cut = "aaaaa\n[1 characters are left out: let the program return less]\naaaaa"
    assert result.text == (text if length == 10 else cut)
