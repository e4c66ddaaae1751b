"""The trajectory of a trace: for each turn the model's reply, and the results of its tool calls."""

from msgspec import Struct

from perdure.core.message import Message, Usage

from .trace_tree import ContextItem, TracedRun, TracedTurn, flatten_runs


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
