"""Merge tools that the caller adds through `Settings.extra_body` with the tools of the agent."""

from collections.abc import Mapping, Sequence
from typing import Any, cast


def merge_tool_definitions(ours: Sequence[Mapping[str, Any]], theirs: Any) -> list[Any]:
    """Return the agent's tool definitions, then the caller's; of two with the same name, the caller's is kept.

    One of the caller's replaces one of ours that has the same name: so a tool whose definition is the provider's, such
    as Anthropic's `memory`, can be run by a tool of the agent.
    """
    added = list(cast("Sequence[Any]", theirs)) if isinstance(theirs, (list, tuple)) else []
    names = {_get_tool_name(each) for each in added} - {None}
    return [*[each for each in ours if _get_tool_name(each) not in names], *added]


def _get_tool_name(tool: Any) -> str | None:
    """Return the name in a tool definition, which may be inside an object such as `toolSpec`."""
    if not isinstance(tool, Mapping):
        return None
    fields = cast("Mapping[str, Any]", tool)
    inner: Any = next((value for key, value in fields.items() if key in {"toolSpec", "systemTool"}), fields)
    name = cast("Mapping[str, Any]", inner).get("name") if isinstance(inner, Mapping) else None
    return name if isinstance(name, str) else None
