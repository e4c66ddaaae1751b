"""Results of tool calls that failed, were denied, or were not made."""

import asyncio

import pytest

from perdure import Status, StopReason, Text, ToolCall, ToolError, ToolResult
from perdure._core.tools.results import (
    build_call_limit_result,
    build_denied_result,
    build_error_result,
    build_interrupted_result,
    build_not_started_result,
    build_reply_limit_result,
    build_truncated_reply_result,
    build_uncertain_result,
    describe_error,
)

CALL = ToolCall("c1", "look", "{}")


@pytest.mark.parametrize(
    ("result", "status", "text"),
    [
        (build_error_result(CALL, "broken \ud800"), Status.ERROR, "broken \ufffd"),
        (build_denied_result(CALL, "not now \ud800"), Status.DENIED, "not now \ufffd"),
        (build_denied_result(CALL, ""), Status.DENIED, "permission denied"),
        (
            build_uncertain_result(CALL, Status.TIMED_OUT, "Too long.", "read"),
            Status.TIMED_OUT,
            "Too long. It only reads, and changes nothing: it can be repeated.",
        ),
        (
            build_uncertain_result(CALL, Status.CANCELLED, "Cancelled \ud800.", "idempotent"),
            Status.CANCELLED,
            "Cancelled \ufffd. It may or may not have taken effect: check before repeating.",
        ),
        (
            build_interrupted_result(CALL, "read"),
            Status.UNKNOWN,
            "The runtime stopped while this ran. It only reads, and changes nothing: it can be repeated.",
        ),
        (
            build_not_started_result(CALL),
            Status.CANCELLED_BEFORE_START,
            "This call was not started: the run ended before its turn came. It had no effect.",
        ),
        (
            build_truncated_reply_result(CALL, StopReason.LENGTH),
            Status.ERROR,
            (
                "This call was not made: the reply was cut off by its length limit, so the arguments may be "
                "incomplete. Say less at once, or split the work."
            ),
        ),
        (
            build_truncated_reply_result(CALL, StopReason.CONTENT_FILTER),
            Status.ERROR,
            (
                "This call was not made: the reply was cut off by the provider's content filter, so the arguments may "
                "be incomplete."
            ),
        ),
        (
            build_call_limit_result(CALL, 3),
            Status.ERROR,
            "This call was not made: the run may make 3 calls, and has made them.",
        ),
        (
            build_reply_limit_result(CALL, 3),
            Status.ERROR,
            "This call was not made: only the first 3 calls of a reply are. Make it again if it is needed.",
        ),
    ],
)
def test_a_result_says_what_became_of_the_call(result, status, text):
    assert result == ToolResult("c1", "look", (Text(text),), status)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ToolError("no disk"), "no disk"),
        (ToolError(), "ToolError"),
        (OSError("no disk"), "OSError: no disk"),
        (OSError(), "OSError"),
        (asyncio.CancelledError("x"), "the tool was cancelled by something other than this run"),
        (
            ExceptionGroup("two", [OSError("a"), ToolError("b")]),
            "ExceptionGroup: two (2 sub-exceptions): OSError: a; b",
        ),
    ],
)
def test_an_error_is_described_by_its_class_and_text(error, told):
    assert describe_error(error) == told
