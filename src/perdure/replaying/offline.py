"""An agent as it is, with stand-ins for whatever reaches outside. Above: `drive.py`. Below: `tape.py` and its kin.

Instructions, the words and names of tools, hooks before a call, stop conditions, guardrails, reminders, limits and
engines are the agent's own. Its models, tools, summaries, people, watchers, budget, clock and store are not; what its
extensions would open stays closed.
"""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from perdure.agent import Agent
from perdure.core.model import ModelInfo, info_of
from perdure.core.tool import Tool
from perdure.extension import Extension

from .calls import Calls
from .gate import recorded_gate
from .tape import RecordedModel, Tape
from .upkeep import RecordedCompaction, notes, recorded_upkeep


def offline(agent: Agent[Any], tape: Tape, calls: Calls) -> Agent[Any]:
    """The agent, and those that it can hand over to, in the world of the record."""
    stand_ins = Extension(name="replay", wrap_tool=calls.served, upkeep=[notes(tape)])  # the last one is outermost
    return agent.replace(
        model=RecordedModel(tape, _info(agent)),
        permission=recorded_gate(tape, agent.permission),
        compaction=None if agent.compaction is None else RecordedCompaction(tape),
        extensions=[*[_quiet(each, tape) for each in agent.extensions], stand_ins],
        roles=[replace(each, model="") for each in agent.roles],
        handoffs=[offline(each, tape, calls) for each in agent.handoffs],
        clock=tape.clock,
        ledger=None,
        vault=None,  # what is in the record has no secrets
        watchers=(),
        store="memory:",
        steering_mode="all",  # what came together then comes together now
        follow_up_mode="all",
        patience_seconds=0.0,
    )


def _info(agent: Agent[Any]) -> ModelInfo:
    """What is known about the model that would answer."""
    model = agent.model
    for extension in agent.extensions:
        if extension.wrap_model is not None:
            model = extension.wrap_model(model)
    return info_of(model)


def _quiet(extension: Extension, tape: Tape) -> Extension:
    """An extension that opens nothing, is told nothing, and leaves the model alone."""
    return replace(
        extension,
        upkeep=[recorded_upkeep(tape, each) for each in extension.upkeep],
        roles=[replace(each, model="") for each in extension.roles],
        wrap_model=None,
        watchers=(),
        lifespan=None,
    )


def tools_of_skills(agent: Agent[Any]) -> Iterator[Tool[..., Any]]:
    """What skills bring along when they are loaded, whoever speaks then."""
    for each in agent.reachable:
        for skill in each.all_skills() or ():
            yield from skill.tools
