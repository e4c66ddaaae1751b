"""Bad input to every public name: a typed error where it is given, which says what to do instead.

Each name that `perdure` or `perdure.testing` exports, and many of other public modules, has its place in the table:
rows of calls that cannot work, or the reason why there are none. A new name without a place fails.
"""

import asyncio
import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

import perdure
import perdure.testing
from perdure import (
    Agent,
    Audio,
    Budget,
    Citation,
    Document,
    Grant,
    Image,
    Limits,
    Message,
    Outcome,
    Output,
    PerdureError,
    Permissions,
    Retry,
    Session,
    SessionExists,
    SessionNotFound,
    Settings,
    Text,
    Thinking,
    Toolbox,
    ToolCall,
    ToolResult,
    UsageError,
    Video,
    allow,
    ask,
    assistant,
    deny,
    tool,
    tool_message,
    user,
)
from perdure.engines import (
    Accepted,
    Halt,
    Nudge,
    all_of,
    any_of,
    auto_continue,
    max_turns,
    mistakes,
    none_of,
    repeated_calls,
    when_tool_called,
)
from perdure.events import Entry, TextDelta
from perdure.models import ModelInfo, Price, compacted, failover, gated, observed, open_model, retried
from perdure.permissions import Grants, Verdict, command, path, url
from perdure.stores import MemoryStore, Post, UnsupportedByStore, export_session, import_session, open_store
from perdure.testing import (
    FakeClock,
    MemoryFiles,
    Recorder,
    Reply,
    ScriptedBrowser,
    ScriptedModel,
    ScriptedShell,
    ScriptedWeb,
    assert_cache_stable,
    call,
    calls,
    check_model,
    check_store,
    replay,
    thinking,
)
from perdure.tools import Skip, after, around, before, set_tool_threads, timed, tool_from_schema, truncated
from perdure.tracing import (
    OtelWatcher,
    Tracer,
    log_tool_calls,
    mirror_text,
    mirror_tool_calls,
    read_trace,
    to_curl,
    trace_session,
)
from scripts.exports import list_public_modules
from tests.bad_input_of_parts import AGENT_ROWS, PARTS_TABLE, SESSION_ROWS, Bad, Never, bad

# mypy: ignore-errors


@tool
def shell(command: str) -> str:
    """Run a command."""
    return command


def nothing(*_: Any) -> None:
    """A function, where one is wanted."""


def generator():
    yield 1


def untyped(what: object.__init__) -> str:  # type: ignore[valid-type] # an annotation that is no type
    return str(what)


MODEL = ScriptedModel("Hello.", repeat_last=True)
AGENT = Agent(MODEL, tools=[shell])
ENTRY = Entry(1, 0.0, TextDelta("x"))


def session() -> Session:
    return AGENT.session()


async def read_twice() -> None:
    stream = session().stream("go")
    async for _ in stream:
        pass
    async for _ in stream:
        pass


async def import_twice() -> None:
    there = Agent(MODEL, store=open_store("memory:"))
    await there.session("there").run("go")
    document = await export_session(there.store, "there")
    await import_session(there.store, document)


async def sync_inside_a_loop() -> None:
    AGENT.run_sync("go")


PARSED = "it parses what a model wrote: a ValueError, at which a person is asked"
AN_ERROR = Never("an error: it is raised by us, and takes any words")
A_VALUE_OF_OURS = "a value that the runtime makes and hands out"

