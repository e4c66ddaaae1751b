"""Encode the tool definitions of a Responses API request as JSON. No I/O.

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

STRICT_SCHEMA_RULES = "openai_strict"
"""Name of the schema rules that the provider enforces strictly."""
MAX_CACHED_TOOL_LISTS = 256
"""Maximum number of cached tool lists."""

_encoded_tools_cache: OrderedDict[tuple[int, str, bool], tuple[Sequence[ToolSpec], msgspec.Raw]] = OrderedDict()
"""Cache by identity; it keeps each list itself, so that its id is not reused."""


def encode_tools(tools: Sequence[ToolSpec], profile: Profile) -> msgspec.Raw:
    """Encode tool definitions as the `tools` list of a Responses request, in JSON.

    The result is cached if the definitions are a tuple.
    """
    key = (id(tools), profile.schema, profile.strict_tools)
    kept = _encoded_tools_cache.get(key)
    if kept is not None and kept[0] is tools:
        return kept[1]
    raw = msgspec.Raw(encode_lossy_json(build_tool_list(tools, profile)))
    if isinstance(tools, tuple):  # any other list may change
        _encoded_tools_cache[key] = (tools, raw)
        if len(_encoded_tools_cache) > MAX_CACHED_TOOL_LISTS:
            _encoded_tools_cache.popitem(last=False)
    return raw


def build_tool_list(tools: Sequence[ToolSpec], profile: Profile) -> list[dict[str, Any]]:
    """Return the tool definitions of a Responses API request as JSON objects."""
    return [_encode_tool(tool, profile) for tool in tools]


def _encode_tool(tool: ToolSpec, profile: Profile) -> dict[str, Any]:
    is_strict = profile.strict_tools and can_be_strict(tool.parameters)
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": compile_schema(
            tool.parameters, STRICT_SCHEMA_RULES if is_strict else get_lenient_dialect(profile.schema)
        ),
        "strict": is_strict,  # some providers assume True if it is missing
    }
