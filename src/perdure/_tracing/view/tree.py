"""A trace as a tree: runs, their turns, the tool calls of each turn, and the runs of subagents below calls.

The tree is made from the entries of a trace, whether they were collected live or read from a stored log. A log has no
retries, failovers, progress or first deltas, as they are never stored; everything else is the same.
"""

from typing import Any

from msgspec import Struct, field

from perdure._core.values.message import NO_USAGE, Message, Usage

PROGRESS_LIMIT = 20
"""Progress reports of one call that are kept: the last ones. All are counted."""
NOTICE_LIMIT = 200
"""Notices of one turn or run that are kept: the first ones. All are counted."""


class TraceNotice(Struct, frozen=True):
    """An event in a traced run other than a request or call: a retry, failover, error, question or compaction."""

    t: float
    kind: str
    """Kind of the event, such as `retry_scheduled`."""
    text: str
    """The event in one line."""
    is_problem: bool = False
    """True for a retry, a failover, an error, a guardrail or a limit."""


class ContextItem(Struct, frozen=True):
    """A message or tool result that was added to the model's context."""

    t: float
    reason: str
    """Why it entered: `prompt`, `reply`, `result of NAME`, `steering`, `skill`, `summary`, …"""
    role: str
    text: str
    characters: int
    message: Message | None = None
    """The message; `None` for the result of a tool."""
    call_id: str = ""
    """The call, for the result of a tool."""


class TracedToolCall(Struct, kw_only=True):
    """A tool call in a trace: its arguments, result, times, permission and progress."""

    call_id: str
    name: str
    arguments: str = ""
    """Arguments as the model wrote them."""
    effect: str = ""
    """Effect class of the tool; empty if the call never began."""
    attempts: int = 0
    started_at: float = 0.0
    """Time at which it began, in seconds since 1970; 0 if it never did."""
    finished_at: float = 0.0
    """Time at which it had its result; 0 if it has none."""
    duration_seconds: float = 0.0
    """Seconds that the tool took."""
    status: str = "open"
    """Status of the result; `open` if there is none."""
    result: str = ""
    permission: str = ""
    """Decision about the call, if there was one."""
    progress: list[Any] = field(default_factory=list[Any])
    """The last progress reports."""
    progress_count: int = 0
    runs: "list[TracedRun]" = field(default_factory=list["TracedRun"])
    """Runs of the subagent that the call started."""


class TracedTurn(Struct, kw_only=True):
    """A turn in a trace: what was added to the model's context, the request, the reply, and its tool calls."""

    turn: int
    run_id: str
    path: str
    model: str = ""
    provider: str = ""
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    prefix: str = ""
    """Hash of instructions and tools."""
    messages: int = 0
    """Number of messages sent."""
    is_aside: bool = False
    """True if the request was made beside the conversation."""
    attempts: int = 1
    requested_at: float = 0.0
    first_delta_at: float = 0.0
    """Time of the first piece of the reply; 0 if the trace does not know it."""
    replied_at: float = 0.0
    """Time at which the reply was complete; 0 if there is none."""
    ended_at: float = 0.0
    """Time at which its last call had its result, or the reply was complete."""
    reply: Message | None = None
    usage: Usage = NO_USAGE
    cost_usd: float | None = None
    estimated_tokens: int = 0
    price_usd: tuple[float | None, ...] = ()
    entered: list[ContextItem] = field(default_factory=list[ContextItem])
    """What entered the context since the turn before."""
    changes: list[str] = field(default_factory=list[str])
    """Changes that made the provider's prompt cache miss, as `compaction` or `tools`."""
    added_tools: list[str] = field(default_factory=list[str])
    removed_tools: list[str] = field(default_factory=list[str])
    notices: list[TraceNotice] = field(default_factory=list[TraceNotice])
    calls: list[TracedToolCall] = field(default_factory=list[TracedToolCall])
    retries: int = 0
    failovers: int = 0

    @property
    def context_tokens(self) -> int:
        """Tokens that the request had, as the provider counted them, or as they were estimated."""
        return self.usage.input_tokens or self.estimated_tokens


class TracedRun(Struct, kw_only=True):
    """A run in a trace: its turns, how it ended, its tokens and its cost."""

    run_id: str
    path: str = ""
    """Position in the tree of agents; empty for the session's own agent."""
    agent: str = ""
    engine: str = ""
    started_at: float = 0.0
    ended_at: float = 0.0
    """Time of its end; of its last entry, if it has not ended."""
    status: str = "open"
    """Status of its outcome; `open` if it has not ended, `waiting` if it waits for an answer."""
    reason: str = ""
    error: str = ""
    usage: Usage = NO_USAGE
    """Tokens of the run and its subagents."""
    cost_usd: float | None = None
    """Cost of the run and its subagents; `None` if a price is not known."""
    turns: list[TracedTurn] = field(default_factory=list[TracedTurn])
    notices: list[TraceNotice] = field(default_factory=list[TraceNotice])
    background: "list[TracedRun]" = field(default_factory=list["TracedRun"])
    """Runs below this one that no call of it started."""

    @property
    def duration_seconds(self) -> float:
        """Seconds from its start to its end."""
        return max(self.ended_at - self.started_at, 0.0)

    @property
    def prompt(self) -> str:
        """Text of the message that the run answers; empty if the trace does not have it."""
        for turn in self.turns:
            for item in turn.entered:
                if item.role == "user":
                    return item.text
        return ""


def flatten_runs(runs: "list[TracedRun]") -> "list[TracedRun]":
    """Return all runs in a tree of runs as a list, each before the runs of its subagents."""
    found: list[TracedRun] = []
    for run in runs:
        found.append(run)
        for turn in run.turns:
            for call in turn.calls:
                found += flatten_runs(call.runs)
        found += flatten_runs(run.background)
    return found
