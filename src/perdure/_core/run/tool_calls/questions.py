"""Questions to people during a run: for permission, of a tool, about an interrupted call; each answered once."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import msgspec

from perdure._core.log.store import Post
from perdure._core.people.mailbox import get_answer_post_id
from perdure._core.permission.gate import Handler as Asker
from perdure._core.permission.gate import SupportsStoredQuestions, later
from perdure._core.permission.grants import check_grant_pattern, list_offers, make_grant
from perdure._core.permission.request import (
    EXPIRED,
    NO_ANSWER,
    NO_ONE_TO_ASK,
    PermissionRequest,
    Verdict,
    complete_verdicts,
)
from perdure._core.run.calling_run import get_run_of_call
from perdure._core.run.timer import RUN_TIMER
from perdure._core.schema.parameters import check_value
from perdure._core.schema.problems import Invalid
from perdure._core.tools.results import CONTAINED_ERRORS, RunSuspended, build_interrupted_result, describe_error
from perdure._core.values import faults
from perdure._core.values.clock import find_program_call_id, get_steady_time, new_id
from perdure._core.values.error import ConfigError, NotAnswered
from perdure._core.values.event_class import QuestionAnswered, QuestionAsked, QuestionWithdrawn
from perdure._core.values.jsonable import convert, replace_surrogates, short_repr, to_jsonable, to_text
from perdure._core.values.message import Status, Text, ToolCall, ToolResult

if TYPE_CHECKING:
    from perdure._core.run.run import Run
    from perdure._core.tools.context import ToolContext
    from perdure._core.tools.slots import Askable


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
    run = get_run_of_call(context)
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
        with _paused_timers(run, [str(each.get("call_id")) for each in question.calls]):
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


@contextmanager
def _paused_timers(run: "Run", call_ids: Collection[str] = ()) -> Generator[None]:
    """Pause, during the `with` block, the timers of a run, of these tool calls, and of the parent runs.

    The timer of a program is paused with those of its calls.
    """
    programs = {find_program_call_id(each) for each in call_ids}  # mostly {""}, the timer of the run
    timers = [run.timers[name] for name in {RUN_TIMER, *call_ids, *programs} if name in run.timers]
    above = run.parent
    while above is not None:
        timers += [above.timers[RUN_TIMER]] if RUN_TIMER in above.timers else []
        above = above.parent
    for each in timers:
        each.pause()
    try:
        yield
    finally:
        for each in timers:
            each.go_on()


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


logger = logging.getLogger("perdure")

_ALLOW_FIELD = "allow"  # distinguishes a verdict in JSON from a dict with one verdict per call


async def ask_permission(
    run: "Run", gate: SupportsStoredQuestions, requests: Sequence[PermissionRequest]
) -> Sequence[Verdict]:
    """Ask a person for permission for tool calls that no rule decides, and return a verdict for each."""
    if not run.options.interactive:
        return [NO_ONE_TO_ASK] * len(requests)
    calls = tuple([_describe_request(each) for each in requests])
    question = find_asked_question(run, "permission", calls)
    if question is None:
        await _withdraw_outdated(run, requests)
        expires_at = None if gate.expires_seconds is None else get_steady_time(run.clock) + gate.expires_seconds
        question = QuestionAsked(
            new_id(), "permission", _permission_text(requests), calls, expires_at, run_id=run.run_id, path=run.path
        )
    asks = gate.handler
    here = None if asks is None or asks is later else lambda: _ask_handler(run, asks, requests)
    try:
        reply = await ask_and_store_answer(run, question, here, patience_seconds=run.options.answer_timeout_seconds)
    except RunSuspended:
        if run.can_wait:
            raise
        return [NO_ONE_TO_ASK] * len(requests)
    verdicts = [EXPIRED] * len(requests) if reply.source == EXPIRED_SOURCE else parse_verdicts(requests, reply.answer)
    for request, verdict in zip(requests, verdicts, strict=True):
        if verdict.scope != "once":
            gate.grants.remember(make_grant(request, verdict, run.clock.now()))
    return verdicts


def _describe_request(request: PermissionRequest) -> dict[str, Any]:
    """Return a request as JSON, with the widths in which an answer can be remembered."""
    stored: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(request, earlier=()))
    del stored["earlier"]  # the offers say what of it is of use
    return {**stored, "offers": [msgspec.to_builtins(each) for each in list_offers(request)]}


async def _withdraw_outdated(run: "Run", requests: Sequence[PermissionRequest]) -> None:
    """Withdraw open questions about these calls that were asked about an older version of the tool."""
    names = {each.call_id for each in requests}
    questions = [
        each for each in run.state.questions_by_id.values() if (each.path, each.about) == (run.path, "permission")
    ]
    earlier = [each for each in questions if names & {call["call_id"] for call in each.calls}]
    for question in earlier:
        _warn_of_unused_answer(run, question, requests)
    open_ids = {each.ask_id for each in run.state.open_questions}
    if outdated := [each for each in earlier if each.ask_id in open_ids]:
        reason = "the tool or the arguments are not those that the question was about"
        events = [QuestionWithdrawn(each.ask_id, reason, run_id=run.run_id, path=run.path) for each in outdated]
        await run.emit(*events)


def _warn_of_unused_answer(run: "Run", question: QuestionAsked, requests: Sequence[PermissionRequest]) -> None:
    """Log a warning for each call that is asked about again because its tool or its arguments are others now."""
    asked = {call["call_id"]: call for call in question.calls}
    for request in requests:
        call = asked.get(request.call_id)
        if call is not None and not _is_same_call(call, request):
            logger.warning(
                "session %s asks again about a call of %r: its tool (name, module, description, parameters) or its "
                "arguments are not those of the question %s, and an answer to that is not used",
                *(run.full_session_id, request.tool, question.ask_id),
            )


def _is_same_call(asked: Mapping[str, Any], request: PermissionRequest) -> bool:
    """Return True if a call in a stored question has the tool and the arguments of this request."""
    bound = cast("Mapping[str, Any]", asked.get("binding") or {})
    return (bound.get("tool"), asked.get("arguments_hash")) == (request.binding.tool, request.arguments_hash)


def parse_verdicts(requests: Sequence[PermissionRequest], answer: Any) -> list[Verdict]:
    """Convert the stored answer to a permission question to a list of verdicts. Calls without an answer are denied."""
    given = cast("Mapping[str, Any]", answer if isinstance(answer, Mapping) else {})
    verdicts: list[Verdict] = []
    for request in requests:
        try:
            verdict = convert(given.get(request.call_id), Verdict)
            check_grant_pattern(request, verdict)
        except (msgspec.ValidationError, ValueError, ConfigError):
            verdict = NO_ANSWER
        verdicts.append(verdict)
    return verdicts


def validate_verdicts(question: QuestionAsked, answer: Any, by: str = "") -> dict[str, Any]:
    """Check a person's answer about permission, and return a verdict for each call, as JSON. Raises `ConfigError`."""
    names = [call["call_id"] for call in question.calls]
    said: object = answer
    apart = isinstance(said, Mapping) and not (_ALLOW_FIELD in said and _ALLOW_FIELD not in names)
    given = cast("Mapping[str, Any]", said if apart else dict.fromkeys(names, cast("Any", said)))
    try:
        verdicts = {name: _parse_verdict(each) for name, each in given.items()}
    except (msgspec.ValidationError, ValueError) as problem:
        scopes = ": the scopes are 'once', 'run', 'session' and 'forever'" if "$.scope" in str(problem) else ""
        raise _build_answer_error(answer, names, f" ({problem}{scopes})") from None
    if unknown := [name for name in given if name not in names]:
        missing = f" ({unknown[0]!r} is none of the calls, and a verdict as JSON has the field {_ALLOW_FIELD!r})"
        raise _build_answer_error(answer, names, missing)
    if not apart and len(names) > 1 and verdicts[names[0]].scope != "once":
        message = (
            f"{answer!r} is to be remembered, and would be for each of {len(names)} calls: give an answer for each of "
            f"{', '.join(map(repr, names))}"
        )
        raise ConfigError(message)
    for call in question.calls:
        if (verdict := verdicts.get(call["call_id"])) is not None:
            check_grant_pattern(_parse_request(call), verdict)
    return {name: {**msgspec.to_builtins(each), **({"by": by} if by else {})} for name, each in verdicts.items()}


