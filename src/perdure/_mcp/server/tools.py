"""Offer tools and agents to the clients of an MCP server, and run their calls, recorded in sessions of each client."""

import asyncio
import re
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, get_type_hints

import msgspec
from msgspec import Struct

from perdure._core.run.outcome import Outcome
from perdure._core.schema.parameters import check_value, json_schema_for_type
from perdure._core.schema.problems import Invalid
from perdure._core.tools.tool import Tool, ToolOutput
from perdure._core.values.clock import SYSTEM_CLOCK, Clock, new_id
from perdure._core.values.error import ConfigError, PerdureError, UsageError
from perdure._core.values.event import Entry, ToolProgress, ToolStarted
from perdure._core.values.event_class import QuestionAsked
from perdure._core.values.jsonable import error_message, to_text
from perdure._core.values.message import Message, Status, Text, ToolResult
from perdure._core.watch import Watcher
from perdure._runtime.agent.agent import Agent
from perdure._runtime.session.session import Session
from perdure._runtime.subagents.result import build_subagent_result

from .agents import OpenQuestions, ServedAgent, WaitingRun, WaitingRuns
from .clients import ClientLimits, ClientRequestLimiter


def derive_output_schema(tool: Tool[..., Any]) -> dict[str, Any] | None:
    """Return the JSON Schema of a tool's results, from its function's return type; `None` for types without fields.

    Dataclasses, msgspec structs, pydantic models and `TypedDict`s have fields. Text, lists and a `ToolOutput` have not.
    """
    if tool.function is None:
        return None
    function = getattr(tool.function, "func", tool.function)
    try:
        returned = get_type_hints(function, include_extras=True).get("return")
        if returned is None or returned is ToolOutput or not isinstance(returned, type):
            return None
        schema = json_schema_for_type(returned)
    except (ConfigError, NameError, TypeError):  # a type that has no schema
        return None
    return schema if schema.get("type") == "object" and schema.get("properties") else None


def parse_structured_result(result: ToolResult, schema: Mapping[str, Any]) -> Any:
    """Parse the JSON in a tool's result. Raises `Invalid` or `msgspec.DecodeError` if it does not match the schema."""
    value: Any = msgspec.json.decode(result.text)
    check_value(value, dict(schema))
    return value


__all__ = ["Invalid", "derive_output_schema", "parse_structured_result"]


ReportProgress = Callable[[str], Awaitable[None]]
"""Async function that sends a client one line about the progress of its call."""

CALLS_PER_SESSION: Final = 500
"""Tool calls in one session; after them the next one is begun, so that logs stay short."""
STOP_SECONDS: Final = 10.0
"""Time that a cancelled call gets to store how it ended; a tool that ignores its cancellation goes on without us."""
_SECONDS_BETWEEN_REPORTS: Final = 0.05
_CONVERSATION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_DEFAULT_CONVERSATION: Final = "default"


TASK_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "task": {
            "type": "string",
            "description": "The task, with everything that the agent has to know. Leave it out to continue a "
            "conversation whose questions were answered.",
        },
        "conversation": {
            "type": "string",
            "pattern": f"^{_CONVERSATION.pattern}$",
            "description": "The name of a conversation of yours: the agent remembers what was said in it. Another name "
            "begins another conversation.",
        },
    },
    "additionalProperties": False,
}
"""The JSON Schema of the arguments of a tool that runs an agent."""


