"""How an MCP server offers agents to its clients (`ServedAgent`), and their runs that wait until a person answers."""

import asyncio
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias, cast, get_args

from msgspec import Struct

from perdure._core.log.reserved_ids import check_part_not_reserved
from perdure._core.model.protocol import ModelInfo, Request
from perdure._core.tools.tool import Tool
from perdure._core.tools.toolbox import Toolbox
from perdure._core.values import checks
from perdure._core.values.error import ConfigError, UsageError
from perdure._core.values.event import Entry
from perdure._core.values.event_class import QuestionAnswered, QuestionAsked
from perdure._runtime.agent.agent import Agent
from perdure._runtime.agent.output import Output, to_output

if TYPE_CHECKING:
    from perdure._core.log.store import Store
    from perdure._core.permission.gate import Gate


OfferedTools: TypeAlias = Literal["agent", "tools", "both"]
"""The tools that clients see of an agent: one that runs it, the agent's own, or both."""

Served: TypeAlias = "Agent[Any] | ServedAgent | Toolbox | Iterable[Tool[..., Any] | Agent[Any] | ServedAgent]"
"""Agents and tools that can be served."""

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_NAME_LENGTH: Final = 64


class ServedAgent(Struct, frozen=True, kw_only=True, eq=False):
    """Agent that an MCP server offers: the name and description of its tool, and the type of its answer."""

    agent: Agent[Any]
    """The agent; its permissions, limits, vault and store apply to every call."""
    offer: OfferedTools = "agent"
    """`agent`: a tool that gives the agent a task. `tools`: the agent's own tools, called without a model. `both`."""
    name: str = ""
    """The name of the tool that runs the agent; by default the agent's."""
    description: str = ""
    """The description of that tool; by default the agent's."""
    output: Any = None
    """A type or JSON Schema that the answer has to match: clients get it as structured content, with its schema."""

    def __post_init__(self) -> None:
        if not isinstance(self.agent, Agent):
            checks.raise_config_error("ServedAgent", "agent", self.agent, "give an Agent(…)")
        checks.require_one_of("ServedAgent", "offer", self.offer, get_args(OfferedTools))
        checks.require_text("ServedAgent", "name", self.name)
        checks.require_text("ServedAgent", "description", self.description)
        if self.name and (_NOT_IN_NAMES.search(self.name) or len(self.name) > _MAX_NAME_LENGTH):
            checks.raise_config_error("ServedAgent", "name", self.name, "use at most 64 letters, digits, '_' and '-'")
        check_part_not_reserved(self.tool_name, "the tool of an agent")
        to_output(self.output)

    @property
    def tool_name(self) -> str:
        """The name of the tool that runs the agent."""
        return self.name or _NOT_IN_NAMES.sub("-", self.agent.name).strip("-")[:_MAX_NAME_LENGTH] or "agent"

    @property
    def tool_description(self) -> str:
        """The description of the tool that runs the agent."""
        own = self.description or self.agent.description
        return own or f"Give a task to the agent {self.agent.name!r}, and get its answer."

    @property
    def wanted_output(self) -> Output[Any] | None:
        """The type of the answer; `None` for text."""
        return to_output(self.output)

    @property
    def offered_tools(self) -> Sequence[Tool[..., Any]]:
        """The agent's own tools, as far as they are offered."""
        return () if self.offer == "agent" else tuple(self.agent.toolbox)


class _NoModel:
    """Model of an agent that only has tools to serve: it cannot be asked."""

    info = ModelInfo("none", "mcp")

    def stream(self, request: Request) -> NoReturn:  # noqa: ARG002 - the interface of models
        """Raise `UsageError`: tools are called by clients, and not by a model."""
        raise UsageError("these tools are served to MCP clients: there is no model to ask")


def list_served_agents(
    served: Served, *, permission: "Gate | None" = None, store: "Store | str | None" = None, name: str = "tools"
) -> list[ServedAgent]:
    """Return a `ServedAgent` for each agent that is served, and one for all tools that are served without an agent.

    `permission` and `store` are for those tools. Raises `ConfigError` for anything else, and for a name that is there
    twice.
    """
    if isinstance(served, Agent | ServedAgent):
        parts: list[Any] = [served]
    elif isinstance(served, Toolbox):
        parts = list(served)
    elif isinstance(served, Iterable) and not isinstance(served, str | bytes):
        parts = list(cast("Iterable[Any]", served))
    else:
        checks.raise_config_error("serve", "served", served, "give an agent, a toolbox or a list of tools")
    agents = [each if isinstance(each, ServedAgent) else _wrap_agent(each) for each in parts if _is_agent(each)]
    tools = [each for each in parts if not _is_agent(each)]
    if tools:
        options: dict[str, Any] = {} if store is None else {"store": store}
        host = Agent(_NoModel(), name=name, tools=tools, permission=permission, **options)
        agents.insert(0, ServedAgent(agent=host, offer="tools"))
    elif permission is not None or store is not None:
        raise ConfigError("permission=… and store=… are for tools without an agent: give them to Agent(…) instead")
    _check_names(agents)
    return agents


