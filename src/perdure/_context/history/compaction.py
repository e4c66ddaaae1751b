"""Compaction: when a conversation gets too long for the model, replace its start by a summary."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import Struct

from perdure._core.model.protocol import Model, Settings, model_info
from perdure._core.run.calling_run import get_run_of_call
from perdure._core.run.requests import get_model_without_limit_checks
from perdure._core.run.run import Run
from perdure._core.tools.context import ToolContext
from perdure._core.tools.tool import Tool, tool
from perdure._core.values import checks
from perdure._core.values.checks import StrictOptionsMeta
from perdure._core.values.error import ContextOverflow, StoreError
from perdure._core.values.event import Compacted, CompactionStarted, ReplyDiscarded, ViewChanged
from perdure._core.values.message import Message, Text

from .strategies import (
    DEFAULT_WINDOW_TOKENS,
    MAX_SUMMARY_TOKENS,
    MIN_SUMMARY_TOKENS,
    CompactionPlan,
    ConversationSummarizer,
    Strategy,
    SummaryMessageBuilder,
)
from .summary import build_summary_message, is_summary
from .tokens import (
    MEASUREMENTS_KEY,
    SUMMARY_ORIGIN,
    ContextTokenCounter,
    LearnedContextWindow,
    estimate_message_tokens,
    estimate_messages_tokens,
    get_token_counter,
    read_learned_window,
)


def find_first_message_without_reply(view: Sequence[Message]) -> int:
    """Return the index of the first message that the model has not replied to yet."""
    place = len(view)
    while place and view[place - 1].role not in {"assistant", "tool"} and not is_summary(view[place - 1]):
        place -= 1
    return place


def find_cut_point(view: Sequence[Message], keep_tokens: float, keep_messages: int | None) -> int:
    """Return the index of the first message that compaction keeps.

    It keeps the messages without a reply, and as many before them as fit `keep_tokens` and `keep_messages`.

    Of `keep_messages`, the first may be a result: then its call is kept too.
    """
    end = best = find_first_message_without_reply(view)
    first = 0 if keep_messages is None else max(end - keep_messages, 0)
    if first < end and view[first].role == "tool":
        first -= 1
    tokens = 0
    for place in range(end - 1, first - 1, -1):
        tokens += estimate_message_tokens(view[place])
        if tokens > keep_tokens or is_summary(view[place]):
            break
        if view[place].role != "tool":  # a result stays with its call, which is in the message before it
            best = place
    return best


FRACTION_BEFORE_TOOLS = 0.9
"""Default fraction of the limit that triggers compaction before tool calls, whose results will need room."""
MIN_GROWTH = 1.1
"""Factor by which a conversation has to grow before the next compaction, or the next attempt."""
MIN_GROWTH_AFTER_LONG_SUMMARY = 1.5
"""Growth factor after a summary that would not have been shorter."""
KEPT_TOKENS = 20_000
"""Recent tokens that stay verbatim if neither a number of tokens nor of messages is given."""
ANSWER_TOKENS = 8_192
"""Room for the reply if the settings and the model have no limit."""


class CompactionOptions(Struct, frozen=True, kw_only=True):
    """The settings for compaction that are the same in a program and in a configuration file."""

    at_fraction: float = 0.8
    """Fraction of the model's context window that triggers it, if the window is known."""
    before_tools_fraction: float = FRACTION_BEFORE_TOOLS
    """Fraction of the limit in tokens that triggers it before the tool calls of a reply."""
    at_tokens: int | None = None
    """Size of the context that triggers it, whatever the window."""
    at_messages: int | None = None
    """Number of messages that triggers it."""
    at_turns: int | None = None
    """Number of turns since the last summary, or since the start, that triggers it."""
    keep_recent_tokens: int | None = None
    """Maximum number of recent tokens that stay verbatim, if a quarter of the room is enough for them: 20,000 by
    default, or no maximum if `keep_recent_messages` is given.
    """
    keep_recent_messages: int | None = None
    """Number of recent messages that stay verbatim, if half of the room is enough for them: besides those without a
    reply, and with one more if the first would be a result without its call.
    """
    reserve_tokens: int | None = None
    """Room for the reply: by default the output limit of the settings or of the model."""
    instructions: str = ""
    """Additional instructions for summaries."""


