"""The `passthrough` engine: pass the conversation to the model once and return its reply, without tools."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from perdure._core.run.loop import handle_answer, handle_tool_calls, run_turn
from perdure._core.run.outcome import Outcome
from perdure._core.run.run import Run
from perdure._core.run.spec import Engine, RunOptions, RunSpec, ToolSelector
from perdure._core.tools.toolbox import Toolbox
from perdure._core.values.error import LimitExceeded

from .private_run import override_run_spec
from .private_settings import ParentHistoryPrepender

NO_TOOLS_REASON = "no_tools"
"""Reason of a run that ended because the model called a tool, which this engine does not offer."""


def passthrough() -> Engine:
    """Build the engine that asks the model once, and offers it no tools.

    It asks again only if the answer has to be repaired, as for an output type, or if messages are queued.
    """
    return PassthroughEngine()


class PassthroughEngine:
    """Engine that asks the model once, without tools."""

    name = "passthrough"

    async def __call__(self, run: Run) -> Outcome[Any]:
        """Perform a run."""
        override_run_spec(run, toolbox=_keep_answer_tool, tool_selectors=_select_nothing, options=_hide_tool_calls)
        reply = run.state.last_reply  # after a resume: the last stored reply, if nothing follows it yet
        while True:
            try:
                reply = reply or await run_turn(run)
            except LimitExceeded as stop:
                return run.outcome("limit", stop.limit)
            if reply.tool_calls:
                return await handle_tool_calls(run, reply) or run.outcome("stopped", NO_TOOLS_REASON)
            if (outcome := await handle_answer(run, reply)) is not None:
                return outcome
            reply = None


def _keep_answer_tool(spec: RunSpec) -> Toolbox:
    return Toolbox([each for each in spec.toolbox if each.name == spec.answer_tool])


def _select_nothing(_spec: RunSpec) -> Sequence[ToolSelector]:
    return ()


def _hide_tool_calls(spec: RunSpec) -> RunOptions[Any]:
    """Return options that send tool calls of earlier runs as text, and that allow the tools which are left."""
    options = spec.options
    limits = replace(options.limits, allowed_tools=None)
    if spec.answer_tool:
        return replace(options, limits=limits)
    return replace(
        options,
        limits=limits,
        history_processor=ParentHistoryPrepender((), options.history_processor, keeps_tools=False),
    )
