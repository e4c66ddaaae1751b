"""The state of a session, computed from the events of its log.

The same fold builds the state of a running session, event by event, and of one that is read from its log, so the two
cannot differ. It depends on nothing but the events: no clock, no randomness, no I/O. Events about people are applied by
`fold_people`.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from perdure._core.model.transcript import MessagesSnapshot, Transcript
from perdure._core.values.engine_event import AnswerReviewed, LimitReached, PlanMade
from perdure._core.values.event import (
    Compacted,
    EntriesLost,
    Entry,
    GrantRevoked,
    InboxAdded,
    MessageAdded,
    ModelReplied,
    ModelRequested,
    PermissionDecided,
    ReplyDiscarded,
    RunEnded,
    RunResumed,
    RunStarted,
    RunWaiting,
    SessionConfigured,
    SessionImported,
    SkillLoaded,
    SubagentFinished,
    SubagentStarted,
    ToolFinished,
    ToolStarted,
    ValueKept,
    ViewChanged,
)
from perdure._core.values.event_class import (
    Event,
    QuestionAnswered,
    QuestionAsked,
    SlotOpened,
)
from perdure._core.values.message import (
    NO_USAGE,
    SENT_ORIGINS,
    Message,
    ToolCall,
    ToolResult,
    Usage,
    merge_exact_usages,
    merge_labels,
)
from perdure._core.values.provenance import list_kept_labels, list_message_labels, list_message_sources

from .fold_people import CHANGES_BY_PEOPLE, close_slots, remove_questions
from .past_runs import (
    CRASH_REASONS,
    PastRunTotals,
    RunWithInputId,
    add_run_cost,
    estimate_usage,
    find_usage_beside,
)
from .status import mark_lost_entries

if TYPE_CHECKING:
    from perdure._core.model.protocol import Price

_MAX_SOURCES = 20
"""Number of sources that are remembered for each label."""
FOR_AGENT = "for"
"""Key in the changes of a session: the agent that they are for, unless it is the agent the session began with."""


class State:
    """The current state of a session, computed from the events of its log."""

    __slots__ = (
        "_children_usage",
        "_past",
        "_pending_usage",
        "_reported_usage",
        "_usage",
        "answers_by_question",
        "aside_requests",
        "attempts",
        "call_ids",
        "child_paths_by_call",
        "children",
        "children_usd",
        "decisions",
        "direct_results",
        "engine_steps",
        "first_message_index",
        "first_run_id",
        "has_lost_entries",
        "imports",
        "inbox",
        "is_waiting",
        "kept_values",
        "labels",
        "last_request",
        "latest_result",
        "latest_results",
        "may_have_lost_runs",
        "open_calls",
        "open_children",
        "parent",
        "path",
        "price_usd",
        "questions_by_id",
        "reached_limit",
        "recoveries",
        "remembered_decisions",
        "results",
        "run",
        "run_ended_event",
        "runs_by_input_id",
        "settings",
        "settings_by_agent",
        "skills",
        "slots",
        "started_calls",
        "subagents",
        "tool_calls",
        "transcript",
        "turns",
        "unanswered_request",
        "unsettled_reply",
        "view_changed",
        "view_turns",
    )

    def __init__(self, path: str = "", parent: "State | None" = None) -> None:  # noqa: PLR0915 - a line for each field
        self.path = path
        """Path of the agent: empty for the session's own agent, else the path of a child."""
        self.parent = parent
        """For a child: the state of the agent that gave it its task."""
        self.children: dict[str, State] = {} if parent is None else parent.children
        """States of all agents below the session's own, by path."""
        self.open_children: dict[str, State] = {}
        """States of children with a run that has not ended, working for this agent, by path."""
        self.child_paths_by_call: dict[str, str] = {}
        """Calls that child agents carry out, or have carried out, and that have no result yet: path by call id."""
        self.transcript = Transcript()
        """The conversation, and the part of it that the model is sent."""
        self.call_ids: set[str] = set() if parent is None else parent.call_ids
        """All call ids used so far, by any agent."""
        self.first_run_id: str = "" if parent is None else parent.first_run_id
        """Id of the first run in the log, which tells a session from a later one of the same id."""
        self.run: RunStarted | None = None
        """The current run, or the last one. "That run" below."""
        self.run_ended_event: RunEnded | None = None
        """The event that ended that run; `None` while it has not ended."""
        self.first_message_index = 0
        """Index of that run's first message in the transcript."""
        self.turns = 0
        """Number of turns of that run."""
        self.attempts = 0
        """Number of requests sent for the turn that has no reply yet."""
        self.tool_calls = 0
        """Number of calls started in that run."""
        self.view_turns = 0
        """Number of turns since the model was last sent a summary, or since the beginning."""
        self.view_changed = False
        """True if, since the last request, an event announced that the next one begins differently."""
        self.last_request: ModelRequested | None = None
        """The last request of the session."""
        self.unanswered_request: ModelRequested | None = None
        """The request of that run whose reply was neither stored nor discarded yet, and that no estimate counts."""
        self.aside_requests: dict[int, ModelRequested] = {}
        """Requests beside the conversation whose reply was neither stored nor discarded yet, by turn."""
        self._past, self._pending_usage = PastRunTotals(), list[Usage]()
        self._usage = self._children_usage = self._reported_usage = NO_USAGE  # reported: with a cost of the provider
        self.children_usd = 0.0
        """Cost of the finished children of that run."""
        self.price_usd: tuple[float | None, ...] = ()
        """Price of the model of that run's last request, as `Price.to_tuple` returns it; empty if it is not known."""
        self.unsettled_reply: Message | None = None
        """The reply whose calls do not all have results yet."""
        self.open_calls: dict[str, ToolCall] = {}
        """All calls of that reply, in order."""
        self.results: dict[str, ToolResult] = {}
        """Results received for those calls."""
        self.started_calls: dict[str, ToolStarted] = {}
        """Calls that have an intent and no result."""
        self.subagents: dict[str, SubagentStarted] = {}
        """Unfinished tasks of other agents, by call id."""
        self.latest_result: ToolResult | None = None
        """The most recent tool result."""
        self.latest_results: tuple[ToolResult, ...] = ()
        """Results of the last reply whose calls were all settled."""
        self.direct_results: dict[str, ToolResult] = {}
        """Results of that run's calls that no reply asked for: its engine, or the caller, made them."""
        self.decisions: dict[str, PermissionDecided] = {}
        """Permission decisions about those calls."""
        self.remembered_decisions: list[PermissionDecided | GrantRevoked]
        self.remembered_decisions = [] if parent is None else parent.remembered_decisions
        """Permissions granted for longer than one call, and their revocations, by any agent."""
        self.questions_by_id: dict[str, QuestionAsked] = {} if parent is None else parent.questions_by_id
        """Questions of that run and of its children, by id."""
        self.answers_by_question: dict[str, QuestionAnswered] = {} if parent is None else parent.answers_by_question
        """Answers to those questions, by question id."""
        self.slots: dict[str, SlotOpened] = {} if parent is None else parent.slots
        """Display slots that are open without waiting for an answer, of any agent."""
        self.is_waiting = False
        """True if that run cannot continue before a question is answered."""
        self.recoveries = 0
        """Number of times that run was resumed since it last made progress."""
        self.has_lost_entries = False
        """True if entries of that run were lost to damage: its calls may have begun, and its reply may be missing."""
        self.may_have_lost_runs = False
        """True if whole runs may have been lost to damage, with the ids of their inputs."""
        self.engine_steps: list[PlanMade | AnswerReviewed] = []
        """Plans that the engine of that run has made, and reviews of its answers."""
        self.reached_limit = ""
        """Name of the limit that keeps that run from continuing; empty if there is none."""
        self.inbox: dict[str, InboxAdded] = {}
        """Inbox items that this agent waits for."""
        self.runs_by_input_id: dict[str, RunWithInputId] = {}
        """Runs whose input has an id, by that id."""
        self.kept_values: dict[str, Any] = {}
        """Values that tools stored in the log, by name."""
        self.skills: dict[str, SkillLoaded] = {}
        """Skills that were loaded into the conversation."""
        self.settings: dict[str, Any] = {}
        """Settings changed for this session only."""
        self.settings_by_agent: dict[str, dict[str, Any]] = {}
        """Settings changed for agents that took over the conversation, by agent name."""
        self.labels: dict[str, tuple[str, ...]] = {}
        """Labels of what the agent has seen, with the sources of the text. None is removed: replies follow from it."""
        self.imports: list[SessionImported] = []
        """Imports from which the log began."""

    @property
    def messages(self) -> MessagesSnapshot:
        """All messages of the conversation. Valid at any time: tool calls are added only with their results."""
        return MessagesSnapshot(self.transcript.messages)

    @property
    def view(self) -> MessagesSnapshot:
        """The messages that the model is sent: with summaries and short results in place of older ones."""
        return MessagesSnapshot(self.transcript.sent_messages)

    @property
    def own_usage(self) -> Usage:
        """Tokens used by this run, without those of subagents."""
        for each in merge_exact_usages(self._pending_usage):
            self._usage = each if self._usage is NO_USAGE else self._usage + each
            if each.reported_usd is not None:
                self._reported_usage += each
        self._pending_usage.clear()
        return self._usage

    def own_cost_usd(self, price: "Price | None") -> float | None:
        """Return the cost of this run without subagents: as reported, and by the price where nothing was reported.

        `None` if there is no price for what was not reported.
        """
        own, reported = self.own_usage, self._reported_usage
        if own.reported_usd is not None:
            return own.reported_usd
        if price is None:
            return None
        if reported.reported_usd is None:
            return price.cost_usd(own)
        return reported.reported_usd + price.cost_usd(own.minus(reported))

    @property
    def usage(self) -> Usage:
        """Tokens used by this run and its subagents."""
        return self.own_usage if self._children_usage is NO_USAGE else self.own_usage + self._children_usage

    @property
    def past(self) -> PastRunTotals:
        """Tokens, turns and cost of all runs before that one, and of summaries between runs."""
        return self._past

    @property
    def total_usage(self) -> Usage:
        """Tokens used by all runs of the session, with their subagents, and by summaries between runs."""
        return self.usage if self.past.usage is NO_USAGE else self.past.usage + self.usage

    @property
    def total_turns(self) -> int:
        """Number of turns of all runs of the session."""
        return self.past.turns + self.turns

    @property
    def total_usd(self) -> float | None:
        """Cost of all runs of the session, also of one that is not over; `None` if the price of one is not known."""
        if (past_usd := self.past.cost_usd) is None or not self.is_interrupted:
            return add_run_cost(past_usd, self.run_ended_event)
        from .past_runs import find_cost_usd  # at first use: mostly, the cost is asked for when a run has ended

        last_usd = find_cost_usd(self)
        return None if last_usd is None else past_usd + last_usd

    @property
    def unanswered_usage(self) -> Usage:
        """Estimated input tokens of the requests without a reply, of this run and of its subagents in progress."""
        below = [child.unanswered_usage for child in self.open_children.values()] if self.open_children else []
        return sum(below, self.own_unanswered_usage)

    @property
    def own_unanswered_usage(self) -> Usage:
        """Estimated input tokens of the requests of this run, without subagents, that have no reply."""
        return sum([estimate_usage(each) for each in self.unanswered_requests], NO_USAGE)

    @property
    def unanswered_requests(self) -> list[ModelRequested]:
        """Model requests of the current run whose reply was neither stored nor discarded yet."""
        own = [] if self.unanswered_request is None else [self.unanswered_request]
        return [*own, *self.aside_requests.values()] if self.aside_requests else own

    @property
    def answer(self) -> Message | None:
        """The last reply of the run, if it has no tool calls and no message followed it; else `None`."""
        messages = self.transcript.messages
        last = messages[-1] if len(messages) > self.first_message_index else None
        return last if last is not None and last.role == "assistant" and last.origin not in SENT_ORIGINS else None

    @property
    def last_reply(self) -> Message | None:
        """The last reply of the run, if only the results of its tool calls followed it; else `None`."""
        if self.unsettled_reply is not None or self.attempts:
            return self.unsettled_reply
        messages = self.transcript.messages
        if len(messages) > self.first_message_index + 1 and messages[-1].role == "tool":
            return messages[-2]
        return self.answer

    @property
    def is_steered(self) -> bool:
        """True if the last message to the model is steering (sent during the run) and has no reply yet."""
        messages = self.transcript.messages
        return bool(messages) and messages[-1].origin == "steering"

    @property
    def open_questions(self) -> list[QuestionAsked]:
        """Questions without an answer."""
        return [each for ask_id, each in self.questions_by_id.items() if ask_id not in self.answers_by_question]

    @property
    def is_interrupted(self) -> bool:
        """True if a run was started and has not ended."""
        return self.run is not None and self.run_ended_event is None

    @property
    def is_private(self) -> bool:
        """True if that run is a private run of the engine above, whose turns and calls count for the run there."""
        return self.run is not None and self.run.private

    @property
    def is_parked(self) -> bool:
        """True if the last run was parked: it was ended because it made no progress after several resumes."""
        return self.run_ended_event is not None and self.run_ended_event.status == "parked"

    @property
    def unsettled_calls(self) -> list[ToolCall]:
        """Tool calls of the last reply that have no result yet."""
        if not self.results:
            return list(self.open_calls.values())
        return [call for call_id, call in self.open_calls.items() if call_id not in self.results]

    @property
    def begun_call_ids(self) -> frozenset[str]:
        """Ids of the tool calls that have begun and have no result, including those carried out by subagents."""
        if not (self.started_calls or self.subagents or self.child_paths_by_call):
            return frozenset()  # before each batch of calls, unless the run was resumed
        return frozenset([*self.started_calls, *self.subagents, *self.child_paths_by_call])

    def find_started_effect(self, call_id: str) -> str:
        """Return the effect class of a tool call that has begun and has no result; empty if it is not known."""
        started = self.started_calls.get(call_id)
        return "" if started is None else started.effect

    @property
    def session_inbox(self) -> dict[str, InboxAdded]:
        """Pending inbox items of all agents of the session, by item id."""
        return {item_id: item for state in self._all_agents() for item_id, item in state.inbox.items()}

    def receives_inbox_result(self, item_id: str) -> bool:
        """Return True if the result of an inbox item is for this agent.

        It is for the agent that added the item, or, if that one has no run in progress, for the nearest agent above it
        that has; at the top, for the session's own agent.
        """
        owner = self.find_inbox_owner(item_id)
        while owner is not None and owner.parent is not None and not owner.is_interrupted:
            owner = owner.parent
        return self.parent is None if owner is None else owner is self

    def find_inbox_owner(self, item_id: str) -> "State | None":
        """Return the state of the agent that waits for an inbox item; `None` if no agent of the session does."""
        return next((state for state in self._all_agents() if item_id in state.inbox), None)

    def _all_agents(self) -> "Iterator[State]":
        """Yield the states of all agents of the session, its own first."""
        top = self
        while top.parent is not None:
            top = top.parent
        yield top
        yield from top.children.values()

    def apply(self, event: Event) -> None:
        """Update the state with the next event of the log."""
        if (change := _CHANGES.get(type(event))) is not None:
            change(self if event.path == self.path else self.get_child(event.path), event)

    def apply_all(self, events: Iterable[Event]) -> None:
        """Update the state with the next events of the log, as `apply` does with each."""
        path, find_change = self.path, _CHANGES.get
        for event in events:
            if (change := find_change(type(event))) is not None:
                change(self if event.path == path else self.get_child(event.path), event)

    def get_child(self, path: str) -> "State":
        """Return the state of the subagent at this path; create it if there is none."""
        if (state := self.children.get(path)) is None:
            parent = self if (above := path.rpartition("/")[0]) == self.path else self.get_child(above)
            state = self.children[path] = State(path, parent)
        return state

    def apply_run_started(self, event: RunStarted) -> None:
        """Reset the per-run fields for a new run, after adding those of the run before to the totals."""
        if self.run is not None:
            self._past = self._past.with_run(self.usage, self.turns, self.run_ended_event)
        else:
            self._pending_usage.clear()  # tokens of what came before the first run count for none
        self.first_run_id = self.first_run_id or event.run_id
        self.run, self.run_ended_event, self.is_waiting, self.reached_limit = event, None, False, ""
        self.first_message_index = len(self.transcript.messages)
        self._usage = self._reported_usage = self._children_usage = NO_USAGE
        self.children_usd, self.price_usd = 0.0, ()
        self.turns = self.attempts = self.tool_calls = self.recoveries = 0
        self.unanswered_request = None
        self.has_lost_entries = False
        if self.aside_requests:
            self.aside_requests.clear()
        if self.direct_results:
            self.direct_results.clear()
        self.engine_steps = []
        if event.input_id:
            self.runs_by_input_id[event.input_id] = RunWithInputId(event.run_id, self.first_message_index)
        if self.parent is not None:
            self.parent.open_children[self.path] = self
            if event.input_id and not event.private:
                self.parent.child_paths_by_call[event.input_id] = self.path

    def apply_run_ended(self, event: RunEnded) -> None:
        """Mark the run as ended, and remove its questions and display slots."""
        if event.reason in CRASH_REASONS:
            self._count_unanswered_requests()
        self.unanswered_request = None
        if self.aside_requests:
            self.aside_requests.clear()
        self.run_ended_event, self.is_waiting = event, False
        if self.questions_by_id:
            remove_questions(self)
        if self.slots:
            close_slots(self, "run", event.run_id)
        if self.parent is not None:
            if event.usage.total_tokens > self.usage.total_tokens:
                self._add_usage_to_parents(find_usage_beside(event.usage, self.usage))
            self.parent.children_usd += event.cost_usd or 0.0
            self.parent.open_children.pop(self.path, None)
        if self.run is not None and self.run.input_id:
            past = RunWithInputId(event.run_id, self.first_message_index, len(self.transcript.messages), event)
            self.runs_by_input_id[self.run.input_id] = past

    def _add_usage(self, usage: Usage) -> None:
        """Add tokens to this run and to all its parent runs."""
        self._pending_usage.append(usage)
        self._add_usage_to_parents(usage)

    def _add_usage_to_parents(self, usage: Usage) -> None:
        above = self.parent
        while above is not None:
            above._children_usage += usage  # noqa: SLF001 - same class
            above = above.parent

    def reset_recoveries(self) -> None:
        """Reset the count of resumes, here and in all parent runs: a run that makes progress is in no crash loop."""
        self.recoveries = 0
        if self.parent is not None:
            self.parent.reset_recoveries()

    def apply_run_waiting(self, _event: RunWaiting) -> None:
        """Mark the run as waiting for an answer, which counts as progress."""
        self.is_waiting = True
        self.reset_recoveries()

    def apply_run_resumed(self, _event: RunResumed) -> None:
        """Mark the run as resumed, and count the recovery; a parked run is open again."""
        if self.run is not None and self.is_parked:
            self.run_ended_event, self.recoveries = None, 0
            if self.run.input_id:
                self.runs_by_input_id[self.run.input_id] = RunWithInputId(self.run.run_id, self.first_message_index)
        self._count_unanswered_requests()
        self.is_waiting = False
        self.recoveries += 1

    def apply_entries_lost(self, event: EntriesLost) -> None:
        """Record that log entries are missing at this point, so that the open runs and their calls are uncertain."""
        for state in (self, *self.children.values()):
            state.has_lost_entries |= state.is_interrupted or bool(state.open_calls)
        if not event.run_id:
            self.may_have_lost_runs = True

    def _count_unanswered_requests(self) -> None:
        """Count the estimated tokens of requests that a crash left without a reply: they may be billed."""
        for request in self.unanswered_requests:
            if request.estimated_tokens:
                self._add_usage(estimate_usage(request))
        self.unanswered_request = None
        self.aside_requests.clear()

    def apply_engine_step(self, event: PlanMade | AnswerReviewed) -> None:
        """Add a plan, or a review of an answer."""
        self.engine_steps.append(event)

    def apply_limit_reached(self, event: LimitReached) -> None:
        """Record the limit because of which the run cannot continue."""
        self.reached_limit = event.limit

    def apply_value_kept(self, event: ValueKept) -> None:
        """Store a tool's value under its name."""
        self.kept_values[event.name] = event.value
        self._add_labels(*list_kept_labels(event))

    def apply_skill_loaded(self, event: SkillLoaded) -> None:
        """Record that a skill's text is part of the conversation."""
        self.skills[event.name] = event

    def apply_session_configured(self, event: SessionConfigured) -> None:
        """Merge changed settings of the session, or of the one agent that they apply to."""
        whose = event.changes.get(FOR_AGENT)
        told = self.settings_by_agent.setdefault(str(whose), {}) if whose else self.settings
        told.update({name: value for name, value in event.changes.items() if name != FOR_AGENT})

    def apply_session_imported(self, event: SessionImported) -> None:
        """Record that the session was imported."""
        self.imports.append(event)

    def apply_compacted(self, event: Compacted) -> None:
        """Replace the first messages that the model is sent by a summary, which has their labels."""
        self.view_turns = 0
        summary = event.summary
        self._add_labels(summary.labels, list_message_sources(summary))
        if self.labels:
            replaced = [list_message_labels(each) for each in self.transcript.messages[: event.upto]]
            summary = replace(summary, labels=merge_labels(summary.labels, *replaced))
        self.transcript.compact(summary, event.upto)
        if event.usage is not None:
            self._add_usage(event.usage)

    def apply_view_changed(self, event: ViewChanged) -> None:
        """Record that the next request will begin differently; shorten older results if the event says so."""
        self.view_changed = True
        if event.upto:
            self.transcript.shorten(event.upto)

    def apply_model_requested(self, event: ModelRequested) -> None:
        """Count a new turn, or another attempt at it. A request aside from the conversation counts as a turn too."""
        if event.turn > self.turns:  # an attempt may be older than a request aside
            self.turns = event.turn
            if self.parent is not None and self.is_private:
                self.parent.turns += 1
        self.price_usd = event.price_usd
        if event.labels:
            self._add_labels(event.labels, event.label_sources)
        if event.aside:
            self.aside_requests[event.turn] = event
            return
        self.attempts = event.attempt
        self.last_request = self.unanswered_request = event
        self.view_changed = False
        if event.attempt == 1:
            self.view_turns += 1

    def apply_message_added(self, event: MessageAdded) -> None:
        """Append a message to the transcript; hold back a reply with tool calls until all have their results."""
        message = event.message
        self.recoveries = 0
        if self.parent is not None:
            self.reset_recoveries()
        if message.labels:
            self._add_labels(message.labels, list_message_sources(message))
        if message.role != "assistant":
            self.transcript.add(message)
            return
        self.attempts = 0
        self.unanswered_request = None
        if message.usage is not None:
            self._pending_usage.append(message.usage)
            if self.parent is not None:
                self._add_usage_to_parents(message.usage)
        calls = self.open_calls
        for part in message.parts:
            if type(part) is ToolCall:
                calls[part.call_id] = part
                self.call_ids.add(part.call_id)
        if calls:
            self.unsettled_reply = message
        else:
            self.transcript.add(message)

    def apply_reply_discarded(self, event: ReplyDiscarded) -> None:
        """Count the tokens of a discarded reply."""
        if event.aside:
            self.aside_requests.pop(event.turn, None)
        else:
            self.unanswered_request = None
        if event.partial is not None:
            self._add_reply_aside(event.partial)

    def apply_model_replied(self, event: ModelReplied) -> None:
        """Count the tokens of a reply that is not part of the conversation."""
        self.aside_requests.pop(event.turn, None)
        self.reset_recoveries()
        self._add_reply_aside(event.message)

    def _add_reply_aside(self, reply: Message) -> None:
        """Count the tokens of a reply beside the conversation; keep its labels, as engines and tools may pass it on."""
        if reply.usage is not None:
            self._add_usage(reply.usage)
        self._add_labels(reply.labels, list_message_sources(reply))

    def apply_tool_started(self, event: ToolStarted) -> None:
        """Record that a tool call is about to run, and count it if it is the first attempt."""
        self.started_calls[event.call_id] = event
        if event.attempt == 1:
            self._count_tool_call()

    def apply_subagent_started(self, event: SubagentStarted) -> None:
        """Record a subagent's task. It counts as a tool call."""
        self.subagents[event.call_id] = event
        self._count_tool_call()

    def _count_tool_call(self) -> None:
        """Count a tool call of this run, and of the run above it if this one is private."""
        self.tool_calls += 1
        if self.parent is not None and self.is_private:
            self.parent.tool_calls += 1

    def apply_subagent_finished(self, event: SubagentFinished) -> None:
        """Remove the finished task; add its tokens and cost if the subagent worked in a separate session."""
        self.subagents.pop(event.call_id, None)
        if event.usage is not None:
            self._children_usage += event.usage
            self._add_usage_to_parents(event.usage)
            self.children_usd += event.cost_usd or 0.0

    def apply_tool_finished(self, event: ToolFinished) -> None:
        """Store the result of a tool call; the last one adds the reply and all results to the transcript."""
        call_id, result, calls = event.call_id, event.result, self.open_calls
        self.recoveries = 0
        if self.parent is not None:
            self.reset_recoveries()
        self.started_calls.pop(call_id, None)
        if self.child_paths_by_call:
            self.child_paths_by_call.pop(call_id, None)
        if self.decisions:
            self.decisions.pop(call_id, None)
        self.latest_result = result
        if self.slots:
            close_slots(self, "call", call_id)
        reply = self.unsettled_reply
        if reply is None or call_id not in calls:
            self.direct_results[call_id] = result
            if result.labels:  # an engine, a program or a host has it, and may pass it on in any form
                self._add_labels(result.labels, (f"tool:{result.name}",))
            return
        if len(calls) == 1:  # nearly always
            self.latest_results = (result,)
        else:
            self.results[call_id] = result
            if len(self.results) < len(calls):
                return
            self.latest_results = tuple(map(self.results.__getitem__, calls))
            self.results.clear()
        self.transcript.add_reply_with_results(reply, Message("tool", self.latest_results))
        self.unsettled_reply = None
        calls.clear()
        for each in self.latest_results:
            if each.labels:
                self._add_labels(each.labels, (f"tool:{each.name}",))

    def _add_labels(self, labels: Iterable[str], sources: Iterable[str]) -> None:
        """Record labels of text that the model has now seen, and the sources of that text."""
        for label in labels:
            self.labels[label] = merge_labels(self.labels.get(label, ()), sources)[:_MAX_SOURCES]
        if self.parent is not None and self.is_private:
            self.parent._add_labels(labels, sources)  # noqa: SLF001 - same class


