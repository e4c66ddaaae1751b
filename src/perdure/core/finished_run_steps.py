"""Record of a finished run, from its log entries: its turns and tool calls with their times."""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from .event import Entry, MessageAdded, ModelReplied, ModelRequested, ToolFinished, ToolStarted
from .message import SENT_ORIGINS, Message, ToolCall, ToolResult


class ToolCallRecord(Struct, frozen=True, kw_only=True):
    """A tool call of a finished run: its tool, arguments, result and times."""

    call_id: str
    name: str
    """Name of the tool."""
    arguments: str
    """Arguments as the model wrote them: raw JSON text."""
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
    """Number of the turn, from 1."""
    model: str = ""
    """Model that was asked."""
    requested_at: float = 0.0
    """Time of the first request of the turn, in seconds since 1970."""
    replied_at: float = 0.0
    """Time at which the reply was complete; 0 if there is none."""
    reply: Message | None = None
    tool_calls: tuple[ToolCallRecord, ...] = ()
    """Calls of the reply, in order."""


def list_run_steps(entries: Iterable[Entry]) -> list[RunStep]:
    """Return the turns of a run from its entries. A turn whose request was repeated is listed once."""
    steps: list[RunStep] = []
    starts: dict[str, float] = {}
    ends: dict[str, tuple[float, ToolFinished]] = {}
    for entry in entries:
        event = entry.event
        if isinstance(event, ModelRequested):
            if not steps or steps[-1].turn != event.turn:
                steps.append(RunStep(turn=event.turn, model=event.model, requested_at=entry.at))
        elif isinstance(event, MessageAdded):
            if steps and steps[-1].reply is None and _is_reply(event.message):
                steps[-1] = replace(steps[-1], reply=event.message, replied_at=entry.at)
        elif isinstance(event, ModelReplied):
            steps = [_add_aside_reply(step, event, entry.at) for step in steps]
        elif isinstance(event, ToolStarted):
            starts.setdefault(event.call_id, entry.at)
        elif isinstance(event, ToolFinished):
            ends[event.call_id] = (entry.at, event)
    return [_add_calls(step, starts, ends) for step in steps]


def _is_reply(message: Message) -> bool:
    """Return True if a model wrote this message, and not a host program in the assistant's name."""
    return message.role == "assistant" and message.origin not in SENT_ORIGINS


def _add_aside_reply(step: RunStep, replied: ModelReplied, at: float) -> RunStep:
    """Add the reply to a request aside from the conversation to a step, if it belongs to the turn of the step."""
    return replace(step, reply=replied.message, replied_at=at) if step.turn == replied.turn else step


def _add_calls(step: RunStep, starts: dict[str, float], ends: dict[str, tuple[float, ToolFinished]]) -> RunStep:
    """Add the tool calls of its reply to a step."""
    calls = () if step.reply is None else step.reply.tool_calls
    return replace(step, tool_calls=tuple([_build_record(call, starts, ends) for call in calls])) if calls else step


def _build_record(
    call: ToolCall, starts: dict[str, float], ends: dict[str, tuple[float, ToolFinished]]
) -> ToolCallRecord:
    finished_at, finished = ends.get(call.call_id, (0.0, None))
    return ToolCallRecord(
        call_id=call.call_id,
        name=call.name,
        arguments=call.arguments,
        result=None if finished is None else finished.result,
        started_at=starts.get(call.call_id, 0.0),
        finished_at=finished_at,
        duration_seconds=0.0 if finished is None else finished.duration_seconds,
    )
