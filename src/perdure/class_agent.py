"""Agents that are described as a class: its methods are the tools, its attributes the rest. Above: callers.

Below: `agent.py`.

    class Harbour:
        "You look after the berths of a harbour."

        model = "anthropic:claude-sonnet-4-5"

        @tool
        async def free_berths(self) -> list[int]: ...

    agent = agent_of(Harbour())
"""

import inspect
import re
from collections.abc import Sequence
from typing import Any, cast

from .agent import Agent
from .core.error import ConfigError
from .core.model import Model
from .core.plain import excerpt
from .core.tool import Tool

_BETWEEN_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def tools_of(thing: object) -> list[Tool[..., Any]]:
    """The tools of an object: what is marked with `@tool` in its class, bound to it, and what it holds itself.

    Those of base classes come first, each in the order of definition; one that is defined again keeps its place. Class
    and static methods count. Nothing is called for it, no property is looked at.
    """
    _check_instance("tools_of", thing)
    names: dict[str, None] = {}
    for owner in reversed(type(thing).__mro__):
        names.update(dict.fromkeys(vars(owner)))
    names.update(dict.fromkeys(getattr(thing, "__dict__", ())))
    return [tool for name in names if (tool := _tool_called(thing, name)) is not None]


def agent_of(thing: object, model: Model | str | None = None, **options: Any) -> Agent[Any]:
    """An agent made of an object: its `@tool` methods are the tools, its attributes what `Agent` takes under that name.

    Args:
        thing: The object. An attribute `tools` lists more tools; without `instructions`, the docstring of its class
            stands for them; without a `name`, that of its class does, as in `harbour_master`.
        model: Who answers, when the object has no `model`, or another is wanted.
        options: Whatever `Agent` takes. They win over attributes; `tools` takes the place of all others.
    """
    _check_instance("agent_of", thing)
    known = list(inspect.signature(Agent).parameters)
    unknown = [name for name in options if name not in known]
    if unknown:
        raise ConfigError(f"agent_of(…) does not take {unknown[0]!r}: an agent takes {', '.join(known)}")
    fields = {name: getattr(thing, name) for name in known if name != "tools" and _has(thing, name)}
    given: dict[str, Any] = {
        "name": _snake_case(type(thing).__name__),
        "instructions": _docstring(type(thing)),
        "tools": [*tools_of(thing), *_more_tools(thing)],
        **fields,
        **options,
        **({} if model is None else {"model": model}),
    }
    if given.get("model") is None:
        kind = type(thing).__name__
        raise ConfigError(f"{kind} has no model: set {kind}.model, or use agent_of(…, 'provider:model')")
    return Agent(**given)


def _check_instance(call: str, thing: object) -> None:
    if isinstance(thing, type):
        raise ConfigError(f"{call}({thing.__name__}): give an object of it, as in {call}({thing.__name__}())")


def _tool_called(thing: object, name: str) -> Tool[..., Any] | None:
    """The tool that an object has under that name, bound to it; `None` when it is something else."""
    found = inspect.getattr_static(thing, name)
    if isinstance(found, (classmethod, staticmethod)):
        found = cast("object", found.__func__)
    return cast("Tool[..., Any]", found).__get__(thing, type(thing)) if isinstance(found, Tool) else None


def _has(thing: object, name: str) -> bool:
    """Whether it has an attribute of that name which is no tool: `stop` may well be one."""
    return hasattr(thing, name) and _tool_called(thing, name) is None


def _more_tools(thing: object) -> Sequence[Tool[..., Any]]:
    more = getattr(thing, "tools", ()) if _has(thing, "tools") else ()
    if isinstance(more, str) or not isinstance(more, Sequence):
        raise ConfigError(f"{type(thing).__name__}.tools is {excerpt(more)}: make it a list of tools")
    return cast("Sequence[Tool[..., Any]]", more)


def _docstring(kind: type) -> str:
    """What a class says of itself, or the nearest one above it that has tools; but not what `dataclass` made up."""
    for owner in kind.__mro__:
        words = owner.__dict__.get("__doc__") or ""
        is_made_up = "__dataclass_fields__" in owner.__dict__ and words.startswith(f"{owner.__name__}(")
        if words and not is_made_up and (owner is kind or _has_tools(owner)):
            return inspect.cleandoc(words)
    return ""


def _has_tools(owner: type) -> bool:
    found = [getattr(each, "__func__", each) for each in vars(owner).values()]
    return any(isinstance(each, Tool) for each in found)


def _snake_case(name: str) -> str:
    return _BETWEEN_WORDS.sub("_", name).lower().strip("_")
