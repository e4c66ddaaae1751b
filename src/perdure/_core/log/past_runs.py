"""Past runs of a session, from its log: their totals, the cost of one, and its turns and tool calls with times."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from perdure._core.model.protocol import Price
from perdure._core.model.transcript import CHARACTERS_PER_TOKEN
from perdure._core.values.clock import find_program_call_id
from perdure._core.values.event import (
    Entry,
    MessageAdded,
    ModelReplied,
    ModelRequested,
    RunEnded,
    ToolFinished,
    ToolStarted,
)
from perdure._core.values.event_class import Event
from perdure._core.values.message import NO_USAGE, SENT_ORIGINS, Message, Text, ToolResult, Usage

if TYPE_CHECKING:
    from perdure._core.run.run import Run

    from .fold import State


Caller: TypeAlias = Literal["model", "program", "engine"]


class ToolCallRecord(Struct, frozen=True, kw_only=True):
    """A tool call of a finished run: its tool, arguments, result and times."""

    call_id: str
    name: str
    """Name of the tool."""
    arguments: str
    """Arguments as the model wrote them: raw JSON text. Those of programs and engines are stored as the call begins:
    empty if it never did, or if a subagent carried it out.
    """
    caller: Caller = "model"
    """Who made the call: `model` in a reply, `program` in a program that a tool carried out (code mode), `engine` with
    `run.call_tool`.
    """
    result: ToolResult | None = None
    """Result of the call; `None` if it has none yet, because the run waits for an answer."""
    started_at: float = 0.0
    """Time at which the call began, in seconds since 1970; 0 for one that was denied, or never began."""
    finished_at: float = 0.0
    """Time at which it had its result; 0 if it has none."""
    duration_seconds: float = 0.0
    """Seconds that the tool took, without waiting for permission."""


class RunStep(Struct, frozen=True, kw_only=True):
    """A turn of a finished run: a request to the model, its reply, and the tool calls of the reply."""

    turn: int
    """Number of the turn, from 1; 0 for calls that an engine made before the first one."""
    path: str = ""
    """Path of the private run of an engine that it is a turn of, such as `task:0:1` of the planner; empty for the run
    itself.
    """
    model: str = ""
    """Model that was asked."""
    requested_at: float = 0.0
    """Time of the first request of the turn, in seconds since 1970."""
    replied_at: float = 0.0
    """Time at which the reply was complete; 0 if there is none."""
    reply: Message | None = None
    tool_calls: tuple[ToolCallRecord, ...] = ()
    """Calls of the reply, in order, then those that programs and the engine made before the next turn."""


def list_run_steps(entries: Iterable[Entry]) -> list[RunStep]:
    """Return the turns of a run and of its private runs, from their entries, in the order of the requests.

    A turn whose request was repeated is listed once.
    """
    record = _RunRecord()
    for entry in entries:
        record.add(entry.event, entry.at)
    return record.build_steps()


class _RunRecord:
    """The turns and calls that have been read so far from the entries of a run and of its private runs."""

    def __init__(self) -> None:
        self._steps: list[RunStep] = []
        self._last: dict[str, int] = {}
        """The index of the last step of each path."""
        self._starts: dict[tuple[str, str], tuple[float, ToolStarted]] = {}
        """When each call began, by path and call id, which is unique in its path alone."""
        self._ends: dict[tuple[str, str], tuple[float, ToolFinished]] = {}
        self._places: dict[tuple[str, str], int] = {}
        """The index of the step in which each call began or ended, by path and call id."""

    def add(self, event: Event, at: float) -> None:
        """Read the next event."""
        if isinstance(event, ModelRequested):
            last = self._last.get(event.path)
            if last is None or self._steps[last].turn != event.turn:
                self._add_step(RunStep(turn=event.turn, path=event.path, model=event.model, requested_at=at))
        elif isinstance(event, MessageAdded):
            last = self._last.get(event.path)
            if last is not None and self._steps[last].reply is None and _is_reply(event.message):
                self._steps[last] = replace(self._steps[last], reply=event.message, replied_at=at)
        elif isinstance(event, ModelReplied):  # aside from the conversation: others may have begun meanwhile
            for place, step in enumerate(self._steps):
                if (step.turn, step.path) == (event.turn, event.path):
                    self._steps[place] = replace(step, reply=event.message, replied_at=at)
        elif isinstance(event, ToolStarted):
            self._note_call(event)
            self._starts.setdefault((event.path, event.call_id), (at, event))
        elif isinstance(event, ToolFinished):
            self._note_call(event)
            self._ends[event.path, event.call_id] = (at, event)

    def _add_step(self, step: RunStep) -> None:
        self._last[step.path] = len(self._steps)
        self._steps.append(step)

    def _note_call(self, event: ToolStarted | ToolFinished) -> None:
        if event.path not in self._last:
            self._add_step(RunStep(turn=0, path=event.path))
        self._places.setdefault((event.path, event.call_id), self._last[event.path])

    def build_steps(self) -> list[RunStep]:
        """Return the steps with their calls."""
        made: list[list[ToolCallRecord]] = []
        for step in self._steps:
            calls = () if step.reply is None else step.reply.tool_calls
            made.append([self._build_record(step.path, each.call_id, each.name, each.arguments) for each in calls])
            for each in calls:
                self._places.pop((step.path, each.call_id), None)
        for (path, call_id), place in self._places.items():
            made[place].append(self._build_direct_record(path, call_id))
        return [
            replace(step, tool_calls=tuple(calls)) if calls else step
            for step, calls in zip(self._steps, made, strict=True)
        ]

    def _build_direct_record(self, path: str, call_id: str) -> ToolCallRecord:
        """Return the record of a call that is in no reply."""
        started, finished = self._starts.get((path, call_id)), self._ends.get((path, call_id))
        name = started[1].name if started is not None else "" if finished is None else finished[1].name
        caller: Caller = "program" if find_program_call_id(call_id) else "engine"
        return self._build_record(path, call_id, name, "" if started is None else started[1].arguments, caller)

    def _build_record(
        self, path: str, call_id: str, name: str, arguments: str, caller: Caller = "model"
    ) -> ToolCallRecord:
        started_at, _ = self._starts.get((path, call_id), (0.0, None))
        finished_at, finished = self._ends.get((path, call_id), (0.0, None))
        return ToolCallRecord(
            call_id=call_id,
            name=name,
            arguments=arguments,
            caller=caller,
            result=None if finished is None else finished.result,
            started_at=started_at,
            finished_at=finished_at,
            duration_seconds=0.0 if finished is None else finished.duration_seconds,
        )


def _is_reply(message: Message) -> bool:
    """Return True if a model wrote this message, and not a host program in the assistant's name."""
    return message.role == "assistant" and message.origin not in SENT_ORIGINS


