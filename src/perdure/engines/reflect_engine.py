"""The `reflect` engine: the model reviews each answer, outside the conversation, and revises it until it is good
enough.
"""

from collections.abc import Sequence
from typing import Any, cast

from msgspec import Struct

from perdure.core import argument_checks
from perdure.core.error import LimitExceeded
from perdure.core.event import AnswerReviewed
from perdure.core.loop import react, run_turn
from perdure.core.message import Message
from perdure.core.outcome import Outcome
from perdure.core.reply_json import list_json_values
from perdure.core.run import Accepted, Engine, Retry, Run
from perdure.core.run_function_types import PrivateRunTask

from .private_run import EngineRunStopped, PrivateRunResult, add_reminder, has_continued_with_follow_up, run_privately

REVIEW_PROMPT = (
    "Review the last answer above as a strict evaluator: is it correct, complete, and what was asked for? Do not "
    "answer the question yourself. Reply with JSON alone:\n"
    '{"score": 0 to 10, "issues": ["…"], "suggestion": "how to improve it", "needs_revision": true or false}'
)
REVISION_TEXT = (
    "Your last answer was reviewed, and is to be revised:\n\n{assessment}\n\nWrite the complete revised answer. It "
    "replaces the last one. Do not mention the review."
)
NOT_REVIEWED_REASON = "not_reviewed"
"""Reason of a run that is done with an answer which could not be reviewed any more, because of a limit."""
MAX_SCORE = 10.0
_REVIEW_REPAIRS = 1
_REVIEW_TURNS = 3
_REPAIR_ORIGIN = "review"


def reflect(*, max_reflections: int = 2, acceptance_score: float = 8.0, prompt: str = REVIEW_PROMPT) -> Engine:
    """Build the engine that has each answer reviewed, and revised until it is good enough.

    A review is a private run, and an `AnswerReviewed` in the log. A revised answer follows the one before in the
    conversation; the review is no part of it. An answer whose review fails, or is no JSON, is accepted.

    Args:
        max_reflections: The most reviews; the answer after the last revision is not reviewed.
        acceptance_score: The score, from 0 to 10, from which on an answer is accepted.
        prompt: What the reviewer is asked.
    """
    argument_checks.require_int("reflect", "max_reflections", max_reflections, 1)
    argument_checks.require_number("reflect", "acceptance_score", acceptance_score, MAX_SCORE)
    argument_checks.require_text("reflect", "prompt", prompt, non_empty=True)
    return ReflectEngine(max_reflections, acceptance_score, prompt)


class ParsedReview(Struct, frozen=True):
    """The assessment, the score and the request for a revision in the reply of a reviewing model."""

    assessment: str
    needs_revision: bool | None = None
    """`None` if the reviewer did not say."""
    score: float | None = None


class ReflectEngine:
    """Engine that has the model review each answer of `react`, and revise it if it is not good enough."""

    name = "reflect"

    def __init__(self, max_reflections: int, acceptance_score: float, prompt: str) -> None:
        self._max_reflections = max_reflections
        self._acceptance_score = acceptance_score
        self._prompt = prompt

    async def __call__(self, run: Run) -> Outcome[Any]:
        """Perform a run."""
        add_reminder(run, _build_revision_reminder)
        while True:
            outcome = await react(run)
            if not _is_answered(run, outcome):
                return outcome
            try:
                review = await self._review_answer(run)
                if review is None or not review.needs_revision:
                    return run.outcome(outcome.status, outcome.reason)  # with the turns of the review
                await run_turn(run)  # the revised answer, or calls of tools; `react` goes on from it
            except EngineRunStopped as stop:
                return stop.outcome
            except LimitExceeded as limit:
                return run.outcome("limit", limit.limit)
            except NoTurnForReview:
                return run.outcome(outcome.status, outcome.reason or NOT_REVIEWED_REASON)

    async def _review_answer(self, run: Run) -> AnswerReviewed | None:
        """Return the review of the last answer, from the log if it is there; `None` if there are enough of them."""
        reviews, index = _list_reviews(run), len(run.messages) - 1
        reviewed = [each for each in _list_reviewed_indexes(run) if each <= index]
        if index in reviewed[: len(reviews)]:
            return reviews[reviewed.index(index)]
        if len(reviews) >= self._max_reflections:
            return None
        task = PrivateRunTask(
            name=f"{_REVIEW_NAME}{index}",
            prompt=self._prompt,
            max_turns=_REVIEW_TURNS,
            output_validators=[_check_review],
        )
        answer = await run_privately(run, task)
        if answer.status == "limit" and run.find_reached_limit():
            raise NoTurnForReview
        decided = self._decide(answer)
        await run.emit(run.stamp_event(decided))
        return decided

    def _decide(self, answer: PrivateRunResult) -> AnswerReviewed:
        """Decide by the answer of the reviewer whether a revision is needed."""
        review = parse_review(answer.text) if answer.is_done else None
        if review is None:
            why = "it is not the JSON that was asked for" if answer.is_done else f"{answer.status} {answer.reason}"
            return AnswerReviewed(f"accepted without a review: {why.strip()}")
        is_poor = review.score is None or review.score < self._acceptance_score
        needs_revision = is_poor and (review.needs_revision if review.needs_revision is not None else True)
        if review.needs_revision is None and review.score is None:
            needs_revision = False
        return AnswerReviewed(review.assessment, needs_revision, review.score)


