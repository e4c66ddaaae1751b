"""Build the tree of a trace (runs, turns, tool calls) from its entries, one after another."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from perdure._core.model.protocol import Price
from perdure._core.values.engine_event import AutoContinued, GuardrailTripped, LimitReached
from perdure._core.values.event import (
    CancelRequested,
    Compacted,
    CompactionStarted,
    EntriesLost,
    ErrorRaised,
    FailedOver,
    InboxAdded,
    InboxResolved,
    Lagged,
    MessageAdded,
    ModelReplied,
    ModelRequested,
    PermissionDecided,
    ReplyDiscarded,
    ReplyFinished,
    RetryScheduled,
    RunEnded,
    RunResumed,
    RunStarted,
    RunWaiting,
    SessionConfigured,
    SessionImported,
    SkillLoaded,
    ToolFinished,
    ToolProgress,
    ToolsChanged,
    ToolStarted,
    ViewChanged,
    WatcherDropped,
)
from perdure._core.values.event_class import Event, QuestionAnswered, QuestionAsked
from perdure._core.values.jsonable import to_text
from perdure._core.values.message import NO_USAGE, SENT_ORIGINS, Message, Usage, parts_to_text
from perdure._tracing.collect.entry import FirstDelta, TraceEntry

from .tree import (
    NOTICE_LIMIT,
    PROGRESS_LIMIT,
    ContextItem,
    TracedRun,
    TracedToolCall,
    TracedTurn,
    TraceNotice,
    flatten_runs,
)

_PROBLEMS: Final = frozenset(
    {RetryScheduled, FailedOver, ErrorRaised, ReplyDiscarded, GuardrailTripped, LimitReached, WatcherDropped, Lagged}
)

_NOTICES: Final[Mapping[type[Event], Callable[[Any], str]]] = {
    AutoContinued: lambda e: f"asked to go on ({e.count})",
    CancelRequested: lambda e: f"cancel requested: {e.mode}",
    Compacted: lambda e: f"{e.upto} messages replaced by a summary, {e.tokens:,} tokens are sent now",
    CompactionStarted: lambda e: f"{e.cause}, at {e.tokens:,} tokens",
    EntriesLost: lambda e: f"entries {e.first} to {e.last} of the log were lost to damage",
    ErrorRaised: lambda e: f"{e.error}: {e.message}" + (f" (in {e.where})" if e.where else ""),
    FailedOver: lambda e: f"from {e.failed} to {e.next}: {e.error}: {e.message}",
    GuardrailTripped: lambda e: f"{e.guardrail}: {e.action} after {e.count}",
    InboxAdded: lambda e: f"waits for {e.tag}: {e.request}",
    InboxResolved: lambda e: f"{e.item_id}: {to_text(e.response)}",
    Lagged: lambda e: f"{e.missed} events were missed",
    LimitReached: lambda e: e.limit,
    QuestionAnswered: lambda e: (
        f"{e.source}: {to_text(e.answer)}" + (f" (declined: {e.rejected})" if e.rejected else "")
    ),
    QuestionAsked: lambda e: f"{e.about}: {e.text}",
    ReplyDiscarded: lambda e: f"{e.reason}",
    RetryScheduled: lambda e: (
        f"attempt {e.attempt} of {e.max_attempts}, again in {e.delay_seconds:.3g} s: {e.error}: {e.message}"
    ),
    RunResumed: lambda _: "the run goes on",
    RunWaiting: lambda e: e.reason or "the run waits",
    SessionConfigured: lambda e: to_text(e.changes),
    SessionImported: lambda e: f"from session {e.session_id}",
    SkillLoaded: lambda e: f"{e.name}, by {e.source}",
    ToolsChanged: lambda e: " ".join([*[f"+{name}" for name in e.added], *[f"-{name}" for name in e.removed]]),
    ViewChanged: lambda e: f"the prompt cache is missed: {e.cause}",
    WatcherDropped: lambda e: f"{e.name}: {e.error}",
}
"""How the events that are neither requests nor calls are told in one line."""


def build_trace_tree(entries: Iterable[TraceEntry]) -> list[TracedRun]:
    """Return the runs of a trace as a tree, in the order in which they began."""
    builder = TraceTreeBuilder()
    for entry in entries:
        builder.add(entry)
    return builder.finish()


class TraceTreeBuilder:
    """Builds the tree of a trace; entries are added one after another, in their order."""

    def __init__(self) -> None:
        self._runs: dict[str, TracedRun] = {}
        self._roots: list[TracedRun] = []
        self._calls: dict[str, TracedToolCall] = {}
        self._turns: dict[str, TracedTurn] = {}
        """The turn in progress of each run, or the last one."""
        self._asides: dict[tuple[str, int], TracedTurn] = {}
        self._pending: dict[str, TracedTurn] = {}
        """For each path, what entered its context since its last request; a turn that is not in the tree."""
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            RunStarted: self._start_run,
            RunEnded: self._end_run,
            RunWaiting: self._wait_run,
            ModelRequested: self._request,
            FirstDelta: self._first_delta,
            ReplyFinished: self._finish_reply,
            MessageAdded: self._add_message,
            ModelReplied: self._reply_aside,
            ReplyDiscarded: self._discard_reply,
            PermissionDecided: self._decide,
            ToolStarted: self._start_call,
            ToolProgress: self._report_progress,
            ToolFinished: self._finish_call,
            ToolsChanged: self._change_tools,
            ViewChanged: self._change_view,
            Compacted: self._compact,
        }

    def add(self, entry: TraceEntry) -> None:
        """Add the next entry of the trace."""
        data, kind = entry.data, type(entry.data)
        if isinstance(data, Event) and data.run_id:
            run = self._find_run(data.run_id, data.path, entry.t)
            if run.status == "open":
                run.ended_at = entry.t
        if (handler := self._handlers.get(kind)) is not None:
            handler(data, entry.t)
        if kind in _NOTICES and isinstance(data, Event):
            self._add_notice(data, entry.t)

    def finish(self) -> list[TracedRun]:
        """Return the runs of the session's own agent, with costs of runs that have not ended."""
        for run in reversed(flatten_runs(self._roots)):
            for turn in run.turns:
                turn.ended_at = max([turn.replied_at, *[call.finished_at for call in turn.calls]])
            if run.status in {"open", "waiting"}:
                _total_open_run(run)
        return self._roots

    # -- runs ----------------------------------------------------------------------------------------------------------

    def _find_run(self, run_id: str, path: str, t: float) -> TracedRun:
        run = self._runs.get(run_id)
        if run is None:
            run = self._runs[run_id] = TracedRun(run_id=run_id, path=path, started_at=t, ended_at=t)
            self._attach(run)
        return run

    def _attach(self, run: TracedRun) -> None:
        """Put a run below the call that started it; below its parent, or at the top, if that is not known."""
        above, _, call_id = run.run_id.rpartition("/")
        call = self._calls.get(call_id) if above else None
        if call is not None:
            call.runs.append(run)
        elif above in self._runs:
            self._runs[above].background.append(run)
        else:
            self._roots.append(run)

    def _start_run(self, event: RunStarted, t: float) -> None:
        run = self._find_run(event.run_id, event.path, t)
        run.agent, run.engine, run.started_at = event.agent, event.engine, t

    def _end_run(self, event: RunEnded, t: float) -> None:
        run = self._find_run(event.run_id, event.path, t)
        run.status, run.reason, run.error = event.status, event.reason, event.error
        run.usage, run.cost_usd, run.ended_at = event.usage, event.cost_usd, t

    def _wait_run(self, event: RunWaiting, t: float) -> None:
        run = self._find_run(event.run_id, event.path, t)
        run.status, run.reason = "waiting", event.reason

    # -- requests and replies ------------------------------------------------------------------------------------------

    def _request(self, event: ModelRequested, t: float) -> None:
        run = self._find_run(event.run_id, event.path, t)
        run.status = "open" if run.status == "waiting" else run.status
        last = self._turns.get(event.run_id)
        if last is not None and last.turn == event.turn and last.reply is None and not event.aside:
            last.attempts = max(last.attempts + 1, event.attempt)
            last.model, last.provider, last.price_usd = event.model, event.provider, event.price_usd
            return
        turn = TracedTurn(
            turn=event.turn,
            run_id=event.run_id,
            path=event.path,
            model=event.model,
            provider=event.provider,
            settings=dict(event.settings),
            prefix=event.prefix,
            messages=event.messages,
            is_aside=event.aside,
            attempts=event.attempt,
            requested_at=t,
            estimated_tokens=event.estimated_tokens,
            price_usd=event.price_usd,
        )
        run.turns.append(turn)
        if event.aside:
            self._asides[event.run_id, event.turn] = turn
            return
        self._turns[event.run_id] = turn
        if (pending := self._pending.pop(event.path, None)) is not None:
            turn.entered, turn.changes, turn.notices = pending.entered, pending.changes, pending.notices
            turn.added_tools, turn.removed_tools = pending.added_tools, pending.removed_tools

    def _first_delta(self, data: FirstDelta, t: float) -> None:
        turn = self._turns.get(data.run_id)
        if turn is not None and not turn.first_delta_at:
            turn.first_delta_at = t

    def _finish_reply(self, event: ReplyFinished, t: float) -> None:
        turn = self._turns.get(event.run_id)
        if turn is not None and turn.reply is None:
            turn.replied_at = t

    def _add_message(self, event: MessageAdded, t: float) -> None:
        message, turn = event.message, self._turns.get(event.run_id)
        is_reply = message.role == "assistant" and message.origin not in SENT_ORIGINS
        if is_reply and turn is not None and turn.reply is None:
            self._settle_turn(turn, message, turn.replied_at or t)
            self._enter(event.path, _describe_item(message, "reply", t))
        else:
            reason = message.origin or ("prompt" if message.role == "user" else message.role)
            self._enter(event.path, _describe_item(message, reason, t))

    def _settle_turn(self, turn: TracedTurn, reply: Message, t: float) -> None:
        turn.reply, turn.replied_at, turn.usage = reply, t, reply.usage or NO_USAGE
        price = Price.from_tuple(turn.price_usd) if turn.price_usd else None
        turn.cost_usd = turn.usage.reported_usd if price is None else price.cost_usd(turn.usage)
        turn.calls = [self._find_call(call.call_id, call.name, call.arguments) for call in reply.tool_calls]

    def _reply_aside(self, event: ModelReplied, t: float) -> None:
        turn = self._asides.get((event.run_id, event.turn))
        if turn is not None:
            self._settle_turn(turn, event.message, t)

    def _discard_reply(self, event: ReplyDiscarded, t: float) -> None:
        turn = self._asides.get((event.run_id, event.turn)) if event.aside else self._turns.get(event.run_id)
        if turn is not None and event.partial is not None:
            turn.usage += event.partial.usage or NO_USAGE
            turn.replied_at = t

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _find_call(self, call_id: str, name: str, arguments: str = "") -> TracedToolCall:
        call = self._calls.get(call_id)
        if call is None:
            call = self._calls[call_id] = TracedToolCall(call_id=call_id, name=name)
        call.arguments = call.arguments or arguments
        return call

    def _place_call(self, event: Any) -> TracedToolCall:
        """Return the call that an event is about; one without a reply, such as a direct call, joins the last turn."""
        is_known = event.call_id in self._calls
        call = self._find_call(event.call_id, getattr(event, "name", "") or getattr(event, "tool", ""))
        turn = self._turns.get(event.run_id)
        if not is_known and turn is not None:
            turn.calls.append(call)
        return call

    def _decide(self, event: PermissionDecided, _t: float) -> None:
        call = self._place_call(event)
        who = f" by {event.by}" if event.by else ""
        call.permission = f"{'allowed' if event.allow else 'denied'}{who}" + (
            f": {event.reason}" if event.reason else ""
        )

    def _start_call(self, event: ToolStarted, t: float) -> None:
        call = self._place_call(event)
        call.effect, call.attempts = event.effect, max(call.attempts + 1, event.attempt)
        call.started_at = call.started_at or t

    def _report_progress(self, event: ToolProgress, _t: float) -> None:
        call = self._place_call(event)
        call.progress_count += 1
        call.progress = [*call.progress[1 - PROGRESS_LIMIT :], event.data]

    def _finish_call(self, event: ToolFinished, t: float) -> None:
        call, result = self._place_call(event), event.result
        call.status, call.result = str(result.status), result.text
        call.finished_at, call.duration_seconds = t, event.duration_seconds
        item = ContextItem(t, f"result of {event.name}", "tool", result.text, len(result.text), None, event.call_id)
        self._enter(event.path, item)

    # -- what enters the context ---------------------------------------------------------------------------------------

    def _get_pending(self, path: str) -> TracedTurn:
        return self._pending.setdefault(path, TracedTurn(turn=0, run_id="", path=path))

    def _enter(self, path: str, item: ContextItem) -> None:
        self._get_pending(path).entered.append(item)

    def _change_tools(self, event: ToolsChanged, _t: float) -> None:
        pending = self._get_pending(event.path)
        pending.added_tools += event.added
        pending.removed_tools += event.removed

    def _change_view(self, event: ViewChanged, _t: float) -> None:
        self._get_pending(event.path).changes.append(event.cause)

    def _compact(self, event: Compacted, t: float) -> None:
        self._enter(event.path, _describe_item(event.summary, f"summary of {event.upto} messages", t))

    def _add_notice(self, event: Event, t: float) -> None:
        notice = TraceNotice(
            t, str(event.__struct_config__.tag), _NOTICES[type(event)](event), type(event) in _PROBLEMS
        )
        turn, run = self._turns.get(event.run_id), self._runs.get(event.run_id)
        is_answering = turn is not None and turn.reply is None
        if turn is not None:
            turn.retries += type(event) is RetryScheduled
            turn.failovers += type(event) is FailedOver
        if turn is not None and (is_answering or type(event) not in {ViewChanged, ToolsChanged, Compacted}):
            place = turn.notices
        elif run is not None and run.turns:
            place = self._get_pending(event.path).notices
        else:
            place = self._get_pending(event.path).notices if run is None else run.notices
        if len(place) < NOTICE_LIMIT:
            place.append(notice)


def _describe_item(message: Message, reason: str, t: float) -> ContextItem:
    text = parts_to_text(message.parts)
    return ContextItem(t, reason, str(message.role), text, len(text), message)


def _total_open_run(run: TracedRun) -> None:
    """Add up the tokens and the cost of a run that has no end, from its turns and the runs below it."""
    below = [each for turn in run.turns for call in turn.calls for each in call.runs] + run.background
    parts = [(each.usage, each.cost_usd) for each in run.turns] + [(each.usage, each.cost_usd) for each in below]
    costs = [cost for usage, cost in parts if usage.total_tokens]
    run.usage = sum([usage for usage, _ in parts], Usage())
    run.cost_usd = None if None in costs else sum([cost or 0.0 for cost in costs])
