"""The inputs of a run: its options, the settings from its agent, and its session with log, watchers and mailbox."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic

from msgspec import Struct, field

from .clock_and_ids import SYSTEM_CLOCK, Clock
from .model import Model, OutputSpec, Settings
from .prompt_cache_misses import PrefixComparer
from .run_function_types import (
    BetweenTurns,
    CompactFunction,
    DecisionSealer,
    HistoryProcessor,
    OutputValidator,
    PrivateRunBuilder,
    Reminder,
    ToolCaller,
    ToolSelector,
    TurnWrapper,
)
from .run_mailbox import DrainMode, Mailbox
from .secret_redaction import RelatedRunsRedaction
from .shared_budget import Budget
from .stop_conditions import Guardrail, Limits, StopCondition
from .store import Log
from .tool import D, Tool
from .toolbox import Toolbox
from .watch import Fanout

if TYPE_CHECKING:
    from .permission_gate import Gate
    from .run import Run

_NO_DEPS: Any = None  # typed Any, because `Agent[Ship](…)` may be given its deps for each run instead


class RunOptions(Struct, Generic[D], kw_only=True, eq=False, dict=True):
    """Options of an agent that apply to each of its runs: name, limits, model settings, message delivery, clock."""

    name: str = "agent"
    """The agent's name, in events, in logs and as a tool, in which `_` replaces what a tool's name cannot have. One
    line, without slashes."""
    limits: Limits = Limits()
    """Upper limits of a run: turns, tokens, money, time, tools."""
    settings: Settings = Settings()
    """Settings of the model: temperature, maximum tokens, reasoning effort, …"""
    history_processor: HistoryProcessor | None = None
    """Transforms the messages that the model is sent; the transcript stays as it is."""
    deps: D = _NO_DEPS
    """Passed to tools as `ToolContext.deps`. A run may be given another value of the same type; dicts are merged."""
    steering_mode: DrainMode = "one"
    """Delivery of queued steering messages: one for each turn, or all at once."""
    follow_up_mode: DrainMode = "one"
    """Delivery of queued follow-up messages: one for each turn, or all at once."""
    answer_timeout_seconds: float = 0.0
    """Seconds a run waits for an answer from another process before it ends as `waiting`."""
    interactive: bool = True
    """False for runs without a person who can answer questions."""
    clock: Clock = SYSTEM_CLOCK
    """The source of time, such as `perdure.testing.FakeClock()` in tests."""


class RunSpec(Struct, frozen=True, kw_only=True, eq=False):
    """The settings of a run: those of its agent, extensions and session, and the overrides for this run, combined."""

    options: RunOptions[Any]
    _model: Model
    """The model with all its wrappers, past the limits of the run: engines and tools get `Run.model`."""
    toolbox: Toolbox
    seal_decision: "DecisionSealer"
    """Seals the approvals that a store keeps."""
    instructions: str = ""
    """The system prompt."""
    gate: "Gate | None" = None
    project: str = ""
    """The root of the agent's project, which approvals are bound to; empty for the working folder of the process."""
    project_labels: Sequence[str] = ()
    """Labels of the instructions in the files of the project."""
    stop: StopCondition | None = None
    guardrails: Sequence[Guardrail] = ()
    output_validators: Sequence[OutputValidator] = ()
    output_spec: OutputSpec | None = None
    """The schema of the reply, for a provider that can enforce it."""
    between_turns: Sequence[BetweenTurns] = ()
    reminders: Sequence[Reminder] = ()
    compaction: CompactFunction | None = None
    around_turn: TurnWrapper | None = None
    """Middleware around each turn of the model."""
    wrap_tool: Callable[[Tool[..., Any]], Tool[..., Any]] | None = None
    """Wraps tools that are added while the run goes on."""
    budgets: Sequence[Budget] = ()
    """The budgets that this run and its children share."""
    spare_tools: Toolbox = Toolbox()
    """Tools that are not offered until a tool adds them."""
    has_late_tools: bool = False
    """True if tools may come while the run goes on, so that allowed tools may be missing at its beginning."""
    tool_selectors: Sequence[ToolSelector] = ()
    """Choose the tools that the model is sent, each from those that the one before has chosen."""
    tool_caller: ToolCaller | None = None
    """Carries out the tool calls of the engine itself."""
    has_output_type: bool = False
    """True if the run has to return a value of a type."""
    answer_tool: str = ""
    """Name of the tool that takes the answer of a run with an output type; empty if there is none."""
    private_run_builder: PrivateRunBuilder | None = None
    """Builds the private runs of the engine."""


class RunPlace(Struct, frozen=True, kw_only=True, eq=False):
    """The environment of a run: its session, log, watchers, mailbox and parent run."""

    session_id: str
    run_id: str
    log: Log
    fanout: Fanout
    mailbox: Mailbox
    prefix_comparer: PrefixComparer = field(default_factory=PrefixComparer)
    """Detects requests that do not begin with the one before, which the provider's cache cannot serve."""
    can_wait: bool = True
    """True if the run may end as `waiting`, because it can be resumed."""
    parent: "Run | None" = None
    """The run whose tool call this one carries out."""
    is_private: bool = False
    """True for a private run of an engine: its turns and tool calls count towards the limits of the parent run."""
    is_restricted: bool = True
    """False if the agent's own gate decides alone, without that of the parent run."""
    redaction: RelatedRunsRedaction = field(default_factory=RelatedRunsRedaction)
    """The redaction that all runs of a session and its subagents share."""
    budgets: Sequence[Budget] = ()
    """The budgets of the session that gave the task: those of a background agent, and of all runs below it."""