def _build_answer_error(answer: Any, names: Sequence[str], problem: str = "") -> ConfigError:
    """Build the error for an answer that is none about these calls."""
    return ConfigError(
        f"{answer!r} does not answer whether calls may be made{problem}: give True, False, a Verdict(…), "
        f"or one of these for each call of {', '.join(map(repr, names))}"
    )


def _parse_request(call: Mapping[str, Any]) -> PermissionRequest:
    """Rebuild the permission request that a stored question was about."""
    return convert(
        {name: call[name] for name in PermissionRequest.__struct_fields__ if name in call}, PermissionRequest
    )


def _parse_verdict(given: Any) -> Verdict:
    """Convert an answer about one call, perhaps in JSON, to a verdict. Raises `ValidationError` or `ValueError`."""
    if isinstance(given, bool):
        return Verdict(allow=given)
    return given if isinstance(given, Verdict) else convert(given, Verdict)


async def _ask_handler(run: "Run", asks: Asker, requests: Sequence[PermissionRequest]) -> Any:
    """Ask the gate's handler function for verdicts. If it raises an error, all calls are denied."""
    try:
        answered = asks(requests)
        answers = list(await answered if inspect.isawaitable(answered) else answered)
    except CONTAINED_ERRORS as error:
        if isinstance(error, asyncio.CancelledError) and (run.is_interrupted or _is_being_cancelled()):
            raise
        run.report_error(error, "the permission gate")
        answers = [Verdict(allow=False, reason=f"permission denied: asking failed ({describe_error(error)})")] * len(
            requests
        )
    verdicts = complete_verdicts(requests, answers)
    return {each.call_id: msgspec.to_builtins(verdict) for each, verdict in zip(requests, verdicts, strict=True)}


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _permission_text(requests: Sequence[PermissionRequest]) -> str:
    """Return the permission question as text."""
    text = "; ".join([f"May {each.tool!r} be called on {each.target}?" for each in requests])
    notes = dict.fromkeys([each.note for each in requests if each.note])
    text = " ".join([text, *[f"({note})" for note in notes]])
    labels, sources = ", ".join(requests[0].labels), ", ".join(requests[0].sources)
    return f"{text} (It follows text that is labelled {labels}, from {sources}.)" if labels else text