class OfferedTool(Struct, frozen=True, kw_only=True, eq=False):
    """Tool that an MCP server offers to its clients, and the agent that it belongs to."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None
    """The schema of the structured content of its results; `None` if they are text."""
    served: ServedAgent
    tool: Tool[..., Any] | None
    """The tool of the agent; `None` if calls run the agent itself."""

    @property
    def is_read_only(self) -> bool:
        """True if a call changes nothing."""
        return self.tool is not None and self.tool.effect == "read"

    @property
    def is_idempotent(self) -> bool:
        """True if calling twice with the same arguments has the effect of calling once."""
        return self.tool is not None and self.tool.effect in {"read", "idempotent"}

    @property
    def is_open_world(self) -> bool:
        """True if a call can reach what is outside of this machine: always, for an agent."""
        return self.tool is None or self.tool.sends


class CallOutcome(Struct, frozen=True):
    """Outcome of a tool call by an MCP client: the result, and the id of the session that logged it."""

    result: ToolResult
    session_id: str
    """The session that has the call in its log."""


class _CallSession:
    """The session of a client's tool calls."""

    def __init__(self, session: Session[Any]) -> None:
        self.session = session
        self.calls = 0
        self.labels: set[str] = set()
        """The labels that its log has."""


class _ClientState:
    """Use and sessions of one client."""

    def __init__(self, limits: ClientLimits, clock: Clock) -> None:
        self.usage = ClientRequestLimiter(limits.calls_per_minute, limits.calls_at_once, clock, "calls")
        self.sessions: dict[str, _CallSession] = {}
        """For each agent whose tools are called, the session of the calls."""
        self.locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """For each agent whose tools are called, the lock of that session."""
        self.labels: set[str] = set()
        """The labels of all text that the client was sent: its model may repeat it in any later call."""
        self.waiting = WaitingRuns(limits.calls_at_once)


