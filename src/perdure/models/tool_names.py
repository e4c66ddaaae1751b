"""Turn any tool name into one that every provider accepts.

The names of an agent's own tools are valid everywhere. A model may call a tool that does not exist, by any name; the
call stays in the conversation, and a provider would reject every later request that contains an invalid name.
"""

import re

MAX_TOOL_NAME_LENGTH = 64
"""Maximum length of a tool name."""

_DISALLOWED = re.compile(r"[^A-Za-z0-9_-]+")


def sanitize_tool_name(name: str) -> str:
    """Return the tool name with invalid characters replaced by `_`, cut to the length that every provider accepts."""
    return _DISALLOWED.sub("_", name)[:MAX_TOOL_NAME_LENGTH] or "_"
