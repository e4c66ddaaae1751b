"""The `chain_of_thought` engine: the model first thinks about the task, outside the conversation, then works on it."""

from typing import Any

from perdure._core.run.loop import react
from perdure._core.run.outcome import Outcome
from perdure._core.run.run import Run
from perdure._core.run.spec import Engine, PrivateRunTask
from perdure._core.values import checks
from perdure._core.values.event import ThinkingDelta

from .private_run import (
    EngineRunStopped,
    PrivateRunResult,
    add_reminder,
    compute_private_turn_limit,
    deliver_and_compact,
    find_work_index,
    has_continued_with_follow_up,
    keep_budget_for_answer,
    run_privately,
)

THOUGHT_PROMPT = (
    "Think about the last message step by step before you act on it: what is asked, what is known, what is missing, "
    "which steps lead to the answer, and what can go wrong. Write down your reasoning only. Do not answer yet."
)
GIVEN_THOUGHT = "Your reasoning about this task, which nobody else sees:\n\n{thought}\n\nAct on it now."
_THOUGHT_TURNS = 2
"""Replies for a thought: a second one if the first called a tool that is not offered."""


def chain_of_thought(*, prompt: str = THOUGHT_PROMPT) -> Engine:
    """Build the engine that has the model think about a task step by step before it works on it.

    The thought is a private run: it is published as a `ThinkingDelta`, is part of each request of the run, and is no
    part of the conversation.

    Args:
        prompt: What the model is asked to think about.
    """
    checks.require_text("chain_of_thought", "prompt", prompt, non_empty=True)
    return ChainOfThoughtEngine(prompt)


class ChainOfThoughtEngine:
    """Engine that has the model think step by step outside the conversation, and then runs `react`."""

    name = "chain_of_thought"

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt

    async def __call__(self, run: Run) -> Outcome[Any]:
        """Perform a run."""
        await deliver_and_compact(run)
        work_index = find_work_index(run)
        try:
            with keep_budget_for_answer(run):
                thought = await self._think(run, work_index)
        except EngineRunStopped as stop:
            return stop.outcome
        if thought is not None and thought.is_done and thought.text:  # else the model answers without it
            if thought.is_new:
                run.publish(run.stamp_event(ThinkingDelta(thought.text)))
            given = GIVEN_THOUGHT.format(thought=thought.text)
            add_reminder(run, self.name, lambda run: None if has_continued_with_follow_up(run, work_index) else given)
        return await react(run)

    async def _think(self, run: Run, work_index: int) -> PrivateRunResult | None:
        """Return the thought of the model, from the log if it is there; `None` if the last turn is for the answer."""
        name = f"thought:{work_index}"
        max_turns = compute_private_turn_limit(run, name, _THOUGHT_TURNS)
        if not max_turns:
            return None
        return await run_privately(run, PrivateRunTask(name=name, prompt=self._prompt, max_turns=max_turns))
