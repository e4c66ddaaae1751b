"""Questions about permission: a person is asked once about all tool calls that no rule decides."""

import asyncio
import inspect
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from .clock_and_ids import new_id
from .error import ConfigError
from .event import QuestionAsked, QuestionWithdrawn
from .permission_gate import Handler as Asker
from .permission_gate import SupportsStoredQuestions
from .permission_grants import check_grant_pattern, list_offers, make_grant
from .permission_request import EXPIRED, NO_ANSWER, NO_ONE_TO_ASK, PermissionRequest, Verdict, complete_verdicts
from .permissions import later
from .question import EXPIRED_SOURCE, ask_and_store_answer, find_asked_question
from .steady_time import get_steady_time
from .thread_safe_msgspec import convert
from .unsuccessful_results import CONTAINED_ERRORS, RunSuspended, describe_error

if TYPE_CHECKING:
    from .run import Run

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
