"""Events of a goal in the log of its session: the data of each as a struct, and how they are built and parsed.

The goal itself, with its limits, is in the metadata of the prompt: it is stored in the same append as the beginning of
the run, so no crash can come between them.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from perdure._core.values.event import Custom, MessageAdded
from perdure._core.values.event_class import Event
from perdure._core.values.jsonable import convert, to_jsonable
from perdure._core.values.message import Message, Text, Usage
from perdure._work.judging.graders.grader import Grade

from .goal import ChecklistItem, Goal, GoalStatus


class GoalStarted(Struct, frozen=True, omit_defaults=True):
    """A goal was started or resumed, in this folder and git branch; stored in the metadata of the prompt."""

    goal: Goal
    workdir: str = ""
    branch: str = ""
    """Git branch of the goal's worktree; empty without one."""
    details: Mapping[str, Any] = {}
    """Values of the caller, such as the options of a command line."""


class GoalPlanned(Struct, frozen=True, omit_defaults=True):
    """Data of the event `goal.planned`: the first version of the checklist of the goal."""

    items: tuple[ChecklistItem, ...]
    is_fallback: bool = False
    """True if no plan was found, and the only item is the objective."""


class IterationStarted(Struct, frozen=True, omit_defaults=True):
    """Data of the event `goal.iteration_started`: a maker agent is about to work on the goal in a fresh session."""

    iteration: int


class MakerFinished(Struct, frozen=True, omit_defaults=True):
    """Data of the event `goal.maker_finished`: the maker agent of an iteration has ended its work."""

    iteration: int
    session_id: str
    status: str = "done"
    """Status of its run."""
    report: str = ""
    """Its last text: claims, which the checker verifies."""


class WorkGraded(Struct, frozen=True, omit_defaults=True):
    """Data of the event `goal.graded`: the goal's grader has graded the work of an iteration."""

    iteration: int
    grade: Grade


class VerdictGiven(Struct, frozen=True, omit_defaults=True):
    """Data of the event `goal.verdict`: the checker agent of an iteration has judged each item of the checklist."""

    iteration: int
    session_id: str
    items: tuple[ChecklistItem, ...]
    done: bool = False
    """True if the checker considers the whole goal achieved."""
    summary: str = ""
    is_progress: bool = False
    """True if more was achieved than in any iteration before."""
    score: float = 0.0
    """From 0 to 1: that of the grader, or else the mean progress of the items."""
    usage: Usage = Usage()
    """Tokens of the goal so far."""
    cost_usd: float | None = None
    """Cost of the goal so far; `None` if a price is not known."""


class GoalEnded(Struct, frozen=True, omit_defaults=True):
    """Data of the event `goal.ended`: the pursuit of a goal has ended, with this status."""

    status: GoalStatus
    reason: str = ""
    summary: str = ""
    usage: Usage = Usage()
    cost_usd: float | None = None


GoalFact: TypeAlias = (
    GoalStarted | GoalPlanned | IterationStarted | MakerFinished | WorkGraded | VerdictGiven | GoalEnded
)

EVENT_NAMES: Final[dict[str, type[Any]]] = {
    "goal.planned": GoalPlanned,
    "goal.iteration_started": IterationStarted,
    "goal.maker_finished": MakerFinished,
    "goal.graded": WorkGraded,
    "goal.verdict": VerdictGiven,
    "goal.ended": GoalEnded,
}
"""The names of the events of a goal, with the type of their data."""

_NAMES_BY_TYPE: Final = {kind: name for name, kind in EVENT_NAMES.items()}


GOAL_METADATA: Final = "goal"
"""Key in the metadata of a prompt under which the goal is stored."""


def build_goal_prompt(text: str, started: GoalStarted) -> Message:
    """Build the user message with which the pursuit of a goal begins; the goal is in its metadata."""
    data = to_jsonable(msgspec.to_builtins(started))
    return Message("user", (Text(text),), metadata={GOAL_METADATA: data})


def build_goal_event(fact: GoalFact) -> Custom:
    """Build the custom event that stores this data about a goal in the log of its session."""
    return Custom(_NAMES_BY_TYPE[type(fact)], to_jsonable(msgspec.to_builtins(fact)))


def parse_goal_event(event: Event) -> GoalFact | None:
    """Return the data about a goal that an event stores; `None` for other events, and for data that cannot be read."""
    if isinstance(event, MessageAdded):
        kind, data = GoalStarted, event.message.metadata.get(GOAL_METADATA)
    elif isinstance(event, Custom) and event.name in EVENT_NAMES:
        kind, data = EVENT_NAMES[event.name], event.data
    else:
        return None
    try:
        fact: GoalFact = convert(data, kind)
    except (msgspec.ValidationError, ValueError):
        return None
    return fact