TABLE: dict[str, Sequence[Bad] | Never] = {
    # -- agents and sessions -------------------------------------------------------------------------------------------
    "Agent": [
        bad(lambda: Agent(None), "None", "'provider:model'"),
        bad(lambda: Agent(""), "provider ''", "perdure models"),
        bad(lambda: Agent("nope:x"), "'nope'", "perdure models"),
        bad(lambda: Agent(ScriptedModel), "ScriptedModel", "object that has stream"),
        bad(lambda: Agent(MODEL, name=5), "name=5", "non-empty text"),
        bad(lambda: Agent(MODEL, name=""), "name=''", "non-empty text"),
        bad(lambda: Agent(MODEL, description=None), "description=None", "text"),
        bad(lambda: Agent(MODEL, instructions=["be", "brief"]), "instructions=['be', 'brief']", "text"),
        bad(lambda: Agent(MODEL, tools=[print]), "print", "@tool"),
        bad(lambda: Agent(MODEL, tools="shell"), "tools='shell'", "list"),
        bad(lambda: Agent(MODEL, tools=shell), "tools=Tool('shell')", "list"),
        bad(lambda: Agent(MODEL, tools=None), "tools=None", "list"),
        bad(lambda: Agent(MODEL, tools=[shell, shell]), "'shell'", "@tool(name="),
        bad(lambda: Agent(MODEL, store="foo:"), "'foo:'", "sqlite:PATH"),
        bad(lambda: Agent(MODEL, store=None), "None", "sqlite:PATH"),
        bad(lambda: Agent(MODEL, permission=True), "permission=True", "function"),
        bad(lambda: Agent(MODEL, limits=5), "limits=5", "Limits("),
        bad(lambda: AGENT.replace(limits=Limits(allowed_tools=("sheel",))), "'sheel'", "'shell'"),
        bad(lambda: Agent(MODEL, settings={}), "settings={}", "Settings("),
        bad(lambda: Agent(MODEL, stop=3), "stop=3", "function"),
        bad(lambda: Agent(MODEL, guardrails=5), "guardrails=5", "list of functions"),
        bad(lambda: Agent(MODEL, guardrails=["x"]), "guardrails=['x']", "list of functions"),
        bad(lambda: Agent(MODEL, output_validators=auto_continue()), "output_validators=", "list of functions"),
        bad(lambda: Agent(MODEL, output_validators=[5]), "output_validators=[5]", "list of functions"),
        bad(lambda: Agent(MODEL, history_processor="short"), "history_processor='short'", "function"),
        bad(lambda: Agent(MODEL, engine="plan"), "no engine 'plan'", "did you mean 'planner'?"),
        bad(lambda: Agent(MODEL, engine=5), "engine=5", "async function"),
        bad(lambda: Agent(MODEL, watchers=nothing), "watchers=", "list of functions"),
        bad(lambda: Agent(MODEL, watchers=["x"]), "watchers=['x']", "list of functions"),
        bad(lambda: Agent(MODEL, steering_mode="some"), "steering_mode='some'", "'one'", "'all'"),
        bad(lambda: Agent(MODEL, follow_up_mode=None), "follow_up_mode=None", "'one'", "'all'"),
        bad(lambda: Agent(MODEL, answer_timeout_seconds=-1), "answer_timeout_seconds=-1", "from 0"),
        bad(lambda: Agent(MODEL, answer_timeout_seconds="long"), "answer_timeout_seconds='long'", "from 0"),
        bad(lambda: Agent(MODEL, budget=100), "budget=100", "Budget("),
        bad(lambda: Agent(MODEL, clock=0), "clock=0", "clock"),
        bad(lambda: AGENT.session(""), "''", "None for a new one"),
        bad(lambda: AGENT.session("  "), "'  '", "None for a new one"),
        bad(lambda: AGENT.session(5), "5", "None for a new one"),
        bad(lambda: AGENT.session("s", store="nowhere"), "'nowhere'", "sqlite:PATH"),
        bad(lambda: AGENT.run(""), "empty"),
        bad(lambda: AGENT.run_sync(None), "None", "give text"),
        bad(lambda: AGENT.search("x"), "MemoryStore", "sqlite:PATH", error=UnsupportedByStore),
        bad(sync_inside_a_loop, "run_sync", "await agent.run", error=UsageError),
        bad(lambda: AGENT.stream(5), "5", "give text"),
        bad(lambda: setattr(AGENT, "name", "other"), "does not change", "replace(name='other')", error=UsageError),
        bad(lambda: delattr(AGENT, "name"), "does not change", error=UsageError),
    ],
    "Session": [
        bad(lambda: session().run(""), "empty", "give some text"),
        bad(lambda: session().run(" \n"), "empty", "give some text"),
        bad(lambda: session().run(None), "None", "give text"),
        bad(lambda: session().run(5), "5", "give text"),
        bad(lambda: session().run([]), "[]", "give text"),
        bad(lambda: session().run({"role": "user"}), "{'role': 'user'}", "give text"),
        bad(lambda: session().run(assistant("Hello.")), "'assistant'", "only 'user' messages"),
        bad(lambda: session().run(ToolCall("c", "shell")), "ToolCall", "give text"),
        bad(lambda: session().run(Text(5)), "Text(text=5", "give text"),
        bad(lambda: session().run(Image(data="not bytes")), "'not bytes'", "give text"),
        bad(lambda: session().run(Message("user", (Text("x"),), origin=5)), "origin=5", "message"),
        bad(lambda: session().run(Message("user", (Text("x"),), usage="much")), "'much'", "message"),
        bad(lambda: session().run(Message("user", (Text("x"),), metadata=5)), "metadata=5", "message"),
        bad(lambda: session().run("go", limits=5), "limits=5", "Limits"),
        bad(lambda: session().run("go", settings=None), "settings=None", "Settings"),
        bad(lambda: session().run("go", instructions=5), "instructions=5", "str"),
        bad(lambda: session().run("go", model="nope:x"), "'nope'", "perdure models"),
        bad(lambda: session().run("go", model=None), "None", "'provider:model'"),
        bad(lambda: session().run("go", tools=[print]), "print", "@tool"),
        bad(lambda: session().run("go", tools=None), "tools=None", "list"),
        bad(lambda: session().run("go", permission="yes"), "permission='yes'", "function"),
        bad(lambda: session().run("go", engine=5), "engine=5", "function"),
        bad(lambda: session().run("go", engine=None), "engine=None", "function"),
        bad(lambda: session().run("go", limits=Limits(max_cost_usd=1)), "max_cost_usd", "price"),
        bad(lambda: session().run("go", colour="red"), "'colour'", "limits"),
        bad(lambda: session().run("go", budget=5), "budget=5", "Budget"),
        bad(lambda: session().run("go", input_id=5), "input_id=5", "text"),
        bad(lambda: session().run("go", take_over="yes"), "take_over='yes'", "True or False"),
        bad(lambda: session().stream("go", take_over=1), "take_over=1", "True or False"),
        bad(lambda: session().stream(None), "None", "give text"),
        bad(lambda: session().stream("go", limits=5), "limits=5", "Limits"),
        bad(lambda: session().resume(), "resume", "run()", error=SessionNotFound),
        bad(lambda: session().call(5, {}), "tool=5", "give text"),
        bad(lambda: session().call("shell", "ls"), "'ls'", "dict"),
        bad(lambda: session().call("shell", None), "None", "dict"),
        bad(lambda: session().steer(""), "empty"),
        bad(lambda: session().steer("go", post_id=5), "post_id=5", "text"),
        bad(lambda: session().follow_up(None), "None", "give text"),
        bad(lambda: session().answer("", True), "ask_id=''", "non-empty text"),
        bad(lambda: session().answer("a", True), "'a'", "open are none", error=UsageError),
        bad(lambda: session().resolve(5, "x"), "item_id=5", "non-empty text"),
        bad(lambda: session().resolve("i", "x"), "'i'", "session.inbox()", error=UsageError),
        bad(lambda: session().rename(""), "title=''", "non-empty text"),
        bad(lambda: session().rename("Diary"), "no session", "run()", error=SessionNotFound),
        bad(lambda: session().redact(1), "no session", "run()", error=SessionNotFound),
        bad(lambda: session().search("x"), "MemoryStore", "sqlite:PATH", error=UnsupportedByStore),
        bad(lambda: session().fork(), "no session", error=SessionNotFound),
        bad(lambda: session().cancel("later"), "'later'", "'now', 'after_tools' or 'after_turn'"),
        bad(lambda: anext(session().watch(after=-1)), "after=-1", "from 0"),
        bad(lambda: anext(session().watch(after="x")), "after='x'", "from 0"),
    ],
    "RunStream": [bad(read_twice, "read already", "watch()", error=UsageError)],
    "Outcome": [
        bad(lambda: Outcome(status="cancelled").unwrap(), "'cancelled'", error=UsageError),
        bad(lambda: Outcome(status="limit", reason="max_turns").unwrap(), "max_turns", error=UsageError),
    ],
    "CacheReport": Never(f"{A_VALUE_OF_OURS}: runs make it"),
    "Output": [
        bad(lambda: Output(Image, mode="magic"), "mode='magic'", "'native'"),
        bad(lambda: Output(Image, repairs=-1), "repairs=-1", "0 or more"),
        bad(lambda: Output("Plan"), "Plan"),
    ],
    "OutputSpec": Never(f"{A_VALUE_OF_OURS}: an Output makes it"),
    "Run": Never(f"{A_VALUE_OF_OURS}: sessions put it together, and engines are given it"),
    "react": Never("given to an Agent as its engine; a Run is all it takes"),
    # -- tools ---------------------------------------------------------------------------------------------------------
    "tool": [
        bad(lambda: tool(5), "5", "function"),
        bad(lambda: tool("shell"), "'shell'", "function"),
        bad(lambda: tool(dict), "dict", "function"),
        bad(lambda: tool(shell), "Tool('shell')", "already"),
        bad(lambda: tool(generator), "generator", "return it all"),
        bad(lambda: tool(untyped), "'what'", "use a msgspec.Struct"),
        bad(lambda: tool(lambda x: x), "<lambda>", "@tool(name="),
        bad(lambda: tool(name="two words")(shell.function), "'two words'", "letters"),
        bad(lambda: tool(name=5)(shell.function), "5", "letters"),
        bad(lambda: tool(name="x" * 65)(shell.function), "xxx", "1 to 64"),
        bad(lambda: tool(description=5)(shell.function), "description=5", "text"),
        bad(lambda: tool(effect="often")(shell.function), "effect='often'", "'at_most_once'"),
        bad(lambda: tool(permission="yes")(shell.function), "permission='yes'", "True, False"),
        bad(lambda: tool(timeout_seconds=0)(shell.function), "timeout_seconds=0", "above zero"),
        bad(lambda: tool(timeout_seconds="5")(shell.function), "timeout_seconds='5'", "above zero"),
        bad(lambda: tool(retries=-1)(shell.function), "retries=-1", "whole number"),
        bad(lambda: tool(retries=2.5)(shell.function), "retries=2.5", "whole number"),
        bad(lambda: tool(target="path")(shell.function), "'path'", "command"),
        bad(lambda: tool(target=5)(shell.function), "target=5", "function"),
        bad(lambda: tool(action=5)(shell.function), "action=5", "text"),
        bad(lambda: tool(summary="short")(shell.function), "summary='short'", "function"),
        bad(lambda: tool(prompt=5)(shell.function), "prompt=5", "text"),
        bad(lambda: tool(parallel="no")(shell.function), "parallel='no'", "True or False"),
        bad(lambda: tool(abortable=None)(shell.function), "abortable=None", "True or False"),
        bad(lambda: tool(terminate=1)(shell.function), "terminate=1", "True or False"),
    ],
    "tool_from_schema": [
        bad(lambda: tool_from_schema("t", "", {}, None), "None", "function"),
        bad(lambda: tool_from_schema("", "", {}, nothing), "''", "letters"),
        bad(lambda: tool_from_schema("t", None, {}, nothing), "description=None", "text"),
        bad(lambda: tool_from_schema("t", "", 5, nothing), "5", "JSON Schema"),
        bad(lambda: tool_from_schema("t", "", {"type": "array"}, nothing), "array", '"type": "object"'),
        bad(lambda: tool_from_schema("t", "", {"properties": {"a": {"type": "text"}}}, nothing), "text"),
        bad(lambda: tool_from_schema("t", "", {"$ref": "http://example.com/x"}, nothing), "example.com", "copy"),
        bad(lambda: tool_from_schema("t", "", {"x": object()}, nothing), "schema"),
        bad(lambda: tool_from_schema("t", "", {}, nothing, effect="never"), "effect='never'", "'read'"),
    ],
    "Tool": [
        bad(lambda: msgspec.structs.replace(shell, name="a b"), "'a b'", "letters"),
        bad(lambda: msgspec.structs.replace(shell, call=5), "call=5", "function"),
        bad(lambda: msgspec.structs.replace(shell, parameters={}), "parameters={}", "tool_from_schema"),
        bad(lambda: msgspec.structs.replace(shell, prepare=[5]), "prepare=[5]", "functions"),
        bad(lambda: msgspec.structs.replace(shell, finish=nothing), "finish=", "functions"),
        bad(tool_from_schema("t", "", {}, nothing), "'t'", "session.call"),
    ],
    "Toolbox": [
        bad(lambda: Toolbox([print]), "print", "@tool"),
        bad(lambda: Toolbox([5]), "5", "@tool"),
        bad(lambda: Toolbox(5), "5", "list"),
        bad(lambda: Toolbox(shell), "Tool('shell')", "list"),
        bad(lambda: Toolbox([shell, shell]), "'shell'", "another name"),
        bad(lambda: Toolbox([shell]).with_only(["sheel"]), "'sheel'", "'shell'"),
    ],
    "ToolContext": Never(f"{A_VALUE_OF_OURS}: each call of a tool is given one"),
    "ToolOutput": Never("whatever a tool returns becomes a result; tests/faults/test_hostile_arguments.py"),
    "Skip": [bad(lambda: Skip(5), "reason=5", "text")],
    "before": [
        bad(lambda: before(print, nothing), "print", "@tool"),
        bad(lambda: before(shell, "x"), "'x'", "function"),
    ],
    "after": [bad(lambda: after(None, nothing), "None", "@tool"), bad(lambda: after(shell, 5), "5", "function")],
    "around": [bad(lambda: around(5, nothing), "5", "@tool"), bad(lambda: around(shell, None), "None", "function")],
    "timed": [
        bad(lambda: timed(print, 1), "print", "@tool"),
        bad(lambda: timed(shell, 0), "timeout_seconds=0", "above zero"),
        bad(lambda: timed(shell, -1), "timeout_seconds=-1", "above zero"),
        bad(lambda: timed(shell, "1"), "timeout_seconds='1'", "above zero"),
        bad(lambda: timed(shell, float("nan")), "nan", "above zero"),
    ],
    "truncated": [
        bad(lambda: truncated(print, 5), "print", "@tool"),
        bad(lambda: truncated(shell, 0), "0", "at least 2"),
        bad(lambda: truncated(shell, "many"), "'many'", "at least 2"),
    ],
    # -- permissions ---------------------------------------------------------------------------------------------------
    "Permissions": [
        bad(lambda: Permissions("x"), "'x'", "allow(…)"),
        bad(lambda: Permissions([allow()]), "allow", "is not a rule"),
        bad(lambda: Permissions(handler=True), "handler=True", "function"),
        bad(lambda: Permissions(grants=[]), "grants=[]", "Grants("),
        bad(lambda: Permissions(expires_seconds=0), "expires_seconds=0", "above zero"),
        bad(lambda: Permissions(expires_seconds="1 day"), "expires_seconds='1 day'", "above zero"),
    ],
    "Grants": [bad(lambda: Grants([5]), "5", "Grant"), bad(lambda: Grants().remember("x"), "'x'", "Grant")],
    "Grant": [
        bad(lambda: Grant("always", True, "shell"), "scope='always'", "'forever'"),
        bad(lambda: Grant("session", "yes", "shell"), "allow='yes'", "True or False"),
        bad(lambda: Grant("session", True, 5), "tool=5", "text"),
    ],
    "Offer": Never(f"{A_VALUE_OF_OURS}: questions about permission list it"),
    "PathTarget": Never(PARSED),
    "CommandTarget": Never(PARSED),
    "UrlTarget": Never(PARSED),
    "path": [bad(lambda: path(5), "path(5)", "text"), bad(lambda: path("../x"), "'../x'", "without '..'")],
    "command": [bad(lambda: command(None), "command(None)", "text"), bad(lambda: command(" "), "first words")],
    "url": [bad(lambda: url(5), "url(5)", "text"), bad(lambda: url("https://me@example.org"), "user name")],
    "InterruptedSession": Never(f"{A_VALUE_OF_OURS}: stores list it"),
    "Verdict": [
        bad(lambda: Verdict("yes"), "allow='yes'", "True or False"),
        bad(lambda: Verdict(True, 5), "reason=5", "text"),
        bad(lambda: Verdict(True, scope="always"), "scope='always'", "'forever'"),
        bad(lambda: Verdict(True, covers=""), "covers=''", "text"),
        bad(lambda: Verdict(True, covers=5), "covers=5", "text"),
        bad(lambda: Verdict(True, by=5), "by=5", "text"),
    ],
    "PermissionRequest": Never(f"{A_VALUE_OF_OURS}: gates are given it"),
    "allow": [bad(lambda: allow(3), "tool=3", "pattern"), bad(lambda: allow(target=None), "target=None", "pattern")],
    "deny": [bad(lambda: deny(3), "tool=3", "pattern"), bad(lambda: deny(action=[]), "action=[]", "pattern")],
    "ask": [bad(lambda: ask(3), "tool=3", "pattern"), bad(lambda: ask(target=5), "target=5", "pattern")],
    "later": Never("a handler: it is given to Permissions, which calls it with requests of its own"),
    "QuestionAsked": Never(f"{A_VALUE_OF_OURS}: outcomes and session.questions() have it"),
    "allow_all": Never("a gate: the loop calls it with requests of its own"),
    "deny_all": Never("a gate: the loop calls it with requests of its own"),
    # -- when a run ends -----------------------------------------------------------------------------------------------
    "Limits": [
        bad(lambda: Limits(max_turns="5"), "max_turns='5'", "whole number above zero"),
        bad(lambda: Limits(max_turns=0), "max_turns=0", "None for no limit"),
        bad(lambda: Limits(max_turns=2.5), "max_turns=2.5", "whole number"),
        bad(lambda: Limits(max_turns=True), "max_turns=True", "whole number"),
        bad(lambda: Limits(token_budget=-1), "token_budget=-1", "above zero"),
        bad(lambda: Limits(max_cost_usd="1"), "max_cost_usd='1'", "number above zero"),
        bad(lambda: Limits(timeout_seconds=float("nan")), "timeout_seconds=nan", "above zero"),
        bad(lambda: Limits(max_tool_calls=0), "max_tool_calls=0", "above zero"),
        bad(lambda: Limits(max_calls_per_reply=0), "max_calls_per_reply=0", "None for no limit"),
        bad(lambda: Limits(max_parallel_tools=None), "max_parallel_tools=None", "above zero"),
        bad(lambda: Limits(tool_timeout_seconds=[]), "tool_timeout_seconds=[]", "above zero"),
        bad(lambda: Limits(allowed_tools="shell"), "allowed_tools='shell'", "('shell',)"),
        bad(lambda: Limits(allowed_tools=(shell,)), "allowed_tools=", "names of tools"),
    ],
    "set_tool_threads": [
        bad(lambda: set_tool_threads(0), "total=0", "1 or more"),
        bad(lambda: set_tool_threads(8, per_session="all"), "per_session='all'", "whole number"),
    ],
    "Budget": [
        bad(Budget, "token_budget", "max_cost_usd"),
        bad(lambda: Budget(token_budget=-1), "token_budget=-1", "0 or more"),
        bad(lambda: Budget(token_budget="1000"), "token_budget='1000'", "whole number"),
        bad(lambda: Budget(max_cost_usd=-1), "max_cost_usd=-1", "0 or more"),
        bad(lambda: Budget(max_cost_usd="5"), "max_cost_usd='5'", "number of dollars"),
        bad(lambda: Budget(max_cost_usd=float("nan")), "max_cost_usd=nan", "0 or more"),
        bad(lambda: session().run("go", budget=Budget(max_cost_usd=1)), "price", "'scripted'"),
    ],
    "Step": Never(f"{A_VALUE_OF_OURS}: conditions and guardrails are given it"),
    "max_turns": [
        bad(lambda: max_turns(0), "max_turns(0)", "above zero"),
        bad(lambda: max_turns("3"), "'3'", "whole number"),
        bad(lambda: max_turns(None), "None", "whole number"),
    ],
    "when_tool_called": [
        bad(when_tool_called, "name of at least one tool"),
        bad(lambda: when_tool_called(shell), "Tool('shell')", "name"),
    ],
    "any_of": [bad(lambda: any_of("x"), "'x'", "function"), bad(lambda: any_of(3), "3", "function")],
    "all_of": [bad(lambda: all_of([max_turns(3)]), "all_of", "function")],
    "none_of": [bad(lambda: none_of(None), "None", "function")],
    "repeated_calls": [
        bad(lambda: repeated_calls(nudge_at=0), "nudge_at=0", "smaller than halt_at"),
        bad(lambda: repeated_calls(nudge_at=5, halt_at=5), "halt_at=5", "smaller than halt_at"),
        bad(lambda: repeated_calls(nudge_at="3"), "nudge_at='3'", "whole numbers"),
    ],
    "mistakes": [
        bad(lambda: mistakes(nudge_at=7), "nudge_at=7", "smaller than halt_at"),
        bad(lambda: mistakes(halt_at=None), "halt_at=None", "whole numbers"),
    ],
    "auto_continue": [
        bad(lambda: auto_continue(max_times=0), "max_times=0", "from 1 on"),
        bad(lambda: auto_continue(max_times="2"), "max_times='2'", "from 1 on"),
        bad(lambda: auto_continue(text=""), "text=''", "non-empty text"),
    ],
    "Accepted": [
        bad(lambda: Agent(MODEL, output_validators=[Accepted()]), "output_validators=[Accepted()]", "list of functions")
    ],
    "Retry": [
        bad(lambda: Retry(5), "feedback=5", "non-empty text"),
        bad(lambda: Retry("  "), "feedback='  '", "non-empty text"),
        bad(lambda: Retry("more", origin=None), "origin=None", "text"),
        bad(lambda: Retry("more", event="x"), "event='x'", "event"),
    ],
    "Nudge": [
        bad(lambda: Nudge(5), "text=5", "non-empty text"),
        bad(lambda: Nudge(""), "text=''", "non-empty text"),
        bad(lambda: Nudge("x", count="3"), "count='3'", "number"),
    ],
    "Halt": [bad(lambda: Halt("x"), "count='x'", "number")],
    # -- models --------------------------------------------------------------------------------------------------------
    "Model": Never("a protocol: what is given as a model is checked by open_model, check_model and Agent"),
    "open_model": [
        bad(lambda: open_model("nope:x"), "'nope'", "perdure models", "register"),
        bad(lambda: open_model("demo-1"), "'demo-1'", "demo"),
        bad(lambda: open_model(None), "None", "'provider:model'"),
        bad(lambda: open_model(object()), "object", "stream(request)"),
        bad(lambda: open_model(type("M", (), {"stream": nothing, "info": "M"})()), "info", "ModelInfo"),
    ],
    "ModelInfo": [
        bad(lambda: ModelInfo(5), "name=5", "text"),
        bad(lambda: ModelInfo("m", None), "provider=None", "text"),
        bad(lambda: ModelInfo("m", price=3.0), "price=3.0", "Price("),
        bad(lambda: ModelInfo("m", context_tokens="8k"), "context_tokens='8k'", "whole number"),
        bad(lambda: ModelInfo("m", max_output_tokens=0), "max_output_tokens=0", "1 or more"),
        bad(lambda: ModelInfo("m", output="magic"), "output='magic'", "'native'"),
    ],
    "Price": [
        bad(lambda: Price(input_usd=-1, output_usd=1), "input_usd=-1", "from 0 on"),
        bad(lambda: Price(input_usd=1, output_usd="1"), "output_usd='1'", "number of dollars"),
        bad(lambda: Price(input_usd=1, output_usd=float("nan")), "output_usd=nan", "number of dollars"),
    ],
    "Settings": [
        bad(lambda: Settings(temperature="hot"), "temperature='hot'", "number"),
        bad(lambda: Settings(temperature=-1), "temperature=-1", "from 0"),
        bad(lambda: Settings(top_p=2), "top_p=2", "from 0 to 1"),
        bad(lambda: Settings(max_output_tokens=0), "max_output_tokens=0", "1 or more"),
        bad(lambda: Settings(stop_sequences="END"), "stop_sequences='END'", "('END',)"),
        bad(lambda: Settings(seed=1.5), "seed=1.5", "whole number"),
        bad(lambda: Settings(reasoning_effort="huge"), "reasoning_effort='huge'", "'medium'"),
        bad(lambda: Settings(reasoning_tokens=-1), "reasoning_tokens=-1", "whole number"),
        bad(lambda: Settings(tool_choice=shell), "tool_choice=Tool('shell')", "name of a tool"),
        bad(lambda: Settings(parallel_tool_calls="no"), "parallel_tool_calls='no'", "True or False"),
        bad(lambda: Settings(extra_body=[]), "extra_body=[]", "dict"),
        bad(lambda: Settings(extra_body={"x": object()}), "extra_body=", "JSON"),
    ],
    "Request": Never(f"{A_VALUE_OF_OURS}: models are given it"),
    "observed": [
        bad(lambda: observed("demo", nothing), "'demo'", "open_model"),
        bad(lambda: observed(MODEL, None), "None", "function"),
    ],
    "gated": [bad(lambda: gated(None, nothing), "None", "open_model"), bad(lambda: gated(MODEL, 5), "5", "function")],
    "compacted": [
        bad(lambda: compacted("demo", print), "'demo'", "open_model"),
        bad(lambda: compacted(MODEL, None), "compact=None", "function"),
    ],
    "retried": [
        bad(lambda: retried("demo"), "'demo'", "open_model"),
        bad(lambda: retried(MODEL, attempts=0), "attempts=0", "at least one"),
        bad(lambda: retried(MODEL, attempts="4"), "attempts='4'", "at least one"),
        bad(lambda: retried(MODEL, base_seconds=-1), "base_seconds=-1", "from 0"),
        bad(lambda: retried(MODEL, base_seconds="1"), "base_seconds='1'", "from 0"),
        bad(lambda: retried(MODEL, base_seconds=5, max_seconds=1), "max_seconds=1", "maximum"),
        bad(lambda: retried(MODEL, jitter=0.5), "jitter=0.5", "function"),
    ],
    "failover": [
        bad(failover, "at least one model"),
        bad(lambda: failover(MODEL, "demo"), "'demo'", "open_model"),
        bad(lambda: failover([MODEL]), "give a model"),
    ],
    # -- stores --------------------------------------------------------------------------------------------------------
    "open_store": [
        bad(lambda: open_store("foo:"), "'foo:'", "sqlite:PATH"),
        bad(lambda: open_store("sessions.db"), "'sessions.db'", "sqlite:PATH"),
        bad(lambda: open_store(""), "''", "sqlite:PATH"),
        bad(lambda: open_store("memory:x"), "'memory:x'", "'memory:'"),
        bad(lambda: open_store("sqlite:"), "path"),
        bad(lambda: open_store("sqlite::memory:"), "':memory:'", "'memory:'"),
        bad(lambda: open_store("sqlite://host/x"), "host", "'sqlite:PATH'"),
        bad(lambda: open_store("sqlite:a\0b"), "path"),
        bad(lambda: open_store(None), "None", "sqlite:PATH"),
        bad(lambda: open_store(object()), "object", "sqlite:PATH"),
    ],
    "Post": [bad(lambda: open_store("memory:").post("s", Post("", "steer")), "must have an id", "new_id()")],
    "SessionInfo": Never(f"{A_VALUE_OF_OURS}: stores list it"),
    "Hit": Never(f"{A_VALUE_OF_OURS}: searches find it"),
    "ImportReport": Never(f"{A_VALUE_OF_OURS}: import_session returns it"),
    "InboxItem": Never(f"{A_VALUE_OF_OURS}: session.inbox() lists it"),
    "export_session": [
        bad(lambda: export_session(open_store("memory:"), "s"), "'s'", "store.list()", error=SessionNotFound)
    ],
    "import_session": [
        bad(lambda: import_session(open_store("memory:"), None), "no session", "export_session"),
        bad(lambda: import_session(open_store("memory:"), "{"), "no session", "export_session"),
        bad(lambda: import_session(open_store("memory:"), {"format": "x"}), "no session", "export_session"),
        bad(import_twice, "'there'", "another name", error=SessionExists),
    ],
    # -- replay --------------------------------------------------------------------------------------------------------
    "replay": [
        bad(lambda: replay(AGENT, "nowhere"), "'nowhere'", "store.list()", error=SessionNotFound),
        bad(lambda: replay(AGENT, []), "nothing to replay", error=UsageError),
        bad(lambda: replay(AGENT, [], from_seq=1), "give its id", error=UsageError),
        bad(lambda: replay(AGENT, {"format": "x"}), "no session", "export_session"),
    ],
    "ReplayReport": Never(f"{A_VALUE_OF_OURS}: replay returns it"),
    "Divergence": Never(f"{A_VALUE_OF_OURS}: a ReplayReport has it"),
    # -- what is said --------------------------------------------------------------------------------------------------
    "user": [
        bad(lambda: user(None), "None", "give text"),
        bad(lambda: user(5), "5", "give text"),
        bad(lambda: user(["x", 5]), "5", "give text"),
        bad(lambda: user({"text": "x"}), "{'text': 'x'}", "give text"),
    ],
    "tool_message": [
        bad(lambda: tool_message(None), "None", "give a list of ToolResult"),
        bad(lambda: tool_message([Text("x")]), "Text", "give a list of ToolResult"),
    ],
    "assistant": [
        bad(lambda: assistant(None), "None", "give text"),
        bad(lambda: assistant([b"x"]), "b'x'", "give text"),
    ],
    "Message": [
        bad(lambda: session().run(Message("robot", (Text("x"),))), "'robot'", "only 'user' messages"),
        bad(lambda: session().run(Message("user")), "give text"),
        bad(lambda: session().run(Message("user", "x")), "'x'", "give text"),
        bad(lambda: session().run(Message("user", ("x",))), "'x'", "give text"),
    ],
    "Text": [bad(lambda: session().run(Text(None)), "None", "give text")],
    "Thinking": [bad(lambda: session().run(Thinking("hm")), "Thinking", "give text")],
    "Citation": [bad(lambda: session().run(Citation("https://a")), "Citation", "give text")],
    "Image": [bad(lambda: session().run([Image(url=5)]), "url=5", "give text")],
    "Audio": [bad(lambda: session().run([Audio(media_type=None)]), "media_type=None", "give text")],
    "Video": [bad(lambda: session().run(Video(file_id=5)), "file_id=5", "give text")],
    "Document": [bad(lambda: session().run(Document(data=5)), "data=5", "give text")],
    "ToolCall": [bad(lambda: session().run(ToolCall(5, None)), "ToolCall", "give text")],
    "ToolResult": [bad(lambda: session().run(ToolResult("c", "shell")), "ToolResult", "give text")],
    "Usage": Never("a count that models report; check_model holds a model to it"),
    "Status": Never("an enum: Python refuses other members"),
    "StopReason": Never("an enum: Python refuses other members"),
    "Entry": [bad(lambda: Recorder()("x"), "'x'", "Entry")],
    "Event": Never(f"{A_VALUE_OF_OURS}: watchers are given it"),
    # -- watchers ------------------------------------------------------------------------------------------------------
    "mirror_text": [
        bad(lambda: mirror_text(None), "None", "sys.stdout"),
        bad(lambda: mirror_text("out.txt"), "'out.txt'", "sys.stdout"),
    ],
    "mirror_tool_calls": [
        bad(lambda: mirror_tool_calls(None), "None", "sys.stdout"),
        bad(lambda: mirror_tool_calls("out.txt"), "'out.txt'", "sys.stdout"),
    ],
    "Tracer": [
        bad(lambda: Tracer(limit=0), "limit=0", "give"),
        bad(lambda: Tracer(write=3), "write=3", "give"),  # type: ignore[arg-type]
    ],
    "Trace": Never("made by Tracer, trace_session and read_trace"),
    "trace_session": [
        bad(lambda: trace_session(MemoryStore(), "nope"), "'nope'", "store.list()", error=SessionNotFound)
    ],
    "read_trace": [
        bad(lambda: read_trace("nonsense"), "no trace", "perdure run --trace"),
        bad(lambda: read_trace('{"format": "x"}'), "'x'", "perdure run --trace"),
    ],
    "to_curl": [
        bad(lambda: to_curl({}), "base_url=''", "URL of the API"),
        bad(lambda: to_curl({}, base_url="http://x", api_key_env="a b"), "'a b'", "OPENAI_API_KEY"),
    ],
    "OtelWatcher": [
        bad(lambda: OtelWatcher(conventions="0.1"), "conventions='0.1'", "1.44"),  # type: ignore[arg-type]
    ],
    "log_tool_calls": [
        bad(lambda: log_tool_calls("perdure"), "'perdure'", "logging.getLogger("),
        bad(lambda: log_tool_calls(level="INFO"), "level='INFO'", "logging.INFO"),
    ],
    # -- errors and the rest -------------------------------------------------------------------------------------------
    **dict.fromkeys(
        [
            "AllModelsFailed",
            "AuthFailed",
            "BadRequest",
            "ConfigError",
            "Conflict",
            "ContextOverflow",
            "EmptyReply",
            "Fenced",
            "InvalidOutput",
            "QuotaSpent",
            "MiddlewareFailed",
            "ModelError",
            "EffectNotStarted",
            "EffectUnknown",
            "LimitExceeded",
            "OutOfBudget",
            "ProviderDown",
            "RateLimited",
            "ContentRefused",
            "ReplyCutOff",
            "SessionBusy",
            "SessionExists",
            "SessionNotFound",
            "ShuttingDown",
            "StoreError",
            "ToolError",
            "EntryTooNew",
            "UnsupportedByStore",
            "UsageError",
            "PerdureError",
        ],
        AN_ERROR,
    ),
    "__version__": Never("a text"),
}