class ServedTools:
    """Lists the tools that MCP clients can call, and carries out the calls, in sessions of each client."""

    def __init__(
        self,
        agents: list[ServedAgent],
        *,
        limits: ClientLimits | None = None,
        clock: Clock = SYSTEM_CLOCK,
        keeps_conversations: bool = True,
    ) -> None:
        """Prepare to serve agents.

        Args:
            agents: The agents that are served.
            limits: The limits of each client.
            clock: The source of time for the limits.
            keeps_conversations: True if a client that calls an agent without naming a conversation goes on with the one
                from before this process; False if it begins another.
        """
        self.limits = limits or ClientLimits()
        self._agents = agents
        self._clock = clock
        self._clients: dict[str, _ClientState] = {}
        self._process_id = new_id()
        self._default_conversation = _DEFAULT_CONVERSATION if keeps_conversations else self._process_id
        self.tools: Mapping[str, OfferedTool] = {each.name: each for each in _list_offered_tools(agents)}
        """The tools that clients can call, by name, in the order in which they are listed."""

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Keep the resources of the agents open during a block; at its end, runs that wait for a person are ended."""
        entered: list[Agent[Any]] = []
        async with AsyncExitStack() as stack:
            for each in self._agents:
                if each.agent not in entered:
                    await stack.enter_async_context(each.agent)
                    entered.append(each.agent)
            try:
                yield
            finally:
                for state in self._clients.values():
                    await state.waiting.end()

    def cancel_waiting(self, client: str) -> None:
        """Cancel the runs of a client that wait for a person, since its token is revoked; from any thread."""
        state = self._clients.get(client)
        if state is not None:
            state.waiting.cancel()

    async def call(
        self, client: str, name: str, arguments: dict[str, Any], report: ReportProgress | None = None
    ) -> CallOutcome:
        """Carry out the call of a client; cancelling this cancels the call, and waits until that is stored.

        A call that fails has a result that says so. Raises `TooManyCalls` if the client has reached a limit, and
        `UsageError` if there is no such tool.
        """
        offered = self.tools.get(name)
        if offered is None:
            raise UsageError(f"there is no tool {name!r}; available: {', '.join(self.tools)}")
        state = self._clients.get(client)
        if state is None:
            state = self._clients[client] = _ClientState(self.limits, self._clock)
        watchers = [] if report is None else [self._build_reporter(report)]
        with state.usage.use():
            if offered.tool is None:
                return await _run_until_stored(self._run_agent(client, state, offered, arguments, watchers))
            return await _run_until_stored(self._call_tool(client, state, offered, arguments, watchers))

    async def _call_tool(
        self,
        client: str,
        state: _ClientState,
        offered: OfferedTool,
        arguments: dict[str, Any],
        watchers: list[Watcher],
    ) -> CallOutcome:
        agent = offered.served.agent
        async with state.locks[agent.name]:  # one call after another, each with what the ones before it have shown
            calls = self._choose_session(client, state, agent)
            session = calls.session
            try:
                if missing := state.labels - calls.labels:  # gates see the labels of what the client has seen
                    await session.import_messages([_build_labelled_note(missing)])
                    calls.labels |= missing
                result = await session.call(offered.name, arguments, watchers=watchers)
                state.labels.update(result.labels)
            except PerdureError as error:
                result = _build_error_result(offered.name, error)
        return CallOutcome(result, session.session_id)

    def _choose_session(self, client: str, state: _ClientState, agent: Agent[Any]) -> _CallSession:
        """Return the session for a tool call of a client: the current one, or the next if it has many calls."""
        current = state.sessions.get(agent.name)
        if current is None or current.calls >= CALLS_PER_SESSION:
            current = _CallSession(agent.session(f"mcp/{client}/{agent.name}-tools-{new_id()}"))
            state.sessions[agent.name] = current
        current.calls += 1
        return current

    async def _run_agent(
        self,
        client: str,
        state: _ClientState,
        offered: OfferedTool,
        arguments: dict[str, Any],
        watchers: list[Watcher],
    ) -> CallOutcome:
        unknown = sorted(set(arguments) - {"task", "conversation"})
        task, conversation = arguments.get("task", ""), arguments.get("conversation", self._default_conversation)
        session_id = f"mcp/{client}/{offered.name}/"
        problem = f"unknown argument {unknown[0]!r}: use task and conversation" if unknown else ""
        if not isinstance(task, str):
            problem = "task: give text"
        elif not isinstance(conversation, str) or not _CONVERSATION.fullmatch(conversation):
            problem = "conversation: use 1 to 64 letters, digits, '.', '_' and '-'"
        if problem:
            return CallOutcome(_build_error_result(offered.name, UsageError(problem)), session_id)
        try:
            session = offered.served.agent.session(f"{session_id}{conversation}")
        except ConfigError as error:  # an id that is reserved
            return CallOutcome(_build_error_result(offered.name, error), session_id)
        try:
            result = await _give_task(session, offered, task, state, watchers)
        except PerdureError as error:
            result = _build_error_result(offered.name, error)
        labels = tuple((await session.read_state()).labels)
        state.labels.update(labels)
        return CallOutcome(msgspec.structs.replace(result, labels=labels), session.session_id)

    def _build_reporter(self, report: ReportProgress) -> Watcher:
        """Return a watcher that reports the progress of a call: what tools report, and which tools an agent calls."""
        last = -_SECONDS_BETWEEN_REPORTS

        async def report_event(entry: Entry) -> None:
            nonlocal last
            event, now = entry.event, self._clock.monotonic()
            if isinstance(event, ToolStarted):
                await report(f"{event.name} started")
            elif isinstance(event, ToolProgress) and now - last >= _SECONDS_BETWEEN_REPORTS:
                last = now
                await report(event.data if isinstance(event.data, str) else to_text(event.data))

        return report_event


async def _give_task(
    session: Session[Any], offered: OfferedTool, task: str, state: _ClientState, watchers: list[Watcher]
) -> ToolResult:
    """Run an agent on a task, or continue its waiting run if there is none, and return the answer as a result."""
    output, questions = offered.served.wanted_output, OpenQuestions()
    watchers = [*watchers, questions.note_event]
    waiting = state.waiting.take(session.session_id)
    if waiting is not None and waiting.is_outdated(has_task=bool(task.strip())):
        waiting = None
    if waiting is not None:
        if task.strip():
            state.waiting.add(session.session_id, waiting)
            raise UsageError("this conversation waits for an answer of a person: call again without a task")
    elif task.strip():
        message = msgspec.structs.replace(Message("user", (Text(task),)), labels=tuple(sorted(state.labels)))
        run: asyncio.Future[Any] = asyncio.ensure_future(session.run(message, output=output, watchers=watchers))
        waiting = WaitingRun(run, questions)
    else:
        waiting = WaitingRun(asyncio.ensure_future(session.wake(output=output, watchers=watchers)), questions)
    if not await waiting.wait(state.waiting):  # a tool in progress asks: the run goes on when there is an answer
        state.waiting.add(session.session_id, waiting)
        return _build_waiting_result(offered.name, waiting.questions.open)
    if waiting.run.cancelled():
        raise UsageError("the run of this conversation was cancelled: give a task")
    outcome: Outcome[Any] | None = waiting.run.result()
    if outcome is None:
        is_waiting = (await session.read_state()).is_waiting
        reason = "waits for an answer of a person" if is_waiting else "has nothing to continue"
        raise UsageError(f"this conversation {reason}: give a task, or call again when there is an answer")
    if outcome.status == "waiting":
        return _build_waiting_result(offered.name, outcome.questions)
    made = build_subagent_result(offered.name, outcome, output)
    return ToolResult(new_id(), offered.name, (Text(str(made.content)),), Status.ERROR if made.is_error else Status.OK)


def _build_waiting_result(name: str, questions: Iterable[QuestionAsked]) -> ToolResult:
    """Build the result that says which answers a run waits for, and how to go on."""
    asked = "\n".join([f"- {_describe_question(each)}" for each in questions])
    text = (
        f"{name} waits for a person, on the machine of this server, to answer:\n{asked}\n"
        "Call it again without a task, for the same conversation, when that is done."
    )
    return ToolResult(new_id(), name, (Text(text),), Status.ERROR)


def _describe_question(question: QuestionAsked) -> str:
    """Return a question as a line: its text, and the tools that it is about."""
    tools = ", ".join([str(call.get("tool", "")) for call in question.calls])
    return f"{question.text} ({tools})" if tools and question.text else question.text or f"may these run: {tools}"


def _build_labelled_note(labels: Collection[str]) -> Message:
    """Build the message that records which labels the text has that a client was sent."""
    note = Message("user", (Text("The client has received text with labels."),))
    return msgspec.structs.replace(note, labels=tuple(sorted(labels)))


def _build_error_result(name: str, error: Exception) -> ToolResult:
    return ToolResult(new_id(), name, (Text(error_message(error)),), Status.ERROR)


def _list_offered_tools(agents: list[ServedAgent]) -> list[OfferedTool]:
    """Return the tools that clients see of these agents."""
    found: list[OfferedTool] = []
    for served in agents:
        if served.offer != "tools":
            output = served.wanted_output
            found.append(
                OfferedTool(
                    name=served.tool_name,
                    description=served.tool_description,
                    input_schema=TASK_SCHEMA,
                    output_schema=None if output is None else output.spec.schema,
                    served=served,
                    tool=None,
                )
            )
        found += [
            OfferedTool(
                name=tool.name,
                description=tool.description,
                input_schema=tool.parameters.json_schema,
                output_schema=derive_output_schema(tool),
                served=served,
                tool=tool,
            )
            for tool in served.offered_tools
        ]
    return found


async def _run_until_stored(call: Awaitable[CallOutcome]) -> CallOutcome:
    """Carry out a call in a separate task; if this one is cancelled, cancel it and wait until it has ended.

    The SDK cancels by scopes, which interrupt every `await` until the scope is left. The call would be interrupted
    while it stores how it ended.
    """
    task = asyncio.ensure_future(call)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        await _wait_shielded(task)
        raise
    return task.result()


async def _wait_shielded(task: "asyncio.Future[Any]") -> None:
    """Wait until a cancelled task has ended, for some seconds at most, whatever else is cancelled meanwhile."""
    import anyio  # the SDK's; its scopes are the ones to be shielded from

    with anyio.CancelScope(shield=True):
        await asyncio.wait({task}, timeout=STOP_SECONDS)
    if task.done() and not task.cancelled():
        task.exception()  # read, so that asyncio does not log it
