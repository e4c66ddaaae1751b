"""Things to do, one by one, with ids that the model chooses, and an end to retrying. Above: agents. Below: `core`.

They are in the log, under the name `todos`: they are there after a restart, and screens see them change as
`value_kept`.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from perdure.core.error import ConfigError, ToolError
from perdure.core.plain import excerpt
from perdure.core.tool import Tool, ToolContext, tool

TODOS: Final = "todos"
"""The name under which they are kept."""
MOST_TODOS: Final = 200
MOST_CHARACTERS: Final = 2_000
"""Of what a todo says."""
LONGEST_ID: Final = 64
RETRY_LIMIT: Final = 3
"""From so many retries on, the model is told to stop, and to escalate."""

TodoStatus: TypeAlias = Literal["pending", "in_progress", "done", "cancelled", "failed"]
_STATUSES: Final[tuple[TodoStatus, ...]] = get_args(TodoStatus)
_OVER: Final = frozenset({"done", "cancelled"})


class Todo(Struct, frozen=True, kw_only=True):
    """One thing to do."""

    id: str
    """What the model calls it."""
    content: str
    """What is to be done."""
    status: TodoStatus = "pending"
    retries: int = 0
    """How often it was begun again after it had failed."""


def todos_of(kept: Any) -> list[Todo]:
    """The todos in what `session.kept("todos")` returns, in order; none when nothing was kept."""
    try:
        return [] if kept is None else msgspec.convert(kept, list[Todo])
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{excerpt(kept)} is no list of todos ({error}): was something else kept as 'todos'?"
        ) from error


def todo_tools() -> list[Tool[..., Any]]:
    """`todo_append`, `todo_list` and `todo_update`."""
    return [todo_append, todo_list, todo_update]


@tool(effect="idempotent", parallel=False, credentials=False)
async def todo_append(
    id: Annotated[str, "A short name of your own for it, such as 'rope-1'."],  # noqa: A002 - what models know it as
    content: Annotated[str, "What is to be done."],
    context: ToolContext[Any],
    status: TodoStatus = "pending",
) -> str:
    """Add something to the list of things to do."""
    todos = todos_of(context.kept(TODOS))
    added = Todo(id=_checked_id(id), content=_checked_content(content), status=status)
    if added in todos:
        return f"{added.id!r} is on the list already, just like that."
    if any(each.id == added.id for each in todos):
        raise ToolError(f"there is a todo {added.id!r} already: use todo_update to change it, or another id")
    if len(todos) >= MOST_TODOS:
        raise ToolError(f"there are {len(todos)} todos, and {MOST_TODOS} are the most: finish some of them")
    await context.keep(TODOS, [*todos, added])
    return f"Added {added.id!r}. {_counted([*todos, added])}"


@tool(effect="read", parallel=False, credentials=False)
async def todo_list(
    context: ToolContext[Any],
    include_completed: Annotated[bool, "Whether to show those that are done or cancelled, too."] = False,  # noqa: FBT002 - a model gives it by name
) -> str:
    """Show the list of things to do."""
    todos = todos_of(context.kept(TODOS))
    shown = [each for each in todos if include_completed or each.status not in _OVER]
    return "\n".join([_counted(todos), *[_line(each) for each in shown]])


@tool(effect="idempotent", parallel=False, credentials=False)
async def todo_update(
    id: Annotated[str, "The name under which it was added."],  # noqa: A002 - what models know it as
    context: ToolContext[Any],
    content: Annotated[str | None, "What is to be done instead."] = None,
    status: TodoStatus | None = None,
) -> str:
    """Change what is to be done, or say how it stands. After something failed, in_progress begins it again."""
    todos = todos_of(context.kept(TODOS))
    place = next((place for place, each in enumerate(todos) if each.id == id), None)
    if place is None:
        known = ", ".join([repr(each.id) for each in todos]) or "none"
        raise ToolError(f"there is no todo {id[:LONGEST_ID]!r}: there are {known}")
    if content is None and status is None:
        return f"Nothing to change for {id!r}: give a content or a status."
    changed = _changed(todos[place], content, status)
    if changed != todos[place]:
        todos[place] = changed
        await context.keep(TODOS, todos)
    return f"{_line(changed)}\n{_counted(todos)}"


def _changed(todo: Todo, content: str | None, status: TodoStatus | None) -> Todo:
    is_retry = todo.status == "failed" and status == "in_progress"
    return replace(
        todo,
        content=todo.content if content is None else _checked_content(content),
        status=status or todo.status,
        retries=todo.retries + is_retry,
    )


def _checked_id(name: str) -> str:
    if not name.strip() or len(name) > LONGEST_ID or "\n" in name:
        raise ToolError(f"{name[:LONGEST_ID]!r} cannot be an id: use 1 to {LONGEST_ID} characters on one line")
    return name


def _checked_content(content: str) -> str:
    if not content.strip() or len(content) > MOST_CHARACTERS:
        raise ToolError(
            f"a content of {len(content)} characters is not taken: say in 1 to {MOST_CHARACTERS} what to do"
        )
    return content


def _counted(todos: Sequence[Todo]) -> str:
    counts = [(sum(each.status == status for each in todos), status) for status in _STATUSES]
    told = ", ".join([f"{count} {status}" for count, status in counts if count])
    return f"{len(todos)} on the list: {told}." if todos else "The list is empty."


def _line(todo: Todo) -> str:
    line = f"- [{todo.status}] {todo.id}: {todo.content}"
    if not todo.retries:
        return line
    times = "once" if todo.retries == 1 else f"{todo.retries} times"
    if todo.retries < RETRY_LIMIT or todo.status in _OVER:
        return f"{line} (retried {times})"
    return f"{line} (retried {times}: stop retrying and escalate; say what is wrong, and ask a person)"
