"""Carry out the tasks of a plan in separate runs: each once its dependencies are done, several at a time."""

import asyncio

from perdure.core.run import Run
from perdure.core.run_function_types import PrivateRunTask
from perdure.core.store import wait_despite_cancel
from perdure.core.unsuccessful_results import RunSuspended

from .planner_tasks import NumberedTask, PlannerTasks
from .private_run import TURNS_FOR_ANSWER, EngineRunStopped, PrivateRunResult, find_private_answer, run_privately
from .settings_of_private_runs import get_private_path

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
