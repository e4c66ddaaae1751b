"""Events of engines, limits, guardrails and output validators: what decides how a run goes on."""

from typing import Literal

from msgspec import Struct

from .event_class import Event


class PlannedTask(Struct, frozen=True, omit_defaults=True):
    """A task of a plan."""

    id: str
    """Name by which other tasks refer to it."""
    description: str
    depends_on: tuple[str, ...] = ()
    """Ids of the tasks whose results it needs."""


class PlanMade(Event, frozen=True):
    """An engine has made a plan of tasks, or a new plan for what is left to do."""

    durable = True
    replay = "compared"
    compared_fields = ("tasks", "revision", "problems")

    tasks: tuple[PlannedTask, ...] = ()
    """Tasks that are to be done; none if the engine answers without a plan."""
    revision: int = 0
    """Number of plans before this one for the same work."""
    problems: tuple[str, ...] = ()
    """Mistakes in the plan of the model that the engine has corrected."""
    work_index: int = 0
    """Index of the message with which the work began: the prompt, or the feedback of a grader (`until`)."""

    def search_text(self) -> tuple[str, str] | None:
        """Return `plan` and the descriptions of the tasks."""
        return ("plan", "\n".join([each.description for each in self.tasks])) if self.tasks else None


class AnswerReviewed(Event, frozen=True):
    """An engine had an answer of the model reviewed, and either accepts it or asks for a revision."""

    durable = True
    replay = "compared"
    compared_fields = ("assessment", "needs_revision", "score")

    assessment: str
    """The review: the issues that were found, and a suggestion; or the reason why there is none."""
    needs_revision: bool = False
    score: float | None = None
    """Score from 0 to 10; `None` if the review has none."""
    message_index: int = -1
    """Index of the message that was reviewed."""

    def search_text(self) -> tuple[str, str] | None:
        """Return `review` and the text of the review."""
        return "review", self.assessment


class LimitReached(Event, frozen=True):
    """The run has reached a limit, such as `max_tool_calls`; the tool calls beyond it are refused."""

    durable = True
    replay = "skipped"
    structural = frozenset({"limit"})

    limit: str
    """`max_tool_calls`, or another one of the `Limits`."""


class GuardrailTripped(Event, frozen=True):
    """A guardrail objected to the last turn, such as a repeated call: the model is nudged, or the run is halted."""

    durable = True
    replay = "compared"
    structural = frozenset({"guardrail", "action"})

    guardrail: str
    """`repeat`, `mistakes`, or the name of a custom guardrail."""
    count: int
    action: Literal["nudge", "halt"]


class AutoContinued(Event, frozen=True):
    """The model announced an action without taking it, and was asked to continue."""

    durable = True
    replay = "compared"

    count: int