TESTING_TABLE: dict[str, Sequence[Bad] | Never] = {
    "FakeClock": [
        bad(lambda: FakeClock("now"), "start='now'", "seconds"),
        bad(lambda: FakeClock().advance(-1), "-1", "backwards"),
        bad(lambda: FakeClock().advance("1"), "'1'", "seconds"),
    ],
    "MemoryFiles": [
        bad(lambda: MemoryFiles({"a.txt": 5}), "'a.txt'", "5", "text or bytes"),
        bad(lambda: MemoryFiles({"../a.txt": ""}), "outside the working folder"),
    ],
    "Pause": Never("it takes nothing"),
    "pause": Never("it takes nothing"),
    "Recorder": [bad(lambda: Recorder()(None), "None", "Entry")],
    "Reply": [
        bad(lambda: Reply(5), "text=5", "str"),
        bad(lambda: Reply(thinking=None), "thinking=None", "str"),
        bad(lambda: Reply(calls="x"), "calls='x'", "call(name"),
        bad(lambda: Reply(calls=[5]), "calls=[5]", "call(name"),
        bad(lambda: Reply(usage=5), "usage=5", "Usage"),
        bad(lambda: Reply(stop="soon"), "stop='soon'", "StopReason"),
    ],
    "ScriptEnded": AN_ERROR,
    "Scripted": Never("an alias of types; `ScriptedModel` checks what it is given"),
    "ScriptedModel": [
        bad(lambda: ScriptedModel(5), "5", "call("),
        bad(lambda: ScriptedModel(None), "None", "call("),
        bad(lambda: ScriptedModel([5]), "5", "events"),
        bad(lambda: ScriptedModel(user("x")), "'user'", "'assistant'"),
        bad(lambda: ScriptedModel("x", chunk=0), "chunk=0", "at least 1"),
        bad(lambda: ScriptedModel("x", chunk="2"), "chunk='2'", "at least 1"),
        bad(lambda: ScriptedModel(repeat_last=True), "repeat_last", "a reply"),
        bad(lambda: ScriptedModel("x", name=5), "name=5", "text"),
        bad(lambda: ScriptedModel("x", price=5), "price=5", "Price("),
    ],
    "ScriptedShell": [
        bad(lambda: ScriptedShell({"ls": 5}), "{'ls': 5}", "a ShellResult"),
        bad(lambda: ScriptedShell({5: "x"}), "{5: 'x'}", "a ShellResult"),
    ],
    "ScriptedBrowser": [
        bad(lambda: ScriptedBrowser({"https://x.org": 5}), "{'https://x.org': 5}", "a ScriptedPage"),
    ],
    "ScriptedPage": Never("a value; `ScriptedBrowser` checks what it is given"),
    "ScriptedWeb": [
        bad(lambda: ScriptedWeb({"https://x.org": 5}), "{'https://x.org': 5}", "a WebFetchResult"),
        bad(lambda: ScriptedWeb({"x.org": "page"}), "'x.org'", "complete URL"),
    ],
    "call": [
        bad(lambda: call(""), "''", "name of a tool"),
        bad(lambda: call(5), "5", "name of a tool"),
        bad(lambda: call("t", {"a": 1}), "{'a': 1}", "keywords"),
        bad(lambda: call("t", "{}", a=1), "'{}'", "keywords"),
        bad(lambda: call("t", a=object()), "JSON"),
    ],
    "calls": [bad(calls, "at least one call"), bad(lambda: calls("x"), "'x'", "call(name")],
    "thinking": [bad(lambda: thinking(None), "None", "str"), bad(lambda: thinking("hm", 5), "5", "call(name")],
    "assert_cache_stable": [bad(lambda: assert_cache_stable("agent"), "'agent'", "Agent(")],
    "check_model": [
        bad(lambda: check_model(None), "None", "function that makes a model"),
        bad(lambda: check_model(MODEL), "ScriptedModel", "function that makes a model"),
        bad(lambda: check_model(nothing), "nothing", "function that makes a model"),
    ],
    "check_store": [
        bad(lambda: check_store(None), "None", "function that makes a store"),
        bad(lambda: check_store(nothing), "nothing", "function that makes a store"),
        bad(lambda: check_store(nothing, full_disk=5), "full_disk=5", "function"),
        bad(lambda: check_store(nothing, restored="x"), "restored='x'", "function"),
    ],
}