CRASH_REASONS = frozenset({"interrupted", "crash_loop", "log_damaged"})
"""Reasons of runs that were ended in the log after their process had died."""


class RunWithInputId(Struct, frozen=True):
    """A run whose caller gave an `input_id`: when the input is sent again, its outcome is returned."""

    run_id: str
    first_message_index: int
    """Index of its first message in the transcript."""
    end_message_index: int = 0
    """Index after its last message in the transcript."""
    run_ended_event: RunEnded | None = None
    """The event that ended it; `None` while it has not ended."""


class PastRunTotals(Struct, frozen=True, gc=False):
    """Tokens, turns and cost of several runs of a session, added up."""

    usage: Usage = NO_USAGE
    turns: int = 0
    cost_usd: float | None = 0.0
    """Cost in US dollars; `None` if the price of one of them is not known."""

    def with_run(self, usage: Usage, turns: int, ended: RunEnded | None) -> "PastRunTotals":
        """Return the totals of these runs and another one; `ended` is the event that ended it, or `None`."""
        used = usage if self.usage is NO_USAGE else self.usage + usage
        return PastRunTotals(used, self.turns + turns, add_run_cost(self.cost_usd, ended))


def add_run_cost(past_usd: float | None, ended: RunEnded | None) -> float | None:
    """Add the cost of a run that has ended to the cost of the runs before it; `None` if either is not known.

    A run that has not ended, or that has no known cost and used no tokens, adds nothing.
    """
    if ended is None or past_usd is None:
        return past_usd
    if ended.cost_usd is None:
        return None if ended.usage.total_tokens else past_usd
    return past_usd + ended.cost_usd


def estimate_usage(request: ModelRequested) -> Usage:
    """Return the estimated input tokens of a model request that got no reply."""
    tokens = request.estimated_tokens
    return Usage(tokens, precision="estimated") if tokens else NO_USAGE


_UNREPORTED: Final = "perdure.unreported_usage"


