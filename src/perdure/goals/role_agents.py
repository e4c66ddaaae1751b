"""The agents of a goal: the maker as it is given, and a planner and a checker whose tools can only read."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from perdure.core.loop import react
from perdure.core.run_function_types import find_shutdown_signal
from perdure.core.stop_conditions import Limits, merge_limits
from perdure.runtime.agent import Agent

from .checker_and_planner_replies import make_verdict_validator, validate_plan
from .goal import ChecklistItem
from .role_prompts import CHECKER_INSTRUCTIONS, PLANNER_INSTRUCTIONS


def build_read_only_agent(agent: "Agent[Any]", name: str, instructions: str) -> "Agent[Any]":
    """Return a copy of an agent with other instructions, which can use only those of its tools that change nothing.

    These are the tools with `effect="read"`. The others are neither offered to the model nor carried out, whatever it
    calls.
    """
    process_end = find_shutdown_signal(agent.engine)
    built = agent.replace(
        name=name,
        instructions=f"{instructions}\n{agent.instructions}".strip() if agent.instructions else instructions,
        handoffs=(),
        spare_tools=(),
        output_validators=(),
        commands=(),
        stop=None,
        engine=react if process_end is None else process_end.wrap_engine(react),
        limits=replace(agent.limits, allowed_tools=None),
        role="",
        roles=(),
    )
    allowed = agent.limits.allowed_tools
    found = [each.name for each in built.tools if each.effect == "read"]
    readable = tuple([each for each in found if allowed is None or each in allowed])
    return built.replace(limits=replace(built.limits, allowed_tools=readable))


def build_planner(agent: "Agent[Any]") -> "Agent[Any]":
    """Return a copy of an agent that plans the checklist of a goal; its tools can only read."""
    return build_read_only_agent(agent, "planner", PLANNER_INSTRUCTIONS).replace(output_validators=(validate_plan,))


def build_checker(agent: "Agent[Any]") -> "Agent[Any]":
    """Return a copy of an agent that judges the checklist of a goal; its tools can only read."""
    return build_read_only_agent(agent, "checker", CHECKER_INSTRUCTIONS)


def add_verdict_validator(checker: "Agent[Any]", items: Sequence[ChecklistItem]) -> "Agent[Any]":
    """Return a copy of the checker that has to repair a verdict which does not fit these checklist items."""
    return checker.replace(output_validators=(make_verdict_validator(items),))


def limit_seconds(limits: Limits, seconds: float | None) -> Limits:
    """Return run limits whose time limit is at most `seconds`; unchanged if that is `None`."""
    return limits if seconds is None else merge_limits(limits, Limits(timeout_seconds=max(seconds, 0.001)))