MET = Never("it is met as a value, or written in annotations")
ELSEWHERE = Never("the tests of its module try it")
TABLE |= dict.fromkeys(
    [
        "AgentSpec",
        "ChooseOverrides",
        "Content",
        "Invalid",
        "Lifespan",
        "MessageCounts",
        "Overrides",
        "Parameters",
        "PrefixChange",
        "Problem",
        "PromptPrefix",
        "RunMiddleware",
        "RunOptions",
        "RunStep",
        "SessionControls",
        "SessionDisplay",
        "SessionUsage",
        "StampedMessage",
        "StoredSession",
        "Subscription",
        "ToolCallRecord",
        "ToolDisplaySlots",
        "ToolOptions",
        "Trusted",
        "TurnMiddleware",
        "UNCERTAIN_STATUSES",
        "WatcherStats",
    ],
    MET,
)
TABLE |= dict.fromkeys(["list_message_sources", "load_mcp_servers"], ELSEWHERE)
TESTING_TABLE |= dict.fromkeys(["Clock", "DifferenceKind", "Diverged", "Recording", "ScriptStep", "Source"], MET)
TESTING_TABLE |= dict.fromkeys(["check_replay", "record", "replayed"], ELSEWHERE)
TABLE |= PARTS_TABLE
TABLE["Agent"] = [*TABLE["Agent"], *AGENT_ROWS]
TABLE["Session"] = [*TABLE["Session"], *SESSION_ROWS]


