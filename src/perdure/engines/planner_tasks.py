"""The tasks of all plans that the `planner` engine made in a run, and the result of each task that has ended."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from perdure.core.event import PlannedTask

from .private_run import LIMITS_OF_THE_RUN, PrivateRunResult

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
