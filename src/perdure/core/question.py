"""Questions to people: kept in the log, answered once, from anywhere. Above: `call.py`. Below: mailbox and permissions.

A question is stored before anybody is asked. The answer comes from the handler of this process, or as a post from any
other; the first one counts. When nobody is here to answer, the run is *suspended*: it ends as `waiting`, nobody drives
the session, and `resume` finds the same question under the same id, with the answer if there is one.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from . import faults
from .clock import new_id
from .effect import FAILURES, Suspended, describe, unknown
from .error import ConfigError, NotAnswered
from .event import QuestionAnswered, QuestionAsked
from .mailbox import answer_name
from .message import Status, Text, ToolCall, ToolResult
from .permission import (
    EXPIRED,
    NO_ANSWER,
    NOBODY_TO_ASK,
    Grant,
    PermissionRequest,
    Permissions,
    Verdict,
    decision_of,
    later,
    one_each,
    rules_for,
)
from .permission import (
    Handler as Asker,
)
from .plain import clean, excerpt, to_jsonable, to_text
from .run import Run
from .schema import Invalid, check_value
from .slot import Askable
from .store import Post
from .tool import ToolContext

Handler = Callable[[], "Awaitable[Any] | Any"]
"""Asks somebody who is here, and returns the answer as JSON values."""

POST, HANDLER, IS_EXPIRED = "post", "handler", "expired"
"""Where an answer can come from."""

_ALLOW = "allow"  # the field by which a verdict that came as JSON is told from a dict with one for each call


async def permission(run: Run, gate: Permissions, requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
    """A verdict for each of the calls that no rule settles."""
    if not run.interactive:
        return [NOBODY_TO_ASK] * len(requests)
    calls = tuple([{**msgspec.to_builtins(each), "rules": rules_for(each)} for each in requests])
    question = standing(run, "permission", calls)
    if question is None:
        expires_at = None if gate.expires_seconds is None else run.clock.now() + gate.expires_seconds
        question = QuestionAsked(
            new_id(), "permission", _may(requests), calls, expires_at, run_id=run.run_id, path=run.path
        )
    asks = gate.handler
    here = None if asks is None or asks is later else lambda: _from_handler(run, asks, requests)
    try:
        reply = await answer_to(run, question, here, patience_seconds=run.patience_seconds)
    except Suspended:
        if run.may_wait:
            raise
        return [NOBODY_TO_ASK] * len(requests)
    verdicts = [EXPIRED] * len(requests) if reply.source == IS_EXPIRED else verdicts_of(requests, reply.answer)
    for request, verdict in zip(requests, verdicts, strict=True):
        if verdict.scope != "once":
            gate.grants.remember(Grant.of_decision(decision_of(request, verdict), request.session_id))
    return verdicts


def verdicts_of(requests: Sequence[PermissionRequest], answer: Any) -> list[Verdict]:
    """An answer as it is stored: one verdict by the id of each call. Whatever is missing is a no."""
    given = cast("Mapping[str, Any]", answer if isinstance(answer, Mapping) else {})
    verdicts: list[Verdict] = []
    for request in requests:
        try:
            verdicts.append(msgspec.convert(given.get(request.call_id), Verdict))
        except (msgspec.ValidationError, ValueError):
            verdicts.append(NO_ANSWER)
    return verdicts


def stated(question: QuestionAsked, answer: Any) -> Any:
    """What a person answered, as it is stored. Raises `ConfigError` when it is no answer to this question."""
    if question.about == "settlement":
        return to_jsonable(answer)
    if question.about == "slot":
        return _fitting(question, to_jsonable(answer))
    names = [call["call_id"] for call in question.calls]
    said: object = answer
    apart = isinstance(said, Mapping) and not (_ALLOW in said and _ALLOW not in names)
    given = cast("Mapping[str, Any]", said if apart else dict.fromkeys(names, cast("Any", said)))
    verdicts = {name: _verdict(each) for name, each in given.items()}
    if given.keys() - set(names) or None in verdicts.values():
        message = (
            f"{answer!r} does not answer whether calls may be made: give True, False, a Verdict(…), "
            f"or one of these for each call of {', '.join(map(repr, names))}"
        )
        raise ConfigError(message)
    return {name: msgspec.to_builtins(each) for name, each in verdicts.items()}


def _verdict(given: Any) -> Verdict | None:
    """What was said of a call, as a verdict; also when it came as JSON. `None` when it is none."""
    if isinstance(given, bool):
        return Verdict(allow=given)
    try:
        return given if isinstance(given, Verdict) else msgspec.convert(given, Verdict)
    except (msgspec.ValidationError, ValueError):
        return None


def refusal(question: QuestionAsked, reason: str) -> dict[str, Any]:
    """What is posted by somebody who does not answer: a tool is told so, and a call is not made, or left as it is."""
    answer: Any = None
    if question.about == "permission":
        answer = stated(question, Verdict(allow=False, reason=reason))
    elif question.about == "settlement":
        answer = "skip"
    rejected = reason if question.about == "slot" else ""
    return {"ask_id": question.ask_id, "answer": answer, "rejected": rejected}


def _fitting(question: QuestionAsked, answer: Any) -> Any:
    """An answer that is what the question wants."""
    try:
        if question.output is not None:
            check_value(answer, dict(question.output))
    except Invalid as problem:
        raise ConfigError(f"{excerpt(answer)} does not answer {question.text!r}: {problem}") from None
    return answer


async def _from_handler(run: Run, asks: Asker, requests: Sequence[PermissionRequest]) -> Any:
    """Ask through the gate's handler. Whatever goes wrong with it, nothing passes."""
    try:
        answered = asks(requests)
        answers = list(await answered if inspect.isawaitable(answered) else answered)
    except FAILURES as error:
        if isinstance(error, asyncio.CancelledError) and (run.interrupted or _being_cancelled()):
            raise
        run.report(error, "the permission gate")
        answers = [Verdict(allow=False, reason=f"permission denied: asking failed ({describe(error)})")] * len(requests)
    verdicts = one_each(requests, answers)
    return {each.call_id: msgspec.to_builtins(verdict) for each, verdict in zip(requests, verdicts, strict=True)}


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def settlement(run: Run, call: ToolCall) -> ToolResult | None:
    """What a person says about a call that a crash cut off; `None` when it is to be made again."""
    attempt = run.state.started[call.call_id].attempt  # what was said about one attempt says nothing about the next
    calls = ({"call_id": call.call_id, "tool": call.name, "arguments": call.arguments, "attempt": attempt},)
    text = (
        f"The runtime stopped while {call.name!r} ran: it may or may not have taken effect. Answer 'retry' to make the "
        "call again, 'skip' to leave it, or anything else to tell what came of it."
    )
    question = standing(run, "settlement", calls)
    if question is None:
        question = QuestionAsked(new_id(), "settlement", text, calls, run_id=run.run_id, path=run.path)
    answer = (await answer_to(run, question, None, patience_seconds=run.patience_seconds)).answer
    if answer == "retry":
        return None
    if answer == "skip":
        return unknown(call)
    words = f"The runtime stopped while this ran. A person has looked: {to_text(answer)}"
    return ToolResult(call.call_id, call.name, (Text(clean(words)),), Status.OK)


