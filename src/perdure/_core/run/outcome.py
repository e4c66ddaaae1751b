"""Outcome of a run: status, messages, output, usage and cost."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar

from msgspec import Struct

from perdure._core.model.cache import CacheReport
from perdure._core.values.error import UsageError
from perdure._core.values.event import Entry, RunEnded, RunStarted
from perdure._core.values.event_class import QuestionAsked
from perdure._core.values.jsonable import short_repr
from perdure._core.values.message import Message, Usage

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    from perdure._core.log.fold import State
    from perdure._core.log.past_runs import RunStep, ToolCallRecord

    T = TypeVarWithDefault("T", default=Any)
else:
    T = TypeVar("T")

OutcomeStatus: TypeAlias = Literal["done", "stopped", "limit", "waiting", "cancelled", "failed", "parked"]

SHOWN: Final = 200
"""Characters of a text, an output or an error that `repr(outcome)` shows."""


class Outcome(Struct, Generic[T], frozen=True, kw_only=True):
    """The result of a run: status, answer, messages, usage and cost. A run that failed or was cancelled has one too."""

    status: OutcomeStatus
    """`done`, or one of the other ways to end."""
    reason: str = ""
    """Reason of a status: `max_turns`, `token_budget`, `max_cost`, `budget`, `timeout`,
    `max_tool_calls`, `stop_condition`, `terminated`, `repeat`, `mistakes`, `length`, `content_filter`, the name of an
    error, … A `done` run has one only if its model was told to conclude, without tools (`budget`), or if its engine
    could not review, revise or continue the answer: `not_reviewed`, `not_revised`, `not_finished`.
    """
    text: str = ""
    """Text of the last message of the model, or of what its engine has instead of an answer."""
    message: Message | None = None
    """Last message of the model or its engine; the part received, when it was cut off."""
    new_messages: Sequence[Message] = ()
    """Messages that this run added to the conversation, the prompt included."""
    messages: Sequence[Message] = ()
    """All messages of the conversation."""
    output: T | None = None
    """Validated output, when a type was requested."""
    usage: Usage = Usage()
    """Tokens used by this run."""
    cost_usd: float | None = None
    """Cost of these tokens, as the provider reports it or else by its price; `None` when neither is known."""
    cache: CacheReport = CacheReport()
    """Use of the provider's prompt cache, and what prevented it."""
    turns: int = 0
    """Number of turns that were begun, also one whose request failed, or was refused by a budget and not sent."""
    run_id: str = ""
    session_id: str = ""
    error: Exception | None = None
    """The error, when the status is `failed`."""
    questions: tuple[QuestionAsked, ...] = ()
    """Questions to answer first, when the status is `waiting`: with `session.answer`, then `session.resume`."""
    session_usage: Usage = Usage()
    """Tokens used by all runs of the session so far, this one included."""
    entries: Sequence[Entry] = ()
    """Entries that this run has stored in the log, in order, with their times. Those of the private runs of its engine
    are included, and those of subagents are not: `session.read_run` has them.
    """
    labels: Sequence[str] = ()
    """Labels of all that the model has seen. With `private` and `untrusted`, load no image or link of the answer: its
    address may carry private data.
    """

    @property
    def steps(self) -> "list[RunStep]":
        """The turns of the run and of its engine's private runs: each reply with its time, tool calls and results."""
        from perdure._core.log.past_runs import list_run_steps  # imported at first use: most callers want the answer

        return list_run_steps(self.entries)

    @property
    def tool_calls(self) -> "list[ToolCallRecord]":
        """The tool calls of the run, each with its arguments, result and times, in the order of the turns.

        Calls of a program (code mode), of an engine (`run.call_tool`) and of private runs are among them. Of a subagent
        there is the call that gave it its task.
        """
        return [call for step in self.steps for call in step.tool_calls]

    @property
    def started_at(self) -> float:
        """Time at which the run began, in seconds since 1970; 0 if that is not known."""
        return next((entry.at for entry in self.entries if isinstance(entry.event, RunStarted)), 0.0)

    @property
    def finished_at(self) -> float:
        """Time at which the run ended, in seconds since 1970; 0 if it is not over, but waits for an answer."""
        last = self.entries[-1] if self.entries else None
        return last.at if last is not None and isinstance(last.event, RunEnded) else 0.0

    @property
    def is_cost_reported(self) -> bool:
        """True if `cost_usd` was reported by the provider, and not computed from its prices."""
        return self.cost_usd is not None and self.usage.reported_usd is not None

    @property
    def value(self) -> T:
        """The validated output. Raises when there is none, as `unwrap` does."""
        if self.output is None:
            self.unwrap()
            how = f"{self.status!r}{f', {self.reason}' if self.reason else ''}"
            message = f"this run has no output (it ended as {how}): was it given a type, as in run(…, output=Plan)?"
            raise UsageError(message)
        return self.output

    def unwrap(self) -> "Outcome[T]":
        """Return this outcome if the run completed; raise its error if it failed, and a `UsageError` otherwise."""
        if self.error is not None:
            raise self.error
        if self.status not in {"done", "stopped"}:
            message = f"the run ended with status {self.status!r} ({self.reason or 'no reason given'})"
            raise UsageError(message)
        return self

    def __repr__(self) -> str:
        """The outcome on one line: the conversation is left out, and a long text is cut."""
        return f"Outcome({', '.join([f'{name}={shown}' for name, shown in self._summary()])})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Return the fields of the short `repr` for `rich`, which would otherwise print the whole conversation."""
        return [(name, _Shown(shown)) for name, shown in self._summary()]

    def _summary(self) -> Iterator[tuple[str, str]]:
        """Yield the name and the text of each field that `repr` shows."""
        yield "status", repr(self.status)
        if self.reason:
            yield "reason", short_repr(self.reason, SHOWN)
        if self.output is not None:
            yield "output", short_repr(self.output, SHOWN)
        elif self.text:
            yield "text", short_repr(self.text, SHOWN)
        if self.error is not None:
            yield "error", short_repr(self.error, SHOWN)
        if self.questions:
            yield "questions", f"<{len(self.questions)} open>"
        yield "turns", str(self.turns)
        yield "messages", f"<{len(self.new_messages)} new of {len(self.messages)}>"
        yield "usage", f"<{self.usage.input_tokens} tokens in, {self.usage.output_tokens} out>"
        if self.cost_usd is not None:
            yield "cost_usd", f"{self.cost_usd:.6g}"
        if self.session_id:
            yield "session_id", short_repr(self.session_id, SHOWN)


def select_run_entries(entries: Sequence[Entry], run_id: str) -> list[Entry]:
    """Return the entries of a run and of the private runs of its engine, without those of subagents."""
    ids = {run_id}
    for entry in entries:
        event = entry.event
        if isinstance(event, RunStarted) and event.private and event.run_id == f"{run_id}/{event.input_id}":
            ids.add(event.run_id)
    return [each for each in entries if each.event.run_id in ids]


def select_own_entries(entries: Sequence[Entry], state: "State") -> list[Entry]:
    """Return those of the entries which a run has just stored that are its own or those of its private runs.

    A run also stores how its subagents begin and, if it has to, how they end.
    """
    own = {state.path, *[path for path, child in state.children.items() if child.is_private]}
    return [each for each in entries if each.event.path in own]


class _Shown(str):
    """Text that `repr` prints without quotes."""

    __slots__ = ()
    __repr__ = str.__str__
