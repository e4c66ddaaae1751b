"""The tools of a request. Pure. Above: `encode.py`. Below: `schemas`, `memo.py`.

A session sends the same tools with every request, so they are encoded once for each list of tools.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.core.model import ToolSpec
from perdure.models.memo import encoded
from perdure.models.profile import Profile
from perdure.models.schemas import can_be_strict, compiled, lenient

STRICT = "openai_strict"
"""The rules for a schema that the model is held to."""
MOST_KEPT = 256
"""How many lists of tools are remembered."""

_kept: OrderedDict[tuple[int, str, bool], tuple[Sequence[ToolSpec], msgspec.Raw]] = OrderedDict()
"""With each list itself, so that nothing else can have its identity."""


def encoded_tools(tools: Sequence[ToolSpec], profile: Profile) -> msgspec.Raw:
    """The list, encoded."""
    key = (id(tools), profile.schema, profile.strict_tools)
    kept = _kept.get(key)
    if kept is not None and kept[0] is tools:
        return kept[1]
    raw = msgspec.Raw(encoded(listed_tools(tools, profile)))
    if isinstance(tools, tuple):  # any other list may change
        _kept[key] = (tools, raw)
        if len(_kept) > MOST_KEPT:
            _kept.popitem(last=False)
    return raw


def listed_tools(tools: Sequence[ToolSpec], profile: Profile) -> list[dict[str, Any]]:
    """The list, tool by tool."""
    return [_tool(tool, profile) for tool in tools]


def _tool(tool: ToolSpec, profile: Profile) -> dict[str, Any]:
    is_strict = profile.strict_tools and can_be_strict(tool.parameters)
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": compiled(tool.parameters, STRICT if is_strict else lenient(profile.schema)),
        "strict": is_strict,  # where it is not said, some providers take it for granted
    }
