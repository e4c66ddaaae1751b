"""A conversation that is kept, and the one place where a run is put together. Above: callers. Below: `core`.

Opening takes the lease and folds the log; what a crash left behind is repaired, and the repair is appended. One run
goes on at a time; a second one waits for its turn.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

import msgspec

from .core import check
from .core.call import finished
from .core.clock import new_id
from .core.effect import not_started, uncertain
from .core.error import ConfigError, SessionNotFound, UsageError
from .core.event import Entry, Event, MessageAdded, RunResumed, RunStarted, SessionOpened
from .core.fanout import Fanout, Subscription
from .core.fold import State, fold, repairs
from .core.loop import direct, ended, execute
from .core.message import (
    RESULT_TYPES,
    Content,
    Message,
    ResultPart,
    Status,
    Text,
    ToolCall,
    ToolResult,
    parts_of,
    storable,
)
from .core.model import Model, Settings, info_of
from .core.permission import Gate, Grant, Permissions
from .core.plain import clean, to_jsonable, to_text
from .core.run import CancelMode, Engine, Mailbox, Outcome, Run
from .core.stop import Limits
from .core.store import Lease, Log, Store, insisted, wait_through
from .core.tool import Tool
from .core.toolbox import Toolbox
from .models import open_model
from .stream import RunStream, coalesce, lagged, watcher_dropped

if TYPE_CHECKING:
    from .agent import Agent

logger = logging.getLogger("windlass")

DRAIN_SECONDS = 1.0
"""How long the end of a run waits for watchers to catch up."""

_RESUMED = "resumed"
"""Stands for the run that is being resumed, as long as its name is not known."""
_CALL = "call"
"""Marks a run that is only a call; its value is the name of the tool."""

_driving: ContextVar[frozenset[tuple[int, str]]] = ContextVar("windlass_driving", default=frozenset())
"""The sessions that the current task is a part of: a tool must not wait for its own session."""


class Overrides(TypedDict, total=False):
    """What may differ from the agent for one run."""

    model: Model | str
    instructions: str
    tools: Sequence[Tool[..., Any]]
    limits: Limits
    settings: Settings
    permission: Gate | None
    engine: Engine
    deps: Any


class Session:
    """One conversation. Cheap to make; nothing is opened before it is used."""

    def __init__(self, agent: "Agent[Any]", session_id: str, store: Store) -> None:
        self.agent = agent
        self.session_id = session_id
        self.store = store
        self.mailbox = Mailbox(agent.steering_mode, agent.follow_up_mode)
        """What waits to be told to the model. It may be filled before a run begins."""
        self._state = State()
        self._head = 0
        self._run: Run | None = None
        self._driver: asyncio.Task[Any] | None = None
        """The task that has the session now; others wait for their turn."""
        self._opening = ""
        """The run that has the session: it is being opened, or goes on."""
        self._unwanted: set[str] = set()
        """The runs that were cancelled while they waited."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turnstile: asyncio.Lock
        self._fanout: Fanout[Entry]

    # -- talking -------------------------------------------------------------------------------------------------------

    async def run(self, prompt: Content | Message, **overrides: Unpack[Overrides]) -> Outcome[Any]:
        """Answer a prompt, and return when the run has ended. Cancelling this call cancels the run."""
        _check(overrides)
        return await self._uncancelled(self._begin(_as_message(prompt), new_id(), overrides))

    def stream(
        self, prompt: Content | Message, *, backpressure: bool = False, **overrides: Unpack[Overrides]
    ) -> RunStream:
        """Answer a prompt, and tell each event as it happens.

        Leaving the iteration early does not cancel the run. With `backpressure` a slow reader slows the run;
        otherwise it gets fewer and larger deltas, and never misses anything that lasts without being told.
        """
        _check(overrides)
        message, run_id = _as_message(prompt), new_id()
        begin = partial(self._begin, message, run_id, overrides)
        return RunStream(self, run_id, begin, partial(self._stop, run_id), backpressure=backpressure)

    async def resume(self, **overrides: Unpack[Overrides]) -> Outcome[Any]:
        """Go on with a run that was cut off: by a crash, a kill, a power cut.

        Calls that had finished keep their results. Calls that had been started are settled by their `effect`; those
        that had not are made now.
        """
        _check(overrides)
        return await self._uncancelled(self._resume(overrides))

    async def call(self, tool: str, arguments: dict[str, Any], **overrides: Unpack[Overrides]) -> ToolResult:
        """Call a tool without a model: gated and logged like any other call."""
        _check(overrides)
        check.text("session.call", "tool", tool)
        if not isinstance(arguments, dict):
            check.refuse("session.call", "arguments", arguments, "give a dict")
        call, run_id = ToolCall(new_id(), tool, to_text(arguments)), new_id()
        started = RunStarted(self.agent.name, {_CALL: tool}, run_id=run_id)
        outcome = await self._uncancelled(self._perform(run_id, {**overrides, "engine": direct(call)}, (started,)))
        result: ToolResult | None = outcome.output
        if result is None or result.call_id != call.call_id:
            raise outcome.error or UsageError(f"the call of {tool!r} was cancelled before it began")
        return result

    async def steer(self, content: Content | Message) -> None:
        """Tell the model something between two turns; without a run, at the beginning of the next one."""
        self.mailbox.steering.append(_as_message(content, "steering"))

    async def follow_up(self, content: Content | Message) -> None:
        """Tell the model something when the run would otherwise end."""
        self.mailbox.follow_ups.append(_as_message(content, "follow_up"))

    async def cancel(self, mode: CancelMode = "now") -> bool:
        """Stop the run that is going: now, after the calls that run, or after the turn. Says whether there was one."""
        _check_mode(mode)
        return bool(self._opening) and self._stop(self._opening, mode)

    def _stop(self, run_id: str, mode: CancelMode) -> bool:
        """Stop one run. When it still waits for its turn, it will be over as soon as it begins."""
        _check_mode(mode)
        if self._run is not None and self._opening == run_id:
            self._run.cancel(mode)
        else:
            self._unwanted.add(run_id)
        return True

    # -- looking -------------------------------------------------------------------------------------------------------

    async def messages(self) -> Sequence[Message]:
        """The conversation as it is kept."""
        return fold(await self.store.read(self.session_id)).messages

    async def watch(self, *, after: int = 0) -> AsyncIterator[Entry]:
        """Every entry of the log after that number, then everything that happens from now on."""
        subscription = self.subscribe()
        try:
            for entry in await self.store.read(self.session_id, after=after):
                after = entry.seq
                yield entry
            async for entry in subscription:
                if entry.seq == 0 or entry.seq > after:
                    yield entry
        finally:
            subscription.close()

    def subscribe(self, *, backpressure: bool = False) -> Subscription[Entry]:
        """Everything that happens from now on, as entries. Close it when done."""
        self._settle_in()
        return self._fanout.subscribe(backpressure=backpressure)

    async def aclose(self) -> None:
        """Let watchers finish. The session itself stays where it is kept."""
        if self._loop is asyncio.get_running_loop():
            await self._fanout.aclose(DRAIN_SECONDS)
            self._loop = None

    # -- one run -------------------------------------------------------------------------------------------------------

    async def _begin(self, message: Message, run_id: str, overrides: Overrides) -> Outcome[Any]:
        started = RunStarted(self.agent.name, _recorded(overrides), run_id=run_id)
        return await self._perform(run_id, overrides, (started, MessageAdded(message, run_id=run_id)))

    async def _resume(self, overrides: Overrides) -> Outcome[Any]:
        return await self._perform("", overrides, None)

    async def _perform(self, run_id: str, overrides: Overrides, opening: Sequence[Event] | None) -> Outcome[Any]:
        """Open the session, store how the run begins, drive it to its end, and let go."""
        key = (id(self.store), self.session_id)
        if key in _driving.get():
            message = f"a tool of session {self.session_id!r} cannot run its own session: it would wait for itself"
            raise UsageError(message)
        self._settle_in()
        async with self._turnstile:
            token = _driving.set(_driving.get() | {key})
            self._driver = asyncio.current_task()
            self._opening = run_id or _RESUMED
            try:
                return await self._hold(run_id, overrides, opening)
            finally:
                _driving.reset(token)
                self._run = None
                self._unwanted.discard(self._opening)
                self._opening = ""

    async def _hold(self, run_id: str, overrides: Overrides, opening: Sequence[Event] | None) -> Outcome[Any]:
        """Drive the run while the session is ours."""
        lease = await self.store.acquire(self.session_id)
        try:
            return await self._watched(self._drive(run_id, overrides, opening, lease))
        except BaseException:
            self._state, self._head = State(), 0  # it may differ from what is stored: that is read again
            raise
        finally:
            await insisted(lambda: self.store.release(lease))

    async def _drive(
        self, run_id: str, overrides: Overrides, opening: Sequence[Event] | None, lease: Lease
    ) -> Outcome[Any]:
        await self._catch_up()
        if opening is None:
            before = self._interrupted_run()
            run_id, overrides = before.run_id, {**_restored(before.options, overrides), **overrides}
            opening = (RunResumed(run_id=run_id),)
        else:
            opening = (*repairs(self._state), *opening)
        self._run = run = self._build(run_id, overrides, lease)
        run.show(SessionOpened(self.session_id, self._head, run_id=run_id))
        await run.emit(*opening, sync=True)
        if self._opening in self._unwanted:
            run.cancel("now")
        logger.info("run %s of session %s begins", run_id, self.session_id, extra=run.names)
        outcome = await self._finish(run, overrides.get("engine", self.agent.engine))
        ending = (outcome.status, outcome.reason)
        logger.info("run %s of session %s: %s %s", run_id, self.session_id, *ending, extra=run.names)
        self._head = run.log.head
        return outcome

    async def _watched(self, work: Coroutine[Any, Any, Outcome[Any]]) -> Outcome[Any]:
        """Show a run to the agent's watchers, and let them catch up before it is over."""
        removers = [self._fanout.add(watcher) for watcher in self.agent.watchers]
        try:
            return await work
        finally:
            await insisted(lambda: self._fanout.drain(DRAIN_SECONDS))
            for remove in removers:
                remove()

    async def _finish(self, run: Run, engine: Engine) -> Outcome[Any]:
        """Drive the run in a task of its own, which can be cancelled, and left behind if it does not even end then."""
        task = asyncio.ensure_future(execute(run, engine))
        cancelled = False
        while not task.done() and not run.left_behind.done():
            try:
                await asyncio.wait((task, run.left_behind), return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:  # the event loop is being closed: there is still time to end in good order
                cancelled = True
                run.interrupt("cancelled")
        task.add_done_callback(_look_at)  # also when it is left behind, and ends later
        outcome = task.result() if task.done() else await _wind_up(run)
        if cancelled:
            raise asyncio.CancelledError
        return outcome

    async def _catch_up(self) -> None:
        """Take into account what has come into the log since we last looked."""
        for entry in await self.store.read(self.session_id, after=self._head):
            self._state.apply(entry.event)
            self._head = entry.seq

    def _interrupted_run(self) -> RunStarted:
        before = self._state.run
        if before is None:
            message = f"there is no session {self.session_id!r} to resume: use run() to begin it"
            raise SessionNotFound(message)
        if not self._state.interrupted:
            status = self._state.ended.status if self._state.ended else ""
            message = f"session {self.session_id!r} has nothing to resume: its last run ended with status {status!r}"
            raise UsageError(message)
        if _CALL in before.options:
            message = f"session {self.session_id!r} has nothing to resume: it was calling a tool; run() settles that"
            raise UsageError(message)
        return before

    def _build(self, run_id: str, overrides: Overrides, lease: Lease) -> Run:
        """Everything that a run needs, stacked in this one place."""
        agent = self.agent
        model = open_model(overrides["model"]) if "model" in overrides else agent.model
        limits = overrides.get("limits", agent.limits)
        if limits.max_cost_usd is not None and info_of(model).price is None:
            raise ConfigError(f"max_cost_usd needs a model whose price is known, and {info_of(model).name!r} has none")
        toolbox = Toolbox(overrides["tools"]) if "tools" in overrides else agent.toolbox
        return Run(
            session_id=self.session_id,
            run_id=run_id,
            agent_name=agent.name,
            model=model,
            log=Log(self.store, lease, self._head, agent.clock),
            state=self._state,
            fanout=self._fanout,
            clock=agent.clock,
            toolbox=toolbox,
            mailbox=self.mailbox,
            instructions=_instructions(overrides.get("instructions", agent.instructions), toolbox),
            settings=overrides.get("settings", agent.settings),
            limits=limits,
            gate=self._gate(overrides.get("permission", agent.permission)),
            stop=agent.stop,
            guardrails=[start() for start in agent.guardrails],
            accept=agent.accept,
            shape=agent.shape,
            deps=overrides.get("deps", agent.deps),
        )

    def _gate(self, gate: Gate | None) -> Gate | None:
        """The gate, knowing what was decided earlier in this session."""
        if isinstance(gate, Permissions):
            for each in self._state.remembered:
                gate.grants.restore(Grant.of_decision(each, self.session_id))
        return gate

    def _settle_in(self) -> None:
        """Belong to the running event loop. A session outlives a loop: `run_sync`, or `asyncio.run` twice."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            self._turnstile = asyncio.Lock()
            self._fanout = Fanout(coalesce=coalesce, lagged=lagged, on_dropped=self._report_dropped)

    def _report_dropped(self, name: str, error: BaseException) -> None:
        self._fanout.publish(Entry(0, self.agent.clock.now(), watcher_dropped(name, error)))

    async def _uncancelled(self, work: Awaitable[Outcome[Any]]) -> Outcome[Any]:
        """Wait for a run. A cancel of the waiting becomes a cancel of the run, which ends in good order first."""
        task = asyncio.ensure_future(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._run is not None and self._driver is task:
                self._run.cancel("now")
            else:
                task.cancel()
            await wait_through((task,))
            _look_at(task)
            raise

    def __repr__(self) -> str:
        return f"Session({self.session_id!r})"


def _look_at(task: "asyncio.Future[Any]") -> None:
    """Take note of how a task ended, so that asyncio does not complain that nobody has."""
    if not task.cancelled():
        task.exception()


def _instructions(text: str, toolbox: Toolbox) -> str:
    """What the model is told first: the agent's own words, then what its tools have to say about their use."""
    return clean("\n\n".join([part for part in (text, *[each.prompt for each in toolbox]) if part]))


async def _wind_up(run: Run) -> Outcome[Any]:
    """End a run whose task does not: its log is taken from it, and every open call says so."""
    begun = [ToolCall(start.call_id, start.name) for start in run.state.started.values()]
    waiting = [call for call in run.state.unsettled if call.call_id not in run.state.started]
    text = "The run was cancelled, and this did not stop; it may still be running."
    results = [uncertain(call, Status.CANCELLED, text) for call in begun]
    results += [not_started(call) for call in waiting]
    await run.take_over([finished(run, each) for each in results])
    run.output = run.state.latest if _CALL in (run.state.run or RunStarted()).options else None
    outcome = run.interruption()
    await run.take_over([ended(run, outcome)])
    return outcome


def _as_message(content: Content | Message, origin: str = "") -> Message:
    """What callers pass, as a message that can be kept and sent."""
    given = content if isinstance(content, Message) else Message("user", parts_of(content))
    if given.role != "user":
        message = f"a message with role {given.role!r} cannot be sent to an agent: only 'user' messages can"
        raise ConfigError(message)
    parts = [storable(part) if isinstance(part, RESULT_TYPES) else None for part in given.parts]
    if not parts or None in parts:
        message = f"{content!r} cannot be sent to an agent: give text, a part such as Image(…), or a list of them"
        raise ConfigError(message)
    if all(isinstance(part, Text) and not part.text.strip() for part in parts):
        message = "the prompt is empty: say something"
        raise ConfigError(message)
    beside = _beside(given, origin) if given is content else Message("user", origin=origin)
    return msgspec.structs.replace(beside, parts=tuple(cast("list[ResultPart]", parts)))


def _beside(given: Message, origin: str) -> Message:
    """What a message has besides its parts, checked: it comes into the log, and has to be read again."""
    try:
        metadata = to_jsonable(given.metadata)
        rest = msgspec.to_builtins(msgspec.structs.replace(given, parts=(), metadata=metadata))
        return msgspec.convert({**rest, "origin": rest.get("origin") or origin}, Message)
    except (msgspec.ValidationError, TypeError) as error:
        raise ConfigError(f"{given!r} is no proper message ({error}): use windlass.user(…) to make one") from error


def _check_mode(mode: CancelMode) -> None:
    if mode not in {"now", "after_tools", "after_turn"}:
        message = f"cancel mode {mode!r} is not known: use 'now', 'after_tools' or 'after_turn'"
        raise ConfigError(message)


def _check(overrides: Overrides) -> None:
    """Say which override cannot work, before anything is stored."""
    for name, value in overrides.items():
        if name not in Overrides.__annotations__:
            known = ", ".join(Overrides.__annotations__)
            raise ConfigError(f"a run does not take {name!r}: what may differ from the agent is {known}")
        kind = _KINDS.get(name)
        if kind is not None and not isinstance(value, kind):
            raise ConfigError(f"{name}={value!r} cannot be used for a run: give a {kind.__name__}")
        if (name == "engine" or (name == "permission" and value is not None)) and not callable(value):
            raise ConfigError(f"{name}={value!r} cannot be used for a run: give a function")


_CODE = "code"
"""The option that names the overrides which are code."""

_KINDS: Mapping[str, type] = {"instructions": str, "limits": Limits, "settings": Settings}


def _recorded(overrides: Overrides) -> dict[str, Any]:
    """What `resume` has to know of the overrides; whatever is code has to be given again."""
    names = ("instructions", "limits", "settings", "model")
    given = {name: value for name, value in overrides.items() if name in names}
    if not isinstance(given.get("model"), str):
        given.pop("model", None)
    kept: dict[str, Any] = msgspec.to_builtins(given)
    code = sorted(set(overrides) - set(given))
    return {**kept, _CODE: code} if code else kept


def _restored(options: Mapping[str, Any], again: Overrides) -> Overrides:
    missing = [name for name in options.get(_CODE, ()) if name not in again]
    if missing:
        given = ", ".join(f"{name}=…" for name in missing)
        raise UsageError(f"this run was begun with code of its own, which no log can keep: use resume({given})")
    return cast("Overrides", msgspec.convert(options, _Kept))


class _Kept(TypedDict, total=False):
    """The overrides that are data."""

    instructions: str
    limits: Limits
    settings: Settings
    model: str
