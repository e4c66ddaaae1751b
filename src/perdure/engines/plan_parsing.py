"""Parse the plan (a list of tasks) in a model's reply, and correct its mistakes, so that it can be carried out."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from perdure.core.event import PlannedTask
from perdure.core.reply_json import list_json_values

MAX_DESCRIPTION_CHARACTERS = 4000
MAX_ID_CHARACTERS = 60

_DESCRIPTION_KEYS = ("description", "task", "title")
_DEPENDENCY_KEYS = ("depends_on", "dependsOn", "dependencies")


class ParsedPlan(Struct, frozen=True):
    """The tasks of a parsed plan, freed of duplicate ids, unknown dependencies and cycles; and the mistakes found."""

    tasks: tuple[PlannedTask, ...] = ()
    problems: tuple[str, ...] = ()


def parse_plan(text: str, max_tasks: int, known_ids: Collection[str] = ()) -> ParsedPlan:
    """Parse the plan in a reply: a JSON list of tasks, or an object with such a list as `tasks`.

    Tasks may depend on one another and on `known_ids`, the tasks of earlier plans. A mistake is corrected, and named in
    `problems`.
    """
    lists = [items for each in list_json_values(text) if (items := _get_items(each)) is not None]
    if not lists:
        return ParsedPlan(problems=("there is no JSON list of tasks in the reply",))
    # A reply may have other lists, such as [1] for a note: the first with an object in it is the plan
    items = next((each for each in lists if any(isinstance(item, dict) for item in each)), lists[0])
    problems: list[str] = []
    drafts = _read_tasks(items, problems)
    if len(drafts) > max_tasks:
        problems.append(f"it has {len(drafts)} tasks, and at most {max_tasks} are allowed")
        drafts = drafts[:max_tasks]
    tasks = _rename_duplicates(drafts, known_ids, problems)
    return ParsedPlan(_correct_dependencies(tasks, known_ids, problems), tuple(problems))


def _get_items(value: object) -> Sequence[Any] | None:
    """Return a list, or that in the field `tasks` of an object; `None` if there is none."""
    listed = cast("dict[str, Any]", value).get("tasks") if isinstance(value, dict) else value
    return cast("Sequence[Any]", listed) if isinstance(listed, list) else None


def _read_tasks(items: Sequence[Any], problems: list[str]) -> list[PlannedTask]:
    """Read each item as a task: an object, or its description alone."""
    tasks: list[PlannedTask] = []
    for number, item in enumerate(items, 1):
        fields = cast("dict[str, Any]", item) if isinstance(item, dict) else {"description": item}
        description = _get_text(fields, _DESCRIPTION_KEYS)
        if not description:
            problems.append(f"task {number} has no description")
            continue
        task_id = _get_text(fields, ("id",))[:MAX_ID_CHARACTERS] or str(number)
        needed = tuple(dict.fromkeys(_list_dependencies(fields)))
        tasks.append(PlannedTask(task_id, description[:MAX_DESCRIPTION_CHARACTERS], needed))
    return tasks


def _get_text(fields: Mapping[str, Any], keys: Iterable[str]) -> str:
    for key in keys:
        value = fields.get(key)
        if isinstance(value, (str, int)) and not isinstance(value, bool) and str(value).strip():
            return str(value).strip()
    return ""


def _list_dependencies(fields: Mapping[str, Any]) -> list[str]:
    for key in _DEPENDENCY_KEYS:
        value: Any = fields.get(key)
        if isinstance(value, (str, int)):
            return [str(value).strip()]
        if (items := _get_items(value)) is not None:
            return [str(each).strip()[:MAX_ID_CHARACTERS] for each in items if isinstance(each, (str, int))]
    return []


def _rename_duplicates(
    tasks: Sequence[PlannedTask], known_ids: Collection[str], problems: list[str]
) -> list[PlannedTask]:
    """Rename tasks with a duplicate id; dependencies on such an id mean the first task that has it."""
    taken, unique = set(known_ids), list[PlannedTask]()
    for task in tasks:
        task_id, number = task.id, 1
        while task_id in taken:
            number += 1
            task_id = f"{task.id}-{number}"
        if task_id != task.id:
            problems.append(f"two tasks have the id {task.id!r}")
        taken.add(task_id)
        unique.append(PlannedTask(task_id, task.description, task.depends_on))
    return unique


def _correct_dependencies(
    tasks: Sequence[PlannedTask], known_ids: Collection[str], problems: list[str]
) -> tuple[PlannedTask, ...]:
    """Leave out dependencies on tasks that do not exist, and those that close a cycle."""
    needed: dict[str, list[str]] = {task.id: [] for task in tasks}
    for task in tasks:
        for other in task.depends_on:
            if other not in needed and other not in known_ids:
                problems.append(f"task {task.id!r} depends on {other!r}, which does not exist")
            elif other in needed and _needs(needed, other, task.id):
                problems.append(f"task {task.id!r} depends on itself through {other!r}")
            else:
                needed[task.id].append(other)
    return tuple([PlannedTask(each.id, each.description, tuple(needed[each.id])) for each in tasks])


def _needs(needed: Mapping[str, Sequence[str]], task_id: str, wanted: str) -> bool:
    """Return True if a task is another one, or depends on it, directly or through others."""
    left, seen = [task_id], set[str]()
    while left:
        current = left.pop()
        if current == wanted:
            return True
        if current not in seen:
            seen.add(current)
            left += needed.get(current, ())
    return False
