"""The tasks of the `planner` engine's plans, their results, and the scheduler that carries them out."""

import asyncio
from collections.abc import Iterable, Sequence

from msgspec import Struct

from perdure._core.log.store import wait_despite_cancel
from perdure._core.run.run import Run
from perdure._core.run.spec import PrivateRunTask
from perdure._core.tools.results import RunSuspended
from perdure._core.values.engine_event import PlannedTask

from .private_run import (
    LIMITS_OF_THE_RUN,
    TURNS_FOR_ANSWER,
    EngineRunStopped,
    PrivateRunResult,
    find_private_answer,
    run_privately,
)
from .private_settings import get_private_path

MAX_RESULT_CHARACTERS = 8000
"""Characters of the result of a task that other tasks, plans and the answer are given."""


class NumberedTask(Struct, frozen=True):
    """A planned task with its number among all tasks of the run, from which its private run is named."""

    number: int
    task: PlannedTask


class PlannerTasks:
    """The tasks of all plans of a run of the `planner` engine, and the results of those that have ended."""

    def __init__(self, work_index: int = 0) -> None:
        self.work_index = work_index
        """Index of the message with which the work began."""
        self.tasks: list[NumberedTask] = []
        """All tasks, in the order of the plans."""
        self.answers: dict[str, PrivateRunResult] = {}
        """How tasks have ended, by id."""
        self.is_cut_short = False
        """True if tasks were not begun, because no turns of the run were left."""
        self._current: list[NumberedTask] = []
        self._count = 0

    def add_plan(self, tasks: Sequence[PlannedTask]) -> None:
        """Add the tasks of another plan.

        Those of earlier plans that have not begun are given up, and those that have failed are replaced by tasks of the
        same id.
        """
        for each in tasks:
            self.answers.pop(each.id, None)  # of a task that has failed: the ids of others are taken
        begun = [each for each in self.tasks if each.task.id in self.answers]
        self._current = [NumberedTask(number, each) for number, each in enumerate(tasks, self._count + 1)]
        self._count += len(tasks)
        self.tasks = [*begun, *self._current]

    @property
    def reached_limit(self) -> str:
        """The limit of the run because of which tasks were not begun, or not carried out; empty if there is none."""
        ended = [each.reason for each in self.answers.values() if each.status == "limit"]
        spent = next((each for each in ended if each in LIMITS_OF_THE_RUN), "")
        return spent or ("max_turns" if self.is_cut_short else "")

    @property
    def done_ids(self) -> list[str]:
        """Ids of the tasks that were carried out."""
        return [task_id for task_id, answer in self.answers.items() if answer.is_done]

    @property
    def is_complete(self) -> bool:
        """True if all tasks of the last plan were carried out."""
        return all(each.task.id in self.answers and self.answers[each.task.id].is_done for each in self._current)

    def list_ready(self) -> list[NumberedTask]:
        """Return the tasks that have not ended and whose dependencies were all carried out."""
        done = set(self.done_ids)
        return [
            each for each in self._current if each.task.id not in self.answers and done.issuperset(each.task.depends_on)
        ]

    @property
    def has_results(self) -> bool:
        """True if a task has a result, or a part of one."""
        return any(each.text for each in self.answers.values())

    def describe(self, *, only: Iterable[str] | None = None, max_characters: int | None = MAX_RESULT_CHARACTERS) -> str:
        """Return the tasks with their results, as text for the model; with `only`, these tasks.

        Each result is cut after `max_characters`.
        """
        wanted = None if only is None else set(only)
        tasks = [each.task for each in self.tasks if wanted is None or each.task.id in wanted]
        return "\n\n".join([self._describe_task(each, max_characters) for each in tasks])

    def _describe_task(self, task: PlannedTask, max_characters: int | None) -> str:
        answer = self.answers.get(task.id)
        if answer is None:
            needs = f" It depends on {', '.join(task.depends_on)}." if task.depends_on else ""
            return f"Task {task.id}: {task.description}\nNot begun.{needs}"
        text = answer.text[:max_characters]
        if answer.is_done:
            return f"Task {task.id}: {task.description}\nDone. Result:\n{text}"
        why = f"{answer.status} {answer.reason}".strip()
        return f"Task {task.id}: {task.description}\nFailed ({why})." + (f" So far:\n{text}" if text else "")


TASK_PROMPT = (
    "The work on the last message above was split into tasks. Do this one task now, and nothing else:\n\n{task}\n\n"
    "{results}Reply with the result of the task, complete and with all that other tasks need of it."
)
GIVEN_RESULTS = "The results of the tasks that it depends on:\n\n{report}\n\n"


