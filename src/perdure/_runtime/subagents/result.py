"""Convert the outcome of a subagent to a tool result, for the model that gave it the task."""

from collections.abc import Sequence
from typing import Any

import msgspec

from perdure._core.run.outcome import Outcome
from perdure._core.schema.problems import Invalid
from perdure._core.tools.tool import ToolOutput
from perdure._core.values.jsonable import error_message, to_jsonable, to_text
from perdure._core.values.message import Message
from perdure._runtime.agent.output import Output, parse_run_output

_SUCCESS_REASONS = frozenset(["", "terminated", "stop_condition"])
"""The reasons of a `stopped` outcome that count as success."""


def build_subagent_result(
    name: str, outcome: Outcome[Any], output: Output[Any] | None = None, child_path: str = ""
) -> ToolOutput:
    """Build the tool result from a subagent's outcome: its answer, or its problem and its output so far."""
    answer, problem = extract_answer(outcome), describe_problem(outcome)
    if not problem and output is not None:
        answer, problem = _extract_value(outcome, output)
    if problem:
        rest = f" Its output until then:\n{answer}" if answer else " It had produced no output."
        content = f"{name} {problem}.{rest}"
    else:
        content = answer or f"{name} finished without an answer."
    render = {"child": child_path, "steps": outcome.turns, "usage": msgspec.to_builtins(outcome.usage)}
    return ToolOutput(content, render=render, is_error=bool(problem))


def extract_answer(outcome: Outcome[Any]) -> str:
    """Return the last text that an agent produced in this run; the incomplete text if its reply was cut off."""
    return outcome.text.strip() or get_last_text(outcome.new_messages)


def get_last_text(messages: Sequence[Message]) -> str:
    """Return the text of the last assistant message that has any; empty if there is none."""
    texts = [each.text for each in messages if each.role == "assistant" and each.text.strip()]
    return texts[-1].strip() if texts else ""


def describe_problem(outcome: Outcome[Any]) -> str:
    """Return why an agent did not finish its task, as part of a sentence; empty if it finished."""
    match outcome.status:
        case "done":
            return ""
        case "stopped" if outcome.reason in _SUCCESS_REASONS:
            return ""
        case "limit":
            return f"reached a limit ({outcome.reason}) before it was done"
        case "cancelled":
            return "was cancelled before it was done"
        case "failed":
            return f"failed ({'' if outcome.error is None else error_message(outcome.error)})"
        case _:
            return f"was stopped ({outcome.reason}) before it was done"


def _extract_value(outcome: Outcome[Any], output: Output[Any]) -> tuple[str, str]:
    """Return the subagent's output as JSON and `""`; or its text and the problem, if the output is not valid."""
    try:
        value = parse_run_output(outcome.new_messages, output) if outcome.output is None else outcome.output
    except Invalid as error:
        return extract_answer(outcome), f"did not answer with a {output.spec.name} ({error})"
    return to_text(to_jsonable(value)), ""
