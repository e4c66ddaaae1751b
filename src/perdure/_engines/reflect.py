"""The `reflect` engine: the model reviews each answer, outside the conversation, and revises it until it is good
enough.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from perdure._core.model.json_reply import list_json_values
from perdure._core.people.inbox import INBOX_POST
from perdure._core.people.mailbox import FOLLOW_UP_POST
from perdure._core.run.answers import ENGINE_ORIGIN, FallbackAnswer, add_answer, add_fallback_answer
from perdure._core.run.ending import store_open_call_results
from perdure._core.run.loop import react, run_turn
from perdure._core.run.outcome import Outcome
from perdure._core.run.run import Run
from perdure._core.run.spec import Accepted, Engine, PrivateRunTask, Retry
from perdure._core.tools.results import RunSuspended
from perdure._core.values import checks
from perdure._core.values.engine_event import AnswerReviewed
from perdure._core.values.error import LimitExceeded, OutOfBudget, StoreError
from perdure._core.values.message import Message

from .private_run import (
    LIMITS_OF_THE_RUN,
    EngineRunStopped,
    PrivateRunResult,
    add_reminder,
    find_work_index,
    has_continued_with_follow_up,
    is_answered,
    run_privately,
)

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
NOT_REVISED_REASON = "not_revised"
"""Reason of a run that is done with the answer before a revision, which failed or was cut off by a limit."""
MAX_SCORE = 10.0
_ASKED_FOR = frozenset({"stop_condition", "terminated"})
"""Reasons of a run that was stopped on purpose."""
_NEW_INPUTS = frozenset({"", "steering", FOLLOW_UP_POST, INBOX_POST})
"""Origins of messages that an earlier answer does not answer."""
_REVIEW_REPAIRS = 1
_REVIEW_TURNS = 3
_REPAIR_ORIGIN = "review"


def reflect(*, max_reflections: int = 2, acceptance_score: float = 8.0, prompt: str = REVIEW_PROMPT) -> Engine:
    """Build the engine that has each answer reviewed, and revised until it is good enough.

    A review is a private run, and an `AnswerReviewed` in the log. A revised answer follows the one before in the
    conversation; the review is no part of it. An answer whose review fails, or is no JSON, is accepted. One whose
    revision fails, is cut off or reaches a limit is the answer, at the end of the conversation, with the reason
    `not_revised`.

    Args:
        max_reflections: The most reviews; the answer after the last revision is not reviewed.
        acceptance_score: The score, from 0 to 10, from which on an answer is accepted.
        prompt: What the reviewer is asked.
    """
    checks.require_int("reflect", "max_reflections", max_reflections, 1)
    checks.require_number("reflect", "acceptance_score", acceptance_score, MAX_SCORE)
    checks.require_text("reflect", "prompt", prompt, non_empty=True)
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
        drafts = ReviewedDrafts(run)
        if drafts.is_last_one_repeated:
            return run.outcome("done", NOT_REVISED_REASON)  # a crash came between that and the end of the run
        add_reminder(run, self.name, drafts.build_revision_reminder)
        add_fallback_answer(run, lambda _: drafts.find_fallback())
        try:
            outcome = await self._answer_and_revise(run, drafts)
        except EngineRunStopped as stop:
            return stop.outcome
        except (StoreError, RunSuspended):
            raise
        except asyncio.CancelledError:
            if run.interrupt_reason != "timeout" or drafts.find_last() is None:
                raise
            return await _end_with_draft(run, drafts)
        except Exception as error:
            if drafts.find_last() is None:
                raise
            if not isinstance(error, (LimitExceeded, OutOfBudget)):
                run.report_error(error, "the revision of an answer")
            return await _end_with_draft(run, drafts)
        has_failed = outcome.status == "limit" or (outcome.status == "stopped" and outcome.reason not in _ASKED_FOR)
        return await _end_with_draft(run, drafts) if has_failed and drafts.find_last() is not None else outcome

    async def _answer_and_revise(self, run: Run, drafts: "ReviewedDrafts") -> Outcome[Any]:
        while True:
            outcome = await react(run)
            if not is_answered(run, outcome):
                return outcome
            drafts.last_index = len(run.messages) - 1
            try:
                review = await self._review_answer(run, drafts)
            except NoTurnForReview:
                is_by_tool = outcome.status == "stopped"
                return run.outcome("done", NOT_REVIEWED_REASON if is_by_tool else outcome.reason or NOT_REVIEWED_REASON)
            if review is None or not review.needs_revision:
                return run.outcome(outcome.status, outcome.reason)  # with the turns of the review
            await run_turn(run)  # the revised answer, or calls of tools; `react` goes on from it

    async def _review_answer(self, run: Run, drafts: "ReviewedDrafts") -> AnswerReviewed | None:
        """Return the review of the last answer, from the log if it is there; `None` if there are enough of them."""
        reviews, index = drafts.list_reviews(), drafts.last_index
        if (known := next((each for each in reviews if each.message_index == index), None)) is not None:
            return known
        if len(reviews) >= self._max_reflections:
            return None
        task = PrivateRunTask(
            name=f"review:{index}",
            prompt=self._prompt,
            max_turns=_REVIEW_TURNS,
            output_validators=[_check_review],
        )
        answer = await run_privately(run, task)
        if answer.status == "limit" and (answer.reason in LIMITS_OF_THE_RUN or run.find_reached_limit()):
            raise NoTurnForReview
        decided = replace(self._decide(answer), message_index=index)
        await run.emit(run.stamp_event(decided))
        return decided

    def _decide(self, answer: PrivateRunResult) -> AnswerReviewed:
        """Decide by the answer of the reviewer whether a revision is needed."""
        review = parse_review(answer.text) if answer.is_done else None
        if review is None:
            why = "it is not the JSON that was asked for" if answer.is_done else f"{answer.status} {answer.reason}"
            return AnswerReviewed(f"accepted without a review: {why.strip()}")
        is_poor = review.score is None or review.score < self._acceptance_score
        return AnswerReviewed(review.assessment, is_poor and review.needs_revision is not False, review.score)


class NoTurnForReview(Exception):
    """Raised if an answer cannot be reviewed, because a limit of the run leaves no turn for it."""


class ReviewedDrafts:
    """The answers of a run that were reviewed: the last one is the answer if its revision fails."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._work_index = find_work_index(run)
        reviews = self.list_reviews()
        self.last_index = reviews[-1].message_index if reviews else -1
        """Index of the last message that was, or is being, reviewed; -1 if there is none."""

    @property
    def is_last_one_repeated(self) -> bool:
        """True if the conversation ends with a copy of the last draft, because its revision failed."""
        return self.find_last() is not None and self._run.messages[-1].origin == ENGINE_ORIGIN

    def list_reviews(self) -> list[AnswerReviewed]:
        """Return the reviews of the work, in order."""
        steps = self._run.state.engine_steps
        return [each for each in steps if isinstance(each, AnswerReviewed) and each.message_index >= self._work_index]

    def find_last(self) -> Message | None:
        """Return the last answer that was reviewed; `None` if there is none, or a later message asks for another."""
        messages = self._run.messages
        if not 0 <= self.last_index < len(messages):
            return None
        if any(each.role == "user" and each.origin in _NEW_INPUTS for each in messages[self.last_index + 1 :]):
            return None
        return next(each for each in reversed(messages[: self.last_index + 1]) if each.role == "assistant")

    def find_fallback(self) -> FallbackAnswer | None:
        """Return the last answer that was reviewed, for a run that ends before its revision."""
        draft = self.find_last()
        return None if draft is None else FallbackAnswer(self.get_text(draft), self.last_index + 1)

    def get_text(self, draft: Message) -> str:
        """Return the text of an answer; for one that was given by a call of the answer tool, its arguments."""
        calls = [each.arguments for each in draft.tool_calls if each.name == self._run.spec.answer_tool]
        return calls[0] if calls else draft.text

    def build_revision_reminder(self, run: Run) -> str | None:
        """Return the last review, for the requests until the answer is revised."""
        reviews = self.list_reviews()
        if not reviews or not reviews[-1].needs_revision:
            return None
        if has_continued_with_follow_up(run, reviews[-1].message_index):
            return None
        return REVISION_TEXT.format(assessment=reviews[-1].assessment)


async def _end_with_draft(run: Run, drafts: ReviewedDrafts) -> Outcome[Any]:
    """Return the outcome of a run whose last answer could not be revised, with that answer."""
    await store_open_call_results(run)
    if drafts.last_index < len(run.messages) - 1:
        await add_answer(run, drafts.get_text(cast("Message", drafts.find_last())))
    run.partial_reply = run.output = None  # a type of output parses it from the conversation
    return run.outcome("done", NOT_REVISED_REASON)


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