class Compaction(CompactionOptions, frozen=True, kw_only=True, eq=False, metaclass=StrictOptionsMeta):
    """Settings of an agent for compaction: when and how the start of a conversation is replaced by a summary."""

    model: Model | None = None
    """Model that writes the summary. `None`: the model of the run."""
    strategy: Strategy | None = None
    """Function that makes the summary message: `keep_recent`, or your own. `None`: a model writes a snapshot."""

    def __post_init__(self) -> None:
        for name in ("at_fraction", "before_tools_fraction"):
            fraction = getattr(self, name)
            checks.require_number("Compaction", name, fraction, 1)
            if not fraction:
                checks.raise_config_error("Compaction", name, fraction, "give a number above 0, such as 0.8")
        for name, least in _INTEGER_FIELDS.items():
            value = getattr(self, name)
            if value is not None:
                checks.require_int("Compaction", name, value, least)
        kept, most = self.keep_recent_messages, self.at_messages
        if kept is not None and most is not None and kept + 2 > most:
            advice = f"with at_messages={most}, keep at most {most - 2}: or the next summary would be due at once"
            checks.raise_config_error("Compaction", "keep_recent_messages", kept, advice)
        if self.model is not None and not callable(getattr(self.model, "stream", None)):
            checks.raise_config_error(
                "Compaction", "model", self.model, "give a model object, or None for the model of the run"
            )
        checks.require_text("Compaction", "instructions", self.instructions)
        checks.require_callable_or_none("Compaction", "strategy", self.strategy)

    async def __call__(self, run: Run) -> None:
        """Compact the conversation if it is due. The agent loop calls this before each request, and before the tool
        calls of a reply.
        """
        if cause := self.find_cause(run):
            await self.compact(run, cause)

    def find_cause(self, run: Run) -> str:
        """Return the reason why compaction is due now, such as the size; empty if it is not due."""
        gauge, state = get_token_counter(run), run.state
        tokens = gauge.count_context_tokens(run)
        if tokens < gauge.quiet_below:
            return ""
        limit = self.limit_tokens(run)
        if state.unsettled_reply is not None:
            return "before_tools" if limit is not None and tokens >= limit * self.before_tools_fraction else ""
        if limit is not None and tokens >= limit:
            return "tokens"
        if self.at_messages is not None and len(state.view) >= self.at_messages:
            return "messages"
        return "turns" if self.at_turns is not None and state.view_turns >= self.at_turns else ""

    def limit_tokens(self, run: Run) -> int | None:
        """Return the size of the context, in tokens, that triggers compaction; `None` if no window or size is known."""
        window = _get_window(run)
        limits = [] if self.at_tokens is None else [self.at_tokens]
        if window is not None:
            limits.append(min(int(window * self.at_fraction), window - self._get_reserved_tokens(run, window)))
        return min(limits, default=None)

    def _get_reserved_tokens(self, run: Run, window: int) -> int:
        if self.reserve_tokens is not None:
            wanted = self.reserve_tokens
        elif run.options.settings.max_output_tokens is not None:
            wanted = run.options.settings.max_output_tokens
        else:
            wanted = min(
                model_info(get_model_without_limit_checks(run)).max_output_tokens or ANSWER_TOKENS, window // 4
            )
        return min(wanted, window // 2)

    async def compact(
        self, run: Run, cause: str = "manual", *, focus: str = "", error: ContextOverflow | None = None
    ) -> bool:
        """Compact the conversation now, due or not. Return True if the model is sent less from here on.

        `focus` names what this summary must include. With the cause `overflow`, messages are left out even without a
        summary; `error` has the size of the window if the model reported it.
        """
        gauge = get_token_counter(run)
        if gauge.compacting:  # the request for a summary itself was too long: `ConversationSummarizer` makes it shorter
            return False
        if cause == "overflow":
            _learn_window(run, gauge, error)
        plan = self._plan_compaction(run, gauge)
        tokens = gauge.count_context_tokens(run)
        gauge.quiet_below = int(tokens * MIN_GROWTH)
        if plan is None:
            return False
        work = self._create_summary_builder(run, plan, focus)
        with _mark_compacting(run, gauge):
            await run.emit(run.stamp_event(CompactionStarted(cause, tokens)))
            summary = await self._make_summary(work, must_help=cause == "overflow")
            if summary is None:
                gauge.quiet_below = int(tokens * (MIN_GROWTH_AFTER_LONG_SUMMARY if work.is_made else MIN_GROWTH))
                await _record_discarded_summary(work)
                return False
        after = gauge.estimate_request_tokens(run) - plan.tokens + estimate_message_tokens(summary)
        gauge.quiet_below = int(after * MIN_GROWTH)
        compacted = Compacted(_add_measurements(run, summary), plan.upto, after, work.usage)
        await run.emit(run.stamp_event(compacted), run.stamp_event(ViewChanged(SUMMARY_ORIGIN)), sync=True)
        return True

    def _create_summary_builder(self, run: Run, plan: CompactionPlan, focus: str) -> SummaryMessageBuilder:
        instructions = "\n".join([each for each in (self.instructions, focus) if each])
        if self.model is None:
            return SummaryMessageBuilder(
                run,
                plan,
                ConversationSummarizer(
                    get_model_without_limit_checks(run), _get_readable_tokens(run), run.options.settings, instructions
                ),
            )
        return SummaryMessageBuilder(
            run,
            plan,
            ConversationSummarizer(self.model, model_info(self.model).context_tokens, Settings(), instructions),
        )

    async def _make_summary(self, work: SummaryMessageBuilder, *, must_help: bool) -> Message | None:
        """Return the message that replaces the planned ones; None if making it failed, or it would not be shorter."""
        plan = work.plan
        summary: Message | None = None
        try:
            summary = await (
                work.build_with_model() if self.strategy is None else work.build_with_strategy(self.strategy)
            )
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - a failed summary must not end the run
            work.run.report_error(error, SUMMARY_ORIGIN)
        work.is_made = summary is not None
        if summary is not None and estimate_message_tokens(summary) < plan.tokens:
            return summary
        if not must_help:
            return None
        marker = build_summary_message(work.run, plan.replaced, plan.upto, plan.room, None)
        return marker if estimate_message_tokens(marker) < plan.tokens else None

    def _plan_compaction(self, run: Run, gauge: ContextTokenCounter) -> CompactionPlan | None:
        """Return the plan of which messages to replace now; None if there is only an earlier summary to replace."""
        view = run.state.view
        everything, tokens = gauge.estimate_request_tokens(run), gauge.count_context_tokens(run)
        limit = self.limit_tokens(run)
        most = everything if limit is None else min(limit, tokens) * everything // max(tokens, 1)  # as we estimate
        fixed = everything - estimate_messages_tokens(view[: find_first_message_without_reply(view)])
        free = max(most - fixed, 0)
        whole = None if limit is None else max(limit * everything // max(tokens, 1) - fixed, 0)
        cut = find_cut_point(view, self._get_max_kept_tokens(free, whole), self._get_max_kept_messages())
        replaced = view[:cut]
        if not [None for each in replaced if not is_summary(each)]:
            return None
        room = max(min(free // 3, MAX_SUMMARY_TOKENS), MIN_SUMMARY_TOKENS)
        return CompactionPlan(
            replaced, len(run.state.messages) - (len(view) - cut), room, estimate_messages_tokens(replaced)
        )

    def _get_max_kept_tokens(self, free: int, whole: int | None) -> float:
        """Return the maximum number of tokens to keep.

        `free` tokens of the conversation can be kept or summarized now; there is room for `whole`, if that is known.
        """
        if self.keep_recent_messages is None:
            wanted = KEPT_TOKENS if self.keep_recent_tokens is None else self.keep_recent_tokens
            return min(wanted, free // 4)
        room = float("inf") if whole is None else whole // 2
        return room if self.keep_recent_tokens is None else min(self.keep_recent_tokens, room)

    def _get_max_kept_messages(self) -> int | None:
        """Return the number of messages to keep: as given, or fewer than would trigger the next compaction at once."""
        if self.keep_recent_messages is not None:
            return self.keep_recent_messages
        given = (self.at_messages and self.at_messages // 2, self.at_turns)
        return min([each for each in given if each is not None], default=None)

    def build_compact_tool(self) -> Tool[..., Any]:
        """Return a tool with which the model itself decides when to compact the conversation, such as between two
        tasks.
        """

        @tool(name="compact_conversation", effect="idempotent", parallel=False, credentials=False)
        async def compact_conversation(context: ToolContext[Any], focus: str = "") -> str:
            """Replace the conversation so far by a summary, to make room. Do it between two pieces of work.

            Args:
                context: of the call.
                focus: What the summary must not lose.
            """
            if await self.compact(get_run_of_call(context), "agent", focus=focus):
                return "Done: a summary stands for the earlier part of the conversation."
            return "Nothing was changed: a summary would not have been shorter, or could not be made."

        return compact_conversation


_INTEGER_FIELDS = {
    "at_tokens": 1,
    "at_messages": 4,
    "at_turns": 1,
    "keep_recent_tokens": 0,
    "keep_recent_messages": 0,
    "reserve_tokens": 0,
}
"""Integer fields and the minimum of each."""


def _get_window(run: Run) -> int | None:
    """Return the context window of the run's model, as known or learned; None if it is unknown."""
    known = (model_info(get_model_without_limit_checks(run)).context_tokens, _get_learned_window(run))
    return min([each for each in known if each is not None], default=None)


def _get_learned_window(run: Run) -> int | None:
    """Return the context window learned from requests that this model refused as too long; None if there is none."""
    noted = read_learned_window(run.state.view)
    earlier = noted.window if noted.model == model_info(get_model_without_limit_checks(run)).name else None
    return min([each for each in (get_token_counter(run).window, earlier) if each is not None], default=None)


async def _record_discarded_summary(work: SummaryMessageBuilder) -> None:
    """Record the usage of a summary that was not used."""
    if work.usage is not None:
        unused = Message("assistant", (Text(work.snapshot),) if work.snapshot else (), usage=work.usage)
        await work.run.emit(work.run.stamp_event(ReplyDiscarded(work.run.state.turns, SUMMARY_ORIGIN, unused)))


def _add_measurements(run: Run, summary: Message) -> Message:
    """Add the measurements of this moment to the summary's metadata."""
    said = len(run.state.messages) + (run.state.unsettled_reply is not None)
    noted = msgspec.to_builtins(
        LearnedContextWindow(said, _get_learned_window(run), model_info(get_model_without_limit_checks(run)).name)
    )
    return msgspec.structs.replace(summary, metadata={**summary.metadata, MEASUREMENTS_KEY: noted})


def _get_readable_tokens(run: Run) -> int | None:
    """Return how many tokens the run's model can read: its window, or the size of its last request if that is
    larger.
    """
    window = _get_window(run)
    if window is not None:
        return window
    told = next((each.usage for each in reversed(run.state.view) if each.usage is not None), None)
    return max(told.input_tokens, DEFAULT_WINDOW_TOKENS) if told is not None and told.precision == "exact" else None


def _learn_window(run: Run, gauge: ContextTokenCounter, error: ContextOverflow | None) -> None:
    """Lower the known context window, because a request of this size was refused as too long."""
    known = (gauge.count_context_tokens(run), gauge.window, None if error is None else error.window_tokens)
    gauge.window = min([each for each in known if each is not None])


@contextmanager
def _mark_compacting(run: Run, gauge: ContextTokenCounter) -> Generator[None, None, None]:
    """Mark a compaction as in progress, so that no other one starts and the run stays in memory."""
    forgettable, run.simulates_crashes, gauge.compacting = run.simulates_crashes, False, True
    try:
        yield
    finally:
        run.simulates_crashes, gauge.compacting = forgettable, False
