"""`Evidence`: what a grader sees of a run, such as its answer, its messages and its tool calls with their results."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from perdure.core.finished_run_steps import ToolCallRecord
from perdure.core.message import Message
from perdure.core.model_and_tool_wrappers import shorten_text
from perdure.core.outcome import Outcome

MOST_RESULT_CHARACTERS = 2_000
"""Characters of a tool result that `describe_tool_calls` shows."""
MOST_TOOL_CHARACTERS = 40_000
"""Characters of all tool calls that `describe_tool_calls` shows; the middle ones are left out first."""


class Evidence(Struct, frozen=True, kw_only=True):
    """The material that a grader judges: goal, answer, and what the agent did. `from_outcome` builds it from a run."""

    goal: str = ""
    """What was asked for: the prompt, or the objective of a goal."""
    answer: str = ""
    """The last text of the model."""
    output: Any = None
    """The validated output, if the run had to return a value of a type."""
    expected: Any = None
    """The right answer, if it is known, such as that of a case of a dataset."""
    status: str = "done"
    """How the run ended: `done`, `failed`, `limit`, …"""
    round: int = 1
    """Number of the attempt, from 1."""
    messages: Sequence[Message] = ()
    """Messages that the run added to the conversation."""
    tool_calls: Sequence[ToolCallRecord] = ()
    """Tool calls of the run, with their results."""
    details: Mapping[str, Any] = {}
    """Values of the caller, such as the other fields of a case, or the checklist of a goal."""

    @classmethod
    def from_outcome(
        cls,
        outcome: Outcome[Any],
        *,
        goal: str,
        expected: Any = None,
        round: int = 1,  # noqa: A002 - the clearest name
        details: Mapping[str, Any] | None = None,
    ) -> "Evidence":
        """Return the evidence of a run that has ended."""
        return cls(
            goal=goal,
            answer=outcome.text,
            output=outcome.output,
            expected=expected,
            status=outcome.status,
            round=round,
            messages=tuple(outcome.new_messages),
            tool_calls=tuple(outcome.tool_calls),
            details=details or {},
        )

    def describe_tool_calls(self) -> str:
        """Return the tool calls with their arguments and results as text, shortened; empty if there are none."""
        listed = [_describe_call(number, each) for number, each in enumerate(self.tool_calls, 1)]
        return shorten_text("\n".join(listed), MOST_TOOL_CHARACTERS)


def _describe_call(number: int, call: ToolCallRecord) -> str:
    """Return one tool call with its result as text."""
    status = "no result" if call.result is None else str(call.result.status)
    text = "" if call.result is None else shorten_text(call.result.text, MOST_RESULT_CHARACTERS)
    arguments = shorten_text(call.arguments, MOST_RESULT_CHARACTERS)
    return f"{number}. {call.name}({arguments}) -> {status}\n{text}".rstrip()
