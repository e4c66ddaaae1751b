"""One run: everything that the loop and an engine need, in one place. Above: `loop.py`, engines. Below: the rest.

A `Run` is put together by the session, lives as long as one run, and is the face that authors of engines see. The
loop reads from it and tells it what happened; when a run ends is decided by the functions that it was given.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import msgspec

from .cache import PrefixWatch, changed
from .clock import Clock, Timer
from .error import ContextOverflow, Fenced, OutOfBudget, PerdureError
from .event import (
    CancelRequested,
    Entry,
    ErrorRaised,
    Event,
    ModelEvent,
    ModelRequested,
    QuestionAsked,
    TextDelta,
    ToolProgress,
    ViewChanged,
)
from .fanout import Fanout
from .fold import State
from .inbox import reminder
from .ledger import Ledger
from .mailbox import Mailbox
from .message import Message
from .model import Model, OutputSpec, Request, Settings, ToolSpec, info_of
from .outcome import Outcome, OutcomeStatus
from .permission import Gate
from .plain import to_jsonable, words_of
from .reminding import reminded
from .seam import Accept, Accepted, Again, CancelMode, CompactNow, Engine, Reminder, Shape, Upkeep
from .secrecy import Secrecy
from .stop import Guardrail, Limits, StopCondition
from .store import Log
from .tool import Tool
from .toolbox import Toolbox
from .view import View

__all__ = [
    "Accept",
    "Accepted",
    "Again",
    "CancelMode",
    "CompactNow",
    "Engine",
    "Forgotten",
    "Reminder",
    "Run",
    "Shape",
    "Upkeep",
    "logger",
]

logger = logging.getLogger("perdure")

PATIENCE_SECONDS = 5.0
"""How long a cancelled run may take to end before it is left behind."""

_NO_SETTINGS = Settings()
_NO_LIMITS = Limits()


_OF_THE_AGENT = (
    *("_discreet", "_model", "_settings", "accept", "agent_name", "compaction", "deps", "gate", "guardrails", "info"),
    *("instructions", "interactive", "ledgers", "limits", "output_spec", "patience_seconds", "reminders", "settings"),
    *("shape", "stop", "toolbox", "upkeep", "wrap_tool"),
)
"""What a run has from its agent: the rest belongs to the session, or to what has happened in it."""

_adding = threading.Lock()
"""Tools on several threads may add tools at the same time."""


class Forgotten(BaseException):
    """Thrown into a loop to see whether another one can go on from the log (`PERDURE_ALWAYS_RESUME`, for tests)."""


class Run:
    """One run of an agent. What it can do is in its fields, what has happened is in `state`."""

    __slots__ = (
        "_discreet",
        "_loop",
        "_model",
        "_prefix",
        "_settings",
        "_thread",
        "_tool_changes",
        "accept",
        "agent_name",
        "cancelling",
        "children",
        "clock",
        "closing",
        "compaction",
        "deps",
        "fanout",
        "forgettable",
        "gate",
        "guardrails",
        "info",
        "instructions",
        "interactive",
        "interrupted_by",
        "is_over",
        "ledgers",
        "left_behind",
        "limits",
        "log",
        "mailbox",
        "may_wait",
        "output",
        "output_spec",
        "parent",
        "partial",
        "path",
        "patience_seconds",
        "prefixes",
        "reminders",
        "run_id",
        "scratch",
        "secrecy",
        "session_id",
        "settings",
        "shape",
        "state",
        "stop",
        "task",
        "toolbox",
        "unlogged",
        "upkeep",
        "wrap_tool",
    )

    def __init__(  # noqa: PLR0915 - a line for each thing that it holds
        self,
        *,
        session_id: str,
        run_id: str,
        model: Model,
        log: Log,
        state: State,
        fanout: Fanout[Entry],
        clock: Clock,
        toolbox: Toolbox,
        mailbox: Mailbox,
        agent_name: str = "",
        instructions: str = "",
        settings: Settings = _NO_SETTINGS,
        limits: Limits = _NO_LIMITS,
        gate: Gate | None = None,
        stop: StopCondition | None = None,
        guardrails: Sequence[Guardrail] = (),
        accept: Sequence[Accept] = (),
        shape: Shape | None = None,
        output_spec: OutputSpec | None = None,
        prefixes: PrefixWatch | None = None,
        deps: Any = None,
        patience_seconds: float = 0.0,
        may_wait: bool = True,
        interactive: bool = True,
        upkeep: Sequence[Upkeep] = (),
        reminders: Sequence[Reminder] = (),
        compaction: CompactNow | None = None,
        secrecy: Secrecy | None = None,
        wrap_tool: Callable[[Tool[..., Any]], Tool[..., Any]] | None = None,
        parent: "Run | None" = None,
        ledgers: Sequence[Ledger] = (),
    ) -> None:
        self.session_id = session_id
        self.run_id = run_id
        self.path = state.path
        self.parent = parent
        """The run whose call this one carries out, if there is one."""
        self.children: list[Run] = []
        """The runs that carry out calls of this one now."""
        self.ledgers = ledgers
        """The budgets that it shares, and its children with it."""
        self.unlogged: set[str] = set()
        """The calls that go on without an intent: their tools ask first."""
        self.agent_name = agent_name
        self._model = model
        self._discreet: Model | None = None
        """The same model, once there are secrets that it must not be told."""
        self.info = info_of(model)
        self.log = log
        self.state = state
        self.fanout = fanout
        self.clock = clock
        self.toolbox = toolbox if limits.allowed_tools is None else toolbox.only(limits.allowed_tools)
        self.mailbox = mailbox
        self.instructions = instructions
        self.settings = settings
        self.limits = limits
        self.gate = gate
        self.stop = stop
        self.guardrails = guardrails
        self.accept = accept
        self.shape = shape
        self.output_spec = output_spec
        """What the words of the model have to be, when its provider can hold it to that."""
        self.prefixes = prefixes or PrefixWatch()
        """Sees whether each request begins with the one before it."""
        self.prefixes.begin()
        self.deps = deps
        self.patience_seconds = patience_seconds
        """How long it waits for an answer that nobody here can give, before it ends as `waiting`."""
        self.may_wait = may_wait
        """Whether it may end as `waiting`, because it can be resumed."""
        self.interactive = interactive
        """Whether anybody can be asked at all."""
        self.upkeep = upkeep
        self.reminders = reminders
        self.compaction = compaction
        self.secrecy = secrecy or Secrecy()
        """Takes secrets out of all that is stored and shown. It belongs to the whole family of runs."""
        self.wrap_tool = wrap_tool
        """Put around tools that come while it runs."""
        self.scratch: dict[str, Any] = {}
        self.partial: Message | None = None
        """What had come of a reply that was cut off."""
        self.forgettable = False
        """Whether to throw the loop away after each append (`PERDURE_ALWAYS_RESUME`, for tests)."""
        self.closing: list[Event] = []
        """What is stored together with the end of the run."""
        self.output: Any = None
        """What the run was asked to make, once it is there."""
        self.cancelling: CancelMode | None = None
        """How the run was asked to stop, if it was."""
        self.task: asyncio.Task[Any] | None = None
        """The task in which the loop runs; cancelling the run is cancelling it."""
        self.interrupted_by = ""
        """Why it was told to end now, if it was: `cancelled` or `timeout`."""
        self._loop = asyncio.get_running_loop()
        self.left_behind: asyncio.Future[None] = self._loop.create_future()
        """Done when the run was cancelled, did not end, and is not waited for any longer."""
        self.is_over = False
        """Whether nothing can be added by it any more, because it was left behind."""
        self._thread = threading.get_ident()
        self._settings: dict[str, Any] = msgspec.to_builtins(settings)
        self._prefix: tuple[str, Sequence[ToolSpec], str] = ("", (), "")
        self._tool_changes: list[Tool[..., Any]] = []

    @property
    def model(self) -> Model:
        """Who answers. Secrets are taken out of what it is told, and out of what it says, once the family has any."""
        redactor = self.secrecy.redactor
        if redactor is None:
            return self._model
        if self._discreet is None:
            self._discreet = redactor.model(self._model)
        return self._discreet

    # -- what has happened ---------------------------------------------------------------------------------------------

    @property
    def messages(self) -> View:
        """The transcript so far."""
        return self.state.messages

    @property
    def cost_usd(self) -> float | None:
        """What the run has cost; `None` when the price is not known."""
        price = self.info.price
        below = [child.cost_usd for child in self.children if child.state.ended is None]  # the others are counted
        if price is None or None in below:
            return None
        own = price.cost_usd(self.state.own_usage)
        return own + self.state.children_usd + sum([each or 0.0 for each in below])

    async def emit(self, *events: Event, sync: bool = False, names: Sequence[str] = ()) -> None:
        """Store events, then show them. With `sync`, they survive the loss of power before this returns.

        The first of them get the ids in `names`, which takes the posts of these ids. A cancel that arrives meanwhile
        is raised only when they are stored and shown.
        """
        cancelled = False
        if self.is_over:
            raise Fenced(f"run {self.run_id} did not end when it had to: nothing more can be added by it")
        if (redactor := self.secrecy.redactor) is not None:
            events = tuple(map(redactor.event, events))
        entries = self.log.append_now(events, sync=sync, names=names)
        if entries is None:
            cancelled = await self.log.append(events, sync=sync, stored=self._take_in, names=names)
        else:
            self._take_in(entries)
        if self.fanout.watched and self.fanout.congested:
            await self.fanout.room()
        if cancelled:
            raise asyncio.CancelledError
        if self.forgettable and not self.interrupted and self._is_in_the_log():
            raise Forgotten

    def _is_in_the_log(self) -> bool:
        """Whether the log alone says how to go on: no effect and no request is under way, and the run is not over."""
        state = self.state
        return state.interrupted and not (state.started or state.attempts or state.waiting or self.unlogged)

    async def take_over(self, events: Sequence[Event]) -> None:
        """Store events in the place of a loop that does not end; it cannot store anything any more."""
        log = await self.log.taken_over()
        await log.append(events, sync=True, stored=self._take_in)
        self.log.head = log.head

    def _take_in(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self.state.apply(entry.event)
        if self.fanout.watched:
            for entry in entries:
                self.fanout.publish(entry)

    def show(self, event: Event) -> None:
        """Show a passing event to whoever watches."""
        if self.fanout.watched:
            self.fanout.publish(Entry(0, self.clock.now(), self.secrecy.event(event)))

    def relay(self, event: ModelEvent) -> None:
        """Show something that the model said, as an event of this run."""
        if type(event) is TextDelta:
            shown: Event = TextDelta(event.text, run_id=self.run_id, path=self.path)
        else:
            shown = self.stamped(event)
        self.fanout.publish(Entry(0, self.clock.now(), self.secrecy.event(shown)))

    def stamped(self, event: Event) -> Event:
        """The event as one of this run."""
        return msgspec.structs.replace(event, run_id=self.run_id, path=self.path)

    def progress(self, call_id: str, name: str, data: Any) -> None:
        """Show how far a tool is. May be called from any thread."""
        event = ToolProgress(call_id, name, to_jsonable(data), run_id=self.run_id, path=self.path)
        if threading.get_ident() == self._thread:
            self.show(event)
        else:
            self._loop.call_soon_threadsafe(self.show, event)

    def report(self, error: BaseException, where: str) -> None:
        """Show an error that does not end the run, and log it."""
        error = self.secrecy.error(error)
        kind, text = type(error).__name__, words_of(error)
        logger.warning(
            "%s failed in run %s of session %s: %s: %s",
            where,
            self.run_id,
            self.session_id,
            kind,
            text,
            exc_info=error,
            extra=self.names,
        )
        self.show(ErrorRaised(kind, text, where, run_id=self.run_id, path=self.path))

    @property
    def names(self) -> dict[str, str]:
        """What a record of the log carries, so that it can be found by session and by run."""
        return {"session_id": self.session_id, "run_id": self.run_id}

    # -- what comes next -----------------------------------------------------------------------------------------------

    def request(self, messages: Sequence[Message]) -> Request:
        """What the model is asked now."""
        if self.state.inbox and (waiting := reminder(self.state.inbox.values())) is not None:
            messages = [*messages, waiting]
        if self.reminders:
            messages = [*messages, *reminded(self)]
        return Request(
            messages=messages,
            instructions=self.instructions,
            tools=self.toolbox.specs,
            settings=self.settings,
            output=self.output_spec,
            session_id=self.session_id,
        )

    def requested(self, request: Request) -> tuple[*tuple[Event, ...], ModelRequested]:
        """The record of a request, made before it is sent; in front of it, whether it begins differently."""
        state, info = self.state, self.info
        turn = state.turns if state.attempts else state.turns + 1
        requested = ModelRequested(
            turn,
            state.attempts + 1,
            info.name,
            info.provider,
            self._settings,
            self._prefix_hash(request),
            len(request.messages),
            run_id=self.run_id,
            path=self.path,
        )
        segment, before = self.prefixes.look(request, info, turn), state.requested
        if before is None or state.view_changed or not (cause := changed(before, requested, segment)):
            return (requested,)
        return ViewChanged(cause, run_id=self.run_id, path=self.path), requested

    def _prefix_hash(self, request: Request) -> str:
        """Hashed again only when it is not the very same instructions and tools as before."""
        instructions, tools, known = self._prefix
        if instructions is request.instructions and tools is request.tools and known:
            return known
        import hashlib  # at first use: it loads OpenSSL's

        halves = (request.instructions, request.tools)
        known = "-".join([hashlib.sha256(msgspec.json.encode(each)).hexdigest()[:16] for each in halves])
        self._prefix = (request.instructions, request.tools, known)
        return known

    def idempotency_key(self, call_id: str) -> str:
        """The same for every attempt at a call, also after a crash."""
        return f"{self.session_id}/{self.run_id}/{call_id}"

    def add_tools(self, tools: Iterable[Tool[..., Any]]) -> None:
        """Offer more tools from the next turn on, unless the limits keep them out. May be called from any thread."""
        allowed = self.limits.allowed_tools
        wrap = self.wrap_tool
        added = [each if wrap is None else wrap(each) for each in tools if allowed is None or each.name in allowed]
        with _adding:
            self.toolbox = self.toolbox.plus(added)
            self._tool_changes.extend(added)

    def become(self, other: "Run") -> None:
        """Speak as another agent from the next turn on: with its model, its words and its tools, under its rules."""
        for name in _OF_THE_AGENT:
            setattr(self, name, getattr(other, name))

    async def compact(self, cause: str, error: ContextOverflow | None = None) -> bool:
        """Have the conversation so far summed up for the model. Says whether what is sent is shorter now."""
        return self.compaction is not None and await self.compaction(self, cause, error=error)

    def take_tool_changes(self) -> tuple[str, ...]:
        """The names of the tools that came since this was last asked."""
        if not self._tool_changes:
            return ()
        changes, self._tool_changes = self._tool_changes, []
        return tuple([each.name for each in changes])

    # -- how it ends ---------------------------------------------------------------------------------------------------

    def exhausted(self) -> str:
        """The limit that keeps the model from being asked again, or nothing. Those of its parents hold for it too."""
        limits, state = self.limits, self.state
        if limits.max_turns is not None and state.turns >= limits.max_turns and not state.attempts:
            return "max_turns"
        # The last: the model asked for more calls than it may make; with those it had, it could still answer.
        return self.overspent() or state.limit

    def overspent(self) -> str:
        """The limit on tokens or money that it has reached, together with its children, or one above it has."""
        limits = self.limits
        if limits.token_budget is not None and self.state.usage.total_tokens >= limits.token_budget:
            return "token_budget"
        if limits.max_cost_usd is not None and (self.cost_usd or 0.0) >= limits.max_cost_usd:
            return "max_cost"
        return "" if self.parent is None else self.parent.overspent()

    def start_timer(self) -> Timer | None:
        """Begin to count the time that this run may take."""
        seconds = self.limits.timeout_seconds
        return None if seconds is None else self.clock.call_later(seconds, lambda: self.interrupt("timeout"))

    def cancel(self, mode: CancelMode = "now") -> None:
        """Ask the run to stop. Finished results are kept, and every other call gets a result that says so."""
        self.cancelling = mode
        self.show(CancelRequested(mode, run_id=self.run_id, path=self.path))
        if mode == "now" or (mode == "after_tools" and not (self.state.started or self.children)):
            self.interrupt("cancelled")
        else:
            for child in self.children:
                child.cancel(mode)

    def interrupt(self, reason: str) -> None:
        """End the run from outside, now."""
        self.interrupted_by = self.interrupted_by or reason
        if self.task is not None and not self.task.done():
            self.task.cancel()
            self.clock.call_later(PATIENCE_SECONDS, self._lose_patience)

    @property
    def interrupted(self) -> bool:
        """Whether it was told to end; perhaps before it had begun."""
        return bool(self.interrupted_by) or (self.task is not None and self.task.cancelling() > 0)

    def _lose_patience(self) -> None:
        """Leave behind a run that ignores its cancel; but never while something runs that must not be aborted."""
        if self._must_be_waited_for():
            self.clock.call_later(PATIENCE_SECONDS, self._lose_patience)
        else:
            self.leave_behind()

    def leave_behind(self) -> bool:
        """Wait no longer for it; nothing can be added by it any more. `False` when that was so before."""
        if self.left_behind.done():
            return False
        self.is_over = True
        self.left_behind.set_result(None)
        return True

    def _must_be_waited_for(self) -> bool:
        tools = [self.toolbox.get(start.name) for start in self.state.started.values()]
        below = [child for child in self.children if child._must_be_waited_for()]  # noqa: SLF001 - of its own kind
        return bool(below) or any(tool is not None and not tool.abortable for tool in tools)

    def interruption(self) -> Outcome[Any]:
        """The outcome of a run whose task was cancelled."""
        if self.interrupted_by == "timeout":
            return self.outcome("limit", "timeout")
        return self.outcome("cancelled", self.interrupted_by or "cancelled")

    def failure(self, error: Exception) -> Outcome[Any]:
        """The outcome of a run that something went wrong with."""
        error = cast("Exception", self.secrecy.error(error))
        if isinstance(error, OutOfBudget):
            return self.outcome("limit", "budget")
        if not isinstance(error, PerdureError):
            logger.error("run %s of session %s failed", self.run_id, self.session_id, exc_info=error, extra=self.names)
        return self.outcome("failed", type(error).__name__, error)

    def outcome(self, status: OutcomeStatus, reason: str = "", error: Exception | None = None) -> Outcome[Any]:
        """How it stands now."""
        messages = self.state.messages
        new = messages[self.state.first :]
        last = self.partial or next((each for each in reversed(new) if each.role == "assistant"), None)
        return Outcome(
            status=status,
            reason=reason,
            text=last.text if last else "",
            message=last,
            new_messages=new,
            messages=messages,
            output=self.output,
            usage=self.state.usage,
            cost_usd=self.cost_usd,
            cache=self.prefixes.report(self.state.usage),
            steps=self.state.turns,
            run_id=self.run_id,
            session_id=self.session_id,
            error=error,
            questions=tuple(self._open_questions()) if status == "waiting" else (),
        )

    def _open_questions(self) -> list[QuestionAsked]:
        """Its own, and those of the runs below it."""
        below = f"{self.path}/" if self.path else ""
        return [each for each in self.state.questions if each.path == self.path or each.path.startswith(below)]
