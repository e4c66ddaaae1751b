"""Results of unsuccessful tool calls (failed, denied, interrupted, not started), as the model receives them."""

import asyncio
from typing import cast

from perdure._core.log.repair import NOT_STARTED_CALL_TEXT, READ_IS_REPEATABLE, describe_interrupted_call
from perdure._core.values.error import ToolError
from perdure._core.values.jsonable import error_message, replace_surrogates
from perdure._core.values.message import Status, StopReason, Text, ToolCall, ToolResult

CONTAINED_ERRORS = (Exception, asyncio.CancelledError, KeyboardInterrupt, SystemExit)
"""Errors that a hook or a gate may raise without ending the run. Not `GeneratorExit`: that discards the whole run."""

MAY_HAVE_HAPPENED = "It may or may not have taken effect: check before repeating."


class RunSuspended(BaseException):
    """Raised to end a run as `waiting`: for a person's answer, or for another process that continues the run.

    Tools let it pass.
    """


def build_error_result(call: ToolCall, text: str) -> ToolResult:
    """Build the result of a tool call that failed, or could not be made."""
    return ToolResult(call.call_id, call.name, (Text(replace_surrogates(text)),), Status.ERROR)


def build_denied_result(call: ToolCall, reason: str) -> ToolResult:
    """Build the result of a tool call that was denied permission."""
    return ToolResult(
        call.call_id, call.name, (Text(replace_surrogates(reason) or "permission denied"),), Status.DENIED
    )


def build_uncertain_result(call: ToolCall, status: Status, text: str, effect: str = "") -> ToolResult:
    """Build the result of a tool call that may or may not have had an effect (timed out, cancelled, interrupted).

    Of the effects, `read` alone can be repeated by the model: a new call of an `idempotent` tool has another key.
    """
    advice = READ_IS_REPEATABLE if effect == "read" else MAY_HAVE_HAPPENED
    return ToolResult(call.call_id, call.name, (Text(replace_surrogates(f"{text} {advice}")),), status)


def build_interrupted_result(call: ToolCall, effect: str = "") -> ToolResult:
    """Build the result of a tool call that a crash interrupted after it was recorded as started."""
    return ToolResult(call.call_id, call.name, (Text(describe_interrupted_call(effect)),), Status.UNKNOWN)


def build_not_started_result(call: ToolCall) -> ToolResult:
    """Build the result of a tool call that had not started when the run ended."""
    return ToolResult(call.call_id, call.name, (Text(NOT_STARTED_CALL_TEXT),), Status.CANCELLED_BEFORE_START)


def build_truncated_reply_result(call: ToolCall, stop: StopReason) -> ToolResult:
    """Build the result of a tool call that was not made because the model's reply was cut off: arguments may be
    missing.
    """
    if stop is StopReason.LENGTH:
        why = "by its length limit, so the arguments may be incomplete. Say less at once, or split the work."
    else:
        why = "by the provider's content filter, so the arguments may be incomplete."
    return build_error_result(call, f"This call was not made: the reply was cut off {why}")


def build_call_limit_result(call: ToolCall, max_calls: int) -> ToolResult:
    """Build the result of a tool call that exceeds the run's limit of tool calls."""
    return build_error_result(call, f"This call was not made: the run may make {max_calls} calls, and has made them.")


def build_reply_limit_result(call: ToolCall, max_calls: int) -> ToolResult:
    """Build the result of a tool call that exceeds the limit of calls in one reply."""
    return build_error_result(
        call, f"This call was not made: only the first {max_calls} calls of a reply are. Make it again if it is needed."
    )


def describe_error(error: BaseException) -> str:
    """Return the text about an exception that is sent to the model."""
    if isinstance(error, asyncio.CancelledError):
        return "the tool was cancelled by something other than this run"
    kind = type(error).__name__
    text = error_message(error)
    if isinstance(error, ToolError):
        return text or kind
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        text = f"{text}: {'; '.join([describe_error(each) for each in group.exceptions])}"
    return f"{kind}: {text}" if text else kind