@pytest.mark.parametrize(
    ("module", "table"), [(perdure, TABLE), (perdure.testing, TESTING_TABLE)], ids=["perdure", "perdure.testing"]
)
def test_every_public_name_has_its_place_in_the_table(module, table):
    assert sorted({*module.__all__} - TABLE.keys() - table.keys()) == []
    known = {name for module in list_public_modules() for name in importlib.import_module(module).__all__}
    assert sorted(table.keys() - known) == []
    assert all(places if isinstance(places, Never) else len(places) for places in table.values())


ROWS = [
    pytest.param(row, id=f"{name}-{number}")
    for table in (TABLE, TESTING_TABLE)
    for name, rows in table.items()
    if not isinstance(rows, Never)
    for number, row in enumerate(rows, 1)
]


@pytest.mark.parametrize("row", ROWS)
def test_bad_input_is_refused_with_an_error_that_says_what_to_do(row):
    with pytest.raises(row.error) as caught:
        perform(row.call)
    assert isinstance(caught.value, PerdureError)
    message = str(caught.value)
    assert [word for word in row.says if word not in message] == [], message


def perform(call: Callable[[], Any]) -> None:
    """Make a call, to its end if it is async."""
    done = call()
    if inspect.isawaitable(done):
        asyncio.run(awaited(done))


async def awaited(work: Any) -> Any:
    return await work


@pytest.mark.parametrize(
    "setting",
    [
        {"temperature": 0},
        {"top_p": 1},
        {"max_output_tokens": 1},
        {"stop_sequences": ["END"]},
        {"seed": -1},
        {"reasoning_effort": "none"},
        {"reasoning_tokens": 0},
        {"tool_choice": "required"},
        {"parallel_tool_calls": False},
        {"extra_body": {"logit_bias": {"50256": -100}}},
    ],
    ids=str,
)
def test_settings_at_the_edge_of_what_makes_sense_are_taken(setting):
    ((name, value),) = setting.items()
    assert getattr(Settings(**setting), name) == value
