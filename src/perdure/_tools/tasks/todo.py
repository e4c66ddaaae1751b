"""Tools for a todo list whose items the model adds and updates one by one, under ids that it chooses.

An item that failed may be retried a limited number of times.

It is stored in the log, under the name `todos`: it survives a restart, and screens see it change as `value_kept`.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from perdure._core.tools.context import ToolContext
from perdure._core.tools.tool import Tool, tool
from perdure._core.values.error import ConfigError, ToolError
from perdure._core.values.jsonable import convert, short_repr

from .storage import Values, read_value, replace_value_store, write_value

TODOS: Final = "todos"
"""The name under which the list is stored."""
MOST_TODOS: Final = 200
MOST_CHARACTERS: Final = 2_000
"""The longest content of a todo, in characters."""
LONGEST_ID: Final = 64
RETRY_LIMIT: Final = 3
"""From this many retries on, the model is asked to stop, and to escalate."""

TodoStatus: TypeAlias = Literal["pending", "in_progress", "done", "cancelled", "failed"]
"""The status of a todo; `in_progress` after `failed` counts as a retry."""
_STATUSES: Final[tuple[TodoStatus, ...]] = get_args(TodoStatus)
_OVER: Final = frozenset({"done", "cancelled"})


class TodoItem(Struct, frozen=True, kw_only=True):
    """An item of the todo list, as it is stored in the log."""

    id: str
    """The id that the model has chosen."""
    content: str
    """The text of the item."""
    status: TodoStatus = "pending"
    retries: int = 0
    """The number of times that it was to be done again after it had failed."""


def parse_todos(kept: Any) -> list[TodoItem]:
    """Convert the value of `session.kept("todos")` to a list of items; `None` gives an empty list."""
    try:
        return [] if kept is None else convert(kept, list[TodoItem])
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{short_repr(kept)} is no list of todos ({error}): was another value stored as 'todos'?"
        ) from error


def todo_tools(values: Values = None) -> list[Tool[..., Any]]:
    """Return the tools `todo_append`, `todo_list` and `todo_update`, with which an agent keeps a todo list.

    `values` is where it is stored: by default in the log of the agent, with `"session"` in that of the session, for all
    its agents, or in a `ValueStore` of your own.
    """
    return replace_value_store([todo_append, todo_list, todo_update], values)


@tool(effect="idempotent", parallel=False, credentials=False)
async def todo_append(
    id: Annotated[str, "A short name of your own for it, such as 'rope-1'."],  # noqa: A002 - what models know it as
    content: Annotated[str, "What is to be done."],
    context: ToolContext[Any],
    status: TodoStatus = "pending",
) -> str:
    """Add an item to the todo list."""
    todos = parse_todos(await read_value(context, TODOS))
    added = TodoItem(id=_check_id(id), content=_check_content(content), status=status)
    if added in todos:
        return f"{added.id!r} is on the list already, just like that."
    if any(each.id == added.id for each in todos):
        raise ToolError(f"there is a todo {added.id!r} already: use todo_update to change it, or another id")
    if len(todos) >= MOST_TODOS:
        raise ToolError(f"there are {len(todos)} todos, and {MOST_TODOS} are the most: finish some of them")
    await write_value(context, TODOS, [*todos, added])
    return f"Added {added.id!r}. {_format_counts([*todos, added])}"


@tool(effect="read", parallel=False, credentials=False)
async def todo_list(
    context: ToolContext[Any],
    include_completed: Annotated[bool, "Whether to show those that are done or cancelled, too."] = False,  # noqa: FBT002 - a model gives it by name
) -> str:
    """Show the todo list."""
    todos = parse_todos(await read_value(context, TODOS))
    shown = [each for each in todos if include_completed or each.status not in _OVER]
    return "\n".join([_format_counts(todos), *[_format_todo(each) for each in shown]])


@tool(effect="idempotent", parallel=False, credentials=False)
async def todo_update(
    id: Annotated[str, "The name under which it was added."],  # noqa: A002 - what models know it as
    context: ToolContext[Any],
    content: Annotated[str | None, "What is to be done instead."] = None,
    status: TodoStatus | None = None,
) -> str:
    """Change a todo item or its status. To try a failed item again, set its status to in_progress or pending."""
    todos = parse_todos(await read_value(context, TODOS))
    place = next((place for place, each in enumerate(todos) if each.id == id), None)
    if place is None:
        known = ", ".join([repr(each.id) for each in todos]) or "none"
        raise ToolError(f"there is no todo {id[:LONGEST_ID]!r}: there are {known}")
    if content is None and status is None:
        return f"Nothing to change for {id!r}: give a content or a status."
    changed = _update_todo(todos[place], content, status)
    if changed != todos[place]:
        todos[place] = changed
        await write_value(context, TODOS, todos)
    return f"{_format_todo(changed)}\n{_format_counts(todos)}"


def _update_todo(todo: TodoItem, content: str | None, status: TodoStatus | None) -> TodoItem:
    is_retry = todo.status == "failed" and status in {"in_progress", "pending"}  # now, or when its turn comes
    return replace(
        todo,
        content=todo.content if content is None else _check_content(content),
        status=status or todo.status,
        retries=todo.retries + is_retry,
    )


def _check_id(name: str) -> str:
    if not name.strip() or len(name) > LONGEST_ID or "\n" in name:
        raise ToolError(f"{name[:LONGEST_ID]!r} cannot be an id: use 1 to {LONGEST_ID} characters on one line")
    return name


def _check_content(content: str) -> str:
    if not content.strip() or len(content) > MOST_CHARACTERS:
        raise ToolError(
            f"a content of {len(content)} characters is not accepted: use 1 to {MOST_CHARACTERS} characters"
        )
    return content


def _format_counts(todos: Sequence[TodoItem]) -> str:
    counts = [(sum(each.status == status for each in todos), status) for status in _STATUSES]
    listed = ", ".join([f"{count} {status}" for count, status in counts if count])
    return f"{len(todos)} on the list: {listed}." if todos else "The list is empty."


def _format_todo(todo: TodoItem) -> str:
    line = f"- [{todo.status}] {todo.id}: {todo.content}"
    if not todo.retries:
        return line
    times = "once" if todo.retries == 1 else f"{todo.retries} times"
    if todo.retries < RETRY_LIMIT or todo.status in _OVER:
        return f"{line} (retried {times})"
    return f"{line} (retried {times}: stop retrying and escalate; say what is wrong, and ask a person)"
