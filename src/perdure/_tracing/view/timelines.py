"""The disclosure timeline of a trace, and its trajectory: what was added to the context, and what came of it."""

from collections.abc import Sequence

from msgspec import Struct

from perdure._core.values.message import Message, Usage
from perdure._tracing.collect.entry import RequestSnapshot, TraceEntry

from .tree import ContextItem, TracedRun, TracedTurn, flatten_runs


class DisclosureStep(Struct, frozen=True, kw_only=True):
    """A request in a disclosure timeline: what the model was shown, and what changed since the request before."""

    turn: int
    run_id: str
    path: str
    """Position in the tree of agents; empty for the session's own agent."""
    dt: float
    """Seconds since the first entry of the trace."""
    entered: tuple[ContextItem, ...]
    """Messages and results that entered the context, each with its reason."""
    changes: tuple[str, ...]
    """Changes of what had been sent before, as `compaction`: the prompt cache of the provider was missed."""
    tools: tuple[str, ...]
    """Names of the tools; empty if the trace does not know them, as that of a stored log."""
    added_tools: tuple[str, ...]
    removed_tools: tuple[str, ...]
    system: str | None
    """Instructions, if they are known and differ from those of the request before; else `None`."""
    messages: int
    """Number of messages sent."""
    messages_delta: int
    """Difference to the request before, at the same place in the tree of agents."""
    tokens: int
    """Tokens of the request, as the provider counted them, or as they were estimated."""
    cached_tokens: int
    """Tokens that the provider read from its prompt cache."""


def build_disclosure(
    runs: list[TracedRun], snapshots: Sequence[tuple[TraceEntry, RequestSnapshot]], started_at: float
) -> list[DisclosureStep]:
    """Build the disclosure timeline of traced runs: what each request newly showed to the model, in order."""
    turns = [turn for run in flatten_runs(runs) for turn in run.turns if not turn.is_aside]
    turns.sort(key=lambda turn: turn.requested_at)
    shown = match_snapshots(turns, snapshots)
    before: dict[str, tuple[TracedTurn, RequestSnapshot | None]] = {}
    steps: list[DisclosureStep] = []
    for turn in turns:
        last, last_shown = before.get(turn.path, (None, None))
        snapshot = shown.get(id(turn))
        steps.append(_build_disclosure_step(turn, snapshot, last, last_shown, turn.requested_at - started_at))
        before[turn.path] = (turn, snapshot or last_shown)
    return steps


def match_snapshots(
    turns: Sequence[TracedTurn], snapshots: Sequence[tuple[TraceEntry, RequestSnapshot]]
) -> dict[int, RequestSnapshot]:
    """Match request snapshots to the turns that they belong to; return them by the Python `id` of the turn.

    A snapshot does not know its turn. It belongs to the last request before it with the same number of messages that
    has none yet; a repeated request of a turn replaces it.
    """
    found: dict[int, RequestSnapshot] = {}
    for entry, snapshot in snapshots:
        fitting = [each for each in turns if each.requested_at <= entry.t and each.messages == snapshot.messages]
        free = [each for each in fitting if id(each) not in found] or fitting
        if free:
            found[id(free[-1])] = snapshot
    return found


def _build_disclosure_step(
    turn: TracedTurn,
    shown: RequestSnapshot | None,
    last: TracedTurn | None,
    last_shown: RequestSnapshot | None,
    dt: float,
) -> DisclosureStep:
    tools = () if shown is None else tuple([each.name for each in shown.tools])
    known = None if last_shown is None else {each.name for each in last_shown.tools}
    added, removed = tuple(turn.added_tools), tuple(turn.removed_tools)
    if shown is not None:
        added = tuple([name for name in tools if name not in (known or ())])
        removed = tuple(sorted((known or set()) - {*tools}))
    is_new = shown is not None and (last_shown is None or last_shown.system != shown.system)
    return DisclosureStep(
        turn=turn.turn,
        run_id=turn.run_id,
        path=turn.path,
        dt=dt,
        entered=tuple(turn.entered),
        changes=tuple(turn.changes),
        tools=tools,
        added_tools=added,
        removed_tools=removed,
        system=shown.system if is_new and shown is not None else None,
        messages=turn.messages,
        messages_delta=turn.messages - (0 if last is None else last.messages),
        tokens=turn.context_tokens,
        cached_tokens=turn.usage.cache_read_tokens,
    )


class TrajectoryTool(Struct, frozen=True, kw_only=True):
    """A tool call in a trajectory: its arguments, result, status and duration."""

    call_id: str
    name: str
    arguments: str
    """Arguments as the model wrote them."""
    result: str
    status: str
    """Status of the result; `open` if there is none."""
    is_error: bool
    duration_seconds: float


class TrajectoryStep(Struct, frozen=True, kw_only=True):
    """A turn in a trajectory: the model's reply, the results of its tool calls, and messages before the request."""

    turn: int
    run_id: str
    path: str
    """Position in the tree of agents; empty for the session's own agent."""
    assistant: Message | None
    """The reply; `None` if there is none."""
    tools: tuple[TrajectoryTool, ...]
    injected: tuple[ContextItem, ...]
    """Messages that entered before the request and are neither replies nor results: the prompt, steering, a skill."""
    usage: Usage
    cost_usd: float | None
    duration_seconds: float
    """Seconds from the request to the last result."""


def build_trajectory(runs: list[TracedRun]) -> list[TrajectoryStep]:
    """Return the turns of all runs in a tree of runs as a trajectory, in the order of their requests."""
    turns = [turn for run in flatten_runs(runs) for turn in run.turns]
    return [_build_trajectory_step(turn) for turn in sorted(turns, key=lambda turn: turn.requested_at)]


def _build_trajectory_step(turn: TracedTurn) -> TrajectoryStep:
    return TrajectoryStep(
        turn=turn.turn,
        run_id=turn.run_id,
        path=turn.path,
        assistant=turn.reply,
        tools=tuple(
            [
                TrajectoryTool(
                    call_id=call.call_id,
                    name=call.name,
                    arguments=call.arguments,
                    result=call.result,
                    status=call.status,
                    is_error=call.status not in {"ok", "open"},
                    duration_seconds=call.duration_seconds,
                )
                for call in turn.calls
            ]
        ),
        injected=tuple([item for item in turn.entered if item.role != "tool" and item.reason != "reply"]),
        usage=turn.usage,
        cost_usd=turn.cost_usd,
        duration_seconds=max(turn.ended_at - turn.requested_at, 0.0),
    )
