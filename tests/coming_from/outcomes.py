"""Read outcomes in tests, where what may be missing is there."""

from typing import Any, TypeVar

from perdure import Outcome, ToolResult

T = TypeVar("T")


def present(value: T | None) -> T:
    """Return a value that must not be missing."""
    assert value is not None
    return value


def results_of(outcome: Outcome[Any]) -> list[ToolResult]:
    """The result of each tool call of a run, in the order of the calls."""
    return [present(call.result) for call in outcome.tool_calls]
