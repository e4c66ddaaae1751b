"""Tools for a task list that the model rewrites as a whole; in the module `todo`, tools change one item at a time.

The list is stored in the log, under the name `tasks`: it survives a restart, and screens see it change as `value_kept`.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias, cast, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from perdure._core.tools.context import ToolContext
from perdure._core.tools.tool import Tool, ToolOutput, tool
from perdure._core.values.error import ConfigError, ToolError, UsageError
from perdure._core.values.jsonable import convert, short_repr

from .storage import Values, read_value, replace_value_store, write_value

TASKS: Final = "tasks"
"""The name under which the list is stored."""
MOST_TASKS: Final = 100
MOST_CHARACTERS: Final = 500
"""The longest content of a task, in characters."""

TaskStatus: TypeAlias = Literal["pending", "in_progress", "completed"]
"""The status of a task."""
_SIGNS: Final[dict[str, str]] = dict(zip(get_args(TaskStatus), (" ", "~", "x"), strict=True))


class Task(Struct, frozen=True, kw_only=True):
    """An entry of the agent's task list, as it is stored in the log."""

    id: str
    """Stays the same as long as the content does."""
    content: str
    """The task, such as "Splice the rope"."""
    active_form: str = ""
    """The task while it is being done, such as "Splicing the rope"; for screens."""
    status: TaskStatus = "pending"

    @property
    def display_text(self) -> str:
        """The text that a user interface displays for the task, depending on its status."""
        return self.active_form if self.status == "in_progress" and self.active_form else self.content


class StatedTask(Struct, frozen=True):
    """A task in the form in which the model writes it, without an id."""

    content: Annotated[str, "What is to be done, as an order: 'Splice the rope'."]
    active_form: Annotated[str, "The same while it is being done: 'Splicing the rope'."] = ""
    status: TaskStatus = "pending"


def parse_tasks(kept: Any) -> list[Task]:
    """Convert the value of `session.kept("tasks")` to a list of tasks; `None` gives an empty list."""
    try:
        return [] if kept is None else convert(kept, list[Task])
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{short_repr(kept)} is no list of tasks ({error}): was another value stored as 'tasks'?"
        ) from error


def task_tools(values: Values = None) -> list[Tool[..., Any]]:
    """Return the tool `update_tasks`, with which an agent keeps its task list.

    `values` is where it is stored: by default in the log of the agent, with `"session"` in that of the session, for all
    its agents, or in a `ValueStore` of your own.
    """
    return replace_value_store([update_tasks], values)


@tool(effect="idempotent", parallel=False, credentials=False)
async def update_tasks(
    tasks: Annotated[list[StatedTask], "All tasks, done ones included, in order. It replaces the old list."],
    context: ToolContext[Any],
) -> ToolOutput:
    """Write down the tasks of a longer piece of work, and keep the list up to date while working.

    Give the whole list each time. Mark a task as in_progress before beginning it, one at a time, and as completed as
    soon as it is done.
    """
    _check_tasks(tasks)
    named = _assign_ids(tasks, parse_tasks(await read_value(context, TASKS)))
    await write_value(context, TASKS, named)
    return ToolOutput(_format_tasks(named), render=named)


def convert_host_tasks(tasks: Any, known: Sequence[Task]) -> list[Task]:
    """Convert tasks from a host program, as objects or text, to tasks with ids. Raises `ConfigError` for anything else.

    A `Task` keeps its own id; another one whose content is known keeps the id that it has.
    """
    if isinstance(tasks, str) or not isinstance(tasks, Sequence):
        raise ConfigError(f"{short_repr(tasks)} is no list of tasks: give Task(…), StatedTask(…) or text for each")
    listed: list[Task | StatedTask | str] = []
    for each in cast("Sequence[object]", tasks):
        if not isinstance(each, Task | StatedTask | str):
            raise ConfigError(f"{short_repr(each)} is no task: give Task(…), StatedTask(…) or text")
        listed.append(each)
    stated = [_to_stated_task(each) for each in listed]
    try:
        _check_tasks(convert(msgspec.to_builtins(stated), list[StatedTask]))
    except (ToolError, msgspec.ValidationError) as error:
        raise ConfigError(f"these tasks are not accepted: {error}") from None
    given = [each for each in listed if isinstance(each, Task)]
    taken = {each.id for each in given}
    named = _assign_ids(stated, [*given, *[each for each in known if each.id not in taken]])
    return [each if isinstance(each, Task) else other for each, other in zip(listed, named, strict=True)]


def _to_stated_task(task: Task | StatedTask | str) -> StatedTask:
    return StatedTask(task) if isinstance(task, str) else StatedTask(task.content, task.active_form, task.status)


def apply_task_changes(tasks: Sequence[Task], task_id: str, changes: dict[str, str | None]) -> tuple[list[Task], Task]:
    """Return the list with one task changed, and that task. Raises `UsageError` if no task has this id."""
    found = next((each for each in tasks if each.id == task_id), None)
    if found is None:
        known = ", ".join([repr(each.id) for each in tasks]) or "none"
        raise UsageError(f"there is no task {task_id!r}: there are {known}")
    given = {name: value for name, value in changes.items() if value is not None}
    changed = replace(found, **given)
    return convert_host_tasks([changed if each is found else each for each in tasks], ()), changed


def _check_tasks(tasks: Sequence[StatedTask]) -> None:
    if len(tasks) > MOST_TASKS:
        raise ToolError(f"{len(tasks)} tasks are too many, {MOST_TASKS} are the most: put several into one")
    for number, each in enumerate(tasks, 1):
        if not each.content.strip():
            raise ToolError(f"task {number} has no content: say what is to be done")
        if max(len(each.content), len(each.active_form)) > MOST_CHARACTERS:
            raise ToolError(f"task {number} has more than {MOST_CHARACTERS} characters: say it in a sentence")


def _assign_ids(stated: Sequence[StatedTask], known: Sequence[Task]) -> list[Task]:
    """Return the model's tasks with ids: one whose content is unchanged keeps its id."""
    ids: dict[str, list[str]] = {}
    for task in known:
        ids.setdefault(task.content, []).append(task.id)
    highest = max(
        [int(task.id.rpartition("-")[2]) for task in known if task.id.rpartition("-")[2].isdecimal()], default=0
    )
    named: list[Task] = []
    for each in stated:
        same = ids.get(each.content)
        if not same:
            highest += 1
        task_id = same.pop(0) if same else f"task-{highest}"
        named.append(Task(id=task_id, content=each.content, active_form=each.active_form, status=each.status))
    return named


def _format_tasks(tasks: Sequence[Task]) -> str:
    if not tasks:
        return "The list is empty."
    done = sum(task.status == "completed" for task in tasks)
    lines = [f"{done} of {len(tasks)} done:", *[f"[{_SIGNS[task.status]}] {task.content}" for task in tasks]]
    if sum(task.status == "in_progress" for task in tasks) > 1:
        lines.append("More than one is in_progress: work on one at a time.")
    return "\n".join(lines)