async def slot(context: ToolContext[Any], asked: Askable[Any], timeout_seconds: float | None) -> Any:
    """What somebody answers to a tool. Raises `NotAnswered`, or `Suspended` while the call has had no effect."""
    run = context.run
    if not run.interactive:
        raise NotAnswered("nobody can be asked in this run")
    context.asked += 1
    calls = ({"call_id": context.call_id, "tool": context.name, "place": context.asked},)
    question = standing(run, "slot", calls)
    if question is None:
        question = QuestionAsked(
            new_id(),
            "slot",
            clean(context.scrubbed(asked.text)),
            calls,
            None if timeout_seconds is None else run.clock.now() + timeout_seconds,
            asked.shown_as,
            context.scrubbed(asked.input),
            asked.output,
            run_id=run.run_id,
            path=run.path,
        )
    may_wait = run.may_wait and context.can_begin_again
    waits_here = run.may_wait and not may_wait  # the call has begun: only this process can go on with it
    try:
        reply = await answer_to(run, question, None, patience_seconds=None if waits_here else run.patience_seconds)
    except Suspended:
        if may_wait:
            raise
        raise NotAnswered(_unanswered(run)) from None
    if reply.rejected or reply.source == IS_EXPIRED:
        raise NotAnswered(reply.rejected or f"nobody answered in time: {question.text}")
    return reply.answer


