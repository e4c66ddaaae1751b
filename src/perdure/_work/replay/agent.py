"""Offline copies of agents for a replay: they call no model, tool, user or store, and use the recorded log.

The agent keeps its instructions, tool descriptions, hooks before a call, stop conditions, guardrails, reminders, limits
and engines. Its models, tools, summaries, users, watchers, budget, clock and store are replaced; its extensions open
nothing.
"""

from collections.abc import Iterator
from typing import Any, TypeVar

from msgspec.structs import replace

from perdure._core.model.protocol import ModelInfo, model_info
from perdure._core.tools.tool import Tool
from perdure._runtime.agent.extension import Extension
from perdure._runtime.agent.spec import AgentSpec

from .playback import Playback, RecordedModel
from .recorded import (
    RecordedCompaction,
    RecordedTools,
    copy_gate_for_replay,
    make_recorded_compaction_step,
    make_recorded_events_step,
)

A = TypeVar("A", bound=AgentSpec[Any])


def make_offline_agent(agent: A, playback: Playback, calls: RecordedTools, *, compacts: bool = False) -> A:
    """Return a copy of the agent, and of the agents it can hand off to, that gets replies and results from the log.

    `compacts` is true if the session itself was configured to compact the conversation.
    """
    stand_ins = Extension(
        name="replay", wrap_tool=calls.wrap_tool, between_turns=[make_recorded_events_step(playback)]
    )  # the last one is outermost
    return agent.replace(
        model=RecordedModel(playback, _get_model_info(agent)),
        permission=copy_gate_for_replay(playback, agent.permission),
        compaction=RecordedCompaction(playback) if agent.compaction is not None or compacts else None,
        extensions=[*[_make_extension_offline(each, playback) for each in agent.extensions], stand_ins],
        roles=[replace(each, model="") for each in agent.roles],
        handoffs=[make_offline_agent(each, playback, calls, compacts=compacts) for each in agent.handoffs],
        clock=playback.clock,
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


def _make_extension_offline(extension: Extension, playback: Playback) -> Extension:
    """Return a copy of an extension that opens nothing, has no watchers, and does not wrap the model."""
    return replace(
        extension,
        between_turns=[make_recorded_compaction_step(playback, each) for each in extension.between_turns],
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
