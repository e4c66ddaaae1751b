"""Encode the tool definitions of a chat completions request as JSON.

A session sends the same tools with every request, so each list of tools is encoded once.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.core.model import ToolSpec
from perdure.models.encoding_memo import encode_lossy_json
from perdure.models.profile import Profile
from perdure.models.schemas import can_be_strict, compile_schema, get_lenient_dialect

MAX_CACHED_TOOL_LISTS = 256
"""Maximum number of cached tool lists. A session has one, and sessions of an agent often share it."""

_encoded_tools_cache: OrderedDict[tuple[int, str, bool], tuple[Sequence[ToolSpec], msgspec.Raw]] = OrderedDict()


def encode_tools(tools: Sequence[ToolSpec], profile: Profile) -> msgspec.Raw:
    """Encode tool definitions as the `tools` list of a chat completions request, in JSON.

    The result is cached if the definitions are a tuple.
    """
    key = (id(tools), profile.schema, profile.strict_tools)
    kept = _encoded_tools_cache.get(key)
    if kept is not None and kept[0] is tools:
        return kept[1]
    raw = msgspec.Raw(encode_lossy_json([_encode_tool(tool, profile) for tool in tools]))
    if isinstance(tools, tuple):  # a list may change; and while the tuple is cached, its id is not reused
        _encoded_tools_cache[key] = (tools, raw)
        while len(_encoded_tools_cache) > MAX_CACHED_TOOL_LISTS:
            _encoded_tools_cache.popitem(last=False)
    return raw


def _encode_tool(tool: ToolSpec, profile: Profile) -> dict[str, Any]:
    is_strict = profile.strict_tools and can_be_strict(tool.parameters)
    function: dict[str, Any] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = compile_schema(
        tool.parameters, profile.schema if is_strict else get_lenient_dialect(profile.schema)
    )
    if is_strict:
        function["strict"] = True
    return {"type": "function", "function": function}
