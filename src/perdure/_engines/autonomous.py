"""The `autonomous` engine: the model works until it calls a finish tool, which says that the task is done."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from perdure._core.run.answers import ENGINE_ORIGIN, FallbackAnswer, add_answer, add_fallback_answer
from perdure._core.run.loop import handle_answer, react
from perdure._core.run.outcome import Outcome
from perdure._core.run.run import Run
from perdure._core.run.spec import Accepted, Engine, Retry, RunOptions, RunSpec, ToolSelector
from perdure._core.run.stop import Step, StopCondition, any_of
from perdure._core.schema.parsing import parse_arguments
from perdure._core.tools.tool import Tool, tool_from_schema
from perdure._core.tools.toolbox import Toolbox
from perdure._core.values import checks
from perdure._core.values.error import ModelError, OutOfBudget, ToolError
from perdure._core.values.event import MessageAdded, TextDelta
from perdure._core.values.message import Message, Status, Text

from .private_run import find_work_index, override_run_spec

FINISH_TOOL = "finish"
FINISH_DESCRIPTION = "Say that the work is done, with its result. Call this only when nothing is left to do."
NUDGE_TEXT = "Go on with the work. When it is done, call {name} with the result."
NUDGE_ORIGIN = "autonomous"
"""Origin of the messages that ask the model to go on."""
NOT_FINISHED_REASON = "not_finished"
"""Reason of a run that is done with an answer after which the model was asked to go on, and could not."""


def autonomous(
    *, finish_tool: str = FINISH_TOOL, finish_description: str = FINISH_DESCRIPTION, max_nudges: int = 2
) -> Engine:
    """Build the engine that lets the model work until it calls the finish tool, which says that the task is done.

    The result in that call becomes the answer. Other calls of the same reply get their results first. A run with an
    output type ends with a value of that type instead, and has no such tool.

    Args:
        finish_tool: The name of the tool.
        finish_description: The description of the tool for the model.
        max_nudges: How often a model that answers without calling the tool is asked to go on. After that its answer is
            the result, and also if it cannot go on, with the reason `not_finished`.
    """
    checks.require_text("autonomous", "finish_tool", finish_tool, non_empty=True)
    checks.require_text("autonomous", "finish_description", finish_description, non_empty=True)
    checks.require_int("autonomous", "max_nudges", max_nudges)
    return AutonomousEngine(_build_finish_tool(finish_tool, finish_description), max_nudges)


class AutonomousEngine:
    """Engine that continues the run until the model calls the finish tool."""

    name = "autonomous"

    def __init__(self, finish_tool: Tool[..., Any], max_nudges: int) -> None:
        self._finish_tool = finish_tool
        self.finish_tool_name = finish_tool.name
        self._max_nudges = max_nudges

    async def __call__(self, run: Run) -> Outcome[Any]:
        """Perform a run."""
        if run.spec.has_output_type:
            return await react(run)  # a value of the output type says that it is done
        override_run_spec(
            run,
            toolbox=self._add_finish_tool,
            options=self._allow_finish_tool,
            tool_selectors=self._keep_finish_tool,
            stop=self._add_stop_condition,
            output_validators=lambda spec: [*spec.output_validators, self._ask_to_go_on],
        )
        add_fallback_answer(run, _find_last_words)
        if self._has_last_words_at_end(run):
            return run.outcome("done", NOT_FINISHED_REASON)  # a crash came between that and the end of the run
        while True:
            try:
                outcome = await react(run)
            except ModelError as error:
                if isinstance(error, OutOfBudget) or not _is_nudged(run):
                    raise
                run.report_error(error, "asking the model to go on")
                return await self._end_with_last_words(run)
            result = self._find_result(run.messages) if outcome.status == "stopped" else None
            if result is None:
                return outcome
            answer = await self._add_answer(run, result)
            if (ending := await handle_answer(run, answer)) is not None:
                return ending

    def _has_last_words_at_end(self, run: Run) -> bool:
        """Return True if the conversation ends with a copy of the last words, after which the model could not go on."""
        messages = run.messages
        if messages[-1].origin != ENGINE_ORIGIN or _find_last_words(run) is None:
            return False
        return messages[-2].origin == NUDGE_ORIGIN

    async def _end_with_last_words(self, run: Run) -> Outcome[Any]:
        """Return the outcome of a run whose model has answered, was asked to go on, and could not."""
        words = _find_last_words(run)
        if words is not None:
            await add_answer(run, words.text)
        return run.outcome("done", NOT_FINISHED_REASON)

    async def _add_answer(self, run: Run, result: str) -> Message:
        """Add the result to the conversation, as the answer of the model."""
        reply = run.messages[-2]
        answer = Message("assistant", (Text(result),), origin=ENGINE_ORIGIN, provider=reply.provider, model=reply.model)
        run.publish(run.stamp_event(TextDelta(result)))
        await run.emit(run.stamp_event(MessageAdded(answer)))
        return answer

    def _add_finish_tool(self, spec: RunSpec) -> Toolbox:
        return spec.toolbox.with_tools([self._finish_tool])

    def _keep_finish_tool(self, spec: RunSpec) -> Sequence[ToolSelector]:
        """Return selectors that do not hide the finish tool, which the model always has to be able to call."""
        if not spec.tool_selectors:
            return ()
        name = self._finish_tool.name

        def leave_out(tools: Toolbox, _loaded: Sequence[str]) -> Toolbox:
            return Toolbox([each for each in tools if each.name != name])

        def add(tools: Toolbox, _loaded: Sequence[str]) -> Toolbox:
            return tools.with_tools([self._finish_tool])

        return [leave_out, *spec.tool_selectors, add]

    def _allow_finish_tool(self, spec: RunSpec) -> RunOptions[Any]:
        allowed = spec.options.limits.allowed_tools
        if allowed is None:
            return spec.options
        limits = replace(spec.options.limits, allowed_tools=(*allowed, self._finish_tool.name))
        return replace(spec.options, limits=limits)

    def _add_stop_condition(self, spec: RunSpec) -> StopCondition:
        return self._is_finished if spec.stop is None else any_of(spec.stop, self._is_finished)

    def _is_finished(self, step: Step) -> bool:
        name = self._finish_tool.name
        return any(each.name == name and each.status is Status.OK for each in step.results)

    def _find_result(self, messages: Sequence[Message]) -> str | None:
        """Return the result that the model gave in its last reply; `None` if it has not finished there."""
        name = self._finish_tool.name
        fine = [each.call_id for each in messages[-1].tool_results if each.name == name and each.status is Status.OK]
        if not fine:
            return None
        call = next(each for each in messages[-2].tool_calls if each.call_id == fine[0])
        return str(parse_arguments(call.arguments)["result"])

    def _ask_to_go_on(self, run: Run, _reply: Message) -> Accepted | Retry:
        """Output validator: ask a model that answers without calling the tool to go on, a limited number of times."""
        messages = run.messages
        if len(messages) > 2 and self._find_result(messages[:-1]) is not None:  # noqa: PLR2004 - a call, its result
            return Accepted()
        nudges = sum([each.origin == NUDGE_ORIGIN for each in messages[find_work_index(run) :]])
        if nudges >= self._max_nudges:
            return Accepted()
        return Retry(NUDGE_TEXT.format(name=self._finish_tool.name), NUDGE_ORIGIN)


def _is_nudged(run: Run) -> bool:
    """Return True if the last message asks the model to go on."""
    return bool(run.messages) and run.messages[-1].origin == NUDGE_ORIGIN


def _find_last_words(run: Run) -> FallbackAnswer | None:
    """Return the last answer of a model that was asked to go on after it; `None` if it was not."""
    first = find_work_index(run)
    nudges = [index for index, each in enumerate(run.messages[first:], first) if each.origin == NUDGE_ORIGIN]
    return FallbackAnswer(run.messages[nudges[-1] - 1].text, nudges[-1]) if nudges else None


def _build_finish_tool(name: str, description: str) -> Tool[..., Any]:
    async def finish(arguments: Mapping[str, Any]) -> str:
        if not str(arguments["result"]).strip():
            raise ToolError("the result is empty: give the result of the work, as text")
        return "finished"

    schema = {
        "type": "object",
        "properties": {"result": {"type": "string", "description": "The complete result, as the user will read it."}},
        "required": ["result"],
    }
    return replace(tool_from_schema(name, description, schema, finish, effect="read"), is_of_the_runtime=True)