class RunningTask:
    """A planned task that is being carried out, with the asyncio task that waits for its run."""

    def __init__(self, numbered: NumberedTask, path: str, max_turns: int) -> None:
        self.numbered = numbered
        self.path = path
        self.max_turns = max_turns
        """Turns that its private run may take in all."""


class TaskScheduler:
    """Carries out the tasks on a `PlannerTasks`, a limited number at a time."""

    def __init__(self, run: Run, board: PlannerTasks, max_parallel_tasks: int, max_task_turns: int) -> None:
        limits = run.limits
        self._run = run
        self._board = board
        one_by_one = limits.max_tool_calls is not None or not all(each.parallel for each in run.toolbox)
        self._max_parallel = 1 if one_by_one else min(max_parallel_tasks, limits.max_parallel_tools)
        self._max_parallel_tools = max(1, limits.max_parallel_tools // self._max_parallel)
        self._max_task_turns = max_task_turns
        self._running: dict[asyncio.Task[PrivateRunResult], RunningTask] = {}
        self._stop: EngineRunStopped | RunSuspended | None = None
        """Why no more tasks begin: the run is over, or waits."""

    async def carry_out_tasks(self) -> None:
        """Carry out all tasks that can be done; those that depend on a failed one are left.

        Raises `RunSuspended` or `EngineRunStopped`, once no task is running any more.
        """
        try:
            while True:
                self._begin_ready_tasks()
                if not self._running:
                    break
                done, _ = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    self._take_answer(each)
        except BaseException:
            await self._cancel_running()
            raise
        if self._stop is not None:
            raise self._stop
        self._board.is_cut_short = bool(self._board.list_ready())

    def _begin_ready_tasks(self) -> None:
        """Begin tasks whose dependencies are done, as many as may run and as the turns of the run allow."""
        busy = {each.numbered.task.id for each in self._running.values()}
        ready = [each for each in self._board.list_ready() if each.task.id not in busy]
        while ready and len(self._running) < self._max_parallel and self._stop is None:
            numbered, name = ready[0], self._name_task(ready[0])
            turns = self._share_turns(name, min(len(ready), self._max_parallel - len(self._running)))
            if turns is None:
                return
            del ready[0]
            work = asyncio.ensure_future(run_privately(self._run, self._build_private_task(numbered, name, turns)))
            self._running[work] = RunningTask(numbered, get_private_path(self._run, name), turns)

    def _name_task(self, numbered: NumberedTask) -> str:
        return f"task:{self._board.work_index}:{numbered.number}"

    def _share_turns(self, name: str, sharing: int) -> int | None:
        """Return the most turns of the private run of this name; `None` if the run has none left for it."""
        run = self._run
        if run.limits.max_turns is None or find_private_answer(run, name) is not None:
            return self._max_task_turns
        promised = sum([each.max_turns - run.state.get_child(each.path).turns for each in self._running.values()])
        left = run.limits.max_turns - run.state.turns - promised - TURNS_FOR_ANSWER
        if left < 1:
            return None
        used = run.state.get_child(get_private_path(run, name)).turns  # before a crash
        return used + max(1, min(self._max_task_turns - used, left // sharing))

    def _build_private_task(self, numbered: NumberedTask, name: str, max_turns: int) -> PrivateRunTask:
        needed = numbered.task.depends_on
        report = GIVEN_RESULTS.format(report=self._board.describe(only=needed)) if needed else ""
        return PrivateRunTask(
            name=name,
            prompt=TASK_PROMPT.format(task=numbered.task.description, results=report),
            offers_tools=True,
            max_turns=max_turns,
            max_parallel_tools=self._max_parallel_tools,
        )

    def _take_answer(self, work: "asyncio.Task[PrivateRunResult]") -> None:
        """Store the answer of a task that has ended on the board, or remember why no more tasks begin."""
        ended = self._running.pop(work)
        try:
            self._board.answers[ended.numbered.task.id] = work.result()
        except RunSuspended as waiting:  # the others go on, as far as they can
            self._stop = self._stop or waiting
        except EngineRunStopped as stop:
            self._stop = stop
            if self._run.cancel_mode is None:  # else all of them are being cancelled already
                for child in self._run.children:
                    child.cancel("after_tools")

    async def _cancel_running(self) -> None:
        """Cancel the tasks that are running, and wait until they have ended."""
        for work in self._running:
            work.cancel()
        await wait_despite_cancel(self._running)
        for work in self._running:
            _ = work.cancelled() or work.exception()  # retrieved, so that asyncio does not log it
