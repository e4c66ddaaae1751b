"""The `Run` object: a run in progress, with its state, options, and operations for the loop and an engine.

A `Run` is built by the session and lives as long as one run. It is the interface for authors of engines. The loop reads
from it and emits events through it; the functions in its spec decide when the run ends.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec

from perdure._core.log.fold import State
from perdure._core.log.store import get_namespaced_session_id
from perdure._core.model.cache import describe_prefix_change, hash_instructions, hash_request_part
from perdure._core.model.protocol import Model, Request, ToolSpec, model_info
from perdure._core.model.transcript import CHARACTERS_PER_TOKEN, MessagesSnapshot, add_passing_messages
from perdure._core.people.inbox import build_inbox_reminder
from perdure._core.tools.tool import Tool
from perdure._core.tools.toolbox import Toolbox
from perdure._core.values import faults
from perdure._core.values.error import ContextOverflow, LimitExceeded, OutOfBudget, PerdureError, StoreError, UsageError
from perdure._core.values.event import (
    CancelRequested,
    Entry,
    ErrorRaised,
    ModelEvent,
    ModelRequested,
    TextDelta,
    ToolProgress,
    ViewChanged,
)
from perdure._core.values.event_class import Event, QuestionAsked
from perdure._core.values.jsonable import error_message, to_jsonable
from perdure._core.values.message import Message, StopReason, ToolResult, Usage, user

from .costs import find_spent_limit, list_run_costs, list_usage_beside, sum_known_cost_usd
from .outcome import Outcome, OutcomeStatus, select_own_entries
from .requests import build_reminder_messages, find_unlogged_labels
from .spec import CancelMode, Engine, RunPlace, RunSpec, get_engine_name
from .stop import Limits, repeated_calls
from .timer import RUN_TIMER, PausableTimer
from .toolset import ToolSelection

if TYPE_CHECKING:
    from perdure._core.permission.gate import Gate

    from .toolset import AddedTool, ToolScope

logger = logging.getLogger("perdure")

CANCEL_GRACE_SECONDS = 5.0
"""Seconds a cancelled run may take to end before it is abandoned."""

CONTINUE_TEXT = "Go on from here."
"""Sent after words that a host has added as the assistant's own: a request has to end with somebody else's."""

_OWN_GUARDRAILS = repeated_calls.__module__

_add_tools_lock = threading.Lock()
"""Serializes `add_tools`: tools on several threads may call it at the same time."""


class SimulatedCrash(BaseException):
    """Thrown into the agent loop when `PERDURE_ALWAYS_RESUME` is set, to test that runs resume from the log."""


class Run:
    """A run of an agent in progress: its fields are its inputs and services, `state` is what has happened so far."""

    __slots__ = (
        *(
            "_held_events",
            "_now",
            "_redacted_model",
            "_loop",
            "_model",
            "_selection",
            "_prefix",
            "prefix_tokens",
            "_settings",
            "_thread",
            "_tool_changes",
            "cancel_mode",
            "children",
            "clock",
        ),
        *(
            "closing_events",
            "entries",
            "fanout",
            "simulates_crashes",
            "info",
            "instructions",
            "interrupt_reason",
            "is_abandoned",
            "joins_appends",
            "abandoned",
            "leaving_reason",
            "stores_intents",
            "log",
        ),
        *("mailbox", "can_wait", "options", "output", "parent", "partial_reply"),
        *("path", "prefix_comparer", "run_id", "scratch"),
        *(
            "redaction",
            "full_session_id",
            "session_id",
            "spec",
            "state",
            "task",
            "toolbox",
            "calls_without_intent",
            "entered_calls",
        ),
        *("_begun_turns", "is_private", "stored_price", "timers", "engine", "has_turn_in_progress", "unstored_tools"),
        *("spent_beside", "__weakref__"),
    )

    def __init__(self, spec: RunSpec, place: RunPlace, state: State) -> None:  # noqa: PLR0915 - a line for each field
        self.session_id = place.session_id
        self.full_session_id = get_namespaced_session_id(place.log.store, place.session_id)
        """The id of the session in its innermost store, which is the same through every part of that store."""
        self.run_id = place.run_id
        self.path = state.path
        self.parent = place.parent
        """The run whose tool call this one carries out, or whose engine performs it, if `is_private`; else `None`."""
        self.is_private = place.is_private
        self.log = place.log
        self.state = state
        self.fanout = place.fanout
        self.mailbox = place.mailbox
        self.mailbox.receives_result = state.receives_inbox_result
        self.prefix_comparer = place.prefix_comparer
        """Detects requests that do not begin with the one before, which the provider's cache cannot serve."""
        self.prefix_comparer.begin_run()
        self.can_wait = place.can_wait
        """True if the run may end as `waiting`, because it can be resumed."""
        self.redaction = place.redaction
        """Redacts secrets in everything that is stored and shown."""
        self.switch_spec(spec)
        self.timers: dict[str, PausableTimer] = {}
        """The timers of the run and of its calls in progress, by call id; that of the run is `RUN_TIMER`."""
        self.children: list[Run] = []
        """The runs that carry out tool calls of this one now."""
        self.calls_without_intent: set[str] = set()
        """Ids of the calls in progress without a stored intent: their tools have `asks_first`."""
        self.entered_calls: set[str] = set()
        """Ids of the calls whose tools this process has called, and whose results are not stored."""
        self.spent_beside: list[tuple[Usage, float | None]] = []
        """Tokens and cost of models that are not the run's and worked for it; the cost is `None` if it is not known."""
        self.scratch: dict[str, Any] = {}
        """Values that functions of this run share; never stored."""
        self.joins_appends = False
        """True if a reply may be stored with the intents of its calls, and a result with the next request."""
        self._held_events: list[Event] = []
        """Events that are applied, and are stored with the next append."""
        self.partial_reply: Message | None = None
        """The part of a reply that arrived before it was cut off."""
        self.simulates_crashes = False
        """True if appends raise `SimulatedCrash` wherever a run can be resumed (`PERDURE_ALWAYS_RESUME`, for tests)."""
        self.entries: list[Entry] = place.parent.entries if place.is_private and place.parent is not None else []
        """The entries that this run and its private runs have stored, in order: one list, which they share."""
        self.closing_events: list[Event] = []
        """Events that are stored together with the end of the run."""
        self.output: Any = None
        """The validated output, once there is one."""
        self.cancel_mode: CancelMode | None = None
        """The mode of a requested cancel; `None` if there is none."""
        self.task: asyncio.Task[Any] | None = None
        """The task in which the loop runs; cancelling the run cancels it."""
        self.interrupt_reason = ""
        """The reason why the run has to end now: `cancelled` or `timeout`; empty if it need not."""
        self.leaving_reason = ""
        """The reason why this process leaves the run for another one to resume, such as `shutdown`; empty if it does
        not.
        """
        self.stores_intents = False
        """True while the intents of tool calls are being stored, which then begin."""
        self._loop = asyncio.get_running_loop()
        self.abandoned: asyncio.Future[None] = self._loop.create_future()
        """Done when the run was cancelled, did not end in time, and is no longer waited for."""
        self.is_abandoned = False
        """True once the run was abandoned: it can store nothing any more."""
        self._thread = threading.get_ident()
        self._prefix: tuple[str, Sequence[ToolSpec], str] = ("", (), "")
        self.prefix_tokens = 0
        """Estimated tokens of the instructions and tools whose hash is known."""
        self._tool_changes: list[Tool[..., Any]] = []
        self.unstored_tools: list[AddedTool] = []
        """Tools that were added, to be stored with the next result of a tool call."""
        self._begun_turns = 0
        """Number of the last turn whose request was begun, even if it is not stored yet."""
        self.has_turn_in_progress = False
        """True while `run_turn` waits for a reply."""
        self.engine: Engine | None = None
        """The engine that drives the run, once it has begun."""

    def switch_spec(self, spec: RunSpec) -> None:
        """Switch the run to another agent, whose model, instructions, tools and rules apply from the next turn on."""
        self.spec = spec
        self.options = options = spec.options
        self.clock, self._now = options.clock, options.clock.now  # the function for each event that is published
        self._model = spec._model  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - hidden from engines, not from the run
        self.info = model_info(self._model)
        self.stored_price = () if self.info.price is None else self.info.price.to_tuple()
        """The price of the model, as it is stored with each request."""
        allowed = options.limits.allowed_tools
        later = allowed if spec.has_late_tools else spec.spare_tools
        self.toolbox = spec.toolbox if allowed is None else spec.toolbox.with_only(allowed, later or ())
        self._selection = ToolSelection()
        self.instructions = spec.instructions
        self._settings: dict[str, Any] = msgspec.to_builtins(options.settings)
        self._redacted_model: Model | None = None
        """The model behind the redactor, once there are secrets to redact."""

    @property
    def agent_name(self) -> str:
        """The name of the agent that is active in the conversation."""
        return self.options.name

    @property
    def deps(self) -> Any:
        """The dependencies given to the agent, which tools get as `ToolContext.deps`."""
        return self.options.deps

    @property
    def limits(self) -> Limits:
        """The limits of this run."""
        return self.options.limits

    @property
    def gate(self) -> "Gate | None":
        """The gate, which decides whether tool calls may run."""
        return self.spec.gate

    @property
    def model(self) -> Model:
        """The model, for requests of an engine or a tool that are not part of the conversation.

        Each request is checked against the limits of the run (at one it raises `LimitExceeded`), stored, and counts as
        a turn; its usage counts too. `run_turn` requests the next reply of the conversation.
        """
        from .requests import AsideModel  # at first use, which few runs have

        return AsideModel(self)

    def _get_unlimited_model(self) -> Model:
        redactor = self.redaction.redactor
        if redactor is None:
            return self._model
        if self._redacted_model is None:
            self._redacted_model = redactor.model(self._model)
        return self._redacted_model

    # -- events and state ----------------------------------------------------------------------------------------------

    @property
    def messages(self) -> MessagesSnapshot:
        """The messages of the conversation so far."""
        return self.state.messages

    @property
    def cost_usd(self) -> float | None:
        """The cost of the run and its subagents in US dollars; `None` if a price is neither reported nor known."""
        parts = list_run_costs(self)
        return None if None in parts else sum_known_cost_usd(self)

    @property
    def usage(self) -> Usage:
        """The tokens of the run and its subagents, and of models beside it that worked for it, such as graders."""
        return sum(list_usage_beside(self), self.state.usage)

    async def emit(self, *events: Event, sync: bool = False, entry_ids: Sequence[str] = ()) -> None:
        """Store events, then publish them to watchers. With `sync`, they survive a power failure once this returns.

        The first events get the ids in `entry_ids`, which takes the posts of these ids. A cancel that arrives meanwhile
        is raised only when the events are stored and published. A run that was abandoned stores nothing more: its
        cancel, which it ignored, is raised again.
        """
        if self.is_abandoned:
            raise asyncio.CancelledError
        if (redactor := self.redaction.redactor) is not None:
            events = tuple(map(redactor.event, events))
        if self._held_events and entry_ids:  # which are for the first entries: the held events are stored before
            await self.emit()
        is_cancelled = False
        if held := self._held_events:
            self._held_events = []
            events = (*held, *events)
        try:
            entries = self.log.append_now(events, sync, entry_ids)
            if entries is not None:
                self._apply_and_publish(entries, len(held))
            else:
                on_stored = partial(self._apply_and_publish, applied=len(held))
                is_cancelled = await self.log.append(events, sync=sync, on_stored=on_stored, entry_ids=entry_ids)
        except (Exception, asyncio.CancelledError) as error:
            if not held or isinstance(error, StoreError):
                raise
            # the state is ahead of the log: nothing can go on from it
            raise StoreError(f"the log cannot store what has happened: {error_message(error)}") from error
        if is_cancelled:
            raise asyncio.CancelledError
        if self.fanout.has_backpressure:
            await self.fanout.wait_for_room()
        if self.simulates_crashes and not self.is_interrupted and self._is_resumable_from_log():
            raise SimulatedCrash

    def hold(self, events: Sequence[Event]) -> bool:
        """Apply events to the state now, and store them with the next append; return False, with nothing done, if that
        is not safe.

        Between this and that append nothing may be awaited that can suspend the run, and no code of the program called.
        """
        if not self.joins_appends or self.fanout.is_watched or self.is_abandoned:
            return False
        if (redactor := self.redaction.redactor) is not None:
            events = tuple(map(redactor.event, events))
        for event in events:
            self.state.apply(event)
        self._held_events += events
        faults.fault_point("run.held")
        return True

    async def store_held_events(self) -> None:
        """Store the events that `hold` has applied and not stored yet."""
        if self._held_events:
            await self.emit()

    @property
    def calls_code_between_turns(self) -> bool:
        """True if functions of the program run after a reply or result, so that it must be stored before them.

        The gate and the hooks of a tool are not among them: what is held is stored before they are called.
        """
        spec = self.spec
        return bool(
            spec.between_turns
            or spec.reminders
            or spec.output_validators
            or spec.stop is not None
            or spec.around_turn is not None
            or self.options.history_processor is not None
            or [each for each in spec.guardrails if getattr(each, "__module__", "") != _OWN_GUARDRAILS]
        )

    def _is_resumable_from_log(self) -> bool:
        """Return True if a run in progress could be resumed from the log now: no effect or request is open."""
        state = self.state
        return state.is_interrupted and not (
            state.started_calls
            or state.attempts
            or state.is_waiting
            or state.aside_requests
            or self.calls_without_intent
        )

    async def store_for_stuck_loop(self, build_events: Callable[[], Sequence[Event]]) -> None:
        """Store events on behalf of an agent loop that ignores its cancel and can no longer store anything.

        They are built when the last append of that loop is stored, which may be the result of a tool call.
        """
        log = await self.log.hand_over()
        if events := build_events():
            await log.append(events, sync=True, on_stored=self._apply_and_publish)
        self.log.head = log.head

    def _apply_and_publish(self, entries: Sequence[Entry], applied: int = 0) -> None:
        """Apply stored entries to the state, except the first `applied` ones, which were held; then publish them."""
        new = entries[applied:] if applied else entries
        for entry in new:
            self.state.apply(entry.event)
        self.entries += select_own_entries(entries, self.state) if self.state.children else entries
        for receiver in self.fanout.receivers:  # as `publish` does, without a call for each entry
            for entry in new:
                receiver.push(entry)

    def publish(self, event: Event) -> None:
        """Publish an event to watchers without storing it."""
        if receivers := self.fanout.receivers:
            redactor = self.redaction.redactor
            entry = Entry(0, self._now(), event if redactor is None else redactor.event(event))
            for receiver in receivers:
                receiver.push(entry)

    def publish_model_event(self, event: ModelEvent) -> None:
        """Publish an event from the model's stream to watchers, with this run's id, without storing it."""
        if type(event) is TextDelta:
            shown: Event = TextDelta(event.text, run_id=self.run_id, path=self.path)
        else:
            shown = self.stamp_event(event)
        redactor = self.redaction.redactor
        entry = Entry(0, self._now(), shown if redactor is None else redactor.event(shown))
        for receiver in self.fanout.receivers:
            receiver.push(entry)

    def stamp_event(self, event: Event) -> Event:
        """Return the event with this run's id and path."""
        return msgspec.structs.replace(event, run_id=self.run_id, path=self.path)

    def publish_progress(self, call_id: str, name: str, data: Any) -> None:
        """Publish the progress of a tool call. May be called from any thread."""
        event = ToolProgress(call_id, name, to_jsonable(data), run_id=self.run_id, path=self.path)
        if threading.get_ident() == self._thread:
            self.publish(event)
        else:
            self._loop.call_soon_threadsafe(self.publish, event)

    def call_on_loop(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a coroutine function on the event loop of the run, and wait for its end; only from another thread."""
        asyncio.run_coroutine_threadsafe(work(), self._loop).result()

    def report_error(self, error: BaseException, where: str) -> None:
        """Log and publish an error that does not end the run."""
        error = self.redaction.redact_error(error)
        kind, text = type(error).__name__, error_message(error)
        words, names = "%s failed in run %s of session %s: %s: %s", (where, self.run_id, self.full_session_id)
        logger.warning(words, *names, kind, text, exc_info=error, extra=self.log_fields)
        self.publish(ErrorRaised(kind, text, where, run_id=self.run_id, path=self.path))

    @property
    def log_fields(self) -> dict[str, str]:
        """The ids of the session, in the whole store, and of the run, as `extra` fields of log records."""
        return {"session_id": self.full_session_id, "run_id": self.run_id}

    # -- the next request ----------------------------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        """True if the model of this run has interrupted its last reply, and goes on when that is sent back."""
        sent, info = self.state.transcript.sent_messages, self.info
        return bool(
            sent
            and sent[-1].stop is StopReason.PAUSE
            and (sent[-1].provider, sent[-1].model) == (info.provider, info.name)
        )

    def build_request(self, messages: Sequence[Message]) -> Request:
        """Build the request for the next turn: messages, reminders, instructions, tools and settings."""
        sent = self.state.transcript.sent_messages
        is_after_reply = bool(sent) and sent[-1].role == "assistant"
        if (is_after_reply or self.state.inbox or self.spec.reminders) and not self.is_paused:
            messages = self._add_reminders(messages)
        return Request(
            messages=messages,
            instructions=self.instructions,
            tools=self.offered_tools.specs,
            settings=self.options.settings,
            output=self.spec.output_spec,
            session_id=self.full_session_id,
        )

    def _add_reminders(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Add what is never stored to messages: words after the assistant's own, about the inbox, and reminders."""
        if (sent := self.state.transcript.sent_messages) and sent[-1].role == "assistant":
            spoken_for = user(CONTINUE_TEXT, origin="reminder")  # a host has spoken for the assistant
            messages = add_passing_messages(messages, spoken_for)
        if self.state.inbox and (waiting := build_inbox_reminder(self.state.inbox.values())) is not None:
            messages = add_passing_messages(messages, waiting)
        return add_passing_messages(messages, *build_reminder_messages(self)) if self.spec.reminders else messages

    def begin_request(self, *, aside: bool = False) -> int:
        """Return the turn number of a request that is about to be sent. Raises `LimitExceeded` if a limit is reached.

        Turns are numbered here and not by the log, so that requests made at the same time cannot pass the limit.
        """
        state, most, turn = self.state, self.options.limits.max_turns, self._begun_turns
        if turn < state.turns:  # noqa: PLR1730 - `max` would double the cost
            turn = state.turns
        is_attempt = state.attempts and not aside
        if most is not None and turn >= most and not is_attempt:
            raise LimitExceeded("max_turns")
        may_have_spent = aside or self.spec.between_turns  # since `run_turn` looked at the limits
        if may_have_spent and (limit := find_spent_limit(self) or state.reached_limit):
            raise LimitExceeded(limit)
        if is_attempt and state.last_request is not None:
            return state.last_request.turn
        if self.is_private and self.parent is not None:
            self.parent.begin_request(aside=True)
        self._begun_turns = turn = turn + 1
        return turn

    def build_request_events(self, request: Request) -> tuple[*tuple[Event, ...], ModelRequested]:
        """Build the events that record a request to the model, to be stored before it is sent.

        A `ViewChanged` event precedes it if the request does not begin like the one before.
        """
        state, info, turn = self.state, self.info, self.begin_request()
        requested = ModelRequested(
            turn,
            state.attempts + 1,
            info.name,
            info.provider,
            self._settings,
            self.hash_prefix(request),
            len(request.messages),
            estimated_tokens=state.transcript.input_tokens.estimate(request.messages, self.prefix_tokens),
            price_usd=self.stored_price,
            labels=tuple(unlogged := find_unlogged_labels(self)),
            label_sources=tuple(dict.fromkeys(unlogged.values())),
            run_id=self.run_id,
            path=self.path,
        )
        segment, before = self.prefix_comparer.compare_request(request, info, turn), state.last_request
        if before is None or state.view_changed or not (cause := describe_prefix_change(before, requested, segment)):
            return (requested,)
        return ViewChanged(cause, run_id=self.run_id, path=self.path), requested

    def hash_prefix(self, request: Request) -> str:
        """Return the hash of a request's instructions and tools, cached as long as both are the same objects."""
        instructions, tools, known = self._prefix
        if instructions is request.instructions and tools is request.tools and known:
            return known
        text = hash_instructions(request.instructions)
        box = self.offered_tools
        offered = box.specs_hash if request.tools is box.specs else hash_request_part(request.tools)
        known = f"{text.digest}-{offered.digest}"
        self.prefix_tokens = (text.length + offered.length) // CHARACTERS_PER_TOKEN
        self._prefix = (request.instructions, request.tools, known)
        return known

    def idempotency_key(self, call_id: str) -> str:
        """Return a key for a tool call that is identical for every attempt at it, also after a crash.

        It does not depend on the store object through which the session is continued.
        """
        started = self.state.started_calls.get(call_id)
        if started is not None and started.idempotency_key:  # a service may have been sent it
            return started.idempotency_key
        return f"{self.full_session_id}/{self.run_id}/{call_id}"

    def add_tools(self, tools: "Iterable[Tool[..., Any] | str]", scope: "ToolScope" = "process") -> None:
        """Offer more tools from the next turn on, if the limits allow them. May be called from any thread.

        A text is the name of a spare tool. With the scope `run` or `session` they are stored, to be offered again after
        a resume; `ConfigError` is raised for one that could not be found again.
        """
        from .toolset import build_added_tool_records, resolve_tools  # at first use, which few runs have

        allowed, wrap = self.limits.allowed_tools, self.spec.wrap_tool
        found = resolve_tools(tools, self.spec.spare_tools)
        offered = [each if wrap is None else wrap(each) for each in found if allowed is None or each.name in allowed]
        with _add_tools_lock:
            toolbox = self.toolbox.with_tools(offered)
            self.unstored_tools += build_added_tool_records(self, found, scope)
            self.toolbox = toolbox
            self._tool_changes.extend(offered)

    @property
    def offered_tools(self) -> Toolbox:
        """The tools that the model is sent: all tools of the run, unless a selector leaves some out."""
        selectors = self.spec.tool_selectors
        return self._selection.select(self.toolbox, selectors, self.state) if selectors else self.toolbox

    def announce_tools(self, names: Iterable[str]) -> None:
        """Announce tools of this run that the model is sent from the next turn on, in a `ToolsChanged`."""
        with _add_tools_lock:
            self._tool_changes += [tool for each in names if (tool := self.toolbox.get(each)) is not None]

    async def ask_model(self, request: Request) -> Message:
        """Ask the model aside from the conversation, and return its whole reply; the limits of the run apply."""
        from .requests import request_aside_reply

        return await request_aside_reply(self, request)

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Call a tool from an engine, with the permissions, limits and log of any other call, and return its result.

        The model is not told. After a crash, the same call of the engine gets the stored result instead of a second
        effect. `call_tools` carries out several at a time.
        """
        return (await self.call_tools([(name, {} if arguments is None else arguments)]))[0]

    async def call_tools(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> list[ToolResult]:
        """Call tools from an engine, `max_parallel_tools` at a time; return their results in the order of the calls."""
        if self.spec.tool_caller is None:
            raise UsageError("this run was built without a tool_caller: see RunSpec")
        return await self.spec.tool_caller(self, calls)

    async def compact(self, cause: str, error: ContextOverflow | None = None) -> bool:
        """Replace older messages by a summary for the model. Return True if what is sent is shorter now."""
        compact = self.spec.compaction
        return compact is not None and await compact(self, cause, error=error)

    def take_tool_changes(self) -> tuple[str, ...]:
        """Return the names of the tools that were added since this method was last called."""
        if not self._tool_changes:
            return ()
        changes, self._tool_changes = self._tool_changes, []
        return tuple([each.name for each in changes])

    # -- how it ends ---------------------------------------------------------------------------------------------------

    def find_reached_limit(self) -> str:
        """Return the name of the limit that forbids another request to the model; empty if there is none.

        The token and cost limits of parent runs apply too.
        """
        limits, state = self.options.limits, self.state
        if limits.max_turns is not None and state.turns >= limits.max_turns and not state.attempts:
            return "max_turns"
        if self.is_private and self.parent is not None and (above := self.parent.find_reached_limit()):
            return above
        # `state.limit` is set once the model requests more calls than allowed; at exactly that many it may still answer
        return find_spent_limit(self) or state.reached_limit

    def start_timer(self) -> None:
        """Start the timer that interrupts the run at its time limit, if it has one."""
        seconds = self.limits.timeout_seconds
        if seconds is not None:
            self.timers[RUN_TIMER] = PausableTimer(self.clock, seconds, lambda: self.interrupt("timeout"))

    def stop_timer(self) -> None:
        """Stop the timer of the run's time limit, if it has one."""
        timer = self.timers.pop(RUN_TIMER, None)
        if timer is not None:
            timer.cancel()

    def cancel(self, mode: CancelMode = "now") -> None:
        """Ask the run to stop. Finished tool results are kept; other calls get the result that they were cancelled."""
        self.cancel_mode = mode
        self.publish(CancelRequested(mode, run_id=self.run_id, path=self.path))
        if mode == "now" or (mode == "after_tools" and not (self.state.started_calls or self.children)):
            self._stop_children()
            self.interrupt("cancelled")
        else:
            for child in self.children:
                child.cancel(mode)

    def _stop_children(self) -> None:
        """Let the runs below begin nothing more. Their tasks are cancelled later, by the one that waits for them."""
        for child in self.children:
            child.cancel_mode, child.interrupt_reason = "now", child.interrupt_reason or "cancelled"
            child._stop_children()  # noqa: SLF001 - another Run

    def interrupt(self, reason: str) -> None:
        """Cancel the asyncio task of the run now, for this reason."""
        self.interrupt_reason = self.interrupt_reason or reason
        if self.task is not None and not self.task.done():
            self.task.cancel()
            self.clock.call_later(CANCEL_GRACE_SECONDS, self._abandon_when_safe)

    def leave(self, reason: str) -> None:
        """Stop driving the run without ending it, so that another process can resume it; its outcome is `waiting`.

        Tool calls in progress are waited for, unless `interrupt` is called as well. No other call or request begins.
        """
        self.leaving_reason = reason
        self.mailbox.stop_waiting()
        for child in self.children:
            child.leave(reason)
        if not (self.children or self.stores_intents or self.state.started_calls or self.state.open_questions):
            self.interrupt(reason)

    @property
    def is_interrupted(self) -> bool:
        """True if the run was cancelled or timed out, perhaps before it began."""
        return bool(self.interrupt_reason) or (self.task is not None and self.task.cancelling() > 0)

    def _abandon_when_safe(self) -> None:
        """Abandon a run that ignores its cancel, once no tool is running that must not be aborted."""
        if self._has_unabortable_tool():
            self.clock.call_later(CANCEL_GRACE_SECONDS, self._abandon_when_safe)
        else:
            self.abandon()

    def abandon(self) -> bool:
        """Stop waiting for the run, and forbid it to store anything more. Return False if it was abandoned before."""
        if self.abandoned.done():
            return False
        self.is_abandoned = True
        self.abandoned.set_result(None)
        return True

    def _has_unabortable_tool(self) -> bool:
        """Return True if the run, or one of its subagents, executes a tool that must not be aborted."""
        tools = [self.toolbox.get(start.name) for start in self.state.started_calls.values()]
        below = [child for child in self.children if child._has_unabortable_tool()]  # noqa: SLF001 - another Run
        return bool(below) or any(tool is not None and not tool.abortable for tool in tools)

    def interrupted_outcome(self) -> Outcome[Any]:
        """Build the outcome of a run that was cancelled or timed out."""
        if self.interrupt_reason == "timeout":
            return self.outcome("limit", "timeout")
        return self.outcome("cancelled", self.interrupt_reason or "cancelled")

    def failed_outcome(self, error: Exception) -> Outcome[Any]:
        """Build the outcome of a run that raised an error, with secrets redacted."""
        error = cast("Exception", self.redaction.redact_error(error))
        if isinstance(error, OutOfBudget):
            return self.outcome("limit", "budget")
        if isinstance(error, LimitExceeded):
            return self.outcome("limit", error.limit)
        if not isinstance(error, PerdureError):
            name = "" if self.engine is None else get_engine_name(self.engine)
            error.add_note(f"raised in the engine {name!r} of run {self.run_id}")
            words = "run %s of session %s failed in the engine %r"
            logger.error(words, self.run_id, self.full_session_id, name, exc_info=error, extra=self.log_fields)
        return self.outcome("failed", type(error).__name__, error)

    def outcome(self, status: OutcomeStatus, reason: str = "", error: Exception | None = None) -> Outcome[Any]:
        """Build an outcome with this status from the current state of the run."""
        messages = self.state.messages
        new = messages[self.state.first_message_index :]
        last = self.partial_reply or next((each for each in reversed(new) if each.role == "assistant"), None)
        return Outcome(
            status=status,
            reason=reason,
            text=last.text if last else "",
            message=last,
            new_messages=new,
            messages=messages,
            output=self.output,
            usage=self.usage,
            cost_usd=self.cost_usd,
            cache=self.prefix_comparer.build_report(self.state.usage),
            turns=self.state.turns,
            run_id=self.run_id,
            session_id=self.session_id,
            error=error,
            questions=tuple(self._open_questions()) if status == "waiting" else (),
            session_usage=self.state.total_usage,
            entries=self.entries,
            labels=tuple(self.state.labels),
        )

    def _open_questions(self) -> list[QuestionAsked]:
        """Return the unanswered questions of this run and of its subagents."""
        below = f"{self.path}/" if self.path else ""
        return [each for each in self.state.open_questions if each.path == self.path or each.path.startswith(below)]
