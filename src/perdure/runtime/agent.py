"""The `Agent` class: the options of an agent, and the ways to run it.

Building an agent costs microseconds and opens no connection or file. `run` makes a new session for one prompt;
`session` opens one that is stored.
"""

from typing import Any, Generic, TypeVar, Unpack, overload

from perdure.core.clock import new_id
from perdure.core.error import ConfigError
from perdure.core.message import Content, Message
from perdure.core.outcome import Outcome
from perdure.core.store import Hit, SearchOptions, Store
from perdure.core.tool import D, Tool
from perdure.stores import open_store

from .active_agent import check_role
from .output import Output
from .overrides import Overrides
from .session import Session
from .spec import AgentSpec
from .stored_session import require_search
from .stream import RunStream
from .sync import run_on_background_loop

T = TypeVar("T")


class Agent(AgentSpec[D], Generic[D], kw_only=True, eq=False):
    """An agent: a model with its tools, instructions and rules. Immutable; `replace` makes a changed copy."""

    def session(self, session_id: str | None = None, *, store: Store | str | None = None, role: str = "") -> Session[D]:
        """Return the session with that id, stored or new; without an id, a new one.

        Nothing is opened or stored before the session is used. `role` is the role of its runs, unless a run asks for
        another.
        """
        if session_id is not None and (not isinstance(session_id, str) or not session_id.strip()):
            raise ConfigError(f"a session cannot be called {session_id!r}: give a name, or None for a new one")
        check_role(self, role)
        return Session(self, session_id or new_id(), self.store if store is None else open_store(store), role)

    @overload
    async def run(
        self, prompt: Content | Message, *, output: type[T] | Output[T], **overrides: Unpack[Overrides[D]]
    ) -> Outcome[T]: ...
    @overload
    async def run(
        self, prompt: Content | Message, *, output: Any = None, **overrides: Unpack[Overrides[D]]
    ) -> Outcome[Any]: ...
    async def run(
        self, prompt: Content | Message, *, output: Any = None, **overrides: Unpack[Overrides[D]]
    ) -> Outcome[Any]:
        """Answer one prompt in a new session, and return the outcome. Without a store, the session is not kept."""
        session = self._new_session()
        try:
            return await session.run(prompt, output=output, **overrides)
        finally:
            await session.aclose()

    @overload
    def run_sync(
        self, prompt: Content | Message, *, output: type[T] | Output[T], **overrides: Unpack[Overrides[D]]
    ) -> Outcome[T]: ...
    @overload
    def run_sync(
        self, prompt: Content | Message, *, output: Any = None, **overrides: Unpack[Overrides[D]]
    ) -> Outcome[Any]: ...
    def run_sync(
        self, prompt: Content | Message, *, output: Any = None, **overrides: Unpack[Overrides[D]]
    ) -> Outcome[Any]:
        """Answer one prompt, and block until the run has ended. Inside an event loop use `await agent.run(…)`."""
        return run_on_background_loop(lambda: self.run(prompt, output=output, **overrides))

    @overload
    def stream(
        self, prompt: Content | Message, *, output: type[T] | Output[T], **overrides: Unpack[Overrides[D]]
    ) -> RunStream[T]: ...
    @overload
    def stream(
        self, prompt: Content | Message, *, output: Any = None, **overrides: Unpack[Overrides[D]]
    ) -> RunStream[Any]: ...
    def stream(
        self, prompt: Content | Message, *, output: Any = None, **overrides: Unpack[Overrides[D]]
    ) -> RunStream[Any]:
        """Answer one prompt in a new session, and yield each event as it happens."""
        return self._new_session().stream(prompt, output=output, **overrides)

    async def search(self, query: str, **narrowed: Unpack[SearchOptions]) -> list[Hit]:
        """Search the messages of all sessions in the agent's store; takes the options of `SearchableStore.search`."""
        return await require_search(self.store).search(query, **narrowed)

    def _new_session(self) -> Session[D]:
        """Return a new session without a given id; if the agent has no store, in a private memory store."""
        return (
            Session(self, new_id(), open_store("memory:"), may_wait=False) if self.has_default_store else self.session()
        )

    def as_tool(
        self,
        *,
        name: str = "",
        description: str = "",
        input: Any = None,  # noqa: A002 - the clearest name
        output: Any = None,
        durable: bool = False,
        max_depth: int = 5,
    ) -> Tool[..., Any]:
        """Return a tool that runs this agent on a task, and returns its answer as the result.

        Args:
            name: The tool's name; by default the agent's.
            description: The tool's description; by default the agent's.
            input: A type whose fields are the tool's parameters; without one there is a single text, `task`.
            output: A type that the answer has to match; the result is that value as JSON.
            durable: True if the conversation continues from call to call; otherwise each call begins a new one.
            max_depth: The maximum depth of agents that call each other, this one included.
        """
        from .subagents.as_tool import build_agent_tool  # at first use: most agents are no tools

        return build_agent_tool(
            self, name=name, description=description, input=input, output=output, durable=durable, max_depth=max_depth
        )