class NoTurnForReview(Exception):
    """Raised if an answer cannot be reviewed, because a limit of the run leaves no turn for it."""


_REVIEW_NAME = "review:"


def _list_reviews(run: Run) -> list[AnswerReviewed]:
    """Return the reviews of this run, in order."""
    return [each for each in run.state.engine_steps if isinstance(each, AnswerReviewed)]


def _list_reviewed_indexes(run: Run) -> list[int]:
    """Return the indexes of the messages of this run that were reviewed, in order."""
    prefix = f"{run.path}/{_REVIEW_NAME}" if run.path else _REVIEW_NAME
    found = [int(path.removeprefix(prefix)) for path in run.state.children if path.startswith(prefix)]
    return sorted([each for each in found if each >= run.state.first_message_index])


def _is_answered(run: Run, outcome: Outcome[Any]) -> bool:
    """Return True if the model has answered: with text, or by calling the tool that takes the answer."""
    if outcome.status == "done":
        return True
    answer_tool = run.spec.answer_tool
    is_ended_by_tool = (outcome.status, outcome.reason) == ("stopped", "terminated")
    return bool(answer_tool) and is_ended_by_tool and any(each.name == answer_tool for each in run.state.latest_results)


def _build_revision_reminder(run: Run) -> str | None:
    """Return the last review, for the requests until the answer is revised."""
    reviews = _list_reviews(run)
    if not reviews or not reviews[-1].needs_revision:
        return None
    if has_continued_with_follow_up(run, _list_reviewed_indexes(run)[len(reviews) - 1]):
        return None
    return REVISION_TEXT.format(assessment=reviews[-1].assessment)


def _check_review(run: Run, reply: Message) -> Accepted | Retry:
    """Output validator: ask a reviewer for JSON again, a limited number of times."""
    repairs = sum([each.origin == _REPAIR_ORIGIN for each in run.messages])
    if parse_review(reply.text) is not None or repairs >= _REVIEW_REPAIRS:
        return Accepted()
    return Retry("This is not the JSON that was asked for. Reply with the JSON object alone.", _REPAIR_ORIGIN)


def parse_review(text: str) -> ParsedReview | None:
    """Parse the reply of a reviewing model; return `None` if it has neither a score nor a verdict about a revision.

    The answer under review may contain a review, which a reviewer may quote: of several that differ none counts.
    """
    found = [review for each in list_json_values(text) if (review := _convert_review(each)) is not None]
    return found[0] if found and all(each == found[0] for each in found) else None


def _convert_review(value: object) -> ParsedReview | None:
    """Make a review of a JSON object; `None` if it is none."""
    if not isinstance(value, dict):
        return None
    fields = cast("dict[str, Any]", value)
    score, needed = fields.get("score"), fields.get("needs_revision")
    if isinstance(score, bool) or not isinstance(score, (int, float)):
        score = None
    if score is None and not isinstance(needed, bool):
        return None
    return ParsedReview(
        _describe_review(fields),
        needed if isinstance(needed, bool) else None,
        None if score is None else float(min(max(score, 0.0), MAX_SCORE)),  # an integer may be too large for a float
    )


def _describe_review(fields: dict[str, Any]) -> str:
    issues = fields.get("issues")
    lines = [f"- {each}" for each in cast("Sequence[Any]", issues)] if isinstance(issues, list) else []
    suggestion = fields.get("suggestion")
    return "\n".join([*lines, *([suggestion] if isinstance(suggestion, str) and suggestion else [])])