def validate_answer(question: QuestionAsked, answer: Any, by: str = "") -> Any:
    """Check a person's answer to a question, and return it in the form that is stored. Raises `ConfigError`.

    `by` says who answered.
    """
    if question.about == "settlement":
        return to_jsonable(answer)
    if question.about == "slot":
        return check_slot_answer(question.text, question.output, answer)
    return validate_verdicts(question, answer, by)


def build_decline_body(question: QuestionAsked, reason: str) -> dict[str, Any]:
    """Build the body of the post (a stored message to a session) that declines a question.

    A tool that asked gets `NotAnswered`; a tool call that needed permission is denied.
    """
    answer: Any = None
    if question.about == "permission":
        answer = validate_answer(question, {"allow": False, "reason": reason})
    elif question.about == "settlement":
        answer = "skip"
    rejected = reason if question.about == "slot" else ""
    return {"ask_id": question.ask_id, "answer": answer, "rejected": rejected}


def check_slot_answer(text: str, output: Mapping[str, Any] | None, value: Any) -> Any:
    """Return an answer as JSON if it fits the schema of the question; raise `ConfigError` otherwise."""
    answer = to_jsonable(value)
    try:
        if output is not None:
            check_value(answer, dict(output))
    except Invalid as problem:
        raise ConfigError(f"{short_repr(answer)} does not answer {text!r}: {problem}") from None
    return answer
