"""Questions to people during a run: stored in the log, answered once, from any process.

A question is stored before it is asked. The answer is given by the handler of this process, or as a post by any other;
the first one counts. When no answer can be had here, the run is *suspended*: it ends as `waiting`, no process drives
the session, and `resume` finds the same question under the same id, with the answer if there is one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from . import fault_injection as faults
from .clock_and_ids import new_id
from .error import NotAnswered
from .event import QuestionAnswered, QuestionAsked
from .jsonable import replace_surrogates, to_text
from .message import Status, Text, ToolCall, ToolResult
from .pausable_timer import paused_timers
from .run_mailbox import get_answer_post_id
from .steady_time import get_steady_time
from .store import Post
from .unsuccessful_results import RunSuspended, build_interrupted_result

if TYPE_CHECKING:
    from .display_slot import Askable
    from .run import Run
    from .tool_context import ToolContext

QuestionHandler = Callable[[], "Awaitable[Any] | Any"]
"""Function that asks a person at this process, and returns the answer as JSON values."""

FROM_POST, FROM_HANDLER, EXPIRED_SOURCE = "post", "handler", "expired"
"""Sources of an answer."""


async def ask_about_interrupted_call(run: "Run", call: ToolCall) -> ToolResult | None:
    """Ask a person whether a tool call that a crash interrupted took effect; return its result, or `None` to repeat it.

    `None` means that the call is to be repeated.
    """
    attempt = run.state.started_calls[call.call_id].attempt  # an answer about one attempt does not apply to the next
    calls = ({"call_id": call.call_id, "tool": call.name, "arguments": call.arguments, "attempt": attempt},)
    text = (
        f"The runtime stopped while {call.name!r} ran: it may or may not have taken effect. Answer 'retry' to make the "
        "call again, 'skip' to leave it, or anything else to tell what came of it."
    )
    question = find_asked_question(run, "settlement", calls)
    if question is None:
        question = QuestionAsked(new_id(), "settlement", text, calls, run_id=run.run_id, path=run.path)
    answer = (
        await ask_and_store_answer(run, question, None, patience_seconds=run.options.answer_timeout_seconds)
    ).answer
    if answer == "retry":
        return None
    if answer == "skip":
        return build_interrupted_result(call)
    words = f"The runtime stopped while this ran. A person has looked: {to_text(answer)}"
    return ToolResult(call.call_id, call.name, (Text(replace_surrogates(words)),), Status.OK)


async def ask_slot_question(context: "ToolContext[Any]", asked: "Askable[Any]", timeout_seconds: float | None) -> Any:
    """Ask people a tool's question in a display slot, and return the answer.

    Raises `NotAnswered`, or `RunSuspended` if the call can restart.
    """
    run = context.run
    if not run.options.interactive:
        raise NotAnswered("no questions can be asked in this run: it is not interactive")
    context.question_count += 1
    calls = ({"call_id": context.call_id, "tool": context.name, "place": context.question_count},)
    question = find_asked_question(run, "slot", calls)
    if question is None:
        question = QuestionAsked(
            new_id(),
            "slot",
            replace_surrogates(context.redact(asked.text)),
            calls,
            None if timeout_seconds is None else get_steady_time(run.clock) + timeout_seconds,
            asked.shown_as,
            context.redact(asked.input),
            asked.output,
            run_id=run.run_id,
            path=run.path,
        )
    may_wait = run.can_wait and context.can_restart
    waits_here = run.can_wait and not may_wait  # the call has begun: only this process can continue it
    try:
        reply = await ask_and_store_answer(
            run, question, None, patience_seconds=None if waits_here else run.options.answer_timeout_seconds
        )
    except RunSuspended:
        if may_wait:
            raise
        raise NotAnswered(_unanswered_reason(run)) from None
    if reply.rejected or reply.source == EXPIRED_SOURCE:
        raise NotAnswered(reply.rejected or f"no answer in time: {question.text}")
    return reply.answer


def _unanswered_reason(run: "Run") -> str:
    """Return the reason why a tool that cannot wait any longer gets no answer."""
    if run.mailbox.is_closing:
        return "the process is about to end, and there is no answer yet"
    return "no answer was given, and this run cannot wait any longer for one"


# -- any question ------------------------------------------------------------------------------------------------------


def find_asked_question(run: "Run", about: str, calls: Sequence[Mapping[str, Any]]) -> QuestionAsked | None:
    """Return the question that this run already asked about the same tool calls; `None` if there is none."""
    wanted = _call_identities(calls)
    for question in run.state.questions_by_id.values():
        if question.path == run.path and question.about == about and _call_identities(question.calls) == wanted:
            return question
    return None


def _call_identities(calls: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    names = ("call_id", "arguments_hash", "attempt", "place")
    tools = [cast("Mapping[str, Any]", call.get("binding") or {}).get("tool") for call in calls]
    return [(tool, *[call.get(name) for name in names]) for call, tool in zip(calls, tools, strict=True)]


async def ask_and_store_answer(
    run: "Run", question: QuestionAsked, handler: QuestionHandler | None, *, patience_seconds: float | None
) -> QuestionAnswered:
    """Ask a question, store the answer, return it. Raises `RunSuspended` after `patience_seconds` (`None`: never)."""
    ask_id = question.ask_id
    before = run.state.answers_by_question.get(ask_id)
    if before is not None:
        return before
    if ask_id not in run.state.questions_by_id:
        await run.emit(question)
        faults.fault_point("question.asked")
    source, answer, rejected, by = await _first_answer(run, question, handler, patience_seconds)
    name = (
        run.mailbox.answers[ask_id].id if source == FROM_POST else get_answer_post_id(ask_id)
    )  # the same id as any other answer: only one is stored
    answered = QuestionAnswered(ask_id, answer, source, rejected, by, run_id=run.run_id, path=run.path)
    await run.emit(answered, entry_ids=[name])
    faults.fault_point("question.answered")
    return answered


async def _first_answer(
    run: "Run", question: QuestionAsked, handler: QuestionHandler | None, patience_seconds: float | None
) -> tuple[str, Any, str, str]:
    posted = run.mailbox.wait_for_answer(question.ask_id)
    if (post := _posted_answer(run, question)) is not None:
        return _answer_in_post(post)
    left = None if question.expires_at is None else question.expires_at - get_steady_time(run.clock)
    if left is not None and left <= 0:
        return EXPIRED_SOURCE, None, "", ""
    patience = None if handler is not None else patience_seconds
    if run.mailbox.is_closing or (patience is not None and patience <= 0):
        raise RunSuspended
    asking = None if handler is None else asyncio.ensure_future(cast("Awaitable[Any]", handler()))
    try:
        with paused_timers(run, [str(each.get("call_id")) for each in question.calls]):
            await _wait_for_any(run, [posted, asking], [left, patience])
        if (post := _posted_answer(run, question)) is not None:
            return _answer_in_post(post)
        if asking is not None and asking.done():
            return FROM_HANDLER, asking.result(), "", ""
    finally:
        if asking is not None and not asking.done():
            asking.cancel()
            await asyncio.wait((asking,), timeout=1)
    if run.mailbox.is_closing:
        raise RunSuspended
    if left is not None and (patience is None or left <= patience):
        return EXPIRED_SOURCE, None, "", ""
    raise RunSuspended


def _answer_in_post(post: Post) -> tuple[str, Any, str, str]:
    return FROM_POST, post.body["answer"], post.text_field("rejected"), post.text_field("by")


def _posted_answer(run: "Run", question: QuestionAsked) -> Post | None:
    """Return the post with an answer that arrived before the question expired, if there is one."""
    post = run.mailbox.answers.get(question.ask_id)
    in_time = post is not None and (question.expires_at is None or post.at < question.expires_at)
    return post if in_time else None


async def _wait_for_any(
    run: "Run", futures: "Sequence[asyncio.Future[Any] | None]", seconds: Sequence[float | None]
) -> None:
    """Wait until one of the futures is done, or the shortest of the times is over."""
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    times = [each for each in seconds if each is not None]
    timer = run.clock.call_later(min(times), over.cancel) if times else None
    try:
        await asyncio.wait([over, *[each for each in futures if each is not None]], return_when=asyncio.FIRST_COMPLETED)
    finally:
        over.cancel()
        if timer is not None:
            timer.cancel()
