"""The `Agent` class: the options of an agent, and the ways to run it.

Building an agent costs microseconds and opens no connection or file. `run` makes a new session for one prompt;
`session` opens one that is stored. What carries out runs is imported when the first session is made.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Generic, Unpack, overload

from perdure._core.log.store import Hit, SearchOptions, Store
from perdure._core.run.outcome import Outcome
from perdure._core.tools.context import D
from perdure._core.tools.tool import Tool
from perdure._core.values.clock import new_id
from perdure._core.values.error import ConfigError
from perdure._stores import open_store

from .spec import AgentSpec

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from typing_extensions import TypeForm

    from perdure._runtime.session.session import Session
    from perdure._runtime.session.stream import RunStream

    from .output import Output, T
    from .overrides import ChooseOverrides, Overrides, Prompt


class Agent(AgentSpec[D], Generic[D], kw_only=True, eq=False):
    """An agent: a model with its tools, instructions and rules. Immutable; `replace` makes a changed copy."""

    def session(self, session_id: str | None = None, *, store: Store | str | None = None, role: str = "") -> Session[D]:
        """Return the session with that id, stored or new; without an id, a new one.

        Nothing is opened or stored before the session is used. Asked for again, it is the same session: runs of all its
        objects wait for their turn, and watchers of each see all of them. `role` is the role of its runs, unless a run
        asks for another.

        A session whose id has line breaks or other control characters can be opened if it exists, but not begun: that
        raises `ConfigError`.
        """
        if session_id is not None and (not isinstance(session_id, str) or not session_id.strip()):
            raise ConfigError(f"a session cannot be called {session_id!r}: give a name, or None for a new one")
        from perdure._runtime.session.session import Session

        from .active import check_role  # at first use, as below: for a quick start

        check_role(self, role)
        return Session(self, session_id or new_id(), self.store if store is None else open_store(store), role)

    @overload
    async def run(
        self, prompt: Prompt, *, output: Output[T] | Mapping[str, Any] | None = None, **overrides: Unpack[Overrides[D]]
    ) -> Outcome[T]: ...
    @overload
    async def run(self, prompt: Prompt, *, output: TypeForm[T], **overrides: Unpack[Overrides[D]]) -> Outcome[T]: ...
    async def run(self, prompt: Prompt, *, output: Any = None, **overrides: Unpack[Overrides[D]]) -> Outcome[Any]:
        """Answer one prompt in a new session, and return the outcome. Without a store, the session is not kept."""
        session = self._new_session()
        try:
            return await session.run(prompt, output=output, **overrides)
        finally:
            await session.aclose()

    @overload
    def run_sync(
        self, prompt: Prompt, *, output: Output[T] | Mapping[str, Any] | None = None, **overrides: Unpack[Overrides[D]]
    ) -> Outcome[T]: ...
    @overload
    def run_sync(self, prompt: Prompt, *, output: TypeForm[T], **overrides: Unpack[Overrides[D]]) -> Outcome[T]: ...
    def run_sync(self, prompt: Prompt, *, output: Any = None, **overrides: Unpack[Overrides[D]]) -> Outcome[Any]:
        """Answer one prompt, and block until the run has ended. Inside an event loop use `await agent.run(…)`."""
        from .sync_loop import run_on_background_loop

        return run_on_background_loop(lambda: self.run(prompt, output=output, **overrides))

    @overload
    def stream(
        self, prompt: Prompt, *, output: Output[T] | Mapping[str, Any] | None = None, **overrides: Unpack[Overrides[D]]
    ) -> RunStream[T]: ...
    @overload
    def stream(self, prompt: Prompt, *, output: TypeForm[T], **overrides: Unpack[Overrides[D]]) -> RunStream[T]: ...
    def stream(self, prompt: Prompt, *, output: Any = None, **overrides: Unpack[Overrides[D]]) -> RunStream[Any]:
        """Answer one prompt in a new session, and yield each event as it happens."""
        return self._new_session().stream(prompt, output=output, **overrides)

    async def search(self, query: str, **narrowed: Unpack[SearchOptions]) -> list[Hit]:
        """Search the messages of all sessions in the agent's store; takes the options of `SearchableStore.search`."""
        from perdure._runtime.session.stored import require_searchable_store

        return await require_searchable_store(self.store).search(query, **narrowed)

    async def attend_all(
        self,
        *,
        store: Store | str | None = None,
        prefix: str = "",
        most_at_once: int = 8,
        seconds: float = 1.0,
        overrides_for: ChooseOverrides[D] | None = None,
        **overrides: Unpack[Overrides[D]],
    ) -> AsyncGenerator[Outcome[Any]]:
        """Continue the sessions of the store that have a reason to (an answer, a message, a crash), and yield each
        outcome.

        Reasons are those of `Session.attend`: a run that a crash interrupted, an answer, an expired question, a cancel,
        a follow-up, an inbox item with `wake=True`. Sessions that a living process drives are left to it, and parked
        runs are left alone. Each session gets its turn. One that cannot be continued yields a `failed` outcome with
        the error, and is tried again later, after twice as long each time. Stopping the iteration cancels the runs in
        progress. The iteration of an agent that a `Shutdown` has wrapped ends with the process: no more sessions are
        taken up, and the runs in progress are left for the next process.

        Args:
            store: The store to serve; by default the agent's.
            prefix: Serve only sessions whose id begins with this.
            most_at_once: The number of sessions that are continued at the same time.
            seconds: The interval at which the store is asked for sessions.
            overrides_for: A function, plain or async, that is called with the id of a session and returns options for
                its runs, such as `{"deps": …}` of its customer. They take precedence over `overrides`.
            overrides: Options of the runs, as for `Session.wake`: code that they were begun with is passed again. All
                sessions get the same.
        """
        from perdure._core.run.spec import find_shutdown_signal
        from perdure._runtime.resume.worker import ResumeWorker  # at first use: most programs are no workers

        from .overrides import add_output, check_overrides

        check_overrides(add_output(overrides, None))  # at once, and not when there is a session to continue

        served = self.store if store is None else open_store(store)
        from perdure._runtime.resume.resumer import SessionResumer  # at first use: for a quick start

        sessions = SessionResumer(self, served, overrides, overrides_for)
        worker = ResumeWorker(
            served,
            sessions.attend,
            self.clock,
            prefix=prefix,
            most_at_once=most_at_once,
            seconds=seconds,
            process_end=find_shutdown_signal(self.engine),
        )
        async with aclosing(worker.run()) as outcomes:
            async for outcome in outcomes:
                yield outcome

    def _new_session(self) -> Session[D]:
        """Return a new session without a given id; if the agent has no store, in a private memory store."""
        if not self.has_default_store:
            return self.session()
        from perdure._runtime.session.session import Session

        return Session(self, new_id(), open_store("memory:"), may_wait=False)

    def as_tool(
        self,
        *,
        name: str = "",
        description: str = "",
        input: Any = None,  # noqa: A002 - the clearest name
        output: Any = None,
        durable: bool = False,
        max_depth: int = 5,
        narrow_permission: bool = True,
    ) -> Tool[..., Any]:
        """Return a tool that runs this agent on a task, and returns its answer as the result.

        Args:
            name: The tool's name; by default the agent's.
            description: The tool's description; by default the agent's.
            input: A type whose fields are the tool's parameters, and whose value, as JSON, is the agent's prompt;
                without one there is a single text, `task`.
            output: A type that the answer has to match; the result is that value as JSON.
            durable: True if the conversation continues from call to call; otherwise each call begins a new one.
            max_depth: The maximum depth of agents that call each other, this one included.
            narrow_permission: False if this agent's own `permission` decides alone; otherwise its calls need the
                consent of that of the calling agent, too.
        """
        from perdure._runtime.subagents.tool import build_agent_tool  # at first use: most agents are no tools

        return build_agent_tool(
            self,
            name=name,
            description=description,
            input=input,
            output=output,
            durable=durable,
            max_depth=max_depth,
            narrow_permission=narrow_permission,
        )