_CHANGES: dict[type[Event], Callable[[State, Any], None]] = {
    RunStarted: State.apply_run_started,
    RunEnded: State.apply_run_ended,
    RunWaiting: State.apply_run_waiting,
    RunResumed: State.apply_run_resumed,
    ModelRequested: State.apply_model_requested,
    MessageAdded: State.apply_message_added,
    ToolStarted: State.apply_tool_started,
    ToolFinished: State.apply_tool_finished,
    ReplyDiscarded: State.apply_reply_discarded,
    ModelReplied: State.apply_model_replied,
    EntriesLost: State.apply_entries_lost,
    LimitReached: State.apply_limit_reached,
    ValueKept: State.apply_value_kept,
    SkillLoaded: State.apply_skill_loaded,
    SessionConfigured: State.apply_session_configured,
    SessionImported: State.apply_session_imported,
    Compacted: State.apply_compacted,
    ViewChanged: State.apply_view_changed,
    SubagentStarted: State.apply_subagent_started,
    SubagentFinished: State.apply_subagent_finished,
    PlanMade: State.apply_engine_step,
    AnswerReviewed: State.apply_engine_step,
    **CHANGES_BY_PEOPLE,
}


def fold_entries(entries: Iterable[Entry]) -> State:
    """Return the session state that results from the entries of a log, also if some were lost to damage."""
    return fold_events(mark_lost_entries(list(entries)))


def fold_events(events: Iterable[Event]) -> State:
    """Return the session state that results from the events of a log."""
    state = State()
    state.apply_all(events)
    return state
