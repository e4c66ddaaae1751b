"""Storage for task lists, todos and notes: in the log or in your own store; and the tools for a page of notes."""

import inspect
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Annotated, Any, Final, Literal, Protocol, TypeAlias, cast

from perdure._core.run.calling_run import get_run_of_call
from perdure._core.run.run import Run
from perdure._core.tools.context import ToolContext
from perdure._core.tools.tool import Tool, tool
from perdure._core.tools.wrappers import around, labelled
from perdure._core.values import checks
from perdure._core.values.error import ConfigError, ToolError
from perdure._core.values.event import ValueKept
from perdure._core.values.jsonable import to_jsonable
from perdure._core.values.lock import hold_named_lock
from perdure._core.values.message import merge_labels


class ValueStore(Protocol):
    """Protocol of a store of named values. The methods may be plain functions or async ones."""

    def load(self, name: str) -> Any:
        """Return the value of that name, as JSON values; `None` if there is none."""
        ...

    def save(self, name: str, value: Any) -> Any:
        """Store a value under a name, in place of the old one."""
        ...


Values: TypeAlias = ValueStore | Literal["session"] | None
"""Where values are stored: your own store, the session for all its agents, or (`None`) the agent that stores them."""

_values: ContextVar[Values] = ContextVar("perdure_tool_values", default=None)
"""The place for the values of the tool that is being called."""
_seen_labels: ContextVar[dict[str, None]] = ContextVar("perdure_seen_labels")
"""Labels of the values that several agents share and the tool that is being called has read."""
_LABELS: Final = ".labels"
"""What is added to the name of a value for that of its labels."""


def replace_value_store(tools: Sequence[Tool[..., Any]], values: Values) -> list[Tool[..., Any]]:
    """Wrap tools so that they store their values in `values` instead of in the agent's part of the session log.

    It is `"session"` or a `ValueStore`; `None` changes nothing. Raises `ConfigError` for other objects.
    """
    if values is None:
        return list(tools)
    is_store = callable(getattr(values, "load", None)) and callable(getattr(values, "save", None))
    if values != "session" and (isinstance(values, type) or not is_store):
        checks.raise_config_error("tools", "values", values, "give 'session', or an object with load and save")

    async def use_values(call_next: Any, _arguments: Any, _context: Any) -> Any:
        token = _values.set(values)
        try:
            return await call_next()
        finally:
            _values.reset(token)

    def take_labels(_context: ToolContext[Any]) -> list[str]:
        return [*_seen_labels.get()]

    async def collect_labels(call_next: Any, _arguments: Any, _context: Any) -> Any:
        token = _seen_labels.set({})
        try:
            return await call_next()
        finally:
            _seen_labels.reset(token)

    return [around(labelled(around(each, use_values), take_labels), collect_labels) for each in tools]


async def _read_labels(context: ToolContext[Any], name: str) -> list[str]:
    """Return the labels of what was stored under a name for several agents: those of all that has written it."""
    found = await _read_shared(context, f"{name}{_LABELS}")
    return [each for each in cast("list[object]", found) if isinstance(each, str)] if isinstance(found, list) else []


async def read_value(context: ToolContext[Any], name: str, default: Any = None) -> Any:
    """Return the value that a list or notes tool has stored under a name; `default` if there is none."""
    values = _values.get()
    if values is None:
        return context.kept(name, default)
    found = await _read_shared(context, name)
    # Then its labels, which are stored before it: another agent may be writing.
    _seen_labels.get().update(dict.fromkeys(await _read_labels(context, name)))
    return default if found is None else found


async def _read_shared(context: ToolContext[Any], name: str) -> Any:
    """Return a value that several agents share; `None` if there is none."""
    values = _values.get()
    if values is None or isinstance(values, str):
        return _find_top_run(context).state.kept_values.get(name)
    found = values.load(name)
    return await found if inspect.isawaitable(found) else found


async def write_value(context: ToolContext[Any], name: str, value: Any) -> None:
    """Store a value of a list or notes tool under a name."""
    values = _values.get()
    if values is None:
        await context.keep(name, value)
        return
    shared_by = _find_top_run(context) if isinstance(values, str) else values
    async with hold_named_lock(_LABELS, id(shared_by), name):  # else the labels of two agents would replace each other
        known = await _read_labels(context, name)
        labels = merge_labels(known, context.run.state.labels)
        if len(labels) > len(known):  # first: with the value alone, another agent would take it for the user's
            await _write_shared(context, values, f"{name}{_LABELS}", list(labels))
        await _write_shared(context, values, name, to_jsonable(context.redact(value)))


async def _write_shared(context: ToolContext[Any], values: ValueStore | str, name: str, value: Any) -> None:
    if isinstance(values, str):
        top = _find_top_run(context)
        await top.emit(top.stamp_event(ValueKept(name, value)))
        return
    saved = values.save(name, value)
    if inspect.isawaitable(saved):
        await saved


def _find_top_run(context: ToolContext[Any]) -> Run:
    """Return the run of the session's own agent, which the run of this call works for, directly or not."""
    run = get_run_of_call(context)
    while run.parent is not None:
        run = run.parent
    return run


class MemoryValues:
    """A `ValueStore` in memory, for agents of one process that share values."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def load(self, name: str) -> Any:
        """Return the value of that name; `None` if there is none."""
        return self._values.get(name)

    def save(self, name: str, value: Any) -> None:
        """Store a value under a name. Raises `ConfigError` if the name is no text."""
        if not isinstance(name, str):
            raise ConfigError(f"MemoryValues.save(name={name!r}): give text")
        self._values[name] = value


SCRATCHPAD: Final = "scratchpad"
"""The name under which the page is stored."""
MOST_CHARACTERS: Final = 20_000


def scratchpad_tools(values: Values = None) -> list[Tool[..., Any]]:
    """Return the tools `read_scratchpad` and `write_scratchpad`, with which an agent keeps a page of notes.

    `values` is where it is stored: by default in the log of the agent, with `"session"` in that of the session, for all
    its agents, or in a `ValueStore` of your own.
    """
    return replace_value_store([read_scratchpad, write_scratchpad], values)


@tool(effect="read", parallel=False, credentials=False)
async def read_scratchpad(context: ToolContext[Any]) -> str:
    """Read your page of notes."""
    return str(await read_value(context, SCRATCHPAD, "")) or "(empty)"


@tool(effect="idempotent", parallel=False, credentials=False)
async def write_scratchpad(
    content: Annotated[str, "The whole text of the page. It replaces the old text."], context: ToolContext[Any]
) -> str:
    """Write your page of notes: facts, plans and findings that you will need later."""
    size = len(content)
    if size > MOST_CHARACTERS:
        raise ToolError(f"{size:,} characters are too many, {MOST_CHARACTERS:,} are the most: keep what matters")
    await write_value(context, SCRATCHPAD, content)
    return f"The page has {size:,} characters now." if content else "The page is empty now."