def _unanswered(run: Run) -> str:
    """Why a tool that cannot wait any longer gets no answer."""
    if run.mailbox.is_left:
        return "the process is about to end, and nobody has answered"
    return "nobody is here to answer, and this run cannot wait for somebody who could"


# -- any question ------------------------------------------------------------------------------------------------------


def standing(run: Run, about: str, calls: Sequence[Mapping[str, Any]]) -> QuestionAsked | None:
    """The question of this run about these very calls, with these very arguments, if it was asked before."""
    wanted = _identities(calls)
    for question in run.state.asks.values():
        if question.path == run.path and question.about == about and _identities(question.calls) == wanted:
            return question
    return None


def _identities(calls: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    names = ("call_id", "arguments_hash", "attempt", "place")
    return [tuple([call.get(name) for name in names]) for call in calls]


async def answer_to(
    run: Run, question: QuestionAsked, handler: Handler | None, *, patience_seconds: float | None
) -> QuestionAnswered:
    """The answer, stored before this returns. Raises `Suspended` when patience is at an end; `None` waits for ever."""
    ask_id = question.ask_id
    before = run.state.answers.get(ask_id)
    if before is not None:
        return before
    if ask_id not in run.state.asks:
        await run.emit(question)
        faults.point("question.asked")
    source, answer, rejected = await _first_answer(run, question, handler, patience_seconds)
    name = run.mailbox.answers[ask_id].id if source == POST else answer_name(ask_id)  # and no other answer counts
    answered = QuestionAnswered(ask_id, answer, source, rejected, run_id=run.run_id, path=run.path)
    await run.emit(answered, names=[name])
    faults.point("question.answered")
    return answered


async def _first_answer(
    run: Run, question: QuestionAsked, handler: Handler | None, patience_seconds: float | None
) -> tuple[str, Any, str]:
    posted = run.mailbox.answered(question.ask_id)
    if (post := _posted(run, question)) is not None:
        return _told(post)
    left = None if question.expires_at is None else question.expires_at - run.clock.now()
    if left is not None and left <= 0:
        return IS_EXPIRED, None, ""
    patience = None if handler is not None else patience_seconds
    if run.mailbox.is_left or (patience is not None and patience <= 0):
        raise Suspended
    asking = None if handler is None else asyncio.ensure_future(cast("Awaitable[Any]", handler()))
    try:
        await _any_of(run, [posted, asking], [left, patience])
        if (post := _posted(run, question)) is not None:
            return _told(post)
        if asking is not None and asking.done():
            return HANDLER, asking.result(), ""
    finally:
        if asking is not None and not asking.done():
            asking.cancel()
            await asyncio.wait((asking,), timeout=1)
    if run.mailbox.is_left:
        raise Suspended
    if left is not None and (patience is None or left <= patience):
        return IS_EXPIRED, None, ""
    raise Suspended


def _told(post: Post) -> tuple[str, Any, str]:
    return POST, post.body["answer"], post.named("rejected")


def _posted(run: Run, question: QuestionAsked) -> Post | None:
    """The answer that was posted before the question had expired, if there is one."""
    post = run.mailbox.answers.get(question.ask_id)
    in_time = post is not None and (question.expires_at is None or post.at < question.expires_at)
    return post if in_time else None


async def _any_of(run: Run, futures: "Sequence[asyncio.Future[Any] | None]", seconds: Sequence[float | None]) -> None:
    """Wait until one of them is done, or one of the times is up."""
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    times = [each for each in seconds if each is not None]
    timer = run.clock.call_later(min(times), over.cancel) if times else None
    try:
        await asyncio.wait([over, *[each for each in futures if each is not None]], return_when=asyncio.FIRST_COMPLETED)
    finally:
        over.cancel()
        if timer is not None:
            timer.cancel()


def _may(requests: Sequence[PermissionRequest]) -> str:
    """The question in words."""
    return "; ".join([f"May {each.tool!r} be called on {each.target}?" for each in requests])
