"""The tools of a request, as bytes. Above: `encode.py`. Below: `schemas.py`, `memo.py`, `core`.

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

MOST_KEPT = 256
"""How many lists of tools are kept. A session has one, and sessions of an agent often share it."""

_kept: OrderedDict[tuple[int, str, bool], tuple[Sequence[ToolSpec], msgspec.Raw]] = OrderedDict()


def tools_of(tools: Sequence[ToolSpec], profile: Profile) -> msgspec.Raw:
    """The list of tools. The very same list gives the very same bytes."""
    key = (id(tools), profile.schema, profile.strict_tools)
    kept = _kept.get(key)
    if kept is not None and kept[0] is tools:
        return kept[1]
    raw = msgspec.Raw(encoded([_tool(tool, profile) for tool in tools]))
    if isinstance(tools, tuple):  # anything else may change; and while it is kept, nobody else gets its id
        _kept[key] = (tools, raw)
        while len(_kept) > MOST_KEPT:
            _kept.popitem(last=False)
    return raw


def _tool(tool: ToolSpec, profile: Profile) -> dict[str, Any]:
    is_strict = profile.strict_tools and can_be_strict(tool.parameters)
    function: dict[str, Any] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = compiled(tool.parameters, profile.schema if is_strict else lenient(profile.schema))
    if is_strict:
        function["strict"] = True
    return {"type": "function", "function": function}
