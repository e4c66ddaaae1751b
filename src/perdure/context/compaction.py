"""When a conversation is summed up for its model, and what of it. Above: the assembly, the loop. Below: `boundary.py`,
`strategies.py`, `tokens.py`.

The transcript keeps everything; only what the model is sent begins with the summary. A summary is never longer than
what it stands for, and one that fails changes nothing: the conversation goes on as it was, and it is tried again when
the conversation has grown. Only when the model has refused the conversation as too long, older messages are left out
without a summary, and the model is told so.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import Struct

from perdure.core import check
from perdure.core.error import ContextOverflow, StoreError
from perdure.core.event import Compacted, CompactionStarted, ReplyDiscarded, ViewChanged
from perdure.core.message import Message, Text
from perdure.core.model import Model, Settings, info_of
from perdure.core.run import Run
from perdure.core.tool import Tool, ToolContext, tool

from .boundary import boundary, unanswered_from
from .hand_off import hand_off, is_summary
from .snapshot import UNKNOWN_WINDOW, Snapshots
from .strategies import LARGEST_SUMMARY, LEAST_ROOM, Plan, Strategy, Work
from .tokens import MEASURE, SUMMARY, Gauge, Measure, gauge_of, measure_of, message_tokens, messages_tokens

BEFORE_TOOLS = 0.9
"""Before calls are made, this much of the limit is enough: their results are still to come."""
GROWTH = 1.1
"""By how much a conversation has to grow before it is summed up again, or before that is tried again."""
LARGE_GROWTH = 1.5
"""The same when a summary would not have been shorter."""
ANSWER_TOKENS = 8_192
"""Room for an answer, when nobody says how long one may be."""


class Compaction(Struct, frozen=True, kw_only=True, eq=False):
    """When and how the beginning of a conversation is replaced by a summary. Give it to an agent."""

    at_fraction: float = 0.8
    """Of the model's window, when that is known."""
    at_tokens: int | None = None
    """At this size of the context, whatever the window."""
    at_messages: int | None = None
    """At so many messages."""
    at_turns: int | None = None
    """At so many turns since the last summary, or since the beginning."""
    keep_recent_tokens: int = 20_000
    """How much stays word for word, at most; never more than a quarter of what there is room for."""
    keep_recent_messages: int | None = None
    """In how many messages, at most."""
    reserve_tokens: int | None = None
    """Room for the answer. `None`: what the settings, or the model, allow an answer."""
    model: Model | None = None
    """Who sums up. `None`: the model of the run."""
    instructions: str = ""
    """What a summary has to heed besides."""
    strategy: Strategy | None = None
    """Makes the message instead: `keep_recent`, or your own function. `None`: a model writes a snapshot."""

    def __post_init__(self) -> None:
        check.number("Compaction", "at_fraction", self.at_fraction, 1)
        if not self.at_fraction:
            check.refuse("Compaction", "at_fraction", self.at_fraction, "give a number above 0, such as 0.8")
        for name, least in _NUMBERS.items():
            value = getattr(self, name)
            if value is not None or name == "keep_recent_tokens":
                check.whole_number("Compaction", name, value, least)
        if self.model is not None and not callable(getattr(self.model, "stream", None)):
            check.refuse("Compaction", "model", self.model, "give a model object, or None for the model of the run")
        check.text("Compaction", "instructions", self.instructions)
        check.function_or_none("Compaction", "strategy", self.strategy)

    async def __call__(self, run: Run) -> None:
        """Sum up if it is time to. The loop asks before each request, and before the calls of a reply."""
        if cause := self.due(run):
            await self.compact(run, cause)

    def due(self, run: Run) -> str:
        """Why it is time to sum up now; empty when it is not."""
        gauge, state = gauge_of(run), run.state
        tokens = gauge.context_tokens(run)
        if tokens < gauge.quiet_below:
            return ""
        limit = self.limit_tokens(run)
        if state.reply is not None:
            return "before_tools" if limit is not None and tokens >= limit * BEFORE_TOOLS else ""
        if limit is not None and tokens >= limit:
            return "tokens"
        if self.at_messages is not None and len(state.view) >= self.at_messages:
            return "messages"
        return "turns" if self.at_turns is not None and state.view_turns >= self.at_turns else ""

    def limit_tokens(self, run: Run) -> int | None:
        """How large the context may get; `None` when nobody knows the window and no size was given."""
        window = _window(run)
        limits = [] if self.at_tokens is None else [self.at_tokens]
        if window is not None:
            limits.append(min(int(window * self.at_fraction), window - self._reserve(run, window)))
        return min(limits, default=None)

    def _reserve(self, run: Run, window: int) -> int:
        if self.reserve_tokens is not None:
            wanted = self.reserve_tokens
        elif run.settings.max_output_tokens is not None:
            wanted = run.settings.max_output_tokens
        else:
            wanted = min(info_of(run.model).max_output_tokens or ANSWER_TOKENS, window // 4)
        return min(wanted, window // 2)

    async def compact(
        self, run: Run, cause: str = "manual", *, focus: str = "", error: ContextOverflow | None = None
    ) -> bool:
        """Sum up now. Says whether the model is sent less from here on.

        `focus` is what this one summary must not lose. With the cause `overflow` something has to give, even without a
        summary; `error` tells how large the window is, if the model said so.
        """
        gauge = gauge_of(run)
        if gauge.compacting:  # the request for a summary was too long itself: it has its own way to become shorter
            return False
        if cause == "overflow":
            _learn(run, gauge, error)
        plan = self._plan(run, gauge)
        tokens = gauge.context_tokens(run)
        gauge.quiet_below = int(tokens * GROWTH)
        if plan is None:
            return False
        work = self._work(run, plan, focus)
        with _in_one_go(run, gauge):
            await run.emit(run.stamped(CompactionStarted(cause, tokens)))
            summary = await self._summary(work, must_help=cause == "overflow")
            if summary is None:
                gauge.quiet_below = int(tokens * (LARGE_GROWTH if work.is_made else GROWTH))
                await _discard(work)
                return False
        after = gauge.everything(run) - plan.tokens + message_tokens(summary)
        gauge.quiet_below = int(after * GROWTH)
        compacted = Compacted(_measured(run, summary), plan.upto, after, work.usage)
        await run.emit(run.stamped(compacted), run.stamped(ViewChanged(SUMMARY)), sync=True)
        return True

    def _work(self, run: Run, plan: Plan, focus: str) -> Work:
        instructions = "\n".join([each for each in (self.instructions, focus) if each])
        if self.model is None:
            return Work(run, plan, Snapshots(run.model, _readable(run), run.settings, instructions))
        return Work(run, plan, Snapshots(self.model, info_of(self.model).context_tokens, Settings(), instructions))

    async def _summary(self, work: Work, *, must_help: bool) -> Message | None:
        """What is to stand for the messages of the plan; nothing when that fails, or would not make them fewer."""
        plan = work.plan
        summary: Message | None = None
        try:
            summary = await (work.summed_up() if self.strategy is None else work.made_by(self.strategy))
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever goes wrong here must not end the work that it is for
            work.run.report(error, SUMMARY)
        work.is_made = summary is not None
        if summary is not None and message_tokens(summary) < plan.tokens:
            return summary
        if not must_help:
            return None
        marker = hand_off(work.run, plan.replaced, plan.upto, plan.room, None)
        return marker if message_tokens(marker) < plan.tokens else None

    def _plan(self, run: Run, gauge: Gauge) -> Plan | None:
        """What would be replaced now; nothing when there is nothing but an earlier summary."""
        view = run.state.view
        everything, tokens = gauge.everything(run), gauge.context_tokens(run)
        limit = self.limit_tokens(run)
        most = everything if limit is None else min(limit, tokens) * everything // max(tokens, 1)  # as we estimate
        fixed = everything - messages_tokens(view[: unanswered_from(view)])
        free = max(most - fixed, 0)
        cut = boundary(view, min(self.keep_recent_tokens, free // 4), self._keep_messages())
        replaced = view[:cut]
        if not [None for each in replaced if not is_summary(each)]:
            return None
        room = max(min(free // 3, LARGEST_SUMMARY), LEAST_ROOM)
        return Plan(replaced, len(run.state.messages) - (len(view) - cut), room, messages_tokens(replaced))

    def _keep_messages(self) -> int | None:
        """Fewer than would make it due again at once."""
        given = (self.keep_recent_messages, self.at_messages and self.at_messages // 2, self.at_turns)
        return min([each for each in given if each is not None], default=None)

    def compact_tool(self) -> Tool[..., Any]:
        """A tool by which the model itself chooses when: at the end of a piece of work, rather than in its middle."""

        @tool(name="compact_conversation", effect="idempotent", parallel=False, credentials=False)
        async def compact_conversation(context: ToolContext[Any], focus: str = "") -> str:
            """Replace the conversation so far by a summary, to make room. Do it between two pieces of work.

            Args:
                context: of the call.
                focus: What the summary must not lose.
            """
            if await self.compact(context.run, "agent", focus=focus):
                return "Done: a summary stands for the earlier part of the conversation."
            return "Nothing was changed: a summary would not have been shorter, or could not be made."

        return compact_conversation


_NUMBERS = {
    "at_tokens": 1,
    "at_messages": 4,
    "at_turns": 1,
    "keep_recent_tokens": 0,
    "keep_recent_messages": 0,
    "reserve_tokens": 0,
}
"""What is a whole number, and the least that each makes sense with."""


def _window(run: Run) -> int | None:
    """The window of the run's model, as far as it is known or was learned."""
    known = (info_of(run.model).context_tokens, _learned(run))
    return min([each for each in known if each is not None], default=None)


def _learned(run: Run) -> int | None:
    """What refusals of this model have taught, in this run or before the last summary."""
    noted = measure_of(run.state.view)
    earlier = noted.window if noted.model == info_of(run.model).name else None
    return min([each for each in (gauge_of(run).window, earlier) if each is not None], default=None)


async def _discard(work: Work) -> None:
    """Note what came to nothing, and has been paid for all the same."""
    if work.usage is not None:
        unused = Message("assistant", (Text(work.snapshot),) if work.snapshot else (), usage=work.usage)
        await work.run.emit(work.run.stamped(ReplyDiscarded(work.run.state.turns, SUMMARY, unused)))


def _measured(run: Run, summary: Message) -> Message:
    """The summary, with what has to be known of how things stood when it was made."""
    said = len(run.state.messages) + (run.state.reply is not None)
    noted = msgspec.to_builtins(Measure(said, _learned(run), info_of(run.model).name))
    return msgspec.structs.replace(summary, metadata={**summary.metadata, MEASURE: noted})


def _readable(run: Run) -> int | None:
    """How much the model of the run can read: its window, or what it has read before if that is more than is usual."""
    window = _window(run)
    if window is not None:
        return window
    told = next((each.usage for each in reversed(run.state.view) if each.usage is not None), None)
    return max(told.input_tokens, UNKNOWN_WINDOW) if told is not None and told.precision == "exact" else None


def _learn(run: Run, gauge: Gauge, error: ContextOverflow | None) -> None:
    """A request was too long: so the window is smaller than that."""
    known = (gauge.context_tokens(run), gauge.window, None if error is None else error.window_tokens)
    gauge.window = min([each for each in known if each is not None])


@contextmanager
def _in_one_go(run: Run, gauge: Gauge) -> Generator[None, None, None]:
    """While a model is being asked to sum up, nobody else does, and the log alone does not say how to go on."""
    forgettable, run.forgettable, gauge.compacting = run.forgettable, False, True
    try:
        yield
    finally:
        run.forgettable, gauge.compacting = forgettable, False