def list_run_costs(run: "Run") -> list[float | None]:
    """Return the costs that a run in progress consists of: its own, those of its subagents, and those beside it.

    One is `None` if a price is neither reported nor known.
    """
    # Children that have ended are counted in `state.children_usd`.
    below = [child.cost_usd for child in run.children if child.state.run_ended_event is None]
    return [_find_own_cost_usd(run), run.state.children_usd, *below, *_list_other_costs(run)]


def sum_known_cost_usd(run: "Run") -> float:
    """Return the cost of a run in progress as far as it is known: what has no price must not lift a limit."""
    below = [sum_known_cost_usd(child) for child in run.children if child.state.run_ended_event is None]
    others = [each or 0.0 for each in _list_other_costs(run)]
    return (_find_own_cost_usd(run) or 0.0) + run.state.children_usd + sum([*below, *others])


def count_spending_beside(run: "Run", usage: Usage, cost_usd: float | None) -> None:
    """Count the tokens and cost of a model that is not the run's and worked for it, here and in the runs above.

    Those have the cost from the runs below them.
    """
    run.spent_beside.append((usage, cost_usd))
    above = run.parent
    while above is not None:
        above.spent_beside.append((usage, 0.0))
        above = above.parent


def count_unreported_reply(run: "Run", requested: ModelRequested, reply: Message) -> None:
    """Count a reply whose tokens the model did not report towards the limits of a run and the runs above it.

    Its tokens are estimated as those of a request that a crash cut off: usage and cost of the outcome do not have them.
    """
    text = sum([len(part.text) if isinstance(part, Text) else 0 for part in reply.parts])
    text += sum([len(each.name) + len(each.arguments) for each in reply.tool_calls])
    used, price = Usage(requested.estimated_tokens, -(-text // CHARACTERS_PER_TOKEN)), run.info.price
    above: Run | None = run
    while above is not None:
        tokens, usd = _get_unreported(above)
        usd += 0.0 if price is None else price.cost_usd(used)
        above.scratch[_UNREPORTED] = tokens + used.total_tokens, usd
        above = above.parent


def count_unreported_entries(run: "Run") -> None:
    """Count the replies without reported tokens that a run had before it was resumed."""
    requested: dict[str, ModelRequested] = {}
    for event in [each.event for each in run.entries if each.event.path == run.path]:
        if isinstance(event, ModelRequested):
            requested["last"] = event
        elif isinstance(event, (MessageAdded, ModelReplied)) and event.message.role == "assistant" and requested:
            if event.message.usage is None:
                count_unreported_reply(run, requested["last"], event.message)
            requested.clear()


def find_used_tokens(run: "Run") -> int:
    """Return the tokens that count for the limits of a run, those that its models did not report included."""
    return run.usage.total_tokens + _get_unreported(run)[0]


def find_spent_usd(run: "Run") -> float:
    """Return the cost that counts for the limits of a run, as far as it is known or can be estimated."""
    return sum_known_cost_usd(run) + _get_unreported(run)[1]


def _get_unreported(run: "Run") -> tuple[int, float]:
    """Return the estimated tokens and cost of replies whose model reported none."""
    found: tuple[int, float] = run.scratch.get(_UNREPORTED, (0, 0.0))
    return found


def _find_own_cost_usd(run: "Run") -> float | None:
    return run.state.own_cost_usd(run.info.price)


def _list_other_costs(run: "Run") -> list[float | None]:
    """Return the costs of models beside a run and, after a resume, of subagents that have not been resumed."""
    costs = [cost_usd for _, cost_usd in run.spent_beside]
    if run.state.open_children:
        live = [child.state for child in run.children]
        costs += [find_cost_usd(each) for each in run.state.open_children.values() if each not in live]
    return costs


def find_cost_usd(state: "State", *, with_unanswered: bool = False) -> float | None:
    """Return the cost of a run and its subagents in US dollars; `None` if a price is not known.

    `with_unanswered` adds the estimated input of requests without a reply, which may be billed after a crash.
    """
    price = Price.from_tuple(state.price_usd)
    own, asked = state.own_cost_usd(price), state.own_unanswered_usage if with_unanswered else NO_USAGE
    if own is None and not state.own_usage.total_tokens:
        own = 0.0
    if asked.total_tokens:
        own = None if own is None or price is None else own + price.cost_usd(asked)
    below = [find_cost_usd(child, with_unanswered=with_unanswered) for child in state.open_children.values()]
    if own is None or None in below:
        return None
    return own + state.children_usd + sum([each or 0.0 for each in below])
