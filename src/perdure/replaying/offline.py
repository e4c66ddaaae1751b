"""Make a copy of an agent that runs from a recorded log: it calls no model, tool, user or store.

The agent keeps its instructions, tool descriptions, hooks before a call, stop conditions, guardrails, reminders, limits
and engines. Its models, tools, summaries, users, watchers, budget, clock and store are replaced; its extensions open
nothing.
"""

from collections.abc import Iterator
from typing import Any, TypeVar

from msgspec.structs import replace

from perdure.core.model import ModelInfo, model_info
from perdure.core.tool import Tool
from perdure.runtime.extension import Extension
from perdure.runtime.spec import AgentSpec

from .playback import Playback, RecordedModel
from .recorded_compaction import RecordedCompaction, build_note_storing, replay_recorded_compaction
from .recorded_permissions import build_recorded_gate
from .recorded_tools import RecordedTools

A = TypeVar("A", bound=AgentSpec[Any])


def make_offline(agent: A, tape: Playback, calls: RecordedTools, *, compacts: bool = False) -> A:
    """Return a copy of the agent, and of the agents it can hand off to, that gets replies and results from the log.

    `compacts` is true if the session itself was configured to compact the conversation.
    """
    stand_ins = Extension(
        name="replay", wrap_tool=calls.wrap_tool, between_turns=[build_note_storing(tape)]
    )  # the last one is outermost
    return agent.replace(
        model=RecordedModel(tape, _get_model_info(agent)),
        permission=build_recorded_gate(tape, agent.permission),
        compaction=RecordedCompaction(tape) if agent.compaction is not None or compacts else None,
        extensions=[*[_make_extension_offline(each, tape) for each in agent.extensions], stand_ins],
        roles=[replace(each, model="") for each in agent.roles],
        handoffs=[make_offline(each, tape, calls, compacts=compacts) for each in agent.handoffs],
        clock=tape.clock,
        budget=None,
        vault=None,  # what is in the record has no secrets
        watchers=(),
        store="memory:",
        steering_mode="all",  # messages that arrived together do so again
        follow_up_mode="all",
        answer_timeout_seconds=0.0,
    )


def _get_model_info(agent: AgentSpec[Any]) -> ModelInfo:
    """Return the `ModelInfo` of the model that the agent would use without a replay."""
    model = agent.model
    for extension in agent.extensions:
        if extension.wrap_model is not None:
            model = extension.wrap_model(model)
    return model_info(model)


def _make_extension_offline(extension: Extension, tape: Playback) -> Extension:
    """Return a copy of an extension that opens nothing, has no watchers, and does not wrap the model."""
    return replace(
        extension,
        between_turns=[replay_recorded_compaction(tape, each) for each in extension.between_turns],
        roles=[replace(each, model="") for each in extension.roles],
        wrap_model=None,
        watchers=(),
        lifespan=None,
        background=None,
    )


def list_skill_tools(agent: AgentSpec[Any]) -> Iterator[Tool[..., Any]]:
    """Yield the tools that skills can add, for this agent and every agent it can hand off to."""
    for each in agent.reachable:
        for skill in each.all_skills() or ():
            yield from skill.tools