def _is_agent(part: object) -> bool:
    return isinstance(part, Agent | ServedAgent)


def _wrap_agent(agent: Agent[Any]) -> ServedAgent:
    return ServedAgent(agent=agent)


def _check_names(agents: Sequence[ServedAgent]) -> None:
    names: list[str] = []
    for each in agents:
        names += [tool.name for tool in each.offered_tools]
        if each.offer != "tools":
            names.append(each.tool_name)
    if not names:
        raise ConfigError("there is nothing to serve: give an agent, or at least one tool")
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two of the tools that are served are called {name!r}: rename one of them")


ANSWER_SECONDS: Final = 30.0
"""How long a call is kept open for the answer to a question; clients give up after a minute or so."""
_STOP_SECONDS: Final = 10.0


class OpenQuestions:
    """Questions to people, asked in one run, that have no answer yet."""

    def __init__(self) -> None:
        self._by_id: dict[str, QuestionAsked] = {}
        self.changed = asyncio.Event()
        """Set at each question and answer."""

    @property
    def open(self) -> list[QuestionAsked]:
        """The questions without an answer."""
        return list(self._by_id.values())

    def note_event(self, entry: Entry) -> None:
        """Record the questions and answers among the run's events."""
        if isinstance(entry.event, QuestionAsked):
            self._by_id[entry.event.ask_id] = entry.event
        elif isinstance(entry.event, QuestionAnswered):
            self._by_id.pop(entry.event.ask_id, None)
        else:
            return
        self.changed.set()


class WaitingRun:
    """Run that an MCP client started and that is still in progress, with its unanswered questions to people."""

    def __init__(self, run: "asyncio.Future[Any]", questions: OpenQuestions) -> None:
        self.run = run
        self.questions = questions

    def is_outdated(self, *, has_task: bool) -> bool:
        """Return True if the run has ended and its result is not needed, such as when the client has another task."""
        if not self.run.done():
            return False
        if self.run.cancelled() or self.run.exception() is not None:
            return has_task or self.run.cancelled()
        return has_task or getattr(self.run.result(), "status", "") == "waiting"

    async def wait(self, others: "WaitingRuns") -> bool:
        """Wait until the run has ended; return False if a question of it had no answer for `ANSWER_SECONDS`.

        The run is cancelled with the caller. If too many `others` wait already, the run is cancelled, too.
        """
        try:
            while not self.run.done():
                self.questions.changed.clear()
                seconds = ANSWER_SECONDS if self.questions.open else None
                change = asyncio.ensure_future(self.questions.changed.wait())
                try:
                    done, _ = await asyncio.wait(
                        {self.run, change}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
                    )
                finally:
                    change.cancel()
                if not done:
                    others.check_room()
                    return False
        except BaseException:
            self.run.cancel()
            await asyncio.wait({self.run}, timeout=_STOP_SECONDS)
            raise
        return True


class WaitingRuns:
    """Runs of one MCP client that are paused until a person answers, by session id."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._runs: dict[str, WaitingRun] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, session_id: str, run: WaitingRun) -> None:
        """Keep a run until its client asks for its result."""
        self._loop = asyncio.get_running_loop()
        self._runs[session_id] = run

    def take(self, session_id: str) -> WaitingRun | None:
        """Return the waiting run of a session, which the caller waits for from now on; `None` if there is none."""
        return self._runs.pop(session_id, None)

    def check_room(self) -> None:
        """Raise `UsageError` if so many runs wait that there is no room for another."""
        if len(self._runs) >= self._most:
            raise UsageError(f"{self._most} conversations of this client wait for a person: this one was cancelled")

    def cancel(self) -> None:
        """Cancel all runs; from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            for each in list(self._runs.values()):
                self._loop.call_soon_threadsafe(each.run.cancel)

    async def end(self) -> None:
        """Cancel all runs, and wait until that is stored."""
        runs = [each.run for each in self._runs.values()]
        self._runs.clear()
        for each in runs:
            each.cancel()
        if runs:
            await asyncio.wait(runs, timeout=_STOP_SECONDS)
            for each in runs:
                if each.done() and not each.cancelled():
                    each.exception()  # read, so that asyncio does not log it
